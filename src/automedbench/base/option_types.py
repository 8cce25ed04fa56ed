"""Types of command line options whose errors name the expected value instead of a function."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ValueT = TypeVar("ValueT")


def option_type(
    read: Callable[[str], ValueT], expected: str, accepts: Callable[[ValueT], bool] = lambda _: True
) -> Callable[[str], ValueT]:
    """A ``type`` for argparse: what ``read`` makes of a text, unless it raises ValueError or ``accepts`` refuses it."""

    def typed(text: str) -> ValueT:
        try:
            value = read(text)
        except ValueError:
            pass
        else:
            if accepts(value):
                return value
        raise argparse.ArgumentTypeError(f"'{text[:80]}' is not {expected}")

    return typed


def whole_number(least: int) -> Callable[[str], int]:
    """A whole number from ``least`` on."""
    return option_type(int, f"a whole number of at least {least}", lambda value: value >= least)


confidence = option_type(float, "a number between 0.5 and 1, both excluded", lambda value: 0.5 < value < 1)
"""Of intervals, as in the configuration."""


def add_resource_option(parser: argparse.ArgumentParser) -> None:
    """``--resource NAME=PATH``, any number of times: what a scorer reads beyond the task's own data."""
    parser.add_argument(
        "--resource",
        type=_resource,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="file or folder that the metrics need, for example wordnet=data/wordnet (repeatable)",
    )


def _resource(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=PATH")
    return name, Path(path)
