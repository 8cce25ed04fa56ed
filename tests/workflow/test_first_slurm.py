"""Faults of a cluster, planted on a real Slurm of four nodes, each named by `first-run` with its next step."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Project, give_to_stranger
from test_slurm import PAPER, setup
from unprivileged import USER

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(600)]

STATE = Path("/var/lib/automedbench-setup/slurm")
TOP = {"executor": "automedbench-slurm", "jobs": 10, "latency-wait": 4, "slurm-no-requeue": True}
JOBS = {"slurm_account": "bench", "slurm_partition": "cpu", "runtime": 30, "mem_mb": 400}
BOX = {"sandbox": {"backend": "apptainer", "network": "sealed"}, "containers": {"agent": {"image": "light"}}}
DEMO = ("--configfile", "demo/config.yaml")
PORT = 9901
AGENT = {"provider": "openai", "model": "m", "base_url": f"http://127.0.0.1:{PORT}/v1", "api_key_env": "LAB_MODEL_KEY"}
PAID = BOX | {
    "agents_file": "build/agents.yaml",
    "matrix": {"agents": ["paid"], "tasks": ["bccd-det-task"], "tiers": ["lite"], "repeats": 1},
}
Plant = Callable[["Cluster"], AbstractContextManager[object]]


@dataclass(frozen=True)
class Cluster:
    """A running Slurm, where its state lies, how it is started again, and the clone that submits to it."""

    project: Project
    up: Callable[[], object]
    state: Path = STATE

    def first_run(self, fault: Fault) -> str:
        """What first-run prints about jobs with the profile and the campaign of a fault."""
        self.write("fault/config.yaml", TOP | fault.profile | {"default-resources": JOBS | fault.resources})
        self.write("fault.yaml", {"limits": {"mem_gb": 1}} | fault.campaign)
        self.write("agents.yaml", {"agents": {"paid": AGENT}})
        give_to_stranger(self.project, self.project.path / "build")
        names = [word for name in ("slurm", "jobs", "shared folder", *fault.also) for word in ("--only", name)]
        files = (*DEMO, "build/fault.yaml", "--profile", "build/fault")
        call = ("python", "-m", "automedbench", "first-run", "--again", *files, *names)
        return self.project.run(*call, timeout=400, LAB_MODEL_KEY="sk-canary-of-a-lab").stdout

    def call(self, *words: str) -> Any:
        """The JSON that a command prints, for the campaign of the demo."""
        done = self.project.run("python", "-m", "automedbench", *words, "--json", *DEMO, timeout=400)
        return json.loads(done.stdout)

    def write(self, name: str, content: Any) -> None:
        """A YAML file below build/ of the clone."""
        path = self.project.path / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))


@dataclass(frozen=True)
class Fault:
    """How a fault is planted, and what a line says about it; without both words the set-up is sound."""

    name: str
    plant: Plant = lambda _: contextlib.nullcontext()
    says: str = ""
    fix: str = ""
    campaign: dict[str, Any] = field(default_factory=dict)
    profile: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    """Other probes that are asked for."""


def scontrol(*words: str) -> None:
    subprocess.run(
        ["scontrol", *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


@contextlib.contextmanager
def ended(cluster: Cluster, daemon: str) -> Iterator[None]:
    """A daemon that has gone; it is started again afterwards."""
    os.kill(int((cluster.state / f"{daemon}.pid").read_text()), 15)
    time.sleep(2)
    try:
        yield
    finally:
        cluster.up()


@contextlib.contextmanager
def changed(there: tuple[str, ...], back: tuple[str, ...]) -> Iterator[None]:
    """A change by scontrol, and the way back."""
    scontrol(*there)
    try:
        yield
    finally:
        scontrol(*back)


def partition(**values: str) -> Plant:
    """Another setting of partition cpu."""
    usual = {"MaxTime": "1-00:00:00", "State": "UP"}
    words = ("update", "PartitionName=cpu")
    return lambda _: changed(
        (*words, *(f"{name}={value}" for name, value in values.items())),
        (*words, *(f"{name}={usual[name]}" for name in values)),
    )


def drained(_: Cluster) -> AbstractContextManager[None]:
    return changed(
        ("update", "NodeName=ALL", "State=DRAIN", "Reason=a broken fan"), ("update", "NodeName=ALL", "State=RESUME")
    )


def on_one_node(script: str) -> Plant:
    """The first node in a mount namespace of its own, after a script there; the others take no jobs meanwhile."""

    @contextlib.contextmanager
    def plant(cluster: Cluster) -> Iterator[None]:
        first = min(cluster.state.glob("slurmd-*.pid"))
        name = first.stem.removeprefix("slurmd-")
        os.kill(int(first.read_text()), 15)
        scratch = cluster.state / "fault"
        subprocess.run(["rm", "-rf", str(scratch)], check=True)
        scratch.mkdir(mode=0o755)
        results = cluster.project.path / "results/demo"
        text = f"set -e\nmount --make-rprivate /\nF={scratch} R={results}\n{script}\nexec slurmd -D -N {name}\n"
        nodes = subprocess.check_output(["sinfo", "-h", "-p", "cpu", "-o", "%N"], text=True).strip()
        time.sleep(1.5)
        with open(scratch / "log", "w") as log:
            process = subprocess.Popen(["unshare", "-m", "bash", "-c", text], stdout=log, stderr=log)
        scontrol("update", "PartitionName=cpu", f"Nodes={name}")
        try:
            time.sleep(1.5)
            assert process.poll() is None, (scratch / "log").read_text()
            yield
        finally:
            process.terminate()
            process.wait(timeout=20)
            first.unlink(missing_ok=True)
            scontrol("update", "PartitionName=cpu", f"Nodes={nodes}")
            cluster.up()

    return plant


HIDDEN = "mount -t tmpfs none $R"
READ_ONLY = "mount --bind $R $R; mount -o remount,bind,ro $R"
NO_APPTAINER = "mount --bind /dev/null $(readlink -f $(command -v apptainer))"
# What either side writes is copied to the other one every eight seconds.
LATE = """
mkdir $F/there; touch $F/real; mount --bind $R /mnt; cp -a $R/. $F/there; chmod 777 $F/there
mount --bind $F/there $R
( while sleep 8; do cp -au /mnt/. $R; cp -au $R/. /mnt; done ) & """
# The shell of jobs has no network; slurmd itself keeps its own.
SEALED = """
cp $(readlink -f /bin/sh) $F/sh
printf '#!/bin/bash\\nexec unshare -c -n %s "$@"\\n' $F/sh >$F/wrapper; chmod 755 $F/wrapper
mount --bind $F/wrapper $(readlink -f /bin/sh)"""
CLOCK = """
printf 'import time as _t\\n_now=_t.time\\n_t.time=lambda: _now()+300\\n' >$F/sitecustomize.py
printf '#!/bin/bash\\nexport PYTHONPATH=%s:$PYTHONPATH; exec %s "$@"\\n' $F $F/sh >$F/wrapper; chmod 755 $F/wrapper
cp $(readlink -f /bin/sh) $F/sh; mount --bind $F/wrapper $(readlink -f /bin/sh)"""


REQUEUED = {"slurm-no-requeue": False, "slurm-requeue": True}
FAULTS = (
    Fault("sound"),
    Fault("sound, requeued", profile=REQUEUED),
    Fault("sound, paid", campaign=PAID),
    Fault("sound, containers without GPUs", campaign=BOX, also=("kernel", "packages", "case")),
    Fault("dead controller", lambda at: ended(at, "slurmctld"), "slurmctld does not answer", "administrators"),
    Fault("no accounting", lambda at: ended(at, "slurmdbd"), "accounting does not answer", "Runs go on by squeue"),
    Fault("account", says="Invalid account", fix="site --account", resources={"slurm_account": "theirs"}),
    Fault("QOS", says="Invalid qos", fix="site --qos", resources={"qos": "premium"}),
    Fault("no node fits", says="node configuration", fix="limits.mem_gb", campaign={"limits": {"mem_gb": 1000}}),
    Fault("no card", says="0 can be opened there", fix="gres.conf", campaign={"sandbox": {"gpu": 1}}),
    Fault("drained", drained, "stays in the queue", "sinfo -R"),
    Fault("partition too short", partition(MaxTime="00:20:00"), "PartitionConfig", "limits.time_limit_s"),
    Fault("partition down", partition(State="DOWN"), "PartitionDown", "choose another partition"),
    Fault("preempting", says="spare preempts jobs", fix="--preemptible", resources={"slurm_partition": "spare"}),
    Fault(
        "requeue forbidden",
        says="cannot be requeued",
        fix="automedbench site",
        profile=REQUEUED,
        resources={"slurm_extra": "--no-requeue"},
    ),
    Fault(
        "keys",
        says="LAB_MODEL_KEY is not set",
        fix="--export",
        campaign=PAID,
        resources={"slurm_extra": "--export=NONE"},
    ),
    Fault("results not on the node", on_one_node(HIDDEN), "is empty on", "all nodes mount"),
    Fault("results read-only", on_one_node(READ_ONLY), "cannot be written on", "write access"),
    Fault("late files", on_one_node(LATE), "latency-wait is 4", "Set latency-wait: 1"),
    Fault("clock off", on_one_node(CLOCK), "ahead of this machine's", "NTP"),
    Fault("no way out", on_one_node(SEALED), "does not reach http", "HTTPS_PROXY", campaign=PAID),
    Fault("no Apptainer", on_one_node(NO_APPTAINER), "apptainer does not start", "precommand", campaign=BOX),
)


@pytest.fixture(scope="module")
def cluster(container_stranger: Project) -> Iterator[Cluster]:
    """A Slurm of four nodes with accounting, and a server on loopback; both stopped afterwards, also after an error."""
    programs = ("slurmctld", "slurmd", "munged", "slurmdbd", "mariadbd")
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in programs):
        pytest.skip("only root can start a Slurm (tests/setup/slurm.sh up --accounting slurmdbd)")
    environment = {name: value for name, value in container_stranger.environment.items() if name != "SLURM_CONF"}
    serve = [sys.executable, "-m", "http.server", str(PORT), "--bind", "127.0.0.1", "--directory", str(STATE / "log")]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLURM_CONF", raising=False)
        try:
            setup("up", "--accounting", "slurmdbd", *PAPER)
            setup("user", USER)
            server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            up = lambda: setup("up", "--accounting", "slurmdbd", *PAPER)  # noqa: E731
            yield Cluster(replace(container_stranger, environment=environment), up)
            server.kill()
            server.wait()
        finally:
            setup("down")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_of_a_cluster_is_named(cluster: Cluster, fault: Fault) -> None:
    with fault.plant(cluster):
        lines = cluster.first_run(fault).splitlines()
    wrong = [line for line in lines if line.startswith(("warn", "FAIL"))]
    if fault.says:
        assert any(
            fault.says in message and fault.fix in fix for message, _, fix in (w.partition(" → ") for w in wrong)
        ), lines
    else:
        assert wrong == [] and any(line.startswith("ok") for line in lines), lines


def test_site_takes_what_slurm_accepts(cluster: Cluster) -> None:
    """Accounts and preemption as tests/setup/slurm.sh has them; the doctor asks again, by the profile."""
    cluster.call("site", "--out", "build/own")
    profile = yaml.safe_load((cluster.project.path / "build/own/config.yaml").read_text())
    small = profile["default-resources"]
    assert (small["slurm_partition"], small["slurm_account"], "set-resources" in profile) == ("cpu", "bench", False)
    cluster.call("site", "--out", "build/spare", "--preemptible")
    profile = yaml.safe_load((cluster.project.path / "build/spare/config.yaml").read_text())
    assert (profile["set-resources"]["run_agent"]["slurm_partition"], profile["slurm-requeue"]) == ("spare", True)

    def looked(name: str) -> dict[str, str]:
        found = cluster.call("doctor", "--profile", f"build/{name}")
        return next(each for each in found if each["probe"] == "slurm")

    assert [looked(name)["status"] for name in ("own", "spare")] == ["ok", "ok"]
    cluster.write("theirs/config.yaml", TOP | {"default-resources": JOBS | {"slurm_account": "theirs"}})
    give_to_stranger(cluster.project, cluster.project.path / "build")
    found = looked("theirs")
    assert (found["status"], "Invalid account" in found["message"], "site --account" in found["fix"]) == (
        "FAIL",
        True,
        True,
    )
