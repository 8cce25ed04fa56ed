"""The seven enhancement tasks, from upstream form to staged cases; the fixtures' docstrings list their defects."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from fixture_raw import StagedFixture

from automedbench.base.cards import load_card
from automedbench.steps.stage_task import stage_cases
from automedbench_rehearsal.making.scans import body, round_field

# Task → cases that its fixture gives, shapes of input and reference.
TASKS: dict[str, tuple[int, tuple[int, int], tuple[int, int]]] = {
    "ldct-denoising-task": (6, (512, 512), (512, 512)),
    "mri-sr-task": (5, (360, 256), (720, 512)),
    "lidc-idri-denoising-task": (5, (512, 512), (512, 512)),
    "deeplesion-denoising-task": (5, (512, 512), (512, 512)),
    "brats-t1c-sr-task": (4, (128, 128), (256, 256)),
    "ixi-t1-sr-task": (5, (128, 128), (256, 256)),
    "nih-cxr-sr-task": (5, (128, 128), (256, 256)),
}


class Staged(StagedFixture):
    """An enhancement task."""

    def case(self, upstream: str) -> str:
        """The case of this upstream image."""
        return next(case for case, about in self.split["cases"].items() if about["image_id"] == upstream)

    def given(self, case: str) -> np.ndarray:
        return np.asarray(np.load(self.public / case / "input.npy"))

    def reference(self, case: str) -> np.ndarray:
        return np.asarray(np.load(self.private / case / "reference.npy"))


def card_of(task: str, root: Path) -> Path:
    return root / f"config/tasks/enhancement/{task}.yaml"


@pytest.fixture(scope="module")
def staged(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Staged]:
    """Each task staged once."""
    return {task: Staged(card_of(task, root), tmp_path_factory.mktemp(task)) for task in TASKS}


@pytest.mark.parametrize("task", TASKS)
def test_cases_and_shapes(task: str, staged: dict[str, Staged]) -> None:
    count, given, held_out = TASKS[task]
    assert len(staged[task].manifest.cases) == count
    for case in staged[task].manifest.cases:
        assert case.geometry == {"input_shape": list(given), "output_shape": list(held_out)}
        assert staged[task].given(case.id).shape == given
        assert np.isfinite(staged[task].given(case.id)).all()
        assert staged[task].reference(case.id).shape == held_out


@pytest.mark.parametrize("task", TASKS)
def test_one_case_per_patient(task: str, staged: dict[str, Staged]) -> None:
    """But for SimNICT, whose 55 volumes give two slices each."""
    subjects = [about["subject"] for about in staged[task].split["cases"].values()]
    most = 2 if task == "ldct-denoising-task" else 1
    assert max(subjects.count(subject) for subject in subjects) == most


@pytest.mark.parametrize("task", TASKS)
def test_nothing_tells_where_a_case_comes_from(task: str, staged: dict[str, Staged], root: Path) -> None:
    """Neither names nor bytes of the public side hold an upstream id; only arrays are there."""
    public = staged[task].folder / "public"
    about = [value for case in staged[task].split["cases"].values() for value in (case["image_id"], case["subject"])]
    for path in public.rglob("*"):
        if path.is_file():
            assert path.name == "input.npy"
            assert not any(word.encode() in path.read_bytes()[:256] for word in about)
            assert not any(word in path.as_posix() for word in about)


# --- one by one -----------------------------------------------------------------------------------------------


def test_ldct_reads_hu_of_both_sides(staged: dict[str, Staged]) -> None:
    """Slice ⌊0.35 · 9⌋ = 3 of 64×56×9, in the middle of 512×512; the input differs by noise of 60 HU."""
    task = staged["ldct-denoising-task"]
    case = task.case("SimNICT-AMOS-Sample/train_nii_files/org/1#1")
    reference, given = task.reference(case), task.given(case)
    values = round_field(body((64, 56, 9), "train/1"), -2000)[:, :, 3]
    rows, columns = slice((512 - 56) // 2, (512 + 56) // 2), slice((512 - 64) // 2, (512 + 64) // 2)
    # Stored to the left and back (LPS): the first column is the patient's right, the first row the front.
    np.testing.assert_array_equal(reference[rows, columns], values.T)
    outside = np.ones(reference.shape, bool)
    outside[rows, columns] = False
    assert set(np.unique(reference[outside])) == set(np.unique(given[outside])) == {-1024}
    inside = reference > -1100
    inside[outside] = False
    assert np.std((given - reference)[inside]) == pytest.approx(60, rel=0.1)


def test_ldct_volume_with_slope_and_intercept(staged: dict[str, Staged]) -> None:
    """test/1 stores HU + 2048 without sign; slice ⌊0.65 · 8⌋ = 5."""
    task = staged["ldct-denoising-task"]
    reference = task.reference(task.case("SimNICT-AMOS-Sample/test_nii_files/org/1#2"))
    values = round_field(body((60, 60, 8), "test/1"), -2000)[:, :, 5]
    np.testing.assert_array_equal(reference[226:286, 226:286], values.T)


def test_ldct_slices_that_are_too_large_lose_their_borders(staged: dict[str, Staged]) -> None:
    """540 columns: 14 of them at each side are cut."""
    task = staged["ldct-denoising-task"]
    reference = task.reference(task.case("SimNICT-AMOS-Sample/train_nii_files/org/2#1"))
    values = round_field(body((540, 48, 6), "train/2"), -2000)[:, :, 2]
    np.testing.assert_array_equal(reference[232:280], values.T[:, 14:526])


@pytest.mark.parametrize(
    ("task", "bands"),
    [
        ("ldct-denoising-task", {"A": (0.9863, 42.798), "B": (0.9463, 40.798), "C": (0.9163, 38.798)}),
        ("mri-sr-task", {"A": (0.6332, 25.599), "B": (0.5932, 23.599), "C": (0.5632, 21.599)}),
    ],
)
def test_published_bands(task: str, bands: dict[str, tuple[float, float]], staged: dict[str, Staged]) -> None:
    """Made from the published baselines by the published rule, they are the published bands."""
    found = json.loads((staged[task].private / "baseline_bands.json").read_text())
    assert found["source"] == "published"
    assert {name: (band["ssim_min"], band["psnr_min"]) for name, band in found["bands"].items()} == bands


def test_lidc_defects(staged: dict[str, Staged]) -> None:
    """The damaged file and the second slice at one place are told; who is beyond patient 149 is not there."""
    task = staged["lidc-idri-denoising-task"]
    patients = {about["subject"] for about in task.split["cases"].values()}
    assert patients == {f"LIDC-IDRI-{number:04d}" for number in (1, 2, 3, 100, 149)}
    cut, twin = sorted(task.split["remarks"])
    assert "1-003.dcm is cut off" in cut and "1-090.dcm lies at the place of another" in twin
    assert not list(task.raw.rglob("*.xml"))


@pytest.mark.parametrize(("patient", "series"), [(2, 2), (3, 4), (100, 5), (149, 6)])
def test_lidc_reads_hu(patient: int, series: int, staged: dict[str, Staged]) -> None:
    """The sixth of eleven slices, brought to 512×512; 0.5 is 0 HU; the field of view's outside is 0 (-1000 HU or less).

    Compared in the middle of each of 40×40 pixels, where bicubic filtering changes flat parts little.
    """
    task = staged["lidc-idri-denoising-task"]
    hu = body((40, 40, 11), "lidc", series)[:, :, 5].T.astype(float)
    expected = np.clip((hu + 1000) / 2000, 0, 1)
    if patient == 2:
        expected = np.clip((round_field(hu[..., None], -1024)[..., 0] + 1000) / 2000, 0, 1)
    steps = ((np.arange(40) + 0.5) * 512 / 40).astype(int)
    found = task.reference(task.case(f"LIDC-IDRI-{patient:04d}"))[np.ix_(steps, steps)]
    assert np.median(np.abs(found - expected)) < 0.01


def test_deeplesion_reads_hu(staged: dict[str, Staged]) -> None:
    """Stored + (-32768), window -1000 to 1000; 3024 HU below 0 is outside of it. Patient 160 is not taken."""
    task = staged["deeplesion-denoising-task"]
    about = task.split["cases"]
    assert {each["subject"] for each in about.values()} == {"000001", "000002", "000080", "000099", "000149"}
    for case in about:
        reference = task.reference(case)
        assert reference[0, 0] == 0
        assert np.median(reference[reference > 0.4]) == pytest.approx(0.52, abs=0.01)  # soft tissue of 40 HU


def test_noise_is_as_strong_as_the_card_says(staged: dict[str, Staged]) -> None:
    """Where neither end cuts it off: a standard deviation of 0.05."""
    task = staged["deeplesion-denoising-task"]
    case = task.manifest.case_ids[0]
    reference, given = task.reference(case), task.given(case)
    middle = (reference > 0.4) & (reference < 0.6)
    assert np.std((given - reference)[middle]) == pytest.approx(0.05, rel=0.02)


def test_brats_time_points_and_ground(staged: dict[str, Staged]) -> None:
    """Patient 00005 once; 120×120 in the middle of 256×256, nothing but 0 around it."""
    task = staged["brats-t1c-sr-task"]
    assert sorted(about["subject"] for about in task.split["cases"].values()) == ["00000", "00002", "00005", "00006"]
    for case in task.manifest.case_ids:
        reference = task.reference(case)
        assert reference.max() == 1
        assert reference[:68].max() == reference[-68:].max() == reference[:, :68].max() == 0
    assert not list(task.raw.rglob("*t2w*"))


def test_ixi_is_upright(staged: dict[str, Staged]) -> None:
    """Stored (back, up, right): the sagittal plane is turned so that the ventricle, in front and above, is top left."""
    task = staged["ixi-t1-sr-task"]
    reference = task.reference(task.case("IXI002-Guys-0828-T1"))[96:160, 96:160]
    front, head = 32 - round(0.1 * 32), 32 - round(0.1 * 32)
    dark = reference[head - 2 : head + 2, front - 2 : front + 2].mean()
    mirrored = reference[::-1, ::-1][head - 2 : head + 2, front - 2 : front + 2].mean()
    assert dark < 0.3 < mirrored


def test_mri_volumes_of_one_patient(staged: dict[str, Staged]) -> None:
    """file1000017 and file1000026 have one patient_id."""
    task = staged["mri-sr-task"]
    images = {about["image_id"] for about in task.split["cases"].values()}
    assert len(images & {"file1000017", "file1000026"}) == 1
    for case in task.manifest.case_ids:
        assert (task.reference(case).min(), task.reference(case).max()) == pytest.approx((0, 1), abs=0.05)


def test_cxr_colour_is_grey(staged: dict[str, Staged]) -> None:
    """The file that is stored as RGBA."""
    task = staged["nih-cxr-sr-task"]
    assert 0 < task.reference(task.case("00000011_002")).mean() < 1


# --- real data ------------------------------------------------------------------------------------------------


def test_two_real_chest_x_rays(root: Path, shared: Path, tmp_path: Path) -> None:
    """SOURCE.md of ../shared/data/nih_cxr14: two images of two patients, 512×512, 8-bit grey. By the card as it is,
    but for the folder that they lie in. Repeating pixels is worse than bicubic on both."""
    value = load_card(card_of("nih-cxr-sr-task", root)).model_dump(mode="json")
    value["staging"]["options"]["images"] = ["*.png"]
    path = tmp_path / "nih-cxr-sr-task.yaml"
    path.write_text(yaml.safe_dump(value))
    folders = (shared / "data/nih_cxr14", tmp_path / "public", tmp_path / "private")
    manifest = stage_cases(path, *folders, tmp_path / "manifest.json", excerpt=True)
    split = json.loads((tmp_path / "private/nih-cxr-sr-task/split.json").read_text())
    assert {about["image_id"] for about in split["cases"].values()} == {"00000001_000", "00027426_000"}
    assert [case.geometry["output_shape"] for case in manifest.cases] == [[256, 256], [256, 256]]
    bands = json.loads((tmp_path / "private/nih-cxr-sr-task/baseline_bands.json").read_text())
    identity, classical = bands["baselines"]["identity"], bands["baselines"]["classical"]
    assert 0.9 < identity["mean_ssim"] < classical["mean_ssim"] < 1
    assert identity["mean_psnr"] < classical["mean_psnr"]
