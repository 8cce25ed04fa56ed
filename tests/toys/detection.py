"""Detection's toy: four smears of 100 × 100 pixels, each with one red and one white cell at a place of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from automedbench.base.cards import Target, TaskCard, load_card
from automedbench.base.files import write_bytes
from automedbench.base.records import Manifest
from automedbench.tracks.common.cases import case_output
from toys import Hostile, files, holding, no_files
from toys._bench import manifest_of

ROOT = Path(__file__).resolve().parents[2]
CARD: TaskCard = load_card(ROOT / "config/tasks/detection/bccd-det-task.yaml")
SIZE = 100
MAX_BYTES = CARD.outputs[0].max_bytes
CEILING = 1.0
# Two of the four images: every class has AP 51/101 (recall 0.5 reaches 51 of 101 recall points), completion is 1/2.
HALF = 51 / 202
RESOURCES: dict[str, Path] = {}


def make_raw(raw: Path) -> None:
    """Pascal VOC with four images of the official test list."""
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (raw / "BCCD" / folder).mkdir(parents=True)
    names = [f"BloodImage_{number:05d}" for number in range(4)]
    for number, name in enumerate(names):
        Image.new("RGB", (SIZE, SIZE), (200, 10 * number, 90)).save(raw / f"BCCD/JPEGImages/{name}.jpg")
        cells = _voc("RBC", 5 + number, 30) + _voc("WBC", 50 + number, 40)
        (raw / f"BCCD/Annotations/{name}.xml").write_text(f"<annotation>{cells}</annotation>")
    (raw / "BCCD/ImageSets/Main/test.txt").write_text("".join(f"{name}\n" for name in names))


def _voc(name: str, corner: int, side: int) -> str:
    low, high = corner + 1, corner + side  # 1-based, inclusive
    corners = f"<xmin>{low}</xmin><ymin>{low}</ymin><xmax>{high}</xmax><ymax>{high}</ymax>"
    return f"<object><name>{name}</name><bndbox>{corners}</bndbox></object>"


def perfect(
    manifest: Manifest, public: Path, private: Path, cases: list[str], card: TaskCard = CARD
) -> dict[str, bytes]:
    """The truth boxes, each with a score."""
    path = case_output(card, "json").path
    return {path.replace("{case}", case): _answer(private / case / "boxes.json") for case in cases}


def _answer(truth: Path) -> bytes:
    boxes = json.loads(truth.read_bytes())["boxes"]
    kept = ("class", "x1", "y1", "x2", "y2")
    return json.dumps({"boxes": [{**{key: box[key] for key in kept}, "score": 0.9} for box in boxes]}).encode()


# --- bad files: id, content, code -----------------------------------------------------------------------------

RIGHT = {"class": "rbc", "score": 0.9, "x1": 10, "y1": 10, "x2": 40, "y2": 40}
HUGE = "1" * 100_000


def one(**changes: Any) -> bytes:
    """A file with one right box, changed."""
    return json.dumps({"boxes": [RIGHT | changes]}).encode()


def raw_box(**changes: str) -> bytes:
    """The same with values written as they stand."""
    values = {"class": '"rbc"', "score": "0.9", "x1": "10", "y1": "10", "x2": "40", "y2": "40"} | changes
    return ('{"boxes": [{' + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}]}").encode()


def without(key: str) -> bytes:
    """A file whose one box lacks a key."""
    return json.dumps({"boxes": [{name: value for name, value in RIGHT.items() if name != key}]}).encode()


# The whole file is lost.
NOT_COMPLETED: list[tuple[str, bytes, str]] = [
    ("empty file", b"", "json_parse"),
    ("not JSON", b"{boxes: [}", "json_parse"),
    ("text behind", b'{"boxes": []} tail', "json_parse"),
    ("a PNG", b"\x89PNG\r\n\x1a\n" + bytes(40), "not_utf8"),
    ("zero bytes", bytes(1000), "json_parse"),
    ("top level is a list", b"[]", "not_an_object"),
    ("top level is null", b"null", "not_an_object"),
    ("top level is a number", b"1e400", "not_an_object"),
    ("no boxes", b"{}", "no_boxes_list"),
    ("boxes is an object", b'{"boxes": {}}', "no_boxes_list"),
    ("boxes is null", b'{"boxes": null}', "no_boxes_list"),
    ("UTF-16", '{"boxes": []}'.encode("utf-16"), "not_utf8"),
    ("not UTF-8", b'{"boxes": [{"class": "\xff"}]}', "not_utf8"),
    ("boxes twice", b'{"boxes": [], "boxes": []}', "duplicate_key"),
    ("class twice", b'{"boxes": [{"class": "rbc", "class": "wbc"}]}', "duplicate_key"),
    ("lists 200 000 deep", b'{"boxes": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "too_deep"),
    ("objects without end", b'{"a":' * 100_000, "too_deep"),
]
# The file is read, the box is left out.
DROPPED: list[tuple[str, bytes, str]] = [
    ("box is a list", b'{"boxes": [[10, 10, 40, 40]]}', "box_not_object"),
    ("box is null", b'{"boxes": [null]}', "box_not_object"),
    ("no class", without("class"), "bad_class"),
    ("empty class", one(**{"class": ""}), "bad_class"),
    ("class is a number", one(**{"class": 3}), "bad_class"),
    ("class is a list", one(**{"class": ["rbc"]}), "bad_class"),
    ("no wild card", one(**{"class": "abnormality"}), "bad_class"),
    ("lone surrogate", raw_box(**{"class": '"\\ud800"'}), "bad_class"),
    ("no x1", without("x1"), "missing_key"),
    ("text for a coordinate", one(x1="10"), "not_numeric"),
    ("null coordinate", one(x1=None), "not_numeric"),
    ("booleans", one(x1=False, y1=False, x2=True, y2=True), "not_numeric"),
    ("NaN coordinate", raw_box(x1="NaN"), "not_numeric"),
    ("infinite coordinate", raw_box(x2="Infinity"), "not_numeric"),
    ("overflowing coordinate", raw_box(x2="1e999"), "not_numeric"),
    ("integer of 100 000 digits", raw_box(x2=HUGE), "not_numeric"),
    ("negative integer of 100 000 digits", raw_box(x1="-" + HUGE), "not_numeric"),
    ("inverted", one(x1=40, x2=10), "non_positive_size"),
    ("no height", one(y2=10), "non_positive_size"),
    ("score null", one(score=None), "bad_score"),
    ("score is text", one(score="0.9"), "bad_score"),
    ("score is a boolean", one(score=True), "bad_score"),
    ("score NaN", raw_box(score="NaN"), "bad_score"),
    ("score infinite", raw_box(score="-Infinity"), "bad_score"),
]
# The file is invalid, the box is scored.
REMARKED: list[tuple[str, bytes, str]] = [
    ("no score: counts as 1", without("score"), "missing_score"),
    ("score above 1", one(score=1.5), "score_out_of_range"),
    ("score below 0", one(score=-0.1), "score_out_of_range"),
    ("left of the image", one(x1=-1), "out_of_bounds"),
    ("right of the image", one(x2=100.5), "out_of_bounds"),
    ("beyond rounding", one(x2=100.011), "out_of_bounds"),
    ("below the image", one(y1=100, y2=120), "out_of_bounds"),
    ("as large as numbers get", one(x1=-1e308, x2=1e308, y1=-1e308, y2=1e308), "out_of_bounds"),
    ("integer of 299 digits", raw_box(x2="1" * 299), "out_of_bounds"),
]
# As large as the card allows, so that reading them is the most work there is.
LARGE: list[tuple[str, bytes, str]] = [
    ("600 000 boxes that are none", b'{"boxes": [' + b"1," * 600_000 + b"1]}", "box_not_object"),
    ("20 000 boxes outside", b'{"boxes": [' + b", ".join([one(x2=200)[11:-2]] * 20_000) + b"]}", "out_of_bounds"),
    ("a number of 1 900 000 digits", raw_box(x1="1" * 1_900_000), "not_numeric"),
    ("a fraction of 1 900 000 digits", raw_box(x1="-0." + "1" * 1_900_000), "out_of_bounds"),
]


PATH = "{case}/prediction.json"
HOSTILE: list[Hostile] = [
    *files(PATH, "malformed", NOT_COMPLETED, DROPPED, REMARKED, LARGE),
    *no_files(PATH, one(), larger_than_the_card_allows=holding(b'{"boxes": []}' + b" " * MAX_BYTES)),
]


# --- cases written down by hand -------------------------------------------------------------------------------


def make_card(*classes: str, **settings: Any) -> TaskCard:
    """The BCCD card, with other classes and metric settings where given."""
    card = CARD
    if classes:
        targets = [Target(id=number, name=name) for number, name in enumerate(classes)]
        card = card.model_copy(update={"targets": targets})
    return card.model_copy(update={"metric": card.metric.model_copy(update={"settings": settings})})


def box(name: str, *corners: float, score: float | None = None) -> dict[str, Any]:
    """One box as it stands in a truth or prediction file."""
    return {"class": name, **dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True))} | (
        {} if score is None else {"score": score}
    )


def write_truth(private: Path, truth: dict[str, list[dict[str, Any]]]) -> Manifest:
    """``private/<case>/boxes.json`` of each case, and the manifest."""
    for case, boxes in truth.items():
        record = {"image_id": f"source-{case}", "width": SIZE, "height": SIZE, "boxes": boxes}
        write_bytes(private / case / "boxes.json", json.dumps(record).encode())
    return make_manifest(list(truth))


def make_manifest(cases: list[str]) -> Manifest:
    """A manifest of cases of the toy's size."""
    return manifest_of("detection", {case: {"width": SIZE, "height": SIZE} for case in cases})


def submit(submission: Path, case: str, content: Any) -> None:
    """A collected ``prediction.json``: bytes as they are, anything else as JSON (a list means its boxes)."""
    data = (
        content
        if isinstance(content, bytes)
        else json.dumps({"boxes": content} if isinstance(content, list) else content).encode()
    )
    write_bytes(submission / "agents_outputs" / case / "prediction.json", data)
