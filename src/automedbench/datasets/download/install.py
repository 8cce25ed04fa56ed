"""The data set's folder: filled as a whole by renaming, and known again without reading it.

``receipt.json`` says what the files are. A marker beside it says that the folder is ours, which source it came from,
and size and time of every file, so that a second fetch need not read them; it also outlives the receipt, which a
workflow engine deletes before it runs the rule again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import read_record, write_json, write_record
from automedbench.base.records import FileEntry, Receipt
from automedbench.datasets.download.collecting import entries_below, entry_of
from automedbench.datasets.patterns import taker

RECEIPT = "receipt.json"
MARKER = ".fetched-by-automedbench"
OURS = frozenset({RECEIPT, MARKER})
_FICLONE = 0x40049409
"""ioctl_ficlone(2): a copy that shares the disk's blocks until one of both is changed."""
_POINTER = b"version https://git-lfs.github.com/spec/"
_NOTE = "Fetched by automedbench; replaced as a whole when the source changes."


# --- what is there already ------------------------------------------------------------------------------------


def current(destination: Path, identity: str, *, check: bool = False) -> Receipt | None:
    """The receipt of a finished fetch of this very source, if every file is still what it says.

    Files whose size and time are as they were are believed, others are read; with ``check`` all are. A lost receipt
    is written again.
    """
    marker = _read_marker(destination)
    if marker.get("identity") != identity:
        return None
    try:
        receipt = Receipt.model_validate(marker["receipt"])
        stamps: Mapping[str, list[int]] = marker["stamps"]
    except (KeyError, ValueError):
        return None
    if _sizes(destination).keys() != receipt.files.keys():
        return None
    other = [name for name in receipt.files if check or stamp(destination / name) != stamps.get(name)]
    for name in other:
        size = (destination / name).stat().st_size
        if size != receipt.files[name].bytes or entry_of(destination / name) != receipt.files[name]:
            print(f"{destination / name} is not what was fetched; fetching again")
            return None
    if not (destination / RECEIPT).is_file():
        write_record(destination / RECEIPT, receipt)
    if other and not check:
        _mark(destination, identity, receipt)
    return receipt


def stamp(path: Path) -> list[int]:
    """Size and time of change of a file."""
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _read_marker(destination: Path) -> dict[str, Any]:
    try:
        marker = json.loads((destination / MARKER).read_bytes())
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def _mark(folder: Path, identity: str, receipt: Receipt) -> None:
    stamps = {name: stamp(folder / name) for name in receipt.files}
    told = {"note": _NOTE, "identity": identity, "receipt": receipt.model_dump(mode="json"), "stamps": stamps}
    write_json(folder / MARKER, told)


# --- what is taken --------------------------------------------------------------------------------------------


def select(origin: Path, patterns: list[str], destination: Path) -> list[str]:
    """Relative paths of a folder's regular files that the patterns take (all but git's own without patterns).

    Raises MissingDataError when there is no folder or a pattern takes nothing, InfrastructureError for links and
    special files and when the two folders contain each other, ConfigError for patterns that lead outside.
    """
    if not origin.is_dir():
        raise MissingDataError(f"{origin} is not a folder")
    inner, outer = origin.resolve(), destination.resolve()
    if inner == outer or inner in outer.parents or outer in inner.parents:
        raise InfrastructureError(f"{origin} and {destination} contain each other; keep your own copy elsewhere.")
    check_patterns(patterns)
    found: set[str] = set()
    absent = []
    for pattern in patterns or ["**/*"]:
        taken = {path.relative_to(origin).as_posix() for path in origin.glob(pattern) if not path.is_dir()}
        taken = {name for name in taken if name.split("/")[0] != ".git"}
        found |= taken
        absent += [] if taken else [f"'{pattern}'"]
    if absent:
        raise MissingDataError(f"{origin} holds nothing that matches {' or '.join(absent)}")
    for name in sorted(found):
        _refuse_special(origin / name)
    names = sorted(found - OURS)
    check_pointers(origin, names, patterns)
    return names


def check_patterns(patterns: list[str]) -> None:
    """Raise ConfigError for patterns that lead out of the data set's folder."""
    outside = [pattern for pattern in patterns if pattern.startswith("/") or ".." in pattern.split("/")]
    if outside:
        raise ConfigError([f"dataset.sources.files: '{pattern}' must be relative, without '..'" for pattern in outside])


def check_pointers(origin: Path, names: list[str], patterns: list[str]) -> None:
    """Say which files are git-LFS pointers, not content; raise MissingDataError when a pattern takes only such."""
    pointers = {name for name in names if _is_pointer(origin / name)}
    if not pointers:
        return
    for pattern in patterns or ["**/*"]:
        takes = taker([pattern])
        taken = [name for name in names if takes(name)]
        if taken and pointers.issuperset(taken):
            raise MissingDataError(
                f"{taken[0]} and all that '{pattern}' takes are git-LFS pointers; expected the files themselves "
                "(install git-lfs, or run `git lfs pull` in your own clone)"
            )
    print(f"{len(pointers)} files are git-LFS pointers without their content, for example {min(pointers)}")


