"""mAP@0.5 of 1 000 images, 67 000 detections, 14 classes: our code beside pycocotools, in memory.

    python benchmarks/bench_average_precision.py [--images 1000] [--rounds 5]

Rounds are interleaved (ours, peer, ours, …) after one warm-up; medians are printed as a Markdown table. Trust the
ratios, not the milliseconds. Peak memory is the growth of the resident set during one call in a forked child (Linux).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from automedbench.metrics.average_precision import evaluate
from automedbench.metrics.boxes import Boxes, Floats, make_boxes
from automedbench.metrics.coco_twin import coco_average_precision, library

N_CLASSES = 14
Candidate = Callable[[Boxes, Boxes], Floats]


def ours(predictions: Boxes, reference: Boxes) -> Floats:
    """AP per class by automedbench."""
    return evaluate(predictions, reference, n_classes=N_CLASSES, iou_threshold=0.5, max_detections=100).ap


def peer(predictions: Boxes, reference: Boxes) -> Floats:
    """AP per class by pycocotools (one threshold, exact recall grid), its dictionaries included."""
    return coco_average_precision(predictions, reference, n_classes=N_CLASSES, iou_threshold=0.5, max_detections=100)


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


def interleaved(candidates: list[Candidate], predictions: Boxes, reference: Boxes, rounds: int) -> list[float]:
    """Median seconds of each candidate."""
    times: list[list[float]] = [[] for _ in candidates]
    for number in range(rounds + 1):
        for candidate, spent in zip(candidates, times, strict=True):
            start = time.perf_counter()
            candidate(predictions, reference)
            if number:
                spent.append(time.perf_counter() - start)
    return [statistics.median(spent) for spent in times]


def peak_mib(candidate: Candidate, predictions: Boxes, reference: Boxes) -> float:
    """Growth of the resident set's high-water mark during one call, in MiB."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(sender, candidate, predictions, reference))
    child.start()
    found = float(receiver.recv())
    child.join()
    return found


def _measure(sender: object, candidate: Candidate, predictions: Boxes, reference: Boxes) -> None:
    # A fork inherits its parent's mark; writing 5 resets it to the present size.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    candidate(predictions, reference)
    sender.send((_status("VmHWM") - before) / 1024)  # type: ignore[attr-defined]


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{key}:")).split()[1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    predictions, reference = synthetic(options.images)
    difference = np.abs(ours(predictions, reference) - peer(predictions, reference)).max()
    seconds = interleaved([ours, peer], predictions, reference, options.rounds)
    memory = [peak_mib(candidate, predictions, reference) for candidate in (ours, peer)]
    print(f"{options.images} images, {len(reference)} truth boxes, {len(predictions)} detections, {N_CLASSES} classes;")
    print(f"median of {options.rounds} interleaved rounds; largest difference of AP {difference:.1e}\n")
    print("| | ms | ratio to ours | peak MiB |\n|---|---|---|---|")
    for name, spent, mib in zip(["automedbench", library()], seconds, memory, strict=True):
        print(f"| {name} | {1000 * spent:.0f} | {spent / seconds[0]:.1f} | {mib:.0f} |")


if __name__ == "__main__":
    main()
