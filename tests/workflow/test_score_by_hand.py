"""Scoring by hand: on golden data the scripts give the values that are right or recommended.

Card, manifest, truth and run record lie where the earlier steps leave them. ``collect_submission.py`` and then
``score_metrics.py --verify`` run as programs; what they write is compared. All golden cases are in tests/contract;
synthesis and classification have none, and meet the specification's worked numbers in their unit tests.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from contract import test_golden_enhancement as golden_enhancement
from contract import test_golden_segmentation as golden_segmentation
from contract import test_golden_vqa as golden_vqa
from factories import make_run, make_run_record, make_score, written_campaign
from toys import enhancement as enhancement_toy
from toys import report_generation as report_toy
from toys import vqa as vqa_toy
from toys.detection import make_card as detection_card

from automedbench.base.cards import TaskCard
from automedbench.base.files import read_record, sha256_file, write_bytes, write_json, write_record
from automedbench.base.records import (
    CaseEntry,
    DetailReport,
    FileEntry,
    Manifest,
    RunRecord,
    SubmissionRecord,
)
from automedbench.base.untrusted.nifti import open_trusted
from automedbench.base.untrusted.npy import npy_bytes
from automedbench.sandbox.airlock.archive import OUTPUTS, pack
from automedbench.scoring.run import s4, s5
from automedbench.tracks.enhancement.truth import BANDS, RATINGS
from automedbench.tracks.segmentation.check import describe_geometry

ROOT = Path(__file__).resolve().parents[2]
# Tolerances: as the golden data's READMEs state them, else half of the last digit that is given.
WRITTEN_OUT, SIX_DIGITS, FOUR_DIGITS = 1e-9, 5.001e-7, 5.001e-5
SSIM, PSNR_DB, RADGRAPH = 1e-5, 1e-3, 1e-6
Numbers = dict[str, tuple[float | None, float]]
"""Name of a number → its golden value and how far ours may be from it."""


def within(tolerance: float, values: Mapping[str, float | None], prefix: str = "") -> Numbers:
    return {prefix + name: (value, tolerance) for name, value in values.items()}


def submission(recommended: Mapping[str, float], quality: float, tolerance: float) -> Numbers:
    """Quality, and what a recommendation says of the whole submission."""
    names = {"task_score", "completion_rate", "valid_rate", "s4", "s5"} & set(recommended)
    return within(tolerance, {"quality": quality, **{name: recommended[name] for name in names}})


# --- a task and one run on disk -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A task and a run of it below ``folder``, in the layout of a campaign."""

    card: TaskCard
    folder: Path
    resources: dict[str, Path] = field(default_factory=dict)

    @property
    def public(self) -> Path:
        return self.folder / "data/public" / self.card.id

    @property
    def private(self) -> Path:
        return self.folder / "data/private" / self.card.id

    @property
    def run(self) -> Path:
        return self.folder / "results/runs" / make_run(task=self.card.id).path

    @property
    def outputs(self) -> Path:
        """Where the agent left its files."""
        return self.run / "workspace/agents_outputs"

    @property
    def manifest(self) -> Path:
        return self.folder / f"data/manifests/{self.card.id}.json"

    @property
    def campaign(self) -> list[str | Path]:
        """The option that names the settings."""
        return ["--campaign", self.folder / "results/campaign.json"]

    def write_card(self) -> None:
        """The card, and the settings of a campaign with this task."""
        path = self.folder / f"cards/{self.card.id}.yaml"
        write_bytes(path, yaml.safe_dump(self.card.model_dump(mode="json")).encode())
        resources = {name: str(place) for name, place in self.resources.items()}
        written_campaign(self.folder, path, resources=resources, leaderboard={"case_views": "none"})

    def write_manifest(self, geometry: Mapping[str, dict[str, Any]]) -> None:
        """Card, and the manifest of what lies in both folders of each case."""
        cases = [
            CaseEntry(id=case, inputs=entries(self.public / case), private=entries(self.private / case), geometry=grid)
            for case, grid in geometry.items()
        ]
        facts = {"task": self.card.id, "task_version": 1, "track": self.card.track, "dataset": self.card.dataset.name}
        write_record(self.manifest, Manifest(**facts, sampling="golden data", cases=cases))
        self.write_card()

    def collect(self) -> None:
        """``submission/`` and ``submission.json`` of the run."""
        cases = read_record(self.manifest, Manifest).cases_sha256
        record = make_run_record(make_score(make_run(task=self.card.id)))
        write_record(self.run / "run.json", record.model_copy(update={"cases_sha256": cases}))
        self.outputs.mkdir(parents=True, exist_ok=True)
        pack(self.outputs.parent, self.run / OUTPUTS)
        succeed("collect_submission", *self.campaign, "--run", self.run)

    @property
    def again(self) -> Path:
        """Where the run is scored again, beside it."""
        return self.folder / "results/again/check" / make_run(task=self.card.id).path

    def scoring(self, folder: Path) -> list[str | Path]:
        """Options of the scorer that writes into ``folder``."""
        return [*self.campaign, "--run", folder, "--verify"]


