"""Decathlon: archives of the Medical Segmentation Decathlon, with dataset.json, unlabelled cases and leavings of macOS.

Defects: headers with a slope and intercept of 0 (heart), cases without tumour (liver, hepatic vessels, colon) or
transition zone (prostate), images of two channels (prostate), a label map of floats (colon), numbers that have gaps
or whose order as text is another one, a scan with too few slices (pancreas).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from automedbench_rehearsal.making.files import tarred
from automedbench_rehearsal.making.volumes import SMALL, Array, affine, ball, ct, mri, nifti, organ_and_tumour
from automedbench_rehearsal.upstreams import Upstream

_BUCKET = "https://msd-for-monai.s3-us-west-2.amazonaws.com"
_MIRROR = "Novel-BioMedAI/Medical_Segmentation_Decathlon"
_APPLE_DOUBLE = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + bytes(120)
_PANCREAS = {"training": ("001", "004", "290"), "test": ("002", "181", "391")}
_THIN = "391"


@dataclass(frozen=True)
class _Task:
    """A task whose cases differ only by their numbers."""

    archive: str
    case: str
    """Name of a case, with a place for its number."""
    labelled: tuple[int, ...]
    unlabelled: int
    spacing: tuple[float, float, float]
    labels: tuple[str, ...]
    image: Callable[[int], Array]
    label: Callable[[int], Array]
    scaling: tuple[float, float] | None = None

    def upstream(self) -> Upstream:
        """Its archive at both places."""
        place = affine(self.spacing, "xy")
        make = functools.partial(nifti, place=place, describe="made up", scaling=self.scaling)
        cases = {self.case.format(n): (make(self.image(n)), make(self.label(n))) for n in self.labelled}
        return _archive(
            self.archive, cases, {self.case.format(self.unlabelled): make(self.image(self.unlabelled))}, self.labels
        )


def _archive(
    task: str, cases: Mapping[str, tuple[bytes, bytes]], unlabelled: Mapping[str, bytes], labels: tuple[str, ...]
) -> Upstream:
    """An archive of cases (image, label map) and of images alone."""
    first = next(iter(cases))
    files = {f"{task}/{folder}/._{first}.nii.gz": _APPLE_DOUBLE for folder in ("imagesTr", "labelsTr")}
    for case, (image, label) in cases.items():
        files |= {f"{task}/imagesTr/{case}.nii.gz": image, f"{task}/labelsTr/{case}.nii.gz": label}
    files |= {f"{task}/imagesTs/{case}.nii.gz": image for case, image in unlabelled.items()}
    listed = {
        "name": task.partition("_")[2],
        "labels": {str(number): name for number, name in enumerate(("background", *labels))},
        "training": [{"image": f"./imagesTr/{case}.nii.gz", "label": f"./labelsTr/{case}.nii.gz"} for case in cases],
        "test": [f"./imagesTs/{case}.nii.gz" for case in unlabelled],
    }
    archive = tarred(files | {f"{task}/dataset.json": json.dumps(listed).encode()})
    return Upstream(files={f"{_BUCKET}/{task}.tar": archive}, hubs={_MIRROR: {f"{task}.tar": archive}})


def _pancreas() -> Upstream:
    """Three labelled and two unlabelled patients, large enough for volumes to be made of them, and a thin one."""
    numbers = [number for part in _PANCREAS.values() for number in part]
    place, made = affine((0.8, 0.8, 2.5), "x"), {}
    for index, number in enumerate(numbers):
        values = ct(index, (64, 64, 20) if number == _THIN else (64, 64, 32 + index))
        image = nifti(values, place, describe=f"5.0.10 pancreas_{number}")
        made[number] = (image, nifti((values > 500).astype(np.uint8), place))
    cases = {f"pancreas_{number}": made[number] for number in _PANCREAS["training"]}
    unlabelled = {f"pancreas_{number}": made[number][0] for number in _PANCREAS["test"]}
    return _archive("Task07_Pancreas", cases, unlabelled, ("pancreas", "cancer"))


def _scan(number: int) -> Array:
    return ct(number, SMALL)


def _atrium(number: int) -> Array:
    return mri(number, SMALL).astype(np.float32)


def _zones(number: int) -> Array:
    """T2 and ADC."""
    return np.stack([_atrium(number), _atrium(number + 1)], axis=-1)


def _organ(number: int) -> Array:
    return organ_and_tumour(number, tumour=False)


def _both(*without: int) -> Callable[[int], Array]:
    return lambda number: organ_and_tumour(number, tumour=number not in without)


def _branches(number: int) -> Array:
    label = organ_and_tumour(number, tumour=number != 4)
    label[::2][label[::2] == 1] = 0
    return label


def _cancer(number: int) -> Array:
    found = ball(SMALL, (6 + number // 2, 7, 5), 2.5) & (number != 7)
    return found.astype(np.float32 if number == 5 else np.uint8)


_TASKS = {
    "msd_task02_heart": _Task(
        "Task02_Heart",
        "la_{:03d}",
        (3, 4, 7, 14),
        1,
        (1.25, 1.25, 1.37),
        ("left atrium",),
        _atrium,
        _organ,
        scaling=(0, 0),
    ),
    "msd_task03_liver": _Task(
        "Task03_Liver", "liver_{}", (0, 1, 2, 10), 132, (0.8, 0.8, 2.5), ("liver", "cancer"), _scan, _both(1)
    ),
    "msd_task05_prostate": _Task(
        "Task05_Prostate", "prostate_{:02d}", (0, 1, 2, 4), 3, (0.62, 0.62, 3.6), ("PZ", "TZ"), _zones, _both(2)
    ),
    "msd_task08_hepaticvessel": _Task(
        "Task08_HepaticVessel",
        "hepaticvessel_{:03d}",
        (1, 2, 4, 11),
        3,
        (0.9, 0.9, 4.0),
        ("Vessel", "Tumour"),
        _scan,
        _branches,
    ),
    "msd_task09_spleen": _Task(
        "Task09_Spleen", "spleen_{}", (2, 3, 10), 1, (0.8, 0.8, 5.0), ("spleen",), _scan, _organ
    ),
    "msd_task10_colon": _Task(
        "Task10_Colon", "colon_{:03d}", (1, 5, 7, 8), 3, (0.75, 0.75, 5.0), ("cancer",), _scan, _cancer
    ),
}
UPSTREAMS: dict[str, Callable[[], Upstream]] = {
    "msd_task07_pancreas": _pancreas,
    **{name: task.upstream for name, task in _TASKS.items()},
}
