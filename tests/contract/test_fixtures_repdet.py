"""Reports and detection from their upstream form to staged cases: counts, classes, geometry, fate of defects."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixture_raw import StagedFixture
from PIL import Image

from automedbench.base.cards import load_card
from automedbench.base.files import sha256_bytes
from automedbench.datasets import get_reader
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.fetch import fetch_dataset
from automedbench.datasets.forms.pictures import Picture
from automedbench.datasets.forms.sources import SourceReport
from automedbench.tracks import track_settings
from automedbench.tracks.report_generation.stage import stage_reports
from automedbench_rehearsal.making import pictures as made
from automedbench_rehearsal.making.pictures import deep
from automedbench_rehearsal.upstreams import images as image_fixtures
from automedbench_rehearsal.upstreams import reports as report_fixtures
from automedbench_rehearsal.upstreams.server import stand_in

ROOT = Path(__file__).resolve().parents[2]
CARDS = {
    path.stem: path for track in ("detection", "report_generation") for path in ROOT.glob(f"config/tasks/{track}/*")
}
DETECTION = sorted(name for name in CARDS if name.endswith("-det-task"))
REPORTS = sorted(CARDS.keys() - set(DETECTION))
PATHOLOGY = [f"pathology-caption-{count}-task" for count in (100, 500)]


class Staged(StagedFixture):
    """A task of these tracks."""

    def case(self, image: str) -> str:
        """The case that an upstream image became."""
        return next(name for name, entry in self.split["cases"].items() if entry["image_id"] == image)

    def truth(self, image: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.private / self.case(image) / "boxes.json").read_bytes())
        return found

    def corners(self, image: str) -> list[tuple[str, float, float, float, float]]:
        return [(box["class"], box["x1"], box["y1"], box["x2"], box["y2"]) for box in self.truth(image)["boxes"]]

    def pixels(self, image: str) -> Any:
        return np.asarray(Image.open(self.public / self.case(image) / "image.png"))

    def reports(self) -> dict[str, str]:
        """Study upstream → report as staged."""
        return {
            entry["study"]: (self.private / case / "report.txt").read_text()
            for case, entry in self.split["cases"].items()
        }


Stage = Callable[[str], Staged]


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The staged fixture of a task, made once."""
    return functools.cache(lambda name: Staged(CARDS[name], tmp_path_factory.mktemp(name)))


SECRETS = (b"Doe", b"patient-", b"ImageDescription", b"2015:01:02", b"WRI-", b"PMC7", b"BloodImage", b"CXR1_")


@pytest.mark.parametrize("name", sorted(CARDS))
def test_agents_see_no_metadata_and_no_name(name: str, staged: Stage) -> None:
    """Neither in the files nor in their names."""
    for path in staged(name).public.rglob("*"):
        assert not any(secret.decode() in str(path.relative_to(staged(name).folder)) for secret in SECRETS)
        if path.is_file():
            data = path.read_bytes()
            assert [secret for secret in SECRETS if secret in data] == []
            if path.suffix != ".json":
                with Image.open(path) as image:
                    assert not image.getexif()


# --- detection ------------------------------------------------------------------------------------------------

BOXES = {
    # By the fixtures: boxes of each class that are staged, and boxes without area that are dropped.
    "bccd-det-task": ({"platelets": 4, "rbc": 8, "wbc": 4}, 2),
    "dentex-det-task": ({"caries": 3, "deep caries": 1, "periapical lesion": 1, "impacted": 2}, 1),
    "grazpedwri-det-task": ({name: 1 + (name == "text") for name in image_fixtures.GRAZPEDWRI_CLASSES}, 0),
    "vindr-cxr-det-task": (
        {
            target.name.lower(): 3 if target.name == "Other lesion" else 1
            for target in load_card(CARDS["vindr-cxr-det-task"]).targets
        },
        0,
    ),
}
CASES = {"bccd-det-task": 4, "dentex-det-task": 6, "grazpedwri-det-task": 7, "vindr-cxr-det-task": 8}


