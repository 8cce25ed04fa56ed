"""Whatever ends a run, nothing of it outlives it: no process, no mount, no socket, no file outside of its results.

The real driver in a process of its own, real containers, an ordinary user. What belongs to a run is recognised by the
name of its folder, so that other containers on the machine do not matter.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from unprivileged import IMAGES, USER, as_user, python_for_user, user_folder, why_not
from waiting import wait_for

from automedbench.agent.run import RunPlan, run_agent
from automedbench.base.cards import Limits, load_card
from automedbench.base.console import run_script
from automedbench.base.files import read_record
from automedbench.base.records import Manifest, RunId, RunRecord
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig
from automedbench.steps.stage_task import stage_cases

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
TASK = "bccd-det-task"
CARD = ROOT / f"config/tasks/detection/{TASK}.yaml"
SETTLING_S = 40.0
"""Longer than any grace: SIGTERM, 5 s, SIGKILL, and the caretaker's clean-up."""

# Leaves all that code can leave behind: a daemon in a session of its own that ignores SIGTERM, its child, a socket,
# shared memory, temporary files.
DAEMON = """
import os, signal, socket, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        server = socket.socket(socket.AF_UNIX)
        server.bind("/workspace/daemon.sock")
        server.listen()
        port = socket.create_server(("127.0.0.1", 0))
        open("/dev/shm/left", "wb").write(bytes(1 << 20))
        open("/tmp/left", "w").write("x")
        os.fork()
        open("/workspace/began", "w").close()
        time.sleep(600)
    os._exit(0)
while not os.path.exists("/workspace/began"):
    time.sleep(0.05)
"""
WORKS_ON = DAEMON + "time.sleep(600)\n"


def turns(code: str) -> list[dict[str, object]]:
    submit = {"calls": [{"tool": "submit_results", "summary": "done"}]}
    return [{"calls": [{"tool": "execute_code", "language": "python", "code": code}]}, submit, submit]


def plan_in(folder: Path, code: str, *, network: str = "sealed", time_limit_s: float = 600) -> RunPlan:
    """A run of a scripted agent whose one call executes ``code``."""
    script = folder / "agent.yaml"
    script.write_text(yaml.safe_dump(turns(code)))
    run = RunId(agent="left", task=TASK, tier="lite", repeat=1)
    return RunPlan(
        run=run,
        card=load_card(CARD),
        manifest=read_record(folder / "manifest.json", Manifest),
        agent=Agent(provider="scripted", script=str(script)),
        limits=Limits(time_limit_s=time_limit_s),
        sandbox=SandboxConfig(network=network),  # type: ignore[arg-type]
        public=folder / "public",
        folder=folder / "results/runs" / run.path,
        prompts=ROOT / "config/prompts",
        image=IMAGES / "light.sif",
    )


