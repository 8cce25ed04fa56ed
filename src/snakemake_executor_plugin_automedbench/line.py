"""The line of sbatch for a job: of the executor, and of `first-run`, which asks for it through a process of its own."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string


class JobResources(dict[str, Any]):
    """Resources as the plugin reads them: by key or by attribute."""

    __getattr__ = dict.__getitem__


def submission_line(
    job: Any, parameters: Mapping[str, Any], settings: Any, script: str, failed_nodes: Collection[str] = ()
) -> str:
    """The shell's line that submits a script as a job with these resources."""
    call = get_submit_command(job, dict(parameters), settings=settings, failed_nodes=failed_nodes)
    return f"{call} {set_gres_string(job)} --wrap {shlex.quote(script)}"


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    job = SimpleNamespace(resources=JobResources(asked["resources"]), name=asked["name"], threads=1)
    print(submission_line(job, asked["parameters"], SimpleNamespace(**asked["settings"]), asked["script"]))