@pytest.mark.parametrize("name", DETECTION)
def test_boxes(name: str, staged: Stage) -> None:
    """Counts per class over all images; every box lies inside of its image; pictures are RGB of the stated size."""
    task = staged(name)
    assert (task.split["boxes_per_class"], task.split["dropped_boxes"]) == BOXES[name]
    assert len(task.manifest.cases) == CASES[name]
    for case in task.manifest.cases:
        width, height = case.geometry["width"], case.geometry["height"]
        truth = json.loads((task.private / case.id / "boxes.json").read_bytes())
        assert all(
            0 <= box["x1"] < box["x2"] <= width and 0 <= box["y1"] < box["y2"] <= height for box in truth["boxes"]
        )
        with Image.open(task.public / case.id / "image.png") as image:
            assert (image.mode, image.size) == ("RGB", (width, height))


def test_dentex(staged: Stage) -> None:
    """x, y, width, height → corners by hand; float boxes stay, what is outside is cut off, the third id counts."""
    task = staged("dentex-det-task")
    assert task.corners("train_0.png") == [("impacted", 10.5, 8.25, 22.5, 24.75), ("caries", 40, 10, 49, 24)]
    assert task.corners("train_1.png") == [("caries", 20, 12, 30, 24), ("periapical lesion", 20, 12, 30, 24)]
    assert task.corners("train_2.png") == [("deep caries", 70, 30, 80, 40)]
    assert task.corners("train_3.png") == [("caries", 0, 5, 6.5, 15)]
    assert task.corners("train_4.png") == []
    sizes = {
        name: (task.truth(f"train_{name}.png")["width"], task.truth(f"train_{name}.png")["height"]) for name in range(6)
    }
    assert sizes == image_fixtures.DENTEX_SIZES


def test_grazpedwri(staged: Stage) -> None:
    """One image of a patient, the one with the rare class; relative boxes → pixels of 40 × 60; 16 bits → 8."""
    task = staged("grazpedwri-det-task")
    chosen = {entry["image_id"] for entry in task.split["cases"].values()}
    assert chosen == image_fixtures.GRAZPEDWRI_IMAGES.keys() - {
        "0001_1297860395_01_WRI-L1_M014",
        "0003_0662359351_01_WRI-R2_F011",
    }
    name = "0001_1297860435_01_WRI-L2_M014"
    (first, second) = task.corners(name)
    assert first[0] == "text"
    assert first[1:] == pytest.approx((30, 3, 40, 9))  # 42 is beyond the right edge
    assert second[1:] == pytest.approx((15, 24, 25, 36))
    without = {entry["image_id"] for entry in task.split["cases"].values() if entry["annotation_sha256"] is None}
    assert without == {"0006_0536310330_01_WRI-L1_M010"}
    assert_tones(task.pixels(name), deep((60, 40), 16, "graz", name))


def assert_tones(staged: Any, values: Any) -> None:
    """Lowest black, highest white, the others in proportion, in three equal channels."""
    expected = np.rint((values.astype(float) - values.min()) / (int(values.max()) - int(values.min())) * 255)
    assert np.array_equal(staged, np.stack([expected] * 3, axis=-1))


def test_vindr(staged: Stage) -> None:
    """Compressed, inverted and shallow DICOM all show the pixels that were put in; rare classes count as one."""
    task = staged("vindr-cxr-det-task")
    for number in range(8):
        bits = 10 if number == image_fixtures.VINDR_TEN_BITS else 12
        shape = (image_fixtures.VINDR_HEIGHT, image_fixtures.VINDR_WIDTH)
        assert_tones(task.pixels(image_fixtures.vindr_image_id(number)), deep(shape, bits, "vindr", number))
    assert task.corners(image_fixtures.vindr_image_id(3)) == []
    assert task.corners(image_fixtures.vindr_image_id(5))[0] == ("pleural effusion", 30, 40, 48, 56)
    assert [box[0] for box in task.corners(image_fixtures.vindr_image_id(6))] == ["other lesion"] * 2
    written = [box["source_class"] for box in task.truth(image_fixtures.vindr_image_id(6))["boxes"]]
    assert written == ["Clavicle fracture", "Lung cyst"]
    assert not (task.raw / "train").exists()


