"""Write one agent's runs as the evaluation JSON (`schema_version` 1) that trainers of agents read, for `promote`.

One cell per planned run: track, task_id, tier, repeat, task_score, s1 to s5, valid. A run without a score is invalid
and has null everywhere; so has a stage that its judge did not judge. Scores are in [0, 1], after every penalty.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record, write_record
from automedbench.base.plaintable import counted
from automedbench.base.records import Model, RunId, Score, ScoreRecord, Tier
from automedbench.base.yamlfile import suggestion
from automedbench.commands._output import add_json, show
from automedbench.leaderboard.plan import Plan
from automedbench.planning.load import add_campaign_options, results_of

STAGES = ("s1", "s2", "s3", "s4", "s5")


class Cell(Model):
    """One run."""

    track: str
    task_id: str
    tier: Tier
    repeat: int
    task_score: Score | None
    s1: Score | None
    s2: Score | None
    s3: Score | None
    s4: Score | None
    s5: Score | None
    valid: bool = Field(description="it has a score, and was not disqualified")

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What the cells of two agents are paired by."""
        return self.track, self.task_id, self.tier, self.repeat


class Evaluation(Model):
    """The file."""

    schema_version: int = Field(1, ge=1, le=1)
    agent: str
    cells: list[Cell] = Field(min_length=1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench export-evaluator``."""
    parser.add_argument("agent", help="name of the agent")
    parser.add_argument("--out", type=Path, help="the file; default: it is printed")
    add_json(parser)
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Write it and say how many cells."""
    results = results_of(options)
    plan = read_record(results / "plan.json", Plan)
    if options.agent not in plan.agents:
        raise ConfigError([f"{options.agent}: is no agent of {results}{suggestion(options.agent, list(plan.agents))}"])
    runs = [run for run in plan.runs if run.agent == options.agent]
    found = evaluation(options.agent, runs, results)
    if options.out is not None:
        write_record(options.out, found)
    options.json |= options.out is None
    n_valid = sum(cell.valid for cell in found.cells)
    show(options, found, [f"{options.out}: {counted(len(found.cells), 'cell')}, {n_valid} valid"])


def evaluation(agent: str, runs: Sequence[RunId], results: Path) -> Evaluation:
    """The cells of an agent's planned runs; a task without any score has no known track and says its task's name."""
    scores: dict[RunId, ScoreRecord] = {}
    for run in runs:
        path = results / "runs" / run.path / "score.json"
        if path.is_file():
            scores[run] = read_record(path, ScoreRecord)
    tracks = {run.task: score.track for run, score in scores.items()}
    cells = [_cell(run, scores.get(run), tracks.get(run.task, run.task)) for run in runs]
    return Evaluation(schema_version=1, agent=agent, cells=cells)


def _cell(run: RunId, score: ScoreRecord | None, track: str) -> Cell:
    values: dict[str, Any] = dict.fromkeys(("task_score", *STAGES))
    if score is not None:
        values = {"task_score": score.scores.task} | {name: getattr(score.scores, name) for name in STAGES}
    valid = score is not None and not score.disqualified
    return Cell(track=track, task_id=run.task, tier=run.tier, repeat=run.repeat, valid=valid, **values)
