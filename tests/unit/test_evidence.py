"""What a judge may see, and when a quote counts."""

from __future__ import annotations

import pytest
from hand_made_runs import BRIEF, CHECK, PLAN, call, conversation

from automedbench.base.records import Message
from automedbench.judge.evidence import PLOT_LINE, clip, collect_evidence, file_list, quote_exists, visible

EVIDENCE = collect_evidence(conversation())

QUOTES = [
    # id, quote, turn, exists
    ("empty", "", None, False),
    ("blanks only", "   \n ", None, False),
    ("zero-width only", "\u200b\u200b\u200b\u200b\u200b", None, False),
    ("too short to prove anything", "in", None, False),
    ("from the plan", "I choose Otsu thresholding", None, True),
    ("from the plan, any turn", "I choose Otsu thresholding", 5, True),
    ("from code", "assert set(item) ==", None, True),
    ("from code of that turn", "assert set(item) ==", 5, True),
    ("from code of another turn", "assert set(item) ==", 4, False),
    ("over two lines", 'for item in found["boxes"]: assert set(item)', 5, True),
    ("from output", "14 boxes, all inside", 5, True),
    ("from a note", "I look at one image first.", 1, True),
    ("from the file list", "agents_outputs/bccd_0001/prediction.json (900 bytes)", None, True),
    ("size invented", "agents_outputs/bccd_0001/prediction.json (901 bytes)", None, False),
    ("one letter changed", "I chose Otsu thresholding", None, False),
    ("two places joined", "I choose Otsu thresholding print(len(found", None, False),
    ("only in the brief", "You locate blood cells in images", None, False),
    ("agent's name", "hand-made", None, False),
]


@pytest.mark.parametrize(("quote", "turn", "exists"), [row[1:] for row in QUOTES], ids=[row[0] for row in QUOTES])
def test_quote(quote: str, turn: int | None, exists: bool) -> None:
    assert quote_exists(EVIDENCE, quote, turn) is exists


def test_no_evidence_holds_no_quote() -> None:
    empty = collect_evidence(conversation([], plan=None, has_plot=False, workspace_files={}, messages=[]))
    assert file_list(empty) == ""
    assert not quote_exists(empty, "anything at all")


def test_names_and_scores_are_not_shown() -> None:
    assert set(type(EVIDENCE).model_fields) == {"brief", "plan", "has_plot", "notes", "calls", "files", "n_cases"}
    assert "hand-made" not in EVIDENCE.model_dump_json()


def test_brief_is_what_the_agent_was_told() -> None:
    """What a command agent's program wrote for its model is neither our brief nor the agent's word."""
    messages = [
        Message(turn=0, role="system", content=BRIEF),
        Message(turn=0, role="user", content="Begin."),
        Message(turn=0, role="system", content="You are a program.", by_program=True),
        Message(turn=0, role="assistant", content="Ok.", by_program=True),
        Message(turn=1, role="tool", content="{}"),
        Message(turn=1, role="assistant", content="Good."),
    ]
    evidence = collect_evidence(conversation(messages=messages))
    assert evidence.brief == f"{BRIEF}\nBegin."
    assert [note.content for note in evidence.notes] == ["Good."]


def test_file_list_tells_whether_the_plot_opens() -> None:
    assert PLOT_LINE in file_list(EVIDENCE)
    assert PLOT_LINE not in file_list(collect_evidence(conversation(has_plot=False)))


def test_clipped_text_is_still_a_quote() -> None:
    long = "word " * 200
    evidence = collect_evidence(conversation([call(1, long)]))
    assert len(clip(long)) <= 300
    assert quote_exists(evidence, clip(long), 1)
    assert quote_exists(EVIDENCE, clip(CHECK), 5) and quote_exists(EVIDENCE, clip(PLAN))


def test_visible_drops_what_cannot_be_seen() -> None:
    assert visible("a \u200bb\t\u202ec\x00\ufeffd") == "abcd"
