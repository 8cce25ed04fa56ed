"""Stage scores, agentic, overall, medals, failure and disqualification. Expected values are worked out by hand."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from hand_made_runs import RUN, call, conversation, failing
from toys._bench import stage, toy_names

from automedbench.base.cards import Medal, TaskCard, load_card
from automedbench.base.effects import is_method_at_work
from automedbench.base.errors import InfrastructureError, JudgeError
from automedbench.base.records import (
    AuditRecord,
    CaseScore,
    CaseSubmission,
    Decision,
    DetailReport,
    Effect,
    EffectRule,
    EffectVerdict,
    Enforced,
    Finding,
    Judgement,
    JudgeRecord,
    Prior,
    Problem,
    Process,
    RunRecord,
    ScoreRecord,
    SubmissionRecord,
    Tokens,
)
from automedbench.scoring.run import (
    ZERO,
    agentic,
    case_scores,
    decide_medal,
    is_failed,
    medal,
    overall,
    s4,
    s5,
    score_from_files,
    score_run,
)

ENFORCED = Enforced(backend="local", network="sealed")
Status = Literal["valid", "malformed", "missing"]
V, X, M = "valid", "malformed", "missing"


@pytest.fixture(scope="module")
def card(root: Path) -> TaskCard:
    return load_card(root / "config/tasks/detection/bccd-det-task.yaml")


def run_record(outcome: str = "submitted", **changes: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "run": RUN,
        "attempt": 1,
        "outcome": outcome,
        "detail": "made by hand",
        "submitted": outcome == "submitted",
        "summary": None,
        "provider": "scripted",
        "origin": "scripted",
        "model": "by-hand",
        "served": [],
        "agent_digest": "0" * 16,
        "agent_settings": {},
        "preset": "default",
        "image_recipe": None,
        "image_flavour": None,
        "task_version": 1,
        "brief_sha256": "0" * 64,
        "common_brief_sha256": "0" * 64,
        "cases_sha256": "0" * 64,
        "limits": {},
        "enforced": ENFORCED,
        "totals": {},
        "used": {},
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "ended_at": datetime(2026, 1, 1, 1, tzinfo=UTC),
        "code_version": "0",
        "code": {"digest": "0" * 16},
    }
    return RunRecord.model_validate(fields | changes)


def submission_record(*statuses: str) -> SubmissionRecord:
    """Malformed files count as not completed, as an unreadable file does."""
    cases = [
        CaseSubmission.model_validate(
            {
                "case": f"bccd_{number:04}",
                "status": status,
                "completed": status == V,
                "problems": [Problem(code="json", message="not JSON")] if status == X else [],
            }
        )
        for number, status in enumerate(statuses, 1)
    ]
    rate = statuses.count(V) / len(statuses)
    return SubmissionRecord(run=RUN, track_version=1, cases=cases, completion_rate=rate, valid_rate=rate)


def audit_record(verdict: str = "clean", findings: int = 0) -> AuditRecord:
    finding = Finding(
        id="f1", rule="decoy.open", source="tripwire", category="private_access", confidence="high",
        severity="disqualifying", evidence="/data/private",
    )  # fmt: skip
    return AuditRecord.model_validate(
        {
            "run": RUN,
            "policy_version": 1,
            "verdict": verdict,
            "reason": None,
            "findings": [finding] * findings,
            "enforced": ENFORCED,
        }
    )


def detail_report(quality: float = 0.8, completion: float = 1.0, **changes: Any) -> DetailReport:
    fields: dict[str, Any] = {
        "run": RUN,
        "track": "detection",
        "track_version": 3,
        "task_version": 1,
        "settings": {"iou_threshold": 0.5},
        "quality_name": "map50",
        "quality": quality,
        "completion_rate": completion,
        "task_score": quality * completion,
        "medal": "okay",
        "metrics": {"map50": quality},
        "groups": {},
        "cases": [],
    }
    return DetailReport.model_validate(fields | changes)


def judge_record(stage1: float = 0.83, stage2: float = 0.6, stage3: float = 1.0, **changes: Any) -> JudgeRecord:
    fields: dict[str, Any] = {
        "run": RUN,
        "judge": "heuristic-1",
        "kind": "heuristic",
        "rubric_version": 101,
        "criteria": [],
        "stages": {"S1": stage1, "S2": stage2, "S3": stage3},
    }
    return JudgeRecord.model_validate(fields | changes)


# --- S4, S5 -----------------------------------------------------------------------------------------------------

S4 = [
    # id, statuses, S4 = ½ completion + ½ flag
    ("nothing submitted", [M, M], 0.0),
    ("one of one, malformed", [X], 0.0),
    ("all valid", [V, V, V, V], 1.0),
    ("half missing, the rest valid", [V, V, M, M], 0.75),  # ½·0.5 + ½
    ("18 of 20, all valid", [V] * 18 + [M] * 2, 0.95),  # the README's own example, spec segmentation E.3
    ("one malformed", [V, V, V, X], 0.375),  # ½·0.75 + 0
    ("malformed and missing", [V, X, M, M], 0.125),
]


@pytest.mark.parametrize(("statuses", "expected"), [row[1:] for row in S4], ids=[row[0] for row in S4])
def test_s4(statuses: list[str], expected: float) -> None:
    assert s4(submission_record(*statuses)) == pytest.approx(expected, abs=1e-12)


S5 = [
    # id, task score, statuses, accepted, S5
    ("nothing", 0.0, [M, M], False, 0.0),
    ("empty lists, submitted", 0.0, [V, V], True, 0.5),  # golden d02: accepted
    ("something right, not submitted", 0.2, [V, V], False, 0.5),
    ("something right, one missing", 0.2, [V, M], True, 0.5),
    ("something right, one malformed", 0.2, [V, X], True, 0.5),
    ("nothing right, one missing", 0.0, [V, M], True, 0.0),
    ("complete", 0.2, [V, V], True, 1.0),
]


@pytest.mark.parametrize(("task", "statuses", "accepted", "expected"), [r[1:] for r in S5], ids=[r[0] for r in S5])
def test_s5(task: float, statuses: list[str], accepted: bool, expected: float) -> None:
    run = run_record("submitted" if accepted else "time_limit")
    assert s5(task, submission_record(*statuses), run) == expected


@pytest.mark.parametrize(("effect", "expected"), [("none", 0.5), ("unclear", 1.0), ("shown", 1.0)])
def test_outputs_without_an_effect_of_their_case_are_nothing_right(effect: EffectVerdict, expected: float) -> None:
    """By hand: ½·0 + ½ where the copied input has a task score of 0.4; else ½ + ½."""
    assert s5(0.4, submission_record(V, V), run_record(), effect) == expected


def test_golden_s4_of_valid_runs(shared: Path) -> None:
    """Rows without a valid output: the reference and the rule agree, ½ completion + ½ flag."""
    rows = json.loads((shared / "golden/det/scalars.json").read_text())["s4"]
    for row in rows:
        record = submission_record(M).model_copy(update={"completion_rate": row["completion"]})
        assert s4(record) + 0.5 * row["format_valid"] == pytest.approx(row["expected"], abs=1e-12)


def test_golden_s5(shared: Path) -> None:
    for row in json.loads((shared / "golden/det/scalars.json").read_text())["s5"]:
        record = submission_record(V if row["format_valid"] else X)
        assert s5(float(row["has_valid_results"]), record, run_record()) == row["expected"]


# --- agentic, overall -------------------------------------------------------------------------------------------

AGENTIC = [
    # id, s1 … s5, 0.25·s1 + 0.15·s2 + 0.35·s3 + 0.15·s4 + 0.10·s5
    ("nothing", (0, 0, 0, 0, 0), 0.0),
    ("everything", (1, 1, 1, 1, 1), 1.0),
    ("S1 only", (1, 0, 0, 0, 0), 0.25),
    ("S2 only", (0, 1, 0, 0, 0), 0.15),
    ("S3 only", (0, 0, 1, 0, 0), 0.35),
    ("S4 only", (0, 0, 0, 1, 0), 0.15),
    ("S5 only", (0, 0, 0, 0, 1), 0.10),
    ("four decimals", (1 / 3, 0, 0, 0, 0), 0.0833),
    ("paper, example run", (1, 1, 0.5, 1, 0.3166), 0.7567),  # paper appendix I.1: the sum does check
]


@pytest.mark.parametrize(("stages", "expected"), [row[1:] for row in AGENTIC], ids=[row[0] for row in AGENTIC])
def test_agentic(stages: tuple[float, ...], expected: float) -> None:
    assert agentic(dict(zip(("s1", "s2", "s3", "s4", "s5"), stages, strict=True))) == expected


def test_missing_stage_is_no_zero() -> None:
    with pytest.raises(KeyError):
        agentic({"s1": 1, "s2": 1, "s4": 1, "s5": 1})


def test_golden_agentic(shared: Path) -> None:
    rows = json.loads((shared / "golden/det/scalars.json").read_text())["workflow_score"]["cases"]
    complete = [row for row in rows if None not in row["step_scores"].values() and "weights" not in row]
    assert len(complete) >= 4
    for row in complete:
        assert agentic(row["step_scores"]) == row["expected_score"]


def test_golden_overall(shared: Path) -> None:
    for row in json.loads((shared / "golden/det/scalars.json").read_text())["overall"]:
        assert overall(row["agentic"], row["task"]) == row["expected"]


def test_golden_detail_reports(shared: Path) -> None:
    """Where the reference is right: its agentic and overall from its stages and task score."""
    cases = json.loads((shared / "golden/det/detail_report.json").read_text())["cases"]
    right = [case for case in cases if case["judgement"]["reference_right"]]
    for case in right:
        report = case["expected"]
        if report["agentic_tier"]["medal_name"] == "disqualified":
            continue
        assert agentic(report["agentic_score"]["step_scores"]) == report["agentic_score"]["score"], case["id"]
        halves = report["agentic_score"]["score"], report["clinical_score"]["score"]
        assert overall(*halves) == report["agentic_tier"]["overall_score"], case["id"]
    assert right


# --- medals, failure --------------------------------------------------------------------------------------------

MEDALS = [Medal(name="good", at_least={"map50": 0.85}), Medal(name="okay", at_least={"map50": 0.6})]

MEDAL_ROWS = [
    # id, metrics, medal
    ("no metrics", {}, "fail"),
    ("undefined", {"map50": None}, "fail"),
    ("zero", {"map50": 0.0}, "fail"),
    ("just below okay", {"map50": 0.5999}, "fail"),
    ("exactly okay", {"map50": 0.6}, "okay"),
    ("just below good", {"map50": 0.8499}, "okay"),
    ("exactly good", {"map50": 0.85}, "good"),
    ("another metric", {"map75": 1.0}, "fail"),
]


@pytest.mark.parametrize(("metrics", "expected"), [row[1:] for row in MEDAL_ROWS], ids=[row[0] for row in MEDAL_ROWS])
def test_medal(metrics: dict[str, float | None], expected: str) -> None:
    assert medal(MEDALS, metrics) == expected


@pytest.mark.parametrize(
    ("statuses", "prior", "expected"),
    [
        ((V, V), None, "okay"),
        ((V, V), 0.79, "okay"),
        ((V, V), 0.8, "fail"),  # a constant answer does as well
        ((V, X), None, "fail"),
        ((V, M), None, "fail"),
    ],
)
def test_medals_are_for_complete_runs_that_beat_constants(
    statuses: tuple[str, ...], prior: float | None, expected: str
) -> None:
    """The report's task score is 0.8 and reaches the thresholds of an okay medal."""
    best = None if prior is None else Prior(answers="no for every case", value=prior)
    assert decide_medal(detail_report(prior=best), submission_record(*statuses)) == expected


