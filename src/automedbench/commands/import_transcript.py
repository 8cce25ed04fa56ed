"""Make a run folder from a transcript that was not made here, for judge, scorer and reader.

The file holds chat-completions messages (JSON, JSONL) or the public benchmark's conversation.json. Without --workspace
there is no submission. Nothing is executed, and the run is marked `provider: imported`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.agent.models.imported import import_transcript
from automedbench.base.cards import load_card
from automedbench.base.files import read_record
from automedbench.base.option_types import whole_number
from automedbench.base.plaintable import counted
from automedbench.base.records import TIERS, Manifest, RunId


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench import-transcript``."""
    parser.add_argument("file", type=Path, help="the transcript")
    parser.add_argument("--card", type=Path, required=True, help="card of the task that it is of")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest of the staged task")
    parser.add_argument("--agent", required=True, help="name for the agent")
    parser.add_argument("--tier", choices=TIERS, required=True)
    parser.add_argument("--repeat", type=whole_number(1), default=1)
    parser.add_argument("--into", type=Path, required=True, help="new folder of the run")
    parser.add_argument("--workspace", type=Path, help="folder that the agent left, with agents_outputs/; copied")


def main(options: argparse.Namespace) -> None:
    """Import, and say what was found."""
    card = load_card(options.card)
    run = RunId(agent=options.agent, task=card.id, tier=options.tier, repeat=options.repeat)
    manifest = read_record(options.manifest, Manifest)
    record = import_transcript(options.file, run, card, manifest, options.into, options.workspace)
    turns, calls = counted(record.totals.turns, "turn"), counted(record.totals.n_exec, "code call")
    print(f"{options.into}: {turns}, {calls}, {record.outcome}; provider: imported")
