"""Steps of a workflow: counts, what is running, what failed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LOG_LINES = 20
LOG_BYTES = 64_000
NAMES = 3


@dataclass
class Steps:
    """Steps of one call: how many there are and were done, names of those that run or failed."""

    total: int = 0
    done: int = 0
    running: dict[int, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False
    began: float = field(default_factory=time.monotonic)

    def fail(self, job: int, rule: str) -> str:
        """Count a failed step; its name."""
        name = self.running.pop(job, rule)
        self.failed.append(name)
        return name

    @property
    def percent(self) -> int:
        """Share of steps done, rounded down so that 100 means all."""
        return 100 * self.done // self.total if self.total else 0

    @property
    def elapsed(self) -> str:
        """Time since the call began, as minutes and seconds."""
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        return f"{minutes}:{seconds:02d}"

    @property
    def now(self) -> str:
        """Number of failed steps, and names of those that run; of more than three, how many of each rule."""
        failed = [f"{len(self.failed)} failed"] if self.failed else []
        names = list(self.running.values())
        rules = Counter(name.split(" ")[0] for name in names)
        return " · ".join(
            [*failed, *(names if len(names) <= NAMES else (f"{n} × {rule}" for rule, n in rules.items()))]
        )


def step_name(rule: str, wildcards: Mapping[str, str] | None) -> str:
    """Rule and wildcards of a step: ``run_agent careful/bccd-det-task/lite/1``."""
    values = "/".join(map(str, wildcards.values())) if wildcards else ""
    return f"{rule} {values}".strip()


def describe_failure(
    name: str, command: str | None, logs: Sequence[str], show_logs: bool, message: str | None = None
) -> str:
    """Lines on a failed step: its name, its executor's message, the end of its log, where that is, its command."""
    lines = [f"Failed: {name}", *(f"  {printable(line)}" for line in (message or "").splitlines())]
    for log in logs if show_logs else ():
        lines += [f"  {line}" for line in last_lines(log)]
    lines += [f"  log: {log}" for log in logs]
    if command:
        lines.append(f"  to repeat this step alone: {printable(' '.join(command.split()))}")
    return "\n".join(lines)


def last_lines(path: str, count: int = LOG_LINES) -> list[str]:
    """The last lines of a text file that are not blank; a remark when there are none. Never raises."""
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - LOG_BYTES))
            text = stream.read(LOG_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ["(the step did not begin)"]
    except OSError as error:
        return [f"(no log: {error.strerror})"]
    lines = [printable(line.rstrip()) for line in text.splitlines() if line.strip()]
    return ["..."] * (len(lines) > count or size > LOG_BYTES) + lines[-count:] if lines else ["(the log is empty)"]


def printable(text: str) -> str:
    """The text without control characters: a log may repeat what an agent printed."""
    return "".join(character if character.isprintable() else " " for character in text)
