"""The page of a run in headless Chromium: scores, cases, judge and transcript by mouse, keyboard and on a phone.

Every test also demands that nothing was requested and nothing was complained about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe import grave_findings
from factories import (
    disqualify,
    make_call,
    make_finding,
    make_run,
    make_score,
    make_scores,
    run_records,
    write_run,
)

from automedbench.base.cards import load_card
from automedbench.base.effects import NO_EFFECT
from automedbench.base.records import (
    CaseScore,
    CaseSubmission,
    Criterion,
    Decision,
    Effect,
    ErrorCode,
    Injection,
    Judgement,
    Message,
    Problem,
    Rejected,
    RunId,
    Used,
)
from automedbench.base.views import Box, CaseView, CaseViews, Frame, LegendItem, ViewText
from automedbench.judge.rubric import load_rubric
from automedbench.leaderboard.entries import match_scores
from automedbench.leaderboard.page.run_pages import write_run_pages
from automedbench.tracks.common.pictures import difference_layer, difference_legend, grey_layer, label_layer

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"> \u202egnp.exe \x1b[31mred"
GOOD, BAD, SILENT = make_run("careful"), make_run("cheater"), make_run("silent")
QUOTE = "print('first   step')"  # with other white space than the code has
COLOUR = "#e69f00"
NONE = Effect(verdict="none", reason="every output is one form", n=16, alike=1.0)


# --- the runs -------------------------------------------------------------------------------------------------


def slices() -> CaseView:
    """Five slices of 40 × 30 pixels; what is marked moves to the right with the slice."""
    frames = []
    for number in range(5):
        marked = np.zeros((30, 40), np.uint8)
        marked[10:20, 5 * number : 5 * number + 10] = 1
        layers = [
            grey_layer("input", np.arange(1200).reshape(30, 40), (0, 1200), (40, 30)),
            label_layer("prediction", marked, [COLOUR]),
            label_layer("reference", marked, [COLOUR], outline=True),
        ]
        title = f"axial {number + 1} of 5" + (" · largest" if number == 2 else "")
        frames.append(Frame(title=title, width=40, height=30, layers=layers))
    legend = [LegendItem(name="liver", colour=COLOUR)]
    metrics = {"dice": 0.25}
    return CaseView(
        case="volume_1", status="valid", why="lowest dice of 3", frames=frames, legend=legend, metrics=metrics
    )


def boxes() -> CaseView:
    """An image with a true box in its left half and a predicted one that found nothing in its right half."""
    found = [
        Box(side="reference", label="rbc", x0=0.0, y0=0.25, x1=0.5, y1=0.75, matched=False),
        Box(side="prediction", label=HOSTILE[:60], x0=0.5, y0=0.0, x1=1.0, y1=0.5, score=0.75, matched=False),
    ]
    layer = grey_layer("input", np.ones((60, 80)), (0, 2), (80, 60))
    return CaseView(
        case="image_1",
        status="valid",
        why="highest f1 of 3",
        frames=[Frame(title="image of 80 × 60 pixels", width=80, height=60, layers=[layer], boxes=found)],
    )


def before_and_after() -> CaseView:
    """A picture with input, prediction, difference and reference."""
    values = np.arange(900, dtype=float).reshape(30, 30)
    sides: tuple[Any, ...] = ("input", "prediction", "reference")
    layers = [grey_layer(side, values, (0, 900), (30, 30)) for side in sides]
    layers.insert(2, difference_layer(values - 450, 450, (30, 30)))
    return CaseView(
        case="slice_1",
        status="malformed",
        why="malformed",
        frames=[Frame(title="grey 0 to 900", width=30, height=30, layers=layers)],
        legend=difference_legend(450),
        texts=[ViewText(side="prediction", title="Why it is malformed", text="dtype: is float64")],
    )


def report() -> CaseView:
    """Two reports of 28 words that differ in one."""
    words = [f"word{number}" for number in range(27)]
    return CaseView(
        case="study_1",
        status="valid",
        why="valid",
        texts=[
            ViewText(side="prediction", title="Report", text=" ".join(["Effusion", *words])),
            ViewText(side="reference", title="Reference report", text=" ".join(["Pneumothorax", *words])),
        ],
    )


def write_good_run(results: Path) -> Any:
    """A run with everything a page can show; turn 2 says and runs hostile things, turn 3 prints much."""
    long = "\n".join(map(str, range(200)))
    errors = [ErrorCode(code="E4", stage="S4", evidence="ValueError: no", detector="code.unrepaired", turn=4)]
    used = Used(
        gpu_held_s=7200,
        cpu_s=90,
        nodes=["node7"],
        jobs=["4711"],
        gpu_models=["NVIDIA H100"],
        gpu_drivers=["550.54"],
        told_by={"gpu_held_s": "process", "cpu_s": "process", "peak_memory_mib": "nobody looked"},
    )
    sources = {"score.json": "0" * 64, "judge.json": "ab" * 32}
    score = make_score(GOOD, sources=sources, error_codes=errors, used=used)
    calls = [
        make_call(1, code="import os", stage="S1"),
        make_call(2, code="print('first step')\nprint('second')", stage="S2", elapsed_s=2.0),
        make_call(3, stdout=long, code=HOSTILE, stage="S3", elapsed_s=10.0),
        make_call(4, code="boom()", stage="S4", status="error", exit_code=1, stderr="ValueError:   no"),
    ]
    records: Any = run_records(score, n_cases=60, calls=calls)
    said = [
        Message(turn=2, role="assistant", content=HOSTILE, reasoning=f"{QUOTE}\n{HOSTILE}"),
        Message(turn=3, role="assistant", content="now all"),
        Message(turn=4, role="system", content="You are a program.", by_program=True),
    ]
    records["conversation.json"] = records["conversation.json"].model_copy(
        update={"messages": said, "plan": "# Plan\n\nThreshold first, then watershed."}
    )
    records["judge.json"] = records["judge.json"].model_copy(
        update={
            "criteria": [
                Criterion(id="s1a", stage="S1", verdict=1, quote="Threshold first,\nthen watershed.", reason="a plan"),
                Criterion(id="s1b", stage="S1", verdict=1, quote="plan/plan.png opens as a picture", reason="opens"),
                Criterion(id="s2a", stage="S2", verdict=0.5, quote=QUOTE, turn=2, reason="shown", votes=[0.0, 1.0]),
                Criterion(id="s3", stage="S3", verdict=1, auto=True, quote="", reason="credited"),
            ],
            "judgements": [
                Judgement(
                    judge=name, model="m", repeat=1, criteria=[], stages={"S1": 1, "S2": 0.5, "S3": 1}, masked=True
                )
                for name in ("first", "second")
            ],
            "spread": {"S1": 0.0, "S2": 0.7071, "S3": 0.0},
            "injections": [Injection(rule="judge.order", where="stdout", turn=3, passage="198\n199")],
        }
    )
    # "constructor" is something that every object of JavaScript has.
    groups = {
        "rbc": {"ap50": 0.5, "constructor": 0.25, "n_both_empty": 1.0},
        "wbc": {"ap50": None, "n_both_empty": 4.0, "n_truth": 0.0},
    }
    records["detail_report.json"] = records["detail_report.json"].model_copy(update={"groups": groups})
    views = CaseViews(run=GOOD, n_cases=60, cases=[slices(), boxes(), before_and_after(), report()], note="4 of 60.")
    write_run(results, records | {"case_views.json": views})
    return score


def write_bad_run(results: Path) -> Any:
    score = disqualify(make_score(BAD, make_scores(task=0.5)))
    records: Any = run_records(score)
    decision = Decision(decision="uphold", by="an operator", date="2026-02-03", why="the folder was listed")
    findings = [make_finding(severity="disqualifying", evidence="open('/data/private/x')")]
    update = {"verdict": "disqualified", "reason": "decoy opened", "findings": findings, "decision": decision}
    records["audit.json"] = records["audit.json"].model_copy(update=update)
    records["submission.json"] = records["submission.json"].model_copy(
        update={"rejected": [Rejected(path="x/prediction.json", reason="link", target="/data/private")]}
    )
    write_run(results, records)
    return score


def write_silent_run(results: Path) -> Any:
    without = {"effect": NONE, "no_effect": True, "stage_limits": NO_EFFECT}
    stages = make_scores((0.5, 0.5, 0.0, 0.3, 0.0), task=0.0)
    score = make_score(SILENT, stages, outcome="stopped", failed=True, **without)
    records: Any = run_records(score)
    problem = Problem(code="not_found", message="was not submitted")
    cases = [CaseSubmission(case="bccd_0001", status="missing", completed=False, problems=[problem])]
    records["submission.json"] = records["submission.json"].model_copy(update={"cases": cases})
    scores = [CaseScore(case="bccd_0001", status="missing", metrics={})]
    records["detail_report.json"] = records["detail_report.json"].model_copy(update={"cases": scores})
    folder = write_run(results, records)
    (folder / "judge.json").write_text("{")
    (folder / "conversation.json").unlink()
    return score


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """The folder of three runs' pages."""
    results = tmp_path_factory.mktemp("results")
    scores = [write_good_run(results), write_bad_run(results), write_silent_run(results)]
    card = load_card(root / "config/tasks/detection/bccd-det-task.yaml")
    rubric = load_rubric(root / "config/rubrics", "detection")
    entries = match_scores([score.run for score in scores], scores, {})
    write_run_pages(results, results / "leaderboard", entries, {card.id: card}, {"detection": rubric})
    return results / "leaderboard/runs"


