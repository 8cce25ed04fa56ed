"""Allow-lists of what a program may send to its provider: tables of fields and kinds, applied to JSON values.

One rule for all protocols: a field that a table does not name is left out; a kind of part, item or tool that it does
not name is refused, and so is content that lies elsewhere. What is allowed passes as it came, in its order.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from automedbench.agent.protocols.common import Body, bad_request, describe_kind, parse_length

Rule = Callable[[Any], Any]
"""Returns the value to pass on, or LEFT_OUT; raises Mismatch, Missing or RequestRefused."""
LEFT_OUT = object()


class Missing(Exception):
    """A part without the field that holds its content."""


class Mismatch(Exception):
    """A value that its field may not have: words that follow the field's name, and the rule of a finding."""

    def __init__(self, message: str, rule: str | None = None) -> None:
        self.rule = rule
        super().__init__(message)


# --- refusals -------------------------------------------------------------------------------------------------

_RUN = re.compile(r"tool|call|result|mcp|code", re.IGNORECASE)
"""In the name of what a provider runs or ran."""


def refuse_tool(tool: Any) -> NoReturn:
    """Refuse a tool that the program does not run itself."""
    raise bad_request(f"tools of the provider do not exist here: {describe_kind(tool)}", "net.provider_tool")


def refuse_part(part: Any) -> NoReturn:
    """Refuse a part that does not bring its content along, or that is a tool of the provider's."""
    kind = describe_kind(part)
    if _RUN.search(kind):
        refuse_tool(part)
    raise bad_request(f"only text and data of your own are passed on, not: {kind}", "net.remote_content")


def hosted(value: Any) -> Any:
    """A field that would run something at the provider; left out where it is empty."""
    if value:
        raise Mismatch("does not exist here: nothing runs at the provider", "net.provider_tool")
    return LEFT_OUT


def stored(value: Any) -> Any:
    """A field that names what is kept at the provider; left out where it is empty."""
    if value:
        why = "nothing is kept at the provider; send the whole conversation"
        raise Mismatch(f"does not exist here: {why}", "net.remote_content")
    return LEFT_OUT


# --- values ---------------------------------------------------------------------------------------------------


def own(value: Any) -> Any:
    """Anything: arguments and results of the program's own tools."""
    return value


def scalar(value: Any) -> Any:
    """Text, a number, true or false."""
    if isinstance(value, (dict, list)):
        raise Mismatch("must be text, a number, true or false")
    return value


