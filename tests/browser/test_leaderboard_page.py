"""The page in headless Chromium: a reader clicks through it, and nothing is requested or reported as an error."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import (
    disqualify,
    make_call,
    make_error,
    make_run,
    make_score,
    make_scores,
    make_totals,
    run_records,
    write_campaign,
    write_run,
)

from automedbench.leaderboard import build_leaderboard
from automedbench.records import Message, ScoreRecord, Tier

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"> \u202egnp.exe \x1b[31mred"
GOOD, BAD, SILENT = "careful", "cheater", "silent"


def campaign_scores() -> list[ScoreRecord]:
    """Three agents, two tasks, two tiers, two repeats; overall 0.75, 0.25 and (disqualified) 0."""
    scores = []
    for task, track in (("bccd-det-task", "detection"), ("toy-seg-task", "segmentation")):
        for tier in ("lite", "standard"):
            for repeat in (1, 2):
                scores += agent_scores(task, track, tier, repeat)  # type: ignore[arg-type]
    return scores


def agent_scores(task: str, track: str, tier: Tier, repeat: int) -> list[ScoreRecord]:
    """One run of each agent."""
    good = make_score(make_run(GOOD, task, tier, repeat), make_scores(task=0.5), track=track)
    bad = make_score(make_run(BAD, task, tier, repeat), make_scores(task=0.5), track=track)
    silent = make_score(
        make_run(SILENT, task, tier, repeat),
        make_scores((0.5, 0.5, 0.5, 0.5, 0.5), task=0.0),
        track=track,
        outcome="stopped",
        failed=True,
        error_codes=[make_error()],
        totals=make_totals(cost_usd=None),
    )
    return [good, disqualify(bad), silent]


@pytest.fixture(scope="session")
def page_path(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A built page; one run of the good agent says hostile things, with long output in turn 3."""
    results = tmp_path_factory.mktemp("results")
    scores = campaign_scores()
    plan = write_campaign(results, scores, [*(score.run for score in scores), make_run(GOOD, repeat=3)])
    long = "\n".join(map(str, range(200)))
    calls = [make_call(2, code="print('first step')"), make_call(3, stdout=long, code=HOSTILE)]
    records = run_records(scores[0], n_cases=4, calls=calls)
    said = [Message(turn=2, role="assistant", content=HOSTILE), Message(turn=3, role="assistant", content="now all")]
    records["conversation.json"] = records["conversation.json"].model_copy(update={"messages": said})
    write_run(results, records)
    return build_leaderboard(
        results, plan, [str(root / "config/tasks")], root / "config/rubrics", results / "leaderboard", partial=True
    ).page


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright.Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser found (looked for {', '.join(BROWSERS)})")
    flags = [*QUIET, "--no-sandbox"] if os.geteuid() == 0 else list(QUIET)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


class Visit:
    """An open page, what it requested and what it complained about."""

    def __init__(self, page: playwright.Page, path: Path) -> None:
        self.page = page
        self.url = path.resolve().as_uri()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.goto(self.url)

    def bars(self) -> list[str]:
        """Agents in the chart, from the top."""
        return self.page.locator(".bar-name > .foreign").all_inner_texts()

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.fixture(params=[{"width": 1280, "height": 900}], ids=["desktop"])
def visit(browser: playwright.Browser, page_path: Path, request: pytest.FixtureRequest) -> Iterator[Visit]:
    context = browser.new_context(viewport=request.param)
    visit = Visit(context.new_page(), page_path)
    yield visit
    assert visit.complaints == []
    assert [url for url in visit.requests if url.split("#")[0] != visit.url and not url.startswith("data:")] == []
    context.close()


on_phone = pytest.mark.parametrize("visit", [{"width": 390, "height": 844}], ids=["phone"], indirect=True)


def test_ranking_is_visible(visit: Visit) -> None:
    assert visit.bars() == [GOOD, SILENT, BAD]
    table = visit.page.locator("#ranking-table")
    rows = table.locator("tbody tr").all_inner_texts()
    assert rows[0].split()[:2] == ["1", GOOD]
    assert "75.0" in rows[0] and "8 / 9" in rows[0] and "provisional" in rows[0]
    assert "8 disqualified" in rows[2]
    assert "24 of 25 planned runs" in visit.page.locator("#provisional").inner_text()


def test_unknown_price_is_a_dash(visit: Visit) -> None:
    silent = visit.page.locator("#ranking-table tbody tr", has_text=SILENT)
    assert "–" in silent.inner_text() and "$0.00" not in silent.inner_text()


def test_agents_are_toggled(visit: Visit) -> None:
    chip = visit.page.locator(f'.chip.agent[data-agent="{SILENT}"]')
    chip.click()
    assert visit.bars() == [GOOD, BAD]
    assert visit.page.locator("#task-table", has_text=SILENT).count() == 0
    chip.press("Enter")
    assert visit.bars() == [GOOD, SILENT, BAD]


