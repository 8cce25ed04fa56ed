"""Classification and synthesis from their upstream form to staged cases: counts, classes, geometry, known defects."""

from __future__ import annotations

import functools
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import yaml
from fixture_raw import StagedFixture
from PIL import Image

from automedbench.base.cards import load_card
from automedbench.datasets import get_reader
from automedbench.datasets.forms.pictures import rgb_jpeg, take_apart
from automedbench.steps.stage_task import stage_cases

ROOT = Path(__file__).resolve().parents[2]
CARDS = {path.stem: path for track in ("classification", "synthesis") for path in ROOT.glob(f"config/tasks/{track}/*")}
CLASSIFICATION = sorted(name for name in CARDS if name.endswith("-cls-task"))
nib: Any = nibabel
SUPER_RESOLUTION = sorted(name for name in CARDS if name.endswith("-ctsr-task"))


class Staged(StagedFixture):
    """A task of these tracks."""

    @property
    def sources(self) -> list[str]:
        """Upstream names of the cases, in case order."""
        return [entry["source"] for entry in self.split["cases"].values()]


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Staged]:
    """The staged fixture of a task, made once."""
    return functools.cache(lambda name: Staged(CARDS[name], tmp_path_factory.mktemp(name)))


EXPECTED = {
    # By the fixtures: images that may be taken of each class, one (or two) of a lesion, patient or slide.
    "braintumor-cls-task": dict.fromkeys(("glioma", "meningioma", "notumor", "pituitary"), 3),
    "crc-histology-cls-task": dict.fromkeys(("adi", "back", "deb", "lym", "muc", "mus", "norm", "str"), 2) | {"tum": 3},
    "patchcamelyon-cls-task": {"negative": 6, "positive": 3},
    "chest-xray-pneumonia-cls-task": {"normal": 4, "pneumonia": 4},
    "skin-lesion-cls-task": {
        "actinic_keratoses": 1,
        "basal_cell_carcinoma": 2,
        "benign_keratosis_like_lesions": 1,
        "dermatofibroma": 1,
        "melanoma": 2,
        "melanocytic_nevi": 4,
        "vascular_lesions": 1,
    },
}


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_classes(name: str, staged: Callable[[str], Staged]) -> None:
    """As many of each class as the fixture has; split.json says so."""
    task = staged(name)
    truth = Counter(entry["label"] for entry in task.split["cases"].values())
    assert truth == EXPECTED[name] == {label: count for label, count in task.split["cases_per_class"].items() if count}
    assert len(task.manifest.cases) == sum(truth.values())


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_pictures_are_alike(name: str, staged: Callable[[str], Staged]) -> None:
    """Colour JPEGs without texts, all compressed in the same way although upstream's are not."""
    task = staged(name)
    seen = set()
    for case in task.manifest.cases:
        with Image.open(task.public / case.id / "image.jpg") as image:
            assert (image.mode, image.size) == ("RGB", (case.geometry["width"], case.geometry["height"]))
            assert not image.getexif()
            assert "comment" not in image.info
            seen.add(str([getattr(image, name, None) for name in ("quantization", "layer")]))
    assert len(seen) == 1


def test_one_patient_once(staged: Callable[[str], Staged]) -> None:
    """One of two X-rays of a child, two of four patches of a slide and class, one of two images of a lesion."""
    children = staged("chest-xray-pneumonia-cls-task").sources
    assert len({name for name in children if "person1_" in name or "IM-0001" in name}) == 2
    slides = staged("patchcamelyon-cls-task").sources
    assert len({"1", "2", "4", "6"} & set(slides)) == 2  # positive patches of slide 2
    assert len({"3", "9", "10"} & set(slides)) == 2  # negative ones
    lesions = staged("skin-lesion-cls-task").sources
    assert len({"ISIC_0027419", "ISIC_0025030"} & set(lesions)) == 1


def test_patches_keep_their_pixels(staged: Callable[[str], Staged]) -> None:
    """96×96 pixels as in the array, but for what a JPEG of quality 95 loses."""
    import h5py

    task = staged("patchcamelyon-cls-task")
    with h5py.File(task.raw / "camelyonpatch_level_2_split_test_x.h5") as file:
        for case, source in zip(task.manifest.case_ids, task.sources, strict=True):
            with Image.open(task.public / case / "image.jpg") as image:
                difference = np.asarray(image).astype(int) - file["x"][int(source)]
            assert difference.shape == (96, 96, 3)
            assert np.abs(difference).mean() < 3


# --- synthesis ------------------------------------------------------------------------------------------------

VOLUMES = {
    "totalsegmentator-ctsr-task": ({"s0000", "s0003", "s0024", "s0700", "s1428"}, {"s0011"}),
    "msd-pancreas-ctsr-task": (
        {"pancreas_001", "pancreas_002", "pancreas_004", "pancreas_181", "pancreas_290"},
        {"pancreas_391"},
    ),
    "ctorg-ctsr-task": ({"0", "2", "10", "21", "130"}, {"7"}),
    "synthrad2025-mrct-task": ({"1HNA001", "1HNA012", "1HNB034", "1HNC117"}, {"1HNC120"}),
}


