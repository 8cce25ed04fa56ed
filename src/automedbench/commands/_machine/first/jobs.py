"""Slurm through the campaign's profile: what it would take, jobs, and the folder that head and nodes share."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import write_bytes
from automedbench.base.slurm import ENDED
from automedbench.campaign.load import Campaign
from automedbench.commands._machine.examine import (
    Host,
    HostProbe,
    ProbeResult,
    ProbeResults,
    examine,
    fail,
    next_step,
    ok,
    result_of_error,
    warn,
)
from automedbench.commands._machine.first import node, trial
from automedbench.commands._machine.host import run_program
from automedbench.commands._machine.inputs import is_absent, list_clients
from automedbench.commands._machine.placement import ADVICE, Needs, find_lack
from automedbench.commands._machine.profile import Profile, read_profile, slurm_profile
from automedbench.commands._machine.slurm import Site, read_site
from automedbench.planning.needs import STAGING, run_resources

JOBS, SLURM = "jobs", "slurm"
LATE_END_S = 60.0
LONGEST_TRY_S = 300.0
REPORT = "automedbench first-run: "
"""Begins the line of a job that holds what it found; programs of the site print into the same log."""
SLEEP = "import os, time; time.sleep(0 if int(os.environ.get('SLURM_RESTART_COUNT', 0)) else 150)"


def slurm(host: Host) -> ProbeResults:
    """Slurm would take the campaign's jobs as the profile asks for them; nothing is submitted."""
    named = read_profile(host.root, host.profile) if host.profile else None
    if shutil.which("sinfo") is None:
        yield ok(SLURM, "not on this machine; only profiles with `executor: automedbench-slurm` need it")
        return
    try:
        site = read_site()
    except MissingDataError as error:
        yield warn(SLURM, str(error).partition("\n")[0], "Needed on a cluster only: ask its administrators.")
        return
    profile = named or read_profile(host.root)
    found = [*_check_job(profile, site, "small steps", "", {})]
    if host.campaign is not None:
        if not found and any(is_absent(host.campaign, task) for task in host.campaign.tasks):
            found += _check_job(profile, site, "staging", "stage_task", STAGING)
        found += _check_job(profile, site, "runs", "run_agent", run_resources(host.campaign))
    if profile.content.get("executor") == "slurm":
        fix = f"Write `executor: automedbench-slurm` in {profile.path}; the options stay as they are."
        found.append(warn(SLURM, "executor: slurm makes every step a job: six per run instead of two", fix))
    yield from found or [ok(SLURM, f"{profile.path}: {site.cluster} takes its jobs")]


def _check_job(
    profile: Profile, site: Site, what: str, rule: str, requested: Mapping[str, int | str]
) -> Iterator[ProbeResult]:
    """What Slurm has against a rule's jobs, and what it would let happen to them."""
    job = profile.job(rule, requested)
    name, needs = job.get("slurm_partition"), Needs.from_resources(job)
    partition = next((each for each in site.partitions if each.name == name or (name is None and each.default)), None)
    lower = "lower the limits of the campaign" if rule == "run_agent" else "run `snakemake prepare` on one machine"
    if partition and (why := find_lack(partition, needs)):
        fix = f"Run `automedbench site`, or change {profile.path}; or {lower}."
        fix = next_step(partition.closed, ADVICE, fix)
        yield fail(SLURM, f"{what}: partition {partition.name} {why}; the jobs ask for {needs}", fix)
        return
    try:
        trial.check(profile, what, rule, requested)
    except trial.JobRefusedError as error:
        found = result_of_error(SLURM, error)
        fix = f"Run `automedbench site`, which asks for what fits; or {lower}."
        yield found.model_copy(update={"fix": fix}) if rule == "stage_task" else found
    if rule != "run_agent":
        return
    for key in ("runtime", "mem_mb"):
        if int(job.get(key, 0)) < (least := int(requested.get(key, 0))):
            fix = f"Remove it from set-resources.{rule} in {profile.path}."
            yield fail(SLURM, f"{what}: {key}: {job[key]} is below the {least} that the campaign's limits need", fix)
    requeued = profile.content.get("slurm-requeue")
    if partition and not requeued and site.preempts(partition, str(job.get("qos", ""))):
        fix = "Use the profile that `automedbench site --preemptible` writes, or another partition."
        yield warn(SLURM, f"runs: {partition.name} preempts jobs, and {profile.path} does not requeue them", fix)


