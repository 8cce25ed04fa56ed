"""Reading what a judge says: one strict answer, or problems; never a number out of anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hand_made_runs import conversation
from hypothesis import given, settings
from hypothesis import strategies as st
from panel_fakes import ASKED, QUOTES, answer, entry

from automedbench.judge import load_rubric
from automedbench.judge.evidence import collect_evidence
from automedbench.judge.panel.structured import JudgeReply, answer_schema, find_answer, read_reply
from automedbench.judge.rubric import Rubric, RubricCriterion
from automedbench.judge.selection import ShownEvidence, select

ROOT = Path(__file__).resolve().parents[2]
RUBRIC: Rubric = load_rubric(ROOT / "config/rubrics", "detection")
QUOTE, TURN = QUOTES["S3"]


def criteria(stage: str) -> list[RubricCriterion]:
    return [rule for rule in RUBRIC.judged("standard") if rule.stage == stage]


SHOWN: ShownEvidence = select(collect_evidence(conversation()), RUBRIC, "S3", 50_000)


def s3(**changes: Any) -> dict[str, Any]:
    """A good answer about S3 with changes of its verdict."""
    return {"criteria": {"s3": entry(1.0, QUOTE, TURN) | changes}, "error_codes": []}


def read(value: Any) -> JudgeReply:
    text = value if isinstance(value, str) else json.dumps(value)
    return read_reply(text, SHOWN, criteria("S3"))


def test_a_good_answer() -> None:
    reply = read(s3())
    assert reply.problems == []
    (criterion,) = reply.criteria
    assert (criterion.id, criterion.stage, criterion.verdict, criterion.quote, criterion.turn, criterion.reason) == (
        *("s3", "S3", 1.0, QUOTE, TURN),
        "because",
    )


GOOD: list[tuple[str, str]] = [
    ("plain", json.dumps(s3())),
    ("blanks around", f"\n {json.dumps(s3())}\n"),
    ("fenced", f"```json\n{json.dumps(s3(), indent=2)}\n```"),
    ("after a thought", f"<think>maybe {json.dumps(s3(verdict=0))}</think>{json.dumps(s3())}"),
    ("after prose", f"I weigh this and that: 1. {json.dumps(s3())} So be it."),
    ("no error codes", json.dumps({"criteria": s3()["criteria"]})),
    ("whole number", json.dumps(s3(verdict=1))),
    ("no turn", json.dumps(s3(turn=None))),
]


@pytest.mark.parametrize("text", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_good_forms(text: str) -> None:
    reply = read(text)
    assert reply.problems == []
    assert reply.criteria[0].verdict == 1.0


def twice(text: str) -> str:
    return text.replace('"verdict": 1.0', '"verdict": 0, "verdict": 1.0')


BAD: list[tuple[str, Any, str]] = [
    ("empty", "", "the answer is empty"),
    ("blanks", " \n", "the answer is empty"),
    ("prose", "Full marks.", "the answer contains no JSON object"),
    ("number", "1", "the answer contains no JSON object"),
    ("null", "null", "the answer contains no JSON object"),
    ("cut", json.dumps(s3())[:-9], "is not JSON"),
    ("two answers", f"{json.dumps(s3(verdict=0))} {json.dumps(s3())}", "is not JSON: Extra data"),
    ("a quoted answer before", f"It says {json.dumps(s3())} but: {json.dumps(s3(verdict=0))}", "is not JSON"),
    ("key twice", twice(json.dumps(s3())), "has the key 'verdict' twice"),
    ("key twice in prose", "So: " + twice(json.dumps(s3())), "has the key 'verdict' twice"),
    ("too deep", "{" + "[" * 100_000 + "}", "is not JSON"),
    ("deep in prose", "x " + '{"criteria":' * 10_000 + "}", "nested too deeply"),
    ("very long", "x" * 200_001, "200,001 characters"),
    ("NaN", json.dumps(s3(verdict=float("nan"))), "criteria.s3.verdict"),
    ("infinite", json.dumps(s3(verdict=float("inf"))), "criteria.s3.verdict"),
    ("between the levels", s3(verdict=0.7), "verdict 0.7 is none of 0, 0.5, 1"),
    ("beyond the levels", s3(verdict=2), "verdict 2 is none of 0, 0.5, 1"),
    ("negative", s3(verdict=-1), "verdict -1 is none of 0, 0.5, 1"),
    ("true", s3(verdict=True), "criteria.s3.verdict"),
    ("text", s3(verdict="1"), "criteria.s3.verdict"),
    ("list as verdict", s3(verdict=[1]), "criteria.s3.verdict"),
    ("null verdict", s3(verdict=None), "criteria.s3.verdict"),
    ("turn as text", s3(turn="5"), "criteria.s3.turn"),
    ("turn as a fraction", s3(turn=5.5), "criteria.s3.turn"),
    ("quote as a list", s3(quote=[QUOTE]), "criteria.s3.quote"),
    ("criteria as a list", {"criteria": [s3()["criteria"]["s3"]], "error_codes": []}, "criteria:"),
    ("no criteria", {"criteria": {}, "error_codes": []}, "criteria.s3: Field required"),
    ("wrong id", {"criteria": {"s9": entry(0)}}, "criteria.s3: Field required"),
    ("one too many", {"criteria": s3()["criteria"] | {"s4": entry(1, QUOTE)}}, "criteria.s4: Extra inputs"),
    ("another key", s3() | {"score": 1}, "score: Extra inputs"),
    ("another key of a verdict", s3(confidence=1), "criteria.s3.confidence: Extra inputs"),
    ("code unknown", s3() | {"error_codes": [{"code": "E9"}]}, "error_codes.0.code"),
    ("no quote", s3(quote=""), "s3: the quote '' is in no text of turn 5"),
    ("no quote for half a verdict", s3(verdict=0.5, quote=""), "s3: the quote '' is in no text of turn 5"),
    ("invented quote", s3(quote="I validated everything"), "s3: the quote 'I validated everything' is in no"),
    ("quote of another turn", s3(turn=4), "is in no text of turn 4"),
    ("quote of the brief", s3(quote="You locate blood cells in images of stained", turn=None), "s3: the quote"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "problem"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_forms(value: Any, problem: str) -> None:
    reply = read(value)
    assert any(problem in item for item in reply.problems), reply.problems
    assert all(criterion.verdict == 0 or not criterion.valid for criterion in reply.criteria)


def test_all_problems_at_once() -> None:
    text = answer("S1", quote="invented by the judge")
    shown = select(collect_evidence(conversation()), RUBRIC, "S1", 50_000)
    reply = read_reply(text, shown, criteria("S1"))
    assert [problem.split(":")[0] for problem in reply.problems] == ASKED["S1"]


def test_an_answer_about_another_stage() -> None:
    assert read(answer("S2")).problems


def test_long_texts_are_cut() -> None:
    reply = read(s3(verdict=0, quote="q" * 5000, reason="r" * 5000))
    assert (len(reply.criteria[0].quote), len(reply.criteria[0].reason)) == (600, 1000)
    assert reply.problems == []


@pytest.mark.parametrize("stage", ["S1", "S2", "S3"])
def test_what_is_asked_for_is_what_is_read(stage: str) -> None:
    """The schema that a model must keep allows exactly the criteria that are read."""
    schema = answer_schema(criteria(stage))
    assert schema["properties"]["criteria"]["required"] == ASKED[stage]
    assert schema["required"] == ["criteria", "error_codes"]


def test_the_verdict_is_written_last() -> None:
    """A model that writes from left to right gives reason and quote before it decides."""
    verdict = answer_schema(criteria("S3"))["properties"]["criteria"]["properties"]["s3"]
    assert list(verdict["properties"]) == ["reason", "quote", "turn", "verdict"]


# --- anything at all --------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["criteria", "s3", "verdict", "quote", "turn", "reason", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(value=JSON)
def test_no_json_passes_by_chance(value: Any) -> None:
    reply = read(json.dumps(value))
    assert reply.problems or all(item.verdict == 0 for item in reply.criteria)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=200), cut=st.integers(0, 300))
def test_no_text_raises(text: str, cut: int) -> None:
    value, problem = find_answer(text + json.dumps(s3())[:cut])
    assert value is None or problem == ""
    read(text)
