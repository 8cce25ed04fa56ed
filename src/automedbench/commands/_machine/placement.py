"""Partition, account and QOS for jobs of a cluster: candidates in order, and the first that Slurm accepts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.commands._machine.examine import next_step
from automedbench.commands._machine.host import run_program
from automedbench.commands._machine.slurm import Partition, Site

_SPECIAL = re.compile(r"debug|test|devel|^dev|interact|express|visual|jupyter|login|transfer|dtn|class|student", re.I)
"""Names of partitions that are for something else."""
_SLICE = re.compile(r"(^|[_.:])\d+g\.\d+gb")
"""Types of GPUs that are slices of a card (MIG)."""
_CHARGED = re.compile("account|assoc|qos|policy|partition|preempt", re.I)
"""Refusals that another account or QOS may change."""

SHOWN_REASONS, SHOWN_STEPS = 6, 2
"""Of partitions that take no such job, and of what to do about it."""
ADVICE = {
    "^has (?!only)": "Set sandbox.gpu and sandbox.gpu_model to what there is: `sinfo -o '%R %G'`.",
    "only where it is named": "Name it, by `automedbench site --partition NAME`, if you may displace them.",
    "preempts no": "Leave out --preemptible: nothing is preempted for you there.",
    "preempts its": "`automedbench site --preemptible` makes a profile for it, with requeueing.",
    "account|Assoc(?!.*(Max|Grp))": "Name an account that may submit there, by `automedbench site --account NAME`; "
    "`sacctmgr show associations user=$USER` lists yours.",
    "QOS|Assoc|policy": "Name a QOS that allows it, by `automedbench site --qos NAME`, or lower jobs or the limits.",
    "PartitionConfig|time ?limit|ends jobs": "Lower limits.time_limit_s, or choose one that lasts "
    "(`scontrol show partition`): `automedbench site --run-partition NAME`.",
    "configuration|constraint|NodeLimit|memory": "Lower limits.mem_gb or sandbox.gpu, or choose one with larger nodes: "
    "`automedbench site --run-partition NAME`.",
    "not ?avail|is not up|DOWN|DRAIN|Reserved|Inactive": "`sinfo -R` says why: ask the administrators for the "
    "nodes, or choose another partition: `automedbench site --run-partition NAME`.",
    "partition": "Choose another one: `automedbench site --partition NAME --run-partition NAME`.",
    "Held": "`scontrol show job` says who holds it; ask the administrators, and `scontrol release` it.",
    "contact|Connection|timed out|standby": "slurmctld does not answer: `scontrol ping`; ask the administrators.",
}
"""Words of a reason of `choose_place`, of sbatch or of a pending job → next step; the first that fits counts."""


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
    site: Site, needs: Needs, options: SiteOptions, ask: Ask, *, option: str = "partition", preemptible: bool = False
) -> Place:
    """The first place that takes such jobs; ``option``: the one that names its partition, where the user chose one.

    Raises ConfigError when there is none, with the reason of each partition that comes near, and what to do.
    """
    name = getattr(options, option)
    tried = sorted((each for each in site.partitions if name in (None, each.name)), key=lambda each: _rank(each, needs))
    if not tried:
        known = ", ".join(each.name for each in site.partitions)
        raise ConfigError([f"--{option.replace('_', '-')}: {site.cluster} has no partition '{name}'; it has: {known}"])
    reasons: dict[str, str] = {}
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
        reasons[partition.name] = why
    kind = "preemptible partition" if preemptible else "partition"
    shown = list(reasons.items())[:SHOWN_REASONS]
    steps = dict.fromkeys(filter(None, (next_step(why, ADVICE, "") for _, why in shown)))
    raise ConfigError(
        [
            f"No {kind} of {site.cluster} takes a job of {needs}: {'; '.join(map(': '.join, shown))}.",
            *list(steps)[:SHOWN_STEPS],
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
    if partition.closed:
        return partition.closed
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
