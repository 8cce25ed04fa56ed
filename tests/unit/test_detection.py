"""The detection track: staging, the format check on hostile files, scores worked out by hand, real BCCD."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, PngImagePlugin
from toys import detection as bad
from toys import with_options
from toys._bench import collected, inputs
from toys.detection import RIGHT, box, make_card, make_manifest, one, submit, write_truth

from automedbench.base.cards import Target, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import sha256_file, to_json
from automedbench.base.records import CaseEntry, CaseSubmission
from automedbench.tracks import TrackScore, get_track, track_settings
from automedbench.tracks.detection import TRACK as detection

A, B, C = (10, 10, 40, 40), (20, 20, 60, 60), (70, 70, 90, 90)
TRUTH = {"c1": [box("rbc", *A)], "c2": [box("rbc", *B), box("wbc", *C)]}


def parameters(table: list[tuple[str, bytes, str]]) -> list[Any]:
    """Rows of id, content and code as parameters."""
    return [pytest.param(content, code, id=name) for name, content, code in table]


class Toy:
    """One task with truth and a submission that tests fill."""

    def __init__(self, folder: Path, truth: dict[str, list[dict[str, Any]]], card: TaskCard) -> None:
        self.card, self.private, self.submission = card, folder / "private", folder / "submission"
        self.manifest = write_truth(self.private, truth)

    def submit(self, case: str, content: Any) -> None:
        submit(self.submission, case, content)

    def check(self) -> dict[str, CaseSubmission]:
        return {each.case: each for each in collected(self.card, self.manifest, self.submission).cases}

    def score(self) -> TrackScore:
        return detection.score(inputs(self.card, self.manifest, self.submission, self.private))


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Two images, classes rbc and wbc (platelets never occur)."""
    return Toy(tmp_path, TRUTH, make_card("platelets", "rbc", "wbc"))


def test_interface() -> None:
    """The track is found by name; its settings have defaults and refuse nonsense."""
    assert get_track("detection") is detection
    assert track_settings(make_card()) == detection.settings(iou_threshold=0.5, max_detections=100)
    with pytest.raises(ConfigError) as caught:
        track_settings(make_card(iou_threshold=1.5, max_detections=0))
    assert len(caught.value.problems) == 2


# --- format check ---------------------------------------------------------------------------------------------

TOO_LARGE = ("larger than the card allows", b'{"boxes": []}' + b" " * 2_000_000, "too_large")


@pytest.mark.parametrize(("content", "code"), parameters([*bad.NOT_COMPLETED, TOO_LARGE]))
def test_files_that_are_not_completed(toy: Toy, content: bytes, code: str) -> None:
    """The whole file is lost: one stable code, the image counts as without predictions."""
    toy.submit("c1", content)
    verdict = toy.check()["c1"]
    assert (verdict.status, verdict.completed, [problem.code for problem in verdict.problems]) == (
        "malformed",
        False,
        [code],
    )
    assert toy.score().cases[0].metrics["n_predictions"] == 0


@pytest.mark.parametrize(("content", "code"), parameters(bad.DROPPED))
def test_boxes_that_are_dropped(toy: Toy, content: bytes, code: str) -> None:
    """The file is complete but invalid, the box is not scored."""
    toy.submit("c1", content)
    verdict = toy.check()["c1"]
    assert (verdict.status, verdict.completed, verdict.dropped) == ("malformed", True, 1)
    assert [problem.code for problem in verdict.problems] == [code]
    assert toy.score().cases[0].metrics["n_predictions"] == 0


@pytest.mark.parametrize(("content", "code"), parameters(bad.REMARKED))
def test_boxes_that_are_scored_although_invalid(toy: Toy, content: bytes, code: str) -> None:
    """Complete, invalid, nothing dropped."""
    toy.submit("c1", content)
    verdict = toy.check()["c1"]
    assert (verdict.status, verdict.completed, verdict.dropped) == ("malformed", True, 0)
    assert [problem.code for problem in verdict.problems] == [code]
    assert toy.score().cases[0].metrics["n_predictions"] == 1


