"""What was met of each outside part, as a page: ``python docs/make_reality.py docs/reality.yaml docs/reality.md``.

Reports of ``automedbench first-run`` (``results/first-run/report.json``) named behind are written into the table first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

INTRODUCTION = """\
# What was met

Which outside parts the benchmark has really used. *Met*: the real part was used. *Recorded*: the tests read its real
answers. *Never*: fixtures and its documentation are all there is. Before a campaign depends on a part, try it with
`automedbench first-run`. `tests/workflow/test_real_servers.py` (in `make test-long`) starts the three servers again,
`tests/contract/test_recorded_answers.py` reads the recorded answers, and
`tests/contract/test_server_sentences.py` lists how servers refuse a request, with sources.

This page is made from `docs/reality.yaml`. To enter what `first-run` found to work, name its reports:
`python docs/make_reality.py docs/reality.yaml docs/reality.md results/first-run/report.json`.
"""
Table = dict[str, dict[str, list[Any]]]


def merge_report(table: Table, report: dict[str, Any]) -> None:
    """Mark parts as met that a line of the report which is ok names; names of up to five letters are left out."""
    lines = [(line, probe["date"][:10]) for probe in report["probes"].values() for line in probe["results"]]
    for part, row in ((part, row) for rows in table.values() for part, row in rows.items() if len(part) > 5):
        for line, date in lines:
            if line["status"] == "ok" and part in line["message"]:
                row[:] = ["met", date, (row[2:3] or [""])[0], f"first-run, {report['code']}"]


def render(table: Table) -> str:
    """The page: a table of part, state, date, version and what was seen for each kind of part."""
    blocks = [f"## {kind}\n\n{_table(rows)}" for kind, rows in table.items()]
    return "\n".join([INTRODUCTION, *blocks])


def _table(rows: dict[str, list[Any]]) -> str:
    head = ["| part | state | on | version | what was seen |", "|---|---|---|---|---|"]
    lines = [f"| {part} | {' | '.join(str(cell) for cell in [*row, *[''] * 4][:4])} |" for part, row in rows.items()]
    return "\n".join([*head, *lines, ""])


def dump(table: Table) -> Iterable[str]:
    """The table as YAML, one part a line."""
    for kind, rows in table.items():
        yield f"{kind}:"
        for part, row in rows.items():
            yield f"  {json.dumps(part)}: {json.dumps([str(cell) for cell in row], ensure_ascii=False)}"


def main(source: Path, page: Path, reports: Iterable[Path]) -> None:
    """Write the page, and the table where reports are merged into it."""
    text = source.read_text("utf-8")
    table: Table = yaml.safe_load(text)
    for report in reports:
        merge_report(table, json.loads(report.read_text("utf-8")))
        comment = [line for line in text.splitlines() if line.startswith("#")]
        source.write_text("\n".join([*comment, *dump(table), ""]), "utf-8")
    page.write_text(render(table), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), map(Path, sys.argv[3:]))
