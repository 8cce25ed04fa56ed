"""Figures of ``automedbench judge-eval`` on examples small enough to compute by hand, and the command itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from panel_fakes import answer, judge_model

from automedbench.base.errors import ConfigError, InfrastructureError, JudgeError
from automedbench.base.records import Conversation, Criterion, Effect, JudgedStage, Judgement, JudgeRecord, Tier, Tokens
from automedbench.commands import main
from automedbench.commands.judge_eval import disagreement_lines, measure, report_lines
from automedbench.judge import load_rubric
from automedbench.judge.gold import (
    GoldTranscript,
    binary_figures,
    evaluate,
    expected_stages,
    judge_transcript,
    level_figures,
    verdict_pairs,
)
from automedbench.judge.rubric import Rubric, settle_verdicts, stage_score
from automedbench.judge.rules import HeuristicJudge
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

WEIGHTS: dict[JudgedStage, float] = {"S1": 0.25, "S2": 0.15, "S3": 0.35}
LITE = ("s1a", "s1b", "s1c", "s2a", "s2b", "s2c", "s2d", "s2e", "s3")


@pytest.fixture(scope="module")
def rubric(root: Path) -> Rubric:
    return load_rubric(root / "config/rubrics", "detection")


def gold(name: str, **verdicts: float) -> GoldTranscript:
    """A lite transcript that earns what is given, and nothing else."""
    expected = {item: {"verdict": verdicts.get(item, 0), "reason": "a person said so"} for item in LITE}
    return GoldTranscript.model_validate(
        {
            "id": name,
            "track": "detection",
            "tier": "lite",
            "quality": "good",
            "split": "dev",
            "n_cases": 9,
            "effect": "shown",
        }
        | {"why": "a transcript of a test", "calls": [], "expected": expected}
    )


def record(rubric: Rubric, tier: Tier, verdicts: dict[str, float], **changes: Any) -> JudgeRecord:
    """What a judge that gives these verdicts leaves."""
    given = {
        rule.id: Criterion(id=rule.id, stage=rule.stage, verdict=verdicts.get(rule.id, 0), reason="so it is")
        for rule in rubric.judged(tier)
    }
    criteria = settle_verdicts(given, rubric, tier, gpu=True)
    stages: dict[JudgedStage, float] = {stage: stage_score(criteria, stage) for stage in WEIGHTS}
    fields: dict[str, Any] = {
        "run": gold("x").conversation.run,
        "judge": "fake",
        "kind": "llm",
        "rubric_version": rubric.version,
        "criteria": criteria,
        "stages": stages,
        "tokens": Tokens(prompt=100, completion=10),
        "cost_usd": "0.25",
    }
    return JudgeRecord.model_validate(fields | changes)


def always(verdicts: dict[str, float], **changes: Any) -> Any:
    def ask(_talk: Conversation, rubric: Rubric, tier: Tier, _plot: bytes | None, _effect: Effect) -> JudgeRecord:
        return record(rubric, tier, verdicts, **changes)

    return ask


def failing(error: Exception) -> Any:
    def ask(*_: object) -> JudgeRecord:
        raise error

    return ask


# --- one criterion --------------------------------------------------------------------------------------------

BINARY = [
    # id, (expected, given) …, hits, extra, missed, zeros, precision, recall, F1, accuracy
    ("no answers", [], 0, 0, 0, 0, None, None, None, None),
    ("all right", [(1, 1), (0, 0)], 1, 0, 0, 1, 1, 1, 1, 1),
    ("never earned, never given", [(0, 0)], 0, 0, 0, 1, None, None, None, 1),
    ("never given", [(1, 0), (0, 0)], 0, 0, 1, 1, None, 0, 0, 0.5),
    # Precision 2/3, recall 2/4, F1 = 2·2/(2·2+1+2) = 4/7, accuracy 3/6.
    ("mixed", [(1, 1), (1, 1), (0, 1), (1, 0), (1, 0), (0, 0)], 2, 1, 2, 1, 2 / 3, 1 / 2, 4 / 7, 1 / 2),
    ("means of a panel", [(1, 0.5), (1, 0.49), (0, 0.67)], 1, 1, 1, 0, 1 / 2, 1 / 2, 1 / 2, 1 / 3),
]


@pytest.mark.parametrize(("pairs", "figures"), [(row[1], row[2:]) for row in BINARY], ids=[row[0] for row in BINARY])
def test_figures_of_a_criterion(pairs: list[tuple[float, float]], figures: tuple[Any, ...]) -> None:
    found = binary_figures("s1a", "Plan written", pairs)
    assert (found.hits, found.extra, found.missed, found.right_zeros) == figures[:4]
    assert [found.precision, found.recall, found.f1, found.accuracy] == [
        value if value is None else pytest.approx(value) for value in figures[4:]
    ]


def test_levels() -> None:
    # By hand: exact 2 of 5; MAE (0 + 0 + 0.5 + 1 + 0.25)/5 = 0.35; a mean of 0.25 goes to the lower level.
    found = level_figures("s3", "Checked", [(0, 0), (1, 1), (0.5, 1), (1, 0), (0.5, 0.25)])
    assert (found.n, found.exact, found.mae) == (5, 0.4, pytest.approx(0.35))
    assert found.confusion == [[1, 0, 0], [1, 0, 1], [1, 0, 1]]


def test_no_levels() -> None:
    found = level_figures("s3", "Checked", [])
    assert (found.n, found.exact, found.mae) == (0, None, None)


# --- a judge --------------------------------------------------------------------------------------------------


def test_expected_stages_hold_credits(rubric: Rubric) -> None:
    # By hand, lite: S1 = (1 + 0 + 0 + three credits)/6 = 0.67, S2 = 2/5, S3 = 0.5.
    assert expected_stages(gold("a", s1a=1, s2c=1, s2d=1, s3=0.5), rubric) == {"S1": 0.67, "S2": 0.4, "S3": 0.5}


def test_two_transcripts_by_hand(rubric: Rubric) -> None:
    # The judge gives s1a, s2c and s3 = 1 to both. First: expected s1a, s2c, s2d, s3 = 0.5; second: nothing.
    # S1: errors 0 and 0.67 - 0.5 = 0.17; S2: 0.2 - 0.4 = -0.2 and 0.2; S3: 0.5 and 1.
    # Weighted: 0.25·0 - 0.15·0.2 + 0.35·0.5 = 0.145 and 0.25·0.17 + 0.15·0.2 + 0.35·1 = 0.4225.
    ask = always({"s1a": 1, "s2c": 1, "s3": 1})
    transcripts = [gold("a", s1a=1, s2c=1, s2d=1, s3=0.5), gold("b")]
    found = evaluate(
        "fake", [judge_transcript(item, rubric, ask, "fake") for item in transcripts], WEIGHTS, "all", rubric
    )
    assert [each.exact for each in found.stages] == [0.5, 0, 0, 0]
    figures = {each.stage: (each.n, each.mae, each.bias) for each in found.stages}
    assert figures == {
        "S1": (2, pytest.approx(0.085), pytest.approx(0.085)),
        "S2": (2, pytest.approx(0.2), pytest.approx(0)),
        "S3": (2, pytest.approx(0.75), pytest.approx(0.75)),
        "S1–S3": (2, pytest.approx(0.28375), pytest.approx(0.28375)),
    }
    criteria = {each.id: (each.n, each.hits, each.extra, each.missed) for each in found.criteria}
    assert criteria["s1a"] == (2, 1, 1, 0)
    assert criteria["s2d"] == (2, 0, 0, 1)
    assert criteria["s1d"] == (0, 0, 0, 0), "credited in lite, so nobody is asked"
    assert (found.tokens.prompt, found.cost_usd, found.n_invalid, found.kind) == (200, "0.5", 0, "llm")
    # s2d and s3 of the first, s1a, s2c and s3 of the second.
    assert [(each.transcript, each.criterion) for each in found.disagreements] == [
        ("a", "s2d"), ("a", "s3"), ("b", "s1a"), ("b", "s2c"), ("b", "s3"),
    ]  # fmt: skip


def test_few_transcripts_have_no_interval(rubric: Rubric) -> None:
    """Three equal errors resampled would give an interval of width 0, as if the judge were known exactly."""
    few = [judge_transcript(gold(name), rubric, always({"s3": 1}), "fake") for name in "abc"]
    s3 = evaluate("fake", few, WEIGHTS, "all", rubric).stages[2]
    assert (s3.mae, s3.bias) == (1, 1)
    assert (s3.mae_low, s3.mae_high, s3.bias_low, s3.bias_high) == (None, None, None, None)


def test_intervals_hold_the_figure_and_shrink_to_it(rubric: Rubric) -> None:
    same = [judge_transcript(gold(name), rubric, always({"s3": 1}), "fake") for name in "abcdefghij"]
    s3 = evaluate("fake", same, WEIGHTS, "all", rubric).stages[2]
    assert (s3.mae_low, s3.mae, s3.mae_high) == (1, 1, 1)
    mixed = [
        judge_transcript(gold(name, s3=s3), rubric, always({"s3": 1}), "fake")
        for name, s3 in zip("abcdefghij", (0, 1) * 5, strict=True)
    ]
    s3 = evaluate("fake", mixed, WEIGHTS, "all", rubric).stages[2]
    assert s3.mae_low is not None and s3.mae_high is not None
    assert s3.mae_low < 0.5 < s3.mae_high


def test_failing_judge_is_counted_and_no_zero(rubric: Rubric) -> None:
    judged = [
        judge_transcript(gold("a"), rubric, failing(JudgeError("no valid answer in 3 tries\nmore")), "fake"),
        judge_transcript(gold("b"), rubric, always({}), "fake"),
    ]
    found = evaluate("fake", judged, WEIGHTS, "all", rubric)
    assert (found.n_asked, found.n_invalid, found.invalid_share) == (6, 3, 0.5)
    assert found.invalid[0] == "a S1: no valid answer in 3 tries"
    assert [each.n for each in found.stages] == [1, 1, 1, 1]
    assert {each.n for each in found.criteria if each.id in LITE} == {1}
    unanswered = [each for each in found.disagreements if each.transcript == "a"]
    assert len(unanswered) == len(LITE)
    assert all(each.given is None for each in unanswered)


def test_judge_without_any_answer(rubric: Rubric) -> None:
    found = evaluate(
        "fake", [judge_transcript(gold("a"), rubric, failing(JudgeError("no")), "fake")], WEIGHTS, "all", rubric
    )
    assert (found.kind, found.mean_f1, found.invalid_share) == (None, None, 1)
    assert all(each.mae is None for each in found.stages)


def test_failing_endpoint_is_no_fault_of_the_judge(rubric: Rubric) -> None:
    with pytest.raises(InfrastructureError):
        judge_transcript(gold("a"), rubric, failing(InfrastructureError("the endpoint is down")), "fake")


def test_members_of_a_panel_are_measured_alone(rubric: Rubric) -> None:
    strict, kind = record(rubric, "lite", {}), record(rubric, "lite", {"s3": 1})
    judgements = [
        Judgement(judge="a", model="m", repeat=1, criteria=strict.criteria, stages=strict.stages),
        Judgement(
            judge="b", model="m", repeat=1, criteria=kind.criteria, stages={"S3": 1.0}, invalid={"S1": "x", "S2": "y"}
        ),
    ]
    one = judge_transcript(gold("a"), rubric, always({"s3": 0.5}, judgements=judgements), "panel:a+b")
    found = evaluate("panel:a+b", [one], WEIGHTS, "all", rubric)
    # Six stages were asked of two members, two have no valid answer.
    assert (found.n_asked, found.n_invalid) == (6, 2)
    alone = {each.judge: {one.stage: (one.n, one.bias) for one in each.stages} for each in found.members}
    assert alone["a #1"]["S3"] == (1, 0)
    assert alone["b #1"]["S3"] == (1, 1)
    assert alone["b #1"]["S1"] == (0, None)
    assert {each.judge: each.invalid_share for each in found.members} == {"a #1": 0, "b #1": pytest.approx(2 / 3)}


def test_members_agree_beyond_chance_and_have_a_price(
    rubric: Rubric, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two members, S3 of three transcripts: (0, 0), (1, 1), (1, 0).

    Krippendorff by hand (Do = 2·1/6 = 1/3 over the six paired values; of values 0, 0, 0, 1, 1, 1 the expected
    disagreement is 2·3·3/(6·5) = 3/5): alpha = 1 - (1/3)/(3/5) = 4/9. Expected S3 is 1: mean verdicts 0, 1 and ½
    are exact once in three. a costs 3 · 0.02 USD; one of b's costs is not known.
    """
    verdicts = {"x": (0, 0), "y": (1, 1), "z": (1, 0)}
    costs = {"x": "0.01", "y": "0.01", "z": None}

    def ask(talk: Conversation, rules: Rubric, tier: Tier, judge: object, plot: object, effect: object) -> JudgeRecord:
        assert talk.plan is not None
        given = verdicts[talk.plan]
        criteria = [record(rubric, "lite", {"s3": value}).criteria for value in given]
        weak = [criterion.model_copy(update={"weak": criterion.id == "s3"}) for criterion in criteria[1]]
        judgements = [
            Judgement(judge=name, model="m", repeat=1, criteria=own, stages={"S3": value}, cost_usd=cost)
            for name, own, value, cost in zip("ab", (criteria[0], weak), given, ("0.02", costs[talk.plan]), strict=True)
        ]
        return record(rubric, "lite", {"s3": sum(given) / 2}, judgements=judgements)

    monkeypatch.setattr("automedbench.commands.judge_eval.judge_run", ask)
    transcripts = [gold(name, s3=1).model_copy(update={"plan": name}) for name in verdicts]
    found = measure(transcripts, root / "config/rubrics", HeuristicJudge(), "all")
    s3 = found.stages[2]
    assert (s3.exact, s3.alpha) == (pytest.approx(1 / 3), pytest.approx(4 / 9))
    assert [(each.n_weak, each.cost_usd) for each in found.members] == [(0, "0.06"), (3, None)]
    text = "\n".join(report_lines(found))
    assert "a #1: 0.0% without valid answer, 0 weak quotes (0.0200 USD per judgement)" in text
    assert "b #1: 0.0% without valid answer, 3 weak quotes\n" in text
    assert "weak quotes: 3 verdicts not earned" in text


