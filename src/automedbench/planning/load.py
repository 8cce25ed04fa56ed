"""Loading a campaign to plan it: everything that could stop it is found now, with the file that it stands in.

On a command line it is named by its results folder, by its record there, or as for Snakemake: configuration files and
single keys over config/config.yaml.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.yamlfile import load_yaml, parse_yaml
from automedbench.campaign.load import CONFIG, FILE, Campaign, load_campaign
from automedbench.campaign.record import read_campaign
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


def plan_thousands(config: dict[str, Any], configfiles: Sequence[str | Path]) -> Campaign:
    """``plan`` for a process that then plans every step of the campaign.

    That allocates millions of objects which live until the end: scanning them for garbage again and again would be a
    quarter of the planning time.
    """
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    return plan(config, configfiles)


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


def add_campaign_options(parser: argparse.ArgumentParser) -> None:
    """The options of a command that reads a campaign; what is not given is no attribute of the parsed options."""
    group = parser.add_argument_group(f"which campaign; without any that of {DEFAULT}")
    group.add_argument(
        "--results",
        type=Path,
        default=argparse.SUPPRESS,
        metavar="FOLDER",
        help=f"results folder of one that was planned, with its {FILE}; for the demo: results/demo",
    )
    group.add_argument(
        "--campaign", type=Path, default=argparse.SUPPRESS, metavar="FILE", help=f"the same, by its {FILE}"
    )
    add_configuration_options(group)


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


def select_campaign(options: argparse.Namespace) -> Campaign:
    """The campaign that the options mean; without any, that of config/config.yaml.

    Raises ConfigError with every problem, and for options that mean two; MissingDataError where none was planned.
    """
    folder = _named_folder(options)
    if folder is None:
        return configured_campaign(options)
    if is_configured(options):
        campaign = configured_campaign(options)
        _same_folder(folder, Path(campaign.config.results), "the configuration has its results in")
        return campaign
    file = _record(options) or folder / FILE
    settings = read_campaign(file).settings
    if Path(settings.results).resolve() != folder.resolve():  # a copy: its files are not read where they were written
        settings = settings.model_copy(update={"results": str(folder)})
    return plan(settings.model_dump(mode="json"), [file])


def find_results(options: argparse.Namespace) -> Path:
    """The results folder of the same campaign, for a command that reads nothing else: a copy needs no record.

    Raises ConfigError for options that mean two, MissingDataError where it is no folder, or an empty one by default
    while another campaign's lies below it.
    """
    if is_configured(options):
        return Path(select_campaign(options).config.results)
    folder = _named_folder(options)
    if file := _record(options):
        read_campaign(file)
    if folder is None:
        folder = _default_results()
        if other := other_results(folder):
            raise MissingDataError(f"{folder} holds no runs.\nThere are some in {other}: add --results {other}")
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is no folder.\nGive the campaign's results folder with --results.")
    return folder


def other_results(folder: Path) -> Path | None:
    """The one campaign below a results folder that has no runs of its own; None where there is none, or several."""
    if (folder / "runs").is_dir():
        return None
    others = [path.parent for path in folder.glob(f"*/{FILE}")]
    return others[0] if len(others) == 1 else None


def configured_campaign(options: argparse.Namespace) -> Campaign:
    """The campaign of the configuration that the options name; raises ConfigError with every problem."""
    given = getattr(options, "configfile", [])
    files = [*([DEFAULT] if DEFAULT.is_file() else []), *given]
    if not files:
        raise ConfigError([f"{DEFAULT}: file does not exist; run this in the repository's folder or give --configfile"])
    if missing := [str(file) for file in files if not file.is_file()]:
        hint = "--configfile takes every word behind it, so give other arguments before it"
        raise ConfigError([f"--configfile: file '{name}' does not exist ({hint})" for name in missing])
    keys = given_keys(getattr(options, "config", []))
    return plan(merge([*(load_yaml(file) or {} for file in files), keys]), files)


def is_configured(options: argparse.Namespace) -> bool:
    """Check whether the options name a configuration."""
    return bool(getattr(options, "configfile", []) or getattr(options, "config", []))


def describe_options(options: argparse.Namespace) -> str:
    """The options that mean the same campaign again, for a command to be printed; empty where none was given."""
    if is_configured(options):
        return format_options(
            [DEFAULT, *getattr(options, "configfile", [])], given_keys(getattr(options, "config", []))
        )
    folder = _named_folder(options)
    return "" if folder is None else shlex.join(["--results", str(folder)])


def _record(options: argparse.Namespace) -> Path | None:
    return getattr(options, "campaign", None)


def _named_folder(options: argparse.Namespace) -> Path | None:
    """The results folder that ``--results`` or ``--campaign`` names."""
    results, file = getattr(options, "results", None), _record(options)
    if results is not None and file is not None:
        _same_folder(results, file.parent, "--campaign lies in")
    return results if file is None else file.parent


def _same_folder(results: Path, other: Path, source: str) -> None:
    if results.resolve() != other.resolve():
        raise ConfigError([f"two campaigns are named: {results}, and {source} {other}; leave one out"])


def _default_results() -> Path:
    content = load_yaml(DEFAULT) if DEFAULT.is_file() else None
    return Path(str((content or {}).get("results", "results")))


def format_options(configfiles: Sequence[Path | str], keys: Mapping[str, Any]) -> str:
    """The options that mean the same campaign, for a shell command; ``configfiles`` in the order of their weight."""
    shown = [os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else str(file) for file in configfiles]
    files = [file for file in shown if file != str(DEFAULT)] or [str(DEFAULT)]
    words = ["--configfile", *files]
    if keys:
        words += ["--config", *(f"{key}={_as_given(value)}" for key, value in keys.items())]
    return shlex.join(words)


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


def given_keys(entries: Sequence[str]) -> dict[str, Any]:
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
    if text == "":
        return None
    readers: tuple[Callable[[str], Any], ...] = (int, float, _boolean, parse_yaml)
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