def _is_pointer(path: Path) -> bool:
    if path.is_symlink() or path.stat().st_size > 1024:
        return False
    with open(path, "rb") as stream:
        return stream.read(len(_POINTER)) == _POINTER


def _refuse_special(path: Path) -> None:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise InfrastructureError(
            f"{path} is a link or a special file; only regular files are copied.\n"
            "Make a copy with the links resolved (`cp -rL`) and give that folder."
        )


def refuse_specials(folder: Path) -> None:
    """Raise InfrastructureError for a link or special file below a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            _refuse_special(path)


# --- putting in place -----------------------------------------------------------------------------------------


def copy_in(origin: Path, names: list[str], folder: Path) -> dict[str, FileEntry]:
    """Copy a user's files; where the file system can, without using space twice. Never links: theirs may change."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not _clone(origin / name, folder / name):
            shutil.copyfile(origin / name, folder / name, follow_symlinks=False)
    return entries_below(folder)


def _clone(origin: Path, target: Path) -> bool:
    try:
        with open(origin, "rb") as source, open(target, "wb") as copy:
            fcntl.ioctl(copy.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def link_in(files: Mapping[str, Path], folder: Path) -> None:
    """Give downloaded files, which are ours, a second name below the folder."""
    for name, path in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target, follow_symlinks=False)


def put(folder: Path, receipt: Receipt, identity: str, destination: Path) -> Receipt:
    """Put the finished folder in place; identical content keeps the files (and, if unchanged, the receipt)."""
    if destination.is_dir() and any(destination.iterdir()):
        if _holds(destination, receipt.files):
            return _keep(receipt, identity, destination)
        if not (destination / MARKER).is_file():
            raise InfrastructureError(
                f"{destination} holds other files that this program did not fetch; they are left alone.\n"
                "Move them away, then run the same command again."
            )
    _mark(folder, identity, receipt)
    write_record(folder / RECEIPT, receipt)
    folder.chmod(0o755)
    with scratch(destination) as old:
        _swap(folder, destination, old / "replaced")
    return receipt


def _holds(destination: Path, files: Mapping[str, FileEntry]) -> bool:
    if _sizes(destination) != {name: entry.bytes for name, entry in files.items()}:
        return False
    return all(entry_of(destination / name) == entry for name, entry in files.items())


def _sizes(folder: Path) -> dict[str, int]:
    """Path → bytes of the data set's own files."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.stat().st_size for name, path in files.items() if name not in OURS}


def _keep(receipt: Receipt, identity: str, destination: Path) -> Receipt:
    """The receipt already there when it says the same, else the new one, written beside the unchanged files."""
    known = destination / RECEIPT
    old = read_record(known, Receipt) if known.is_file() else None
    if old is not None and old.model_copy(update={"fetched_at": receipt.fetched_at}) == receipt:
        receipt = old
    else:
        write_record(known, receipt)
    if _read_marker(destination).get("identity") != identity:
        _mark(destination, identity, receipt)
    return receipt


def _swap(folder: Path, destination: Path, aside: Path) -> None:
    """Rename ``folder`` to the destination, whose old content goes aside and comes back if that fails."""
    if destination.exists():
        os.rename(destination, aside)
    try:
        os.rename(folder, destination)
    except OSError:
        if aside.exists():
            os.rename(aside, destination)
        raise


# --- beside the destination -----------------------------------------------------------------------------------


@contextlib.contextmanager
def scratch(destination: Path) -> Iterator[Path]:
    """A temporary folder beside the destination that is gone afterwards."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".tmp", dir=destination.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def downloads_of(destination: Path) -> Iterator[Path]:
    """The folder of downloads that are not finished, for one process at a time; what is of no use in it is removed."""
    folder = destination.parent / f".{destination.name}.download"
    with _lock(folder):
        left_over = re.compile(re.escape(f".{destination.name}.") + r"[a-z0-9_]{8}\.tmp")
        for path in destination.parent.iterdir():
            if left_over.fullmatch(path.name):
                _restore(path / "replaced", destination)
                shutil.rmtree(path, ignore_errors=True)
        try:
            yield folder
        finally:
            _prune(folder)


def _restore(aside: Path, destination: Path) -> None:
    """Undo a replacement that was killed between its two renames."""
    if aside.is_dir() and not destination.exists():
        os.rename(aside, destination)


def _prune(folder: Path) -> None:
    useful = ("done.json", "body", "body.part", "hub")
    for place in folder.iterdir() if folder.is_dir() else ():
        if place.is_dir() and not any((place / name).exists() for name in useful):
            shutil.rmtree(place, ignore_errors=True)
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= {"lock"}:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            stream = open(folder / "lock", "ab")  # noqa: SIM115 - closed below, in two places
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another process fetches into {folder}; waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        # Who held the lock before may have removed the file.
        if (folder / "lock").exists() and os.path.samestat(os.fstat(stream.fileno()), os.stat(folder / "lock")):
            break
        stream.close()
    with stream:
        yield
