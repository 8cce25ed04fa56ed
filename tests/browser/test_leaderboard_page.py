"""The board in headless Chromium: a reader clicks through it, and nothing is requested or reported as an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from axe import grave_findings
from boards import make_board
from factories import (
    disqualify,
    make_error,
    make_flat_scores,
    make_recipe,
    make_run,
    make_score,
    make_scores,
    make_totals,
    write_campaign,
)

from automedbench.base.records import ScoreRecord, Tier
from automedbench.leaderboard.build import build_leaderboard
from automedbench.leaderboard.charts import export_charts
from automedbench.leaderboard.page.board_page import write_board
from automedbench.statistics.samples import StatisticsMethod

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.browser

GOOD, BAD, SILENT = "careful", "cheater", "silent"
TASKS = {"bccd-det-task": "detection", "toy-seg-task": "segmentation", "toy-vqa-task": "vqa"}
HOSTILE = (
    "</script><img src=x onerror=\"document.title='owned'\">",
    "\u202egnp.exe",
    "zero\u200bwidth",
    "a,b & \"c\" 'd'",
    "מודל",
    "@ink",
    "x" * 200,
)
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def campaign_scores() -> list[ScoreRecord]:
    """Three agents, three tasks, two tiers, three repeats; overall 0.75, 0 (disqualified) and about 0.25."""
    return [
        score
        for task, track in TASKS.items()
        for tier in ("lite", "standard")
        for repeat in (1, 2, 3)
        for score in agent_scores(task, track, tier, repeat)  # type: ignore[arg-type]
    ]


def agent_scores(task: str, track: str, tier: Tier, repeat: int) -> list[ScoreRecord]:
    """One run of each agent; the silent one differs a little between repeats and has a code in two of three."""
    good = make_score(make_run(GOOD, task, tier, repeat), make_scores(task=0.5), track=track)
    bad = make_score(make_run(BAD, task, tier, repeat), make_scores(task=0.5), track=track)
    silent = make_score(
        make_run(SILENT, task, tier, repeat),
        make_scores((0.5, 0.5, 0.5, 0.5, 0.5), task=0.02 * repeat),
        track=track,
        outcome="stopped",
        failed=True,
        error_codes=[make_error()] if repeat > 1 else [],
        recipe=make_recipe(agent_settings={"temperature": 0.0}),
        totals=make_totals(cost_usd=None),
    )
    return [good, disqualify(bad), silent]


@pytest.fixture(scope="session")
def board_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board with a planned run that is not scored."""
    folder = tmp_path_factory.mktemp("board")
    scores = campaign_scores()
    board = make_board(scores, [*(score.run for score in scores), make_run(GOOD, repeat=4)])
    export_charts(folder / "charts", board)
    write_board(folder / "index.html", board)
    return folder / "index.html"


