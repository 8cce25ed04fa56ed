"""The components of a report's score: BLEU, METEOR, ROUGE-L, RadGraph F1 and CheXbert's three, each by its engine.

An engine gives one value per report, the value over all reports together, and diagnostics. A report that is missing,
invalid or empty scores 0 in every component and is never shown to a model.

Before any agent runs, ``preflight`` loads each model that the card's components ask for and has it read one sentence,
in the container that will score. What fails is said with the way to get it, so that no agent is paid for reports that
cannot be scored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.metrics import bleu, meteor, rouge
from automedbench.metrics.checkpoints import first_line
from automedbench.metrics.meteor import ENTRIES, Wordnet
from automedbench.metrics.observations import find_observations, observation_f1
from automedbench.tracks import track_settings
from automedbench.tracks.report_generation.settings import CHEXBERT_COMPONENTS, OBSERVATION, Component, ReportSettings
from automedbench.tracks.report_generation.text import Section, tokens

Resources = Mapping[str, Path]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ReportPair:
    """One case's normalised texts. ``candidate`` is empty when there is no report that can be scored."""

    reference: str
    candidate: str
    findings: frozenset[str] | None = None
    """Findings of the reference by the data set's own reading; None: by the card's word patterns."""
    section: Section = "full"
    """What of both reports the texts are."""


