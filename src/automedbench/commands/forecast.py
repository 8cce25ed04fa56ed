"""Forecast the remaining runs: hours, tokens and USD, expected and at most.

`snakemake -n` prints the same for the runs that it plans.
"""

from __future__ import annotations

import argparse

from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._output import show
from automedbench.planning.forecast import as_json, forecast_lines, runs_to_do


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which campaign."""
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print the forecast; raises ConfigError when the campaign is wrong."""
    campaign = select_campaign(options)
    left = runs_to_do(campaign)
    show(options, as_json(campaign, left), forecast_lines(campaign, left) or ["No run is left to do."])
