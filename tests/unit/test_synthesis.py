"""The synthesis track: staging, the format check, and the specification's test volume through the whole track."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK
from factories import make_brief_plan
from numpy.typing import NDArray
from toys import synthesis as toy

from automedbench.agent.plan import compose_brief
from automedbench.base.cards import InputFile, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.records import CaseSubmission, DetailReport, Manifest, RunId, SubmissionRecord
from automedbench.datasets.forms.degradation import degrade_z
from automedbench.scoring.run import s4
from automedbench.steps.inside.check_workspace import check_workspace
from automedbench.steps.inside.grade_submission import grade
from automedbench.tracks import ScoringInputs, get_track, track_settings
from automedbench.tracks.synthesis import TRACK as synthesis
from automedbench.tracks.synthesis.geometry import probe_places
from automedbench.tracks.synthesis.measures import compare

Array = NDArray[Any]
RUN = RunId(agent="toy", task=toy.CARD.id, tier="lite", repeat=1)
SMALL = {"min_slices": 12, "min_in_plane": 20, "lowest_at_most": -500, "highest_at_least": 200}


def make_card(**changes: Any) -> TaskCard:
    """The toy's card with another ``staging`` or ``metric.settings``."""
    staging = toy.CARD.staging.model_copy(update=changes.pop("staging", {}))
    metric = toy.CARD.metric.model_copy(update={"settings": toy.CARD.metric.settings | changes.pop("settings", {})})
    return toy.CARD.model_copy(update={"staging": staging, "metric": metric, **changes})


def sampling(count: int | None = None, **options: Any) -> Any:
    return toy.CARD.staging.sampling.model_copy(update={"count": count, "options": options})


CTSR = make_card(staging={"sampling": sampling(**SMALL)})
"""Accepts the specification's test volume."""
MRCT = make_card(
    staging={
        "reader": "paired_volumes",
        "options": {"input": "{id}/mr.mha", "target": "{id}/ct.mha", "mask": "{id}/mask.mha"},
        "sampling": sampling(**SMALL),
        "degradation": None,
    },
    inputs=[
        InputFile(file="mr.nii.gz", format="NIfTI", description="MR"),
        InputFile(file="mask.nii.gz", format="NIfTI", description="body"),
    ],
)


# --- the test volume of docs/specification.md, 10.7 ----------------------------------------------------------


def volume_g() -> Array:
    x, y, z = np.meshgrid(*(np.arange(size) for size in (24, 20, 12)), indexing="ij")
    inside = ((x - 12) / 9) ** 2 + ((y - 10) / 7.5) ** 2 < 1
    return np.asarray(-1000 + 1100 * inside + 150 * np.sin(0.7 * x) * np.cos(0.5 * y + 0.4 * z), np.float32)


def mask_m() -> Array:
    x, y, z = np.meshgrid(*(np.arange(size) for size in (24, 20, 12)), indexing="ij")
    ellipse = (((x - 12) / 10) ** 2 + ((y - 10) / 8.5) ** 2 < 1) & (z >= 2) & (z <= 9)
    return ellipse | ((x <= 2) & (y <= 4) & (z == 10))


G = volume_g()


def with_spot(value: float) -> Array:
    spotted = G.copy()
    spotted[12, 10, 6] = value
    return spotted


PREDICTIONS: dict[str, Array] = {
    "g": G,
    "degraded": degrade_z(G, 4),
    "plus 100": G + 100,
    "zero": G * 0,
    "air": G * 0 - 1000,
    "shifted": np.roll(G, 1, 0),
    "spot": with_spot(5000),
}
# SSIM, MAE, RMSE, PSNR from the specification (scikit-image 0.26 and a direct evaluation of the formula). A negative
# SSIM counts as 0. PSNR with the mask is 20·log10(4095 / RMSE).
WHOLE = {
    "g": (1, 0, 0, 99),
    "degraded": (0.993063, 16.1063, 23.0635, 44.9866),
    "plus 100": (0.746540, 100, 100, 32.2451),
    "zero": (0.038909, 607.7182, 756.1708, 14.6727),
    "air": (0, 515.5929, 733.1843, 14.9408),
    "shifted": (0.668835, 108.7304, 280.0857, 23.2993),
    "spot": (0.986324, 0.8409, 63.8224, 36.1456),
}
MASKED = {
    "g": (1, 0, 0, 99),
    "degraded": (0.996013, 13.4862, 17.6400, 47.3151),
    "plus 100": (0.746601, 100, 100, 32.2451),
    "zero": (0.039223, 296.7201, 474.5134, 18.7201),
    "air": (0, 877.5169, 977.9810, 12.4385),
    "shifted": (0.667917, 160.4683, 371.8087, 20.8387),
    "spot": (0.979486, 2.2519, 104.4394, 31.8678),
}