def test_a_transcript_on_which_a_whole_panel_fails_is_counted(rubric: Rubric) -> None:
    """Its members' answers are not known then, so it counts as three stages without a valid answer."""
    strict = record(rubric, "lite", {})
    judgements = [
        Judgement(judge=name, model="m", repeat=1, criteria=strict.criteria, stages=strict.stages) for name in "ab"
    ]
    judged = [
        judge_transcript(gold("a"), rubric, always({}, judgements=judgements), "panel:a+b"),
        judge_transcript(gold("b"), rubric, failing(JudgeError("nobody gave a valid answer")), "panel:a+b"),
    ]
    found = evaluate("panel:a+b", judged, WEIGHTS, "all", rubric)
    assert (found.n_asked, found.n_invalid) == (9, 3)
    assert found.invalid == [f"b {stage}: nobody gave a valid answer" for stage in ("S1", "S2", "S3")]


def test_unknown_cost_stays_unknown(rubric: Rubric) -> None:
    judged = [
        judge_transcript(gold(name), rubric, always({}, cost_usd=cost), "fake")
        for name, cost in (("a", "1"), ("b", None))
    ]
    assert evaluate("fake", judged, WEIGHTS, "all", rubric).cost_usd is None


def test_pairs_of_a_stage(rubric: Rubric) -> None:
    one = judge_transcript(gold("a", s3=0.5), rubric, always({"s3": 1}), "fake")
    assert verdict_pairs([one], "S3") == [(0.5, 1)]
    assert len(verdict_pairs([one], "S1")) == 3, "without the credited ones"


