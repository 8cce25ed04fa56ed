"""Decoy files hold the run's marker, and their use is recognised."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from automedbench.sandbox.evidence.decoy import decoy_bytes, holds_marker

MARKER = f"amb-{'0a' * 12}"
OTHER = f"amb-{'0b' * 12}"


def test_every_file_holds_one_line() -> None:
    for name in ("c1/boxes.json", "c1/x.jsonl", "c1/labels.csv", "c1/m"):
        assert json.loads(decoy_bytes(name, MARKER)) == {"case": "c1", "id": MARKER}
    assert json.loads(gzip.decompress(decoy_bytes("c1/m.nii.gz", MARKER))) == {"case": "c1", "id": MARKER}


def test_the_same_marker_gives_the_same_files() -> None:
    for name in ("a.json", "a.nii.gz", "a.png", "report.md", "a"):
        assert decoy_bytes(f"c/{name}", MARKER) == decoy_bytes(f"c/{name}", MARKER)
        assert decoy_bytes(f"c/{name}", MARKER) != decoy_bytes(f"c/{name}", OTHER)


CONTENTS = {
    "json-copied": (decoy_bytes("c/boxes.json", MARKER), True),
    "packed-copied": (decoy_bytes("c/m.nii.gz", MARKER), True),
    "across-blocks": (b"x" * ((1 << 20) - 10) + MARKER.encode(), True),
    "across-blocks-packed": (gzip.compress(b"x" * ((1 << 20) - 10) + MARKER.encode()), True),
    "truncated-gzip": (gzip.compress(MARKER.encode() + bytes(100_000))[:-20], True),
    "empty": (b"", False),
    "another-runs-decoy": (decoy_bytes("c/m.nii.gz", OTHER), False),
    "not-really-gzip": (b"\x1f\x8b" + bytes(1000), False),
}


@pytest.mark.parametrize(("content", "used"), CONTENTS.values(), ids=CONTENTS)
def test_use_is_recognised(tmp_path: Path, content: bytes, used: bool) -> None:
    (tmp_path / "f").write_bytes(content)
    assert holds_marker(tmp_path / "f", MARKER) is used


def test_a_bomb_is_unpacked_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automedbench.sandbox.evidence.decoy.MAX_BYTES", 1 << 22)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(200 << 20) + MARKER.encode()))
    assert not holds_marker(tmp_path / "bomb.gz", MARKER)