VALID = [
    pytest.param([], id="no boxes"),
    pytest.param([RIGHT], id="one box"),
    pytest.param([RIGHT | {"class": " RBC "}], id="case and space of the class"),
    pytest.param([RIGHT | {"comment": "sure", "id": 7}], id="extra keys in a box"),
    pytest.param({"boxes": [RIGHT], "model": "m"}, id="extra keys in the file"),
    pytest.param([box("rbc", 0, 0, 100, 100, score=0)], id="exactly the image, score 0"),
    pytest.param([RIGHT] * 500, id="more boxes than count"),
    pytest.param([box("rbc", -3e-5, 0, 100.00003, 100.01, score=0.5)], id="beyond the image by rounding"),
    pytest.param([box("rbc", 60, -0.01, 100.005, 100, score=1.0000001192092896)], id="a score beyond 1 by rounding"),
]


@pytest.mark.parametrize("content", VALID)
def test_valid_files(toy: Toy, content: Any) -> None:
    """Nothing to remark; the record names the collected file."""
    toy.submit("c1", content)
    verdict = toy.check()["c1"]
    assert (verdict.status, verdict.completed, verdict.problems, verdict.dropped) == ("valid", True, [], 0)
    assert list(verdict.files) == ["c1/prediction.json"]


def test_a_byte_order_mark_is_left_out(toy: Toy) -> None:
    toy.submit("c1", b"\xef\xbb\xbf" + json.dumps({"boxes": [RIGHT]}).encode())
    assert toy.check()["c1"].status == "valid"


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_regular_file(toy: Toy, tmp_path: Path, kind: str) -> None:
    """Neither followed nor waited for, should the collector ever let one through."""
    path = toy.submission / "agents_outputs/c1/prediction.json"
    path.parent.mkdir(parents=True)
    (tmp_path / "secret.json").write_text('{"boxes": []}')
    {
        "link": lambda: path.symlink_to(tmp_path / "secret.json"),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }[kind]()
    verdict = toy.check()["c1"]
    assert (verdict.completed, [problem.code for problem in verdict.problems]) == (False, ["not_a_file"])


def test_aliases_are_accepted_upstream_names_are_not(tmp_path: Path) -> None:
    """A card's aliases belong to the contract, its ``source`` names to staging alone."""
    targets = [Target(id=0, name="rbc", source="7", aliases=["Erythrocyte"])]
    card = make_card("rbc").model_copy(update={"targets": targets})
    toy = Toy(tmp_path, {"c1": [box("rbc", *A)], "c2": []}, card)
    toy.submit("c1", [RIGHT | {"class": "erythrocyte"}])
    toy.submit("c2", [RIGHT | {"class": "7"}])
    assert [each.status for each in toy.check().values()] == ["valid", "malformed"]
    assert toy.score().groups["rbc"]["tp"] == 1


def test_one_spelling_for_two_classes(tmp_path: Path) -> None:
    """The card is refused, not read one way or the other."""
    targets = [Target(id=0, name="rbc", aliases=["cell"]), Target(id=1, name="wbc", aliases=["Cell"])]
    with pytest.raises(ConfigError, match="'cell' means both 'rbc' and 'wbc'"):
        detection.check(make_card().model_copy(update={"targets": targets}), make_manifest(["c1"]), tmp_path)


def test_problems_stay_few(toy: Toy) -> None:
    """300 000 bad boxes are one problem that counts them."""
    toy.submit("c1", b'{"boxes": [' + b"1," * 300_000 + b"1]}")
    verdict = toy.check()["c1"]
    assert verdict.dropped == 300_001
    assert [problem.message for problem in verdict.problems] == [
        "boxes[0] is 1, not an object; it is dropped (and 300000 more)"
    ]


# --- score ----------------------------------------------------------------------------------------------------


def test_nothing_submitted(toy: Toy) -> None:
    """All truth boxes are misses; what cannot be divided is null."""
    score = toy.score()
    assert score.quality == 0
    assert (score.metrics["fn"], score.metrics["micro_precision"], score.metrics["micro_recall"]) == (3, None, 0)


