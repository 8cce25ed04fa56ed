"""Try what this machine can enforce and what the campaign lacks: ok, warn or FAIL, each with what to do about it.

Exit status 1 when anything fails. No key is ever printed, nothing is spent, and it takes less than a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.commands._campaign_options import DEFAULT, add_campaign_options, read_campaign
from automedbench.commands.doctor.examine import Finding, Host, examine, fail
from automedbench.commands.doctor.report import report_lines
from automedbench.planning.wiring import Wiring


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which campaign, if any, where the images are, and the form of the report."""
    add_campaign_options(parser)
    parser.add_argument("--images", type=Path, help="folder of agent.sif and scorer.sif, instead of the campaign's")
    parser.add_argument("--machine-only", action="store_true", help="probe the machine and leave the campaign out")
    parser.add_argument("--json", action="store_true", help="a list of findings for a program")


def main(options: argparse.Namespace) -> None:
    """Run all probes, print the report, exit with its status."""
    from automedbench.commands.doctor.probes import PROBES

    campaign, wrong = _campaign(options)
    default = Path(campaign.settings.containers.folder if campaign else "images")
    host = Host(campaign, options.images or default)
    findings = [*wrong, *examine(host, PROBES)]
    if options.json:
        print(json.dumps([finding.model_dump() for finding in findings], indent=2))
    else:
        coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print("\n".join(report_lines(findings, coloured=coloured)))
    if any(finding.status == "FAIL" for finding in findings):
        sys.exit(1)


def _campaign(options: argparse.Namespace) -> tuple[Wiring | None, list[Finding]]:
    """The campaign; None where there is no configuration, with findings where it is wrong."""
    asked = bool(options.configfile or options.config)
    if options.machine_only or not (asked or DEFAULT.is_file()):
        return None, []
    try:
        return read_campaign(options), []
    except ConfigError as error:
        fix = "Correct the file; its keys are in config/README.md."
        return None, [fail("campaign", problem, fix) for problem in error.problems]
