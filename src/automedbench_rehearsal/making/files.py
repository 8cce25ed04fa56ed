"""Bytes of small files in the formats that upstream data sets use: the same bytes for the same arguments, always."""

from __future__ import annotations

import gzip
import io
import json
import re
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


def json_list(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A JSON list of objects."""
    return json.dumps(list(rows), ensure_ascii=False, indent=1).encode()


def json_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """One JSON object per line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def hdf5(arrays: Mapping[str, NDArray[Any]], **facts: Any) -> bytes:
    """An HDF5 file of the arrays, with facts as its attributes and no times."""
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, track_times=False)
        file.attrs.update(facts)
    return buffer.getvalue()


def workbook(rows: Sequence[Sequence[object]]) -> bytes:
    """An .xlsx file with one sheet; openpyxl's times are made the same."""
    import openpyxl

    book, buffer = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(buffer)
    with zipfile.ZipFile(buffer) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    core = "docProps/core.xml"
    return zipped(parts | {core: re.sub(rb"\d{4}-\d\d-\d\dT[\d:]+Z", b"2000-01-01T00:00:00Z", parts[core])})


def checksums(files: Mapping[str, bytes]) -> bytes:
    """PhysioNet's SHA256SUMS.txt: one line per file of a project."""
    return "".join(f"{sha256_bytes(data)} {name}\n" for name, data in sorted(files.items())).encode()


def physionet(project: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """URL → content of a project's files, such as mimic-cxr-jpg/2.1.0, and of its list of checksums."""
    listed = {**files, "SHA256SUMS.txt": checksums(files)}
    return {f"https://physionet.org/files/{project}/{name}": data for name, data in listed.items()}
