"""LPIPS of a task: whether it is computed, and what is said when it is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.metrics.perceptual import MIN_SIDE, Lpips, lpips_problems
from automedbench.tracks import track_settings
from automedbench.tracks.enhancement.settings import Settings

RESOURCE = "lpips"


def missing_for(settings: Settings, resources: Mapping[str, Path]) -> list[str]:
    """What a card that requires LPIPS lacks; a card that does not require it lacks nothing."""
    return lpips_problems(resources.get(RESOURCE)) if settings.lpips == "required" else []


def load_lpips(
    settings: Settings, resources: Mapping[str, Path], shapes: set[tuple[int, int]]
) -> tuple[Lpips | None, list[str]]:
    """The metric, or None and the reason as a note.

    Raises MissingDataError when the card requires it and something is missing, InfrastructureError for weights that
    are there and cannot be used.
    """
    if settings.lpips == "off":
        return None, []
    problems = lpips_problems(resources.get(RESOURCE))
    if min(min(shape) for shape in shapes) < MIN_SIDE:
        problems.append(f"LPIPS: images with a side below {MIN_SIDE} pixels have none")
    if problems:
        if settings.lpips == "required":
            raise MissingDataError("\n".join(problems[:3]))
        return None, [f"{'; '.join(problems)}. The value is null and influences nothing."]
    try:
        return Lpips.load(resources[RESOURCE]), []
    except ValueError as error:
        raise InfrastructureError(f"{error}.\nReplace the files, or set metric.settings.lpips to off.") from error


def preflight(card: TaskCard, resources: Mapping[str, Path]) -> list[str]:
    """What is missing for LPIPS where the card requires it."""
    return missing_for(track_settings(card), resources)
