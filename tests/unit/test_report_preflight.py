"""Preflight of the report track: every missing or unusable part is named with the way to get it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from toys import detection

from automedbench.base.cards import Metric, TaskCard
from automedbench.base.errors import ConfigError
from automedbench.metrics.checkpoints import quiet_and_offline
from automedbench.tracks import preflight as of_any_track
from automedbench.tracks.report_generation.components import RESOURCES, preflight
from automedbench.tracks.report_generation.settings import CHEXBERT_COMPONENTS, TEXT_COMPONENTS

ROOT = Path(__file__).resolve().parents[2]
TEXT = list(TEXT_COMPONENTS)
CHEXBERT = list(CHEXBERT_COMPONENTS)


def card(**settings: Any) -> TaskCard:
    """A card of the report track; preflight looks at its metric only."""
    return detection.CARD.model_copy(
        update={"track": "report_generation", "metric": Metric(name="mean_of_components", settings=settings)}
    )


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_models.refuse_network(monkeypatch)


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    return tiny_models.write_wordnet(tmp_path / "wordnet")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Usable resources of every name."""
    tiny_models.require_packages("torch", "transformers", "radgraph")
    folder = tmp_path_factory.mktemp("resources")
    with quiet_and_offline():
        bert = tiny_models.write_bert(folder / "bert")
        tiny_models.write_chexbert(folder / "chexbert.pth", tiny_models.chexbert_state(bert))
        tiny_models.pack(tiny_models.write_radgraph(folder / "radgraph", bert), folder / "radgraph.tar.gz")
    return {
        "wordnet": tiny_models.write_wordnet(folder / "wordnet"),
        "chexbert": folder / "chexbert.pth",
        "bert": bert,
        "radgraph": folder / "radgraph.tar.gz",
        "radgraph_bert": bert,
    }


def names(problems: list[str]) -> list[str]:
    """Metric and resource of each problem."""
    assert all(len(problem.splitlines()) <= 3 for problem in problems)
    return [problem.splitlines()[0].split(" is not set")[0] for problem in problems]


# --- without the packages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        pytest.param(["BLEU"], [], id="BLEU needs nothing"),
        pytest.param(["ROUGE_L"], [], id="ROUGE-L needs nothing"),
        pytest.param(TEXT, ["METEOR: resources.wordnet"], id="METEOR needs WordNet"),
        pytest.param(
            CHEXBERT[:1], ["CheXbert: resources.chexbert", "CheXbert: resources.bert"], id="one of CheXbert's"
        ),
        pytest.param(["F1RadGraph"], ["RadGraph: resources.radgraph", "RadGraph: resources.radgraph_bert"], id="graph"),
    ],
)
def test_only_what_the_components_need(components: list[str], expected: list[str]) -> None:
    assert names(preflight(card(components=components), {})) == expected


def test_all_seven_need_five_resources(tmp_path: Path) -> None:
    """Not set, and set to a place where nothing is, are the same; each says what the resource is."""
    problems = preflight(card(), {"bert": tmp_path / "nothing"})
    assert len(problems) == len(RESOURCES) == 5
    for (name, what), problem in zip(RESOURCES.items(), problems, strict=True):
        assert f"resources.{name} " in problem
        assert what in problem
        assert "docs/data.md" in problem
    assert (ROOT / "docs/data.md").is_file()


