"""Errors of raw data, with what to do; readers of different forms say the same things."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.errors import InfrastructureError, MissingDataError


def missing(path: Path, what: str = "") -> MissingDataError:
    """The error of a file (``what`` it is) that should be there."""
    return MissingDataError(
        f"{path}{f' ({what})' if what else ''} does not exist.\n"
        "The raw data is incomplete: delete its folder and fetch it again (`snakemake prepare`)."
    )


def unreadable(path: Path, why: str) -> InfrastructureError:
    """The error of a file that is damaged."""
    return InfrastructureError(f"{path}: {why}.\nDelete the file and fetch the data again (`snakemake prepare`).")


def unexpected(path: Path, why: str) -> InfrastructureError:
    """The error of a file that is not what the card's options say."""
    return InfrastructureError(
        f"{path}: {why}.\nCorrect staging.options of the card, or delete the file and fetch the data again."
    )
