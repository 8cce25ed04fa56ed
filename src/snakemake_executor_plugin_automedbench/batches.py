"""Batches: which of Snakemake's steps one process does, and what is known of them.

When a step comes up whose rule has the resource ``batched: 1``, those behind it in the plan (and the same ones of other
runs that are waiting) go into the same list. Snakemake requests each of them in its time, and finds it done, failed or
under way.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from snakemake_executor_plugin_automedbench import together
from snakemake_executor_plugin_automedbench.together import Step, StepList, read_verdicts, verdict_path, write_list

ROUNDS = 2
"""Runs of a job that shares GPUs, for each place in it: one that gets free takes the next, or it would idle."""
FOLDER = Path(".snakemake", "automedbench")
Answer = Literal["done", "failed"]


@dataclass(eq=False)
class Batch:
    """Steps of one list, and those of them that Snakemake has requested."""

    jobs: tuple[Any, ...]
    path: Path
    place: str | None = None
    """Number of the Slurm job, once there is one."""
    log: Path | None = None
    """Where the Slurm job writes."""
    members: list[Any] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)
    """When each file that the steps make was last made, in ns, before the batch."""

    def has_made(self, job: Any) -> bool:
        """Return whether all files of a step are present and newly written."""
        return all((made := _modified_ns(str(file))) and made != self.before.get(str(file)) for file in job.output)

    @property
    def head(self) -> Any:
        """The step that the batch was made for."""
        return self.jobs[0]


class Batches:
    """All batches of one call of Snakemake.

    A batch takes up to ``at_once`` waiting steps of a rule, no more than the share of one of so many ``workers``, and
    what can follow these. Its process waits up to ``wait_s`` for inputs that cannot be seen yet.
    Thread-safe: Snakemake requests from one thread, answers come from others.
    """

    def __init__(self, dag: Any, at_once: int, workers: int = 1, wait_s: float = 0.0, folder: Path = FOLDER) -> None:
        self._dag, self._folder = dag, folder
        self._at_once, self._workers, self._wait_s = at_once, workers, wait_s
        self._batch_of: dict[Any, Batch] = {}
        self._answers: dict[Any, Answer] = {}
        self._lock = threading.RLock()

    def knows(self, job: Any) -> bool:
        """Return whether a step's result is known, or its batch under way."""
        with self._lock:
            return job in self._answers or job in self._batch_of

    def count_shared(self) -> int:
        """Batches of cheap steps that are under way."""
        with self._lock:
            return len({batch.path for batch in self._batch_of.values() if is_batched(batch.head)})

    def request(self, job: Any, within_s: float | None = None, others: Sequence[Any] = ()) -> Batch | Answer:
        """Known result of a step; else its batch, new (``members`` holds the requested steps) or under way.

        A new one takes ``others``, requested with it, and begins no step later than ``within_s`` after its start.
        """
        with self._lock:
            if job in self._answers:
                return self._answers.pop(job)
            batch = self._batch_of.get(job)
            if batch is None:
                batch = self._make_batch(job, within_s, others)
                batch.members += others
            batch.members.append(job)
            return batch

    def collect_answers(self, batch: Batch) -> list[tuple[Any, Answer]]:
        """Requested steps of a batch that have ended since the last call."""
        states = read_verdicts(batch.path)
        ended: dict[Any, Answer] = {
            job: state for job in batch.jobs if (state := states.get(job.jobid)) in ("done", "failed")
        }
        with self._lock:
            for job, answer in ended.items():
                if self._batch_of.pop(job, None) is not None:
                    self._answers[job] = answer
            answers = [(job, self._answers.pop(job)) for job in batch.members if job in self._answers]
            batch.members = [job for job in batch.members if job in self._batch_of]
            if len(ended) == len(batch.jobs):
                _remove(batch)
            return answers

    def close(self, batch: Batch) -> tuple[list[Any], list[Any]]:
        """Forget a process that is gone: requested steps lost with it, and those to request again; answers come first.

        Lost are those that it had begun, and all if it never began its first one: then it cannot work.
        """
        begun = read_verdicts(batch.path)
        with self._lock:
            for job in batch.jobs:
                self._batch_of.pop(job, None)
            members, batch.members = batch.members, []
        _remove(batch)
        lost = [job for job in members if job.jobid in begun or batch.head.jobid not in begun]
        return lost, [job for job in members if job not in lost]

    def _make_batch(self, job: Any, within_s: float | None, others: Sequence[Any]) -> Batch:
        batched, beside = is_batched(job), count_beside(job)
        heads = [job, *others]
        if batched and not others:
            heads += self._list_waiting(job, self._at_once - 1)
        elif beside > 1:
            heads += self._list_waiting(job, ROUNDS * beside - len(heads))
        jobs = tuple(step for head in heads for step in self._add_followers(head)) if batched else tuple(heads)
        path = self._folder / f"{uuid.uuid4().hex}.json"
        batch = Batch(jobs, path)
        batch.before = {str(file): made for step in jobs for file in step.output if (made := _modified_ns(str(file)))}
        numbers = {step: step.jobid for step in jobs}
        steps = tuple(self._make_step(step, numbers, batched) for step in jobs)
        write_list(path, StepList(steps, self._wait_s, within_s, beside))
        self._batch_of |= dict.fromkeys(jobs, batch)
        return batch

    def _make_step(self, job: Any, numbers: dict[Any, int], batched: bool) -> Step:
        before = tuple(numbers[each] for each in self._dag.dependencies[job] if each in numbers)
        made = {file for each in self._dag.dependencies[job] if each in numbers for file in each.output}
        inputs = tuple(str(file) for file in job.input if file not in made)
        return Step(job.jobid, job.shellcmd, before, inputs, inside=batched)

    def _list_waiting(self, job: Any, most: int) -> list[Any]:
        """Up to ``most`` other steps of the rule that Snakemake could start now."""
        waiting = (each for each in self._dag.ready_jobs if not each.is_group() and each.rule.name == job.rule.name)
        free = [
            each for each in waiting if each is not job and each not in self._batch_of and each not in self._answers
        ]
        share = math.ceil((1 + len(free)) / self._workers)
        return sorted(free, key=lambda each: each.jobid)[: min(share - 1, most)]

    def _add_followers(self, head: Any) -> list[Any]:
        """A step and the batched ones behind it that wait for nothing else, in an order in which they can be done."""
        taken = [head]
        for job in taken:
            for follower in self._dag.depending[job]:
                if follower not in taken and self._can_follow(follower, taken):
                    taken.append(follower)
        return taken

    def _can_follow(self, job: Any, taken: Sequence[Any]) -> bool:
        dag = self._dag
        if not (is_batched(job) and dag.needrun(job) and job not in self._batch_of):
            return False
        return all(each in taken or not dag.needrun(each) or dag.finished(each) for each in dag.dependencies[job])