def test_real_bccd(shared: Path) -> None:
    """SOURCE.md: 364 images in lists of 205, 87, 292 and 72; boxes per class; two of no area."""
    card = load_card(CARDS["bccd-det-task"])
    read = get_reader(card.staging.reader)
    for split, count in {"train": 205, "val": 87, "trainval": 292, "test": 72, None: 364}.items():
        sampling = card.staging.sampling.model_copy(update={"split": split})
        changed = card.model_copy(update={"staging": card.staging.model_copy(update={"sampling": sampling})})
        images = read(shared / "data/bccd", changed)
        assert len(images) == count
        if split == "test":
            boxes = Counter(box.source_class for image in images for box in image.boxes)
            assert boxes == {"RBC": 805, "WBC": 71, "Platelets": 69}
    assert Counter(box.source_class for image in images for box in image.boxes) == {
        "RBC": 4155 - 2,
        "WBC": 372,
        "Platelets": 361,
    }
    assert {image.id for image in images if image.dropped} == {"BloodImage_00338", "BloodImage_00343"}


# --- reports --------------------------------------------------------------------------------------------------

COUNTS = {
    # By the fixtures: cases, studies read, without text that is scored, further ones of a patient.
    "chexpert-plus-cxr-task": (5, 8, 2, 1),
    "iu-xray-report-task": (5, 6, 1, 0),
    "mimic-cxr-report-task": (5, 7, 1, 1),
    **dict.fromkeys(PATHOLOGY, (6, 7, 0, 1)),
}


@pytest.mark.parametrize("name", REPORTS)
def test_studies(name: str, staged: Stage) -> None:
    split = staged(name).split
    found = [split[key] for key in ("n_studies", "n_without_text", "n_same_subject")]
    assert (len(split["cases"]), *found) == COUNTS[name]
    assert split["n_too_many_images"] == 0


@pytest.mark.parametrize("name", REPORTS)
def test_what_the_card_says_is_there(name: str, staged: Stage) -> None:
    """The card's inputs are files of every case, and the case's manifest lists its images."""
    task = staged(name)
    for case in task.manifest.cases:
        listing = json.loads((task.public / case.id / "manifest.json").read_bytes())
        assert set(case.inputs) == {"manifest.json", *listing["image_files"]}
        assert {entry.file for entry in task.card.inputs} <= set(case.inputs)


def test_mimic(staged: Stage) -> None:
    """All views of a study; the report as it is, with plain line breaks; neither training studies nor those without
    findings.
    """
    task = staged("mimic-cxr-report-task")
    reports = task.reports()
    assert {
        str(report_fixtures.MIMIC_COMBINED),
        str(report_fixtures.MIMIC_WET_READ),
        str(report_fixtures.MIMIC_WINDOWS),
        "50000007",
    } < reports.keys()
    assert len(reports.keys() & {"50000001", "50000002"}) == 1
    assert "\r" not in "".join(reports.values())
    assert made.findings(6) in reports[str(report_fixtures.MIMIC_WET_READ)]
    images = {entry["study"]: len(entry["images"]) for entry in task.split["cases"].values()}
    assert images[str(report_fixtures.MIMIC_COMBINED)] == 2