def test_the_volume_is_the_specifications() -> None:
    assert (G[0, 0, 0], round(float(G[12, 10, 6]), 4)) == (-1000, 156.2173)
    assert (round(float(G.min()), 4), round(float(G.max()), 4)) == (-1148.5455, 248.5701)
    assert mask_m().sum(axis=(0, 1)).tolist() == [0, 0, *[267] * 8, 15, 0]


# --- a staged task ----------------------------------------------------------------------------------------------


class Task:
    """Staged cases and one submission that tests fill."""

    def __init__(self, folder: Path, card: TaskCard) -> None:
        self.folder, self.card = folder, card
        self.public, self.private = folder / "public", folder / "private"
        entries = synthesis.stage(card, folder / "raw", self.public, self.private)
        self.manifest = Manifest(
            task=card.id, task_version=1, track=card.track, dataset="toy", sampling="all", cases=entries
        )

    @property
    def cases(self) -> list[str]:
        return self.manifest.case_ids

    def input(self, case: str) -> Any:
        return nibabel.load(self.public / case / self.card.inputs[0].file)

    def hand_in(self, case: str, content: Array | bytes) -> None:
        """Values on the grid of the case, or bytes."""
        data = content
        if not isinstance(content, bytes):
            data = gzip.compress(nibabel.Nifti1Image(content, self.input(case).affine).to_bytes(), 1)
        place = self.folder / "workspace/agents_outputs" / case / "sct.nii.gz"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes(data))

    def check(self) -> SubmissionRecord:
        (self.folder / "workspace").mkdir(exist_ok=True)
        return check_workspace(self.card, self.manifest, RUN, self.folder / "workspace", self.folder)

    def verdicts(self) -> dict[str, CaseSubmission]:
        return {each.case: each for each in self.check().cases}

    def grade(self) -> DetailReport:
        """Scores, found by scikit-image as well."""
        inputs = ScoringInputs(
            card=self.card,
            manifest=self.manifest,
            submission=self.folder / "submission",
            private=self.private,
            checked=self.check(),
        )
        return grade(inputs, verify=True)


def save_ct(raw: Path, subject: str, values: Array, affine: Any = None) -> None:
    (raw / subject).mkdir(parents=True)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4) if affine is None else affine), raw / subject / "ct.nii.gz")


def save_pair(raw: Path, subject: str, volumes: Mapping[str, Array]) -> None:
    """MetaImage files (x, y, z), LPS, so that x and y are reversed against RAS."""
    (raw / subject).mkdir(parents=True)
    for name, values in volumes.items():
        turned = np.ascontiguousarray(values[::-1, ::-1].transpose(2, 1, 0))
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(turned), str(raw / subject / f"{name}.mha"))


def pair(**changes: Array) -> dict[str, Array]:
    """An MR, the CT g and the mask m."""
    magnetic = np.rint(G * 0.1 + 500).astype(np.int16)
    return {"mr": magnetic, "ct": G, "mask": mask_m().astype(np.uint8), **changes}


@pytest.fixture
def ctsr(tmp_path: Path) -> Task:
    """Seven times the specification's volume."""
    for number in range(len(PREDICTIONS)):
        save_ct(tmp_path / "raw", f"p{number}", G)
    return Task(tmp_path, CTSR)


@pytest.fixture
def mrct(tmp_path: Path) -> Task:
    """The same with a mask, as MR to CT."""
    for number in range(len(PREDICTIONS)):
        save_pair(tmp_path / "raw", f"p{number}", pair())
    return Task(tmp_path, MRCT)


