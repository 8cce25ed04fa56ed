"""Write down which runs a campaign asks for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.base.files import write_record
from automedbench.base.option_types import option_type
from automedbench.campaign.load import load_campaign
from automedbench.leaderboard.plan import plan_of


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--config", type=option_type(json.loads, "JSON"), required=True, help="the merged configuration as JSON"
    )
    parser.add_argument("--out", type=Path, required=True, help="plan.json to write")
    options = parser.parse_args(arguments)
    plan = plan_of(load_campaign(options.config))
    write_record(options.out, plan)
    print(f"{len(plan.runs)} runs planned")


if __name__ == "__main__":
    run_script(main)
