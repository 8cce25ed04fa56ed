"""Parser of a site's dumps: pure functions from text to a ``Site``, for every version of Slurm since 20.11."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from automedbench.base.slurm import parse_seconds

_GPU = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)(?=[(,]|$)")
_SLICE = re.compile(r"(^|[_.:])\d+g\.\d+gb")


@dataclass(frozen=True)
class Gpus:
    """GPUs of one type in a node, by the site's name of the type; "" where it names none."""

    model: str
    count: int

    @property
    def sliced(self) -> bool:
        """True for slices of a card (MIG)."""
        return _SLICE.search(self.model) is not None


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a partition that are alike; memory in MiB."""

    nodes: int
    cpus: int
    memory_mb: int
    gpus: tuple[Gpus, ...]

    @property
    def all_gpus(self) -> int:
        """GPUs of one node, of any type."""
        return sum(each.count for each in self.gpus)

    def count(self, model: str | None) -> int:
        """GPUs of a type in one node; without a type, whole cards, or slices where there is nothing else."""
        if model is not None:
            return sum(each.count for each in self.gpus if each.model == model)
        whole = sum(each.count for each in self.gpus if not each.sliced)
        return whole or self.all_gpus


@dataclass(frozen=True)
class Partition:
    """A partition as its users meet it; ``accounts`` and ``allowed_qos`` are None where all may use it."""

    name: str
    up: bool
    default: bool
    minutes: float
    tier: int
    preempt_mode: str
    exclusive: bool
    accounts: frozenset[str] | None
    denied: frozenset[str]
    allowed_qos: frozenset[str] | None
    qos: str
    kinds: tuple[NodeKind, ...]

    @property
    def nodes(self) -> int:
        """All of its nodes."""
        return sum(kind.nodes for kind in self.kinds)

    @property
    def models(self) -> tuple[str, ...]:
        """Types of its GPUs."""
        return tuple(dict.fromkeys(gpus.model for kind in self.kinds for gpus in kind.gpus if gpus.model))

    @property
    def has_gpus(self) -> bool:
        """Check whether any node has a GPU."""
        return any(kind.gpus for kind in self.kinds)


@dataclass(frozen=True)
class Association:
    """An account that the user may charge, in all partitions or in one; ``submit``: jobs in the queue at a time."""

    account: str
    partition: str
    qos: tuple[str, ...]
    default_qos: str
    submit: float


@dataclass(frozen=True)
class Qos:
    """A quality of service; ``preempts`` names those whose jobs it takes the place of."""

    minutes: float
    submit: float
    preempts: frozenset[str]


@dataclass(frozen=True)
class Folder:
    """A folder of the campaign; ``free_files`` is None where the file system does not count them."""

    path: str
    filled: bool
    kind: str
    free_bytes: int
    free_files: int | None


@dataclass(frozen=True)
class Site:
    """A cluster, as far as its commands tell."""

    version: str
    cluster: str
    preempt_type: str
    preempt_mode: str
    accounting: bool
    enforced: frozenset[str]
    cgroups: bool
    whole_nodes: bool
    calls_per_s: float | None
    partitions: tuple[Partition, ...]
    associations: tuple[Association, ...]
    default_account: str
    qos: Mapping[str, Qos]
    apptainer: str
    module: str
    module_init: str
    folders: Mapping[str, Folder]
    scratch: tuple[str, ...]

    @property
    def limits_jobs(self) -> bool:
        """Check whether limits of associations and QOS are enforced."""
        return self.accounting and bool(self.enforced & {"limits", "safe", "all"})

    def partition(self, name: str) -> Partition | None:
        """The partition of that name."""
        return next((each for each in self.partitions if each.name == name), None)


def parse(dumps: Mapping[str, str]) -> Site:
    """The site that dumps tell of; what is not told is unlimited, off or empty."""
    config = _config(dumps.get("config", ""))
    kinds = _kinds(dumps["kinds"])
    mode = config.get("PreemptMode", "OFF")
    module, init = _module(dumps.get("modules", ""))
    storage = config.get("AccountingStorageType", "")
    return Site(
        version=config.get("SLURM_VERSION", "unknown"),
        cluster=config.get("ClusterName", "this cluster"),
        preempt_type=config.get("PreemptType", "preempt/none").removeprefix("preempt/"),
        preempt_mode=mode,
        accounting=bool(storage) and not storage.endswith(("none", "(null)")),
        enforced=frozenset(config.get("AccountingStorageEnforce", "none").split(",")),
        cgroups="cgroup" in config.get("TaskPlugin", "") and "cgroup" in config.get("ProctrackType", ""),
        whole_nodes=config.get("SelectType", "") == "select/linear",
        calls_per_s=_calls(config.get("SlurmctldParameters", "")),
        partitions=tuple(_partitions(dumps["partitions"], kinds, mode)),
        associations=tuple(_associations(dumps.get("associations", ""))),
        default_account=dumps.get("account", "").strip(),
        qos=dict(_qos(dumps.get("qos", ""))),
        apptainer=dumps.get("apptainer", "").strip(),
        module=module,
        module_init=init,
        folders=dict(_folders(dumps.get("folders", ""))),
        scratch=tuple(line.split("=")[0] for line in dumps.get("scratch", "").split()),
    )


def minutes(text: str) -> float:
    """A limit of time in minutes; infinite for a word."""
    seconds = parse_seconds(text)
    return math.inf if seconds is None else seconds / 60


def gpus(gres: str) -> tuple[Gpus, ...]:
    """GPUs in a node's generic resources: ``gpu:a100:4(S:0-1),nvme:1``; neither MPS nor shards count."""
    return tuple(Gpus(model or "", int(count)) for model, count in _GPU.findall(gres.replace(" ", "")))


