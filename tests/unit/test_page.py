"""The board page: what it holds is what the tables say, and it is inert whatever names and texts hold."""

from __future__ import annotations

import base64
import hashlib
import re
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pydantic_core
import pytest
from boards import make_board, make_campaign
from factories import disqualify, make_enforced, make_error, make_flat_scores, make_recipe, make_run, make_score
from page_reader import Reader

from automedbench.leaderboard import definitions
from automedbench.leaderboard.board import Board
from automedbench.leaderboard.charts.parts import DARK, LIGHT
from automedbench.leaderboard.page.board_page import SCRIPTS, other_pooling, page_data, page_table, write_board
from automedbench.leaderboard.page.html import TEMPLATES, content_policy, embed, safe_source, script
from automedbench.leaderboard.tables.cells import ledger_rows
from automedbench.leaderboard.tables.columns import COLUMNS, RUNS_ON_PAGE
from automedbench.leaderboard.tables.table import BoardTable
from automedbench.tracks import track_names

TASKS = {"bccd-det-task": "detection", "toy-seg-task": "segmentation"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe \u2066\u2028 \u2029",
    "{{ 7 * 7 }} {% raw %}",
    "' onload='alert(1)",
    "]]>&lt;b&gt;",
    "@ink",
]


def page_of(board: Board, folder: Path) -> str:
    """The written page."""
    path = folder / "index.html"
    write_board(path, board)
    return path.read_text(encoding="utf-8")


@cache
def hostile_board() -> Board:
    """Agents, models, tasks, judges, error evidence and file names that say hostile things."""
    scores = [
        make_score(
            make_run(agent=name, task=f"task {name}"),
            track=f"track {name}",
            model=name,
            recipe=make_recipe(judge=name, code_version=name),
            medal=name,
            error_codes=[make_error()],
        )
        for name in HOSTILE
    ]
    return make_board(scores, unreadable={f"runs/{name}": name for name in HOSTILE})


@pytest.fixture
def hostile_page(tmp_path: Path) -> str:
    return page_of(hostile_board(), tmp_path)


def test_hostile_text_ends_no_element(hostile_page: str) -> None:
    page = Reader(hostile_page)
    assert len(page.programs) == 2, "only Vega and the page's own script run"
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "embed", "form", "base")]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_hostile_text_survives_unchanged(hostile_page: str) -> None:
    data = Reader(hostile_page).json
    assert set(data["data"]["agents"]) == set(HOSTILE)
    assert [row["agent"] for row in read_rows(data["run-data"])] == HOSTILE


def test_embedded_json_holds_no_markup(hostile_page: str) -> None:
    for attributes, text in Reader(hostile_page).scripts:
        if attributes.get("type") == "application/json":
            assert not re.search("[<>&\u2028\u2029]", text)


