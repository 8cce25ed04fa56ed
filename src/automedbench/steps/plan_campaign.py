"""Plan of a campaign: its settings, and the runs it requests, so that n of N can be shown."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.base.files import known_record, set_sharing, write_record
from automedbench.campaign.agents import load_campaign_agents
from automedbench.campaign.load import Campaign, campaign_file, expand_matrix, write_campaign
from automedbench.campaign.record import CampaignRecord, read_campaign
from automedbench.leaderboard.plan import Plan, make_plan
from automedbench.planning.load import add_configuration_options, configured_campaign, is_configured


def plan_campaign(campaign: CampaignRecord) -> Plan:
    """Write ``<results>/plan.json``; raises ConfigError when the agents file is wrong."""
    settings = campaign.settings
    runs = expand_matrix(settings.matrix, settings.only)
    return write_plan(Campaign(settings, {}, {}, load_campaign_agents(settings), runs))


def write_plan(campaign: Campaign) -> Plan:
    """Write the plan, unless it says the same already: a newer one has the leaderboard built again."""
    plan, path = make_plan(campaign), Path(campaign.config.results, "plan.json")
    if known_record(path, Plan) != plan:
        write_record(path, plan)
    return plan


def plan_parser(description: str | None) -> argparse.ArgumentParser:
    """``--campaign FILE``, and the configuration to write it from."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--campaign", type=Path, required=True, metavar="FILE", help="<results>/campaign.json")
    add_configuration_options(parser)
    return parser


def load_campaign_record(options: argparse.Namespace) -> CampaignRecord:
    """The record in ``--campaign``, written anew when a configuration is given; Snakemake writes it before any step.

    Raises ConfigError when the configuration is wrong or puts its results elsewhere.
    """
    if is_configured(options):
        campaign = configured_campaign(options)
        if (file := campaign_file(campaign)) != str(options.campaign):
            raise ConfigError([f"--campaign: '{options.campaign}' is not this configuration's '{file}'"])
        set_sharing(campaign.config.share)
        write_campaign(campaign)
    return read_campaign(options.campaign)
