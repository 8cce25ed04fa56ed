"""Published results that cards name: of a data set of their time, each once, and of enough tasks."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from automedbench.base.cards import Reference, find_cards

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^references:[^\n]*\n((?: [^\n]*\n)+)", re.MULTILINE)
YEAR = re.compile(r"^  year: (\d+)$", re.MULTILINE)
GOOD: dict[str, Any] = {
    "value": 0.953,
    "kind": "human",
    "who": "annotators",
    "metric": "Dice",
    "same_metric": True,
    "same_split": False,
    "source": "doi:10.1016/j.media.2020.101821",
    "place": "abstract",
    "year": 2021,
}


def test_cards_name_results_of_their_time() -> None:
    """Not before the data set and not in the future; of people for some, and what is unchecked is rare."""
    texts = [path.read_text("utf-8") for path in find_cards([str(ROOT / "config/tasks")])]
    named = [text for text in texts if "\nreferences:" in text]
    found = [(text, Reference(**each)) for text in named for each in yaml.safe_load(BLOCK.findall(text)[0])]
    latest = datetime.datetime.now(datetime.UTC).year
    assert len(named) >= 20
    assert [each for text, each in found if not int(YEAR.findall(text)[0]) <= each.year <= latest] == []
    assert len({(each.value, each.source, each.who) for _, each in found}) == len(found)
    assert sum(each.kind == "human" for _, each in found) >= 5
    assert sum(not each.checked for _, each in found) <= 1


@pytest.mark.parametrize(
    "wrong",
    [{"value": 95.3}, {"source": "Heller et al. 2021"}, {"source": ""}, {"metric": ""}, {"year": 20}, {"kind": "best"}],
)
def test_a_result_has_a_range_a_metric_and_a_source_to_look_up(wrong: dict[str, Any]) -> None:
    assert Reference(**GOOD).differs == "other cases"
    assert Reference(**GOOD | {"checked": False}).origin.endswith("media.2020.101821, abstract, 2021; not checked")
    with pytest.raises(ValidationError):
        Reference(**GOOD | wrong)
