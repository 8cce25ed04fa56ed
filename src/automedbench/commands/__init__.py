"""The command ``automedbench``: one module per subcommand, found by name.

Each has ``add_arguments(parser)`` and ``main(options)``; the first line of its docstring is its help.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Iterator
from typing import NoReturn

from automedbench import __version__
from automedbench.base.console import run_script  # all else is imported within it, where Ctrl-C is one line


def main(arguments: list[str]) -> None:
    """Run one subcommand; without one, ``status``."""
    word = next(iter(arguments), None)
    if word is None or (word.startswith("-") and word not in ("-h", "--help", "--version")):
        arguments, word = ["status", *arguments], "status"
    if word == "--version":
        print(version_text())
        return
    options = make_parser(word).parse_args(arguments)
    options.run(options)


def make_parser(word: str = "--help") -> argparse.ArgumentParser:
    """The parser of the command that a word names, of all for an option; it ends the process where there is none."""
    parser = _Parser(prog="automedbench", description="Tools beside the workflow; without a command: status.")
    parser.add_argument("--version", action="store_true", help="print version and code, and end")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    names = {name.replace("_", "-"): name for name in modules}
    if word not in names and not word.startswith("-"):
        from automedbench.base.removed import COMMANDS
        from automedbench.base.yamlfile import suggestion

        if word in COMMANDS:
            parser.exit(2, f"automedbench: error: `{word}` was removed: {COMMANDS[word]}\n")
        parser.error(f"'{word}' is no command{suggestion(word, list(names))}")
    for name in [word] if word in names else names:  # the other modules take a second to import
        module = importlib.import_module(f"{__name__}.{names[name]}")
        text = (module.__doc__ or "").strip()
        below = subparsers.add_parser(name, help=text.partition("\n")[0], description=text)
        module.add_arguments(below)
        below.set_defaults(run=module.main)
    return parser


def list_commands(parser: argparse.ArgumentParser, place: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser and those of the commands below it, each by the words that lead to it."""
    yield place, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from list_commands(below, f"{place} {name}")


def version_text() -> str:
    """Version, and the code that this is: its digest, and the commit where there is one."""
    from automedbench.base.code import present_code

    code = present_code()
    commit = f", commit {code.commit[:12]}{' with changes' if code.dirty else ''}" if code.commit else ""
    return f"automedbench {__version__}, code {code.digest}{commit}"


class _Parser(argparse.ArgumentParser):
    """Two lines for a wrong option, however many others the command has; its subcommands' parsers are of this kind."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n`{self.prog} --help` shows all options.\n")


def run() -> None:
    """Entry point of the installed command; what it exports is the caller's alone."""
    run_script(_as_private)


def _as_private(arguments: list[str]) -> None:
    from automedbench.base.files import set_sharing

    set_sharing("private")
    main(arguments)