def test_everything_right(toy: Toy) -> None:
    """1 for every class with truth; a class without truth has no AP and does not enter the mean."""
    for case, boxes in TRUTH.items():
        toy.submit(case, [each | {"score": 0.5} for each in boxes])
    score = toy.score()
    assert score.quality == score.metrics["map50"] == score.metrics["map50_95"] == score.metrics["micro_f1"] == 1
    assert score.groups["platelets"] == {
        "ap50": None, "n_truth": 0, "n_predictions": 0, "tp": 0, "fp": 0, "fn": 0,
        "precision": None, "recall": None, "f1": None,
    }  # fmt: skip
    assert score.groups["rbc"]["ap50"] == score.groups["wbc"]["ap50"] == 1


def test_a_missing_image_is_misses(toy: Toy) -> None:
    """Only c1: rbc finds 1 of 2 (AP 51/101), wbc 0 of 1."""
    toy.submit("c1", [RIGHT])
    score = toy.score()
    assert score.quality == pytest.approx((51 / 101 + 0) / 2, abs=1e-12)
    assert [case.status for case in score.cases] == ["valid", "missing"]


def test_mean_over_coco_thresholds(tmp_path: Path) -> None:
    """IoU 900/1200 = 0.75 is right at 6 of the 10 thresholds."""
    toy = Toy(tmp_path, {"c1": [box("rbc", 0, 0, 30, 30)]}, make_card("rbc"))
    toy.submit("c1", [box("rbc", 0, 0, 40, 30, score=0.4)])
    assert (toy.score().quality, toy.score().metrics["map50_95"]) == (1, pytest.approx(0.6))


def test_class_with_predictions_only(toy: Toy) -> None:
    """A listed class without truth costs nothing in the mean, but its boxes are wrong in the micro averages."""
    for case, boxes in TRUTH.items():
        toy.submit(case, [each | {"score": 0.5} for each in boxes] + [box("platelets", *A, score=0.99)])
    score = toy.score()
    assert (score.quality, score.groups["platelets"]["fp"]) == (1, 2)
    assert score.metrics["micro_precision"] == pytest.approx(3 / 5)


def test_case_detail(toy: Toy) -> None:
    """Boxes by rank with whether they matched; truth, and which of it was found, under ``reference``."""
    toy.submit("c2", [box("rbc", *C, score=0.9), box("rbc", *B, score=0.8), {"class": "?"}])
    case = toy.score().cases[1]
    assert case.metrics == {
        "n_truth": 2, "n_predictions": 2, "tp": 1, "fp": 1, "fn": 1,
        "precision": 0.5, "recall": 0.5, "f1": 0.5, "dropped": 1,
    }  # fmt: skip
    assert [(shown["class"], shown["score"], shown["matched"]) for shown in case.detail["boxes"]] == [
        ("rbc", 0.9, False),
        ("rbc", 0.8, True),
    ]
    assert [(shown["class"], shown["x1"], shown["matched"]) for shown in case.detail["reference"]] == [
        ("rbc", 20, True),
        ("wbc", 70, False),
    ]
    assert (case.detail["width"], case.detail["height"]) == (100, 100)


def test_settings_of_the_card_count(tmp_path: Path) -> None:
    """One box per image and class, IoU from 0.8: the better-scored box is right at 0.75 only by another card."""
    truth = {"c1": [box("rbc", 0, 0, 30, 30)]}
    boxes = [box("rbc", 0, 0, 40, 30, score=0.9), box("rbc", 0, 0, 30, 30, score=0.8)]
    for number, (settings, expected) in enumerate([({}, 1), ({"iou_threshold": 0.8}, 0.5),
                                                   ({"iou_threshold": 0.8, "max_detections": 1}, 0)]):  # fmt: skip
        toy = Toy(tmp_path / str(number), truth, make_card("rbc", **settings))
        toy.submit("c1", boxes)
        assert toy.score().quality == expected


def test_best_boxes_are_kept_before_scoring(tmp_path: Path) -> None:
    """A right box on place 101 of its class does not count, although it stands first in the file."""
    toy = Toy(tmp_path, {"c1": [box("rbc", *A)]}, make_card("rbc", "wbc"))
    wrong = [box("rbc", *C, score=0.9)] * 100
    toy.submit("c1", [RIGHT | {"score": 0.1}, *wrong, *[box("wbc", *C, score=1)] * 100])
    score = toy.score()
    assert (score.quality, score.groups["rbc"]["n_predictions"], score.groups["wbc"]["n_predictions"]) == (0, 100, 100)


