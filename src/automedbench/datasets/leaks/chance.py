"""Could an order, a size or a way of compression have come about by chance? Exact or normal, never random.

Each test gives a value in standard deviations of what chance alone gives, with the normal approximation of

* the rank sum of a class among all cases (Wilcoxon 1945; Mann and Whitney 1947),
* the number of runs of equal classes (Wald and Wolfowitz 1940; more than two classes: Mood 1940),
* the rank correlation of two orders (Spearman 1904),

ties between equal values given their mean rank. Beyond ``LIMIT`` it is no chance: for one test the normal distribution
gives 6 of 100 000. Below ``ENOUGH`` cases nothing is said, because no order of so few could be told from chance.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence

ENOUGH = 20
LIMIT = 4.0
MOST_LIKELY = 1e-4
"""Probability below which a way of compression that only one class has is no chance."""


def rank_sums(values: Sequence[float], classes: Sequence[str]) -> dict[str, float]:
    """Class → how far its values' ranks are from those of all, in standard deviations; positive: larger values."""
    n_all = len(values)
    if n_all < ENOUGH:
        return {}
    ranks = _ranks(values)
    spread = sum((rank - (n_all + 1) / 2) ** 2 for rank in ranks) / (n_all - 1)
    sums: dict[str, float] = defaultdict(float)
    for rank, label in zip(ranks, classes, strict=True):
        sums[label] += rank
    found = {}
    for label, n_class in Counter(classes).items():
        deviation = math.sqrt(spread * n_class * (n_all - n_class) / n_all)
        if deviation > 0:
            found[label] = (sums[label] - n_class * (n_all + 1) / 2) / deviation
    return found


def runs(classes: Sequence[str]) -> float:
    """How far the number of runs of equal classes is from chance; negative: blocks, positive: classes take turns."""
    n_all, counts = len(classes), Counter(classes).values()
    squares, cubes = sum(count**2 for count in counts), sum(count**3 for count in counts)
    variance = squares * (squares + n_all * (n_all + 1)) - 2 * n_all * cubes - n_all**3
    if n_all < ENOUGH or variance <= 0:
        return 0.0
    found = 1 + sum(first != second for first, second in itertools.pairwise(classes))
    expected = (n_all * (n_all + 1) - squares) / n_all
    return (found - expected) / math.sqrt(variance / (n_all**2 * (n_all - 1)))


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation of two orders of the same cases, in standard deviations of chance."""
    n_all = len(first)
    if n_all < ENOUGH:
        return 0.0
    middle = (n_all + 1) / 2
    pairs = [(one - middle, two - middle) for one, two in zip(_ranks(first), _ranks(second), strict=True)]
    spread = math.sqrt(sum(one**2 for one, _ in pairs) * sum(two**2 for _, two in pairs))
    return sum(one * two for one, two in pairs) / spread * math.sqrt(n_all - 1) if spread else 0.0


def telling(forms: Mapping[str, Hashable], classes: Mapping[str, str]) -> dict[Hashable, str]:
    """Form → the one class that has it, where chance would hardly give a form to one class alone.

    ``forms`` and ``classes`` say of each case how its file is compressed and what its class is. The probability that
    k cases drawn from all n are all of a class with m cases is C(m, k) / C(n, k).
    """
    sizes = Counter(classes[case] for case in forms)
    owners: dict[Hashable, list[str]] = defaultdict(list)
    for case, form in forms.items():
        owners[form].append(classes[case])
    found = {}
    for form, labels in owners.items():
        if len(set(labels)) == 1 and len(labels) < len(forms):
            n_form = len(labels)
            if math.comb(sizes[labels[0]], n_form) < MOST_LIKELY * math.comb(len(forms), n_form):
                found[form] = labels[0]
    return found


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + 1 + end) / 2
        start = end
    return ranks
