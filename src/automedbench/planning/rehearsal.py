"""Rehearsal: made-up data and models instead of real ones; the only door to the package that makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from automedbench.agent.models.scripted import ScriptedTurn

if TYPE_CHECKING:
    from automedbench_rehearsal.model_server.server import ScriptedServer


def has_stand_in(dataset: str) -> bool:
    """Check for a tiny synthetic stand-in of a data set (``dataset.name`` of its card)."""
    from automedbench_rehearsal.upstreams import has_fixture

    return has_fixture(dataset)


def make_up_resources(folder: Path) -> dict[str, Path]:
    """Make synthetic resources of metrics below ``folder``: name below ``resources`` → file or folder."""
    from automedbench_rehearsal.making.models import write_models

    write_models(folder)
    return {path.name: path for path in folder.iterdir()}


def scripted_model(turns: Sequence[ScriptedTurn], keys: Sequence[str]) -> ScriptedServer:
    """A server on this machine that plays a model, in a block; only requests with one of the keys are answered."""
    from automedbench_rehearsal.model_server.server import ScriptedServer

    return ScriptedServer(turns, keys=keys)


def serve_stand_in(dataset: str) -> AbstractContextManager[tuple[Mapping[str, str], Path | None]]:
    """Mirrors on this machine that offer the stand-in, and a folder where people get the data by hand, in a block.

    Raises ConfigError for a data set that has none.
    """
    from automedbench_rehearsal.upstreams.server import stand_in

    return stand_in(dataset)
