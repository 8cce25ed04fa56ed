"""Try what this machine can enforce and what the campaign lacks: ok, warn or FAIL, each with what to do about it.

Exit status 1 when anything fails. No key is ever printed, nothing is spent, and it takes less than a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.campaign.load import Campaign
from automedbench.commands._campaign import add_campaign_options, describe_options, select_campaign
from automedbench.commands._machine.examine import Host, ProbeResult, add_machine_arguments, examine, fail, print_report
from automedbench.commands._machine.table import PROBES
from automedbench.planning.load import DEFAULT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which campaign, if any, where the images are, and the form of the report."""
    add_campaign_options(parser)
    add_machine_arguments(parser)
    parser.add_argument("--machine-only", action="store_true", help="probe the machine and leave the campaign out")


def main(options: argparse.Namespace) -> None:
    """Run all probes, print the report, exit with its status."""
    campaign, wrong = _campaign(options)
    default = Path(campaign.config.containers.folder if campaign else "images")
    host = Host(campaign, options.images or default, profile=options.profile)
    print_report(options, [*wrong, *examine(host, [probe for probe in PROBES if probe.doctor])])


def _campaign(options: argparse.Namespace) -> tuple[Campaign | None, list[ProbeResult]]:
    """The campaign; None where there is no configuration, with findings where it is wrong."""
    if options.machine_only or not (describe_options(options) or DEFAULT.is_file()):
        return None, []
    try:
        return select_campaign(options), []
    except ConfigError as error:
        fix = "Correct the file; its keys are in config/README.md."
        return None, [fail("campaign", problem, fix) for problem in error.problems]