# --- the browser ----------------------------------------------------------------------------------------------


class Visit:
    """An open window, what it requested and what it complained about."""

    def __init__(self, page: Any, pages: Path) -> None:
        self.page, self.pages = page, pages
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))

    def open(self, run: RunId, anchor: str = "") -> Any:
        """Go to a run's page and wait until it is drawn, from when on it takes keys; returns the window."""
        self.page.goto(f"{(self.pages / f'{run.path}.html').as_uri()}{anchor}")
        self.page.locator("#nav a").first.wait_for(state="attached")
        return self.page

    def viewer(self, case: str = "") -> Any:
        """The case viewer of the good run, at a case."""
        page = self.open(GOOD)
        if case:
            page.locator(".chip.case", has_text=case).click()
        return page.locator(".viewer")

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.fixture(params=[{"viewport": {"width": 1280, "height": 900}}], ids=["desktop"])
def visit(browser: Any, pages: Path, request: pytest.FixtureRequest) -> Iterator[Visit]:
    context = browser.new_context(**request.param)
    visit = Visit(context.new_page(), pages)
    yield visit
    assert visit.complaints == []
    assert [url for url in visit.requests if not url.startswith(("file:", "data:", "about:blank"))] == []
    beside = re.compile(r"/leaderboard/(runs/.+\.html|run\.(css|js)|pictures/[^/]+/\w+\.(png|webp))(#|$)")
    assert [url for url in visit.requests if url.startswith("file:") and not beside.search(url)] == []
    context.close()


