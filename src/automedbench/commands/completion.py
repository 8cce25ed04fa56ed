"""Print a script that lets a shell complete commands, options and their values: `source <(automedbench completion)`.

For bash; in zsh first `autoload -U bashcompinit; bashcompinit`. File names stand where nothing else is known.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from automedbench.commands import make_parser

SCRIPT = """\
_automedbench() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} place= each values= options=
  for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$place $each" in {places}) place="$place $each" ;; esac
  done
  case "$place" in
    {options}
  esac
  case "$place ${{COMP_WORDS[COMP_CWORD-1]}}" in
    {values}
  esac
  [[ $word == -* ]] && values=$options
  COMPREPLY=($(compgen -W "$values" -- "$word"))
}}
complete -o default -F _automedbench automedbench"""


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """No options."""


def main(_options: argparse.Namespace) -> None:
    """Print the script."""
    print(script(make_parser()))


def script(parser: argparse.ArgumentParser) -> str:
    """Completion script for bash: options of each command, and values of commands and options."""
    places, options, values = [], [], []
    for place, each in commands_of(parser):
        places.append(shlex.quote(place))
        names = [name for action in each._actions for name in action.option_strings]
        options.append(f"{shlex.quote(place)}) options={shlex.quote(' '.join(names))} ;;")
        command = place.split()[-1] if place else parser.prog
        for action in each._actions:
            if action.choices:
                behind = "|".join(shlex.quote(f"{place} {name}") for name in action.option_strings or [command])
                values.append(f"{behind}) values={shlex.quote(' '.join(map(str, action.choices)))} ;;")
    return SCRIPT.format(places="|".join(places), options="\n    ".join(options), values="\n    ".join(values))


def commands_of(parser: argparse.ArgumentParser, place: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser and all those of commands below it, each by the words that lead to it."""
    yield place, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands_of(below, f"{place} {name}")
