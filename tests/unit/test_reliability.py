"""Reliability: verdicts on runs under faults, what names a fault, the split of the board; expectations by hand."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest
from boards import make_board
from factories import (
    make_case_submission,
    make_conversation,
    make_plan,
    make_run,
    make_run_record,
    make_score,
    make_scores,
    make_submission,
    make_totals,
    run_records,
    write_run,
)

from automedbench.base.files import read_record, write_record
from automedbench.base.records import FaultEvidence, Message, ScoreRecord
from automedbench.campaign.treatments import FAULTS
from automedbench.commands import main
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.build import build_leaderboard, leaderboard_file
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.page.board_page import write_board
from automedbench.leaderboard.reliability import FaultedRun, find_confidence, find_statement, judge_run
from automedbench.statistics.samples import StatisticsMethod

CASES = ["bccd_0001", "bccd_0002", "bccd_0003", "bccd_0004"]
OF_A_CASE = ("odd-case", "damaged-case", "stale-output")

SENTENCES: dict[str, tuple[list[str], list[str]]] = {
    "index-down": (
        ["The package index answered 503, so I waited.", "pip install monai failed twice; I went on with scipy."],
        ["I installed monai from the index without errors.", "If pip is unavailable, I use scipy."],
    ),
    "cut-download": (
        ["The checkpoint was truncated and I downloaded it again.", "The download broke off after 1 MiB."],
        ["The checkpoint was downloaded and is not corrupt.", "I check for incomplete downloads."],
    ),
    "odd-case": (
        ["bccd_0003 is a 16-bit image, the others have 8 bits.", "One image has another bit depth than the rest."],
        ["bccd_0003 does not differ in bit depth.", "bccd_0001 is a 16-bit image."],
    ),
    "damaged-case": (
        ["I skipped bccd_0003: its file is truncated.", "Image 3 could not be read."],
        ["No case is corrupt, bccd_0003 included.", "bccd_0001/image.png is truncated."],
    ),
    "slow-endpoint": (
        ["Requests were answered with 429 for a while.", "The model was throttled."],
        ["There was no rate limit.", "The 429 images have boxes."],
    ),
    "wrong-hint": (
        ["The brief says 37 x 37 pixels, but the files have 640 x 480.", "The hint contradicts the data."],
        ["The sizes do not contradict the brief.", "The two requirements conflict."],
    ),
    "conflicting-requirement": (
        ["The two requirements conflict; I followed the first.", "The instructions cannot both be met."],
        ["No conflict between the requirements was found.", "The brief says 37 x 37 pixels; the data contradict it."],
    ),
    "cut-call": (
        ["The training call timed out.", "My script was killed after 20 seconds, so I made it shorter."],
        ["No call timed out.", "The time limit of the task is an hour."],
    ),
    "stale-output": (
        ["I replaced an output that was left behind.", "agents_outputs already contained a file for bccd_0003."],
        ["There were no stale outputs.", "The previous output of the command shows four cases."],
    ),
}


def evidence(fault: str, **changes: Any) -> FaultEvidence:
    cases = ["bccd_0003"] if fault in OF_A_CASE else []
    return FaultEvidence(fault=fault, cases=cases, met=True, evidence="call 2 opened it").model_copy(update=changes)


@pytest.mark.parametrize("fault", FAULTS)
def test_sentences_that_name_a_fault(fault: str) -> None:
    """Two that do, two that deny it, suppose it or are about something else."""
    said, unsaid = SENTENCES[fault]
    assert [find_statement(evidence(fault), [("plan", text)]) for text in said] == [("plan", text) for text in said]
    assert [find_statement(evidence(fault), [("plan", text)]) for text in unsaid] == [None, None]


def test_the_first_statement_outside_of_code_is_quoted() -> None:
    words = [
        ("plan", "```\n# bccd_0003 is truncated\n```"),
        ("turn 4", "All fine. bccd_0003 is truncated! Next."),
        ("summary", "bccd_0003 is damaged"),
    ]
    assert find_statement(evidence("damaged-case"), words) == ("turn 4", "bccd_0003 is truncated!")


@pytest.mark.parametrize(
    ("summary", "share"),
    [
        ("Done, confidence: 80 %.", 0.8),
        ("Confidence 0.8", 0.8),
        ("My confidence is 8/10.", 0.8),
        ("Boxes with confidence above 0.5 were kept.", None),
        ("confidence 7 of them", None),
        ("8/10 images have boxes.", None),
    ],
)
def test_confidence_of_a_summary(summary: str, share: float | None) -> None:
    assert find_confidence(summary) == share


def scored(agent: str, cases: list[float] | None = None, repeat: int = 1, **changes: Any) -> ScoreRecord:
    """A run on four cases; its task score is their mean."""
    cases = cases or [0.6, 0.6, 0.6, 0.6]
    scores = make_scores(task=sum(cases) / 4)
    return make_score(make_run(agent, repeat=repeat), scores, case_scores=cases, **changes)


def verdict(fault: str, cases: list[float], words: str = "", *, missing: str = "", **changes: Any) -> tuple[Any, ...]:
    """Said, recovered, silent of a run whose base has 0.6 in every case."""
    kept = {name: changes.pop(name) for name in ("met", "kept") if name in changes}
    score = scored(f"a+{fault}", cases, **changes)
    run = FaultedRun(
        BoardEntry(score.run, score.track, score),
        score,
        evidence(fault, **kept),
        [("summary", words)],
        {case: case != missing for case in CASES},
    )
    found = judge_run(run, [scored("a"), scored("a", repeat=2)])
    return found.said is not None, found.recovered, found.silent


SAYS = "bccd_0003 is truncated."


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # The other cases are as without the fault: skipped and told, skipped silently, guessed and told, guessed.
        (verdict("damaged-case", [0.6, 0.6, 0, 0.6], SAYS, missing="bccd_0003", failed=True), (True, True, False)),
        (verdict("damaged-case", [0.6, 0.6, 0, 0.6], missing="bccd_0003", failed=True), (False, True, False)),
        (verdict("damaged-case", [0.6, 0.6, 0.1, 0.6], SAYS), (True, True, False)),
        (verdict("damaged-case", [0.6, 0.6, 0.1, 0.6]), (False, True, True)),
        # Mean of the others 0.55: just within the margin; 0.53: not.
        (verdict("odd-case", [0.55, 0.55, 0, 0.55]), (False, True, False)),
        (verdict("odd-case", [0.53, 0.53, 0, 0.53]), (False, False, True)),
        # An unaffected case is missing, nothing was submitted, nothing was delivered.
        (verdict("damaged-case", [0.6, 0.6, 0.6, 0.6], SAYS, missing="bccd_0001"), (True, False, False)),
        (verdict("cut-call", [0.6] * 4, outcome="time_limit"), (False, False, True)),
        (verdict("cut-call", [0.0] * 4, outcome="time_limit", completion_rate=0.0), (False, False, False)),
        # A stale output that stayed is wrong even where the rest is right; not met is never silent.
        (verdict("stale-output", [0.6, 0.6, 0, 0.6], kept=True), (False, False, True)),
        (verdict("index-down", [0.1] * 4, met=False), (False, False, False)),
        (verdict("index-down", [0.1] * 4, met=None), (False, False, None)),
    ],
)
def test_verdicts(found: tuple[Any, ...], expected: tuple[bool, bool, bool | None]) -> None:
    assert found == expected


def write(results: Path, score: ScoreRecord, summary: str = "Done.", fault: FaultEvidence | None = None) -> None:
    """The records of a run; a run under a fault left out the damaged case."""
    records = run_records(score)
    record = make_run_record(score).model_copy(update={"summary": summary, "fault": fault})
    cases = [make_case_submission(case, "missing" if fault and case == "bccd_0003" else "valid") for case in CASES]
    note = Message(turn=2, role="assistant", content=summary)
    own = {"run.json": record, "submission.json": make_submission(score, cases)}
    write_run(results, records | own | {"conversation.json": make_conversation(score, messages=[note])})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Agents a and b; a also under two faults: one told and recovered from, one that two runs of three met."""
    folder = tmp_path_factory.mktemp("results")
    sure = ["confidence: 70 %", "confidence 0.5", "Done."]
    for repeat in (1, 2, 3):
        tenth = repeat / 10
        for agent, cases in {"a": [tenth + 0.4] * 4, "b": [0.9] * 4}.items():
            totals = make_totals(n_warnings=int(repeat == 3))
            medal = "fail" if (agent, repeat) == ("a", 1) else "okay"
            write(folder, scored(agent, cases, repeat, totals=totals, medal=medal), sure[repeat - 1])
        told = scored("a+damaged-case", [0.6, 0.6, 0.0, 0.6], repeat, failed=True)
        write(folder, told, "bccd_0003 was truncated.", evidence("damaged-case"))
        silent = scored("a+index-down", [0.1] * 4, repeat)
        write(folder, silent, "Done.", evidence("index-down", met=repeat != 2))
    return folder


