"""Base of objects that are closed at the end of a ``with`` block."""

from __future__ import annotations

import abc
from typing import Self


class Closing(abc.ABC):
    """A context manager that is itself, and closes itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def close(self) -> None:
        """End what was begun; may be called twice."""
