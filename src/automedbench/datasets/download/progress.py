"""Progress of downloads: bars on a terminal, else a line a minute in the log."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from automedbench.datasets.download.transfer import Watch

EVERY_S = 60.0


class Progress:
    """Shows the bytes and files of one source while its block runs."""

    def __init__(self, watch: Watch, sizes: Sequence[int | None]) -> None:
        self._watch, self._files = watch, len(sizes)
        known = [size for size in sizes if size is not None]
        self._total = sum(known) if len(known) == len(sizes) else None
        self._done = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._begun = time.monotonic()

    def __enter__(self) -> Progress:
        if self._files:
            show = self._bars if sys.stderr.isatty() else self._lines
            self._thread = threading.Thread(target=show, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(5)
            seconds = time.monotonic() - self._begun
            print(f"Downloaded {self._text()} in {seconds:.0f} s", file=sys.stderr)

    def finished(self) -> None:
        """One more file is complete."""
        self._done += 1

    def _text(self) -> str:
        of = f" of {self._total / 1e6:.1f}" if self._total else ""
        return f"{self._watch.done / 1e6:.1f}{of} MB, {self._done} of {self._files} files"

    def _lines(self) -> None:
        while not self._end.wait(EVERY_S):
            with contextlib.suppress(OSError):
                print(self._text(), file=sys.stderr, flush=True)

    def _bars(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bars

        console = Console(stderr=True)
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
        # Bytes where all sizes are published, else files.
        columns += [DownloadColumn(), TransferSpeedColumn()] if self._total else [MofNCompleteColumn()]
        with Bars(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
            task = bars.add_task("download", total=self._total or self._files)
            while not self._end.wait(0.2):
                bars.update(task, completed=self._watch.done if self._total else self._done)
