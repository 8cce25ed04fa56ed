"""The page: built from what is finished, inert whatever agents wrote, cut to size with a note."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from factories import (
    disqualify,
    make_call,
    make_run,
    make_score,
    make_scores,
    run_records,
    write_campaign,
    write_run,
)

from automedbench.errors import InfrastructureError
from automedbench.leaderboard import Built, build_leaderboard
from automedbench.leaderboard.console import print_ranking
from automedbench.leaderboard.details import Budget, cut_text, fair_share, read_detail
from automedbench.leaderboard.formats import count, duration, money, number, percent
from automedbench.records import Message, Model, RunId

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link",
    "\u202egnp.exe \u2066\u2028 \u2029",
    "{{ 7 * 7 }} {% raw %}",
    "' onload='alert(1)",
    "]]>&lt;b&gt;",
]


class Reader(html.parser.HTMLParser):
    """Collects elements with their attributes, and the text of script elements, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.style = ""
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self._open == "style":
            self.style += data

    def data(self) -> dict[str, Any]:
        """Embedded JSON by element id."""
        return {str(a["id"]): json.loads(text) for a, text in self.scripts if a.get("type") == "application/json"}

    @property
    def programs(self) -> list[str]:
        """Scripts that a browser would run."""
        return [text for attributes, text in self.scripts if "type" not in attributes]

    def policy(self) -> str:
        """The content security policy."""
        metas = [a for tag, a in self.elements if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
        return str(metas[0]["content"])


def build(results: Path, plan: Path, root: Path, **options: Any) -> Built:
    """Build the leaderboard beside the results."""
    return build_leaderboard(
        results, plan, [str(root / "config/tasks")], root / "config/rubrics", results / "leaderboard", **options
    )


def hostile_records(run: RunId) -> dict[str, Model]:
    """A run that says hostile things wherever an agent can say something."""
    text = "\n".join(HOSTILE)
    score = make_score(run, model=text)
    records = run_records(score, calls=[make_call(1, code=text, stdout=text, stderr=text, new_files=HOSTILE)])
    said = [Message(turn=1, role="assistant", content=text)]
    update: dict[str, dict[str, Any]] = {
        "run.json": {"summary": text, "detail": text},
        "conversation.json": {"plan": text, "messages": said},
        "audit.json": {"reason": text},
    }
    return {name: record.model_copy(update=update.get(name, {})) for name, record in records.items()}


@pytest.fixture
def hostile_page(tmp_path: Path, root: Path) -> str:
    results = tmp_path / "results"
    run = make_run(agent="agent")
    plan = write_campaign(results, [make_score(run)])
    write_run(results, hostile_records(run))
    return build(results, plan, root).page.read_text(encoding="utf-8")


def test_hostile_text_ends_no_element(hostile_page: str) -> None:
    page = Reader(hostile_page)
    assert len(page.programs) == 1, "an agent's text became a script"
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "embed", "form", "base")]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_hostile_text_survives_unchanged(hostile_page: str) -> None:
    detail = Reader(hostile_page).data()["run:agent/bccd-det-task/lite/r1"]
    text = "\n".join(HOSTILE)
    call = detail["turns"][0]["calls"][0]
    assert (call["code"], call["stdout"], detail["plan"], detail["run"]["summary"]) == (text,) * 4
    assert detail["score"]["model"] == text


def test_embedded_json_holds_no_markup(hostile_page: str) -> None:
    for attributes, text in Reader(hostile_page).scripts:
        if attributes.get("type") == "application/json":
            assert not re.search("[<>&\u2028\u2029]", text)


