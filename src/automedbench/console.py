"""What every script does around its one call: options in, user errors out without a traceback."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

from automedbench.errors import AutoMedBenchError


def run_script(main: Callable[[list[str]], None]) -> None:
    """Call ``main`` with the command line; exit 1 with the message on a user-facing error, 130 on Ctrl-C.

    SIGTERM (scancel, preemption) is turned into KeyboardInterrupt, so that ``finally`` blocks run.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        main(sys.argv[1:])
    except AutoMedBenchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("Interrupted; what was finished is kept. Run the same command again to go on.", file=sys.stderr)
        sys.exit(130)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