def test_report_can_be_written(toy: Toy) -> None:
    """No NaN anywhere, whatever was submitted."""
    toy.submit("c1", one(x1=-1e308, x2=1e308, y1=-1e308, y2=1e308))
    to_json(toy.score().model_dump(mode="json"))


# --- what is not the agent's fault ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "why"),
    [
        pytest.param({"c1": [], "c2": []}, "contains no truth box", id="no box at all"),
        pytest.param({"c1": [box("giraffe", *A)]}, "class 'giraffe' is not in the card", id="strange class"),
    ],
)
def test_useless_truth(tmp_path: Path, truth: dict[str, list[dict[str, Any]]], why: str) -> None:
    """Stops the job instead of giving everybody 0."""
    with pytest.raises(InfrastructureError, match=why):
        Toy(tmp_path, truth, make_card("rbc")).score()


# --- staging --------------------------------------------------------------------------------------------------


def voc(raw: Path, name: str, *boxes: tuple[str, int, int, int, int], mode: str = "RGB") -> None:
    """One 40 × 30 image with metadata, and its annotation."""
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (raw / "BCCD" / folder).mkdir(parents=True, exist_ok=True)
    info = PngImagePlugin.PngInfo()
    info.add_text("PatientName", name)
    Image.new(mode, (40, 30), 7).save(raw / f"BCCD/JPEGImages/{name}.png", pnginfo=info, icc_profile=b"profile")
    objects = "".join(
        f"<object><name>{kind}</name><bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax>"
        "</bndbox></object>"
        for kind, x1, y1, x2, y2 in boxes
    )
    (raw / f"BCCD/Annotations/{name}.xml").write_text(f"<annotation>{objects}</annotation>")
    with open(raw / "BCCD/ImageSets/Main/test.txt", "a") as stream:
        stream.write(f"{name}\n")


def stage(card: TaskCard, folder: Path) -> list[CaseEntry]:
    return detection.stage(card, folder / "raw", folder / "public", folder / "private")


def hashes(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """Three images: one with boxes, one of which has no area; one empty; one grey."""
    voc(tmp_path / "raw", "one", ("RBC", 1, 1, 10, 10), ("WBC", 11, 6, 20, 15), ("RBC", 5, 5, 5, 5))
    voc(tmp_path / "raw", "two")
    voc(tmp_path / "raw", "grey", ("Platelets", 3, 3, 8, 8), mode="L")
    return tmp_path


def test_stage_layout(staged: Path) -> None:
    """Public: pictures only. Private: truth per case, table, split record. Entries hold hashes and sizes."""
    entries = stage(make_card(), staged)
    cases = [entry.id for entry in entries]
    assert cases == ["bccd_0001", "bccd_0002", "bccd_0003"]
    assert list(hashes(staged / "public")) == [f"{case}/image.png" for case in cases]
    assert set(hashes(staged / "private")) == {f"{case}/boxes.json" for case in cases} | {
        "ground_truth.csv",
        "split.json",
    }
    for entry in entries:
        assert entry.geometry == {"width": 40, "height": 30}
        assert entry.inputs["image.png"].sha256 == sha256_file(staged / "public" / entry.id / "image.png")
        assert entry.private["boxes.json"].sha256 == sha256_file(staged / "private" / entry.id / "boxes.json")


def test_stage_truth_and_tables(staged: Path) -> None:
    """0-based half-open boxes with contract and upstream names; tables that tell case from source."""
    stage(make_card(), staged)
    split = json.loads((staged / "private/split.json").read_text())
    case = next(case for case, source in split["cases"].items() if source["image_id"] == "one")
    assert json.loads((staged / "private" / case / "boxes.json").read_text()) == {
        "image_id": "one",
        "width": 40,
        "height": 30,
        "boxes": [
            {"class": "rbc", "source_class": "RBC", "x1": 0, "y1": 0, "x2": 10, "y2": 10},
            {"class": "wbc", "source_class": "WBC", "x1": 10, "y1": 5, "x2": 20, "y2": 15},
        ],
    }
    assert split["boxes_per_class"] == {"platelets": 1, "rbc": 1, "wbc": 1}
    assert (split["dropped_boxes"], split["cases"][case]["dropped"], split["seed"]) == (1, 1, 42)
    with open(staged / "private/ground_truth.csv", newline="") as stream:
        rows = {row["image_id"]: row for row in csv.DictReader(stream)}
    assert rows["one"] == {"patient_id": case, "image_id": "one", "num_boxes": "2", "has_finding": "1"}
    assert (rows["two"]["num_boxes"], rows["two"]["has_finding"]) == ("0", "0")


def test_stage_pictures_are_plain(staged: Path) -> None:
    """8-bit RGB at the original size, no metadata, same pixels."""
    stage(make_card(), staged)
    for path in (staged / "public").rglob("*.png"):
        with Image.open(path) as image:
            assert (image.mode, image.size, image.info) == ("RGB", (40, 30), {})
        assert b"PatientName" not in path.read_bytes()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda raw: voc(raw, "x", ("Giraffe", 1, 1, 9, 9)), "class 'Giraffe' is not among", id="class"),
        pytest.param(lambda raw: (raw / "BCCD/JPEGImages/two.png").unlink(), "does not exist", id="image absent"),
    ],
)
def test_stage_bad_source(staged: Path, change: Any, why: str) -> None:
    """Named, and nothing is guessed."""
    change(staged / "raw")
    with pytest.raises(InfrastructureError, match=why):
        stage(make_card(), staged)


