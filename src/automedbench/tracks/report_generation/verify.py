"""The quality of a run of reports computed again with the libraries that the components are named after."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from automedbench.metrics import text_twin
from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.report_generation.components import Pair, Resources, guarded, mean, remembering, using
from automedbench.tracks.report_generation.score import evidence_of
from automedbench.tracks.report_generation.settings import CHEXBERT_COMPONENTS, Component, Settings
from automedbench.tracks.report_generation.text import tokens

_Found = tuple[dict[Component, list[float]], dict[Component, float]]
TOLERANCE = 1e-9


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The quality again with NLTK, rouge-score and, where their components count, radgraph and scikit-learn."""

    settings: Settings = track_settings(inputs.card)
    return twin_quality(evidence_of(inputs, settings).pairs, settings, inputs.resources)


def twin_quality(pairs: list[Pair], settings: Settings, resources: Resources) -> tuple[str, float, float]:
    """Libraries, quality and tolerance; a model's labels and graphs are its own, their comparison is the library's."""
    reports: dict[Component, list[float]] = {}
    corpus: dict[Component, float] = {}
    names = [text_twin.library()]
    twins: list[tuple[bool, Callable[[list[Pair], Resources], _Found], str]] = [
        (True, _text, ""),
        (settings.needs_wordnet, _meteor, ""),
        (settings.needs_radgraph, _radgraph, "radgraph"),
        (settings.needs_chexbert, _chexbert, "scikit-learn"),
    ]
    for needed, twin, package in twins:
        if needed:
            found = twin(pairs, resources)
            reports |= found[0]
            corpus |= found[1]
            names += [f"{package} {version(package)}"] if package else []
    if settings.aggregation == "corpus":
        value = mean([corpus[name] for name in settings.components])
    else:
        value = mean([mean([reports[name][row] for name in settings.components]) for row in range(len(pairs))])
    return ", ".join(names), value, TOLERANCE


def _text(pairs: list[Pair], _: Resources) -> _Found:
    words = [(tokens(pair.candidate), tokens(pair.reference)) for pair in pairs]
    rouge = text_twin.rouge_score_l([(pair.candidate, pair.reference) for pair in pairs])
    bleu = [text_twin.nltk_bleu([pair]) for pair in words]
    return {"BLEU": bleu, "ROUGE_L": rouge}, {"BLEU": text_twin.nltk_bleu(words), "ROUGE_L": mean(rouge)}


def _meteor(pairs: list[Pair], resources: Resources) -> _Found:
    words = [(tokens(pair.candidate), tokens(pair.reference)) for pair in pairs]
    with guarded(text_twin.nltk_wordnet, using(resources, "wordnet", lambda path: path)) as wordnet:
        values = text_twin.nltk_meteor(words, wordnet)
        return {"METEOR": values}, {"METEOR": text_twin.nltk_corpus_meteor(words, wordnet)}


def _radgraph(pairs: list[Pair], resources: Resources) -> _Found:
    from automedbench.metrics.checkpoints import quiet_and_offline
    from automedbench.metrics.radgraph import Graph, RadgraphScorer

    with quiet_and_offline():
        from radgraph.rewards import compute_reward

    def annotation(graph: Graph) -> dict[str, object]:
        """The graph in the package's form."""
        entities = {
            str(number): {
                "tokens": entity.tokens,
                "label": entity.label,
                "relations": [[kind, str(other)] for kind, other in entity.relations],
            }
            for number, entity in enumerate(graph.entities)
        }
        return {"entities": entities}

    scorer = using(resources, "radgraph", lambda path: RadgraphScorer(path, resources.get("radgraph_bert")))
    graph = remembering(lambda text: annotation(scorer.annotate(text)))
    values = []
    for pair in pairs:
        both = [graph(text) for text in (pair.candidate, pair.reference)] if pair.candidate else []
        values.append(
            float(compute_reward(*both, "partial")) if all(each["entities"] for each in both) and both else 0.0
        )
    return {"F1RadGraph": values}, {"F1RadGraph": mean(values)}


def _chexbert(pairs: list[Pair], resources: Resources) -> _Found:
    import numpy as np
    from sklearn.metrics import precision_recall_fscore_support

    from automedbench.metrics.chexbert import LABELS, ChexbertLabeler, binary

    bert = using(resources, "bert", lambda path: path)
    label = remembering(using(resources, "chexbert", lambda path: ChexbertLabeler(path, bert)).label)
    rows = [
        (
            binary(label(pair.reference)),
            binary(label(pair.candidate)) if pair.candidate else np.zeros(len(LABELS), bool),
        )
        for pair in pairs
    ]

    def rates(truth: np.ndarray, said: np.ndarray) -> list[float]:
        return [
            float(rate) for rate in precision_recall_fscore_support(truth, said, average="micro", zero_division=0)[:3]
        ]

    found = [
        [0.0] * 3 if not pair.candidate else [1.0] * 3 if not (truth | said).any() else rates(truth[None], said[None])
        for pair, (truth, said) in zip(pairs, rows, strict=True)
    ]
    corpus = rates(np.stack([truth for truth, _ in rows]), np.stack([said for _, said in rows]))
    return (
        {name: [row[place] for row in found] for place, name in enumerate(CHEXBERT_COMPONENTS)},
        dict(zip(CHEXBERT_COMPONENTS, corpus, strict=True)),
    )
