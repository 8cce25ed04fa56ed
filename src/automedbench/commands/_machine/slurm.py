"""Reader of a Slurm cluster: dumps of its commands and file systems, and a ``Site`` parsed from them.

Dumps are a mapping of name → text, of every version of Slurm since 20.11; ``site --record`` writes them into a folder,
``site --dumps`` reads them from one.
"""

from __future__ import annotations

import getpass
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.errors import MissingDataError
from automedbench.base.files import write_text
from automedbench.base.slurm import parse_seconds
from automedbench.commands._machine.host import Folder, read_folder, run_program

ASSOCIATIONS = "Account,Partition,QOS,DefaultQOS,MaxSubmit,GrpSubmit"
QOS = "Name,MaxWall,MaxSubmitPU,MaxSubmitPA,GrpSubmit,Preempt"
KINDS = "%R|%D|%c|%m|%G"
"""Columns of the queries, in the order in which ``parse`` expects them."""
_MODULES = "module --terse avail apptainer singularity 2>&1; echo init=${LMOD_PKG:-$MODULESHOME}/init/sh"
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
    """A partition from the view of its users; ``accounts`` and ``allowed_qos`` are None where all may use it."""

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

    @property
    def usual_qos(self) -> str:
        """QOS of a job that names none."""
        return self.default_qos or ("normal" if "normal" in self.qos else "")


@dataclass(frozen=True)
class Qos:
    """A quality of service; ``preempts`` names those whose jobs it takes the place of."""

    minutes: float
    submit: float
    preempts: frozenset[str]


@dataclass(frozen=True)
class Site:
    """A cluster, as far as its commands show it."""

    version: str
    cluster: str
    preempt_type: str
    accounting: bool
    database_down: bool
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

    @property
    def limits_jobs(self) -> bool:
        """Check whether limits of associations and QOS are enforced."""
        return self.accounting and bool(self.enforced & {"limits", "safe", "all"})


def parse(dumps: Mapping[str, str]) -> Site:
    """Parse dumps into a site; what they do not say is unlimited, off or empty."""
    config = _config(dumps.get("config", ""))
    kinds = _kinds(dumps["kinds"])
    mode = config.get("PreemptMode", "OFF")
    module, init = _module(dumps.get("modules", ""))
    storage = config.get("AccountingStorageType", "")
    stored = bool(storage) and not storage.endswith(("none", "(null)"))
    return Site(
        version=config.get("SLURM_VERSION", "unknown"),
        cluster=config.get("ClusterName", "this cluster"),
        preempt_type=config.get("PreemptType", "preempt/none").removeprefix("preempt/"),
        accounting=stored and "associations" in dumps,
        database_down=stored and "associations" not in dumps,
        enforced=frozenset(config.get("AccountingStorageEnforce", "none").split(",")),
        cgroups="cgroup" in config.get("TaskPlugin", "") and "cgroup" in config.get("ProctrackType", ""),
        whole_nodes=config.get("SelectType", "") == "select/linear",
        calls_per_s=_calls(config.get("SlurmctldParameters", "")),
        partitions=tuple(_partitions(dumps.get("partitions", ""), kinds, mode)),
        associations=tuple(_associations(dumps.get("associations", ""))),
        default_account=dumps.get("account", "").strip(),
        qos=dict(_qos(dumps.get("qos", ""))),
        apptainer=dumps.get("apptainer", "").strip(),
        module=module,
        module_init=init,
        folders=dict(_folders(dumps.get("folders", ""))),
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
    """Calls per second that the controller answers a user in the long run, where it limits them; else None."""
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


# --- dumps --------------------------------------------------------------------------------------


def slurm_dumps() -> dict[str, str]:
    """Run Slurm's query commands; one that fails gives no text, as where no accounting database answers.

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
        "partitions": ["scontrol", "show", "partition", "--oneliner"],
        "config": ["scontrol", "show", "config"],
        "associations": [*_SACCTMGR, "associations", "where", f"user={who}", f"format={ASSOCIATIONS}"],
        "account": [*_SACCTMGR, "user", who, "format=DefaultAccount"],
        "qos": [*_SACCTMGR, "qos", f"format={QOS}"],
    }
    answers = {name: run_program(command, 30) for name, command in commands.items()}
    return {"kinds": kinds, **{name: text for name, (status, text) in answers.items() if status == 0}}


_SACCTMGR = ["sacctmgr", "--noheader", "--parsable2", "show"]


def site_dumps(folders: Mapping[str, str]) -> dict[str, str]:
    """Slurm, Apptainer, modules, and a line for each of the campaign's folders; raises as ``slurm_dumps`` does."""
    places = {**folders, "temporary files": tempfile.gettempdir(), "metadata of Snakemake": ".snakemake/metadata"}
    return {
        **slurm_dumps(),
        "apptainer": _run_command(["apptainer", "--version"]),
        "modules": _run_command(["bash", "-lc", _MODULES]),
        "folders": "\n".join(_folder_line(name, Path(path)) for name, path in places.items()),
    }


def _run_command(command: list[str]) -> str:
    status, text = run_program(command, 30)
    return "" if status else text


def _folder_line(name: str, path: Path) -> str:
    """``name|path|filled|file system|free bytes|free files``; the last is -1 where it is not known."""
    folder = read_folder(path)
    free_files = -1 if folder.free_files is None else folder.free_files
    return f"{name}|{path}|{'yes' if folder.filled else 'no'}|{folder.kind}|{folder.free_bytes}|{free_files}"


def write_dumps(dumps: Mapping[str, str], folder: Path) -> None:
    """Write each text as ``<name>.txt``; raises InfrastructureError when that cannot be done."""
    for name, text in dumps.items():
        write_text(folder / f"{name}.txt", f"{text}\n" if text else "")


def read_dumps(folder: Path) -> dict[str, str]:
    """Texts that ``write_dumps`` wrote; raises MissingDataError when there are none."""
    dumps = {path.stem: path.read_text("utf-8", "replace").strip() for path in sorted(folder.glob("*.txt"))}
    if missing := [f"{name}.txt" for name in ("kinds", "partitions", "folders") if name not in dumps]:
        raise MissingDataError(
            f"{folder} contains no dumps of a site: {missing[0]} is missing.\n"
            "`automedbench site --record FOLDER` writes them, on a login node of the cluster."
        )
    return dumps