@pytest.fixture(scope="session")
def hostile_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board whose agents have names that attack the page."""
    scores = [
        make_score(make_run(name, task, "lite", repeat), make_flat_scores(0.9 - 0.1 * place), track=track, model=name)
        for place, name in enumerate(HOSTILE)
        for task, track in TASKS.items()
        for repeat in (1, 2, 3)
    ]
    path = tmp_path_factory.mktemp("hostile") / "index.html"
    write_board(path, make_board(scores))
    return path


class Visit:
    """An open page, what it requested and what it complained about."""

    def __init__(self, page: playwright.Page, path: Path, hash_: str = "") -> None:
        self.page = page
        self.url = path.resolve().as_uri()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.open(hash_)

    def open(self, hash_: str = "") -> None:
        """Load the page anew with this hash and wait until all sections are there."""
        self.page.goto("about:blank")
        self.page.goto(self.url + hash_)
        self.page.wait_for_selector("html[data-ready=yes]")

    def agents(self) -> list[str]:
        """Agents in the ranking table, from the top."""
        return self.page.locator("#ranking-table tbody th > a.agent").all_inner_texts()

    def chart(self, name: str) -> playwright.Locator:
        """A drawn chart."""
        place = self.page.locator(f'[data-chart="{name}"]').first
        place.scroll_into_view_if_needed()
        place.locator("svg").wait_for()
        return place

    def chart_texts(self, name: str) -> list[str]:
        """What a chart says."""
        return [
            text
            for text in self.chart(name).locator("svg text:not(:has(tspan)), svg tspan").all_text_contents()
            if text
        ]

    def hash(self) -> str:
        """What stands in the address, readable."""
        return unquote(self.page.url.partition("#")[2])

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@pytest.fixture(params=[DESKTOP], ids=["desktop"])
def visit(browser: playwright.Browser, board_path: Path, request: pytest.FixtureRequest) -> Iterator[Visit]:
    yield from visited(browser, board_path, request.param)


@pytest.fixture(scope="module")
def shown(browser: playwright.Browser, board_path: Path) -> Iterator[Visit]:
    """One visit for the tests that only read."""
    yield from visited(browser, board_path, DESKTOP)


@pytest.fixture
def hostile(browser: playwright.Browser, hostile_path: Path) -> Iterator[Visit]:
    yield from visited(browser, hostile_path, DESKTOP)


def visited(browser: playwright.Browser, path: Path, size: dict[str, int]) -> Iterator[Visit]:
    """A visit that ends without a complaint and without a request to anywhere."""
    context = browser.new_context(viewport=size)
    visit = Visit(context.new_page(), path)
    yield visit
    assert visit.complaints == []
    own = (visit.url, "about:blank")
    assert [url for url in visit.requests if url.split("#")[0] not in own and not url.startswith("data:")] == []
    context.close()


on_phone = pytest.mark.parametrize("visit", [PHONE], ids=["phone"], indirect=True)


# --- ranking ----------------------------------------------------------------------------------------------------


def test_ranking_is_visible(shown: Visit) -> None:
    assert shown.agents() == [GOOD, SILENT, BAD]
    rows = shown.page.locator("#ranking-table tbody tr").all_inner_texts()
    assert "75.0" in rows[0] and "18 / 19" in rows[0] and "provisional" in rows[0]
    assert "18 disq." in rows[2] and "not submitted" in rows[1]
    assert "54 / 55" in shown.page.locator("#sums").inner_text()
    assert "54 of 55 planned runs" in shown.page.locator("#provisional").inner_text()
    assert "Judged by rules, not by a model" in shown.page.locator("#heuristic").inner_text()


def test_ranking_is_drawn(shown: Visit) -> None:
    texts = shown.chart_texts("ranking")
    assert [text for text in texts if text in (GOOD, SILENT, BAD)] == [GOOD, SILENT, BAD]
    assert any(text.startswith("75.0") for text in texts)
    label = shown.page.locator('[data-chart="ranking"]').get_attribute("aria-label")
    assert label == "Overall score of agents: careful 75.0, silent 27.0, cheater 0.0"


def test_unknown_price_is_a_dash(shown: Visit) -> None:
    silent = shown.page.locator("#ranking-table tbody tr", has_text=SILENT)
    assert "–" in silent.inner_text() and "$0.00" not in silent.inner_text()


def test_agents_are_toggled(visit: Visit) -> None:
    visit.page.locator("#filters").click()
    chip = visit.page.locator(f'.chip.agent[data-agent="{SILENT}"]')
    chip.click()
    assert visit.agents() == [GOOD, BAD]
    assert visit.page.locator("#task-table", has_text=SILENT).count() == 0
    assert visit.hash() == f"hide={SILENT}"
    assert SILENT not in visit.chart_texts("ranking")
    chip.press("Enter")
    assert visit.agents() == [GOOD, SILENT, BAD]


def test_tier_and_track_narrow_the_ranking(visit: Visit) -> None:
    visit.page.locator("#choose-tiers").select_option("standard")
    assert "not the headline" in visit.page.locator("#ranking-note").inner_text()
    assert "9 / 9" in visit.page.locator("#ranking-table tbody tr").first.inner_text()
    visit.page.locator("#choose-track").select_option("detection")
    assert "3 / 3" in visit.page.locator("#ranking-table tbody tr").first.inner_text()
    assert visit.hash() == "tier=standard&track=detection"
    assert "Standard · Detection" in visit.page.locator("#profiles .scope").inner_text()


def test_table_sorts(visit: Visit) -> None:
    visit.page.locator("#ranking-table").get_by_role("button", name="Failed").click()
    assert visit.agents()[-1] == GOOD


def test_number_says_where_it_comes_from(visit: Visit) -> None:
    visit.page.locator("#ranking-table tbody tr").first.get_by_role("button", name=re.compile("^Overall of")).click()
    box = visit.page.locator("#why")
    text = box.inner_text()
    for part in (
        "Overall: 75.0", "18 of 19", "6 of 6", "(agentic + task) / 2", "mean over tasks", "heuristic (heuristic-1)",
        "apptainer/sealed", "Rubric version", "101", "overall.csv",
    ):  # fmt: skip
        assert part in text, part
    assert visit.page.evaluate("document.activeElement.textContent") == "✕"
    visit.page.keyboard.press("Escape")
    assert not box.is_visible()


def test_number_leads_to_its_runs_and_back(visit: Visit) -> None:
    visit.page.locator("#task-table tbody tr").first.get_by_role("button", name=re.compile("^Task half of")).click()
    visit.page.locator("#why").get_by_role("button", name="The 6 runs it is made of").click()
    assert "6 of 54 scored runs" in visit.page.locator("#run-table").inner_text()
    assert f"run-agent={GOOD}" in visit.hash() and "go=runs" in visit.hash()
    assert visit.page.locator("#runs-title").evaluate("title => title.getBoundingClientRect().top < innerHeight")
    visit.page.go_back()
    assert "54 of 54 scored runs" in visit.page.locator("#run-table").inner_text()


def test_both_poolings_are_named(shown: Visit) -> None:
    text = shown.page.locator("#certainty").inner_text()
    assert "By tasks or by runs: both poolings give the same scores and ranks." in text


def test_first_screen_has_chart_and_ranking(visit: Visit) -> None:
    """Of the three agents of a page with two notices: at 1280 × 900 nothing needs to be scrolled."""
    for name in ("ranking-chart", "ranking-table"):
        assert visit.page.locator(f"#{name} tbody, #{name} svg").evaluate(
            "place => place.getBoundingClientRect().bottom <= innerHeight"
        ), name


def test_agents_by_track_and_tier(visit: Visit) -> None:
    """Careful has 0.75, silent (0.5 + 0.04) / 2 = 0.27 with 0.02, 0.04, 0.06 in three repeats; tiers do not differ."""
    tracks = visit.page.locator("#tracks-table tbody tr").all_inner_texts()
    assert [row.split()[0] for row in tracks] == [GOOD, SILENT, BAD]
    assert tracks[0].count("75.0") >= 4 and tracks[1].count("27.0") >= 4 and "6/7" in tracks[0]
    visit.page.locator("#tracks-controls").get_by_role("button", name="Task half").click()
    assert visit.page.locator("#tracks-table tbody tr").first.inner_text().count("50.0") >= 4
    tiers = visit.page.locator("#tiers-table tbody tr").all_inner_texts()
    assert "0.0 %" in tiers[1] and "27.0" in tiers[1] and "9 + 9" in tiers[1]
    assert "–" in tiers[2], "no change of an agent that has 0 in standard"


def test_agent_has_a_page(visit: Visit) -> None:
    visit.page.locator("#ranking-table").get_by_role("link", name=SILENT).click()
    assert visit.hash() == f"go=agents&agent={SILENT}"
    assert visit.page.locator("#agent-picker").input_value() == SILENT
    assert visit.page.locator("#agent-page tbody tr").count() == 6, "three tasks in two tiers"
    visit.page.locator("#agent-page summary").click()
    assert "temperature\n0.0" in visit.page.locator("#agent-page details").inner_text()


def test_every_table_is_saved(visit: Visit) -> None:
    """Exact numbers, not those shown; every table has the button."""
    assert visit.page.locator("table").count() == visit.page.locator("button.csv").count() > 10
    with visit.page.expect_download() as saving:
        visit.page.locator("#ranking-table button.csv").click()
    assert saving.value.suggested_filename == "ranking-of-agents.csv"
    head, first, *_ = Path(saving.value.path()).read_text().splitlines()
    assert head.startswith('"#","Agent","Tie","Overall"') and first.startswith('1,"careful",')
    assert ",0.75," in first


def test_foot_says_how_to_cite(shown: Visit, root: Path) -> None:
    foot = shown.page.locator("#about").inner_text()
    cited = (root / "CITATION.cff").read_text()
    for part in ("arXiv:2606.01961", "AutoMedBench: Towards Medical AutoResearch with Agentic AI Models", "MIT"):
        assert part in foot and part in cited
    assert "Signature: amb:v1" in foot


# --- profiles and cost ------------------------------------------------------------------------------------------


def test_profile_has_a_radar_per_agent(visit: Visit) -> None:
    assert {"S1", "S5", GOOD, SILENT} <= set(visit.chart_texts("profile"))
    assert visit.page.locator("#radars figure").count() == 3
    assert {"S1", "100"} <= set(visit.chart_texts("radar"))
    visit.page.locator("#radar-controls").get_by_role("button", name="Tracks").click()
    assert {"Det", "Seg", "VQA", "75"} <= set(visit.chart_texts("radar"))
    assert visit.hash() == "radar=tracks"


def test_numbers_of_a_chart_are_a_table(visit: Visit) -> None:
    visit.page.locator("#profile summary").press("Enter")  # a click can miss it while the sections above are drawn
    visit.page.locator("#profile tbody tr").first.wait_for()  # to be seen
    rows = visit.page.locator("#profile tbody tr").all_inner_texts()
    assert len(rows) == 15 and "S1 Plan" in rows[0] and "100.0" in rows[0]


def test_agents_without_a_price_stand_below_the_frontier(visit: Visit) -> None:
    assert GOOD in visit.chart_texts("frontier") and SILENT not in visit.chart_texts("frontier")
    assert f"unknown or zero cost): {SILENT} 27.0" in visit.page.locator("#frontier-chart").inner_text()
    visit.page.locator("#frontier-controls").get_by_role("button", name="Turns").click()
    assert SILENT in visit.chart_texts("frontier")


# --- tasks, comparison, errors, stages --------------------------------------------------------------------------


def test_task_and_tier_are_picked(visit: Visit) -> None:
    visit.page.locator("#task-picker").select_option("toy-seg-task")
    visit.page.locator("#tier-picker").select_option("lite")
    assert "3 / 3" in visit.page.locator("#task-table tbody tr").first.inner_text()
    assert visit.hash() == "task=toy-seg-task&at=lite"


def test_matrix_shows_coverage_and_leads_to_a_task(visit: Visit) -> None:
    matrix = visit.page.locator("#matrix")
    assert "8 of 9 fields complete" in matrix.inner_text()
    row = matrix.locator("tbody tr", has_text="Blood Cell Detection")
    assert "6/7" in row.inner_text()
    assert "model 94.7\nother metric, other cases" in row.inner_text(), "the card's published result"
    matrix.get_by_role("button", name="toy-vqa-task", exact=True).click()
    assert visit.page.locator("#task-picker").input_value() == "toy-vqa-task"


def test_two_agents_are_compared(visit: Visit) -> None:
    visit.page.locator("#compare-a").select_option(SILENT)
    assert visit.page.locator("#compare-b").input_value() == GOOD, "choosing the other one swaps them"
    text = visit.page.locator("#comparison").inner_text()
    # Overall 0.75 against (0.5 + 0.04) / 2 = 0.27; all six task-tier cells are lost.
    assert "careful scores 48.0 points more than silent" in text
    assert "A is ahead in 0, B in 6" in text
    assert visit.hash() == f"compare={SILENT},{GOOD}"
    assert "All tracks" in visit.chart_texts("differences")
    visit.page.get_by_role("button", name="swap").click()
    assert "A is ahead in 6, B in 0" in visit.page.locator("#comparison").inner_text()


def test_error_atlas(visit: Visit) -> None:
    text = visit.page.locator("#atlas").inner_text()
    # Two of three repeats of the silent agent on three tasks in two tiers; disqualified runs are not counted.
    assert "12 codes in 36 runs; 24 runs have none" in text
    assert "67" in visit.chart_texts("error_shares")
    visit.page.locator("#atlas figure", has_text="Runs with an error code").locator("summary").click()
    visit.page.locator("#atlas").get_by_role("link", name="12 of 18").click()
    assert "12 of 54 scored runs" in visit.page.locator("#run-table").inner_text()


def test_stage_shows_its_criteria(visit: Visit) -> None:
    stage = visit.page.locator('.stage[data-stage="S3"]')
    stage.click()
    assert "35 %" in stage.inner_text()
    assert "Tried and checked before the full run" in visit.page.locator("#stage-S3").inner_text()
    assert not visit.page.locator("#stage-S1").is_visible()
    stage.click()
    assert not visit.page.locator("#stage-S3").is_visible()


def test_one_judge_has_no_agreement(shown: Visit) -> None:
    text = shown.page.locator("#agreement").inner_text()
    assert text == "Each run was judged once (by heuristic-1): there is no agreement to measure."


# --- runs -------------------------------------------------------------------------------------------------------


def test_runs_are_filtered_and_paged(visit: Visit) -> None:
    table = visit.page.locator("#run-table")
    assert table.locator("tbody tr").count() == 25
    table.get_by_role("button", name="Next").click()
    assert "26–50 of 54" in table.inner_text()
    visit.page.locator("#run-outcome").select_option("stopped")
    assert "18 of 54 scored runs" in table.inner_text()
    visit.page.get_by_label("Search").fill("vqa r3")
    assert "2 of 54 scored runs" in table.inner_text()
    assert visit.page.evaluate("document.activeElement.id") == "run-text", "typing must not lose the field"
    assert visit.hash() == "run-outcome=stopped&run-text=vqa+r3"


def test_typing_is_one_step_back(visit: Visit) -> None:
    visit.page.locator("#run-outcome").select_option("stopped")
    visit.page.get_by_label("Search").press_sequentially("vqa")
    visit.page.go_back()
    assert visit.hash() == "" and "54 of 54" in visit.page.locator("#run-table").inner_text()


def test_runs_link_to_their_page_and_file(shown: Visit) -> None:
    links = shown.page.locator("#run-table tbody tr").first.locator("a")
    assert [link.get_attribute("href") for link in links.all()] == [
        f"runs/{GOOD}/bccd-det-task/lite/r1.html",
        f"../runs/{GOOD}/bccd-det-task/lite/r1/score.json",
    ]


def test_sorting_of_runs_is_kept_in_the_address(visit: Visit) -> None:
    visit.page.locator("#run-table").get_by_role("button", name="Overall").click()
    assert visit.hash() == "run-sort=Overall:down"
    visit.open("#run-sort=Overall:up")
    assert "0.0" in visit.page.locator("#run-table tbody tr").first.inner_text()


# --- addresses, keyboard, themes, phone -------------------------------------------------------------------------


def test_address_restores_the_view(visit: Visit) -> None:
    visit.open(f"#tier=lite&track=vqa&hide={BAD}&task=toy-vqa-task&at=lite&compare={SILENT},{GOOD}&stage=S4&x=turns")
    assert visit.agents() == [GOOD, SILENT]
    assert visit.page.locator("#task-picker").input_value() == "toy-vqa-task"
    assert visit.page.locator("#compare-a").input_value() == SILENT
    assert visit.page.locator("#stage-S4").is_visible()
    pressed = visit.page.locator('#frontier-controls [aria-pressed="true"]')
    assert pressed.inner_text() == "Turns"


def test_strange_addresses_show_the_headline(shown: Visit) -> None:
    for address in ("#tier=nope&track=<img>&task=..&x=1&stage=S9", "#compare=%E0%A4%A&hide=%", "#=&&&=", "#unknown"):
        shown.open(address)
        assert shown.agents() == [GOOD, SILENT, BAD], address
    shown.open()


def test_k_of_reliability_can_be_chosen(visit: Visit) -> None:
    """Three repeats: 1 and 3 are offered, 3 is chosen; the worst of one is the mean and has no column."""
    visit.page.locator("#filters").click()
    group, heads = visit.page.get_by_role("group", name="Reliability over"), visit.page.locator("#ranking-table thead")
    assert group.get_by_role("button").all_inner_texts() == ["1 repeat", "3 repeats"]
    assert "All 3 win" in heads.inner_text() and "Worst of 3" in heads.inner_text()
    group.get_by_role("button", name="1 repeat").click()
    assert "Medals" in heads.inner_text() and "Worst" not in heads.inner_text()
    assert "Medals" in visit.page.locator("#tasks table thead").first.inner_text()


def test_back_button_undoes_choices(visit: Visit) -> None:
    visit.page.locator("#choose-tiers").select_option("lite")
    visit.page.locator("#choose-track").select_option("detection")
    visit.page.go_back()
    assert visit.hash() == "tier=lite" and "9 / 10" in visit.page.locator("#ranking-table").inner_text()
    visit.page.go_back()
    assert visit.hash() == "" and "18 / 19" in visit.page.locator("#ranking-table").inner_text()


def test_navigation_reaches_every_section(visit: Visit) -> None:
    for link in visit.page.locator(".top nav a").all():
        link.dispatch_event("click")
        section = str(link.get_attribute("data-go"))
        assert visit.page.evaluate("document.activeElement.id") == f"{section}-title"


def test_keyboard_alone_works(visit: Visit) -> None:
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.textContent") == "Skip to the ranking"
    visit.page.locator("#choose-track").focus()
    visit.page.keyboard.type("Det")
    assert visit.hash() == "track=detection"
    assert visit.page.evaluate("document.activeElement.id") == "choose-track", "the focus stays where it was"
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    assert visit.page.locator(".chip.agent").first.is_visible()


def test_charts_follow_the_theme(visit: Visit) -> None:
    bar = visit.chart("ranking").locator('path[fill="#0072b2"]')
    assert bar.count() == 3
    for _ in range(2):
        visit.page.locator("button.theme").click()
    assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
    visit.page.wait_for_selector('[data-chart="ranking"] path[fill="#56b4e9"]')
    visit.page.locator("button.theme").click()


def test_charts_say_what_is_pointed_at(visit: Visit) -> None:
    visit.chart("ranking").locator('path[fill="#0072b2"]').first.hover(position={"x": 4, "y": 4})
    tip = visit.page.locator("#tip")
    tip.wait_for()
    assert GOOD in tip.inner_text() and "75.0" in tip.inner_text() and "18 of 19" in tip.inner_text()


@on_phone
def test_phone_scrolls_one_way_only(visit: Visit) -> None:
    assert visit.overflow() <= 0
    assert visit.page.evaluate("document.documentElement.scrollHeight") < 6000
    assert "Scroll sideways" in visit.page.locator("#ranking-table").inner_text()
    bars = visit.chart("ranking").locator("svg").evaluate("svg => svg.getBoundingClientRect().bottom + scrollY")
    assert bars < PHONE["height"], "bars and numbers are on the first screen"
    visit.page.get_by_role("button", name="Menu").click()
    visit.page.locator("#menu").get_by_role("link", name="Runs").click()
    assert visit.hash() == "go=runs" and not visit.page.locator("#menu").is_visible()
    assert visit.page.locator("#run-table").is_visible()
    visit.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")  # unfolds
    for name in ("ranking", "profile", "frontier", "differences", "error_shares"):
        chart = visit.chart(name)
        assert chart.evaluate("place => place.querySelector('svg').getBoundingClientRect().right <= innerWidth"), name
    visit.page.locator('.stage[data-stage="S1"]').click()
    visit.page.locator("#ranking-table button.why").first.click()
    assert visit.overflow() <= 0
    box = visit.page.locator("#why").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("visit", [DESKTOP, PHONE], ids=["desktop", "phone"], indirect=True)
def test_nothing_grave_for_people_who_use_aids(visit: Visit, theme: str) -> None:
    visit.page.emulate_media(color_scheme=theme)
    visit.open("#stage=S3")
    assert grave_findings(visit.page) == []


def test_charts_are_drawn_for_print(visit: Visit) -> None:
    visit.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    visit.page.wait_for_function(
        "[...document.querySelectorAll('.chart')].every((place) => place.querySelector('svg'))"
    )


# --- names that attack ------------------------------------------------------------------------------------------


def test_names_are_text_everywhere(hostile: Visit) -> None:
    assert hostile.page.locator("img, iframe, object").count() == 0
    assert "owned" not in hostile.page.title()
    agents = hostile.agents()
    assert agents[0] == f"{HOSTILE[0][:15]}…{HOSTILE[0][-16:]}"
    assert "⟨U+202E⟩gnp.exe" in agents and "zero⟨U+200B⟩width" in agents
    for name in ("ranking", "profile", "differences"):
        hostile.chart(name)
    texts = hostile.chart_texts("ranking")
    assert "⟨U+202E⟩gnp.exe" in texts and "מודל" in texts and "@ink" in texts
    assert any(text.startswith("</script><img") and text.endswith("='owned'\">") for text in texts)
    assert hostile.overflow() <= 0


def test_names_survive_the_address(hostile: Visit) -> None:
    hostile.page.locator("#filters").click()
    for name in (HOSTILE[0], "a,b & \"c\" 'd'"):
        hostile.page.locator(".chip.agent").nth(HOSTILE.index(name)).click()
    hostile.page.reload()
    hostile.page.wait_for_selector("html[data-ready=yes]")
    assert len(hostile.agents()) == len(HOSTILE) - 2
    assert not any(name.startswith("</script>") for name in hostile.agents())


def test_tip_shows_names_as_text(hostile: Visit) -> None:
    hostile.chart("ranking").locator('path[fill="#0072b2"]').first.hover(position={"x": 4, "y": 4})
    tip = hostile.page.locator("#tip")
    tip.wait_for()
    assert HOSTILE[0] in tip.inner_text()


# --- other campaigns --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_agents", "repeats", "said"),
    [
        pytest.param(1, 1, "A comparison needs two agents", id="one agent"),
        pytest.param(2, 0, "No run is scored yet", id="nothing scored"),
        pytest.param(2, 2, "Insufficient for inference", id="too few repeats"),
        pytest.param(17, 3, "Show all 17 agents", id="more than fifteen agents"),
    ],
)
def test_campaigns_of_any_size(
    browser: playwright.Browser, tmp_path: Path, n_agents: int, repeats: int, said: str
) -> None:
    runs = [
        make_run(f"agent-{agent}", task, "lite", repeat)
        for agent in range(n_agents)
        for task in TASKS
        for repeat in range(1, max(repeats, 1) + 1)
    ]
    scores = [make_score(run, make_flat_scores(0.05 * (1 + int(run.agent[6:])) + 0.01 * run.repeat)) for run in runs]
    write_board(tmp_path / "index.html", make_board(scores if repeats else [], runs))
    for visit in visited(browser, tmp_path / "index.html", PHONE):
        if n_agents > 15:
            assert len(visit.agents()) == 15
            visit.page.locator("#ranking-table").get_by_role("button", name=said).click()
            assert len(visit.agents()) == 17 and visit.hash() == "rows=all"
            visit.page.go_back()
        visit.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert said in visit.page.locator("#board").inner_text()
        visit.page.wait_for_function("[...document.querySelectorAll('.chart')].every((p) => p.querySelector('svg'))")
        assert visit.overflow() <= 0


def test_panel_agreement_is_shown(browser: playwright.Browser, tmp_path: Path) -> None:
    """Two judges that give the same stage scores agree fully: α = κ = 1."""
    scores = []
    for number in range(1, 9):
        stages = {"S1": number / 8, "S2": number / 8, "S3": (number % 2) / 1}
        panel = {"judge-a#1": stages, "judge-b#1": stages}
        recipe = make_recipe(judge_kind="llm", judge="panel of 2")
        scores.append(make_score(make_run(repeat=number), panel=panel, recipe=recipe))
    write_board(tmp_path / "index.html", make_board(scores))
    for visit in visited(browser, tmp_path / "index.html", DESKTOP):
        rows = visit.page.locator("#agreement tbody tr").all_inner_texts()
        assert any("Krippendorff's α, 2 judgements" in row and "1.00" in row for row in rows)
        assert any("judge-a#1 and judge-b#1" in row for row in rows)
        assert visit.page.locator("#heuristic").count() == 0


def test_board_leads_to_the_page_of_a_run(browser: playwright.Browser, tmp_path: Path, root: Path) -> None:
    """Built as a whole: the first link of the run table opens a page that leads back."""
    write_campaign(tmp_path, [make_score(make_run(GOOD))])
    build_leaderboard(tmp_path, [str(root / "config/tasks")], StatisticsMethod(resamples=200))
    index = tmp_path / "leaderboard" / "index.html"
    page = browser.new_page()
    page.goto(index.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.locator("#run-table tbody a").first.click()
    assert page.url.endswith(f"/leaderboard/runs/{GOOD}/bccd-det-task/lite/r1.html")
    page.locator("a.brand").click()
    assert page.url.startswith(index.as_uri())
    page.close()