PHONE = {"viewport": {"width": 390, "height": 844}}
on_phone = pytest.mark.parametrize("visit", [PHONE], ids=["phone"], indirect=True)
in_the_dark = pytest.mark.parametrize("visit", [PHONE | {"color_scheme": "dark"}], ids=["dark"], indirect=True)


# --- what it was, and its scores ------------------------------------------------------------------------------


def test_head_and_scores(visit: Visit) -> None:
    page = visit.open(GOOD)
    assert page.locator("h1").inner_text().startswith("careful on Blood Cell Detection")
    assert page.locator(".tile").first.inner_text().split() == ["Overall", "75.0"]
    assert page.title().startswith("careful · bccd-det-task")


def test_every_number_says_how_it_came_about(visit: Visit) -> None:
    """Overall (1 + 0.5) / 2; the stages by their weights; S2's criterion leads to the judge."""
    page = visit.open(GOOD)
    assert (
        page.locator("#how-overall").inner_text().replace("\n", " ")
        == "Overall 75.0 = ½ · Agentic 100.0 + ½ · Task 50.0"
    )
    assert "0.35 · S3 100.0" in page.locator("#how-agentic").inner_text()
    assert "completion rate 100 %" in page.locator("#how-s4").inner_text()
    assert "map50 0.5000" in page.locator("#how-task").inner_text()
    page.locator("#how-s2").get_by_role("link", name="s2a 0.50").click()
    assert page.locator("#criterion-s2a").evaluate("e => e.getBoundingClientRect().top < innerHeight")


def test_effect_of_the_case(visit: Visit) -> None:
    """Verdict, value with interval and p."""
    shown = visit.open(GOOD).locator("#effect").inner_text()
    assert "✓ shown own answers fit better than others'" in shown
    assert "difference 0.4100, 95 % interval 0.3600 to 0.4600, p < 0.001; it must exceed 0.0300." in shown
    assert visit.page.get_by_text("No effect of the case.").count() == 0


