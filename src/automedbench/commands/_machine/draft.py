"""Draft of a profile for a site: the shipped one, with what the site needs in its place, every line with its reason.

Nothing that the rules ask for by themselves (wall time, memory, CPUs and GPUs of a step) is repeated here: the profile
says where jobs go, in whose name, and how many.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from automedbench.base.errors import MissingDataError
from automedbench.base.files import write_text
from automedbench.base.plaintable import counted
from automedbench.commands._machine.placement import Ask, Needs, Place, SiteOptions, choose_place
from automedbench.commands._machine.slurm import Site
from automedbench.planning.needs import STAGING

TEMPLATE = Path("profiles/slurm/config.yaml")
SMALL_MIN, SMALL_MB = 60, 4000
HEAD = """\
# `snakemake --profile {folder}`: this workflow on {cluster}.
# Written by `automedbench site`. Edit it as you like: a second call keeps what is here and writes its own beside it.
# Wall time, memory, CPUs and GPUs of a step are asked for by the rules, from the campaign's limits and its sandbox;
# docs/cluster.md says how to raise one of them.
"""


@dataclass
class ProfileDraft:
    """Lines of a profile that differ from the shipped one, by their table, and lines for the terminal."""

    top: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)
    staging: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def entry(key: str, value: Any, why: str) -> str:
    """A line of a profile with its reason."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True).removesuffix("...\n").rstrip()
    return f"{key}: {text} # {why}"


def draft_profile(site: Site, needs: Needs, options: SiteOptions, ask: Ask) -> ProfileDraft:
    """The profile of a site for a campaign.

    Raises ConfigError when no partition takes its runs, with the reason of each.
    """
    apart = bool(needs.gpu or options.preemptible or options.run_partition)
    small = choose_place(site, Needs(SMALL_MIN, SMALL_MB, 1) if apart else needs, options, ask)
    run = small
    if apart:
        run = choose_place(site, needs, options, ask, option="run_partition", preemptible=options.preemptible)
    draft = ProfileDraft()
    draft.defaults += _name_place(site, small, "of small steps" if apart else "of all jobs")
    if apart:
        draft.run += _name_place(site, run, "of the runs")
    if run.needs.cpus < needs.cpus:
        why = f"CPUs of a node of {run.partition.name}, shared by the runs that its GPUs hold"
        draft.run.append(entry("cpus_per_task", run.needs.cpus, why if needs.gpu else "CPUs of its nodes"))
    _fit_staging(draft, small, ask)
    if options.preemptible:
        draft.top.append(entry("slurm-requeue", True, "a preempted run continues where it stopped, in the same job"))
    draft.messages += [
        f"{site.cluster}: {counted(len(site.partitions), 'partition')} that you see",
        f"small steps: {_describe(small)}",
        f"runs: {_describe(run)}, {run.needs}" + ", preemptible: requeued" * options.preemptible,
    ]
    default = next((each for each in site.partitions if each.default and each.closed), None)
    if default and options.partition is None:
        draft.warnings.append(f"the default partition was passed over: {default.name} {default.closed} (`sinfo -R`)")
    if not options.preemptible and site.preempts(run.partition, run.qos):
        draft.warnings.append(f"{run.partition.name} preempts jobs, which need to be requeued: add --preemptible")
    draft.warnings += _list_warnings(run)
    return draft


def _fit_staging(draft: ProfileDraft, small: Place, ask: Ask) -> None:
    """Lower what staging asks for, cases at a time with their memory, to the most that its partition takes."""
    most, minutes = int(STAGING["cpus_per_task"]), int(min(small.partition.minutes, int(STAGING["runtime"])))
    name, case_mb = small.partition.name, int(STAGING["mem_mb"]) // most
    if minutes < int(STAGING["runtime"]):
        why = f"the limit of {name}; stage what takes longer by `snakemake prepare` on one machine"
        draft.staging.append(entry("runtime", minutes, why))
    for cases in range(most, 0, -1):
        if not (why := ask(dataclasses.replace(small, needs=Needs(minutes, cases * case_mb, cases)))):
            break
    else:
        draft.warnings.append(f"{name} takes no job that stages: {why}; run `snakemake prepare` on one machine")
        return
    if cases < most:
        why = f"as {name} takes no more: {counted(cases, 'case')} at a time instead of {most}"
        draft.staging += [entry("cpus_per_task", cases, why), entry("mem_mb", cases * case_mb, "of these cases")]
        draft.threads.append(entry("stage_task", cases, "cases of a task at a time; equal to its cpus_per_task"))


