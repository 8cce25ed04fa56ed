"""DICOM parts of made-up data: bodies in HU, and files of their slices."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import ball, generator

UID = "1.2.826.0.1.3680043.10.1462"
"""Root of the made-up identifiers."""
CT_IMAGE = "1.2.840.10008.5.1.4.1.1.2"
EXPLICIT, IMPLICIT, JPEG2000 = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2", "1.2.840.10008.1.2.4.90"


def body(shape: tuple[int, int, int], *words: object) -> NDArray[np.int16]:
    """A trunk in HU, (x, y, z): air around it, soft tissue, two lungs and a spine that shift from slice to slice."""
    chance = generator("body", shape, *words)
    across, deep, long = (np.linspace(-1, 1, size) for size in shape)
    x, y, z = np.meshgrid(across, deep, long, indexing="ij")
    values = np.full(shape, -1000.0)
    trunk = (x / 0.85) ** 2 + (y / 0.65) ** 2 < 1
    values[trunk] = 40
    for side in (-1, 1):
        middle = side * chance.uniform(0.35, 0.45)
        values[((x - middle) / 0.28) ** 2 + ((y + 0.1) / (0.42 - 0.1 * z)) ** 2 < 1] = -800
    values[(x**2 + (y - 0.45) ** 2 < 0.018) & trunk] = 500
    for _ in range(3):
        place = chance.uniform(-0.5, 0.5, 3)
        values[((x - place[0]) ** 2 + (y - place[1]) ** 2 + (z - place[2]) ** 2) < 0.02] = chance.uniform(-100, 150)
    values += np.where(trunk, chance.normal(0, 12, shape), 0)
    return np.asarray(np.rint(values), dtype=np.int16)


def round_field(values: NDArray[Any], outside: float) -> NDArray[Any]:
    """The volume (x, y, z) with ``outside`` where the scanner's round field of view ends."""
    width, height, _ = values.shape
    seen = ball((width, height), ((width - 1) / 2, (height - 1) / 2), min(width, height) / 2)
    return np.asarray(np.where(seen[..., None], values, outside), dtype=values.dtype)


def dicom(
    stored: NDArray[Any],
    *,
    patient: str,
    series: int,
    number: int,
    place: float,
    slope: float = 1,
    intercept: float = -1024,
    modality: str = "CT",
    syntax: str = EXPLICIT,
    padding: int | None = None,
    **more: Any,
) -> bytes:
    """A DICOM file of one axial slice of stored values (rows, columns), int16 or uint16.

    ``series`` and ``number`` make the identifiers, ``place`` is the slice's height in mm, ``padding`` an unsigned
    PixelPaddingValue; ``more`` are further attributes by keyword.
    """
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import UID as Identifier

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = Identifier(CT_IMAGE)
    meta.MediaStorageSOPInstanceUID = Identifier(f"{UID}.{series}.{number}")
    meta.TransferSyntaxUID = Identifier(syntax)
    made = FileDataset("", {}, preamble=bytes(128), file_meta=meta)
    made.SOPClassUID, made.SOPInstanceUID = CT_IMAGE, meta.MediaStorageSOPInstanceUID
    made.PatientID, made.PatientName = patient, patient
    made.StudyInstanceUID, made.SeriesInstanceUID = f"{UID}.{series}.0", f"{UID}.{series}"
    made.Modality, made.InstanceNumber = modality, number
    made.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    made.Rows, made.Columns = stored.shape
    made.PixelSpacing = [0.7, 0.7]
    made.ImageOrientationPatient, made.ImagePositionPatient = [1, 0, 0, 0, 1, 0], [-180, -180, place]
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.BitsAllocated, made.BitsStored, made.HighBit = 16, 16, 15
    made.PixelRepresentation = int(stored.dtype.kind == "i")
    made.RescaleSlope, made.RescaleIntercept = str(slope), str(intercept)
    if padding is not None:
        made.add_new("PixelPaddingValue", "US", padding)
    for keyword, value in more.items():
        setattr(made, keyword, value)
    made.PixelData = stored.astype(stored.dtype.newbyteorder("<")).tobytes()
    if syntax == JPEG2000:
        made.PixelData = pydicom.encaps.encapsulate([_jpeg2000(stored)])
        made["PixelData"].VR = "OB"
    buffer = io.BytesIO()
    made.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def _jpeg2000(stored: NDArray[Any]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(stored.astype(np.uint16)).save(buffer, "JPEG2000", irreversible=False, no_jp2=True)
    return buffer.getvalue()
