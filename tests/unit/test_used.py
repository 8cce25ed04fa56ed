"""What a run took of machines: readings of its processes, added up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import make_score
from harness_fakes import submit
from run_fakes import KEY, KEY_NAME, WORK, make_plan, start

from automedbench.agent.budget import used as used_module
from automedbench.agent.budget.used import (
    FOLDER,
    ProcessStart,
    ProcessUsage,
    UsageRecorder,
    UsedBook,
    read_use,
)
from automedbench.agent.run import RunPlan
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import Used
from automedbench.base.slurm import parse_seconds
from automedbench.sandbox.container.cgroup import Group

BEGAN = datetime(2026, 1, 2, 3, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("01:02:03", 3723),
        ("1-02:03:04", 93_784),
        ("12:34", 754),
        ("00:00:00", 0),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert parse_seconds(text) == seconds


# --- a shift --------------------------------------------------------------------------------------------------


def shift_of(began: datetime = BEGAN, gpus: int = 2, **changes: Any) -> ProcessUsage:
    told = dict.fromkeys(("held_s", "gpu_held_s", "cpu_s", "peak_memory_mib"), "process")
    used = Used(held_s=100, gpu_held_s=100 * gpus or None, cpu_s=7, peak_memory_mib=9, jobs=["4711"], told_by=told)
    shift = ProcessUsage(began=began, anew=True, gpus=gpus, used=used, ended=True)
    return shift.model_copy(update=changes)


def test_what_is_not_known_of_a_part_is_not_known_of_all() -> None:
    one = Used(held_s=1.5, cpu_s=1, peak_memory_mib=5, nodes=["n1"], told_by={"held_s": "process", "cpu_s": "process"})
    other = Used(held_s=2, peak_memory_mib=3, nodes=["n2", "n1"], told_by={"held_s": "process", "cpu_s": "not read"})
    total = one + other
    assert (total.held_s, total.cpu_s, total.peak_memory_mib, total.nodes) == (3.5, None, 5, ["n1", "n2"])
    assert total.told_by == {"held_s": "process", "cpu_s": "process; not read"}


def test_peak_of_a_control_group(tmp_path: Path) -> None:
    """``memory.peak`` is there from Linux 5.19 on."""
    assert Group(tmp_path).peak is None
    (tmp_path / "memory.peak").write_text("3221225472\n")
    assert Group(tmp_path).peak == 3 * 2**30


# --- runs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def plan(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    monkeypatch.setenv(KEY_NAME, KEY)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return replace(make_plan(tmp_path, root), results=tmp_path / "results")


def book_of(plan: RunPlan) -> UsedBook:
    [path] = (plan.folder.parent / "results" / FOLDER).iterdir()
    return read_record(path, UsedBook)


def test_a_run_that_was_interrupted_adds_up(plan: RunPlan) -> None:
    """Of a process that was killed there is its last reading, and the record says so."""
    with pytest.raises(InfrastructureError):
        start(plan, *WORK, InfrastructureError("the disk is gone"))
    [first] = book_of(plan).shifts
    assert (first.anew, first.ended) == (True, True)
    killed = first.model_copy(
        update={"anew": False, "ended": False, "used": first.used.model_copy(update={"cpu_s": 5.0})}
    )
    [path] = (plan.folder.parent / "results" / FOLDER).iterdir()
    write_record(path, UsedBook(run=plan.run.path, shifts=[shift_of(), first, killed]))
    used = start(plan, submit("two images")).used
    assert used is not None
    *_, last = book_of(plan).shifts
    assert (last.anew, last.ended) == (False, True)
    # Not the 7 s of an older attempt of this name, whose folder was moved away.
    assert used.cpu_s == pytest.approx((first.used.cpu_s or 0) + 5 + (last.used.cpu_s or 0), abs=0.02)
    assert used.told_by["cpu_s"] == "process; process, a minute or less before it was killed"
    assert (used.gpu_held_s, used.gpu_busy_s, used.told_by["gpu_held_s"]) == (None, None, "no GPU was requested")
    assert read_use(plan.folder.parent / "results", gpus=1)[plan.run.path].gpu_held_s == 200  # the older attempt's


def test_empty_places_of_a_shared_job_are_charged_to_its_runs(tmp_path: Path) -> None:
    """By hand: a job for four had two, of 100 s and, from its 60th second on, 60 s: 2 GPUs × 120 s, as 100 : 60."""
    for name, later_s, held_s in (("a", 0, 100.0), ("b", 60, 60.0)):
        shift = shift_of(BEGAN + timedelta(seconds=later_s), share=4)
        used = shift.used.model_copy(update={"held_s": held_s, "gpu_held_s": held_s * 2 / 4})
        book = UsedBook(run=f"{name}/t/lite/r1", shifts=[shift.model_copy(update={"used": used})])
        write_record(tmp_path / FOLDER / f"{name}.json", book)
    found = read_use(tmp_path)
    assert [found[f"{name}/t/lite/r1"].gpu_held_s for name in "ab"] == [150, 90]


def test_a_reading_with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 2 cards for 50 s are 100 s; and a process that lost its lease leaves the file to its successor."""
    now = [100.0]
    monkeypatch.setattr(used_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(used_module, "driver_version", lambda: "550.54")
    lost: list[str] = []

    def check() -> None:
        if lost:
            raise InfrastructureError("the lease was taken")

    enforced = make_score().enforced.model_copy(update={"gpu_names": ["H100", "H100"], "limits": "cgroup"})
    box: Any = SimpleNamespace(peak_memory=3 * 2**30, gpu_busy_s=12.5, gpu_idle_s=7.0, gpu_turns_s=(14.0, 3.0))
    box.enforced = enforced
    sheet = UsageRecorder(tmp_path, "a/t/lite/r1", "0001", True, 2, 4, check, ProcessStart(BEGAN, 100.0, 0.0), box)
    with sheet:
        now[0] = 150.0
        used = sheet.close()
    # 50 s × 2 GPUs that four runs share
    assert (used.held_s, used.gpu_held_s, used.gpu_busy_s, used.peak_memory_mib) == (50, 25, 12.5, 3072)
    assert (used.gpu_lease_s, used.gpu_waited_s, used.gpu_idle_s) == (14, 3, 7)
    assert (used + used.model_copy(update={"gpu_idle_s": 9.0})).gpu_idle_s == 9
    assert (used.gpu_drivers, used.told_by["peak_memory_mib"]) == (["550.54"], "cgroup, with cached files")
    assert read_use(tmp_path, gpus=1)["a/t/lite/r1"].gpu_busy_s == 12.5
    box.gpu_busy_s = None
    with UsageRecorder(
        tmp_path, "a/t/lite/r1", "0001", False, 2, 4, check, ProcessStart(BEGAN, 100.0, 0.0), box
    ) as sheet:
        lost.append("now")
    assert [shift.ended for shift in read_record(sheet.path or tmp_path, UsedBook).shifts] == [True, False]
    assert read_use(tmp_path, gpus=1)["a/t/lite/r1"].gpu_busy_s is None
