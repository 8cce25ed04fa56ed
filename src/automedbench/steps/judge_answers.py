"""Open answers of a run, judged by a language model: do they mean what the gold answers say?"""

from __future__ import annotations

from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.base.records import AnswerJudgement
from automedbench.campaign.agents import JudgeModel
from automedbench.campaign.config import AnswerJudgeConfig
from automedbench.campaign.record import CampaignRecord
from automedbench.judge import answers
from automedbench.judge.panel.member import JudgeEndpoint
from automedbench.sandbox.airlock.archive import unpack_submission


def judge_answers(campaign: CampaignRecord, run: Path) -> AnswerJudgement:
    """Write ``answer_judge.json`` of a run; the cache of verdicts lies outside of every run.

    Raises ConfigError without ``answer_judge`` in the configuration, and what ``judge.answers`` raises.
    """
    files, judge = campaign.run_files(run), campaign.settings.answer_judge
    if judge is None:
        raise ConfigError(["answer_judge: is missing in the configuration, so no model can judge answers"])
    with unpack_submission(files) as submission, JudgeEndpoint("answer_judge", judge_model(judge)) as endpoint:
        return answers.judge_answers(
            campaign.card(files.run.task),
            campaign.manifest(files.run.task),
            Path(campaign.settings.data.private),
            submission,
            files.file("submission.json"),
            campaign.results / "answer_judge_cache",
            files.out("answer_judge.json"),
            endpoint,
        )


def judge_model(judge: AnswerJudgeConfig) -> JudgeModel:
    """The model as judges of stages are described."""
    return JudgeModel(
        model=judge.model,
        base_url=judge.base_url,
        api_key_env=judge.api_key_env,
        temperature=0.0 if judge.send_temperature else None,
        structured="json_object" if judge.json_mode else "text",
        max_tokens=400,
        request_timeout_s=60,
    )
