"""The doctor's findings as lines for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from automedbench.commands.doctor.examine import Finding

_COLOURS = {"ok": "\x1b[32m", "warn": "\x1b[33m", "FAIL": "\x1b[31m"}
_PLAIN = "\x1b[0m"


def report_lines(findings: Sequence[Finding], *, coloured: bool = False) -> list[str]:
    """One line per finding, with the fix behind an arrow, and a line of counts."""
    width = max((len(finding.probe) for finding in findings), default=0)
    lines = []
    for finding in findings:
        word = f"{finding.status:<4}"
        shown = f"{_COLOURS[finding.status]}{word}{_PLAIN}" if coloured else word
        fix = f" → {finding.fix}" if finding.fix else ""
        lines.append(f"{shown}  {finding.probe:<{width}}  {_printable(finding.message)}{_printable(fix)}")
    counts = Counter(finding.status for finding in findings)
    return [*lines, f"{counts['ok']} ok, {counts['warn']} warnings, {counts['FAIL']} failures"]


def _printable(text: str) -> str:
    """Without control characters: programs and servers speak here."""
    return "".join(character if character.isprintable() else " " for character in text)
