"""The segmentation tasks on their fixtures: what is fetched, staged and chosen, and what becomes of known defects."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from fixture_raw import StagedFixture

from automedbench.base.errors import MissingDataError

NIBABEL: Any = nibabel
CARDS = sorted((Path(__file__).resolve().parents[2] / "config/tasks/segmentation").glob("*.yaml"))
# Subjects in the order of their cases, as the fixtures' modules describe them.
EXPECTED = {
    "aeropath-seg-task": ["1", "2", "10", "27"],
    "colon-seg-task": ["colon_001", "colon_005", "colon_008"],
    "feta-seg-task": ["sub-001", "sub-002", "sub-041", "sub-080"],
    "heart-seg-task": ["la_003", "la_004", "la_007", "la_014"],
    "hepaticvessel-seg-task": ["hepaticvessel_001", "hepaticvessel_002", "hepaticvessel_011"],
    "kidney-seg-task": [f"case_{number:05d}" for number in (0, 1, 3, 4, 6, 8)],
    "liver-seg-task": ["liver_0", "liver_10", "liver_2"],
    "pancreas-oar-seg-task": [f"PanTS_{number:08d}" for number in (1, 3, 4)],
    "pancreas-seg-task": [f"PanTS_{number:08d}" for number in (1, 3, 4)],
    "panther-t1-seg-task": {"10000_0001", "10003_0001", "10004_0001", "10011_0001"},
    "panther-t2-seg-task": {"10303", "10311", "10320"},
    "prostate-seg-task": ["prostate_00", "prostate_01", "prostate_04"],
    "spleen-seg-task": ["spleen_10", "spleen_2", "spleen_3"],
    "tsg-multiorgan-seg-task": {"s0011", "s0058", "s0223"},
}


class Staged(StagedFixture):
    """A segmentation task."""

    @property
    def subjects(self) -> list[str]:
        return [case["subject"] for case in self.split["cases"].values()]

    def case_of(self, subject: str) -> str:
        cases: dict[str, Any] = self.split["cases"]
        return next(case for case, origin in cases.items() if origin["subject"] == subject)

    def voxels(self) -> dict[tuple[str, str], int]:
        with open(self.private / "ground_truth.csv", encoding="utf-8") as stream:
            return {(row["patient_id"], row["target"]): int(row["voxels"]) for row in csv.DictReader(stream)}

    def truth(self, subject: str, name: str = "dseg") -> Any:
        return load(self.private / self.case_of(subject) / f"{name}.nii.gz")

    def image(self, subject: str) -> Any:
        return load(self.public / self.case_of(subject) / self.card.inputs[0].file)


def load(path: Path) -> Any:
    return NIBABEL.load(path)


def values(image: Any) -> np.ndarray:
    return np.asarray(image.dataobj)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Staged]:
    """Every task, staged once."""
    return {path.stem: Staged(path, tmp_path_factory.mktemp(path.stem)) for path in CARDS}


def test_all_tasks_are_here() -> None:
    assert [path.stem for path in CARDS] == sorted(EXPECTED)


@pytest.mark.parametrize("task", EXPECTED)
def test_subjects(task: str, staged: dict[str, Staged]) -> None:
    """The right ones in the right order; drawn ones in any; each target at least once."""
    expected = EXPECTED[task]
    found = staged[task].subjects
    assert (set(found) if isinstance(expected, set) else found) == expected
    present = {target for (_, target), count in staged[task].voxels().items() if count}
    assert present == {target.name for target in staged[task].card.targets}


@pytest.mark.parametrize("task", EXPECTED)
def test_nothing_of_upstream_is_public(task: str, staged: dict[str, Staged]) -> None:
    """No free text of upstream headers, no upstream name; truth lies on the grid of its image."""
    one = staged[task]
    for entry in one.manifest.cases:
        image = load(one.public / entry.id / one.card.inputs[0].file)
        assert bytes(image.header["descrip"].tobytes()).strip(b"\0") == b""
        assert image.shape[:3] == tuple(entry.geometry["shape"])
        for name in entry.private:
            truth = load(one.private / entry.id / name)
            assert truth.shape == image.shape[:3]
            np.testing.assert_allclose(truth.affine, image.affine, atol=1e-5)
    names = [path.relative_to(one.public).as_posix() for path in one.public.rglob("*")]
    assert not [name for name in names for subject in one.subjects if len(subject) > 3 and subject in name]


# --- what each data set is known for --------------------------------------------------------------------------


def test_kits(staged: dict[str, Staged]) -> None:
    """Pointer and absent label maps are passed over; axes stay slices × rows × columns; organ = 1 or 2."""
    one = staged["kidney-seg-task"]
    assert one.split["passed_over"] == {
        "case_00005": "segmentation.nii.gz is a Git LFS pointer, not the volume",
        "case_00007": "segmentation.nii.gz does not exist",
        "case_00210": "segmentation.nii.gz does not exist",
    }
    image = one.image("case_00000")
    assert image.shape == (8, 14, 14)
    assert NIBABEL.orientations.aff2axcodes(image.affine) == ("I", "P", "L")
    organ, lesion = values(one.truth("case_00000", "organ")), values(one.truth("case_00000", "lesion"))
    assert set(np.unique(organ)) == set(np.unique(lesion)) == {0, 1}
    assert (organ[lesion == 1] == 1).all()
    assert organ.sum() > lesion.sum() > 0


def test_pants(staged: dict[str, Staged], tmp_path: Path) -> None:
    """Flags as number or text; organ is the union of two masks that overlap; in the map the lesion overwrites."""
    pair, organs = staged["pancreas-seg-task"], staged["pancreas-oar-seg-task"]
    case = "PanTS_00000001"
    upstream = {
        name: values(load(pair.raw / f"LabelTr/{case}/segmentations/{name}.nii.gz"))
        for name in ("pancreas", "pancreatic_lesion")
    }
    both = upstream["pancreas"] & upstream["pancreatic_lesion"]
    assert both.sum() > 0
    np.testing.assert_array_equal(
        values(pair.truth(case, "organ")), upstream["pancreas"] | upstream["pancreatic_lesion"]
    )
    np.testing.assert_array_equal(values(pair.truth(case, "lesion")), upstream["pancreatic_lesion"])
    truth = values(organs.truth(case))
    assert (truth[both == 1] == 22).all()
    assert organs.split["cases"][organs.case_of(case)]["overwritten_voxels"] == both.sum()
    assert set(np.unique(truth)) <= {0, *(target.id for target in organs.card.targets)}
    counts = organs.voxels()
    assert counts[organs.case_of("PanTS_00000003"), "prostate"] == 0 < counts[organs.case_of(case), "prostate"]


def test_a_missing_mask_of_pants_is_an_error(staged: dict[str, Staged], tmp_path: Path) -> None:
    one = staged["pancreas-seg-task"]
    path = one.raw / "LabelTr/PanTS_00000003/segmentations/pancreatic_lesion.nii.gz"
    data = path.read_bytes()
    try:
        path.unlink()
        with pytest.raises(MissingDataError, match=r"PanTS_00000003/segmentations/pancreatic_lesion\.nii\.gz"):
            one.stage(tmp_path)
    finally:
        path.write_bytes(data)
    assert not (tmp_path / "manifests").exists()


def test_leavings_of_macos(staged: dict[str, Staged], tmp_path: Path) -> None:
    """They are no cases, should a person's own copy hold them."""
    one = staged["liver-seg-task"]
    left = [one.raw / f"Task03_Liver/{folder}/._liver_0.nii.gz" for folder in ("imagesTr", "labelsTr")]
    for path in left:
        path.write_bytes(b"\x00\x05\x16\x07")
    try:
        assert one.stage(tmp_path) == one.manifest
    finally:
        for path in left:
            path.unlink()


