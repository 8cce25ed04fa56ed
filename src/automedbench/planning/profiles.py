"""Profiles of Snakemake: what a profile says, and whether the command line took any of it away."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import load_yaml

Table = Mapping[str, Mapping[str, Any]]


def refuse_lost_resources(
    words: Sequence[str], environment: Mapping[str, str], kept: Table, find: Callable[[str], tuple[Path, Path] | None]
) -> None:
    """Raises ConfigError when ``--set-resources`` on the command line took values of the profile away.

    Snakemake lets it replace the profile's whole table: partition, account and memory of every rule would be gone.
    ``words`` are those of the command line, ``kept`` is the table that Snakemake goes by, and ``find`` gives folder and
    file of a profile.
    """
    profile = _option("--profile", words) or environment.get("SNAKEMAKE_PROFILE", "")
    if not profile or not any(word.partition("=")[0] == "--set-resources" for word in words):
        return
    found = find(profile)
    path = os.path.relpath(found[1]) if found else ""
    table = set_resources(load_yaml(Path(path))) if found else {}
    lost = [
        f"{rule}:{name}={value}"
        for rule, values in table.items()
        for name, value in values.items()
        if name not in kept.get(rule, {})
    ]
    if lost:
        raise ConfigError(
            [
                f"--set-resources: replaces the whole table of {path}; these would be lost: {', '.join(lost)}",
                f"Raise the value in {path} instead, or give these beside yours: {' '.join(lost)}",
            ]
        )


def set_resources(content: Any) -> Table:
    """The table ``set-resources`` of a profile; empty where there is none."""
    table = content.get("set-resources") if isinstance(content, dict) else None
    return {rule: values for rule, values in (table or {}).items() if isinstance(values, dict)}


def _option(name: str, words: Sequence[str]) -> str | None:
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None
