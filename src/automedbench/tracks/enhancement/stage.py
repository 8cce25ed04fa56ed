"""Staging of enhancement cases from source images: chosen, degraded, measured against simple baselines, frozen."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import sha256_file, write_bytes, write_record
from automedbench.base.records import CaseEntry, Model
from automedbench.base.untrusted.npy import npy_bytes
from automedbench.base.workers import map_in_order
from automedbench.base.yamlfile import validate
from automedbench.datasets import get_reader
from automedbench.datasets.forms.degradation import (
    Degradation,
    UpstreamDegradation,
    degrade,
    generator,
    parse_degradation,
)
from automedbench.datasets.forms.slices import SliceOrigin, SourceSlice
from automedbench.datasets.sampling import assign_case_ids, draw_cases, shuffle_sources, too_few
from automedbench.metrics.image_quality import psnr, ssim
from automedbench.tracks import track_settings
from automedbench.tracks.common.staging import StagedCase, csv_bytes, write_case, write_split
from automedbench.tracks.enhancement import truth
from automedbench.tracks.enhancement.baselines import RECIPES, outputs
from automedbench.tracks.enhancement.settings import BaselineQuality, EnhancementSettings

Image = NDArray[np.float32]
_TOOLS = ("numpy", "pillow", "scikit-image")


class EnhancementSampling(Model):
    """``staging.sampling.options`` of an enhancement card."""

    per_subject: int = Field(1, ge=1, description="so many slices of one patient at most")


@dataclass(frozen=True)
class _SlicePair:
    """One case as it was made, in memory while it is measured and written."""

    source: SourceSlice
    origin: SliceOrigin
    reference: Image
    input: Image
    data_range: float


@dataclass(frozen=True)
class _StagedSlice:
    """Record of a case whose files are written; ``quality`` of each baseline where bands are computed."""

    entry: CaseEntry
    origin: Mapping[str, Any]
    remarks: tuple[str, ...]
    quality: dict[str, BaselineQuality] | None


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Write each case's degraded input and its reference, data ranges, baseline bands and the split record.

    Raises InfrastructureError for raw data that is absent, unreadable or cannot be scored.
    """
    return stage_slices(card, get_reader(card.staging.reader)(raw, card), public, private)


def stage_slices(card: TaskCard, slices: list[SourceSlice], public: Path, private: Path) -> list[CaseEntry]:
    """Choose cases, write inputs, references, ranges, baseline bands and the split record.

    Raises InfrastructureError for images that cannot be scored: not finite, constant, too small, of another shape.
    """
    settings: EnhancementSettings = track_settings(card)
    degradation = parse_degradation(card.staging.degradation, card.id)
    chosen = draw_cases(card, slices, choose_slices, lambda found: found.values())

    def one(case: str) -> _StagedSlice:
        pair = _make(card, settings, degradation, case, chosen[case])
        staged = _staged(card, pair)
        quality = None if settings.baselines else _measured(degradation, pair)
        return _StagedSlice(write_case(public, private, case, staged), staged.origin, pair.origin.remarks, quality)

    staged = map_in_order(one, chosen)
    origins = {each.entry.id: each.origin for each in staged}
    remarks = list(dict.fromkeys(remark for each in staged for remark in each.remarks))
    quality = [each.quality for each in staged if each.quality is not None]
    ranges = ((case, repr(origin["data_range"])) for case, origin in origins.items())
    write_bytes(private / truth.RANGES, csv_bytes(["patient_id", "data_range"], ranges))
    write_record(private / truth.BANDS, _bands(card, settings, degradation, quality))
    write_split(
        private,
        card,
        "enhancement-split/1",
        origins,
        degradation=degradation.model_dump(mode="json"),
        tools={name: version(name) for name in _TOOLS},
        remarks=remarks,
    )
    for remark in remarks:
        logging.getLogger(__name__).warning("%s", remark)
    return [each.entry for each in staged]


