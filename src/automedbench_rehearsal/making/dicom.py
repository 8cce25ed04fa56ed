"""DICOM files, made up: slices of a CT series and radiographs, all identifiers invented."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

UID = "1.2.826.0.1.3680043.10.1462"
"""Root of the made-up identifiers."""
CT_IMAGE = "1.2.840.10008.5.1.4.1.1.2"
EXPLICIT, IMPLICIT, JPEG2000 = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2", "1.2.840.10008.1.2.4.90"


def dicom(
    stored: NDArray[Any],
    *,
    patient: str,
    series: int,
    number: int,
    place: float,
    slope: float = 1,
    intercept: float = -1024,
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
    made.Modality, made.InstanceNumber = "CT", number
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


def radiograph(
    pixels: NDArray[np.uint16], number: int, *, bits: int, inverted: bool = False, packed: bool = False
) -> bytes:
    """A digital X-ray of ``pixels`` (height, width): MONOCHROME1 where ``inverted``, JPEG 2000 where ``packed``."""
    return dicom(
        ((1 << bits) - 1 - pixels).astype(np.uint16) if inverted else pixels,
        patient=f"patient-{number}",
        series=number,
        number=1,
        place=0,
        intercept=0,
        syntax=JPEG2000 if packed else EXPLICIT,
        Modality="DX",
        PatientName="Doe^Jane",
        PatientAge="042Y",
        PhotometricInterpretation="MONOCHROME1" if inverted else "MONOCHROME2",
        BitsStored=bits,
        HighBit=bits - 1,
    )


def _jpeg2000(stored: NDArray[Any]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(stored.astype(np.uint16)).save(buffer, "JPEG2000", irreversible=False, no_jp2=True)
    return buffer.getvalue()
