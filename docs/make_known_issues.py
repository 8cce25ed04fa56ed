"""What the cards leave open, as a page: ``python docs/make_known_issues.py config/tasks docs/known-issues.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.files import write_text
from automedbench.leaderboard.definitions import list_issues

INTRODUCTION = """\
# Known issues

Where a task differs from the public benchmark, and what is not known of it: open questions and decisions that the cards
in `config/tasks` hold. Edit the cards, then `python docs/make_known_issues.py config/tasks docs/known-issues.md` makes
it anew. A campaign by the public settings is run with a preset ([Presets](presets.md)).

## Inference APIs

The public benchmark lets agents of the VQA track call inference APIs, with keys that its runner injects. Here agent
code has no key and no route to such an API: a vision-language model must run on the machine itself. This changes
scores, in favour of published rows.

## The public multi-organ score

The public scorer of `tsg-multiorgan-seg-task` gives Dice 1 to each of the 117 structures that is in neither truth nor
answer. An outside audit of that scorer found that an answer of background alone earns 115/117. A made-up scan with two
structures gives the same in `tests/unit/test_presets.py`. Here such a structure is left out of the mean
(`both_empty: skip`), and that answer earns 0. The preset `lite-v0.1` keeps the public rule, so that its rows can stand
beside published ones; they share the weakness."""


def render(folder: Path) -> str:
    """The page; raises ConfigError for a card that is wrong."""
    cards = [load_card(path) for path in find_cards([str(folder)])]
    tracks = sorted({card.track for card in cards})
    parts = [INTRODUCTION]
    for track in tracks:
        parts += [f"## {track.replace('_', ' ').capitalize()}", *_cards(card for card in cards if card.track == track)]
    return "\n\n".join(parts) + "\n"


def _cards(cards: Iterable[TaskCard]) -> Iterator[str]:
    for card in sorted(cards, key=lambda card: card.id):
        lines = [f"- {issue}" for issue in list_issues(card)]
        yield f"### {card.title}: `{card.id}`\n\n" + ("\n".join(lines) or "Nothing is open.")


if __name__ == "__main__":
    write_text(Path(sys.argv[2]), render(Path(sys.argv[1])))
