"""Error codes of taxonomy cause-v2 from hand-made runs; definitions in paper-facts.md section 3."""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_made_runs import BATCH, CHECK, PILOT, call, careful_calls, conversation, failing, outputs
from test_scoring import detail_report, run_record, submission_record

from automedbench.cards import TaskCard, load_card
from automedbench.error_codes import error_codes, okay_threshold
from automedbench.records import CodeCall, ErrorCode

V, X, M = "valid", "malformed", "missing"
ONE, TWO = outputs("bccd_0001"), outputs("bccd_0001", "bccd_0002")
NO_TORCH = "Traceback (most recent call last):\n  File 'x'\nModuleNotFoundError: No module named 'torch'"
NO_PIP = "ERROR: No matching distribution found for ultralytics"
NO_WEIGHTS = "FileNotFoundError: [Errno 2] No such file or directory: 'model/w.pt'"
NO_OUTPUT = "FileNotFoundError: [Errno 2] No such file or directory: 'agents_outputs/bccd_0001/prediction.json'"
SHAPES = "Traceback (most recent call last):\nValueError: operands could not be broadcast together"
WROTE = call(1, BATCH, new_files=TWO, stage="S4")
PILOTED = call(1, PILOT, new_files=ONE, stage="S3")


@pytest.fixture(scope="module")
def card(root: Path) -> TaskCard:
    return load_card(root / "config/tasks/detection/bccd-det-task.yaml")


def codes(
    card: TaskCard, calls: list[CodeCall], statuses: list[str], outcome: str = "submitted", quality: float = 0.9
) -> list[ErrorCode]:
    run, submission = run_record(outcome), submission_record(*statuses)
    detail = detail_report(quality, submission.completion_rate)
    return error_codes(run, submission, detail, card, conversation(calls))


ROWS: list[tuple[str, list[CodeCall], list[str], str, float, list[str]]] = [
    # id, calls, statuses, outcome, quality, expected code@stage
    ("clean and successful", careful_calls(), [V, V], "submitted", 0.9, []),
    ("successful without a check", [WROTE], [V, V], "submitted", 0.9, []),
    ("a failure that was repaired", [failing(1, "x", SHAPES), call(2, BATCH, new_files=TWO)], [V, V], "submitted", 0.9,
     []),
    ("harmless failure at the end", [WROTE, failing(2, "plot()", SHAPES)], [V, V], "submitted", 0.9, []),
    # E5
    ("did nothing", [], [M, M], "stopped", 0.0, ["E5@S4", "E5@S5"]),
    ("complete but never submitted", [WROTE], [V, V], "stopped", 0.9, ["E5@S5"]),
    ("one missing", careful_calls(), [V, M], "submitted", 0.9, ["E5@S4"]),
    # E2
    ("package missing at the end", [failing(1, "import torch", NO_TORCH)], [M, M], "stopped", 0.0,
     ["E2@S2", "E5@S4", "E5@S5"]),
    ("installing failed at the end", [failing(1, "pip install ultralytics", NO_PIP, language="bash")], [M, M],
     "submitted", 0.0, ["E2@S2", "E5@S4"]),
    ("weights missing at the end", [failing(1, "torch.load('model/w.pt')", NO_WEIGHTS)], [M, M], "submitted", 0.0,
     ["E2@S2", "E5@S4"]),
    ("package missing, then without it", [failing(1, "import torch", NO_TORCH), call(2, BATCH, new_files=TWO)],
     [V, M], "submitted", 0.9, ["E5@S4"]),
    # E4
    ("crash in the full run", [PILOTED, failing(2, BATCH, SHAPES, stage="S4")], [V, M], "submitted", 0.9,
     ["E4@S4", "E5@S4"]),
    ("time-out in the full run", [call(1, BATCH, status="timeout", exit_code=None, new_files=ONE, stage="S4")], [V, M],
     "time_limit", 0.9, ["E4@S4", "E5@S4", "E5@S5"]),
    ("killed", [call(1, BATCH, status="killed", exit_code=None, stage="S4")], [M, M], "out_of_memory", 0.0,
     ["E4@S4", "E5@S4", "E5@S5"]),
    ("crash, then only looking around", [failing(1, BATCH, SHAPES, stage="S4"), call(2, "ls", language="bash")], [M, M],
     "submitted", 0.0, ["E4@S4", "E5@S4"]),
    ("own output missing is no set-up failure", [failing(1, CHECK, NO_OUTPUT, stage="S3")], [M, M], "submitted", 0.0,
     ["E4@S3", "E5@S4"]),
    ("refused code is no crash", [call(1, BATCH, status="refused", exit_code=None)], [M, M], "stopped", 0.0,
     ["E5@S4", "E5@S5"]),
    # E3
    ("poor and never checked", [WROTE], [V, V], "submitted", 0.1, ["E3@S3"]),
    ("poor although checked", careful_calls(), [V, V], "submitted", 0.1, []),
    ("exactly okay", [WROTE], [V, V], "submitted", 0.6, []),
    ("malformed and never checked", [WROTE], [V, X], "submitted", 0.9, ["E3@S3", "E5@S4"]),
    ("malformed although checked", careful_calls(), [V, X], "submitted", 0.9, ["E5@S4"]),
    ("nothing there to check", [], [M, M], "submitted", 0.0, ["E5@S4"]),
    # several
    ("crash, poor, never submitted", [PILOTED, failing(2, BATCH, SHAPES, stage="S4")], [V, M], "turn_limit", 0.1,
     ["E3@S3", "E4@S4", "E5@S4", "E5@S5"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "statuses", "outcome", "quality", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_codes(
    calls: list[CodeCall], statuses: list[str], outcome: str, quality: float, expected: list[str], card: TaskCard
) -> None:
    found = codes(card, calls, statuses, outcome, quality)
    assert [f"{code.code}@{code.stage}" for code in found] == expected


def test_evidence_is_the_line_that_shows_it(card: TaskCard) -> None:
    found = codes(card, [PILOTED, failing(2, BATCH, SHAPES, stage="S4")], [V, M], "turn_limit", 0.1)
    evidence = {f"{code.code}@{code.stage}": code.evidence for code in found}
    assert evidence["E4@S4"] == "turn 2, error: ValueError: operands could not be broadcast together"
    assert evidence["E5@S4"] == "1 of 2 outputs missing or malformed; bccd_0002: missing"
    assert evidence["E5@S5"] == "never submitted (turn_limit): made by hand"
    assert evidence["E3@S3"] == "no code read an output back; map50 0.1000, okay begins at 0.6"


def test_long_message_is_cut(card: TaskCard) -> None:
    found = codes(card, [failing(1, "x()", "ValueError: " + "y" * 5000, stage="S4")], [M])
    assert max(len(code.evidence) for code in found) == 300


def test_silent_failure_has_evidence_too(card: TaskCard) -> None:
    found = codes(card, [failing(1, "x()", "", stage="S4")], [M])
    assert found[0].evidence == "turn 1, error: no message"


def test_task_understanding_is_never_guessed(card: TaskCard) -> None:
    for row in ROWS:
        assert "E1" not in {code.code for code in codes(card, *row[1:5])}


def test_okay_threshold(card: TaskCard) -> None:
    assert okay_threshold(card, "map50") == 0.6  # the card's lower medal
    assert okay_threshold(card, "ssim") is None
