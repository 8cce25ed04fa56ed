"""Task metrics of one run as the workflow calls them: report, medal, verification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import make_campaign
from toys._bench import collected, inputs
from toys.detection import box, make_card, make_manifest, submit, write_truth

from automedbench.base.cards import Medal, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import DetailReport, Manifest, RunId, SubmissionRecord
from automedbench.sandbox.airlock.archive import OUTPUTS, pack
from automedbench.steps.inside.grade_submission import grade
from automedbench.steps.score_metrics import score_metrics
from automedbench.tracks.detection import TRACK as detection

ROOT = Path(__file__).resolve().parents[2]
RBC = box("rbc", 10, 10, 30, 30)


class Toy:
    """Two images with one red cell each; the first is found exactly, the second is not submitted.

    By hand: one of two boxes at precision 1 reaches recall 0.5, so 51 of the 101 recall points have precision 1 and
    AP = 51/101; completion is 1/2, and the task score is their product.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.card: TaskCard = make_card("rbc", **settings)
        self.manifest: Manifest = write_truth(folder / "private/bccd-det-task", {"a": [RBC], "b": [RBC]})
        submit(folder / "submission", "a", [RBC | {"score": 0.9}])
        self.checked: SubmissionRecord = collected(self.card, self.manifest, folder / "submission")

    def grade(self, *, verify: bool = False) -> DetailReport:
        private = self.folder / "private/bccd-det-task"
        submission = self.folder / "submission"
        return grade(inputs(self.card, self.manifest, submission, private, self.checked), verify=verify)

    def with_medals(self, *medals: Medal) -> None:
        self.card = self.card.model_copy(update={"medals": list(medals)})


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


# --- nothing there --------------------------------------------------------------------------------------------


def test_nothing_submitted(tmp_path: Path) -> None:
    """Quality and score are 0, and so is no medal; every case is listed."""
    toy = Toy(tmp_path)
    (tmp_path / "submission/agents_outputs/a/prediction.json").unlink()
    toy.checked = collected(toy.card, toy.manifest, tmp_path / "submission")
    report = toy.grade()
    assert (report.quality, report.completion_rate, report.task_score, report.medal) == (0, 0, 0, "fail")
    assert [case.status for case in report.cases] == ["missing", "missing"]


def test_answers_missing(toy: Toy) -> None:
    (toy.folder / "private/bccd-det-task/b/boxes.json").unlink()
    with pytest.raises(MissingDataError, match=r"boxes\.json does not exist"):
        toy.grade()


# --- the report -----------------------------------------------------------------------------------------------


def test_numbers(toy: Toy) -> None:
    report = toy.grade()
    assert report.quality_name == "map50"
    assert report.quality == pytest.approx(51 / 101, abs=1e-12)
    assert report.completion_rate == 0.5
    assert report.task_score == pytest.approx(51 / 202, abs=1e-12)
    assert [case.case for case in report.cases] == ["a", "b"]
    assert report.verification is None


def test_recipe(tmp_path: Path) -> None:
    """Settings are complete: what the card leaves out stands there with its default."""
    report = Toy(tmp_path, iou_threshold=0.75).grade()
    assert report.settings == {"iou_threshold": 0.75, "max_detections": 100}
    assert (report.track, report.track_version, report.task_version) == ("detection", detection.version, 1)


@pytest.mark.parametrize(
    ("medals", "expected"),
    [
        pytest.param([], "fail", id="no medal to win"),
        pytest.param([Medal(name="good", at_least={"map50": 0.51})], "fail", id="just below"),
        pytest.param([Medal(name="good", at_least={"map50": 0.5})], "good", id="just above"),
        pytest.param(
            [Medal(name="good", at_least={"map50": 0.9}), Medal(name="okay", at_least={"map50": 0.1})],
            "okay",
            id="the second",
        ),
        pytest.param([Medal(name="good", at_least={"map50": 0.1, "micro_recall": 0.9})], "fail", id="every one counts"),
    ],
)
def test_medals(toy: Toy, medals: list[Medal], expected: str) -> None:
    """Quality is 0.505 and recall 0.5, before completion is multiplied."""
    toy.with_medals(*medals)
    assert toy.grade().medal == expected


