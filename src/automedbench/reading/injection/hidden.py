"""Text inside text: encodings, escapes, and characters that carry a message without being seen.

Each function gives views of what a reader who undoes the encoding would see; what decodes to no text gives nothing.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import zlib
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from automedbench.reading.injection.views import TextView, cut, folded, replaced, translated, turned

MAX_DECODED = 64 * 1024
MIN_READABLE = 12
_ROT13 = {ord(char): codecs.encode(char, "rot13") for char in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_LEET = [{ord(a): b for a, b in zip("013457@$!|", f"o{one}eastasi{one}", strict=True)} for one in "il"]
# Words that only occur where work is judged, as they look when turned around, shifted, or with digits for letters.
_WORDS = ("judge", "grader", "evaluator", "verdict", "rubric", "full marks", "full credit", "instructions")
_TELLING = re.compile("|".join(_WORDS))
_TURNED = re.compile("|".join(word[::-1] for word in _WORDS))
_SHIFTED = re.compile("|".join(codecs.encode(word, "rot13") for word in _WORDS))
_LOWER = {code: chr(code).lower() for code in range(ord("A"), ord("Z") + 1)}
_DIGITS_IN_WORD = re.compile(r"[a-z][013457@$!|]+[a-z]|\b[013457@$!|]+[a-z]{2,}", re.IGNORECASE)
_ESCAPE = re.compile(
    r"\\{1,8}x([0-9a-fA-F]{2})|\\{1,8}u\{?([0-9a-fA-F]{4,6})\}?|\\{1,8}U([0-9a-fA-F]{8})|\\{1,8}([0-7]{3})(?![0-9])"
    r"|((?:%[0-9a-fA-F]{2})+|(?:=[0-9A-F]{2}){4,})|(&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,10});)|(\\{1,8}[nrt](?![a-z]{2,}[/\\]))"
)
# Constants that Python or a shell puts together, where a word goes on.
_JOINED = re.compile(r"""(?<=[A-Za-z])(["'])\s{0,40}(?:\+|\\\n)?\s{0,40}[rbufRBUF]{0,2}["'](?=[A-Za-z])""")
_JOINED_CODE = re.compile(
    r"""(?<=[A-Za-z0-9+/=_-]{4})(["'])\s{0,40}(?:\+|\\\n)?\s{0,40}[rbRB]?["'](?=[A-Za-z0-9+/=_-]{4})"""
)
_SPACED = re.compile(r"(?<![^\W_])[^\W\d_](?:([ ._\-*|,/\n·•])[ \t\n._-]{0,3}[^\W\d_]){3,}(?![^\W_])")
_IN_A_ROW = re.compile(
    r"(judges?|graders?|evaluators?|please|must|should|shall|give|award|assign|grant|rate|score|full|perfect|maximum|marks"
    r"|credit|points|every|each|all|criteria|criterion|stages?|ignore|previous|instructions|rubric|this|run)"
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CAMEL_WORD = re.compile(r"\b\w*(?:[Jj]udge|[Gg]rader|[Ee]valuator|[Vv]erdict|[Mm]arks)\w*\b")
_TAG = re.compile("[\U000e0020-\U000e007e]+")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")

Bytes = Callable[[str], bytes]


def other_views(view: TextView, reach: int) -> Iterator[TextView]:
    """Unfolded pieces of the text in which an order may stand that the plain text does not show.

    ``reach``: characters around what is hidden that belong to a piece.
    """
    text = view.text
    exchanged = [
        (_ESCAPE, _unescaped),
        (_JOINED, lambda _: ""),
        (_SPACED, _squeezed),
    ]
    for pattern, replacement in exchanged:
        other = replaced(view, pattern, replacement)
        yield from cut(other, other.changed, reach)
    names = replaced(view, _CAMEL_WORD, lambda match: _CAMEL.sub(" ", match[0]))
    yield from cut(names, names.changed, 0)  # only the name itself: JudgeRecord is no order to record
    low = text.lower()
    for table in _LEET if _DIGITS_IN_WORD.search(low) else ():
        new = low.translate(table)
        places = [match.span() for match in _TELLING.finditer(new) if match[0] != low[slice(*match.span())]]
        yield from cut(translated(translated(view, _LOWER), table), places, reach)
    if _TURNED.search(low if text.isascii() else folded(view).text):
        other = turned(folded(view))
        yield from cut(other, [match.span() for match in _TELLING.finditer(other.text)], reach)
    yield from cut(translated(view, _ROT13), [match.span() for match in _SHIFTED.finditer(low)], reach)


def hidden_texts(view: TextView) -> Iterator[tuple[str, int, int]]:
    """Decoded texts with the place (below the view) of what held them."""
    for pattern, decode in ((_TAG, _of_tags), (_SELECTORS, _of_selectors)):
        for match in pattern.finditer(view.text):
            found = decode(match[0])
            if len(found) >= MIN_READABLE:
                yield found, *view.span(*match.span())
    joined = replaced(view, _JOINED_CODE, lambda _: "")
    for source in [view] if joined is view else [view, joined]:
        for pattern, decoders in _ENCODED:
            for match in pattern.finditer(source.text):
                for decode_bytes in decoders:
                    if decoded := _readable(decode_bytes, match[0]):
                        yield decoded, *source.span(*match.span())


def _of_tags(run: str) -> str:
    return "".join(chr(ord(char) - 0xE0000) for char in run)


def _of_selectors(run: str) -> str:
    """A byte per variation selector."""
    data = bytes(ord(char) - (0xFE00 if ord(char) < 0xE0000 else 0xE0100 - 16) for char in run)
    return data.decode("utf-8", "ignore")


# --- encodings ------------------------------------------------------------------------------------------------


def _base64_at(offset: int) -> Bytes:
    def decode(text: str) -> bytes:
        packed = re.sub(r"\s", "", text).rstrip("=").replace("-", "+").replace("_", "/")[offset:]
        usable = len(packed) - (len(packed) % 4 == 1)
        return base64.b64decode(packed[:usable] + "=" * (-usable % 4))

    return decode


def _base32(text: str) -> bytes:
    packed = re.sub(r"[\s=]", "", text).upper()
    return base64.b32decode(packed + "=" * (-len(packed) % 8))


def _base85(text: str) -> bytes:
    return base64.b85decode(text.strip("\"'"))


def _ascii85(text: str) -> bytes:
    return base64.a85decode(text.strip("\"'"))


def _hexadecimal(text: str) -> bytes:
    digits = re.sub(r"0x|[^0-9a-fA-F]", "", text)
    return bytes.fromhex(digits[: len(digits) // 2 * 2])


def _decimal(text: str) -> bytes:
    return "".join(chr(int(number)) for number in re.findall(r"\d+", text)).encode()


def _binary(text: str) -> bytes:
    return bytes(int(group, 2) for group in re.findall(r"[01]{7,8}", text))


# A path or a hash decodes to bytes that are no text, so these may match a lot.
_ENCODED: tuple[tuple[re.Pattern[str], tuple[Bytes, ...]], ...] = (
    (
        re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}"),
        (_base64_at(0), _base64_at(1), _base64_at(2), _base64_at(3)),
    ),
    (
        re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{20,}+(?:[ \t]*\r?\n[ \t]*[A-Za-z0-9+/]{4,}){1,400}={0,2}"),
        (_base64_at(0),),
    ),
    (re.compile(r"\b[A-Z2-7]{24,}={0,6}"), (_base32,)),
    (re.compile(r"(?<![^\W_])(?:(?:0x)?[0-9a-fA-F]{2}[ ,:;\n\t]{0,2}){12,}(?![^\W_])"), (_hexadecimal,)),
    (re.compile(r"(?:chr\(\s{0,8})?\b\d{2,3}(?:[ ,;\n\t)+.'\"]{1,6}(?:chr\(\s{0,8})?\d{2,3}\b){11,}"), (_decimal,)),
    (re.compile(r"(?:\b[01]{7,8}[ ,\n]{1,2}){11,}[01]{7,8}\b|[01]{96,}"), (_binary,)),
    (re.compile(r"""["'][!-~]{20,4000}["']"""), (_base85, _ascii85)),
)


def _readable(decode: Bytes, text: str) -> str:
    """What bytes say, unpacked where they are packed; empty when it is no text."""
    try:
        data = _unpacked(decode(text))
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
        found = data.decode(encoding, "ignore")
    except (ValueError, binascii.Error, zlib.error, OverflowError):
        return ""
    # A few bytes may be wrong: what stands beside an encoded text can look like a part of it.
    is_text = len(found.encode(encoding, "replace")) >= 0.9 * len(data)
    shown = sum(char.isprintable() or char in "\n\t\r" for char in found)
    return found if is_text and len(found) >= MIN_READABLE and shown >= 0.95 * len(found) else ""


def _unpacked(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b" or data[:1] == b"\x78":
        return zlib.decompressobj(47).decompress(data, MAX_DECODED)
    return data[:MAX_DECODED] if data[:MAX_DECODED].isascii() else data


# --- escapes and shapes ---------------------------------------------------------------------------------------


def _unescaped(match: re.Match[str]) -> str:
    short, unit, long, octal, percent, entity, control = match.groups()
    if percent:
        return unquote(percent.replace("=", "%"))
    if entity:
        return html.unescape(entity)
    if control:
        return "\n"
    code = int(octal, 8) if octal else int(short or unit or long, 16)
    return chr(code) if code <= 0x10FFFF else match[0]


def _squeezed(match: re.Match[str]) -> str:
    """Letters that stand apart, put together; wider gaps part words, and so do words that are known."""
    wide = re.compile(rf"(?:{re.escape(match[1])}|\s){{2,}}")
    words = (re.sub(r"[\W_]", "", word).lower() for word in wide.split(match[0]))
    return " ".join(_IN_A_ROW.sub(r" \1 ", word) for word in words)
