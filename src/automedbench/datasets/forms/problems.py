"""Problems of raw data: errors with what to do, which readers of different forms say alike, and where files are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from automedbench.base.errors import InfrastructureError, MissingDataError


def missing(path: Path, what: str = "") -> MissingDataError:
    """The error of a file (``what`` it is) that should be there."""
    return incomplete(f"{path}{f' ({what})' if what else ''} does not exist")


def incomplete(why: str, where: str = "staging") -> MissingDataError:
    """The error of raw data that lacks something, or is laid out otherwise than the card's key ``where`` says."""
    return MissingDataError(
        f"{why}.\nThe raw data is incomplete (delete its folder and fetch it again: `snakemake prepare`), or has "
        f"another layout: correct the card's {where}."
    )


def unreadable(path: Path | str, why: str) -> InfrastructureError:
    """The error of a file that is damaged."""
    return InfrastructureError(f"{path}: {why}.\nDelete the file and fetch the data again (`snakemake prepare`).")


def unexpected(path: Path, why: str) -> InfrastructureError:
    """The error of a file that is not what the card's options say."""
    return InfrastructureError(
        f"{path}: {why}.\nCorrect staging.options of the card, or delete the file and fetch the data again."
    )


def last_line(error: BaseException) -> str:
    """The last line of a library's message, which says what was wrong; its kind where there is none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:160]


def one_place(raw: Path, pattern: str) -> Path:
    """The one file or folder that a pattern finds; where nothing is found, the pattern itself, for the message.

    Raises InfrastructureError when there are several.
    """
    found = sorted(raw.glob(pattern))
    if len(found) > 1:
        raise unexpected(raw, f"holds {len(found)} places that match '{pattern}'; one is needed")
    return found[0] if found else raw / pattern


def first_file(paths: Iterable[Path], what: str = "") -> Path:
    """The first of these places where there is a file; raises MissingDataError, naming the first place, for none."""
    places = list(paths)
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise missing(places[0], what)
    return found


def read_text(path: Path, what: str, most: int) -> str:
    """A text of at most so many bytes, with plain line breaks; raises as ``missing`` and ``unreadable`` say."""
    try:
        if path.stat().st_size > most:
            raise unreadable(path, f"is larger than {most} bytes")
        text = path.read_bytes().decode().removeprefix("\ufeff")
    except FileNotFoundError as error:
        raise missing(path, what) from error
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, f"is not a readable text: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
