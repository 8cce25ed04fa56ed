"""Secrets in text: as they are and in the encodings that leave them in one piece. The second line of defence only."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from urllib.parse import quote

MASK = "[masked]"
SHORTEST_SECRET = 6
# Shorter pieces of an encoded secret occur by chance.
_SHORTEST_PIECE = 10


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """The texts to look for, longest first: raw, reversed, percent-encoded, hexadecimal, base64 at each offset.

    Of base64 that is the part that doesn't depend on what stands before and after the secret, so that a few letters
    of its ends may stay. Secrets of fewer than 6 characters are words like others and give nothing.
    """
    found: set[str] = set()
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            encoded = {form for form in _encode(secret) if len(form) >= _SHORTEST_PIECE}
            found |= {secret, secret[::-1], quote(secret, safe="")} | encoded
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def secret_among(keys: Iterable[str], public: Iterable[str]) -> tuple[str, ...]:
    """Keys that none of the public texts (an agent's name, its model) holds.

    Local servers take any word, such as their own name; masked, an agent of that name would be another one in its log.
    """
    text = "\n".join(public).lower()
    return tuple(key for key in keys if key.lower() not in text)


def _encode(secret: str) -> Iterable[str]:
    data = secret.encode()
    for variant in (data, data[::-1]):
        yield from (variant.hex(), variant.hex().upper())
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + data).decode()
        piece = text[4 if offset else 0 : -4]
        yield from (piece, piece.replace("+", "-").replace("/", "_"))


def masked(text: str, forms: Iterable[str]) -> str:
    """The text with every one of these forms replaced."""
    for form in forms:
        if form in text:
            text = text.replace(form, MASK)
    return text
