"""Slices: grey images in folders, and DICOM series, MR measurements and NIfTI volumes cut at fixed places."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.records import Model
from automedbench.base.untrusted.nifti import VolumeHeader, VolumeReader, open_trusted
from automedbench.base.yamlfile import validate
from automedbench.datasets.forms.dicom import (
    DicomImage,
    UnreadableDicom,
    passed_over_remark,
    read_header,
    read_series,
    read_values,
    require_usable,
)
from automedbench.datasets.forms.pictures import open_image
from automedbench.datasets.forms.problems import incomplete, unreadable
from automedbench.datasets.forms.slices import (
    CutVolumes,
    ImageFile,
    ImageFiles,
    SliceOrigin,
    SourceSlice,
    find_images,
    shape_image,
    slice_index,
    slice_positions,
    subject_id,
)

MAX_PIXELS = 50_000_000
EIGHT_BITS = 255
# Pillow's modes that hold grey values beyond 8 bits; all others are brought to 8-bit grey.
_DEEP = frozenset({"I", "F", "I;16", "I;16B", "I;16L"})


class SlicePair(Model):
    """Rule that maps the path of an image or volume to its degraded twin."""

    replace: str = Field(min_length=1, description="part of the path below the raw folder")
    by: str


class ImageFilesOptions(ImageFiles):
    """Grey images in folders: PNG, JPEG, TIFF or .npy files chosen by patterns, one image per file."""

    offset: float = Field(0.0, description="added to every stored value, for example -32768 to get HU")


def image_files(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """All images that the patterns take, sorted by path; their pixels are read later.

    Raises MissingDataError when there is none, InfrastructureError for a name without patient or two images of one id.
    """
    options = validate(card.staging.options, ImageFilesOptions, card.id, "staging.options")
    return [
        SourceSlice(found.id, found.subject, found.path, functools.partial(read_grey, found.path, options))
        for found in find_images(raw, options)
    ]


def read_grey(path: Path, options: ImageFilesOptions) -> NDArray[np.float32]:
    """One image as float32 (height, width): offset added, mapped to the scale, brought to the size, in this order.

    Raises InfrastructureError for files that are not readable images, hold several frames or too many pixels, or values
    that are none of the 8 bits a pixel that the window is for: beyond them, or shares of 1.
    """
    values = _stored(path)
    low, high = options.window or (-np.inf, np.inf)
    first, last = values.min(), values.max()
    shares = last <= 1 < high and (values % 1).any()
    if 0 <= low < high <= EIGHT_BITS and (shares or not 0 <= first <= last <= EIGHT_BITS):
        message = f"holds values from {first:g} to {last:g}; the card's window is {low:g} to {high:g} (8 bits)"
        raise unreadable(path, message)
    return shape_image(values + options.offset, options)


def _stored(path: Path) -> NDArray[np.float64]:
    if path.suffix == ".npy":
        return _array(path)
    with open_image(path, path) as image:
        if image.width * image.height > MAX_PIXELS or getattr(image, "n_frames", 1) > 1:
            raise ValueError(f"{image.width}×{image.height} pixels or several frames")
        grey = image if image.mode in _DEEP else image.convert("L")
        return np.array(grey, dtype=np.float64)


def _array(path: Path) -> NDArray[np.float64]:
    try:
        values = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
    except (OSError, ValueError, EOFError) as error:
        raise unreadable(path, f"is not a readable array of numbers: {error}") from error
    if values.ndim != 2 or values.size > MAX_PIXELS:
        raise unreadable(path, f"has the shape {values.shape}, not that of one image")
    return values


class DicomSlicesOptions(CutVolumes):
    """Slices of DICOM series in folders, taken at fixed places of the series that has the most images of its patient.

    ``subject`` finds the patient in the path of a file's folder; without it, PatientID counts.

    A folder holds one series or several. To list the patients, one header per folder is read; all headers of a series
    only when its patient is chosen. Files that cannot be read are named in the split record and passed over while they
    are at most a tenth of the series. Slices lie as stored.
    """

    images: list[str] = Field(["**/*.dcm"], min_length=1, description="patterns of DICOM files below the raw folder")
    modality: str = "CT"


def dicom_slices(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """A record per patient and position, sorted by patient; folders without an image of the modality are passed over.

    Raises MissingDataError when there is none, InfrastructureError for a folder without patient in its path.
    """
    options = validate(card.staging.options, DicomSlicesOptions, card.id, "staging.options")
    patients: dict[str, list[_Folder]] = {}
    for folder in _folders(raw, options):
        patients.setdefault(folder.subject, []).append(folder)
    if not patients:
        raise incomplete(
            f"{raw} contains no DICOM file of modality {options.modality} that matches {', '.join(options.images)}"
        )
    found = []
    for subject, folders in sorted(patients.items()):
        largest = min(folders, key=lambda folder: (-len(folder.files), folder.path))
        for identity, position in slice_positions(subject, options.positions):
            chosen = _Slice(largest, options, position)
            found.append(SourceSlice(identity, subject, largest.path, chosen.pixels, origin=chosen.origin))
    return found


class _Folder(NamedTuple):
    """The files of one folder, of which at least one is of the modality."""

    path: Path
    files: tuple[Path, ...]
    subject: str


class _Slice:
    """One slice of a folder's series, chosen when it is first asked for."""

    def __init__(self, folder: _Folder, options: DicomSlicesOptions, position: float) -> None:
        self._folder, self._options, self._position = folder, options, position
        self._origin: SliceOrigin | None = None

    def pixels(self) -> NDArray[np.float32]:
        """The slice as float32 (height, width), its values and size as the options say."""
        self._origin, values = self._read()
        return shape_image(values, self._options)

    def origin(self) -> SliceOrigin:
        """Its file, and what was passed over in its series."""
        if self._origin is None:
            self._origin, _ = self._read()
        return self._origin

    def _read(self) -> tuple[SliceOrigin, NDArray[np.float32]]:
        """The slice at the position; if its pixels turn out damaged, the one at that position of what is left."""
        series = read_series(self._folder.files, self._options.modality)
        slices, broken = list(series.slices), dict(series.broken)
        while slices:
            image = slices[slice_index(self._position, len(slices))]
            try:
                values = read_values(image)
            except UnreadableDicom as error:
                broken[image.path] = str(error)
                slices.remove(image)
                require_usable(broken, len(self._folder.files))
                continue
            remarks = [*(passed_over_remark(path, why) for path, why in broken.items()), *series.remarks]
            return SliceOrigin(image.path, tuple(remarks)), values
        raise InfrastructureError(
            f"{self._folder.path} contains no slice that can be read.\nDelete it and fetch the data again "
            "(`snakemake prepare`)."
        )


