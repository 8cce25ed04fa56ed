"""Steps that share a process: the list that one works off, and the choice of what goes into a list."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from automedbench.base.slurm import is_busy, read_states, states_in_accounting, states_in_queue
from snakemake_executor_plugin_automedbench import slurm, together
from snakemake_executor_plugin_automedbench.batches import Batch, Batches, end_batches
from snakemake_executor_plugin_automedbench.slurm import LEFT, SlurmExecutor, take_due
from snakemake_executor_plugin_automedbench.together import (
    Step,
    StepList,
    do_steps,
    read_list,
    read_verdicts,
    verdict_path,
    write_list,
)

SCRIPT = """
import os, sys
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 1)
print("said by the step", flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("step.py").write_text(SCRIPT)
    return tmp_path / "list.json"


def inside(number: int, code: int = 0, after: tuple[int, ...] = ()) -> Step:
    return Step(number, f"python step.py {number}.log {code}", after, inside=True)


def test_list_is_read_as_written(place: Path) -> None:
    written = StepList((Step(1, "echo 'a b'", [], ["file"]), Step(2, "true", [1], [], inside=True)), 3.0, 60.0)
    write_list(place, written)
    assert read_list(place) == written


def test_a_failed_step_costs_only_those_behind_it(place: Path) -> None:
    steps = [inside(1), inside(2, code=1, after=(1,)), inside(3, after=(2,)), inside(4, after=(1,)), Step(5, "exit 3")]
    write_list(place, StepList([*steps, Step(6, "echo $0 > six; true | cat")]))
    words = [sys.executable, "-c", f"from {together.__name__} import *; print(do_steps(Path({str(place)!r})))"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert read_verdicts(place) == {1: "done", 2: "failed", 4: "done", 5: "failed", 6: "done"}
    assert [Path(f"{number}.log").read_text() for number in (1, 2, 4)] == ["said by the step\n"] * 3
    assert ended.stdout == "False\n"  # back on the terminal


def test_a_list_that_is_begun_again_goes_on(place: Path) -> None:
    """As after Slurm's requeue: what is done is not done again; half a line of a killed process is no line."""
    write_list(place, StepList([Step(1, "echo 1 >> made"), Step(2, "echo 2 >> made", [1])]))
    verdict_path(place).write_text('{"step": 1, "state": "begun"}\n{"step": 1, "state": "done"}\n{"step": 2, "sta')
    assert read_verdicts(place) == {1: "done"}
    verdict_path(place).write_text('{"step": 1, "state": "begun"}\n{"step": 1, "state": "done"}\n')
    assert do_steps(place)
    assert Path("made").read_text() == "2\n"


def test_no_step_is_begun_too_late(place: Path) -> None:
    write_list(place, StepList([Step(1, "sleep 0.3"), Step(2, "true")], begin_within_s=0.1))
    assert not do_steps(place)
    assert read_verdicts(place) == {1: "done"}


def test_a_removed_list_ends_after_the_step_that_runs(place: Path) -> None:
    """As its head is dead and the next one plans these steps anew."""
    write_list(place, StepList([Step(1, "sleep 0.5"), Step(2, "touch second")]))
    process = subprocess.Popen([sys.executable, "-P", together.__file__, str(place)])
    deadline = time.monotonic() + 30
    while not verdict_path(place).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    end_batches(place.parent)
    assert process.wait(30) == 1
    assert not Path("second").exists() and not verdict_path(place).exists()


def test_a_signal_reaches_the_step_and_ends_the_list(place: Path) -> None:
    """A step that was asked to end is neither done nor failed: its Slurm job may be begun again."""
    write_list(
        place, StepList([Step(1, "trap 'touch asked; exit 143' TERM; touch up; sleep 9 & wait"), Step(2, "true")])
    )
    process = subprocess.Popen([sys.executable, "-P", together.__file__, str(place)])
    deadline = time.monotonic() + 30
    while not Path("up").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 1
    assert Path("asked").exists()
    assert read_verdicts(place) == {1: "begun"}


def test_steps_beside_each_other_fill_places_that_get_free(place: Path) -> None:
    """Five runs of a card that two share: never three at a time, and one that fails costs the others nothing."""
    step = "echo begin >> log; sleep 0.3; echo end >> log; exit {}"
    write_list(place, StepList([Step(k, step.format(int(k == 2))) for k in range(1, 6)], beside=2))
    assert not do_steps(place)
    assert read_verdicts(place) == {1: "done", 2: "failed", 3: "done", 4: "done", 5: "done"}
    sums = list(itertools.accumulate({"begin": 1, "end": -1}[line] for line in Path("log").read_text().split()))
    assert (max(sums), sums[-1], len(sums)) == (2, 0, 10)
    assert not do_steps(place)  # requeued: nothing is done again, nor what had failed
    assert len(Path("log").read_text().split()) == 10


def test_a_signal_ends_steps_beside_each_other_and_begins_no_more(place: Path) -> None:
    """One of them is killed alone before; the other goes on until the job is asked to end."""
    steps = [Step(1, "touch one; kill -9 $$"), *(Step(k, f"touch {k}; exec sleep 30") for k in (2, 3, 4))]
    write_list(place, StepList(steps, beside=2))
    process = subprocess.Popen([sys.executable, "-P", together.__file__, str(place)])
    deadline = time.monotonic() + 30
    while not Path("3").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 1
    assert read_verdicts(place) == {1: "begun", 2: "begun", 3: "begun"}
    assert not Path("4").exists()


# --- which steps share a list ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Job:
    """What the batches ask of Snakemake's jobs."""

    jobid: int
    name: str
    output: list[str]
    input: list[str] = field(default_factory=list)
    batched: int = 0
    resources: dict[str, int] = field(default_factory=dict)
    beside: int = 1

    @property
    def rule(self) -> Any:
        return SimpleNamespace(name=self.name, resources={"batched": self.batched, "beside": self.beside})

    @property
    def shellcmd(self) -> str:
        return f"python scripts/{self.name}.py"

    def is_group(self) -> bool:
        return False


class Plan:
    """What they ask of its plan: collect → audit, measure → score for each run, and a board of all scores."""

    def __init__(self, runs: int, done: tuple[str, ...] = (), paid: tuple[str, ...] = ()) -> None:
        self.dependencies: dict[Job, dict[Job, set[str]]] = defaultdict(dict)
        self.depending: dict[Job, dict[Job, set[str]]] = defaultdict(dict)
        self._done = done
        self.jobs = {}
        board = Job(0, "board", ["board"])
        for run in range(runs):
            steps = [
                Job(10 * run + k, name, [f"{run}/{name}"], batched=int(name not in paid))
                for k, name in enumerate(NAMES, 1)
            ]
            collect, audit, measure, score = steps
            self.jobs[run] = steps
            for before, after in (
                (collect, audit),
                (collect, measure),
                (audit, score),
                (measure, score),
                (score, board),
            ):
                self.dependencies[after][before] = self.depending[before][after] = {before.output[0]}
                after.input.append(before.output[0])
        self.ready_jobs = {steps[0] for steps in self.jobs.values()}

    def needrun(self, job: Job) -> bool:
        return job.name not in self._done

    def finished(self, job: Job) -> bool:
        return False


NAMES = ("collect", "audit", "measure", "score")


def batches(plan: Plan, folder: Path, at_once: int = 2, workers: int = 1) -> Batches:
    return Batches(plan, at_once, workers, folder=folder)


def asked(known: Batch | str) -> Batch:
    assert isinstance(known, Batch), known
    return known


def write_verdicts(batch: Batch, states: dict[int, str]) -> None:
    lines = [json.dumps({"step": step, "state": state}) + "\n" for step, state in states.items()]
    verdict_path(batch.path).write_text("".join(lines))


def test_a_step_takes_those_behind_it_along(tmp_path: Path) -> None:
    plan = Plan(runs=3)
    batch = asked(batches(plan, tmp_path, at_once=2).request(plan.jobs[0][0]))
    steps = read_list(batch.path).steps
    assert [step.number for step in steps] == [1, 2, 3, 4, 11, 12, 13, 14]
    assert [list(step.after) for step in steps[:4]] == [[], [1], [1], [2, 3]]
    assert {step.inside for step in steps} == {True}


def test_workers_share_what_waits(tmp_path: Path) -> None:
    """Seven runs for three: 3, 2, 1 and 1, each time a third of what waits, rounded up; never above three."""
    plan, sizes = Plan(runs=7), []
    shared = batches(plan, tmp_path, at_once=3, workers=3)
    for run in range(7):
        batch = asked(shared.request(plan.jobs[run][0]))
        sizes += [len(batch.jobs) // len(NAMES)] if batch.head is plan.jobs[run][0] else []
    assert sizes == [3, 2, 1, 1]
    assert len(asked(batches(plan, tmp_path, at_once=2, workers=3).request(plan.jobs[0][0])).jobs) == 2 * len(NAMES)


def test_a_paid_step_is_not_taken_along_nor_what_waits_for_it(tmp_path: Path) -> None:
    plan = Plan(runs=1, paid=("measure",))
    batch = asked(batches(plan, tmp_path, at_once=10).request(plan.jobs[0][0]))
    assert [step.number for step in read_list(batch.path).steps] == [1, 2]


def test_runs_that_share_a_card_are_one_job(tmp_path: Path) -> None:
    """Ten runs, three on a card: two rounds of them in a job, without the steps behind them."""
    plan, sizes = Plan(runs=10, paid=NAMES), []
    for steps in plan.jobs.values():
        steps[0].beside = 3
    known = batches(plan, tmp_path)
    for steps in plan.jobs.values():
        batch = asked(known.request(steps[0]))
        sizes += [len(batch.jobs)] if batch.head is steps[0] else []
        made = read_list(batch.path)
        assert (made.beside, {step.inside for step in made.steps}) == (3, {False})
    assert sizes == [6, 4]


def test_only_what_must_be_done_is_done(tmp_path: Path) -> None:
    plan = Plan(runs=1, done=("audit",))
    batch = asked(batches(plan, tmp_path, at_once=1).request(plan.jobs[0][0]))
    assert [step.number for step in read_list(batch.path).steps] == [1, 3, 4]


def test_later_steps_are_known_when_they_are_asked_for(tmp_path: Path) -> None:
    plan, (collect, audit, measure, score) = (made := Plan(runs=1)), made.jobs[0]
    known = batches(plan, tmp_path)
    batch = asked(known.request(collect))
    assert known.collect_answers(batch) == []
    write_verdicts(batch, {1: "done", 2: "done"})
    assert known.collect_answers(batch) == [(collect, "done")]
    assert known.request(audit) == "done"
    assert known.request(measure) is batch  # under way
    write_verdicts(batch, {1: "done", 2: "done", 3: "failed"})
    assert known.collect_answers(batch) == [(measure, "failed")]
    assert known.close(batch) == ([], [])
    again = asked(known.request(score))
    assert again is not batch and again.jobs == (score,)


def test_what_a_process_took_with_it_is_told_from_what_it_had_not_begun(tmp_path: Path) -> None:
    plan = Plan(runs=2)
    known = batches(plan, tmp_path)
    first, second = plan.jobs[0][0], plan.jobs[1][0]
    batch = asked(known.request(first))
    assert known.request(second) is batch
    write_verdicts(batch, {1: "begun"})
    assert known.collect_answers(batch) == []
    assert known.close(batch) == ([first], [second])
    assert list(tmp_path.iterdir()) == []


def test_steps_that_gathered_share_a_batch(tmp_path: Path) -> None:
    plan = Plan(runs=3)
    known = batches(plan, tmp_path, at_once=1)
    first, second, third = (plan.jobs[run][0] for run in range(3))
    plan.ready_jobs = set()  # all are requested
    batch = asked(known.request(first, None, [second]))
    assert batch.members == [second, first] and known.request(second) is batch
    assert [step.number for step in read_list(batch.path).steps] == [1, 2, 3, 4, 11, 12, 13, 14]
    assert known.knows(plan.jobs[1][3]) and not known.knows(third) and known.count_shared() == 1


def test_finished_runs_wait_for_each_other() -> None:
    """Twenty go at once, fewer after two minutes, the last ones as soon as no agent runs; 100 in a job at most.

    More than twenty go in as many lists as there is room for; what a job has left does so at once.
    """
    collect = [Job(number, "collect", []) for number in range(120)]
    audit = Job(200, "audit", [])

    def due(waits: dict[Job, float], alone: bool = False, room: int = 4) -> list[int]:
        return [len(jobs) for jobs in take_due(waits, 1000.0, alone, room)]

    assert due(dict.fromkeys([*collect[:19], audit], 881.0)) == []
    assert due(dict.fromkeys(collect[:20], 999.0)) == [20]
    assert due(dict.fromkeys(collect[:3], 999.0) | {audit: 880.0}) == [1]
    assert due(dict.fromkeys(collect[:25], 999.0)) == [20, 5]
    assert due(dict.fromkeys([*collect[:25], audit], 999.0), alone=True) == [20, 5, 1]
    assert due(dict.fromkeys([*collect, audit], 999.0)) == [30, 30, 30, 30]
    assert due(dict.fromkeys(collect, 999.0), room=1) == [100]
    assert due({collect[0]: 999.0} | dict.fromkeys(collect[1:6], LEFT)) == [2, 2, 2]
    assert due(dict.fromkeys(collect[:20], 999.0), room=0) == []


def test_a_step_has_made_its_files_when_none_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("0").mkdir()
    Path("0/collect").write_text("of an earlier run")
    plan = Plan(runs=1)
    batch = asked(batches(plan, tmp_path, at_once=1).request(plan.jobs[0][0]))
    assert not batch.has_made(plan.jobs[0][0])
    os.utime("0/collect", (1, 1))
    assert batch.has_made(plan.jobs[0][0])
    assert not batch.has_made(plan.jobs[0][1])


# --- what Slurm says ------------------------------------------------------------------------------------------------


def test_states_are_read_as_squeue_and_sacct_write_them() -> None:
    """Forms of Slurm 22.05 to 24.11: requeued and cancelled jobs have words behind their state."""
    said = ["17|RUNNING", "18|CANCELLED by 1000", "19|COMPLETED", "20_3|OUT_OF_MEMORY", "", "slurm_load_jobs error"]
    assert read_states(said) == {"17": "RUNNING", "18": "CANCELLED", "19": "COMPLETED", "20_3": "OUT_OF_MEMORY"}


def test_defaults_of_the_user_hide_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue(1) and sacct(1) take filters from variables; which cluster is meant stays the user's choice."""
    program = '#!/bin/sh\n[ -n "$SQUEUE_PARTITION$SQUEUE_USERS$SACCT_LOCAL" ] || echo "17|$SLURM_CLUSTERS"\n'
    for name in ("squeue", "sacct"):
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    own = {"SQUEUE_PARTITION": "gpu", "SQUEUE_USERS": "me", "SACCT_LOCAL": "1", "SLURM_CLUSTERS": "PENDING"}
    for name, value in ({"PATH": f"{tmp_path}:/usr/bin:/bin"} | own).items():
        monkeypatch.setenv(name, value)
    assert states_in_queue("campaign") == states_in_accounting(["17"]) == {"17": "PENDING"}


def test_a_report_that_is_seen_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm says that jobs 1 and 2 have ended; 1 reports 50 s later, as from NFS, 2 never, and the latency is 60 s."""
    plan, clock, reported = Plan(runs=2), [1000.0], []
    executor = SlurmExecutor.__new__(SlurmExecutor)
    waits = SimpleNamespace(seconds_between_status_checks=20)
    executor.workflow = SimpleNamespace(
        remote_execution_settings=waits, execution_settings=SimpleNamespace(latency_wait=60)
    )
    executor.run_uuid, executor._gone, executor._queried_at, executor._gathered = "head", {}, 0.0, {}
    executor._batches = batches(plan, tmp_path, at_once=1)
    monkeypatch.setattr(executor, "_report", lambda info, how, *_: reported.append((info.external_jobid, how)))
    monkeypatch.setattr(slurm, "states_in_queue", lambda _: {"1": "COMPLETED", "2": "COMPLETED"})
    monkeypatch.setattr(slurm.time, "monotonic", lambda: clock[0])
    made = [asked(executor._batches.request(plan.jobs[run][0])) for run in (0, 1)]
    infos = [SubmittedJobInfo(each.head, str(n), {"batch": each}) for n, each in enumerate(made, 1)]
    for batch in made:
        write_verdicts(batch, {batch.head.jobid: "begun"})
    for now in (1000.0, 1025.0, 1050.0, 1075.0):
        clock[0] = now
        if now == 1050.0:
            write_verdicts(made[0], {1: "done"})
        infos = executor._report_ended(executor._report_news(infos))
        assert reported == [("1", "done")] * (now >= 1050) + [("2", "failed")] * (now > 1060)


BUSY = (
    "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting policy",
    "sbatch: error: QOSMaxSubmitJobPerUserLimit",
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
)
WRONG = (
    "sbatch: error: invalid partition specified: gpuu",
    "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
)


def test_a_refusal_for_now_is_told_from_one_for_good() -> None:
    """What sbatch of Debian's 22.05 prints, and names of limits in slurm_errno.c."""
    assert [said for said in BUSY if not is_busy(said)] == []
    assert [said for said in WRONG if is_busy(said)] == []
