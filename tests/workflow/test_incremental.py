"""Exactly what changed is repeated: a paid run never without need, a score whenever its recipe changed.

Each key of runs and scores by itself: test_nothing_stale.py.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from campaigns import AGENTS, TASK, add_agent, copy_of_finished, executed, only, planned, run_folder, stamps
from conftest import Project

from automedbench.base.files import read_record
from automedbench.base.records import AuditRecord, ScoreRecord

PAID = ("run.json", "conversation.json", "brief.md")
SCORED = ("submission.json", "audit.json", "detail_report.json", "judge.json", "score.json")
AFTER_RUN = ("collect_submission", "audit_run", "score_metrics", "score_judge", "score_run")
CARD = f"config/tasks/detection/{TASK}.yaml"


@pytest.fixture
def finished(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copy_of_finished(tmp_path_factory, tmp_path / "automedbench")


def edit(project: Project, name: str, pattern: str, replacement: str) -> None:
    """Replace the one match of a pattern in a file."""
    path = project.path / name
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
    assert count == 1, f"{name}: {pattern}"
    path.write_text(text)


def overall(project: Project) -> list[dict[str, str]]:
    with open(project.path / "results/demo/leaderboard/overall.csv", newline="") as stream:
        return list(csv.DictReader(stream))


# --- what repeats nothing -------------------------------------------------------------------------------------


def comment(project: Project) -> None:
    """Another line at the end of scripts, rules and modules."""
    edited = [
        "rules/agent.smk",
        "rules/scoring.smk",
        "src/automedbench/agent/loop.py",
        "src/automedbench/scoring/run.py",
    ]
    for name in [*edited, *[f"scripts/{rule}.py" for rule in ("run_agent", *AFTER_RUN)]]:
        with open(project.path / name, "a") as stream:
            stream.write("# Another comment.\n")


REPEATS_NOTHING: dict[str, Callable[[Project], object]] = {
    # No path of the machine is in an identity.
    "another folder": lambda project: None,
    "date of a card": lambda project: (project.path / CARD).touch(),
    "date of the agents file": lambda project: (project.path / "demo/agents.yaml").touch(),
    "date of the configuration": lambda project: (project.path / "demo/config.yaml").touch(),
    "words of a card": lambda project: edit(project, CARD, "^title: .*$", "title: Other Words"),
    "a limit": lambda project: edit(project, "demo/config.yaml", r"^judge:", "limits: {max_turns: 99}\njudge:"),
    "a card's limit": lambda project: edit(project, CARD, r"^  time_limit_s: .*$", "  time_limit_s: 60"),
    "comments: versions decide, not text": comment,
}


def test_repeats_nothing(finished: Project, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All at once, in one plan; when that is not empty, each is tried alone to name who repeats what."""
    for change in REPEATS_NOTHING.values():
        change(finished)
    if planned(finished) == []:
        return
    for name, change in REPEATS_NOTHING.items():
        alone = copy_of_finished(tmp_path_factory, tmp_path / name)
        change(alone)
        assert planned(alone) == [], name
    pytest.fail("only all changes together repeat something")


# --- what repeats a part --------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["pooling: runs", "leaderboard: {confidence: 0.9}"])
def test_other_statistics_repeat_the_leaderboard_only(finished: Project, change: str) -> None:
    edit(finished, "demo/config.yaml", r"^judge:", f"{change}\njudge:")
    assert planned(finished) == ["build_leaderboard"]


def test_sixth_agent(finished: Project) -> None:
    """Only its run, the plan and the leaderboard; the others keep every file."""
    before = stamps(finished, *PAID, *SCORED)
    add_agent(finished, "sixth")
    done = finished.snakemake(*only(*AGENTS, "sixth"))
    assert done.returncode == 0, done.stdout[-3000:]
    once = ("plan_campaign", "build_leaderboard")
    assert Counter(executed(finished)) == dict.fromkeys(("run_agent", *AFTER_RUN, *once), 1)
    after = stamps(finished, *PAID, *SCORED)
    assert before.items() <= after.items()
    assert len(overall(finished)) == 6
    assert planned(finished, *only(*AGENTS, "sixth")) == []


