"""Runs that share cards in turn, simulated: time that a card is held for each second of computing, and slow-down.

    python benchmarks/bench_turns.py [--runs 200] [--cards 4] [--think 0.8] [--touch 1.0] [--before-calls]

A run thinks and makes a call in turn, 40 times; both times follow log-normal distributions, and ``--think`` is the mean
share of thinking. Of the calls the share ``--touch`` computes on the card, from the first second to the last; others
(listing, editing, downloads) take no turn, or, with ``--before-calls``, the card for as long as they last. A card has
``share`` places; a place that gets free takes the next run. Cards serve first come, first served. ``in jobs``: a Slurm
job takes ``ROUNDS`` runs for each place, and gives its card back when the last has ended.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

ROUNDS = 2
"""As in ``snakemake_executor_plugin_automedbench.batches``."""
Turn = tuple[float, float]
"""Seconds of thinking, and then of a call."""
Phase = tuple[float, float, float]
"""Seconds without the card, with it, and of these computing."""


def draw_run(chance: random.Random, think: float, turns: int = 40, minutes: float = 55) -> list[Turn]:
    """Turns of a run of ``minutes`` on average; runs differ by half of it, and calls by far more than replies."""
    scale = minutes * 60 * chance.lognormvariate(-0.125, 0.5) / turns
    return [
        (scale * think * chance.lognormvariate(-0.18, 0.6), scale * (1 - think) * chance.lognormvariate(-0.72, 1.2))
        for _ in range(turns)
    ]


def find_phases(chance: random.Random, run: Sequence[Turn], touch: float, *, before_calls: bool) -> list[Phase]:
    """When a run has the card, if only the share ``touch`` of its calls computes on it; at least its last one does."""
    phases, apart_s = list[Phase](), 0.0
    for number, (think_s, call_s) in enumerate(run, 1):
        touches = number == len(run) or chance.random() < touch
        if touches or before_calls:
            phases.append((apart_s + think_s, call_s, call_s if touches else 0.0))
            apart_s = 0.0
        else:
            apart_s += think_s + call_s
    return phases


@dataclass
class Found:
    """Seconds of a card, or of several."""

    held_s: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    """The longest time without a holder while a run was on the card."""
    slow_downs: list[float] = field(default_factory=list)


@dataclass(eq=False)
class Member:
    """A run with a place on a card."""

    card: int
    turns: deque[Phase]
    began: float
    alone_s: float
    asked: float = 0.0


def simulate(runs: Sequence[Sequence[Phase]], cards: int, share: int, *, shortest_first: bool = False) -> Found:
    """All runs on so many cards, each held from its first run to its last.

    ``shortest_first``: of those that wait, a card serves the shortest call, which in truth is not known beforehand.
    """
    left, found, order = deque(runs), Found(), itertools.count()
    queues: list[list[Member]] = [[] for _ in range(cards)]
    holders: list[Member | None] = [None] * cards
    ends = [0.0] * cards
    events: list[tuple[float, int, bool, Member]] = []  # time, order, whether a call ends (or is asked for), of whom

    def think(now: float, member: Member) -> None:
        member.asked = now + member.turns[0][0]
        heapq.heappush(events, (member.asked, next(order), False, member))

    def begin(now: float, card: int) -> None:
        if left:
            turns = left.popleft()
            think(now, Member(card, deque(turns), now, sum(apart_s + with_s for apart_s, with_s, _ in turns)))

    for card in [card for _ in range(share) for card in range(cards)]:
        begin(0.0, card)
    while events:
        now, _, is_end, member = heapq.heappop(events)
        card = member.card
        if is_end:
            holders[card], ends[card] = None, now
            if member.turns:
                think(now, member)
            else:
                found.slow_downs.append((now - member.began) / member.alone_s)
                begin(now, card)
        else:
            queues[card].append(member)
        if queues[card] and holders[card] is None:
            chosen = min(queues[card], key=lambda each: each.turns[0][1] if shortest_first else each.asked)
            queues[card].remove(chosen)
            _, with_s, compute_s = chosen.turns.popleft()
            found.idle_s = max(found.idle_s, now - ends[card])
            found.busy_s += compute_s
            holders[card] = chosen
            heapq.heappush(events, (now + with_s, next(order), True, chosen))
    found.held_s = sum(ends)
    return found


def main() -> None:
    """Print a table for one to six runs on a card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--cards", type=int, default=4)
    parser.add_argument("--think", type=float, default=0.8)
    parser.add_argument("--touch", type=float, default=1.0)
    parser.add_argument("--before-calls", action="store_true", help="every call takes its turn before it begins")
    parser.add_argument("--shortest-first", action="store_true", help="as if the length of calls were known")
    options = parser.parse_args()
    chance = random.Random(20261128)
    drawn = [draw_run(chance, options.think) for _ in range(options.runs)]
    runs = [find_phases(chance, run, options.touch, before_calls=options.before_calls) for run in drawn]
    order = {"shortest_first": options.shortest_first}
    print("share   GPU hours   held / computing   in jobs   median slow-down   mean   longest idle stretch, min")
    for share in range(1, 7):
        found, size = simulate(runs, options.cards, share, **order), ROUNDS * share if share > 1 else 1
        jobs = [runs[first : first + size] for first in range(0, len(runs), size)]
        in_jobs_s = sum(simulate(job, 1, share, **order).held_s for job in jobs)
        print(
            f"{share:5}   {found.held_s / 3600:9.1f}   {found.held_s / found.busy_s:16.2f}   "
            f"{in_jobs_s / found.busy_s:7.2f}   {statistics.median(found.slow_downs) - 1:16.0%}   "
            f"{statistics.mean(found.slow_downs) - 1:4.0%}   {found.idle_s / 60:14.1f}"
        )


if __name__ == "__main__":
    main()