def test_medal_on_a_metric_that_does_not_exist(toy: Toy) -> None:
    """A misspelt metric would silently never be reached."""
    toy.with_medals(Medal(name="good", at_least={"map5": 0.1}))
    with pytest.raises(ConfigError) as caught:
        toy.grade()
    (problem,) = caught.value.problems
    assert problem.startswith("bccd-det-task: medals.0.at_least: unknown metric 'map5' (did you mean 'map50'?)")


def test_shipped_medals_name_metrics_of_the_track(tmp_path: Path) -> None:
    """The control: the card as it is grades."""
    card = make_card()
    manifest = write_truth(tmp_path / "private", {"a": [RBC]})
    checked = collected(card, manifest, tmp_path / "submission")
    report = grade(inputs(card, manifest, tmp_path / "submission", tmp_path / "private", checked), verify=False)
    assert {name for item in card.medals for name in item.at_least} <= {report.quality_name, *report.metrics}


# --- verification ---------------------------------------------------------------------------------------------


def test_verified_by_an_independent_library(toy: Toy) -> None:
    verification = toy.grade(verify=True).verification
    assert verification is not None
    assert verification.library.startswith("pycocotools")
    assert verification.value == pytest.approx(51 / 101, abs=1e-9)
    assert verification.difference <= verification.tolerance


@pytest.mark.parametrize(("offset", "fails"), [(1e-10, False), (1e-6, True)], ids=["within", "above"])
def test_a_difference_is_an_error_of_ours(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, offset: float, fails: bool
) -> None:
    """It stops the step and says so; it never becomes a score."""
    twin = replace(detection, verify=lambda inputs: ("twin 1.0", 51 / 101 + offset, 1e-9))
    monkeypatch.setattr("automedbench.tracks.detection.TRACK", twin)
    if not fails:
        assert toy.grade(verify=True).verification is not None
        return
    with pytest.raises(InfrastructureError, match=r"differs from twin 1\.0's .* by 1\.0e-06 > 1e-09") as caught:
        toy.grade(verify=True)
    assert "error of the scorer, not of the submission" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


# --- as the rule calls it -------------------------------------------------------------------------------------


@pytest.fixture
def written(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The toy's files in the layout of a campaign with the local backend; arguments of the step."""
    card = toy.folder / "bccd-det-task.yaml"
    card.write_text(yaml.safe_dump(toy.card.model_dump(mode="json", exclude_none=True)))
    run = RunId(agent="toy", task="bccd-det-task", tier="lite", repeat=1)
    campaign = make_campaign(toy.folder, card)
    folder = campaign.results / "runs" / run.path
    write_record(campaign.manifest("bccd-det-task"), toy.manifest.model_copy(update={"task": "bccd-det-task"}))
    write_record(folder / "submission.json", toy.checked.model_copy(update={"run": run}))
    pack(toy.folder / "submission", folder / OUTPUTS)
    (toy.folder / "data/public/bccd-det-task").mkdir(parents=True)
    (toy.folder / "private").rename(toy.folder / "data/private")
    return {"campaign": campaign, "run": folder}


def test_written_report(written: dict[str, Any]) -> None:
    report = score_metrics(**written, verify=True)
    assert read_record(written["run"] / "detail_report.json", DetailReport) == report
    assert report.run.path == "toy/bccd-det-task/lite/r1"
    assert report.task_score == pytest.approx(51 / 202, abs=1e-12)


def test_same_bytes_again(written: dict[str, Any]) -> None:
    score_metrics(**written)
    first = (written["run"] / "detail_report.json").read_bytes()
    score_metrics(**written)
    assert (written["run"] / "detail_report.json").read_bytes() == first


def test_failure_leaves_no_report(written: dict[str, Any]) -> None:
    """Nor the scratch folder of the role."""
    Path(written["campaign"].settings.data.private, "bccd-det-task/a/boxes.json").write_text("{")
    before = sorted(path.name for path in written["run"].iterdir())
    with pytest.raises(InfrastructureError):
        score_metrics(**written)
    assert sorted(path.name for path in written["run"].iterdir()) == before


def test_manifest_of_other_cases(written: dict[str, Any]) -> None:
    write_record(written["campaign"].manifest("bccd-det-task"), make_manifest(["a", "c"]))
    with pytest.raises(InfrastructureError, match="list different cases"):
        score_metrics(**written)
