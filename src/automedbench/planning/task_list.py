"""Tasks as lists: every task with its access and state, one task in full, and the open questions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from automedbench.base.cards import Download, Source, TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record
from automedbench.base.records import Manifest, Receipt
from automedbench.planning.wiring import Wiring

WIDTH = 110
OPEN = ("proposal", "unknown")
"""Origins of values that are not published."""
State = Literal["staged", "fetched", "made up", "own copy", "download", "credentials", "by hand"]


@dataclass(frozen=True)
class TaskRow:
    """One task as a list shows it; ``needs`` are variables that are not set, ``cases`` those staged or asked for."""

    id: str
    track: str
    dataset: str
    access: str
    state: State
    needs: tuple[str, ...]
    cases: int | None
    download_gb: float | None
    n_open: int

    @property
    def ready(self) -> str:
        """The state in words."""
        return f"set {', '.join(self.needs)}" if self.state == "credentials" else self.state


def list_tasks(campaign: Wiring, environment: Mapping[str, str]) -> list[TaskRow]:
    """Every task that has a card, by track and name."""
    cards = sorted(campaign.campaign.cards.values(), key=lambda card: (card.track, card.id))
    return [_row(campaign, card, environment) for card in cards]


def _row(campaign: Wiring, card: TaskCard, environment: Mapping[str, str]) -> TaskRow:
    staged = staged_cases(campaign, card)
    state, needs = ("staged", ()) if staged is not None else _way(campaign, card, environment)
    return TaskRow(
        id=card.id,
        track=card.track,
        dataset=card.dataset.name,
        access=card.dataset.access,
        state=state,
        needs=needs,
        cases=len(staged) if staged is not None else card.staging.sampling.count,
        download_gb=card.dataset.download_gb,
        n_open=len(open_facts(card)) + len(card.open_questions),
    )


def staged_cases(campaign: Wiring, card: TaskCard) -> list[str] | None:
    """Staged cases of the card's version; None when it is not staged."""
    try:
        manifest = read_record(Path(campaign.settings.data.manifests) / f"{card.id}.json", Manifest)
    except InfrastructureError:
        return None
    return manifest.case_ids if manifest.task_version == card.version else None


def _way(campaign: Wiring, card: TaskCard, environment: Mapping[str, str]) -> tuple[State, tuple[str, ...]]:
    """How the raw data is had: what is there already, else by the first source that works without being asked."""
    name = card.dataset.name
    receipt = Path(campaign.settings.data.raw) / name / "receipt.json"
    if receipt.is_file():
        return ("made up" if not campaign.settings.fixtures and is_made_up(receipt) else "fetched"), ()
    if name in campaign.settings.datasets:
        return "own copy", ()
    missing = [_missing(source, environment) for source in card.dataset.sources if not _by_hand(source)]
    if any(not names for names in missing):
        return "download", ()
    return ("credentials", missing[0]) if missing else ("by hand", ())


def is_made_up(receipt: Path) -> bool:
    """Whether a receipt says that a rehearsal's fixture lies beside it; one that cannot be read says nothing."""
    try:
        return read_record(receipt, Receipt).made_up
    except InfrastructureError:
        return False


def _by_hand(source: Source) -> bool:
    return source.kind == "manual" or any(map(_by_hand, source.also))


