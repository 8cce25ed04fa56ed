"""Execute the code of a recorded run again, turn by turn, and say at which turn it comes out differently.

The recorded replies go through the real loop and sandbox into a scratch folder; the recorded run is not touched. Times,
durations, addresses and folders are left out of the comparison. Exit code 0: the same; 3: it diverged.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Literal

from automedbench.agent.models.replay import TurnReport, compare_runs, first_divergence, load_replay
from automedbench.base.cards import Limits
from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record
from automedbench.base.plaintable import counted
from automedbench.base.records import Conversation, Manifest, RunRecord
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.agents import Agent
from automedbench.campaign.load import Campaign
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._check import DIFFERS
from automedbench.commands._output import show
from automedbench.sandbox.airlock.archive import PRUNED, unpack_workspace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench replay``."""
    parser.add_argument("recorded", metavar="RUN", help="<agent>/<task>/<tier>/r<k>, or the folder of a run")
    parser.add_argument("--sandbox", choices=["apptainer", "local"], help="default: that of the recorded run")
    parser.add_argument("--into", type=Path, help="new folder for the replayed run; default: a scratch folder, removed")
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Replay, print one line per turn and the first difference, exit 0 or 3."""
    if options.into is not None and options.into.exists():
        raise ConfigError([f"--into: {options.into} exists already; name a new folder"])
    campaign = select_campaign(options)
    runs = Path(campaign.config.results, "runs")
    recorded = runs / options.recorded
    recorded = recorded if (recorded / "run.json").is_file() else Path(options.recorded)
    if not (recorded / "run.json").is_file():
        known = [path.parent.relative_to(runs).as_posix() for path in sorted(runs.glob("*/*/*/r*/run.json"))]
        near = suggestion(options.recorded, known)
        raise ConfigError([f"{options.recorded}: no finished run of that name below {runs}{near}"])
    record = read_record(recorded / "run.json", RunRecord)
    agent = campaign.agents.get(record.run.agent)
    image = Path(campaign.config.containers.folder, f"{campaign.config.flavour(agent.image if agent else None)}.sif")
    with tempfile.TemporaryDirectory(prefix="replay-") as scratch:
        folder = options.into or Path(scratch) / "run"
        reports = replay_run(recorded, record, campaign, options.sandbox, image, folder)
    first, pruned = first_divergence(reports), _is_pruned(recorded)
    lines = ["The recorded workspace was pruned: what is gone of it is not compared."] if pruned else []
    lines += [f"turn {report.turn:3d}  {report.n_calls} calls  {report.reason or 'same'}" for report in reports]
    if first is None:
        lines.append(f"{record.run.path}: {counted(len(reports), 'turn')}, all came out the same")
    else:
        lines += [f"{record.run.path}: diverges at turn {first.turn}: {first.reason}"]
        lines += filter(None, [first.difference])
    show(options, {"run": record.run.path, "same": first is None, "pruned": pruned, "turns": reports}, lines)
    if first is not None:
        sys.exit(DIFFERS)


def replay_run(
    recorded: Path,
    record: RunRecord,
    campaign: Campaign,
    sandbox: Literal["apptainer", "local"] | None,
    image: Path,
    folder: Path,
) -> list[TurnReport]:
    """Replay a run into a new ``folder``, with the campaign's cards and staged data, one report per turn.

    ``sandbox`` None: in that of the record; ``image``: for Apptainer.

    Raises ConfigError for what cannot be replayed, MissingDataError for data that is not staged.
    """
    from automedbench.agent.plan import RunPlan
    from automedbench.agent.run import run_agent
    from automedbench.campaign.config import PROMPTS, SandboxConfig

    agent = Agent(provider="replay", transcript=str(recorded), trusted=True)
    load_replay(agent)  # what cannot be replayed is refused before anything is made
    card = campaign.cards.get(record.run.task)
    if card is None:
        where = "in this campaign's folders; name its own with --results"
        raise ConfigError([f"no card of the task '{record.run.task}' {where}"])
    enforced = record.enforced
    backend = sandbox or enforced.backend
    run_agent(
        RunPlan(
            run=record.run,
            card=card,
            manifest=read_record(Path(campaign.config.data.manifests, f"{card.id}.json"), Manifest),
            agent=agent,
            limits=_keep_call_limits(record),
            sandbox=SandboxConfig(
                backend=backend,
                network="sealed" if enforced.backend == "local" else enforced.network,
                gpu=len(enforced.gpu_names) or enforced.gpu,
                decoy=enforced.decoy,
            ),
            public=Path(campaign.config.data.public),
            folder=folder,
            prompts=Path(PROMPTS),
            image=image if backend == "apptainer" else None,
        )
    )
    before, after = (read_record(each / "conversation.json", Conversation) for each in (recorded, folder))
    with unpack_workspace(recorded) as kept, unpack_workspace(folder) as made:
        return compare_runs(before, after, (kept, made), pruned=_is_pruned(recorded))


def _is_pruned(run: Path) -> bool:
    return (run / "log").resolve().with_name(PRUNED).exists()


def _keep_call_limits(record: RunRecord) -> Limits:
    """The limits of single calls and of the workspace; a replay may take longer, and nothing is paid."""
    known = {name: value for name, value in record.limits.items() if name in Limits.model_fields}
    free = dict.fromkeys(("time_limit_s", "max_turns", "max_total_tokens", "max_cost_usd"))
    return Limits.model_validate(known | free)
