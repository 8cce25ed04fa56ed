"""Images with one label each, as readers return them, and how a balanced part of them is chosen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from automedbench.datasets.forms.pictures import Picture
from automedbench.datasets.sampling import shuffled


@dataclass(frozen=True)
class LabelledImage:
    """An image with its class upstream; ``group`` is what several images may show (a lesion, a patient)."""

    id: str
    image: Picture
    source_class: str
    group: str = ""


def choose_balanced(
    classes: Mapping[str, Set[str]],
    *,
    per_class: Mapping[str, int | None],
    count: int | None,
    seed: int,
    groups: Mapping[str, str] | None = None,
    per_group: int | None = None,
) -> list[str]:
    """Ids in an order that depends on seed and id alone: at most ``per_class`` of each class (all where it is null).

    ``classes`` maps a class to its ids. With ``count``, the rest up to it is filled from all classes at random, and
    what is too much is left out. Of ids in one of the ``groups`` only one is taken, or with ``per_group`` so many of
    each class.
    """
    class_of = {name: label for label, names in classes.items() for name in names}
    order = _few_per_group(shuffled(class_of.keys(), seed), groups or {}, class_of if per_group else {}, per_group or 1)
    taken: dict[str, int] = defaultdict(int)
    chosen, rest = [], []
    for name in order:
        label, limit = class_of[name], per_class.get(class_of[name], 0)
        if limit is None or taken[label] < limit:
            taken[label] += 1
            chosen.append(name)
        else:
            rest.append(name)
    if count is not None:
        chosen = (chosen + rest)[:count]
    return _mixed(chosen, seed)


def _few_per_group(
    order: Sequence[str], groups: Mapping[str, str], class_of: Mapping[str, str], limit: int
) -> list[str]:
    """The first ``limit`` ids of every group and class; without classes, of every group."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    kept = []
    for name in order:
        group = (groups.get(name, ""), class_of.get(name, ""))
        seen[group] += 1
        if not group[0] or seen[group] <= limit:
            kept.append(name)
    return kept


def _mixed(chosen: list[str], seed: int) -> list[str]:
    """Another shuffle than the one that chose: in that one, the few taken of a large class would all stand first."""
    keys = {f"order\n{name}": name for name in chosen}
    return [keys[key] for key in shuffled(keys.keys(), seed)]