def test_policy_allows_only_our_own_scripts_and_style(hostile_page: str) -> None:
    page = Reader(hostile_page)

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    directives = dict(part.strip().split(" ", 1) for part in page.policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": " ".join(map(hashed, page.programs)),
        "style-src": hashed(page.style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_policy_of_a_page_without_script() -> None:
    assert "script-src 'none'" in content_policy(["a"], [])


def test_nothing_is_loaded(hostile_page: str) -> None:
    page = Reader(hostile_page)
    assert not [a for _, a in page.elements if "src" in a or "srcset" in a or "background" in a]
    assert [a["href"] for tag, a in page.elements if tag == "link"] == ["data:,"]
    assert "url(" not in page.style and "@import" not in page.style
    assert not [a for _, a in page.elements if "style" in a], "the policy would refuse style attributes"


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.js")), ids=lambda path: path.name)
def test_our_scripts_never_write_markup(path: Path) -> None:
    source = path.read_text()
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch("):
        assert name not in source


@pytest.mark.parametrize("text", ["a </script>", "b </ScRiPt", "c <!-- d", "</style>"])
def test_source_that_would_end_its_element_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ends its element"):
        safe_source(text)


def test_json_is_escaped() -> None:
    assert embed({"a": "<&>\u2028"}) == '{"a":"\\u003c\\u0026\\u003e\\u2028"}'


# --- what it says -----------------------------------------------------------------------------------------------


def notices(board: Board, folder: Path) -> dict[str, bool]:
    """Which notices stand on the page."""
    ids = {str(attributes.get("id")) for _, attributes in Reader(page_of(board, folder)).elements}
    return {name: name in ids for name in ("heuristic", "provisional", "differs", "unequal")}


def test_notices_of_a_clean_campaign(tmp_path: Path) -> None:
    recipe = make_recipe(judge_kind="llm", judge="panel")
    board = make_board([make_score(make_run(repeat=k), recipe=recipe) for k in (1, 2, 3)])
    assert notices(board, tmp_path) == dict.fromkeys(("heuristic", "provisional", "differs", "unequal"), False)
    assert "All 3 planned runs are scored." in page_of(board, tmp_path)


def test_missing_runs_are_said(tmp_path: Path) -> None:
    board = make_board([make_score(make_run(repeat=1))], [make_run(repeat=k) for k in (1, 2, 3)])
    assert notices(board, tmp_path)["provisional"]
    assert "1 of 3 planned runs are scored" in page_of(board, tmp_path)


def test_rules_as_judge_are_said(tmp_path: Path) -> None:
    rules = make_score(make_run(repeat=1))
    model = make_score(make_run(repeat=2), recipe=make_recipe(judge_kind="llm"))
    assert "Stages S1–S3 of every run come" in page_of(make_board([rules]), tmp_path)
    assert "Stages S1–S3 of some runs come" in page_of(make_board([rules, model]), tmp_path)


def test_unlike_conditions_and_coverage_are_said(tmp_path: Path) -> None:
    sealed = make_score(make_run("one"))
    opened = make_score(make_run("two", task="toy-seg-task"), enforced=make_enforced(network="open"))
    found = notices(make_board([sealed, opened]), tmp_path)
    assert found["differs"] and found["unequal"]


def test_unreadable_scores_are_named(hostile_page: str) -> None:
    assert "9 score files could not be read or used and count as missing" in hostile_page
    assert "runs/&lt;img src=x onerror=alert(1)&gt;" in hostile_page


def test_nothing_scored_still_makes_a_page(tmp_path: Path) -> None:
    data = Reader(page_of(make_board([], [make_run()]), tmp_path)).json
    assert data["data"]["agents"] == ["agent"]
    assert data["run-data"]["n"] == 0
    assert data["data"]["one_judge"] == "No run is judged yet."


def test_every_section_of_the_navigation_exists(hostile_page: str) -> None:
    ids = {attributes.get("id") for _, attributes in Reader(hostile_page).elements}
    sections = {section for parts in definitions.SECTIONS.values() for section in parts}
    assert sections | {f"{section}-title" for section in sections} <= ids
    assert len(definitions.SECTIONS) == 6


# --- its data ---------------------------------------------------------------------------------------------------


def test_views_are_the_tables() -> None:
    board = make_board(make_campaign(["one", "two"], TASKS))
    data = page_data(board)
    assert list(data["views"]) == ["headline", "lite", "standard"]
    assert list(data["views"]["headline"]) == ["all", "detection", "segmentation"]
    for tier, views in data["views"].items():
        for track, table in views.items():
            found = read_rows(table)
            expected = board.views[tier][track]
            assert [row["agent"] for row in found] == [row.agent for row in expected]
            assert [row["overall"] for row in found] == pytest.approx([row.overall for row in expected], abs=1e-5)


def test_views_follow_tiers_and_tracks() -> None:
    """Overall of the lite run 0.75, of the pro run 1, of the standard one 0.5; pro is not in the headline."""
    scores = [
        make_score(make_run(tier="lite"), make_flat_scores(0.75)),
        make_score(make_run(tier="pro"), make_flat_scores(1.0)),
        make_score(make_run(task="ct", tier="standard"), make_flat_scores(0.5), track="segmentation"),
    ]
    data = page_data(make_board(scores))
    assert data["tiers"] == {"headline": "Lite + Standard", "lite": "Lite", "standard": "Standard", "pro": "Pro"}
    assert data["tier_choices"]["headline"] == ["lite", "standard"]

    def overall(tier: str, track: str) -> float:
        return float(read_rows(data["views"][tier][track])[0]["overall"])

    assert overall("headline", "all") == pytest.approx((0.75 + 0.5) / 2)
    assert overall("headline", "detection") == pytest.approx(0.75)
    assert overall("standard", "all") == pytest.approx(0.5)
    assert overall("pro", "all") == pytest.approx(1.0)


def test_agents_stand_in_the_order_of_the_ranking() -> None:
    scores = [make_score(make_run("z"), make_flat_scores(0.9)), make_score(make_run("m"), make_flat_scores(0.1))]
    board = make_board(scores, [*(score.run for score in scores), make_run("a", tier="pro")])
    assert page_data(board)["agents"] == ["z", "m", "a"]


def read_rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table by columns, as the script reads them."""
    values = {
        name: column.get("values") or [column["levels"][code] for code in column["codes"]]
        for name, column in table["columns"].items()
    }
    return [{name: column[number] for name, column in values.items()} for number in range(table["n"])]


def test_runs_come_back_from_their_columns() -> None:
    scores = [*make_campaign(["one", "two"], TASKS, repeats=2), disqualify(make_score(make_run("bad")))]
    ledger = BoardTable("runs", ledger_rows(make_board(scores).entries))
    for row, found in zip(ledger, read_rows(page_table(ledger, RUNS_ON_PAGE)), strict=True):
        assert [*found] == list(RUNS_ON_PAGE)
        for name, value in found.items():
            expected = getattr(row, name)
            number = expected is not None and COLUMNS[name].kind in (float, Decimal)
            assert value == (pytest.approx(float(expected), abs=1e-5) if number else expected), name


def test_ten_thousand_runs_fit() -> None:
    """At most 160 bytes a run, so that 10 080 runs take less than 2 MB."""
    board = make_board(make_campaign(["one"], TASKS, repeats=250))
    runs = page_table(BoardTable("runs", ledger_rows(board.entries)), RUNS_ON_PAGE)
    assert len(pydantic_core.to_json(runs)) < 160 * 1000


def test_other_pooling_by_hand() -> None:
    """Task A with one run of 1, task B with three of 0: by tasks 1/2, by runs 1/4."""
    scores = [make_score(make_run(task="A"), make_flat_scores(1.0))]
    scores += [make_score(make_run(task="B", repeat=k), make_flat_scores(0.0)) for k in (1, 2, 3)]
    by_tasks, by_runs = make_board(scores, pooling="tasks"), make_board(scores, pooling="runs")
    assert by_tasks.tables["overall"][0].overall == pytest.approx(0.5)
    expected = {"track": None, "agent": "agent", "rank": 1}
    assert read_rows(other_pooling(by_tasks))[0] == expected | {"overall": pytest.approx(0.25)}
    assert read_rows(other_pooling(by_runs))[0] == expected | {"overall": pytest.approx(0.5)}


def test_every_table_that_the_script_reads_is_there() -> None:
    names = set(re.findall(r"\bTABLES\.(\w+)", script(*SCRIPTS)))
    assert names <= set(page_data(hostile_board())["tables"]) and len(names) > 10


def test_every_chart_that_the_script_draws_is_there() -> None:
    names = set(re.findall(r"\bchart\(\"(\w+)\"", script(*SCRIPTS)))
    assert names == set(page_data(hostile_board())["charts"])


@pytest.mark.parametrize(("scheme", "theme"), [(0, LIGHT), (-1, DARK)], ids=["light", "dark"])
def test_charts_have_the_colours_of_the_page(scheme: int, theme: dict[str, str]) -> None:
    block = (TEMPLATES / "common.css").read_text().split(":root {")[1].split("}")[0]
    colours = {name: re.findall(r"#\w+", value)[scheme] for name, value in re.findall(r"--([\w-]+): ([^;]+);", block)}
    shared = {name: value for name, value in theme.items() if name in colours}
    long = {
        name: value if len(value) == 7 else "#" + "".join(2 * c for c in value[1:]) for name, value in colours.items()
    }
    assert {"ink", "muted", "line", "paper", "agentic", "task", "on-agentic", "on-task"} <= set(shared)
    assert shared == {name: long[name] for name in shared}


@pytest.mark.parametrize("track", track_names())
def test_tracks_have_titles(track: str) -> None:
    assert definitions.track_title(track) and len(definitions.short_title(track)) <= 6


def test_unknown_track_is_called_by_its_id() -> None:
    assert definitions.track_title("new_track") == definitions.short_title("new_track") == "New track"


def test_weights_of_the_stages() -> None:
    """Agentic = 0.25·S1 + 0.15·S2 + 0.35·S3 + 0.15·S4 + 0.10·S5 (docs/specification.md, 6)."""
    assert [stage.weight for stage in definitions.STAGES] == [25, 15, 35, 15, 10]
