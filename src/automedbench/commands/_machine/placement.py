"""Partition, account and QOS for jobs of a cluster: candidates in order, and the first that Slurm accepts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.commands._machine.host import run_program
from automedbench.commands._machine.slurm import Partition, Site

_SPECIAL = re.compile(r"debug|test|devel|^dev|interact|express|visual|jupyter|login|transfer|dtn|class|student", re.I)
"""Names of partitions that are for something else."""
_SLICE = re.compile(r"(^|[_.:])\d+g\.\d+gb")
"""Types of GPUs that are slices of a card (MIG)."""
_CHARGED = re.compile("account|assoc|qos|policy|partition|preempt", re.I)
"""Refusals that another account or QOS may change."""


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
        minutes, memory_mb = (int(resources.get(name, 0)) for name in ("runtime", "mem_mb"))
        cpus, gpu = int(resources.get("cpus_per_task", 1)), int(resources.get("gpu", 0))
        return cls(minutes, memory_mb, cpus, gpu, resources.get("gpu_model"))

    def __str__(self) -> str:
        """The request for a message."""
        gpu = f", {self.gpu} × GPU {self.model or 'of any type'}" if self.gpu else ""
        return f"{self.minutes} min, {self.memory_mb} MiB, {self.cpus} CPUs{gpu}"


@dataclass(frozen=True)
class SiteOptions:
    """Options of the user; None where the site decides."""

    partition: str | None = None
    run_partition: str | None = None
    account: str | None = None
    qos: str | None = None
    preemptible: bool = False


@dataclass(frozen=True)
class Place:
    """Where jobs of these needs go: partition, with account and QOS; "" where none need be named."""

    partition: Partition
    account: str
    qos: str
    needs: Needs


Ask = Callable[[Place], str]
"""Why Slurm refuses a job; empty where it takes it."""


def ask_slurm(place: Place) -> str:
    """What ``sbatch --test-only`` has against such a job: nothing is submitted."""
    needs, named = place.needs, {"account": place.account, "qos": place.qos}
    gpus = f"{needs.model}:{needs.gpu}" if needs.model else str(needs.gpu or "")
    options = {"partition": place.partition.name, **named, "gpus": gpus, "nodes": "1", "ntasks": "1"}
    options |= {"time": str(needs.minutes), "mem": f"{needs.memory_mb}M", "cpus-per-task": str(needs.cpus)}
    words = [f"--{name}={value}" for name, value in options.items() if value]
    status, text = run_program(["sbatch", "--test-only", *words, "--wrap=true"], 30)
    return "" if status == 0 else text.rpartition("\n")[2].removeprefix("allocation failure: ")[:100]


def choose_place(
    site: Site, needs: Needs, options: SiteOptions, name: str | None, ask: Ask, *, preemptible: bool = False
) -> Place:
    """The first place that takes such jobs; ``name``: of its partition, where the user chose one.

    Raises ConfigError when there is none, with the reason of each partition that comes near.
    """
    tried = sorted((each for each in site.partitions if name in (None, each.name)), key=lambda each: _rank(each, needs))
    if not tried:
        known = ", ".join(each.name for each in site.partitions)
        raise ConfigError([f"--partition '{name}' is none of {site.cluster}, which has: {known}"])
    reasons = []
    for partition in tried:
        if not (why := find_lack(partition, needs)):
            own = dataclasses.replace(needs, cpus=share_cpus(partition, needs))
            for account, qos in _list_charges(site, partition, options):
                place = Place(partition, account, qos, own)
                why = _is_unwanted(site, place, preemptible=preemptible, named=name is not None) or ask(place)
                if not why:
                    return place
                if not _CHARGED.search(why):
                    break
        reasons.append(f"{partition.name}: {why}")
    kind = "partition whose jobs are preempted" if preemptible else "partition"
    raise ConfigError(
        [
            f"No {kind} of {site.cluster} takes a job of {needs}: {'; '.join(reasons[:6])}.",
            "Lower limits.time_limit_s, limits.mem_gb or sandbox.gpu in the campaign, or name another --account.",
        ]
    )


def _rank(partition: Partition, needs: Needs) -> tuple[Any, ...]:
    """Sort key of a partition: the smaller, the better."""
    only_slices = bool(partition.models) and all(map(_SLICE.search, partition.models))
    return (
        bool(_SPECIAL.search(partition.name)),
        partition.exclusive,
        partition.has_gpus and not needs.gpu,
        only_slices and needs.model is None,
        not partition.default,
        -partition.nodes,
        partition.name,
    )


def find_lack(partition: Partition, needs: Needs) -> str:
    """What such a job would wait for in vain; what Slurm refuses at once, it says itself."""
    if not partition.up:
        return "is not up"
    if partition.minutes < needs.minutes:
        return f"ends jobs after {partition.minutes:.0f} min"
    if (needs.gpu and needs.model not in (None, *partition.models)) or (needs.gpu and not partition.has_gpus):
        return f"has {', '.join(partition.models) or 'no GPUs'}"
    return ""


def _is_unwanted(site: Site, place: Place, *, preemptible: bool, named: bool) -> str:
    """Why the place does not fit what was asked for of preemption; empty where it does, and where the user named it."""
    if site.displaces(place.partition) and not named:
        return "takes the place of other users' jobs: only where it is named"
    preempted = site.preempts(place.partition, place.qos)
    if preemptible and not preempted:
        return "preempts no jobs"
    return "preempts its jobs, which takes --preemptible" if preempted and not preemptible and not named else ""


def _list_charges(site: Site, partition: Partition, options: SiteOptions) -> Iterator[tuple[str, str]]:
    """Accounts with the QOS that a job may name there, the default ones first; "" is the default, unnamed.

    None that takes the place of jobs of the default one, unless the user names it.
    """
    if not site.associations or options.account not in (None, *(each.account for each in site.associations)):
        yield options.account or "", options.qos or ""
        return
    for each in sorted(site.associations, key=lambda each: (each.account != site.default_account, each.account)):
        if options.account in (None, each.account) and each.partition in ("", partition.name):
            others = ["", *(name for name in each.qos if name not in (each.usual_qos, *site.urgent_qos))]
            yield from ((each.account, qos) for qos in ([options.qos] if options.qos else others))


def share_cpus(partition: Partition, needs: Needs) -> int:
    """CPUs of a job, as many as it needs, but so few that none of a node's GPUs lies idle."""
    fits = [each for each in partition.kinds if not needs.gpu or (needs.model in (None, *each.gpus) and each.gpus)]
    runs = [max(1, sum(each.gpus.values()) // needs.gpu) if needs.gpu else 1 for each in fits]
    return max(1, min([needs.cpus, *(each.cpus // held for each, held in zip(fits, runs, strict=True))]))