CLASSES = ["rbc", "wbc", "platelets"]
# Patient and view → number of the class it shows; None: nothing.
SEVERAL = {"p1_a": 0, "p1_b": 0, "p1_c": 1, "p2_a": 0, "p2_b": None, "p3_a": 0, "p3_b": 2, "p4_a": None, "x": 0}


def several_per_patient(folder: Path, seed: int = 42, **sampling: Any) -> TaskCard:
    """Images of four patients and one of nobody known, in YOLO's form; only p1_c and p3_b show their classes."""
    for part in ("images", "labels"):
        (folder / "raw" / part).mkdir(parents=True, exist_ok=True)
    for name, shown in SEVERAL.items():
        Image.new("L", (40, 30), 7).save(folder / f"raw/images/{name}.png")
        line = "" if shown is None else f"{shown} 0.5 0.5 0.5 0.5\n"
        (folder / f"raw/labels/{name}.txt").write_text(line)
    options = {"images": "images/*.png", "labels": "labels", "classes": CLASSES, "subject_pattern": "^(?:p[0-9]|)"}
    card = with_options(make_card(), reader="yolo_boxes", **options)
    change = {"seed": seed, "options": {"one_per_subject": True}} | sampling
    changed = card.staging.sampling.model_copy(update=change)
    return card.model_copy(update={"staging": card.staging.model_copy(update={"sampling": changed})})


@pytest.mark.parametrize("seed", range(5))
def test_stage_one_image_of_a_patient(tmp_path: Path, seed: int) -> None:
    """Whatever the order: every class is there, and so is every patient, once; an unknown patient counts as one."""
    card = several_per_patient(tmp_path, seed)
    stage(card, tmp_path)
    split = json.loads((tmp_path / "private/split.json").read_text())
    chosen = sorted(case["image_id"] for case in split["cases"].values())
    assert [name[:2] for name in chosen] == ["p1", "p2", "p3", "p4", "x"]
    assert {"p1_c", "p3_b", "p4_a", "x"} < set(chosen)
    assert all(split["boxes_per_class"].values())


def test_stage_fewer_than_patients(tmp_path: Path) -> None:
    """The count is of patients; more than there are is an error."""
    entries = stage(several_per_patient(tmp_path, count=4), tmp_path)
    assert len(entries) == 4
    with pytest.raises(InfrastructureError, match=r"asks for 6 cases, one per subject .*, but the data holds 5"):
        stage(several_per_patient(tmp_path, count=6), tmp_path)


def test_stage_without_any_box(tmp_path: Path) -> None:
    """Nothing could be scored."""
    voc(tmp_path / "raw", "one")
    with pytest.raises(InfrastructureError, match="hold no truth box"):
        stage(make_card(), tmp_path)
