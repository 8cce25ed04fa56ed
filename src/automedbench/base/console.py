"""Console of every script around its one call: options in, errors out without a traceback, signals in order."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from automedbench.base.errors import AutoMedBenchError, InfrastructureError, is_machine_fault

STOPPING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""scancel, preemption and shutdown; a closed terminal; Ctrl-C."""
PATIENCE_S = 30.0
"""As long as Slurm waits before it kills (KillWait)."""


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end; ``finally`` blocks put things away."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"interrupted by {signal.Signals(number).name}")


def run_script(main: Callable[[list[str]], None]) -> None:
    """Call ``main`` with the command line; exit 1 with the message on a user-facing error, 128 + signal on a signal.

    The first of SIGTERM, SIGHUP and SIGINT interrupts; others are ignored for a while, so that putting things away is
    not cut short. What was started with one of them ignored (nohup, background jobs of a shell) goes on ignoring it.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Standard output is a log file here: a look into it shows at once what a step waits for.
        sys.stdout.reconfigure(line_buffering=True)
    try:
        interrupt = _Interrupt()
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, interrupt)
        _call(main)
    except AutoMedBenchError as error:
        _stop(error)
    except BrokenPipeError:
        # The reader of the output has seen enough (`| head`). What is still to be written at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if not is_machine_fault(error):
            raise
        _stop(_as_infrastructure(error))
    except KeyboardInterrupt as error:
        print("Interrupted; what was finished is kept. Run the same command again to go on.", file=sys.stderr)
        sys.exit(128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT))


def collect_rarely() -> None:
    """For a process that allocates millions of objects which live until its end.

    Scanning them for garbage again and again would be a quarter of the time of a plan, a tenth of a leaderboard's.
    """
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


def _call(main: Callable[[list[str]], None]) -> None:
    """Call ``main``; what a library made of an interruption (in an import, or while it closed something) is that one.

    Raises what ``main`` raises.
    """
    try:
        main(sys.argv[1:])
    except AutoMedBenchError:
        raise
    except Exception as error:
        below: BaseException | None = error
        while below is not None:
            if isinstance(below, Interrupted):
                raise below from None
            below = below.__cause__ or below.__context__
        raise


def _as_infrastructure(error: OSError) -> InfrastructureError:
    where = f"{error.filename}: " if error.filename else ""
    return InfrastructureError(
        f"{where}{error.strerror}.\nFree space or fix the permissions, then run the same command again."
    )


def _stop(error: AutoMedBenchError) -> NoReturn:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(1)


class _Interrupt:
    """Signal handler; unlike SIG_IGN, it is not inherited by programs that are started meanwhile."""

    def __init__(self) -> None:
        self._since: float | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._since is None or now - self._since > PATIENCE_S:
            self._since = now
            raise Interrupted(number)
