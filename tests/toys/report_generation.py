"""Report generation's toy: four invented studies of ten words each, a table in JSONL, and hostile report files."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

from PIL import Image

from automedbench.base.cards import TaskCard
from automedbench.base.records import Manifest
from automedbench.tracks.common.cases import case_output
from toys import Hostile, Write, at, holding, no_files

ROOT = Path(__file__).resolve().parents[2]
RESOURCES = {"wordnet": ROOT / "demo/data/wordnet"}
# Ten words each: BLEU and ROUGE-L of the same text are 1, METEOR is 1 - 0.5 / 10³.
CEILING = (1 + (1 - 0.5 / 10**3) + 1) / 3
HALF = None

FINDINGS = {
    "s1": "The lungs are clear. The heart is normal in size.",
    "s2": "A small left pleural effusion is present. No pneumothorax seen.",
    "s3": "The heart is enlarged. The lungs are clear. No effusion.",
    "s4": "A focal opacity is seen in the right lower lung.",
}


def make_card() -> TaskCard:
    """The toy's card: three text metrics, so that no checkpoint is needed."""
    return TaskCard.model_validate(
        {
            "id": "toy-report-task",
            "version": 1,
            "track": "report_generation",
            "title": "Toy reports",
            "modality": "Chest X-ray",
            "unit": "study",
            "description": "Write the findings of each study.",
            "dataset": {
                "name": "toy_reports",
                "title": "Toy reports",
                "access": "public",
                "licence": "MIT",
                "attribution": "ours",
                "redistribution": "redistributable",
                "sources": [{"kind": "manual", "where": "made by the tests"}],
                "how_to_get": "make_raw writes it",
            },
            "staging": {
                "reader": "report_folders",
                "options": {
                    "table": "reports.jsonl",
                    "images": "images",
                    "columns": {
                        "study": "study",
                        "subject": "patient",
                        "image": "files",
                        "findings": "findings",
                        "impression": "impression",
                    },
                },
                "sampling": {"rule": "all with findings"},
                "case_prefix": "toy",
            },
            "inputs": [
                {"file": "manifest.json", "format": "JSON", "description": "the images of the study"},
                {"file": "images/01.png", "format": "PNG", "description": "first image"},
                {"file": "images/02.jpg", "format": "JPEG", "description": "second image, where there is one"},
            ],
            "outputs": [
                {"path": "{case}/report.txt", "format": "txt", "max_bytes": 100_000, "description": "the findings"}
            ],
            "metric": {"name": "report_score", "settings": {"components": ["BLEU", "METEOR", "ROUGE_L"]}},
            "medals": [{"name": "good", "at_least": {"report_score": 0.8}}],
            "briefs": {"lite_model": {"name": "none"}},
        }
    )


CARD = make_card()


def make_raw(raw: Path) -> None:
    """Four studies with findings, one of them with two images, and a fifth without findings that is left out."""
    (raw / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (study, findings) in enumerate({**FINDINGS, "s5": ""}.items(), start=1):
        names = [f"{study}_a.png", *([f"{study}_b.jpg"] if number == 2 else [])]
        for shade, name in enumerate(names):
            Image.new("L", (12, 10), 20 * number + shade).save(raw / "images" / name)
        rows.append(
            {
                "study": study,
                "patient": f"p{number}",
                "files": ";".join(names),
                "findings": findings,
                "impression": "Nothing new.",
            }
        )
    (raw / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def perfect(
    manifest: Manifest, public: Path, private: Path, cases: list[str], card: TaskCard = CARD
) -> dict[str, bytes]:
    """The references themselves, their headings included."""
    path = case_output(card, "txt").path
    return {path.replace("{case}", case): (private / case / "report.txt").read_bytes() for case in cases}


# --- hostile files ---------------------------------------------------------------------------------------------

GOOD = FINDINGS["s1"]
PATH = "{case}/report.txt"


def holds(content: bytes) -> Write:
    """A file with this content."""
    return at(PATH, holding(content))


def says(text: str) -> Write:
    return holds(text.encode())


HOSTILE = [
    Hostile("no bytes", holds(b""), "malformed", "empty_after_strip"),
    Hostile("39 characters", says("a" * 39), "malformed", "too_short"),
    Hostile("8001 characters", says("ab " * 2667), "malformed", "too_long"),
    Hostile("blanks only", says(" " * 60), "malformed", "empty_after_strip"),
    Hostile("line breaks only", says("\r\n" * 60), "malformed", "empty_after_strip"),
    Hostile("digits only", says("0123456789" * 6), "malformed", "too_few_alpha_chars"),
    Hostile("19 letters among digits", says("a" * 19 + "1" * 41), "malformed", "too_few_alpha_chars"),
    Hostile("invisible joiners", says("\u200d" * 60), "malformed", "too_few_alpha_chars"),
    Hostile("NUL in the text", says(GOOD + "\0"), "malformed", "non_printable_characters"),
    Hostile("escape sequence of a terminal", says(GOOD + "\x1b[2J"), "malformed", "non_printable_characters"),
    Hostile("C1 control", says(GOOD + "\x85"), "malformed", "non_printable_characters"),
    Hostile("replacement character", says(GOOD + "\ufffd"), "malformed", "non_printable_characters"),
    Hostile(
        "Latin-1",
        holds("Spine curvature of 20° to the left, nothing else is seen.".encode("latin-1")),
        "malformed",
        "utf8_decode_failed",
    ),
    Hostile("UTF-16 with mark", holds(GOOD.encode("utf-16")), "malformed", "utf8_decode_failed"),
    Hostile("cut in the middle of a character", holds((GOOD + "é").encode()[:-1]), "malformed", "utf8_decode_failed"),
    Hostile("lone surrogate", holds(GOOD.encode() + b"\xed\xa0\x80"), "malformed", "utf8_decode_failed"),
    Hostile("overlong NUL", holds(GOOD.encode() + b"\xc0\x80"), "malformed", "utf8_decode_failed"),
    Hostile("gzip", holds(gzip.compress(GOOD.encode() * 3, mtime=0)), "malformed", "utf8_decode_failed"),
    Hostile("pickle", holds(pickle.dumps({"findings": GOOD})), "malformed", "utf8_decode_failed"),
    Hostile("PNG", holds(b"\x89PNG\r\n\x1a\n" + bytes(100)), "malformed", "utf8_decode_failed"),
    *no_files(PATH, GOOD.encode(), report_of_10_MB=holding(b"clear " * 1_700_000)),
    Hostile("one folder too deep", at("{case}/out/report.txt", holding(GOOD.encode())), "missing", "not_found"),
    # Odd, but a text by the contract: what it says is never looked at.
    Hostile("byte order mark is taken off", says("\ufeff" + GOOD), "valid", None),
    Hostile("CR LF", says(GOOD.replace(". ", ".\r\n")), "valid", None),
    Hostile("JSON is text", says(json.dumps({"findings": GOOD})), "valid", None),
    Hostile("accents and signs", says("Hémithorax opaque, ≥ 20° curvature of the spine – stable."), "valid", None),
    Hostile("one word of 8000 letters", says("A" * 8000), "valid", None),
    Hostile("4000 words of one letter", says("a " * 4000), "valid", None),
    Hostile(
        "no Latin letter", says("Лёгкие прозрачны, сердце не увеличено, выпота нет."), "valid", "nothing_to_compare"
    ),
    Hostile("ligatures that NFKC makes eighteenfold", says("\ufdfa" * 8000), "valid", "nothing_to_compare"),
    Hostile("800 headings and no findings", says("FINDINGS:\n" * 800), "valid", "nothing_to_compare"),
]
