"""Error codes of taxonomy cause-v2 from hand-made runs; definitions in paper-facts.md section 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from failed_runs import case, codes_of, found_by
from hand_made_runs import BATCH, CHECK, PILOT, call, careful_calls, conversation, failing, outputs
from test_scoring import decided, detail_report, judge_record, run_record, submission_record

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.records import CodeCall, Effect, ErrorCode, Message
from automedbench.scoring.codes import detectors, error_codes, merge_codes
from automedbench.scoring.codes.facts import MAX_EVIDENCE
from automedbench.scoring.codes.taxonomy import CODES
from automedbench.tracks import okay_threshold, track_names

V, X, M = "valid", "malformed", "missing"
ONE, TWO = outputs("bccd_0001"), outputs("bccd_0001", "bccd_0002")
NO_TORCH = "Traceback (most recent call last):\n  File 'x'\nModuleNotFoundError: No module named 'torch'"
NO_PIP = "ERROR: No matching distribution found for ultralytics"
NO_WEIGHTS = "FileNotFoundError: [Errno 2] No such file or directory: 'model/w.pt'"
NO_OUTPUT = "FileNotFoundError: [Errno 2] No such file or directory: 'agents_outputs/bccd_0001/prediction.json'"
NO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
NO_DISK = "OSError: [Errno 28] No space left on device"
SYNTAX = "SyntaxError: '(' was never closed"
ASSERTED = "Traceback (most recent call last):\nAssertionError: bccd_0002 has no boxes"
TRAINED = "[SANDBOX] training: gradient steps on a network's parameters are not allowed"
DOWNLOAD = "from huggingface_hub import hf_hub_download\nhf_hub_download('org/model', 'w.pt')"
NO_HUB = "requests.exceptions.ConnectionError: (MaxRetryError('Max retries exceeded'), 'huggingface.co')"
SHAPES = "Traceback (most recent call last):\nValueError: operands could not be broadcast together"
WROTE = call(1, BATCH, new_files=TWO, stage="S4")
PILOTED = call(1, PILOT, new_files=ONE, stage="S3")


@pytest.fixture(scope="module")
def card(root: Path) -> TaskCard:
    return load_card(root / "config/tasks/detection/bccd-det-task.yaml")


def codes(
    card: TaskCard, calls: list[CodeCall], statuses: list[str], outcome: str = "submitted", quality: float = 0.9
) -> list[ErrorCode]:
    """``quality``: over what is there; of what is missing detection makes 0."""
    run, submission = run_record(outcome), submission_record(*statuses)
    detail = detail_report(
        quality * submission.completion_rate, submission.completion_rate, medal="okay" if quality >= 0.6 else "fail"
    )
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
    ("broke off after a part", [failing(1, BATCH, SHAPES, stage="S4", new_files=ONE)], [V, M], "submitted", 0.9,
     ["E4@S4", "E5@S4"]),
    ("broke off after a part, then looked around",
     [failing(1, BATCH, SHAPES, stage="S4", new_files=ONE), call(2, "ls agents_outputs", language="bash")],
     [V, M, M], "submitted", 0.9, ["E4@S4", "E5@S4"]),
    # E2 by a resource
    ("time-out in the full run", [call(1, BATCH, status="timeout", exit_code=None, new_files=ONE, stage="S4")], [V, M],
     "time_limit", 0.9, ["E2@S4", "E5@S4", "E5@S5"]),
    ("time-out of a call, never repeated", [call(1, BATCH, status="timeout", exit_code=None, stage="S4")], [M, M],
     "submitted", 0.0, ["E2@S4", "E5@S4"]),
    ("time limit of the run although all is there", [WROTE], [V, V], "time_limit", 0.9, ["E2@S4", "E5@S5"]),
    ("time limit before any call", [], [M, M], "time_limit", 0.0, ["E2@S2", "E5@S4", "E5@S5"]),
    ("out of memory", [call(1, BATCH, status="killed", exit_code=None, stage="S4")], [M, M], "out_of_memory", 0.0,
     ["E2@S4", "E5@S4", "E5@S5"]),
    ("GPU out of memory", [failing(1, BATCH, NO_MEMORY, stage="S4")], [M, M], "submitted", 0.0, ["E2@S4", "E5@S4"]),
    ("GPU out of memory in a library",
     [failing(1, BATCH, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", stage="S4")],
     [M, M], "submitted", 0.0, ["E2@S4", "E5@S4"]),
    ("GPU out of memory, then smaller", [failing(1, BATCH, NO_MEMORY), call(2, BATCH, new_files=TWO)], [V, V],
     "submitted", 0.9, []),
    ("disk full", [failing(1, BATCH, NO_DISK, stage="S4")], [M, M], "out_of_disk", 0.0, ["E2@S4", "E5@S4", "E5@S5"]),
    ("disk full, run goes on", [failing(1, BATCH, NO_DISK, stage="S4")], [M, M], "submitted", 0.0, ["E2@S4", "E5@S4"]),
    ("turn limit is no resource", [WROTE], [V, V], "turn_limit", 0.9, ["E5@S5"]),
    ("killed by a rule of the sandbox",
     [failing(1, BATCH, TRAINED, stage="S4").model_copy(update={"status": "killed"})], [M, M], "stopped", 0.0,
     ["E5@S4", "E5@S5"]),
    ("fault of the harness", [call(1, BATCH, status="harness_error", exit_code=None)], [M, M], "stopped", 0.0,
     ["E5@S4", "E5@S5"]),
    # E2 that was worked around badly
    ("download failed, done without, poor",
     [failing(1, DOWNLOAD, NO_HUB), call(2, BATCH, new_files=TWO), call(3, CHECK)], [V, V], "submitted", 0.3,
     ["E2@S2"]),
    ("download failed behind a pipe, poor",
     [call(1, "pip install ultralytics 2>&1 | tail -2", language="bash", stdout=NO_PIP),
      call(2, BATCH, new_files=TWO), call(3, CHECK)], [V, V], "submitted", 0.3, ["E2@S2"]),
    ("download failed, done without, good", [failing(1, DOWNLOAD, NO_HUB), call(2, BATCH, new_files=TWO)], [V, V],
     "submitted", 0.9, []),
    ("download failed, then worked, poor",
     [failing(1, DOWNLOAD, NO_HUB), call(2, DOWNLOAD), call(3, BATCH, new_files=TWO), call(4, CHECK)], [V, V],
     "submitted", 0.3, []),
    ("a missing module that nothing needed, poor",
     [failing(1, "import cv2", NO_TORCH), call(2, BATCH, new_files=TWO), call(3, CHECK)], [V, V], "submitted", 0.3, []),
    ("crash, then only looking around", [failing(1, BATCH, SHAPES, stage="S4"), call(2, "ls", language="bash")], [M, M],
     "submitted", 0.0, ["E4@S4", "E5@S4"]),
    ("own output missing is no set-up failure", [failing(1, CHECK, NO_OUTPUT, stage="S3")], [M, M], "submitted", 0.0,
     ["E3@S3", "E5@S4"]),
    ("harmless failure after a part", [PILOTED, failing(2, "plot()", SHAPES)], [V, M], "submitted", 0.9, ["E5@S4"]),
    ("broken code that would have written", [failing(1, "for case in ('agents_outputs'", SYNTAX, stage="S4")],
     [M, M], "submitted", 0.0, ["E4@S4", "E5@S4"]),
    ("refused code is no crash", [call(1, BATCH, status="refused", exit_code=None)], [M, M], "stopped", 0.0,
     ["E5@S4", "E5@S5"]),
    # E3
    ("poor and never read", [WROTE], [V, V], "submitted", 0.3, ["E3@S3"]),
    ("far below okay and never read", [WROTE], [V, V], "submitted", 0.1, ["E3@S3", "E3@S4"]),
    ("poor although checked", careful_calls(), [V, V], "submitted", 0.3, []),
    ("poor, an output was shown", [WROTE, call(2, "cat agents_outputs/bccd_0001/prediction.json", language="bash")],
     [V, V], "submitted", 0.3, []),
    ("poor, outputs were only listed", [WROTE, call(2, "ls -la agents_outputs", language="bash")], [V, V],
     "submitted", 0.3, ["E3@S3"]),
    ("what is missing is not poor", [WROTE], [V, M], "submitted", 0.7, ["E5@S4"]),
    ("a check failed and nothing was done", [WROTE, failing(2, CHECK, ASSERTED, stage="S3")], [V, X], "submitted", 0.9,
     ["E3@S3", "E5@S4"]),
    ("the check was at fault and ends well now",
     [WROTE, failing(2, CHECK, ASSERTED, stage="S3"), call(3, CHECK, stage="S3")], [V, X], "submitted", 0.9,
     ["E5@S4"]),
    ("a check failed and outputs were written again", [WROTE, failing(2, CHECK, ASSERTED, stage="S3"),
     call(3, BATCH, new_files=TWO), call(4, CHECK)], [V, X], "submitted", 0.9, ["E5@S4"]),
    ("exactly okay", [WROTE], [V, V], "submitted", 0.6, []),
    ("malformed and never read", [WROTE], [V, X], "submitted", 0.9, ["E3@S3", "E5@S4"]),
    ("malformed although checked", careful_calls(), [V, X], "submitted", 0.9, ["E5@S4"]),
    ("nothing there to check", [], [M, M], "submitted", 0.0, ["E5@S4"]),
    # several
    ("crash, poor, never submitted", [PILOTED, failing(2, BATCH, SHAPES, stage="S4")], [V, M], "turn_limit", 0.3,
     ["E3@S3", "E4@S4", "E5@S4", "E5@S5"]),
    ("missing and malformed", careful_calls(), [V, M, X], "submitted", 0.9, ["E5@S4", "E5@S4"]),
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
    found = codes(card, [PILOTED, failing(2, BATCH, SHAPES, stage="S4")], [V, M], "turn_limit", 0.3)
    assert [(code.detector, code.turn, code.evidence) for code in found] == [
        ("verify.unread_poor", None, "no code read an output back; map50 0.3000, okay begins at 0.6"),
        ("execute.unrepaired", 2, "error: ValueError: operands could not be broadcast together"),
        ("deliver.missing", None, "1 of 2 outputs missing; bccd_0002: missing"),
        ("deliver.never_submitted", None, "never submitted (turn_limit): made by hand"),
    ]


def test_run_that_broke_off_says_how_far_it_came(card: TaskCard) -> None:
    found = codes(card, [failing(4, BATCH, SHAPES, stage="S4", new_files=ONE)], [V, M, M])
    assert found[0].evidence == (
        "broke off after 1 of 3 cases; error: ValueError: operands could not be broadcast together"
    )


def test_long_message_is_cut(card: TaskCard) -> None:
    found = codes(card, [failing(1, "x()", "ValueError: " + "y" * 5000, stage="S4")], [M])
    assert max(len(code.evidence) for code in found) == MAX_EVIDENCE == 300  # limit of the record


def test_silent_failure_has_evidence_too(card: TaskCard) -> None:
    found = codes(card, [failing(1, "x()", "", stage="S4")], [M])
    assert found[0].evidence == "error: no message"


def test_task_understanding_is_never_guessed(card: TaskCard) -> None:
    for row in ROWS:
        assert "E1" not in {code.code for code in codes(card, *row[1:5])}


def test_okay_threshold(card: TaskCard) -> None:
    assert okay_threshold(card, "map50") == 0.6  # the card's lower medal
    assert okay_threshold(card, "ssim") is None


# --- refused submissions, misplaced files -----------------------------------------------------------------------


def answer(turn: int, accepted: bool, invalid: int | None) -> Message:
    """What submit_results answers (docs/specification.md, 8.2)."""
    content = {"accepted": accepted, "missing": [], "missing_count": 1, "invalid_count": invalid}
    return Message(turn=turn, role="tool", content=json.dumps(content))


REFUSALS: list[tuple[str, list[Message], list[CodeCall], bool]] = [
    # id, answers of submit_results, calls, E3
    ("told and nothing done", [answer(3, False, 2), answer(4, True, None)], [WROTE], True),
    ("told twice and nothing done", [answer(3, False, 2), answer(4, False, 2), answer(5, True, None)], [WROTE], True),
    ("told and written again", [answer(3, False, 2), answer(5, True, None)],
     [WROTE, call(4, BATCH, new_files=TWO)], False),
    ("only told of missing files", [answer(3, False, 0), answer(4, True, None)], [WROTE], False),
    ("the form was not looked at", [answer(3, False, None), answer(4, True, None)], [WROTE], False),
    ("accepted at once", [answer(3, True, None)], [WROTE], False),
    ("output of code that looks like it", [Message(turn=3, role="tool", content='say "accepted": false')], [], False),
    ("text of the agent that looks like it",
     [Message(turn=3, role="assistant", content='{"accepted": false, "invalid_count": 2}')], [], False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "calls", "fires"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_refusal_ignored(messages: list[Message], calls: list[CodeCall], fires: bool) -> None:
    cases = [case("bccd_0001", "json", status="malformed"), case("bccd_0002", "json", status="malformed")]
    code = found_by(codes_of("detection", cases, messages=messages, calls=calls), "verify.refusal_ignored")
    assert (code is not None) == fires
    if code is not None:
        assert (code.stage, code.turn) == ("S5", 3)
        assert code.evidence == "told of 2 malformed outputs, then submitted without writing any again"


PLACES: list[tuple[str, str, list[str], str]] = [
    # id, track, files of the workspace, file that is named (empty: none)
    ("nothing", "detection", [], ""),
    ("only the plan", "detection", ["plan/plan.md"], ""),
    ("another folder", "detection", ["outputs/c1/prediction.json"], "outputs/c1/prediction.json"),
    ("below the workspace itself", "detection", ["c1/prediction.json"], "c1/prediction.json"),
    ("another name", "detection", ["agents_outputs/c1/boxes.json"], "agents_outputs/c1/boxes.json"),
    ("a flat folder of results", "detection", ["results/c1.json"], "results/c1.json"),
    ("no folder of results", "detection", ["cache/c1.json"], ""),
    ("another kind of file", "detection", ["agents_outputs/c1/prediction.txt"], ""),
    ("of another case", "detection", ["outputs/c9/prediction.json"], ""),
    ("volumes of another name", "segmentation", ["agents_outputs/c1/mask.nii.gz"], "agents_outputs/c1/mask.nii.gz"),
    ("not compressed", "segmentation", ["agents_outputs/c1/dseg.nii"], ""),
    ("compressed, but no volume", "segmentation", ["agents_outputs/c1/scores.csv.gz"], ""),
    ("the table elsewhere", "classification", ["predictions.csv"], "predictions.csv"),
    ("a table of another name", "classification", ["agents_outputs/labels.csv"], "agents_outputs/labels.csv"),
    ("a table that is no result", "classification", ["data/labels.csv"], ""),
]


@pytest.mark.parametrize(("track", "files", "named"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_wrong_place(track: str, files: list[str], named: str) -> None:
    cases = [case("c1", status="missing"), case("c2", status="missing")]
    code = found_by(codes_of(track, cases, files=files), "deliver.wrong_place")
    assert (code.evidence.split(" but ")[1].split(" is there")[0] if code else "") == named


def test_wrong_place_counts_and_names_the_turn() -> None:
    files = ["out/c1/prediction.json", "out/c2/prediction.json"]
    cases = [case(name, status="missing") for name in ("c1", "c2", "c3")]
    code = found_by(
        codes_of("detection", cases, files=files, calls=[call(7, "x", new_files=files)]), "deliver.wrong_place"
    )
    assert code is not None
    assert (code.code, code.stage, code.turn) == ("E5", "S4", 7)
    assert code.evidence == (
        "agents_outputs/c1/prediction.json is missing, but out/c1/prediction.json is there, and 1 more alike"
    )


def test_what_a_failed_call_left_behind_is_not_misplaced() -> None:
    left = ["agents_outputs/unfinished.csv"]
    calls = [failing(1, "x", SHAPES, new_files=left)]
    found = codes_of("classification", [case("c1", status="missing")], files=left, calls=calls)
    assert found_by(found, "deliver.wrong_place") is None
    assert found_by(found, "execute.partial") is not None


def test_valid_outputs_are_not_looked_for_elsewhere() -> None:
    """A copy of a file that was delivered is nobody's fault."""
    files = ["agents_outputs/c1/prediction.json", "backup/c1/prediction.json"]
    found = codes_of("detection", [case("c1"), case("c2", status="missing")], files=files)
    assert found_by(found, "deliver.wrong_place") is None


