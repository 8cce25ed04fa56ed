"""Valid records with as little typing as possible; other tests may use them.

Every builder fills in a plain, consistent default (a submitted run in Apptainer, judged by the heuristic judge) and
takes what a test cares about by keyword.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from automedbench.agent.plan import RunPlan
from automedbench.base.cards import Limits, TaskCard, load_card
from automedbench.base.files import write_record
from automedbench.base.records import (
    AuditRecord,
    CaseEntry,
    CaseScore,
    CaseSubmission,
    Code,
    CodeCall,
    Conversation,
    Criterion,
    DetailReport,
    Effect,
    Enforced,
    ErrorCode,
    FileEntry,
    Finding,
    JudgeRecord,
    Message,
    Model,
    Outcome,
    Problem,
    Recipe,
    RunId,
    RunRecord,
    ScoreRecord,
    Scores,
    SubmissionRecord,
    Tier,
    Tokens,
    Totals,
    Used,
)
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import CampaignConfig, EgressConfig, SandboxConfig
from automedbench.campaign.record import CampaignRecord
from automedbench.judge.rubric import load_rubric
from automedbench.judge.rules import HEURISTIC
from automedbench.leaderboard.plan import Plan, PlannedAgent
from automedbench.sandbox.evidence.policy import POLICY_VERSION
from automedbench.scoring.run import SCORE_VERSION
from automedbench.tracks import get_track, track_settings

HASH = "0" * 64
CODE = Code(digest="0" * 16)
LIMITS = {"time_limit_s": 3600, "max_turns": 150, "max_cost_usd": None}
EFFECT = Effect(
    verdict="shown",
    reason="own answers fit better than others'",
    n=16,
    own=0.62,
    other=0.21,
    value=0.41,
    low=0.36,
    high=0.46,
    p=0.0001,
    margin=0.03,
)
USED = Used(machines=["a processor, 8 processors, 32 GiB"])
ROOT = Path(__file__).resolve().parents[1]
CRITERIA: dict[str, Literal["S1", "S2", "S3"]] = {
    **dict.fromkeys(("s1a", "s1b", "s1c", "s1d", "s1e", "s1f"), "S1"),
    **dict.fromkeys(("s2a", "s2b", "s2c", "s2d", "s2e"), "S2"),
    "s3": "S3",
}
STAGE_WEIGHTS = (0.25, 0.15, 0.35, 0.15, 0.10)


def make_run(agent: str = "agent", task: str = "bccd-det-task", tier: Tier = "lite", repeat: int = 1) -> RunId:
    """A run's identity."""
    return RunId(agent=agent, task=task, tier=tier, repeat=repeat)


def make_scores(stages: Sequence[float] = (1.0, 1.0, 1.0, 1.0, 1.0), task: float = 0.5) -> Scores:
    """Scores that follow the benchmark's formulas."""
    s1, s2, s3, s4, s5 = stages
    agentic = sum(weight * stage for weight, stage in zip(STAGE_WEIGHTS, stages, strict=True))
    return Scores(
        s1=s1, s2=s2, s3=s3, s4=s4, s5=s5, agentic=min(agentic, 1.0), task=task, overall=(min(agentic, 1.0) + task) / 2
    )


def make_flat_scores(value: float) -> Scores:
    """Every score the same number, for tests of means."""
    return Scores(**dict.fromkeys(Scores.model_fields, value))


def make_totals(**changes: Any) -> Totals:
    """What a run used."""
    tokens = Tokens(prompt=90_000, completion=10_000)
    return Totals(turns=10, wall_s=100.0, api_s=60.0, exec_s=30.0, n_exec=8, tokens=tokens, cost_usd="0.50").model_copy(
        update=changes
    )


def make_enforced(
    backend: Literal["apptainer", "local"] = "apptainer", network: Literal["sealed", "proxied", "open"] = "sealed"
) -> Enforced:
    """What the sandbox enforced."""
    return Enforced(backend=backend, network=network, image_sha256=HASH if backend == "apptainer" else None)


def make_recipe(**changes: Any) -> Recipe:
    """What a score depends on."""
    recipe = Recipe(
        preset="default",
        agent_digest="0123456789abcdef",
        agent_settings={},
        served=["model-1"],
        image_flavour="research",
        image_recipe="b" * 16,
        brief_sha256=HASH,
        common_brief_sha256=HASH,
        limits=LIMITS,
        task_version=1,
        cases_sha256=HASH,
        track_version=1,
        settings={"iou_threshold": 0.5},
        rubric_version=101,
        judge="heuristic-1",
        judge_kind="heuristic",
        policy_version=1,
        score_version=SCORE_VERSION,
        effects="counted",
        image_sha256=HASH,
        code_version="0.2.0",
        code=CODE,
        run_code=CODE,
    )
    return recipe.model_copy(update=changes)


