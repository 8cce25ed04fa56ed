"""Judging stages S1–S3: a rubric, the evidence of a run, and judges that must quote it.

Two kinds, never mixed: rules (``heuristic``) and panels of language models (``panel``). An answer is valid only as a
whole: every criterion answered once, with an allowed verdict, and every verdict above 0 with a quote that stands in the
evidence. Anything else is asked again. Then it fails the job, never becoming a number, unless the same judge can judge
a run that did nothing: a run that makes itself unjudgeable gets 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from automedbench.base.files import read_record, write_record
from automedbench.base.records import Conversation, Effect, JudgeRecord, Tier
from automedbench.judge.evidence import collect_agent_texts, collect_evidence
from automedbench.judge.picture import collected_plot
from automedbench.judge.rubric import JUDGED_STAGES, Rubric, load_rubric, settle_verdicts, stage_score
from automedbench.judge.rules import HeuristicJudge

if TYPE_CHECKING:
    from automedbench.judge.panel import Panel

__all__ = [
    "judge_conversation",
    "judge_run",
    "load_rubric",
    "stage_score",
]

NOT_MEASURED = Effect()


def judge_conversation(
    conversation: Path,
    rubrics: Path,
    track: str,
    out: Path,
    *,
    submission: Path | None = None,
    panel: Panel | None = None,
    effect: Effect = NOT_MEASURED,
) -> JudgeRecord:
    """Judge one run from its files and write ``judge.json``: by the panel, or by rules when there is none.

    ``submission`` is the folder of collected files: what it has of plan.png decides whether there is a picture.
    ``effect``: that of the case on the outputs, as the metrics measured it. Raises ConfigError, JudgeError,
    InfrastructureError.
    """
    rubric, record = load_rubric(rubrics, track), read_record(conversation, Conversation)
    plot = None if submission is None else collected_plot(submission)
    if submission is not None:
        record = record.model_copy(update={"has_plot": plot is not None})
    judge = HeuristicJudge() if panel is None else panel
    judgement = judge_run(record, rubric, record.run.tier, judge, plot, effect)
    write_record(out, judgement)
    return judgement


def judge_run(
    conversation: Conversation,
    rubric: Rubric,
    tier: Tier,
    judge: HeuristicJudge | Panel,
    plot: bytes | None = None,
    effect: Effect = NOT_MEASURED,
) -> JudgeRecord:
    """S1–S3 of one run: valid answers, with dependencies and the tier's credits (in this order).

    ``plot``: plan.png as it was written anew, for the members of a panel that take images. A panel raises JudgeError
    when no answer is valid, InfrastructureError and ConfigError.
    """
    # The search for passages that address a judge takes a while to load, and most who import this package only read
    # rubrics and traces.
    from automedbench.reading.injection import find_injections

    if not isinstance(judge, HeuristicJudge):
        from automedbench.judge.panel import judge_by_panel

        return judge_by_panel(conversation, rubric, tier, judge, plot, effect)
    evidence = collect_evidence(conversation)
    verdicts = {criterion.id: criterion for criterion in judge.judge(evidence, rubric, tier, effect)}
    criteria = settle_verdicts(verdicts, rubric, tier, gpu=conversation.gpu)
    return JudgeRecord(
        run=conversation.run,
        judge=judge.id,
        kind=judge.kind,
        rubric_version=rubric.version,
        criteria=criteria,
        stages={stage: stage_score(criteria, stage) for stage in JUDGED_STAGES},
        injections=find_injections(collect_agent_texts(evidence)),
        tokens=judge.tokens,
        cost_usd=judge.cost_usd,
    )
