"""The command ``automedbench``: one module per subcommand, found by name.

Each has ``add_arguments(parser)`` and ``main(options)``; the first line of its docstring is its help.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from typing import NoReturn

from automedbench import __version__
from automedbench.base.code import present_code
from automedbench.base.console import run_script
from automedbench.base.files import share_with
from automedbench.base.yamlfile import suggestion


def main(arguments: list[str]) -> None:
    """Run one subcommand; without one, ``status``."""
    parser = _Parser(prog="automedbench", description="Tools beside the workflow; without a command: status.")
    parser.add_argument("--version", action="store_true", help="print version and code, and end")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    names = {name.replace("_", "-"): name for name in _modules()}
    word = next(iter(arguments), None)
    if word is None or (word.startswith("-") and word not in ("-h", "--help", "--version")):
        arguments, word = ["status", *arguments], "status"
    if word in ("--version", "completion"):
        print(version_text() if word == "--version" else COMPLETION.format(commands=" ".join(names)))
        return
    if word not in names and not str(word).startswith("-"):
        parser.error(f"'{word}' is no command{suggestion(str(word), list(names))}")
    for name in [word] if word in names else names:  # the other modules take a second to import
        module = importlib.import_module(f"{__name__}.{names[str(name)]}")
        text = (module.__doc__ or "").strip()
        below = subparsers.add_parser(str(name), help=text.partition("\n")[0], description=text)
        module.add_arguments(below)
        below.set_defaults(run=module.main)
    options = parser.parse_args(arguments)
    options.run(options)


def _modules() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def version_text() -> str:
    """Version, and the code that this is: its digest, and the commit where there is one."""
    code = present_code()
    commit = f", commit {code.commit[:12]}{' with changes' if code.dirty else ''}" if code.commit else ""
    return f"automedbench {__version__}, code {code.digest}{commit}"


COMPLETION = """# bash: source <(automedbench completion); zsh: autoload -U bashcompinit; bashcompinit; then the same.
complete -o default -W "{commands}" automedbench"""


class _Parser(argparse.ArgumentParser):
    """Two lines for a wrong option, however many others the command has; its subcommands' parsers are of this kind."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n`{self.prog} --help` shows all options.\n")


def run() -> None:
    """Entry point of the installed command; what it exports is the caller's alone."""
    share_with("private")
    run_script(main)
