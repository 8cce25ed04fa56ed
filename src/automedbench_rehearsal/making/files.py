"""Bytes of small files in the formats that upstream data sets use: the same bytes for the same arguments, always."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench.base.files import sha256_bytes

_EPOCH = (1980, 1, 1, 0, 0, 0)


def generator(*words: object) -> np.random.Generator:
    """Random numbers that depend on the words alone."""
    return np.random.Generator(np.random.PCG64(int(sha256_bytes("|".join(map(str, words)).encode())[:16], 16)))


def zipped(files: Mapping[str, bytes], *, compress: bool = True) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, kind)
    return buffer.getvalue()


def tarred(files: Mapping[str, bytes], *, gz: bool = False) -> bytes:
    """A tar archive, gzipped where ``gz``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzipped(buffer.getvalue()) if gz else buffer.getvalue()


def gzipped(data: bytes) -> bytes:
    """Gzip without a time stamp."""
    return gzip.compress(data, 6, mtime=0)


def nifti(
    values: NDArray[Any], affine: NDArray[Any] | None = None, *, gz: bool = True, describe: str = "", codes: int = 1
) -> bytes:
    """A NIfTI-1 file of ``values`` (x, y, z[, t]) with this affine (voxels → mm, RAS; identity without one).

    ``describe`` goes into the header's text, ``codes`` are those of qform and sform.
    """
    import nibabel

    kind: Any = nibabel.Nifti1Image
    image = kind(values, np.eye(4) if affine is None else affine)
    image.header["descrip"] = describe.encode()[:79]
    image.set_qform(image.affine, codes)
    image.set_sform(image.affine, codes)
    data: bytes = image.to_bytes()
    return gzipped(data) if gz else data


def picture(pixels: NDArray[Any], form: str = "PNG", **options: Any) -> bytes:
    """An image file of uint8 pixels (height, width[, 3]), or uint16 (height, width) for PNG; options are Pillow's."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


def scene(shape: tuple[int, ...], *words: object, colours: int = 1) -> NDArray[np.uint8]:
    """Smooth blobs on a dark ground: pixels of ``shape`` (height, width), or volume (x, y, z) with ``colours`` 1."""
    chance = generator("scene", shape, *words)
    grids = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    layers = []
    for _ in range(colours):
        values = np.zeros(shape)
        for _ in range(4):
            centre, width = chance.uniform(-0.6, 0.6, len(shape)), chance.uniform(0.15, 0.5)
            distance = sum((grid - place) ** 2 for grid, place in zip(grids, centre, strict=True))
            values += chance.uniform(0.3, 1.0) * np.exp(-distance / width**2)
        values += chance.normal(0, 0.02, shape)
        layers.append(np.clip(values / 2.2, 0, 1))
    pixels = np.rint(np.stack(layers, axis=-1) * 255).astype(np.uint8)
    return pixels[..., 0] if colours == 1 else pixels


def ball(shape: Sequence[int], centre: Sequence[float], radius: float) -> NDArray[np.bool_]:
    """Voxels or pixels within ``radius`` of ``centre``, both in voxels."""
    grids = np.ogrid[tuple(slice(0, size) for size in shape)]
    distance = sum((grid - place) ** 2 for grid, place in zip(grids, centre, strict=True))
    return np.asarray(distance <= radius**2)


def parquet(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None = None) -> bytes:
    """A Parquet file of the rows; pictures are ``{"bytes": …, "path": …}`` as on the hub. ``schema``: polars types."""
    import polars

    buffer = io.BytesIO()
    polars.DataFrame(list(rows), schema=schema, strict=False).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def table(rows: Sequence[Mapping[str, Any]], delimiter: str = ",") -> bytes:
    """A CSV file with a header, quoted where needed."""
    import csv

    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def metaimage(values: NDArray[Any], affine: NDArray[Any], *, compressed: bool = True) -> bytes:
    """A MetaImage (.mha) of ``values`` (x, y, z) with this affine (voxels → mm, RAS), written by SimpleITK in LPS."""
    import tempfile
    from pathlib import Path

    import SimpleITK

    itk: Any = SimpleITK

    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    image = itk.GetImageFromArray(np.ascontiguousarray(values.T))
    image.SetSpacing([float(size) for size in spacing])
    image.SetDirection((lps[:3, :3] / spacing).ravel().tolist())
    image.SetOrigin(lps[:3, 3].tolist())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "volume.mha")
        itk.WriteImage(image, str(path), compressed)
        return path.read_bytes()