@dataclass(frozen=True)
class Measured:
    """Measurements of an engine, or of all of them together."""

    reports: dict[Component, list[float]] = field(default_factory=dict)
    """Component → value of each report, in the order of the pairs."""
    corpus: dict[Component, float] = field(default_factory=dict)
    """Component → value over all reports together."""
    diagnostics: Mapping[str, float | None] = field(default_factory=dict)
    groups: dict[str, dict[str, float | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def joined(self, other: Measured) -> Measured:
        """Both together."""
        return Measured(
            self.reports | other.reports,
            self.corpus | other.corpus,
            {**self.diagnostics, **other.diagnostics},
            self.groups | other.groups,
            self.notes + other.notes,
        )


def measure(pairs: list[ReportPair], settings: ReportSettings, resources: Resources) -> Measured:
    """All components of the settings, by engines that load only what these need.

    Raises MissingDataError for a resource that is not there and InfrastructureError for one that cannot be used.
    """
    engines: list[tuple[tuple[Component, ...], Callable[[list[ReportPair], Resources], Measured]]] = [
        (("BLEU",), measure_bleu),
        (("METEOR",), measure_meteor),
        (("ROUGE_L",), functools.partial(measure_rouge, hyphens=settings.hyphens)),
        ((OBSERVATION,), functools.partial(measure_observations, settings=settings)),
        (("F1RadGraph",), measure_radgraph),
        (CHEXBERT_COMPONENTS, measure_chexbert),
    ]
    measured = Measured()
    for components, engine in engines:
        if settings.uses(*components):
            measured = measured.joined(engine(pairs, resources))
    return replace(
        measured,
        reports={name: measured.reports[name] for name in settings.components},
        corpus={name: measured.corpus[name] for name in settings.components},
    )


# --- text ------------------------------------------------------------------------------------------------------


def measure_bleu(pairs: list[ReportPair], _: Resources) -> Measured:
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


def measure_meteor(pairs: list[ReportPair], resources: Resources) -> Measured:
    """NLTK's METEOR with the WordNet of the resource ``wordnet``."""
    wordnet = load_resource(resources, "wordnet", Wordnet)
    counts = [
        call_guarded(meteor.meteor_counts, tokens(pair.candidate), tokens(pair.reference), wordnet) for pair in pairs
    ]
    excerpt = f", an excerpt of {wordnet.entries} entries" if wordnet.entries < ENTRIES else ""
    return Measured(
        {"METEOR": [meteor.meteor(each) for each in counts]},
        {"METEOR": meteor.meteor(sum(counts, meteor.NOTHING))},
        notes=[
            f"METEOR is NLTK's, with WordNet {wordnet.version}{excerpt}; values of METEOR 1.5 are far lower and cannot "
            "be compared."
        ],
    )


def measure_rouge(pairs: list[ReportPair], _: Resources, *, hyphens: bool = False) -> Measured:
    """F1 of the longest common subsequence, with the tokens of rouge-score or, with ``hyphens``, those of BLEU."""
    split = tokens if hyphens else rouge.rouge_tokens
    values = [rouge.rouge_l(split(pair.reference), split(pair.candidate)) for pair in pairs]
    return Measured({"ROUGE_L": values}, {"ROUGE_L": mean(values)})


def observation_sets(pairs: list[ReportPair], settings: ReportSettings) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Findings of each reference and of its candidate."""
    concepts = {name: patterns.model_dump() for name, patterns in settings.observations.items()}
    return [
        (
            find_observations(pair.reference, concepts) if pair.findings is None else pair.findings,
            find_observations(pair.candidate, concepts),
        )
        for pair in pairs
    ]


def measure_observations(pairs: list[ReportPair], _: Resources, *, settings: ReportSettings) -> Measured:
    """F1 of the findings that word patterns see; over all reports together the micro average."""
    sets = observation_sets(pairs, settings)
    values = [observation_f1(*both) if pair.candidate else 0.0 for pair, both in zip(pairs, sets, strict=True)]
    truth, found = ({(row, name) for row, both in enumerate(sets) for name in both[side]} for side in (0, 1))
    return Measured({OBSERVATION: values}, {OBSERVATION: observation_f1(truth, found)})


# --- clinical --------------------------------------------------------------------------------------------------


def measure_radgraph(pairs: list[ReportPair], resources: Resources) -> Measured:
    """F1 of the two reports' RadGraph entities, level ``partial``."""
    from automedbench.metrics.radgraph import reward

    graph = load_radgraph(resources)
    values = [reward(graph(pair.reference), graph(pair.candidate)) if pair.candidate else 0.0 for pair in pairs]
    return Measured({"F1RadGraph": values}, {"F1RadGraph": mean(values)})


def measure_chexbert(pairs: list[ReportPair], resources: Resources) -> Measured:
    """Micro precision, recall and F1 of CheXbert's 14 observations; a report that is not there has none of them."""
    import numpy as np

    from automedbench.metrics.chexbert import LABELS, binary, contradicting_share, corpus_prf, report_prf

    label = load_chexbert(resources)
    nothing = np.zeros(len(LABELS), dtype=np.int64)
    references = np.stack([label(pair.reference) for pair in pairs])
    candidates = np.stack([label(pair.candidate) if pair.candidate else nothing for pair in pairs])
    agreements = [
        report_prf(reference, candidate) if pair.candidate else None
        for pair, reference, candidate in zip(pairs, references, candidates, strict=True)
    ]
    corpus = corpus_prf(references, candidates)
    there, predicted = binary(references), binary(candidates)
    rates = ("precision", "recall", "f1")
    return Measured(
        {
            name: [getattr(each, rate) if each else 0.0 for each in agreements]
            for name, rate in zip(CHEXBERT_COMPONENTS, rates, strict=True)
        },
        {name: getattr(corpus, rate) for name, rate in zip(CHEXBERT_COMPONENTS, rates, strict=True)},
        {"contradicting_observations": contradicting_share(references, candidates)},
        groups={name: _observation(there[:, row], predicted[:, row]) for row, name in enumerate(LABELS)},
    )


def _observation(there: Any, predicted: Any) -> dict[str, float | None]:
    """Counts of one observation: true positives, false positives, false negatives."""
    return {
        "n_truth": int(there.sum()),
        "n_predictions": int(predicted.sum()),
        "tp": int((there & predicted).sum()),
        "fp": int((~there & predicted).sum()),
        "fn": int((there & ~predicted).sum()),
    }


# --- resources -------------------------------------------------------------------------------------------------


def load_radgraph(resources: Resources) -> Callable[[str], Any]:
    """RadGraph's entities of a text; each text is read once, since many agents write one report for several cases."""
    from automedbench.metrics.radgraph import RadgraphScorer

    bert = resources.get("radgraph_bert")
    return functools.cache(load_resource(resources, "radgraph", lambda path: RadgraphScorer(path, bert)).annotate)


def load_chexbert(resources: Resources) -> Callable[[str], Any]:
    """CheXbert's codes of a text, (14,); each text is read once."""
    from automedbench.metrics.chexbert import ChexbertLabeler

    bert = load_resource(resources, "bert", lambda path: path)
    return functools.cache(load_resource(resources, "chexbert", lambda path: ChexbertLabeler(path, bert)).label)


def load_resource(resources: Resources, name: str, make: Callable[[Path], ResultT]) -> ResultT:
    """Load a resource with ``make``.

    Raises MissingDataError when the configuration names none or it is absent, InfrastructureError when it is unusable.
    """
    if name not in resources:
        raise MissingDataError(
            f"The report track needs the resource '{name}' to score.\nSet resources.{name} in the configuration; "
            "docs and preflight say where to get it."
        )
    return call_guarded(make, resources[name])


def call_guarded(function: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """The function's result; a file of ours that is absent or damaged becomes an error of the machine."""
    try:
        return function(*arguments)
    except FileNotFoundError as error:
        raise MissingDataError(f"{error}.\nCorrect `resources` in the configuration.") from error
    except (ValueError, OSError) as error:
        raise InfrastructureError(f"{error}.\nFetch that resource again or correct `resources`.") from error


def mean(values: Any) -> float:
    """The mean of at least one number."""
    return float(sum(values) / len(values))


# --- before any agent runs --------------------------------------------------------------------------------------

SENTENCE = "small left pleural effusion , no pneumothorax ."
GUIDE = "docs/data.md"
RESOURCES = {
    "wordnet": "the folder of WordNet 3.0's files (Debian's package wordnet-base installs it)",
    "chexbert": "the file chexbert.pth, from the CheXbert authors or the hub repository StanfordAIMI/RRG_scorers",
    "bert": "a folder with config.json and vocab.txt of the hub's bert-base-uncased, weights not needed",
    "radgraph": "the file radgraph.tar.gz of the hub repository StanfordAIMI/RRG_scorers, or a folder of its contents",
    "radgraph_bert": "a folder with config.json and vocab.txt of the BERT that RadGraph's own config.json names",
}
"""Name below ``resources`` of the configuration → what it is."""


@dataclass(frozen=True)
class _Need:
    """A metric that counts, what it reads, and a function that uses it once."""

    metric: str
    components: tuple[Component, ...]
    resources: tuple[str, ...]
    attempt: Callable[[Resources], object]


def preflight(card: TaskCard, resources: Resources) -> list[str]:
    """Resources that the card's scorer lacks and how to get them, at most three lines each; empty when complete.

    Only what the card's components need is looked at. Raises ConfigError for a card whose settings are wrong.
    """
    settings: ReportSettings = track_settings(card)
    needs = [need for need in NEEDS if settings.uses(*need.components)]
    return [problem for need in needs for problem in _missing(need, resources) or _unusable(need, resources)]


def rehearsal_settings(settings: ReportSettings, resources: Resources) -> ReportSettings:
    """The settings without components whose resources are not there: how a rehearsal scores on any machine."""
    lacking = [need for need in NEEDS if not set(need.resources) <= set(resources)]
    without = {name for need in lacking for name in need.components}
    kept = tuple(name for name in settings.components if name not in without)
    weights = {name: part for name, part in settings.weights.items() if name in kept}
    return settings.model_copy(update={"components": kept, "weights": weights})


def _missing(need: _Need, resources: Resources) -> list[str]:
    return [
        f"{need.metric}: resources.{name} is not set, or nothing is there.\n"
        f"It is {RESOURCES[name]}.\nHow to get it: {GUIDE}."
        for name in need.resources
        if name not in resources or not resources[name].exists()
    ]


def _unusable(need: _Need, resources: Resources) -> list[str]:
    try:
        need.attempt(resources)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
    except Exception as error:
        # Files of others read by packages of others: what fails here would fail while scoring.
        why = first_line(error, 600)
    else:
        return []
    return [
        f"{need.metric} cannot be used: {why}.\nHow to get what it needs: {GUIDE}; packages: `make setup-radiology`, "
        "in the\nscorer's image `snakemake prepare` with resources.chexbert or resources.radgraph set."
    ]


def _try_wordnet(resources: Resources) -> None:
    wordnet = Wordnet(resources["wordnet"])
    known = wordnet.synonyms("effusion")
    # An excerpt, such as the demo's, need not have the word.
    if not known and wordnet.entries >= ENTRIES:
        raise ValueError(f"{resources['wordnet']} does not know the word 'effusion'")


def _try_chexbert(resources: Resources) -> None:
    from automedbench.metrics.chexbert import ChexbertLabeler

    ChexbertLabeler(resources["chexbert"], resources["bert"]).label(SENTENCE)


def _try_radgraph(resources: Resources) -> None:
    from automedbench.metrics.radgraph import RadgraphScorer

    RadgraphScorer(resources["radgraph"], resources["radgraph_bert"]).annotate(SENTENCE)


NEEDS = (
    _Need("METEOR", ("METEOR",), ("wordnet",), _try_wordnet),
    _Need("CheXbert", CHEXBERT_COMPONENTS, ("chexbert", "bert"), _try_chexbert),
    _Need("RadGraph", ("F1RadGraph",), ("radgraph", "radgraph_bert"), _try_radgraph),
)
