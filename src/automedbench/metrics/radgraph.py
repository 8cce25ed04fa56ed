"""RadGraph: the entities and relations of a chest X-ray report, and the F1 of two such graphs.

Graphs: Jain et al., "RadGraph: Extracting Clinical Entities and Relations from Radiology Reports", NeurIPS 2021.
Rewards: Delbrouck et al., "Improving the Factual Correctness of Radiology Report Generation with Semantic Rewards",
Findings of EMNLP 2022. ``RadgraphScorer`` runs the model of the Python package ``radgraph``; ``reward`` is our own and
needs no package.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from automedbench.metrics.checkpoints import CheckpointError, first_line, library, quiet_and_offline, without_surrogates
from automedbench.metrics.radgraph_files import unpack

Level = Literal["simple", "partial", "complete"]

MODEL_TYPE = "radgraph"
"""The package's name of the first published model, the one of the published scores."""
MAX_WORDS = 384
"""Words of a report that are read: the model's memory grows with their square, 1.5 GiB for these."""
MAX_WORD_CHARS = 100
"""Characters of a word that are read, as many as WordPiece looks at; memory grows with the longest word, too."""


@dataclass(frozen=True)
class Entity:
    """Words ``first`` to ``last`` of a report: an anatomy or an observation (present, absent, uncertain).

    ``relations`` are pairs of the relation's type and the number of the other entity in the graph.
    """

    tokens: str
    label: str
    first: int
    last: int
    relations: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Graph:
    """What RadGraph finds in one report; nothing in an empty one."""

    entities: tuple[Entity, ...] = ()


# --- reward ----------------------------------------------------------------------------------------------------


def reward(reference: Graph, candidate: Graph, level: Level = "partial") -> float:
    """F1 of two graphs as sets; 0 when one of them is empty, even if both are.

    simple: entities are equal when words and label are. partial (the published score): and when both or neither has
    a relation. complete: an entity counts once per relation, with its type and the words of the other entity,
    without regard to case; an entity without relations counts as in simple. Raises ValueError for another level.
    """
    if level not in _ITEMS:
        raise ValueError(f"unknown level '{level}': simple, partial or complete")
    wanted, found = (_ITEMS[level](graph) for graph in (reference, candidate))
    if not wanted or not found:
        return 0.0
    return 2 * len(wanted & found) / (len(wanted) + len(found))


def _simple(graph: Graph) -> set[tuple[object, ...]]:
    return {(entity.tokens, entity.label) for entity in graph.entities}


def _partial(graph: Graph) -> set[tuple[object, ...]]:
    return {(entity.tokens, entity.label, bool(entity.relations)) for entity in graph.entities}


def _complete(graph: Graph) -> set[tuple[object, ...]]:
    alone = {(entity.tokens, entity.label) for entity in graph.entities if not entity.relations}
    related = {
        (entity.tokens.lower(), entity.label, kind, graph.entities[other].tokens.lower())
        for entity in graph.entities
        for kind, other in entity.relations
    }
    return {*alone, *related}


_ITEMS = {"simple": _simple, "partial": _partial, "complete": _complete}


def graph_of(annotation: Mapping[str, Any]) -> Graph:
    """The graph of one report in the form of the package and of the RadGraph data set (``entities`` by number).

    Raises ValueError when a relation points to no entity.
    """
    entities: Mapping[str, Mapping[str, Any]] = annotation["entities"]
    place = {key: number for number, key in enumerate(entities)}
    try:
        return Graph(
            tuple(
                Entity(
                    tokens=entity["tokens"],
                    label=entity["label"],
                    first=entity["start_ix"],
                    last=entity["end_ix"],
                    relations=tuple((kind, place[other]) for kind, other in entity["relations"]),
                )
                for entity in entities.values()
            )
        )
    except KeyError as error:
        raise ValueError(f"the annotation lacks {error}") from error


# --- model -----------------------------------------------------------------------------------------------------


class RadgraphScorer:
    """The RadGraph model of the package ``radgraph`` on the CPU.

    ``archive_or_dir`` is the published ``radgraph.tar.gz`` or a folder with its contents (``config.json``,
    ``vocabulary/``, ``weights.th``). ``text_encoder`` is a folder with configuration and tokenizer of the BERT that
    its ``config.json`` names; without it the error says which one that is. The package writes beside the weights,
    therefore everything is first put into a temporary folder. Nothing is fetched, and nothing in the files is
    executed. Raises CheckpointError when a file is missing or cannot be used.
    """

    def __init__(self, archive_or_dir: Path, text_encoder: Path | None = None) -> None:
        with tempfile.TemporaryDirectory(prefix="radgraph-") as name:
            unpack(archive_or_dir, Path(name, MODEL_TYPE), MODEL_TYPE, text_encoder)
            with quiet_and_offline():
                package = library("radgraph")
                try:
                    self._model = package.RadGraph(model_type=MODEL_TYPE, model_cache_dir=name, cuda=-1)
                except Exception as error:
                    # The vendored AllenNLP raises what it likes, KeyError and AssertionError included.
                    raise CheckpointError(f"{archive_or_dir} cannot be loaded ({first_line(error)})") from error

    def annotate(self, text: str) -> Graph:
        """Entities and relations of one report, of which MAX_WORDS words are read; a blank one has none."""
        if not text.strip():
            return Graph()
        # The package forgets inference_mode and would keep what training needs.
        with quiet_and_offline(), library("torch").inference_mode():
            found = self._model([_bounded(without_surrogates(text))])
        if "0" not in found:
            raise RuntimeError("the package radgraph gave no annotation; it reports the cause only on its output")
        return graph_of(found["0"])


def _bounded(text: str) -> str:
    """The text itself, or its first words, split as the package splits them, where it is too long."""
    words: list[str] = library("radgraph.utils").preprocess_reports([text], MODEL_TYPE)[0]["sentences"][0]
    if len(words) <= MAX_WORDS and max(map(len, words)) <= MAX_WORD_CHARS:
        return text
    return " ".join(word[:MAX_WORD_CHARS] for word in words[:MAX_WORDS])
