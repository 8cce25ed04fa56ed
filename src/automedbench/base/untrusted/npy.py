"""A ``.npy`` file that an agent made: its header is believed only as far as it fits what is expected.

NumPy's own header parser reads it (a literal, never code). Pickles, object arrays and structured types are refused,
and the shape is compared before a single value is looked at, so that a lying header can never cause an allocation.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from automedbench.base.errors import InvalidSubmission

MAX_HEADER_BYTES = 10_000
_FLOATS = frozenset({"float16", "float32", "float64"})
_PARSERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


@dataclass(frozen=True)
class FloatArray:
    """An agent's array as float32 in C order, with what a person should know about how it was stored.

    ``dtype`` is the name of the stored type (``float16``, ``float32`` or ``float64``) and ``trailing_bytes`` counts
    what lies behind the array and was ignored.
    """

    values: NDArray[np.float32]
    dtype: str
    trailing_bytes: int


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]


def parse_float_array(data: bytes, shape: tuple[int, ...]) -> FloatArray:
    """The finite floating point array of exactly this shape in the bytes of a ``.npy`` file.

    Both memory orders, both byte orders and half, single and double precision are read. Raises InvalidSubmission:
    ``not_npy``, ``npy_header``, ``object_array``, ``wrong_ndim``, ``wrong_shape``, ``not_float``, ``truncated``,
    ``not_finite``; the first that applies, in this order.
    """
    stream = io.BytesIO(data)
    header = _read_header(stream)
    _check_header(header, shape)
    body = memoryview(data)[stream.tell() :]
    size = int(np.prod(shape, dtype=np.int64)) * header.dtype.itemsize
    if len(body) < size:
        raise InvalidSubmission("truncated", f"ends after {len(body)} of {size} bytes of data")
    stored = np.frombuffer(body[:size], dtype=header.dtype).reshape(shape, order="F" if header.fortran else "C")
    # A double beyond the range of single precision becomes infinite here, and is refused like any infinity.
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(stored, dtype=np.float32)
    n_bad = int(values.size - np.isfinite(values).sum())
    if n_bad:
        raise InvalidSubmission("not_finite", f"has {n_bad} values that are NaN, infinite or beyond float32")
    return FloatArray(values, header.dtype.name, len(body) - size)


def npy_bytes(array: NDArray[np.generic]) -> bytes:
    """The ``.npy`` file of an array: format 1.0, C order, the same bytes every time."""
    buffer = io.BytesIO()
    npy_format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _read_header(stream: io.BytesIO) -> _Header:
    try:
        version = npy_format.read_magic(stream)
    except ValueError as error:
        raise InvalidSubmission("not_npy", "is not a .npy file (wrong first bytes)") from error
    parse = _PARSERS.get(version)
    if parse is None:
        raise InvalidSubmission("npy_header", f"has .npy format {version[0]}.{version[1]}; 1.0 and 2.0 are read")
    try:
        # NumPy warns about files of Python 2 and old type codes; a warning must not depend on what an agent wrote.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, fortran, dtype = parse(stream, max_header_size=MAX_HEADER_BYTES)
    # Literals, the tokenizer and type codes fail in their own ways; whichever it is, the header is the cause.
    except Exception as error:
        raise InvalidSubmission("npy_header", "has a header that cannot be read") from error
    return _Header(shape, fortran, dtype)


def _check_header(header: _Header, shape: tuple[int, ...]) -> None:
    if header.dtype.hasobject:
        raise InvalidSubmission("object_array", "holds pickled objects instead of numbers")
    found = _format_shape(header.shape)
    if len(header.shape) != len(shape):
        raise InvalidSubmission("wrong_ndim", f"has {len(header.shape)} dimensions {found} instead of {len(shape)}")
    if header.shape != shape:
        raise InvalidSubmission("wrong_shape", f"has shape {found} instead of {_format_shape(shape)}")
    if header.dtype.name not in _FLOATS:
        raise InvalidSubmission("not_float", f"has type {header.dtype.str[:20]}; write float32")


def _format_shape(shape: tuple[int, ...]) -> str:
    text = "×".join(str(side) if abs(side) < 10**12 else "…" for side in shape[:6])
    return f"({text}{'×…' if len(shape) > 6 else ''})"