def test_no_effect_of_the_case(visit: Visit) -> None:
    """A mark at the top, and what it takes away at each stage."""
    page = visit.open(SILENT)
    assert "✕ none every output is one form" in page.locator("#effect").inner_text()
    assert page.get_by_text("No effect of the case.").is_visible()
    assert "at most 0.3, as the case has no effect" in page.locator("#how-s4").inner_text()
    assert "not without an effect of the case: no" in page.locator("#how-s5").inner_text()


def test_what_the_run_took_of_machines(visit: Visit) -> None:
    """Each number with where it comes from."""
    facts = " ".join(visit.open(GOOD).locator("#scores").inner_text().split())
    assert "GPU held 2.0 h (process) GPU NVIDIA H100, driver 550.54" in facts
    assert "CPU time 1.5 min (process) Memory at most unknown (nobody looked) Ran on node7, Slurm job 4711" in facts


@pytest.mark.parametrize(
    "visit", [PHONE, {"viewport": {"width": 1440, "height": 900}}], ids=["phone", "wide"], indirect=True
)
def test_facts_have_room_for_their_words(visit: Visit) -> None:
    """A long name has its value below it, not one letter a line beside it; nothing leaves its cell."""
    page = visit.open(GOOD)
    page.locator("#scores dt", has_text="Medal").evaluate("e => { e.textContent = 'The given checkpoint was used ' }")
    page.locator("#scores dt", has_text="The given").evaluate("e => { e.nextSibling.textContent = 'unknown, told' }")
    cells = page.locator("#scores .facts > div").evaluate_all(
        "all => all.map(e => [e.scrollWidth - e.clientWidth, ...[...e.children].map(c => c.offsetHeight)])"
    )
    assert [cell for cell in cells if cell[0] > 0 or max(cell[1:]) > 45] == []  # two lines of 14.4 px × 1.55
    assert visit.overflow() <= 0


def test_way_back_to_the_board(visit: Visit, pages: Path) -> None:
    page = visit.open(GOOD)
    target = page.locator(".brand").evaluate("link => link.href")
    assert target == (pages.parent / "index.html").as_uri() + "#tasks"


def test_disqualified_run_shows_findings_and_decision(visit: Visit) -> None:
    page = visit.open(BAD)
    assert "Disqualified. Every score is 0. decoy opened" in page.locator(".notice.bad").first.inner_text()
    assert "without the penalty: overall 75.0" in page.locator("#scores").inner_text()
    audit = page.locator("#audit")
    assert "decoy.open" in audit.get_by_role("region", name="Audit findings").inner_text()
    assert "The operator upheld" in audit.inner_text() and "the folder was listed" in audit.inner_text()
    audit.locator("summary").click()
    assert "→ /data/private" in audit.inner_text()


def test_missing_records_are_named(visit: Visit) -> None:
    page = visit.open(SILENT)
    notes = page.locator(".notice li").all_inner_texts()
    assert [note.split(" ")[0] for note in notes] == ["judge.json", "conversation.json", "case_views.json"]
    failed = page.locator(".notice.bad").first.inner_text()
    assert "Failed: no complete final submission. ended without submitting" in failed
    assert "No judgement." in page.locator("#judge").inner_text()
    assert "No transcript" in page.locator("#transcript").inner_text()
    assert page.locator(".viewer").count() == 0


# --- judge, errors, quotes ------------------------------------------------------------------------------------


def test_judge_shows_votes_spread_panel_and_injections(visit: Visit) -> None:
    judge = visit.open(GOOD).locator("#judge")
    assert "± 70.7 between judgements" in judge.locator("#judge-S2").inner_text()
    assert "votes 0 1" in judge.locator("#criterion-s2a").inner_text()
    assert judge.get_by_role("region", name="Judgements").locator("tbody tr").count() == 2
    assert "judge.order" in judge.get_by_role("region", name="Injections").inner_text()


def marked(visit: Visit) -> str:
    """The passage that is marked and in sight."""
    mark = visit.page.locator("mark.quoted")
    mark.wait_for()
    assert mark.evaluate("m => { const r = m.getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight; }")
    return str(mark.inner_text())


QUOTES = {
    "#criterion-s2a a.to-turn": "print('first step')",  # the judge's quote, other white space
    "#criterion-s1a a.to-turn": "Threshold first, then watershed.",  # of the plan
    "#errors a.to-turn": "ValueError:   no",  # error code, in the error output
    "#judge [aria-label=Injections] a.to-turn": "198\n199",  # in folded output
}


