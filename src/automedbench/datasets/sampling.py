"""Sampling of cases and their order: decided by SHA-256 of seed and id, so that it never drifts with a library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import TypeVar

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes

Chosen = TypeVar("Chosen")
TOO_FEW = (
    "Fetch the whole data set, lower staging.sampling.count of the card, "
    "or say that your copy is a part of it: datasets.<name>.excerpt: true"
)
"""What to do when there are fewer cases than a card asks for."""


def shuffled(ids: Set[str], seed: int) -> list[str]:
    """The ids in an order that depends on seed and id alone and says nothing about upstream names or places."""
    return sorted(ids, key=lambda name: (sha256_bytes(f"{seed}\n{name}".encode()), name))


def choose(classes: Mapping[str, Set[str]], count: int | None, seed: int, positive_fraction: float = 0.8) -> list[str]:
    """``count`` of the ids (all when None) in shuffled order; ``classes`` says what each id contains.

    Every class keeps a case if ``count`` allows (rarest first); the rest is filled so that ``positive_fraction`` of
    the cases contain something. Raises InfrastructureError when there are fewer ids than asked for.
    """
    order = shuffled(classes.keys(), seed)
    if count is None:
        return order
    if count > len(order):
        raise InfrastructureError(f"The card asks for {count} cases, but the split has {len(order)}.\n{TOO_FEW}")
    chosen = _cover(order, classes)[:count]
    positives = [name for name in order if classes[name] and name not in chosen]
    negatives = [name for name in order if not classes[name] and name not in chosen]
    wanted = max(0, round(count * positive_fraction) - len(chosen))
    chosen += (positives[:wanted] + negatives + positives[wanted:])[: count - len(chosen)]
    kept = set(chosen)
    return [name for name in order if name in kept]


def as_cases(card: TaskCard, chosen: Iterable[Chosen]) -> dict[str, Chosen]:
    """What was chosen under opaque ids: ``<prefix>_0001``, ``<prefix>_0002``, …"""
    return {f"{card.staging.case_prefix}_{number:04d}": each for number, each in enumerate(chosen, 1)}


def too_few(card: TaskCard, found: str) -> InfrastructureError:
    """The error when there are fewer cases than the card asks for; ``found`` says how many."""
    return InfrastructureError(f"{card.id} asks for {card.staging.sampling.count or 'all'} cases, {found}.\n{TOO_FEW}")


def _cover(order: list[str], classes: Mapping[str, Set[str]]) -> list[str]:
    """The fewest early ids that show every class, rarest class first."""
    frequency = Counter(name for present in classes.values() for name in present)
    covered: list[str] = []
    for name in sorted(frequency, key=lambda name: (frequency[name], name)):
        if not any(name in classes[chosen] for chosen in covered):
            covered.append(next(case for case in order if name in classes[case]))
    return covered
