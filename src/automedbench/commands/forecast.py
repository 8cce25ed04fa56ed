"""Forecast the remaining runs (hours, tokens, USD), and which differences between agents the campaign can tell apart.

`snakemake -n` prints the same for the runs that it plans.
"""

from __future__ import annotations

import argparse

from automedbench.base.option_types import option_type
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._output import show
from automedbench.planning.forecast import as_json, compares_models, forecast_lines, runs_to_do


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which campaign, and which difference to plan for."""
    add_campaign_options(parser)
    parser.add_argument(
        "--for",
        type=option_type(float, "a number of points between 0 and 100", lambda value: 0 < value < 100),
        dest="points",
        metavar="POINTS",
        help="also print the cheapest design that tells apart two agents that differ by so many points",
    )


def main(options: argparse.Namespace) -> None:
    """Print the forecast; raises ConfigError when the campaign is wrong."""
    campaign = select_campaign(options)
    left = runs_to_do(campaign)
    found, lines = as_json(campaign, left), forecast_lines(campaign, left) or ["No run is left to do."]
    if compares_models(campaign):
        from automedbench.planning import power

        variances = power.estimate_variances(campaign, left)
        plans = power.find_cheapest(campaign, variances, options.points / 100) if options.points else []
        found |= power.as_json(campaign, variances, plans)
        lines += ["", *power.power_lines(campaign, variances)]
        lines += power.plan_lines(campaign, plans, options.points) if plans else []
    elif options.points:
        lines += ["", "No design to look for: differences need at least two agents with a model in this campaign."]
    show(options, found, lines)