def _name_place(site: Site, place: Place, what: str) -> list[str]:
    """Lines that send jobs to a place: partition, account and QOS."""
    lines = [entry("slurm_partition", place.partition.name, what)]
    if place.account:
        others = sorted({each.account for each in site.associations} - {place.account})
        why = f"others: {', '.join(others[:4])}" if others else "you have no other"
        lines.append(entry("slurm_account", place.account, why))
    if place.qos:
        lines.append(entry("qos", place.qos, f"the first that serves in {place.partition.name}"))
    return lines


def _describe(place: Place) -> str:
    named = {"partition": place.partition.name, "account": place.account, "QOS": place.qos}
    return ", ".join(f"{name} {value}" for name, value in named.items() if value)


def _list_warnings(run: Place) -> list[str]:
    """What a person should know of the partition of the runs."""
    name, models, needs = run.partition.name, run.partition.models, run.needs
    warnings = []
    if run.partition.exclusive:
        warnings.append(f"{name} gives whole nodes: every job holds one, also the small ones")
    if needs.gpu and needs.model is None and len(models) > 1:
        warnings.append(f"{name} has {', '.join(models)}: runs compare on one of them, sandbox.gpu_model")
    if run.partition.has_gpus and not needs.gpu:
        warnings.append(f"{name} has GPUs, and runs request none (sandbox.gpu: 0): they may lie idle")
    return warnings


def profile_text(draft: ProfileDraft, folder: str, cluster: str) -> str:
    """``config.yaml`` of the profile; raises MissingDataError without the shipped one."""
    if not TEMPLATE.is_file():
        raise MissingDataError(f"{TEMPLATE} does not exist.\nRun `automedbench site` in the repository's folder.")
    shipped = [line for line in TEMPLATE.read_text("utf-8").splitlines() if not re.match(r"\s*#", line)]
    top, defaults, threads, _ = "\n".join(shipped).split("\n\n")
    if any(line.startswith("slurm-requeue") for line in draft.top):
        top = re.sub(r"(?m)^slurm-no-requeue.*\n?", "", top).rstrip("\n")
    head, *steps = (line for line in defaults.splitlines() if "slurm_" not in line)
    lines = [top, *draft.top, "", head, *_indent(draft.defaults, 2), *steps, ""]
    heading, *shipped_threads = threads.splitlines()
    lines += [heading, *(_indent(draft.threads, 2) or shipped_threads)]
    tables = {"stage_task": draft.staging, "run_agent": draft.run}
    if any(tables.values()):
        lines += ["", "set-resources: # what differs from what the rules ask for"]
    for rule, entries in tables.items():
        lines += [f"  {rule}:", *_indent(entries, 4)] if entries else []
    return HEAD.format(folder=folder, cluster=cluster) + "\n".join(lines) + "\n"


def write_profile(path: Path, text: str, *, force: bool) -> str:
    """Write the file, and say what became of it.

    One that is there with another content is kept, and the new one is written beside it as ``<name>.new``, unless
    ``force``. Raises InfrastructureError when the folder cannot be written.
    """
    there = path.read_text("utf-8") if path.is_file() else None
    if there == text:
        return f"{path}: as it was"
    if there is None or force:
        write_text(path, text)
        return f"{path}: written"
    new = path.with_name(f"{path.name}.new")
    write_text(new, text)
    return f"{path}: kept, as it differs; the new one is {new.name} (`diff {path} {new}`, or --force)"


def _indent(lines: list[str], indent: int) -> list[str]:
    return [f"{' ' * indent}{line}" for line in lines]
