"""An eighth track is one folder and one card: the whole workflow runs on it, from raw data to the leaderboard."""

from __future__ import annotations

import csv
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from campaigns import add_agent, fresh_copy
from conftest import Project

from automedbench.base.files import read_record
from automedbench.base.records import DetailReport, JudgeRecord, ScoreRecord, SubmissionRecord

TRACK, TASK = "counting", "cell-count-task"
GUESS = 20

FOLDER = {
    "__init__": '''"""Counting: how many things are in an image; the score of a case falls with the relative error."""

from automedbench.tracks import Track
from automedbench.tracks.counting import check, score, stage, verify

TRACK = Track(
    version=1, quality="closeness", stage=stage.stage, check=check.check, score=score.score, verify=verify.verify
)
''',
    "stage": '''"""Staging: one picture and its number of boxes per case."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.records import CaseEntry
from automedbench.datasets import get_reader
from automedbench.datasets.forms.pictures import rgb_png
from automedbench.datasets.sampling import assign_case_ids, shuffled
from automedbench.tracks.common.staging import put

TRUTH = "truth.txt"


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    images = {image.id: image for image in get_reader(card.staging.reader)(raw, card)}
    chosen = shuffled(images.keys(), card.staging.sampling.seed)
    entries = []
    for case, name in assign_case_ids(card, chosen).items():
        picture, truth = rgb_png(images[name].image), str(len(images[name].boxes)).encode()
        files = {card.inputs[0].file: put(public / case / card.inputs[0].file, picture)}
        entries.append(CaseEntry(id=case, inputs=files, private={TRUTH: put(private / case / TRUTH, truth)}))
    return entries
''',
    "check": '''"""Format check: one whole number per case."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest
from automedbench.base.untrusted import parse_json
from automedbench.tracks.common.cases import Judged, case_output, check_file


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    output = case_output(card, "json")
    return [check_file(case, output, submission, _judge) for case in manifest.cases]


def _judge(case: CaseEntry, data: bytes) -> Judged:
    count(data)
    return [], []


def count(data: bytes) -> int:
    value = parse_json(data)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidSubmission("no_count", "is not a count")
    return value
''',
    "score": '''"""Scores: one minus the relative error of each count."""

from __future__ import annotations

from statistics import fmean

from automedbench.base.records import CaseScore
from automedbench.tracks import ScoringInputs, TrackScore
from automedbench.tracks.common.cases import case_output, read_collected
from automedbench.tracks.counting.check import count
from automedbench.tracks.counting.stage import TRUTH


def score(inputs: ScoringInputs) -> TrackScore:
    output = case_output(inputs.card, "json")
    cases = []
    for _, case in inputs.pairs:
        truth = int((inputs.private / case.case / TRUTH).read_text())
        closeness = 0.0
        if case.completed:
            found = read_collected(inputs.submission, output, case.case, count)
            closeness = max(0.0, 1 - abs(found - truth) / max(truth, 1))
        cases.append(CaseScore(case=case.case, status=case.status, metrics={"closeness": closeness}))
    quality = fmean(case.metrics["closeness"] or 0.0 for case in cases)
    return TrackScore(quality=quality, task_score=quality, metrics={}, groups={}, cases=cases)
''',
    "verify": '''"""Verification: the same once more."""

from __future__ import annotations

from automedbench.tracks import ScoringInputs
from automedbench.tracks.counting.score import score


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    return "the same again", score(inputs).quality, 1e-12
''',
}
"""The whole track: module of its folder -> text. It has no settings of its own, no pictures and no words."""

CARD = {
    "id": TASK,
    "version": 1,
    "track": TRACK,
    "title": "Cell Counting",
    "modality": "Blood-smear microscopy",
    "unit": "image",
    "description": "Say how many cells and platelets are in each micrograph.",
    "staging": {
        "reader": "pascal_voc",
        "options": {
            "images": "BCCD/JPEGImages",
            "annotations": "BCCD/Annotations",
            "splits": "BCCD/ImageSets/Main",
        },
        "sampling": {"rule": "the whole official test list", "split": "test"},
        "case_prefix": "count",
    },
    "inputs": [{"file": "image.png", "format": "PNG, 8-bit RGB", "description": "the micrograph"}],
    "outputs": [{"path": "{case}/count.json", "format": "json", "max_bytes": 100, "description": "one JSON integer"}],
    "metric": {"name": "closeness"},
    "medals": [{"name": "good", "at_least": {"closeness": 0.5}}],
    "briefs": {"lite_model": {"name": "any counter"}},
}

