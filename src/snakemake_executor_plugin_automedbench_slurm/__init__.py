"""Snakemake's executor ``automedbench-slurm``: steps as Slurm jobs, cheap ones of a run in one job.

A package of its own, as Snakemake finds executors by the names of packages, and one package is either local or not.
"""

from snakemake_executor_plugin_slurm import common_settings

from snakemake_executor_plugin_automedbench.slurm import SlurmExecutor as Executor

__all__ = ["Executor", "common_settings"]
