"""Profiles of Snakemake: what a profile says, and whether the command line took any of it away."""

from __future__ import annotations

import argparse
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
    """Raise ConfigError when ``--set-resources`` on the command line took values of the profile away.

    Snakemake lets it replace the profile's whole table: partition, account and memory of every rule would be gone.
    ``words`` are those of the command line, ``kept`` is the table that Snakemake goes by, and ``find`` gives folder and
    file of a profile.
    """
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--profile", default=environment.get("SNAKEMAKE_PROFILE", ""))
    profile = options.parse_known_args(words[1:])[0].profile
    replaced = any(word.partition("=")[0] == "--set-resources" for word in words)
    if not (replaced and profile and (found := find(profile))):
        return
    path = os.path.relpath(found[1])
    lost = [
        f"{rule}:{name}={value}"
        for rule, values in set_resources(load_yaml(Path(path))).items()
        for name, value in values.items()
        if name not in kept.get(rule, {})
    ]
    if lost:
        raise ConfigError(
            [
                f"--set-resources: replaces the whole table of {path}; these would be lost: {', '.join(lost)}",
                f"Raise the value in {path} instead, or pass these in addition to yours: {' '.join(lost)}",
            ]
        )


def set_resources(content: Any) -> Table:
    """The table ``set-resources`` of a profile; empty where there is none."""
    table = content.get("set-resources") if isinstance(content, dict) else None
    return {rule: values for rule, values in (table or {}).items() if isinstance(values, dict)}
