"""Reader of a Slurm cluster: a ``Site`` parsed from what sinfo, scontrol and sacctmgr print (Slurm 20.11 and newer)."""

from __future__ import annotations

import getpass
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from automedbench.base.errors import MissingDataError
from automedbench.base.slurm import parse_seconds
from automedbench.commands._machine.host import run_program

KINDS = "%R|%D|%c|%m|%G"
"""Columns of sinfo, in the order in which ``parse`` expects them."""
STATES = "%R|%t"
_GONE = re.compile("down|dra?i?n|fail|unk|inval")
"""States of nodes that take no jobs until an administrator does something."""
ASSOCIATIONS = "Account,Partition,QOS,DefaultQOS"
QOS = "Name,Preempt"
_GPU = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)(?=[(,]|$)")


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a partition that are alike; ``gpus``: number by the site's name of the type, "" where it names none."""

    nodes: int
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int]


@dataclass(frozen=True)
class Partition:
    """A partition; ``up``: it is, ``alive``: one of its nodes is; ``minutes``: the longest job."""

    name: str
    up: bool
    default: bool
    minutes: float
    tier: int
    preempt_mode: str
    exclusive: bool
    kinds: tuple[NodeKind, ...]
    alive: bool = True

    @property
    def closed(self) -> str:
        """Why it starts no job now; empty where it does."""
        return "is not up" if not self.up else "" if self.alive else "has only nodes that are down or drained"

    @property
    def models(self) -> tuple[str, ...]:
        """Types of its GPUs."""
        return tuple(dict.fromkeys(model for kind in self.kinds for model in kind.gpus if model))

    @property
    def has_gpus(self) -> bool:
        """Check whether any node has a GPU."""
        return any(kind.gpus for kind in self.kinds)

    @property
    def nodes(self) -> int:
        """Number of its nodes."""
        return sum(kind.nodes for kind in self.kinds)


@dataclass(frozen=True)
class Association:
    """An account that the user may charge, in all partitions or in one, with the QOS that jobs may name."""

    account: str
    partition: str
    qos: tuple[str, ...]
    default_qos: str

    @property
    def usual_qos(self) -> str:
        """QOS of a job that names none."""
        return self.default_qos or ("normal" if "normal" in self.qos else "")


@dataclass(frozen=True)
class Site:
    """A cluster; QOS whose jobs lose their place, the user's usual ones not among them, and those that take theirs."""

    cluster: str
    preempt_type: str
    partitions: tuple[Partition, ...]
    associations: tuple[Association, ...]
    default_account: str
    preempted_qos: frozenset[str]
    urgent_qos: frozenset[str]

    @property
    def usual_tier(self) -> int:
        """Tier of the default partition, else the highest."""
        default = [each.tier for each in self.partitions if each.default]
        return max(default or [each.tier for each in self.partitions])

    def preempts(self, partition: Partition, qos: str) -> bool:
        """Check whether jobs there lose their place to usual ones, not to urgent ones alone, as the usual may too."""
        if self.preempt_type == "none" or partition.preempt_mode == "OFF":
            return False
        if self.preempt_type == "qos":
            return qos in self.preempted_qos
        return partition.tier < self.usual_tier

    def displaces(self, partition: Partition) -> bool:
        """Check whether jobs there take the place of those in the usual partitions."""
        between = range(self.usual_tier, partition.tier)
        preempted = any(each.tier in between and each.preempt_mode != "OFF" for each in self.partitions)
        return self.preempt_type == "partition_prio" and preempted


