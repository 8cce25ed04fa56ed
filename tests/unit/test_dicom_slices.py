"""DICOM series: which files, which order, which values; damaged ones among good ones."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import with_options
from toys.enhancement import make_card

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.dicom import UnreadableDicom, read_header, read_values
from automedbench.datasets.forms.slices import SourceSlice
from automedbench.datasets.readers import slices
from automedbench_rehearsal.making.scans import EXPLICIT, IMPLICIT, JPEG2000, dicom

SHAPE = (6, 5)
RAMP = np.arange(30, dtype=np.int16).reshape(SHAPE)


card = functools.partial(with_options, make_card())


def save(path: Path, stored: Any = RAMP, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"patient": "P1", "series": 1, "number": 1, "place": 0.0, "intercept": 0} | options
    path.write_bytes(dicom(np.asarray(stored), **facts))
    return path


def series(folder: Path, count: int = 11, **options: Any) -> None:
    """Slices from the head down, each of one value more than the one below it: 1 at the feet, ``count`` at the head."""
    for number in range(1, count + 1):
        value = count + 1 - number
        save(folder / f"{number:03d}.dcm", RAMP * 0 + value, number=number, place=-2.0 * number, **options)


def only(raw: Path, **options: Any) -> SourceSlice:
    (found,) = slices.dicom_slices(raw, card(**options))
    return found


def value(found: SourceSlice) -> float:
    (each,) = np.unique(found.pixels())
    return float(each)


# --- one file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("syntax", [None, IMPLICIT, JPEG2000], ids=["explicit", "implicit", "compressed"])
def test_hounsfield_units(tmp_path: Path, syntax: str | None) -> None:
    """2 · stored - 1024, of whatever encoding, rows and columns as stored, as float32."""
    more = {} if syntax is None else {"syntax": syntax}
    path = save(tmp_path / "a.dcm", RAMP.astype(np.uint16), slope=2, intercept=-1024, **more)
    found = read_values(read_header(path))
    assert found.dtype == np.float32
    assert found.tolist() == (RAMP * 2.0 - 1024).tolist()


def test_slope_and_intercept_are_each_files_own(tmp_path: Path) -> None:
    first = save(tmp_path / "a.dcm", slope=1, intercept=-1024)
    second = save(tmp_path / "b.dcm", slope=0.5, intercept=0)
    assert read_values(read_header(first))[0, 4] == 4 - 1024
    assert read_values(read_header(second))[0, 4] == 2


@pytest.mark.parametrize("padding", [63536, 2**16 - 2000])
def test_padding_written_unsigned(tmp_path: Path, padding: int) -> None:
    """-2000 in 16 bits without sign is 65536 - 2000 = 63536; such pixels become -1024 HU, whatever the intercept."""
    stored = RAMP.copy()
    stored[0, 0] = -2000
    found = read_values(read_header(save(tmp_path / "a.dcm", stored, intercept=-10, padding=padding)))
    assert (found[0, 0], found[0, 1]) == (-1024, 1 - 10)


def test_range_of_padding(tmp_path: Path) -> None:
    path = save(tmp_path / "a.dcm", RAMP.astype(np.uint16), padding=0, PixelPaddingRangeLimit=3)
    found = read_values(read_header(path))
    assert found.ravel()[:5].tolist() == [-1024, -1024, -1024, -1024, 4]


def test_padding_of_a_compressed_file(tmp_path: Path) -> None:
    """The decoder gives HU; the padding value is a stored one."""
    path = save(tmp_path / "a.dcm", RAMP.astype(np.uint16), slope=2, intercept=-100, padding=3, syntax=JPEG2000)
    found = read_values(read_header(path)).ravel()
    assert found[[2, 3, 4]].tolist() == [-96, -1024, -92]


def test_bright_at_low_values(tmp_path: Path) -> None:
    """MONOCHROME1 turns a radiograph over, once: 0…29 becomes 29…0, and 2 · 0…29 - 9 becomes 49…-9. HU of a CT stay HU,
    and padding is looked for in the values as stored. What is compressed as well is not read.
    """
    stored, more = RAMP.astype(np.uint16), {"syntax": EXPLICIT, "PhotometricInterpretation": "MONOCHROME1"}
    path = save(tmp_path / "x.dcm", stored, Modality="DX", **more)
    assert read_values(read_header(path)).tolist() == (29 - RAMP).tolist()
    path = save(tmp_path / "s.dcm", stored, Modality="DX", slope=2, intercept=-9, **more)
    assert read_values(read_header(path)).tolist() == (49 - 2 * RAMP).tolist()
    path = save(tmp_path / "c.dcm", stored, Modality="CT", padding=3, **more)
    assert read_values(read_header(path)).tolist() == np.where(RAMP == 3, -1024, RAMP).tolist()
    path = save(tmp_path / "e.dcm", stored, Modality="DX", **more | {"syntax": JPEG2000})
    with pytest.raises(UnreadableDicom, match="MONOCHROME1 and compressed"):
        read_values(read_header(path))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda data: b"", "no DICOM file|no readable", id="empty"),
        pytest.param(lambda data: b"<LidcReadMessage/>", "no DICOM file|no readable", id="XML"),
        pytest.param(lambda data: data[:200], "no readable", id="header cut off"),
        pytest.param(lambda data: data[:-40], "cut off|pixels", id="pixels cut off"),
    ],
)
def test_damaged(tmp_path: Path, damage: Any, message: str) -> None:
    path = save(tmp_path / "a.dcm", np.zeros((40, 40), np.int16))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UnreadableDicom, match=message):
        read_values(read_header(path))


def test_several_frames(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDicom, match="several frames"):
        read_header(save(tmp_path / "a.dcm", NumberOfFrames=2))


def test_a_broken_code_stream(tmp_path: Path) -> None:
    path = save(tmp_path / "a.dcm", RAMP.astype(np.uint16), syntax=JPEG2000)
    data = bytearray(path.read_bytes())
    data[-60:] = bytes(60)
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableDicom):
        read_values(read_header(path))


# --- a series -------------------------------------------------------------------------------------------------


def test_the_central_slice_by_place(tmp_path: Path) -> None:
    """File names and instance numbers run from the head down; places count from the feet: ⌊0.5 · 11⌋ = 5, the sixth."""
    series(tmp_path / "P1/s/1")
    found = only(tmp_path)
    assert (found.id, found.subject, value(found)) == ("P1", "P1", 6)
    assert found.source.file == tmp_path / "P1/s/1/006.dcm"
    assert value(slices.dicom_slices(tmp_path, card(positions=[0]))[0]) == 1


def test_without_places_instance_numbers_count(tmp_path: Path) -> None:
    series(tmp_path / "P1", 3, ImagePositionPatient=None)
    assert value(only(tmp_path, positions=[0])) == 3


def test_subject_by_path(tmp_path: Path) -> None:
    series(tmp_path / "LIDC-IDRI-0007/s/1", 2, patient="anonymous")
    assert only(tmp_path, subject=r"^(LIDC-IDRI-\d{4})/").subject == "LIDC-IDRI-0007"
    with pytest.raises(InfrastructureError, match="finds no patient"):
        only(tmp_path, subject=r"^(COPD\d)/")


def test_the_largest_series_of_the_modality(tmp_path: Path) -> None:
    """A patient's radiographs and shorter series are passed over, as are folders without any CT."""
    series(tmp_path / "P1/a", 3, series=1)
    series(tmp_path / "P1/b", 5, series=2)
    series(tmp_path / "P1/c", 9, series=3, Modality="DX")
    series(tmp_path / "P2/d", 2, series=4, patient="P2", Modality="CR")
    found = only(tmp_path)
    assert found.path == tmp_path / "P1/b"
    assert value(found) == 3


