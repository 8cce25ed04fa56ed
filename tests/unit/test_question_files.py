"""Tables of questions in four formats: the upstream forms, on rows made here and on the real files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys.vqa import CARD, make_raw

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.datasets.forms import tables
from automedbench.datasets.readers.question_files import question_files
from automedbench_rehearsal.making.files import parquet

SLAKE = {
    "questions": "test.json",
    "images": "imgs",
    "keys": {"id": "qid", "images": "img_name"},
    "keep": {"q_lang": "en"},
    "groups": {"modality": "modality", "location": "location", "answer_type": "answer_type"},
}
MEDXPERT = {
    "questions": "test.jsonl",
    "images": "images",
    "keys": {"answer": None, "options": "options", "label": "label"},
    "groups": {"medical_task": "medical_task", "body_system": "body_system"},
}


def card(options: dict[str, Any]) -> TaskCard:
    return CARD.model_copy(update={"staging": CARD.staging.model_copy(update={"options": options})})


def write(raw: Path, name: str, *rows: Any, images: str = "images") -> Path:
    """A file of rows (JSON Lines where it is called so) and one image for them."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    raw.mkdir(exist_ok=True)
    (raw / name).write_text("\n".join(lines) + "\n" if name.endswith("l") else f"[{','.join(lines)}]")
    (raw / images).mkdir(exist_ok=True)
    (raw / images / "a.jpg").write_bytes(b"not looked at")
    return raw


def question(**changes: Any) -> dict[str, Any]:
    return {"id": "q1", "question": "Where?", "answer": "lung", "images": "a.jpg"} | changes


PLAIN = {"questions": "test.json", "images": "images"}


def test_plain_form(tmp_path: Path) -> None:
    make_raw(tmp_path / "raw")
    questions = question_files(tmp_path / "raw", CARD)
    assert [each.id for each in questions] == ["11", "12", "13", "14", "15", "16"]
    assert [each.row for each in questions] == [0, 1, 2, 3, 4, 5]
    assert questions[2].answer == "The liver"
    assert questions[2].groups == {"organ": "ABD"}
    # Without a key for the letter, the right option is the one that equals the answer.
    assert (questions[5].label, questions[5].answer, len(questions[5].images)) == ("B", "Pneumothorax", 2)


def test_language_filter(tmp_path: Path) -> None:
    rows = [
        {"qid": 1, "question": "什么", "answer": "CT", "img_name": "x/a.jpg", "q_lang": "zh"},
        {"qid": 2, "question": "What?", "answer": "CT", "img_name": "x/a.jpg", "q_lang": "en", "modality": "CT"},
    ]
    raw = write(tmp_path / "raw", "test.json", *rows, images="imgs")
    (raw / "imgs/x").mkdir()
    (raw / "imgs/a.jpg").rename(raw / "imgs/x/a.jpg")
    (found,) = question_files(raw, card(SLAKE))
    assert (found.id, found.row, found.groups) == ("2", 1, {"modality": "CT"})


OPTION_FORMS = {
    "mapping": {"B": "two", "A": "one"},
    "texts": ["one", "two"],
    "objects": [{"letter": "A", "content": "one"}, {"letter": "B", "content": "two "}],
}


@pytest.mark.parametrize("options", OPTION_FORMS.values(), ids=OPTION_FORMS.keys())
@pytest.mark.parametrize("label", ["B", ["B"]])
def test_options(options: Any, label: Any, tmp_path: Path) -> None:
    row = question(options=options, label=label, images=[{"image_path": "a.jpg"}])
    (found,) = question_files(write(tmp_path / "raw", "test.jsonl", row), card(MEDXPERT))
    assert (found.options, found.label, found.answer) == ({"A": "one", "B": "two"}, "B", "two")


def test_line_separators_inside_a_text(tmp_path: Path) -> None:
    row = question(question="a\u2028b", options=["x", "y"], label="A")
    assert question_files(write(tmp_path / "raw", "test.jsonl", row), card(MEDXPERT))[0].question == "a\u2028b"


BAD: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "nothing": ([], {}, "contains no question"),
    "no object": ([1], {}, "not a list of objects"),
    "no question": ([question(question=" ")], {}, "has no question"),
    "no answer": ([question(answer=None)], {}, "has no answer"),
    "answer is true": ([question(answer=True)], {}, "has no answer"),
    "id twice": ([question(), question()], {}, "have the same id 'q1'"),
    "no image named": ([question(images=[])], {}, "names no image"),
    "image outside": ([question(images="../../etc/passwd")], {}, "leaves the folder"),
    "one option": ([question(o={"A": "x"})], {"options": "o"}, "at least two texts"),
    "letter twice": (
        [question(o=[{"letter": "A", "content": "x"}, {"letter": "A", "content": "y"}])],
        {"options": "o"},
        "at least two texts",
    ),
    "option without text": ([question(o=["x", ""])], {"options": "o"}, "at least two texts"),
    "too many options": ([question(o=["x"] * 27)], {"options": "o"}, "at least two texts"),
    "label of no option": ([question(o=["x", "y"], l="C")], {"options": "o", "label": "l"}, "none of its options"),
    "answer equals two options": ([question(o=["Lung", "lung"])], {"options": "o"}, "equals 2 of its options"),
    "answer equals no option": ([question(o=["x", "y"])], {"options": "o"}, "equals 0 of its options"),
}


