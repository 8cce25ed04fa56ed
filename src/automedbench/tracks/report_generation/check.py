"""The format check of one ``report.txt``: bytes to text, and every reason why it is not a report."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import Problem
from automedbench.base.untrusted import shown
from automedbench.tracks.report_generation.settings import Settings

_ALLOWED_CONTROLS = frozenset("\t\n\v\f\r")
_BOM = "\ufeff"


@dataclass(frozen=True)
class ReportFile:
    """A report's text with line breaks as \\n and without a byte order mark, and what is wrong with it."""

    text: str
    problems: list[Problem]


def read_report(data: bytes, path: str, settings: Settings) -> ReportFile:
    """Decode and check one file; raises InvalidSubmission when it is not UTF-8. What is said is never looked at."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidSubmission("utf8_decode_failed", f"is not UTF-8 (byte {error.start})") from error
    text = text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")
    return ReportFile(text, [Problem(code=code, message=f"{path} {why}") for code, why in _faults(text, settings)])


def _faults(text: str, settings: Settings) -> list[tuple[str, str]]:
    faults = []
    letters = sum(character.isalpha() for character in text)
    if len(text) < settings.min_chars:
        faults.append(("too_short", f"has {len(text)} characters, fewer than {settings.min_chars}"))
    if len(text) > settings.max_chars:
        faults.append(("too_long", f"has {len(text)} characters, more than {settings.max_chars}"))
    if letters < settings.min_alpha_chars:
        faults.append(("too_few_alpha_chars", f"has {letters} letters, fewer than {settings.min_alpha_chars}"))
    if not text.strip():
        faults.append(("empty_after_strip", "holds nothing but white space"))
    strange = next((character for character in text if not _is_printable(character)), None)
    if strange is not None:
        faults.append(("non_printable_characters", f"holds the character {shown(strange)}, which is not text"))
    return faults


def _is_printable(character: str) -> bool:
    control = unicodedata.category(character) == "Cc" and character not in _ALLOWED_CONTROLS
    return not control and character != "\ufffd"