def test_quote_leads_to_its_passage(visit: Visit) -> None:
    for where, passage in QUOTES.items():
        visit.open(GOOD).locator(where).click()
        assert marked(visit) == passage
        visit.page.goto("about:blank")


def test_quote_of_what_is_not_on_the_page_leads_nowhere(visit: Visit) -> None:
    quote = visit.open(GOOD).locator("#criterion-s1b blockquote")
    assert " ".join(quote.inner_text().split()) == "plan/plan.png opens as a picture files or picture"
    assert quote.locator("a").count() == 0


def test_quote_by_keyboard_and_again(visit: Visit) -> None:
    """Another quote moves the mark; the same one twice leads there again."""
    page = visit.open(GOOD)
    link = page.locator("#criterion-s2a a.to-turn")
    link.focus()
    page.keyboard.press("Enter")
    assert marked(visit) == "print('first step')"
    page.locator("#errors a.to-turn").click()
    assert marked(visit) == "ValueError:   no"
    page.locator("#errors a.to-turn").click()
    assert marked(visit) == "ValueError:   no"
    assert page.locator("mark.quoted").count() == 1


def test_link_from_outside_opens_the_turn(visit: Visit) -> None:
    page = visit.open(GOOD, "#turn-3")
    turn = page.locator("#turn-3.here")
    assert turn.evaluate("t => t.open && t.getBoundingClientRect().top < innerHeight")


# --- transcript -----------------------------------------------------------------------------------------------


def shown_turns(visit: Visit) -> list[str]:
    return [str(id_) for id_ in visit.page.locator(".turn:not([hidden])").evaluate_all("all => all.map(t => t.id)")]


def test_turns_of_the_transcript(visit: Visit) -> None:
    """Lines, output and time; a program's own prompt, which is no brief.

    The reasoning of turn 2 is folded, and holds the judge's quote word for word, before the code that it is of.
    """
    page = visit.open(GOOD)
    turn = page.locator("#turn-2")
    assert turn.locator(".lines").inner_text() == "1\n2"
    assert "python · ok, exit code 0 · 2.0 s" in turn.inner_text()
    thoughts = turn.locator("details.thoughts")
    assert thoughts.count() == 1
    assert thoughts.get_attribute("open") is None
    assert thoughts.locator("summary").inner_text().startswith("reasoning · ")
    said = page.locator("#turn-4").inner_text()
    assert "Program's own system prompt" in said and "You are a program." in said and "Brief" not in said


def test_long_output_is_folded(visit: Visit) -> None:
    output = visit.open(GOOD).locator("#turn-3 details.block.output")
    assert not output.locator("pre").is_visible()
    output.locator("summary").click()
    assert output.locator("pre").inner_text().endswith("199")


def test_transcript_is_filtered(visit: Visit) -> None:
    chosen = {
        "Failed": ["turn-4", "plan"],
        "Quoted": ["turn-2", "turn-3", "turn-4", "plan"],
        "S2": ["turn-2", "plan"],
    }
    transcript = visit.open(GOOD).locator("#transcript")
    for choice, expected in chosen.items():
        transcript.get_by_role("button", name=choice, exact=True).click()
        assert shown_turns(visit) == expected
        transcript.get_by_role("button", name="All", exact=True).press("Enter")
        assert len(shown_turns(visit)) == 5


def test_transcript_is_searched(visit: Visit) -> None:
    """By the key /, in all that was said, run and printed; what is found is marked in the page."""
    page = visit.open(GOOD)
    page.keyboard.press("/")
    page.keyboard.type("SECOND")
    page.locator("#transcript", has_text="1 of 4 turns").wait_for()
    assert shown_turns(visit) == ["turn-2", "plan"]
    assert page.evaluate("CSS.highlights.get('found').size") == 1


def test_turns_by_keyboard(visit: Visit) -> None:
    page = visit.open(GOOD)
    here = page.locator(".turn.here")
    for key, expected in (("j", "turn-1"), ("j", "turn-2"), ("j", "turn-3"), ("k", "turn-2")):
        page.keyboard.press(key)
        assert here.get_attribute("id") == expected


