"""Staging: a task's raw data becomes public cases, private answers and a manifest; never half of it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import close_folder, known_record, read_record, sha256_file, synced_at_end, write_record
from automedbench.base.records import CaseEntry, FileEntry, Manifest, Receipt
from automedbench.base.workers import limit_workers
from automedbench.campaign.record import CampaignRecord
from automedbench.datasets.leaks import audit, private_files, set_times
from automedbench.datasets.release import check_release
from automedbench.datasets.sampling import assign_case_ids, no_fresh_draw, replace_sampling
from automedbench.tracks import get_track

RECEIPT = "receipt.json"


def stage_task(campaign: CampaignRecord, task: str, *, workers: int = 1) -> Manifest:
    """Stage one task, ``workers`` cases at a time; all there is of a data set of which the user has a part.

    Raises ConfigError for an unknown task, and what ``stage_cases`` and ``refuse_made_up`` raise.
    """
    settings, path = campaign.settings, campaign.card_path(task)
    dataset = load_card(path).dataset.name
    raw, override = Path(settings.data.raw, dataset), settings.datasets.get(dataset)
    if not settings.fixtures:
        refuse_made_up(raw)
    return stage_cases(
        path,
        raw,
        Path(settings.data.public),
        Path(settings.data.private),
        campaign.manifest(task),
        excerpt=settings.fixtures or bool(override and override.excerpt),
        draw=settings.cases.draw,
        workers=workers,
    )


def stage_cases(
    card_path: Path,
    raw: Path,
    public: Path,
    private: Path,
    manifest: Path,
    *,
    excerpt: bool = False,
    draw: int | None = None,
    workers: int = 1,
) -> Manifest:
    """Stage one task below the roots ``public`` and ``private`` and write its manifest.

    ``workers``: cases worked on at a time, each in memory; the result is the same for every number.

    ``excerpt``: the raw data is known to be a part of the data set, so all of it is staged, however many cases the
    card asks for. Otherwise too few are an error: a download that broke off must not become a smaller benchmark.
    ``draw``: seed of a fresh draw besides the published one; an error where the data set has no more cases.
    Everything is made beside its place and then moved. When the result equals what is already there, nothing is
    moved, so that a run that reads the public data at this moment is not disturbed. What would give answers away does
    not become visible at all: see ``automedbench.datasets.leaks``.
    """
    card = load_card(card_path)
    public.mkdir(parents=True, exist_ok=True)
    private.mkdir(parents=True, exist_ok=True)
    close_folder(private, "group")
    with _staging_folder(public / card.id) as new_public, _staging_folder(private / card.id) as new_private:
        with synced_at_end(new_public, new_private):
            made_of = _apply_sampling(card, excerpt, draw)
            try:
                with _limit_workers(workers):
                    staged = _stage(made_of, raw, new_public / card.id, new_private / card.id)
            except InfrastructureError as error:
                raise error if card.id in str(error) else type(error)(f"{card.id}: {error}") from error
        if not _is_staged(staged, manifest, public / card.id, private / card.id):
            manifest.unlink(missing_ok=True)
            _replace(new_public / card.id, public / card.id, new_public / "old")
            _replace(new_private / card.id, private / card.id, new_private / "old")
    write_record(manifest, staged)
    return staged


def refuse_made_up(raw: Path) -> None:
    """Raise InfrastructureError when the data set's receipt says that it is a fixture: only a rehearsal stages that.

    Raises MissingDataError without a receipt: a download that has not ended looks like a whole data set.
    """
    if not (raw / RECEIPT).is_file():
        raise MissingDataError(
            f"{raw} contains no receipt.json: its download is incomplete, or another program made the folder.\n"
            "Run `snakemake prepare`; to use a folder of your own, set `datasets: {<name>: {path: ...}}` in the config."
        )
    receipt = read_record(raw / RECEIPT, Receipt)
    if receipt.made_up:
        raise InfrastructureError(
            f"{raw}: expected the data set, found made-up data (receipt.json: {receipt.source}).\n"
            "Delete this folder, then run `snakemake prepare` again."
        )


def is_made_up(receipt: Path) -> bool:
    """Check whether a receipt marks a rehearsal's fixture; false where it cannot be read."""
    known = known_record(receipt, Receipt)
    return known is not None and known.made_up


