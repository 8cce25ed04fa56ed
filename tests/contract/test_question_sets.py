"""The real question sets that lie beside the repository, staged by the shipped cards; numbers from their SOURCE.md."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image

from automedbench.base.records import Manifest
from automedbench.steps.stage_task import stage_cases


def placeholders(folder: Path, names: set[str]) -> None:
    """A tiny picture under each name."""
    buffer = io.BytesIO()
    Image.new("L", (8, 8), 99).save(buffer, "JPEG")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(buffer.getvalue())


def staged(root: Path, task: str, raw: Path, folder: Path) -> tuple[Manifest, list[Any], dict[str, Any]]:
    """Manifest, gold answers and private table of the shipped card on this raw data, as it is for a user."""
    path = root / "config/tasks/vqa" / f"{task}.yaml"
    manifest = stage_cases(path, raw, folder / "public", folder / "private", folder / "manifest.json")
    private = folder / "private" / task
    truths = [json.loads((private / case / "answer.json").read_text()) for case in manifest.case_ids]
    return manifest, truths, json.loads((private / "split.json").read_text())


def test_vqa_rad(shared: Path, root: Path, tmp_path: Path) -> None:
    manifest, truths, split = staged(root, "vqa-rad-task", shared / "data/vqa_rad", tmp_path)
    types = Counter(truth["groups"]["answer_type"] for truth in truths)
    assert (len(manifest.cases), types["CLOSED"], types["OPEN"]) == (451, 272, 179)
    assert len({name for each in split["cases"].values() for name in each["images"]}) == 203
    organs = Counter(truth["groups"]["organ"] for truth in truths)
    assert organs == {"CHEST": 174, "ABD": 158, "HEAD": 119}
    literal = sum(truth["answer_text"].lower() in ("yes", "no") for truth in truths)
    assert (literal, split["left_out"]) == (251, {})


def test_slake(shared: Path, root: Path, tmp_path: Path) -> None:
    source = shared / "data/slake/test.json"
    rows = json.loads(source.read_text())
    (tmp_path / "raw").mkdir()
    placeholders(tmp_path / "raw/imgs", {row["img_name"] for row in rows})
    (tmp_path / "raw/test.json").symlink_to(source)
    (tmp_path / "raw/train.json").write_text(json.dumps([rows[0] | {"qid": 1, "question": "made up?"}]))
    manifest, truths, split = staged(root, "slake-task", tmp_path / "raw", tmp_path)
    types = Counter(truth["groups"]["answer_type"] for truth in truths)
    assert (len(manifest.cases), types["OPEN"], types["CLOSED"]) == (1061, 645, 416)
    assert len({name for each in split["cases"].values() for name in each["images"]}) <= 180
    assert {rows[each["row"]]["q_lang"] for each in split["cases"].values()} == {"en"}


def test_medxpertqa(shared: Path, root: Path, tmp_path: Path) -> None:
    """The copy on GitHub, whose options and labels have another shape than those on the hub."""
    source = shared / "data/medxpertqa_mm/medxpertqa_mm_input.jsonl"
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    raw = tmp_path / "raw"
    placeholders(raw / "images/images", {image["image_path"] for row in rows for image in row["images"]})
    (raw / "MM").mkdir()
    (raw / "MM/test.jsonl").symlink_to(source)
    (raw / "MM/dev.jsonl").write_text(json.dumps(rows[0] | {"id": "made up"}))
    manifest, truths, split = staged(root, "medxpertqa-mm-task", raw, tmp_path)
    assert {each["source_id"] for each in split["cases"].values()} == {f"MM-{number}" for number in range(2000)}
    assert {tuple(case.geometry["options"]) for case in manifest.cases} == {tuple("ABCDE")}
    images = Counter(len(case.inputs) - 1 for case in manifest.cases)
    assert (len(truths), images[1], set(images) <= set(range(1, 7))) == (2000, 1581, True)
    assert {truth["kind"] for truth in truths} == {"choice"}
