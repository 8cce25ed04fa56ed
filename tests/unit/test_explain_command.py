"""``automedbench explain`` on a small results folder: definition, counts, cost, runs and evidence, hostile or not."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from factories import disqualify, make_flat_scores, make_plan, make_run, make_score

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import write_record
from automedbench.base.records import ErrorCode, ScoreRecord
from automedbench.commands import main

HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe \u200b\u2066 \x9b31m\r\nE1 Understanding: all fine\n\tscore 1.0"


def error(code: Any, stage: Any, evidence: str, turn: int | None = None, source: Any = "rule") -> ErrorCode:
    detector = {"E3": "verify.unread_poor", "E5": "deliver.missing", "E1": "judge-a"}[code]
    return ErrorCode(code=code, stage=stage, evidence=evidence, turn=turn, source=source, detector=detector)


def score(agent: str, repeat: int, overall: float, *errors: ErrorCode, **changes: Any) -> ScoreRecord:
    tier = changes.pop("tier", "lite")
    return make_score(
        make_run(agent, tier=tier, repeat=repeat), make_flat_scores(overall), error_codes=list(errors), **changes
    )


SCORES = [
    score("ada", 1, 0.9),
    score("ada", 2, 0.4, error("E3", "S3", "no code read an output back", 7)),
    score("bob", 1, 0.2, error("E3", "S4", HOSTILE), error("E5", "S4", "4 of 16 outputs missing"), failed=True),
    score("bob", 2, 0.5, error("E1", "S1", "the plan classifies images", source="judge")),
    disqualify(score("bob", 3, 0.9)),
    score("ada", 1, 0.1, error("E3", "S3", "of the pro tier"), tier="pro"),
]
"""Headline: 4 scored runs that count, E3 in two of them, four fired codes (E3 twice, E5, E1)."""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for item in SCORES:
        write_record(tmp_path / "runs" / item.run.path / "score.json", item)
    write_record(tmp_path / "plan.json", make_plan([item.run for item in SCORES]))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], results: Path, *words: str) -> str:
    main(["explain", *words, "--results", str(results)])
    return capsys.readouterr().out


def test_nothing_scored_yet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_record(tmp_path / "plan.json", make_plan([make_run()]))
    assert "No run has it." in told(capsys, tmp_path, "E3")


def test_one_code(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    """Difference within ada's cell 0.4 − 0.9, within bob's 0.2 − 0.5; not adjusted (0.4 + 0.2)/2 − (0.9 + 0.5)/2."""
    text = told(capsys, results, "e3")
    assert text.startswith("E3 Verification (taxonomy cause-v2)")
    assert "Fired in 2 of 4 scored runs (50.0 %), 50.0 % of 4 fired codes; 1 disqualified run without codes" in text
    assert "Cost: −40.0 points of Overall within 2 cells of agent, task and tier" in text
    assert "not adjusted: −40.0 points" in text
    assert "Detection" in text and "Synthesis" not in text and "Image synthesis" in text
    assert "verify.same_answer" in text
    assert "of the pro tier" not in text


def test_runs_stand_with_their_evidence_most_costly_first(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    """ada lost 0.9 − 0.4, bob 0.5 − 0.2."""
    text = told(capsys, results, "E3")
    tail = text[text.index("the most costly first") :].splitlines()
    assert tail[1] == "  ada/bccd-det-task/lite/r2: 40.0, lost 50.0"
    assert tail[2] == "    S3 turn 7 verify.unread_poor: no code read an output back"
    assert tail[3] == "  bob/bccd-det-task/lite/r1: 20.0, lost 30.0, also E5"


def test_hostile_evidence_is_one_harmless_line(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    text = told(capsys, results, "E3")
    strange = {character for character in text if unicodedata.category(character) in ("Cc", "Cf")} - {"\n"}
    assert strange == set()
    line = next(line for line in text.splitlines() if "owned" in line)
    assert "U+001B" in line and "U+202E" in line and "score 1.0" in line
    assert not any(line.startswith("E1 Understanding") for line in text.splitlines())


def test_judge_codes(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    text = told(capsys, results, "E1")
    assert "No rule gives this code, only a judge." in text
    assert "S1 judge-a: the plan classifies images" in text


def test_code_without_runs(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    text = told(capsys, results, "E2")
    assert "Fired in 0 of 4 scored runs (0.0 %)" in text
    assert "No run has it." in text


FILTERS = [
    (["--agent", "ada"], "Fired in 1 of 2 scored runs"),
    (["--tier", "pro"], "Fired in 1 of 1 scored run "),
    (["--task", "bccd-det-task", "--track", "detection"], "Fired in 2 of 4 scored runs"),
]


@pytest.mark.parametrize(("words", "expected"), FILTERS, ids=["agent", "tier", "task and track"])
def test_filters(capsys: pytest.CaptureFixture[str], results: Path, words: list[str], expected: str) -> None:
    assert expected in told(capsys, results, "E3", *words)


def test_track_shows_only_its_examples_and_detectors(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    text = told(capsys, results, "E3", "--track", "detection")
    assert "verify.no_boxes" in text and "verify.same_answer" not in text
    assert "Image synthesis" not in text


def test_limit(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    text = told(capsys, results, "E3", "--limit", "1")
    assert "bob/bccd-det-task/lite/r1" not in text and "1 more; --limit 0 lists all" in text
    assert "bob/bccd-det-task/lite/r1" in told(capsys, results, "E3", "--limit", "0")


@pytest.mark.parametrize("limit", ["-1", "all"])
def test_a_limit_that_is_none(limit: str, capsys: pytest.CaptureFixture[str], results: Path) -> None:
    with pytest.raises(SystemExit) as end:
        told(capsys, results, "E3", "--limit", limit)
    assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith(f"argument --limit: '{limit}' is not a whole number of at least 0")
    assert len(said) <= 3


WRONG = [
    (["E3", "--agent", "adda"], "--agent: no scored run of 'adda' (did you mean 'ada'?)"),
    (["E3", "--track", "detektion"], "did you mean 'detection'?"),
    (["E3", "--task", "bccd"], "--task: no scored run of 'bccd'"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=["agent", "track", "task"])
def test_unknown_names(results: Path, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        main(["explain", *words, "--results", str(results)])
    assert message in str(caught.value)


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="--results"):
        main(["explain", "E3", "--results", str(tmp_path / "nowhere")])