SCRIPT = f"""
for case in $(ls "$DATA_DIR" | tail -n +2); do
  mkdir -p "agents_outputs/$case"
  echo {GUESS} > "agents_outputs/$case/count.json"
done
"""


def copy_with_track(place: Path) -> Project:
    """A clone with the folder, the card on the demo's images, and an agent that guesses for all cases but one."""
    project = fresh_copy(place)
    folder = project.path / "src/automedbench/tracks" / TRACK
    folder.mkdir()
    for name, text in FOLDER.items():
        (folder / f"{name}.py").write_text(text)
    demo = yaml.safe_load((project.path / "config/tasks/detection/bccd-det-task.yaml").read_text())
    card = project.path / f"config/tasks/{TRACK}/{TASK}.yaml"
    card.parent.mkdir()
    card.write_text(yaml.safe_dump(CARD | {"dataset": demo["dataset"]}))
    add_agent(project, "guesser", SCRIPT)
    return project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The clone after its campaign."""
    project = copy_with_track(tmp_path_factory.mktemp("eighth") / "automedbench")
    done = project.snakemake("--config", f"matrix={{agents: [guesser], tasks: [{TASK}]}}")
    assert done.returncode == 0, done.stdout[-3000:]
    return project


def run(project: Project) -> Path:
    return project.path / f"results/demo/runs/guesser/{TASK}/lite/r1"


def counts(project: Project) -> list[int]:
    """Cells per image of the demo's data, straight from its annotations."""
    folder = project.path / "demo/data/bccd/BCCD"
    names = (folder / "ImageSets/Main/test.txt").read_text().split()
    return [len(ElementTree.parse(folder / f"Annotations/{name}.xml").findall("object")) for name in names]


def test_scores(project: Project) -> None:
    """The score by hand: the guess is the same for all images but the one that is missing, whichever that is."""
    report = read_record(run(project) / "detail_report.json", DetailReport)
    earned = sorted(max(0, 1 - abs(GUESS - count) / count) for count in counts(project))
    left_out = [case.metrics["closeness"] for case in report.cases if case.status == "missing"]
    assert left_out == [0]
    found = sorted(case.metrics["closeness"] or 0 for case in report.cases if case.status == "valid")
    (missed,) = {value for i, value in enumerate(earned) if found == pytest.approx(earned[:i] + earned[i + 1 :])}
    assert report.task_score == pytest.approx((sum(earned) - missed) / len(earned))
    score = read_record(run(project) / "score.json", ScoreRecord)
    assert (score.track, score.scores.task, score.outcome) == (TRACK, report.task_score, "submitted")
    submission = read_record(run(project) / "submission.json", SubmissionRecord)
    assert submission.completion_rate == 1 - 1 / len(earned)


def test_words_that_every_track_has(project: Project) -> None:
    """Brief and judge take what the card and the skeleton say."""
    brief = (run(project) / "brief.md").read_text()
    assert "one JSON integer" in brief
    assert "The metric is `closeness`" in brief
    judged = read_record(run(project) / "judge.json", JudgeRecord)
    assert judged.rubric_version % 100 == 0
    assert {criterion.stage for criterion in judged.criteria} == {"S1", "S2", "S3"}


def test_leaderboard(project: Project) -> None:
    """The track has its table and its name on the page."""
    folder = project.path / "results/demo/leaderboard"
    with open(folder / "tracks.csv", newline="") as stream:
        assert [row["track"] for row in csv.DictReader(stream)] == [TRACK]
    assert "Counting" in (folder / "index.html").read_text()


def test_verified(project: Project) -> None:
    """The scorer's script takes the track's own check, called by hand."""
    again = Path("results/demo/again/check") / run(project).relative_to(project.path / "results/demo/runs")
    campaign = "--campaign results/demo/campaign.json"
    done = project.run(*f"python scripts/score_metrics.py {campaign} --run {again} --verify".split())
    assert done.returncode == 0, done.stdout
    report = read_record(project.path / again / "detail_report.json", DetailReport)
    assert report.verification is not None
    assert report.verification.library == "the same again"