@pytest.fixture(scope="module", autouse=True)
def ready(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Everything that a run imports is in memory before processes become the user, who may not read root's Python."""
    if reason := why_not("light"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("warm")
    stage(folder)
    plan = plan_in(folder, "pass")
    run_agent(
        RunPlan(
            **vars(plan)
            | {"agent": plan.agent.model_copy(update={"trusted": True}), "sandbox": SandboxConfig(backend="local")}
        ),
        say=lambda _text: None,
    )


def stage(folder: Path) -> None:
    raw, public, private = ROOT / "demo/data/bccd", folder / "public", folder / "private"
    stage_cases(CARD, raw, public, private, folder / "manifest.json", excerpt=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of the user with a staged task, and ``t`` for temporary files (short, for the names of sockets)."""
    with user_folder() as folder:
        stage(folder)
        (folder / "t").mkdir()
        (folder / "results").mkdir()
        for path in (folder / "t", folder / "results"):
            os.chmod(path, 0o777)
        yield folder


# --- the driver -------------------------------------------------------------------------------------------------


class Driver:
    """``run_agent`` as its script calls it, in a session of its own, as the ordinary user."""

    def __init__(self, folder: Path, plan: RunPlan) -> None:
        self.folder, self.plan = folder, plan
        self._guardian = os.fork()
        if self._guardian == 0:
            # The guardian waits for the driver, which as root is one fork further down.
            with contextlib.suppress(BaseException):
                os.setsid()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                as_user(self._drive)
            os._exit(0)
        wait_for((folder / "t/driver").exists)
        wait_for(lambda: (folder / "t/driver").read_text())
        self.pid = int((folder / "t/driver").read_text())
        (folder / "t/driver").unlink()

    def _drive(self) -> None:
        tempfile.tempdir = str(self.folder / "t")
        sys.executable = python_for_user(self.folder / "results")
        sys.stdout = sys.stderr = open(self.folder / "results/log", "a", buffering=1)  # noqa: SIM115 - until the end
        signal.signal(signal.SIGINT, signal.default_int_handler)
        (self.folder / "t/driver").write_text(str(os.getpid()))
        sys.argv = ["run_agent.py"]
        run_script(lambda _arguments: print(run_agent(self.plan).outcome))

    def works(self) -> None:
        """Wait until the agent's daemon is there."""
        log = self.folder / "results/log"
        wait_for(lambda: any(self.plan.folder.glob("attempts/*/workspace/began")), 90, log.read_text)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ctrl_c(self) -> None:
        """What a terminal does: every process of the foreground group."""
        os.killpg(os.getpgid(self.pid), signal.SIGINT)

    def wait(self) -> None:
        os.waitpid(self._guardian, 0)


# --- what is left -----------------------------------------------------------------------------------------------


def left_of(folder: Path) -> dict[str, list[str]]:
    """Everything on the machine that belongs to the run in ``folder``."""
    return {
        "processes": [f"{pid} {_read(f'/proc/{pid}/cmdline')[:120]}" for pid in _pids() if _is_of(pid, folder)],
        "mounts": [line for line in _read("/proc/self/mountinfo").splitlines() if folder.name in line],
        "sockets": [line for line in _read("/proc/net/unix").splitlines() if folder.name in line],
        "temporary files": sorted(path.name for path in (folder / "t").iterdir()),
    }


def _is_of(pid: int, folder: Path) -> bool:
    """By command line, environment, folder, open files, or mounts."""
    name = folder.name
    if pid == os.getpid():
        return False
    if any(name in _read(f"/proc/{pid}/{file}") for file in ("cmdline", "environ", "mountinfo")):
        return True
    with contextlib.suppress(OSError):
        links = [f"/proc/{pid}/cwd", f"/proc/{pid}/root", *map(str, Path(f"/proc/{pid}/fd").iterdir())]
        return any(name in _link(link) for link in links)
    return False


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


# What other tests of the same user make at the same time; this driver's own have their place in its folder.
OF_OTHERS = re.compile(r"/(amb|data-|sandbox-|s-|call-|tmp|automedbench-|storm-|pytest-|snakemake)[^/]*$")


def common_files() -> set[str]:
    """Files of the user in the folders that all processes share, where a runtime could leave something."""
    user = pwd.getpwnam(USER).pw_uid if os.geteuid() == 0 else os.geteuid()
    found = set()
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == user and not OF_OTHERS.search(entry.path):
                    found.add(entry.path)
    return found


# --- tests ------------------------------------------------------------------------------------------------------

NOTHING: dict[str, list[str]] = {"processes": [], "mounts": [], "sockets": [], "temporary files": []}


def assert_nothing_left(folder: Path, before: set[str]) -> None:
    deadline = time.monotonic() + SETTLING_S
    while (left_of(folder) != NOTHING or common_files() - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left_of(folder) == NOTHING
    assert common_files() - before == set()


def test_the_search_finds_a_running_one(place: Path) -> None:
    """The control: while the daemon lives, processes, a socket and temporary files are found."""
    before = common_files()
    driver = Driver(place, plan_in(place, WORKS_ON))
    driver.works()
    found = left_of(place)
    assert len(found["processes"]) >= 5  # driver, caretaker, supervisor, runtime, the agent's own
    assert found["temporary files"]
    driver.signal(signal.SIGKILL)
    driver.wait()
    assert_nothing_left(place, before)


@pytest.mark.parametrize("network", ["sealed", "proxied", "open"])
def test_normal_end(place: Path, network: str) -> None:
    before = common_files()
    driver = Driver(place, plan_in(place, DAEMON, network=network))
    driver.wait()
    assert read_record(driver.plan.folder / "run.json", RunRecord).outcome == "submitted", log_of(place)
    assert_nothing_left(place, before)


def test_time_limit_with_daemons(place: Path) -> None:
    before = common_files()
    driver = Driver(place, plan_in(place, WORKS_ON, time_limit_s=6))
    driver.wait()
    assert read_record(driver.plan.folder / "run.json", RunRecord).outcome == "time_limit", log_of(place)
    assert_nothing_left(place, before)


@pytest.mark.parametrize("network", ["sealed", "proxied"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_killed_driver(place: Path, number: signal.Signals, network: str) -> None:
    """``scancel``, a closed terminal, ``kill -9``."""
    before = common_files()
    driver = Driver(place, plan_in(place, WORKS_ON, network=network))
    driver.works()
    driver.signal(number)
    driver.wait()
    assert not (driver.plan.folder / "run.json").exists()
    assert_nothing_left(place, before)


def test_stopped_driver(place: Path) -> None:
    """The container ends within its limit and 5 s, whatever the driver does; awake again, the run is sealed."""
    limit_s = 10.0
    driver = Driver(place, plan_in(place, WORKS_ON, time_limit_s=limit_s))
    driver.works()
    driver.signal(signal.SIGSTOP)
    try:
        wait_for(lambda: not any("/run/call/" in each for each in left_of(place)["processes"]), limit_s + 5)
    finally:
        driver.signal(signal.SIGCONT)
    driver.wait()
    assert read_record(driver.plan.folder / "run.json", RunRecord).outcome == "time_limit", log_of(place)


def test_ctrl_c(place: Path) -> None:
    before = common_files()
    driver = Driver(place, plan_in(place, WORKS_ON))
    driver.works()
    driver.ctrl_c()
    driver.wait()
    assert not (driver.plan.folder / "run.json").exists()
    assert "Interrupted; what was finished is kept" in log_of(place)
    assert_nothing_left(place, before)


def log_of(folder: Path) -> str:
    return (folder / "results/log").read_text()
