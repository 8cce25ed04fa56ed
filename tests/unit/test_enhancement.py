"""Enhancement: staging, remarks, score, diagnostics, LPIPS. Bad files are in the toy's corpus."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from toys.enhancement import inputs_of, make_card, make_manifest

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import read_record, sha256_file, write_bytes, write_record
from automedbench.base.records import CaseEntry
from automedbench.base.untrusted.npy import npy_bytes
from automedbench.datasets.forms.slices import SliceOrigin, SourceSlice
from automedbench.metrics.perceptual import HEADS, TRUNK
from automedbench.steps.inside.grade_submission import grade
from automedbench.tracks import TrackScore
from automedbench.tracks.enhancement import TRACK as enhancement
from automedbench.tracks.enhancement.baselines import noise_sigma
from automedbench.tracks.enhancement.settings import BaselineQuality
from automedbench.tracks.enhancement.stage import choose_slices, stage_slices
from automedbench.tracks.enhancement.truth import BANDS, BaselineBands, make_bands

SHAPE = (24, 24)
UNIT = {"data_range": 1.0, "intensity_range": [0, 1], "lpips": "off"}


def image(seed: int, shape: tuple[int, int] = SHAPE) -> np.ndarray:
    """Smooth noise between 0 and 1."""
    down, across = np.mgrid[0 : shape[0], 0 : shape[1]] / 10
    grey = np.sin((1 + seed) * down + seed) * np.cos((2 + seed) * across) / 2 + 0.5
    return (0.9 * grey + 0.1 * np.random.default_rng(seed).random(shape)).astype(np.float32)


class Task:
    """Three cases with references below a folder; a test adds outputs and scores them."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.card = folder, make_card(**(UNIT | settings))
        self.references = {f"case_{number}": image(number) for number in range(3)}
        self.stage()

    def stage(self) -> None:
        """Write the references and bands."""
        self.manifest = make_manifest({case: reference.shape for case, reference in self.references.items()})
        for case, reference in self.references.items():
            write_bytes(self.folder / "private" / case / "reference.npy", npy_bytes(reference))
        self.freeze(classical=(0.9, 30))

    def submit(self, **outputs: np.ndarray) -> Task:
        for case, array in outputs.items():
            write_bytes(self.folder / "submission/agents_outputs" / case / "enhanced.npy", npy_bytes(array))
        return self

    def freeze(self, **baselines: tuple[float, float]) -> Task:
        known = {name: BaselineQuality(mean_ssim=ssim, mean_psnr=psnr) for name, (ssim, psnr) in baselines.items()}
        bands = make_bands(self.card.id, known, classical="classical", source="published")
        write_record(self.folder / "private" / BANDS, bands)
        return self

    def ranges(self, text: str) -> Task:
        write_bytes(self.folder / "private/ground_truth.csv", text.encode())
        return self

    def score(self, **resources: Path) -> TrackScore:
        """The score; the twin must agree."""
        inputs = inputs_of(self.card, self.manifest, self.folder, resources)
        score = enhancement.score(inputs)
        _, value, tolerance = enhancement.verify(inputs)
        assert abs(value - score.quality) <= tolerance
        return score


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


# --- score ----------------------------------------------------------------------------------------------------


def test_nothing_submitted(task: Task) -> None:
    """0, every diagnostic of the outputs undefined, a row per case."""
    score = task.score()
    assert (score.quality, score.task_score) == (0, 0)
    assert [(row.case, row.status, row.metrics["ssim"], row.metrics["psnr"]) for row in score.cases] == [
        (case, "missing", 0, None) for case in task.references
    ]
    for name in ("mean_ssim", "mean_psnr", "mean_lpips", "control_ssim"):
        assert score.metrics[name] is None
    assert (score.metrics["rating"], score.metrics["pass_rate"]) == (0, 0)


def test_perfect(task: Task) -> None:
    score = task.submit(**task.references).score()
    assert score.quality == score.task_score == pytest.approx(1, abs=1e-12)
    assert score.metrics["mean_psnr"] == 99


def test_a_missing_case_counts_zero(task: Task) -> None:
    """Two perfect of three: 2/3; means over what is there stay perfect (docs/specification.md, 10.2)."""
    score = task.submit(case_0=task.references["case_0"], case_2=task.references["case_2"]).score()
    assert score.quality == score.task_score == pytest.approx(2 / 3, abs=1e-12)
    assert score.metrics["mean_ssim"] == pytest.approx(1, abs=1e-12)
    assert (score.metrics["n_cases"], score.metrics["n_completed"]) == (3, 2)


