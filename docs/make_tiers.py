"""Checkpoints of the lite tier as a table of a page: ``python docs/make_tiers.py docs/tasks.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from automedbench.base.cards import Download, Source, TaskCard, find_cards, load_card
from automedbench.base.checkpoints import Checkpoint, load_checkpoints
from automedbench.base.files import write_text

BEGIN, END = "<!-- checkpoints: begin -->", "<!-- checkpoints: end -->"
SHORT = 12
"""Characters of a commit or checksum that are shown."""


def render(root: Path) -> str:
    """The table of checkpoints, and the tasks without one with the reason; raises ConfigError for a wrong file."""
    known = load_checkpoints(root / "config/checkpoints.yaml")
    cards = [load_card(path) for path in find_cards([str(root / "config/tasks")])]
    files = [told for each in known.values() for part in each.parts for told in part.downloads]
    head = ["checkpoint", "tasks", "repository", "revision", "files", "size", "checksum", "licence"]
    rows = [_row(name, each) for name, each in known.items()]
    tasks = sum(len(each.tasks) for each in known.values())
    told = (
        f"{len(known)} checkpoints for {tasks} tasks. Of {len(files)} files or patterns that are named, "
        f"{sum(each.bytes is not None for each in files)} have an exact size and "
        f"{sum(each.checksum is not None for each in files)} a checksum; what no public source gave is left open "
        "(`open_questions` in the table's file). Where each fact was seen: `provenance` there."
    )
    return "\n\n".join([_table([head, *rows]), told, *_without(cards)])


def updated(page: str, root: Path) -> str:
    """The text of a page with the table between its marks; raises ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{render(root)}\n\n{END}{after}"


def _row(name: str, each: Checkpoint) -> list[str]:
    downloads = [told for part in each.parts for told in part.downloads]
    sizes = [told.bytes for told in downloads if told.bytes is not None]
    sums = [told.checksum.partition(":")[2][:SHORT] for told in downloads if told.checksum]
    return [
        f"`{name}`: {each.name}",
        ", ".join(task.removesuffix("-task") for task in each.tasks),
        "; ".join(_where(part) for part in each.parts),
        "; ".join((part.revision or "open")[:SHORT] for part in each.parts),
        _files(downloads),
        f"{sum(sizes):,} bytes" if downloads and len(sizes) == len(downloads) else _some(len(sizes), len(downloads)),
        ", ".join(f"`{value}…`" for value in sums) if len(sums) == 1 else _some(len(sums), len(downloads)),
        each.licence,
    ]


def _where(part: Source) -> str:
    return f"hub `{part.where}`" if part.kind == "huggingface_model" else part.where.removeprefix("https://")


def _files(downloads: Sequence[Download]) -> str:
    if len(downloads) > 2:
        return f"{len(downloads)}, `{downloads[0].name}` first"
    return ", ".join(f"`{told.name}`" for told in downloads) or "open"


def _some(known: int, of: int) -> str:
    return f"{known} of {of}" if known else "open"


def _without(cards: Sequence[TaskCard]) -> Iterator[str]:
    yield "Not offered as lite:"
    yield "\n".join(
        f"- `{card.id}`: {' '.join(card.briefs.no_lite.split())}" for card in cards if "lite" not in card.tiers
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/make_tiers.py PAGE")
    page = Path(sys.argv[1])
    write_text(page, updated(page.read_text("utf-8"), Path(__file__).resolve().parents[1]))
