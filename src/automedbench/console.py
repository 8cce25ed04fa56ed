"""What every script does around its one call: options in, user errors out without a traceback."""

from __future__ import annotations

import errno
import io
import signal
import sys
from collections.abc import Callable
from types import FrameType

from automedbench.errors import AutoMedBenchError, InfrastructureError

MACHINE_FAULTS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Errors of disk, permissions and memory: no bug of ours, so they get a message and no traceback."""


def run_script(main: Callable[[list[str]], None]) -> None:
    """Call ``main`` with the command line; exit 1 with the message on a user-facing error, 130 on Ctrl-C.

    SIGTERM (scancel, preemption) is turned into KeyboardInterrupt, so that ``finally`` blocks run.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Standard output is a log file here: whoever looks into it sees at once what a step waits for.
        sys.stdout.reconfigure(line_buffering=True)
    try:
        main(sys.argv[1:])
    except AutoMedBenchError as error:
        _stop(error)
    except OSError as error:
        if error.errno not in MACHINE_FAULTS:
            raise
        _stop(_as_infrastructure(error))
    except KeyboardInterrupt:
        print("Interrupted; what was finished is kept. Run the same command again to go on.", file=sys.stderr)
        sys.exit(130)


def _as_infrastructure(error: OSError) -> InfrastructureError:
    where = f"{error.filename}: " if error.filename else ""
    return InfrastructureError(
        f"{where}{error.strerror}.\nFree space or fix the permissions, then run the same command again."
    )


def _stop(error: AutoMedBenchError) -> None:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(1)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
