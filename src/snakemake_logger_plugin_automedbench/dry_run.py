"""Below the plan of a dry run: what its runs would take, and how to run one of its commands by hand."""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from automedbench.campaign.load import Campaign


def say_below(workflow: Any, campaign: Campaign, configuration: str) -> None:
    """Print it when Snakemake ends and so the plan is complete; nothing but in a dry run that may say something.

    ``configuration``: options that name the same campaign on a command line.
    """
    shown = workflow.output_settings
    quiet = {each.name for each in (shown.quiet or ())} if shown else set()
    if shown and shown.dryrun and "ALL" not in quiet:
        atexit.register(_say, workflow, campaign, configuration)


def _say(workflow: Any, campaign: Campaign, configuration: str) -> None:
    from automedbench.campaign.load import campaign_file, is_written
    from automedbench.planning.forecast import print_forecast

    steps = workflow.dag.needrun_jobs(exclude_finished=False) if workflow.dag else []
    if steps and not is_written(campaign):
        write = f"python scripts/plan_campaign.py --campaign {campaign_file(campaign)} {configuration}"
        print(f"To run one of these commands by hand, first write the settings: {write}", file=sys.stderr)
    print_forecast(campaign, [step.wildcards for step in steps if step.rule.name == "run_agent"])
