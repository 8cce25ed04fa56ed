"""Profile that `site` writes for a cluster: every line with its reason.

Nothing that the rules ask for by themselves (wall time, memory, CPUs and GPUs of a step) is repeated here: the profile
says where jobs go, in whose name, and how many.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from automedbench.base.errors import MissingDataError
from automedbench.base.files import write_text
from automedbench.base.plaintable import counted
from automedbench.commands._machine.host import NETWORK_FILE_SYSTEMS
from automedbench.commands._machine.placement import (
    Needs,
    PartitionChoice,
    SiteOptions,
    choose_partition,
    fits_node,
    limit_jobs,
)
from automedbench.commands._machine.slurm import Partition, Site

TEMPLATE = Path("profiles/slurm/config.yaml")
SUBMISSIONS_PER_6S = 10
STAGING_MIN, SMALL_MIN = 720, 60
SMALL_MB = 4000
HEAD = """\
# `snakemake --profile {folder}`: this workflow on {cluster}.
# Written by `automedbench site`. Edit it as you like: a second call keeps what is here and writes its own beside it.
# Wall time, memory, CPUs and GPUs of a step are asked for by the rules, from the campaign's limits and its sandbox;
# docs/cluster.md says how to raise one of them.
"""
PARTITIONS = """\
# Where jobs go: the partition whose limits a job fits best, one with GPUs for those alone that ask for GPUs.
# nodes_reach_internet: yes, no or unknown, as you said with --network; `automedbench doctor` compares it with the
# campaign.
"""


def entry(key: str, value: Any, why: str) -> str:
    """A line of a profile with its reason."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf)
    text = text.removesuffix("...\n").rstrip()
    return f"{key}: {text} # {why}"


def template(*keys: str) -> list[str]:
    """Lines of the shipped profile, for what is the same on every cluster; raises MissingDataError without it."""
    if not TEMPLATE.is_file():
        raise MissingDataError(f"{TEMPLATE} does not exist.\nRun `automedbench site` in the repository's folder.")
    lines = [line.strip() for line in TEMPLATE.read_text("utf-8").splitlines()]
    return [next(line for line in lines if line.startswith(f"{key}: ")) for key in keys]