def _folders(raw: Path, options: DicomSlicesOptions) -> list[_Folder]:
    files: dict[Path, set[Path]] = {}
    for pattern in options.images:
        for path in raw.glob(pattern):
            if not path.name.startswith(".") and path.is_file():
                files.setdefault(path.parent, set()).add(path)
    found = []
    for folder, paths in sorted(files.items()):
        ordered = tuple(sorted(paths))
        image = _first_of(ordered, options.modality)
        if image is None:
            continue
        name = folder.relative_to(raw).as_posix()
        subject = image.patient if options.subject is None else subject_id(name, options.subject)
        if subject not in options.exclude:
            found.append(_Folder(folder, ordered, subject))
    return found


def _first_of(paths: tuple[Path, ...], modality: str) -> DicomImage | None:
    """The first image of the modality; the others of a folder are looked at only until there is one."""
    for path in paths:
        try:
            image = read_header(path)
        except UnreadableDicom:
            continue
        if image.modality == modality and not image.localizer:
            return image
    return None


KSPACE = "kspace"
MASK = "mask"
"""Data set of files that were sampled in part: no image of them is a reference."""


class KspaceVolumesOptions(CutVolumes):
    """Slices of MR measurements in HDF5 files as fastMRI stores them, one file per volume.

    A file holds ``kspace``, complex (slices, rows, columns) or (slices, coils, rows, columns), perhaps images that were
    reconstructed from it (``reconstruction_rss``), and attributes, among them ``patient_id``
    (github.com/facebookresearch/fastMRI, fastmri/data/README.md). What the options shape is the magnitude.

    From k-space, an image is the root of the sum over coils of the squared magnitudes of the centred inverse Fourier
    transform. Only the slice that is needed is read.
    """

    dataset: str = Field(KSPACE, description="kspace, or a data set of images (slices, rows, columns)")


