"""Report texts: which part of a report is compared, and how it is normalised before every metric.

The same rules hold for reference and prediction (docs/specification.md, 10.4).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from automedbench.tracks.report_generation.settings import TextMode

Section = Literal["findings", "impression", "full", "text", "published"]
"""What is taken of a report; ``text`` is all of it."""

_KIND = r"(?:(?:reference|radiograph\w*|radiolog\w+|imaging|chest|x-?ray|ct|mri?|key|main|report|final|overall) +){0,3}"
_FINDINGS = (
    rf"{_KIND}findings?(?:(?: ?[/&] ?| and )impression)?|chest, two views"
    "|befunde?|hallazgos|r[ée]sultats|constatations|achados|reperti|(?:检查|影像)?所[见見]"
)
_IMPRESSION = (
    rf"{_KIND}(?:impression|conclusion)s?(?:(?: ?[/&] ?| and )(?:plan|recommendations?))?"
    "|beurteilung|impresi[óo]n|impressão|conclusioni|印象|诊断意见"
)
_CAPITALS = re.compile(r"^\s*([A-Z][A-Z /(),-]{1,40})\s*:", re.MULTILINE)
_FINDINGS_ALONE = frozenset({"finding", "findings", "reference findings", "chest, two views"})
_OTHER = (
    "technique|comparison|indication|(?:clinical )?(?:history|information|indication)|exam(?:ination)?|procedure"
    "|recommendations?|summary|opinion|diagnosis|assessment|interpretation|notes?"
)
# Marks of Markdown, HTML, LaTeX, JSON and numbering around the name of a section; bounded, since agents write the text.
_MARKED = re.compile(
    r"(?:^|(?<=[.!?])(?P<inside>[\"'*_,]{0,4}[ \t]{1,4}))"
    r"(?P<before>(?:<\w+>|\\\w+\{|(?:\d{1,2}|[ivx]{1,4}|[a-f])[.)\]]|[^\w\n]|_){0,12})"
    rf"(?P<name>(?:(?P<findings>{_FINDINGS})|(?P<impression>{_IMPRESSION}))(?: ?\([^()\n]{{1,40}}\))?|{_OTHER})"
    r"(?![^\W_])(?P<behind>(?:</\w+>|[^\w\n<(]|_){0,12})",
    re.MULTILINE | re.IGNORECASE,
)
_RULE = re.compile(
    rf"^[ \t]*(?:[=-]{{3,}}|\*{{3,}}|_{{3,}})[ \t]*$\n?|</(?:{_FINDINGS}|{_IMPRESSION})>|</?(?:p|br|div) ?/?>",
    re.MULTILINE | re.IGNORECASE,
)
# After that a heading that is no known name ends a section when it is written in capitals.
_HEADER = re.compile(r"^[ \t]*([A-Z][A-Z /(),-]{1,40})[ \t]*:", re.MULTILINE)
_FINAL_REPORT = re.compile(r"\bfinal\s+report\b", re.IGNORECASE)
_TOKEN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)?")


@dataclass(frozen=True)
class _Piece:
    """One heading with what follows it up to the next one."""

    name: str
    heading: str
    content: str


def normalise(text: str) -> str:
    """The text that metrics see: no byte order mark, NFKC, no "final report", lower case, single blanks."""
    text = unicodedata.normalize("NFKC", text.removeprefix("\ufeff"))
    return " ".join(_FINAL_REPORT.sub(" ", text).lower().split())


def tokens(normalised: str) -> list[str]:
    """Words of a normalised text: a–z and 0–9 with at most one inner hyphen."""
    return _TOKEN.findall(normalised)


def sections(text: str) -> dict[str, str]:
    """Content under each heading, repeated ones joined by a line break; known names in their canonical form."""
    found: dict[str, str] = {}
    for piece in _pieces(unmark_headings(text)):
        found[piece.name] = "\n".join(filter(None, [found.get(piece.name, ""), piece.content]))
    return found


def unmark_headings(text: str) -> str:
    """The text in NFKC with headings of sections as "FINDINGS:" at the start of a line, however they are marked.

    A name inside a sentence stays: without marks, colon or dash it must fill its line, with a capital, and behind
    another sentence on its line it needs the colon.
    """
    return _MARKED.sub(_unmark, _RULE.sub("", unicodedata.normalize("NFKC", text)))


def _unmark(found: re.Match[str]) -> str:
    before, name, behind = found["before"], found["name"], found["behind"]
    known = "FINDINGS" if found["findings"] else "IMPRESSION" if found["impression"] else ""
    if found["inside"] is not None:
        return f"\n{known}: " if known and ":" in behind else found[0]
    alone = name[0].isupper() and found.string[found.end() : found.end() + 1] in ("", "\n")
    emphasised = any(mark in before for mark in "*_`<[【={") and behind.strip() != ""
    marked = re.search(r"[:=\t]|^ +[-–—] ", behind) is not None
    return f"{known or name.upper()}: " if emphasised or alone or marked else found[0]


def reference_section(text: str, mode: TextMode) -> Section:
    """Section of a report that the mode compares; ``text`` where the report has no such heading."""
    found = sections(text)
    if mode == "caption":
        return "text"
    if mode in ("full", "published"):
        return mode
    if mode == "findings_or_impression" and not found.get("findings") and found.get("impression"):
        return "impression"
    return "findings"


def has_section(text: str, mode: TextMode) -> bool:
    """Return whether a report of the data set has the section that the mode compares, under its heading."""
    found = sections(text)
    wanted = ("findings",) if mode == "findings_only" else ("findings", "impression")
    return bool(text.strip()) if mode in ("caption", "published") else any(found.get(name) for name in wanted)


def extract(text: str, section: Section) -> str:
    """That section of a report; the whole text where its heading is missing.

    A heading with nothing under it but headings of other names (organs, say) keeps these as its content.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if section == "published":
        return _published_findings(text)
    found = sections(text)
    if section == "text" or (section != "full" and section not in found):
        return text.strip()
    names = ["findings", "impression"] if section == "full" else [section]
    present = [found[name] or _after(unmark_headings(text), name) for name in names if name in found]
    return " ".join(filter(None, present)) if present else text.strip()


def _published_findings(text: str) -> str:
    """Content of the first heading in capitals that means findings alone and has some; else the whole text."""
    headers = list(_CAPITALS.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    found = (
        text[header.end() : end].strip()
        for header, end in zip(headers, ends, strict=False)
        if header[1].strip().lower() in _FINDINGS_ALONE
    )
    return next(filter(None, found), text.strip())


def _pieces(text: str) -> list[_Piece]:
    headers = list(_HEADER.finditer(text))
    starts = [header.start() for header in headers]
    return [
        _Piece(" ".join(header[1].lower().split()), header[0].strip(), text[header.end() : end].strip())
        for header, end in zip(headers, [*starts[1:], len(text)], strict=False)
    ]


def _after(text: str, name: str) -> str:
    """Text between an empty section of that name and the next known one."""
    pieces = _pieces(text)
    start = next(place for place, piece in enumerate(pieces) if piece.name == name) + 1
    kept: list[str] = []
    for piece in pieces[start:]:
        if piece.name in ("findings", "impression"):
            break
        kept.append(f"{piece.heading} {piece.content}".strip())
    return "\n".join(kept)