# --- clean runs, judges, merging --------------------------------------------------------------------------------


def error(code: Any, stage: Any, source: Any = "rule", detector: str = "d") -> ErrorCode:
    return ErrorCode(code=code, stage=stage, evidence=f"{code} {stage} {source}", source=source, detector=detector)


MERGES: list[tuple[str, list[ErrorCode], list[ErrorCode], list[str]]] = [
    ("nothing", [], [], []),
    ("only a judge", [], [error("E1", "S1", "judge")], ["E1 S1 judge"]),
    ("the rule wins", [error("E3", "S3")], [error("E3", "S3", "judge")], ["E3 S3 rule"]),
    ("another stage is added", [error("E3", "S3")], [error("E3", "S4", "judge")], ["E3 S3 rule", "E3 S4 judge"]),
    ("another code is added", [error("E5", "S4")], [error("E1", "S4", "judge")], ["E1 S4 judge", "E5 S4 rule"]),
    ("a judge says it once", [], [error("E1", "S1", "judge"), error("E1", "S1", "judge")], ["E1 S1 judge"]),
    ("rules of one stage stay", [error("E5", "S4"), error("E5", "S4")], [], ["E5 S4 rule", "E5 S4 rule"]),
    ("by stage, then code", [error("E5", "S5"), error("E4", "S4"), error("E2", "S4")], [error("E3", "S1", "judge")],
     ["E3 S1 judge", "E2 S4 rule", "E4 S4 rule", "E5 S5 rule"]),
    ("a judge that calls itself a rule", [], [error("E1", "S1")], ["E1 S1 rule"]),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "judge", "expected"), [row[1:] for row in MERGES], ids=[row[0] for row in MERGES])
