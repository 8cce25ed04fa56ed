"""Reader of a cluster's commands and file systems, as text: the only part that queries the machine.

Dumps are a mapping of name → text. ``--record`` writes them into a folder, ``--dumps`` reads them from one.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from automedbench.base.errors import MissingDataError
from automedbench.base.files import write_text
from automedbench.commands._host import existing, file_system, run_program

ASSOCIATIONS = "Account,Partition,QOS,DefaultQOS,MaxSubmit,GrpSubmit"
QOS = "Name,MaxWall,MaxSubmitPU,MaxSubmitPA,GrpSubmit,Preempt"
KINDS = "%R|%D|%c|%m|%G"
"""Columns that are asked for, in the order in which ``parse`` expects them."""
SCRATCH = ("SLURM_TMPDIR", "TMPDIR", "LOCAL_SCRATCH", "LOCALSCRATCH", "/localscratch", "/lscratch", "/local/scratch")
"""Variables and folders by which sites offer a disk of the node."""
_MODULES = "module --terse avail apptainer singularity 2>&1; echo init=${LMOD_PKG:-$MODULESHOME}/init/sh"


def slurm_dumps() -> dict[str, str]:
    """Run Slurm's query commands; one that fails gives an empty text, as where there is no accounting.

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
    return {"kinds": kinds, **{name: _run_command(command) for name, command in commands.items()}}


_SACCTMGR = ["sacctmgr", "--noheader", "--parsable2", "show"]


def site_dumps(folders: Mapping[str, str], metadata: Path = Path(".snakemake/metadata")) -> dict[str, str]:
    """Slurm, Apptainer, modules, and a line for each of the campaign's folders; raises as ``slurm_dumps`` does."""
    places = {**folders, "temporary files": tempfile.gettempdir(), "metadata of Snakemake": str(metadata)}
    return {
        **slurm_dumps(),
        "apptainer": _run_command(["apptainer", "--version"]),
        "modules": _run_command(["bash", "-lc", _MODULES]),
        "folders": "\n".join(_folder(name, Path(path)) for name, path in places.items()),
        "scratch": "\n".join(_scratch(SCRATCH)),
    }


def _run_command(command: list[str]) -> str:
    status, text = run_program(command, 30)
    return "" if status else text


def _folder(name: str, path: Path) -> str:
    """``name|path|there|file system|free bytes|free files`` of a folder, or of the one above it that exists."""
    there = existing(path)
    facts = os.statvfs(there)
    free_files = facts.f_favail if facts.f_files else -1
    filled = "yes" if path.is_dir() and any(path.iterdir()) else "no"
    return f"{name}|{path}|{filled}|{file_system(there)}|{facts.f_bavail * facts.f_frsize}|{free_files}"


def _scratch(names: Iterable[str]) -> Iterable[str]:
    """``name=folder`` of what offers a disk of the node here; on the nodes it may be otherwise."""
    for name in names:
        folder = name if name.startswith("/") else os.environ.get(name, "")
        if folder and os.path.isdir(folder):
            yield f"{name}={folder}"


def write_dumps(dumps: Mapping[str, str], folder: Path) -> None:
    """Write each text as ``<name>.txt``; raises InfrastructureError when that cannot be done."""
    for name, text in dumps.items():
        write_text(folder / f"{name}.txt", f"{text}\n" if text else "")


def read_dumps(folder: Path) -> dict[str, str]:
    """Texts that ``write_dumps`` wrote; raises MissingDataError when there are none."""
    dumps = {path.stem: path.read_text("utf-8", "replace").strip() for path in sorted(folder.glob("*.txt"))}
    if "kinds" not in dumps or "partitions" not in dumps:
        raise MissingDataError(
            f"{folder} holds no dumps of a site: kinds.txt or partitions.txt is missing.\n"
            "`automedbench site --record FOLDER` writes them, on a login node of the cluster."
        )
    return dumps