@pytest.mark.parametrize(("rows", "keys", "message"), BAD.values(), ids=BAD.keys())
def test_bad_rows(rows: list[Any], keys: dict[str, str], message: str, tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", "test.json", *rows)
    with pytest.raises(InfrastructureError, match=message):
        question_files(raw, card(PLAIN | {"keys": keys}))


def test_absent_files(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="list of questions"):
        question_files(tmp_path, card(PLAIN))
    raw = write(tmp_path / "raw", "test.json", question(images="b.jpg"))
    with pytest.raises(MissingDataError, match=r"b\.jpg \(image of row 0"):
        question_files(raw, card(PLAIN))


def test_unreadable_file(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", "test.json")
    (raw / "test.json").write_text("[{")
    with pytest.raises(InfrastructureError, match="not a readable list"):
        question_files(raw, card(PLAIN))


# --- CSV, Parquet, several files -------------------------------------------------------------------------------

CSV = {
    "questions": "test.csv",
    "images": "images",
    "keys": {
        "id": None,
        "question": "Question",
        "answer": None,
        "images": "Figure",
        "options": {"A": "Choice A", "B": "Choice B", "C": "Choice C"},
        "label": ["Label", "Answer"],
    },
    "lettered": True,
}
HEADER = "Figure,Question,Choice A,Choice B,Choice C,Answer\n"


def csv_raw(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    raw = write(tmp_path / "raw", "test.json")
    (raw / "test.csv").write_text("\ufeff" + header + "".join(f"{line}\n" for line in lines))
    return raw


def test_csv(tmp_path: Path) -> None:
    """A byte order mark, quoted commas and line breaks, an empty choice; the row's number is the id."""
    raw = csv_raw(tmp_path, '"a.jpg","What, then?",A:one,"B:two\nlines",,B', "a.jpg,Which?,A:x,B:Why,C:z,why")
    first, second = question_files(raw, card(CSV))
    assert (first.id, first.question, first.options) == ("test.csv#0", "What, then?", {"A": "one", "B": "two\nlines"})
    assert (first.label, second.label, second.answer, second.row) == ("B", "B", "Why", 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [("a.jpg,short", "differ in length"), ("a.jpg,q,A:x,B:y,,A,more", "differ in length"), ('a.jpg,"open', "readable")],
)
def test_csv_damaged(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=message):
        question_files(csv_raw(tmp_path, line), card(CSV))


def test_csv_without_a_column(tmp_path: Path) -> None:
    raw = csv_raw(tmp_path, "a.jpg,A:x,B:y,,A", header=HEADER.replace("Question,", ""))
    with pytest.raises(InfrastructureError, match=r"row 0 has no question .key 'Question'; found Figure, Choice A"):
        question_files(raw, card(CSV))


def picture_cell(content: bytes | None) -> dict[str, Any]:
    return {"bytes": content, "path": None}


PARQUET = {"questions": "data/*.parquet", "keys": {"id": None, "images": ["image_1", "image_2"], "origin": "video"}}


def parquet_raw(tmp_path: Path) -> Path:
    raw = tmp_path / "raw"
    (raw / "data").mkdir(parents=True)
    rows = [
        {"question": "<image 2>?", "answer": "x", "image_1": None, "image_2": picture_cell(b"2"), "video": "v"},
        {"question": "What?", "answer": "y", "image_1": picture_cell(b"1"), "image_2": picture_cell(b"2"), "video": ""},
    ]
    (raw / "data/b.parquet").write_bytes(parquet(rows))
    (raw / "data/a.parquet").write_bytes(parquet([rows[1] | {"image_2": picture_cell(None)}]))
    (raw / "data/._a.parquet").write_bytes(b"left by an archive program")
    return raw


def test_parquet(tmp_path: Path) -> None:
    """Files by name, rows counted over all of them; empty cells and empty records are no images."""
    found = question_files(parquet_raw(tmp_path), card(PARQUET))
    assert [(each.id, each.row) for each in found] == [
        ("data/a.parquet#0", 0),
        ("data/b.parquet#0", 1),
        ("data/b.parquet#1", 2),
    ]
    assert [[image.read() for image in each.images] for each in found] == [[b"1"], [b"2"], [b"1", b"2"]]
    assert found[1].question == "<image 1>?"
    assert found[1].images[0].short == "b.parquet#0/image_2"
    assert found[1].shows == {"v"} and found[2].shows == {image.name for image in found[2].images}


def test_parquet_binary_column(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/q.parquet").write_bytes(parquet([{"question": "Where?", "answer": "lung", "picture": b"1"}]))
    options = {"questions": "q.parquet", "keys": {"id": None, "images": "picture"}}
    assert question_files(tmp_path / "raw", card(options))[0].images[0].read() == b"1"


def test_parquet_cells_are_read_in_blocks(tmp_path: Path) -> None:
    """Whoever goes through the rows reads no block twice; any other order gives the same pictures."""
    n_rows = 2 * tables.BLOCK_ROWS + 1
    names = [f"{table}.parquet" for table in "abc"]
    columns = ["image_1", "image_2", "image_3"]
    (tmp_path / "raw").mkdir()
    for name in names:
        rows = [
            {"question": "Where?", "answer": "x"} | {column: f"{name} {row} {column}".encode() for column in columns}
            for row in range(n_rows)
        ]
        (tmp_path / "raw" / name).write_bytes(parquet(rows))
    options = {"questions": "*.parquet", "keys": {"id": None, "images": columns}}
    pictures = [image for question in question_files(tmp_path / "raw", card(options)) for image in question.images]
    tables._contents.cache_clear()
    expected = [f"{name} {row} {column}".encode() for name in names for row in range(n_rows) for column in columns]
    assert [picture.read() for picture in pictures] == expected
    assert tables._contents.cache_info().misses == 3 * len(names)
    assert [picture.read() for picture in pictures[::-7]] == expected[::-7]


def test_parquet_damaged(tmp_path: Path) -> None:
    raw = parquet_raw(tmp_path)
    whole = (raw / "data/b.parquet").read_bytes()
    (raw / "data/b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InfrastructureError, match=r"b\.parquet: is not a readable Parquet file"):
        question_files(raw, card(PARQUET))


def test_picture_that_is_gone(tmp_path: Path) -> None:
    """The table changed after it was read: an error that names row and column, no crash."""
    raw = parquet_raw(tmp_path)
    picture = question_files(raw, card(PARQUET))[0].images[0]
    (raw / "data/a.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(InfrastructureError, match=r"a\.parquet#0/image_1: is not a readable image"):
        picture.read()


def test_several_files_in_the_order_of_the_card(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", "b.json", question())
    write(raw, "a.json", question(id="q2"))
    found = question_files(raw, card(PLAIN | {"questions": ["b.json", "a.json"]}))
    assert [(each.id, each.row) for each in found] == [("q1", 0), ("q2", 1)]
    with pytest.raises(MissingDataError, match=r"c\*\.json .list of questions. does not exist"):
        question_files(raw, card(PLAIN | {"questions": ["b.json", "c*.json"]}))


# --- images, and rows that are left out ------------------------------------------------------------------------


def test_images_by_name(tmp_path: Path) -> None:
    """Wherever the archive put them; a name that is there twice cannot be told."""
    raw = write(tmp_path / "raw", "test.json", question(images=["a.jpg"]))
    (raw / "images/deep").mkdir()
    (raw / "images/a.jpg").rename(raw / "images/deep/a.jpg")
    (found,) = question_files(raw, card(PLAIN | {"by_name": True}))
    assert found.images[0].short == "deep/a.jpg"
    (raw / "images/a.jpg").touch()
    with pytest.raises(InfrastructureError, match="an image that there is twice"):
        question_files(raw, card(PLAIN | {"by_name": True}))


def test_left_out_and_counted(tmp_path: Path) -> None:
    """Only for the reasons that the card names."""
    whole = io.BytesIO()
    Image.new("L", (8, 8)).save(whole, "PNG")
    rows = [
        question(),
        question(id="q2", images="absent.jpg"),
        question(id="q3", images=None),
        question(id="q4", images="b.png", answer=" "),
        question(id="q5", images="b.png"),
    ]
    raw = write(tmp_path / "raw", "test.json", *rows)
    (raw / "images/b.png").write_bytes(whole.getvalue())
    found = question_files(raw, card(PLAIN | {"leave_out": ["image", "broken_image", "answer"]}))
    assert [each.id for each in found] == ["q5"]
    assert found.left_out == {"broken_image": 1, "image": 2, "answer": 1}
    with pytest.raises(InfrastructureError, match="row 3 has no answer"):
        question_files(raw, card(PLAIN | {"leave_out": ["image"]}))


def test_nothing_but_left_out(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", "test.json", question(images=None))
    with pytest.raises(InfrastructureError, match=r"contains no question.*left out: {'image': 1}"):
        question_files(raw, card(PLAIN | {"leave_out": ["image"]}))


def test_question_without_text_is_never_left_out(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", "test.json", question(question=None))
    with pytest.raises(InfrastructureError, match="has no question"):
        question_files(raw, card(PLAIN | {"leave_out": ["image", "answer", "options", "label"]}))
