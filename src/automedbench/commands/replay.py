"""Execute the code of a recorded run again, turn by turn, and say at which turn it comes out differently.

The recorded replies go through the real loop and sandbox into a scratch folder; the recorded run is not touched. Times,
durations, addresses and folders are left out of the comparison. Exit code 0: the same; 3: it diverged.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from automedbench.agent.models.replay import TurnReport, compare_runs, first_divergence, load_replay, read_recording
from automedbench.base.cards import Limits, TaskCard, find_cards, load_card
from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record
from automedbench.base.plaintable import counted
from automedbench.base.records import Manifest, RunRecord
from automedbench.campaign.agents import Agent
from automedbench.sandbox.airlock.archive import PRUNED, opened_workspace

DIVERGED = 3
CARDS = [Path("config/tasks"), Path("demo/tasks")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench replay``."""
    parser.add_argument(
        "recorded", type=Path, metavar="RUN_FOLDER", help="folder of the run: <results>/runs/<agent>/<task>/<tier>/r<k>"
    )
    parser.add_argument(
        "--cards",
        type=Path,
        nargs="+",
        default=CARDS,
        help="folders of task cards",
    )
    parser.add_argument("--manifests", type=Path, default=Path("data/manifests"), help="manifests of the staged tasks")
    parser.add_argument("--public", type=Path, default=Path("data/public"), help="staged public data of all tasks")
    parser.add_argument("--prompts", type=Path, default=Path("config/prompts"), help="blocks of the brief")
    parser.add_argument("--sandbox", choices=["apptainer", "local"], help="default: that of the recorded run")
    parser.add_argument(
        "--image", type=Path, default=Path("images/research.sif"), help="container image of the agent role"
    )
    parser.add_argument("--into", type=Path, help="new folder for the replayed run; default: a scratch folder, removed")


def main(options: argparse.Namespace) -> None:
    """Replay, print one line per turn and the first difference, exit 0 or 3."""
    record = read_record(options.recorded / "run.json", RunRecord)
    if options.into is not None and options.into.exists():
        raise ConfigError([f"--into: {options.into} exists already; name a new folder"])
    where = Surroundings(
        tuple(options.cards), options.manifests, options.public, options.prompts, options.sandbox, options.image
    )
    with tempfile.TemporaryDirectory(prefix="replay-") as scratch:
        reports = replay_run(options.recorded, record, where, options.into or Path(scratch) / "run")
    if _is_pruned(options.recorded):
        print("The recorded workspace was pruned: what is gone of it is not compared.")
    for report in reports:
        print(f"turn {report.turn:3d}  {report.n_calls} calls  {report.reason or 'same'}")
    first = first_divergence(reports)
    if first is None:
        print(f"{record.run.path}: {counted(len(reports), 'turn')}, all came out the same")
        return
    print(f"{record.run.path}: diverges at turn {first.turn}: {first.reason}")
    if first.difference:
        print(first.difference)
    sys.exit(DIVERGED)


@dataclass(frozen=True)
class Surroundings:
    """Where a recorded run is replayed; ``sandbox`` None: in that of the record."""

    cards: tuple[Path, ...]
    manifests: Path
    public: Path
    prompts: Path
    sandbox: Literal["apptainer", "local"] | None
    image: Path


def replay_run(recorded: Path, record: RunRecord, where: Surroundings, folder: Path) -> list[TurnReport]:
    """Replay a run into a new ``folder``, one report per turn.

    Raises ConfigError for what cannot be replayed, MissingDataError for data that is not staged.
    """
    from automedbench.agent.plan import RunPlan
    from automedbench.agent.run import run_agent
    from automedbench.campaign.config import SandboxConfig

    agent = Agent(provider="replay", transcript=str(recorded), trusted=True)
    load_replay(agent)  # what cannot be replayed is said before anything is made
    card = _find_card(record.run.task, where.cards)
    enforced = record.enforced
    backend = where.sandbox or enforced.backend
    run_agent(
        RunPlan(
            run=record.run,
            card=card,
            manifest=read_record(where.manifests / f"{card.id}.json", Manifest),
            agent=agent,
            limits=_limits(record),
            sandbox=SandboxConfig(
                backend=backend,
                network="sealed" if enforced.backend == "local" else enforced.network,
                gpu=len(enforced.gpu_names) or enforced.gpu,
                decoy=enforced.decoy,
            ),
            public=where.public,
            folder=folder,
            prompts=where.prompts,
            image=where.image if backend == "apptainer" else None,
        )
    )
    recordings = read_recording(recorded / "log"), read_recording(folder / "log")
    with opened_workspace(recorded) as before, opened_workspace(folder) as after:
        workspaces = (before, after) if before and after else None
        return compare_runs(*recordings, workspaces, pruned=_is_pruned(recorded))


def _is_pruned(run: Path) -> bool:
    return (run / "log").resolve().with_name(PRUNED).exists()


def _limits(record: RunRecord) -> Limits:
    """The limits of single calls and of the workspace; a replay may take longer, and nothing is paid."""
    known = {name: value for name, value in record.limits.items() if name in Limits.model_fields}
    free = dict.fromkeys(("time_limit_s", "max_turns", "max_total_tokens", "max_cost_usd"))
    return Limits.model_validate(known | free)


def _find_card(task: str, folders: Sequence[Path]) -> TaskCard:
    for path in find_cards([str(folder) for folder in folders]):
        if path.stem == task:
            return load_card(path)
    raise ConfigError([f"--cards: no card of the task '{task}' in {', '.join(map(str, folders))}"])
