"""A campaign named on a command line as for Snakemake: configuration files and single keys over config/config.yaml."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import load_yaml
from automedbench.campaign.load import Campaign
from automedbench.planning.load import plan

DEFAULT = Path("config/config.yaml")


def add_campaign_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which campaign is meant; the same names and meaning as Snakemake's."""
    parser.add_argument(
        "--configfile",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help=f"configuration files, each over the one before, all over {DEFAULT}; for the demo: demo/config.yaml",
    )
    parser.add_argument(
        "--config", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="single keys, over all files"
    )


def campaign_of(options: argparse.Namespace) -> Campaign:
    """The campaign that the options mean; raises ConfigError with every problem."""
    files = [*([DEFAULT] if DEFAULT.is_file() else []), *options.configfile]
    if not files:
        raise ConfigError([f"{DEFAULT}: file does not exist; run this in the repository's folder or give --configfile"])
    if missing := [str(file) for file in files if not file.is_file()]:
        hint = "--configfile takes every word behind it, so give other arguments before it"
        raise ConfigError([f"--configfile: file '{name}' does not exist ({hint})" for name in missing])
    return plan(merge([*(load_yaml(file) or {} for file in files), given_keys(options.config)]), files)


def options_of(configfiles: Sequence[Path | str], keys: Mapping[str, Any]) -> str:
    """The options that mean the same campaign, for a shell command; ``configfiles`` in the order of their weight."""
    shown = [os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else str(file) for file in configfiles]
    files = [file for file in shown if file != str(DEFAULT)] or [str(DEFAULT)]
    words = ["--configfile", *files]
    if keys:
        words += ["--config", *(f"{key}={_shown(value)}" for key, value in keys.items())]
    return shlex.join(words)


def _shown(value: Any) -> str:
    """A value as ``--config`` reads it."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def merge(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mappings over each other, also inside; anything else is replaced."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            if isinstance(value, Mapping):
                merged[key] = merge([below if isinstance(below, Mapping) else {}, value])
            else:
                merged[key] = value
    return merged


def given_keys(entries: Sequence[str]) -> dict[str, Any]:
    """``key=value`` entries as a configuration; values are read as Snakemake reads them."""
    keys = []
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not (equals and key.isidentifier()):
            raise ConfigError([f"--config: '{entry}' is not of the form key=value"])
        keys.append({key: _value(value)})
    return merge(keys)


def _value(text: str) -> Any:
    if text == "":
        return None
    readers: tuple[Callable[[str], Any], ...] = (int, float, _boolean, _yaml)
    for read in readers:
        try:
            return read(text)
        except (ValueError, yaml.YAMLError):
            continue
    return text


def _boolean(text: str) -> bool:
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    raise ValueError(text)


def _yaml(text: str) -> Any:
    return yaml.load(text, Loader=yaml.BaseLoader)
