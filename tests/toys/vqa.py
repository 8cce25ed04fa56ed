"""A tiny VQA task: two images, questions of every kind, and what can go wrong with a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin

from automedbench.base.cards import (
    DataSet,
    InputFile,
    LiteModel,
    Medal,
    Metric,
    OutputFile,
    Sampling,
    Source,
    Staging,
    TaskCard,
    TierBriefs,
)
from automedbench.base.records import Manifest
from automedbench.tracks.common.cases import case_output
from toys import Hostile, Write, at, holding, no_files

ROWS: list[dict[str, Any]] = [
    {"qid": 11, "image_name": "a.jpg", "question": "Is there a mass?", "answer": "Yes", "image_organ": "CHEST"},
    {"qid": 12, "image_name": "a.jpg", "question": "Is the heart enlarged?", "answer": "no", "image_organ": "CHEST"},
    {
        "qid": 13,
        "image_name": "b.png",
        "question": "Which organ?",
        "answer": "The liver",
        "image_organ": "ABD",
    },
    {"qid": 14, "image_name": "b.png", "question": "How many lesions?", "answer": "three", "image_organ": "ABD"},
    {
        "qid": 15,
        "image_name": "a.jpg",
        "question": "Where is it?",
        "answer": "right upper lobe",
        "image_organ": "CHEST",
    },
    {
        "qid": 16,
        "image_name": ["a.jpg", "b.png"],
        "question": "Which finding fits both images?",
        "answer": "Pneumothorax",
        "choices": {"A": "Pneumonia", "B": "Pneumothorax", "C": "Effusion", "D": "Normal"},
        "image_organ": "CHEST",
    },
]

CARD = TaskCard(
    id="toy-vqa-task",
    version=1,
    track="vqa",
    title="Toy VQA",
    modality="X-ray",
    unit="question",
    description="Answer questions about two small images.",
    dataset=DataSet(
        name="toy-vqa",
        title="Toy",
        access="public",
        licence="CC0",
        attribution="none",
        redistribution="redistributable",
        sources=[Source(kind="path", where="raw")],
        how_to_get="made by the tests",
    ),
    staging=Staging(
        reader="question_files",
        options={
            "questions": "testset.json",
            "images": "images",
            "keys": {"id": "qid", "images": "image_name", "options": "choices"},
            "groups": {"organ": "image_organ"},
        },
        sampling=Sampling(rule="all", split="test"),
        case_prefix="toy",
    ),
    inputs=[
        InputFile(file="question.json", format="JSON", description="the question"),
        InputFile(file="image_1.jpg", format="JPEG", description="its image"),
    ],
    outputs=[OutputFile(path="{case}/answer.json", format="json", max_bytes=1_048_576, description="the answer")],
    metric=Metric(name="answer_score"),
    medals=[Medal(name="good", at_least={"answer_score": 0.4}), Medal(name="okay", at_least={"answer_score": 0.25})],
    briefs=TierBriefs(lite_model=LiteModel(name="none")),
)
CEILING = 1.0
HALF = None
RESOURCES: dict[str, Path] = {}


def make_raw(raw: Path) -> None:
    """``testset.json`` and two images of different forms, one with metadata that must not get out."""
    (raw / "images").mkdir(parents=True)
    exif = Image.Exif()
    exif[0x010E] = "SECRET-DIAGNOSIS"
    Image.new("L", (24, 16), 90).save(raw / "images/a.jpg", exif=exif, comment="SECRET-DIAGNOSIS")
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "SECRET-DIAGNOSIS")
    Image.new("RGBA", (20, 30), (200, 10, 10, 255)).save(raw / "images/b.png", pnginfo=text)
    (raw / "testset.json").write_text(json.dumps(ROWS))


def record(case: str, **changes: Any) -> dict[str, Any]:
    """A well-formed record of an open question; ``changes`` replace keys, None as a value included."""
    return {
        "question_id": case,
        "predicted_label": "",
        "predicted_answer": "liver",
        "raw_model_output": "It is the liver.",
        "model_name": "toy",
        "runtime_s": 0.5,
    } | changes


def perfect(
    manifest: Manifest, public: Path, private: Path, cases: list[str], card: TaskCard = CARD
) -> dict[str, bytes]:
    """The gold answer of every case."""
    files, path = {}, case_output(card, "json").path
    for case in cases:
        truth = json.loads((private / case / "answer.json").read_text())
        answer, label = truth["answer_text"], truth["answer_label"] or ""
        value = record(case, predicted_label=label, predicted_answer=answer, raw_model_output=f"It is {answer}.")
        files[path.replace("{case}", case)] = json.dumps(value).encode()
    return files


# --- hostile outputs ------------------------------------------------------------------------------------------

PATH = "{case}/answer.json"


def raw_bytes(data: bytes) -> Write:
    """The file as these bytes."""
    return at(PATH, holding(data))


def changed(**changes: Any) -> Write:
    """A good record (right letter for multiple choice) with these keys replaced; ``...`` takes a key away."""

    def write(outputs: Path, case: str, manifest: Manifest, public: Path) -> None:
        options = next(entry.geometry["options"] for entry in manifest.cases if entry.id == case)
        letter = next(iter(options), "")
        value = record(case, predicted_label=letter, predicted_answer=options.get(letter, "liver")) | changes
        value = {key: item for key, item in value.items() if item is not ...}
        raw_bytes(json.dumps(value).encode())(outputs, case, manifest, public)

    return write


DEEP = b"[" * 100_000 + b"]" * 100_000
HOSTILE: list[Hostile] = [
    Hostile("zero bytes", raw_bytes(b""), "malformed", "json_parse"),
    Hostile("cut in the middle", raw_bytes(b'{"question_id": "toy_00'), "malformed", "json_parse"),
    Hostile("null", raw_bytes(b"null"), "malformed", "not_an_object"),
    Hostile("a number", raw_bytes(b"42"), "malformed", "not_an_object"),
    Hostile("NaN", raw_bytes(b"NaN"), "malformed", "not_an_object"),
    Hostile("a text", raw_bytes(b'"yes"'), "malformed", "not_an_object"),
    Hostile("a list of records", raw_bytes(json.dumps([record("x")]).encode()), "malformed", "not_an_object"),
    Hostile("a list of the keys", raw_bytes(json.dumps(list(record("x"))).encode()), "malformed", "not_an_object"),
    Hostile("nested a hundred thousand deep", raw_bytes(DEEP), "malformed", "too_deep"),
    Hostile("number of a million digits", raw_bytes(b"9" * 1_000_000), "malformed", "not_an_object"),
    Hostile("UTF-16", raw_bytes('{"a": 1}'.encode("utf-16")), "malformed", "not_utf8"),
    Hostile("Latin-1", raw_bytes('{"predicted_answer": "œdème"}'.encode("cp1252")), "malformed", "not_utf8"),
    Hostile("gzip", raw_bytes(b"\x1f\x8b\x08\x00\x00\x00"), "malformed", "not_utf8"),
    Hostile("pickle", raw_bytes(b"\x80\x04K\x01."), "malformed", "not_utf8"),
    Hostile("same key twice", raw_bytes(b'{"question_id": 1, "question_id": 2}'), "malformed", "duplicate_key"),
    Hostile("empty object", raw_bytes(b"{}"), "malformed", "missing_key"),
    Hostile("no raw output", changed(raw_model_output=...), "malformed", "missing_key"),
    Hostile("no label key", changed(predicted_label=...), "malformed", "missing_key"),
    Hostile("answer is null", changed(predicted_answer=None), "malformed", "wrong_type"),
    Hostile("answer is true", changed(predicted_answer=True), "malformed", "wrong_type"),
    Hostile("answer is a list", changed(predicted_answer=["yes", "no"]), "malformed", "wrong_type"),
    Hostile("raw output is a number", changed(raw_model_output=5), "malformed", "wrong_type"),
    Hostile("answer of 3 KiB", changed(predicted_answer="lung " * 600), "malformed", "answer_too_long"),
    Hostile("answer without output", changed(raw_model_output=" "), "malformed", "placeholder"),
    Hostile("output says heuristic", changed(raw_model_output="Heuristic: liver"), "malformed", "placeholder"),
    Hostile(
        "output is a traceback",
        changed(raw_model_output="Traceback (most recent call last):\n ..."),
        "malformed",
        "placeholder",
    ),
    Hostile("output null, answer given", changed(raw_model_output="null"), "malformed", "placeholder"),
    Hostile(
        "both texts and label empty",
        changed(predicted_answer="", raw_model_output="", predicted_label=""),
        "malformed",
        "skipped",
    ),
    Hostile("record of another question", changed(question_id="toy_9999"), "malformed", "wrong_id"),
    Hostile("no model name", changed(model_name=...), "malformed", "model_name"),
    Hostile("model name is a number", changed(model_name=7), "malformed", "model_name"),
    Hostile("time is NaN", changed(runtime_s=float("nan")), "malformed", "runtime"),
    Hostile("time is true", changed(runtime_s=True), "malformed", "runtime"),
    Hostile("time is negative", changed(runtime_s=-1), "malformed", "runtime"),
    Hostile("time beyond any float", changed(runtime_s=10**400), "malformed", "runtime"),
    Hostile("raw output of 100 KiB is cut", changed(raw_model_output="x" * 100_000), "valid", "raw_too_long"),
    Hostile("lone surrogate in the output", changed(raw_model_output="\ud800 it is"), "valid", None),
    Hostile("further keys", changed(extra={"a": [1]}), "valid", None),
    *no_files(PATH, b"{}", answer_of_10_MB=holding(b'{"predicted_answer": "' + b"a" * 10_000_000 + b'"}')),
]
