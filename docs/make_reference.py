"""Every command's `--help` as a page: ``python docs/make_reference.py docs/reference.md``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from automedbench.base.files import write_text
from automedbench.commands import list_commands, make_parser

COLUMNS = "100"
INTRODUCTION = """\
# Commands

`automedbench COMMAND --help`, of every command. After a change of commands `python docs/make_reference.py
docs/reference.md` makes this page anew.

- **Which campaign.** Every command that reads one takes the same three options. `--results FOLDER` means the campaign
  that was planned there, `--configfile` and `--config` what they do for Snakemake. Without any it is that of
  `config/config.yaml`. Two that name different campaigns are refused. Commands that read nothing but results work on a
  copied folder without `campaign.json` too.
- **`--json`** prints one JSON document and nothing else. Errors go to standard error.
- **Exit codes.** 0: done; 1: it could not be done, and why; 2: a wrong option; 3: a check says no.

Keys of a configuration: [config/README.md](../config/README.md), and as JSON Schema in `config/schemas`. Records that
steps write: [Files of a campaign](files.md). Steps and their scripts: [Architecture](architecture.md)."""


def render() -> str:
    """The page."""
    os.environ["COLUMNS"] = COLUMNS
    parts = [INTRODUCTION]
    for place, parser in list_commands(make_parser()):
        level = "#" * min(3, len(place.split()) + 1) if place else "##"
        parts.append(f"{level} `automedbench{place}`\n\n```text\n{parser.format_help().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), render())
