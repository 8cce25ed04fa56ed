"""Summary of a dry run: what its runs would take, its steps, and how to see or run one of them."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import thread as _imported_before_the_end  # noqa: F401 - it cannot be imported then
from typing import TYPE_CHECKING, Any

from automedbench.base.plaintable import counted

if TYPE_CHECKING:
    from automedbench.campaign.load import Campaign


def print_in_dry_run(workflow: Any, campaign: Campaign, configuration: str) -> None:
    """Print the plan when Snakemake ends and it is complete; only in a dry run that is not silent.

    ``configuration``: options that name the same campaign on a command line.
    """
    shown = workflow.output_settings
    quiet = {each.name for each in (shown.quiet or ())} if shown else set()
    if shown and shown.dryrun and "ALL" not in quiet:
        # Not `atexit`: no thread can be started then, and the ledger is read by several.
        threading._register_atexit(_print_plan, workflow, campaign, configuration)  # type: ignore[attr-defined]


def _print_plan(workflow: Any, campaign: Campaign, configuration: str) -> None:
    from automedbench.campaign.load import campaign_file, is_written
    from automedbench.planning.forecast import compares_models, forecast_lines, planned_runs

    steps = [*workflow.dag.needrun_jobs(exclude_finished=False)] if workflow.dag else []
    count = Counter(step.rule.name for step in steps)
    listed = workflow.output_settings.printshellcmds
    if listed and steps and not is_written(campaign):
        write = f"python scripts/plan_campaign.py --campaign {campaign_file(campaign)} {configuration}"
        print(f"To run one of these commands by hand, first write the settings: {write}", file=sys.stderr)
    planned = planned_runs(step.wildcards for step in steps if step.rule.name == "run_agent")
    lines = forecast_lines(campaign, planned)
    if planned and compares_models(campaign):
        from automedbench.planning.power import estimate_variances, power_lines

        lines += ["", *power_lines(campaign, estimate_variances(campaign, planned))]
    sys.stderr.writelines(f"{line}\n" for line in lines)
    sys.stderr.flush()
    if steps and not listed:
        print(*summary({rule.name: count[rule.name] for rule in workflow.rules if count[rule.name]}), sep="\n")


def summary(steps: Mapping[str, int]) -> list[str]:
    """Number of steps of each rule."""
    width = max(map(len, steps))
    return [
        f"{counted(sum(steps.values()), 'step')} to do:",
        *(f"  {rule.ljust(width)} {count:6d}" for rule, count in steps.items()),
        "Nothing was done. With -p: every step, why, and the command that does it alone.",
    ]
