"""Runs that share cards in turn, simulated: time that a card is held for each second of computing, and slow-down.

    python benchmarks/bench_turns.py [--runs 200] [--cards 4] [--think 0.8]

A run thinks and computes in turn, 40 times; both times follow log-normal distributions, and ``--think`` is the mean
share of thinking. A card has ``share`` places; a place that gets free takes the next run. Cards serve first come, first
served.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from collections import deque
from dataclasses import dataclass, field

Turn = tuple[float, float]
"""Seconds of thinking, and then of computing."""


def draw_run(chance: random.Random, think: float, turns: int = 40, minutes: float = 55) -> list[Turn]:
    """Turns of a run of ``minutes`` on average; runs differ by half of it, and calls by far more than replies."""
    scale = minutes * 60 * chance.lognormvariate(-0.125, 0.5) / turns
    return [
        (scale * think * chance.lognormvariate(-0.18, 0.6), scale * (1 - think) * chance.lognormvariate(-0.72, 1.2))
        for _ in range(turns)
    ]


@dataclass
class Found:
    """Seconds of a card, or of several."""

    held_s: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    """The longest time without a holder while a run was on the card."""
    slow_downs: list[float] = field(default_factory=list)


def simulate(runs: list[list[Turn]], cards: int, share: int) -> Found:
    """All runs on so many cards, each held from its first run to its last."""
    waiting, found = deque(runs), Found()
    queues = [(0.0, card) for card in range(cards) for _ in range(share)]
    free_at, ends = [0.0] * cards, [0.0] * cards
    # (time, order, card, turns left, begin of the run, its time alone): the moment at which it asks for the card.
    asking: list[tuple[float, int, int, deque[Turn], float, float]] = []
    order = 0

    def begin(now: float, card: int) -> None:
        nonlocal order
        turns = waiting.popleft()
        order += 1
        heapq.heappush(asking, (now + turns[0][0], order, card, deque(turns), now, sum(map(sum, turns))))

    for now, card in queues[: len(runs)]:
        begin(now, card)
    while asking:
        asked, _, card, turns, began, alone = heapq.heappop(asking)
        start, (_, compute) = max(asked, free_at[card]), turns.popleft()
        found.idle_s = max(found.idle_s, start - free_at[card])
        found.busy_s += compute
        free_at[card] = ends[card] = start + compute
        if turns:
            order += 1
            heapq.heappush(asking, (free_at[card] + turns[0][0], order, card, turns, began, alone))
        else:
            found.slow_downs.append((free_at[card] - began) / alone)
            if waiting:
                begin(free_at[card], card)
    found.held_s = sum(ends)
    return found


def main() -> None:
    """Print a table for one to six runs on a card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--cards", type=int, default=4)
    parser.add_argument("--think", type=float, default=0.8)
    options = parser.parse_args()
    chance = random.Random(20261128)
    runs = [draw_run(chance, options.think) for _ in range(options.runs)]
    print("share   GPU hours   held / computing   median slow-down   longest idle stretch, min")
    for share in range(1, 7):
        found = simulate(runs, options.cards, share)
        print(
            f"{share:5}   {found.held_s / 3600:9.1f}   {found.held_s / found.busy_s:16.2f}   "
            f"{statistics.median(found.slow_downs) - 1:16.0%}   {found.idle_s / 60:14.1f}"
        )


if __name__ == "__main__":
    main()