def read_site() -> Site:
    """Ask Slurm; what a command that fails would say is unlimited, off or empty, as where no database answers.

    Raises MissingDataError when there is no Slurm, or when it does not answer.
    """
    status, kinds = run_program(["sinfo", "--exact", "--noheader", f"--format={KINDS}"], 30)
    if status:
        raise MissingDataError(
            f"No Slurm answers on this machine; sinfo says: {kinds.splitlines()[-1][:150] if kinds else status}.\n"
            "Run this on a login node of the cluster; on one machine use `snakemake --profile profiles/local`."
        )
    who = getpass.getuser()
    commands = {
        "states": ["sinfo", "--noheader", f"--format={STATES}"],
        "partitions": ["scontrol", "show", "partition", "--oneliner"],
        "config": ["scontrol", "show", "config"],
        "associations": [*_SACCTMGR, "associations", "where", f"user={who}", f"format={ASSOCIATIONS}"],
        "account": [*_SACCTMGR, "user", who, "format=DefaultAccount"],
        "qos": [*_SACCTMGR, "qos", f"format={QOS}"],
    }
    answers = {name: run_program(command, 30) for name, command in commands.items()}
    return parse({"kinds": kinds, **{name: text for name, (status, text) in answers.items() if status == 0}})


_SACCTMGR = ["sacctmgr", "--noheader", "--parsable2", "show"]


def parse(texts: Mapping[str, str]) -> Site:
    """A site from the output of each command, by the names in ``read_site``."""
    config = dict(re.findall(r"(?m)^(\w+) *= *(.*?) *$", texts.get("config", "")))
    linear, associations = config.get("SelectType") == "select/linear", tuple(_associations(texts))
    usual = {"", *(each.usual_qos for each in associations)}
    qos = {name: set(preempted.split(",")) for name, preempted in _rows(texts, "qos", 2)}
    return Site(
        cluster=config.get("ClusterName", "this cluster"),
        preempt_type=config.get("PreemptType", "preempt/none").removeprefix("preempt/"),
        partitions=tuple(_partitions(texts, linear)),
        associations=associations,
        default_account=texts.get("account", "").strip(),
        preempted_qos=frozenset().union(*qos.values()) - usual,
        urgent_qos=frozenset(name for name, preempted in qos.items() if preempted & usual - {""}),
    )


def minutes(text: str) -> float:
    """A limit of time in minutes; infinite for a word."""
    seconds = parse_seconds(text)
    return math.inf if seconds is None else seconds / 60


def gpus(gres: str) -> dict[str, int]:
    """GPUs in a node's generic resources: ``gpu:a100:4(S:0-1),nvme:1``; neither MPS nor shards count."""
    return {model or "": int(count) for model, count in _GPU.findall(gres.replace(" ", ""))}


def _partitions(texts: Mapping[str, str], linear: bool) -> Iterator[Partition]:
    """One or several lines each; ``linear``: Slurm gives whole nodes everywhere."""
    kinds: dict[str, list[NodeKind]] = {}
    for name, nodes, cpus, memory, gres in _rows(texts, "kinds", 5):
        kind = NodeKind(int(nodes), int(cpus.rstrip("+")), int(memory.rstrip("+")), gpus(gres))
        kinds.setdefault(name.rstrip("*"), []).append(kind)
    states: dict[str, list[str]] = {}
    for name, state in _rows(texts, "states", 2):
        states.setdefault(name.rstrip("*"), []).append(state)
    for part in re.split(r"(?m)^(?=PartitionName=)", texts.get("partitions", "")):
        words = dict(word.split("=", 1) for word in part.split() if "=" in word)
        if "PartitionName" in words:
            yield Partition(
                name=words["PartitionName"],
                up=words.get("State", "UP") == "UP" and words.get("RootOnly", "NO") == "NO",
                default=words.get("Default") == "YES",
                minutes=minutes(words.get("MaxTime", "UNLIMITED")),
                tier=int(words.get("PriorityTier", 1)),
                preempt_mode=words.get("PreemptMode", "OFF"),
                exclusive=linear or words.get("OverSubscribe") == "EXCLUSIVE",
                kinds=tuple(kinds.get(words["PartitionName"], ())),
                alive=not all(map(_GONE.match, states.get(words["PartitionName"], ["unlisted"]))),
            )


def _associations(texts: Mapping[str, str]) -> Iterator[Association]:
    for account, partition, qos, default in _rows(texts, "associations", 4):
        yield Association(account, partition, tuple(filter(None, qos.split(","))), default)


def _rows(texts: Mapping[str, str], name: str, columns: int) -> Iterator[list[str]]:
    lines = texts.get(name, "").splitlines()
    yield from (line.strip().split("|") for line in lines if line.count("|") == columns - 1)
