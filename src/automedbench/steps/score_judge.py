"""Stages S1–S3 of a run, judged by rules or by a panel of language models."""

from __future__ import annotations

import contextlib
from pathlib import Path

from automedbench.base.files import read_record
from automedbench.base.records import DetailReport, Effect, JudgeRecord
from automedbench.campaign.config import RUBRICS
from automedbench.campaign.record import CampaignRecord
from automedbench.judge import judge_conversation


def score_judge(campaign: CampaignRecord, run: Path) -> JudgeRecord:
    """Write ``judge.json`` of a run; the cache of a panel's answers lies outside of every run.

    The judge is told the effect of the case, as its metrics have it, unless effects are shown only.

    Raises ConfigError, JudgeError, InfrastructureError.
    """
    files, judge = campaign.run_files(run), campaign.settings.judge
    submission, track = files.file("submission"), campaign.card(files.run.task).track
    counts = campaign.settings.effects == "counted"
    effect = read_record(files.file("detail_report.json"), DetailReport).effect if counts else Effect()
    with contextlib.ExitStack() as stack:
        panel = None
        if judge.kind == "llm":
            from automedbench.campaign.agents import load_judges
            from automedbench.judge.panel import open_panel
            from automedbench.judge.panel.member import require_outside

            cache = campaign.results / "judge_cache"
            require_outside(cache, submission)
            judges = load_judges(Path(campaign.settings.judges_file))
            panel = stack.enter_context(open_panel(judges, judge.panel, repeats=judge.repeats, cache=cache))
        return judge_conversation(
            files.file("conversation.json"),
            Path(RUBRICS),
            track,
            files.out("judge.json"),
            submission=submission,
            panel=panel,
            effect=effect,
        )
