"""The command ``automedbench``: one module per subcommand, found by name.

Each has ``add_arguments(parser)`` and ``main(options)``; the first line of its docstring is its help.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from typing import NoReturn

from automedbench.base.console import run_script
from automedbench.base.files import share_with


def main(arguments: list[str]) -> None:
    """Run one subcommand."""
    parser = _Parser(prog="automedbench", description="Tools beside the workflow.")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    asked = [name for name in names if name.replace("_", "-") == next(iter(arguments), None)]
    for name in asked or names:  # the other modules take a second to import
        module = importlib.import_module(f"{__name__}.{name}")
        text = (module.__doc__ or "").strip()
        below = subparsers.add_parser(name.replace("_", "-"), help=text.partition("\n")[0], description=text)
        module.add_arguments(below)
        below.set_defaults(run=module.main)
    options = parser.parse_args(arguments)
    options.run(options)


class _Parser(argparse.ArgumentParser):
    """Two lines for a wrong option, however many others the command has; its subcommands' parsers are of this kind."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n`{self.prog} --help` shows all options.\n")


def run() -> None:
    """Entry point of the installed command; what it exports is the caller's alone."""
    share_with("private")
    run_script(main)
