"""Output of commands: lines for a person, or one JSON document for a program."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_jsonable_python


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option ``--json``, the same for every command."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")


def show(options: argparse.Namespace, found: Any, lines: Iterable[str]) -> None:
    """Print what a command found: with ``--json`` as one document, else the lines.

    ``found``: records, data classes and plain values. Money and times become text, NaN null; all is ASCII, so that no
    terminal acts on what an agent wrote.
    """
    if options.json:
        print(json.dumps(to_jsonable_python(found, inf_nan_mode="null"), indent=2))
    else:
        print("\n".join(lines))
