"""Data sets: fetchers by kind of source, readers by form of data."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import suggestion
from automedbench.datasets.readers import MODULES

__all__ = ["Reader", "get_reader"]

Reader = Callable[[Path, TaskCard], list[Any]]


def get_reader(name: str) -> Reader:
    """The reader of that name; raises ConfigError naming the nearest known one."""
    if name not in MODULES:
        raise ConfigError([f"staging.reader: unknown reader '{name}'{suggestion(name, sorted(MODULES))}"])
    return cast(Reader, getattr(importlib.import_module(f"{__name__}.readers.{MODULES[name]}"), name))