def text(value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise Mismatch("must be text")
    return value


def name(value: Any) -> str:
    """The name of a tool of the program's; names with a dollar sign are some providers' own."""
    if text(value).startswith("$"):
        refuse_tool({"name": value})
    return text(value)


def whole(value: Any) -> int:
    """A whole number, which some providers also take as text or as a fraction."""
    if not isinstance(value, int):
        raise Mismatch("must be a whole number")
    return value


def empty(value: Any) -> Any:
    """A list of what the provider found, sent back without its items."""
    return [] if isinstance(value, list) else LEFT_OUT


def length(value: Any) -> Any:
    """A positive number of tokens; anything else is left out."""
    return LEFT_OUT if parse_length(value) is None else value


def among(*words: str | int) -> Rule:
    """One of a few words or numbers."""

    def check(value: Any) -> Any:
        if isinstance(value, bool) or value not in words:
            raise Mismatch(f"must be out of {', '.join(map(str, words))}")
        return value

    return check


_REFERENCES = {
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef"), re.compile(r"#.*", re.DOTALL)),
    "$schema": re.compile(r"https?://json-schema\.org/[\w./-]*#?"),
    **dict.fromkeys(("ref", "$id", "id"), re.compile(r"(?![\w+.-]+:/|/).*", re.DOTALL)),
}
"""Keywords of JSON Schema that name schemas, and what they may name: a place in the schema itself, a known dialect."""


def schema(value: Any) -> Any:
    """A JSON Schema without a reference to another document."""
    if not isinstance(value, (dict, bool)):
        raise Mismatch("must be a JSON Schema")
    _check_references(value)
    return value


def _check_references(value: Any) -> None:
    for keyword, inner in value.items() if isinstance(value, dict) else ():
        form = _REFERENCES.get(keyword)
        if form is not None and not isinstance(inner, dict) and not form.fullmatch(str(inner)):
            raise bad_request(f"a schema may only refer to itself, not: {str(inner)[:80]}", "net.remote_content")
        _check_references(inner)
    for inner in value if isinstance(value, list) else ():
        _check_references(inner)


# --- objects and lists ----------------------------------------------------------------------------------------


def fields(names: str = "", /, **rules: Rule) -> Rule:
    """An object with these fields, each of which may be null: ``names`` are scalars unless they have a rule.

    Raises Missing without one that is marked by ``!``.
    """
    words = names.split()
    needed = [word[:-1] for word in words if word.endswith("!")]
    table: dict[str, Rule] = dict.fromkeys((word.rstrip("!") for word in words), scalar) | rules

    def select(value: Any) -> Body:
        if not isinstance(value, dict):
            raise Mismatch("must be an object")
        kept = {}
        for key, inner in value.items():
            if key in table and (new := _apply(table[key], key, inner)) is not LEFT_OUT:
                kept[key] = new
        if any(kept.get(key) is None for key in needed):
            raise Missing
        return kept

    return select


def _apply(rule: Rule, key: str, value: Any) -> Any:
    try:
        return None if value is None else rule(value)
    except Mismatch as mismatch:
        raise bad_request(f"'{key}' {mismatch}", mismatch.rule) from None


def part(names: str = "", /, **rules: Rule) -> Rule:
    """An object with a ``type`` and these fields."""
    return fields(f"type {names}", **rules)


def kinds(table: Mapping[str, Rule], refuse: Callable[[Any], NoReturn] = refuse_part, default: str = "") -> Rule:
    """An object of a ``type`` in the table; others are refused, as are those without their content."""

    def select(value: Any) -> Any:
        kind = value.get("type") if isinstance(value, dict) else ""
        kind = default if kind is None else kind
        if not isinstance(kind, str) or kind not in table:
            refuse(value)
        try:
            return table[kind](value)
        except Missing:
            refuse(value)

    return select


def parts(**table: Rule) -> Rule:
    """Text, or a list of texts and of parts of these types."""
    one = either(text, kinds(table))

    def select(value: Any) -> Any:
        if not isinstance(value, (str, list)):
            raise Mismatch("must be text, a list of parts, or null")
        return value if isinstance(value, str) else [one(part) for part in value]

    return select


def tools(default: str = "", /, **table: Rule) -> Rule:
    """A list of tools of these types, or one of them alone."""
    return listed(kinds(table, refuse_tool, default))


def listed(rule: Rule) -> Rule:
    """A list of such values, or one of them alone."""
    return lambda value: [rule(item) for item in value] if isinstance(value, list) else rule(value)


def either(word: Rule, rule: Rule) -> Rule:
    """Text by the first rule, anything else by the second one."""
    return lambda value: word(value) if isinstance(value, str) else rule(value)


def without_null(value: Body) -> Body:
    """The fields of a request that have a value: an endpoint may refuse null."""
    return {key: inner for key, inner in value.items() if inner is not None}


cache_control = fields("type ttl")

# --- data that comes along ------------------------------------------------------------------------------------

_MEDIA = {
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"RIFF.{4}WEBP",
    "application/pdf": rb"%PDF-",
    "audio/ogg": rb"OggS",
    "audio/flac": rb"fLaC",
    **dict.fromkeys(("image/jpeg", "image/jpg"), rb"\xff\xd8\xff"),
    **dict.fromkeys(("audio/wav", "audio/x-wav"), rb"RIFF.{4}WAVE"),
    **dict.fromkeys(("audio/mp3", "audio/mpeg"), rb"ID3"),  # without it base64 would begin as "//host" does
    **dict.fromkeys(("image/heic", "image/heif", "video/mp4", "video/quicktime", "audio/mp4"), rb".{4}ftyp"),
    **dict.fromkeys(("text/plain", "text/markdown", "text/csv", "application/json"), rb""),
}
"""Media types that are passed on, and how their data begins; texts are UTF-8.

Playlists, vector graphics and web pages, which may name addresses, are not among them.
"""
_BEGINNINGS = {kind: re.compile(beginning, re.DOTALL) for kind, beginning in _MEDIA.items()}
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_KIND = r"([\w.+-]+/[\w.+-]+)(?:; ?[\w.+-]+=[\w.+-]*)*"
_DATA_URL = re.compile(f"data:({_KIND});base64,", re.IGNORECASE)
_URL_SAFE = str.maketrans("-_", "+/")
_HEAD = 64  # characters of base64, more than any beginning has


def is_media(kind: str, data: str) -> bool:
    """True for base64, in either alphabet, of what the media type says; an address or a path is none."""
    named = re.fullmatch(_KIND, kind)
    beginning = _BEGINNINGS.get(named[1].lower()) if named else None
    if beginning is None or not _BASE64.fullmatch(data):
        return False
    if beginning.pattern:
        return beginning.match(_decode(data[:_HEAD])) is not None
    try:
        return bool(_decode(data).decode())
    except UnicodeDecodeError:
        return False


def _decode(data: str) -> bytes:
    """The bytes of base64 with or without padding; nothing for what is none."""
    data = data.rstrip("=").translate(_URL_SAFE)
    try:
        return binascii.a2b_base64(data + "=" * (-len(data) % 4))
    except binascii.Error:
        return b""


def data_url(value: Any) -> str:
    """A URL that holds its content, as base64 of its media type."""
    head = _DATA_URL.match(text(value))
    if head is None or not is_media(head[1], value[head.end() :]):
        refuse_part({"type": f"{value[:40]}…"})
    return text(value)


def encoded(shape: Rule, kind: str, prefix: str = "") -> Rule:
    """An object of this shape with base64 in ``data`` and its media type, less ``prefix``, in the field ``kind``."""

    def select(value: Any) -> Body:
        kept: Body = shape(value)
        if not is_media(f"{prefix}{kept.get(kind)}", str(kept.get("data") or "")):
            refuse_part({"type": f"data as {kept.get(kind)}"})
        return kept

    return select
