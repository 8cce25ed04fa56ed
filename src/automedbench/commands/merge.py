"""One leaderboard over several labs: bundles, or folders of results, merged under labels of who ran what.

Scores are taken as they are: `admit` bundles first. An agent that two sources have is told apart as <agent>@<lab>, so
that no run replaces another.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import new_folder, read_record, write_record
from automedbench.base.records import RunId, ScoreRecord
from automedbench.base.yamlfile import validate
from automedbench.campaign.load import Campaign, build_campaign_record
from automedbench.commands._bundle import Labels, open_bundle
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._limits import Allowance, run_limited
from automedbench.commands._output import show
from automedbench.leaderboard import build
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.formats import print_ranking
from automedbench.leaderboard.plan import Plan, PlannedAgent

BOARD_S, MEMORY_OF_BOARD = 120.0, 8 << 30
"""Processor seconds of a board, beyond one for each run, and bytes of memory."""


@dataclass(frozen=True)
class LabResults:
    """Results of one lab."""

    labels: Labels
    results: Path
    plan: Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench merge``."""
    parser.add_argument("sources", nargs="+", metavar="[LAB=]PATH", help="bundles, or folders of results")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="new folder for the merged results")
    parser.add_argument("--partial", action="store_true", help="also with planned runs that have no score")
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Merge, print the ranking and the place of the page."""
    if options.out.exists():
        raise ConfigError([f"--out: {options.out} exists already; name a new folder"])
    campaign = select_campaign(options)
    with new_folder(options.out) as out:
        code = run_limited(lambda allowance: _tell(options, campaign, out, allowance), "merge")
        if code:
            sys.exit(code)


def _tell(options: argparse.Namespace, campaign: Campaign, out: Path, allowance: Allowance) -> int:
    """Merge into ``out``; print the ranking and where the page will be."""
    sources = [
        _open_source(text, out / "sources" / str(n), allowance) for n, text in enumerate(options.sources, start=1)
    ]
    runs = sum(len(source.plan.runs) for source in sources)
    allowance.step("the merged board", BOARD_S + runs, MEMORY_OF_BOARD)
    board = merge(sources, out, campaign, partial=options.partial)
    ranking, page = board.tables["overall"], options.out / "leaderboard" / "index.html"
    if not options.json:
        print_ranking(ranking, board.method)
    show(options, {"page": page, "agents": ranking.frame.to_dict("records")}, [f"Page: {page}"])
    return 0


def _open_source(text: str, folder: Path, allowance: Allowance) -> LabResults:
    """A bundle laid out in ``folder``, or a folder as it is; raises ConfigError for a name that no lab has."""
    lab, _, place = text.rpartition("=")
    path = Path(place)
    if lab:
        validate({"lab": lab}, Labels, text)
    if path.is_dir():
        plan = read_record(path / "plan.json", Plan)
        return LabResults(Labels(lab=lab or _name_lab(path)), path, plan)
    if not path.is_file():
        raise MissingDataError(f"{path}: is neither a bundle nor a folder of results.\nCheck its name.")
    opened = open_bundle(path, folder, allowance)
    labels = opened.record.labels.model_copy(update={"lab": lab} if lab else {})
    return LabResults(labels, opened.folder, read_record(opened.folder / "plan.json", Plan))


def _name_lab(path: Path) -> str:
    name = path.resolve().name.lower().replace("_", "-").strip("-")
    return name if name and name[0].isalnum() else "lab"


def merge(sources: Sequence[LabResults], out: Path, campaign: Campaign, *, partial: bool = False) -> Board:
    """Write the merged results and their leaderboard into ``out``; method, cards and rubrics are the campaign's.

    Raises ConfigError for labs or kinds of judges that cannot stand in one table, and as ``build_leaderboard`` does.
    """
    twice = [lab for lab, n in Counter(source.labels.lab for source in sources).items() if n > 1]
    kinds, presets = ({getattr(source.plan, name) for source in sources} for name in ("judge_kind", "preset"))
    problems = [f"two sources are called '{lab}': name them, as in {lab}-2=PATH" for lab in twice]
    problems += ["rules judged some sources and a panel others; the two are never mixed"] if len(kinds) > 1 else []
    if presets != {campaign.config.preset}:
        names = ", ".join(sorted(presets))
        problems.append(f"the sources have the preset {names}, this campaign {campaign.config.preset}; they never mix")
    if problems:
        raise ConfigError(problems)
    times = Counter(run.path for source in sources for run in source.plan.runs)
    shared = {path.partition("/")[0] for path, n in times.items() if n > 1}
    agents: dict[str, PlannedAgent] = {}
    runs: list[RunId] = []
    for source in sources:
        labels = source.labels
        for name, planned in source.plan.agents.items():
            declared = {"access": labels.access.get(name, ""), "weights": labels.weights.get(name, "")}
            agents[_name_agent(name, source, shared)] = planned.model_copy(
                update={"lab": labels.lab, "hardware": labels.hardware, **declared}
            )
        for run in source.plan.runs:
            merged = run.model_copy(update={"agent": _name_agent(run.agent, source, shared)})
            _link_run(source.results / "runs" / run.path, out / "runs" / merged.path, merged)
            runs.append(merged)
    plan = Plan(agents=agents, runs=runs, judge_kind=kinds.pop(), preset=presets.pop())
    write_record(out / "plan.json", plan.model_copy(update={"pinned_judge": sources[0].plan.pinned_judge}))
    cards, method = build_campaign_record(campaign).card_folders, build.statistics_method(campaign.config)
    return build.build_leaderboard(out, cards, method, partial=partial)


def _name_agent(agent: str, source: LabResults, shared: set[str]) -> str:
    """An agent's name on the board: with its lab where another lab has a run of the same name."""
    return f"{agent}@{source.labels.lab}" if agent in shared else agent


def _link_run(home: Path, place: Path, run: RunId) -> None:
    """A run's folder under its name on the board; its score says that name too."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.relative_to(place.parents[3]).parts == home.parts[-4:]:
        place.symlink_to(os.path.relpath(home, place.parent))
        return
    place.mkdir()
    for path in home.iterdir():
        if path.name != "score.json":
            (place / path.name).symlink_to(os.path.relpath(path, place))
    score = home / "score.json"
    if score.is_file():
        write_record(place / "score.json", read_record(score, ScoreRecord).model_copy(update={"run": run}))
