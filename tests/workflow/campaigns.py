"""Campaigns for the workflow tests: a finished demo of one task that all copy, and agents that take their time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, Project, clean_environment, copy_tree, narrow_demo

TASK = "bccd-det-task"
AGENTS = ("careful", "hasty", "silent", "cheater", "crasher")


@dataclass(frozen=True)
class FinishedDemo:
    """The demo's campaign after one `make demo`, and what that printed."""

    path: Path
    code: int
    output: str


_finished: list[FinishedDemo] = []


def finished_demo(factory: pytest.TempPathFactory) -> FinishedDemo:
    """One finished demo campaign for all tests of a session; they look at it, or work on copies.

    Processes that share a session (``pytest -n``) share it too: the first makes it, the others wait.
    """
    if not _finished:
        base = factory.getbasetemp()
        base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        with open(base / "demo.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _finished.append(_made_or_found(base / "demo"))
    return _finished[0]


def _made_or_found(folder: Path) -> FinishedDemo:
    place, said = folder / "automedbench", folder / "said.json"
    if not said.exists():
        done = fresh_copy(place).run("make", "demo", timeout=600)
        said.write_text(json.dumps([done.returncode, done.stdout]))
    code, output = json.loads(said.read_text())
    return FinishedDemo(place, code, output)


def copy_of_finished(factory: pytest.TempPathFactory, place: Path) -> Project:
    """A copy of the finished campaign, with the dates of its files."""
    demo = finished_demo(factory)
    assert demo.code == 0, demo.output[-3000:]
    subprocess.run(["cp", "-a", str(demo.path), str(place)], check=True)
    return at(place)


def fresh_copy(place: Path, *, narrow: bool = True) -> Project:
    """The repository, with an environment that counts as made, so that `make` installs nothing into it.

    ``narrow`` leaves one task in its demo.
    """
    copy_tree(place)
    if narrow:
        narrow_demo(place)
    (place / ".venv").mkdir()
    for name in ("bin", "include", "lib", "lib64", "pyvenv.cfg"):
        if (ROOT / ".venv" / name).exists():
            (place / ".venv" / name).symlink_to(ROOT / ".venv" / name)
    for stamp in (".run-ready", ".test-ready"):
        (place / ".venv" / stamp).touch()
    return at(place)


def at(place: Path) -> Project:
    """A project in an existing folder."""
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    return Project(place, clean_environment(place.parent, path) | {"PYTHONPATH": str(place / "src")})


# --- pages that are followed ----------------------------------------------------------------------------------

STEP = re.compile(r"^(?:`([^`\n]+)`:\n\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A file is a block below a line with its name; a command is a block of bash; blocks of text are only looked at."""


def follow(project: Project, page: str, instead: Mapping[str, str]) -> list[str]:
    """Write the files and run the commands of a page, with some texts replaced; what each block of commands printed."""
    printed = []
    for name, kind, text in STEP.findall(page):
        if name:
            path = project.path / name
            assert not path.exists(), f"the page writes {name} twice, or over a file of the repository"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif kind == "bash":
            for there, here in instead.items():
                text = text.replace(there, here)
            done = project.run("bash", "-euo", "pipefail", "-c", text, timeout=300)
            assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}"
            printed.append(done.stdout)
    return printed


# --- what a call did ------------------------------------------------------------------------------------------


def steps(output: str) -> list[str]:
    """Rules whose commands Snakemake printed, in order, one entry per step."""
    return re.findall(r"^(?:Shell command: |\s+)python scripts/(\w+)\.py", output, re.MULTILINE)


def executed(project: Project) -> list[str]:
    """Rules that the latest call executed, in order, from Snakemake's own log: the demo's profile prints no steps."""
    latest = max((project.path / ".snakemake/log").glob("*.log"))
    return steps(latest.read_text())


def commands(output: str) -> list[str]:
    """The commands that Snakemake printed."""
    return re.findall(r"^(?:Shell command: |\s+)(python scripts/.*)$", output, re.MULTILINE)


def planned(project: Project, *options: str) -> list[str]:
    """Rules that a dry run would execute, sorted, one entry per step."""
    done = project.snakemake("-n", "-p", *options)
    assert done.returncode == 0, done.stdout[-3000:]
    return sorted(steps(done.stdout))


def run_folder(project: Project, agent: str) -> Path:
    """Folder of an agent's one run."""
    return project.path / f"results/demo/runs/{agent}/{TASK}/lite/r1"


def stamps(project: Project, *names: str) -> dict[str, int]:
    """Date of files of every run, by path: a step that was executed again leaves another date."""
    runs = project.path / "results/demo/runs"
    return {str(path): path.stat().st_mtime_ns for name in names for path in sorted(runs.rglob(name))}


# --- agents ---------------------------------------------------------------------------------------------------


def add_agent(project: Project, name: str, code: str = "") -> None:
    """A sixth agent: executes bash code (none: submits at once) and says that it is done."""
    turns: list[dict[str, object]] = [{"calls": [{"tool": "submit_results", "summary": "nothing"}]}] * 2
    if code:
        turns.insert(0, {"calls": [{"tool": "execute_code", "language": "bash", "code": code}]})
    script = project.path / f"demo/agents/{name}.yaml"
    script.write_text(yaml.safe_dump(turns))
    with open(project.path / "demo/agents.yaml", "a") as stream:
        stream.write(f"  {name}: {{provider: scripted, script: demo/agents/{name}.yaml, trusted: true}}\n")


def only(*agents: str) -> tuple[str, str]:
    """Options for a campaign of these agents."""
    return "--config", f"matrix={{agents: [{', '.join(agents)}]}}"


# --- processes ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def started(project: Project, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Snakemake in a session of its own; whatever is left of that session at the end is killed."""
    with open(project.path.parent / "snakemake.log", "a") as log:
        process = subprocess.Popen(
            ["snakemake", "--profile", "profiles/demo", *options],
            cwd=project.path,
            env=project.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for pid in session_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(timeout=30)


def log_of(project: Project) -> str:
    """What the started Snakemake has printed."""
    return (project.path.parent / "snakemake.log").read_text(errors="replace")


def session_of(session: int, *words: str) -> list[int]:
    """Processes of a session, or those of them whose command line holds all words."""
    return [pid for pid in _pids() if _session(pid) == session and all(word in _command(pid) for word in words)]


def drivers(project: Project) -> list[int]:
    """Living processes of ``run_agent.py`` that work in this copy, whoever started them."""
    return [
        pid
        for pid in _pids()
        if "python scripts/run_agent.py" in (command := _command(pid))
        and "bash" not in command.split()[0]
        and not command.startswith(("/bin/sh", "sh"))
        and _folder(pid) == str(project.path)
    ]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def _folder(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def _session(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[3])
    except (OSError, IndexError):
        return -1