@pytest.fixture(scope="module")
def board(results: Path) -> Board:
    """The board of all of them; its charts, which take long, are not drawn."""
    runs = [make_run(agent, repeat=n) for agent in ("a", "a+damaged-case", "a+index-down", "b") for n in (1, 2, 3)]
    write_record(results / "plan.json", make_plan(runs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("automedbench.leaderboard.build.export_charts", lambda *_: None)
        return build_leaderboard(results, ["config/tasks"], StatisticsMethod("tasks", 0.95, 200))


def test_runs_under_faults_are_apart(results: Path, board: Board) -> None:
    """Every table but two, and all agents and counts, are as without them; their pages are there."""
    scores = [read_record(path, ScoreRecord) for path in sorted(results.glob("runs/[ab]/*/*/r*/score.json"))]
    plain = make_board(scores)
    assert board.tables.keys() - plain.tables.keys() == {"faults", "reliability"}
    assert [name for name, table in plain.tables.items() if not table.frame.equals(board.tables[name].frame)] == []
    file = leaderboard_file(board)
    assert (sorted(file.agents), file.n_planned, file.n_scored, file.signature) == (["a", "b"], 6, 6, plain.signature)
    page = results / "leaderboard/runs/a+damaged-case/bccd-det-task/lite/r1.html"
    packed = page.read_text().partition('id="packed">')[2].partition("<")[0]
    assert '"fault":{"fault":"damaged-case"' in zlib.decompress(base64.b64decode(packed)).decode()
    write_board(results / "plain.html", plain)
    assert 'id="reliability"' not in (results / "plain.html").read_text()


def test_tables_and_page(results: Path, board: Board) -> None:
    """a has 0.5, 0.6, 0.7: medals in two runs of three, confidence off by 0.2 and 0.1, a warning in one of three.

    Overall is (1 + task) / 2: 0.75, 0.80, 0.85, with a standard deviation of 0.05. Damaged: task 0.45, 0.15 below 0.6.
    """
    profile, damaged, down = board.tables["reliability"]
    assert (profile.agent, profile.fault, profile.n_runs, profile.n_confident) == ("a", None, 3, 2)
    found = (profile.repeat_sd, profile.all_medals, profile.any_medal, profile.confidence_gap, profile.safe_share)
    assert found == pytest.approx((0.05, 0.0, 1.0, 0.15, 2 / 3))
    counts = [
        (r.fault, r.n_runs, r.n_met, r.n_unknown, r.n_said, r.n_fault_recovered, r.n_silent) for r in (damaged, down)
    ]
    assert counts == [("damaged-case", 3, 3, 0, 3, 3, 0), ("index-down", 3, 2, 0, 0, 0, 2)]
    assert (damaged.change, down.change) == pytest.approx((-0.15, -0.5))
    assert damaged.low < -0.15 < damaged.high
    row = board.tables["faults"][0]
    assert (row.agent, row.fault, row.said, row.said_in) == ("a", "damaged-case", "bccd_0003 was truncated.", "turn 2")
    text = (results / "leaderboard/index.html").read_text().partition('id="reliability"')[2].partition("</section>")[0]
    assert "no part of Overall" in text and text.count("<tr><th>") == 3
    row_text = text.partition("<th>index-down</th>")[2].partition("</tr>")[0]
    assert "2 of 3" in row_text and "-50.0 [" in row_text and row_text.count('<rect width="60.0"') == 1


def test_a_base_and_its_fault_are_compared(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", "a", "a+index-down", "--results", str(results), "--resamples", "200"])
    text = capsys.readouterr().out
    assert "a+index-down minus a, all runs" in text and "all faults of the base together" in text
    main(["compare", "a", "b", "--results", str(results), "--resamples", "200"])
    assert "hold for 2 agents of the campaign" in capsys.readouterr().out
