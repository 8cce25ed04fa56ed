"""One run's records as its page holds them: joined, cut to size, and named where they are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import make_call, make_run, make_score, run_records, write_run

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Criterion, Judgement, Message, Model
from automedbench.base.views import CaseView, CaseViews
from automedbench.leaderboard.page.details import RunDetail, cut_text, fair_share, read_detail


def read(folder: Path, **limits: int) -> RunDetail:
    return read_detail(folder, "..", **limits)


def with_messages(records: dict[str, Model], *messages: Message) -> dict[str, Model]:
    """The same records with more messages in the conversation."""
    conversation: Any = records["conversation.json"]
    said = [*conversation.messages, *messages]
    return records | {"conversation.json": conversation.model_copy(update={"messages": said})}


# --- cutting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "total", "each", "expected"),
    [
        pytest.param([], 100, 10, 10, id="nothing"),
        pytest.param([1, 2, 3], 100, 10, 10, id="all fit"),
        pytest.param([1, 2, 300], 100, 1000, 97, id="one large takes the rest"),
        pytest.param([50, 60, 70], 90, 1000, 30, id="equal parts"),
        pytest.param([50, 60, 70], 90, 20, 20, id="limit of one"),
        pytest.param([5, 5], 0, 10, 0, id="no room"),
    ],
)
def test_fair_share(sizes: list[int], total: int, each: int, expected: int) -> None:
    assert fair_share(sizes, total, each) == expected
    assert sum(min(size, expected) for size in sizes) <= total


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        pytest.param("", 0, "", id="empty"),
        pytest.param("abcdef", 6, "abcdef", id="fits"),
        pytest.param("abcdef", 3, "ab\n[… 3 characters left out …]\nf", id="both ends"),
        pytest.param("abc", 0, "\n[… 3 characters left out …]\n", id="no room"),
    ],
)
def test_cut_text(text: str, limit: int, expected: str) -> None:
    assert cut_text(text, limit) == expected


def test_long_transcript_is_cut_and_says_so(tmp_path: Path) -> None:
    calls = [make_call(1, stdout="x" * 5000), make_call(2, stdout="short")]
    folder = write_run(tmp_path, run_records(make_score(), calls=calls))
    detail = read(folder, max_chars=2000, max_cases=10)
    outputs = [call.stdout for turn in detail.turns for call in turn.calls]
    assert "characters left out" in outputs[0] and len(outputs[0]) < 2000
    assert outputs[1] == "short"
    assert [note for note in detail.notes if "cut to" in note and "conversation.json" in note]


def test_default_limit_keeps_a_long_transcript(tmp_path: Path) -> None:
    """300 kB fit into one page."""
    calls = [make_call(turn, stdout="x" * 30_000) for turn in range(1, 11)]
    detail = read(write_run(tmp_path, run_records(make_score(), calls=calls)))
    assert sum(len(call.stdout) for turn in detail.turns for call in turn.calls) == 300_000
    assert not [note for note in detail.notes if "cut" in note]


def test_cut_case_table_keeps_the_bad_ones(tmp_path: Path) -> None:
    """Half of 8 cases are missing; with room for 4 the missing ones are shown."""
    folder = write_run(tmp_path, run_records(make_score(completion_rate=0.5), n_cases=8))
    detail = read(folder, max_cases=4)
    assert [row[1] for row in detail.cases.rows] == ["missing"] * 4
    assert "4 of 8 cases are shown; all of them: detail_report.json" in detail.notes


# --- the transcript ---------------------------------------------------------------------------------------------

ANSWER = {"status": "ok", "exit_code": 0, "stdout": 'forty-"two"\n', "stderr": "", "elapsed_s": 0.1, "remaining_s": 9}


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        pytest.param("[SANDBOX] warning", True, id="something else"),
        pytest.param('output:\nforty-"two"', False, id="the output as text"),
        pytest.param(json.dumps(ANSWER), False, id="the harness's answer"),
        pytest.param(json.dumps(ANSWER | {"warning": "first"}), True, id="the answer with a warning"),
        pytest.param('{"status": "refused", "exit_code": null, "warning": "no"}', True, id="a refusal"),
        pytest.param('{"accepted": true, "missing": []}', True, id="another tool's answer"),
        pytest.param('{"status": "ok"', True, id="not quite JSON"),
    ],
)
def test_output_is_not_shown_twice(tmp_path: Path, content: str, kept: bool) -> None:
    """What a call printed comes back in a tool message; a message that says more stays."""
    records = run_records(make_score(), calls=[make_call(2, stdout='forty-"two"\n')])
    folder = write_run(tmp_path, with_messages(records, Message(turn=2, role="tool", content=content)))
    (turn,) = [turn for turn in read(folder).turns if turn.turn == 2]
    assert (content in [message.content for message in turn.messages if message.role == "tool"]) is kept


# --- records that are missing, broken or large ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("run.json", "detail_report.json", "submission.json", "judge.json", "audit.json", "conversation.json"),
        "case_views.json",
    ],
)
@pytest.mark.parametrize("content", [None, "", "{", '{"schema": "automedbench/other/9"}'])
def test_record_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    folder = write_run(tmp_path, run_records(make_score()))
    (folder / "case_views.json").write_text(empty_views().model_dump_json(by_alias=True))
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    detail = read(folder)
    assert [note.split(" ")[0] for note in detail.notes] == [name]
    assert str(tmp_path) not in detail.model_dump_json(), "a page tells nobody where it was made"


def empty_views() -> CaseViews:
    return CaseViews(run=make_run(), n_cases=1, cases=[])


def test_all_there_needs_no_note(tmp_path: Path) -> None:
    folder = write_run(tmp_path, run_records(make_score()))
    view = CaseView(case="bccd_0001", status="valid", why="the only one")
    views = CaseViews(run=make_run(), n_cases=1, cases=[view])
    (folder / "case_views.json").write_text(views.model_dump_json(by_alias=True))
    detail = read(folder)
    assert detail.notes == []
    assert detail.views == views


def test_score_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path, run_records(make_score()))
    (folder / "score.json").write_text("{")
    with pytest.raises(InfrastructureError, match=r"score\.json"):
        read(folder)


def test_judgements_of_a_panel_come_without_their_criteria(tmp_path: Path) -> None:
    """Their verdicts are the votes of the panel's own criteria."""
    records: Any = run_records(make_score())
    said = Judgement(
        judge="a", model="m", repeat=1, criteria=[Criterion(id="s1a", stage="S1", verdict=1)], stages={"S1": 1}
    )
    records["judge.json"] = records["judge.json"].model_copy(update={"judgements": [said, said]})
    judge = read(write_run(tmp_path, records)).judge
    assert judge is not None
    assert [(each.judge, each.criteria, each.stages) for each in judge.judgements] == [("a", [], {"S1": 1.0})] * 2
    assert judge.criteria
