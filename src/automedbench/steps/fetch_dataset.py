"""Raw data of a data set with a receipt of every file: from the first of its sources that works."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.records import Receipt
from automedbench.campaign.record import CampaignRecord
from automedbench.datasets.download import fetch
from automedbench.datasets.download.access import Access, read_mirrors
from automedbench.planning.rehearsal import serve_stand_in


def fetch_dataset(campaign: CampaignRecord, dataset: str, *, check: bool = False) -> Receipt:
    """Fill ``<data.raw>/<dataset>``; in a rehearsal with a made-up stand-in, served on this machine.

    ``check``: read every file that is there, not only size and time. Raises ConfigError for an unknown data set or a
    wrong mirror, and what ``automedbench.datasets.download.fetch`` raises.
    """
    settings, card = campaign.settings, campaign.dataset_card(dataset)
    raw, override = Path(settings.data.raw, dataset), settings.datasets.get(dataset)
    offline, workers = settings.fetch.offline, settings.fetch.workers
    if settings.fixtures and override is None:
        with serve_stand_in(dataset) as (mirrors, own):
            access = Access(mirrors, stand_in=True, offline=offline, workers=workers)
            return fetch.fetch_dataset(card, own, raw, access, check=check)
    access = Access(read_mirrors(settings.fetch.mirrors), offline=offline, workers=workers)
    return fetch.fetch_dataset(card, Path(override.path) if override else None, raw, access, check=check)
