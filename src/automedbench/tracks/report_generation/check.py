"""The format check of one ``report.txt``: bytes to text, and every reason why it is not a report."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.cards import OutputFile, TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, Problem
from automedbench.base.untrusted import shown
from automedbench.tracks import track_settings
from automedbench.tracks.common.cases import Judged, case_output, check_file
from automedbench.tracks.report_generation.settings import ReportSettings
from automedbench.tracks.report_generation.text import Section, extract, normalise, tokens

_ALLOWED_CONTROLS = frozenset("\t\n\v\f\r")
_BOM = "\ufeff"


@dataclass(frozen=True)
class ReportFile:
    """A report's text with line breaks as \\n and without a byte order mark, and what is wrong with it."""

    text: str
    problems: list[Problem]


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected ``report.txt`` with every reason; one that is not valid is not scored."""
    settings, output = track_settings(card), case_output(card, "txt")
    return [_check_case(case, output, submission, settings) for case in manifest.cases]


def _check_case(case: CaseEntry, output: OutputFile, submission: Path, settings: ReportSettings) -> CaseSubmission:
    path = output.path.replace("{case}", case.id)

    def judge(_: CaseEntry, data: bytes) -> Judged:
        file = read_report(data, path, settings)
        return file.problems, [] if file.problems else _remarks(file, path, settings)

    verdict = check_file(case, output, submission, judge)
    return verdict.model_copy(update={"completed": verdict.status == "valid"})


def _remarks(file: ReportFile, path: str, settings: ReportSettings) -> list[Problem]:
    """A valid file may still leave nothing to compare: a heading without text, or no Latin letter or digit."""
    section: Section = {"caption": "text", "full": "full"}.get(settings.text_mode, "findings")  # type: ignore[assignment]
    if tokens(normalise(extract(file.text, section))):
        return []
    return [Problem(code="nothing_to_compare", message=f"{path} has no words in the text that is compared")]


def read_report(data: bytes, path: str, settings: ReportSettings) -> ReportFile:
    """Decode and check one file; raises InvalidSubmission when it is not UTF-8. What is said is never looked at."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidSubmission("utf8_decode_failed", f"is not UTF-8 (byte {error.start})") from error
    text = text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")
    return ReportFile(text, [Problem(code=code, message=f"{path} {why}") for code, why in _faults(text, settings)])


def _faults(text: str, settings: ReportSettings) -> list[tuple[str, str]]:
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
    kind = "printable ASCII" if settings.ascii_only else "text"
    strange = next((character for character in text if not _is_printable(character, settings)), None)
    if strange is not None:
        faults.append(("non_printable_characters", f"holds the character {shown(strange)}, which is not {kind}"))
    return faults


def _is_printable(character: str, settings: ReportSettings) -> bool:
    if settings.ascii_only and not character.isascii():
        return False
    control = unicodedata.category(character) == "Cc" and character not in _ALLOWED_CONTROLS
    return not control and character != "\ufffd"