def test_medal_needs_every_threshold() -> None:
    both = [Medal(name="good", at_least={"dice": 0.7, "lesion": 0.5})]
    assert medal(both, {"dice": 0.9, "lesion": 0.4}) == "fail"
    assert medal(both, {"dice": 0.9, "lesion": 0.5}) == "good"
    assert medal([], {"dice": 1.0}) == "fail"


def test_golden_medal(shared: Path) -> None:
    reference = [Medal(name="good", at_least={"map50": 0.6}), Medal(name="okay", at_least={"map50": 0.3})]
    for row in json.loads((shared / "golden/det/scalars.json").read_text())["medal"]:
        assert medal(reference, {"map50": row["score"]}) == row["expected"]["name"]


FAILED = [
    # id, outcome, statuses, audit, failed
    ("complete", "submitted", [V, V], "clean", False),
    ("warned", "submitted", [V, V], "warned", False),
    ("malformed files are complete", "submitted", [V, X], "clean", False),
    ("one missing", "submitted", [V, M], "clean", True),
    ("nothing there", "submitted", [M, M], "clean", True),
    ("all there, never submitted", "stopped", [V, V], "clean", True),
    ("all there, out of time", "time_limit", [V, V], "clean", True),
    ("disqualified during the run", "disqualified", [V, V], "clean", True),
    ("disqualified by the audit", "submitted", [V, V], "disqualified", True),
]