def choose_slices(card: TaskCard, slices: list[SourceSlice]) -> dict[str, SourceSlice]:
    """Case id → image: one per subject (or so many as the card says), in an order made of seed and image id alone.

    Raises InfrastructureError when there are fewer subjects than the card asks for.
    """
    sampling = card.staging.sampling
    options = validate(sampling.options, EnhancementSampling, card.id, "staging.sampling.options")
    taken: Counter[str] = Counter()
    usable = []
    for item in shuffle_sources(slices, sampling.seed):
        taken[item.subject] += 1
        if taken[item.subject] <= options.per_subject:
            usable.append(item)
    count = len(usable) if sampling.count is None else sampling.count
    if count > len(usable):
        share = "one per subject" if options.per_subject == 1 else f"at most {options.per_subject} per subject"
        raise too_few(card, f"{share}, but the data holds {len(taken)} subjects")
    return assign_case_ids(card, usable[:count])


def _make(
    card: TaskCard, settings: EnhancementSettings, degradation: Degradation, case: str, source: SourceSlice
) -> _SlicePair:
    reference = source.pixels()
    problem = truth.usable_reference(reference)
    if problem is None and settings.output_shape not in (None, reference.shape):
        problem = f"has shape {reference.shape}, not the card's {settings.output_shape}"
    if problem is not None:
        raise _unusable(source, problem)
    if isinstance(degradation, UpstreamDegradation):
        degraded = _given(card, source, reference)
    else:
        degraded = degrade(reference, degradation, generator(card.id, case, card.staging.sampling.seed))
    span = float(reference.max()) - float(reference.min())
    return _SlicePair(source, source.source, reference, degraded, settings.data_range or source.data_range or span)


def _given(card: TaskCard, source: SourceSlice, reference: Image) -> Image:
    """The degraded image that upstream has of this slice."""
    if source.degraded is None:
        raise ConfigError(
            [f"{card.id}: staging.degradation: 'upstream' needs a reader that finds the data set's degraded images"]
        )
    degraded = source.degraded()
    if degraded.shape != reference.shape or not np.isfinite(degraded).all():
        raise _unusable(source, f"has a degraded image of shape {degraded.shape} or with values that are not finite")
    if np.array_equal(degraded, reference):
        raise _unusable(source, "equals its degraded image")
    return degraded


def _unusable(source: SourceSlice, problem: str) -> InfrastructureError:
    return InfrastructureError(f"{source.path} {problem}.\nLeave it out of the data, or correct the card's options.")


def _staged(card: TaskCard, pair: _SlicePair) -> StagedCase:
    return StagedCase(
        given={card.inputs[0].file: npy_bytes(pair.input)},
        held_out={truth.REFERENCE: npy_bytes(pair.reference)},
        origin={
            "image_id": pair.source.id,
            "subject": pair.source.subject,
            "source_sha256": sha256_file(pair.origin.file),
            "data_range": pair.data_range,
        },
        geometry={"input_shape": list(pair.input.shape), "output_shape": list(pair.reference.shape)},
    )


def _measured(degradation: Degradation, pair: _SlicePair) -> dict[str, BaselineQuality]:
    """Quality of each baseline on one case."""
    return {
        name: BaselineQuality(
            mean_ssim=ssim(image, pair.reference, data_range=pair.data_range),
            mean_psnr=psnr(image, pair.reference, data_range=pair.data_range),
        )
        for name, image in outputs(pair.input, pair.reference.shape, degradation).items()
    }


def _bands(
    card: TaskCard, settings: EnhancementSettings, degradation: Degradation, quality: list[dict[str, BaselineQuality]]
) -> truth.BaselineBands:
    if settings.baselines:
        return truth.make_bands(card.id, settings.baselines, classical=settings.classical, source="published")
    means = {name: _mean(each[name] for each in quality) for name in quality[0]}
    return truth.make_bands(card.id, means, classical="classical", source="computed", recipes=RECIPES[degradation.kind])


def _mean(values: Iterable[BaselineQuality]) -> BaselineQuality:
    rows = np.array([(each.mean_ssim, each.mean_psnr) for each in values])
    return BaselineQuality(mean_ssim=float(rows[:, 0].mean()), mean_psnr=float(rows[:, 1].mean()))
