"""Probe of the cluster: a profile against the campaign's needs and against the site."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.yamlfile import load_yaml, suggestion
from automedbench.campaign.load import Campaign
from automedbench.commands._machine.examine import Host, ProbeResult, ProbeResults, fail, ok, warn
from automedbench.commands._machine.host import run_program
from automedbench.commands._machine.placement import Needs, SiteOptions, check_partition, limit_jobs
from automedbench.commands._machine.slurm import Site, parse, slurm_dumps
from automedbench.planning.needs import DRIVER_MB, effective_limits, run_resources
from automedbench.planning.profiles import set_resources

PROBE = "slurm"


def slurm(host: Host) -> ProbeResults:
    """The profile's partitions take the campaign's jobs; nothing in profile, campaign and site contradicts."""
    named = read_profile(host.root, host.profile) if host.profile else None
    status, _ = run_program(["sinfo", "--version"])
    if status == 127:
        yield ok(PROBE, "not on this machine; only profiles with `executor: automedbench-slurm` need it")
        return
    try:
        site = parse(slurm_dumps())
    except MissingDataError as error:
        yield warn(PROBE, str(error).partition("\n")[0], "Needed on a cluster only: ask its administrators.")
        return
    yield from compare_profile(named or read_profile(host.root), site, host.campaign, os.environ)


@dataclass(frozen=True)
class Profile:
    """A profile and its partition file, both as they stand there."""

    path: Path
    content: Mapping[str, Any]
    partition_file: Mapping[str, Any]

    @cached_property
    def partitions(self) -> Mapping[str, Mapping[str, Any]]:
        """Limits by partition; empty where jobs name their partition themselves."""
        return {str(name): limits or {} for name, limits in (self.partition_file.get("partitions") or {}).items()}

    def job(self, rule: str, requested: Mapping[str, Any]) -> dict[str, Any]:
        """Resources of a rule's jobs: the profile's for the rule, what the rule asks for, the profile's defaults."""
        return {
            **(self.content.get("default-resources") or {}),
            **requested,
            **set_resources(self.content).get(rule, {}),
        }

    def find_partition(self, job: Mapping[str, Any]) -> str | None:
        """Partition of a job, as the executor chooses it; None: none fits, or the site's default applies."""
        if "slurm_partition" in job:
            return str(job["slurm_partition"])
        gpu, model, runtime = int(job.get("gpu", 0)), job.get("gpu_model"), job.get("runtime", 0)
        fits = [
            (bool(limits.get("max_gpu")) and not gpu, name)
            for name, limits in self.partitions.items()
            if runtime <= limits.get("max_runtime", math.inf)
            and gpu <= limits.get("max_gpu", 0) + (0 if gpu else math.inf)
            and (not model or model in limits.get("available_gpu_models", [model]))
        ]
        return min(fits, default=(False, None), key=lambda each: each[0])[1]


def read_profile(root: Path, name: str = "") -> Profile:
    """The profile of that name, else the one that `automedbench site` wrote, else the shipped one.

    Raises ConfigError when it is not there, with those that are, or is not valid YAML.
    """
    there = [file.parent.relative_to(root).as_posix() for file in sorted(root.glob("profiles/*/config.yaml"))]
    path = Path(name or ("profiles/site" if "profiles/site" in there else "profiles/slurm"))
    path = path / "config.yaml" if (root / path).is_dir() else path
    if name and not (root / path).is_file():
        raise ConfigError([f"--profile: no profile '{name}'{suggestion(name, there)}; there are: {', '.join(there)}"])
    content = load_yaml(root / path) or {}
    beside = content.get("slurm-partition-config")
    file = next((place for place in (path.parent / str(beside), Path(str(beside))) if (root / place).is_file()), None)
    return Profile(path, content, (load_yaml(root / file) or {}) if beside and file else {})


def compare_profile(
    profile: Profile, site: Site, campaign: Campaign | None, environment: Mapping[str, str]
) -> ProbeResults:
    """Every contradiction of the three; one line that says that there is none."""
    requested = run_resources(campaign) if campaign else {}
    jobs = {"small steps": profile.job("", {})} | ({"runs": profile.job("run_agent", requested)} if campaign else {})
    found: list[ProbeResult] = []
    if profile.content.get("executor") == "slurm":
        fix = f"Write `executor: automedbench-slurm` in {profile.path}; the options stay as they are."
        found.append(warn(PROBE, "executor: slurm makes every step a job: six per run instead of two", fix))
    for what, job in jobs.items():
        found += [each for each in _check_jobs(profile, site, what, job) if each not in found]
    if campaign is not None:
        found += [*_check_limits(profile, campaign, jobs["runs"]), *_check_environment(profile, campaign, environment)]
        found += _check_network(profile, campaign, jobs["runs"])
    places = sorted({profile.find_partition(job) or "the default" for job in jobs.values()})
    yield from found or [ok(PROBE, f"{profile.path}: {', '.join(places)} take the jobs, and nothing contradicts")]


