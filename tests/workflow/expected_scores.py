"""What the truth of some cases scores as a submission, worked out by each track's contract and not by its scorer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from automedbench.base.cards import TaskCard
from automedbench.base.records import Manifest
from automedbench.tracks import track_settings
from automedbench.tracks.report_generation.text import extract, normalise, reference_section, tokens
from automedbench.tracks.segmentation.settings import label_files


def expected_score(card: TaskCard, manifest: Manifest, private: Path, kept: list[str]) -> float:
    """Score of a submission that has the truth of the cases ``kept`` and nothing of the others."""
    share = len(kept) / len(manifest.cases)
    own: dict[str, Callable[[TaskCard, Manifest, Path, list[str]], float]] = {
        "segmentation": _segmentation,
        "detection": _detection,
        "classification": _classification,
        "report_generation": _reports,
    }
    return own[card.track](card, manifest, private, kept) if card.track in own else share


def _segmentation(card: TaskCard, manifest: Manifest, private: Path, kept: list[str]) -> float:
    """Mean over targets of the mean over kept cases, times the share of kept cases.

    A target that only cases left out have counts 0; one that no case has is left out where the card skips it.
    """
    import nibabel

    settings: Any = track_settings(card)
    load: Any = nibabel.load
    present: dict[str, set[str]] = {target.name: set() for target in card.targets}
    for case in manifest.case_ids:
        for file in label_files(card):
            found = set(np.unique(np.asarray(load(private / case / file.name).dataobj)).tolist())
            for target, value in zip(file.targets, file.values, strict=True):
                present[target.name] |= {case} if value in found else set()
    scores = []
    for name, having in present.items():
        only_present = name in settings.positive_only or settings.both_empty == "skip"
        counted = having if only_present else set(manifest.case_ids)
        if counted:
            scores.append(1.0 if counted & set(kept) else 0.0)
    return float(np.mean(scores)) * len(kept) / len(manifest.cases)


def _detection(card: TaskCard, manifest: Manifest, private: Path, kept: list[str]) -> float:
    """Without false boxes precision is 1 up to the recall r, so that AP is the share of 101 recall points up to r."""
    boxes = {
        case: [box["class"] for box in json.loads((private / case / "boxes.json").read_bytes())["boxes"]]
        for case in manifest.case_ids
    }
    in_all = [name for names in boxes.values() for name in names]
    found = [name for case in kept for name in boxes[case]]
    points = [found.count(name) * 100 // in_all.count(name) + 1 if name in found else 0 for name in set(in_all)]
    return float(np.mean(points)) / 101 * len(kept) / len(boxes)


def _classification(card: TaskCard, manifest: Manifest, private: Path, kept: list[str]) -> float:
    labels = {case: json.loads((private / case / "label.json").read_bytes())["label"] for case in manifest.case_ids}
    settings: Any = track_settings(card)
    if settings.score_metric == "accuracy":
        return len(kept) / len(labels)
    of_class = [[case for case, label in labels.items() if label == name] for name in sorted(set(labels.values()))]
    return float(np.mean([len(set(cases) & set(kept)) / len(cases) for cases in of_class]))


def _reports(card: TaskCard, manifest: Manifest, private: Path, kept: list[str]) -> float:
    """The same text of n words has ROUGE-L 1 and METEOR 1 - 0.5 / n³ (one chunk of n matches).

    BLEU is the mean of B_1 to B_4, the geometric means of precisions: 1 up to order n, and for each order that the text
    has no n-gram of 1e-6, which is what the constants of pycocoevalcap leave of 0 / 0 (1e-15 / 1e-9).
    """
    settings: Any = track_settings(card)
    total = 0.0
    for case in kept:
        text = (private / case / "report.txt").read_text()
        n = len(tokens(normalise(extract(text, reference_section(text, settings.text_mode)))))
        bleu = np.mean([1e-6 ** (max(0, order - n) / order) for order in range(1, 5)])
        total += (bleu + 1 - 0.5 / n**3 + 1) / 3
    return total / len(manifest.cases)
