"""Container image from its definition file and its pinned list of packages."""

from __future__ import annotations

import platform
from pathlib import Path

from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.container import image as images


def build_image(campaign: CampaignRecord, image: str, *, download_only: bool = False) -> None:
    """Write ``<containers.folder>/<image>.sif`` and its record; ``download_only``: fill the wheels and stop.

    Raises MissingDataError and InfrastructureError as ``automedbench.sandbox.container.image`` does.
    """
    settings = campaign.settings
    folder = Path(settings.containers.folder)
    recipe = images.ImageRecipe(
        definition=Path(settings.definition(image)),
        requirements=Path(settings.requirements(image)),
        base=settings.image_base(image),
        wheels=folder / "wheels",
        machine=platform.machine(),
    )
    if download_only:
        images.download_wheels(recipe)
    else:
        images.build_image(recipe, folder / f"{image}.sif")
