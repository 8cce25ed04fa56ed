"""TLS ClientHello: the name in it, read without taking part in the handshake (RFC 8446, 4.1.2; RFC 6066, 3)."""

from __future__ import annotations

from dataclasses import dataclass

MAX_HELLO = 64 * 1024

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
_MAX_RECORD = 2**14 + 256


class NotTLS(ValueError):
    """The bytes are not the beginning of a TLS connection."""


@dataclass(frozen=True)
class Hello:
    """``sni`` is None when no name is given; ``encrypted``: another, hidden ClientHello is inside (ECH)."""

    sni: str | None
    encrypted: bool


def read_hello(data: bytes) -> Hello | None:
    """The ClientHello that ``data`` begins with, or None while it is not complete.

    Raises NotTLS for anything else, also for one longer than MAX_HELLO.
    """
    message = bytearray()
    place = 0
    while True:
        if data[place : place + 1] not in (b"", b"\x16") or data[place + 1 : place + 2] not in (b"", b"\x03"):
            raise NotTLS("no handshake record")
        if len(data) < place + 5:
            return None
        length = int.from_bytes(data[place + 3 : place + 5], "big")
        if not 0 < length <= _MAX_RECORD or len(message) + length > MAX_HELLO:
            raise NotTLS("record length")
        message += data[place + 5 : place + 5 + length]
        if message and message[0] != _CLIENT_HELLO:
            raise NotTLS("no ClientHello")
        if len(message) >= 4:
            size = int.from_bytes(message[1:4], "big")
            if size > MAX_HELLO:
                raise NotTLS("ClientHello too long")
            if len(message) >= 4 + size:
                return _parse(bytes(message[4 : 4 + size]))
        if len(data) < place + 5 + length:
            return None
        place += 5 + length


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, count: int) -> bytes:
        piece = self.data[self.place : self.place + count]
        if len(piece) < count:
            raise NotTLS("truncated ClientHello")
        self.place += count
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    @property
    def left(self) -> int:
        return len(self.data) - self.place


def _parse(body: bytes) -> Hello:
    reader = _Reader(body)
    reader.take(2 + 32)
    reader.vector(1)
    reader.vector(2)
    reader.vector(1)
    if not reader.left:
        return Hello(None, False)
    extensions = _Reader(reader.vector(2))
    names: list[str] = []
    encrypted = False
    while extensions.left:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            names += _names(content)
        encrypted = encrypted or kind == _ENCRYPTED_HELLO
    if len(names) > 1:
        raise NotTLS("more than one server name")
    return Hello(names[0] if names else None, encrypted)


def _names(content: bytes) -> list[str]:
    names = []
    entries = _Reader(_Reader(content).vector(2))
    while entries.left:
        kind, name = entries.number(1), entries.vector(2)
        if kind == 0:
            names.append(name.decode("latin-1"))
    return names