def test_decathlon(staged: dict[str, Staged]) -> None:
    """Images without labels are no cases; float labels, slopes of 0 and 4-D images work."""
    heart = staged["heart-seg-task"]
    upstream = load(heart.raw / "Task02_Heart/imagesTr/la_003.nii.gz")
    np.testing.assert_array_equal(values(heart.image("la_003")), values(upstream))
    colon = staged["colon-seg-task"]
    assert load(colon.raw / "Task10_Colon/labelsTr/colon_005.nii.gz").get_data_dtype() == np.float32
    assert colon.truth("colon_005").get_data_dtype() == np.uint8
    prostate = staged["prostate-seg-task"]
    assert prostate.image("prostate_00").shape == (16, 14, 10, 2)
    assert prostate.truth("prostate_00").shape == (16, 14, 10)
    vessels = staged["hepaticvessel-seg-task"]
    source = values(load(vessels.raw / "Task08_HepaticVessel/labelsTr/hepaticvessel_001.nii.gz"))
    np.testing.assert_array_equal(values(vessels.truth("hepaticvessel_001")), source)


def test_aeropath(staged: dict[str, Staged]) -> None:
    """Where the masks overlap a voxel belongs to the airways."""
    one = staged["aeropath-seg-task"]
    lungs, airways = (
        values(load(one.raw / f"AeroPath/10/10_CT_HR_label_{name}.nii.gz")) for name in ("lungs", "airways")
    )
    assert (lungs & airways).sum() > 0
    np.testing.assert_array_equal(values(one.truth("10")), np.where(airways, 2, lungs))


