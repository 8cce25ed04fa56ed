"""A change behind an input whose date does not count is planned at once, also while that input is remade.

Snakemake does not look at steps below one that runs, as they run anyhow; but those behind ``ancient`` inputs do not
(https://github.com/snakemake/snakemake/issues/4166). While an image, staged data or a preflight was being remade, a
changed agent, a raised version, a deleted judgement and even new runs were hidden from that call.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from snakemake.dag import DAG


def plan_behind_ancient_inputs() -> None:
    """Correct the planning of Snakemake's class ``DAG`` in this process; a second call changes nothing."""
    update = DAG.update_needrun
    if hasattr(update, "__wrapped__"):
        return

    @functools.wraps(update)  # it decides what is to run; by ``bfs`` it finds the steps that it need not examine
    async def update_needrun(dag: Any, *arguments: Any, **options: Any) -> None:
        dag.bfs = lambda depending, *steps: type(dag).bfs(dag, _Followers(depending), *steps)
        try:
            await update(dag, *arguments, **options)
        finally:
            del dag.bfs

    DAG.update_needrun = update_needrun


class _Followers:
    """Step → the steps that run because it does: those that need a file of it whose date counts."""

    def __init__(self, depending: Mapping[Any, Mapping[Any, Any]]) -> None:
        self._depending = depending

    def __getitem__(self, step: Any) -> dict[Any, Any]:
        needed = self._depending[step].items()
        return {other: files for other, files in needed if not all(file.is_ancient for file in files)}
