"""DICOM files (PS3.3, PS3.5): one file's header and pixels, the slices of a series in order, and radiographs.

pydicom reads headers and uncompressed pixels; other transfer syntaxes are decoded by SimpleITK. Values of CT are HU:
stored × RescaleSlope + RescaleIntercept, both of the file they stand in. Nothing of a header but geometry and scale is
ever passed on. Radiographs, also those in deep PNG, become 8-bit pictures of their own size.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_file
from automedbench.datasets.forms.pictures import Picture, encode_array, open_image, picture_file, tone_mapped
from automedbench.datasets.forms.problems import last_line, unreadable

AIR_HU = -1024.0
"""What pixels outside the scanner's field of view become: the lowest value of 12-bit CT."""
UNREADABLE_AT_MOST = 0.1
"""A series of which more than this share of files cannot be read is not used."""
SAME_PLACE_MM = 1e-2
_DAMAGE = (OSError, EOFError, ValueError, TypeError, AttributeError, LookupError, RuntimeError)
"""What pydicom raises for damaged files."""
_TAGS = [
    *("Modality", "PatientID", "SeriesInstanceUID", "SOPInstanceUID", "InstanceNumber", "ImageType"),
    *("ImagePositionPatient", "ImageOrientationPatient", "SliceLocation", "Rows", "Columns", "NumberOfFrames"),
    *("SamplesPerPixel", "BitsAllocated", "PixelRepresentation", "PhotometricInterpretation"),
    *("RescaleSlope", "RescaleIntercept", "PixelPaddingValue", "PixelPaddingRangeLimit"),
]


Found = TypeVar("Found")


class UnreadableDicom(Exception):
    """A file that is no usable DICOM image; the message says why."""


@dataclass(frozen=True)
class DicomImage:
    """Header fields of one file. ``place`` is its position along the series' normal in mm, if known."""

    path: Path
    modality: str
    patient: str
    series: str
    instance: tuple[int, str]
    shape: tuple[int, int]
    place: float | None
    localizer: bool
    inverted: bool
    """Low values are bright (MONOCHROME1)."""
    slope: float
    intercept: float
    padding: tuple[float, float] | None
    """Lowest and highest stored value that means 'no data here'."""
    encoded: bool
    """The pixels are compressed."""
    orientation: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Series:
    """The slices of one series in order of place (else of instance number), and what was passed over."""

    slices: tuple[DicomImage, ...]
    remarks: tuple[str, ...]
    broken: dict[Path, str]
    """Files that cannot be read, and why."""


def read_header(path: Path) -> DicomImage:
    """Header of one file; raises UnreadableDicom when it is damaged, cut off, or holds no single grey image."""
    pydicom = _pydicom()
    try:
        return _interpreted(path, pydicom.dcmread(path, stop_before_pixels=True, specific_tags=_TAGS))
    except UnreadableDicom:
        raise
    except _DAMAGE as error:
        raise UnreadableDicom(f"is no readable DICOM file ({last_line(error)})") from error
    except pydicom.errors.InvalidDicomError as error:
        raise UnreadableDicom(f"is no DICOM file ({last_line(error)})") from error


def read_values(image: DicomImage) -> NDArray[np.float32]:
    """Pixels as float32 (rows, columns): stored × slope + intercept.

    Pixels marked as padding become −1024 in CT, else the lowest other value. Images other than CT that are bright at
    low values are turned over (highest + lowest − value), so that bright is high. Raises UnreadableDicom.
    """
    stored, scaled = _pixels(image)
    values = stored.astype(np.float64)
    if scaled:
        # SimpleITK has applied slope and intercept already.
        stored = (values - image.intercept) / image.slope
    else:
        values = values * image.slope + image.intercept
    outside = np.zeros(stored.shape, dtype=bool)
    if image.padding is not None:
        low, high = image.padding
        outside = (stored >= low) & (stored <= high)
    inside = values[~outside]
    lowest = float(inside.min()) if inside.size else 0.0
    if image.inverted and image.modality != "CT" and inside.size:
        values = float(inside.max()) + lowest - values
    values[outside] = AIR_HU if image.modality == "CT" else lowest
    return values.astype(np.float32)


