"""The nine question sets, from upstream form to staged cases; the fixtures' docstrings list their defects."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixture_raw import raw_folder
from PIL import Image

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import Manifest
from automedbench.steps.stage_task import stage_cases
from automedbench_rehearsal.making.pictures import TELLTALE

NAMES = (
    *("pathvqa-task", "vqa-rad-task", "medframeqa-task", "slake-task", "medxpertqa-mm-task", "vqa-kvasir-task"),
    *("vqa-omnimedvqa-task", "vqa-pmc-vqa-task", "vqa-mmmu-medical-task"),
)
SHOWN = {"question_id", "question", "question_type", "answer_mode", "image_paths", "options", "valid_labels"}


@dataclass
class Staged:
    """A staged task."""

    folder: Path
    manifest: Manifest

    @property
    def public(self) -> Path:
        return self.folder / "public" / self.manifest.task

    def split(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "private" / self.manifest.task / "split.json").read_text()))

    def shown(self, case: str) -> dict[str, Any]:
        return dict(json.loads((self.public / case / "question.json").read_text()))

    def truths(self) -> dict[str, dict[str, Any]]:
        """Upstream id → gold."""
        private = self.folder / "private" / self.manifest.task
        cases = self.split()["cases"]
        return {
            cases[case]["source_id"]: json.loads((private / case / "answer.json").read_text())
            for case in self.manifest.case_ids
        }

    def case(self, upstream: str) -> str:
        """The case with this upstream id."""
        cases = self.split()["cases"]
        return str(next(case for case in cases if cases[case]["source_id"] == upstream))

    def calibration(self) -> list[Any]:
        return [json.loads(path.read_text()) for path in sorted(self.public.glob("calibration/*/answer.json"))]


@pytest.fixture(scope="module")
def raws(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Task → its raw data, fetched from the fixture."""
    folder = tmp_path_factory.mktemp("raw")
    return {name: raw_folder(card(root, name), folder) for name in NAMES}


def card(root: Path, name: str) -> TaskCard:
    return load_card(root / "config/tasks/vqa" / f"{name}.yaml")