def test_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wordnet: Path) -> None:
    """By the first that uses one; METEOR is tried all the same."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("automedbench.metrics.chexbert.check_bert_folder", lambda folder: {})
    monkeypatch.setattr("automedbench.metrics.checkpoints.check_weights", lambda path: None)
    (tmp_path / "chexbert.pth").write_bytes(b"")
    resources = {"wordnet": wordnet, "bert": tmp_path, "chexbert": tmp_path / "chexbert.pth"}
    (problem,) = preflight(card(components=[*TEXT, *CHEXBERT]), resources)
    assert problem.startswith("CheXbert cannot be used: the Python package torch cannot be imported")
    assert "make setup-radiology" in problem
    assert "snakemake prepare" in problem
    assert len(problem.splitlines()) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda folder: (folder / "index.verb").unlink(), "lacks index.verb", id="file missing"),
        pytest.param(lambda folder: (folder / "index.noun").write_text(""), "index file is empty", id="empty index"),
        pytest.param(lambda folder: (folder / "data.noun").write_text("x\n"), "METEOR cannot be used", id="bad data"),
    ],
)
def test_unusable_wordnet(wordnet: Path, change: Callable[[Path], Any], message: str) -> None:
    change(wordnet)
    (problem,) = preflight(card(components=["METEOR"]), {"wordnet": wordnet})
    assert message in problem
    assert len(problem.splitlines()) <= 3


def test_wordnet_that_does_not_know_the_word(monkeypatch: pytest.MonkeyPatch, wordnet: Path) -> None:
    """A complete one must know 'effusion'; an excerpt need not."""
    for name in ("index.noun", "data.noun"):
        path = wordnet / name
        path.write_text(path.read_text().replace("effusion", "something"))
    assert preflight(card(components=["METEOR"]), {"wordnet": wordnet}) == []
    monkeypatch.setattr("automedbench.tracks.report_generation.components.ENTRIES", 4)
    (problem,) = preflight(card(components=["METEOR"]), {"wordnet": wordnet})
    assert "does not know the word" in problem


def test_wrong_settings_are_a_mistake_in_the_card() -> None:
    with pytest.raises(ConfigError, match="components"):
        preflight(card(components=["CIDEr"]), {})


@pytest.mark.parametrize("error", [RuntimeError("surprise\nin two lines"), MemoryError(), KeyError("x")], ids=repr)
def test_any_failure_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception) -> None:
    """What would stop scoring is found here, whatever it is."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("automedbench.metrics.radgraph.RadgraphScorer", fail)
    resources = dict.fromkeys(("radgraph", "radgraph_bert"), tmp_path)
    (problem,) = preflight(card(components=["F1RadGraph"]), resources)
    assert problem.startswith(f"RadGraph cannot be used: {type(error).__name__}: ")
    assert len(problem.splitlines()) == 3


# --- with them -------------------------------------------------------------------------------------------------


@pytest.mark.radiology
def test_nothing_to_say(made: dict[str, Path]) -> None:
    assert preflight(card(), made) == []
    assert of_any_track(card(), made) == []


@pytest.mark.radiology
@pytest.mark.parametrize("place", ["radgraph", "radgraph.tar.gz"])
def test_the_missing_encoder_is_named(made: dict[str, Path], tmp_path: Path, place: str) -> None:
    """By the name that RadGraph's configuration gives, where the folder has no files."""
    resources = {"radgraph": made["radgraph"].with_name(place)}
    (problem,) = preflight(card(components=["F1RadGraph"]), resources)
    assert problem.startswith("RadGraph: resources.radgraph_bert is not set")
    (problem,) = preflight(card(components=["F1RadGraph"]), resources | {"radgraph_bert": tmp_path})
    assert "reads texts with 'example/ExampleBERT'" in problem


@pytest.mark.radiology
@pytest.mark.parametrize(
    ("name", "metric"),
    [("chexbert", "CheXbert"), ("bert", "CheXbert"), ("radgraph", "RadGraph"), ("radgraph_bert", "")],
)
def test_unusable_parts_are_all_named(made: dict[str, Path], tmp_path: Path, name: str, metric: str) -> None:
    """An empty file or folder in the place of one resource: the metric that reads it is named, the others are fine."""
    other = tmp_path / "other"
    other.mkdir() if made[name].is_dir() else other.write_bytes(b"")
    (problem,) = preflight(card(), made | {name: other})
    assert problem.startswith(f"{metric or 'RadGraph'} cannot be used: ")
    assert str(other) in problem
    assert len(problem.splitlines()) <= 3