def read_series(paths: Sequence[Path], modality: str) -> Series:
    """The largest series of a modality among these files, in order; scouts and images of another size are left out.

    Of slices at one place the first by instance number is kept. Files that cannot be read are passed over while they
    are at most a tenth; otherwise, and when nothing is left, InfrastructureError is raised that names one.
    """
    images, broken = _headers(paths)
    require_usable(broken, len(paths))
    groups: dict[str, list[DicomImage]] = {}
    for image in images:
        if image.modality == modality and not image.localizer:
            groups.setdefault(image.series, []).append(image)
    if not groups:
        raise InfrastructureError(
            f"{paths[0].parent} contains no {modality} series.\nDelete it and run `snakemake prepare` again."
        )
    chosen = min(groups.values(), key=lambda group: (-len(group), group[0].series))
    alike, others = _alike(chosen)
    ordered, twins = _in_order(alike)
    remarks = [passed_over_remark(image.path, "has another size or direction than its series") for image in others]
    remarks += [passed_over_remark(image.path, "lies at the place of another slice") for image in twins]
    return Series(tuple(ordered), tuple(remarks), broken)


def passed_over_remark(path: Path, why: str) -> str:
    """A remark about a file; of its path, the last folder and the name are told."""
    return f"{path.parent.name}/{path.name} {why}; passed over"


def require_usable(broken: dict[Path, str], total: int) -> None:
    """Raise InfrastructureError when more than a tenth of a series' files cannot be read."""
    if len(broken) > UNREADABLE_AT_MOST * total:
        path, why = next(iter(broken.items()))
        raise InfrastructureError(
            f"{path} {why}; {len(broken)} of the {total} files of its series cannot be read.\n"
            "Delete the folder and fetch the data again (`snakemake prepare`)."
        )


# --- headers --------------------------------------------------------------------------------------------------


def _pydicom() -> Any:
    """pydicom without its warnings of values that break the standard; what is used of them is checked here."""
    import pydicom

    warnings.filterwarnings("ignore", module="pydicom")
    return pydicom


def _headers(paths: Sequence[Path]) -> tuple[list[DicomImage], dict[Path, str]]:
    images, broken = [], {}
    for path in paths:
        try:
            images.append(read_header(path))
        except UnreadableDicom as error:
            broken[path] = str(error)
    return images, broken


def _interpreted(path: Path, header: Any) -> DicomImage:
    syntax = header.file_meta.TransferSyntaxUID
    if "Rows" not in header or "Columns" not in header:
        raise UnreadableDicom("contains no picture, or ends before it says how large it is")
    rows, columns = int(header.Rows), int(header.Columns)
    if int(header.get("NumberOfFrames") or 1) > 1 or int(header.get("SamplesPerPixel") or 1) > 1:
        raise UnreadableDicom("holds several frames or colours")
    encoded = bool(syntax.is_compressed)
    if not encoded and path.stat().st_size < rows * columns * int(header.BitsAllocated) // 8:
        raise UnreadableDicom(f"is cut off: it has no room for {rows}×{columns} pixels")
    orientation = tuple(float(value) for value in header.get("ImageOrientationPatient") or ())
    return DicomImage(
        path=path,
        modality=str(header.get("Modality", "")),
        patient=str(header.get("PatientID", "")),
        series=str(header.get("SeriesInstanceUID", "")),
        instance=(int(header.get("InstanceNumber") or 0), str(header.get("SOPInstanceUID", ""))),
        shape=(rows, columns),
        place=_place(header, orientation),
        localizer="LOCALIZER" in [str(word).upper() for word in header.get("ImageType") or ()],
        inverted=str(header.get("PhotometricInterpretation", "")).strip() == "MONOCHROME1",
        slope=float(header.get("RescaleSlope") or 1),
        intercept=float(header.get("RescaleIntercept") or 0),
        padding=_padding(header),
        encoded=encoded,
        orientation=tuple(round(value, 3) for value in orientation),
    )


def _place(header: Any, orientation: tuple[float, ...]) -> float | None:
    """Position of the image's corner along the normal of its plane, in mm."""
    corner = header.get("ImagePositionPatient")
    if corner and len(corner) == 3 and len(orientation) == 6:
        normal = np.cross(orientation[:3], orientation[3:])
        return float(np.dot([float(value) for value in corner], normal))
    where = header.get("SliceLocation")
    return None if where in (None, "") else float(where)


def _padding(header: Any) -> tuple[float, float] | None:
    value = header.get("PixelPaddingValue")
    if value in (None, ""):
        return None
    limit = header.get("PixelPaddingRangeLimit")
    ends = [_as_stored(each, header) for each in (value, value if limit in (None, "") else limit)]
    return min(ends), max(ends)


def _as_stored(value: Any, header: Any) -> float:
    """A padding value in the pixels' type: some writers put the unsigned reading of a negative one there."""
    bits = int(header.BitsAllocated)
    wrapped = int(value) % 2**bits
    return float(wrapped - 2**bits if header.PixelRepresentation and wrapped >= 2 ** (bits - 1) else wrapped)


