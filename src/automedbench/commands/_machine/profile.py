"""A profile of Snakemake, as the doctor and `first-run` read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import load_yaml, suggestion
from automedbench.commands._machine.examine import Host
from automedbench.planning.profiles import set_resources


@dataclass(frozen=True)
class Profile:
    """A profile as it stands in its file."""

    path: Path
    content: Mapping[str, Any]

    def job(self, rule: str, requested: Mapping[str, Any]) -> dict[str, Any]:
        """Resources of a rule's jobs: the profile's for the rule, what the rule asks for, the profile's defaults."""
        return {
            **(self.content.get("default-resources") or {}),
            **requested,
            **set_resources(self.content).get(rule, {}),
        }


def read_profile(root: Path, name: str = "") -> Profile:
    """The profile of that name, else the one that `automedbench site` wrote, else the shipped one.

    Raises ConfigError when it is not there, with those that are, or is not valid YAML.
    """
    there = [file.parent.relative_to(root).as_posix() for file in sorted(root.glob("profiles/*/config.yaml"))]
    path = Path(name or ("profiles/site" if "profiles/site" in there else "profiles/slurm"))
    path = path / "config.yaml" if (root / path).is_dir() else path
    if name and not (root / path).is_file():
        raise ConfigError([f"--profile: no profile '{name}'{suggestion(name, there)}; there are: {', '.join(there)}"])
    return Profile(path, load_yaml(root / path) or {})


def slurm_profile(host: Host) -> Profile | None:
    """The profile that was named, or that `site` wrote, where its steps become jobs; else None."""
    if not host.profile and not (host.root / "profiles/site/config.yaml").is_file():
        return None
    profile = read_profile(host.root, host.profile)
    return profile if "slurm" in str(profile.content.get("executor")) else None
