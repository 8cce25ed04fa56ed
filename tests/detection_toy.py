"""A detection task small enough to work out by hand: cards, staged truth, submissions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from automedbench.base.cards import Target, TaskCard, load_card
from automedbench.base.files import write_bytes
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, RunId, SubmissionRecord
from automedbench.tracks import ScoringInputs
from automedbench.tracks.detection import TRACK as detection

ROOT = Path(__file__).resolve().parents[1]
SIZE = (100, 100)


def make_card(*classes: str, **settings: Any) -> TaskCard:
    """The BCCD card, with other classes and metric settings where given."""
    card = load_card(ROOT / "config/tasks/detection/bccd-det-task.yaml")
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
        record = {"image_id": f"source-{case}", "width": SIZE[0], "height": SIZE[1], "boxes": boxes}
        write_bytes(private / case / "boxes.json", json.dumps(record).encode())
    return make_manifest(list(truth))


def make_manifest(cases: list[str]) -> Manifest:
    """A manifest of cases of the toy's size."""
    entries = [
        CaseEntry(id=case, inputs={}, private={}, geometry={"width": SIZE[0], "height": SIZE[1]}) for case in cases
    ]
    return Manifest(task="toy", task_version=1, track="detection", dataset="toy", sampling="by hand", cases=entries)


def submit(submission: Path, case: str, content: Any) -> None:
    """A collected ``prediction.json``: bytes as they are, anything else as JSON (a list means its boxes)."""
    data = content if isinstance(content, bytes) else json.dumps(_with_key(content)).encode()
    write_bytes(submission / "agents_outputs" / case / "prediction.json", data)


def _with_key(content: Any) -> Any:
    return {"boxes": content} if isinstance(content, list) else content


def collected(card: TaskCard, manifest: Manifest, submission: Path) -> SubmissionRecord:
    """What ``collect_submission`` writes after the format check."""
    cases: list[CaseSubmission] = detection.check(card, manifest, submission)
    return SubmissionRecord(
        run=RunId(agent="toy", task="toy", tier="lite", repeat=1),
        track_version=detection.version,
        cases=cases,
        completion_rate=sum(case.completed for case in cases) / len(cases),
        valid_rate=sum(case.status == "valid" for case in cases) / len(cases),
    )


def inputs(
    card: TaskCard, manifest: Manifest, submission: Path, private: Path, checked: SubmissionRecord | None = None
) -> ScoringInputs:
    """What the scorer reads of a submission; it is checked now unless it was before."""
    return ScoringInputs(
        card=card,
        manifest=manifest,
        submission=submission,
        private=private,
        checked=checked or collected(card, manifest, submission),
    )


def with_reader(reader: str, options: dict[str, Any]) -> TaskCard:
    """The BCCD card with another reader and its options, and no split."""
    card = make_card()
    sampling = card.staging.sampling.model_copy(update={"split": None})
    staging = card.staging.model_copy(update={"reader": reader, "options": options, "sampling": sampling})
    return card.model_copy(update={"staging": staging})
