"""Data that only a person may get: forms, signatures, e-mails."""

from __future__ import annotations

from typing import NoReturn

from automedbench.base.cards import Source
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.access import describe
from automedbench.datasets.download.collecting import Collector


def plan(source: Source, collector: Collector) -> NoReturn:
    """Always raises MissingDataError."""
    raise MissingDataError(f"{describe(source)} must be fetched by hand")
