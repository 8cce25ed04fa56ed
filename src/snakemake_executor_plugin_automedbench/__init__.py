"""Snakemake's executor ``automedbench``: steps on this machine, cheap ones of a run in one process.

Snakemake starts a process for each step, and on Slurm two of itself around it. This executor and ``automedbench-slurm``
(in the package beside this one) keep its plan, its single steps and its records of them, and change only who works:
``together`` executes a list of steps, ``batches`` decides which steps share a list, ``local`` and ``slurm`` give lists
to a process of this machine or to a Slurm job. A rule whose resource ``batched`` is 1 has cheap steps. ``ancient``
corrects what is planned, with any executor.
"""

from snakemake.executors.local import common_settings

from snakemake_executor_plugin_automedbench.local import LocalExecutor as Executor

__all__ = ["Executor", "common_settings"]