def _alike(images: list[DicomImage]) -> tuple[list[DicomImage], list[DicomImage]]:
    """Images of the size and direction that most have, and the rest."""
    kinds = [(image.shape, image.orientation) for image in images]
    usual = max(sorted(set(kinds)), key=kinds.count)
    alike = [image for image, kind in zip(images, kinds, strict=True) if kind == usual]
    return alike, [image for image, kind in zip(images, kinds, strict=True) if kind != usual]


def _in_order(images: list[DicomImage]) -> tuple[list[DicomImage], list[DicomImage]]:
    """Images by place, and those that lie where another one does already."""
    if any(image.place is None for image in images):
        return sorted(images, key=lambda image: image.instance), []
    kept: list[DicomImage] = []
    twins: list[DicomImage] = []
    for image in sorted(images, key=lambda image: (round(image.place or 0.0, 2), image.instance)):
        twin = bool(kept) and abs((image.place or 0.0) - (kept[-1].place or 0.0)) < SAME_PLACE_MM
        (twins if twin else kept).append(image)
    return kept, twins


# --- pixels ---------------------------------------------------------------------------------------------------


def _pixels(image: DicomImage) -> tuple[NDArray[Any], bool]:
    """Pixels, and whether slope and intercept are in them already."""
    found, scaled = (_decoded(image), True) if image.encoded else (_plain(image.path), False)
    if found.shape != image.shape:
        raise UnreadableDicom(f"holds pixels of shape {found.shape}, not {image.shape}")
    return found, scaled


def _plain(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(_pydicom().dcmread(path).pixel_array)
    except _DAMAGE as error:
        raise UnreadableDicom(f"has no readable pixels ({last_line(error)})") from error


def _decoded(image: DicomImage) -> NDArray[Any]:
    if image.inverted:  # GDCM turns the pixels over and scales them after that
        raise UnreadableDicom("is MONOCHROME1 and compressed; decompress it first")
    return decode_with_gdcm(image.path)


def decode_with_gdcm(path: Path) -> NDArray[Any]:
    """Values of any transfer syntax, (rows, columns), scaled, and turned over where low is bright.

    Raises UnreadableDicom.
    """
    import SimpleITK

    itk: Any = SimpleITK
    reader = itk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.SetImageIO("GDCMImageIO")
    try:
        values = itk.GetArrayFromImage(reader.Execute())
    except RuntimeError as error:
        raise UnreadableDicom(f"has pixels that cannot be decoded ({last_line(error)})") from error
    return np.asarray(values[0] if values.ndim == 3 and len(values) == 1 else values)


DICOM_SUFFIXES = (".dicom", ".dcm")
_DEEP_MODES = ("I", "I;16", "I;16B", "F")  # Pillow's modes of more than 8 bits


@dataclass(frozen=True)
class ConvertedPicture(Picture):
    """A picture that is made of a file with more than 8 bits; its digest is the one of that file."""

    path: Path

    @property
    def sha256(self) -> str:
        """Digest of the file upstream."""
        return sha256_file(self.path)


def picture_and_size(path: Path) -> tuple[Picture, tuple[int, int]]:
    """The picture of a file, and its width and height in pixels; only the header is read.

    An 8-bit file is taken as it is. More than 8 bits a channel, and DICOM, become 8-bit grey when the picture is read:
    the lowest value black, the highest white, and MONOCHROME1 inverted first (PS3.3 C.7.6.3.1.2), so that bone is
    always bright. Raises InfrastructureError naming a file that cannot be read.
    """
    if path.suffix.lower() in DICOM_SUFFIXES:
        height, width = _usable(read_header, path).shape
        # GDCM decompresses, and turns MONOCHROME1 into MONOCHROME2.
        return _converted(path, functools.partial(_usable, decode_with_gdcm)), (width, height)
    with open_image(path, path) as image:
        mode, size = image.mode, image.size
    if mode in _DEEP_MODES:
        return _converted(path, _deep_pixels), size
    return picture_file(path), size


def _converted(path: Path, pixels: Callable[[Path], NDArray[Any]]) -> Picture:
    # A PGM: staging encodes it again, so that compressing it here would be for nothing.
    return ConvertedPicture(str(path), lambda: encode_array(tone_mapped(pixels(path)), "PPM"), path)


def _deep_pixels(path: Path) -> NDArray[Any]:
    with open_image(path, path) as image:
        return np.asarray(image)


def _usable(read: Callable[[Path], Found], path: Path) -> Found:
    """Read the header of a DICOM file; raises InfrastructureError for a damaged one."""
    try:
        return read(path)
    except UnreadableDicom as error:
        raise unreadable(path, str(error)) from error
