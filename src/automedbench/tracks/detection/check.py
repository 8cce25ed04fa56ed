"""``prediction.json`` of the detection track: boxes that an agent wrote, read within bounds and judged one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from automedbench.base.cards import OutputFile, TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, Problem
from automedbench.base.untrusted import parse_json, shown
from automedbench.tracks.common.cases import Judged, case_output, check_file
from automedbench.tracks.common.staging import normalised, spellings

CORNERS = ("x1", "y1", "x2", "y2")
EDGE_TOLERANCE = 0.01
"""Pixels by which a corner may lie outside: the rounding of float32 and of three decimals. It is moved to the edge."""
SCORE_TOLERANCE = 1e-6
"""The same of a score outside 0 to 1."""


@dataclass(frozen=True, slots=True)
class PredictedBox:
    """A box that takes part in scoring: class name of the card, corners in pixels, unclipped."""

    name: str
    score: float
    corners: tuple[float, float, float, float]


@dataclass(frozen=True)
class Prediction:
    """The boxes of one file, what is wrong with it (one problem per code), and how many boxes were dropped."""

    boxes: list[PredictedBox]
    problems: list[Problem]
    dropped: int

    def best(self, max_detections: int) -> Prediction:
        """Without boxes that cannot count: the best-scored ``max_detections`` of each class, in file order.

        Bounds what a run can make the scorer hold; ties keep the earlier box, as ranking does.
        """
        rows = sorted(range(len(self.boxes)), key=lambda row: -self.boxes[row].score)
        seen: Counter[str] = Counter()
        kept = []
        for row in rows:
            seen[self.boxes[row].name] += 1
            if seen[self.boxes[row].name] <= max_detections:
                kept.append(row)
        return Prediction([self.boxes[row] for row in sorted(kept)], self.problems, self.dropped)


@dataclass
class _Problems:
    """Problems by code: the first in full, the others counted, so that a hostile file cannot fill the disk."""

    first: dict[str, str] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    def add(self, code: str, message: str) -> None:
        self.first.setdefault(code, message)
        self.count[code] = self.count.get(code, 0) + 1

    def listed(self) -> list[Problem]:
        return [
            Problem(
                code=code, message=message + (f" (and {self.count[code] - 1} more)" if self.count[code] > 1 else "")
            )
            for code, message in self.first.items()
        ]


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected ``prediction.json``; image sizes come from the manifest, nothing private is read."""
    names = spellings(card)
    output = case_output(card, "json")
    return [_check_case(case, output, submission, names) for case in manifest.cases]


def _check_case(case: CaseEntry, output: OutputFile, submission: Path, names: dict[str, str]) -> CaseSubmission:
    dropped = 0

    def judge(case: CaseEntry, data: bytes) -> Judged:
        nonlocal dropped
        prediction = parse_case(data, case, names)
        dropped = prediction.dropped
        return prediction.problems, []

    return check_file(case, output, submission, judge).model_copy(update={"dropped": dropped})


def parse_case(data: bytes, case: CaseEntry, names: Mapping[str, str]) -> Prediction:
    """Boxes and problems of one case's file, measured against its image; ``names``: normalised spelling → class name.

    Raises InvalidSubmission when the file as a whole cannot be read: then the image counts as not completed.
    """
    width, height = case.geometry["width"], case.geometry["height"]
    value = parse_json(data)
    if not isinstance(value, dict):
        raise InvalidSubmission("not_an_object", f"must hold an object at top level, not {shown(value)}")
    if not isinstance(value.get("boxes"), list):
        raise InvalidSubmission("no_boxes_list", "needs the key 'boxes' with a list")
    boxes: list[PredictedBox] = []
    problems = _Problems()
    for index, item in enumerate(value["boxes"]):
        try:
            box = _clip_rounding(_read_box(item, names), width, height)
        except InvalidSubmission as error:
            problems.add(error.code, f"boxes[{index}] {error}; it is dropped")
            continue
        boxes.append(box)
        for code, message in _remarks(item, box, width, height):
            problems.add(code, f"boxes[{index}] {message}")
    return Prediction(boxes, problems.listed(), len(value["boxes"]) - len(boxes))


def _read_box(item: Any, names: Mapping[str, str]) -> PredictedBox:
    """One box; raises InvalidSubmission when it cannot be scored."""
    if not isinstance(item, dict):
        raise InvalidSubmission("box_not_object", f"is {shown(item)}, not an object")
    name = item.get("class")
    if not isinstance(name, str) or normalised(name) not in names:
        raise InvalidSubmission("bad_class", f"has class {shown(name)}, which the task does not list")
    x1, y1, x2, y2 = (_number(item, key, "not_numeric") for key in CORNERS)
    if not (x2 > x1 and y2 > y1):
        raise InvalidSubmission("non_positive_size", f"has x1 {x1:g}, y1 {y1:g}, x2 {x2:g}, y2 {y2:g}: no area")
    # A missing score is a fault of the file, but the box still counts, as a certain one.
    score = _number(item, "score", "bad_score") if "score" in item else 1.0
    return PredictedBox(names[normalised(name)], score, (x1, y1, x2, y2))


def _clip_rounding(box: PredictedBox, width: int, height: int) -> PredictedBox:
    """The box with corners at the edge that lie beyond it by rounding alone, and its score alike."""
    ends = (width, height, width, height)
    x1, y1, x2, y2 = (_clip(at, end, EDGE_TOLERANCE) for at, end in zip(box.corners, ends, strict=True))
    corners = (x1, y1, x2, y2) if x2 > x1 and y2 > y1 else box.corners
    return replace(box, corners=corners, score=_clip(box.score, 1, SCORE_TOLERANCE))


def _clip(value: float, end: int, tolerance: float) -> float:
    """A value at most ``tolerance`` outside 0 to ``end`` moved to that edge."""
    return min(max(value, 0.0), float(end)) if -tolerance <= value <= end + tolerance else value


def _number(item: dict[str, Any], key: str, code: str) -> float:
    if key not in item:
        raise InvalidSubmission("missing_key", f"lacks {key}")
    value = item[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidSubmission(code, f"has {key} {shown(value)}, not a finite number")
    return float(value)


def _remarks(item: dict[str, Any], box: PredictedBox, width: int, height: int) -> list[tuple[str, str]]:
    """Remarks on a box that is scored although its file is invalid."""
    x1, y1, x2, y2 = box.corners
    remarks = []
    if "score" not in item:
        remarks.append(("missing_score", "has no score; it counts as 1.0"))
    if not 0 <= box.score <= 1:
        remarks.append(("score_out_of_range", f"has score {box.score:g}, outside 0 to 1"))
    if not (0 <= x1 < width and 0 < x2 <= width and 0 <= y1 < height and 0 < y2 <= height):
        remarks.append(("out_of_bounds", f"leaves the image of {width} x {height} pixels"))
    return remarks
