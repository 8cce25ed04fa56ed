"""Configuration: loads and checks the campaign and constrains wildcards.

In: config, agents file, cards. Out: CAMPAIGN, which answers what the rules ask. Writes nothing.
Only what must repeat a step is a param or an input of it. All else (paths, limits, isolation) is written into the
command, so that raising a limit half-way through a campaign never repeats what is paid for.
"""

import atexit
import gc

from automedbench.base.errors import ConfigError
from automedbench.planning.forecast import print_forecast
from automedbench.planning.step_options import fetch_options
from automedbench.planning.wiring import Wiring
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import Quietness

# Planning thousands of runs allocates millions of objects that live until the end: scanning them for garbage again
# and again is a quarter of the planning time.
gc.freeze()
gc.set_threshold(200_000, 50, 100)

try:
    CAMPAIGN = Wiring(config, workflow.configfiles)
except ConfigError as error:
    raise WorkflowError(f"the campaign is not started:\n{error}")


RUN = CAMPAIGN.run  # folder of a run, with wildcards


def forecast():
    """Below the plan of a dry run: the time, tokens and money that its runs would take."""
    steps = workflow.dag.needrun_jobs(exclude_finished=False) if workflow.dag else []
    print_forecast(
        CAMPAIGN.campaign,
        [step.wildcards for step in steps if step.rule.name == "run_agent"],
    )


SHOWN = workflow.output_settings
if SHOWN and SHOWN.dryrun and Quietness.ALL not in (SHOWN.quiet or ()):
    atexit.register(forecast)  # when the plan is complete and printed


wildcard_constraints:
    agent=CAMPAIGN.one_of(CAMPAIGN.campaign.agents),
    task=CAMPAIGN.one_of(CAMPAIGN.campaign.cards),
    dataset=CAMPAIGN.one_of(CAMPAIGN.dataset_cards),
    tier="lite|standard|pro",
    repeat=r"\d+",
    image="agent|scorer",


def staged(wildcards):
    """The manifest: its date never repeats a run, but staging for a raised card version does.

    Always ancient, staging again would hide from this call that the runs are to be repeated as well.
    """
    manifest = f"{CAMPAIGN.settings.data.manifests}/{wildcards.task}.json"
    return manifest if CAMPAIGN.must_stage_again(wildcards) else ancient(manifest)
