"""Display of progress: a line that is drawn again and again, or lines that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from snakemake_logger_plugin_automedbench.steps import Steps

if TYPE_CHECKING:
    from rich.console import Console

EVERY_PERCENT = 10


class Display:
    """Messages alone, each on lines that stay."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, steps: Steps) -> None:
        """Show the progress so far."""

    def print(self, text: str) -> None:
        """Print a message, at once."""
        print(text, file=self._stream, flush=True)

    def stop(self, steps: Steps) -> None:
        """Show how the call ended."""


def make_display(stream: TextIO, nocolor: bool, progress: bool) -> Display:
    """A live line where the stream is a terminal that can draw one, plain lines elsewhere, else messages alone."""
    if not progress:
        return Display(stream)
    if not stream.isatty():
        return Lines(stream)
    from rich.console import Console

    console = Console(file=stream, no_color=nocolor or None, highlight=False, markup=False, emoji=False)
    return Lines(stream) if console.is_dumb_terminal else LiveLine(console)


class Lines(Display):
    """A line for every tenth of the steps."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._shown = 0

    def update(self, steps: Steps) -> None:
        """Print a line when the next tenth is reached; the last one is printed by ``stop``."""
        tenth = steps.percent // EVERY_PERCENT
        if self._shown < tenth < 100 // EVERY_PERCENT:
            self._shown = tenth
            now = f" · {steps.now}" if steps.now else ""
            self.print(f"{steps.percent:3d} % · {steps.done} of {steps.total} steps · {steps.elapsed}{now}")

    def stop(self, steps: Steps) -> None:
        """Print one line on how the call ended, if there was anything to do."""
        if steps.total:
            self.print(summary(steps))


class LiveLine(Display):
    """One line at the bottom of a terminal; messages are printed above it."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._console = console
        self._progress = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("steps {task.percentage:3.0f} %", markup=False),
            TimeElapsedColumn(),
            TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
            console=console,
            transient=True,
            expand=True,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("", total=None)
        self._live = False

    def update(self, steps: Steps) -> None:
        """Draw the line, for the first time when there is something to do."""
        self._progress.update(self._task, completed=steps.done, total=steps.total or None, description=steps.now)
        if steps.total and not self._live:
            self._progress.start()
            self._live = True

    def print(self, text: str) -> None:
        """Print a message above the line, whole: the terminal wraps what does not fit."""
        self._console.print(text, soft_wrap=True)

    def stop(self, steps: Steps) -> None:
        """Remove the line and give the cursor back."""
        if self._live:
            self._live = False
            self._progress.stop()
            self.print(summary(steps))


def summary(steps: Steps) -> str:
    """One line on how a call ended."""
    failed = f", {len(steps.failed)} failed ({', '.join(steps.failed[:3])}{' …' * (len(steps.failed) > 3)})"
    how = f"{failed if steps.failed else ''}{', interrupted' if steps.interrupted else ''}"
    return f"{steps.done} of {steps.total} steps done{how} in {steps.elapsed}"