@pytest.mark.parametrize(
    ("outcome", "statuses", "verdict", "expected"), [r[1:] for r in FAILED], ids=[r[0] for r in FAILED]
)
def test_failed(outcome: str, statuses: list[str], verdict: str, expected: bool) -> None:
    assert is_failed(run_record(outcome), submission_record(*statuses), audit_record(verdict)) is expected


# --- cases ------------------------------------------------------------------------------------------------------


def cases(name: str, *values: float | None) -> list[CaseScore]:
    """One case per value; null: missing."""
    return [
        CaseScore(case=f"c{number}", status="missing" if value is None else "valid", metrics={name: value})
        for number, value in enumerate(values)
    ]


CASES = [
    # id, track, quality's name, quality, completion, metric of the cases, its values, contributions to the task score
    ("no case listed", "enhancement", "ssim", 0.0, 0.0, "ssim", [], None),
    ("all missing", "enhancement", "ssim", 0.0, 1.0, "ssim", [None, None], [0.0, 0.0]),
    ("mean of all", "enhancement", "ssim", 0.6, 1.0, "ssim", [0.5, 0.7], [0.5, 0.7]),
    ("missing is 0", "enhancement", "ssim", 0.25, 1.0, "ssim", [0.5, None], [0.5, 0.0]),
    (
        "quality of the completed ones",
        "segmentation",
        "macro_dice",
        0.8,
        0.5,
        "dice",
        [0.8, None],
        [0.8, 0.0],
    ),  # task = 0.8 · ½
    ("four decimals", "enhancement", "ssim", 0.123456, 1.0, "ssim", [0.123456], [0.1235]),
    ("right or wrong", "classification", "accuracy", 0.5, 1.0, "correct", [1.0, 0.0], [1.0, 0.0]),
    ("mean recall is no mean over cases", "classification", "balanced_accuracy", 0.5, 1.0, "correct", [1.0, 0.0], None),
    (
        "targets undefined in some cases",
        "segmentation",
        "macro_dice",
        0.75,
        1.0,
        "dice",
        [0.5, 0.8],
        None,
    ),  # mean is 0.65
    ("another metric that happens to fit", "detection", "map50", 0.5, 1.0, "f1", [0.5, 0.5], None),
    ("more than one", "enhancement", "ssim", 0.5, 1.0, "ssim", [2.0, -1.0], None),
]


