"""Reports and boxes in made-up data: invented reports, radiographs with metadata, lists of checksums."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.files import sha256_bytes
from automedbench_rehearsal.making.files import generator, scene

FINDINGS = (
    "The lungs are clear and the heart is of normal size.",
    "A small left pleural effusion is seen, with atelectasis above it.",
    "The heart is enlarged, and the vessels are congested.",
    "There is a patchy opacity in the right lower lung.",
    "A tube ends 4 cm above the carina; no pneumothorax.",
    "The lungs are hyperinflated and the diaphragm is flat.",
    "A nodule of 8 mm lies in the left upper lobe.",
    "The right hemidiaphragm is raised, without a consolidation.",
)
IMPRESSIONS = ("No acute disease.", "Small effusion.", "Mild congestion.", "Possible pneumonia.")


def findings(number: int) -> str:
    """Invented findings, different for each of the first hundred numbers."""
    return f"{FINDINGS[number % len(FINDINGS)]} Rib {1 + number // len(FINDINGS)} shows an old fracture."


def impression(number: int) -> str:
    """An invented impression."""
    return IMPRESSIONS[number % len(IMPRESSIONS)]


def radiograph_jpeg(*words: object, colours: int = 1, size: tuple[int, int] = (40, 32)) -> bytes:
    """A JPEG of ``size`` (height, width) with metadata that must not reach an agent."""
    from PIL import Image

    image = Image.fromarray(scene(size, *words, colours=colours))
    exif = Image.Exif()
    exif[0x010E] = f"ImageDescription {words}"
    exif[0x9003] = "2015:01:02 03:04:05"
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90, exif=exif, comment=b"PatientName Doe^Jane")
    return buffer.getvalue()


def deep(shape: tuple[int, int], bits: int, *words: object) -> NDArray[np.uint16]:
    """Grey pixels of ``shape`` (height, width) that use most of ``bits`` bits."""
    values = scene(shape, *words).astype(np.uint16) << (bits - 8)
    return np.asarray(values + generator("deep", *words).integers(0, 1 << (bits - 8), shape, dtype=np.uint16))


def checksums(files: Mapping[str, bytes]) -> bytes:
    """PhysioNet's SHA256SUMS.txt: one line per file of a project."""
    return "".join(f"{sha256_bytes(data)} {name}\n" for name, data in sorted(files.items())).encode()


def physionet(project: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """URL → content of a project's files, such as mimic-cxr-jpg/2.1.0, and of its list of checksums."""
    listed = {**files, "SHA256SUMS.txt": checksums(files)}
    return {f"https://physionet.org/files/{project}/{name}": data for name, data in listed.items()}


def dicom(pixels: NDArray[np.uint16], number: int, *, bits: int, inverted: bool = False, packed: bool = False) -> bytes:
    """A DICOM X-ray of ``pixels`` (height, width): MONOCHROME1 where ``inverted``, JPEG 2000 where ``packed``.

    Its identifiers are invented, of the arc for UUIDs (2.25).
    """
    import pydicom
    from PIL import Image
    from pydicom.encaps import encapsulate

    meta: Any = pydicom.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = pydicom.uid.DigitalXRayImageStorageForPresentation
    meta.MediaStorageSOPInstanceUID = f"2.25.{1000 + number}"
    meta.TransferSyntaxUID = pydicom.uid.JPEG2000Lossless if packed else pydicom.uid.ExplicitVRLittleEndian
    meta.ImplementationClassUID = "2.25.1"
    image: Any = pydicom.dataset.Dataset()
    image.file_meta = meta
    image.SOPClassUID, image.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    image.Modality, image.PatientSex, image.PatientAge = "DX", "F", "042Y"
    image.PatientName, image.PatientID = "Doe^Jane", f"patient-{number}"
    image.Rows, image.Columns = pixels.shape
    image.SamplesPerPixel, image.PixelRepresentation = 1, 0
    image.PhotometricInterpretation = "MONOCHROME1" if inverted else "MONOCHROME2"
    image.BitsAllocated, image.BitsStored, image.HighBit = 16, bits, bits - 1
    stored = ((1 << bits) - 1 - pixels).astype(np.uint16) if inverted else pixels
    if packed:
        stream = io.BytesIO()
        Image.fromarray(stored).save(stream, "JPEG2000", no_jp2=True, irreversible=False)
        image.PixelData = encapsulate([stream.getvalue()])
        image["PixelData"].VR, image["PixelData"].is_undefined_length = "OB", True
    else:
        image.PixelData = stored.tobytes()
        image["PixelData"].VR = "OW"
    buffer = io.BytesIO()
    pydicom.dcmwrite(buffer, image, enforce_file_format=True)
    return buffer.getvalue()