def test_negative_similarity_counts_zero(task: Task) -> None:
    """A negative around 0.5 has SSIM < 0; the table keeps the true value."""
    negative = {case: 1 - reference for case, reference in task.references.items()}
    score = task.submit(**negative).score()
    assert score.quality == 0
    for row in score.cases:
        assert row.metrics["ssim"] == 0
        assert row.metrics["ssim_unclipped"] is not None
        assert row.metrics["ssim_unclipped"] < 0


@pytest.mark.parametrize("value", [3.4e38, -3.4e38, 1e20, 1e-45], ids=["largest", "lowest", "large", "tiny"])
def test_absurd_values_earn_nothing_and_break_nothing(task: Task, value: float) -> None:
    score = task.submit(case_0=np.full(SHAPE, value, np.float32)).score()
    assert 0 <= score.quality < 0.01
    json.dumps(score.model_dump(mode="json"), allow_nan=False)


def test_a_constant_offset_costs_luminance_only(task: Task) -> None:
    """Data range 10: C1 = 0.01, C2 = 0.09, on constants shifted by one: (2ab + C1)/(a² + b² + C1) with a = 1, b = 2."""
    flat = {case: np.full(SHAPE, 1, np.float32) for case in task.references}
    for case, reference in flat.items():
        write_bytes(task.folder / "private" / case / "reference.npy", npy_bytes(reference))
    task.ranges("patient_id,data_range\ncase_0,10\ncase_1,10\ncase_2,10\n")
    score = task.submit(**{case: reference + 1 for case, reference in flat.items()}).score()
    assert score.quality == pytest.approx(4.01 / 5.01, abs=1e-9)
    assert score.metrics["mean_psnr"] == pytest.approx(20, abs=1e-9)


@pytest.mark.parametrize(
    "content",
    [b"", b"not an array", npy_bytes(np.zeros((5, 5), np.float32)), npy_bytes(np.full(SHAPE, np.nan, np.float32))],
    ids=["empty", "text", "other shape", "NaN"],
)
def test_damaged_reference_is_not_the_agents_fault(task: Task, content: bytes) -> None:
    write_bytes(task.folder / "private/case_1/reference.npy", content)
    with pytest.raises(InfrastructureError, match="stage the task again"):
        task.score()


# --- data range and offset ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(None, id="no table"),
        pytest.param("", id="empty table"),
        pytest.param("patient_id,data_range\ncase_1,1.0\n", id="other case"),
        pytest.param("patient_id,data_range\ncase_0,\n", id="empty value"),
        pytest.param("patient_id,data_range\ncase_0\n", id="short row"),
        pytest.param("patient_id,data_range\ncase_0,abc\n", id="text"),
        pytest.param("patient_id,data_range\ncase_0,nan\n", id="NaN"),
        pytest.param("patient_id,data_range\ncase_0,-5\n", id="negative"),
        pytest.param("patient_id,other\ncase_0,3\n", id="no such column"),
    ],
)
def test_without_a_usable_number_the_reference_gives_the_range(task: Task, table: str | None) -> None:
    if table is not None:
        task.ranges(table)
    row = task.submit(**task.references).score().cases[0]
    reference = task.references["case_0"].astype(float)
    assert row.metrics["data_range"] == pytest.approx(reference.max() - reference.min(), abs=1e-12)


def test_the_table_gives_the_range(task: Task) -> None:
    """Further columns are ignored; a wider range makes the same error smaller."""
    task.submit(case_0=task.references["case_0"] + 0.1)
    narrow = task.ranges("patient_id,data_range,note\ncase_0,1,x\n").score().cases[0].metrics
    wide = task.ranges("patient_id,data_range,note\ncase_0,10,x\n").score().cases[0].metrics
    assert (narrow["data_range"], wide["data_range"]) == (1, 10)
    assert wide["psnr"] - narrow["psnr"] == pytest.approx(20, abs=1e-9)