def make_score(run: RunId | None = None, scores: Scores | None = None, **changes: Any) -> ScoreRecord:
    """``score.json`` of a complete detection run."""
    scores = scores or make_scores()
    score = ScoreRecord(
        run=run or make_run(),
        track="detection",
        model="model-1",
        outcome="submitted",
        disqualified=False,
        failed=False,
        scores=scores,
        unpenalised=None,
        quality_name="map50",
        quality=scores.task,
        completion_rate=1.0,
        valid_rate=1.0,
        medal="okay",
        effect=EFFECT,
        error_codes=[],
        n_findings=0,
        totals=make_totals(),
        attempts_cost_usd="0.50",
        used=USED,
        enforced=make_enforced(),
        recipe=make_recipe(),
        sources={"run.json": HASH},
    )
    return score.model_copy(update=changes)


def make_current(score: ScoreRecord) -> ScoreRecord:
    """The score of a detection run in the local sandbox, by the code and the card of now."""
    card = load_card(ROOT / "config/tasks/detection/bccd-det-task.yaml")
    recipe = {
        "task_version": card.version,
        "track_version": get_track(card.track).version,
        "settings": track_settings(card).model_dump(mode="json"),
        "rubric_version": load_rubric(ROOT / "config/rubrics", card.track).version,
        "judge": HEURISTIC,
        "policy_version": POLICY_VERSION,
        "image_flavour": None,
        "image_recipe": None,
    }
    enforced = make_enforced("local", "open")
    return score.model_copy(update={"recipe": score.recipe.model_copy(update=recipe), "enforced": enforced})


def disqualify(score: ScoreRecord) -> ScoreRecord:
    """The same run, disqualified: every score 0, the raw ones kept."""
    return score.model_copy(
        update={
            "outcome": "disqualified",
            "disqualified": True,
            "failed": True,
            "scores": make_flat_scores(0.0),
            "unpenalised": score.scores,
            "n_findings": 1,
            "medal": "disqualified",
        }
    )


def make_plan(runs: Sequence[RunId]) -> Plan:
    """The plan of these runs."""
    agents = {run.agent: PlannedAgent(provider="openai", model=f"{run.agent}-model") for run in runs}
    return Plan(agents=agents, runs=list(runs))


def make_run_record(score: ScoreRecord, detail: str = "submit_results was accepted") -> RunRecord:
    """``run.json`` that goes with a score."""
    return RunRecord(
        run=score.run,
        attempt=1,
        outcome=score.outcome,
        detail=detail,
        submitted=score.outcome == "submitted",
        summary="All images processed." if score.outcome == "submitted" else None,
        provider="openai",
        origin="openai",
        model=score.model,
        served=score.recipe.served,
        agent_digest="0123456789abcdef",
        agent_settings=score.recipe.agent_settings,
        preset=score.recipe.preset,
        image_recipe=score.recipe.image_recipe,
        image_flavour=score.recipe.image_flavour,
        task_version=score.recipe.task_version,
        brief_sha256=HASH,
        common_brief_sha256=HASH,
        cases_sha256=HASH,
        limits=LIMITS,
        enforced=score.enforced,
        totals=score.totals,
        used=score.used,
        started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        ended_at=datetime(2026, 1, 2, 3, 14, 5, tzinfo=UTC),
        code_version=score.recipe.code_version,
        code=CODE,
    )


def make_case_submission(case: str, status: Literal["valid", "malformed", "missing"] = "valid") -> CaseSubmission:
    """The format check of one case."""
    problems = {
        "valid": [],
        "malformed": [Problem(code="box.class", message="box 3: class 'cell' is not one of platelets, rbc, wbc")],
        "missing": [Problem(code="file.missing", message=f"{case}/prediction.json is not there")],
    }
    return CaseSubmission(
        case=case,
        status=status,
        completed=status != "missing",
        problems=problems[status],
        files={} if status == "missing" else {f"{case}/prediction.json": FileEntry(sha256=HASH, bytes=100)},
    )


def make_submission(score: ScoreRecord, cases: Sequence[CaseSubmission]) -> SubmissionRecord:
    """``submission.json``."""
    return SubmissionRecord(
        run=score.run,
        track_version=score.recipe.track_version,
        cases=list(cases),
        completion_rate=score.completion_rate,
        valid_rate=score.valid_rate,
    )


