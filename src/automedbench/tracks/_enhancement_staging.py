"""How source images become enhancement cases: chosen, degraded, measured against simple baselines, frozen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from automedbench.cards import TaskCard
from automedbench.datasets.degradation_2d import Degradation, degrade, generator, parse_degradation
from automedbench.datasets.sampling import TOO_FEW, case_ids, shuffled
from automedbench.datasets.slices import SourceSlice
from automedbench.errors import InfrastructureError
from automedbench.files import sha256_file, write_bytes, write_record
from automedbench.metrics.image_quality import psnr, ssim
from automedbench.records import CaseEntry
from automedbench.tracks import track_settings
from automedbench.tracks._cases import file_entry
from automedbench.tracks._enhancement_bands import BANDS, BaselineBands, make_bands
from automedbench.tracks._enhancement_baselines import RECIPES, outputs
from automedbench.tracks._enhancement_settings import Baseline, Settings
from automedbench.tracks._enhancement_truth import (
    RANGES,
    REFERENCE,
    SPLIT,
    SplitCase,
    SplitRecord,
    ranges_table,
    usable_reference,
)
from automedbench.untrusted.npy import npy_bytes

Image = NDArray[np.float32]
_TOOLS = ("numpy", "pillow", "scikit-image")


@dataclass(frozen=True)
class _Pair:
    """One case as it was made, in memory while it is measured and written."""

    source: SourceSlice
    reference: Image
    input: Image
    data_range: float


def stage_slices(card: TaskCard, slices: list[SourceSlice], public: Path, private: Path) -> list[CaseEntry]:
    """Choose cases, write inputs, references, ranges, baseline bands and the split record.

    Raises InfrastructureError for images that cannot be scored: not finite, constant, too small, of another shape.
    """
    settings: Settings = track_settings(card)
    degradation = parse_degradation(card.staging.degradation, card.id)
    entries: list[CaseEntry] = []
    splits: dict[str, SplitCase] = {}
    quality: list[dict[str, Baseline]] = []
    for case, source in choose_slices(card, slices).items():
        pair = _make(card, settings, degradation, case, source)
        entries.append(_write(card, case, pair, public, private))
        splits[case] = _split_case(pair)
        if not settings.baselines:
            quality.append(_measured(settings, degradation, pair))
    ranges = {case: item.data_range for case, item in splits.items()}
    write_bytes(private / RANGES, ranges_table(ranges).encode())
    write_record(private / BANDS, _bands(card, settings, degradation, quality))
    write_record(private / SPLIT, _split_record(card, degradation, splits))
    return entries


def choose_slices(card: TaskCard, slices: list[SourceSlice]) -> dict[str, SourceSlice]:
    """Case id → image: at most one per subject, in an order that depends on seed and image id alone.

    Raises InfrastructureError when there are fewer subjects than the card asks for.
    """
    sampling = card.staging.sampling
    by_id = {item.id: item for item in slices}
    first: dict[str, SourceSlice] = {}
    for name in shuffled(by_id.keys(), sampling.seed):
        first.setdefault(by_id[name].subject, by_id[name])
    count = len(first) if sampling.count is None else sampling.count
    if count > len(first):
        raise InfrastructureError(
            f"{card.id} asks for {count} cases, one per subject, but the data holds {len(first)} subjects.\n{TOO_FEW}"
        )
    chosen = list(first.values())[:count]
    return dict(zip(case_ids(card.staging.case_prefix, len(chosen)), chosen, strict=True))


def _make(card: TaskCard, settings: Settings, degradation: Degradation, case: str, source: SourceSlice) -> _Pair:
    reference = source.pixels()
    problem = usable_reference(reference)
    if problem is None and settings.output_shape not in (None, reference.shape):
        problem = f"has shape {reference.shape}, not the card's {settings.output_shape}"
    if problem is not None:
        raise InfrastructureError(f"{source.path} {problem}.\nLeave it out of the data, or correct the card's options.")
    random = generator(card.id, case, card.staging.sampling.seed)
    degraded = degrade(reference, degradation, random)
    span = float(reference.max()) - float(reference.min())
    return _Pair(source, reference, degraded, settings.data_range or span)


def _write(card: TaskCard, case: str, pair: _Pair, public: Path, private: Path) -> CaseEntry:
    given, held_out = npy_bytes(pair.input), npy_bytes(pair.reference)
    name = card.inputs[0].file
    write_bytes(public / case / name, given)
    write_bytes(private / case / REFERENCE, held_out)
    return CaseEntry(
        id=case,
        inputs={name: file_entry(given)},
        private={REFERENCE: file_entry(held_out)},
        geometry={"input_shape": list(pair.input.shape), "output_shape": list(pair.reference.shape)},
    )


def _measured(settings: Settings, degradation: Degradation, pair: _Pair) -> dict[str, Baseline]:
    """Quality of each baseline on one case."""
    offset, span = settings.offset, pair.data_range
    return {
        name: Baseline(
            mean_ssim=ssim(image + offset, pair.reference + offset, data_range=span),
            mean_psnr=psnr(image, pair.reference, data_range=span),
        )
        for name, image in outputs(pair.input, pair.reference.shape, degradation).items()
    }


def _bands(
    card: TaskCard, settings: Settings, degradation: Degradation, quality: list[dict[str, Baseline]]
) -> BaselineBands:
    if settings.baselines:
        return make_bands(card.id, settings.baselines, classical=settings.classical, source="published")
    means = {name: _mean(each[name] for each in quality) for name in quality[0]}
    return make_bands(card.id, means, classical="classical", source="computed", recipes=RECIPES[degradation.kind])


def _mean(values: Iterable[Baseline]) -> Baseline:
    rows = np.array([(each.mean_ssim, each.mean_psnr) for each in values])
    return Baseline(mean_ssim=float(rows[:, 0].mean()), mean_psnr=float(rows[:, 1].mean()))


def _split_case(pair: _Pair) -> SplitCase:
    return SplitCase(
        image_id=pair.source.id,
        subject=pair.source.subject,
        source_sha256=sha256_file(pair.source.path),
        data_range=pair.data_range,
    )


def _split_record(card: TaskCard, degradation: Degradation, cases: dict[str, SplitCase]) -> SplitRecord:
    sampling = card.staging.sampling
    return SplitRecord(
        split=sampling.split,
        seed=sampling.seed,
        rule=sampling.rule,
        degradation=degradation.model_dump(mode="json"),
        tools={name: version(name) for name in _TOOLS},
        cases=cases,
    )
