"""Everything that led to a score, compared link by link; each link is broken once."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import make_recipe, make_run, make_score, run_records

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import MissingDataError
from automedbench.base.files import sha256_bytes, sha256_file, write_bytes, write_record
from automedbench.base.records import (
    CaseEntry,
    CaseSubmission,
    FileEntry,
    Manifest,
    Receipt,
    RunRecord,
    SubmissionRecord,
)
from automedbench.base.records import now as present
from automedbench.campaign.config import DataPaths
from automedbench.commands.verify import verify_run
from automedbench.sandbox.airlock.archive import OUTPUTS
from automedbench.sandbox.container.layer import layer_path
from automedbench.scoring.run import score_from_files

TASK = "bccd-det-task"
IMAGE, TRUTH, OUTPUT, PLAN, BRIEF, RAW, CONTAINER = (
    *(b"pixels", b"boxes", b"prediction", b"# Plan", b"the brief", b"archive", b"squashfs"),
)


def entry(data: bytes) -> FileEntry:
    return FileEntry(sha256=sha256_bytes(data), bytes=len(data))


Place = tuple[Path, Any]
"""Folder of a run, and its campaign as far as it is read."""


def campaign_of(cards: dict[str, TaskCard], folder: Path, image: Path | None) -> Any:
    """A campaign with its data and images in a folder."""
    data = DataPaths(**{name: str(folder / name) for name in DataPaths.model_fields})
    config = SimpleNamespace(
        data=data,
        containers=SimpleNamespace(folder=str(folder)),
        flavour=lambda image: image,
        image=lambda _: image and str(image),
    )
    return SimpleNamespace(cards=cards, agents={}, config=config)


@pytest.fixture
def place(tmp_path: Path, root: Path) -> Place:
    """A scored run of one case with everything around it, as the workflow leaves it."""
    card = load_card(root / f"config/tasks/detection/{TASK}.yaml")
    manifest = Manifest(
        task=TASK,
        task_version=card.version,
        track="detection",
        dataset="bccd",
        sampling="by hand",
        cases=[CaseEntry(id="a", inputs={"image.jpg": entry(IMAGE)}, private={"boxes.json": entry(TRUTH)})],
    )
    folder = tmp_path / "r1"
    for path, data in {
        tmp_path / f"public/{TASK}/a/image.jpg": IMAGE,
        tmp_path / f"private/{TASK}/a/boxes.json": TRUTH,
        tmp_path / "raw/bccd/test.zip": RAW,
        tmp_path / "agent.sif": CONTAINER,
        folder / "brief.md": BRIEF,
        folder / "submission/agents_outputs/a/prediction.json": OUTPUT,
        folder / "submission/plan/plan.md": PLAN,
    }.items():
        write_bytes(path, data)
    tarfile.open(folder / OUTPUTS, "w").close()  # the submitted files lie in submission/ as if made anew
    write_record(tmp_path / f"manifests/{TASK}.json", manifest)
    receipt = Receipt(
        dataset="bccd",
        source="path x",
        revision=None,
        licence="MIT",
        attribution="a",
        fetched_at=present(),
        files={"test.zip": entry(RAW)},
    )
    write_record(tmp_path / "raw/bccd/receipt.json", receipt)
    recipe = make_recipe(task_version=card.version, cases_sha256=manifest.cases_sha256)
    records = run_records(make_score(make_run(task=TASK), recipe=recipe), n_cases=1)
    run, submission = records["run.json"], records["submission.json"]
    assert isinstance(run, RunRecord)
    assert isinstance(submission, SubmissionRecord)
    enforced = run.enforced.model_copy(update={"image_sha256": sha256_bytes(CONTAINER)})
    cases = {"cases_sha256": manifest.cases_sha256, "brief_sha256": sha256_bytes(BRIEF), "enforced": enforced}
    records["run.json"] = run.model_copy(update=cases)
    case = CaseSubmission(case="a", status="valid", completed=True, files={"a/prediction.json": entry(OUTPUT)})
    records["submission.json"] = submission.model_copy(update={"cases": [case], "extra": {"plan/plan.md": entry(PLAN)}})
    for name, record in records.items():
        write_record(folder / name, record)
    write_record(folder / "score.json", score_from_files(card, folder.joinpath))
    return folder, campaign_of({TASK: card}, tmp_path, tmp_path / "agent.sif")


LINKS = (
    *("records of the run", "score made again", "collected files", "brief", "agent image"),
    *("staged cases", "staged inputs", "staged private", "raw data"),
)


def test_unchanged(place: Place) -> None:
    checks = verify_run(*place)
    assert [(check.what, check.verdict) for check in checks] == [(name, "same") for name in LINKS]


def edit(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Another valid record in the file's place."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("broken", "change"),
    [
        ({"records of the run"}, lambda run: edit(run / "run.json", lambda data: data.update(detail="other"))),
        (
            {"records of the run", "score made again"},
            lambda run: edit(run / "judge.json", lambda data: data.update(stages={"S1": 0, "S2": 0, "S3": 0})),
        ),
        ({"score made again"}, lambda run: edit(run / "score.json", lambda data: data.update(medal="good"))),
        ({"collected files"}, lambda run: (run / "submission/plan/plan.md").write_bytes(b"# PLAN")),
        ({"collected files"}, lambda run: (run / "submission/agents_outputs/a/prediction.json").unlink()),
        ({"brief"}, lambda run: (run / "brief.md").write_bytes(b"another")),
        ({"agent image"}, lambda run: (run.parent / "agent.sif").write_bytes(b"rebuilt")),
        ({"staged inputs"}, lambda run: (run.parent / f"public/{TASK}/a/image.jpg").write_bytes(b"PIXELS")),
        ({"staged private"}, lambda run: (run.parent / f"private/{TASK}/a/boxes.json").write_bytes(b"longer boxes")),
        ({"raw data"}, lambda run: (run.parent / "raw/bccd/test.zip").unlink()),
        (
            {"staged cases"},
            lambda run: edit(run.parent / f"manifests/{TASK}.json", lambda data: data.update(cases=data["cases"] * 2)),  # type: ignore[operator]
        ),
    ],
    ids=[
        *("run record", "judgement", "score", "plan", "output gone", "brief", "image", "input", "answer", "raw gone"),
        "other cases",
    ],
)  # fmt: skip
def test_each_link_can_break(broken: set[str], change: Callable[[Path], object], place: Place) -> None:
    change(place[0])
    found = {check.what: check for check in verify_run(*place)}
    assert {name for name, check in found.items() if check.verdict == "differs"} == broken
    assert all(found[name].detail for name in broken)


def test_the_layer_of_a_program_is_a_link_too(place: Place, tmp_path: Path) -> None:
    layer = layer_path(tmp_path, "tool")
    layer.write_bytes(b"program")
    place[1].agents["agent"] = SimpleNamespace(image=None, layer="tool")

    def verdict() -> str:
        return next(check.verdict for check in verify_run(*place) if check.what == "agent layer")

    assert verdict() == "absent"  # the run had none
    run = json.loads((place[0] / "run.json").read_text())
    run["enforced"]["layer_sha256"] = sha256_bytes(b"program")
    (place[0] / "run.json").write_text(json.dumps(run))
    assert verdict() == "same"
    layer.write_bytes(b"another")
    assert verdict() == "differs"


def test_what_is_not_there_is_no_difference(place: Place) -> None:
    """A results folder that was copied elsewhere, without data and image."""
    checks = verify_run(place[0], campaign_of({}, Path("no"), None))
    verdicts = {check.what: check.verdict for check in checks}
    absent = {"score made again", "agent image", "staged cases"}
    assert {name for name, verdict in verdicts.items() if verdict == "absent"} == absent
    assert "differs" not in verdicts.values()


def test_no_score(place: Place) -> None:
    (place[0] / "score.json").unlink()
    with pytest.raises(MissingDataError, match=r"score\.json"):
        verify_run(*place)


def test_the_control(place: Place) -> None:
    """The digests that the tests rest on are real."""
    folder = place[0]
    assert (
        sha256_file(folder.parent / "agent.sif")
        == json.loads((folder / "run.json").read_text())["enforced"]["image_sha256"]
    )
