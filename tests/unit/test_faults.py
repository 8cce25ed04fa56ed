"""Faults: what is planted where, and what says that a run met it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from factories import make_brief_plan, make_call, vary_plan
from harness_fakes import Bench, FakeModel, code, submit
from PIL import Image
from run_fakes import WORK, make_plan, start

from automedbench.agent.faults import CUT_S, PlantedFault
from automedbench.agent.plan import compose_brief
from automedbench.base.cards import TaskCard, load_card
from automedbench.base.records import CaseEntry, CodeCall, FileEntry, Process
from automedbench.campaign.treatments import FAULTS, Difference, FaultName
from automedbench.sandbox.egress.planted import DOWN_S, Outage

ROOT = Path(__file__).parents[2]
CARD = load_card(ROOT / "config/tasks/detection/bccd-det-task.yaml")
PICTURE = np.arange(48, dtype=np.uint8).reshape(6, 8)


def plant(name: FaultName, *files: str, card: TaskCard = CARD) -> PlantedFault:
    """The fault of a task of three cases with these files each."""
    entry = FileEntry(sha256="0" * 64, bytes=1)
    cases = [CaseEntry(id=f"c{n}", inputs=dict.fromkeys(files, entry), private={}) for n in range(3)]
    return PlantedFault(name, card, card.manifest("some", cases))


def stage(public: Path, name: str, write: Callable[[Path], Any]) -> None:
    for case in ("c0", "c1", "c2"):
        (public / case).mkdir(parents=True)
        write(public / case / name)


def save_volume(path: Path) -> None:
    nibabel.save(nibabel.Nifti1Image(PICTURE.reshape(6, 4, 2).astype(np.int16), np.diag([2.0, 3, 4, 1])), path)


def values(path: Path) -> np.ndarray:
    return np.asanyarray(nibabel.load(path).dataobj) if path.name.endswith(".nii.gz") else np.asarray(Image.open(path))


@pytest.mark.parametrize(
    ("name", "write", "expected", "kind"),
    [
        ("image.png", lambda path: Image.fromarray(PICTURE).save(path), PICTURE * 257.0, np.uint16),
        ("image.png", lambda path: Image.fromarray(np.stack([PICTURE] * 3, -1)).save(path), PICTURE, np.uint8),
        ("ct.nii.gz", save_volume, PICTURE.reshape(6, 4, 2), np.float64),
    ],
)
def test_the_odd_case_is_the_same_picture_in_another_form(
    tmp_path: Path, name: str, write: Callable[[Path], Any], expected: np.ndarray, kind: type
) -> None:
    """255 of 8 bit are 65 535 of 16; the middle case of three; the staged file stays as it was, the copy goes."""
    stage(tmp_path / "public", name, write)
    before = values(tmp_path / "public/c1" / name)
    with plant("odd-case", name).change_inputs(tmp_path / "public", tmp_path / "copy") as seen:
        assert np.array_equal(values(seen / "c1" / name), expected) and values(seen / "c1" / name).dtype == kind
        assert (seen / "c0" / name).samefile(tmp_path / "public/c0" / name)
    assert not (tmp_path / "copy").exists() and np.array_equal(values(tmp_path / "public/c1" / name), before)


def test_the_damaged_case_ends_early(tmp_path: Path) -> None:
    stage(tmp_path / "public", "image.jpg", lambda path: path.write_bytes(bytes(range(100))))
    with plant("damaged-case", "case.json", "image.jpg").change_inputs(tmp_path / "public", tmp_path / "copy") as seen:
        assert (seen / "c1/image.jpg").read_bytes() == bytes(range(60))


def test_a_stale_output_is_not_counted(tmp_path: Path) -> None:
    """It is older than all else; unchanged it is taken away, replaced it is the agent's."""
    fault, file = plant("stale-output", "image.png"), tmp_path / "agents_outputs/c1/prediction.json"
    for text, kept in ((None, True), ('{"boxes": []}', False)):
        fault.leave_output(tmp_path, tmp_path)
        assert file.read_text() == "{}\n" and file.stat().st_mtime < tmp_path.stat().st_mtime - 24 * 3600
        if text:
            file.write_text(text)
        assert fault.take_output(tmp_path, tmp_path) is kept and file.exists() is not kept
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert not fault.take_output(tmp_path, tmp_path) and file.is_symlink()