def test_feta(staged: dict[str, Staged]) -> None:
    """A subject without label map is no case; of two reconstructions image and labels are of the same one."""
    one = staged["feta-seg-task"]
    files = one.split["cases"][one.case_of("sub-002")]["files"]
    assert sorted(files) == ["sub-002_rec-irtk_T2w.nii.gz", "sub-002_rec-irtk_dseg.nii.gz"]
    image = one.image("sub-001")
    assert (int(image.header["qform_code"]), int(image.header["sform_code"])) == (1, 0)
    upstream = values(load(one.raw / "feta_2.4/sub-001/anat/sub-001_rec-mial_dseg.nii.gz"))
    assert upstream.dtype == np.float32
    np.testing.assert_array_equal(values(one.truth("sub-001")), upstream.astype(np.uint8))


def test_panther(staged: dict[str, Staged]) -> None:
    """Label 1 is the tumour, 2 the gland around it; the affine is SimpleITK's, from LPS to RAS, voxel by voxel."""
    import SimpleITK

    itk: Any = SimpleITK
    one = staged["panther-t2-seg-task"]
    labels = itk.ReadImage(str(one.raw / "PANTHER_Task2/LabelsTr/10303.mha"))
    upstream = itk.GetArrayFromImage(labels).T
    np.testing.assert_array_equal(values(one.truth("10303", "lesion")), upstream == 1)
    np.testing.assert_array_equal(values(one.truth("10303", "organ")), upstream > 0)
    image = one.image("10303")
    for voxel in ([0, 0, 0], [3, 5, 7]):
        x, y, z = labels.TransformIndexToPhysicalPoint(voxel)
        np.testing.assert_allclose(image.affine @ [*voxel, 1], [-x, -y, z, 1], atol=1e-4)
    assert one.voxels()[one.case_of("10320"), "lesion"] == 0


def test_totalsegmentator(staged: dict[str, Staged]) -> None:
    """117 structures under their alphabetical ids; absent ones have empty masks."""
    one = staged["tsg-multiorgan-seg-task"]
    assert sorted(target.name for target in one.card.targets) == [target.name for target in one.card.targets]
    truth = values(one.truth("s0011"))
    for target in one.card.targets:
        mask = values(load(one.raw / f"s0011/segmentations/{target.name}.nii.gz"))
        np.testing.assert_array_equal(truth == target.id, mask == 1)
    assert 0 < sum(count == 0 for count in one.voxels().values()) < 117
