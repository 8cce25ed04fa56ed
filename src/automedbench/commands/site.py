"""Look at this Slurm cluster and write a profile for it: profiles/site, every line with its reason.

Reads sinfo, scontrol, sacctmgr, Apptainer, the modules and the file systems; submits nothing. What is there already is
kept when it differs. With --preemptible it writes a second profile, profiles/site-preemptible, with requeue.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.agent.budget.used import read_use
from automedbench.campaign.load import Campaign
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._machine.draft import draft_profile, partitions_text, profile_text, write_files
from automedbench.commands._machine.placement import Needs, SiteOptions
from automedbench.commands._machine.slurm import parse, read_dumps, site_dumps, write_dumps
from automedbench.commands._output import show
from automedbench.planning.needs import run_resources, smaller_requests

MOST_WARNINGS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which campaign, what the user decides, and where the files go."""
    add_campaign_options(parser)
    parser.add_argument("--partition", help="of the small steps, and of runs without GPUs")
    parser.add_argument("--run-partition", help="of runs with GPUs, or that may be preempted")
    parser.add_argument("--account", help="account that jobs are charged to")
    parser.add_argument("--qos", help="quality of service of the jobs")
    parser.add_argument("--preemptible", action="store_true", help="runs where jobs are preempted, and requeued")
    parser.add_argument(
        "--network", choices=("yes", "no", "unknown"), default="unknown", help="whether nodes reach the internet"
    )
    parser.add_argument("--out", type=Path, help="folder of the profile, instead of profiles/site[-preemptible]")
    parser.add_argument("--force", action="store_true", help="replace files that differ")
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="save the output of the commands, and write no profile"
    )
    parser.add_argument("--dumps", type=Path, metavar="FOLDER", help="read such a record instead of this machine")


def main(options: argparse.Namespace) -> None:
    """Write the profile and print what was chosen.

    Raises ConfigError when the campaign is wrong or no partition takes its runs, MissingDataError without a Slurm.
    """
    campaign = select_campaign(options)
    dumps = read_dumps(options.dumps) if options.dumps else site_dumps(_folders(campaign))
    if options.record:
        write_dumps(dumps, options.record)
        note = f"{options.record} holds what this site says; `automedbench site --dumps {options.record}` goes by it."
        show(options, {"record": options.record}, [note])
        return
    site = parse(dumps)
    choices = SiteOptions(options.partition, options.run_partition, options.account, options.qos, options.preemptible)
    requested = run_resources(campaign)
    draft = draft_profile(site, Needs.from_resources(requested), choices)
    draft.messages += smaller_requests(list(read_use(Path(campaign.config.results)).values()), requested)
    folder = options.out or Path("profiles", "site-preemptible" if options.preemptible else "site")
    texts = {
        folder / "config.yaml": profile_text(draft, str(folder), site.cluster),
        folder / "partitions.yaml": partitions_text(draft, options.network),
    }
    written = list(write_files(texts, force=options.force))
    lines = [*draft.messages, *(f"warning: {text}" for text in draft.warnings[:MOST_WARNINGS])]
    if (more := len(draft.warnings) - MOST_WARNINGS) > 0:
        lines.append(f"and {more} more warnings")
    lines += [*written, f"Next: `automedbench doctor --profile {folder}`, then `snakemake --profile {folder} -n`"]
    show(options, {"profile": folder, "files": written, **vars(draft)}, lines)


def _folders(campaign: Campaign) -> dict[str, str]:
    config = campaign.config
    folders = {"results": config.results, **{f"data.{name}": path for name, path in config.data.model_dump().items()}}
    folders["images"] = config.containers.folder
    if config.sandbox.egress.cache:
        folders["cache"] = config.sandbox.egress.cache
    return folders
