"""Scans, made up: CT in HU, an MRI, outlines and label maps of bodies, and files of them; all identifiers invented."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import generator, gzipped

Array = NDArray[Any]
Shape = Sequence[int]
SMALL: Final = (16, 14, 10)
BODY: Final = (64, 64, 36)


# --- what is seen ---------------------------------------------------------------------------------------------


def ct(number: int, shape: Shape = BODY) -> NDArray[np.int16]:
    """HU (x, y, z): air, an elliptic body with coarse texture, and a spine that leans from slice to slice."""
    x, y, z = np.ogrid[: shape[0], : shape[1], : shape[2]]
    middle = (shape[0] / 2, shape[1] / 2)
    values = np.full(shape, -1000.0)
    inside = np.broadcast_to(_inside(x, y, shape, number), shape)
    texture = 40 + 60 * np.sin(0.9 * z + 0.3 * x + number) * np.cos(0.2 * y)
    values[inside] = texture[inside]
    bone = (x - middle[0] - (number % 10 - 2) * np.sin(0.4 * z)) ** 2 + (y - 0.7 * middle[1]) ** 2 < 30
    values[bone & inside] = 700 + 30 * (number % 10)
    return np.rint(values / 10).astype(np.int16) * 10


def mri(number: int, shape: Shape = BODY) -> NDArray[np.int16]:
    """The same body in an MRI: no unit, bone dark, air zero."""
    values = ct(number, shape).astype(float)
    return np.where(values < -500, 0, np.where(values > 500, 60, 300 + 2 * values)).astype(np.int16)


def outline(number: int, shape: Shape = BODY) -> NDArray[np.uint8]:
    """The body dilated by some voxels, 0 and 1."""
    x, y, _ = np.ogrid[: shape[0], : shape[1], : shape[2]]
    return np.broadcast_to(_inside(x, y, shape, number, more=3), shape).astype(np.uint8)


def _inside(x: Array, y: Array, shape: Shape, number: int, more: float = 0) -> NDArray[np.bool_]:
    width, height = 0.40 * shape[0] - number % 3 + more, 0.32 * shape[1] + number % 2 + more
    body = ((x - shape[0] / 2) / width) ** 2 + ((y - shape[1] / 2) / height) ** 2 < 1
    return np.asarray(body[:, :, :1])


def body(shape: Shape, *words: object) -> NDArray[np.int16]:
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


def ball(shape: Sequence[int], centre: Sequence[float], radius: float) -> NDArray[np.bool_]:
    """Voxels or pixels within ``radius`` of ``centre``, both in voxels."""
    grids = np.ogrid[tuple(slice(0, size) for size in shape)]
    distance = sum((grid - place) ** 2 for grid, place in zip(grids, centre, strict=True))
    return np.asarray(distance <= radius**2)


def organ_and_tumour(index: int, shape: Shape = SMALL, *, tumour: bool = True) -> Array:
    """A label map of 1 with, inside, 2; of another size and place for each index."""
    x, y, z = (size / 2 for size in shape)
    centre = (x + index % 3 - 1, y + index % 2, z)
    labels = np.zeros(shape, np.uint8)
    labels[ball(shape, centre, 4.2)] = 1
    if tumour:
        labels[ball(shape, (centre[0] + 1, centre[1] + 1, z), 1.6 + 0.4 * (index % 2))] = 2
    return labels


# --- as files -------------------------------------------------------------------------------------------------


def affine(spacing: Sequence[float], flip: str = "", origin: Sequence[float] = (-40, -30, 100)) -> Array:
    """Voxels → mm (RAS); axes named in ``flip`` run the other way: "xy" as most scanners store them."""
    signs = [-1.0 if axis in flip else 1.0 for axis in "xyz"]
    matrix = np.diag([*(sign * size for sign, size in zip(signs, spacing, strict=True)), 1.0])
    matrix[:3, 3] = origin
    return matrix


def nifti(
    values: Array,
    place: Array | None = None,
    *,
    gz: bool = True,
    describe: str = "",
    qform: int = 1,
    sform: int = 1,
    scaling: tuple[float, float] | None = None,
) -> bytes:
    """A NIfTI-1 file of ``values`` (x, y, z[, t]), placed by this affine (voxels → mm, RAS; identity without one).

    ``describe`` goes into the header's text, ``qform`` and ``sform`` are the codes of both, ``scaling`` is a slope and
    an intercept that the header tells for any values.
    """
    import nibabel

    kind: Any = nibabel.Nifti1Image
    image = kind(values, np.eye(4) if place is None else place)
    image.header["descrip"] = describe.encode()[:79]
    image.set_qform(image.affine, qform)
    image.set_sform(image.affine if sform else None, sform)
    data = bytearray(image.to_bytes())
    if scaling is not None:
        struct.pack_into("<2f", data, 112, *scaling)
    return gzipped(bytes(data)) if gz else bytes(data)


def metaimage(values: Array, place: Array, *, compressed: bool = True) -> bytes:
    """A MetaImage (.mha), in LPS, of ``values`` (x, y, z) placed by this affine (voxels → mm, RAS)."""
    import tempfile
    from pathlib import Path

    import SimpleITK

    itk: Any = SimpleITK

    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ place
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    image = itk.GetImageFromArray(np.ascontiguousarray(values.T))
    image.SetSpacing([float(size) for size in spacing])
    image.SetDirection((lps[:3, :3] / spacing).ravel().tolist())
    image.SetOrigin(lps[:3, 3].tolist())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "volume.mha")
        itk.WriteImage(image, str(path), compressed)
        return path.read_bytes()


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
