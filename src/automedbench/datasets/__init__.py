"""Data sets: fetchers by kind of source, readers by form of data (never by data set).

A reader is a module with ``read(raw, card)`` that turns raw files into typed source records (``datasets.source``).
Adding one is adding the module and its name here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from automedbench.cards import TaskCard
from automedbench.errors import ConfigError
from automedbench.yamlfile import suggestion

__all__ = ["READERS", "Reader", "get_reader"]

READERS = ("pascal_voc",)
Reader = Callable[[Path, TaskCard], list[Any]]


def get_reader(name: str) -> Reader:
    """The reader of that name; raises ConfigError naming the nearest known one."""
    if name not in READERS:
        raise ConfigError([f"staging.reader: unknown reader '{name}'{suggestion(name, list(READERS))}"])
    return cast(Reader, importlib.import_module(f"automedbench.datasets.{name}").read)
