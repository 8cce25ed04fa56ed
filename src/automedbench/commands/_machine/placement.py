"""Partition, account and QOS for a job of a cluster: the best ones, or the reason why there are none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.commands._machine.slurm import Association, NodeKind, Partition, Site

MOST_JOBS = 200
"""Jobs in the queue at a time where nothing limits them: more gain nothing, as each run waits for its model."""
_SPECIAL = re.compile(r"debug|test|devel|^dev|interact|express|visual|jupyter|login|transfer|dtn|class|student", re.I)
_BORROWED = re.compile(r"preempt|scaveng|requeue|spot|ckpt|checkpoint|guest|besteffort|opportun", re.I)


@dataclass(frozen=True)
class Needs:
    """Resource request of a job: minutes, MiB, CPUs, GPUs of one node and their type."""

    minutes: int
    memory_mb: int
    cpus: int
    gpu: int = 0
    model: str | None = None

    @classmethod
    def from_resources(cls, resources: Mapping[str, Any]) -> Needs:
        """Needs of a job by the names of a rule's resources."""
        minutes, memory_mb, cpus, gpu = (int(resources.get(name, usual)) for name, usual in _RESOURCES.items())
        return cls(minutes, memory_mb, cpus, gpu, resources.get("gpu_model"))

    @property
    def gpu_text(self) -> str:
        """GPUs for a message; empty without any."""
        return f", {self.gpu} × GPU {self.model or 'of any type'}" if self.gpu else ""


_RESOURCES = {"runtime": 0, "mem_mb": 0, "cpus_per_task": 1, "gpu": 0}
"""Resources of ``Needs`` in its order → their defaults."""


@dataclass(frozen=True)
class SiteOptions:
    """Options of the user; None where the site decides."""

    partition: str | None = None
    run_partition: str | None = None
    account: str | None = None
    qos: str | None = None
    preemptible: bool = False


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


def choose_partition(
    site: Site, needs: Needs, options: SiteOptions, name: str | None, *, preemptible: bool
) -> PartitionChoice:
    """The best place for jobs of these needs; raises ConfigError when there is none."""
    tried = [each for each in site.partitions if name in (None, each.name)]
    if not tried:
        known = ", ".join(each.name for each in site.partitions)
        raise ConfigError([f"--partition '{name}' is none of {site.cluster}, which has: {known}"])
    places, reasons = [], []
    for partition in tried:
        place = check_partition(site, partition, needs, options, preemptible=preemptible, named=name is not None)
        if isinstance(place, PartitionChoice):
            places.append(place)
        else:
            reasons.append(f"{partition.name} {place}")
    if not places:
        wanted = f"{needs.minutes} min, {needs.memory_mb} MiB" + needs.gpu_text
        kind = "partition whose jobs are preempted" if preemptible else "partition"
        raise ConfigError(
            [
                f"No {kind} of {site.cluster} takes a job of {wanted}: {'; '.join(reasons[:6])}.",
                "Lower limits.time_limit_s, limits.mem_gb or sandbox.gpu in the campaign, or name another --account.",
            ]
        )
    return min(places, key=lambda place: _rank(place, needs))


def check_partition(
    site: Site, partition: Partition, needs: Needs, options: SiteOptions, *, preemptible: bool, named: bool
) -> PartitionChoice | str:
    """The partition as a place for such jobs, or the reason why it is none; ``named``: the user chose it."""
    if not partition.up:
        return "is not up"
    if why := _describe_shortage(partition, needs):
        return why
    place = _choose_account(site, partition, needs, options, preemptible=preemptible)
    if isinstance(place, str):
        return place
    if place.minutes < needs.minutes:
        return f"ends jobs after {place.minutes:.0f} min"
    if _preempts(site, partition) and not named:
        return "takes the place of other users' jobs: only where it is named"
    if preemptible and not place.preemptible:
        return "preempts no jobs"
    if place.preemptible and not preemptible and not named:
        return "preempts its jobs, which takes --preemptible"
    return place


def _describe_shortage(partition: Partition, needs: Needs) -> str:
    """Reason why no node of a partition can hold such a job; empty where one can."""
    if not partition.kinds:
        return "has no nodes"
    if needs.gpu and not any(kind.count(needs.model) >= needs.gpu for kind in partition.kinds):
        has = ", ".join(partition.models) or ("GPUs without a type" if partition.has_gpus else "no GPUs")
        return f"has {has}" if needs.model or not partition.has_gpus else f"has no node with {needs.gpu} GPUs"
    if not any(fits_node(kind, needs) for kind in partition.kinds):
        most = max(partition.kinds, key=lambda kind: kind.memory_mb)
        return f"has at most {most.memory_mb} MiB and {most.cpus} CPUs in a node"
    return ""


def fits_node(kind: NodeKind, needs: Needs) -> bool:
    """Check whether one node of this kind can hold such a job."""
    has_gpus = not needs.gpu or kind.count(needs.model) >= needs.gpu
    return has_gpus and kind.memory_mb >= needs.memory_mb and kind.cpus >= needs.cpus