# --- settings ---------------------------------------------------------------------------------------------------


def test_interface() -> None:
    assert get_track("synthesis") is synthesis
    assert track_settings(CTSR).data_range == 4095


@pytest.mark.parametrize("lost", ["hu_window", "ssim_window", "slice_axis", "mask_min_voxels"])
def test_what_decides_the_score_must_be_given(lost: str) -> None:
    settings = {name: value for name, value in toy.CARD.metric.settings.items() if name != lost}
    card = toy.CARD.model_copy(update={"metric": toy.CARD.metric.model_copy(update={"settings": settings})})
    with pytest.raises(ConfigError, match=lost):
        track_settings(card)


@pytest.mark.parametrize(
    "settings",
    [
        {"hu_window": [3071, -1024]},
        {"hu_window": [0, 0]},
        {"ssim_window": 8},
        {"ssim_window": 1},
        {"slice_axis": 0},
        {"mask_min_voxels": 0},
        {"hu_windw": [0, 1]},
    ],
    ids=lambda settings: "".join(settings),
)
def test_settings_without_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        track_settings(make_card(settings=settings))


# --- staging ----------------------------------------------------------------------------------------------------


def test_staged_files(ctsr: Task) -> None:
    """The input is the degraded truth on its grid, float32, in millimetres, both codes 1, without texts."""
    case = ctsr.cases[0]
    given, truth = ctsr.input(case), nibabel.load(ctsr.private / case / "truth.nii.gz")
    np.testing.assert_array_equal(given.get_fdata(), degrade_z(G, 4))
    np.testing.assert_array_equal(truth.get_fdata(), G)
    for image in (given, truth):
        assert image.get_data_dtype() == np.float32
        assert (int(image.header["qform_code"]), int(image.header["sform_code"])) == (1, 1)
        np.testing.assert_allclose(image.header.get_qform(), image.header.get_sform(), atol=1e-5)
        assert not image.header["descrip"].item().strip(b"\0")
    assert ctsr.manifest.cases[0].geometry["shape"] == [24, 20, 12]


def test_baseline(ctsr: Task) -> None:
    """What the untouched input scores, from the specification."""
    found = json.loads((ctsr.private / ctsr.cases[0] / "baseline.json").read_text())
    assert (round(found["ssim"], 6), round(found["mae"], 4)) == (0.993063, 16.1063)


def test_orientation(tmp_path: Path) -> None:
    """Volumes stored otherwise are turned first: z is what is reduced, wherever it was in the file."""
    stored, affine = G.transpose(2, 0, 1)[::-1], np.zeros((4, 4))
    affine[2, 0], affine[0, 1], affine[1, 2], affine[3, 3], affine[2, 3] = -3, 1, 1, 1, 90
    save_ct(tmp_path / "raw", "turned", stored, affine)
    task = Task(tmp_path, CTSR)
    np.testing.assert_array_equal(task.input(task.cases[0]).get_fdata(), degrade_z(G, 4))
    assert task.manifest.cases[0].geometry["spacing"] == pytest.approx([1, 1, 3])
    assert task.manifest.cases[0].geometry["affine"][2] == pytest.approx([0, 0, 3, 90 - 11 * 3])


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(G[:, :, :11], id="too few slices"),
        pytest.param(G[:19], id="too narrow"),
        pytest.param(with_spot(np.nan), id="NaN"),
        pytest.param(with_spot(np.inf), id="infinity"),
        pytest.param(np.maximum(G, -400), id="no air"),
        pytest.param(np.minimum(G, 150), id="no bone"),
    ],
)
def test_unfit_volumes_are_passed_over(tmp_path: Path, values: Array) -> None:
    save_ct(tmp_path / "raw", "bad", values)
    with pytest.raises(InfrastructureError, match="bad"):
        Task(tmp_path, CTSR)
    save_ct(tmp_path / "raw", "good", G)
    task = Task(tmp_path, CTSR)
    assert len(task.cases) == 1
    split = json.loads((task.private / "split.json").read_text())
    assert {case["source"] for case in split["cases"].values()} == {"good"}


