"""Child process in which agents' code is read: limited in time and memory, without our environment.

A parser that a text drives mad takes the child with it, and no more: what it was reading counts as unread. Each
process has one child, started by the first text and ended by the end of its input; the next text gets another one if
it died.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal

from automedbench.base.child import Child
from automedbench.reading.command import Command
from automedbench.reading.python import MAX_CODE

CPU_S = 2.0
"""Seconds of processor time for one text; honest ones take milliseconds."""
WALL_S = 20.0
"""Seconds that are waited for an answer, on a machine however busy."""
MEMORY = 512 << 20
MAX_ANSWER = 16 << 20

_MODULE = "automedbench.reading.child"

Kind = Literal["bash", "scan bash", "scan python"]
"""``bash``: the commands of a script. ``scan bash``, ``scan python``: the rules' hits."""


def _places() -> list[str]:
    """Where we find modules ourselves; the folder that we happen to be in is none."""
    return [place for place in sys.path if os.path.isabs(place)]


def _new_child() -> Child:
    start = f"import sys; sys.path += {_places()}; from {_MODULE} import main; main()"
    return Child(["-c", start], most=MAX_ANSWER)


_lock = threading.Lock()
_children: dict[int, Child] = {}
"""Process id → its child. A forked process has one of its own."""


def ask(kind: Kind, text: str) -> Any:
    """What the child makes of a text, of which it gets the first 256 Ki characters; None when it can't or died."""
    mine = os.getpid()
    with _lock:
        try:
            child = _children[mine] = _children.get(mine) or _new_child()
            return child.ask([kind, text[:MAX_CODE]], WALL_S)
        except (OSError, ValueError):
            if (dead := _children.pop(mine, None)) is not None:
                dead.end()
            return None


def read_bash(text: str) -> list[Command]:
    """Commands of a script, in order; none where it can't be read."""
    return [
        Command(tuple(words), line, tuple(map(tuple, targets)), document, tuple(map(tuple, assigned)))
        for words, line, targets, document, assigned in ask("bash", text) or ()
    ]


def _works() -> dict[Kind, Callable[[str], list[Any]]]:
    from automedbench.reading import bash, scan  # only here: the child alone may parse

    return {
        "bash": lambda text: [[*vars(command).values()] for command in bash.commands_in(text)],
        "scan bash": scan.scan_bash,
        "scan python": scan.scan_python,
    }


def _answer(work: Callable[[str], list[Any]], text: str) -> list[Any] | None:
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    with contextlib.suppress(RecursionError, MemoryError, ValueError):
        return work(text)
    return None


def main() -> None:
    """Answer one text per line until the other end is closed; SIGPROF ends it where a text takes too long."""
    for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (value, value))
    works = _works()
    for line in sys.stdin.buffer:
        kind, text = json.loads(line)
        sys.stdout.write(json.dumps(_answer(works[kind], text)) + "\n")
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.flush()
