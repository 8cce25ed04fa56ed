"""Report generation: one text per study; quality is the mean over reports of the mean of the card's components.

The seven components are BLEU, METEOR, ROUGE-L, RadGraph F1 and CheXbert's micro precision, recall and F1. A missing
or invalid report scores 0, which already is the completion rate's effect. Values over all reports together (as other
publications print them) stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automedbench.base.cards import OutputFile, TaskCard
from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.records import CaseEntry, CaseScore, CaseSubmission, Manifest, Problem
from automedbench.datasets import get_reader
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import (
    Judged,
    case_output,
    check_file,
    collected_bytes,
    not_as_collected,
    output_path,
    require_same_cases,
)
from automedbench.tracks.report_generation.check import ReportFile, read_report
from automedbench.tracks.report_generation.components import Measured, Pair, mean, measure
from automedbench.tracks.report_generation.preflight import preflight
from automedbench.tracks.report_generation.settings import COMPONENTS, TEXT_COMPONENTS, Component, Settings
from automedbench.tracks.report_generation.show import show_case as show
from automedbench.tracks.report_generation.stage import read_reference, stage_reports
from automedbench.tracks.report_generation.text import Section, extract, normalise, reference_section, tokens
from automedbench.tracks.report_generation.verify import twin_quality

__all__ = ["CASE_QUALITY", "QUALITY", "VERSION", "Settings", "check", "preflight", "score", "show", "stage", "verify"]

VERSION = 1
STAGED_SETTINGS = ("text_mode",)
QUALITY = "report_score"
CASE_QUALITY = "report_score"


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Write each case's images and manifest and its report; the same card and data give the same bytes.

    Raises InfrastructureError for raw data that is absent or unreadable, or holds too few usable studies.
    """
    return stage_reports(card, track_settings(card), get_reader(card.staging.reader)(raw, card), public, private)


# --- format check ----------------------------------------------------------------------------------------------


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected ``report.txt`` with every reason; one that is not valid is not scored."""
    settings, output = track_settings(card), case_output(card, "txt")
    return [_check_case(case, output, submission, settings) for case in manifest.cases]


def _check_case(case: CaseEntry, output: OutputFile, submission: Path, settings: Settings) -> CaseSubmission:
    path = output.path.replace("{case}", case.id)

    def judge(_: CaseEntry, data: bytes) -> Judged:
        file = read_report(data, path, settings)
        return file.problems, [] if file.problems else _remarks(file, path, settings)

    verdict = check_file(case, output, submission, judge)
    return verdict.model_copy(update={"completed": verdict.status == "valid"})


def _remarks(file: ReportFile, path: str, settings: Settings) -> list[Problem]:
    """A valid file may still leave nothing to compare: a heading without text, or no Latin letter or digit."""
    section: Section = {"caption": "text", "full": "full"}.get(settings.text_mode, "findings")  # type: ignore[assignment]
    if tokens(normalise(extract(file.text, section))):
        return []
    return [Problem(code="nothing_to_compare", message=f"{path} has no words in the text that is compared")]


# --- score -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Evidence:
    """Normalised texts of every expected case, in manifest order, and which section each compares."""

    pairs: list[Pair]
    sections: list[Section]


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean over all expected reports of the mean of their components, with corpus values and components beside it.

    Raises InfrastructureError when a reference is missing or a resource cannot be used; zeros are never invented.
    """
    settings: Settings = track_settings(inputs.card)
    evidence = _evidence(inputs, settings)
    measured = measure(evidence.pairs, settings, inputs.resources)
    reports = report_scores(measured, settings)
    corpus_score = mean([measured.corpus[name] for name in settings.components])
    quality = min(mean(reports) if settings.aggregation == "per_report" else corpus_score, 1.0)
    return TrackScore(
        quality=quality,
        task_score=quality,
        metrics={
            **{name: mean(measured.reports[name]) for name in settings.components},
            "text_mean": _text_mean(measured),
            **{f"corpus_{name}": measured.corpus[name] for name in settings.components},
            "corpus_score": corpus_score,
            "per_report_score": mean(reports),
            **measured.diagnostics,
        },
        groups=measured.groups,
        cases=[_case(inputs, evidence, measured, reports, number) for number in range(len(reports))],
        notes=[*_notes(settings), *measured.notes],
    )


def report_scores(measured: Measured, settings: Settings) -> list[float]:
    """Each report's score: the mean of its components, all with the same weight."""
    rows = zip(*(measured.reports[name] for name in settings.components), strict=True)
    return [mean(row) for row in rows]


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again with NLTK, rouge-score and, where their components count, radgraph and scikit-learn."""

    settings: Settings = track_settings(inputs.card)
    return twin_quality(_evidence(inputs, settings).pairs, settings, inputs.resources)


def _evidence(inputs: ScoringInputs, settings: Settings) -> _Evidence:
    require_same_cases(inputs)
    output = case_output(inputs.card, "txt")
    pairs, sections = [], []
    for case, verdict in zip(inputs.manifest.cases, inputs.checked.cases, strict=True):
        text = read_reference(inputs.private, case)
        section = reference_section(text, settings.text_mode)
        reference = normalise(extract(text, section))
        if not tokens(reference):
            raise InfrastructureError(f"{inputs.card.id}: the report of {case.id} is empty; stage the task again.")
        report = _read_report(case, output, inputs.submission, settings) if verdict.completed else ""
        candidate = normalise(extract(report, section))
        pairs.append(Pair(reference, candidate if tokens(candidate) else ""))
        sections.append(section)
    return _Evidence(pairs, sections)


def _read_report(case: CaseEntry, output: OutputFile, submission: Path, settings: Settings) -> str:
    """The text of a report that the format check found valid."""
    path = output_path(submission, output, case.id)
    try:
        return read_report(collected_bytes(path, output.max_bytes), path.name, settings).text
    except InvalidSubmission as error:
        raise not_as_collected(path, error) from error


def _case(
    inputs: ScoringInputs, evidence: _Evidence, measured: Measured, reports: list[float], number: int
) -> CaseScore:
    """One report's components. No text is copied: what may be passed on differs from data set to data set."""
    verdict, pair = inputs.checked.cases[number], evidence.pairs[number]
    values: dict[str, float | None] = {name: found[number] for name, found in measured.reports.items()}
    return CaseScore(
        case=verdict.case,
        status=verdict.status,
        metrics={QUALITY: reports[number], **values},
        detail={
            "section": evidence.sections[number],
            "reference_words": len(tokens(pair.reference)),
            "candidate_words": len(tokens(pair.candidate)),
        },
    )


def _text_mean(measured: Measured) -> float | None:
    """Mean of the three text metrics over all reports, where all three were computed."""
    if not all(name in measured.reports for name in TEXT_COMPONENTS):
        return None
    return mean([mean(measured.reports[name]) for name in TEXT_COMPONENTS])


def _notes(settings: Settings) -> list[str]:
    left_out: list[Component] = [name for name in COMPONENTS if name not in settings.components]
    notes = [] if settings.aggregation == "per_report" else ["The score is of all reports together, not per report."]
    if left_out:
        notes.append(
            f"components_reduced: the score is the mean of {', '.join(settings.components)}; without "
            f"{', '.join(left_out)} it cannot be compared with scores of all seven."
        )
    if settings.text_mode == "caption" and (settings.needs_chexbert or settings.needs_radgraph):
        notes.append("CheXbert and RadGraph are models of chest X-ray reports; on captions their values mean little.")
    return notes