def jobs(host: Host) -> ProbeResults:
    """One job that ends, one that is cancelled, and, where the profile requeues, one that runs again."""
    profile = slurm_profile(host)
    if profile is None:
        return
    status, text = run_program(["scontrol", "ping"], 30)
    if status or " is UP" not in text:
        fix = "Ask the administrators; no job can start until it does."
        yield fail(JOBS, f"slurmctld does not answer: {text.splitlines()[0] if text else status}", fix)
        return
    tries = [_end, _cancel, *[_requeue] * bool(profile.content.get("slurm-requeue"))]
    yield from examine(host, [HostProbe(JOBS, partial(each, profile), 590) for each in tries], 590)


@contextlib.contextmanager
def _submitted(profile: Profile, what: str, host: Host, command: Sequence[str]) -> Iterator[trial.TrialJob]:
    """A job of the runs, or of the small steps; it is gone at the end, also after an error."""
    rule, requested = ("run_agent", run_resources(host.campaign)) if what == "runs" and host.campaign else ("", {})
    job = trial.submit(profile, what, rule, requested, command)
    try:
        yield job
        job.log_path.unlink(missing_ok=True)
    finally:
        job.cancel()


def _end(profile: Profile, host: Host) -> ProbeResults:
    with _submitted(profile, "runs", host, [sys.executable, "-c", "print('ran')"]) as job:
        job.wait({"COMPLETING", "COMPLETED"})
        since = time.monotonic()
        job.wait({"COMPLETED"})
        late = time.monotonic() - since
    if late > LATE_END_S:
        fix = "An epilog or a busy controller delays it: raise seconds-between-status-checks, ask the administrators."
        yield warn(JOBS, f"{job.what}: the end of job {job.number} was seen {late:.0f} s late", fix)
    else:
        yield ok(JOBS, f"{job.what}: job {job.number} ran and ended")
    status, text = run_program(["sacct", "--noheader", f"--jobs={job.number}"], 30)
    if status and "disabled" not in text:
        fix = "Runs go on by squeue; what jobs used is missing until slurmdbd runs: tell the administrators."
        yield warn(JOBS, f"accounting does not answer: {text.splitlines()[-1][:120] if text else status}", fix)


def _cancel(profile: Profile, host: Host) -> ProbeResults:
    with _submitted(profile, "small steps", host, [sys.executable, "-c", SLEEP]) as job:
        job.wait({"RUNNING"})
        job.cancel()
        job.wait({"CANCELLED"})
        yield ok(JOBS, f"{job.what}: job {job.number} was cancelled")


def _requeue(profile: Profile, host: Host) -> ProbeResults:
    with _submitted(profile, "runs", host, [sys.executable, "-c", SLEEP]) as job:
        job.wait({"RUNNING"})
        status, text = run_program(["scontrol", "requeue", job.number], 30)
        if status:
            fix = "Use the profile of `automedbench site`: the next call repeats a lost job; or ask for requeueing."
            yield fail(JOBS, f"{job.what}: job {job.number} cannot be requeued: {text[:120]}", fix)
            return
        job.wait({"PENDING"})
        run_program(["scontrol", "update", f"JobId={job.number}", "StartTime=now"], 30)
        job.wait({"COMPLETED"})
        yield ok(JOBS, f"{job.what}: job {job.number} was requeued and ran again")


def _always(_campaign: Campaign) -> bool:
    return True