def test_the_prediction_never_sets_the_range(task: Task) -> None:
    """An outlier in the output costs; it does not widen the range."""
    spoilt = task.references["case_0"].copy()
    spoilt[12, 12] = 1000
    score = task.submit(case_0=spoilt).score()
    assert score.cases[0].metrics["data_range"] < 2
    assert score.quality < 1 / 3 - 0.05


def test_constant_reference_without_a_range(task: Task) -> None:
    write_bytes(task.folder / "private/case_0/reference.npy", npy_bytes(np.zeros(SHAPE, np.float32)))
    with pytest.raises(InfrastructureError, match="constant"):
        task.score()


# --- remarks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "codes"),
    [
        pytest.param(np.full(SHAPE, 0.5, np.float32), [], id="nothing to remark"),
        pytest.param(np.full(SHAPE, 1.25, np.float32), [], id="a quarter above"),
        pytest.param(np.full(SHAPE, 1.26, np.float32), ["range"], id="more than a quarter above"),
        pytest.param(np.full(SHAPE, -0.26, np.float32), ["range"], id="below"),
        pytest.param(np.full(SHAPE, 0.5, np.float64), ["dtype"], id="double"),
        pytest.param(np.full(SHAPE, 255, np.float16), ["dtype", "range"], id="half, as a picture"),
    ],
)
def test_remarks_do_not_make_a_case_invalid(task: Task, output: np.ndarray, codes: list[str]) -> None:
    checked = inputs_of(task.card, task.manifest, task.submit(case_0=output).folder).checked
    case = checked.cases[0]
    assert (case.status, case.completed, [problem.code for problem in case.problems]) == ("valid", True, codes)


# --- diagnostics ----------------------------------------------------------------------------------------------


def test_pass_rate_is_over_all_cases(task: Task) -> None:
    """Threshold 0.90 - 0.02; one perfect, one flat, one missing: 1/3."""
    task.submit(case_0=task.references["case_0"], case_1=np.zeros(SHAPE, np.float32))
    metrics = task.score().metrics
    assert metrics["pass_threshold"] == 0.88
    assert metrics["pass_rate"] == pytest.approx(1 / 3)


def test_rating_and_medal(task: Task) -> None:
    """Perfect is A = 3 and wins gold; with one case missing F = 0 and nothing."""
    task.submit(**task.references)
    report = grade(inputs_of(task.card, task.manifest, task.folder), verify=True)
    assert (report.metrics["rating"], report.medal) == (3, "good")
    (task.folder / "submission/agents_outputs/case_1/enhanced.npy").unlink()
    report = grade(inputs_of(task.card, task.manifest, task.folder), verify=True)
    assert (report.metrics["rating"], report.medal) == (0, "fail")


def test_missing_bands_are_not_the_agents_fault(task: Task) -> None:
    (task.folder / "private" / BANDS).unlink()
    with pytest.raises(MissingDataError):
        task.score()


@pytest.mark.parametrize(
    ("baselines", "anchor", "a_ssim"),
    [
        pytest.param({"classical": (0.90, 30.0)}, "classical", 0.92, id="classical alone"),
        pytest.param({"classical": (0.90, 30.0), "neural": (0.91, 29.0)}, "neural", 0.93, id="neural is better"),
        pytest.param({"classical": (0.90, 30.0), "neural": (0.90, 29.0)}, "neural", 0.92, id="ties: neural"),
        pytest.param({"classical": (0.99, 30.0)}, "classical", 0.995, id="A would be 1.01: half way to 1"),
        pytest.param({"classical": (0.98, 30.0)}, "classical", 0.99, id="A would be 1: half way to 1"),
        pytest.param({"classical": (0.9, 30.0), "identity": (0.95, 40.0)}, "classical", 0.92, id="identity never"),
    ],
)
def test_anchor(baselines: dict[str, tuple[float, float]], anchor: str, a_ssim: float) -> None:
    """docs/specification.md, 10.2."""
    known = {name: BaselineQuality(mean_ssim=ssim, mean_psnr=psnr) for name, (ssim, psnr) in baselines.items()}
    bands = make_bands("task", known, classical="classical", source="computed")
    assert bands.anchor == anchor
    assert bands.bands["A"].ssim_min == pytest.approx(a_ssim)
    assert bands.bands["A"].psnr_min == baselines[anchor][1] + 1