def make_case_score(case: str, status: Literal["valid", "malformed", "missing"] = "valid") -> CaseScore:
    """Metrics of one image: 9 of 12 boxes found, none when the case is not valid."""
    return CaseScore(
        case=case, status=status, metrics={"n_truth": 12.0, "n_matched": 9.0 if status == "valid" else 0.0}
    )


def make_report(score: ScoreRecord, cases: Sequence[CaseScore]) -> DetailReport:
    """``detail_report.json`` of a detection run."""
    return DetailReport(
        run=score.run,
        track=score.track,
        track_version=score.recipe.track_version,
        task_version=score.recipe.task_version,
        settings=score.recipe.settings,
        quality_name=score.quality_name,
        quality=score.quality,
        completion_rate=score.completion_rate,
        task_score=score.quality * score.completion_rate,
        medal=score.medal,
        metrics={"map50": score.quality, "precision": 0.75, "recall": None},
        groups={name: {"ap50": score.quality, "n_truth": 40.0} for name in ("platelets", "rbc", "wbc")},
        cases=list(cases),
        effect=score.effect,
    )


def make_judge(score: ScoreRecord, quote: str = "Plan: threshold, watershed, boxes of the components") -> JudgeRecord:
    """``judge.json``: every criterion earned as far as the stage scores say."""
    scores = score.scores
    stages: dict[Literal["S1", "S2", "S3"], float] = {"S1": scores.s1, "S2": scores.s2, "S3": scores.s3}
    return JudgeRecord(
        run=score.run,
        judge=score.recipe.judge,
        kind=score.recipe.judge_kind,
        rubric_version=score.recipe.rubric_version,
        criteria=[
            Criterion(
                id=name,
                stage=stage,
                verdict=stages[stage],
                auto=name in ("s1d", "s1e", "s1f") and score.run.tier == "lite",
                quote=quote if stages[stage] else "",
                turn=2 if stages[stage] else None,
                reason="found in the plan" if stages[stage] else "nothing found",
            )
            for name, stage in CRITERIA.items()
        ],
        stages=stages,
    )


def make_finding(**changes: Any) -> Finding:
    """One finding of the audit."""
    finding = Finding(
        id="f1",
        rule="decoy.open",
        source="tripwire",
        category="private_access",
        confidence="high",
        severity="warning",
        turn=3,
        call=1,
        evidence="open('/data/private/bccd_0001/boxes.json')",
        blocked=True,
    )
    return finding.model_copy(update=changes)


def make_audit(score: ScoreRecord, findings: Sequence[Finding] = ()) -> AuditRecord:
    """``audit.json`` whose verdict follows from the findings."""
    verdict: Literal["clean", "warned", "disqualified"] = "clean"
    if findings:
        verdict = "disqualified" if score.disqualified else "warned"
    return AuditRecord(
        run=score.run,
        policy_version=1,
        verdict=verdict,
        reason="second warning: decoy.open" if verdict == "disqualified" else None,
        findings=list(findings),
        enforced=score.enforced,
    )


def make_call(turn: int = 2, **changes: Any) -> CodeCall:
    """One code call that went well."""
    call = CodeCall(
        turn=turn,
        call=turn,
        language="python",
        code="print('hello')",
        status="ok",
        exit_code=0,
        elapsed_s=0.5,
        stdout="hello\n",
        stderr="",
        stage="S4",
    )
    return call.model_copy(update=changes)


def make_conversation(
    score: ScoreRecord, calls: Sequence[CodeCall] = (), messages: Sequence[Message] = (), plan: str | None = "# Plan"
) -> Conversation:
    """``conversation.json``: brief, one note per call, what the calls printed."""
    brief = [Message(turn=0, role="system", content="The brief."), Message(turn=0, role="user", content="Begin.")]
    notes = [Message(turn=call.turn, role="assistant", content=f"Turn {call.turn}: next step.") for call in calls]
    told = [Message(turn=call.turn, role="tool", content=f"exit 0\n{call.stdout}") for call in calls]
    return Conversation(
        run=score.run,
        n_cases=4,
        gpu=score.enforced.gpu,
        messages=[*brief, *notes, *told, *messages],
        calls=list(calls),
        plan=plan,
        has_plot=False,
        workspace_files={"plan/plan.md": 120},
    )


def make_error(code: Literal["E1", "E2", "E3", "E4", "E5"] = "E5") -> ErrorCode:
    """One error code."""
    return ErrorCode(code=code, stage="S5", evidence="submit_results was never called")


