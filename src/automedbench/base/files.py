"""Files that are never half-written: temporary name in the same folder, fsync, rename."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.reserve import makes_room

RecordT = TypeVar("RecordT", bound=pydantic.BaseModel)
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp", re.DOTALL)
_SYNCED_LATER: list[Path] = []
_SYNCED_TOGETHER = 16
_SURROGATES = re.compile("[\ud800-\udfff]")
MODIFIED = 1_577_836_800
"""Modification time of every public file: the start of 2020 (UTC). None tells when or in which order it was made."""
SHARES = {"private": 0o077, "group": 0o027, "all": 0o022}
"""Who may read what is made, as umask: its user alone, the files' group, every user of the machine."""


def set_sharing(share: str) -> None:
    """Set who may read what this process and its children make from here on, instead of its umask.

    For the start of a program: all its threads feel it.
    """
    os.umask(SHARES[share])


def close_folder(folder: Path, share: str) -> None:
    """Take away what ``share`` does not give from a folder that is there; one of another user is let be."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & SHARES[share] & 0o077:
            folder.chmod(mode & ~SHARES[share])


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block succeeds and vanishes otherwise.

    Raises InfrastructureError when the disk is full or the folder cannot be written.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_beside(path)
        yield temporary
        if not any(path.is_relative_to(folder) for folder in _SYNCED_LATER):
            _sync(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder beside ``path`` that becomes it when the block succeeds and vanishes otherwise.

    ``replace``: what is there goes then. Raises InfrastructureError where it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    except OSError as error:
        raise unwritable(path, error) from error
    old = temporary.with_suffix(".old")
    try:
        yield temporary
        temporary.chmod(0o755)
        if replace and path.exists():
            os.rename(path, old)
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def synced_at_end(*folders: Path) -> Iterator[None]:
    """Within the block files below ``folders`` are not synced one by one; at its end all are, several at a time.

    For folders that become visible as a whole afterwards. Raises InfrastructureError when the disk is full.
    """
    from concurrent.futures import ThreadPoolExecutor  # most steps write single files

    _SYNCED_LATER.extend(folders)
    try:
        yield
        paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        with ThreadPoolExecutor(_SYNCED_TOGETHER) as pool:
            list(pool.map(_sync, paths))
    except OSError as error:
        raise unwritable(f"below {folders[0]}", error) from error
    finally:
        for folder in folders:
            _SYNCED_LATER.remove(folder)


def unwritable(place: Path | str, error: OSError) -> InfrastructureError:
    """The error of a file or folder that cannot be written."""
    return InfrastructureError(
        f"Cannot write {place}: {error.strerror or error}.\n"
        "Free space or fix the permissions there, then run the same command again."
    )


def _sync(path: Path) -> None:
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in ``folder`` are on the disk; file systems that cannot do it for folders are let be."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, handle)
        os.fsync(handle)


def remove_temporaries(folder: Path) -> None:
    """Remove what killed writers left in ``folder`` and below: temporary files of ``atomic_path``.

    Only for a folder without another writer.
    """
    for place, _, names in os.walk(folder):
        for name in names:
            if _TEMPORARY.fullmatch(name):
                Path(place, name).unlink(missing_ok=True)


def new_beside(path: Path) -> Path:
    """A new empty file beside ``path``, with the permissions that the user's umask gives.

    The system applies the umask; to ask for it one would have to change it, which all threads of the process feel.
    """
    while True:
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        with contextlib.suppress(FileExistsError):
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            return temporary


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` atomically, on a full disk with the help of the run's reserve."""
    try:
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)
    except InfrastructureError as error:
        if not makes_room(error):
            raise
        write_bytes(path, data)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 atomically (lone surrogates become escapes, so nothing an agent prints can fail)."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def to_json(value: Any) -> str:
    """JSON as the project writes it: sorted keys, two spaces, no NaN, final newline.

    Lone surrogates become U+FFFD: UTF-8 cannot hold them, and readers refuse their escapes.
    """
    return clean_text(json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def clean_text(text: str) -> str:
    """``text`` without lone surrogates, which no UTF-8 file or request can hold."""
    return _SURROGATES.sub("\ufffd", text)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as project-style JSON atomically; raises ValueError on NaN or infinity."""
    write_text(path, to_json(value))


def write_record(path: Path, record: pydantic.BaseModel) -> None:
    """Write one record of ``automedbench.base.records`` atomically."""
    write_json(path, record.model_dump(mode="json", by_alias=True))


def read_record(path: Path | str, model: type[RecordT]) -> RecordT:
    """Read and validate one record.

    Raises MissingDataError when the file does not exist and InfrastructureError when it cannot be read or does not
    validate.
    """
    try:
        with open(path, "rb") as stream:
            return model.model_validate_json(stream.read())
    except FileNotFoundError as error:
        raise MissingDataError(f"{path} does not exist; run the rule that writes it first.") from error
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be read: {error.strerror or error}.") from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("schema",):
            raise InfrastructureError(
                f"{path}: has the format {str(first['input'])[:60]}, not {first['ctx']['expected']}; read it with the "
                "version of automedbench that wrote it, or run its campaign again in a new results folder."
            ) from error
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise InfrastructureError(
            f"{path}: {where}: {first['msg']} ({error.error_count()} problems).\n"
            "The file was changed or written by another version; delete it and run its rule again."
        ) from error


def known_record(path: Path, model: type[RecordT]) -> RecordT | None:
    """A record; None without a file, and where it cannot be read or does not validate."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, pydantic.ValidationError):
        return None


def parse_json_object(text: str | bytes, *, strict: bool = True) -> dict[str, Any] | None:
    """The JSON object that a text is; None for anything else. Not ``strict``: strings may hold control characters."""
    try:
        value = json.loads(text) if strict else json.loads(text, strict=False)  # a decoder of its own takes long
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal SHA-256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def hash_folder(folder: str | None) -> dict[str, str] | None:
    """Digests of a folder's files by their paths; None without a folder."""
    if folder is None or not Path(folder).is_dir():
        return None
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in blocks."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_json(value: Any) -> str:
    """Short stable digest (16 hex digits) of a JSON-able value, for identities and rule parameters."""
    return sha256_bytes(to_json(value).encode())[:16]