def test_control(task: Task) -> None:
    """Each output against the next case's reference, in a circle."""
    shifted = {f"case_{number}": task.references[f"case_{(number + 1) % 3}"] for number in range(3)}
    score = task.submit(**shifted).score()
    assert score.metrics["control_ssim"] == pytest.approx(1, abs=1e-12)
    assert score.metrics["control_psnr"] == 99
    assert any("Shuffled control" in note for note in score.notes)
    honest = task.submit(**task.references).score()
    assert honest.metrics["control_ssim"] == pytest.approx(score.quality, abs=0.3)
    assert not any("Shuffled control" in note for note in honest.notes)


@pytest.mark.parametrize("shapes", [[SHAPE], [SHAPE, (24, 30)]], ids=["one case", "two shapes"])
def test_no_control(tmp_path: Path, shapes: list[tuple[int, int]]) -> None:
    task = Task(tmp_path)
    task.references = {f"case_{number}": image(number, shape) for number, shape in enumerate(shapes)}
    task.stage()
    score = task.submit(**task.references).score()
    assert score.quality == pytest.approx(1, abs=1e-12)
    assert score.metrics["control_ssim"] is None


# --- LPIPS ----------------------------------------------------------------------------------------------------


def lpips_folder(folder: Path) -> Path:
    """Weights that are all zero but have the right names and sizes: every distance is 0."""
    torch = pytest.importorskip("torch")
    widths, kernels, numbers = (3, 64, 192, 384, 256, 256), (11, 5, 3, 3, 3), (0, 3, 6, 8, 10)
    trunk = {}
    for i, number in enumerate(numbers):
        trunk[f"features.{number}.weight"] = torch.ones(widths[i + 1], widths[i], kernels[i], kernels[i])
        trunk[f"features.{number}.bias"] = torch.zeros(widths[i + 1])
    heads = {f"lin{i}.model.1.weight": torch.zeros(1, width, 1, 1) for i, width in enumerate(widths[1:])}
    folder.mkdir()
    torch.save(trunk, folder / TRUNK)
    torch.save(heads, folder / HEADS)
    return folder


def large(task: Task) -> Task:
    """The same task with images that LPIPS has room in."""
    task.references = {case: image(number, (64, 64)) for number, case in enumerate(task.references)}
    task.stage()
    return task.submit(**task.references)


def test_lpips_off_says_nothing(tmp_path: Path) -> None:
    score = large(Task(tmp_path, lpips="off")).score()
    assert score.metrics["mean_lpips"] is None
    assert not any("LPIPS" in note for note in score.notes)


def test_lpips_auto_without_weights_is_null_with_a_note(tmp_path: Path) -> None:
    task = large(Task(tmp_path, lpips="auto"))
    score = task.score()
    assert score.quality == pytest.approx(1, abs=1e-12)
    assert score.metrics["mean_lpips"] is None
    assert any("no weights are configured" in note for note in score.notes)


@pytest.mark.radiology
def test_lpips_auto_with_weights(tmp_path: Path) -> None:
    """Zero heads: 0 everywhere."""
    task = large(Task(tmp_path, lpips="auto"))
    score = task.score(lpips=lpips_folder(tmp_path / "weights"))
    assert [row.metrics["lpips"] for row in score.cases] == [0, 0, 0]
    assert (score.metrics["mean_lpips"], score.metrics["control_lpips"]) == (0, 0)
    assert score.quality == pytest.approx(1, abs=1e-12)


@pytest.mark.radiology
def test_lpips_of_small_images(tmp_path: Path) -> None:
    score = Task(tmp_path, lpips="auto").score(lpips=lpips_folder(tmp_path / "weights"))
    assert score.metrics["mean_lpips"] is None
    assert any("below 64 pixels" in note for note in score.notes)


@pytest.mark.radiology
def test_unusable_weights_are_the_machines_fault(tmp_path: Path) -> None:
    task = large(Task(tmp_path, lpips="auto"))
    folder = lpips_folder(tmp_path / "weights")
    (folder / TRUNK).write_bytes(b"broken")
    with pytest.raises(InfrastructureError, match="does not hold readable weights"):
        task.score(lpips=folder)


