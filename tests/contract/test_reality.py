"""docs/reality.md: every outside part that the repository names has a row, and the page is made from its table."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from typing import Any, get_args
from urllib.parse import urlsplit

import yaml
from conftest import ROOT

from automedbench.base.cards import Source, find_cards, load_card
from automedbench.base.endpoint.address import ProtocolName

MAKER = runpy.run_path(str(ROOT / "docs/make_reality.py"))
TABLE: dict[str, dict[str, list[Any]]] = yaml.safe_load((ROOT / "docs/reality.yaml").read_text())


def places(source: Source) -> Iterator[str]:
    """Host of a source; of a service without an address its kind."""
    if source.kind != "path":
        yield urlsplit(source.where).hostname or source.kind
    for other in source.also:
        yield from places(other)


def test_every_outside_part_has_a_row() -> None:
    cards = [load_card(path) for path in find_cards([str(ROOT / "config/tasks")])]
    assert {place for card in cards for source in card.dataset.sources for place in places(source)} <= TABLE[
        "Hosts of data"
    ].keys()
    checkpoints = yaml.safe_load((ROOT / "config/checkpoints.yaml").read_text())["checkpoints"]
    assert checkpoints.keys() == TABLE["Checkpoints"].keys()
    assert {path.stem for path in (ROOT / "config/agents").glob("*.yaml")} == TABLE["Command-line agents"].keys()
    assert set(get_args(ProtocolName)) == TABLE["Protocols"].keys()
    judges = {
        path.stem: yaml.safe_load(path.read_text()).get("judge") for path in (ROOT / "config/presets").glob("*.yaml")
    }
    assert {f"preset {name}, {judge}" for name, judge in judges.items() if judge} == TABLE["Judges"].keys()


def test_rows_say_when_and_what() -> None:
    """What was met or recorded has a date; only the three states are used; the page is up to date."""
    rows = [row for part in TABLE.values() for row in part.values()]
    assert {row[0] for row in rows} == {"never", "recorded", "met"}
    assert [row for row in rows if row[0] != "never" and not str(row[1]).startswith("2026-")] == []
    assert (ROOT / "docs/reality.md").read_text("utf-8") == MAKER["render"](TABLE)


def test_a_report_of_first_run_is_merged() -> None:
    table = {"Hosts of data": {"zenodo.org": ["never"], "osf.io": ["never"]}}
    line = {"probe": "hosts", "status": "ok", "message": "msd: https://zenodo.org/records/1, 3 MB; licence CC"}
    probes = {
        "hosts": {"date": "2026-12-01T10:00:00Z", "results": [line, line | {"status": "FAIL", "message": "osf.io"}]}
    }
    MAKER["merge_report"](table, {"code": "automedbench 0.2.0", "probes": probes})
    expected = {"zenodo.org": ["met", "2026-12-01", "", "first-run, automedbench 0.2.0"], "osf.io": ["never"]}
    assert table["Hosts of data"] == expected
