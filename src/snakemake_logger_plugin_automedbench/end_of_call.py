"""Below a call that worked on a campaign, failed or not: the ranking, what is missing and why, what to do next."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake_logger_plugin_automedbench.steps import last_lines, printable, step_name

if TYPE_CHECKING:
    from automedbench.campaign.load import Campaign

HEAD, TAIL = 9, 6
"""Lines shown of a ranking that is longer than both together: the best agents, and what the marks mean."""
FAILURES, WIDTH = 5, 160
BUILD, PARTIAL = "build_leaderboard", "partial"


def print_at_end(workflow: Any, campaign: Campaign, score: str) -> None:
    """Print the summary when Snakemake ends; none in a dry run, on a node, or without a leaderboard in the plan.

    ``score``: pattern of the runs' scores. A leaderboard that could not be built whole is built from what is finished.
    """
    shown = workflow.output_settings
    quiet = {each.name for each in (shown.quiet or ())} if shown else set()
    if shown and not shown.dryrun and "ALL" not in quiet and workflow.is_main_process:
        atexit.register(_print_summary, workflow, campaign, score)


def _print_summary(workflow: Any, campaign: Campaign, score: str) -> None:
    from automedbench.campaign.load import campaign_file
    from automedbench.planning.targets import list_scored_runs

    if workflow.scheduler is None or workflow.touch:
        return  # no call that executes steps, or it ended before it could
    dag = workflow.dag
    jobs = [job for job in dag.jobs if job.rule.name in (BUILD, PARTIAL)]
    if not jobs:
        return
    done, planned = len(list_scored_runs(campaign, score)), len(campaign.runs)
    undone = [job for job in jobs if dag.needrun(job) and not dag.finished(job)]
    page = Path(campaign.config.results, "leaderboard/index.html")
    if not undone:
        ranking = page.with_name("ranking.txt")  # not the log: another campaign may have been here since
        text = last_lines(str(ranking), 1000) if ranking.is_file() else []
    else:
        text = _build_partial(campaign_file(campaign)) if done else []
        for job in undone:  # or Snakemake would take it for the whole one
            workflow.persistence.started(job)
    named = f" --results {shlex.quote(campaign.config.results)}"
    lines = [*shorten(text), *describe_state(done, planned, list(workflow.scheduler.failed), named)]
    print("\n".join([*lines, f"Page: {page}"] if page.is_file() else lines), flush=True)


def _build_partial(campaign: str) -> list[str]:
    """Build the leaderboard from what is finished; its output."""
    print("Building the leaderboard from what is finished ...", flush=True)
    command = [sys.executable, f"scripts/{BUILD}.py", "--campaign", campaign, "--partial"]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout
    return [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]


def shorten(lines: Sequence[str]) -> list[str]:
    """At most ``HEAD`` and ``TAIL`` lines, without that of the page, which is printed below."""
    kept = [line for line in lines if not line.startswith("Page: ")]
    left_out = len(kept) - HEAD - TAIL
    if left_out <= 0:
        return kept
    return [*kept[:HEAD], f" … {left_out} more lines: all agents are on the page", *kept[-TAIL:]]


def describe_state(done: int, planned: int, failed: Sequence[Any], named: str = "") -> Iterator[str]:
    """Counts, failed steps with their reasons, and the next command; ``named``: its option for the campaign."""
    if done == planned and not failed:
        verify = f"automedbench verify --all{named}"
        scored = "The run is scored" if planned == 1 else f"All {planned} runs are scored"
        yield f"{scored}. Next: {verify} (checks each score back to its raw data)"
        return
    steps = list(_members(failed))
    yield f"{done} of {planned} runs are scored{f'; steps that failed: {len(steps)}' if steps else ''}"
    for job in steps[:FAILURES]:
        yield f"  {step_name(job.rule.name, job.wildcards_dict)}: {_reason(job.log)}"
    if len(steps) > FAILURES:
        yield f"  … and {len(steps) - FAILURES} more"
    yield f"Next: {shlex.join(['snakemake', *sys.argv[1:]])} (goes on; what is finished is not repeated)"


def _members(failed: Iterable[Any]) -> Iterator[Any]:
    """Steps that failed; of a group those that have not made their files."""
    for job in failed:
        for step in job if job.is_group() else [job]:
            if not job.is_group() or not all(os.path.exists(file) for file in step.output):
                yield step


def _reason(logs: Iterable[str]) -> str:
    """First line of the message that a step ended with."""
    lines = [line for log in logs for line in last_lines(str(log))]
    messages = [line for line in lines if re.match(r"\w+(Error|Data|Submission|Exhausted): ", line)]
    text = printable((messages or lines or ["no log"])[-1])
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
