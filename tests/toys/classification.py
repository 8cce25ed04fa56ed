"""Classification's toy: eight slices of 20 × 20 pixels, two of each class of the brain tumour card."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from automedbench.base.cards import OutputFile, TaskCard, load_card
from automedbench.base.records import Manifest
from automedbench.tracks.classification.check import label_outputs
from toys import Hostile, Write, at, files, holding, no_files

ROOT = Path(__file__).resolve().parents[2]
TABLE = "predictions.csv"
FILE = OutputFile(
    path="{case}/prediction.json", format="json", max_bytes=100_000, description="label of one case, instead of its row"
)


def _card() -> TaskCard:
    """The shipped card for any number of cases, with the JSON file per case that the contract also allows."""
    card = load_card(ROOT / "config/tasks/classification/braintumor-cls-task.yaml")
    tables = [output for output in card.outputs if output.path == TABLE]
    sampling = card.staging.sampling.model_copy(update={"count": None})
    staging = card.staging.model_copy(update={"sampling": sampling})
    return card.model_copy(update={"outputs": [*tables, FILE], "staging": staging})


CARD: TaskCard = _card()
MAX_BYTES = CARD.outputs[0].max_bytes
CEILING = 1.0
HALF: float | None = None
RESOURCES: dict[str, Path] = {}


def make_raw(raw: Path) -> None:
    """Two grey pictures in each class folder of the Testing split."""
    for number, target in enumerate(CARD.targets):
        folder = raw / "Testing" / target.name
        folder.mkdir(parents=True)
        for place in (0, 1):
            Image.new("L", (20, 20), 20 + 50 * number + 20 * place).save(folder / f"Te-{target.name}_{place:04d}.jpg")


def perfect(
    manifest: Manifest, public: Path, private: Path, cases: list[str], card: TaskCard = CARD
) -> dict[str, bytes]:
    """The true label of each case in one table."""
    labels = {case: json.loads((private / case / "label.json").read_bytes())["label"] for case in cases}
    rows = "".join(f"{case},{label}\n" for case, label in labels.items())
    table, _ = label_outputs(card)
    return {table.path: f"patient_id,label\n{rows}".encode()}


# --- bad tables: id, content, code ----------------------------------------------------------------------------
# ``{case}`` stands for the case.

HEADER = b"patient_id,label\n"
GOOD = HEADER + b"{case},glioma\n"
# The table cannot be read at all.
LOST: list[tuple[str, bytes, str]] = [
    ("zero bytes", b"", "csv_unreadable"),
    ("blank lines only", b"\n\n \n,\n", "csv_unreadable"),
    ("NUL in a cell", HEADER + b"{case},gli\0oma\n", "csv_unreadable"),
    ("1 000 NUL", bytes(1000), "csv_unreadable"),
    ("a PNG", b"\x89PNG\r\n\x1a\n" + bytes(40), "csv_unreadable"),
    ("truncated gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x2b\x48", "csv_unreadable"),
    ("UTF-16", GOOD.decode().encode("utf-16"), "csv_unreadable"),
    ("Latin-1", HEADER + b"{case},m\xe9ningiome\n", "csv_unreadable"),
    ("quote never closed", HEADER + b'{case},"glioma\n', "csv_unreadable"),
    ("text behind a quote", HEADER + b'{case},"gli"oma\n', "csv_unreadable"),
    ("101 columns", HEADER + b"{case},glioma" + b"," * 99 + b"\n", "csv_unreadable"),
    ("cell of 10 001 characters", HEADER + b"{case},glioma," + b"x" * 10_001 + b"\n", "csv_unreadable"),
    ("cell of 4 MB", HEADER + b"{case}," + b"x" * 4_000_000 + b"\n", "csv_unreadable"),
    ("4 MB of commas", b"," * 4_000_000 + b"x", "csv_unreadable"),
    ("100 001 rows", GOOD + b"a,b\n" * 100_000, "csv_unreadable"),
    ("semicolons", b"patient_id;label\n{case};glioma\n", "csv_columns"),
    ("tabs", b"patient_id\tlabel\n{case}\tglioma\n", "csv_columns"),
    ("no header", b"{case},glioma\n", "csv_columns"),
    ("no label column", b"patient_id,class\n{case},glioma\n", "csv_columns"),
    ("two label columns", b"patient_id,label,Label \n{case},glioma,notumor\n", "csv_columns"),
    ("JSON in the table", b'[{"patient_id": "{case}", "label": "glioma"}]\n', "csv_unreadable"),
]
# The table is read, the row of the case is wrong.
WRONG_ROWS: list[tuple[str, bytes, str]] = [
    ("abbreviation", b"{case},gli\n", "unknown_label"),
    ("class number", b"{case},0\n", "unknown_label"),
    ("formula", b'{case},"=HYPERLINK(""http://x"",""glioma"")"\n', "unknown_label"),
    ("two labels in a cell", b'{case},"glioma,notumor"\n', "unknown_label"),
    ("zero-width space", "{case},\u200bglioma\n".encode(), "unknown_label"),
    ("label of 9 000 characters", b"{case}," + b"glioma " * 1_300 + b"\n", "unknown_label"),
    ("two rows, two labels", b"{case},glioma\n{case},notumor\n", "conflicting_rows"),
    ("a class and none", b"{case},glioma\n{case},gli\n", "conflicting_rows"),
    ("more than 10 % of rows for no case", b"{case},glioma\n" + b"x,glioma\n" * 9, "unknown_id"),
]
# The case has no label.
NO_LABEL: list[tuple[str, bytes, str]] = [
    ("empty label", b"{case},\n", "empty_label"),
    ("blank label", b'{case}," "\n', "empty_label"),
    ("row ends early", b"{case}\n", "empty_label"),
    ("header only", b"", "no_row"),
    ("id with a suffix", b"{case}.jpg,glioma\n", "no_row"),
    ("id in capitals with a blank inside", b"{case} x,glioma\n", "no_row"),
    ("formula for an id", b'"=A1",glioma\n', "no_row"),
]
# Accepted; with a code: and remarked.
ACCEPTED: list[tuple[str, bytes, str | None]] = [
    ("byte order mark", b"\xef\xbb\xbf" + GOOD, None),
    ("CR LF", b"patient_id,label\r\n{case},glioma\r\n", None),
    ("CR", b"patient_id,label\r{case},glioma\r", None),
    ("quotes", b'"patient_id","label"\n"{case}","glioma"\n', None),
    ("blanks and capitals", b" Patient_ID , LABEL\n {case} ,  Glioma \n", None),
    ("other columns and their order", b"label,note,patient_id\nglioma,=1+1,{case}\n", None),
    ("blank lines between", b"\n" + HEADER + b"\n\n{case},glioma\n\n", None),
    ("no end of line", HEADER + b"{case},glioma", None),
    ("the same row twice", GOOD + b"{case},GLIOMA\n", "duplicate_row"),
    ("empty label, then one", HEADER + b"{case},\n{case},glioma\n", "duplicate_row"),
]
# JSON files without a row in the table.
BAD_FILES: list[tuple[str, bytes, str]] = [
    ("null", b"null", "json_invalid"),
    ("number", b"1e400", "json_invalid"),
    ("text", b'"glioma"', "json_invalid"),
    ("list", b'[{"label": "glioma"}]', "json_invalid"),
    ("zero bytes", b"", "json_invalid"),
    ("no label", b'{"class": "glioma"}', "json_invalid"),
    ("label null", b'{"label": null}', "json_invalid"),
    ("label a number", b'{"label": 0}', "json_invalid"),
    ("label NaN", b'{"label": NaN}', "json_invalid"),
    ("label a list", b'{"label": ["glioma"]}', "json_invalid"),
    ("label twice", b'{"label": "glioma", "label": "notumor"}', "json_invalid"),
    ("not UTF-8", b'{"label": "\xff"}', "json_invalid"),
    ("UTF-16", '{"label": "glioma"}'.encode("utf-16"), "json_invalid"),
    ("40 000 deep", b"[" * 40_000 + b"]" * 40_000, "json_invalid"),
    ("lone surrogate", b'{"label": "\\ud800"}', "unknown_label"),
    ("abbreviation", b'{"label": "gli"}', "unknown_label"),
]


def filled(content: bytes, case: str) -> bytes:
    """``content`` for one case."""
    return content.replace(b"{case}", case.encode())


def _table(content: bytes) -> Write:
    def write(outputs: Path, case: str, manifest: Manifest, public: Path) -> None:
        at(TABLE, holding(filled(content, case)))(outputs, case, manifest, public)

    return write


def _rows(content: bytes) -> Write:
    """Rows for the case below those that are there already for others."""

    def write(outputs: Path, case: str, manifest: Manifest, public: Path) -> None:
        path = outputs / TABLE
        before = path.read_bytes() if path.exists() else HEADER
        at(TABLE, holding(before + filled(content, case)))(outputs, case, manifest, public)

    return write


BELOW_CASE = "{case}/prediction.json"
LARGE = holding(GOOD + b"x,y\n" * 2_500_000)
HOSTILE: list[Hostile] = [
    *[Hostile(f"table: {name}", _table(content), "malformed", code) for name, content, code in LOST],
    *[Hostile(f"row: {name}", _rows(content), "malformed", code) for name, content, code in WRONG_ROWS],
    *[Hostile(f"row: {name}", _rows(content), "missing", code) for name, content, code in NO_LABEL],
    *[Hostile(f"table: {name}", _table(content), "valid", code) for name, content, code in ACCEPTED],
    *files(BELOW_CASE, "malformed", BAD_FILES),
    *no_files(TABLE, GOOD, table_of_10_MB=LARGE),
    Hostile("no table", at(TABLE, lambda place: None), "missing", "not_found"),
    *no_files(BELOW_CASE, GOOD, file_of_10_MB=LARGE),
]