def test_strip_leads_to_a_turn(visit: Visit) -> None:
    """By time of code turn 3 takes ten times as long as others, so it is by far the widest."""
    page = visit.open(GOOD)
    row = page.locator(".strip-row").nth(1).locator(".part")
    widths = row.evaluate_all("parts => parts.map(p => p.getBoundingClientRect().width)")
    assert widths[2] == max(widths) > 4 * widths[1] / 1.1
    assert "failed" in str(row.nth(3).get_attribute("aria-label"))
    row.nth(2).click()
    page.wait_for_selector("#turn-3.here")


def test_agents_text_is_inert(visit: Visit) -> None:
    page = visit.open(GOOD)
    text = page.locator("#turn-2 .said").inner_text()
    assert "</script><img src=x" in text
    assert "⟨U+202E⟩gnp.exe ⟨ESC⟩[31mred" in text
    assert page.locator("#transcript img").count() == 0
    assert "owned" not in page.title()


# --- tables ---------------------------------------------------------------------------------------------------


def test_case_table_pages_and_sorts(visit: Visit) -> None:
    page = visit.open(GOOD)
    cases = page.get_by_role("region", name="Cases", exact=True)
    pager = cases.locator("xpath=following-sibling::div")
    assert cases.locator("tbody tr").count() == 25
    assert "1–25 of 60" in pager.inner_text()
    pager.get_by_role("button", name="Next").click()
    assert "26–50 of 60" in pager.inner_text()
    cases.get_by_role("button", name="Case").click()
    assert cases.locator("tbody th").first.inner_text() == "bccd_0060"
    assert "1–25 of 60" in pager.inner_text()
    assert cases.locator("thead th").first.get_attribute("aria-sort") == "descending"


def test_classes_that_are_nowhere_can_be_had(visit: Visit) -> None:
    """One of two says nothing; a column that is null everywhere is not there at first."""
    metrics = visit.open(GOOD).locator("#metrics")
    table = metrics.get_by_role("region", name="Metrics by class")
    assert table.locator("tbody th").all_inner_texts() == ["rbc"]
    metrics.get_by_role("button", name="Show them").click()
    assert table.locator("tbody th").all_inner_texts() == ["rbc", "wbc"]
    titles = table.locator("thead th").all_inner_texts()
    assert [
        row.locator("th, td").nth(titles.index("constructor")).inner_text() for row in table.locator("tbody tr").all()
    ] == ["0.2500", "–"]


@pytest.mark.parametrize("anchor", ["#%", "#%E0%A4%A", "#turn-2:%"])
def test_strange_addresses_show_the_page(visit: Visit, anchor: str) -> None:
    assert visit.open(GOOD, anchor).locator("#scores").is_visible()


def test_files_and_hashes(visit: Visit, pages: Path) -> None:
    page = visit.open(GOOD)
    files = page.get_by_role("region", name="Files of the run")
    row = files.locator("tr", has_text="judge.json")
    assert "ab" * 32 in row.inner_text()
    target = row.locator("a").evaluate("link => link.href")
    assert target == (pages.parents[1] / "runs" / GOOD.path / "judge.json").as_uri()


# --- the case viewer ------------------------------------------------------------------------------------------


def test_viewer_opens_at_the_largest_slice(visit: Visit) -> None:
    viewer = visit.viewer()
    assert viewer.locator(".slices [role=status]").inner_text() == "axial 3 of 5 · largest"
    assert viewer.locator(".chip.case").first.inner_text().split("\n") == ["volume_1", "lowest dice of 3"]
    assert viewer.locator("img.layer").count() == 3
    loaded = viewer.locator("img.layer").evaluate_all("all => all.map(i => i.naturalWidth)")
    assert loaded == [40, 40, 40]


def test_slices_by_mouse_and_keyboard(visit: Visit) -> None:
    viewer = visit.viewer()
    title = viewer.locator(".slices [role=status]")
    viewer.get_by_label("Slice").fill("0")
    assert title.inner_text() == "axial 1 of 5"
    viewer.focus()
    for _ in range(9):
        visit.page.keyboard.press("ArrowRight")
    assert title.inner_text() == "axial 5 of 5"
    visit.page.keyboard.press("ArrowLeft")
    assert title.inner_text() == "axial 4 of 5"
    viewer.get_by_label("Slice").focus()
    visit.page.keyboard.press("ArrowLeft")
    assert title.inner_text().startswith("axial 3 of 5")


