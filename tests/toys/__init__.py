"""A tiny but complete task of every track, with a perfect submission and a corpus of hostile ones.

One module per track: ``CARD``, ``make_raw``, ``perfect``, ``CEILING``, ``HALF``, ``RESOURCES`` and ``HOSTILE``. The
contract tests run over every module here.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from automedbench.base.cards import TaskCard
from automedbench.base.records import Manifest

Write = Callable[[Path, str, Manifest, Path], None]
Status = Literal["valid", "malformed", "missing"]


@dataclass(frozen=True)
class Hostile:
    """One bad output of one case and the verdict it gets in ``submission.json``.

    ``write(outputs, case, manifest, public)`` puts it below ``outputs``, the agent's ``agents_outputs`` folder.
    ``code`` is the code of one of the case's problems; None for an output that is accepted without any.
    """

    id: str
    write: Write
    status: Status
    code: str | None


def with_options(base: TaskCard, split: str | None = None, reader: str = "", **options: Any) -> TaskCard:
    """The card with these options of its reader, or of another one, and no others, and with this split."""
    sampling = base.staging.sampling.model_copy(update={"split": split})
    staging = {"reader": reader or base.staging.reader, "options": options, "sampling": sampling}
    return base.model_copy(update={"staging": base.staging.model_copy(update=staging)})


def at(path: str, make: Callable[[Path], Any]) -> Write:
    """``make`` something at an output's path (``{case}`` stands for the case), whose folder is made."""

    def write(outputs: Path, case: str, manifest: Manifest, public: Path) -> None:
        place = outputs / path.replace("{case}", case)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        make(place)

    return write


def holding(content: bytes) -> Callable[[Path], Any]:
    """Writes a file with this content."""
    return functools.partial(Path.write_bytes, data=content)


def copied(path: str, name: str) -> Write:
    """The case's input of this name as the output."""

    def write(outputs: Path, case: str, manifest: Manifest, public: Path) -> None:
        at(path, holding((public / case / name).read_bytes()))(outputs, case, manifest, public)

    return write


def files(path: str, status: Status, *tables: Iterable[tuple[str, bytes, str | None]]) -> list[Hostile]:
    """Files by tables of id, content and code."""
    return [Hostile(name, at(path, holding(data)), status, code) for table in tables for name, data, code in table]


def sparse(good: bytes) -> Callable[[Path], Any]:
    """1 TiB of nothing behind a right file."""

    def make(path: Path) -> None:
        path.write_bytes(good)
        os.truncate(path, 2**40)

    return make


def no_files(path: str, good: bytes, **more: Callable[[Path], Any]) -> list[Hostile]:
    """What may lie in an output's place that is no regular file, or has another name; with the collector's verdict.

    ``good`` is the content of a right file, ``more`` makes what is too large.
    """

    def hard_link(place: Path) -> None:
        place.write_bytes(good)
        os.link(place, place.with_name("twin"))

    def linked_folder(place: Path) -> None:
        place.parent.rmdir()
        place.parent.symlink_to("/etc")

    def file_for_folder(place: Path) -> None:
        place.parent.rmdir()
        place.parent.write_bytes(good)

    def odd_name(place: Path) -> None:
        (place.parent / os.fsdecode(b"\xff" + os.fsencode(place.name))).write_bytes(good)

    refused: list[tuple[str, Callable[[Path], Any], Status, str]] = [
        ("link to a file outside", lambda place: place.symlink_to("/etc/passwd"), "missing", "link"),
        ("link to itself", lambda place: place.symlink_to(place.name), "missing", "link"),
        ("hard link", hard_link, "missing", "hardlink"),
        ("FIFO", os.mkfifo, "missing", "fifo"),
        ("directory", Path.mkdir, "missing", "directory"),
        ("1 TiB behind a right file", sparse(good), "malformed", "too_large"),
        *[(name.replace("_", " "), make, "malformed", "too_large") for name, make in more.items()],
    ]
    of_cases: list[tuple[str, Callable[[Path], Any], Status, str]] = [
        ("link for the folder", linked_folder, "missing", "link"),
        ("file where the folder belongs", file_for_folder, "missing", "not_found"),
        ("name that is not UTF-8", odd_name, "missing", "not_found"),
        ("another name", lambda place: place.with_name("output").write_bytes(good), "missing", "not_found"),
        ("nothing", lambda place: None, "missing", "not_found"),
    ]
    rows = [*refused, *of_cases] if "{case}/" in path else refused
    file = Path(path).name
    return [Hostile(f"{file}: {name}", at(path, make), status, code) for name, make, status, code in rows]