# --- settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"data_range": 0}, id="range 0"),
        pytest.param({"intensity_range": [1, 0]}, id="falling range"),
        pytest.param({"lpips": "maybe"}, id="unknown mode"),
        pytest.param({"baselines": {"neural": {"mean_ssim": 1, "mean_psnr": 1}}}, id="no classical baseline"),
        pytest.param({"window": 11}, id="unknown key"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        enhancement.settings.model_validate(settings)


# --- staging --------------------------------------------------------------------------------------------------


def source(folder: Path, name: str, pixels: np.ndarray, subject: str | None = None) -> SourceSlice:
    path = folder / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(name.encode())
    return SourceSlice(name, subject or name, path, lambda: pixels)


def staging_card(count: int | None = None, degradation: dict[str, Any] | None = None, **settings: Any) -> TaskCard:
    card = make_card(**settings)
    value = card.model_dump()
    value["staging"]["sampling"] |= {"count": count, "options": {}}
    if degradation:
        value["staging"]["degradation"] = degradation
    return TaskCard.model_validate(value)


def stage(folder: Path, card: TaskCard, slices: list[SourceSlice]) -> list[CaseEntry]:
    return stage_slices(card, slices, folder / "public", folder / "private")


def test_what_is_staged(tmp_path: Path) -> None:
    """Input of half the size, the reference as it was, its range, the bands, the record; shapes in the manifest."""
    pixels = image(1, (24, 32))
    (case,) = stage(tmp_path, staging_card(data_range=1.0), [source(tmp_path, "upstream", pixels)])
    assert case.geometry == {"input_shape": [12, 16], "output_shape": [24, 32]}
    assert np.load(tmp_path / "public" / case.id / "input.npy").shape == (12, 16)
    np.testing.assert_array_equal(np.load(tmp_path / "private" / case.id / "reference.npy"), pixels)
    rows = list(csv.DictReader((tmp_path / "private/ground_truth.csv").read_text().splitlines()))
    assert rows == [{"patient_id": case.id, "data_range": "1.0"}]
    split = json.loads((tmp_path / "private/split.json").read_text())
    assert split["cases"][case.id]["image_id"] == "upstream"
    assert split["degradation"]["kind"] == "downsample"
    assert {path.name for path in (tmp_path / "public").rglob("*") if path.is_file()} == {"input.npy"}


def test_measured_range_is_written(tmp_path: Path) -> None:
    pixels = (image(1) * 700 - 100).astype(np.float32)
    stage(tmp_path, staging_card(), [source(tmp_path, "a", pixels)])
    (row,) = csv.DictReader((tmp_path / "private/ground_truth.csv").read_text().splitlines())
    assert float(row["data_range"]) == float(pixels.max()) - float(pixels.min())


def test_bands_are_those_of_the_baselines(tmp_path: Path) -> None:
    """Repeating pixels and bicubic, each scored like an agent's output."""
    from PIL import Image

    slices = [source(tmp_path, str(number), image(number)) for number in range(3)]
    card = staging_card(data_range=1.0, lpips="off")
    cases = stage(tmp_path, card, slices)
    bands = read_record(tmp_path / "private" / BANDS, BaselineBands)
    manifest = make_manifest({case.id: SHAPE for case in cases})
    methods: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "identity": lambda array: array.repeat(2, 0).repeat(2, 1),
        "classical": lambda array: np.asarray(Image.fromarray(array).resize(SHAPE, Image.Resampling.BICUBIC)),
    }
    for name, method in methods.items():
        for case in cases:
            output = method(np.load(tmp_path / "public" / case.id / "input.npy"))
            write_bytes(tmp_path / "submission/agents_outputs" / case.id / "enhanced.npy", npy_bytes(output))
        metrics = enhancement.score(inputs_of(card, manifest, tmp_path)).metrics
        assert metrics["mean_ssim"] == pytest.approx(bands.baselines[name].mean_ssim, abs=1e-12)
        assert metrics["mean_psnr"] == pytest.approx(bands.baselines[name].mean_psnr, abs=1e-9)
    assert (bands.anchor, bands.source) == ("classical", "computed")


def test_published_baselines_win(tmp_path: Path) -> None:
    card = staging_card(baselines={"classical": {"mean_ssim": 0.6, "mean_psnr": 24.5}})
    stage(tmp_path, card, [source(tmp_path, "a", image(1))])
    bands = read_record(tmp_path / "private" / BANDS, BaselineBands)
    assert bands.source == "published"
    assert (bands.bands["B"].ssim_min, bands.bands["B"].psnr_min) == (0.58, 23.5)


