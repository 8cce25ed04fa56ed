"""Letters for agents that cannot be told apart: compact letter display (Piepho 2004, insert and absorb)."""

from __future__ import annotations

from collections.abc import Sequence

from automedbench.statistics.results import PairedComparison


def tie_groups(agents: Sequence[str], pairs: Sequence[PairedComparison]) -> dict[str, str]:
    """Agent → letters; two agents share a letter exactly when they cannot be told apart.

    ``agents``: in the order of the ranking, best first, which gets the first letters. A pair that is not in ``pairs``
    or lacks data cannot be told apart. Beyond z the letters go on with aa, ab …, separated by commas. Raises ValueError
    for a pair with an unknown agent.
    """
    if strangers := {name for pair in pairs for name in (pair.a, pair.b)} - set(agents):
        raise ValueError(f"pairs of agents that are not in the ranking: {', '.join(sorted(strangers))}")
    groups: list[frozenset[str]] = [frozenset(agents)] if agents else []
    for pair in pairs:
        if pair.different:
            split = [part for group in groups for part in _without_both(group, pair.a, pair.b)]
            groups = _absorbed(split)
    place = {name: number for number, name in enumerate(agents)}
    groups.sort(key=lambda group: sorted(place[name] for name in group))
    letters = [_letter(number) for number in range(len(groups))]
    gap = "," if len(groups) > 26 else ""
    return {
        name: gap.join(letter for letter, group in zip(letters, groups, strict=True) if name in group)
        for name in agents
    }


def _without_both(group: frozenset[str], a: str, b: str) -> list[frozenset[str]]:
    """A group that holds both of a different pair becomes two that hold one each."""
    return [group - {a}, group - {b}] if {a, b} <= group else [group]


def _absorbed(groups: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Groups that are not part of another."""
    distinct = list(dict.fromkeys(groups))
    return [group for group in distinct if not any(group < other for other in distinct)]


def _letter(number: int) -> str:
    """A, …, z, aa, ab …"""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters
