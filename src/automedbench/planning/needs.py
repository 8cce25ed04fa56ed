"""Resource requests of a campaign's steps: wall time, memory, CPUs, GPUs.

The rules ask for it, so that no profile need repeat it: who raises a limit of the runs raises their jobs as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from automedbench.base.cards import Limits
from automedbench.base.records import Used
from automedbench.campaign.load import Campaign

WAITING_MIN = 30
"""Added to the time limit: a run waits this long for a broken provider, and that time is not the agent's."""
UNLIMITED_MIN = 24 * 60
"""Wall time of a run without a time limit; its next job continues where it stopped."""
DRIVER_MB = 2900
"""MiB added to the memory of a code call: the driver, the container, the proxy."""
CPUS = 8
STAGING: dict[str, int | str] = {"runtime": 720, "mem_mb": 16_000, "cpus_per_task": 4}
"""Unpacking and converting a data set, four cases at a time: 4000 MiB each is enough for a CT of 1000 slices."""
SEEN_RUNS, SPARE = 20, 2
"""Runs after which less than was requested is proposed: so many times the largest use."""
JUDGING: dict[str, int | str] = {"runtime": 60}


def run_resources(campaign: Campaign) -> dict[str, int | str]:
    """Resources of ``run_agent``, enough for every run of the campaign: minutes, MiB, CPUs, GPUs where it has some.

    Runs that share GPUs are in one Slurm job (``beside``): it has memory for all of them, and time in case that they
    all compute all the time, one after the other.
    """
    limits, sandbox = [effective_limits(campaign, task) for task in campaign.tasks], campaign.config.sandbox
    beside = sandbox.gpu_share if sandbox.gpu else 1
    wanted: dict[str, int | str] = {
        "runtime": max(job_minutes(each.time_limit_s, beside) for each in limits),
        "mem_mb": beside * max(job_memory_mb(each.mem_gb) for each in limits),
        "cpus_per_task": CPUS,
    }
    if beside > 1:
        wanted["beside"] = beside
    if sandbox.gpu:
        wanted["gpu"] = sandbox.gpu
        if sandbox.gpu_model:
            wanted["gpu_model"] = sandbox.gpu_model
    return wanted


def effective_limits(campaign: Campaign, task: str) -> Limits:
    """Limits of the task's card, with those that the configuration replaces."""
    return Limits.model_validate(campaign.cards[task].limits.model_dump() | campaign.config.limits)


def job_minutes(time_limit_s: float | None, runs: int = 1) -> int:
    """Wall time in minutes of a job whose runs may take ``time_limit_s`` each, one after the other."""
    return UNLIMITED_MIN if time_limit_s is None else runs * math.ceil(time_limit_s / 60) + WAITING_MIN


def job_memory_mb(mem_gb: float | None) -> int:
    """Memory in MiB of a job whose code calls may take ``mem_gb`` (10⁹ bytes); without a limit, the default's."""
    default = Limits().mem_gb or 0
    return math.ceil((default if mem_gb is None else mem_gb) * 1e9 / 2**20) + DRIVER_MB


def smaller_requests(runs: Sequence[Used], requested: Mapping[str, int | str]) -> list[str]:
    """What runs used of ``requested``, CPUs and MiB, and what to set where half would do; empty for a few runs.

    Memory is lowered by the limit, which the job follows: a smaller job would be killed below its limit.
    """
    if len(runs) < SEEN_RUNS:
        return []
    cpus = max(((used.cpu_s or 0) / used.held_s for used in runs if used.held_s), default=0)
    memory_mb = max(used.peak_memory_mib or 0 for used in runs)
    asked_cpus, asked_mb = int(requested["cpus_per_task"]), int(requested["mem_mb"]) // int(requested.get("beside", 1))
    lines = [
        f"{len(runs)} runs used at most {cpus:.1f} of {asked_cpus} CPUs (mean of a run), {memory_mb} of {asked_mb} MiB"
    ]
    if (enough := max(1, math.ceil(SPARE * cpus))) <= asked_cpus / 2:
        lines.append(f"  for more runs on a node: cpus_per_task: {enough} below set-resources.run_agent of the profile")
    if memory_mb and (gb := max(4, math.ceil(SPARE * memory_mb * 2**20 / 1e9))) <= asked_mb * 2**20 / 2e9:
        lines.append(f"  and limits.mem_gb: {gb} in the campaign, which agents are told")
    return lines
