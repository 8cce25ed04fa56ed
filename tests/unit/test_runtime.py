"""What the container program says when it fails, as a person should read it."""

from __future__ import annotations

import pytest

from automedbench.sandbox.container.launcher import last_words

# As Apptainer 1.4.5 wrote it for root on a machine that keeps a capability back.
ROOT_REFUSED = b"\x1b[91mERROR  : Requesting capability set 0x1ff while permitted capability set is 0xff\n\x1b[0m"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(b"", "no output", id="nothing"),
        pytest.param(b"\n \n\x1b[0m\n", "no output", id="only blanks and escapes"),
        pytest.param(
            ROOT_REFUSED, "Requesting capability set 0x1ff while permitted capability set is 0xff", id="colour left on"
        ),
        pytest.param(b"WARNING: x\nFATAL:   creation failed: y\n", "creation failed: y", id="level"),
        pytest.param(b"a\xff\n", "a\ufffd", id="not UTF-8"),
        pytest.param(b"x" * 1000, "x" * 400, id="long"),
    ],
)
def test_last_words(output: bytes, expected: str) -> None:
    assert last_words(output) == expected
