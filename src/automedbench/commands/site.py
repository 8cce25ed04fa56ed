"""Look at this Slurm cluster and write a profile for it: profiles/site, every line with its reason.

Reads sinfo, scontrol and sacctmgr, and asks `sbatch --test-only` what it takes; submits nothing. What is there already
is kept when it differs. With --preemptible it writes a second profile, profiles/site-preemptible, with requeue.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from automedbench.agent.budget.used import read_use
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._machine.draft import draft_profile, entry, profile_text, write_profile
from automedbench.commands._machine.host import NETWORK_FILE_SYSTEMS, read_folder
from automedbench.commands._machine.placement import Needs, SiteOptions, ask_slurm
from automedbench.commands._machine.profile import read_profile
from automedbench.commands._machine.slurm import read_site
from automedbench.commands._output import show
from automedbench.planning.needs import run_resources, smaller_requests


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which campaign, what the user decides, and where the file goes."""
    add_campaign_options(parser)
    parser.add_argument("--partition", help="of the small steps, and of runs that need no other")
    parser.add_argument("--run-partition", help="of the runs")
    parser.add_argument("--account", help="account that jobs are charged to")
    parser.add_argument("--qos", help="quality of service of the jobs")
    parser.add_argument("--preemptible", action="store_true", help="runs where jobs are preempted, and requeued")
    parser.add_argument("--out", type=Path, help="folder of the profile, instead of profiles/site[-preemptible]")
    parser.add_argument("--force", action="store_true", help="replace a file that differs")


def main(options: argparse.Namespace) -> None:
    """Write the profile and print what was chosen.

    Raises ConfigError when the campaign is wrong or no partition takes its runs, MissingDataError without a Slurm.
    """
    campaign, site = select_campaign(options), read_site()
    choices = SiteOptions(options.partition, options.run_partition, options.account, options.qos, options.preemptible)
    requested = run_resources(campaign)
    draft = draft_profile(site, Needs.from_resources(requested), choices, ask_slurm)
    shared = read_folder(Path(campaign.config.results)).kind in NETWORK_FILE_SYSTEMS
    if shared and not read_folder(Path(".snakemake/metadata")).filled:
        why = "one file instead of one per output; every call of this campaign then needs this profile"
        draft.top.append(entry("persistence-backend", "db", why))
    if shutil.which("apptainer") is None:
        draft.warnings.append("no Apptainer in PATH: load its module first, jobs inherit it; else ask for it")
    folder = options.out or Path("profiles", "site-preemptible" if options.preemptible else "site")
    text = profile_text(draft, str(folder), site.cluster)
    written = write_profile(folder / "config.yaml", text, force=options.force)
    in_jobs = [used for used in read_use(Path(campaign.config.results)).values() if used.jobs]
    draft.messages += smaller_requests(in_jobs, read_profile(Path(), str(folder)).job("run_agent", requested))
    lines = [*draft.messages, *(f"warning: {text}" for text in draft.warnings), written]
    lines += [f"Next: `automedbench doctor --profile {folder}`, then `snakemake --profile {folder} -n`"]
    show(options, {"profile": folder, "written": written, **vars(draft)}, lines)
