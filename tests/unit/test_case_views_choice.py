"""Which cases are shown, that drawing never touches a score, and what happens when a case cannot be drawn."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import make_campaign, make_run
from toys._bench import Bench, stage

from automedbench.base.files import read_record, write_record
from automedbench.base.records import CaseScore, DetailReport
from automedbench.base.views import CaseViews, Frame, ViewLayer
from automedbench.sandbox.airlock.archive import OUTPUTS, pack
from automedbench.steps.inside import case_views
from automedbench.steps.inside.case_views import choose_cases, draw_views, spread, within
from automedbench.steps.inside.grade_submission import grade
from automedbench.steps.score_metrics import score_metrics
from automedbench.tracks import ScoringInputs, Track
from automedbench.tracks.classification import TRACK as classification


def case(name: str, value: float | None, status: Any = "valid") -> CaseScore:
    return CaseScore(case=name, status=status, metrics={"ssim": value})


def chosen(cases: list[CaseScore], limit: int) -> list[tuple[str, str]]:
    return [(choice.case.case, choice.why) for choice in choose_cases(cases, "ssim", limit)]


# --- which cases ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "count", "expected"),
    [
        (0, 3, []),
        (2, 3, [0, 1]),
        (5, 1, [0]),
        (5, 2, [0, 4]),
        (9, 3, [0, 4, 8]),
        (10, 4, [0, 3, 6, 9]),
    ],
)
def test_spread(n: int, count: int, expected: list[int]) -> None:
    assert spread(n, count) == expected


def test_no_case() -> None:
    assert chosen([], 6) == []


def test_everything_missing() -> None:
    """Beside what every run shows, another missing case says nothing more."""
    missing = [case(name, None, "missing") for name in "abc"]
    assert chosen(missing, 6) == [("a", "shown of every run"), ("b", "shown of every run")]
    assert chosen(missing, 2) == [("a", "first of 3 missing")]


def test_every_run_shows_the_same_first_cases() -> None:
    """Two of six, whatever they scored; the worst and the best of all ten are told of all ten."""
    for values in (range(10), range(10, 0, -1), (5, 0, 9, 1, 8, 2, 7, 3, 6, 4)):
        cases = [case(name, value / 10) for name, value in zip("abcdefghij", values, strict=True)]
        assert [name for name, why in chosen(cases, 6) if why == "shown of every run"] == ["a", "b"]
        assert len({name for name, _ in chosen(cases, 6)}) == 6
    assert chosen(cases, 6)[2] == ("d", "ssim: 2 of 10 from below")


def test_from_the_worst_to_the_best() -> None:
    """Nine cases, three asked for: the first, and both ends of the order by value, which is not that of the names."""
    cases = [case(name, value / 10) for name, value in zip("abcdefghi", (5, 1, 9, 2, 8, 3, 7, 4, 6), strict=True)]
    assert chosen(cases, 3) == [
        ("a", "shown of every run"),
        ("b", "lowest ssim of 9"),
        ("c", "highest ssim of 9"),
    ]


def test_faulty_cases_come_last_and_once() -> None:
    cases = [
        case("a", 0.5),
        case("b", None, "missing"),
        case("c", 0.1, "malformed"),
        case("d", 0.7),
        case("e", None, "missing"),
        case("f", 0.6),
    ]
    assert chosen(cases, 4) == [
        ("a", "shown of every run"),
        ("f", "ssim: 2 of 3 from below"),
        ("d", "highest ssim of 3"),
        ("c", "malformed"),
    ]


def test_ties_are_said_and_keep_the_order() -> None:
    """Right or wrong: two wrong ones, three right ones, each first in the order of the cases."""
    cases = [case(name, value) for name, value in zip("abcde", (1.0, 0.0, 1.0, 0.0, 1.0), strict=True)]
    assert chosen(cases, 2) == [("b", "ssim 0, like 2 of 5"), ("e", "ssim 1, like 3 of 5")]


def test_one_case_asked_for_is_the_worst_valid_one() -> None:
    cases = [case("a", None, "missing"), case("b", 0.4), case("c", 0.3)]
    assert chosen(cases, 1) == [("c", "lowest ssim of 2")]


def test_cases_without_the_metric_fill_up() -> None:
    cases = [case("a", None), case("b", 0.4), case("c", None, "malformed"), case("d", None, "malformed")]
    assert chosen(cases, 6) == [
        ("a", "shown of every run"),
        ("b", "shown of every run"),
        ("c", "first of 2 malformed"),
        ("d", "malformed"),
    ]


def test_same_choice_again() -> None:
    cases = [case(str(number), (number * 7 % 11) / 11) for number in range(40)]
    assert chosen(cases, 6) == chosen(list(cases), 6)
    assert len(chosen(cases, 6)) == 6


# --- how much -------------------------------------------------------------------------------------------------


def frames(n: int, chars: int) -> list[Frame]:
    picture = "data:image/png;base64," + "A" * (chars - 22)
    return [
        Frame(title=str(number), width=1, height=1, layers=[ViewLayer(side="input", picture=picture)])
        for number in range(n)
    ]


@pytest.mark.parametrize(
    ("n", "room", "expected"),
    [
        (0, 100, []),
        (5, 500, ["0", "1", "2", "3", "4"]),
        (5, 499, ["0", "1", "3", "4"]),
        (5, 250, ["0", "4"]),
        (5, 99, []),
    ],
    ids=["nothing", "all fit", "one too many", "both ends", "none fits"],
)
def test_within(n: int, room: int, expected: list[str]) -> None:
    """Four of five, evenly: round(0, 1.33, 2.67, 4)."""
    assert [frame.title for frame in within(frames(n, 100), room)] == expected


# --- scores stay as they are ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return stage("classification", tmp_path_factory.mktemp("toy"))


@pytest.fixture
def written(bench: Bench, tmp_path: Path) -> dict[str, Any]:
    """A perfect submission as arguments of the step, with the local backend; two cases are shown."""
    bench.hand_in(bench.perfect(bench.cases), tmp_path)
    card = tmp_path / f"{bench.card.id}.yaml"
    card.write_text(yaml.safe_dump(bench.card.model_dump(mode="json")))
    data = {name: str(bench.folder / name) for name in ("raw", "public", "private")} | {"manifests": str(tmp_path)}
    shutil.copy(bench.folder / "manifest.json", tmp_path / f"{bench.card.id}.json")
    run = tmp_path / "results/runs" / make_run(task=bench.card.id).path
    run.mkdir(parents=True)
    write_record(run / "submission.json", bench.collect(tmp_path / "workspace", run))
    pack(tmp_path / "workspace", run / OUTPUTS)
    return {"campaign": make_campaign(tmp_path, card, data=data, leaderboard=shown(2)), "run": run}


def shown(number: int) -> dict[str, Any]:
    """So many cases, or none."""
    return {"case_views": "all", "cases_shown": number} if number else {"case_views": "none"}


def showing(written: dict[str, Any], number: int) -> dict[str, Any]:
    """The same step with so many cases."""
    campaign = written["campaign"]
    leaderboard = campaign.settings.leaderboard.model_copy(update=shown(number))
    settings = campaign.settings.model_copy(update={"leaderboard": leaderboard})
    return written | {"campaign": campaign.model_copy(update={"settings": settings})}


def test_scores_are_the_same_with_and_without_pictures(written: dict[str, Any]) -> None:
    """Byte by byte."""
    reports = []
    for number in (0, 3):
        score_metrics(**showing(written, number))
        reports.append((written["run"] / "detail_report.json").read_bytes())
        views = read_record(written["run"] / "case_views.json", CaseViews)
        assert len(views.cases) == number
    assert reports[0] == reports[1]


def test_no_cases_no_trace_of_any(bench: Bench, written: dict[str, Any]) -> None:
    """Data that may not be shown: no case id, no label, no picture; the note says why."""
    score_metrics(**showing(written, 0))
    text = (written["run"] / "case_views.json").read_text()
    labels = [json.loads((bench.private / name / "label.json").read_text())["label"] for name in bench.cases]
    assert not [word for word in (*bench.cases, *labels, "data:image") if word in text]
    views = CaseViews.model_validate_json(text)
    assert (views.cases, views.n_cases) == ([], len(bench.cases))
    assert "does not allow" in views.note


def test_a_run_that_is_scored_again_gets_none(written: dict[str, Any], tmp_path: Path) -> None:
    """Its report is written beside the run, from the run's own submission."""
    again = tmp_path / "results/again/check" / written["run"].relative_to(tmp_path / "results/runs")
    report = score_metrics(written["campaign"], again)
    assert [path.name for path in again.iterdir()] == ["detail_report.json"]
    assert [path.name for path in written["run"].glob("*.json")] == ["submission.json"]
    assert report.task_score == 1