def test_merge(rules: list[ErrorCode], judge: list[ErrorCode], expected: list[str]) -> None:
    merged = merge_codes(rules, judge)
    assert [code.evidence for code in merged] == expected
    assert all(code.source == "judge" for code in merged if code not in rules)


def test_judge_adds_what_no_rule_found() -> None:
    judge = judge_record(error_codes=[error("E1", "S1", "judge", "judge-a"), error("E5", "S4", "judge", "judge-a")])
    found = codes_of("detection", [case("c1", status="missing")], judge=judge)
    assert [(code.code, code.stage, code.detector) for code in found] == [
        ("E1", "S1", "judge-a"),
        ("E5", "S4", "deliver.missing"),
    ]


def test_clean_run_has_no_codes_whatever_a_judge_says() -> None:
    """Paper: clean successful runs get none. What the judge said stays in judge.json."""
    judge = judge_record(error_codes=[error("E1", "S1", "judge")])
    assert codes_of("detection", [case("c1")], quality=0.7, medal="okay", judge=judge) == []


NONE = Effect(verdict="none", reason="16 of 16 outputs are the input")
UNCLEAN: list[tuple[str, dict[str, Any]]] = [
    ("no medal", {"cases": [case("c1")], "medal": "fail"}),
    ("never submitted", {"cases": [case("c1")], "outcome": "stopped"}),
    ("one malformed", {"cases": [case("c1"), case("c2", "json", status="malformed")]}),
    ("one missing", {"cases": [case("c1"), case("c2", status="missing")]}),
    ("without an effect of the case", {"cases": [case("c1")], "effect": NONE}),
]


