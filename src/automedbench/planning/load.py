"""Loading a campaign to plan it: everything that could stop it is found now, with the file that it stands in."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import load_yaml, parse_yaml
from automedbench.campaign.load import CONFIG, Campaign, load_campaign
from automedbench.tracks import judges_answers, track_settings


def plan(config: dict[str, Any], configfiles: Sequence[str | Path]) -> Campaign:
    """The campaign of a merged configuration; raises ConfigError with every problem of config, agents and cards."""
    try:
        campaign = load_campaign(config)
    except ConfigError as error:
        raise ConfigError(name_files(error.problems, config, list(map(str, configfiles)))) from error
    if problems := [*_wrong_metrics(campaign)] or [*_missing_judge(campaign)]:
        raise ConfigError(problems)
    return campaign


def require_writable(results: str) -> None:
    """Raise ConfigError where this user cannot write into the folder ``results``, or make it."""
    place = Path(results).absolute()
    while not os.path.exists(place):  # also below a folder that is closed to this user
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError([f"results: {place} cannot be written by this user. Name another folder, or open this one"])


def _wrong_metrics(campaign: Campaign) -> list[str]:
    """Errors in the cards' metric settings, found by their tracks."""
    problems: list[str] = []
    for task, card in campaign.cards.items():
        try:
            track_settings(card)
        except ConfigError as error:
            problems += [f"{campaign.card_paths[task]}: {each.removeprefix(f'{task}: ')}" for each in error.problems]
    return problems


def _missing_judge(campaign: Campaign) -> list[str]:
    """Tasks that are scored by a model when there is none."""
    return [
        f"config: answer_judge: is missing, but '{task}' is scored by one (scoring: judge in its card)"
        for task in ([] if campaign.config.answer_judge else campaign.tasks)
        if judges_answers(campaign.cards[task])
    ]


COMMAND_LINE = "--config"
_ABSENT = object()


def name_files(problems: Iterable[str], config: dict[str, Any], files: Sequence[str]) -> list[str]:
    """The problems with the file that holds the key (or ``--config``) in place of ``config``."""
    contents = {_display_name(file): _content(file) for file in files}
    return [_name_file(problem, config, contents) for problem in problems]


def _name_file(problem: str, config: dict[str, Any], contents: dict[str, Any]) -> str:
    source, _, rest = problem.partition(": ")
    if source != CONFIG:
        return problem
    key = rest.partition(": ")[0].split(".")
    return f"{_origin(key, config, contents)}: {rest}"


def _origin(key: list[str], config: dict[str, Any], contents: dict[str, Any]) -> str:
    """The first file with the value that counts; a key that stands nowhere is looked for where its parent stands."""
    for length in range(len(key), 0, -1):
        value = _value(config, key[:length])
        if value is not _ABSENT:
            holders = [file for file, content in contents.items() if _value(content, key[:length]) == value]
            return holders[0] if holders else COMMAND_LINE
    return next(iter(contents), CONFIG)


def _value(data: Any, key: list[str]) -> Any:
    """Value at a dotted key; the last part of a list is left to the list."""
    for part in key:
        if isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        elif isinstance(data, dict) and part in data:
            data = data[part]
        else:
            return _ABSENT
    return data


def _display_name(file: str) -> str:
    """The path as a person wrote it: relative where it lies below the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _content(file: str) -> Any:
    """Keys of a configuration file, or the settings of a planned campaign."""
    try:
        content = load_yaml(Path(file))
    except ConfigError:
        return None
    return content.get("settings", content) if isinstance(content, dict) else content


DEFAULT = Path("config/config.yaml")


def add_configuration_options(parser: argparse._ActionsContainer) -> None:
    """The options that say which configuration is meant; the same names and meaning as Snakemake's."""
    parser.add_argument(
        "--configfile",
        type=Path,
        nargs="+",
        action="extend",
        default=argparse.SUPPRESS,
        metavar="FILE",
        help=f"configuration files, each over the one before, all over {DEFAULT}; for the demo: demo/config.yaml",
    )
    parser.add_argument(
        "--config",
        nargs="+",
        action="extend",
        default=argparse.SUPPRESS,
        metavar="KEY=VALUE",
        help="single keys, over all files",
    )


def configured_campaign(options: argparse.Namespace) -> Campaign:
    """The campaign of the configuration that the options name; raises ConfigError with every problem."""
    given = getattr(options, "configfile", [])
    files = [*([DEFAULT] if DEFAULT.is_file() else []), *given]
    if not files:
        raise ConfigError([f"{DEFAULT}: file does not exist; run this in the repository's folder or give --configfile"])
    if missing := [str(file) for file in files if not file.is_file()]:
        hint = "--configfile takes every argument after it, so put other arguments before it"
        raise ConfigError([f"--configfile: file '{name}' does not exist ({hint})" for name in missing])
    keys = parse_keys(getattr(options, "config", []))
    return plan(merge([*(load_yaml(file) or {} for file in files), keys]), files)


def is_configured(options: argparse.Namespace) -> bool:
    """Check whether the options name a configuration."""
    return bool(getattr(options, "configfile", []) or getattr(options, "config", []))


def format_options(configfiles: Sequence[Path | str], keys: Mapping[str, Any]) -> str:
    """The options that mean the same campaign, for a shell command; ``configfiles`` in the order of their weight."""
    shown = [_display_name(str(file)) for file in configfiles]
    files = [file for file in shown if file != str(DEFAULT)] or ([] if keys else [str(DEFAULT)])
    entries = [f"{key}={_as_given(value)}" for key, value in keys.items()]
    return shlex.join([*(["--configfile", *files] if files else []), *(["--config", *entries] if entries else [])])


def _as_given(value: Any) -> str:
    """A value as ``--config`` reads it."""
    if isinstance(value, str) and _read_value(value) == value:
        return value
    return json.dumps(value)


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


def parse_keys(entries: Sequence[str]) -> dict[str, Any]:
    """``key=value`` entries as a configuration, with values as in a configuration file.

    Snakemake parses the same entries, but takes every scalar within a mapping or list, and ``null``, for text.
    Raises ConfigError for an entry of another form.
    """
    keys = []
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not (equals and key.isidentifier()):
            raise ConfigError([f"--config: '{entry}' is not of the form key=value"])
        keys.append({key: _read_value(value)})
    return merge(keys)


def _read_value(text: str) -> Any:
    readers: tuple[Callable[[str], Any], ...] = (int, float, parse_yaml)
    for read in readers:
        try:
            return read(text)
        except (ValueError, yaml.YAMLError):
            continue
    return text
