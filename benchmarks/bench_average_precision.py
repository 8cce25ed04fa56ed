"""mAP@0.5 of 1 000 images, 67 000 detections, 14 classes in memory: our code beside pycocotools and faster-coco-eval.

python benchmarks/bench_average_precision.py [--images 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import contextlib
import io
from functools import partial
from typing import Any

import numpy as np
from side_by_side import measure, table

from automedbench.metrics.average_precision import Boxes, Floats, evaluate_thresholds, make_boxes
from automedbench.tracks.detection.score import coco_average_precision

N_CLASSES = 14


def ours(predictions: Boxes, reference: Boxes) -> Floats:
    """AP per class by automedbench."""
    done = evaluate_thresholds(predictions, reference, n_classes=N_CLASSES, iou_thresholds=[0.5], max_detections=100)
    return done[0].ap


def pycocotools(predictions: Boxes, reference: Boxes) -> Floats:
    """AP per class by pycocotools (one threshold, exact recall grid), its dictionaries included."""
    return coco_average_precision(predictions, reference, n_classes=N_CLASSES, iou_threshold=0.5, max_detections=100)


def faster_coco_eval(predictions: Boxes, reference: Boxes) -> Floats:
    """AP per class at IoU 0.5 by faster-coco-eval with COCO's own recall grid, its dictionaries included."""
    from faster_coco_eval import COCO, COCOeval_faster

    truth, found = COCO(), COCO()
    n_images = int(max(predictions.image.max(), reference.image.max())) + 1
    categories = [{"id": number + 1, "name": str(number)} for number in range(N_CLASSES)]
    images = [{"id": number + 1} for number in range(n_images)]
    truth.dataset = {"images": images, "categories": categories, "annotations": _annotations(reference)}
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        found = truth.loadRes(_annotations(predictions))
        evaluation = COCOeval_faster(truth, found, "bbox")
        evaluation.params.iouThrs = np.array([0.5])
        evaluation.params.areaRng = [[0, 1e10]]
        evaluation.params.areaRngLbl = ["all"]
        evaluation.params.maxDets = [100]
        evaluation.evaluate()
        evaluation.accumulate()
    return np.asarray(evaluation.eval["precision"][0, :, :, 0, 0]).mean(axis=0)


def _annotations(boxes: Boxes) -> list[dict[str, Any]]:
    size = boxes.xyxy[:, 2:] - boxes.xyxy[:, :2]
    columns = zip(boxes.image.tolist(), boxes.category.tolist(), boxes.xyxy.tolist(), size.tolist(), strict=True)
    scores = boxes.score.tolist()
    return [
        {
            "id": number,
            "image_id": image + 1,
            "category_id": category + 1,
            "bbox": [*corners[:2], *sides],
            "area": sides[0] * sides[1],
            "iscrowd": 0,
            "score": score,
        }
        for number, ((image, category, corners, sides), score) in enumerate(zip(columns, scores, strict=True), start=1)
    ]


def synthetic(n_images: int, seed: int = 42) -> tuple[Boxes, Boxes]:
    """Predictions (about 67 an image) and truth (about 4 an image) on 1024 × 1024 pixels.

    About one prediction in eight is a shifted truth box, mostly of the right class and with a higher score.
    """
    random = np.random.default_rng(seed)
    n_truth, n_predictions = int(4.2 * n_images), 67 * n_images
    corner, side = random.uniform(0, 900, (n_truth, 2)), random.uniform(20, 120, (n_truth, 2))
    image, category = np.sort(random.integers(0, n_images, n_truth)), random.integers(0, N_CLASSES, n_truth)
    reference = make_boxes(image, category, np.hstack([corner, corner + side]))
    near = random.integers(0, n_truth, n_predictions // 8)
    far = n_predictions - len(near)
    stray = random.uniform(0, 900, (far, 2))
    corners = np.vstack(
        [
            reference.xyxy[near] + random.normal(0, 6, (len(near), 4)),
            np.hstack([stray, stray + random.uniform(20, 120, (far, 2))]),
        ]
    )
    right = np.where(random.random(len(near)) < 0.8, category[near], random.integers(0, N_CLASSES, len(near)))
    predictions = make_boxes(
        np.concatenate([image[near], random.integers(0, n_images, far)]),
        np.concatenate([right, random.integers(0, N_CLASSES, far)]),
        corners,
        np.concatenate([random.beta(4, 2, len(near)), random.beta(1, 4, far)]),
    )
    return predictions, reference


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    predictions, reference = synthetic(options.images)
    candidates = {
        "automedbench": partial(ours, predictions, reference),
        "pycocotools": partial(pycocotools, predictions, reference),
        "faster-coco-eval": partial(faster_coco_eval, predictions, reference),
    }
    values = [candidate() for candidate in candidates.values()]
    print(f"{options.images} images, {len(reference)} truth boxes, {len(predictions)} detections, {N_CLASSES} classes.")
    print(
        f"Largest difference of AP to pycocotools with the exact recall grid {np.abs(values[0] - values[1]).max():.1e}"
    )
    print(f"and to faster-coco-eval with COCO's floating grid {np.abs(values[0] - values[2]).max():.1e}.\n")
    print(table(measure(candidates, options.rounds)))


if __name__ == "__main__":
    main()