def test_a_denoising_task(tmp_path: Path) -> None:
    """Input and output have one shape; the classical baseline beats the noisy input."""
    noise = {"kind": "gaussian_noise", "sigma": 0.1, "clip": [0, 1]}
    down, across = np.mgrid[0:48, 0:48] / 48
    pixels = (0.3 + 0.4 * down * across + 0.2 * (np.hypot(down - 0.5, across - 0.5) < 0.3)).astype(np.float32)
    (case,) = stage(tmp_path, staging_card(degradation=noise, data_range=1.0), [source(tmp_path, "a", pixels)])
    assert case.geometry == {"input_shape": [48, 48], "output_shape": [48, 48]}
    known = read_record(tmp_path / "private" / BANDS, BaselineBands).baselines
    assert known["classical"].mean_ssim > known["identity"].mean_ssim
    assert known["identity"].mean_psnr == pytest.approx(20, abs=0.5)  # sigma 0.1 of range 1


def test_noise_is_estimated() -> None:
    """Noise of sigma 0.1 on a slope and a straight edge, both of which the mask cancels; 0 without noise."""
    slope = np.tile(np.linspace(0, 3, 200, dtype=np.float32), (200, 1))
    slope[:, 90:] += 5
    noise = np.random.default_rng(1).normal(0, 0.1, slope.shape).astype(np.float32)
    assert noise_sigma(slope + noise) == pytest.approx(0.1, rel=0.03)
    assert noise_sigma(slope) == pytest.approx(0, abs=1e-6)


def test_one_case_per_subject(tmp_path: Path) -> None:
    slices = [source(tmp_path, f"{number}", image(number), subject=f"p{number % 2}") for number in range(6)]
    chosen = choose_slices(staging_card(), slices)
    assert list(chosen) == ["cxr_0001", "cxr_0002"]
    assert {item.subject for item in chosen.values()} == {"p0", "p1"}


def test_order_depends_on_seed_and_names_alone(tmp_path: Path) -> None:
    slices = [source(tmp_path, f"{number}", image(number)) for number in range(8)]
    card = staging_card(count=4)
    chosen = [item.id for item in choose_slices(card, slices).values()]
    assert [item.id for item in choose_slices(card, slices[::-1]).values()] == chosen
    other = card.model_dump()
    other["staging"]["sampling"]["seed"] = 43
    assert [item.id for item in choose_slices(TaskCard.model_validate(other), slices).values()] != chosen


def test_too_few_subjects(tmp_path: Path) -> None:
    """An error, unless all are asked for, however many."""
    slices = [source(tmp_path, "a", image(1)), source(tmp_path, "b", image(2), subject="a")]
    with pytest.raises(InfrastructureError, match="asks for 2 cases, one per subject, but the data holds 1"):
        choose_slices(staging_card(count=2), slices)
    assert len(choose_slices(staging_card(count=None), slices)) == 1


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        pytest.param(np.zeros(SHAPE, np.float32), "is constant", id="constant"),
        pytest.param(image(1, (10, 24)), "window of 11", id="a side below the window"),
        pytest.param(image(1).astype(np.float64), "float64", id="double"),
        pytest.param(image(1)[None], "3-D", id="3-D"),
        pytest.param(np.where(image(1) > 0.5, np.float32(math.nan), image(1)), "not finite", id="NaN"),
        pytest.param(image(1, (24, 30)), r"shape \(24, 30\), not the card's \(24, 24\)", id="another shape"),
    ],
)
def test_unusable_references_are_refused(tmp_path: Path, pixels: np.ndarray, message: str) -> None:
    """Before any agent runs."""
    with pytest.raises(InfrastructureError, match=message):
        stage(tmp_path, staging_card(output_shape=[24, 24]), [source(tmp_path, "a", pixels)])


def test_several_slices_of_a_subject(tmp_path: Path) -> None:
    """Two of each of two subjects, where there are three: four cases in all, and five are too many."""
    slices = [source(tmp_path, f"{who}{number}", image(number), who) for who in "ab" for number in range(3)]

    def asking(count: int | None) -> TaskCard:
        value = staging_card(count).model_dump()
        value["staging"]["sampling"]["options"] = {"per_subject": 2}
        return TaskCard.model_validate(value)

    stage(tmp_path, asking(4), slices)
    split = json.loads((tmp_path / "private/split.json").read_text())
    assert sorted(each["subject"] for each in split["cases"].values()) == ["a", "a", "b", "b"]
    with pytest.raises(InfrastructureError, match="asks for 5 cases, at most 2 per subject, but the data holds 2"):
        stage(tmp_path / "again", asking(5), slices)