def kspace_volumes(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """A record per file and position, sorted by path. The patient is the file's ``patient_id``, else its id.

    Raises MissingDataError when there is no file, InfrastructureError for one that is damaged or lacks the data set.
    """
    options = validate(card.staging.options, KspaceVolumesOptions, card.id, "staging.options")
    found = []
    for each in find_images(raw, options):
        subject = _patient(each, options)
        for identity, position in slice_positions(each.id, options.positions):
            pixels = functools.partial(read_slice, each.path, options, position)
            found.append(SourceSlice(identity, subject, each.path, pixels))
    return found


def read_slice(path: Path, options: KspaceVolumesOptions, position: float) -> NDArray[np.float32]:
    """The magnitude of one slice as float32 (height, width), its values and size as the options say."""
    with _opened(path, options) as stored:
        values = np.asarray(stored[slice_index(position, len(stored))])
    return shape_image(magnitude(values) if options.dataset == KSPACE else np.abs(values), options)


def magnitude(kspace: NDArray[Any]) -> NDArray[np.float32]:
    """Image (rows, columns) of one slice's k-space, (rows, columns) or (coils, rows, columns)."""
    axes = (-2, -1)
    image = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace, axes=axes), norm="ortho"), axes=axes)
    coils = image.reshape(-1, *image.shape[-2:])
    return np.asarray(np.sqrt((np.abs(coils) ** 2).sum(axis=0)), dtype=np.float32)


def _patient(each: ImageFile, options: KspaceVolumesOptions) -> str:
    if options.subject is not None:
        return each.subject
    with _opened(each.path, options) as stored:
        known = stored.parent.attrs.get("patient_id")
    if isinstance(known, bytes):
        known = known.decode("utf-8", "replace")
    return str(known) if known else each.id


@contextlib.contextmanager
def _opened(path: Path, options: KspaceVolumesOptions) -> Iterator[Any]:
    """The data set of a file, checked, while the block runs."""
    import h5py

    name = options.dataset
    try:
        with h5py.File(path, "r") as file:
            if problem := _problem(file, name):
                raise _unusable(path, problem)
            yield file[name]
    except OSError as error:
        raise _unusable(path, f"is no readable HDF5 file or a damaged one ({str(error)[:120]})") from error


def _problem(file: Any, name: str) -> str | None:
    """Reason that the data set cannot be read as slices, or None."""
    if name not in file:
        return f"has no data set '{name}', only {', '.join(sorted(file)) or 'nothing'}"
    if MASK in file:
        return "was sampled in part (it has a data set 'mask'), so no image of it is a reference"
    shape = file[name].shape
    if len(shape) not in ((3, 4) if name == KSPACE else (3,)) or 0 in shape:
        return f"has '{name}' of shape {shape}"
    return None


def _unusable(path: Path, why: str) -> InfrastructureError:
    return InfrastructureError(
        f"{path} {why}.\nDelete it and fetch the data again (`snakemake prepare`), or name it in "
        "staging.options.exclude of the card."
    )


# Plane → patient's axis (x to the right, y to the front, z upwards) that it is perpendicular to, of its rows, columns.
_AXES = {"sagittal": (0, 2, 1), "coronal": (1, 2, 0), "axial": (2, 1, 0)}


class VolumeSlicesOptions(CutVolumes):
    """Slices of NIfTI volumes, one file per volume, taken at fixed places of the patient's axes.

    A volume is read as a stream, so that one slice is in memory, not the volume (both with ``within: content``). Slices
    lie as radiologists look at them: the patient's right at the left edge, front or head at the top; a sagittal one has
    the front at its left. Axes are turned and flipped to the closest orientation, never resampled.
    """

    axis: Literal["axial", "coronal", "sagittal"] = "axial"
    within: Literal["volume", "content"] = Field(
        "volume", description="content: places count between the first and the last slice that is not constant"
    )
    degraded: SlicePair | None = Field(
        None, description="how a second volume is found, with the same slices as a data set of pairs has them"
    )


def volume_slices(raw: Path, card: TaskCard) -> list[SourceSlice]:
    """A record per volume and position, sorted by path; nothing is opened yet.

    Raises MissingDataError when there is no volume or a twin is missing, InfrastructureError for a name without
    patient or two volumes of one id.
    """
    options = validate(card.staging.options, VolumeSlicesOptions, card.id, "staging.options")
    found = []
    for each in find_images(raw, options):
        twin = _twin(raw, each.path, options.degraded)
        for identity, position in slice_positions(each.id, options.positions):
            pixels = functools.partial(read_plane, each.path, options, position)
            degraded = None if twin is None else functools.partial(_read_twin, twin, each.path, options, position)
            found.append(SourceSlice(identity, each.subject, each.path, pixels, degraded))
    return found