def expected_manifest(card: TaskCard) -> Manifest:
    """Manifest of a task that is not staged yet, with the names of cases that staging will give."""
    names = assign_case_ids(card, range(card.staging.sampling.count or 3))
    return card.manifest("not staged yet", [CaseEntry(id=name, inputs={}, private={}) for name in names])


@contextlib.contextmanager
def _limit_workers(workers: int) -> Iterator[None]:
    """``at_a_time`` with a Pillow that knows all its formats.

    It gets to know them when the first picture is opened; another thread would meanwhile find only some of them and
    take its picture for none. In this order, as it does by itself.
    """
    if workers > 1:
        from PIL import Image

        Image.preinit()
        Image.init()
    with limit_workers(workers):
        yield


@contextlib.contextmanager
def _staging_folder(place: Path) -> Iterator[Path]:
    """A folder beside ``place`` that is gone afterwards; those that killed processes left there go before."""
    left_over = re.compile(re.escape(f".{place.name}.") + r"[a-z0-9_]{8}")
    for path in place.parent.iterdir():
        if left_over.fullmatch(path.name):
            with _lock_folder(path) as ours:
                if ours:
                    shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as folder, _lock_folder(Path(folder)):
        yield Path(folder)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[bool]:
    """Lock the folder for this process; false where another one that lives uses it, or nothing can be locked."""
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except OSError:
            held = False
        yield held


def _apply_sampling(card: TaskCard, excerpt: bool, draw: int | None) -> TaskCard:
    """The card with the sampling of this campaign: of an excerpt every case that there is, or a fresh draw."""
    sampling = card.staging.sampling
    if card.staging.case_prefix is None:  # a part of a release, or other cases, would bear the name of its rows
        return card
    if draw is not None:
        if excerpt:
            raise no_fresh_draw(card, "of an excerpt of the data set all cases are staged")
        return replace_sampling(card, **dict(sampling.fresh(draw)))
    return (
        replace_sampling(card, count=None, rule=f"{sampling.rule}; of an excerpt of the data set") if excerpt else card
    )


def _stage(card: TaskCard, raw: Path, public: Path, private: Path) -> Manifest:
    public.mkdir(mode=0o755)
    private.mkdir(mode=0o755)
    track = get_track(card.track)
    copy = f"; {check_release(card, raw)}" if card.staging.case_prefix is None else ""
    cases = track.stage(card, raw, public, private)
    set_times(public)
    remarks = audit(card, raw, public, private, cases, copies=track.copies_of_inputs)
    for remark in remarks:
        logging.getLogger(__name__).warning("%s: %s.", card.id, remark)
    sampling = card.staging.sampling
    count = "all" if sampling.count is None else str(sampling.count)
    staged = card.manifest(
        f"{sampling.rule}{copy}; split {sampling.split}, {count} cases, seed {sampling.seed}",
        cases,
        made_up=is_made_up(raw / RECEIPT),
        private={
            name: FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size)
            for name, path in private_files(private, cases).items()
        },
    )
    return staged.model_copy(update={"remarks": remarks})


def _is_staged(staged: Manifest, manifest: Path, public: Path, private: Path) -> bool:
    """Check that the manifest on disk says the same and its files have the sizes it says."""
    if known_record(manifest, Manifest) != staged:
        return False
    files = staged.files("inputs", public) | staged.files("private", private)
    return all(path.is_file() and path.stat().st_size == entry.bytes for path, entry in files.items())


def _replace(new: Path, place: Path, aside: Path) -> None:
    if place.exists():
        place.rename(aside)
    new.rename(place)
    shutil.rmtree(aside, ignore_errors=True)
