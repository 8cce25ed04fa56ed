"""What agents left in their workspaces: out of the archives of a finished run, and changed in them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from automedbench.sandbox.airlock.archive import OUTPUTS, REST, is_evidence, pack, unpack


def left_in(attempt: Path) -> dict[str, bytes]:
    """Path → content of the regular files in a packed workspace."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for archive in (OUTPUTS, REST):
            unpack(attempt / archive, folder)
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        }


@contextlib.contextmanager
def changing(run: Path) -> Iterator[Path]:
    """The workspace of a finished run as a folder; what is changed there is packed again."""
    attempt = (run / OUTPUTS).resolve().parent
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for archive in (OUTPUTS, REST):
            unpack(attempt / archive, folder)
        yield folder
        pack(folder, attempt / OUTPUTS, is_evidence)
        pack(folder, attempt / REST, lambda path: not is_evidence(path))