def end_batches(folder: Path = FOLDER) -> None:
    """Let processes of heads that are dead begin no further step: what the next one plans would change under it."""
    for path in [*folder.glob("*.json"), *folder.glob("*.verdicts")]:
        path.unlink(missing_ok=True)


def _remove(batch: Batch) -> None:
    for path in (batch.path, verdict_path(batch.path)):
        path.unlink(missing_ok=True)


def _modified_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def command_line(batch: Batch) -> list[str]:
    """The process that does a batch: a file and no module, or it would load Snakemake with its package."""
    return [sys.executable, "-P", together.__file__, str(batch.path.absolute())]


def is_batched(job: Any) -> bool:
    """Return whether a step shares a process with others, by its rule; its own resources may wait for its inputs."""
    return not job.is_group() and bool(job.rule.resources.get("batched") == 1)


def count_beside(job: Any) -> int:
    """Steps of a list that are done at the same time, by their rule: runs that share GPUs."""
    wanted = None if job.is_group() else job.rule.resources.get("beside")
    return int(getattr(wanted, "value", wanted) or 1)


def is_shared(job: Any) -> bool:
    """Return whether a step shares a process with others: by turns, or beside them."""
    return is_batched(job) or count_beside(job) > 1


def is_plain(job: Any, workflow: Any) -> bool:
    """Return whether a step is only a shell command, which needs no Snakemake on a node."""
    if job.is_group() or not job.is_shell or workflow.deployment_settings.deployment_method:
        return False
    return not (job.is_shadow or job.benchmark or workflow.execution_settings.debug)