def test_mimic_fetches_the_test_split_alone(tmp_path: Path) -> None:
    """Of all images that PhysioNet offers, those of the rows whose split is test are asked for, each once."""
    card, files = load_card(CARDS["mimic-cxr-report-task"]), report_fixtures.mimic_cxr().files
    base = "https://physionet.org/files/mimic-cxr-jpg/2.1.0"
    lines = gzip.decompress(files[f"{base}/mimic-cxr-2.0.0-split.csv.gz"]).decode().splitlines()
    expected = {
        f"{base}/files/p{row['subject_id'][:2]}/p{row['subject_id']}/s{row['study_id']}/{row['dicom_id']}.jpg"
        for row in csv.DictReader(lines)
        if row["split"] == "test"
    }
    with stand_in("mimic_cxr") as (mirrors, own):
        receipt = fetch_dataset(card, own, tmp_path / "raw", Access(mirrors, stand_in=True))
    asked = [request.partition(" ")[2] for request in mirrors.requests]
    assert sorted(url for url in asked if url.endswith(".jpg")) == sorted(expected)
    assert len(asked) == len(set(asked))  # the table as well
    offered = {url for url in files if url.endswith(".jpg")}
    assert (len(offered), len(expected)) == (13, 9)
    assert {f"{base}/{name}" for name in receipt.files if name.endswith(".jpg")} == expected
    published = {each.name: each.published for each in receipt.downloads}
    assert all(published[url] == f"sha256:{sha256_bytes(files[url])}" for url in expected)


def test_iu_xray(staged: Stage) -> None:
    """Sections under their headings; a report with an impression alone is kept."""
    reports = staged("iu-xray-report-task").reports()
    assert reports["1"] == f"FINDINGS: {made.findings(1)}\nIMPRESSION: 1. {made.impression(1)} XXXX.\n"
    assert reports["3"] == f"IMPRESSION: 1. {made.impression(3)} XXXX.\n"
    assert reports["5"] == f"FINDINGS: {made.findings(5)}\n"


def test_chexpert_plus(staged: Stage) -> None:
    """Frontal views; "nan" is nothing; cells of several lines become one line under their heading."""
    task = staged("chexpert-plus-cxr-task")
    reports = task.reports()
    assert reports["valid/patient64546/study1"] == f"FINDINGS: {made.findings(6)}\n"
    assert reports["valid/patient64542/study1"].endswith(" 2. As before, no change.\n")
    assert "valid/patient64545/study1" not in reports
    assert "valid/patient64543/study1" not in reports  # two words: too short to be accepted by the format check
    assert all(len(case.inputs) == 2 for case in task.manifest.cases)


def test_pathology(staged: Stage) -> None:
    """A picture that is absent, or has two captions, is left out; a caption stays as it is."""
    studies = [staged(name).reports() for name in PATHOLOGY]
    assert studies[0] == studies[1]
    assert studies[0]["PMC7000004_fig4_0.jpg"] == "Lymph node: sheets of large cells, CD20+, Ki-67 ≈ 80 %.\n"
    assert studies[0]["PMC7000002_fig2_0.jpg"] == "Granuloma.\n"
    assert not {"PMC7999999_fig1_0.jpg", "PMC7000007_fig7_0.jpg"} & studies[0].keys()


def test_the_100_are_the_first_100_of_the_500(tmp_path: Path) -> None:
    """The cards differ in the count alone, and the order does not depend on it: tried with a tenth of both counts."""
    cards = [load_card(CARDS[name]) for name in PATHOLOGY]
    assert [card.staging.sampling.count for card in cards] == [100, 500]
    assert cards[0].dataset == cards[1].dataset
    common = [card.staging.model_dump() | {"sampling": None} for card in cards]
    assert common[0] == common[1]
    assert cards[0].staging.sampling.seed == cards[1].staging.sampling.seed
    buffer = io.BytesIO()
    Image.new("L", (2, 2)).save(buffer, "PNG")
    picture = Picture("1.png", buffer.getvalue)
    studies = [SourceReport(f"image{n}", (picture,), f"Gland {n}.", f"PMC{n // 2}") for n in range(120)]
    chosen = []
    for card in cards:
        tenth = card.staging.sampling.model_copy(update={"count": (card.staging.sampling.count or 0) // 10})
        card = card.model_copy(update={"staging": card.staging.model_copy(update={"sampling": tenth})})
        folders = tmp_path / card.id / "public", tmp_path / card.id / "private"
        stage_reports(card, track_settings(card), studies, *folders)
        split = json.loads((folders[1] / "split.json").read_bytes())["cases"]
        chosen.append([(case, entry["study"], entry["report_sha256"]) for case, entry in split.items()])
    assert [len(cases) for cases in chosen] == [10, 50]
    assert chosen[0] == chosen[1][:10]
