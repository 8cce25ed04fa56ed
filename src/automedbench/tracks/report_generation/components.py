"""The components of a report's score: BLEU, METEOR, ROUGE-L, RadGraph F1 and CheXbert's three, each by its engine.

An engine gives one value per report, the value over all reports together, and diagnostics. A report that is missing,
invalid or empty scores 0 in every component and is never shown to a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.metrics import bleu, meteor, rouge
from automedbench.metrics.wordnet import ENTRIES, Wordnet
from automedbench.tracks.report_generation.settings import CHEXBERT_COMPONENTS, Component, Settings
from automedbench.tracks.report_generation.text import tokens

Resources = Mapping[str, Path]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Pair:
    """One case's normalised texts. ``candidate`` is empty when there is no report that can be scored."""

    reference: str
    candidate: str


@dataclass(frozen=True)
class Measured:
    """What an engine, or all of them together, found."""

    reports: dict[Component, list[float]] = field(default_factory=dict)
    """Component → value of each report, in the order of the pairs."""
    corpus: dict[Component, float] = field(default_factory=dict)
    """Component → value over all reports together."""
    diagnostics: dict[str, float] = field(default_factory=dict)
    groups: dict[str, dict[str, float | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def joined(self, other: Measured) -> Measured:
        """Both together."""
        return Measured(
            self.reports | other.reports,
            self.corpus | other.corpus,
            self.diagnostics | other.diagnostics,
            self.groups | other.groups,
            self.notes + other.notes,
        )


def measure(pairs: list[Pair], settings: Settings, resources: Resources) -> Measured:
    """All components of the settings, by engines that load only what these need.

    Raises MissingDataError for a resource that is not there and InfrastructureError for one that cannot be used.
    """
    engines: list[tuple[tuple[Component, ...], Callable[[list[Pair], Resources], Measured]]] = [
        (("BLEU",), measure_bleu),
        (("METEOR",), measure_meteor),
        (("ROUGE_L",), measure_rouge),
        (("F1RadGraph",), measure_radgraph),
        (CHEXBERT_COMPONENTS, measure_chexbert),
    ]
    measured = Measured()
    for components, engine in engines:
        if set(components) & set(settings.components):
            measured = measured.joined(engine(pairs, resources))
    return replace(
        measured,
        reports={name: measured.reports[name] for name in settings.components},
        corpus={name: measured.corpus[name] for name in settings.components},
    )


# --- text ------------------------------------------------------------------------------------------------------


def measure_bleu(pairs: list[Pair], _: Resources) -> Measured:
    """Mean of B_1 to B_4 in COCO's form."""
    counts = [bleu.bleu_counts(tokens(pair.candidate), tokens(pair.reference)) for pair in pairs]
    orders = list(zip(*map(bleu.bleu, counts), strict=True))
    total = sum(counts, bleu.NOTHING)
    return Measured(
        {"BLEU": [bleu.mean_bleu(each) for each in counts]},
        {"BLEU": bleu.mean_bleu(total)},
        {f"BLEU_{order}": mean(values) for order, values in zip(bleu.ORDERS, orders, strict=True)}
        | {f"corpus_BLEU_{order}": value for order, value in zip(bleu.ORDERS, bleu.bleu(total), strict=True)},
    )


def measure_meteor(pairs: list[Pair], resources: Resources) -> Measured:
    """NLTK's METEOR with the WordNet of the resource ``wordnet``."""
    wordnet = using(resources, "wordnet", Wordnet)
    counts = [guarded(meteor.meteor_counts, tokens(pair.candidate), tokens(pair.reference), wordnet) for pair in pairs]
    excerpt = f", an excerpt of {wordnet.entries} entries" if wordnet.entries < ENTRIES else ""
    return Measured(
        {"METEOR": [meteor.meteor(each) for each in counts]},
        {"METEOR": meteor.meteor(sum(counts, meteor.NOTHING))},
        notes=[
            f"METEOR is NLTK's, with WordNet {wordnet.version}{excerpt}; values of METEOR 1.5 are far lower and cannot "
            "be compared."
        ],
    )


def measure_rouge(pairs: list[Pair], _: Resources) -> Measured:
    """F1 of the longest common subsequence, with the tokens of rouge-score."""
    values = [rouge.rouge_l(rouge.rouge_tokens(pair.reference), rouge.rouge_tokens(pair.candidate)) for pair in pairs]
    return Measured({"ROUGE_L": values}, {"ROUGE_L": mean(values)})


# --- clinical --------------------------------------------------------------------------------------------------


def measure_radgraph(pairs: list[Pair], resources: Resources) -> Measured:
    """F1 of the two reports' RadGraph entities, level ``partial``."""
    from automedbench.metrics.radgraph import RadgraphScorer, reward

    scorer = using(resources, "radgraph", lambda path: RadgraphScorer(path, resources.get("radgraph_bert")))
    graph = remembering(scorer.annotate)
    values = [reward(graph(pair.reference), graph(pair.candidate)) if pair.candidate else 0.0 for pair in pairs]
    return Measured({"F1RadGraph": values}, {"F1RadGraph": mean(values)})


def measure_chexbert(pairs: list[Pair], resources: Resources) -> Measured:
    """Micro precision, recall and F1 of CheXbert's 14 observations; a report that is not there has none of them."""
    import numpy as np

    from automedbench.metrics.chexbert import LABELS, ChexbertLabeler, binary, corpus_prf, report_prf

    bert = using(resources, "bert", lambda path: path)
    label = remembering(using(resources, "chexbert", lambda path: ChexbertLabeler(path, bert)).label)
    nothing = np.zeros(len(LABELS), dtype=np.int64)
    references = np.stack([label(pair.reference) for pair in pairs])
    candidates = np.stack([label(pair.candidate) if pair.candidate else nothing for pair in pairs])
    agreements = [
        report_prf(reference, candidate) if pair.candidate else None
        for pair, reference, candidate in zip(pairs, references, candidates, strict=True)
    ]
    corpus = corpus_prf(references, candidates)
    there, said = binary(references), binary(candidates)
    rates = ("precision", "recall", "f1")
    return Measured(
        {
            name: [getattr(each, rate) if each else 0.0 for each in agreements]
            for name, rate in zip(CHEXBERT_COMPONENTS, rates, strict=True)
        },
        {name: getattr(corpus, rate) for name, rate in zip(CHEXBERT_COMPONENTS, rates, strict=True)},
        groups={name: _observation(there[:, row], said[:, row]) for row, name in enumerate(LABELS)},
    )


def _observation(there: Any, said: Any) -> dict[str, float | None]:
    """How often one observation was right, invented and overlooked."""
    return {
        "n_truth": int(there.sum()),
        "n_predictions": int(said.sum()),
        "tp": int((there & said).sum()),
        "fp": int((~there & said).sum()),
        "fn": int((there & ~said).sum()),
    }


# --- resources -------------------------------------------------------------------------------------------------


def using(resources: Resources, name: str, make: Callable[[Path], ResultT]) -> ResultT:
    """What ``make`` makes of a resource.

    Raises MissingDataError when the configuration names none or it is absent, InfrastructureError when it is unusable.
    """
    if name not in resources:
        raise MissingDataError(
            f"The report track needs the resource '{name}' to score.\nSet resources.{name} in the configuration; "
            "docs and preflight say where to get it."
        )
    return guarded(make, resources[name])


def guarded(function: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """The function's result; a file of ours that is absent or damaged becomes an error of the machine."""
    try:
        return function(*arguments)
    except FileNotFoundError as error:
        raise MissingDataError(f"{error}.\nCorrect `resources` in the configuration.") from error
    except (ValueError, OSError) as error:
        raise InfrastructureError(f"{error}.\nFetch that resource again or correct `resources`.") from error


def remembering(function: Callable[[str], ResultT]) -> Callable[[str], ResultT]:
    """The same function, asked only once for each text: many agents write one report for several cases."""
    known: dict[str, ResultT] = {}

    def ask(text: str) -> ResultT:
        if text not in known:
            known[text] = function(text)
        return known[text]

    return ask


def mean(values: Any) -> float:
    """The mean of at least one number."""
    return float(sum(values) / len(values))
