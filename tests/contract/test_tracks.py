"""Every track found keeps the same promises, shown on its toy: staging, format check, scores, hostile submissions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toys._bench import Bench, load_toy, stage, toy_names, write_outputs

from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_file, to_json
from automedbench.base.records import DetailReport
from automedbench.base.views import CaseView, CaseViews
from automedbench.steps.inside.case_views import draw_views
from automedbench.steps.inside.check_workspace import OUTPUTS
from automedbench.tracks import get_track, track_names, track_settings
from automedbench.tracks.common.pictures import MAX_CASE_CHARS

ROOT = Path(__file__).resolve().parents[2]
TOYS = toy_names()
DEMO_AGENTS = ("careful", "hasty", "silent", "cheater", "crasher")
MODULES = ("__init__", "settings", "stage", "check", "score", "show")
MIN_HOSTILE = 25
MAX_VIEWS_BYTES = 1_000_000


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    """Each toy, staged once."""
    staged: dict[str, Bench] = {}

    def get(name: str) -> Bench:
        if name not in staged:
            staged[name] = stage(name, tmp_path_factory.mktemp(name))
        return staged[name]

    return get


@pytest.fixture(params=TOYS)
def bench(request: pytest.FixtureRequest, benches: Callable[[str], Bench]) -> Bench:
    return benches(request.param)


# --- what a track consists of ---------------------------------------------------------------------------------


def cards() -> list[TaskCard]:
    """Every card in the repository."""
    return [load_card(path) for path in find_cards([str(ROOT / "config/tasks"), str(ROOT / "demo/tasks")])]


@pytest.mark.parametrize("track", track_names())
def test_track_is_complete(track: str) -> None:
    """The modules that every track has, toy, words for agent and judge, a card, the five demo agents."""
    files = [
        *[f"src/automedbench/tracks/{track}/{module}.py" for module in MODULES],
        f"tests/toys/{track}.py",
        f"config/prompts/tracks/{track}.md",
        f"config/rubrics/{track}.yaml",
        *[f"demo/agents/{track}/{agent}.yaml" for agent in DEMO_AGENTS],
    ]
    absent = [name for name in files if not (ROOT / name).is_file()]
    if track not in {card.track for card in cards()}:
        absent.append(f"a card of the track {track} in config/tasks or demo/tasks")
    assert absent == []


def test_toys_are_of_tracks() -> None:
    """A misspelt toy would test nothing."""
    assert {name: load_toy(name).CARD.track for name in TOYS} == {name: name for name in TOYS}
    assert set(TOYS) <= set(track_names())


def test_the_toys_settings_are_the_tracks(bench: Bench) -> None:
    assert track_settings(bench.card)
    assert bench.card.medals


# --- staging --------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, str]:
    """Path below ``folder`` → hash."""
    return {
        path.relative_to(folder).as_posix(): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.mark.parametrize("workers", [1, 4])
def test_staging_again_gives_the_same_bytes(bench: Bench, tmp_path: Path, workers: int) -> None:
    """In another folder, from raw data with other dates, however many cases are worked on at a time."""
    again = stage(bench.card.track, tmp_path, workers)
    assert again.manifest == bench.manifest
    assert contents(again.public) == contents(bench.public)
    assert contents(again.private) == contents(bench.private)


def test_case_ids_are_opaque(bench: Bench) -> None:
    """Prefix and running number, nothing else; at least four cases, so that there are halves."""
    expected = [f"{bench.card.staging.case_prefix}_{number:04d}" for number in range(1, len(bench.cases) + 1)]
    assert bench.cases == expected
    assert len(bench.cases) >= 4


def test_public_files_are_those_of_the_card(bench: Bench) -> None:
    """Names differ in numbers at most (a question's second image), so that none can hold a label.

    Hashes and sizes are the manifest's.
    """
    declared = {unnumbered(each.file) for each in bench.card.inputs}
    listed = {f"{case.id}/{name}": entry for case in bench.manifest.cases for name, entry in case.inputs.items()}
    found = contents(bench.public)
    assert {unnumbered(name.partition("/")[2]) for name in listed} <= declared
    assert found == {name: entry.sha256 for name, entry in listed.items()}
    assert all((bench.public / name).stat().st_size == entry.bytes for name, entry in listed.items())


def unnumbered(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def test_private_data_stays_private(bench: Bench) -> None:
    """No private file by name or content below public, and no name of the raw data anywhere an agent can see it."""
    public, private = contents(bench.public), contents(bench.private)
    assert private
    assert not {Path(name).name for name in public} & {Path(name).name for name in private}
    assert not set(public.values()) & set(private.values())
    for case in bench.manifest.cases:
        assert {name: private[f"{case.id}/{name}"] for name in case.private} == {
            name: entry.sha256 for name, entry in case.private.items()
        }
    raw = bench.folder / "raw"
    stems = {path.name.split(".")[0] for path in raw.rglob("*")}
    shown = bench.manifest.model_dump_json() + "\n".join(public)
    assert [stem for stem in stems if re.search(r"\d", stem) and len(stem) > 3 and stem in shown] == []


def test_split_record(bench: Bench) -> None:
    """The private side says where every case comes from."""
    text = (bench.private / "split.json").read_text()
    assert json.loads(text)["seed"] == bench.card.staging.sampling.seed
    assert [case for case in bench.cases if f'"{case}"' not in text] == []


# --- scores ---------------------------------------------------------------------------------------------------


def test_check_needs_nothing_private(bench: Bench, tmp_path: Path) -> None:
    outputs = bench.perfect(bench.cases)
    hidden = bench.private.with_name("hidden")
    bench.private.rename(hidden)
    try:
        write_outputs(tmp_path / "workspace", outputs)
        checked = bench.collect(tmp_path / "workspace", tmp_path)
    finally:
        hidden.rename(bench.private)
    assert {each.case: each.problems for each in checked.cases if each.status != "valid"} == {}
    assert [each.case for each in checked.cases] == bench.cases


def test_perfect_submission(bench: Bench, tmp_path: Path) -> None:
    """The ceiling, found by the independent library as well."""
    report = bench.hand_in(bench.perfect(bench.cases), tmp_path, verify=True)
    assert_sound(bench, report)
    assert report.task_score == pytest.approx(bench.toy.CEILING, abs=1e-6)
    assert report.completion_rate == 1
    assert {each.status for each in report.cases} == {"valid"}
    assert report.verification is not None
    assert report.verification.tolerance <= 1e-3


def test_empty_submission(bench: Bench, tmp_path: Path) -> None:
    report = bench.hand_in({}, tmp_path, verify=True)
    assert_sound(bench, report)
    assert (report.task_score, report.completion_rate) == (0, 0)
    assert {each.status for each in report.cases} == {"missing"}


def test_half_a_submission(bench: Bench, tmp_path: Path) -> None:
    """Half the score, or what the track defines."""
    kept = bench.cases[: len(bench.cases) // 2]
    assert 2 * len(kept) == len(bench.cases), "an even number of cases"
    report = bench.hand_in(bench.perfect(kept), tmp_path, verify=True)
    assert_sound(bench, report)
    expected = bench.toy.CEILING / 2 if bench.toy.HALF is None else bench.toy.HALF
    assert report.task_score == pytest.approx(expected, abs=1e-6)
    assert [each.status for each in report.cases] == ["valid"] * len(kept) + ["missing"] * len(kept)


def test_lost_answers_and_changed_copies_are_no_score(bench: Bench, tmp_path: Path) -> None:
    """The job fails and no agent is blamed: other cases than checked, an answer that is gone, a copy that changed."""
    write_outputs(tmp_path / "workspace", bench.perfect(bench.cases))
    given = bench.inputs(bench.collect(tmp_path / "workspace", tmp_path), tmp_path)
    score = get_track(bench.card.track).score
    fewer = given.checked.model_copy(update={"cases": given.checked.cases[1:]})
    with pytest.raises(InfrastructureError, match="different cases"):
        score(replace(given, checked=fewer))
    private = shutil.copytree(bench.private, tmp_path / "private")
    for path in (private / bench.cases[0] / name for name in bench.manifest.cases[0].private):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(InfrastructureError, match=re.escape(path.name)):
            score(replace(given, private=private))
        path.write_bytes(content)
    for path in (each for each in (tmp_path / "submission").rglob("*") if each.is_file()):
        path.chmod(0o600)
        path.write_bytes(b"\xff")
    with pytest.raises(InfrastructureError, match="not what was collected"):
        score(given)


def assert_sound(bench: Bench, report: DetailReport) -> None:
    """Every expected case in order, scores from 0 to 1, and a record that can be written."""
    assert [each.case for each in report.cases] == bench.cases
    assert 0 <= report.task_score <= 1
    assert 0 <= report.quality <= 1
    text = to_json(report.model_dump(mode="json", by_alias=True))
    assert DetailReport.model_validate_json(text) == report


# --- pictures -------------------------------------------------------------------------------------------------


def test_every_case_is_shown(bench: Bench, tmp_path: Path) -> None:
    """Of a perfect submission: input, prediction and reference of each, small enough, in a record that can be kept."""
    write_outputs(tmp_path / "workspace", bench.perfect(bench.cases))
    checked = bench.collect(tmp_path / "workspace", tmp_path)
    report = bench.grade(checked, tmp_path)
    views = draw_views(bench.inputs(checked, tmp_path), report, len(bench.cases))
    assert sorted(view.case for view in views.cases) == bench.cases
    track = get_track(bench.card.track)
    assert track.metric_of_cases in report.cases[0].metrics
    for view in views.cases:
        assert shown_sides(view) >= {"input", "prediction", "reference"}
        assert sum(len(layer.picture) for frame in view.frames for layer in frame.layers) <= MAX_CASE_CHARS
    text = to_json(views.model_dump(mode="json", by_alias=True))
    assert CaseViews.model_validate_json(text) == views


def test_missing_cases_are_shown_without_prediction(bench: Bench, tmp_path: Path) -> None:
    checked = bench.collect(tmp_path / "workspace", tmp_path)
    report = bench.grade(checked, tmp_path)
    (view,) = draw_views(bench.inputs(checked, tmp_path), report, 2).cases  # too few to show the first of every run
    assert (view.case, view.status, view.why) == (bench.cases[0], "missing", f"first of {len(bench.cases)} missing")
    sides = {layer.side for frame in view.frames for layer in frame.layers}
    assert {"input"} <= sides <= {"input", "reference"}
    (said,) = [text for text in view.texts if text.side == "prediction"]
    assert said.title == "Why it is missing"


def shown_sides(view: CaseView) -> set[str]:
    """Sides that have a picture, a box or a text."""
    pictures = {layer.side for frame in view.frames for layer in frame.layers}
    return pictures | {box.side for frame in view.frames for box in frame.boxes} | {text.side for text in view.texts}


# --- hostile submissions --------------------------------------------------------------------------------------


def test_corpus_is_large_enough(bench: Bench) -> None:
    ids = [each.id for each in bench.toy.HOSTILE]
    assert len(ids) >= MIN_HOSTILE
    assert len(set(ids)) == len(ids)


def test_hostile_outputs(bench: Bench) -> None:
    """Each gets its documented verdict within 2 GiB and a minute; no other case notices, and scoring goes on."""
    done = subprocess.run(
        [sys.executable, "-m", "toys._bench", bench.card.track, str(bench.folder)],
        cwd=ROOT / "tests",
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(bench.folder / "hostile", ignore_errors=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {verdict["id"]: verdict for verdict in map(json.loads, done.stdout.splitlines())}
    ceiling = bench.toy.CEILING + 1e-9
    wrong = {each.id: why for each in bench.toy.HOSTILE if (why := unexpected(each, found[each.id], ceiling))}
    assert wrong == {}


def unexpected(hostile: Any, found: dict[str, Any], ceiling: float) -> str | None:
    """What is not as it should be about one hostile output."""
    if found["error"] is not None:
        return str(found["error"])
    known = not found["codes"] if hostile.code is None else hostile.code in found["codes"]
    if found["status"] != hostile.status or not known:
        return f"is {found['status']} because of {found['codes']}, not {hostile.status} because of {hostile.code}"
    if found["others_changed"]:
        return f"changes the scores of {found['others_changed']}"
    if not 0 <= found["task_score"] <= ceiling:
        return f"scores {found['task_score']}"
    if found["not_drawn"] or found["views_bytes"] > MAX_VIEWS_BYTES:
        return f"is not drawn ({found['not_drawn']}), or in {found['views_bytes']} bytes"
    return f"is told in {found['longest']} characters" if found["longest"] > 1000 else None


def link(truth: Path, place: Path) -> None:
    """The answer's path as a symbolic link."""
    place.symlink_to(truth)


def link_folder(truth: Path, place: Path) -> None:
    """The folder of the answers for the folder of the output; a file without a folder of its own is a link."""
    if place.parent.name == OUTPUTS:
        place.symlink_to(truth)
    else:
        place.parent.rmdir()
        place.parent.symlink_to(truth.parent)


@pytest.mark.parametrize("hand_in", [link, os.link, link_folder], ids=["link", "hard link", "linked folder"])
def test_truth_cannot_be_handed_in(bench: Bench, tmp_path: Path, hand_in: Callable[[Path, Path], None]) -> None:
    """Not one byte of the private folder comes out by way of links, and nobody scores with them."""
    for case in bench.cases:
        truth = min(path for path in (bench.private / case).rglob("*") if path.is_file())
        for path in bench.card.expected_outputs([case]):
            place = tmp_path / "workspace" / OUTPUTS / path
            if not place.parent.is_symlink() and not place.is_symlink() and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                hand_in(truth, place)
    checked = bench.collect(tmp_path / "workspace", tmp_path)
    assert contents(tmp_path / "submission") == {}
    assert {each.status for each in checked.cases} == {"missing"}
    assert bench.grade(checked, tmp_path).task_score == 0