def _config(text: str) -> dict[str, str]:
    rows = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in rows if equals}


def _calls(parameters: str) -> float | None:
    """Calls per second that the controller answers a user in the long run, where it is told to limit them."""
    words = dict(word.partition("=")[::2] for word in parameters.split(","))
    if "rl_enable" not in words:
        return None
    return float(words.get("rl_refill_rate", 2)) / float(words.get("rl_refill_period", 1))


def _kinds(text: str) -> dict[str, list[NodeKind]]:
    kinds: dict[str, list[NodeKind]] = {}
    for line in text.splitlines():
        if line.count("|") != 4:
            continue
        name, nodes, cpus, memory, gres = line.strip().split("|")
        kind = NodeKind(int(nodes), int(cpus.rstrip("+")), int(memory.rstrip("+")), gpus(gres))
        kinds.setdefault(name.rstrip("*"), []).append(kind)
    return kinds


def _partitions(text: str, kinds: Mapping[str, list[NodeKind]], mode: str) -> Iterator[Partition]:
    """One or several lines each, as ``--oneliner`` was given or not."""
    for part in re.split(r"(?m)^(?=PartitionName=)", text):
        words = dict(word.split("=", 1) for word in part.split() if "=" in word)
        if "PartitionName" not in words:
            continue
        name = words["PartitionName"]
        yield Partition(
            name=name,
            up=words.get("State", "UP") == "UP" and words.get("RootOnly", "NO") == "NO",
            default=words.get("Default") == "YES",
            minutes=minutes(words.get("MaxTime", "UNLIMITED")),
            tier=int(words.get("PriorityTier", 1)),
            preempt_mode=words.get("PreemptMode", mode),
            exclusive=words.get("OverSubscribe", words.get("Shared", "NO")) == "EXCLUSIVE",
            accounts=_names(words.get("AllowAccounts", "ALL")),
            denied=_names(words.get("DenyAccounts", "")) or frozenset(),
            allowed_qos=_names(words.get("AllowQos", "ALL")),
            qos="" if words.get("QoS", "N/A") == "N/A" else words["QoS"],
            kinds=tuple(kinds.get(name, ())),
        )


def _names(text: str) -> frozenset[str] | None:
    return None if text == "ALL" else frozenset(filter(None, text.split(",")))


def _associations(text: str) -> Iterator[Association]:
    for account, partition, qos, default, *submits in _rows(text, 6):
        names = tuple(filter(None, qos.split(",")))
        yield Association(account, partition, names, default, min(map(_number, submits)))


def _qos(text: str) -> Iterator[tuple[str, Qos]]:
    for name, wall, *submits, preempts in _rows(text, 6):
        yield name, Qos(minutes(wall), min(map(_number, submits)), frozenset(filter(None, preempts.split(","))))


def _rows(text: str, columns: int) -> Iterator[list[str]]:
    yield from (line.split("|") for line in text.splitlines() if line.count("|") == columns - 1)


def _number(text: str) -> float:
    return float(text) if text.strip().isdigit() else math.inf


def _module(text: str) -> tuple[str, str]:
    """The newest module of Apptainer, else of Singularity, and the file that defines ``module`` in any shell."""
    names = [line.split("(")[0].strip() for line in text.splitlines()]
    found = [name for word in ("apptainer", "singularity") for name in names if name.split("/")[0].lower() == word]
    first = found[0].split("/")[0] if found else ""
    newest = max((name for name in found if name.split("/")[0] == first), key=_version, default="")
    init = next((line.removeprefix("init=") for line in text.splitlines() if line.startswith("init=")), "")
    return newest.rstrip("/"), "" if init in ("", "/init/sh") else init


def _version(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))


def _folders(text: str) -> Iterator[tuple[str, Folder]]:
    for name, path, filled, kind, free, files in _rows(text, 6):
        yield name, Folder(path, filled == "yes", kind, int(free), int(files) if int(files) >= 0 else None)
