"""Each call of Snakemake removes its own locks of files, and no other's.

Snakemake removes the folder of all locks when any call ends: ``partial``, which locks nothing, unlocked the head of the
campaign that it looked at, and a head that started as another one ended could end with a FileNotFoundError.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snakemake.exceptions import LockException, WorkflowError
from snakemake.persistence.file import FilePersistence


def keep_locks_of_others(describe_lock: Callable[[], str]) -> None:
    """Correct Snakemake's class ``FilePersistence`` in this process; a second call changes nothing.

    ``describe_lock`` writes the message of a call that finds the folder locked.
    """
    read, write = FilePersistence._read_locks, FilePersistence._write_locks
    if hasattr(read, "__wrapped__"):
        return

    @functools.wraps(read)
    def read_locks(self: Any) -> list[tuple[str, str]]:
        while True:
            with contextlib.suppress(FileNotFoundError):  # its head has just ended
                return list(read(self))

    def write_locks(self: Any, *arguments: Any) -> None:
        Path(self._lockdir).mkdir(exist_ok=True)
        write(self, *arguments)

    def delete_locks(self: Any) -> None:
        for path in self._lockfile.values():
            Path(path).unlink(missing_ok=True)
        self._lockfile.clear()

    def init(self: Any) -> None:
        WorkflowError.__init__(self, describe_lock())

    LockException.__init__ = init
    FilePersistence._read_locks, FilePersistence._write_locks = read_locks, write_locks
    # `--unlock`, which removes the locks of dead calls, deletes them as before.
    FilePersistence.cleanup_locks = FilePersistence._delete_locks
    FilePersistence._delete_locks = delete_locks
