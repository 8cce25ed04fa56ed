"""Reading an agent's .npy: what is accepted, what is refused, and that nothing is allocated for a header's lie.

The full corpus of bad files is ``tests/toys/enhancement.py``; here stand the values that come out and the order of the
reasons.
"""

from __future__ import annotations

import io
import tracemalloc
import warnings

import numpy as np
import pytest
from toys.enhancement import BODY, described, npy, with_header

from automedbench.base.errors import InvalidSubmission
from automedbench.base.untrusted.npy import npy_bytes, parse_float_array

SHAPE = (2, 3)
VALUES = np.array([[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        pytest.param(VALUES.astype("<f4"), "float32", id="as asked for"),
        pytest.param(VALUES.astype(">f4"), "float32", id="big-endian"),
        pytest.param(np.asfortranarray(VALUES.astype("<f4")), "float32", id="Fortran order"),
        pytest.param(VALUES.astype(">f8").T.copy().T, "float64", id="big-endian double in Fortran order"),
        pytest.param(VALUES.astype("<f2"), "float16", id="half"),
        pytest.param(np.repeat(VALUES, 2, axis=1)[:, ::2].astype("<f4"), "float32", id="a view with steps"),
    ],
)
def test_values_survive_every_storage(array: np.ndarray, dtype: str) -> None:
    """Whatever the order in the file, pixel (row, column) is the same; the result is native and C-ordered."""
    found = parse_float_array(npy(array), SHAPE)
    assert found.values.tolist() == VALUES.tolist()
    assert (found.dtype, found.trailing_bytes) == (dtype, 0)
    assert found.values.dtype == np.float32
    assert found.values.dtype.isnative
    assert found.values.flags.c_contiguous


def test_format_2_is_read() -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, VALUES.astype("<f4"), version=(2, 0))
    assert parse_float_array(buffer.getvalue(), SHAPE).values.tolist() == VALUES.tolist()


def test_trailing_bytes_are_counted() -> None:
    assert parse_float_array(npy(VALUES.astype("<f4")) + b"12345", SHAPE).trailing_bytes == 5


def test_values_stay_exact() -> None:
    """Float32 in, the same bits out: the smallest, a subnormal, minus zero."""
    array = np.array([[np.finfo("f4").max, 1e-45, -0.0]], np.float32)
    assert parse_float_array(npy(array), (1, 3)).values.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(
            npy(np.array([["a"]], dtype=object), allow_pickle=True), "object_array", id="objects before shape"
        ),
        pytest.param(npy(np.zeros((1, 2, 3), np.int8)), "wrong_ndim", id="dimensions before type"),
        pytest.param(npy(np.zeros((3, 2), np.int8)), "wrong_shape", id="shape before type"),
        pytest.param(npy(np.zeros((2, 3), np.int8))[:-2], "not_float", id="type before size"),
        pytest.param(npy(np.full((2, 3), np.nan, "<f4"))[:-2], "truncated", id="size before values"),
        pytest.param(npy(np.full((2, 3), np.nan, "<f4")), "not_finite", id="values last"),
    ],
)
def test_the_first_reason_counts(content: bytes, code: str) -> None:
    """In the order in which the checks are made."""
    with pytest.raises(InvalidSubmission) as caught:
        parse_float_array(content, SHAPE)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "shape", ["(100000, 100000)", "(2, 3, 1000000000000)", "(9223372036854775807, 2)"], ids=["40 GB", "3-D", "overflow"]
)
def test_a_lying_header_allocates_nothing(shape: str) -> None:
    content = with_header(described(shape=shape), BODY)
    tracemalloc.start()
    with pytest.raises(InvalidSubmission, match=r"shape|dimensions"):
        parse_float_array(content, SHAPE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_no_warning_depends_on_the_file() -> None:
    """NumPy warns about headers of Python 2, unknown escapes and overflow; an agent must not reach our log."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        python_2 = with_header(described(shape="(2L, 3L)"), bytes(24))
        assert parse_float_array(python_2, SHAPE).values.tolist() == [[0, 0, 0], [0, 0, 0]]
        for content in (npy(np.full(SHAPE, 1e200)), with_header(described("'\\d'"), BODY)):
            with pytest.raises(InvalidSubmission):
                parse_float_array(content, SHAPE)


def test_messages_are_short_whatever_the_header_says() -> None:
    """A shape of a thousand sides of 300 digits is not repeated."""
    shape = "(" + ", ".join(["1" * 300] * 30) + ")"
    with pytest.raises(InvalidSubmission) as caught:
        parse_float_array(with_header(described(shape=shape), BODY), SHAPE)
    assert len(str(caught.value)) < 200


def test_our_own_files_are_the_same_every_time() -> None:
    """C order whatever the array's, format 1.0; NumPy reads it back."""
    array = np.asfortranarray(VALUES.astype(np.float32))
    assert npy_bytes(array) == npy_bytes(array.copy(order="C"))
    assert npy_bytes(array)[:8] == b"\x93NUMPY\x01\x00"
    assert np.load(io.BytesIO(npy_bytes(array))).tolist() == VALUES.tolist()