@pytest.mark.parametrize(("count", "staged"), [(None, 2), (3, None)])
def test_fewer_volumes_than_asked_for(tmp_path: Path, count: int | None, staged: int | None) -> None:
    """All of them without a count; with one, the data is incomplete."""
    for name in ("a", "b"):
        save_ct(tmp_path / "raw", name, G)
    card = make_card(staging={"sampling": sampling(count, **SMALL)})
    if staged is None:
        with pytest.raises(InfrastructureError, match="3 cases, but only 2"):
            Task(tmp_path, card)
    else:
        assert len(Task(tmp_path, card).cases) == staged


def test_choice_depends_on_seed_and_names_only(tmp_path: Path) -> None:
    """The same two of five, whether or not unfit ones lie among them."""
    for name in "abcde":
        save_ct(tmp_path / "raw", name, G)
    card = make_card(staging={"sampling": sampling(2, **SMALL)})
    first = {case["source"] for case in split_of(Task(tmp_path, card))}
    save_ct(tmp_path / "raw", "f", G[:, :, :5])
    assert {case["source"] for case in split_of(Task(tmp_path, card))} == first
    assert len(first) == 2


def split_of(task: Task) -> list[Any]:
    return list(json.loads((task.private / "split.json").read_text())["cases"].values())


def test_staged_pairs(mrct: Task) -> None:
    """LPS becomes RAS without a value moving in space; input and mask are public, the mask is private as well."""
    case = mrct.cases[0]
    load: Callable[[Path], Array] = lambda path: nibabel.load(path).get_fdata()  # noqa: E731
    np.testing.assert_array_equal(load(mrct.public / case / "mr.nii.gz"), pair()["mr"])
    np.testing.assert_array_equal(load(mrct.public / case / "mask.nii.gz"), mask_m())
    np.testing.assert_array_equal(load(mrct.private / case / "truth.nii.gz"), G)
    assert set(mrct.manifest.cases[0].private) == {"truth.nii.gz", "region.nii.gz"}
    np.testing.assert_allclose(np.diag(mrct.input(case).affine), 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"mask": np.zeros(G.shape, np.uint8)}, "no slice", id="empty mask"),
        pytest.param({"mask": (mask_m() & (np.arange(12) == 10)).astype(np.uint8)}, "no slice", id="15 voxels"),
        pytest.param({"mask": mask_m()[:, :, :-1].astype(np.uint8)}, "grid", id="mask on another grid"),
        pytest.param({"mr": with_spot(np.nan)}, "not finite", id="MR with NaN"),
    ],
)
def test_pairs_that_do_not_fit(tmp_path: Path, changes: dict[str, Array], message: str) -> None:
    save_pair(tmp_path / "raw", "p", pair(**changes))
    with pytest.raises(InfrastructureError, match=message):
        Task(tmp_path, MRCT)


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(MRCT.model_copy(update={"inputs": MRCT.inputs[:1]}), id="pairs without a place for the mask"),
        pytest.param(make_card(staging={"sampling": sampling(**SMALL), "degradation": None}), id="nothing is lost"),
        pytest.param(make_card(staging={"degradation": {"kind": "z_cubic"}}), id="unknown degradation"),
        pytest.param(make_card(staging={"sampling": sampling(min_slice=3)}), id="misspelt option"),
    ],
)
def test_cards_without_sense(tmp_path: Path, card: TaskCard) -> None:
    if card.staging.reader == "paired_volumes":
        save_pair(tmp_path / "raw", "p", pair())
    else:
        save_ct(tmp_path / "raw", "p", G)
    with pytest.raises(ConfigError):
        Task(tmp_path, card)


# --- format check -----------------------------------------------------------------------------------------------


def test_probes() -> None:
    """Spread over the volume, each once; a small volume is covered."""
    places = probe_places(10_000_000)
    assert len(places) == 2048
    assert (np.diff(places) > 0).all()
    assert np.histogram(places, 32, (0, 10_000_000))[0].min() > 50
    assert set(probe_places(5)) == set(range(5))


