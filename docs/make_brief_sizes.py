"""Sizes of briefs as a table of a page: ``python docs/make_brief_sizes.py config docs/tasks.md``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from automedbench.agent.plan import Setting, write_brief
from automedbench.base.cards import Limits, TaskCard, find_cards, load_card
from automedbench.base.files import write_text
from automedbench.base.records import TIERS, Tier
from automedbench.datasets.sampling import as_cases

BEGIN, END = "<!-- brief sizes: begin -->", "<!-- brief sizes: end -->"
INTRODUCTION = """\
Characters of the system text per track, smallest to largest over its tasks, and of that the hints; with a GPU, behind
the proxy, native tools, three cases. Made by `python docs/make_brief_sizes.py config docs/tasks.md`."""
SETTING = Setting(
    data_dir="/data/public",
    workspace_dir="/workspace",
    network="proxied",
    gpu=True,
    limits=Limits(),
    max_warnings=1,
    reply_tokens=8192,
    hub=True,
)


def render(config: Path) -> str:
    """The table as Markdown; raises ConfigError when a card or a block is wrong."""
    cards = [load_card(path) for path in find_cards([str(config / "tasks")])]
    head = ["track", *(f"{tier}{kind}" for tier in TIERS for kind in ("", ", hints"))]
    rows = [
        [
            track,
            *(cell for tier in TIERS for cell in _cells(config, [card for card in cards if card.track == track], tier)),
        ]
        for track in sorted({card.track for card in cards})
    ]
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---", *["--:"] * (len(head) - 1)], *rows]]
    return f"{INTRODUCTION}\n\n" + "\n".join(lines)


def updated(page: str, config: Path) -> str:
    """The text of a page with the table between its marks; raises ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{render(config)}\n\n{END}{after}"


def _cells(config: Path, cards: list[TaskCard], tier: Tier) -> Iterator[str]:
    texts = [_text(config, card, tier) for card in cards if tier in card.tiers]
    for sizes in (list(map(len, texts)), [len(_hints(text)) for text in texts]):
        yield _range(sizes)


def _text(config: Path, card: TaskCard, tier: Tier) -> str:
    return write_brief(config / "prompts", card, tier, list(as_cases(card, range(3))), SETTING).system


def _hints(text: str) -> str:
    return "".join(re.findall(r"### Hint for .*?(?=\n\n## |\n\n# )", text, flags=re.DOTALL))


def _range(sizes: list[int]) -> str:
    if not any(sizes):
        return ""
    low, high = f"{min(sizes):,}", f"{max(sizes):,}"
    return (low if low == high else f"{low}–{high}").replace(",", " ")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python docs/make_brief_sizes.py CONFIG PAGE")
    page = Path(sys.argv[2])
    write_text(page, updated(page.read_text("utf-8"), Path(sys.argv[1])))