@pytest.mark.parametrize("name", sorted(VOLUMES))
def test_subjects(name: str, staged: Callable[[str], Staged]) -> None:
    """Those fit to be scored; too thin ones are passed over, PET-CT, other regions and macOS leftovers never seen."""
    task = staged(name)
    assert (set(task.sources), set(task.split["passed_over"])) == VOLUMES[name]


@pytest.mark.parametrize("name", sorted(VOLUMES))
def test_volumes_lie_alike(name: str, staged: Callable[[str], Staged]) -> None:
    """Axes to the right, the front and the head, whatever they are upstream; no texts; input and truth on one grid."""
    task = staged(name)
    for case in task.manifest.cases:
        images = [nib.load(task.public / case.id / file) for file in case.inputs]
        images.append(nib.load(task.private / case.id / "truth.nii.gz"))
        for image in images:
            assert image.shape == tuple(case.geometry["shape"])
            np.testing.assert_array_equal(image.affine, images[0].affine)
            assert "".join(nib.aff2axcodes(image.affine)) == "RAS"
            assert image.header["descrip"] == b""
            assert (image.header["qform_code"], image.header["sform_code"]) == (1, 1)


@pytest.mark.parametrize("name", SUPER_RESOLUTION)
def test_input_is_not_the_truth(name: str, staged: Callable[[str], Staged]) -> None:
    task = staged(name)
    for case in task.manifest.cases:
        given, truth = (
            nib.load(path).get_fdata()
            for path in (task.public / case.id / "ct.nii.gz", task.private / case.id / "truth.nii.gz")
        )
        assert np.abs(given - truth).max() > 50
        assert 0.5 < json.loads((task.private / case.id / "baseline.json").read_bytes())["ssim"] < 0.999


def test_mri_stays_with_its_ct(staged: Callable[[str], Staged]) -> None:
    """Bone is dark in the MRI and bright in the CT at the same voxels; everything of the body is in the mask."""
    task = staged("synthrad2025-mrct-task")
    for case in task.manifest.case_ids:
        mri, mask, truth = (
            np.asarray(nib.load(path).dataobj)
            for path in (
                task.public / case / "mr.nii.gz",
                task.public / case / "mask.nii.gz",
                task.private / case / "truth.nii.gz",
            )
        )
        assert (mri[truth > 500] == 60).all()
        assert (truth > 500).any()
        assert mask[truth > -500].all()
        assert set(np.unique(mask)) == {0, 1}


# --- real data --------------------------------------------------------------------------------------------------


def test_real_tile(shared: Path, tmp_path: Path) -> None:
    """The one tile of the CRC data set that is at hand: TIFF to a JPEG of the same size without metadata."""
    card = load_card(CARDS["crc-histology-cls-task"])
    (tmp_path / "CRC-VAL-HE-7K").symlink_to(shared / "data/crc_val_he_7k")
    (tile,) = get_reader(card.staging.reader)(tmp_path, card)
    assert (tile.id, tile.source_class) == ("NORM/NORM-TCGA-YLVCMEHK.tif", "NORM")
    data = rgb_jpeg(tile.image)
    with Image.open(io.BytesIO(data)) as staged, Image.open(io.BytesIO(tile.image.read())) as upstream:
        assert (staged.format, staged.mode, staged.size) == ("JPEG", "RGB", (224, 224))
        assert np.abs(np.asarray(staged).astype(int) - np.asarray(upstream.convert("RGB"))).mean() < 3
    jpeg = take_apart(data)
    assert jpeg is not None and jpeg.without_metadata() == data


PLACES = {
    "totalsegmentator-ctsr-task": ("s0001/ct.nii.gz", "s0002/ct.nii.gz"),
    "msd-pancreas-ctsr-task": ("Task07_Pancreas/imagesTr/p_1.nii.gz", "Task07_Pancreas/imagesTs/p_2.nii.gz"),
    "ctorg-ctsr-task": ("OrganSegmentations/volume-1.nii.gz", "OrganSegmentations/volume-2.nii.gz"),
}


@pytest.mark.parametrize("name", SUPER_RESOLUTION)
def test_real_ct(name: str, shared: Path, tmp_path: Path) -> None:
    """Figures of a real CT of 3 mm and its 30 slices (docs/specification.md, 10.7), in each layout."""
    data = yaml.safe_load(CARDS[name].read_text())
    data["staging"]["sampling"]["options"]["min_slices"] = 30
    card = tmp_path / f"{name}.yaml"
    card.write_text(yaml.safe_dump(data))
    for source, place in zip(("example_ct", "example_ct_sm"), PLACES[name], strict=True):
        (tmp_path / "raw" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / place).symlink_to(shared / f"data/totalsegmentator_example/{source}.nii.gz")
    folders = [tmp_path / folder for folder in ("raw", "public", "private")]
    manifest = stage_cases(card, *folders, tmp_path / "manifest.json", excerpt=True)
    found = {}
    for case in manifest.cases:
        record = json.loads((tmp_path / "private" / name / case.id / "baseline.json").read_bytes())
        found[tuple(case.geometry["shape"])] = (record["ssim"], record["mae"])
    assert found[122, 101, 112] == (pytest.approx(0.9404, abs=6e-5), pytest.approx(23.01, abs=6e-3))
    assert found[122, 101, 30] == (pytest.approx(0.9401, abs=6e-5), pytest.approx(22.80, abs=6e-3))