@pytest.mark.parametrize(
    ("difference", "codes"),
    [
        pytest.param(0, ["copy_of_input"], id="copy"),
        pytest.param(0.4, ["copy_of_input"], id="rounded"),
        pytest.param(0.6, [], id="changed"),
    ],
)
def test_copies_of_the_input(ctsr: Task, difference: float, codes: list[str]) -> None:
    """Valid, scored, and remarked on."""
    case = ctsr.cases[0]
    ctsr.hand_in(case, degrade_z(G, 4) + np.float32(difference))
    verdict = ctsr.verdicts()[case]
    assert (verdict.status, verdict.completed) == ("valid", True)
    assert [problem.code for problem in verdict.problems] == codes


def test_a_copy_of_the_mr_is_no_ct(mrct: Task) -> None:
    """Invalid, because its values are no HU; still scored."""
    case = mrct.cases[0]
    mrct.hand_in(case, pair()["mr"].astype(np.float32))
    verdict = mrct.verdicts()[case]
    assert (verdict.status, verdict.completed) == ("malformed", True)
    assert [problem.code for problem in verdict.problems] == ["copy_of_input"]


def test_several_problems_are_all_told(ctsr: Task) -> None:
    case = ctsr.cases[0]
    image = nibabel.Nifti1Image(np.full(G.shape, 9000, np.int16), np.eye(4) * 2)
    ctsr.hand_in(case, gzip.compress(image.to_bytes()))
    verdict = ctsr.verdicts()[case]
    assert [problem.code for problem in verdict.problems] == ["affine_mismatch", "constant_volume", "hu_range"]
    assert all(problem.message.startswith(f"{case}/sct.nii.gz has") for problem in verdict.problems)


@pytest.mark.parametrize(("name", "change", "code"), toy.UNSCORABLE, ids=[row[0] for row in toy.UNSCORABLE])
def test_whole_files_without_a_score(tmp_path: Path, name: str, change: Any, code: str) -> None:
    """Completed, invalid, SSIM 0."""
    save_ct(tmp_path / "raw", "p", toy.body(1))
    task = Task(tmp_path, toy.CARD)
    (case,) = task.cases
    task.hand_in(case, change(task.input(case)))
    verdict = task.verdicts()[case]
    assert (verdict.status, verdict.completed) == ("malformed", True)
    assert [problem.code for problem in verdict.problems] == [code]
    report = task.grade()
    assert (report.task_score, report.completion_rate) == (0, 1)
    assert report.cases[0].metrics["mae"] is None


def test_much_larger_volumes_are_not_read(ctsr: Task) -> None:
    """More than twice the voxels of the case: the shape is enough."""
    case = ctsr.cases[0]
    ctsr.hand_in(case, np.zeros((24, 20, 25), np.int16))
    verdict = ctsr.verdicts()[case]
    assert (verdict.status, verdict.completed, verdict.problems[0].code) == ("malformed", False, "wrong_shape")


# --- scores -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "expected"), [("ctsr", WHOLE), ("mrct", MASKED)])
def test_the_specifications_table(kind: str, expected: dict[str, Any], request: pytest.FixtureRequest) -> None:
    """Every prediction of the table is one case; scikit-image is asked as well."""
    task: Task = request.getfixturevalue(kind)
    for case, values in zip(task.cases, PREDICTIONS.values(), strict=True):
        task.hand_in(case, values)
    report = task.grade()
    for case, row in zip(report.cases, expected.values(), strict=True):
        found = [case.metrics[name] for name in ("ssim", "mae", "rmse", "psnr")]
        assert found == pytest.approx(row, abs=6e-5)
        assert case.metrics["ssim"] == pytest.approx(row[0], abs=6e-7)
    assert report.task_score == pytest.approx(sum(row[0] for row in expected.values()) / 7, abs=1e-6)
    assert report.metrics["n_psnr_capped"] == 1
    slices = [len([value for value in case.detail["ssim_by_slice"] if value is not None]) for case in report.cases]
    assert set(slices) == {12 if kind == "ctsr" else 8}