def test_one_and_many(rubric: Rubric) -> None:
    for names, lines in (
        ("a", ["fake against 1 transcript (split: all)", "s3, 1 verdict: exact", "1 verdict differs"]),
        ("ab", ["fake against 2 transcripts (split: all)", "s3, 2 verdicts: exact", "2 verdicts differ"]),
    ):
        judged = [judge_transcript(gold(name), rubric, always({"s3": 1}), "fake") for name in names]
        found = evaluate("fake", judged, WEIGHTS, "all", rubric)
        text = "\n".join([*report_lines(found), *disagreement_lines(found.disagreements)])
        assert [line for line in lines if line not in text] == []


# --- the command ----------------------------------------------------------------------------------------------


def test_command_prints(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["judge-eval", "--gold", str(root / "config/gold"), "--rubrics", str(root / "config/rubrics")]
    main([*asked, "--track", "vqa", "--verbose"])
    text = capsys.readouterr().out
    main([*asked, "--track", "vqa", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "automedbench/judge-eval/1"
    assert f"against {found['n_transcripts']} transcripts" in text
    assert f"{len(found['disagreements'])} verdicts differ" in text
    assert all(f"{each['transcript']} {each['criterion']}: expected" in text for each in found["disagreements"])


def test_command_measures_a_panel_over_http(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two repeats that give nothing: no stage of a good run is exact. completion() counts 3 + 2 tokens for each of six
    requests; at 1 and 1 USD per million that is 0.00003 USD, or 0.000015 per judgement."""
    (tmp_path / "gold/vqa").mkdir(parents=True)
    shutil.copytree(root / "config/gold/briefs", tmp_path / "gold/briefs")
    shutil.copy(root / "config/gold/vqa/vqa-lite-good.yaml", tmp_path / "gold/vqa")
    monkeypatch.setenv("JUDGE_KEY", "canary")
    answers = [answer(stage, 0, asked=[name for name in LITE if name.startswith(stage.lower())]) for stage in WEIGHTS]
    with ScriptedServer(answers=[Answer(body=completion(text)) for text in answers for _ in range(2)]) as server:
        price = {"input": "1", "output": "1", "as_of": "2026-01-01", "source": "x"}
        judge = judge_model(base_url=server.url, pricing=price).model_dump(mode="json", exclude_unset=True)
        (tmp_path / "judges.yaml").write_text(json.dumps({"judges": {"first": judge}}))
        asked = ["--panel", "first", "--repeats", "2", "--judges", str(tmp_path / "judges.yaml")]
        paths = ["--gold", str(tmp_path / "gold"), "--rubrics", str(root / "config/rubrics")]
        main(["judge-eval", *asked, *paths, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert len(server.requests) == 6
    assert [(each["stage"], each["exact"]) for each in found["stages"][1:3]] == [("S2", 0.0), ("S3", 0.0)]
    assert [(each["judge"], float(each["cost_usd"])) for each in found["members"]] == [
        ("first #1", pytest.approx(0.000015)),
        ("first #2", pytest.approx(0.000015)),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["--track", "vqa2"], "no transcript of track 'vqa2'", id="track"),
        pytest.param(["--track", "vqa", "--gold", "/nowhere"], "contains no", id="gold"),
        pytest.param(["--panel", "nobody"], "--panel nobody: no such judge; there are my-judge$", id="panel"),
    ],
)
def test_command_refuses(options: list[str], message: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    with pytest.raises(ConfigError, match=message):
        main(["judge-eval", *options])


@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_how_often_is_a_number(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["judge-eval", "--repeats", number])
    assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith(f"argument --repeats: '{number}' is not a whole number of at least 1")
    assert len(said) <= 3
