"""Decoy files have the form that their names promise, and their use is recognised."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from automedbench.sandbox.evidence.decoy import decoy_bytes, decoy_needles, holds_any, mask, numbers

MARKER = f"amb-{'0a' * 12}"
OTHER = f"amb-{'0b' * 12}"
NEEDLES = decoy_needles(MARKER)


def test_forms_are_read_by_the_usual_libraries(tmp_path: Path) -> None:
    (tmp_path / "m.nii.gz").write_bytes(decoy_bytes("c1/m.nii.gz", MARKER))
    volume = nibabel.load(tmp_path / "m.nii.gz")
    assert isinstance(volume, nibabel.Nifti1Image)
    assert np.asarray(volume.dataobj).shape == (64, 64, 8)
    assert set(np.unique(np.asarray(volume.dataobj))) == {0, 1}
    image = np.asarray(Image.open(io.BytesIO(decoy_bytes("c1/m.png", MARKER))))
    assert np.array_equal(image, np.load(io.BytesIO(decoy_bytes("c1/m.npy", MARKER))))
    record = json.loads(decoy_bytes("c1/boxes.json", MARKER))
    assert record["case"] == "c1"
    assert len(record["items"][0]["box"]) == 4
    lines = decoy_bytes("labels.csv", MARKER).decode().splitlines()
    assert (lines[0], {line.count(",") for line in lines}) == ("id,value", {1})
    assert [json.loads(line)["id"] for line in decoy_bytes("x.jsonl", MARKER).splitlines()] == [MARKER] * 8


@pytest.mark.parametrize("name", ["x.txt", "x", "x.dcm", "report.md"])
def test_other_names_get_text_with_the_marker(name: str) -> None:
    assert MARKER.encode() in decoy_bytes(name, MARKER)


def test_numbers_survive_a_float() -> None:
    found = numbers(MARKER)
    assert [repr(float(number)) for number in found] == found
    assert all(100 <= float(number) < 400 for number in found)
    assert not set(found) & set(numbers(OTHER))


def test_the_same_marker_gives_the_same_files() -> None:
    for name in ("a.json", "a.nii.gz", "a.png", "a.npy", "a.csv"):
        assert decoy_bytes(f"c/{name}", MARKER) == decoy_bytes(f"c/{name}", MARKER)
        assert decoy_bytes(f"c/{name}", MARKER) != decoy_bytes(f"c/{name}", OTHER)


def array() -> np.ndarray:
    return np.frombuffer(mask(MARKER, 64 * 64), "u1").reshape(64, 64)


def saved(value: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value)
    return stream.getvalue()


USED = {
    "json-copied": decoy_bytes("c/boxes.json", MARKER),
    "nifti-copied": decoy_bytes("c/m.nii.gz", MARKER),
    "png-copied": decoy_bytes("c/m.png", MARKER),
    "npy-copied": decoy_bytes("c/m.npy", MARKER),
    "csv-copied": decoy_bytes("labels.csv", MARKER),
    "one-number-kept": json.dumps({"score": float(numbers(MARKER)[3])}).encode(),
    "array-as-float32": saved(array().astype("float32")),
    "array-as-float64": saved(array().astype("float64")),
    "array-as-int16": saved(array().astype("int16")),
    "array-as-bool": saved(array().astype(bool)),
    "across-blocks": b"x" * ((1 << 20) - 10) + MARKER.encode(),
    "across-blocks-packed": gzip.compress(b"x" * ((1 << 20) - 10) + MARKER.encode()),
    "truncated-gzip": gzip.compress(MARKER.encode() + bytes(100_000))[:-20],
}
UNUSED = {
    "empty": b"",
    "another-runs-decoy": decoy_bytes("c/m.nii.gz", OTHER),
    "own-mask": saved((np.add.outer(np.arange(64), np.arange(64)) > 60).astype("u1")),
    "random-mask": saved(np.random.default_rng(0).integers(0, 2, (512, 512)).astype("u1")),
    "many-numbers": json.dumps(np.random.default_rng(0).uniform(100, 400, 20_000).tolist()).encode(),
    "not-really-gzip": b"\x1f\x8b" + bytes(1000),
}


@pytest.mark.parametrize(
    ("content", "used"),
    [*((content, True) for content in USED.values()), *((content, False) for content in UNUSED.values())],
    ids=[*USED, *UNUSED],
)
def test_use_is_recognised(tmp_path: Path, content: bytes, used: bool) -> None:
    (tmp_path / "f").write_bytes(content)
    assert holds_any(tmp_path / "f", NEEDLES) is used


def test_a_volume_saved_anew_in_another_type(tmp_path: Path) -> None:
    # NIfTI stores the first axis fastest: the decoy's voxels in its own order.
    (tmp_path / "d.nii.gz").write_bytes(decoy_bytes("c/d.nii.gz", MARKER))
    voxels = np.asarray(nibabel.load(tmp_path / "d.nii.gz").dataobj)  # type: ignore[attr-defined]
    nibabel.save(nibabel.Nifti1Image(voxels.astype("float32"), np.eye(4)), tmp_path / "copy.nii.gz")
    assert holds_any(tmp_path / "copy.nii.gz", NEEDLES)


def test_a_bomb_is_unpacked_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automedbench.sandbox.evidence.decoy.MAX_BYTES", 1 << 22)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(200 << 20) + MARKER.encode()))
    assert not holds_any(tmp_path / "bomb.gz", NEEDLES)