def test_worked_aggregation(ctsr: Task) -> None:
    """Section D.5 with SSIM 1 and 0.993063: two scored, one with NaN, the rest missing; a mean over all cases."""
    first, second, third, *rest = ctsr.cases
    ctsr.hand_in(first, G)
    ctsr.hand_in(second, PREDICTIONS["degraded"])
    ctsr.hand_in(third, with_spot(np.nan))
    report = ctsr.grade()
    assert report.task_score == report.quality == pytest.approx(1.993063 / 7, abs=1e-6)
    assert report.completion_rate == pytest.approx(3 / 7)
    assert s4(ctsr.check()) == pytest.approx(0.5 * 3 / 7)
    assert [case.metrics["ssim"] for case in report.cases[2:]] == [0] * (1 + len(rest))
    metrics = report.metrics
    assert (metrics["n_cases"], metrics["n_predicted"], metrics["n_scored"], metrics["n_copies"]) == (7, 3, 2, 1)
    assert metrics["mean_ssim_scored"] == pytest.approx(1.993063 / 2, abs=1e-6)
    assert metrics["mean_ssim_all"] == report.task_score
    assert metrics["mean_ssim_input"] == pytest.approx(0.993063, abs=1e-6)
    # Gains: all of what the input lacks, and nothing.
    assert [case.metrics["ssim_gain"] for case in report.cases[:2]] == [pytest.approx(1), pytest.approx(0, abs=1e-9)]
    assert report.cases[2].metrics["ssim_gain"] is None
    assert report.medal == "fail"
    assert any("0.9931" in note for note in report.notes)
    assert any("1 of 7 volumes are copies" in note for note in report.notes)


@pytest.mark.parametrize(("n_right", "medal"), [(7, "good"), (6, "fail")], ids=["all perfect", "one is missing: 0.857"])
def test_medal_counts_all_cases(ctsr: Task, n_right: int, medal: str) -> None:
    for case in ctsr.cases[:n_right]:
        ctsr.hand_in(case, G)
    assert ctsr.grade().medal == medal


def test_an_affine_that_is_off_by_rounding_is_the_case_s(ctsr: Task) -> None:
    case = ctsr.cases[0]
    affine = ctsr.input(case).affine.copy()
    affine[0, 3] += 5e-4  # of 1 mm; the tolerance is a thousandth of a voxel, as for masks
    ctsr.hand_in(case, gzip.compress(nibabel.Nifti1Image(G, affine).to_bytes()))
    assert ctsr.grade().cases[0].status == "valid"


def test_another_affine_is_scored_voxel_by_voxel(ctsr: Task) -> None:
    case = ctsr.cases[0]
    ctsr.hand_in(case, gzip.compress(nibabel.Nifti1Image(G, np.diag([-1, 1, 1, 1])).to_bytes()))
    report = ctsr.grade()
    assert (report.cases[0].status, report.cases[0].metrics["ssim"]) == ("malformed", 1)
    assert any("affine" in note for note in report.notes)


@pytest.mark.parametrize(("size", "status"), [(16, "valid"), (0, "malformed"), (-16, "malformed"), (5, "malformed")])
def test_header_extensions(ctsr: Task, size: int, status: str) -> None:
    """Sizes that nibabel stumbles over cost the case before the twin meets them (``grade`` compares with it)."""
    case = ctsr.cases[0]
    image: Any = nibabel.Nifti1Image(G, ctsr.input(case).affine)
    plain = bytearray(image.to_bytes())
    struct.pack_into("<f", plain, 108, 368.0)
    extended = bytes(plain[:348]) + struct.pack("<4B2i8x", 1, 0, 0, 0, size, 6) + bytes(plain[352:])
    ctsr.hand_in(case, gzip.compress(extended))
    assert ctsr.verdicts()[case].status == status
    ctsr.grade()


@pytest.mark.parametrize(("least", "counts"), [(15, True), (16, False)])
def test_a_slice_with_just_enough_mask_counts(least: int, counts: bool) -> None:
    """Eight slices have 267 voxels in the mask and one has 15; the last is the only one that is not equal."""
    settings = track_settings(MRCT).model_copy(update={"mask_min_voxels": least})
    wrong = G.copy()
    wrong[:, :, 10] += 200
    found = compare(((wrong[:, :, z], G[:, :, z], mask_m()[:, :, z]) for z in range(12)), settings)
    assert (found.ssim < 0.999) == counts


