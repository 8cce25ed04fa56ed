"""Scores of reports: the mean over reports of the mean of the card's components, and what stands beside it."""

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseScore, CaseSubmission, Prior
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import case_output, read_collected
from automedbench.tracks.report_generation.check import read_report
from automedbench.tracks.report_generation.components import (
    Measured,
    ReportPair,
    Resources,
    call_guarded,
    load_chexbert,
    load_radgraph,
    load_resource,
    mean,
    measure,
    observation_sets,
    rehearsal_settings,
)
from automedbench.tracks.report_generation.contradictions import REMARKABLE, Contradictions, count_contradictions
from automedbench.tracks.report_generation.settings import (
    CHEXBERT_COMPONENTS,
    COMPONENTS,
    OBSERVATION,
    TEXT_COMPONENTS,
    Component,
    ReportSettings,
)
from automedbench.tracks.report_generation.stage import read_findings, read_reference
from automedbench.tracks.report_generation.text import extract, normalise, reference_section, tokens

QUALITY = "report_score"


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean over all expected reports of the mean of their components, with corpus values and components beside it.

    Raises InfrastructureError when a reference is missing or a resource cannot be used; zeros are never invented.
    """
    settings = report_settings(inputs)
    pairs = read_evidence(inputs, settings)
    measured = measure(pairs, settings, inputs.resources)
    reports = settings.combined_reports(measured.reports)
    columns = [(QUALITY, reports), *measured.reports.items()]
    corpus_score = settings.combined([measured.corpus[name] for name in settings.components])
    quality = min(mean(reports), 1.0) * _gate(inputs, settings)
    against = [count_contradictions(pair.reference, pair.candidate) for pair in pairs]
    contradicting = Contradictions(
        sum(each.contradicting for each in against), sum(each.statements for each in against)
    )
    return TrackScore(
        quality=quality,
        task_score=quality,
        metrics={
            **{name: mean(measured.reports[name]) for name in settings.components},
            "text_mean": _text_mean(measured),
            **{f"corpus_{name}": measured.corpus[name] for name in settings.components},
            "corpus_score": corpus_score,
            "per_report_score": mean(reports),
            "contradicting_statements": contradicting.share,
            **measured.diagnostics,
        },
        groups=measured.groups,
        cases=[
            _case(verdict, pair, {name: values[row] for name, values in columns}, against[row])
            for row, (verdict, pair) in enumerate(zip(inputs.checked.cases, pairs, strict=True))
        ],
        prior=prior(pairs, settings, inputs.resources),
        contradicting=contradicting.share if (contradicting.share or 0) > REMARKABLE else None,
        notes=[*_notes(settings), *measured.notes],
    )


def prior(pairs: Sequence[ReportPair], settings: ReportSettings, resources: Resources) -> Prior:
    """Score of one report for every case: the reference that shares most words with all others."""
    references = [pair.reference for pair in pairs]
    words = [set(tokens(text)) for text in references]
    shared = [math.fsum(2 * len(mine & other) / (len(mine) + len(other)) for other in words) for mine in words]
    fixed = references[max(range(len(references)), key=shared.__getitem__)]
    found = measure([replace(pair, candidate=fixed) for pair in pairs], settings, resources)
    reports = settings.combined_reports(found.reports)
    return Prior(answers="one report for every case", value=min(mean(reports), 1.0))


def _gate(inputs: ScoringInputs, settings: ReportSettings) -> float:
    """0 where the settings ask for all reports and one of them is missing or invalid, else 1."""
    return float(not settings.all_or_nothing or inputs.checked.all_valid)


def report_settings(inputs: ScoringInputs) -> ReportSettings:
    """The card's, complete; on made-up data, which scores nothing that counts, what this machine has models for."""
    settings: ReportSettings = track_settings(inputs.card)
    return rehearsal_settings(settings, inputs.resources) if inputs.manifest.made_up else settings


def read_evidence(inputs: ScoringInputs, settings: ReportSettings) -> list[ReportPair]:
    """Normalised texts of every expected case; raises InfrastructureError for a reference that is missing or empty."""
    output = case_output(inputs.card, "txt")

    def read(data: bytes) -> str:
        return read_report(data, output.path, settings).text

    pairs = []
    for case, verdict in inputs.pairs:
        text = read_reference(inputs.private, case)
        section = reference_section(text, settings.text_mode)
        reference = normalise(extract(text, section))
        if not tokens(reference):
            raise InfrastructureError(f"{inputs.card.id}: the report of {case.id} is empty; stage the task again.")
        report = read_collected(inputs.submission, output, case.id, read) if verdict.completed else ""
        candidate = normalise(extract(report, section))
        findings = read_findings(inputs.private, case)
        pairs.append(ReportPair(reference, candidate if tokens(candidate) else "", findings, section))
    return pairs


