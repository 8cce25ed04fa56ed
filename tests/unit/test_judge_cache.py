"""Answers of judges are paid once: what they depend on, what a repeat is, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hand_made_runs import PLAN, conversation
from panel_fakes import FakeEndpoint, Request, Speech, answer, fake_panel, says

from automedbench.base.errors import InfrastructureError, JudgeError
from automedbench.base.records import Conversation, JudgeRecord, Tokens
from automedbench.judge import judge_run, load_rubric
from automedbench.judge.panel import member as cache_module
from automedbench.judge.rubric import Rubric


@pytest.fixture(scope="module")
def rubric(root: Path) -> Rubric:
    return load_rubric(root / "config/rubrics", "detection")


class Desk:
    """One cache, and judgements that share it."""

    def __init__(self, rubric: Rubric, folder: Path) -> None:
        self.rubric, self.folder = rubric, folder

    def judge(self, *speeches: Speech, talk: Conversation | None = None, **options: Any) -> tuple[JudgeRecord, int]:
        """The record, and how many requests it took."""
        panel, endpoints = fake_panel(*speeches, cache=self.folder, **options)
        with panel:
            record = judge_run(talk or conversation(), self.rubric, "standard", panel)
        return record, requests_of(endpoints)

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("??/*.json"))


def requests_of(endpoints: list[FakeEndpoint]) -> int:
    return sum(len(endpoint.requests) for endpoint in endpoints)


@pytest.fixture
def desk(rubric: Rubric, tmp_path: Path) -> Desk:
    return Desk(rubric, tmp_path / "cache")


def test_an_answer_is_paid_once(desk: Desk) -> None:
    first, n_first = desk.judge(says(1))
    second, n_second = desk.judge(says(0))
    assert (n_first, n_second, len(desk.files)) == (3, 0, 3)
    assert second.stages == first.stages == {"S1": 1.0, "S2": 1.0, "S3": 1.0}
    judgement = second.judgements[0]
    assert (judgement.cached, judgement.requests, judgement.tokens, judgement.cost_usd) == (3, 0, Tokens(), "0")
    assert second.criteria == first.criteria


def test_without_a_folder_nothing_is_kept(rubric: Rubric) -> None:
    panel, (endpoint,) = fake_panel(says(1))
    for _ in range(2):
        judge_run(conversation(), rubric, "standard", panel)
    assert len(endpoint.requests) == 6


CHANGED: dict[str, dict[str, Any]] = {
    "model": {"model": "another"},
    "temperature": {"temperature": 0.7},
    "endpoint": {"base_url": "http://127.0.0.1:10/v1"},
    "form": {"structured": "json_object"},
    "plan": {"talk": conversation(plan=PLAN + "\nOne step more.\n")},
    "tokens": {"max_tokens": 2048},
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_what_an_answer_depends_on(change: dict[str, Any], desk: Desk) -> None:
    desk.judge(says(1))
    record, n_requests = desk.judge(says(0), **change)
    asked = 1 if "talk" in change else 3  # the plan is shown to the judges of S1 only
    assert n_requests == asked
    assert record.stages["S1"] == 0.0


def test_the_version_of_the_prompt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.judge(says(1))
    monkeypatch.setattr(cache_module, "PROMPT_VERSION", 999)
    assert desk.judge(says(0))[1] == 3


SAME: dict[str, dict[str, Any]] = {
    "price": {"pricing": {"input": "1", "output": "1", "as_of": "2026-01-01", "source": "x"}},
    "key": {"api_key_env": "ANOTHER_KEY"},
    "time-out": {"request_timeout_s": 5},
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
def test_what_it_does_not_depend_on(change: dict[str, Any], desk: Desk) -> None:
    desk.judge(says(1))
    assert desk.judge(says(0), **change)[1] == 0


def test_repeats_do_not_answer_for_each_other(desk: Desk) -> None:
    """At temperature 0 as well: each repeat is a request of its own, and one more repeat is three more requests."""
    assert desk.judge(says(1), repeats=2)[1] == 6
    assert len(desk.files) == 6
    assert desk.judge(says(0), repeats=3)[1] == 3


def test_members_with_the_same_settings_share_answers(desk: Desk) -> None:
    """The name of a judge is no part of what it is: two names for one model would be one opinion asked twice."""
    _, n_requests = desk.judge(says(1), says(0), model="the-same")
    assert n_requests == 3


def test_only_valid_answers_are_kept(desk: Desk) -> None:
    with pytest.raises(JudgeError):
        desk.judge(lambda _request: "nonsense")
    assert desk.files == []


def test_the_repaired_answer_is_kept(desk: Desk) -> None:
    def speech(request: Request) -> str:
        return answer(request.stage) if request.number % 3 == 0 else "nonsense"

    assert desk.judge(speech)[1] == 9
    assert desk.judge(speech)[1] == 0


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "cut": lambda path: path.write_text(path.read_text()[:40]),
    "empty": lambda path: path.write_text(""),
    "another answer": lambda path: path.write_text(path.read_text().replace("I choose Otsu", "I chose nothing")),
    "another record": lambda path: path.write_text('{"schema": "automedbench/answer-verdict/1"}'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_as_good_as_none(damage: Callable[[Path], Any], desk: Desk) -> None:
    desk.judge(says(1))
    (kept,) = [path for path in desk.files if '"stage": "S1"' in path.read_text()]
    damage(kept)
    record, n_requests = desk.judge(says(0))
    assert (n_requests, record.stages["S1"], record.stages["S2"]) == (1, 0.0, 1.0)


@pytest.mark.parametrize("n_answers", range(1, 6))
def test_an_interruption_loses_no_answer(n_answers: int, desk: Desk) -> None:
    """Ctrl-C or a kill after any answer: the next judgement pays for the others only."""

    class Killed(BaseException):
        pass

    def mortal(request: Request) -> str:
        if request.number > n_answers:
            raise Killed
        return answer(request.stage)

    panel, _ = fake_panel(mortal, repeats=2, cache=desk.folder)
    with panel, pytest.raises(Killed):
        judge_run(conversation(), desk.rubric, "standard", panel)
    assert len(desk.files) == n_answers
    record, n_requests = desk.judge(says(1), repeats=2)
    assert n_requests == 6 - n_answers
    assert sum(judgement.cached for judgement in record.judgements) == n_answers


def test_a_failed_member_does_not_cost_the_others_again(desk: Desk) -> None:
    """Member a's S1 is kept when b's endpoint is down; then b's three and a's other two are asked."""
    with pytest.raises(InfrastructureError):
        desk.judge(says(1), lambda _request: InfrastructureError("down"))
    record, n_requests = desk.judge(says(0), says(0))
    assert [judgement.stages["S1"] for judgement in record.judgements] == [1.0, 0.0]
    assert n_requests == 5