def test_a_case_that_cannot_be_drawn_gets_a_note(
    written: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(inputs: ScoringInputs, shown: CaseScore) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr("automedbench.tracks.classification.TRACK", replace(classification, show=fail))
    report = score_metrics(**written)
    assert report.task_score == 1
    views = read_record(written["run"] / "case_views.json", CaseViews)
    assert [[text.text for text in view.texts] for view in views.cases] == [
        ["This case could not be drawn (MemoryError); the log of score_metrics says why."]
    ] * 2
    assert "too large" in caplog.text


def test_drawing_that_fails_altogether_leaves_the_scores(
    written: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(case_views, "choose_cases", fail)
    assert score_metrics(**written).task_score == 1
    assert "drawing failed" in read_record(written["run"] / "case_views.json", CaseViews).note


def test_a_track_without_pictures(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automedbench.tracks.classification.TRACK", replace(classification, show=Track.show))
    inputs, report = made(bench, tmp_path)
    (view, *_) = draw_views(inputs, report, 1).cases
    assert view.texts[0].text == "This track shows no pictures."


def test_problems_are_told(bench: Bench, tmp_path: Path) -> None:
    """A label that is no class: malformed, and the reader sees why."""
    table = f"patient_id,label\n{bench.cases[0]},dragon\n".encode()
    inputs, report = made(bench, tmp_path, {bench.card.outputs[0].path: table})
    views = {view.case: view for view in draw_views(inputs, report, 4).cases}
    (text,) = [text for text in views[bench.cases[0]].texts if text.title == "Why it is malformed"]
    assert "unknown_label" in text.text and "dragon" in text.text


def made(bench: Bench, folder: Path, outputs: dict[str, bytes] | None = None) -> tuple[ScoringInputs, DetailReport]:
    bench.hand_in(bench.perfect(bench.cases) if outputs is None else outputs, folder)
    checked = bench.collect(folder / "workspace", folder / "again")
    inputs = ScoringInputs(
        bench.card, bench.manifest, folder / "again/submission", bench.private, checked, {}, bench.public
    )
    return inputs, grade(inputs, verify=False)


def test_same_bytes_again(bench: Bench, tmp_path: Path) -> None:
    inputs, report = made(bench, tmp_path)
    assert draw_views(inputs, report, 4) == draw_views(inputs, report, 4)


def test_public_data_that_is_gone_is_no_error(bench: Bench, tmp_path: Path) -> None:
    inputs, report = made(bench, tmp_path)
    views = draw_views(replace(inputs, public=tmp_path / "nowhere"), report, 2)
    assert [view.texts[0].title for view in views.cases] == ["No picture"] * 2