def _case(verdict: CaseSubmission, pair: ReportPair, values: Mapping[str, float], against: Contradictions) -> CaseScore:
    """One report's components. No text is copied: what may be passed on differs from data set to data set."""
    return CaseScore(
        case=verdict.case,
        status=verdict.status,
        metrics={**values, "contradicting_statements": against.share},
        detail={
            "section": pair.section,
            "reference_words": len(tokens(pair.reference)),
            "candidate_words": len(tokens(pair.candidate)),
        },
    )


def _text_mean(measured: Measured) -> float | None:
    """Mean of the three text metrics over all reports, where all three were computed."""
    if not all(name in measured.reports for name in TEXT_COMPONENTS):
        return None
    return mean([mean(measured.reports[name]) for name in TEXT_COMPONENTS])


def _notes(settings: ReportSettings) -> list[str]:
    left_out: list[Component] = [name for name in COMPONENTS if name not in settings.components]
    notes, kind = [], "weighted mean" if settings.weights else "mean"
    if left_out:
        notes.append(
            f"components_reduced: the score is the {kind} of {', '.join(settings.components)}; without "
            f"{', '.join(left_out)} it cannot be compared with scores of all seven."
        )
    if settings.all_or_nothing:
        notes.append("One missing or invalid report makes this task's score 0.")
    if settings.text_mode == "caption" and settings.uses("F1RadGraph", *CHEXBERT_COMPONENTS):
        notes.append("CheXbert and RadGraph are models of chest X-ray reports; on captions their values mean little.")
    return notes


_Found = dict[Component, list[float]]
TOLERANCE = 1e-9