def test_picture_fills_the_card_and_can_be_larger(visit: Visit) -> None:
    """Keys act without focus while the viewer is in sight; a picture that is larger than its place scrolls in it."""
    viewer = visit.viewer()
    page = visit.page
    viewer.scroll_into_view_if_needed()
    page.evaluate("document.activeElement.blur()")
    card, picture = viewer.bounding_box(), viewer.locator(".canvas").bounding_box()
    high = page.evaluate("innerHeight")
    assert picture["width"] > 0.6 * card["width"] or picture["height"] == pytest.approx(0.72 * high, abs=2)
    for key in ("+", "+", "ArrowRight"):
        page.keyboard.press(key)
    assert viewer.locator(".slices [role=status]").inner_text() == "axial 4 of 5"
    assert viewer.locator(".canvas").bounding_box()["width"] == pytest.approx(2 * picture["width"], rel=0.05)
    place = viewer.locator(".frame-place")
    assert place.evaluate("p => p.scrollWidth > p.clientWidth && p.scrollHeight > p.clientHeight")
    page.keyboard.press("0")
    assert viewer.locator(".canvas").bounding_box()["width"] == pytest.approx(picture["width"], abs=1)
    page.keyboard.press("f")
    page.wait_for_function("document.fullscreenElement?.matches('.viewer')")
    page.keyboard.press("f")
    page.wait_for_function("!document.fullscreenElement")


def test_overlays_are_toggled_and_faded(visit: Visit) -> None:
    """By button and by key; the choice stays when the slice changes."""
    viewer = visit.viewer()
    prediction, reference = viewer.locator("img.overlay.prediction"), viewer.locator("img.overlay.reference")
    assert prediction.is_visible() and reference.is_visible()
    viewer.get_by_role("button", name="Prediction").click()
    assert not prediction.is_visible() and reference.is_visible()
    viewer.focus()
    visit.page.keyboard.press("r")
    visit.page.keyboard.press("ArrowRight")
    assert not prediction.is_visible() and not reference.is_visible()
    visit.page.keyboard.press("p")
    viewer.get_by_label("Opacity of the prediction").fill("20")
    assert prediction.is_visible()
    assert prediction.evaluate("i => getComputedStyle(i).opacity") == "0.2"
    assert viewer.locator(".legend").inner_text() == "liver"


def test_overlay_lies_where_it_was_marked(visit: Visit) -> None:
    """Slice 3: columns 10–20 of 40 and rows 10–20 of 30 are marked; the colour is there, and only there."""
    viewer = visit.viewer()
    colours = viewer.locator("img.overlay.prediction").evaluate(
        """image => {
          const canvas = Object.assign(document.createElement('canvas'), { width: 40, height: 30 });
          const context = canvas.getContext('2d', { willReadFrequently: true });
          context.drawImage(image, 0, 0);
          const at = ([x, y]) => [...context.getImageData(x, y, 1, 1).data];
          return [[15, 15], [9, 15], [20, 15], [15, 9], [15, 20]].map(at);
        }"""
    )
    assert colours[0] == [0xE6, 0x9F, 0x00, 255]
    assert [colour[3] for colour in colours[1:]] == [0, 0, 0, 0]
    sizes = viewer.locator("img.layer").evaluate_all("all => all.map(i => JSON.stringify(i.getBoundingClientRect()))")
    assert len(set(sizes)) == 1


def test_cases_by_keyboard_and_from_the_table(visit: Visit) -> None:
    viewer = visit.viewer()
    viewer.focus()
    current = viewer.locator(".chip.case[aria-pressed=true]")
    visit.page.keyboard.press("]")
    assert current.inner_text().startswith("image_1")
    visit.page.keyboard.press("[")
    visit.page.keyboard.press("[")
    assert current.inner_text().startswith("study_1")


def test_link_from_outside_opens_the_case(visit: Visit) -> None:
    page = visit.open(GOOD, "#case-image_1")
    assert page.locator(".chip.case[aria-pressed=true]").inner_text().startswith("image_1")


