"""Profile of a site with reasons: pure functions from a ``Site`` and a campaign's needs to entries.

An entry is a key, a value and its reason. Nothing that the rules ask for by themselves (wall time, memory, CPUs and
GPUs of a step) is repeated here: the profile says where jobs go, in whose name, and how many.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.base.plaintable import counted
from automedbench.commands._host import NETWORK_FILE_SYSTEMS
from automedbench.commands.site.parse import Association, NodeKind, Partition, Site

MOST_JOBS = 200
"""Jobs in the queue at a time where nothing limits them: more gain nothing, as each run waits for its model."""
SUBMISSIONS_PER_6S = 10
STAGING_MIN, SMALL_MIN = 720, 60
SMALL_MB = 4000
_SPECIAL = re.compile(r"debug|test|devel|^dev|interact|express|visual|jupyter|login|transfer|dtn|class|student", re.I)
_BORROWED = re.compile(r"preempt|scaveng|requeue|spot|ckpt|checkpoint|guest|besteffort|opportun", re.I)


@dataclass(frozen=True)
class Needs:
    """Resource request of a run: minutes, MiB, CPUs, GPUs of one node and their type."""

    minutes: int
    memory_mb: int
    cpus: int
    gpu: int = 0
    model: str | None = None


@dataclass(frozen=True)
class SiteOptions:
    """Options of the user; None where the site decides."""

    partition: str | None = None
    run_partition: str | None = None
    account: str | None = None
    qos: str | None = None
    preemptible: bool = False


@dataclass(frozen=True)
class ProfileLine:
    """A line of a profile."""

    key: str
    value: Any
    why: str


@dataclass
class ProfileDraft:
    """A profile: its own keys, the tables below them, the partitions, and what is to be said on the terminal."""

    top: list[ProfileLine] = field(default_factory=list)
    defaults: list[ProfileLine] = field(default_factory=list)
    of_a_run: list[ProfileLine] = field(default_factory=list)
    of_staging: list[ProfileLine] = field(default_factory=list)
    partitions: dict[str, list[ProfileLine]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PartitionChoice:
    """A partition with the account and the QOS that a job there is charged to; "" where none need be named."""

    partition: Partition
    account: str
    qos: str
    minutes: float
    submit: float
    submit_of: str
    preemptible: bool


def decide(site: Site, needs: Needs, wishes: SiteOptions) -> ProfileDraft:
    """The profile of a site for a campaign.

    Raises ConfigError when no partition takes its runs, with the reason of each that comes near.
    """
    one_for_all = not needs.gpu and not wishes.preemptible
    of_a_run = dataclasses.replace(needs, cpus=1)  # fewer CPUs make it slower, not impossible
    small = of_a_run if one_for_all else Needs(SMALL_MIN, SMALL_MB, 1)
    cpu = _choose(site, small, wishes, wishes.partition, preemptible=False)
    run = cpu if one_for_all else _choose(site, of_a_run, wishes, wishes.run_partition, preemptible=wishes.preemptible)
    decision = ProfileDraft()
    _places(decision, site, needs, wishes, cpu, run)
    _queue(decision, site, wishes, [cpu, run])
    _files(decision, site)
    _programs(decision, site)
    return decision


# --- partition, account, QOS --------------------------------------------------------------------------------------


def _choose(site: Site, needs: Needs, wishes: SiteOptions, name: str | None, *, preemptible: bool) -> PartitionChoice:
    """The best place for jobs of these needs; raises ConfigError when there is none."""
    tried = [each for each in site.partitions if name in (None, each.name)]
    if not tried:
        known = ", ".join(each.name for each in site.partitions)
        raise ConfigError([f"--partition '{name}' is none of {site.cluster}, which has: {known}"])
    places, reasons = [], []
    for partition in tried:
        place = _place(site, partition, needs, wishes, preemptible=preemptible, named=name is not None)
        if isinstance(place, PartitionChoice):
            places.append(place)
        else:
            reasons.append(f"{partition.name} {place}")
    if not places:
        wanted = f"{needs.minutes} min, {needs.memory_mb} MiB" + _gpu_text(needs)
        kind = "partition whose jobs are preempted" if preemptible else "partition"
        raise ConfigError(
            [
                f"No {kind} of {site.cluster} takes a job of {wanted}: {'; '.join(reasons[:6])}.",
                "Lower limits.time_limit_s, limits.mem_gb or sandbox.gpu in the campaign, or name another --account.",
            ]
        )
    return min(places, key=lambda place: _rank(place, needs))


def _gpu_text(needs: Needs) -> str:
    return f", {needs.gpu} × GPU {needs.model or 'of any type'}" if needs.gpu else ""


def _place(
    site: Site, partition: Partition, needs: Needs, wishes: SiteOptions, *, preemptible: bool, named: bool
) -> PartitionChoice | str:
    """The partition as a place for such jobs, or why it is none."""
    if not partition.up:
        return "is not up"
    if why := too_small(partition, needs):
        return why
    place = charged(site, partition, needs, wishes, preemptible=preemptible)
    if isinstance(place, str):
        return place
    if place.minutes < needs.minutes:
        return f"ends jobs after {place.minutes:.0f} min"
    if preemptible and not place.preemptible:
        return "preempts no jobs"
    if place.preemptible and not preemptible and not named:
        return "preempts its jobs, which takes --preemptible"
    return place


def too_small(partition: Partition, needs: Needs) -> str:
    """Reason why no node of a partition can hold such a job; empty where one can."""
    if not partition.kinds:
        return "has no nodes"
    if needs.gpu and not any(kind.count(needs.model) >= needs.gpu for kind in partition.kinds):
        has = ", ".join(partition.models) or ("GPUs without a type" if partition.has_gpus else "no GPUs")
        return f"has {has}" if needs.model or not partition.has_gpus else f"has no node with {needs.gpu} GPUs"
    if not any(_fits(kind, needs) for kind in partition.kinds):
        most = max(partition.kinds, key=lambda kind: kind.memory_mb)
        return f"has at most {most.memory_mb} MiB and {most.cpus} CPUs in a node"
    return ""


def _fits(kind: NodeKind, needs: Needs) -> bool:
    has_gpus = not needs.gpu or kind.count(needs.model) >= needs.gpu
    return has_gpus and kind.memory_mb >= needs.memory_mb and kind.cpus >= needs.cpus


def charged(
    site: Site, partition: Partition, needs: Needs, wishes: SiteOptions, *, preemptible: bool
) -> PartitionChoice | str:
    """The place with its account and QOS: the default ones where they serve, else the first that do."""
    if not site.associations:
        if site.accounting and site.enforced & {"associations", "limits", "safe", "all"}:
            return "needs an account, and sacctmgr shows none of yours"
        preempted = _is_preempted(site, partition, "")
        limit = min(partition.minutes, _minutes_of(site, partition.qos))
        return PartitionChoice(partition, wishes.account or "", wishes.qos or "", limit, math.inf, "", preempted)
    found: list[PartitionChoice] = []
    for association in sorted(site.associations, key=lambda each: _account_rank(site, each.account, needs)):
        account = association.account
        allowed = partition.accounts is None or account in partition.accounts
        if not allowed or account in partition.denied or association.partition not in ("", partition.name):
            continue
        if wishes.account in (None, account):
            found += [_at(site, partition, association, qos) for qos in _qos_of(association, partition, wishes.qos)]
    if not found:
        return f"does not take {f'account {wishes.account}' if wishes.account else 'any account or QOS of this user'}"
    serves = [place for place in found if place.minutes >= needs.minutes and place.preemptible == preemptible]
    return [*serves, *found][0]


def _account_rank(site: Site, account: str, needs: Needs) -> tuple[bool, bool, str]:
    """The smaller, the better: one whose name is not of the other kind of job, the default one, by name."""
    other = account.lower().endswith("_cpu" if needs.gpu else "_gpu")
    return other, account != site.default_account, account


def _qos_of(association: Association, partition: Partition, wishes: str | None) -> Iterable[str]:
    """QOS that a job may name there, the default first; "" is the default one, unnamed."""
    names = [name for name in association.qos if partition.allowed_qos is None or name in partition.allowed_qos]
    if wishes is not None:
        return [wishes] if wishes in names else []
    default = _default_qos(association)
    rest = [name for name in names if name != default]
    return ["", *rest] if default in names or not association.qos else rest


def _default_qos(association: Association) -> str:
    return association.default_qos or ("normal" if "normal" in association.qos else "")


def _at(site: Site, partition: Partition, association: Association, qos: str) -> PartitionChoice:
    named = qos or _default_qos(association)
    submits = {f"account {association.account}": association.submit}
    submits |= {f"QOS {name}": site.qos[name].submit for name in (named, partition.qos) if name in site.qos}
    strictest = min(submits, key=lambda name: submits[name])
    limit = min(partition.minutes, _minutes_of(site, named), _minutes_of(site, partition.qos))
    preempted = _is_preempted(site, partition, named)
    return PartitionChoice(partition, association.account, qos, limit, submits[strictest], strictest, preempted)


def _minutes_of(site: Site, qos: str) -> float:
    return site.qos[qos].minutes if qos in site.qos and site.limits_jobs else math.inf


def _is_preempted(site: Site, partition: Partition, qos: str) -> bool:
    """Check whether jobs there can be preempted."""
    if site.preempt_type == "none" or partition.preempt_mode == "OFF":
        return False
    if site.preempt_type == "qos":
        preempted = {name for each in site.qos.values() for name in each.preempts}
        return bool(preempted & {qos, partition.qos}) or bool(_BORROWED.search(partition.name))
    higher = any(each.tier > partition.tier for each in site.partitions)
    return higher or bool(_BORROWED.search(partition.name))


def _rank(place: PartitionChoice, needs: Needs) -> tuple[Any, ...]:
    """The smaller, the better."""
    partition = place.partition
    slices = (
        needs.gpu > 0
        and needs.model is None
        and not any(gpus.count >= needs.gpu and not gpus.sliced for kind in partition.kinds for gpus in kind.gpus)
    )
    return (
        bool(_SPECIAL.search(partition.name)),
        partition.exclusive,
        partition.has_gpus and not needs.gpu,
        slices,
        not partition.default,
        -sum(kind.nodes for kind in partition.kinds if _fits(kind, needs)),
        partition.name,
    )


def _places(
    decision: ProfileDraft, site: Site, needs: Needs, wishes: SiteOptions, cpu: PartitionChoice, run: PartitionChoice
) -> None:
    """Partitions and who is charged."""
    apart = run.partition.name != cpu.partition.name
    _partition(decision, cpu, "of the small steps" + ("" if apart else " and of the runs"))
    if apart and not wishes.preemptible:  # else runs name theirs, and nothing else goes there
        _partition(decision, run, "of the runs")
    if cpu.account:
        decision.defaults.append(ProfileLine("slurm_account", cpu.account, _why_account(site, cpu)))
    if cpu.qos:
        decision.defaults.append(ProfileLine("qos", cpu.qos, f"the default QOS does not serve in {cpu.partition.name}"))
    decision.defaults += [
        ProfileLine("runtime", 30, "minutes: collect, audit, score"),
        ProfileLine("mem_mb", SMALL_MB, "of all cores together"),
        ProfileLine("cpus_per_task", 1, "small steps use one core"),
    ]
    if wishes.preemptible:
        decision.of_a_run.append(
            ProfileLine("slurm_partition", run.partition.name, "its jobs are preempted, and run again")
        )
    if run.account != cpu.account:
        decision.of_a_run.append(
            ProfileLine("slurm_account", run.account, f"{run.partition.name} takes no other account")
        )
    if run.qos != cpu.qos:
        why = "its jobs are preempted" if run.preemptible else f"what serves in {run.partition.name}"
        decision.of_a_run.append(ProfileLine("qos", run.qos or _named(site, run), why))
    needs = _shared(decision, needs, run.partition)
    if cpu.minutes < STAGING_MIN:
        why = f"the limit of {cpu.partition.name}; stage what takes longer by `snakemake prepare` on one machine"
        decision.of_staging.append(ProfileLine("runtime", int(cpu.minutes), why))
    decision.said += [
        f"{site.cluster}: Slurm {site.version}, {counted(len(site.partitions), 'partition')} that you see",
        f"small steps: partition {cpu.partition.name}{_charged_to(cpu)}",
        f"runs: partition {run.partition.name}{_charged_to(run)}, {needs.minutes} min, {needs.memory_mb} MiB, "
        f"{needs.cpus} CPUs{_gpu_text(needs)}" + (", preemptible: requeued" if run.preemptible else ""),
    ]
    if run.partition.exclusive or site.whole_nodes:
        decision.warned.append(f"{run.partition.name} gives whole nodes: every job holds one, also the small ones")
    if run.preemptible and not wishes.preemptible:
        decision.warned.append(f"jobs in {run.partition.name} are preempted; `--preemptible` writes a profile for that")
    if needs.gpu and needs.model is None and len(run.partition.models) > 1:
        types = ", ".join(run.partition.models)
        decision.warned.append(f"{run.partition.name} has {types}: runs compare on one of them, sandbox.gpu_model")
    if run.partition.has_gpus and not needs.gpu:
        decision.warned.append(f"{run.partition.name} has GPUs, which sandbox.gpu: 0 asks none of; they may lie idle")


def _shared(decision: ProfileDraft, needs: Needs, partition: Partition) -> Needs:
    """The needs with as many CPUs as leave none of a node's GPUs idle; says so where the memory will not."""
    fits = [each for each in partition.kinds if _fits(each, dataclasses.replace(needs, cpus=1))]
    kind = max(fits, key=lambda each: each.nodes)
    runs = kind.all_gpus // needs.gpu if needs.gpu else 1
    cpus = max(1, min(needs.cpus, kind.cpus // runs))
    if cpus < needs.cpus:
        why = f"{kind.cpus} CPUs of a node for {counted(runs, 'run')}"
        decision.of_a_run.append(ProfileLine("cpus_per_task", cpus, why))
    if (held := kind.memory_mb // needs.memory_mb) < runs:
        warning = f"a node of {partition.name} has GPUs for {runs} runs and memory for {held}: lower limits.mem_gb"
        decision.warned.append(warning)
    return dataclasses.replace(needs, cpus=cpus)


def _named(site: Site, place: PartitionChoice) -> str:
    of_account = [each for each in site.associations if each.account == place.account]
    return _default_qos(of_account[0]) if of_account else ""


def _charged_to(place: PartitionChoice) -> str:
    words = [f"account {place.account}" if place.account else "", f"QOS {place.qos}" if place.qos else ""]
    return "".join(f", {word}" for word in words if word)


def _why_account(site: Site, place: PartitionChoice) -> str:
    others = sorted({each.account for each in site.associations} - {place.account})
    kind = "your default account" if place.account == site.default_account else "the first that the partition takes"
    return f"{kind}; others: {', '.join(others[:4])}" if others else f"{kind}; you have no other"


def _partition(decision: ProfileDraft, place: PartitionChoice, what: str) -> None:
    """An entry of the partition file.

    Of GPU partitions only what keeps small steps out is told: the executor takes the partition whose limits a step
    fills best, less one where it has GPUs that the step does not ask for.
    """
    partition, has_gpus = place.partition, place.partition.has_gpus
    rows = []
    if place.minutes < math.inf:
        rows.append(ProfileLine("max_runtime", int(place.minutes), f"minutes; {what}"))
    if has_gpus:
        most = max(kind.all_gpus for kind in partition.kinds)
        rows.append(ProfileLine("max_gpu", most, "GPUs of its largest node"))
        if partition.models:
            rows.append(ProfileLine("available_gpu_models", list(partition.models), "for sandbox.gpu_model"))
    else:
        rows.append(
            ProfileLine("max_mem_mb", max(kind.memory_mb for kind in partition.kinds), "MiB of its largest node")
        )
        rows.append(ProfileLine("max_threads", max(kind.cpus for kind in partition.kinds), "CPUs of its largest node"))
    decision.partitions[partition.name] = rows


# --- queue --------------------------------------------------------------------------------------------------------


def _queue(decision: ProfileDraft, site: Site, wishes: SiteOptions, places: Sequence[PartitionChoice]) -> None:
    jobs, why = jobs_at_a_time(site, places)
    rate, why_rate = _rate(site)
    decision.top += [
        ProfileLine("executor", "automedbench-slurm", "steps are jobs of Slurm; options of the plugin: slurm-…"),
        ProfileLine("slurm-partition-config", "partitions.yaml", "beside this file: each job goes where its needs fit"),
        ProfileLine("jobs", jobs, why),
        ProfileLine("max-jobs-per-timespan", rate, why_rate),
        ProfileLine("local-cores", 2, "for steps on the node of the head, which is not yours alone"),
        ProfileLine("slurm-jobname-prefix", "automedbench", "`squeue --me` tells these jobs from others"),
        ProfileLine("seconds-between-status-checks", 20, "the queue is asked for all jobs at once"),
        ProfileLine("retries", 0, "a failed paid run is repeated by the next call, never by itself"),
    ]
    if wishes.preemptible:
        decision.top.append(ProfileLine("slurm-requeue", True, "a preempted run goes on where it was, in the same job"))
    else:
        decision.top.append(ProfileLine("slurm-no-requeue", True, "nor by Slurm"))
    if site.accounting:
        decision.top += [
            ProfileLine("slurm-efficiency-report", True, "at the end: what each job used of what it asked for (sacct)"),
            ProfileLine("slurm-efficiency-report-path", "logs", "folder of that report"),
        ]
    decision.said.append(f"queue: {jobs} jobs at a time ({why}), {rate.replace('/', ' submissions per ')}")


def jobs_at_a_time(site: Site, places: Sequence[PartitionChoice]) -> tuple[int, str]:
    """``jobs`` below what the site lets one user submit, and why: a tenth stays free, and a job for the head."""
    limit, name = min(((place.submit, place.submit_of) for place in places), default=(math.inf, ""))
    if not site.limits_jobs or limit == math.inf:
        return MOST_JOBS, "in the queue at a time; this site sets no lower limit"
    jobs = max(1, min(MOST_JOBS, math.floor(limit * 0.9) - 1))
    return jobs, f"{name} lets you submit {limit:.0f} at a time; a tenth and the head's job stay free"


def _rate(site: Site) -> tuple[str, str]:
    if site.calls_per_s is None:
        return f"{SUBMISSIONS_PER_6S}/6s", "submissions: gentle to the scheduler"
    allowed = max(1, min(SUBMISSIONS_PER_6S, int(site.calls_per_s * 6 / 2)))
    return f"{allowed}/6s", f"half of the {site.calls_per_s:g} calls per second that the controller answers you"


# --- files and programs -------------------------------------------------------------------------------------------


def _files(decision: ProfileDraft, site: Site) -> None:
    results = site.folders.get("results")
    shared = results is not None and results.kind in NETWORK_FILE_SYSTEMS
    kind = results.kind if results else "unknown"
    wait = 60 if shared else 20
    decision.top.append(ProfileLine("latency-wait", wait, f"seconds for a file of another node to appear on {kind}"))
    metadata = site.folders.get("metadata of Snakemake")
    if shared and not (metadata and metadata.filled):
        why = "one file instead of one per output; every call of this campaign then needs this profile"
        decision.top.append(ProfileLine("persistence-backend", "db", why))
    several = sum(each.nodes for each in site.partitions) > 1
    if results and not shared and several:
        decision.warned.append(
            f"{results.path} lies on {kind}, which other nodes may not see: `srun ls {results.path}` must show it"
        )
    for name, folder in site.folders.items():
        if folder.free_files is not None and folder.free_files < 100_000:
            decision.warned.append(f"{name} ({folder.path}) has room for {folder.free_files} more files only")
    free = f", {results.free_bytes / 1e9:.0f} GB free" if results else ""
    scratch = f"; disk of a node: {site.scratch[0]}" if site.scratch else ""
    decision.said.append(f"files: results on {kind}{free}{scratch}")


def _programs(decision: ProfileDraft, site: Site) -> None:
    """Apptainer in the jobs, from a module where it is in no PATH; and what keeps their memory."""
    if site.apptainer:
        decision.said.append(f"containers: {site.apptainer}")
    elif site.module:
        load = f"module load {site.module}"
        command = f". {site.module_init} && {load}" if site.module_init else load
        decision.top.append(ProfileLine("precommand", command, "in every job: Apptainer is a module here"))
        decision.said.append(f"containers: `{load}`, in every job and before `snakemake prepare`")
        if site.module.startswith("singularity"):
            decision.warned.append("the module is Singularity's; Apptainer 1.2 or newer is needed: ask for it")
    else:
        decision.warned.append("no Apptainer in PATH and none among the modules: agent code cannot run; ask for it")
    if not site.cgroups:
        decision.warned.append("Slurm keeps memory without cgroups: a call over its limit is found by polling")
