"""Before any agent runs: can the reports of a card be scored here?

Each model that the card's components ask for is loaded and reads one sentence, in the container that will score. What
fails is said with the way to get it, so that no agent is paid for reports that cannot be scored.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.files import sha256_file
from automedbench.metrics.checkpoints import CheckpointError, first_line
from automedbench.metrics.radgraph import named_encoder
from automedbench.metrics.wordnet import ENTRIES, Wordnet
from automedbench.tracks import track_settings
from automedbench.tracks.report_generation.settings import Settings

Resources = Mapping[str, Path]

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
    packages: tuple[str, ...]
    resources: tuple[str, ...]
    attempt: Callable[[Resources], object]


def preflight(card: TaskCard, resources: Resources) -> list[str]:
    """What the scorer of the card lacks and how to get it, at most three lines each; empty when it lacks nothing.

    Only what the card's components need is looked at. Raises ConfigError for a card whose settings are wrong.
    """
    settings: Settings = track_settings(card)
    needs = _needs(settings)
    lacking = _packages(needs)
    problems = list(lacking)
    for need in needs:
        found = _missing(need, resources) or _changed(need, resources, settings)
        # Without its packages a model's own error would only repeat that they are missing.
        if not found and not (lacking and need.packages):
            found = _unusable(need, resources)
        problems += found
    return problems


def _needs(settings: Settings) -> list[_Need]:
    needs = []
    if settings.needs_wordnet:
        needs.append(_Need("METEOR", (), ("wordnet",), _try_wordnet))
    if settings.needs_chexbert:
        needs.append(_Need("CheXbert", ("torch", "transformers"), ("chexbert", "bert"), _try_chexbert))
    if settings.needs_radgraph:
        packages = ("torch", "transformers", "radgraph")
        needs.append(_Need("RadGraph", packages, ("radgraph", "radgraph_bert"), _try_radgraph))
    return needs


def _packages(needs: list[_Need]) -> list[str]:
    wanted = dict.fromkeys(name for need in needs for name in need.packages)
    absent = [name for name in wanted if importlib.util.find_spec(name) is None]
    problems = []
    if absent:
        problems.append(
            f"{' and '.join(need.metric for need in needs if need.packages)}: {', '.join(absent)} not installed here.\n"
            "Run `make setup-radiology`; the scorer's image gets them when resources.chexbert or resources.radgraph "
            "is set\nand `snakemake prepare` builds it again."
        )
    if "transformers" in wanted and "transformers" not in absent:
        version = importlib.metadata.version("transformers")
        if int(version.split(".")[0]) >= 5:
            problems.append(
                f"RadGraph: transformers {version} is installed, and radgraph 0.1.18 works with version 4 only.\n"
                "Run `make setup-radiology`, which pins it."
            )
    return problems


def _missing(need: _Need, resources: Resources) -> list[str]:
    return [
        f"{need.metric}: resources.{name} is not set, or nothing is there.\n"
        f"It is {RESOURCES[name]}{_which(name, resources)}.\nHow to get it: {GUIDE}."
        for name in need.resources
        if name not in resources or not resources[name].exists()
    ]


def _which(name: str, resources: Resources) -> str:
    """The name of RadGraph's BERT, where the model that names it is there."""
    if name == "radgraph_bert" and "radgraph" in resources:
        with contextlib.suppress(CheckpointError):
            return f": {named_encoder(resources['radgraph'])}"
    return ""


def _changed(need: _Need, resources: Resources, settings: Settings) -> list[str]:
    """Checkpoints whose checksum is not the card's; of a folder, that of its weights."""
    problems = []
    for name, expected in settings.checkpoint_sha256.items():
        if name in need.resources:
            path = resources[name] / "weights.th" if resources[name].is_dir() else resources[name]
            found = sha256_file(path) if path.is_file() else "nothing"
            if found != expected:
                problems.append(
                    f"{need.metric}: {path} has another SHA-256 ({found[:12]}…) than the card asks for "
                    f"({expected[:12]}…).\nIt is another version or a damaged download: get it again ({GUIDE})."
                )
    return problems


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
    return [f"{need.metric} cannot be used: {why}.\nHow to get what it needs: {GUIDE}."]


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