def run_records(score: ScoreRecord, *, n_cases: int = 4, calls: Sequence[CodeCall] | None = None) -> dict[str, Model]:
    """File name → record: everything that lies in the folder of a finished run."""
    names = [f"bccd_{number:04d}" for number in range(1, n_cases + 1)]
    n_missing = round(n_cases * (1 - score.completion_rate))
    statuses: list[Literal["valid", "malformed", "missing"]] = ["valid"] * (n_cases - n_missing)
    statuses += ["missing"] * n_missing
    findings = [make_finding(), make_finding(id="f2", severity="disqualifying")] if score.disqualified else []
    return {
        "score.json": score,
        "run.json": make_run_record(score, detail=outcome_detail(score.outcome)),
        "submission.json": make_submission(score, list(map(make_case_submission, names, statuses))),
        "detail_report.json": make_report(
            score, [make_case_score(name, status) for name, status in zip(names, statuses, strict=True)]
        ),
        "judge.json": make_judge(score),
        "audit.json": make_audit(score, findings),
        "conversation.json": make_conversation(score, calls if calls is not None else [make_call(2), make_call(3)]),
    }


def outcome_detail(outcome: Outcome) -> str:
    """One line that fits an outcome."""
    lines = {"submitted": "submit_results was accepted", "disqualified": "second sandbox warning in turn 3"}
    return lines.get(outcome, f"the run ended: {outcome}")


def write_run(results: Path, records: dict[str, Model]) -> Path:
    """Write the records of one run where the workflow would; returns the folder."""
    score = records["score.json"]
    assert isinstance(score, ScoreRecord)
    folder = results / "runs" / score.run.path
    for name, record in records.items():
        write_record(folder / name, record)
    return folder


def write_campaign(results: Path, scores: Sequence[ScoreRecord], planned: Sequence[RunId] | None = None) -> Path:
    """Write finished runs and a plan (of exactly these unless ``planned`` says more); returns the plan's path."""
    for score in scores:
        write_run(results, run_records(score))
    plan = results / "plan.json"
    write_record(plan, make_plan(planned if planned is not None else [score.run for score in scores]))
    return plan


def make_campaign(folder: Path, *cards: Path, **settings: Any) -> CampaignRecord:
    """The record of a campaign below ``folder``, in the local sandbox, of the tasks of these cards."""
    data = {name: str(folder / "data" / name) for name in ("raw", "public", "private", "manifests")}
    plain = {
        "matrix": {"agents": ["agent"], "tasks": ["task"]},
        "data": data,
        "results": str(folder / "results"),
        "sandbox": {"backend": "local", "network": "open"},
        "cards": [str(folder / "cards")],
    }
    paths = {load_card(path).id: str(path) for path in cards}
    datasets = {load_card(path).dataset.name: str(path) for path in cards}
    return CampaignRecord(settings=CampaignConfig.model_validate(plain | settings), cards=paths, datasets=datasets)


def written_campaign(folder: Path, *cards: Path, **settings: Any) -> Path:
    """``campaign.json`` of such a campaign."""
    record = make_campaign(folder, *cards, **settings)
    path = Path(record.settings.results, "campaign.json")
    write_record(path, record)
    return path


def make_brief_plan(card: TaskCard, cases: Sequence[str], tier: Tier = "lite", **changes: Any) -> RunPlan:
    """A run whose brief says as little as it can: sealed, without GPU; ``changes`` as ``vary_plan`` takes them."""
    plan = RunPlan(
        run=RunId(agent="a", task=card.id, tier=tier, repeat=1),
        card=card,
        manifest=card.manifest("some", [CaseEntry(id=case, inputs={}, private={}) for case in cases]),
        agent=Agent(provider="openai", model="m", base_url="http://127.0.0.1:9", api_key_env="TEST_KEY"),
        limits=Limits(),
        sandbox=SandboxConfig(network="sealed", egress=EgressConfig(allow=[], hub=None, open_tls=False)),
        public=Path("nothing is staged"),
        folder=Path("nothing is run"),
        prompts=ROOT / "config/prompts",
    )
    return vary_plan(plan, **changes)


def vary_plan(plan: RunPlan, **changes: Any) -> RunPlan:
    """The plan with other values, each where its name belongs: to egress, sandbox, agent, or the plan itself."""
    egress, sandbox, agent = (
        {name: changes.pop(name) for name in [*changes] if name in kind.model_fields}
        for kind in (EgressConfig, SandboxConfig, Agent)
    )
    sandbox["egress"] = plan.sandbox.egress.model_copy(update=egress)
    return replace(
        plan,
        sandbox=plan.sandbox.model_copy(update=sandbox),
        agent=plan.agent.model_copy(update=agent),
        **changes,
    )