def test_boxes_are_placed_toggled_and_named(visit: Visit) -> None:
    viewer = visit.viewer("image_1")
    picture = viewer.locator(".canvas").bounding_box()
    true = viewer.locator(".box.reference").bounding_box()
    assert true["x"] == pytest.approx(picture["x"], abs=1)
    assert true["width"] == pytest.approx(picture["width"] / 2, abs=1)
    assert true["y"] - picture["y"] == pytest.approx(picture["height"] / 4, abs=1)
    name = viewer.locator(".box.prediction span")
    assert not name.is_visible()
    viewer.focus()
    visit.page.keyboard.press("l")
    assert name.is_visible() and name.inner_text().endswith(" 0.75") and "</script>" in name.inner_text()
    above = "span => span.getBoundingClientRect().top - span.closest('.canvas').getBoundingClientRect().top"
    assert name.evaluate(above) >= 0, "at the upper edge the label lies inside"
    assert "without a pair" in str(viewer.locator(".box.prediction").get_attribute("title"))
    visit.page.keyboard.press("p")
    assert not viewer.locator(".box.prediction").is_visible()


def test_before_and_after(visit: Visit) -> None:
    """Side by side at first; then one over the other, with a line that moves."""
    viewer = visit.viewer("slice_1")
    assert viewer.locator("figcaption").all_inner_texts() == ["Input", "Prediction", "Reference", "Difference"]
    assert "dtype: is float64" in viewer.inner_text()
    viewer.focus()
    visit.page.keyboard.press("m")
    assert viewer.locator("img.layer").count() == 2
    viewer.get_by_label("Left", exact=True).select_option("input")
    line = viewer.get_by_label("Where the left picture ends")
    line.focus()
    visit.page.keyboard.press("Home")
    left = viewer.locator("[data-end=left]")
    assert "input" in str(left.get_attribute("class"))
    assert left.evaluate("i => getComputedStyle(i).clipPath") == "inset(0px 100% 0px 0px)"
    visit.page.keyboard.press("End")
    assert left.evaluate("i => getComputedStyle(i).clipPath").startswith("inset(0px")


def test_reports_side_by_side_with_their_differences(visit: Visit) -> None:
    viewer = visit.viewer("study_1")
    assert viewer.locator(".text.prediction ins").all_inner_texts() == ["Effusion"]
    assert viewer.locator(".text.reference del").all_inner_texts() == ["Pneumothorax"]
    tops = viewer.locator(".text").evaluate_all("all => all.map(t => t.getBoundingClientRect().top)")
    assert tops[0] == tops[1]


# --- phone, light and dark ------------------------------------------------------------------------------------


@on_phone
@pytest.mark.parametrize("case", ["volume_1", "image_1", "slice_1", "study_1"])
def test_phone_scrolls_one_way_only(visit: Visit, case: str) -> None:
    viewer = visit.viewer(case)
    assert visit.overflow() <= 0
    viewer.focus()
    visit.page.keyboard.press("m")
    assert visit.overflow() <= 0


@on_phone
def test_phone_shows_other_runs_within_its_width(visit: Visit) -> None:
    visit.open(BAD)
    assert visit.overflow() <= 0


@in_the_dark
def test_theme_follows_the_system_and_the_reader(visit: Visit) -> None:
    page = visit.open(GOOD)

    def paper() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark = paper()
    button = page.locator(".theme")
    button.click()
    assert "light" in button.inner_text() and paper() != dark
    page.reload()
    assert "light" in page.locator(".theme").inner_text() and paper() != dark
    page.locator(".theme").click()
    assert paper() == dark


def test_closed_data_is_said(visit: Visit, tmp_path: Path, root: Path) -> None:
    """A transcript about credentialed data may hold parts of it; the page of open data says nothing."""
    said = "Access to this data set"
    assert visit.open(GOOD).get_by_text(said).count() == 0
    card = load_card(root / "config/tasks/detection/bccd-det-task.yaml")
    closed = card.model_copy(update={"dataset": card.dataset.model_copy(update={"access": "credentialed"})})
    score = write_bad_run(tmp_path)
    write_run_pages(tmp_path, tmp_path / "leaderboard", match_scores([score.run], [score], {}), {card.id: closed}, {})
    other = Visit(visit.page.context.new_page(), tmp_path / "leaderboard/runs")
    assert "needs credentials" in other.open(BAD).get_by_text(said).inner_text()
    assert other.complaints == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("run", [GOOD, BAD, SILENT], ids=lambda run: run.agent)
def test_nothing_grave_for_people_who_use_aids(visit: Visit, run: RunId, theme: str) -> None:
    visit.page.emulate_media(color_scheme=theme)
    assert grave_findings(visit.open(run)) == []
