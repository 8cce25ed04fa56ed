"""Warnings of libraries silenced by several threads at a time: the interpreter's filters belong to all of them."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator


class _Silence:
    """Who silences first sets the filters, who ends last puts them back; else one would put back another's silence."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._filters = contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """No warning is shown within the block, in any thread."""
        with self._lock:
            if not self._inside:
                self._filters.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._filters.close()


quiet = _Silence()
"""``with quiet():``"""
