"""Scores of reports: the mean over reports of the mean of the card's components, and what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automedbench.base.cards import OutputFile
from automedbench.base.errors import InfrastructureError, InvalidSubmission
from automedbench.base.records import CaseEntry, CaseScore
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import (
    case_output,
    collected_bytes,
    not_as_collected,
    output_path,
    require_same_cases,
)
from automedbench.tracks.report_generation.check import read_report
from automedbench.tracks.report_generation.components import Measured, Pair, mean, measure
from automedbench.tracks.report_generation.settings import COMPONENTS, TEXT_COMPONENTS, Component, Settings
from automedbench.tracks.report_generation.stage import read_reference
from automedbench.tracks.report_generation.text import Section, extract, normalise, reference_section, tokens

QUALITY = "report_score"


@dataclass(frozen=True)
class Evidence:
    """Normalised texts of every expected case, in manifest order, and which section each compares."""

    pairs: list[Pair]
    sections: list[Section]


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean over all expected reports of the mean of their components, with corpus values and components beside it.

    Raises InfrastructureError when a reference is missing or a resource cannot be used; zeros are never invented.
    """
    settings: Settings = track_settings(inputs.card)
    evidence = evidence_of(inputs, settings)
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


def evidence_of(inputs: ScoringInputs, settings: Settings) -> Evidence:
    """Both texts of every expected case; raises InfrastructureError for a reference that is missing or empty."""
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
    return Evidence(pairs, sections)


def _read_report(case: CaseEntry, output: OutputFile, submission: Path, settings: Settings) -> str:
    """The text of a report that the format check found valid."""
    path = output_path(submission, output, case.id)
    try:
        return read_report(collected_bytes(path, output.max_bytes), path.name, settings).text
    except InvalidSubmission as error:
        raise not_as_collected(path, error) from error


def _case(
    inputs: ScoringInputs, evidence: Evidence, measured: Measured, reports: list[float], number: int
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
