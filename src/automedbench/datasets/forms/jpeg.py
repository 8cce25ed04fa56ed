"""JPEG files taken apart into segments, so that metadata can be left out without touching the compressed pixels.

Source: ITU-T T.81 annex B (markers and segments), T.871 (JFIF); the Adobe segment says how colours are coded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_START, _END, _SCAN, _COMMENT = 0xD8, 0xD9, 0xDA, 0xFE
_TABLES = 0xDB
_FRAMES = frozenset([*range(0xC0, 0xD0)]) - {0xC4, 0xC8, 0xCC}
# Frames, tables of both codings, scans, tables of quantisation, the interval between restarts.
_NEEDED = _FRAMES | {0xC4, 0xCC, _SCAN, _TABLES, 0xDD}
_JFIF, _ADOBE = 0xE0, 0xEE
_APPLICATION = range(0xE0, 0xF0)
_STANDALONE = frozenset([0x01, *range(0xD0, 0xD8)])
# A marker in the pixels of a scan: not a stuffed zero, none of the standalone ones, no fill byte.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
# Version 1.01, pixels without a size, no thumbnail.
_PLAIN_JFIF = b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"


@dataclass(frozen=True)
class Jpeg:
    """A JPEG taken apart: (marker, what follows it, the two bytes of length included) up to the end of the picture."""

    segments: tuple[tuple[int, bytes], ...]

    def without_metadata(self) -> bytes:
        """The same picture with no segment but those that decoding needs, and nothing behind its end."""
        kept = [part for marker, body in self.segments if (part := _kept(marker, body)) is not None]
        return b"".join([bytes([0xFF, _START]), *kept, bytes([0xFF, _END])])

    def compression(self) -> bytes:
        """How it was compressed: quantisation tables, kind of coding, sampling of its channels; no content, no size."""
        found = [(marker, body) for marker, body in self.segments if marker == _TABLES or marker in _FRAMES]
        # Of a frame: its depth and its components, without height and width (T.81, B.2.2).
        parts = [(marker, body[2:] if marker == _TABLES else body[2:3] + body[7:]) for marker, body in found]
        return b"".join(bytes([marker]) + part for marker, part in parts)

    @property
    def metadata_is_apart(self) -> bool:
        """Whether every decoder makes the same pixels of it without its metadata, apart from colour profiles.

        Certain where nothing else than application segments and comments, which say nothing of tables and coding, and
        these only before the first scan, stands beside what is needed. How colours are coded is said by a JFIF or an
        Adobe segment, which is kept; but not by a JFIF segment too short to be one (T.871, 10.1): it would become one.
        """
        markers = [marker for marker, _ in self.segments]
        first_scan = markers.index(_SCAN) if _SCAN in markers else 0
        return all(
            marker in _NEEDED or marker in _STANDALONE or (place < first_scan and _says_nothing(marker))
            for place, marker in enumerate(markers)
        ) and not any(
            marker == _JFIF and body[2:7] == _PLAIN_JFIF[:5] and len(body) < 2 + len(_PLAIN_JFIF)
            for marker, body in self.segments
        )


def take_apart(data: bytes) -> Jpeg | None:
    """The segments of a file; None when it is not a JPEG that can be taken apart."""
    try:
        return Jpeg(tuple(_segments(data)))
    except (IndexError, ValueError):
        return None


def compression(data: bytes) -> bytes | None:
    """``Jpeg.compression`` of a file; None when it is not a JPEG that can be taken apart."""
    jpeg = take_apart(data)
    return None if jpeg is None else jpeg.compression()


def _says_nothing(marker: int) -> bool:
    return marker in _APPLICATION or marker == _COMMENT


def _kept(marker: int, body: bytes) -> bytes | None:
    """One segment as it is written out; ``body`` follows the marker, its two bytes of length included."""
    if marker == _JFIF and body[2:7] == _PLAIN_JFIF[:5]:
        return _segment(marker, _PLAIN_JFIF)
    if marker == _ADOBE and body[2:7] == b"Adobe" and len(body) >= 14:
        return _segment(marker, b"Adobe\0\x64\0\0\0\0" + body[13:14])  # only how colours are coded
    return bytes([0xFF, marker]) + body if marker in _NEEDED or marker in _STANDALONE else None


def _segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2, "big") + payload


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(marker, what follows it) up to the end of the picture; the pixels belong to the start of their scan.

    Raises ValueError or IndexError where the file breaks off or is none.
    """
    if data[:2] != bytes([0xFF, _START]):
        raise ValueError("no start of image")
    place = 2
    while True:
        if data[place] != 0xFF:
            raise ValueError("no marker where one is expected")
        while data[place] == 0xFF:  # any number of fill bytes
            place += 1
        marker = data[place]
        place += 1
        if marker == 0:
            raise ValueError("a stuffed zero outside of a scan, of which decoders make different things")
        if marker == _END:
            return
        end = place if marker in _STANDALONE else place + int.from_bytes(data[place : place + 2], "big")
        if marker == _SCAN:
            end = _end_of_scan(data, end)
        if end > len(data) or (marker not in _STANDALONE and end < place + 2):
            raise ValueError("a segment is longer than the file")
        yield marker, data[place:end]
        place = end


def _end_of_scan(data: bytes, place: int) -> int:
    """Where the next marker stands that is neither a stuffed zero nor a restart; raises ValueError for none."""
    found = _MARKER.search(data, place)
    if found is None:
        raise ValueError("a scan does not end")
    return found.start()
