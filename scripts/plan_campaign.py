"""Write down which runs a campaign asks for; with --configfile or --config, write its settings (--campaign) first."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.plan_campaign import load_campaign_record, plan_campaign, plan_parser


def main(arguments: list[str]) -> None:
    plan = plan_campaign(load_campaign_record(plan_parser(__doc__).parse_args(arguments)))
    print(f"{len(plan.runs)} runs planned")


if __name__ == "__main__":
    run_script(main)
