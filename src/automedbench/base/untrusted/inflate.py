"""Gzip data read as a bounded stream that says what exactly is wrong with a damaged file.

Several members in a row are one file, as the gzip format has it (``pigz`` and ``bgzip`` write such files); padding
with zeros behind the last one is allowed, anything else is not. ``isal`` is used where it is installed: the same
bytes, 2–5 times as fast; without it zlib does the work. Members' headers are read here, because the two differ in what
they take (reserved flags, long names), so that a verdict does not depend on what is installed.
"""

from __future__ import annotations

import zlib
from typing import IO, Any, Final

MAGIC: Final = b"\x1f\x8b"
_INPUT = 32 * 1024
_GZIP_FORMAT = 31  # window bits of zlib's interface: 15 + 16 asks for gzip's header and checksum
# Beyond this many members they must hold some data on average: millions of tiny ones would cost seconds and say nothing
# (what writes members in earnest, bgzip first of all, fills them with 64 kB).
_FREE_MEMBERS, _MEMBER_BYTES = 1000, 4096
_DEFLATE, _HEADER_BYTES, _MAX_TEXT = 8, 10, 64 * 1024
_HAS_CHECKSUM, _HAS_EXTRA, _HAS_NAME, _HAS_COMMENT, _RESERVED = 0x02, 0x04, 0x08, 0x10, 0xE0
_PLAIN_HEADER = MAGIC + bytes([_DEFLATE, 0, 0, 0, 0, 0, 0, 255])


class Damaged(Exception):
    """Compressed data that cannot be read: ``code`` is truncated, corrupt, bad_crc or trailing_data."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def _backend() -> tuple[Any, tuple[Any, ...]]:
    """The module that inflates, and the errors that it raises."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib, (zlib.error,)
    return isal_zlib, (zlib.error, isal_zlib.error)


class Inflated:
    """The uncompressed bytes of a gzip file, front to back."""

    def __init__(self, raw: IO[bytes]) -> None:
        """``raw`` stands at the start of a file that begins with ``MAGIC``."""
        self._raw = raw
        self._zlib, self._errors = _backend()
        self._member: Any = None
        self._pending = b""
        self._position = 0
        self._members = 0

    def tell(self) -> int:
        """Number of uncompressed bytes read so far."""
        return self._position

    def read(self, n_bytes: int) -> bytes:
        """Up to ``n_bytes``, fewer only at the end of the file; raises Damaged. Inflates not one byte more."""
        parts: list[bytes] = []
        wanted = n_bytes
        while wanted and (self._in_member() or self._next_member()):
            part = self._some(wanted)
            wanted -= len(part)
            parts.append(part)
            self._position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _in_member(self) -> bool:
        return self._member is not None and not self._member.eof

    def _some(self, wanted: int) -> bytes:
        """At most ``wanted`` bytes of this member, at least one unless it ended or more input is needed."""
        source = self._pending or self._raw.read(_INPUT)
        try:
            part: bytes = self._member.decompress(source, wanted)
        except self._errors as error:
            raise _explained(error) from error
        self._pending = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        if not source and not part and not self._member.eof:
            raise Damaged("truncated", "the compressed data ends too early")
        return part

    def _next_member(self) -> bool:
        """Go on to the first or the next member; False at the end of the file, zeros included."""
        while not (rest := self._pending.lstrip(b"\0")) and (more := self._raw.read(_INPUT)):
            self._pending = more
        self._pending = rest
        if not rest:
            return False
        self._pending += self._raw.read(len(MAGIC))
        if not self._pending.startswith(MAGIC):
            raise Damaged("trailing_data", "something lies behind the compressed data")
        self._members += 1
        if self._members > _FREE_MEMBERS + self._position // _MEMBER_BYTES:
            raise Damaged("corrupt", "the compressed data is cut into too many tiny parts")
        self._skip_header()
        self._member = self._zlib.decompressobj(_GZIP_FORMAT)
        self._pending = _PLAIN_HEADER + self._pending
        return True

    def _skip_header(self) -> None:
        """Read a member's header (RFC 1952, 2.3) and demand of it what the format does."""
        header = self._take(_HEADER_BYTES)
        method, flags = header[2:4]
        if method != _DEFLATE or flags & _RESERVED:
            raise Damaged("corrupt", f"its gzip header has method {method} and flags {flags:#x}")
        if flags & _HAS_EXTRA:
            header += self._take(2)
            header += self._take(int.from_bytes(header[-2:], "little"))
        for flag in (_HAS_NAME, _HAS_COMMENT):
            if flags & flag:
                header += self._take_text()
        if flags & _HAS_CHECKSUM and self._take(2) != (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little"):
            raise Damaged("bad_crc", "the checksum of its gzip header does not fit")

    def _take(self, n_bytes: int) -> bytes:
        """The next compressed bytes, exactly so many."""
        while len(self._pending) < n_bytes:
            self._refill()
        taken, self._pending = self._pending[:n_bytes], self._pending[n_bytes:]
        return taken

    def _take_text(self) -> bytes:
        """The next compressed bytes up to a zero, which is included."""
        while (end := self._pending.find(b"\0", 0, _MAX_TEXT)) < 0:
            if len(self._pending) >= _MAX_TEXT:
                raise Damaged("corrupt", f"its gzip header holds more than {_MAX_TEXT} bytes of text")
            self._refill()
        return self._take(end + 1)

    def _refill(self) -> None:
        more = self._raw.read(_INPUT)
        if not more:
            raise Damaged("truncated", "the compressed data ends too early")
        self._pending += more


def _explained(error: Exception) -> Damaged:
    """zlib speaks of an incorrect data or length check, isal of an incorrect checksum."""
    text = str(error).partition(" ")[2]
    if "incorrect data check" in text or "incorrect length check" in text or "checksum" in text:
        return Damaged("bad_crc", "its checksum does not fit its content")
    return Damaged("corrupt", f"its compressed data cannot be inflated ({text})")
