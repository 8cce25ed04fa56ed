"""LIDC-IDRI as NBIA's interface gives it: a list of series, and a zip of DICOM files for each.

Defects of upstream that are here: one file of a series cut off, several CT series of a patient, a scout in a series,
slices at one place twice, slope and intercept that differ from file to file, -2000 outside the field of view with
PixelPaddingValue 63536, compressed pixels, the readers' XML beside the slices, patients whom the card leaves out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.dicom import IMPLICIT, JPEG2000, UID, dicom
from automedbench_rehearsal.making.files import zipped
from automedbench_rehearsal.making.volumes import body, round_field
from automedbench_rehearsal.upstreams import Upstream

_API = "https://services.cancerimagingarchive.net/nbia-api/services/v1"
_SIDE, _SLICES = 40, 11


def upstream() -> Upstream:
    """Six series of the five patients that the card takes, and one of another."""
    series = {
        ("LIDC-IDRI-0001", 1): _cut_off(_plain("LIDC-IDRI-0001", 1)),
        ("LIDC-IDRI-0002", 2): _padded("LIDC-IDRI-0002", 2),
        ("LIDC-IDRI-0002", 3): dict(list(_plain("LIDC-IDRI-0002", 3).items())[:4]),
        ("LIDC-IDRI-0003", 4): _twice("LIDC-IDRI-0003", 4),
        ("LIDC-IDRI-0100", 5): _scaled("LIDC-IDRI-0100", 5),
        ("LIDC-IDRI-0149", 6): _compressed("LIDC-IDRI-0149", 6),
        ("LIDC-IDRI-0611", 7): dict(list(_plain("LIDC-IDRI-0611", 7).items())[:2]),
    }
    listed = [
        {
            "SeriesInstanceUID": f"{UID}.{number}",
            "StudyInstanceUID": f"{UID}.{number}.0",
            "Modality": "CT",
            "PatientID": patient,
            "Collection": "LIDC-IDRI",
            "ImageCount": len(files),
        }
        for (patient, number), files in series.items()
    ]
    offered = {f"{_API}/getSeries?Collection=LIDC-IDRI&Modality=CT&format=json": json.dumps(listed).encode()}
    for (_, number), files in series.items():
        beside = {"LICENSE": b"CC BY 3.0\n", f"{number:03d}.xml": b"<LidcReadMessage/>"}
        offered[f"{_API}/getImage?SeriesInstanceUID={UID}.{number}"] = zipped(files | beside)
    return Upstream(files=offered)


def _slices(number: int) -> Iterator[tuple[int, float, NDArray[np.int16]]]:
    """Number from the head down, height in mm, HU (rows, columns) of each slice of a body."""
    volume = body((_SIDE, _SIDE, _SLICES), "lidc", number)
    for count in range(_SLICES):
        yield count + 1, -2.5 * count, volume[:, :, _SLICES - 1 - count].T


def _plain(patient: str, series: int) -> dict[str, bytes]:
    """Signed values with an intercept of -1024."""
    return {
        _name(number): dicom(hu + np.int16(1024), patient=patient, series=series, number=number, place=place)
        for number, place, hu in _slices(series)
    }


def _cut_off(files: dict[str, bytes]) -> dict[str, bytes]:
    name = _name(3)
    return files | {name: files[name][: len(files[name]) // 3]}


def _padded(patient: str, series: int) -> dict[str, bytes]:
    """HU as they are stored, -2000 outside the field of view, announced by the unsigned reading of -2000."""
    made = {}
    for number, place, hu in _slices(series):
        stored = round_field(hu[..., None], -2000)[..., 0]
        made[_name(number)] = dicom(
            stored, patient=patient, series=series, number=number, place=place, intercept=0, padding=63536
        )
    return made


def _twice(patient: str, series: int) -> dict[str, bytes]:
    """The sixth slice twice, under two numbers, and a scout."""
    made = _plain(patient, series)
    _, place, hu = list(_slices(series))[5]
    scout, kind = np.zeros((20, 60), np.int16), ["ORIGINAL", "PRIMARY", "LOCALIZER"]
    made[_name(90)] = dicom(hu + np.int16(1030), patient=patient, series=series, number=90, place=place)
    made[_name(91)] = dicom(scout, patient=patient, series=series, number=91, place=place, ImageType=kind)
    return made


def _scaled(patient: str, series: int) -> dict[str, bytes]:
    """Unsigned values whose slope and intercept change from file to file; implicit value representations."""
    made = {}
    for number, place, hu in _slices(series):
        slope, intercept = (2.0, -2048.0) if number % 2 else (0.5, -1500.0)
        made[_name(number)] = dicom(
            np.rint((hu - intercept) / slope).astype(np.uint16),
            patient=patient,
            series=series,
            number=number,
            place=place,
            slope=slope,
            intercept=intercept,
            syntax=IMPLICIT,
        )
    return made


def _compressed(patient: str, series: int) -> dict[str, bytes]:
    """JPEG 2000 without loss."""
    made = {}
    for number, place, hu in _slices(series):
        stored = (hu + 1024).clip(0).astype(np.uint16)
        made[_name(number)] = dicom(stored, patient=patient, series=series, number=number, place=place, syntax=JPEG2000)
    return made


def _name(number: int) -> str:
    return f"1-{number:03d}.dcm"
