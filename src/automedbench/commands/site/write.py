"""The profile of a site as files: every line with its reason, and nothing replaced that may have been edited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from automedbench.base.files import write_text
from automedbench.commands.site.decide import ProfileDraft, ProfileLine

HEAD = """\
# `snakemake --profile {folder}`: this workflow on {cluster}.
# Written by `automedbench site`. Edit it as you like: a second call keeps what is here and writes its own beside it.
# Wall time, memory, CPUs and GPUs of a step are asked for by the rules, from the campaign's limits and its sandbox;
# docs/cluster.md says how to raise one of them.
"""
PARTITIONS = """\
# Where jobs go: the partition whose limits a job fits best, one with GPUs for those alone that ask for GPUs.
# nodes_reach_internet: yes, no or unknown, as you said with --network; `automedbench doctor` compares it with the
# campaign.
"""


def profile_text(decision: ProfileDraft, folder: str, cluster: str) -> str:
    """``config.yaml`` of the profile."""
    tables = {"stage_task": decision.of_staging, "run_agent": decision.of_a_run}
    lines = [*_lines(decision.top), "", "default-resources: # of steps that ask for nothing else"]
    lines += _lines(decision.defaults, 2)
    lines += ["", "set-threads:", "  stage_task: 4 # cases of a task at a time; as many as the rule asks CPUs for"]
    if any(tables.values()):
        lines += ["", "set-resources: # what differs from what the rules ask for"]
    for rule, entries in tables.items():
        if entries:
            lines += [f"  {rule}:", *_lines(entries, 4)]
    return HEAD.format(folder=folder, cluster=cluster) + "\n".join(lines) + "\n"


def partitions_text(decision: ProfileDraft, network: str) -> str:
    """``partitions.yaml``, which the executor reads; it passes over the first key."""
    lines = [f"nodes_reach_internet: {json.dumps(network)}", "", "partitions:"]
    for name, entries in decision.partitions.items():
        lines += [f"  {_scalar(name)}:" + ("" if entries else " {}"), *_lines(entries, 4)]
    return PARTITIONS + "\n".join(lines) + "\n"


def write_files(texts: dict[Path, str], *, force: bool) -> Iterable[str]:
    """Write the files and say what became of each.

    One that is there with another content is kept, and the new one is written beside it as ``<name>.new``, unless
    ``force``. Raises InfrastructureError when the folder cannot be written.
    """
    for path, text in texts.items():
        there = path.read_text("utf-8") if path.is_file() else None
        if there == text:
            yield f"{path}: as it was"
        elif there is None or force:
            write_text(path, text)
            yield f"{path}: written"
        else:
            new = path.with_name(f"{path.name}.new")
            write_text(new, text)
            yield f"{path}: kept, as it differs; the new one is {new.name} (`diff {path} {new}`, or --force)"


def _lines(entries: Sequence[ProfileLine], indent: int = 0) -> list[str]:
    return [f"{' ' * indent}{entry.key}: {_scalar(entry.value)} # {entry.why}" for entry in entries]


def _scalar(value: Any) -> str:
    """A value as YAML; JSON is a part of it. Plain words stay plain."""
    plain = isinstance(value, str) and value.replace("-", "").replace("_", "").replace(".", "").isalpha()
    return str(value) if plain and value.lower() not in _READ_OTHERWISE else json.dumps(value)


_READ_OTHERWISE = frozenset({"yes", "no", "on", "off", "true", "false", "null", "y", "n"})
