"""Staging of synthesis cases from source volumes: filtered, turned to RAS, degraded or paired, measured, written."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import sha256_file
from automedbench.base.records import CaseEntry, Model, Number
from automedbench.base.untrusted.nifti import VolumeHeader
from automedbench.base.yamlfile import validate
from automedbench.datasets import get_reader
from automedbench.datasets.forms.degradation import ZLinear, degrade_z
from automedbench.datasets.forms.volumes import SourceVolume, Volume, load_volume, same_grid, write_volume
from automedbench.datasets.sampling import assign_case_ids, draw_cases, shuffle_sources
from automedbench.tracks import track_settings
from automedbench.tracks.common.staging import Content, StagedCase, choose_fit, stage_cases
from automedbench.tracks.synthesis.geometry import Geometry, pack_probes, probe_places
from automedbench.tracks.synthesis.measures import Measures, compare
from automedbench.tracks.synthesis.settings import SynthesisSettings

TRUTH, MASK, BASELINE = "truth.nii.gz", "region.nii.gz", "baseline.json"
Array = NDArray[Any]


class SynthesisSampling(Model):
    """Options of a synthesis card in ``staging.sampling.options``: which truth volumes are fit to be scored."""

    min_slices: int = Field(32, ge=1)
    min_in_plane: int = Field(64, ge=7, description="voxels along each of the other two axes")
    lowest_at_most: float = Field(-500, description="HU: there is air")
    highest_at_least: float = Field(200, description="HU: there is bone or contrast")


class InputBaseline(Model):
    """``private/<case>/baseline.json``: what the untouched public input scores."""

    schema_: Literal["automedbench/synthesis-baseline/1"] = Field("automedbench/synthesis-baseline/1", alias="schema")
    ssim: Number
    mae: Number


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Choose subjects, write each one's inputs and truth, its baseline, and the split record.

    One subject per worker is in memory at a time. Raises InfrastructureError for volumes that cannot be read or do not
    fit together, and when too few are fit to be scored.
    """
    volumes: list[SourceVolume] = get_reader(card.staging.reader)(raw, card)
    settings: SynthesisSettings = track_settings(card)
    degradation = read_degradation(card)
    options = validate(card.staging.sampling.options, SynthesisSampling, card.id, "staging.sampling.options")
    chosen, passed_over = draw_cases(
        card,
        volumes,
        lambda of, rest: choose_fit(
            of,
            shuffle_sources(rest, of.staging.sampling.seed),
            lambda source: unfit(load_volume(source.target).values, options),
        ),
        lambda found: found[0],
    )
    return stage_cases(
        public,
        private,
        card,
        "synthesis-split/1",
        assign_case_ids(card, chosen),
        lambda _, source: _staged(card, source, degradation, settings),
        degradation=card.staging.degradation,
        passed_over=passed_over,
    )


def read_degradation(card: TaskCard) -> ZLinear | None:
    """Degradation from truth to input; None where the data has the input. Raises ConfigError for an unknown one."""
    given = card.staging.degradation
    if given is None or given.get("kind") == "upstream":
        return None
    return validate(given, ZLinear, card.id, "staging.degradation")


def unfit(values: Array, options: SynthesisSampling) -> str | None:
    """Reason that a truth volume cannot be scored meaningfully; None when it can."""
    width, height, depth = values.shape
    if depth < options.min_slices or min(width, height) < options.min_in_plane:
        return f"has shape {values.shape}, less than {options.min_in_plane}² × {options.min_slices}"
    lowest, highest = float(values.min()), float(values.max())
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        return "has values that are not finite"
    if lowest > options.lowest_at_most or highest < options.highest_at_least:
        return f"holds {lowest:g} to {highest:g}, too little of the HU scale"
    return None


