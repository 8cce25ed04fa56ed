"""How Snakemake's steps are executed: several in one process where they are cheap, and without a Snakemake on a node.

Snakemake starts a process for each step, and on Slurm two of itself around it. Both executors here keep its plan, its
single steps and its records of them, and change only who does the work: ``together`` does a list of steps, ``batches``
decides which steps share a list, ``local`` and ``slurm`` give lists to a process of this machine or to a Slurm job.
``ancient`` corrects what is planned.
"""

from __future__ import annotations

from collections.abc import Collection


def execute_with(cheap: Collection[str]) -> None:
    """Let Snakemake's executors ``local`` and ``slurm`` be the ones of this package; ``cheap``: rules that share.

    Its planning is corrected as well (``ancient``).

    Called while a Snakefile is read, which is before Snakemake makes an executor. The plugins keep their names, options
    and settings.
    """
    from snakemake.dag import DAG
    from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

    from automedbench.engine import local
    from automedbench.engine.ancient import look_behind_ancient

    look_behind_ancient(DAG)
    local.Executor.cheap = frozenset(cheap)
    plugins = ExecutorPluginRegistry().plugins
    plugins["local"].executor = local.Executor
    if "slurm" in plugins:
        from automedbench.engine import slurm

        slurm.Executor.cheap = frozenset(cheap)
        plugins["slurm"].executor = slurm.Executor