def test_tier_and_track_narrow_the_ranking(visit: Visit) -> None:
    controls = visit.page.locator("#ranking-controls")
    controls.get_by_role("button", name="Standard", exact=True).click()
    assert "not the headline" in visit.page.locator("#ranking-note").inner_text()
    assert "4 / 4" in visit.page.locator("#ranking-table tbody tr").first.inner_text()
    controls.get_by_role("button", name="Detection").click()
    assert "2 / 2" in visit.page.locator("#ranking-table tbody tr").first.inner_text()


def test_table_sorts(visit: Visit) -> None:
    visit.page.locator("#ranking-table").get_by_role("button", name="Failed").click()
    agents = visit.page.locator("#ranking-table tbody th > span.foreign").all_inner_texts()
    assert agents[-1] == GOOD


def test_task_and_tier_are_picked(visit: Visit) -> None:
    visit.page.get_by_label("Task", exact=True).select_option("toy-seg-task")
    visit.page.get_by_label("Tier", exact=True).select_option("lite")
    assert "2 / 2" in visit.page.locator("#task-table tbody tr").first.inner_text()
    runs = visit.page.locator("#run-table tbody tr")
    assert runs.count() == 6
    assert "toy-seg-task" in str(runs.first.locator("a").get_attribute("href"))


def test_stage_shows_its_criteria(visit: Visit) -> None:
    visit.page.locator('.stage[data-stage="S3"]').click()
    text = visit.page.locator("#stage-S3").inner_text()
    assert "35 %" in visit.page.locator('.stage[data-stage="S3"]').inner_text()
    assert "Tried and checked before the full run" in text
    assert not visit.page.locator("#stage-S1").is_visible()


def test_run_opens_with_cases_judgement_and_transcript(visit: Visit) -> None:
    visit.page.locator("#run-table a", has_text=GOOD).first.click()
    run = visit.page.locator("#run")
    assert visit.page.locator("h2.run-title").inner_text().startswith(f"{GOOD} on Blood Cell Detection")
    assert not visit.page.locator("#board").is_visible()
    assert run.get_by_role("region", name="Cases").locator("tbody tr").count() == 4
    assert run.get_by_role("region", name="Metrics by class").locator("tbody tr").count() == 3
    assert "Plan written" in run.get_by_role("region", name="Criteria").inner_text()
    assert "print('first step')" in run.locator("#turn-2").inner_text()
    run.get_by_role("link", name="← Leaderboard").click()
    assert visit.page.locator("#board").is_visible()


def test_quote_leads_to_its_turn(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}#run={GOOD}/bccd-det-task/lite/r1")
    visit.page.locator("#run").get_by_role("link", name="turn 2").first.click()
    visit.page.wait_for_selector("#turn-2.here")
    assert visit.page.locator("#turn-2").evaluate("turn => turn.getBoundingClientRect().top < window.innerHeight")


def test_long_output_is_folded(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}#run={GOOD}/bccd-det-task/lite/r1")
    output = visit.page.locator("#turn-3 details.block.output")
    assert not output.locator("pre").is_visible()
    output.locator("summary").click()
    assert output.locator("pre").inner_text().endswith("199")


def test_agents_text_is_inert(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}#run={GOOD}/bccd-det-task/lite/r1")
    text = visit.page.locator("#turn-2 .said").inner_text()
    assert "</script><img src=x" in text
    assert "⟨U+202E⟩gnp.exe ⟨ESC⟩[31mred" in text
    assert visit.page.locator("img").count() == 0
    assert "owned" not in visit.page.title()


def test_disqualified_run_shows_its_findings(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}#run={BAD}/bccd-det-task/lite/r1")
    run = visit.page.locator("#run")
    assert "Disqualified. Every score is 0." in run.locator(".notice.bad").inner_text()
    findings = run.get_by_role("region", name="Audit findings").inner_text()
    assert "decoy.open" in findings and "/data/private/bccd_0001/boxes.json" in findings
    assert "without the penalty: overall 75.0" in run.inner_text()


def test_failed_run_says_why(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}#run={SILENT}/bccd-det-task/lite/r1")
    text = visit.page.locator("#run").inner_text()
    assert "Failed: no complete final submission. ended without submitting" in text
    assert "E5 Submission" in text and "submit_results was never called" in text
    assert "price unknown" in text


def test_unknown_run_is_said(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}#run=nobody/no-task/lite/r1")
    assert "No such run" in visit.page.locator("#run").inner_text()


def test_keyboard_reaches_a_run(visit: Visit) -> None:
    visit.page.locator("#run-table a").first.focus()
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("h2.run-title")
    assert visit.page.evaluate("document.activeElement.id") == "run"


@on_phone
def test_phone_scrolls_one_way_only(visit: Visit) -> None:
    assert visit.overflow() <= 0
    visit.page.locator('.stage[data-stage="S1"]').click()
    assert visit.overflow() <= 0
    visit.page.locator("#run-table a").first.click()
    visit.page.wait_for_selector("h2.run-title")
    assert visit.overflow() <= 0