@dataclass
class ProfileDraft:
    """A profile: its own keys, the tables below them, the partitions, and messages for the terminal."""

    top: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)
    staging: list[str] = field(default_factory=list)
    partitions: dict[str, list[str]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def draft_profile(site: Site, needs: Needs, options: SiteOptions) -> ProfileDraft:
    """The profile of a site for a campaign.

    Raises ConfigError when no partition takes its runs, with the reason of each that comes near.
    """
    one_for_all = not needs.gpu and not options.preemptible
    single_cpu = dataclasses.replace(needs, cpus=1)  # fewer CPUs make it slower, not impossible
    small = single_cpu if one_for_all else Needs(SMALL_MIN, SMALL_MB, 1)
    cpu = choose_partition(site, small, options, options.partition, preemptible=False)
    run = cpu
    if not one_for_all:
        run = choose_partition(site, single_cpu, options, options.run_partition, preemptible=options.preemptible)
    draft = ProfileDraft()
    _add_partitions(draft, site, needs, options, cpu, run)
    _add_queue(draft, site, options, [cpu, run])
    _add_files(draft, site)
    _add_programs(draft, site)
    return draft


def _add_partitions(
    draft: ProfileDraft, site: Site, needs: Needs, options: SiteOptions, cpu: PartitionChoice, run: PartitionChoice
) -> None:
    """Partitions and who is charged."""
    apart = run.partition.name != cpu.partition.name
    _add_partition(draft, cpu, "of the small steps" + ("" if apart else " and of the runs"))
    if apart and not options.preemptible:  # else runs name theirs, and nothing else goes there
        _add_partition(draft, run, "of the runs")
    if cpu.account:
        draft.defaults.append(entry("slurm_account", cpu.account, _why_account(site, cpu)))
    if cpu.qos:
        draft.defaults.append(entry("qos", cpu.qos, f"the default QOS does not serve in {cpu.partition.name}"))
    draft.defaults += template("runtime", "mem_mb", "cpus_per_task")
    if options.preemptible:
        draft.run.append(entry("slurm_partition", run.partition.name, "its jobs are preempted, and run again"))
    if run.account != cpu.account:
        draft.run.append(entry("slurm_account", run.account, f"{run.partition.name} takes no other account"))
    if run.qos != cpu.qos:
        usual = next((each.usual_qos for each in site.associations if each.account == run.account), "")
        why = "its jobs are preempted" if run.preemptible else f"what serves in {run.partition.name}"
        draft.run.append(entry("qos", run.qos or usual, why))
    needs = _share_node(draft, needs, run.partition)
    if cpu.minutes < STAGING_MIN:
        why = f"the limit of {cpu.partition.name}; stage what takes longer by `snakemake prepare` on one machine"
        draft.staging.append(entry("runtime", int(cpu.minutes), why))
    draft.messages += [
        f"{site.cluster}: Slurm {site.version}, {counted(len(site.partitions), 'partition')} that you see",
        f"small steps: partition {cpu.partition.name}{_describe_account(cpu)}",
        f"runs: partition {run.partition.name}{_describe_account(run)}, {needs.minutes} min, {needs.memory_mb} MiB, "
        f"{needs.cpus} CPUs{needs.gpu_text}" + (", preemptible: requeued" if run.preemptible else ""),
    ]
    if run.partition.exclusive or site.whole_nodes:
        draft.warnings.append(f"{run.partition.name} gives whole nodes: every job holds one, also the small ones")
    if run.preemptible and not options.preemptible:
        draft.warnings.append(f"jobs in {run.partition.name} are preempted; `--preemptible` writes a profile for that")
    if needs.gpu and needs.model is None and len(run.partition.models) > 1:
        types = ", ".join(run.partition.models)
        draft.warnings.append(f"{run.partition.name} has {types}: runs compare on one of them, sandbox.gpu_model")
    if run.partition.has_gpus and not needs.gpu:
        draft.warnings.append(f"{run.partition.name} has GPUs, which sandbox.gpu: 0 asks none of; they may lie idle")


def _share_node(draft: ProfileDraft, needs: Needs, partition: Partition) -> Needs:
    """The needs with as many CPUs as leave none of a node's GPUs idle; a warning where memory leaves some."""
    fits = [each for each in partition.kinds if fits_node(each, dataclasses.replace(needs, cpus=1))]
    kind = max(fits, key=lambda each: each.nodes)
    runs = kind.all_gpus // needs.gpu if needs.gpu else 1
    cpus = max(1, min(needs.cpus, kind.cpus // runs))
    if cpus < needs.cpus:
        why = f"{kind.cpus} CPUs of a node for {counted(runs, 'run')}"
        draft.run.append(entry("cpus_per_task", cpus, why))
    if (held := kind.memory_mb // needs.memory_mb) < runs:
        warning = f"a node of {partition.name} has GPUs for {runs} runs and memory for {held}: lower limits.mem_gb"
        draft.warnings.append(warning)
    return dataclasses.replace(needs, cpus=cpus)


def _describe_account(place: PartitionChoice) -> str:
    words = [f"account {place.account}" if place.account else "", f"QOS {place.qos}" if place.qos else ""]
    return "".join(f", {word}" for word in words if word)


def _why_account(site: Site, place: PartitionChoice) -> str:
    others = sorted({each.account for each in site.associations} - {place.account})
    kind = "your default account" if place.account == site.default_account else "the first that the partition takes"
    return f"{kind}; others: {', '.join(others[:4])}" if others else f"{kind}; you have no other"


def _add_partition(draft: ProfileDraft, place: PartitionChoice, what: str) -> None:
    """An entry of the partition file.

    Of GPU partitions it has only what keeps small steps out: the executor takes the partition whose limits a step
    fills best, less one where it has GPUs that the step does not ask for.
    """
    partition, kinds = place.partition, place.partition.kinds
    rows = []
    if place.minutes < math.inf:
        rows.append(entry("max_runtime", int(place.minutes), f"minutes; {what}"))
    if partition.has_gpus:
        rows.append(entry("max_gpu", max(kind.all_gpus for kind in kinds), "GPUs of its largest node"))
        if partition.models:
            rows.append(entry("available_gpu_models", list(partition.models), "for sandbox.gpu_model"))
    else:
        rows += [
            entry("max_mem_mb", max(kind.memory_mb for kind in kinds), "MiB of its largest node"),
            entry("max_threads", max(kind.cpus for kind in kinds), "CPUs of its largest node"),
        ]
    draft.partitions[partition.name] = rows


# --- queue --------------------------------------------------------------------------------------------------------


def _add_queue(draft: ProfileDraft, site: Site, options: SiteOptions, places: Sequence[PartitionChoice]) -> None:
    jobs, why = limit_jobs(site, places)
    rate, why_rate = _rate(site)
    draft.top += [
        *template("executor"),
        entry("slurm-partition-config", "partitions.yaml", "beside this file: each job goes where its needs fit"),
        entry("jobs", jobs, why),
        entry("max-jobs-per-timespan", rate, why_rate),
        *template("local-cores", "slurm-jobname-prefix", "seconds-between-status-checks", "retries"),
    ]
    if options.preemptible:
        draft.top.append(entry("slurm-requeue", True, "a preempted run continues where it stopped, in the same job"))
    else:
        draft.top += template("slurm-no-requeue")
    if site.database_down:
        draft.warnings.append("slurmdbd does not answer: account and QOS are not known; call this again when it does")
    draft.messages.append(f"queue: {jobs} jobs at a time ({why}), {rate.replace('/', ' submissions per ')}")


def _rate(site: Site) -> tuple[str, str]:
    if site.calls_per_s is None:
        return f"{SUBMISSIONS_PER_6S}/6s", "submissions: gentle to the scheduler"
    allowed = max(1, min(SUBMISSIONS_PER_6S, int(site.calls_per_s * 6 / 2)))
    return f"{allowed}/6s", f"half of the {site.calls_per_s:g} calls per second that the controller answers you"


# --- files and programs -------------------------------------------------------------------------------------------


def _add_files(draft: ProfileDraft, site: Site) -> None:
    results = site.folders["results"]
    kind, shared = results.kind, results.kind in NETWORK_FILE_SYSTEMS
    wait = 60 if shared else 20
    draft.top.append(entry("latency-wait", wait, f"seconds for a file of another node to appear on {kind}"))
    if shared and not site.folders["metadata of Snakemake"].filled:
        why = "one file instead of one per output; every call of this campaign then needs this profile"
        draft.top.append(entry("persistence-backend", "db", why))
    several = sum(nodes.nodes for each in site.partitions for nodes in each.kinds) > 1
    if several and not shared:
        draft.warnings.append(
            f"{results.path} lies on {kind}, which other nodes may not see: `srun ls {results.path}` must show it"
        )
    for name, folder in site.folders.items():
        if folder.free_files is not None and folder.free_files < 100_000:
            draft.warnings.append(f"{name} ({folder.path}) has room for {folder.free_files} more files only")
    draft.messages.append(f"files: results on {kind}, {results.free_bytes / 1e9:.0f} GB free")


def _add_programs(draft: ProfileDraft, site: Site) -> None:
    """Apptainer in the jobs, from a module where it is in no PATH; and what keeps their memory."""
    if site.apptainer:
        draft.messages.append(f"containers: {site.apptainer}")
    elif site.module:
        load = f"module load {site.module}"
        command = f". {site.module_init} && {load}" if site.module_init else load
        draft.top.append(entry("precommand", command, "in every job: Apptainer is a module here"))
        draft.messages.append(f"containers: `{load}`, in every job and before `snakemake prepare`")
        if site.module.startswith("singularity"):
            draft.warnings.append("the module is Singularity's; Apptainer 1.2 or newer is needed: ask for it")
    else:
        draft.warnings.append("no Apptainer in PATH and none among the modules: agent code cannot run; ask for it")
    if not site.cgroups:
        draft.warnings.append("Slurm keeps memory without cgroups: a call over its limit is found by polling")


def profile_text(draft: ProfileDraft, folder: str, cluster: str) -> str:
    """``config.yaml`` of the profile."""
    tables = {"stage_task": draft.staging, "run_agent": draft.run}
    lines = [*draft.top, "", "default-resources: # of steps that ask for nothing else"]
    lines += _indent(draft.defaults, 2)
    lines += ["", "set-threads:", *_indent(template("stage_task"), 2)]
    if any(tables.values()):
        lines += ["", "set-resources: # what differs from what the rules ask for"]
    for rule, entries in tables.items():
        if entries:
            lines += [f"  {rule}:", *_indent(entries, 4)]
    return HEAD.format(folder=folder, cluster=cluster) + "\n".join(lines) + "\n"


def partitions_text(draft: ProfileDraft, network: str) -> str:
    """``partitions.yaml``, which the executor reads; it passes over the first key."""
    lines = [f"nodes_reach_internet: {json.dumps(network)}", "", "partitions:"]
    for name, entries in draft.partitions.items():
        lines += [f"  {json.dumps(name)}:" + ("" if entries else " {}"), *_indent(entries, 4)]
    return PARTITIONS + "\n".join(lines) + "\n"


def write_files(texts: dict[Path, str], *, force: bool) -> Iterable[str]:
    """Write the files; yields what became of each.

    One that is there with another content is kept, and the new one is written beside it as ``<name>.new``, unless
    ``force``. Raises InfrastructureError when the folder cannot be written.
    """
    for path, text in texts.items():
        there = path.read_text("utf-8") if path.is_file() else None
        if there == text:
            yield f"{path}: as it was"
        elif there is None or force:
            write_text(path, text)
            yield f"{path}: written"
        else:
            new = path.with_name(f"{path.name}.new")
            write_text(new, text)
            yield f"{path}: kept, as it differs; the new one is {new.name} (`diff {path} {new}`, or --force)"


def _indent(lines: Sequence[str], indent: int) -> list[str]:
    return [f"{' ' * indent}{line}" for line in lines]