def test_unknown_sampling_options(tmp_path: Path) -> None:
    value = staging_card().model_dump()
    value["staging"]["sampling"]["options"] = {"per_patient": 2}
    with pytest.raises(ConfigError, match="per_patient"):
        stage(tmp_path, TaskCard.model_validate(value), [source(tmp_path, "a", image(1))])


UPSTREAM = {"kind": "upstream", "description": "low dose"}


def test_the_data_sets_own_degraded_images(tmp_path: Path) -> None:
    """They are the inputs as they are; the bands are those of denoising."""
    clean, noisy = image(1), (image(1) + np.float32(0.1)).astype(np.float32)
    pair = replace(source(tmp_path, "a", clean), degraded=lambda: noisy)
    (case,) = stage(tmp_path, staging_card(degradation=UPSTREAM), [pair])
    np.testing.assert_array_equal(np.load(tmp_path / "public" / case.id / "input.npy"), noisy)
    np.testing.assert_array_equal(np.load(tmp_path / "private" / case.id / "reference.npy"), clean)
    bands = json.loads((tmp_path / "private/baseline_bands.json").read_text())
    assert bands["recipes"]["identity"] == "the input"


@pytest.mark.parametrize(
    ("degraded", "message"),
    [
        pytest.param(image(1)[:-2], "degraded image of shape", id="another shape"),
        pytest.param(image(1) * np.float32(np.nan), "not finite", id="not finite"),
        pytest.param(image(1), "equals its degraded image", id="the truth itself"),
    ],
)
def test_degraded_images_that_cannot_be_inputs(tmp_path: Path, degraded: np.ndarray, message: str) -> None:
    pair = replace(source(tmp_path, "a", image(1)), degraded=lambda: degraded)
    with pytest.raises(InfrastructureError, match=message):
        stage(tmp_path, staging_card(degradation=UPSTREAM), [pair])


def test_a_reader_without_degraded_images(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a reader that finds"):
        stage(tmp_path, staging_card(degradation=UPSTREAM), [source(tmp_path, "a", image(1))])


def test_files_that_were_passed_over_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once in the split record and once in the log, however many slices of the series are staged."""
    other = tmp_path / "other.dcm"
    other.write_bytes(b"slice")
    origin = SliceOrigin(other, ("s/1.dcm is no DICOM file; passed over",))
    slices = [replace(source(tmp_path, name, image(ord(name))), origin=lambda: origin) for name in "ab"]
    stage(tmp_path, staging_card(), slices)
    split = json.loads((tmp_path / "private/split.json").read_text())
    assert split["remarks"] == ["s/1.dcm is no DICOM file; passed over"]
    assert {each["source_sha256"] for each in split["cases"].values()} == {sha256_file(other)}
    assert [record.getMessage() for record in caplog.records] == split["remarks"]


def test_a_card_without_degradation(tmp_path: Path) -> None:
    card = staging_card()
    bare = card.model_copy(update={"staging": card.staging.model_copy(update={"degradation": None})})
    with pytest.raises(ConfigError, match=r"staging\.degradation"):
        stage(tmp_path, bare, [source(tmp_path, "a", image(1))])


# --- the demo's data ------------------------------------------------------------------------------------------


def test_the_demo_is_staged_from_the_shipped_card(root: Path, tmp_path: Path) -> None:
    """Two cases of two patients, 128×128 to 256×256."""
    from automedbench.steps.stage_task import stage_cases

    card = root / "config/tasks/enhancement/nih-cxr-sr-task.yaml"
    folders = tmp_path / "public", tmp_path / "private", tmp_path / "manifest.json"
    manifest = stage_cases(card, root / "demo/data/nih_cxr14", *folders, excerpt=True)
    assert manifest.case_ids == ["cxr_0001", "cxr_0002"]
    for case in manifest.cases:
        assert case.geometry == {"input_shape": [128, 128], "output_shape": [256, 256]}
        given = np.load(tmp_path / "public" / manifest.task / case.id / "input.npy")
        assert given.dtype == np.float32
        assert 0 <= given.min() < given.max() <= 1