def _check_jobs(profile: Profile, site: Site, what: str, job: Mapping[str, Any]) -> Iterator[ProbeResult]:
    """The partition is there and large enough, the account may use it, and takes so many jobs."""
    name = profile.find_partition(job)
    if name is None and profile.partitions:
        file = profile.path.parent / "partitions.yaml"
        fix = f"Add one to {file}, or run `automedbench site`."
        yield fail(PROBE, f"{what}: no partition of {file} takes {_render_job(job)}", fix)
        return
    partition = next((each for each in site.partitions if each.name == name or (name is None and each.default)), None)
    if partition is None or not partition.up:
        there = ", ".join(each.name for each in site.partitions if each.up) or "none"
        fix = f"Run `automedbench site`, or change {profile.path}; this cluster has: {there}."
        yield fail(PROBE, f"partition {name or 'by default'} is not up", fix)
        return
    options = SiteOptions(account=job.get("slurm_account"), qos=job.get("qos") or profile.content.get("slurm-qos"))
    place = check_partition(site, partition, Needs.from_resources(job), options, preemptible=False, named=True)
    if isinstance(place, str):
        fix = f"Change partition, account or QOS in {profile.path} (`automedbench site` does), or lower the limits."
        yield fail(PROBE, f"{what}: partition {partition.name} {place}; the jobs ask for {_render_job(job)}", fix)
        return
    jobs, fewer = int(profile.content.get("jobs", 1)), limit_jobs(site, [place])[0]
    if site.limits_jobs and jobs > place.submit:
        fix = f"Set jobs: {fewer} in {profile.path}."
        yield fail(PROBE, f"jobs: {jobs} is above the {place.submit:.0f} that {place.submit_of} lets you submit", fix)
    if what == "runs" and place.preemptible and not profile.content.get("slurm-requeue"):
        fix = "Use the profile that `automedbench site --preemptible` writes, or another partition."
        yield warn(PROBE, f"runs: {partition.name} preempts jobs, and {profile.path} does not requeue them", fix)


def _check_limits(profile: Profile, campaign: Campaign, job: Mapping[str, Any]) -> Iterator[ProbeResult]:
    """Wall time and memory of a run's job are above what the run itself may take."""
    limits = [effective_limits(campaign, task) for task in campaign.tasks]
    minutes = max((each.time_limit_s or 0 for each in limits), default=0) / 60
    memory = max((each.mem_gb or 0 for each in limits), default=0) * 1e9 / 2**20 + DRIVER_MB
    requested = run_resources(campaign)
    where = f"Remove set-resources.run_agent.{{}} from {profile.path}: the rule itself asks for {{}}."
    if job["runtime"] < minutes:
        text = f"runs: their jobs end after {job['runtime']} min, before the time limit of {minutes:.0f} (time_limit_s)"
        yield fail(PROBE, text, where.format("runtime", requested["runtime"]))
    if job["mem_mb"] < math.floor(memory):
        text = f"runs: {job['mem_mb']} MiB are less than limits.mem_gb and the driver take ({memory:.0f})"
        yield fail(PROBE, text, where.format("mem_mb", requested["mem_mb"]))


def _check_environment(profile: Profile, campaign: Campaign, environment: Mapping[str, str]) -> Iterator[ProbeResult]:
    """Jobs get the variables that keys are in."""
    if not campaign.judges and not any(campaign.agents[name].paid for name in campaign.takes_part):
        return
    for name in ("SBATCH_EXPORT", "SLURM_EXPORT_ENV"):
        if environment.get(name, "ALL") != "ALL":
            text = f"{name}={environment[name]}: jobs do not inherit the keys of the models"
            yield fail(PROBE, text, f"unset {name}, then start again.")
    for rule in ("", "run_agent", "score_judge"):
        if "--export" in str(profile.job(rule, {}).get("slurm_extra", "")):
            text = f"slurm_extra has --export in {profile.path}: jobs do not inherit the keys of the models"
            yield fail(PROBE, text, "Remove it there.")
            return


def _check_network(profile: Profile, campaign: Campaign, job: Mapping[str, Any]) -> Iterator[ProbeResult]:
    """Nodes reach what a proxied or open run is promised; only the site's users can know."""
    sandbox, answer = campaign.config.sandbox, profile.partition_file.get("nodes_reach_internet", "unknown")
    if sandbox.backend == "local" or sandbox.network == "sealed" or sandbox.egress.offline or answer == "yes":
        return
    text = f"network: {sandbox.network}, and nodes "
    if answer == "no":
        fix = "Set sandbox.network: sealed, or fill the cache and set egress.offline: true (docs/network.md)."
        yield fail(PROBE, f"{text}reach no internet ({profile.path.parent}/partitions.yaml)", fix)
    else:
        place = profile.find_partition(job)
        partition = f" -p {place}" if place else ""
        trial = f"srun{partition} -t 2 curl -sSI -m 20 https://github.com"
        fix = f"Try `{trial}`, then `automedbench site --network yes` (or no)."
        yield warn(PROBE, f"{text}may not reach the internet: not known", fix)


def _render_job(job: Mapping[str, Any]) -> str:
    gpu = f", {job['gpu']} × GPU {job.get('gpu_model', '')}".rstrip() if job.get("gpu") else ""
    return f"{job.get('runtime')} min, {job.get('mem_mb')} MiB, {job.get('cpus_per_task', 1)} CPUs{gpu}"