def _missing(source: Source, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables of a source and of what comes with it that are not set."""
    own = (name for name in source.credentials if not environment.get(name))
    return tuple(dict.fromkeys([*own, *(name for other in source.also for name in _missing(other, environment))]))


def open_facts(card: TaskCard) -> dict[str, str]:
    """Dotted key → ``proposal`` or ``unknown``."""
    return {key: origin for key, origin in sorted(card.provenance.items()) if origin in OPEN}


def open_lines(cards: Mapping[str, TaskCard]) -> Iterator[str]:
    """Every unpublished fact of the cards, and every open question."""
    for card in sorted(cards.values(), key=lambda card: (card.track, card.id)):
        facts = open_facts(card)
        if not facts and not card.open_questions:
            continue
        yield f"{card.id} ({card.track})"
        yield from (f"  {origin:<9} {key}: {_short(value_of(card, key))}" for key, origin in facts.items())
        for question in card.open_questions:
            yield from textwrap.wrap(question, WIDTH, initial_indent="  ?         ", subsequent_indent=" " * 12)


def value_of(card: TaskCard, key: str) -> Any:
    """What stands at a dotted key of a card; raises KeyError when there is no such key."""
    value: Any = card.model_dump(mode="json")
    for part in key.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _short(value: Any) -> str:
    return textwrap.shorten(_plain(value), 80, placeholder=" …")


def _plain(value: Any) -> str:
    """A value of a card in words; what is not set is left out."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_nested(part)}" for key, part in value.items() if part is not None)
    if isinstance(value, list):
        return ", ".join(map(_nested, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _nested(value: Any) -> str:
    return f"({_plain(value)})" if isinstance(value, (Mapping, list)) else _plain(value)


def card_lines(card: TaskCard) -> Iterator[str]:
    """One card in full, for a person."""
    data, staging = card.dataset, card.staging
    yield f"{card.id}: {card.title} ({card.track}, version {card.version})"
    yield from _paragraph("", card.description)
    yield from _paragraph("Data set", f"{data.title}{f' ({data.year})' if data.year else ''}; {card.modality}")
    yield from _paragraph("Access", data.access)
    yield from _paragraph("Licence", f"{data.licence}; redistribution: {data.redistribution}")
    yield from _paragraph("Credit", data.attribution)
    for source in data.sources:
        yield from _paragraph("Source", _source(source))
    yield from _paragraph("By hand", data.how_to_get)
    yield from _paragraph("Layout", data.layout)
    count = "all" if staging.sampling.count is None else str(staging.sampling.count)
    yield from _paragraph("Cases", f"{count} ({card.unit}), seed {staging.sampling.seed}: {staging.sampling.rule}")
    if staging.degradation:
        yield from _paragraph("Degraded", str(staging.degradation.get("description") or _plain(staging.degradation)))
    yield from _paragraph("Input", "; ".join(f"{file.file}: {file.format}" for file in card.inputs))
    yield from _paragraph("Output", "; ".join(f"{file.path}: {file.format}" for file in card.outputs))
    if card.targets:
        yield from _paragraph("Targets", ", ".join(target.name for target in card.targets))
    settings = _plain(card.metric.settings)
    yield from _paragraph("Metric", f"{card.metric.name}{f' ({settings})' if settings else ''}")
    medals = (f"{medal.name}: {', '.join(f'{k} ≥ {v:g}' for k, v in medal.at_least.items())}" for medal in card.medals)
    yield from _paragraph("Medals", "; ".join(medals))
    yield from _paragraph("Lite", f"{card.briefs.lite_model.name}. {card.briefs.lite_model.notes}")
    yield from _paragraph("Standard", "; ".join(card.briefs.standard_candidates))


def _source(source: Source) -> str:
    """Where it is, at which revision, and what it needs."""
    also = "".join(f", with {_source(other)}" for other in source.also)
    revision = f" at {source.revision}" if source.revision else ""
    needs = f" (needs {', '.join(source.credentials)})" if source.credentials else ""
    return f"{source.kind} {source.where}{revision}{needs}{_size(source.downloads)}{also}"


def _size(downloads: list[Download]) -> str:
    known = [download.bytes for download in downloads if download.bytes]
    return f", {sum(known) / 1e9:.1f} GB" if known and len(known) == len(downloads) else ""


def _paragraph(label: str, text: str) -> Iterator[str]:
    if text.strip():
        yield from textwrap.wrap(
            " ".join(text.split()), WIDTH, initial_indent=f"{label:<10}", subsequent_indent=" " * 10
        )