@pytest.mark.parametrize(
    ("track", "quality_name", "quality", "completion", "metric", "values", "expected"),
    [row[1:] for row in CASES],
    ids=[row[0] for row in CASES],
)
def test_case_scores(
    track: str,
    quality_name: str,
    quality: float,
    completion: float,
    metric: str,
    values: list[float | None],
    expected: list[float] | None,
) -> None:
    report = detail_report(quality, completion, track=track, quality_name=quality_name, cases=cases(metric, *values))
    assert case_scores(report) == expected


@pytest.mark.parametrize("track", toy_names())
def test_case_scores_of_every_track(track: str, tmp_path: Path) -> None:
    """Half of a perfect submission: 1 for what is there, 0 for what is not. Detection's mAP is no mean over images."""
    bench = stage(track, tmp_path)
    kept = bench.cases[: len(bench.cases) // 2]
    report = bench.hand_in(bench.perfect(kept), tmp_path / "run")
    expected = [float(case in kept) for case in bench.cases]
    found = case_scores(report)
    if track == "detection":
        assert found is None
    else:
        # Report metrics of a text with itself: METEOR stays just below 1.
        assert found == pytest.approx(expected, abs=1e-3)
        assert sum(found or []) / len(expected) == pytest.approx(report.task_score, abs=5e-5)


# --- the whole row ----------------------------------------------------------------------------------------------


def score(card: TaskCard, **parts: Any) -> ScoreRecord:
    return score_run(
        parts.get("run", run_record()),
        parts.get("submission", submission_record(V, V)),
        parts.get("audit", audit_record()),
        parts.get("detail", detail_report()),
        parts.get("judge", judge_record()),
        card,
        parts.get("conversation", conversation()),
        {"run.json": "0" * 64},
        parts.get("effects", "counted"),
    )


def test_clean_run(card: TaskCard) -> None:
    # By hand: 0.25·0.83 + 0.15·0.6 + 0.35 + 0.15 + 0.10 = 0.8975; (0.8975 + 0.8) / 2 = 0.84875 → 0.8488 (half to even
    # of the nearest binary value, which lies just above).
    row = score(card)
    assert (row.scores.s4, row.scores.s5, row.scores.agentic, row.scores.task) == (1.0, 1.0, 0.8975, 0.8)
    assert row.scores.overall == pytest.approx(0.84875, abs=5.1e-5)
    assert (row.disqualified, row.failed, row.unpenalised, row.error_codes) == (False, False, None, [])
    assert (row.medal, row.quality_name, row.quality, row.track) == ("okay", "map50", 0.8, "detection")


def test_incomplete_run_keeps_what_it_earned(card: TaskCard) -> None:
    # By hand: completion ½, quality 0.4 → task 0.2; S4 = 0.75; S5 = 0.5; agentic 0.2075+0.09+0.35+0.1125+0.05 = 0.81.
    row = score(card, submission=submission_record(V, M), detail=detail_report(0.4, 0.5, medal="fail"))
    assert (row.scores.s4, row.scores.s5, row.scores.agentic) == (0.75, 0.5, 0.81)
    assert (row.scores.task, row.scores.overall) == (0.2, 0.505)
    assert (row.failed, row.disqualified, row.medal) == (True, False, "fail")


def test_silent_run(card: TaskCard) -> None:
    row = score(
        card,
        run=run_record("stopped"),
        submission=submission_record(M, M),
        detail=detail_report(0.0, 0.0, medal="fail"),
        judge=judge_record(0, 0, 0),
        conversation=conversation([]),
    )
    assert row.scores == ZERO
    assert (row.failed, row.disqualified, row.unpenalised) == (True, False, None)
    assert [(code.code, code.stage) for code in row.error_codes] == [("E5", "S4"), ("E5", "S5")]


@pytest.mark.parametrize(("outcome", "verdict"), [("disqualified", "clean"), ("submitted", "disqualified")])
def test_disqualified_run_is_zero_and_its_numbers_are_kept(outcome: str, verdict: str, card: TaskCard) -> None:
    row = score(card, run=run_record(outcome), audit=audit_record(verdict, findings=2))
    assert row.scores == ZERO
    assert row.unpenalised is not None and row.unpenalised.task == 0.8 and row.unpenalised.s4 == 1.0
    assert (row.disqualified, row.failed, row.medal, row.quality, row.n_findings) == (
        True,
        True,
        "disqualified",
        0.0,
        2,
    )
    assert row.error_codes == []


@pytest.mark.parametrize(("decided", "out"), [("lift", False), ("uphold", True)])
def test_an_operator_decides_on_a_run_that_was_stopped(
    decided: Literal["lift", "uphold"], out: bool, card: TaskCard
) -> None:
    """A lifted disqualification is a warning: the run has what it earned, but it never submitted."""
    decision = Decision(decision=decided, by="A. Person", date="2026-01-31", why="an example in a comment")
    audit = audit_record("warned" if decided == "lift" else "disqualified").model_copy(update={"decision": decision})
    row = score(card, run=run_record("disqualified"), audit=audit)
    assert (row.disqualified, row.failed, row.scores == ZERO, row.unpenalised is None) == (out, True, out, not out)


def opened(reads: list[str], writes: list[str], left_out: int = 0) -> Process:
    return Process(command="p", parent=None, exit_code=0, reads=reads, writes=writes, left_out=left_out)


OUTPUT, INPUT = ["agents_outputs/c1/a.json"], ["/data/public/t/c1/a.png"]
TRACED: dict[str, tuple[list[list[Process] | None], bool]] = {
    "no process opened an input": ([[opened(["plan/plan.md"], [])], [opened([], OUTPUT)]], True),
    "another process opened one": ([[opened(INPUT, ["x"])], [opened(["x"], OUTPUT)]], False),
    "a call without a trace": ([None, [opened([], OUTPUT)]], False),
    "more than is told": ([[opened([], OUTPUT, left_out=1)]], False),
    "no outputs": ([[opened([], ["plan/plan.md"])]], False),
    "no process": ([[]], False),
}


@pytest.mark.parametrize(("traced", "unopened"), TRACED.values(), ids=TRACED)
def test_no_method_is_at_work_where_no_input_was_opened(traced: list[list[Process] | None], unopened: bool) -> None:
    """Then nothing can have been worked out of them, whatever the code looks like; else the trace must know."""
    run = conversation([call(number, "x", processes=each) for number, each in enumerate(traced, start=1)])
    assert is_method_at_work(run, audit_record()) is not unopened
    finding = Finding.of("trace.unread", "trace", "resource", "notice", "low", "acts of")
    unread = audit_record().model_copy(update={"findings": [finding]})
    assert is_method_at_work(run, unread)


@pytest.mark.parametrize(("opened", "expected"), [(True, True), (False, False), (None, True)])
def test_no_method_is_at_work_where_no_model_was_opened(opened: bool | None, expected: bool) -> None:
    """Null: the trace cannot tell, and nobody is blamed for it."""
    assert is_method_at_work(conversation(), audit_record().model_copy(update={"model_opened": opened})) is expected


def measured(verdict: EffectVerdict) -> DetailReport:
    """Records of a run that has everything, task score 0.8, and this effect of the case."""
    return detail_report(effect=Effect(verdict=verdict, reason="own 0.41, others 0.40", n=16, own=0.41, other=0.40))


def decided(confirmed: bool) -> AuditRecord:
    decision = Decision(
        decision="uphold", by="A. Person", date="2026-01-31", why="read it", confirmed_no_inference=confirmed
    )
    return audit_record().model_copy(update={"decision": decision})


FULL = judge_record(1.0, 1.0, 1.0)
NO_MODEL = audit_record().model_copy(update={"model_opened": False})
EFFECTS: list[tuple[str, EffectVerdict, EffectRule, AuditRecord, tuple[float, ...], str, bool]] = [
    # id, measured, rule, audit, (S2, S3, S4, S5, agentic, task), medal, marked
    # By hand: 0.25·1 + 0.15·1 + 0.35·0 + 0.15·0.3 + 0.10·0.5 = 0.25 + 0.15 + 0.045 + 0.05 = 0.495.
    ("none", "none", "counted", audit_record(), (1, 0, 0.3, 0.5, 0.495, 0.8), "fail", True),
    # And 0.15·0.2 = 0.03 in place of 0.15: 0.375.
    ("none, no model opened", "none", "counted", NO_MODEL, (0.2, 0, 0.3, 0.5, 0.375, 0.8), "fail", True),
    ("unclear", "unclear", "counted", NO_MODEL, (1, 1, 1, 1, 1, 0.8), "okay", False),
    ("shown", "shown", "counted", NO_MODEL, (1, 1, 1, 1, 1, 0.8), "okay", False),
    ("shown only", "none", "shown_only", NO_MODEL, (1, 1, 1, 1, 1, 0.8), "okay", True),
    # An operator's decision holds against the measure, and takes the task score (track-vqa.md D.8).
    ("confirmed", "none", "counted", decided(True), (1, 0, 0.3, 0.5, 0.495, 0), "fail", True),
    ("confirmed against the measure", "shown", "counted", decided(True), (1, 0, 0.3, 0.5, 0.495, 0), "fail", True),
    ("confirmed where it is shown only", "none", "shown_only", decided(True), (1, 0, 0.3, 0.5, 0.495, 0), "fail", True),
    ("lifted", "none", "counted", decided(False), (1, 1, 1, 1, 1, 0.8), "okay", False),
]


@pytest.mark.parametrize(
    ("verdict", "rule", "audit", "numbers", "won", "marked"), [row[1:] for row in EFFECTS], ids=[r[0] for r in EFFECTS]
)
def test_consequences_of_no_effect(
    verdict: EffectVerdict,
    rule: EffectRule,
    audit: AuditRecord,
    numbers: tuple[float, ...],
    won: str,
    marked: bool,
    card: TaskCard,
) -> None:
    """Of a run whose judge gives everything, so that each number is the limit itself."""
    row = score(card, detail=measured(verdict), judge=FULL, audit=audit, effects=rule)
    found = row.scores
    assert (found.s2, found.s3, found.s4, found.s5, found.agentic, found.task) == numbers
    assert (row.medal, row.no_effect, row.effect.verdict, row.recipe.effects) == (won, marked, verdict, rule)
    assert bool(row.stage_limits) == (found.s3 == 0)
    assert found.overall == (0 if audit.confirmed_no_inference else pytest.approx((numbers[4] + numbers[5]) / 2))


@pytest.mark.parametrize(("verdict", "agentic"), [("unclear", 0.375), ("shown", 1.0)])
def test_unclear_effect_of_a_run_that_opened_no_input(verdict: EffectVerdict, agentic: float, card: TaskCard) -> None:
    """Counts as none: 0.25 + 0.15·0.2 + 0.15·0.3 + 0.10·0.5 = 0.375. What was shown stands."""
    run = conversation([call(1, "x", processes=[opened([], OUTPUT)])])
    row = score(card, detail=measured(verdict), judge=FULL, conversation=run)
    assert (row.scores.agentic, row.no_effect) == (agentic, verdict == "unclear")


def test_limits_raise_nothing(card: TaskCard) -> None:
    """By hand, one of two cases missing: S4 would be 0.75, S5's first half is not earned: 0; 0.05 of S2 stays."""
    row = score(
        card,
        detail=measured("none").model_copy(update={"completion_rate": 0.5, "task_score": 0.4}),
        submission=submission_record(V, M),
        judge=judge_record(0.83, 0.05, 0.5),
        audit=NO_MODEL,
    )
    assert (row.scores.s1, row.scores.s2, row.scores.s3, row.scores.s4, row.scores.s5) == (0.83, 0.05, 0, 0.3, 0)


def test_what_a_disqualified_run_earned_is_limited_too(card: TaskCard) -> None:
    row = score(card, detail=measured("none"), judge=FULL, audit=audit_record("disqualified", findings=2))
    assert row.scores == ZERO
    assert row.unpenalised is not None and row.unpenalised.agentic == 0.495


def test_cases_of_a_run(card: TaskCard) -> None:
    detail = detail_report(0.5, track="enhancement", quality_name="ssim", cases=cases("ssim", 0.25, 0.75))
    assert score(card, detail=detail).case_scores == [0.25, 0.75]
    assert score(card).case_scores is None


def test_cases_of_a_disqualified_run_are_zero(card: TaskCard) -> None:
    """As its quality is."""
    detail = detail_report(0.5, track="enhancement", quality_name="ssim", cases=cases("ssim", 0.25, 0.75))
    row = score(card, detail=detail, run=run_record("disqualified"))
    assert (row.case_scores, row.quality) == ([0.0, 0.0], 0.0)


def test_panel_and_its_cost(card: TaskCard) -> None:
    """Every judgement by name and repeat with its valid stages; the judge's cost is not the run's."""
    said = [
        Judgement(judge="one", model="m", repeat=1, criteria=[], stages={"S1": 1.0, "S2": 0.6, "S3": 1.0}),
        Judgement(judge="one", model="m", repeat=2, criteria=[], stages={"S1": 0.66}, invalid={"S2": "no quote"}),
    ]
    judge = judge_record(
        judgements=said,
        spread={"S1": 0.24, "S2": None},
        tokens=Tokens(prompt=900, completion=100, reasoning=50),
        cost_usd="0.0125",
    )
    row = score(card, judge=judge)
    assert row.panel == {"one#1": {"S1": 1.0, "S2": 0.6, "S3": 1.0}, "one#2": {"S1": 0.66}}
    assert row.judge_spread == {"S1": 0.24, "S2": None}
    assert (row.judge_tokens, row.judge_cost_usd, row.totals.cost_usd) == (1000, "0.0125", None)


def test_one_judge_is_no_panel(card: TaskCard) -> None:
    row = score(card)
    assert (row.panel, row.judge_spread, row.judge_tokens, row.judge_cost_usd) == ({}, {}, 0, None)


def test_recipe_names_everything(card: TaskCard) -> None:
    recipe = score(card).recipe
    assert (recipe.task_version, recipe.track_version, recipe.rubric_version) == (1, 3, 101)
    assert (recipe.judge, recipe.judge_kind, recipe.settings) == ("heuristic-1", "heuristic", {"iou_threshold": 0.5})


def test_error_codes_change_no_score(card: TaskCard) -> None:
    crashed = conversation([failing(1, "run()", "ValueError: shapes differ", stage="S4")])
    parts = {"submission": submission_record(V, M), "detail": detail_report(0.4, 0.5, medal="fail")}
    with_code, without = score(card, conversation=crashed, **parts), score(card, **parts)
    assert with_code.error_codes != without.error_codes
    assert with_code.scores == without.scores


def test_missing_judgement_is_an_error(card: TaskCard) -> None:
    with pytest.raises(JudgeError, match="No judgement of S2, S3"):
        score(card, judge=judge_record(stages={"S1": 1.0}))


@pytest.mark.parametrize(
    ("part", "record"),
    [
        ("submission", submission_record(V, V)),
        ("audit", audit_record()),
        ("detail", detail_report()),
        ("judge", judge_record()),
        ("conversation", conversation()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_records_of_another_run(part: str, record: Any, card: TaskCard) -> None:
    other = RUN.model_copy(update={"repeat": 2})
    with pytest.raises(InfrastructureError, match=r"/\d: belongs to run hand-made/bccd-det-task/standard/r2"):
        score(card, **{part: record.model_copy(update={"run": other})})


@pytest.mark.parametrize("versions", [(2, 1), (1, 2), (2, 2)], ids=["run", "detail", "both"])
def test_records_of_another_task_version(versions: tuple[int, int], card: TaskCard) -> None:
    """The card's version is 1."""
    run, detail = versions
    with pytest.raises(InfrastructureError, match=f"made for version {run} of .* scored with version {detail}"):
        score(card, run=run_record(task_version=run), detail=detail_report(task_version=detail))


def test_files(card: TaskCard, tmp_path: Path) -> None:
    records = {
        "run_record": run_record(),
        "submission": submission_record(V, V),
        "audit": audit_record(),
        "detail_report": detail_report(),
        "judge_record": judge_record(),
        "conversation": conversation(),
    }
    for name, record in records.items():
        (tmp_path / f"{name}.json").write_text(record.model_dump_json(by_alias=True))
    (tmp_path / "decision.yaml").write_text("[]")
    places = {name.removesuffix("_record") + ".json": tmp_path / f"{name}.json" for name in records}
    found = score_from_files(card, places.__getitem__)
    assert found.model_copy(update={"sources": score(card).sources}) == score(card)
    digests = {name: hashlib.sha256((tmp_path / f"{name}.json").read_bytes()).hexdigest() for name in records}
    assert found.sources == {
        "run.json": digests["run_record"],
        "submission.json": digests["submission"],
        "audit.json": digests["audit"],
        "detail_report.json": digests["detail_report"],
        "judge.json": digests["judge_record"],
        "conversation.json": digests["conversation"],
        "decision.yaml": hashlib.sha256(b"[]").hexdigest(),
    }