def _staged(
    card: TaskCard, source: SourceVolume, degradation: ZLinear | None, settings: SynthesisSettings
) -> StagedCase:
    # A degraded input of upstream's is given as it is, so its truth is not turned either.
    truth = load_volume(source.target, turned=source.input is None or source.mask is not None)
    files = [file.file for file in card.inputs]
    held_out = {TRUTH: truth.values}
    if degradation is not None:
        _require_roles(card, 1, source.input is None, "one volume per subject")
        given = {files[0]: degrade_z(truth.values, degradation.factor)}
        if np.array_equal(given[files[0]], truth.values):
            raise _unusable(source.target, "is the same in all its slices, so its degraded copy would be the answer")
    elif source.input is not None and source.mask is None:
        _require_roles(card, 1, card.staging.degradation is not None, "input and target")
        given = {files[0]: _on_grid(source.input, source.target, truth, turned=False)}
    else:
        _require_roles(card, 2, source.input is not None and source.mask is not None, "input, target and mask")
        other, mask = _paired(source, truth, settings)
        given = {files[0]: other, files[1]: mask}
        held_out[MASK] = mask
    baseline = {} if MASK in held_out else {BASELINE: _baseline(given[files[0]], truth.values, settings)}
    return StagedCase(
        given={name: _writer(values, truth) for name, values in given.items()},
        held_out={name: _writer(values, truth) for name, values in held_out.items()} | baseline,
        origin={"source": source.id, "sha256": {role: sha256_file(path) for role, path in source.files.items()}},
        geometry=_geometry(truth, given[files[0]]).model_dump(mode="json"),
    )


def _require_roles(card: TaskCard, n_inputs: int, fits: bool, wanted: str) -> None:
    if len(card.inputs) != n_inputs or not fits:
        what = "with" if card.staging.degradation else "without"
        raise ConfigError(
            [f"{card.id}: staging: {what} a degradation this track needs {n_inputs} inputs and a reader of {wanted}"]
        )


def _paired(source: SourceVolume, truth: Volume, settings: SynthesisSettings) -> tuple[Array, Array]:
    """Input and mask (0 and 1) of a paired subject on the target's grid."""
    assert source.input is not None and source.mask is not None
    other, outline = (_on_grid(path, source.target, truth) for path in (source.input, source.mask))
    mask = (outline > 0.5).astype(np.uint8)
    if mask.sum(axis=(0, 1)).max() < settings.mask_min_voxels:
        raise _unusable(source.mask, f"has no slice with {settings.mask_min_voxels} voxels, so nothing would be scored")
    return other, mask


def _on_grid(path: Path, target: Path, truth: Volume, *, turned: bool = True) -> Array:
    """Values of a volume on the target's grid; raises InfrastructureError for another grid or values not finite."""
    volume = load_volume(path, turned=turned)
    if not same_grid(volume, truth):
        raise _unusable(path, f"is not on the grid of {target}")
    if not np.isfinite(volume.values).all():
        raise _unusable(path, "holds values that are not finite")
    return volume.values


def _baseline(given: Array, truth: Array, settings: SynthesisSettings) -> InputBaseline:
    slices = ((given[:, :, k], truth[:, :, k], None) for k in range(given.shape[2]))
    measured: Measures = compare(slices, settings)
    assert measured.mae is not None
    return InputBaseline(ssim=measured.score, mae=measured.mae)


def _geometry(truth: Volume, given: Array) -> Geometry:
    # As the header stores it, so that a prediction saved with the input's affine differs by nothing.
    affine = truth.affine.astype(np.float32).astype(np.float64)
    shape = (int(truth.values.shape[0]), int(truth.values.shape[1]), int(truth.values.shape[2]))
    values = given.ravel(order="F")[probe_places(given.size)]
    spacing = Volume(given, affine).spacing
    return Geometry(
        shape=shape,
        spacing=(spacing[0], spacing[1], spacing[2]),
        affine=tuple(tuple(row) for row in affine.tolist()),
        probes=pack_probes(values),
    )


def _writer(values: Array, grid: Volume) -> Content:
    """What writes values on the grid of a volume, both codes 1."""
    header = VolumeHeader(
        shape=grid.values.shape,
        dtype=values.dtype,
        affine=grid.affine,
        zooms=grid.spacing,
        slope=1.0,
        inter=0.0,
        offset=352,
        codes=(1, 1),
    )
    slices = (values[:, :, k].ravel(order="F") for k in range(values.shape[2]))
    return functools.partial(write_volume, blocks=slices, dtype=values.dtype, header=header)


def _unusable(path: Path, why: str) -> InfrastructureError:
    return InfrastructureError(f"{path} {why}.\nCheck the raw data of this subject, or remove its folder.")