def _choose_account(
    site: Site, partition: Partition, needs: Needs, options: SiteOptions, *, preemptible: bool
) -> PartitionChoice | str:
    """The place with its account and QOS: the default ones where they serve, else the first that do."""
    if not site.associations:
        if site.accounting and site.enforced & {"associations", "limits", "safe", "all"}:
            return "needs an account, and sacctmgr shows none of yours"
        preempted = _is_preempted(site, partition, "")
        limit = min(partition.minutes, _limit_of_qos(site, partition.qos))
        return PartitionChoice(partition, options.account or "", options.qos or "", limit, math.inf, "", preempted)
    found: list[PartitionChoice] = []
    for association in sorted(site.associations, key=lambda each: _rank_account(site, each.account, needs)):
        account = association.account
        allowed = partition.accounts is None or account in partition.accounts
        if not allowed or account in partition.denied or association.partition not in ("", partition.name):
            continue
        if options.account in (None, account):
            names = _list_qos(site, association, partition, options.qos)
            found += [_make_choice(site, partition, association, qos) for qos in names]
    if not found:
        asked = [f"{name} {value}" for name, value in (("account", options.account), ("QOS", options.qos)) if value]
        return f"does not take {' with '.join(asked) or 'any account or QOS of this user'}"
    serves = [place for place in found if place.minutes >= needs.minutes and place.preemptible == preemptible]
    return [*serves, *found][0]


def _rank_account(site: Site, account: str, needs: Needs) -> tuple[bool, bool, str]:
    """Sort key: an account whose name is not of the other kind of job, then the default one, then by name."""
    other = account.lower().endswith("_cpu" if needs.gpu else "_gpu")
    return other, account != site.default_account, account


def _list_qos(site: Site, association: Association, partition: Partition, wanted: str | None) -> Iterable[str]:
    """QOS that a job may name there, the default first; "" is the default one, unnamed.

    None that takes the place of jobs of the default one, unless it is ``wanted``.
    """
    names = [name for name in association.qos if partition.allowed_qos is None or name in partition.allowed_qos]
    if wanted is not None:
        return [wanted] if wanted in names else []
    default = association.usual_qos
    preempting = {name for name, each in site.qos.items() if default in each.preempts and not _BORROWED.search(default)}
    rest = [name for name in names if name != default and name not in preempting]
    return ["", *rest] if default in names or not association.qos else rest


def _make_choice(site: Site, partition: Partition, association: Association, qos: str) -> PartitionChoice:
    named = qos or association.usual_qos
    submits = {f"account {association.account}": association.submit}
    submits |= {f"QOS {name}": site.qos[name].submit for name in (named, partition.qos) if name in site.qos}
    strictest = min(submits, key=lambda name: submits[name])
    limit = min(partition.minutes, _limit_of_qos(site, named), _limit_of_qos(site, partition.qos))
    preempted = _is_preempted(site, partition, named, association.usual_qos)
    return PartitionChoice(partition, association.account, qos, limit, submits[strictest], strictest, preempted)


def _limit_of_qos(site: Site, qos: str) -> float:
    return site.qos[qos].minutes if qos in site.qos and site.limits_jobs else math.inf


def _is_preempted(site: Site, partition: Partition, qos: str, usual_qos: str = "") -> bool:
    """Check whether jobs there can be preempted by usual ones; what urgent jobs preempt as well is the usual place."""
    if site.preempt_type == "none" or partition.preempt_mode == "OFF":
        return False
    if site.preempt_type == "qos":
        preempted = {name for each in site.qos.values() for name in each.preempts}
        preempted -= {usual_qos} if not _BORROWED.search(usual_qos) else set()
        return bool(preempted & {qos, partition.qos}) or bool(_BORROWED.search(partition.name))
    return partition.tier < _usual_tier(site) or bool(_BORROWED.search(partition.name))


def _preempts(site: Site, partition: Partition) -> bool:
    """Check whether jobs there take the place of those in the usual partitions."""
    between = range(_usual_tier(site), partition.tier)
    preempted = any(each.tier in between and each.preempt_mode != "OFF" for each in site.partitions)
    return site.preempt_type == "partition_prio" and preempted


def _usual_tier(site: Site) -> int:
    """Tier of the default partition, else the highest."""
    default = [each.tier for each in site.partitions if each.default and not _BORROWED.search(each.name)]
    return max(default or [each.tier for each in site.partitions])


def _rank(place: PartitionChoice, needs: Needs) -> tuple[Any, ...]:
    """Sort key of a place: the smaller, the better."""
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
        -sum(kind.nodes for kind in partition.kinds if fits_node(kind, needs)),
        partition.name,
    )


def limit_jobs(site: Site, places: Sequence[PartitionChoice]) -> tuple[int, str]:
    """``jobs`` below what the site lets one user submit, and why: a tenth stays free, and a job for the head."""
    limit, name = min(((place.submit, place.submit_of) for place in places), default=(math.inf, ""))
    if not site.limits_jobs or limit == math.inf:
        return MOST_JOBS, "in the queue at a time; this site sets no lower limit"
    jobs = max(1, min(MOST_JOBS, math.floor(limit * 0.9) - 1))
    return jobs, f"{name} lets you submit {limit:.0f} at a time; a tenth and the head's job stay free"