def read_plane(path: Path, options: VolumeSlicesOptions, position: float) -> NDArray[np.float32]:
    """One slice of a volume as float32 (height, width), its values and size as the options say.

    Raises InfrastructureError for a volume that is damaged, has no three axes, no usable geometry or no content.
    """
    with open_trusted(path) as reader:
        return shape_image(_plane(reader, path, options, position), options)


def _read_twin(twin: Path, original: Path, options: VolumeSlicesOptions, position: float) -> NDArray[np.float32]:
    with open_trusted(twin) as second, open_trusted(original) as first:
        if first.header.shape != second.header.shape:
            raise _unusable(twin, f"has shape {second.header.shape}, but {original} has {first.header.shape}")
        if _orientation(first.header, original) != _orientation(second.header, twin):
            raise _unusable(twin, f"is oriented otherwise than {original}")
    return read_plane(twin, options, position)


def _twin(raw: Path, path: Path, pair: SlicePair | None) -> Path | None:
    if pair is None:
        return None
    name = path.relative_to(raw).as_posix()
    twin = raw / name.replace(pair.replace, pair.by, 1)
    if twin == path or not twin.is_file():
        raise MissingDataError(
            f"{twin} does not exist, or is the same file: {path} has no degraded twin.\n"
            "Fetch the data again (`snakemake prepare`), or correct staging.options.degraded of the card."
        )
    return twin


# --- one plane ------------------------------------------------------------------------------------------------


def _plane(reader: VolumeReader, path: Path, options: VolumeSlicesOptions, position: float) -> NDArray[Any]:
    shape = (*reader.header.shape, 1, 1, 1)[:3]
    if reader.header.n_voxels != int(np.prod(shape)) or min(shape) < 2:
        raise _unusable(path, f"has shape {reader.header.shape}, not three axes")
    orientation = _orientation(reader.header, path)
    across, *_ = _AXES[options.axis]
    axis = next(stored for stored, (turned, _) in enumerate(orientation) if turned == across)
    upwards = orientation[axis][1] > 0
    if options.within == "content":
        stack = np.moveaxis(np.stack(list(reader.slices()), axis=-1), axis, 0)
        stack = _content(stack, path)
        index = slice_index(position, len(stack))
        values = stack[index if upwards else len(stack) - 1 - index]
    else:
        index = slice_index(position, shape[axis])
        values = _cut(reader, axis, index if upwards else shape[axis] - 1 - index)
    return _upright(values, [each for stored, each in enumerate(orientation) if stored != axis], options.axis)


def _cut(reader: VolumeReader, axis: int, index: int) -> NDArray[Any]:
    """The plane of that index across a stored axis; the other two axes stay in their order."""
    if axis == 2:
        chosen = [values for z, values in enumerate(reader.slices()) if z == index]
        return chosen[0]
    return np.stack([np.take(values, index, axis=axis) for values in reader.slices()], axis=-1)


def _content(stack: NDArray[Any], path: Path) -> NDArray[Any]:
    """From the first to the last plane that is not of one value."""
    varied = np.flatnonzero(stack.min(axis=(1, 2)) != stack.max(axis=(1, 2)))
    if varied.size == 0:
        raise _unusable(path, "holds one value only")
    return stack[varied[0] : varied[-1] + 1]


def _upright(values: NDArray[Any], orientation: list[tuple[int, int]], plane: str) -> NDArray[Any]:
    """Rows from head or front downwards, columns from the patient's right, or front, onwards."""
    _, rows, _ = _AXES[plane]
    for number, (_, direction) in enumerate(orientation):
        # The patient's axes point to the right, front and head; a picture begins with each of them.
        values = np.flip(values, number) if direction > 0 else values
    return values if orientation[0][0] == rows else values.T


def _orientation(header: VolumeHeader, path: Path) -> list[tuple[int, int]]:
    """For each stored axis, the patient's axis that it is closest to, and 1 or -1 for its direction."""
    import nibabel

    affine = header.affine
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
        raise _unusable(path, "has no usable geometry")
    orientations: Any = nibabel.orientations
    return [(int(axis), int(direction)) for axis, direction in orientations.io_orientation(affine)]
