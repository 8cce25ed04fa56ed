"""Questions in JSON and JSON Lines: three upstream forms, on rows made here and on the real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toys.vqa import CARD, make_raw

from automedbench.cards import TaskCard, load_card
from automedbench.datasets.readers.question_files import read
from automedbench.errors import ConfigError, InfrastructureError, MissingDataError

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
    questions = read(tmp_path / "raw", CARD)
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
    (found,) = read(raw, card(SLAKE))
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
    (found,) = read(write(tmp_path / "raw", "test.jsonl", row), card(MEDXPERT))
    assert (found.options, found.label, found.answer) == ({"A": "one", "B": "two"}, "B", "two")


def test_line_separators_inside_a_text(tmp_path: Path) -> None:
    row = question(question="a\u2028b", options=["x", "y"], label="A")
    assert read(write(tmp_path / "raw", "test.jsonl", row), card(MEDXPERT))[0].question == "a\u2028b"


BAD: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "nothing": ([], {}, "holds no question"),
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
        read(raw, card(PLAIN | {"keys": keys}))


def test_absent_files(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="list of questions"):
        read(tmp_path, card(PLAIN))
    raw = write(tmp_path / "raw", "test.json", question(images="b.jpg"))
    with pytest.raises(MissingDataError, match=r"b\.jpg \(image of row 0"):
        read(raw, card(PLAIN))


def test_unreadable_file(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw", "test.json")
    (raw / "test.json").write_text("[{")
    with pytest.raises(InfrastructureError, match="not a readable list"):
        read(raw, card(PLAIN))


def test_misspelt_option() -> None:
    with pytest.raises(ConfigError, match="did you mean 'questions'"):
        read(Path("raw"), card({"question": "x", "images": "y"}))


# --- the real files; numbers from their SOURCE.md --------------------------------------------------------------


def placeholders(folder: Path, names: set[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_vqa_rad(shared: Path, root: Path) -> None:
    questions = read(shared / "data/vqa_rad", load_card(root / "config/tasks/vqa/vqa-rad-task.yaml"))
    types = [each.groups["answer_type"] for each in questions]
    assert (len(questions), types.count("CLOSED"), types.count("OPEN")) == (451, 272, 179)
    assert len({each.images for each in questions}) == 203


def test_slake(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/slake/test.json"
    placeholders(tmp_path / "imgs", {row["img_name"] for row in json.loads(source.read_text())})
    (tmp_path / "test.json").symlink_to(source)
    questions = read(tmp_path, card(SLAKE))
    types = [each.groups["answer_type"] for each in questions]
    assert (len(questions), types.count("OPEN"), types.count("CLOSED")) == (1061, 645, 416)


def test_medxpertqa(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/medxpertqa_mm/medxpertqa_mm_input.jsonl"
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    placeholders(tmp_path / "images", {image["image_path"] for row in rows for image in row["images"]})
    (tmp_path / "test.jsonl").symlink_to(source)
    questions = read(tmp_path, card(MEDXPERT))
    assert [each.id for each in questions] == [f"MM-{number}" for number in range(2000)]
    assert {tuple(each.options) for each in questions} == {tuple("ABCDE")}
    assert sum(len(each.images) == 1 for each in questions) == 1581
    assert {len(each.images) for each in questions} <= set(range(1, 7))
