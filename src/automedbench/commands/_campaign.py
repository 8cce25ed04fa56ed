"""Campaign that a command is about: by its results folder, or as for Snakemake.

As for Snakemake: configuration files and single keys over config/config.yaml.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.yamlfile import load_yaml
from automedbench.campaign.load import Campaign
from automedbench.campaign.record import FILE, name_campaigns, read_campaign
from automedbench.commands._output import add_json
from automedbench.planning.load import (
    DEFAULT,
    add_configuration_options,
    configured_campaign,
    format_options,
    is_configured,
    parse_keys,
    plan,
)


def add_campaign_options(parser: argparse.ArgumentParser) -> None:
    """The options of a command that reads a campaign, and ``--json``; a campaign not given is no attribute."""
    add_json(parser)
    group = parser.add_argument_group(f"which campaign; without any that of {DEFAULT}")
    group.add_argument(
        "--results",
        type=Path,
        default=argparse.SUPPRESS,
        metavar="FOLDER",
        help=f"results folder of one that was planned, with its {FILE}; for the demo: results/demo",
    )
    add_configuration_options(group)


def select_campaign(options: argparse.Namespace) -> Campaign:
    """The campaign that the options mean; without any, that of config/config.yaml.

    Raises ConfigError with every problem, and for options that mean two; MissingDataError where none was planned.
    """
    folder = _named_folder(options)
    if folder is None:
        return configured_campaign(options)
    if is_configured(options):
        campaign = configured_campaign(options)
        if folder.resolve() != (other := Path(campaign.config.results)).resolve():
            raise ConfigError([f"two campaigns are given: {folder}, and the configuration's, {other}; leave one out"])
        return campaign
    settings = read_campaign(folder / FILE).settings
    if Path(settings.results).resolve() != folder.resolve():  # a copy: its files are not read where they were written
        settings = settings.model_copy(update={"results": str(folder)})
    return plan(settings.model_dump(mode="json"), [folder / FILE])


def find_results(options: argparse.Namespace) -> Path:
    """The results folder of the same campaign, for a command that reads nothing else: a copy needs no record.

    Raises ConfigError for options that mean two, MissingDataError where it is not a folder, or an empty one by default
    while another campaign's lies below it.
    """
    if is_configured(options):
        return Path(select_campaign(options).config.results)
    folder = _named_folder(options)
    if folder is None:
        folder = _default_results()
        if other := find_other_results(folder):
            raise MissingDataError(f"{folder} contains no runs.\nThere are some in {other}: add --results {other}")
    if not folder.is_dir():
        next_step = name_campaigns(folder) or "Give the campaign's results folder with --results."
        raise MissingDataError(f"{folder} is not a folder.\n{next_step}")
    return folder


def find_other_results(folder: Path) -> Path | None:
    """The one campaign below a results folder that has no runs of its own; None where there is none, or several."""
    if (folder / "runs").is_dir():
        return None
    others = [path.parent for path in folder.glob(f"*/{FILE}")]
    return others[0] if len(others) == 1 else None


def describe_options(options: argparse.Namespace) -> str:
    """The options that mean the same campaign again, for a command to be printed; empty where none was given."""
    if is_configured(options):
        return format_options(
            [DEFAULT, *getattr(options, "configfile", [])], parse_keys(getattr(options, "config", []))
        )
    folder = _named_folder(options)
    return "" if folder is None else shlex.join(["--results", str(folder)])


def _named_folder(options: argparse.Namespace) -> Path | None:
    return getattr(options, "results", None)


def _default_results() -> Path:
    content = load_yaml(DEFAULT) if DEFAULT.is_file() else None
    return Path(str((content or {}).get("results", "results")))
