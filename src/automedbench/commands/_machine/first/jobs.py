"""Tries of a Slurm cluster, through the campaign's profile: jobs, and the folder that head and nodes share."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import write_bytes
from automedbench.base.plaintable import counted
from automedbench.base.slurm import ENDED
from automedbench.campaign.load import Campaign
from automedbench.commands._machine.examine import (
    Host,
    HostProbe,
    ProbeResult,
    ProbeResults,
    examine,
    fail,
    ok,
    result_of_error,
    warn,
)
from automedbench.commands._machine.first import node, trial
from automedbench.commands._machine.host import run_program
from automedbench.commands._machine.inputs import list_clients
from automedbench.commands._machine.local import SKEW_S
from automedbench.commands._machine.profile import Profile, read_profile
from automedbench.planning.needs import run_resources

JOBS, FOLDER = "jobs", "shared folder"
LATE_END_S = 60.0
LATEST_S = 90.0
"""Wait for a file from the other side; NFS caches for up to 60 s by default."""
LOW_BYTES = 10e9
LONGEST_TRY_S = 300.0
SLEEP = "import os, time; time.sleep(0 if int(os.environ.get('SLURM_RESTART_COUNT', 0)) else 150)"


def slurm_profile(host: Host) -> Profile | None:
    """The profile that was named, or that `site` wrote, where its steps become jobs; else None."""
    if not host.profile and not (host.root / "profiles/site/config.yaml").is_file():
        return None
    profile = read_profile(host.root, host.profile)
    return profile if "slurm" in str(profile.content.get("executor")) else None


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
    tries: list[Callable[[Host, Profile], ProbeResults]] = [_end, _cancel]
    tries += [_requeue] if profile.content.get("slurm-requeue") else []
    with ThreadPoolExecutor() as pool:
        for found in pool.map(lambda each: _guarded(JOBS, each(host, profile)), tries):
            yield from found


def _guarded(probe: str, results: ProbeResults) -> list[ProbeResult]:
    found: list[ProbeResult] = []
    try:
        for each in results:
            found.append(each)
    except InfrastructureError as error:
        found.append(result_of_error(probe, error))
    return found


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


def _end(host: Host, profile: Profile) -> ProbeResults:
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


def _cancel(host: Host, profile: Profile) -> ProbeResults:
    with _submitted(profile, "small steps", host, [sys.executable, "-c", SLEEP]) as job:
        job.wait({"RUNNING"})
        job.cancel()
        job.wait({"CANCELLED"})
        yield ok(JOBS, f"{job.what}: job {job.number} was cancelled")


def _requeue(host: Host, profile: Profile) -> ProbeResults:
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


@dataclass(frozen=True)
class OnNode:
    """A try of containers, which runs where agents run: here, or with a profile of Slurm in a job of the runs."""

    name: str
    look: Callable[[Host], ProbeResults]

    def __call__(self, host: Host) -> ProbeResults:
        """Results of the try; a warning where no job begins. Raises InfrastructureError when the job prints none."""
        profile = slurm_profile(host)
        if profile is None or host.campaign is None or host.campaign.config.sandbox.backend != "apptainer":
            return self.look(host)
        file = trial.FOLDER / f"{self.name}.pickle"
        write_bytes(file, pickle.dumps((self, host)))
        command = [sys.executable, "-c", f"from {__name__} import print_results as p; p({str(file)!r})"]
        try:
            with _submitted(profile, "runs", host, command) as job:
                job.wait({"COMPLETED"})
                return [ProbeResult.model_validate(each) for each in _read_report(job)["results"]]
        except trial.JobRefusedError:
            return [warn(self.name, "not tried, as no job of the runs begins", "See 'jobs'.")]
        finally:
            file.unlink(missing_ok=True)


def print_results(file: str) -> None:
    """Print the results of a try as one line of JSON: what its job does."""
    there, host = pickle.loads(Path(file).read_bytes())
    found = examine(host, [HostProbe(there.name, there.look, LONGEST_TRY_S)], LONGEST_TRY_S)
    print(json.dumps({"results": [each.model_dump() for each in found]}))


# --- shared folder ------------------------------------------------------------------------------------------------


def shared_folder(host: Host) -> ProbeResults:
    """What a node of the runs sees of folders, keys, programs, endpoints, cards and clock; how late files are seen."""
    profile = slurm_profile(host)
    if profile is None or host.campaign is None or "UP" not in run_program(["scontrol", "ping"], 30)[1]:
        return  # the probe of jobs says so
    question = _question(host, host.campaign)
    try:
        report, wrote, saw = _ask_node(host, profile, question)
    except trial.JobRefusedError:
        yield warn(FOLDER, "not tried, as no job of the runs begins", "See 'jobs'.")
        return
    found = [*_folders(question, report), *_surroundings(host.campaign, question, report)]
    yield from found or [ok(FOLDER, f"{report['host']} sees {counted(len(question['folders']), 'folder')}, as here")]
    if "saw" in report and not found:
        yield from _times(profile, report, wrote, saw)


def _ask_node(host: Host, profile: Profile, question: dict[str, Any]) -> tuple[dict[str, Any], float, float | None]:
    """Report of a node, when a file was written for it, and when one of its own was seen."""
    with tempfile.TemporaryDirectory(prefix=".first-run-", dir=host.results, ignore_cleanup_errors=True) as name:
        question |= {"exchange": str(Path(name).absolute()), "wait_s": LATEST_S}
        command = [sys.executable, "-P", node.__file__, json.dumps(question)]
        with _submitted(profile, "runs", host, command) as job:
            job.wait({"RUNNING", *ENDED})
            wrote, saw = _answer(Path(name), job)
            job.wait({"COMPLETED"})
            return _read_report(job), wrote, saw


def _question(host: Host, campaign: Campaign) -> dict[str, Any]:
    host.results.mkdir(parents=True, exist_ok=True)
    data, clients = campaign.config.data.model_dump(), list_clients(campaign).values()
    folders = {str(host.results): "results", str(host.images): "containers.folder"}
    folders |= {path: f"data.{name}" for name, path in data.items()}
    return {
        "folders": {str(Path(path).absolute()): name for path, name in folders.items() if Path(path).is_dir()},
        "variables": sorted({each.api_key_env for each in clients if os.environ.get(each.api_key_env or "")}),
        "programs": ["apptainer"] if campaign.config.sandbox.backend == "apptainer" else [],
        "urls": sorted({each.base_url for each in clients if each.base_url}),
        "gpu": campaign.config.sandbox.gpu,
    }


def _answer(place: Path, job: trial.TrialJob) -> tuple[float, float | None]:
    """Write a file for the node when its own is seen: time of the writing, and when the other was seen, or None."""
    while not (place / "from-node").exists():
        if job.state() in ENDED:
            return time.time(), None
        time.sleep(node.POLL_S)
    saw = time.time()
    (place / "from-head").write_text("head")
    return time.time(), saw


def _read_report(job: trial.TrialJob) -> dict[str, Any]:
    """What the job printed; raises InfrastructureError where its log is not seen here."""
    until = time.monotonic() + LATEST_S
    while not (lines := [line for line in job.log if line.startswith("{")]):
        if time.monotonic() > until:
            raise InfrastructureError(
                f"{job.what}: what job {job.number} printed is not seen in {Path.cwd()}\n"
                "Put the clone into a folder that all nodes share."
            )
        time.sleep(1)
    report: dict[str, Any] = json.loads(lines[0])
    return report


def _folders(question: dict[str, Any], report: dict[str, Any]) -> ProbeResults:
    """Folders that are there on the node as they are here."""
    for path, name in question["folders"].items():
        there = report["folders"][path]
        if there["names"] is None or (there["names"] == 0 and any(Path(path).iterdir())):
            kind = "is missing" if there["names"] is None else "is empty"
            fix = f"Set {name} to a folder that all nodes mount; `srun -w {report['host']} ls {path}` must show it."
            yield fail(FOLDER, f"{path} {kind} on {report['host']}", fix)
        elif not there["writable"] and os.access(path, os.W_OK):
            yield fail(
                FOLDER, f"{path} cannot be written on {report['host']}", "Ask for a mount with write access there."
            )
        elif name == "results" and there["free"] < LOW_BYTES:
            fix = "Free space, or put results on a larger file system."
            yield warn(FOLDER, f"{path} has {there['free'] / 1e9:.1f} GB free on {report['host']}", fix)


def _surroundings(campaign: Campaign, question: dict[str, Any], report: dict[str, Any]) -> ProbeResults:
    """User, keys, programs, endpoints and cards on the node."""
    place = report["host"]
    if report["uid"] != os.geteuid():
        fix = "Nodes and this machine must take users from one directory: tell the administrators."
        yield fail(FOLDER, f"jobs on {place} run as user {report['uid']}, you are {os.geteuid()}", fix)
    if report["absent"]:
        fix = "Let jobs inherit it: unset SBATCH_EXPORT, take --export out of slurm_extra, ask about prologs."
        yield fail(FOLDER, f"{', '.join(report['absent'])} is not set in jobs on {place}", fix)
    for name in (name for name, version in report["programs"].items() if not version):
        fix = "Ask for it on the nodes, or load its module in precommand (`automedbench site` finds modules)."
        yield fail(FOLDER, f"{name} does not start on {place}", fix)
    for url, why in report["unreached"].items():
        fix = "Set HTTPS_PROXY for the jobs, use an endpoint within the cluster, or a partition with a way out."
        if not node.try_url(url):
            yield fail(FOLDER, f"{place} does not reach {url}, which this machine does: {why}", fix)
    if report["cards"] < (wanted := campaign.config.sandbox.gpu):
        fix = "Its gres.conf names a card that is not there or not usable: tell the administrators, exclude the node."
        yield fail(FOLDER, f"{place} gave a job {wanted} × GPU, and {report['cards']} can be opened there", fix)


def _times(profile: Profile, report: dict[str, Any], wrote: float, saw: float | None) -> ProbeResults:
    """Clocks apart, and files that are seen late, against the profile's patience.

    A file cannot be seen before it is written: this bounds the difference of the clocks from both sides.
    """
    place, patience = report["host"], float(profile.content.get("latency-wait", 5))
    if saw is None or report["saw"] is None:
        which = (
            f"{place} is not seen here" if report["wrote"] and saw is None else f"this machine is not seen on {place}"
        )
        fix = "Both must mount the same file system: ask the administrators for its name on the nodes."
        yield fail(FOLDER, f"a file from {which} within {LATEST_S:.0f} s", fix)
        return
    least, most = report["wrote"] - saw, report["saw"] - wrote
    if least > SKEW_S or most < -SKEW_S:
        apart = f"{abs(least if least > 0 else most):.0f} s {'ahead of' if least > 0 else 'behind'}"
        fix = "Synchronise the clocks (NTP): leases of runs depend on it; tell the administrators."
        yield fail(FOLDER, f"the clock of {place} is {apart} this machine's", fix)
        return
    text = f"a file from {place} is seen after {-least:.1f} s, one from here after {most:.1f} s"
    if max(-least, most) > patience:
        fix = f"Set latency-wait: {2 * max(-least, most):.0f} in {profile.path}."
        yield fail(FOLDER, f"{text}; latency-wait is {patience:.0f}", fix)
    else:
        yield ok(FOLDER, text)