def test_policy_allows_only_our_own_script_and_style(hostile_page: str) -> None:
    page = Reader(hostile_page)

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    directives = dict(part.strip().split(" ", 1) for part in page.policy().split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": hashed(page.programs[0]),
        "style-src": hashed(page.style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_nothing_is_loaded(hostile_page: str) -> None:
    page = Reader(hostile_page)
    assert not [a for _, a in page.elements if "src" in a or "srcset" in a or "background" in a]
    assert [a["href"] for tag, a in page.elements if tag == "link"] == ["data:,"]
    assert "url(" not in page.style and "@import" not in page.style
    assert not [a for _, a in page.elements if "style" in a], "the policy would refuse style attributes"


def test_script_never_writes_markup(root: Path) -> None:
    script = (root / "src/automedbench/leaderboard/templates/page.js").read_text()
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch("):
        assert name not in script


def test_page_says_how_complete_it_is(tmp_path: Path, root: Path) -> None:
    results = tmp_path / "results"
    planned = [make_run(repeat=number) for number in (1, 2, 3)]
    plan = write_campaign(results, [make_score(planned[0])], planned)
    built = build(results, plan, root, partial=True)
    assert "1 of 3 planned runs" in built.page.read_text()
    assert (built.ranking[0].n_scored, built.ranking[0].n_planned, built.ranking[0].provisional) == (1, 3, True)
    with pytest.raises(InfrastructureError, match=r"2 of 3 planned runs have no score: \S+/r2, \S+/r3\."):
        build(results, plan, root)


def test_first_three_missing_runs_are_named(tmp_path: Path, root: Path) -> None:
    planned = [make_run(repeat=number) for number in range(1, 6)]
    plan = write_campaign(tmp_path, [], planned)
    with pytest.raises(InfrastructureError) as caught:
        build(tmp_path, plan, root)
    message = str(caught.value)
    assert message.startswith("5 of 5 planned runs") and "/r3, …" in message and "/r4" not in message
    assert len(message.splitlines()) <= 3


def test_nothing_scored_still_makes_a_page(tmp_path: Path, root: Path) -> None:
    plan = write_campaign(tmp_path, [], [make_run()])
    built = build(tmp_path, plan, root, partial=True)
    assert "0 of 1 planned runs" in built.page.read_text()
    assert built.ranking[0].overall is None


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="half-written"),
        pytest.param('{"schema": "automedbench/score/99"}', id="other version"),
        pytest.param(None, id="of another run"),
    ],
)
def test_broken_score_counts_as_missing(tmp_path: Path, root: Path, content: str | None) -> None:
    runs = [make_run(repeat=1), make_run(repeat=2)]
    plan = write_campaign(tmp_path, [make_score(run) for run in runs])
    broken = tmp_path / "runs" / runs[1].path / "score.json"
    broken.write_text((tmp_path / "runs" / runs[0].path / "score.json").read_text() if content is None else content)
    built = build(tmp_path, plan, root, partial=True)
    assert list(built.unreadable) == [f"runs/{runs[1].path}/score.json"]
    assert (built.ranking[0].n_scored, built.ranking[0].n_planned) == (1, 2)
    assert "could not be read" in built.page.read_text()
    with pytest.raises(InfrastructureError, match=r"score\.json"):
        build(tmp_path, plan, root)


def test_broken_detail_is_named_not_fatal(tmp_path: Path, root: Path) -> None:
    score = make_score()
    plan = write_campaign(tmp_path, [score])
    folder = tmp_path / "runs" / score.run.path
    (folder / "judge.json").write_text("{")
    (folder / "conversation.json").unlink()
    detail = Reader(build(tmp_path, plan, root).page.read_text()).data()[f"run:{score.run.path}"]
    assert detail["judge"] is None and detail["turns"] == []
    assert [note.split(" ")[0] for note in detail["notes"]] == ["judge.json", "conversation.json"]


def test_same_bytes_twice(tmp_path: Path, root: Path) -> None:
    plan = write_campaign(tmp_path, [make_score(make_run(agent=name)) for name in ("b", "a")])
    first = build(tmp_path, plan, root).page.read_bytes()
    assert build(tmp_path, plan, root).page.read_bytes() == first


def test_many_runs_are_read_by_processes_with_the_same_result(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write_campaign(tmp_path, [make_score(make_run(repeat=number)) for number in range(1, 5)])
    alone = build(tmp_path, plan, root).page.read_bytes()
    monkeypatch.setattr("automedbench.leaderboard._MANY_RUNS", 2)
    assert build(tmp_path, plan, root).page.read_bytes() == alone


def test_views_follow_tiers_and_tracks(tmp_path: Path, root: Path) -> None:
    """Overall of the lite run (1 + 0.5) / 2 = 0.75, of the pro run (1 + 1) / 2 = 1; pro is not in the headline."""
    scores = [
        make_score(make_run(tier="lite")),
        make_score(make_run(tier="pro"), make_scores(task=1.0)),
        make_score(make_run(task="ct", tier="standard"), make_scores(task=0.0), track="segmentation"),
    ]
    data = Reader(build(tmp_path, write_campaign(tmp_path, scores), root).page.read_text()).data()["data"]
    assert data["tiers"] == {"headline": "Lite + Standard", "lite": "Lite", "standard": "Standard", "pro": "Pro"}

    def overall(tier: str, track: str) -> float:
        table = data["views"][tier][track]
        return float(table["rows"][0][table["columns"].index("overall")])

    assert overall("headline", "all") == pytest.approx((0.75 + 0.5) / 2)
    assert overall("headline", "detection") == pytest.approx(0.75)
    assert overall("standard", "all") == pytest.approx(0.5)
    assert overall("pro", "all") == pytest.approx(1.0)


# --- cutting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "total", "each", "expected"),
    [
        pytest.param([], 100, 10, 10, id="nothing"),
        pytest.param([1, 2, 3], 100, 10, 10, id="all fit"),
        pytest.param([1, 2, 300], 100, 1000, 97, id="one large takes the rest"),
        pytest.param([50, 60, 70], 90, 1000, 30, id="equal parts"),
        pytest.param([50, 60, 70], 90, 20, 20, id="limit of one"),
        pytest.param([5, 5], 0, 10, 0, id="no room"),
    ],
)
def test_fair_share(sizes: list[int], total: int, each: int, expected: int) -> None:
    assert fair_share(sizes, total, each) == expected
    assert sum(min(size, expected) for size in sizes) <= total


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        pytest.param("", 0, "", id="empty"),
        pytest.param("abcdef", 6, "abcdef", id="fits"),
        pytest.param("abcdef", 3, "ab\n[… 3 characters left out …]\nf", id="both ends"),
        pytest.param("abc", 0, "\n[… 3 characters left out …]\n", id="no room"),
    ],
)
def test_cut_text(text: str, limit: int, expected: str) -> None:
    assert cut_text(text, limit) == expected


