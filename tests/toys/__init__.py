"""A tiny but complete task of every track, with a perfect submission and a corpus of hostile ones.

One module per track: ``CARD``, ``make_raw``, ``perfect``, ``CEILING``, ``HALF``, ``RESOURCES`` and ``HOSTILE``. The
contract tests run over every module here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from automedbench.base.records import Manifest


@dataclass(frozen=True)
class Hostile:
    """One bad output of one case and the verdict it gets in ``submission.json``.

    ``write(outputs, case, manifest, public)`` puts it below ``outputs``, the agent's ``agents_outputs`` folder.
    ``code`` is the code of one of the case's problems; None for an output that is accepted without any.
    """

    id: str
    write: Callable[[Path, str, Manifest, Path], None]
    status: Literal["valid", "malformed", "missing"]
    code: str | None
