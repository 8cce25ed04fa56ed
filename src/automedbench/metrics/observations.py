"""Findings that word patterns see in a report, and their F1: a cheap stand-in for a labelling model.

A concept is found where one of its positive patterns matches and none of its negative ones does, anywhere in the text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet

Patterns = Mapping[str, Sequence[str]]
"""``positive`` and ``negative`` → regular expressions for text in lower case."""


def find_observations(text: str, concepts: Mapping[str, Patterns]) -> frozenset[str]:
    """Find the concepts of a normalised text."""
    return frozenset(
        concept
        for concept, patterns in concepts.items()
        if _matches(text, patterns.get("positive", ())) and not _matches(text, patterns.get("negative", ()))
    )


def observation_f1(truth: AbstractSet[Hashable], found: AbstractSet[Hashable]) -> float:
    """F1 of two sets of concepts, in [0, 1]; 1 where both are empty."""
    if not truth and not found:
        return 1.0
    return 2 * len(truth & found) / (len(truth) + len(found))


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(re.search(pattern, text) for pattern in patterns)
