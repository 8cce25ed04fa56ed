"""The Slurm plugin's executor, with one lean process per Slurm job in place of two Snakemakes and an ``srun``.

What the plugin knows (options, accounts, partitions, the line of sbatch) is its own. Different are: cheap steps share a
job, and finished runs wait for each other for a while; the steps themselves report how they ended, and Slurm counts
only where they did not; sbatch's refusals are waited for; a run that another call of Snakemake still works on is not
submitted; and SIGTERM ends the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_slurm import Executor
from snakemake_executor_plugin_slurm.utils import get_job_wildcards
from snakemake_executor_plugin_slurm.validation import validate_or_get_slurm_job_id, validate_slurm_extra
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from automedbench.agent.durable.lease import Watch
from automedbench.base.slurm import ENDED, is_busy, states_in_accounting, states_in_queue
from snakemake_executor_plugin_automedbench.batches import (
    ROUNDS,
    Batch,
    Batches,
    command_line,
    count_beside,
    is_batched,
    is_plain,
    is_shared,
)
from snakemake_executor_plugin_automedbench.line import submission_line

AT_ONCE = 100
"""Runs whose cheap steps one Slurm job does at most, where that many are waiting."""
ENOUGH, GATHER_S = 20, 120.0
"""Cheap steps are submitted when so many runs wait, when the first has waited so long, or when no other can join."""
WITHIN_S, LEFT = 150.0, float("-inf")
"""A job begins no cheap step later than this; those that are left wait no more, and share the room that there is."""
SHARE = 5
"""Of ``--jobs``, one in so many may do cheap steps at a time, beside those that ``--jobs`` counts."""
LOOK_S = 3.0
"""Between two looks at the reports of steps; Slurm is queried at ``--seconds-between-status-checks``."""
BUSY_S = 20.0
HINTS = {
    "OUT_OF_MEMORY": "It had {mem} MB. Raise mem_mb of {rule} (docs/cluster.md), then run the same command again.",
    "TIMEOUT": "It had {time} minutes. Raise runtime of {rule} (docs/cluster.md), then run the same command again.",
    "DEADLINE": "It had {time} minutes. Raise runtime of {rule} (docs/cluster.md), then run the same command again.",
}
GO_ON = "What was finished is kept: the same command goes on from there."


def slurm_options() -> Any:
    """Settings of the Slurm plugin, from the options ``slurm-…`` of this call's command line and profiles.

    Snakemake hands an executor the options of its own name only; sites have profiles and habits with these.
    """
    from snakemake.cli import parse_args  # which imports this module

    with contextlib.redirect_stderr(io.StringIO()):  # it prints again which profiles it reads
        _, arguments = parse_args(None)
    return ExecutorPluginRegistry().get_plugin("slurm").get_settings(arguments)


class SlurmExecutor(Executor):  # type: ignore[misc]
    """Submits lists of steps and waits for their reports."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        workflow.executor_settings = slurm_options()
        # Before the plugin's own: that starts the thread that looks at jobs.
        self._stopping = threading.Event()
        self._registering, self._submitting = threading.Lock(), threading.Lock()
        self._registered: set[Any] = set()
        self._held: list[Batch] = []
        self._watch = Watch()
        self._gathered: dict[Any, float] = {}
        self._scoring = ThreadPoolExecutor(1)  # not behind hundreds of agents that are still to be submitted
        self._gone: dict[str, float] = {}
        self._queried_at = float("-inf")
        self._limiter: Any = None
        self._busy = False
        self._batches = Batches(workflow.dag, AT_ONCE, wait_s=workflow.execution_settings.latency_wait)
        super().__init__(workflow, logger)

    # --- requests -----------------------------------------------------------------------------------------------

    def run_jobs(self, jobs: list[Any]) -> None:
        """Begin steps; what is more than a shell command is left to the plugin."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: jobs are cancelled, nothing is lost
        self._limit_submissions()
        others = [job for job in jobs if not is_plain(job, self.workflow)]
        for job in jobs:
            if job not in others:
                self.run_job_pre(job)
                if not is_shared(job):
                    self.workflow.async_run(job.prepare())
        self._begin([job for job in jobs if job not in others])
        self._free_slots([job for job in jobs if job not in others and is_batched(job)])
        if others:
            super().run_jobs(others)

    def _limit_submissions(self) -> None:
        """Let ``--max-jobs-per-timespan`` count calls of sbatch, and not steps that are known to be done."""
        scheduler = self.workflow.scheduler
        if scheduler.job_rate_limiter is not None:
            self._limiter, scheduler.job_rate_limiter = scheduler.job_rate_limiter, None
            scheduler.resources["_job_count"] = sys.maxsize

    def _free_slots(self, jobs: list[Any]) -> None:
        """Let ``--jobs`` count no steps that share a Slurm job: agents are submitted while they gather."""
        scheduler = self.workflow.scheduler
        with scheduler._lock:
            for job in jobs:
                taken = job.scheduler_resources
                scheduler.resources["_nodes"] += taken["_nodes"]
                job._scheduler_resources = taken | {"_nodes": 0}
        if jobs:
            scheduler._open_jobs.release()

    def _begin(self, jobs: Iterable[Any]) -> None:
        """Begin steps: cheap ones gather first, and runs that share GPUs fill jobs."""
        beside: dict[str, list[Any]] = defaultdict(list)
        for job in jobs:
            if self._batches.knows(job) or not is_shared(job):
                self._request(job)
            elif is_batched(job):
                self._gathered[job] = time.monotonic()
            else:
                beside[job.rule.name].append(job)
        for runs in beside.values():
            most = ROUNDS * count_beside(runs[0])
            for first in range(0, len(runs), most):
                self._request(*runs[first : first + most])

    def _submit_gathered(self) -> None:
        """Submit the steps that have gathered, each rule's when its time has come."""
        if not self._gathered:
            return
        scheduler, now = self.workflow.scheduler, time.monotonic()
        with scheduler._lock:
            alone = all(map(is_batched, [*scheduler.running, *self.workflow.dag.ready_jobs]))
        room = max(1, self.workflow.resource_settings.nodes // SHARE) - self._batches.count_shared()
        for jobs in take_due(dict(self._gathered), now, alone, room):
            for job in jobs:
                del self._gathered[job]
            self._request(*jobs)

    def _request(self, job: Any, *others: Any) -> None:
        """Begin a step, and others in the same Slurm job if it is not under way yet."""
        runtime = job.resources.get("runtime")
        most_s = WITHIN_S if is_batched(job) else math.inf
        within_s = min(30.0 * runtime, most_s) if isinstance(runtime, int) and is_shared(job) else None
        with self.workflow.scheduler._lock:  # it changes what is ready
            known = self._batches.request(job, within_s, others)
        if isinstance(known, str):
            info = SubmittedJobInfo(job)
            self.workflow.scheduler.submit_callback(job)
            job.register()
            self._report(info, known)
        elif known.head is job:
            (self._scoring if is_batched(job) else self._job_submission_executor).submit(self._submit, known)
        else:
            self._register(known)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel the jobs of this call, each once, and submit no more."""
        self._stopping.set()
        for submitting in (self._scoring, self._job_submission_executor):
            submitting.shutdown(wait=True, cancel_futures=True)
        by_number = {info.external_jobid: info for info in [*active_jobs, *self.active_jobs] if info.external_jobid}
        super().cancel_jobs(list(by_number.values()))

    # --- submitting ---------------------------------------------------------------------------------------------

    def _submit(self, batch: Batch) -> None:
        try:
            for job in batch.jobs:
                if (holder := self._holder(job)) is not None:
                    self.logger.warning(f"{job.params.run}: {holder} works on it; it is submitted when that ends.")
                    self._held.append(batch)
                    return
            for job in batch.jobs if count_beside(batch.head) > 1 else ():  # also those that are not requested yet
                self.workflow.async_run(job.prepare())
            call, log = self._call(batch)
            number = self._number_of(call)
            if number is not None:
                batch.place, batch.log = number, log.with_name(log.name.replace("%j", number))
                self._register(batch)
        except Exception as error:  # in a thread: nothing else would ever report it
            for job in batch.members[:]:
                self._report_job_error_threadsafe(SubmittedJobInfo(job), f"It could not be submitted: {error}\n")
            self._batches.close(batch)  # others of it are submitted by themselves when they are requested

    def _number_of(self, call: str) -> str | None:
        """Number of the job that sbatch made; waits while it refuses for now. None: this call is over."""
        while not self._stopping.is_set():
            self._wait_for_turn()
            done = subprocess.run(call, shell=True, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return str(validate_or_get_slurm_job_id(done.stdout.strip().split(";")[0], done.stdout))
            if not is_busy(done.stderr):
                raise RuntimeError(f"{done.stderr.strip()}\n{call}")
            if not self._busy:
                self.logger.warning(
                    f"Slurm takes no more jobs for now; they are submitted when it does: {done.stderr.strip()}"
                )
            self._busy = True
            self._stopping.wait(BUSY_S)
        return None

    def _wait_for_turn(self) -> None:
        with self._submitting:
            while self._limiter is not None and not self._limiter.get_free_jobs() and not self._stopping.wait(0.1):
                pass
            if self._limiter is not None:
                self._limiter.register_jobs(1)

    def _call(self, batch: Batch) -> tuple[str, Path]:
        """The line of sbatch, and the pattern of the job's log."""
        job = batch.head
        validate_slurm_extra(job)
        log = self.slurm_logdir / f"{job.rule.name}-%j.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        words = get_job_wildcards(job)
        parameters = {
            "run_uuid": self.run_uuid,
            "slurm_logfile": log,
            "comment_str": f"rule_{job.name}" + (f"_wildcards_{words}" if words else ""),
            "account": next(self.get_account_arg(job)),
            "partition": self.get_partition_arg(job),
            "workdir": self.workflow.workdir_init,
        }
        settings = self.workflow.executor_settings
        command = shlex.join(command_line(batch))
        before = self.workflow.remote_execution_settings.precommand
        script = f"{before} && exec {command}" if before else f"exec {command}"
        return submission_line(job, parameters, settings, script, self._failed_nodes), log

    def _holder(self, job: Any) -> Any:
        """Holder of the run's lease; None where the run is free, or the step is one behind it."""
        run = job.params.get("run")
        return self._watch.holder(Path(run, "lease.json")) if run and not is_batched(job) else None

    def _register(self, batch: Batch) -> None:
        """Report the submission of all requested steps of a batch, each once."""
        with self._registering:
            new = [job for job in batch.members if job not in self._registered] if batch.place else []
            self._registered.update(new)
        for job in new:
            aux = {"batch": batch, "slurm_logfile": batch.log}
            self._report_job_submission_threadsafe(SubmittedJobInfo(job, batch.place, aux))

    # --- waiting ------------------------------------------------------------------------------------------------

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        """Report steps that have ended; those that have not are given back."""
        self.next_seconds_between_status_checks = min(
            LOOK_S, self.workflow.remote_execution_settings.seconds_between_status_checks
        )
        await asyncio.to_thread(self._submit_gathered)  # Snakemake's own questions need a loop of their own
        held, self._held = self._held, []
        for batch in held:
            waits = any(self._holder(job) is not None for job in batch.jobs)
            self._held += [batch] if waits else []
            if not waits:
                self._job_submission_executor.submit(self._submit, batch)
        active = self._report_news(active_jobs)
        for info in self._report_ended(active):
            yield info

    def _report_news(self, infos: Iterable[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Report steps whose process has reported their end; the others."""
        infos = list(infos)
        batches = {id(batch): batch for info in infos if (batch := _batch(info)) is not None}
        answers = {job: answer for batch in batches.values() for job, answer in self._batches.collect_answers(batch)}
        for info in infos:
            if info.job in answers:
                self._report(info, answers[info.job])
        return [info for info in infos if info.job not in answers]

    def _report_ended(self, infos: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Report steps whose Slurm job has ended without a report of theirs; the others.

        Their report and their files may be seen late: they are waited for as long as for any file of another node.
        """
        pause = self.workflow.remote_execution_settings.seconds_between_status_checks
        if not infos or time.monotonic() - self._queried_at < pause:
            return infos
        states = states_in_queue(self.run_uuid)
        now = self._queried_at = time.monotonic()
        if states is None:
            return infos
        numbers = {str(info.external_jobid) for info in infos}
        out = {number for number in numbers if states.get(number, "GONE") in ENDED | {"GONE"}}
        self._gone = {number: self._gone.get(number, now) for number in out}
        patience = max(self.workflow.execution_settings.latency_wait, pause)
        ended = {number for number, since in self._gone.items() if now - since >= patience}
        if not ended:
            return infos
        states |= states_in_accounting(ended - states.keys())
        waiting = [info for info in infos if str(info.external_jobid) not in ended]
        late = self._report_news(info for info in infos if str(info.external_jobid) in ended)
        self._report_missing(late, states)
        return waiting

    def _report_missing(self, infos: list[SubmittedJobInfo], states: dict[str, str]) -> None:
        """Report steps that a job took with it; begin those again that it had not begun."""
        by_job = {info.job: info for info in infos}
        for batch in {id(batch): batch for info in infos if (batch := _batch(info)) is not None}.values():
            lost, again = self._batches.close(batch)
            for job in lost:
                self._report_end(by_job.pop(job), states)
            for job in again:
                self._registered.discard(job)
                by_job.pop(job)
            self._begin(again)
            self._gathered |= dict.fromkeys((job for job in again if job in self._gathered), LEFT)
        for info in by_job.values():
            self._report_end(info, states)

    def _report_end(self, info: SubmittedJobInfo, states: dict[str, str]) -> None:
        """Report one step: done if Slurm completed the plugin's own job, or if all that it makes is new."""
        state, batch = states.get(str(info.external_jobid), "GONE"), _batch(info)
        if (state == "COMPLETED" and batch is None) or (batch is not None and batch.has_made(info.job)):
            self._report(info, "done")
            return
        message = (
            "left the queue without a final state" if state == "GONE" else f"ended as {state} before the step was done"
        )
        resources = info.job.resources
        hint = HINTS.get(state, GO_ON).format(
            mem=resources.get("mem_mb"), time=resources.get("runtime"), rule=info.job.rule.name
        )
        self._report(info, "failed", f"Slurm job {info.external_jobid} {message}.\n{hint}\n")

    def _report(self, info: SubmittedJobInfo, answer: str, message: str | None = None) -> None:
        log = (info.aux or {}).get("slurm_logfile")
        self._registered.discard(info.job)
        if answer == "done":
            if log is not None and not self.workflow.executor_settings.keep_successful_logs:
                log.unlink(missing_ok=True)
            self.report_job_success(info)
        else:
            self.report_job_error(info, msg=message, aux_logs=[str(log)] if log is not None and message else [])


def take_due(gathered: Mapping[Any, float], now: float, alone: bool, room: int) -> list[list[Any]]:
    """Up to ``room`` lists of steps to submit now, of one rule each; ``gathered``: step → since when it waits, in s.

    What waits is spread over the room that there is: after a restart, for instance, a hundred runs may wait.

    ``alone``: nothing else is under way that could join them.
    """
    by_rule: dict[str, list[Any]] = defaultdict(list)
    for job in sorted(gathered, key=gathered.__getitem__):
        by_rule[job.rule.name].append(job)
    lists = []
    for jobs in by_rule.values():
        since = gathered[jobs[0]]
        if alone or len(jobs) >= ENOUGH or now - since >= GATHER_S:
            least = 1 if since == LEFT else ENOUGH
            size = min(AT_ONCE, max(least, math.ceil(len(jobs) / max(1, room))))
            lists += [jobs[first : first + size] for first in range(0, len(jobs), size)]
    return lists[: max(0, room)]


def _batch(info: SubmittedJobInfo) -> Batch | None:
    return (info.aux or {}).get("batch")
