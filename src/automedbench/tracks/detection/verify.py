"""Verification: mAP again by pycocotools."""

from __future__ import annotations

import numpy as np

from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.detection.score import evidence_of
from automedbench.tracks.detection.settings import Settings


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """mAP@0.5 again by pycocotools with the exact recall grid."""
    from automedbench.metrics.coco_twin import coco_average_precision, library

    settings: Settings = track_settings(inputs.card)
    evidence = evidence_of(inputs, settings.max_detections)
    ap = coco_average_precision(
        evidence.predicted,
        evidence.reference,
        n_classes=len(evidence.classes),
        iou_threshold=settings.iou_threshold,
        max_detections=settings.max_detections,
    )
    return library(), float(np.nanmean(ap)), 1e-9