def test_long_transcript_is_cut_and_says_so(tmp_path: Path) -> None:
    score = make_score()
    calls = [make_call(1, stdout="x" * 5000), make_call(2, stdout="short")]
    folder = write_run(tmp_path, run_records(score, calls=calls))
    detail = read_detail(folder, score, shown_as="..", transcript_chars=2000, n_cases=10)
    outputs = [call.stdout for turn in detail.turns for call in turn.calls]
    assert "characters left out" in outputs[0] and len(outputs[0]) < 2000
    assert outputs[1] == "short"
    assert [note for note in detail.notes if "cut to" in note and "conversation.json" in note]


def test_cut_case_table_keeps_the_bad_ones(tmp_path: Path) -> None:
    """Half of 8 cases are missing; with room for 4 the missing ones are shown."""
    score = make_score(completion_rate=0.5)
    folder = write_run(tmp_path, run_records(score, n_cases=8))
    detail = read_detail(folder, score, shown_as="..", transcript_chars=1000, n_cases=4)
    assert [row[1] for row in detail.cases.rows] == ["missing"] * 4
    assert "4 of 8 cases are shown; all of them: detail_report.json" in detail.notes


def test_output_is_not_shown_twice(tmp_path: Path) -> None:
    """What a call printed comes back in a tool message; a tool message without it stays."""
    score = make_score()
    note = Message(turn=2, role="tool", content="[SANDBOX] warning")
    records = run_records(score, calls=[make_call(2, stdout="forty-two")])
    conversation = records["conversation.json"]
    records["conversation.json"] = conversation.model_copy(update={"messages": [*conversation.messages, note]})  # type: ignore[attr-defined]
    folder = write_run(tmp_path, records)
    detail = read_detail(folder, score, shown_as="..", transcript_chars=1000, n_cases=4)
    assert [message.content for message in detail.turns[-1].messages if message.role == "tool"] == ["[SANDBOX] warning"]


def test_budget_of_a_large_campaign() -> None:
    budget = Budget()
    assert budget.cases_per_run(0) == budget.cases_per_run(5) == 500
    assert budget.cases_per_run(2000) == 100
    assert budget.cases_per_run(1_000_000) == 20
    assert budget.transcript_share([1_000_000] * 1000) == 40_000


# --- console ----------------------------------------------------------------------------------------------------


def test_ranking_is_printed(tmp_path: Path, root: Path) -> None:
    scores = [make_score(make_run(agent="[red]good")), disqualify(make_score(make_run(agent="cheater")))]
    built = build(tmp_path, write_campaign(tmp_path, scores), root)
    stream = io.StringIO()
    print_ranking(built.ranking, "tasks", stream)
    lines = stream.getvalue().splitlines()
    good = next(line for line in lines if "[red]good" in line)
    assert good.split()[:5] == ["1", "[red]good", "75.0", "100.0", "50.0"]
    cheater = next(line for line in lines if "cheater" in line)
    assert "0.0" in cheater and "100%" in cheater and "1 disqualified" in cheater
    assert "\x1b" not in stream.getvalue()
    assert any("apptainer/sealed" in line and "heuristic" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(percent(None), "–", id="unknown"),
        pytest.param(percent(0.5321), "53.2", id="percent"),
        pytest.param(number(33.25), "33.3", id="number: ties go up, as in the page's toFixed"),
        pytest.param(percent(0.0625), "6.3", id="percent: ties go up"),
        pytest.param(duration(59.94), "59.9 s", id="seconds"),
        pytest.param(duration(75), "1.2 min", id="minutes"),
        pytest.param(duration(5400), "1.5 h", id="hours"),
        pytest.param(count(999), "999", id="small"),
        pytest.param(count(1_706_325), "1.71M", id="millions"),
        pytest.param(money(None), "–", id="unknown price"),
    ],
)
def test_formats(text: str, expected: str) -> None:
    assert text == expected
