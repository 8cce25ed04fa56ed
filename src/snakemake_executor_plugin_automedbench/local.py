"""Snakemake's executor of this machine, with cheap steps of a run in one process."""

from __future__ import annotations

import subprocess
from typing import Any

from snakemake.executors.local import Executor
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_automedbench.batches import Batch, Batches, command_line, is_batched, is_plain

AT_ONCE = 20
"""Runs whose steps one process does at most, where many are waiting: enough that its start costs little."""


class LocalExecutor(Executor):  # type: ignore[misc]
    """Runs cheap steps together and leaves everything else to Snakemake's own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._batches = Batches(self.workflow.dag, AT_ONCE, workers=self.workflow.resource_settings.cores or 1)

    def run_job(self, job: Any) -> None:
        """Start a step, or report its result where another step's process has done it already."""
        if not (is_batched(job) and is_plain(job, self.workflow)):
            super().run_job(job)
            return
        self.report_job_submission(SubmittedJobInfo(job))
        self._begin(job)

    def _begin(self, job: Any) -> None:
        known = self._batches.request(job)
        if isinstance(known, str):
            self._report_answer(job, known)
        elif known.head is job:
            self.pool.submit(self._do, known)

    def _do(self, batch: Batch) -> None:
        try:
            subprocess.run(command_line(batch), check=False)
        except Exception as error:  # nothing else would ever report it
            self.logger.error(f"{type(error).__name__}: {error}")
        finally:
            answers = self._batches.collect_answers(batch)
            lost, again = self._batches.close(batch)
            for job, answer in [*answers, *((job, "failed") for job in lost)]:
                self._report_answer(job, answer)
            for job in again:
                self._begin(job)

    def _report_answer(self, job: Any, answer: str) -> None:
        report = self.report_job_success if answer == "done" else self.report_job_error
        report(SubmittedJobInfo(job))
