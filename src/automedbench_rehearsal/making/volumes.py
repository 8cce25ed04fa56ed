"""Volumes in made-up data: small scans, label maps, archives of the Medical Segmentation Decathlon."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import ball, gzipped, nifti, scene, tarred
from automedbench_rehearsal.upstreams import Upstream

Array = NDArray[Any]
SHAPE: Final = (16, 14, 10)
_BUCKET = "https://msd-for-monai.s3-us-west-2.amazonaws.com"
_MIRROR = "Novel-BioMedAI/Medical_Segmentation_Decathlon"
_APPLE_DOUBLE = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + bytes(120)


def ct(*words: object, shape: tuple[int, ...] = SHAPE) -> Array:
    """A volume that could be Hounsfield units, int16."""
    return (scene(shape, *words).astype(np.int16) * 6 - 1000).astype(np.int16)


def mri(*words: object, shape: tuple[int, ...] = SHAPE) -> Array:
    """A volume of arbitrary intensities, float32."""
    return scene(shape, *words).astype(np.float32) * 3


def affine(spacing: Sequence[float], origin: Sequence[float] = (-12.5, 30.0, 7.25)) -> Array:
    """Voxels → mm: axes to the left, to the back and upwards, as most scanners store them."""
    matrix = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
    matrix[:3, 3] = origin
    return matrix


def organ_and_tumour(index: int, shape: tuple[int, ...] = SHAPE, *, tumour: bool = True) -> Array:
    """A label map of 1 with, inside, 2; of another size and place for each index."""
    x, y, z = (size / 2 for size in shape)
    centre = (x + index % 3 - 1, y + index % 2, z)
    labels = np.zeros(shape, np.uint8)
    labels[ball(shape, centre, 4.2)] = 1
    if tumour:
        labels[ball(shape, (centre[0] + 1, centre[1] + 1, z), 1.6 + 0.4 * (index % 2))] = 2
    return labels


def unscaled(volume: bytes) -> bytes:
    """The same NIfTI file with a slope and intercept of 0 in its header, which means that nothing is scaled."""
    plain = bytearray(gzip.decompress(volume))
    struct.pack_into("<2f", plain, 112, 0.0, 0.0)
    return gzipped(bytes(plain))


def decathlon(
    number: int, name: str, cases: Mapping[str, tuple[bytes, bytes]], unlabelled: Mapping[str, bytes], **facts: Any
) -> Upstream:
    """The archive of a task: labelled cases (image, label map), unlabelled ones, dataset.json, leavings of macOS."""
    task = f"Task{number:02d}_{name}"
    files: dict[str, bytes] = {}
    for case, (image, label) in cases.items():
        files |= {f"{task}/imagesTr/{case}.nii.gz": image, f"{task}/labelsTr/{case}.nii.gz": label}
    first = next(iter(cases))
    for folder in ("imagesTr", "labelsTr"):
        files[f"{task}/{folder}/._{first}.nii.gz"] = _APPLE_DOUBLE
    files |= {f"{task}/imagesTs/{case}.nii.gz": image for case, image in unlabelled.items()}
    listed = {
        "name": name,
        **facts,
        "licence": "made up for tests",
        "numTraining": len(cases),
        "numTest": len(unlabelled),
        "training": [{"image": f"./imagesTr/{case}.nii.gz", "label": f"./labelsTr/{case}.nii.gz"} for case in cases],
        "test": [f"./imagesTs/{case}.nii.gz" for case in unlabelled],
    }
    files[f"{task}/dataset.json"] = json.dumps(listed, indent=1).encode()
    archive = tarred(files)
    return Upstream(files={f"{_BUCKET}/{task}.tar": archive}, hubs={_MIRROR: {f"{task}.tar": archive}})


def volumes(image: Array, label: Array, spacing: Sequence[float]) -> tuple[bytes, bytes]:
    """An image and its label map as files, placed alike."""
    place = affine(spacing)
    return nifti(image, place, describe="made up"), nifti(label, place, describe="made up")