def test_masked_ssim(mrct: Task) -> None:
    """Noise outside the mask costs the plane's SSIM, but not the one of the mask."""
    case = mrct.cases[0]
    far = ~mask_m()
    for axis, shift in ((0, 3), (0, -3), (1, 3), (1, -3)):
        far &= ~np.roll(mask_m(), shift, axis)
    noise = np.random.default_rng(0).normal(0, 500, G.shape).astype(np.float32)
    spoiled = np.where(far & (np.arange(24)[:, None, None] % 23 == 0), G + noise, G)
    mrct.hand_in(case, spoiled)
    metrics = mrct.grade().cases[0].metrics
    ssim, masked = metrics["ssim"], metrics["ssim_masked"]
    assert ssim is not None and masked is not None
    assert ssim < 1 - 1e-6
    assert masked > ssim
    assert metrics["mae"] == 0


def test_values_that_squares_cannot_hold(ctsr: Task) -> None:
    """float32's largest number is finite: clipped for SSIM, and its errors are numbers."""
    case = ctsr.cases[0]
    ctsr.hand_in(case, with_spot(3e38))
    metrics = ctsr.grade().cases[0].metrics
    assert metrics["ssim"] == pytest.approx(0.9863, abs=0.01)
    assert metrics["mae"] == pytest.approx(3e38 / G.size, rel=1e-3)


# --- real data, and what the agent is told ----------------------------------------------------------------------


def test_real_volume(tmp_path: Path, shared: Path) -> None:
    """The specification's figures for a real CT of 3 mm: the degraded copy and four predictions."""
    source = nibabel.load(shared / "data/totalsegmentator_example/example_ct.nii.gz")
    truth = source.get_fdata(dtype=np.float32)
    predictions = {
        "degraded": (degrade_z(truth, 4), 0.9404, 23.01),
        "zero": (truth * 0, 0.2467, 396.46),
        "air": (truth * 0 - 1000, 0.2046, 641.01),
        "shifted": (np.roll(truth, 1, 0), 0.8498, None),
        "plus 50": (truth + 50, 0.7536, 50),
    }
    for name in predictions:
        save_ct(tmp_path / "raw", name, np.asarray(source.dataobj), source.affine)
    task = Task(tmp_path, toy.CARD.model_copy(update={"outputs": [output_of(200_000_000)]}))
    for case, (values, _, _) in zip(task.cases, predictions.values(), strict=True):
        task.hand_in(case, values)
    report = task.grade()
    for case, (_, ssim, mae) in zip(report.cases, predictions.values(), strict=True):
        assert case.metrics["ssim"] == pytest.approx(ssim, abs=6e-5)
        assert mae is None or case.metrics["mae"] == pytest.approx(mae, abs=6e-3)
    assert report.cases[0].metrics["rmse"] == pytest.approx(58.72, abs=6e-3)
    assert report.cases[0].metrics["psnr"] == pytest.approx(36.87, abs=6e-3)


def output_of(max_bytes: int) -> Any:
    return toy.CARD.outputs[0].model_copy(update={"max_bytes": max_bytes})


@pytest.mark.parametrize(
    ("card", "told", "not_told"),
    [
        pytest.param(CTSR, ["do not add slices", "1/4 of its slices"], ["mask"], id="super-resolution"),
        pytest.param(MRCT, ["outlines the body", "Write -1024 there", "is invalid"], ["slices along z"], id="MR to CT"),
    ],
)
def test_brief(card: TaskCard, told: list[str], not_told: list[str]) -> None:
    text = compose_brief(make_brief_plan(card, ["c_0001"])).system
    fragment = text[text.index("# The output contract") : text.index("# The environment")]
    for words in [*told, "4095", "7 × 7", "-1024 to 3071", "0.98", "/workspace/agents_outputs/c_0001/sct.nii.gz"]:
        assert words in fragment
    # Words of other tracks have no place here.
    for words in [*not_told, "Dice", "lesion", "label", "accuracy", "{{", "None"]:
        assert words not in fragment
