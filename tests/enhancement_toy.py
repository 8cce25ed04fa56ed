"""An enhancement task small enough to write down: card, manifest, files of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.records import CaseEntry, Manifest, RunId, SubmissionRecord
from automedbench.tracks import ScoringInputs
from automedbench.tracks.enhancement import TRACK as enhancement

ROOT = Path(__file__).resolve().parents[1]


def make_card(**settings: Any) -> TaskCard:
    """The chest X-ray card with these metric settings and no others."""
    card = load_card(ROOT / "config/tasks/enhancement/nih-cxr-sr-task.yaml")
    return card.model_copy(update={"metric": card.metric.model_copy(update={"settings": settings})})


def make_manifest(shapes: Mapping[str, tuple[int, ...]]) -> Manifest:
    """Cases and the shape that each one's output must have."""
    entries = [
        CaseEntry(id=case, inputs={}, private={}, geometry={"input_shape": list(shape), "output_shape": list(shape)})
        for case, shape in shapes.items()
    ]
    return Manifest(task="toy", task_version=1, track="enhancement", dataset="toy", sampling="by hand", cases=entries)


def collected(card: TaskCard, manifest: Manifest, submission: Path) -> SubmissionRecord:
    """What ``collect_submission`` writes after the format check."""
    cases = enhancement.check(card, manifest, submission)
    return SubmissionRecord(
        run=RunId(agent="toy", task="toy", tier="lite", repeat=1),
        track_version=enhancement.version,
        cases=cases,
        completion_rate=sum(case.completed for case in cases) / len(cases),
        valid_rate=sum(case.status == "valid" for case in cases) / len(cases),
    )


def inputs_of(
    card: TaskCard, manifest: Manifest, folder: Path, resources: Mapping[str, Path] | None = None
) -> ScoringInputs:
    """What the scorer reads: ``submission/`` and ``private/`` below a folder, checked."""
    return ScoringInputs(
        card=card,
        manifest=manifest,
        submission=folder / "submission",
        private=folder / "private",
        checked=collected(card, manifest, folder / "submission"),
        resources=resources or {},
    )