def opened(*paths: str, left_out: int = 0) -> list[CodeCall]:
    process = Process(command="python", parent=None, exit_code=0, reads=list(paths), left_out=left_out)
    return [make_call(call=1, processes=[]), make_call(call=2, processes=[process])]


INPUT = "/data/public/c1/image.png"


@pytest.mark.parametrize(
    ("name", "calls", "kept", "met"),
    [
        ("damaged-case", opened(INPUT), False, True),
        ("damaged-case", opened("/data/public/c0/image.png"), False, False),
        ("damaged-case", opened("/data/public/c0/image.png", left_out=9), False, None),
        ("odd-case", [make_call()], False, None),  # not traced
        ("odd-case", [], False, False),
        ("cut-call", [make_call(status="timeout", elapsed_s=CUT_S + 0.3)], False, True),
        ("cut-call", [make_call(status="timeout", elapsed_s=600.0)], False, False),  # the run's own limit
        ("cut-call", [make_call()], False, False),
        ("stale-output", opened(), True, True),
        ("wrong-hint", [], False, True),
        ("index-down", [make_call()], False, False),  # nothing asked for it
        ("slow-endpoint", [make_call()], False, False),
    ],
)
def test_met_is_what_a_record_shows(
    tmp_path: Path, name: FaultName, calls: list[CodeCall], kept: bool, met: bool | None
) -> None:
    found = plant(name, "image.png").gather(calls, tmp_path / "egress.jsonl", 0, kept=kept)
    assert (found.fault, found.met, found.kept) == (name, met, kept) and found.evidence


def test_the_index_is_down_for_five_minutes_from_the_first_request() -> None:
    now = [0.0]
    fault = Outage("index-down", ("index.example",), clock=lambda: now[0])
    for now[0], service, target, down in (
        (100.0, "proxy", "code.example:443", False),
        (200.0, "proxy", "index.example:443", True),
        (200.0 + DOWN_S - 1, "index", "/simple/torch/", True),
        (200.0 + DOWN_S, "proxy", "http://index.example/simple/", False),
    ):
        assert fault.is_down(service, target) is down, (now, target)


def test_the_first_long_call_is_cut(tmp_path: Path) -> None:
    with Bench(tmp_path, FakeModel(code("sleep 30"), code("sleep 30"), submit(), submit())) as bench:
        bench.toolbox.first_timeout_s = 20.0
        bench.loop.run()
    assert [call.status for call in bench.toolbox.calls] == ["timeout", "ok"]


def test_briefs_differ_in_the_fault_alone() -> None:
    plan = make_brief_plan(CARD, ["a", "b"])
    plain = compose_brief(plan).system
    told = {name: compose_brief(vary_plan(plan, treatment=Difference(fault=name))).system for name in FAULTS}
    assert {name: text.removeprefix(plain).strip()[:14] for name, text in told.items() if text != plain} == {
        "wrong-hint": "Note on the da",
        "conflicting-requirement": "Deliver all re",
    }


def test_a_run_says_what_became_of_its_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-canary-0123456789")
    plan = vary_plan(make_plan(tmp_path, ROOT), treatment=Difference(fault="stale-output"))
    record = start(plan, code("write plan/plan.md"), submit(), submit())
    assert record.fault is not None and record.fault.kept and record.fault.cases == ["b_0002"]
    workspace = json.loads((plan.folder / "conversation.json").read_text())["workspace_files"]
    assert list(workspace) == ["plan/plan.md"]
    assert start(make_plan(tmp_path / "other", ROOT), *WORK, submit()).fault is None
