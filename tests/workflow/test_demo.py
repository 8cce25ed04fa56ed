"""`make demo` from a clone: exit 0, the ranking of its README, a page; then nothing more to do."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from campaigns import AGENTS, TASK, FinishedDemo, at, copy_of_finished, finished_demo, run_folder
from conftest import Project

from automedbench.base.files import read_record
from automedbench.base.records import (
    AuditRecord,
    Conversation,
    DetailReport,
    JudgeRecord,
    Manifest,
    Model,
    Receipt,
    RunRecord,
    ScoreRecord,
    SubmissionRecord,
)
from automedbench.leaderboard.plan import Plan

# Weights of S1 … S5 (website; paper, section 2).
WEIGHTS = {"s1": 0.25, "s2": 0.15, "s3": 0.35, "s4": 0.15, "s5": 0.10}
RANKING = ("careful", "silent", "hasty", "crasher", "cheater")
# Stages and APs are explained in demo/README.md and stand there with three decimals; all else follows by formula.
EXPECTED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("expected_demo.json").read_text())
N_IMAGES, N_SPLIT_CASES = 16, 16
RECORDS: dict[str, type[Model]] = {
    "run.json": RunRecord,
    "conversation.json": Conversation,
    "submission.json": SubmissionRecord,
    "audit.json": AuditRecord,
    "detail_report.json": DetailReport,
    "judge.json": JudgeRecord,
    "score.json": ScoreRecord,
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> FinishedDemo:
    """The finished campaign; nothing here changes it."""
    return finished_demo(tmp_path_factory)


@pytest.fixture
def finished(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copy_of_finished(tmp_path_factory, tmp_path / "automedbench")


def score_of(demo: FinishedDemo, agent: str) -> ScoreRecord:
    return read_record(run_folder(at(demo.path), agent) / "score.json", ScoreRecord)


def test_exit_code_and_ranking(demo: FinishedDemo) -> None:
    """Five agents, best first; the disqualified one is marked; where the page is stands at the end."""
    assert demo.code == 0, demo.output[-3000:]
    rows = re.findall(r"^ +(\d) +([a-z]+) +([\d.]+) .*$", demo.output, re.MULTILINE)
    assert [(int(rank), agent) for rank, agent, _ in rows] == list(enumerate(RANKING, start=1))
    assert re.search(r"cheater.*disqualified", demo.output)
    assert "results/demo/leaderboard/index.html" in demo.output.splitlines()[-1]


def test_output_is_for_people(demo: FinishedDemo) -> None:
    """No traceback, no warning, no wall of text."""
    assert not re.search(r"Traceback|Warning|\bERROR\b|deprecat", demo.output)
    assert len(demo.output.splitlines()) < 20 * 35  # steps


def test_page_and_tables(demo: FinishedDemo) -> None:
    folder = demo.path / "results/demo/leaderboard"
    page = (folder / "index.html").read_text()
    assert all(agent in page for agent in AGENTS)
    for table in ("runs", "overall", "tracks", "tasks"):
        for suffix in ("csv", "parquet"):
            assert (folder / f"{table}.{suffix}").stat().st_size > 0


@pytest.mark.parametrize("agent", RANKING)
def test_scores_follow_from_stages_and_precisions(demo: FinishedDemo, agent: str) -> None:
    """mAP = mean of the APs; task = mAP × completion; agentic = Σ weight × stage; overall = mean of both halves."""
    expected, score = EXPECTED[agent], score_of(demo, agent)
    earned = score.unpenalised or score.scores
    stages = {name: getattr(earned, name) for name in WEIGHTS}
    assert stages == pytest.approx(expected["stages"], abs=1e-9)
    precision = sum(expected["ap"].values()) / len(expected["ap"])
    task = precision * expected["completion_rate"]
    agentic = sum(weight * expected["stages"][name] for name, weight in WEIGHTS.items())
    # APs are given with three decimals, so their mean is known to 0.0005.
    assert earned.task == pytest.approx(task, abs=5e-4)
    assert earned.agentic == pytest.approx(agentic, abs=5e-5 + 1e-9)
    assert earned.overall == pytest.approx((agentic + task) / 2, abs=3e-4 + 5e-5)
    assert (score.outcome, score.failed, score.disqualified) == (
        expected["outcome"],
        expected["failed"],
        expected["disqualified"],
    )
    assert score.completion_rate == expected["completion_rate"]
    assert sorted({error.code for error in score.error_codes}) == expected["errors"]
    assert score.totals.turns == expected["turns"]


def test_disqualified_is_zero_everywhere(demo: FinishedDemo) -> None:
    score = score_of(demo, "cheater")
    assert set(score.scores.model_dump().values()) == {0}
    assert score.n_findings == 1  # the link; without a container nothing watches what code opens
    assert score.unpenalised is not None
    assert score.unpenalised.overall > score_of(demo, "hasty").scores.overall


@pytest.mark.parametrize("agent", RANKING)
def test_precisions_per_class(demo: FinishedDemo, agent: str) -> None:
    report = read_record(run_folder(at(demo.path), agent) / "detail_report.json", DetailReport)
    found = {name: values["ap50"] for name, values in report.groups.items()}
    assert found == pytest.approx(EXPECTED[agent]["ap"], abs=5e-4)
    assert len(report.cases) == N_IMAGES


@pytest.mark.parametrize("agent", RANKING)
def test_valid_cases(demo: FinishedDemo, agent: str) -> None:
    record = read_record(run_folder(at(demo.path), agent) / "submission.json", SubmissionRecord)
    assert sum(case.status == "valid" for case in record.cases) == EXPECTED[agent]["valid"]
    assert len(record.cases) == N_IMAGES


def test_readme_tells_the_same_numbers() -> None:
    """The table of demo/README.md × 100, one decimal, against the formulas."""
    text = (Path(__file__).resolve().parents[2] / "demo/README.md").read_text()
    for agent, expected in EXPECTED.items():
        (row,) = re.findall(rf"^\| `{agent}` \|.*$", text, re.MULTILINE)
        task, *stages, overall = [float(cell) for cell in row.strip("| ").split("|")[2:]]
        if expected["disqualified"]:
            assert {task, overall, *stages} == {0}
            continue
        assert stages == [pytest.approx(100 * expected["stages"][name]) for name in WEIGHTS]
        precision = sum(expected["ap"].values()) / 3
        assert task == pytest.approx(100 * precision * expected["completion_rate"], abs=0.11)
        agentic = sum(weight * expected["stages"][name] for name, weight in WEIGHTS.items())
        assert overall == pytest.approx(50 * (agentic + precision * expected["completion_rate"]), abs=0.11)


@pytest.mark.parametrize("agent", RANKING)
def test_readme_explains_these_numbers(agent: str) -> None:
    """The mAP in its prose; none is stated where nothing can be read."""
    text = (Path(__file__).resolve().parents[2] / "demo/README.md").read_text()
    item = next(part for part in text.partition("Why these numbers:")[2].split("\n- ") if f"**{agent}**" in part[:20])
    stated = re.search(r"mAP\s+(0\.\d{3})", item)
    precision = sum(EXPECTED[agent]["ap"].values()) / 3
    assert (float(stated[1]) if stated else 0.0) == pytest.approx(precision, abs=0.005)


# --- every file of the design ---------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", RANKING)
def test_every_record_of_a_run(demo: FinishedDemo, agent: str) -> None:
    """docs/specification.md, 3: each file is there, validates, belongs to the run, and has no NaN."""
    folder = run_folder(at(demo.path), agent)
    for name, model in RECORDS.items():
        record = read_record(folder / name, model)
        assert record.run.path == f"{agent}/{TASK}/lite/r1"  # type: ignore[attr-defined]
        assert "NaN" not in (folder / name).read_text()
        assert json.loads((folder / name).read_text())["schema"].startswith("automedbench/")
    assert (folder / "brief.md").read_text().strip()
    assert (folder / "log/events.jsonl").stat().st_size > 0
    assert (folder / "log/transcript.jsonl").stat().st_size > 0
    assert (folder / "attempts/0001/run.json").is_file()
    assert not (folder / "lease.json").exists()


def test_data_files(demo: FinishedDemo) -> None:
    manifest = read_record(demo.path / f"data/demo/manifests/{TASK}.json", Manifest)
    assert len(manifest.cases) == N_IMAGES
    receipt = read_record(demo.path / "data/demo/raw/bccd/receipt.json", Receipt)
    assert receipt.licence == "MIT"
    assert sum(name.endswith(".jpg") for name in receipt.files) == N_IMAGES
    assert len(read_record(demo.path / "results/demo/plan.json", Plan).runs) == len(AGENTS)


def test_scores_say_how_they_were_isolated(demo: FinishedDemo) -> None:
    for agent in AGENTS:
        enforced = score_of(demo, agent).enforced
        assert (enforced.backend, enforced.network) == ("local", "open")


def test_nothing_half_written_is_left(demo: FinishedDemo) -> None:
    left = [path for root in ("results", "data") for path in (demo.path / root).rglob(".*") if path.is_file()]
    assert [path.name for path in left if path.name not in (".fetched-by-automedbench", ".snakemake_timestamp")] == []


# --- again, as a report ------------------------------------------------------------------------------


def test_second_run_does_nothing(finished: Project) -> None:
    """Not a file is touched, in seconds, and the ranking is shown again."""
    before = dates(finished.path)
    start = time.monotonic()
    again = finished.run("make", "demo")
    assert time.monotonic() - start < 30
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout
    assert dates(finished.path) == before
    assert "careful" in again.stdout


def dates(place: Path) -> dict[str, int]:
    return {
        str(path): path.lstat().st_mtime_ns
        for root in ("results", "data")
        for path in sorted((place / root).rglob("*"))
    }


def test_report(finished: Project) -> None:
    """`snakemake --report` carries the leaderboard."""
    done = finished.snakemake("--report", "report.zip")
    assert done.returncode == 0, done.stdout[-3000:]
    assert (finished.path / "report.zip").stat().st_size > 0