# --- verification ---------------------------------------------------------------------------------------------------


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again with NLTK, rouge-score and, where their components count, radgraph and scikit-learn.

    A model's labels and graphs are its own, their comparison is the library's.
    """
    settings = report_settings(inputs)
    pairs, resources = read_evidence(inputs, settings), inputs.resources
    reports: dict[Component, list[float]] = {}
    names = [f"nltk {version('nltk')}", f"rouge-score {version('rouge-score')}"]
    twins: list[tuple[tuple[Component, ...], Callable[[list[ReportPair], Resources], _Found], str]] = [
        (("BLEU", "ROUGE_L"), functools.partial(_text, hyphens=settings.hyphens), ""),
        ((OBSERVATION,), functools.partial(_observations, settings=settings), "scikit-learn"),
        (("METEOR",), _meteor, ""),
        (("F1RadGraph",), _radgraph, "radgraph"),
        (CHEXBERT_COMPONENTS, _chexbert, "scikit-learn"),
    ]
    for components, twin, package in twins:
        if settings.uses(*components):
            reports |= twin(pairs, resources)
            names += [f"{package} {version(package)}"] if package else []
    value = mean(settings.combined_reports(reports))
    return ", ".join(names), value * _gate(inputs, settings), TOLERANCE


def _text(pairs: list[ReportPair], _: Resources, *, hyphens: bool) -> _Found:
    words = [(tokens(pair.candidate), tokens(pair.reference)) for pair in pairs]
    rouge = rouge_score_l([(pair.candidate, pair.reference) for pair in pairs], hyphens=hyphens)
    return {"BLEU": [nltk_bleu([pair]) for pair in words], "ROUGE_L": rouge}


def _observations(pairs: list[ReportPair], _: Resources, *, settings: ReportSettings) -> _Found:
    from sklearn.metrics import f1_score

    names, sets = list(settings.observations), observation_sets(pairs, settings)
    rows = [[[int(name in side) for name in names] for side in both] for both in sets]
    found = [float(f1_score(*both, zero_division=1.0)) for both in rows]
    return {OBSERVATION: [value if pair.candidate else 0.0 for pair, value in zip(pairs, found, strict=True)]}


def _meteor(pairs: list[ReportPair], resources: Resources) -> _Found:
    words = [(tokens(pair.candidate), tokens(pair.reference)) for pair in pairs]
    with call_guarded(nltk_wordnet, load_resource(resources, "wordnet", lambda path: path)) as wordnet:
        return {"METEOR": nltk_meteor(words, wordnet)}


def _radgraph(pairs: list[ReportPair], resources: Resources) -> _Found:
    from automedbench.metrics.checkpoints import quiet_and_offline

    with quiet_and_offline():
        from radgraph.rewards import compute_reward

    graph = load_radgraph(resources)
    values = []
    for pair in pairs:
        both = [graph(text) for text in (pair.candidate, pair.reference)] if pair.candidate else []
        forms = [{"entities": entities} for entities in both if entities]
        values.append(float(compute_reward(*forms, "partial")) if len(forms) == 2 else 0.0)
    return {"F1RadGraph": values}


def _chexbert(pairs: list[ReportPair], resources: Resources) -> _Found:
    import numpy as np
    from sklearn.metrics import precision_recall_fscore_support

    from automedbench.metrics.chexbert import LABELS, binary

    label = load_chexbert(resources)
    rows = [
        (
            binary(label(pair.reference)),
            binary(label(pair.candidate)) if pair.candidate else np.zeros(len(LABELS), bool),
        )
        for pair in pairs
    ]

    def rates(truth: np.ndarray, predicted: np.ndarray) -> list[float]:
        return [
            float(rate)
            for rate in precision_recall_fscore_support(truth, predicted, average="micro", zero_division=0)[:3]
        ]

    found = [
        [0.0] * 3
        if not pair.candidate
        else [1.0] * 3
        if not (truth | predicted).any()
        else rates(truth[None], predicted[None])
        for pair, (truth, predicted) in zip(pairs, rows, strict=True)
    ]
    return {name: [row[place] for row in found] for place, name in enumerate(CHEXBERT_COMPONENTS)}


# NLTK demands a list of 45 names of lexicographer files, which Debian's package lacks; METEOR never looks at them.
_LEXNAMES = "".join(f"{row:02d}\tfile{row:02d}\t1\n" for row in range(45))
_Tokens = Sequence[str]


@contextlib.contextmanager
def nltk_wordnet(folder: Path) -> Iterator[Any]:
    """NLTK's own reader of a WordNet folder in NLTK's or Debian's layout; nothing is copied and nothing fetched."""
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    opened: list[Any] = []

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, name: str) -> Any:
            stream = io.StringIO(_LEXNAMES) if name == "lexnames" else (folder / name).open(encoding="utf-8")
            opened.append(stream)
            return stream

        def map_wn(self, _: str = "wordnet") -> None:
            """Skip the mapping to other versions, which takes seconds and serves other languages only."""

    nltk.data.path.append(str(folder.resolve()))  # NLTK reads nothing outside its list of folders
    try:
        yield Reader(str(folder.resolve()), object())
    finally:
        for stream in opened:
            stream.close()
        nltk.data.path.remove(str(folder.resolve()))


def nltk_meteor(pairs: Sequence[tuple[_Tokens, _Tokens]], wordnet: Any) -> list[float]:
    """NLTK's METEOR of each pair (candidate, reference)."""
    from nltk.translate.meteor_score import single_meteor_score

    return [float(single_meteor_score(list(right), list(left), wordnet=wordnet)) for left, right in pairs]


def nltk_bleu(pairs: Sequence[tuple[_Tokens, _Tokens]]) -> float:
    """COCO's mean of B_1 to B_4 over all pairs (candidate, reference) together, from NLTK's clipped precisions."""
    from nltk.translate.bleu_score import modified_precision

    lengths = [sum(len(pair[side]) for pair in pairs) for side in (0, 1)]
    logarithms = []
    for order in range(1, 5):
        matches = sum(modified_precision([right], left, order).numerator for left, right in pairs if left)
        ngrams = sum(max(0, len(left) - order + 1) for left, _ in pairs)
        logarithms.append(math.log(matches + 1e-15) - math.log(ngrams + 1e-9))
        if order == 1 and not matches:
            return 0.0
    brevity = min(0.0, 1 - (lengths[1] + 1e-9) / (lengths[0] + 1e-15))
    return sum(math.exp(math.fsum(logarithms[:order]) / order + brevity) for order in range(1, 5)) / 4


def rouge_score_l(pairs: Sequence[tuple[str, str]], *, hyphens: bool = False) -> list[float]:
    """rouge-score's ROUGE-L F1 of each pair of texts (candidate, reference), perhaps with ``tokens``' words."""
    from rouge_score.rouge_scorer import RougeScorer

    words = SimpleNamespace(tokenize=tokens) if hyphens else None
    scorer = RougeScorer(["rougeL"], use_stemmer=False, tokenizer=words)
    return [float(scorer.score(right, left)["rougeL"].fmeasure) for left, right in pairs]
