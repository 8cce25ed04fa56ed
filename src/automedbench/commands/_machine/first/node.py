"""Comparison of a node with the machine of the head, as a job makes it: folders, keys, programs, endpoints, clock."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.plaintable import counted
from automedbench.commands._machine.examine import Host, ProbeResult, ProbeResults, fail, ok, warn
from automedbench.commands._machine.host import read_folder, run_program
from automedbench.commands._machine.local import SKEW_S
from automedbench.sandbox.container.gpus import list_cards

PROBE = "shared folder"
POLL_S = 0.25
CONNECT_S = 15
LATEST_S = 90.0
"""Wait for a file from the other side; NFS caches for up to 60 s by default."""
LOW_BYTES = 10e9


@dataclass(frozen=True)
class Head:
    """What the head sees: ``folders`` by path with their key, whether they hold anything and can be written."""

    folders: dict[str, tuple[str, bool, bool]]
    uid: int
    variables: list[str]
    programs: list[str]
    urls: list[str]
    gpu: int
    exchange: Path
    """Folder in which both sides write a file for the other."""
    patience_s: float
    profile: Path


def compare(head: Head, _host: Host) -> ProbeResults:
    """What differs on this node; where nothing does, clocks and how late files are seen."""
    place = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    found = [*_folders(head, place), *_surroundings(head, place)]
    yield from found or [ok(PROBE, f"{place} sees {counted(len(head.folders), 'folder')}, as here")]
    if not found:
        yield _times(head, place)


def _folders(head: Head, place: str) -> ProbeResults:
    """Folders that are not as they are on the head."""
    for path, (name, filled, writable) in head.folders.items():
        is_there = os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK)
        there = read_folder(Path(path)) if is_there else None
        if there is None or (filled and not there.filled):
            fix = f"Set {name} to a folder that all nodes mount; `srun -w {place} ls {path}` must show it."
            yield fail(PROBE, f"{path} is {'empty' if there else 'missing'} on {place}", fix)
        elif writable and not os.access(path, os.W_OK):
            yield fail(PROBE, f"{path} cannot be written on {place}", "Ask for a mount with write access there.")
        elif name == "results" and there.free_bytes < LOW_BYTES:
            fix = "Free space, or put results on a larger file system."
            yield warn(PROBE, f"{path} has {there.free_bytes / 1e9:.1f} GB free on {place}", fix)


def _surroundings(head: Head, place: str) -> ProbeResults:
    """User, keys, programs, endpoints and cards that are not as they are on the head."""
    if os.geteuid() != head.uid:
        fix = "Nodes and this machine must take users from one directory: tell the administrators."
        yield fail(PROBE, f"jobs on {place} run as user {os.geteuid()}, you are {head.uid}", fix)
    if absent := [name for name in head.variables if not os.environ.get(name)]:
        fix = "Let jobs inherit it: unset SBATCH_EXPORT, take --export out of slurm_extra, ask about prologs."
        yield fail(PROBE, f"{', '.join(absent)} is not set in jobs on {place}", fix)
    for name in (name for name in head.programs if run_program([name, "--version"], 20)[0]):
        fix = "Ask for it on the nodes, or load its module before Snakemake starts, or in precommand of the profile."
        yield fail(PROBE, f"{name} does not start on {place}", fix)
    for url, why in ((url, why) for url in head.urls if (why := try_url(url))):
        fix = "Set HTTPS_PROXY for the jobs, use an endpoint within the cluster, or a partition with a way out."
        yield fail(PROBE, f"{place} does not reach {url}, which this machine does: {why}", fix)
    if head.gpu and (cards := len(list_cards())) < head.gpu:
        fix = "Its gres.conf names a card that is not there or not usable: tell the administrators, exclude the node."
        yield fail(PROBE, f"{place} gave a job {head.gpu} × GPU, and {cards} can be opened there", fix)


def try_url(url: str) -> str:
    """Why a URL gives no answer here; any answer of a server will do, also a refusal."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=CONNECT_S).close()
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", "") or error)
    return ""


def _times(head: Head, place: str) -> ProbeResult:
    """Clocks apart, and files that are seen late, against the profile's patience.

    A file cannot be seen before it is written: this bounds the difference of the clocks from both sides.
    """
    if (seen := _exchange(head.exchange)) is None:
        which = f"{place} is not seen here" if head.exchange.exists() else f"this machine is not seen on {place}"
        fix = "Both must mount the same file system: ask the administrators for its name on the nodes."
        return fail(PROBE, f"a file from {which} within {LATEST_S:.0f} s", fix)
    here, there = seen
    if here < -SKEW_S or there < -SKEW_S:
        apart = f"{-here:.0f} s ahead of" if here < -SKEW_S else f"{-there:.0f} s behind"
        fix = "Synchronise the clocks (NTP): leases of runs depend on it; tell the administrators."
        return fail(PROBE, f"the clock of {place} is {apart} this machine's", fix)
    text = f"a file from {place} is seen after {here:.1f} s, one from here after {there:.1f} s"
    if max(seen) > head.patience_s:
        fix = f"Set latency-wait: {2 * max(seen):.0f} in {head.profile}."
        return fail(PROBE, f"{text}; latency-wait is {head.patience_s:.0f}", fix)
    return ok(PROBE, text)


def _exchange(folder: Path) -> tuple[float, float] | None:
    """Seconds, by both clocks, after which the head sees a file of this node, and this node one of the head's."""
    if not _appears(folder):
        return None
    write_time(folder / "from-node")
    if not _appears(folder / "from-head"):
        return None
    saw = time.time()
    late, wrote = map(float, (folder / "from-head").read_text().split())
    return late, saw - wrote


def write_time(path: Path, before: str = "") -> None:
    """Write the time of this machine's clock in one step, so that the other side reads a whole file or none."""
    new = path.with_suffix(".new")
    new.write_text(f"{before}{time.time()}")
    new.rename(path)


def _appears(path: Path) -> bool:
    until = time.monotonic() + LATEST_S
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True