def test_second_repeat(finished: Project) -> None:
    """Raising the repeats adds runs and repeats none."""
    counts = Counter(planned(finished, "--config", "matrix={repeats: 2}"))
    assert counts == {
        **dict.fromkeys(("run_agent", *AFTER_RUN), len(AGENTS)),
        "plan_campaign": 1,
        "build_leaderboard": 1,
    }


# --- what is finished so far ----------------------------------------------------------------------------------


def test_partial_leaderboard(finished: Project) -> None:
    """One of two repeats is there, and one agent has nothing: n of N in every row, marked provisional."""
    two = ("--config", "matrix={repeats: 2}")
    for name in ("run.json", *SCORED):
        (run_folder(finished, "crasher") / name).unlink()
    done = finished.snakemake("partial", *two)
    assert done.returncode == 0, done.stdout[-3000:]
    assert executed(finished) == ["build_leaderboard"]
    printed = (finished.path / "logs/partial.log").read_text()
    rows = {row["agent"]: row for row in overall(finished)}
    for agent in AGENTS:
        n = 0 if agent == "crasher" else 1
        assert (int(rows[agent]["n_scored"]), int(rows[agent]["n_planned"])) == (n, 2)
        assert rows[agent]["provisional"] == "true"
        assert re.search(rf"{agent}.* {n}/2\b", printed)
    assert "rovisional" in (finished.path / "results/demo/leaderboard/index.html").read_text()


def test_partial_then_complete(finished: Project) -> None:
    """The provisional leaderboard does not count as the finished one."""
    (run_folder(finished, "hasty") / "score.json").unlink()
    assert finished.snakemake("partial").returncode == 0
    assert {row["provisional"] for row in overall(finished)} >= {"true"}
    assert finished.snakemake().returncode == 0
    assert sorted(executed(finished)) == ["build_leaderboard", "score_run"]
    assert {row["provisional"] for row in overall(finished)} == {"false"}
    assert planned(finished) == []


# --- an operator's decision -----------------------------------------------------------------------------------


def test_operator_lifts_a_disqualification(finished: Project) -> None:
    """The audit is repeated with the decision, and what needs it; taking the decision back undoes all of it."""
    folder = run_folder(finished, "cheater")
    before = (folder / "score.json").read_bytes()
    assert read_record(folder / "score.json", ScoreRecord).disqualified
    decision = folder / "decision.yaml"
    decision.write_text("decision: lift\nby: A. Person\ndate: 2026-01-31\nwhy: A test of the rule.\n")
    assert finished.snakemake().returncode == 0
    assert sorted(executed(finished)) == ["audit_run", "build_leaderboard", "score_run"]
    audit = read_record(folder / "audit.json", AuditRecord)
    assert (audit.verdict, audit.proposed) == ("warned", "disqualified")
    lifted = read_record(folder / "score.json", ScoreRecord)
    assert not lifted.disqualified
    assert lifted.scores == ScoreRecord.model_validate_json(before).unpenalised
    decision.unlink()
    assert finished.snakemake().returncode == 0
    assert (folder / "score.json").read_bytes() == before


def test_decision_that_is_none(finished: Project) -> None:
    """Refused with the key that is wrong; the finished scores stay."""
    decision = run_folder(finished, "cheater") / "decision.yaml"
    decision.write_text("decision: maybe\nby: A. Person\ndate: 2026-01-31\nwhy: A test of the rule.\n")
    assert finished.snakemake().returncode == 1
    log = (finished.path / f"logs/audit_run/cheater/{TASK}-lite-r1.log").read_text()
    assert log.startswith("ConfigError: ")
    assert "decision.yaml: decision: " in log
    assert "Traceback" not in log
