"""Sampling of cases and their order: decided by SHA-256 of seed and id, so that it never drifts with a library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Protocol, TypeVar

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes


class HasId(Protocol):
    """A case upstream."""

    @property
    def id(self) -> str:
        """Unique among its data set's."""


Chosen = TypeVar("Chosen")
Result = TypeVar("Result")
Source = TypeVar("Source", bound=HasId)
TOO_FEW = (
    "Fetch the whole data set, lower staging.sampling.count of the card, "
    "or say that your copy is a part of it: datasets.<name>.excerpt: true"
)
"""What to do when there are fewer cases than a card asks for."""


def shuffled(ids: Set[str], seed: int) -> list[str]:
    """The ids in an order that depends on seed and id alone and says nothing about upstream names or places."""
    return sorted(ids, key=lambda name: (sha256_bytes(f"{seed}\n{name}".encode()), name))


def shuffle_sources(sources: Iterable[Source], seed: int) -> list[Source]:
    """The sources in shuffled order."""
    by_id = {source.id: source for source in sources}
    return [by_id[name] for name in shuffled(by_id.keys(), seed)]


def first_of_subjects(sources: Iterable[Source]) -> list[Source]:
    """The first source of each subject; one without a known subject stands alone."""
    first: dict[tuple[str, str], Source] = {}
    for source in sources:
        first.setdefault(subject_key(source), source)
    return list(first.values())


def subject_key(source: HasId) -> tuple[str, str]:
    """Key of what a source shows: its subject (patient, lesion) where that is known, else itself."""
    subject = getattr(source, "subject", "") or getattr(source, "group", "")
    return ("subject", subject) if subject else ("id", source.id)


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


def draw_cases(
    card: TaskCard,
    sources: list[Source],
    choose: Callable[[TaskCard, list[Source]], Result],
    chosen: Callable[[Result], Iterable[Source]],
    stratum: Callable[[Source], object] = lambda _: None,
) -> Result:
    """Draw with ``choose`` from the sources; a fresh draw from those that the published draw leaves.

    ``chosen``: the sources in what it gives. Those of a subject (patient, lesion) in the published draw are not left
    either. Raises InfrastructureError when the rest does not give as many of each ``stratum``.
    """
    sampling = card.staging.sampling
    if sampling.besides is None:
        return choose(card, sources)
    published = list(chosen(choose(replace_sampling(card, seed=sampling.besides, besides=None), sources)))
    taken = {key for source in published for key in (("id", source.id), subject_key(source))}
    rest = [source for source in sources if taken.isdisjoint((("id", source.id), subject_key(source)))]
    why = f"{len(rest)} of {len(sources)} are left besides the published one of {len(published)}"
    if not rest:
        raise no_fresh_draw(card, why)
    try:
        fresh = choose(card, rest)
    except InfrastructureError as error:
        raise no_fresh_draw(card, why) from error
    if Counter(map(stratum, chosen(fresh))) != Counter(map(stratum, published)):
        raise no_fresh_draw(card, f"{why}, and they are not of the same kinds")
    return fresh


def no_fresh_draw(card: TaskCard, why: str) -> InfrastructureError:
    """The error when a data set has too few cases for another draw."""
    return InfrastructureError(
        f"{card.id} has no fresh draw: {why}.\n"
        "Leave the task out of matrix.tasks, or set cases.draw to null for the published draw."
    )


def replace_sampling(card: TaskCard, **changes: Any) -> TaskCard:
    """The card with another sampling."""
    sampling = card.staging.sampling.model_copy(update=changes)
    return card.model_copy(update={"staging": card.staging.model_copy(update={"sampling": sampling})})


def assign_case_ids(card: TaskCard, chosen: Iterable[Chosen]) -> dict[str, Chosen]:
    """Assign opaque ids to the chosen: ``<prefix>_0001``, ``<prefix>_0002``, …; a release keeps its own."""
    if card.staging.case_prefix is None:
        return dict(sorted((getattr(each, "id", str(each)), each) for each in chosen))
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