@dataclass(frozen=True)
class OnNode:
    """A try of containers, which runs where agents run: here, or with a profile of Slurm in a job of the runs."""

    name: str
    look: Callable[[Host], ProbeResults]
    is_used: Callable[[Campaign], bool] = _always
    """Whether the campaign uses what is tried; no job is submitted otherwise."""

    def __call__(self, host: Host) -> ProbeResults:
        """Results of the try; a warning where no job begins. Raises InfrastructureError when the job prints none."""
        profile = slurm_profile(host)
        if profile is None or host.campaign is None or host.campaign.config.sandbox.backend != "apptainer":
            return self.look(host)
        return self.in_job(host, profile) if self.is_used(host.campaign) else []

    def in_job(
        self, host: Host, profile: Profile, meanwhile: Callable[[trial.TrialJob], object] = lambda _job: None
    ) -> list[ProbeResult]:
        """Results of the try in a job of the runs; ``meanwhile`` is called here when the job has been submitted."""
        file = trial.FOLDER / f"{self.name.replace(' ', '-')}.pickle"
        write_bytes(file, pickle.dumps((self, host)))
        command = [sys.executable, "-c", f"from {__name__} import print_results as p; p({str(file)!r})"]
        try:
            with _submitted(profile, "runs", host, command) as job:
                meanwhile(job)
                job.wait({"COMPLETED"})
                return [ProbeResult.model_validate(each) for each in _read_report(job)]
        except trial.JobRefusedError:
            return [warn(self.name, "not tried, as no job of the runs begins", "See 'jobs'.")]
        finally:
            file.unlink(missing_ok=True)


def print_results(file: str) -> None:
    """Print the results of a try, also none, as one line of JSON: what its job does."""
    there, host = pickle.loads(Path(file).read_bytes())
    found = examine(host, [HostProbe(there.name, there.look, LONGEST_TRY_S)], LONGEST_TRY_S)
    print(REPORT + json.dumps([each.model_dump() for each in found]))


def _read_report(job: trial.TrialJob) -> list[dict[str, Any]]:
    """What the job printed; raises InfrastructureError where its log is not seen here."""
    until = time.monotonic() + node.LATEST_S
    while not (lines := [line for line in job.log if line.startswith(REPORT)]):
        if time.monotonic() > until:
            raise InfrastructureError(
                f"{job.what}: what job {job.number} printed is not seen in {Path.cwd()}\n"
                "Put the clone into a folder that all nodes share."
            )
        time.sleep(1)
    report: list[dict[str, Any]] = json.loads(lines[0].removeprefix(REPORT))
    return report


def shared_folder(host: Host) -> ProbeResults:
    """What a node of the runs sees of folders, keys, programs, endpoints, cards and clock; how late files are seen."""
    profile = slurm_profile(host)
    if profile is None or host.campaign is None or "UP" not in run_program(["scontrol", "ping"], 30)[1]:
        return  # the probe of jobs says so
    host.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".first-run-", dir=host.results, ignore_cleanup_errors=True) as name:
        exchange = Path(name).absolute()
        look = partial(node.compare, read_head(host, host.campaign, profile, exchange))
        yield from OnNode(node.PROBE, look).in_job(host, profile, lambda job: _answer(exchange, job))


def read_head(host: Host, campaign: Campaign, profile: Profile, exchange: Path) -> node.Head:
    """What this machine sees of all that nodes must see as well."""
    clients = list_clients(campaign).values()
    data = {f"data.{name}": path for name, path in campaign.config.data.model_dump().items()}
    folders = {"results": host.results, "containers.folder": host.images} | data
    places = {str(Path(path).absolute()): name for name, path in folders.items() if Path(path).is_dir()}
    return node.Head(
        folders={path: (name, any(Path(path).iterdir()), os.access(path, os.W_OK)) for path, name in places.items()},
        uid=os.geteuid(),
        variables=sorted({name for each in clients if (name := each.api_key_env) and os.environ.get(name)}),
        programs=["apptainer"] if campaign.config.sandbox.backend == "apptainer" else [],
        urls=sorted(url for each in clients if (url := each.base_url) and not node.try_url(url)),
        gpu=campaign.config.sandbox.gpu,
        exchange=exchange,
        patience_s=float(profile.content.get("latency-wait", 5)),
        profile=profile.path,
    )


def _answer(exchange: Path, job: trial.TrialJob) -> None:
    """Write a file for the node when its own is seen: how late that is, and the time of the writing."""
    job.wait({"RUNNING", *ENDED})
    while not (exchange / "from-node").exists():
        if job.state() in ENDED:
            return
        time.sleep(node.POLL_S)
    late = time.time() - float((exchange / "from-node").read_text())
    node.write_time(exchange / "from-head", f"{late} ")
