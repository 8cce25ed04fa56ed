"""Problems of raw data: errors with what to do, which readers of different forms say alike, and places to look at."""

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


def one_place(raw: Path, pattern: str) -> Path:
    """The one file or folder that a pattern finds; where nothing is found, the pattern itself, for the message.

    Raises InfrastructureError when there are several.
    """
    found = sorted(raw.glob(pattern))
    if len(found) > 1:
        raise unexpected(raw, f"holds {len(found)} places that match '{pattern}'; one is needed")
    return found[0] if found else raw / pattern