def stage(root: Path, raws: dict[str, Path], name: str, folder: Path, **sampling: Any) -> Staged:
    """All of the fixture; with ``sampling`` the card changed so, and not declared an excerpt."""
    path = root / "config/tasks/vqa" / f"{name}.yaml"
    if sampling:
        known = yaml.safe_load(path.read_text())
        known["staging"]["sampling"] |= sampling
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(known))
    places = (folder / "public", folder / "private", folder / "manifest.json")
    return Staged(folder, stage_cases(path, raws[name], *places, excerpt=not sampling))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_tells_the_answers(name: str, root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """No upstream name and no upstream picture, in files for the agent; no text of upstream's in any."""
    one = stage(root, raws, name, tmp_path)
    known = {sha256_bytes(path.read_bytes()) for path in raws[name].rglob("*") if path.is_file()}
    for path in (path for path in one.public.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert TELLTALE.encode() not in data and sha256_bytes(data) not in known
        if path.suffix == ".jpg":
            with Image.open(io.BytesIO(data)) as image:
                assert not image.getexif() and image.size == (36, 28)
        elif path.name == "question.json":
            shown = json.loads(data)
            assert shown["question_id"] == path.parent.name and set(shown) <= SHOWN
    for path in (one.folder / "private" / name).glob("*/*"):
        assert TELLTALE.encode() not in path.read_bytes()


COUNTS: dict[str, tuple[int, dict[str, int], Counter[str], int]] = {
    # cases, left out, kinds of gold, calibration questions
    "pathvqa-task": (7, {}, Counter(yes_no=3, open=3, number=1), 3),
    "vqa-rad-task": (6, {}, Counter(yes_no=2, open=3, number=1), 0),
    "medframeqa-task": (6, {"image": 1}, Counter(choice=6), 0),
    "slake-task": (5, {"image": 1, "broken_image": 1}, Counter(yes_no=1, open=3, number=1), 1),
    "medxpertqa-mm-task": (5, {}, Counter(choice=5), 2),
    "vqa-omnimedvqa-task": (6, {"label": 2}, Counter(choice=6), 0),
    "vqa-pmc-vqa-task": (5, {"label": 1}, Counter(choice=5), 2),
    "vqa-mmmu-medical-task": (15, {}, Counter(choice=15), 5),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str, root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    staged = stage(root, raws, name, tmp_path)
    kinds = Counter(truth["kind"] for truth in staged.truths().values())
    split = staged.split()
    assert (len(split["cases"]), split["left_out"], kinds, len(staged.calibration())) == COUNTS[name]
    assert split["counts"] == kinds


def test_pathvqa(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """Rows are known by file and number; white space around answers goes; a CMYK picture becomes RGB."""
    staged = stage(root, raws, "pathvqa-task", tmp_path)
    truths = staged.truths()
    assert truths["data/test-00000-of-00003.parquet#2"]["answer_text"] == "Squamous Epithelium"
    case = staged.case("data/test-00002-of-00003.parquet#0")
    assert staged.split()["cases"][case]["row"] == 5
    with Image.open(staged.public / case / "image_1.jpg") as image:
        assert image.mode == "RGB"
    assert {each["answer_text"] for each in staged.calibration()} == {"yes", "neutrophils", "no"}


def test_pathvqa_takes_the_rows_of_the_published_code(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """random.Random(42).sample(range(7), 3) is [5, 0, 6]."""
    staged = stage(root, raws, "pathvqa-task", tmp_path, count=3)
    assert sorted(each["row"] for each in staged.split()["cases"].values()) == [0, 5, 6]


def test_medframeqa(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """Frames in order without the empty ones; a sixth option stays; calibration shows other videos."""
    staged = stage(root, raws, "medframeqa-task", tmp_path)
    truths = staged.truths()
    assert {name: truth["answer_label"] for name, truth in truths.items()} == {
        "q0001": "C",
        "q0002": "A",
        "q0003": "F",
        "q0005": "E",
        "q0006": "D",
        "q0007": "B",
    }
    assert truths["q0003"]["groups"] == {
        "question_form": "multiple_choice",
        "system": "respiratory system",
        "organ": "lung",
        "modality": "MRI",
    }
    frames = {name: len(staged.shown(staged.case(name))["image_paths"]) for name in truths}
    assert frames == {"q0001": 2, "q0002": 5, "q0003": 3, "q0005": 4, "q0006": 2, "q0007": 3}
    assert staged.shown(staged.case("q0003"))["valid_labels"] == list("ABCDEF")
    (tmp_path / "part").mkdir()
    options = {"method": "random_sample", "calibration": {"count": 9}}
    part = stage(root, raws, "medframeqa-task", tmp_path / "part", count=4, options=options)
    rows = {each["row"] for each in part.split()["cases"].values()}
    videos = ["v1", "v2", "v3", "v4", "v5", "v1", "v6"]
    free = {videos[row] for row in {0, 1, 2, 4, 5, 6} - rows} - {videos[row] for row in rows}
    assert len(rows) == 4 and len(part.calibration()) == len(free)


def test_slake(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """English only; the whole split is asked for, so that an absent image is an error unless the copy is a part."""
    staged = stage(root, raws, "slake-task", tmp_path)
    assert {name: truth["answer_text"] for name, truth in staged.truths().items()} == {
        "1000": "CT",
        "1001": "No",
        "1003": "Right Lung",
        "1004": "2",
        "1006": "Lung, Spinal Cord",
    }
    assert staged.calibration() == [
        {"question_id": "calibration_0001", "answer_text": "No", "answer_label": None},
    ]
    with pytest.raises(InfrastructureError, match=r"but the split has 5 .rows left out: broken_image 1, image 1."):
        stage(root, raws, "slake-task", tmp_path, split="test")
    assert not list(raws["slake-task"].rglob("question.json"))


def test_medxpertqa(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """Images are found by name, up to six of them; the dev questions are handed out with their letters."""
    staged = stage(root, raws, "medxpertqa-mm-task", tmp_path)
    labels = {name: truth["answer_label"] for name, truth in staged.truths().items()}
    assert labels == {"MM-0": "A", "MM-1": "E", "MM-2": "C", "MM-3": "B", "MM-4": "D"}
    shown = staged.shown(staged.case("MM-2"))
    assert shown["image_paths"] == [f"image_{number}.jpg" for number in range(1, 7)]
    assert shown["options"]["C"] == "diagnosis C of MM 2"
    assert {each["answer_label"] for each in staged.calibration()} == {"A", "C"}


def test_kvasir(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """One question per image, several values as one answer, and calibration on images that no case shows."""
    staged = stage(root, raws, "vqa-kvasir-task", tmp_path)
    split = staged.split()
    assert split["left_out"] == {"answer": 1}
    assert len(split["cases"]) == 5 and split["cases"].keys() == set(staged.manifest.case_ids)
    assert {"center; lower-right", "not relevant", "yes"} <= {t["answer_text"] for t in staged.truths().values()}
    (tmp_path / "part").mkdir()
    options = {"distinct_images": True, "calibration": {"count": 9}}
    part = stage(root, raws, "vqa-kvasir-task", tmp_path / "part", count=3, options=options)
    assert (len(part.manifest.cases), len(part.calibration())) == (3, 2)


def test_omnimedvqa(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """The option that equals the answer; fewer options; modalities alike often."""
    staged = stage(root, raws, "vqa-omnimedvqa-task", tmp_path)
    place = "OmniMedVQA/QA_information/Open-access"
    labels = {name.removeprefix(f"{place}/"): t["answer_label"] for name, t in staged.truths().items()}
    assert labels == {
        "ACRIMA.json#0": "A",
        "ACRIMA.json#1": "B",
        "ACRIMA.json#2": "B",
        "Chest CT Scan.json#0": "A",
        "ISIC2018.json#0": "B",
        "ISIC2018.json#1": "D",
    }
    assert staged.shown(staged.case(f"{place}/ACRIMA.json#1"))["valid_labels"] == ["A", "B", "C"]
    assert staged.truths()[f"{place}/Chest CT Scan.json#0"]["groups"]["modality"] == "CT"
    (tmp_path / "part").mkdir()
    options = {"stratify": "modality", "calibration": {"count": 2}}
    part = stage(root, raws, "vqa-omnimedvqa-task", tmp_path / "part", count=3, options=options)
    modalities = {truth["groups"]["modality"] for truth in part.truths().values()}
    assert modalities == {"Fundus Photography", "CT", "Dermoscopy"}
    assert part.split()["balanced"] == {"modality": dict.fromkeys(sorted(modalities), 1)}
    assert len(part.calibration()) == 2


def test_pmc_vqa(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """The right choice by text, with and without its letter, or by letter; quotes and line breaks stay."""
    staged = stage(root, raws, "vqa-pmc-vqa-task", tmp_path)
    labels = {name: truth["answer_label"] for name, truth in staged.truths().items()}
    rows = ("0", "1", "2", "3", "5")
    assert labels == {f"test_clean.csv#{row}": label for row, label in zip(rows, "BACDA", strict=True)}
    assert staged.shown(staged.manifest.case_ids[0])["options"] == {
        "A": "Diffuse uptake",
        "B": 'A "halo" sign',
        "C": "No uptake,\nnone at all",
        "D": "Cannot be determined",
    }
    assert sorted(each["answer_label"] for each in staged.calibration()) == ["B", "D"]


def test_mmmu(root: Path, raws: dict[str, Path], tmp_path: Path) -> None:
    """Markers mean the staged images; options that are images keep their place; other subjects are not fetched."""
    staged = stage(root, raws, "vqa-mmmu-medical-task", tmp_path)
    assert not (raws["vqa-mmmu-medical-task"] / "Accounting").exists()
    compare = staged.shown(staged.case("validation_Pharmacy_4"))
    assert compare["question"] == "Compare <image 2> with <image 1>: is it larger?"
    assert (compare["image_paths"], compare["options"]) == (["image_1.jpg", "image_2.jpg"], {"A": "Yes", "B": "No"})
    drugs = staged.shown(staged.case("validation_Clinical_Medicine_2"))
    assert drugs["options"] == {"A": "<image 1>", "B": "<image 2>", "C": "<image 3>"}
    cells = staged.shown(staged.case("validation_Public_Health_1"))
    assert cells["options"]["B"] == "Don't know: it's a 'blast'"
    assert {each["answer_label"] for each in staged.calibration()} == {"B"}