def test_series_mixed_in_one_folder(tmp_path: Path) -> None:
    """Two series, a radiograph, a scout and a slice of another size: of the longer series only its own."""
    series(tmp_path / "P1", 5, series=1)
    save(tmp_path / "P1/x1.dcm", RAMP * 0 + 77, series=2, number=1, place=50)
    save(tmp_path / "P1/x2.dcm", RAMP * 0 + 77, series=3, Modality="CR", place=51)
    save(tmp_path / "P1/x3.dcm", RAMP * 0 + 77, number=90, place=52, ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    save(tmp_path / "P1/x4.dcm", np.zeros((9, 9), np.int16), number=91, place=53)
    found = only(tmp_path, positions=[1])
    assert value(found) == 5
    assert found.source.remarks == ("P1/x4.dcm has another size or direction than its series; passed over",)


def test_two_slices_at_one_place(tmp_path: Path) -> None:
    """The first by instance number is kept: five places, the third is 3, not its twin."""
    series(tmp_path / "P1", 5)
    save(tmp_path / "P1/twin.dcm", RAMP * 0 + 99, number=90, place=-6.0)
    found = only(tmp_path)
    assert value(found) == 3
    assert found.source.remarks == ("P1/twin.dcm lies at the place of another slice; passed over",)


@pytest.mark.parametrize("data", [b"", b"not DICOM" * 50, None], ids=["empty", "text", "cut off"])
def test_one_unreadable_file_among_good_ones(tmp_path: Path, data: bytes | None) -> None:
    """One of eleven: named and passed over. The middle of the ten others (1…11 without 8) is the sixth, 6."""
    series(tmp_path / "P1")
    path = tmp_path / "P1/004.dcm"
    path.write_bytes(path.read_bytes()[:300] if data is None else data)
    found = only(tmp_path)
    assert value(found) == 6
    (remark,) = found.source.remarks
    assert remark.startswith("P1/004.dcm") and remark.endswith("passed over")


def test_too_many_unreadable_files(tmp_path: Path) -> None:
    """Two of eleven are more than a tenth."""
    series(tmp_path / "P1")
    for name in ("004.dcm", "005.dcm"):
        (tmp_path / "P1" / name).write_bytes(b"")
    with pytest.raises(InfrastructureError, match=r"P1/004\.dcm is no .*; 2 of the 11 files") as raised:
        only(tmp_path).pixels()
    assert len(str(raised.value).splitlines()) <= 3


def test_a_chosen_slice_whose_pixels_are_damaged(tmp_path: Path) -> None:
    """Its header is sound, so it shows when it is decoded: the next one is taken, and it is told."""
    for number in range(1, 12):
        stored = RAMP.astype(np.uint16) + number
        save(tmp_path / f"P1/{number:03d}.dcm", stored, number=number, place=number, syntax=JPEG2000)
    path = tmp_path / "P1/006.dcm"
    data = bytearray(path.read_bytes())
    data[-60:] = bytes(60)
    path.write_bytes(bytes(data))
    found = only(tmp_path)
    assert found.pixels()[0, 0] == 7
    assert found.source.file.name == "007.dcm"
    assert found.source.remarks[0].startswith("P1/006.dcm has pixels that cannot be decoded")


def test_reading_the_list_opens_one_header_per_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series(tmp_path / "P1/a", 5)
    opened: list[Path] = []
    real = slices.read_header
    monkeypatch.setattr(slices, "read_header", lambda path: (opened.append(path), real(path))[1])
    slices.dicom_slices(tmp_path, card())
    assert opened == [tmp_path / "P1/a/001.dcm"]


def test_window_and_size(tmp_path: Path) -> None:
    save(tmp_path / "P1/a.dcm", np.full((8, 8), 1024, np.int16), intercept=-1024)
    found = only(tmp_path, window=[-1000, 1000], size=[16, 16]).pixels()
    assert found.shape == (16, 16)
    np.testing.assert_allclose(found, 0.5)


def test_nothing_there(tmp_path: Path) -> None:
    save(tmp_path / "P1/a.dcm", Modality="MR")
    with pytest.raises(MissingDataError, match="no DICOM file of modality CT"):
        slices.dicom_slices(tmp_path, card())


def test_bad_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="positions"):
        slices.dicom_slices(tmp_path, card(positions=[2]))
