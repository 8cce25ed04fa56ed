"""Pages of runs as files: inert whatever agents write, small, the same from the same records, up to date."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from factories import make_call, make_run, make_score, run_records, write_run
from page_reader import Reader

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Message, Model, RunId, ScoreRecord, Tier
from automedbench.base.views import CaseView, CaseViews, Frame, ViewLayer, ViewText
from automedbench.judge.rubric import Rubric, load_rubric
from automedbench.leaderboard.conditions import read_conditions, signature
from automedbench.leaderboard.entries import match_scores
from automedbench.leaderboard.page import run_pages
from automedbench.leaderboard.page.run_pages import fill_page, page_processes, write_run_pages

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]></style><img src=x onerror=alert(1)>",
    '"/><svg onload=alert(1)>',
    "@@title@@ @@nonce@@ @@packed@@",
    "{{ 7 * 7 }} {% raw %}",
    "\u2028\u2029 \u202e \x00 \x1b[31m",
    "&lt;b&gt; \\u003c",
]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def write(results: Path, scores: list[ScoreRecord], *shared: Any) -> dict[str, str]:
    """The pages of some scores, below ``results/leaderboard/runs``."""
    entries = match_scores([score.run for score in scores], scores, {})
    with page_processes(len(scores)) as write_all:
        return write_run_pages(results, results / "leaderboard", entries, *(shared or ({}, {})), write_all)


def page_of(results: Path, run: RunId) -> Path:
    return results / f"leaderboard/runs/{run.path}.html"


def campaign(results: Path, *runs: RunId) -> list[ScoreRecord]:
    """Written records of plain runs, and their scores."""
    scores = [make_score(run) for run in runs]
    for score in scores:
        write_run(results, run_records(score))
    return scores


def hostile_records(run: RunId) -> dict[str, Model]:
    """A run that says hostile things wherever an agent can say something."""
    text = "\n".join(HOSTILE)
    records = run_records(make_score(run, model=text), calls=[make_call(1, code=text, stdout=text, new_files=HOSTILE)])
    view = CaseView(
        case=HOSTILE[0],
        status="valid",
        why="lowest",
        frames=[Frame(title=HOSTILE[1], width=1, height=1, layers=[ViewLayer(side="input", picture=PIXEL)])],
        texts=[ViewText(side="prediction", title="Answer", text=text)],
    )
    update: dict[str, dict[str, Any]] = {
        "run.json": {"summary": text, "detail": text},
        "conversation.json": {"plan": text, "messages": [Message(turn=1, role="assistant", content=text)]},
        "audit.json": {"reason": text},
    }
    changed = {name: record.model_copy(update=update.get(name, {})) for name, record in records.items()}
    return changed | {"case_views.json": CaseViews(run=run, n_cases=1, cases=[view])}


@pytest.fixture
def hostile_page(tmp_path: Path) -> Reader:
    run = make_run()
    write_run(tmp_path, hostile_records(run))
    write(tmp_path, [make_score(run)])
    return Reader(page_of(tmp_path, run).read_text(encoding="utf-8"))


# --- inert and self-contained -----------------------------------------------------------------------------------


def test_hostile_text_ends_no_element(hostile_page: Reader) -> None:
    assert hostile_page.programs == [""], "an agent's text became a script"
    tags = {tag for tag, _ in hostile_page.elements}
    assert tags.isdisjoint({"img", "svg", "iframe", "object", "embed", "form", "base"})
    assert not [name for _, attributes in hostile_page.elements for name in attributes if name.startswith("on")]


def test_hostile_text_survives_unchanged(hostile_page: Reader) -> None:
    detail, text = hostile_page.json["detail"], "\n".join(HOSTILE)
    call = detail["turns"][0]["calls"][0]
    assert (call["code"], call["stdout"], detail["plan"], detail["run"]["summary"]) == (text,) * 4
    assert (detail["score"]["model"], detail["views"]["cases"][0]["texts"][0]["text"]) == (text, text)


def test_only_our_own_script_and_style_are_loaded(hostile_page: Reader) -> None:
    """By a number that text on the page cannot hold, as it is that text's digest."""
    loaded = [a for tag, a in hostile_page.elements if "src" in a or (tag == "link" and a["href"] != "data:,")]
    (nonce,) = {a["nonce"] for a in loaded}
    assert [a.get("src") or a["href"] for a in loaded] == [f"../../../../run.{kind}" for kind in ("css", "js")]
    assert dict(part.strip().split(" ", 1) for part in hostile_page.policy.split(";")) == {
        "default-src": "'none'",
        "script-src": f"'nonce-{nonce}'",
        "style-src": f"'nonce-{nonce}'",
        "img-src": "data: 'self' file:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert nonce not in json.dumps(hostile_page.json) and hostile_page.style == ""
    assert not [a for _, a in hostile_page.elements if "style" in a], "the policy would refuse style attributes"


def test_shared_style_loads_nothing(tmp_path: Path) -> None:
    write(tmp_path, [])
    style = (tmp_path / "leaderboard/run.css").read_text()
    assert "url(" not in style and "@import" not in style


def test_hostile_name_in_the_title() -> None:
    """Names of agents are checked by the configuration; the title is escaped all the same."""
    page = Reader(fill_page("</title><script>alert(1)</script>@@packed@@", "{}", "{}").decode())
    assert len(page.programs) == 1
    assert page.title.startswith("</title><script>alert(1)</script>@@packed@@")


def test_page_takes_little_room(tmp_path: Path) -> None:
    """10 000 runs in 400 MB: a transcript of 200 lines and 72 cases in a tenth of that."""
    write_run(tmp_path, run_records(make_score(make_run()), n_cases=72, calls=[make_call(1, stdout="a line\n" * 200)]))
    write(tmp_path, [make_score(make_run())])
    assert page_of(tmp_path, make_run()).stat().st_size < 8_000


# --- where pages lie and what they know -------------------------------------------------------------------------


def test_page_of_every_run(tmp_path: Path) -> None:
    tiers: tuple[Tier, ...] = ("lite", "pro")
    runs = [make_run(agent, tier=tier, repeat=number) for agent in "ab" for tier in tiers for number in (1, 2)]
    write(tmp_path, campaign(tmp_path, *runs))
    found = {path.relative_to(tmp_path / "leaderboard/runs").as_posix() for path in tmp_path.rglob("*.html")}
    assert found == {f"{run.path}.html" for run in runs}


def test_folder_of_the_run_is_found_from_its_page(tmp_path: Path) -> None:
    run = make_run()
    write(tmp_path, campaign(tmp_path, run))
    page = page_of(tmp_path, run)
    folder = (page.parent / Reader(page.read_text()).json["detail"]["folder"]).resolve()
    assert (folder / "score.json").is_file()


def test_page_knows_task_rubric_and_repeats(tmp_path: Path, root: Path) -> None:
    card: TaskCard = load_card(root / "config/tasks/detection/bccd-det-task.yaml")
    rubric: Rubric = load_rubric(root / "config/rubrics", "detection")
    scores = campaign(tmp_path, make_run(repeat=2), make_run(repeat=1), make_run("other"))
    write(tmp_path, scores, {card.id: card}, {"detection": rubric})
    shared, detail = Reader(page_of(tmp_path, make_run(repeat=1)).read_text()).json.values()
    assert detail["signature"] == signature([read_conditions(scores[1])])
    assert (shared["task"], shared["track"], shared["siblings"]) == (card.title, "Detection", [1, 2])
    assert shared["rubric_version"] == rubric.version
    assert shared["criteria"].keys() == {criterion.id for criterion in rubric.criteria}
    assert Reader(page_of(tmp_path, make_run("other")).read_text()).json["shared"]["siblings"] == [1]


def test_nothing_is_said_twice(tmp_path: Path) -> None:
    write(tmp_path, campaign(tmp_path, make_run()))
    detail = Reader(page_of(tmp_path, make_run()).read_text()).json["detail"]
    assert "totals" in detail["score"] and "totals" not in detail["run"]
    assert "settings" not in detail["report"] and detail["report"].get("cases") is None


# --- again ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["none", "record", "linked record", "other repeat", "page"])
def test_page_is_written_again_when_something_has_changed(tmp_path: Path, change: str) -> None:
    first, second = make_run(), make_run(repeat=2)
    scores = campaign(tmp_path, first, second)
    page, folder = page_of(tmp_path, first), tmp_path / "runs" / first.path
    if change == "linked record":  # as merged results have them
        (folder / "judge.json").rename(tmp_path / "judge.json")
        (folder / "judge.json").symlink_to(tmp_path / "judge.json")
    write(tmp_path, scores if change != "other repeat" else scores[:1])
    before = page.stat().st_ino
    if change.endswith("record"):
        (folder / "judge.json").write_text("{")
        os.utime(folder / "judge.json", (0, 0))  # as of a copy that keeps its date
    if change == "page":
        page.unlink()
    days = write(tmp_path, scores)
    assert (page.stat().st_ino == before) == (change == "none") or change == "page"
    assert len(Reader(page.read_text()).json["detail"]["notes"]) == (2 if change.endswith("record") else 1)
    assert days == {first.agent: "2026-01-02"}


def test_pictures_of_a_task_are_shared(tmp_path: Path) -> None:
    """Two runs with the same input: one file, which goes with the last page that shows it."""
    runs = [make_run(repeat=number) for number in (1, 2)]
    layers = [ViewLayer(side="input", picture=PIXEL), ViewLayer(side="prediction", picture=PIXEL)]
    frame = Frame(title="image", width=1, height=1, layers=layers)
    for run in runs:
        views = CaseViews(run=run, n_cases=1, cases=[CaseView(case="a", status="valid", why="first", frames=[frame])])
        write_run(tmp_path, run_records(make_score(run)) | {"case_views.json": views})
    write(tmp_path, [make_score(run) for run in runs])
    (file,) = (tmp_path / "leaderboard/pictures").rglob("*.png")
    frames = Reader(page_of(tmp_path, runs[0]).read_text()).json["detail"]["views"]["cases"][0]["frames"]
    shown, own = (layer["picture"] for layer in frames[0]["layers"])
    assert (page_of(tmp_path, runs[0]).parent / shown).resolve() == file and own == PIXEL
    assert file.read_bytes() == b"\x89PNG\r\n\x1a\n"
    write(tmp_path, [make_score(runs[1])])
    assert file.exists()
    write(tmp_path, [])
    assert not file.exists()


def test_pages_of_other_runs_are_removed(tmp_path: Path) -> None:
    """With the folders that this leaves empty; files that are no pages stay."""
    scores = campaign(tmp_path, make_run("a"), make_run("b"))
    write(tmp_path, scores)
    out = tmp_path / "leaderboard/runs"
    (out / "notes.txt").write_text("mine")
    write(tmp_path, scores[:1])
    assert sorted(path.name for path in out.iterdir()) == ["a", "notes.txt"]
    write(tmp_path, [])
    assert sorted(path.name for path in out.iterdir()) == ["notes.txt"]


def test_many_pages_are_written_by_processes_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(repeat=number) for number in range(1, 5)]
    scores = campaign(tmp_path, *runs)
    write(tmp_path, scores)
    alone = [page_of(tmp_path, run).read_bytes() for run in runs]
    monkeypatch.setattr(run_pages, "_MANY", 2)
    write(tmp_path, scores)
    assert [page_of(tmp_path, run).read_bytes() for run in runs] == alone


def test_score_that_vanishes_meanwhile_is_an_error(tmp_path: Path) -> None:
    scores = campaign(tmp_path, make_run())
    (tmp_path / "runs" / make_run().path / "score.json").unlink()
    with pytest.raises(InfrastructureError, match=r"score\.json"):
        write(tmp_path, scores)


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    scores = campaign(tmp_path, make_run())
    (tmp_path / "leaderboard/runs").mkdir(parents=True)
    (tmp_path / "leaderboard/runs/agent").write_text("in the way")
    with pytest.raises(InfrastructureError, match=r"Cannot write .*r1\.html"):
        write(tmp_path, scores)


@pytest.mark.parametrize("name", ["", ".", "..", "../../elsewhere", "/elsewhere", "a/b", "a\0b"])
@pytest.mark.parametrize("part", ["agent", "task"])
def test_no_page_lies_elsewhere(part: str, name: str, tmp_path: Path) -> None:
    """A results folder of somebody else may name runs as no configuration would allow."""
    run = make_run().model_copy(update={part: name})
    with pytest.raises(InfrastructureError, match="is not a valid name"):
        write(tmp_path / "results", [make_score(run)])
    assert list(tmp_path.rglob("*.html")) == []
