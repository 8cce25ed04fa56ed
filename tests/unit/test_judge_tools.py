"""A judge that reads the record by itself: what it is sent, what it may see, and which of its answers count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hand_made_runs import conversation
from panel_fakes import ASKED, QUOTES, USED, Request, answer, fake_panel

from automedbench.base.records import JudgeRecord
from automedbench.judge import judge_run, load_rubric
from automedbench.judge.panel.tools import MAX_ACTIONS


class Looking(Request):
    """A request whose schema is that of an action or an answer."""

    def __init__(self, request: Request) -> None:
        inner = request.schema["properties"]["answer"]["anyOf"][0]
        super().__init__(request.messages, inner, request.number)

    @property
    def seen(self) -> str:
        """What the last look showed."""
        return str(self.messages[-1]["content"])


def judged(root: Path, speech: Any) -> tuple[JudgeRecord, list[Any]]:
    class Opened:
        def __init__(self) -> None:
            self.requests: list[Looking] = []

    kept = Opened()

    def said(request: Any) -> str:
        looking = Looking(request)
        kept.requests.append(looking)
        return str(speech(looking))

    panel, endpoints = fake_panel(said, tools=True)
    endpoints[0].ask = _unread(endpoints[0])  # type: ignore[method-assign]
    with panel:
        return judge_run(
            conversation(), load_rubric(root / "config/rubrics", "detection"), "standard", panel
        ), kept.requests


def _unread(endpoint: Any) -> Any:
    """Requests of this kind have another schema, so the fake's own reading of it is left out."""
    from automedbench.base.endpoint.usage import Billed
    from automedbench.judge.panel.member import JudgeText

    class Plain:
        def __init__(self, messages: Any, schema: Any, number: int) -> None:
            self.messages, self.schema, self.number = list(messages), schema, number

    def ask(messages: Any, schema: Any) -> JudgeText:
        endpoint.requests.append(request := Plain(messages, schema, len(endpoint.requests) + 1))
        return JudgeText(endpoint._speech(request), None, (Billed(USED),))

    return ask


def look(**action: Any) -> str:
    return json.dumps({"action": action, "answer": None})


def test_it_lists_searches_reads_and_answers(root: Path) -> None:
    """Four requests per stage; the quote is a line that it read, and the answer may come in the envelope or bare."""

    def speech(request: Looking) -> str:
        match request.tries:
            case 1:
                assert QUOTES["S3"][0] not in request.text  # nothing is shown before it looks
                return look(tool="search", words="ASSERT SET(ITEM)")
            case 2:
                number = request.seen.split(":")[1].split("|")[-1].strip() if request.stage == "S3" else "1"
                return look(tool="read", **{"text": int(number) if number.isdigit() else 1, "from": 1, "to": 400})
            case 3:
                return look(tool="list")
        given = answer(request.stage, asked=request.asked)
        return given if request.stage == "S1" else json.dumps({"action": None, "answer": json.loads(given)})

    record, requests = judged(root, speech)
    assert record.stages == {"S1": 1.0, "S2": 1.0, "S3": 1.0}
    assert [request.asked for request in requests[::4]] == list(ASKED.values())
    (judgement,) = record.judgements
    assert (judgement.requests, judgement.tokens.prompt) == (12, 12_000)
    found = next(request.seen for request in requests if request.stage == "S3" and request.tries == 2)
    assert "assert set(item)" in found and "| " in found  # as data, in a fence


BAD = {
    "no such tool": ({"tool": "write", "text": 1}, "There is no tool 'write'"),
    "no such text": ({"tool": "read", "text": 9999}, "There is no such text; there are 1 to"),
    "a number that is none": ({"tool": "read", "text": True}, "There is no such text"),
    "no words": ({"tool": "search", "words": " "}, "at least two characters"),
    "nothing found": ({"tool": "search", "words": "canary that is nowhere"}, "0 lines hold it"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_done_is_said(name: str, root: Path) -> None:
    action, told = BAD[name]

    def speech(request: Looking) -> str:
        if request.tries == 1:
            return look(**action)
        assert told in request.seen
        return answer(request.stage, 0, asked=request.asked)

    assert judged(root, speech)[0].stages == {"S1": 0.0, "S2": 0.0, "S3": 0.0}


def test_who_never_stops_looking_is_told_to_answer(root: Path) -> None:
    def speech(request: Looking) -> str:
        if "Answer now" in str(request.messages[-1]["content"]):
            return answer(request.stage, 0, asked=request.asked)
        return look(tool="list")

    record, requests = judged(root, speech)
    assert record.stages["S3"] == 0.0
    assert len(requests) == 3 * (MAX_ACTIONS + 1)


def test_a_quote_that_stands_nowhere_is_no_answer(root: Path) -> None:
    """Asked again as any judge is; the invalid try is what was wasted."""

    def speech(request: Looking) -> str:
        if request.stage == "S3" and request.tries == 1:
            return answer("S3", quote="nobody wrote this line", turn=3)
        return answer(request.stage, asked=request.asked)

    record, _ = judged(root, speech)
    assert record.stages["S3"] == 1.0
    assert record.judgements[0].wasted_tokens.prompt == 1000
