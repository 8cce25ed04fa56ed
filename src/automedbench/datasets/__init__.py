"""Data sets: fetchers by kind of source, readers by form of data."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import suggestion
from automedbench.datasets import readers

__all__ = ["Reader", "get_reader", "reader_names"]

Reader = Callable[[Path, TaskCard], list[Any]]


@functools.cache
def reader_names() -> tuple[str, ...]:
    """Every reader there is: the modules of ``datasets.readers`` whose names don't start with an underscore."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(readers.__path__) if module.name[0] != "_"))


def get_reader(name: str) -> Reader:
    """The reader of that name; raises ConfigError naming the nearest known one."""
    if name not in reader_names():
        raise ConfigError([f"staging.reader: unknown reader '{name}'{suggestion(name, list(reader_names()))}"])
    return cast(Reader, importlib.import_module(f"{readers.__name__}.{name}").read)