def entries(folder: Path) -> dict[str, FileEntry]:
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size) for name, path in files.items()}


def script(name: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """``python scripts/<name>.py`` as a person calls it, from the repository."""
    command = [sys.executable, f"scripts/{name}.py", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def succeed(name: str, *options: str | Path) -> str:
    """What a script printed; it must end well and complain of nothing."""
    done = script(name, *options)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-3000:]
    return done.stdout


def load(path: Path) -> dict[str, Any]:
    """Cases of a golden file by id."""
    text = path.read_text()
    rows = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)["cases"]
    return {row["id"]: row for row in rows}


# --- detection and segmentation -------------------------------------------------------------------------------


def materialize(case: Any, golden: Path, task: Task) -> None:
    """Files of both sides and of the agent by the golden data's own program."""
    specification = importlib.util.spec_from_file_location("materialize", golden / "materialize.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    module.materialize_case(case, str(task.folder / "golden"))
    for name, place in {"public": task.public, "private": task.private, "agent": task.outputs}.items():
        place.parent.mkdir(parents=True)
        (task.folder / "golden" / name).rename(place)


def detection(shared: Path, name: str, folder: Path) -> tuple[Task, Numbers]:
    golden = shared / "golden/det"
    case = load(golden / "pipeline.json")[name]
    task = Task(detection_card(*case["task"]["classes"], iou_threshold=case["iou_threshold"]), folder)
    materialize(case, golden, task)
    width, height = case["task"]["size"]
    task.write_manifest({patient: {"width": width, "height": height} for patient in case["patients"]})
    recommended, reference = case["recommended"], case["reference"]["score"]
    if "harness_error" in recommended:
        return task, {}
    expected = submission(recommended, recommended["mAP"], SIX_DIGITS)
    for group, value in recommended["ap"].items():
        expected |= within(WRITTEN_OUT, {"ap50": value}, f"groups.{group}.")
    if case["judgement"]["reference_right"]:
        expected["quality"] = (reference["mAP"], WRITTEN_OUT)
        for patient, row in reference["per_patient"].items():
            counts = {key: row[key] for key in ("tp", "fp", "fn", "precision", "recall", "f1")}
            expected |= within(WRITTEN_OUT, counts, f"cases.{patient}.")
    return task, expected


def segmentation(shared: Path, name: str, folder: Path) -> tuple[Task, Numbers]:
    golden = shared / "golden/seg"
    case = (load(golden / "pipeline_binary.json") | load(golden / "pipeline_multiclass.json"))[name]
    task = Task(golden_segmentation.golden_card(case), folder)
    materialize(case, golden, task)
    geometry = {}
    for patient in case["patients"]:
        with open_trusted(task.public / patient / case["task_cfg"]["input_filename"]) as scan:
            geometry[patient] = describe_geometry(scan.header)
    task.write_manifest(geometry)
    recommended = case["recommended"]
    if "harness_error" in recommended:
        return task, {}
    expected = submission(recommended, recommended["macro_dice"], SIX_DIGITS)
    for target, value in recommended["target_dice"].items():
        expected |= within(SIX_DIGITS, {"dice": value}, f"groups.{target}.")
    if case["judgement"]["reference_right"]:
        expected |= reference_dice(case["reference"]["dice"])
    return task, expected


def reference_dice(dice: Any) -> Numbers:
    """Values written out: the mean and each patient's Dice, of a label map or of masks."""
    expected: Numbers = {}
    for patient, row in dice["per_patient"].items():
        masks = {target: row.get(f"{target}_dice") for target in ("organ", "lesion")}
        labels = {f"label_{number}": value for number, value in row.get("per_class", {}).items()}
        expected |= within(WRITTEN_OUT, labels or masks, f"cases.{patient}.")
    macro = dice.get("macro_mean_dice", (dice.get("mean_organ_dice", 0) + dice.get("mean_lesion_dice", 0)) / 2)
    return expected | within(WRITTEN_OUT, {"quality": macro})


# --- enhancement ----------------------------------------------------------------------------------------------


def enhancement(shared: Path, name: str, folder: Path) -> tuple[Task, Numbers]:
    case = load(shared / "golden/enh/submissions.json")[name]
    task = Task(enhancement_toy.make_card(intensity_range=[-1024, 3000]), folder)
    for patient, reference in case["references"].items():
        write_bytes(task.private / patient / "reference.npy", npy_bytes(golden_enhancement.array(reference)))
    for patient, content in case["enhanced_npy_files_b64"].items():
        if content is not None:
            write_bytes(task.outputs / patient / "enhanced.npy", base64.b64decode(content))
    write_bytes(task.private / "ground_truth.csv", case["ground_truth_csv"].encode())
    write_record(task.private / BANDS, golden_enhancement.published(case["task"]))
    shape = next(iter(case["references"].values()))["shape"]
    task.write_manifest({patient: {"input_shape": shape, "output_shape": shape} for patient in case["patient_ids"]})
    recommended, report = case["expected"]["recommended"], case["expected"].get("report")
    if recommended["harness_error"]:
        return task, {}
    expected = submission(recommended, recommended["task_score"], SSIM)
    for patient, value in recommended["per_patient_ssim_clipped"].items():
        expected |= within(SSIM, {"ssim": value}, f"cases.{patient}.")
    for row in report["scores"]["per_patient"]:
        if row["psnr"] != "NaN":
            expected |= within(PSNR_DB, {"psnr": row["psnr"]}, f"cases.{row['patient_id']}.")
    if recommended["completion_rate"] == 1:  # with fewer cases the reference's means are over others than ours
        control, passed = report["shuffle"], report["pass_rate"]["pass_rate"]
        expected |= within(SSIM, {"control_ssim": control["mean_ssim"]}, "metrics.")
        expected |= within(PSNR_DB, {"control_psnr": control["mean_psnr"]}, "metrics.")
        expected |= within(FOUR_DIGITS, {"pass_rate": passed}, "metrics.")
        expected |= within(0, {"rating": RATINGS[report["rating"]["rating"]]}, "metrics.")
    return task, expected


# --- VQA ------------------------------------------------------------------------------------------------------


def vqa(shared: Path, name: str, folder: Path) -> tuple[Task, Numbers]:
    """The score is max(EM, token F1) of each question: the README rejects the reference's half EM + half F1."""
    row = load(shared / "golden/vqa/end_to_end.jsonl")[name]
    task, questions, metrics = Task(vqa_toy.CARD, folder), row["input"]["questions"], row["output"]["metrics"]
    for each in questions:
        golden_vqa.write_gold(task.private / each["id"], each)
        if each["rec"] is not None:
            write_json(task.outputs / each["id"] / "answer.json", vqa_toy.record(each["id"], **each["rec"]))
    task.write_manifest({each["id"]: {"options": each.get("options", {})} for each in questions})
    scores = {each["id"]: golden_vqa.site_score(each) for each in questions}
    mean = sum(scores.values()) / len(scores)
    expected = within(WRITTEN_OUT, {"quality": mean, "task_score": mean})
    for case, value in scores.items():
        expected |= within(WRITTEN_OUT, {"answer_score": value}, f"cases.{case}.")
    if row["verdict"] != "ok":
        assert row["better"] == "E is not an option: invalid output"
        return task, expected | within(0, {"completion_rate": 0, "valid_rate": 0, "s4": 0, "s5": 0})
    rates = {"completion_rate": metrics["parse_rate"], "valid_rate": metrics["valid_output_rate"]}
    texts = {"exact_match": metrics["exact_match"], "token_f1": metrics["token_f1"]}
    texts["yes_no_score"] = metrics["yes_no_accuracy"]
    return task, expected | within(FOUR_DIGITS, rates) | within(FOUR_DIGITS, texts, "metrics.")


# --- report generation ----------------------------------------------------------------------------------------

TEXT = {"BLEU": "recommended_bleu_mean", "METEOR": "nltk_meteor_recommended_tokens", "ROUGE_L": "rouge_score_rougeL_f"}


# Same text, other text, paraphrase, nothing right, a file without content, the reference four times over.


Texts = dict[str, tuple[str, bytes | None]]
"""Case → reference and report (None: not there)."""


def reports(folder: Path, texts: Texts, resources: dict[str, Path], **settings: Any) -> Task:
    metric = report_toy.CARD.metric.model_copy(update={"settings": settings})
    task = Task(report_toy.CARD.model_copy(update={"metric": metric}), folder, resources)
    for case, (reference, report) in texts.items():
        write_bytes(task.private / case / "report.txt", reference.encode())
        if report is not None:
            write_bytes(task.outputs / case / "report.txt", report)
    task.write_manifest({case: {} for case in texts})
    return task


def mean_of(components: Mapping[str, Mapping[str, float]], tolerance: float = WRITTEN_OUT) -> Numbers:
    """Components of each report, the mean of each report's components, and the mean of all reports."""
    expected: Numbers = {}
    scores = {case: sum(values.values()) / len(values) for case, values in components.items()}
    for case, values in components.items():
        expected |= within(tolerance, {**values, "report_score": scores[case]}, f"cases.{case}.")
    mean = sum(scores.values()) / len(scores)
    return expected | within(tolerance, {"quality": mean, "task_score": mean})


def report_submission(shared: Path, name: str, folder: Path) -> tuple[Task, Numbers]:
    """The references themselves but for one report: completion as recommended, text metrics at their ceiling."""
    case = load(shared / "golden/report/submissions.json")[name]
    handed_in = [None if text is None else base64.b64decode(text) for text in case["predictions_b64"]]
    texts = dict(zip(case["case_ids"], zip(case["references"], handed_in, strict=True), strict=True))
    found = {}
    for each, (reference, report) in texts.items():
        assert not report or report.decode() == reference
        # Equal texts of n words: METEOR is 1 - 0.5 / n³ (one chunk); COCO's constants take some 1e-10 of BLEU.
        ceiling = {"BLEU": 1.0, "METEOR": 1 - 0.5 / len(reference.split()) ** 3, "ROUGE_L": 1.0}
        found[each] = ceiling if report else dict.fromkeys(TEXT, 0.0)
    recommended = case["expected"]["recommended"]
    rates = {"completion_rate": recommended["completion_rate"], "s4": recommended["s4"]}
    rates["s5"] = recommended["s5_if_submitted"]
    task = reports(folder, texts, {"wordnet": ROOT / "demo/data/wordnet"}, components=list(TEXT))
    return task, mean_of(found) | within(WRITTEN_OUT, rates)


# --- tests ----------------------------------------------------------------------------------------------------

Make = Callable[[Path, str, Path], tuple[Task, Numbers]]
# Golden cases of each: a right one, and one with a file that the reference gets wrong.
EXAMPLES: dict[Make, list[str]] = {
    detection: ["d27_duplicates", "d05_bad_json"],
    segmentation: ["m15_random", "b23_corrupt_truncated"],
    enhancement: ["all_good", "one_nan"],
    vqa: ["end_to_end-001", "end_to_end-017"],
    report_submission: ["one_empty_file_light"],
}
ALL = [pytest.param(make, name, id=f"{make.__name__}: {name}") for make, names in EXAMPLES.items() for name in names]
FIRST = [pytest.param(make, EXAMPLES[make][0], id=make.__name__) for make in EXAMPLES]
LOST = {detection: "d29_gt_missing", segmentation: "b25_gt_missing", enhancement: "missing_reference"}
Scored = Callable[[Make, str], tuple[Task, Numbers, str]]


@pytest.fixture(scope="module")
def scored(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scored]:
    """Collects and scores an example, once; gives the task, the golden numbers and what the scorer printed."""
    place = tmp_path_factory.mktemp("by-hand")

    def by_hand(make: Make, name: str) -> tuple[Task, Numbers, str]:
        task, expected = make(shared, name, place / make.__name__ / name)
        task.collect()
        return task, expected, succeed("score_metrics", *task.scoring(task.run))

    # Nearly all time is start-up of programs: the examples of one kind run two at a time.
    with ThreadPoolExecutor(max_workers=2) as pool:
        start = functools.cache(lambda make: {name: pool.submit(by_hand, make, name) for name in EXAMPLES[make]})
        yield lambda make, name: start(make)[name].result()


def numbers(run: Path) -> dict[str, float | None]:
    """Every number of a scored run under its name."""
    report = read_record(run / "detail_report.json", DetailReport)
    collected, record = read_record(run / "submission.json", SubmissionRecord), read_record(run / "run.json", RunRecord)
    found: dict[str, float | None] = {
        "quality": report.quality,
        "task_score": report.task_score,
        "completion_rate": report.completion_rate,
        "valid_rate": collected.valid_rate,
        "s4": s4(collected),
        "s5": s5(report.task_score, collected, record),
    }
    tables = {"metrics": report.metrics, **{f"groups.{group}": row for group, row in report.groups.items()}}
    for case in report.cases:
        targets = {target: row["dice"] for target, row in case.detail.get("targets", {}).items()}
        tables[f"cases.{case.case}"] = case.metrics | targets
    return found | {f"{table}.{name}": value for table, row in tables.items() for name, value in row.items()}


def agrees(found: float | None, golden: float | None, tolerance: float) -> bool:
    """Whether both are absent, or close to each other."""
    if found is None or golden is None:
        return found is golden
    return abs(found - golden) <= tolerance


@pytest.mark.parametrize(("make", "name"), ALL)
def test_golden_values(make: Make, name: str, scored: Scored) -> None:
    """Every golden number within its tolerance, and the independent library agrees."""
    task, expected, printed = scored(make, name)
    found = numbers(task.run)
    wrong = {key: (found[key], golden) for key, golden in expected.items() if not agrees(found[key], *golden)}
    assert wrong == {}, "name: (ours, (golden, tolerance))"
    assert {"quality", "task_score"} < set(expected)
    assert "verified with " in printed


@pytest.mark.parametrize(("make", "name"), FIRST)
def test_scoring_again_gives_the_same_bytes(make: Make, name: str, scored: Scored) -> None:
    task, _, printed = scored(make, name)
    assert succeed("score_metrics", *task.scoring(task.again)) == printed
    assert (task.again / "detail_report.json").read_bytes() == (task.run / "detail_report.json").read_bytes()


@pytest.mark.parametrize(("make", "name"), LOST.items(), ids=[make.__name__ for make in LOST])
def test_lost_truth_is_no_score(make: Make, name: str, shared: Path, tmp_path: Path) -> None:
    """Recommended: an error of the harness. It names the file in three lines at most, and there is no report."""
    task, _ = make(shared, name, tmp_path)
    task.collect()
    done = script("score_metrics", *task.scoring(task.run))
    assert (done.returncode, done.stdout) == (1, "")
    assert 1 <= len(done.stderr.splitlines()) <= 3
    assert str(task.private) in done.stderr
    assert not (task.run / "detail_report.json").exists()
