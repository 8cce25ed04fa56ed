"""Every card's data set has a fixture, and cards say what they must: shared blocks, provenance, what is open."""

from __future__ import annotations

import functools
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from automedbench.base.cards import DataSet, TaskCard, find_cards, load_card
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.datasets import get_reader
from automedbench.datasets.readers import MODULES
from automedbench_rehearsal.upstreams import Upstream, fixture_names, upstream_of

ROOT = Path(__file__).resolve().parents[2]
CARDS = [load_card(path) for path in find_cards([str(ROOT / "config/tasks")])]
DATA_SETS = sorted({card.dataset.name for card in CARDS})
CATALOGUE = ROOT.parent / "shared/spec/task-catalogue.yaml"
OPEN = frozenset({"proposal", "unknown", "ours"})
MAX_BYTES = 1_000_000
# Part of a catalogue entry → where a card has it.
PLACES = {
    "n_eval": "staging.sampling",
    "sampling_rule": "staging.sampling",
    "medal": "medals",
    "lite_model": "briefs",
}

by_data_set = pytest.mark.parametrize("dataset", DATA_SETS)
by_card = pytest.mark.parametrize("card", CARDS, ids=lambda card: card.id)


def contents(upstream: Upstream) -> dict[tuple[str, str], bytes]:
    """Everything that a fixture offers: place and path → content."""
    found = {("url", url): data for url, data in upstream.files.items()}
    found |= {(f"hub {name}", path): data for name, files in upstream.hubs.items() for path, data in files.items()}
    for url, files in upstream.repositories.items():
        found |= {(f"git {url}", path): data for path, data in files.items()}
    return found | {("by hand", path): data for path, data in upstream.by_hand.items()}


@by_data_set
def test_every_data_set_has_a_small_fixture_that_never_changes(dataset: str) -> None:
    found = contents(upstream_of(dataset))
    assert found
    assert sum(map(len, found.values())) < MAX_BYTES
    again = contents(upstream_of(dataset))
    assert sorted(found) == sorted(again)
    assert [place for place, data in found.items() if again[place] != data] == []


def test_every_reader_is_of_a_card_or_preset() -> None:
    presets = [yaml.safe_load(path.read_text()) for path in (ROOT / "config/presets").glob("*.yaml")]
    of_presets = {part["reader"] for preset in presets for part in preset.get("tracks", {}).values()}
    assert {card.staging.reader for card in CARDS} | of_presets == set(MODULES)


@pytest.mark.parametrize("reader", sorted({card.staging.reader for card in CARDS}))
def test_readers_refuse_an_empty_folder_and_a_misspelt_option(reader: str, tmp_path: Path) -> None:
    """By the first card of each: what is missing is told in three lines at most, and the option is named."""
    card = next(card for card in CARDS if card.staging.reader == reader)
    with pytest.raises(MissingDataError) as missing:
        get_reader(reader)(tmp_path, card)
    assert len(str(missing.value).splitlines()) <= 3
    staging = card.staging.model_copy(update={"options": {**card.staging.options, "no_such": "x"}})
    with pytest.raises(ConfigError, match=r"staging\.options.*no_such"):
        get_reader(reader)(tmp_path, card.model_copy(update={"staging": staging}))


def test_every_fixture_is_of_a_card() -> None:
    """A misspelt function would never be served."""
    known = {name.replace("-", "_").lower() for name in DATA_SETS}
    assert [name for name in fixture_names() if name not in known] == []


def test_a_data_set_without_a_fixture_is_named() -> None:
    with pytest.raises(ConfigError, match="fixtures: the data set 'kits_2091' has none"):
        upstream_of("kits_2091")


def test_tasks_on_the_same_data_describe_it_alike() -> None:
    """It is fetched once, from one card's block; the others must not say otherwise."""
    blocks: dict[str, dict[str, DataSet]] = defaultdict(dict)
    for card in CARDS:
        blocks[card.dataset.name][card.id] = card.dataset
    different = {
        name: sorted(cards)
        for name, cards in blocks.items()
        if len({block.model_dump_json() for block in cards.values()}) > 1
    }
    assert different == {}


@by_card
def test_provenance_is_about_keys_of_the_card(card: TaskCard) -> None:
    value = card.model_dump(mode="json")
    assert [key for key in card.provenance if not _exists(value, key.split("."))] == []


def _exists(value: Any, parts: list[str]) -> bool:
    """Whether a dotted key leads somewhere: names, places in a list, or names of a list's entries."""
    if not parts:
        return True
    if isinstance(value, dict):
        # A key of a mapping may hold dots itself.
        heads = [number for number in range(1, len(parts) + 1) if ".".join(parts[:number]) in value]
        return any(_exists(value[".".join(parts[:number])], parts[number:]) for number in heads)
    if isinstance(value, list):
        named = [each for each in value if isinstance(each, dict) and each.get("name") == parts[0]]
        numbered = value[int(parts[0]) : int(parts[0]) + 1] if parts[0].isdecimal() else []
        return any(_exists(each, parts[1:]) for each in [*named, *numbered])
    return False


@by_card
def test_what_the_catalogue_leaves_open_stays_visible(card: TaskCard, shared: Path) -> None:
    """A value that is proposed or not known there is marked in the card, and the card says what is open."""
    entry = catalogue()[card.id]
    left_open = {part for part in PLACES if _is_open(str(entry[part].get("confidence", "")))}
    marked = {place for place in map(PLACES.__getitem__, left_open) if _marked(card, place)}
    assert {PLACES[part] for part in left_open} == marked
    assert card.open_questions or not (left_open or entry["conflicts"])


@functools.cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Id → entry."""
    return {entry["id"]: entry for entry in yaml.safe_load(CATALOGUE.read_text())["tasks"]}


def _is_open(confidence: str) -> bool:
    return any(word in confidence for word in ("proposal", "unknown"))


def _marked(card: TaskCard, place: str) -> bool:
    """Whether something at the place, below it or above it is marked as open."""
    return any(
        kind in OPEN and (key == place or key.startswith(f"{place}.") or place.startswith(f"{key}."))
        for key, kind in card.provenance.items()
    )