@pytest.mark.parametrize("given", [row[1] for row in UNCLEAN], ids=[row[0] for row in UNCLEAN])
def test_what_is_not_clean(given: dict[str, Any]) -> None:
    judge = judge_record(error_codes=[error("E1", "S1", "judge")])
    found = codes_of("synthesis", **({"quality": 0.97, "medal": "okay", "judge": judge} | given))
    assert "E1" in {code.code for code in found}


def test_outputs_that_an_operator_found_to_be_of_a_method_are_clean() -> None:
    given = {"quality": 0.97, "medal": "okay", "effect": NONE}
    assert codes_of("synthesis", [case("c1")], audit=decided(False), **given) == []
    (code,) = codes_of("synthesis", [case("c1")], audit=decided(True), **given)
    assert (code.detector, code.evidence) == (
        "verify.no_effect",
        "A. Person decided that no method was at work: read it",
    )


DETECTORS = detectors(*track_names())


def test_every_code_but_understanding_has_a_detector() -> None:
    assert {detector.code for detector in DETECTORS} == set(CODES) - {"E1"}


def test_detectors_can_be_told_apart() -> None:
    """An id stands once per track; its first part is the same for one code."""
    seen = [(detector.id, detector.track) for detector in DETECTORS]
    assert len(set(seen)) == len(seen)
    families = {detector.id.partition(".")[0]: detector.code for detector in DETECTORS}
    assert families == {"setup": "E2", "verify": "E3", "execute": "E4", "deliver": "E5"}
    assert all(families[detector.id.partition(".")[0]] == detector.code for detector in DETECTORS)


def test_every_code_has_its_texts() -> None:
    for code, text in CODES.items():
        assert text.code == code and text.title and text.meaning
        assert text.stages
