"""What stands below a call: never more than a screen, and why each step failed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from snakemake_logger_plugin_automedbench.end_of_call import describe_state, shorten


class Step(SimpleNamespace):
    """A job of Snakemake as far as it is looked at."""

    def is_group(self) -> bool:
        return False


class Group(list[Step]):
    """Jobs that are one for the scheduler."""

    def is_group(self) -> bool:
        return True


def step(folder: Path, rule: str, log: str, *output: str) -> Step:
    path = folder / f"{rule}.log"
    path.write_text(log)
    files = [str(folder / name) for name in output]
    return Step(rule=Step(name=rule), wildcards_dict={"agent": "a", "task": "t"}, log=[str(path)], output=files)


@pytest.fixture(autouse=True)
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/venv/bin/snakemake", "--config", "a={b: c}"])


def test_the_first_line_of_the_message_is_the_reason(tmp_path: Path) -> None:
    log = "Waiting for process 7.\nMissingDataError: No image.\nRun `snakemake prepare`.\n"
    assert list(describe_state(3, 4, [step(tmp_path, "run_agent", log)])) == [
        "3 of 4 runs are scored; steps that failed: 1",
        "  run_agent a/t: MissingDataError: No image.",
        "Next: snakemake --config 'a={b: c}' (goes on; what is finished is not repeated)",
    ]


def test_of_a_group_only_what_has_not_made_its_files(tmp_path: Path) -> None:
    (tmp_path / "done").touch()
    members: Any = Group(
        [step(tmp_path, "audit_run", "fine", "done"), step(tmp_path, "score_run", "KeyError: 'x'", "score.json")]
    )
    assert list(describe_state(0, 1, [members]))[1:-1] == ["  score_run a/t: KeyError: 'x'"]


def test_never_more_than_a_screen(tmp_path: Path) -> None:
    """By hand: 15 lines of the ranking and one for the rest, 1 + 5 + 1 of failures, the next command; then the page."""
    failed = [step(tmp_path, f"r{number}", "x") for number in range(40)]
    told = shorten([f"row {number}" for number in range(70)] + ["Page: p"])
    assert len(told) == 16 and (told[0], told[-1]) == ("row 0", "row 69")
    assert told[9] == " … 55 more lines: all agents are on the page"
    assert len([*told, *describe_state(1, 40, failed)]) == 24
    assert shorten(["a", "Page: p"]) == ["a"]


def test_nothing_is_missing() -> None:
    (line,) = describe_state(4, 4, [])
    assert line.startswith("All 4 runs are scored.")
    assert next(describe_state(1, 1, [])).startswith("The run is scored.")
