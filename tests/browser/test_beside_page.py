"""Runs side by side in headless Chromium: frames of the runs' own pages that follow each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe import grave_findings
from boards import make_board
from factories import make_call, make_run, make_score, make_scores, run_records, write_run

from automedbench.base.records import RunId, ScoreRecord
from automedbench.base.views import CaseView, CaseViews, Frame
from automedbench.leaderboard.page.board_page import write_comparison
from automedbench.leaderboard.page.run_pages import write_run_pages
from automedbench.tracks.common.pictures import grey_layer

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=\"parent.document.title='owned'\">"
A, B, C = make_run("alpha", "spleen-seg-task"), make_run("beta", "spleen-seg-task"), make_run("gamma", "vqa-rad-task")
SHOWN = {A: ("one", "two"), B: ("two", "three"), C: ("other",)}
"""Run → cases it has a view of: A and B have one in common."""


def view_of(case: str, slices: range, dice: float) -> CaseView:
    """Slices of ten; which of them are drawn differs from run to run."""
    picture = grey_layer("input", np.ones((30, 40)), (0, 2), (40, 30))
    frames = [Frame(title=f"axial {n} of 10 · HU", width=40, height=30, layers=[picture]) for n in slices]
    return CaseView(case=case, status="valid", why="of every run", frames=frames, metrics={"dice": dice})


def write(results: Path, run: RunId, value: float) -> ScoreRecord:
    track = "vqa" if run == C else "segmentation"
    score = make_score(run, make_scores(task=value), track=track)
    records: Any = run_records(score, calls=[make_call(n, stdout="\n" * 30 + HOSTILE) for n in range(2, 8)])
    slices = range(1, 11) if run == A else range(2, 11, 2)
    cases = [view_of(case, slices, value) for case in SHOWN[run]]
    write_run(results, records | {"case_views.json": CaseViews(run=run, n_cases=4, cases=cases, note="")})
    return score


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("beside")
    scores = [write(results, A, 0.8), write(results, B, 0.6), write(results, C, 0.5)]
    board, out = make_board(scores), results / "leaderboard"
    write_run_pages(results, out, board.entries, board.cards, board.rubrics)
    write_comparison(out / "beside.html", board)
    return out / "beside.html"


@pytest.fixture
def page(browser: Any, place: Path) -> Iterator[Any]:
    """A window whose pages load nothing but each other, and complain of nothing."""
    window = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    seen: list[str] = []
    window.on("console", lambda message: seen.append(message.text))
    window.on("pageerror", lambda error: seen.append(str(error)))
    window.on("request", lambda asked: seen.extend([asked.url] * (not asked.url.startswith(("file:", "data:")))))
    yield window
    assert seen == []


def opened(page: Any, place: Path, anchor: str) -> list[Any]:
    """The frames at an address, all of them ready."""
    page.goto("about:blank")
    page.goto(f"{place.as_uri()}#{anchor}")
    frames = [element.content_frame() for element in page.locator("iframe").element_handles()]
    for frame in frames:
        frame.wait_for_selector(".framed .viewer")
    return frames


def shows(frame: Any, case: str, title: str) -> None:
    """Wait until the frame looks at this case and slice."""
    frame.wait_for_selector(f".view-head b:text-is('{case}')")
    frame.wait_for_selector(f".slices [role=status]:text('{title}')")


def test_two_runs_look_at_the_same_slice(page: Any, place: Path) -> None:
    """A has all ten slices, B every second one: slice 6 is the same in both; 7 is no slice of B, 6 of 9 steps on."""
    left, right = opened(page, place, f"a={A.path}&b={B.path}")
    shows(left, "two", "axial 1 of 10")
    shows(right, "two", "axial 2 of 10")
    slider = left.locator(".slices input")
    slider.fill("5")
    shows(right, "two", "axial 6 of 10")
    slider.fill("6")
    shows(right, "two", "axial 8 of 10")  # 6 / 9 of the way through five slices: the fourth
    right.get_by_role("button", name="Larger").click()
    left.wait_for_selector(".viewer:has-text('150 %')")
    right.locator(".chip.case", has_text="three").click()
    left.wait_for_selector(".viewer.elsewhere .notice:has-text('no view of three')")
    page.get_by_role("button", name="Together").click()
    left.locator(".chip.case", has_text="one").click()
    shows(left, "one", "axial 1 of 10")
    shows(right, "three", "axial")


def test_transcripts_scroll_together(page: Any, place: Path) -> None:
    left, right = opened(page, place, f"a={A.path}&b={B.path}")
    shows(right, "two", "axial 2 of 10")
    left.evaluate("document.getElementById('turn-3').scrollIntoView()")
    top = "document.getElementById('turn-3').getBoundingClientRect().top"
    for _ in range(50):  # by hand: the policy of a page lets nothing wait in it
        if abs(right.evaluate(top) - left.evaluate(top)) < 3:
            break
        page.wait_for_timeout(100)
    assert abs(right.evaluate(top) - left.evaluate(top)) < 3
    assert 0 < right.evaluate(top) < 300


def test_what_differs_is_a_table(page: Any, place: Path) -> None:
    """Scores of make_scores with task 0.8 and 0.6: the task half differs by 20 points, Overall by 10."""
    opened(page, place, f"a={A.path}&b={B.path}")
    rows = {row.split("\t")[0]: row.split("\t")[1:] for row in page.locator("#differences tr").all_inner_texts()}
    assert rows["Task"] == ["80.0", "60.0", "−20.0"]
    assert rows["Overall"][2] == "−10.0"


def test_runs_of_two_tasks_say_so(page: Any, place: Path) -> None:
    left, right = opened(page, place, f"a={A.path}&b={C.path}")
    assert "Different tasks" in page.inner_text("#note")
    left.locator(".chip.case", has_text="two").click()
    shows(left, "two", "axial 1 of 10")
    assert right.locator(".view-head b").inner_text() == "other"


def test_one_case_of_all_agents(page: Any, place: Path) -> None:
    """Best first; the case that most runs show is chosen; each tile has its run's score of it."""
    frames = opened(page, place, "task=spleen-seg-task")
    assert [text.split(" · ")[0] for text in page.locator("figcaption").all_inner_texts()] == ["alpha", "beta"]
    for frame, dice in zip(frames, ("0.8", "0.6"), strict=True):
        shows(frame, "two", "axial")
        assert f"dice {dice}" in frame.inner_text(".view-head")
        assert not frame.is_visible("#transcript")
    frames = opened(page, place, "task=spleen-seg-task&tier=lite&case=one")  # as a run's page links it
    shows(frames[0], "one", "axial")
    frames[1].wait_for_selector(".notice:has-text('no view of one')")
    page.select_option("#case", "three")
    shows(frames[1], "three", "axial")
    frames[0].wait_for_selector(".notice:has-text('no view of three')")


@pytest.mark.parametrize("anchor", ["a=nothing&b=nothing", "task=nothing", "x", "a=%ff", ""])
def test_strange_addresses_show_two_runs(page: Any, place: Path, anchor: str) -> None:
    assert len(opened(page, place, anchor)) == 2
    assert page.inner_text("h1") == "Two runs side by side"


def test_texts_of_agents_are_no_markup(page: Any, place: Path) -> None:
    _, right = opened(page, place, f"a={A.path}&b={B.path}")
    assert HOSTILE in right.text_content("#turn-3")
    assert page.title() == "Runs side by side – AutoMedBench"


@pytest.mark.parametrize("anchor", [f"a={A.path}", "task=spleen-seg-task"], ids=["two", "all"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_grave_for_people_who_use_aids(page: Any, place: Path, anchor: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    opened(page, place, anchor)
    assert grave_findings(page) == []


def test_a_phone_scrolls_one_way_only(page: Any, place: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, place, "task=spleen-seg-task")
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
