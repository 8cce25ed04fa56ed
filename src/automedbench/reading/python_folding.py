"""Operations on known values of an analysed Python text: bounded, and never an exception whatever the values are."""

from __future__ import annotations

import ast
import base64
import binascii
import codecs
import posixpath
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from automedbench.reading.static_rules import HOLE, MAX_TEXT

# str (paths too), bytes, int, list (of Values per element), dict (text → Values), or a reference to a name
Value = Any
Values = list[Value]

MAX_NUMBER = 1 << 32
MAX_ELEMENTS = 512


def texts_of(values: Iterable[Value]) -> list[str]:
    """The alternatives that are text; bytes as the path that they name, numbers as they print."""
    found = []
    for value in values:
        if isinstance(value, bytes):
            found.append(value.decode("utf-8", "replace"))
        elif isinstance(value, str):
            found.append(value)
        elif isinstance(value, int):
            found.append(str(value))
    return found


def textual(values: Values) -> bool:
    """At least one of the alternatives is text."""
    return any(isinstance(value, str) for value in values)


def slash(left: str, right: str) -> str:
    """Join two paths; an absolute right side wins, as in os.path.join."""
    if left and right.startswith(HOLE):
        return f"{left.rstrip('/')}/{right}"[:MAX_TEXT]
    return posixpath.join(left, right)[:MAX_TEXT] if left else right


def combine(operation: ast.operator, left: Value, right: Value) -> Value:
    """Result of an operator on two known values, bounded; None when there is none."""
    if isinstance(operation, ast.Div) and isinstance(left, str) and isinstance(right, str):
        return slash(left, right)
    if isinstance(operation, ast.Add) and isinstance(left, list) and isinstance(right, list):
        return [*left, *right][:MAX_ELEMENTS]
    if isinstance(operation, ast.Add) and type(left) is type(right) and isinstance(left, str | bytes):
        return (left + right)[:MAX_TEXT]
    if isinstance(left, int) and isinstance(right, int):
        return arithmetic(operation, left, right)
    if isinstance(operation, ast.Mult) and isinstance(left, str) and isinstance(right, int):
        return left * max(0, min(right, MAX_TEXT // max(1, len(left))))
    return None


def arithmetic(operation: ast.operator, left: int, right: int) -> int | None:
    """Result of an operator on two integers; None for unusual operators and huge numbers."""
    result = {
        ast.Add: left + right,
        ast.Sub: left - right,
        ast.Mult: left * right,
        ast.BitXor: left ^ right,
        ast.BitAnd: left & right,
        ast.BitOr: left | right,
    }.get(type(operation))
    return result if result is not None and abs(result) <= MAX_NUMBER else None


def percent(text: str, arguments: list[str]) -> str:
    """``%`` formatting of the simple conversions; others become holes."""
    remaining = iter(arguments)
    pieces = text.replace("%%", "\1").split("%")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        rest = piece.lstrip("0123456789.-+# ")
        filled += [next(remaining, HOLE) if rest[:1] in ("s", "d", "i", "r") else HOLE, rest[1:]]
    return "".join(filled).replace("\1", "%")[:MAX_TEXT]


def join_text(separator: str, elements: list[Values] | str) -> list[str]:
    """``separator.join(elements)`` with the first alternative of each element, bounded."""
    if isinstance(elements, str):
        return [separator.join(elements)[:MAX_TEXT]]
    return [separator.join((texts_of(element) or [HOLE])[0] for element in elements)[:MAX_TEXT]]


def chars(element: Values) -> Values:
    """``chr`` of every alternative that is a code point."""
    return [chr(value) for value in element if isinstance(value, int) and 0 <= value < 0x110000]


def to_bytes(value: Value) -> bytes | None:
    """Text or numbers as bytes; None when they are none."""
    if isinstance(value, list):
        numbers = [element[0] for element in value if element]
        made: bytes | None = attempt(bytes, numbers)
        return made
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    return value if isinstance(value, bytes) else None


def mapping_method(base: dict[str, Values], name: str, arguments: list[Values]) -> Values:
    """Result of ``get``, ``values`` or ``items`` of a known mapping; nothing for other methods."""
    if name == "get":
        return [value for key in texts_of(arguments[0] if arguments else []) for value in base.get(key, [])]
    if name == "values":
        return [list(base.values())]
    if name == "items":
        return [[[[[key], values]] for key, values in base.items()]]
    return []


def attempt(function: Callable[[Any], Any], value: Any) -> Any:
    """The function's result, or None: constants of hostile code may be anything."""
    try:
        return function(value)
    except (
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        AttributeError,
        LookupError,
        OverflowError,
        MemoryError,
        zlib.error,
    ):
        return None


DECODERS: dict[str, Callable[[Any], Any]] = {
    "base64.b64decode": lambda text: base64.b64decode(text),
    "base64.urlsafe_b64decode": lambda text: base64.urlsafe_b64decode(text),
    "base64.b32decode": lambda text: base64.b32decode(text),
    "base64.b16decode": lambda text: base64.b16decode(text),
    "builtins.bytes.fromhex": bytes.fromhex,
    "builtins.bytearray.fromhex": bytes.fromhex,
    "binascii.unhexlify": binascii.unhexlify,
    "base64.b85decode": lambda text: base64.b85decode(text),
    "base64.a85decode": lambda text: base64.a85decode(text),
    "zlib.decompress": lambda data: zlib.decompressobj().decompress(data, MAX_TEXT),
    "codecs.decode": lambda text: codecs.decode(text, "rot13"),
}
