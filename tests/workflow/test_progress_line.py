"""What a person sees while a campaign runs: one live line on a terminal, few lines elsewhere, every failure."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from campaigns import add_agent, fresh_copy, only, run_folder
from conftest import Project
from waiting import wait_for

NO_DATA = ("prepare", "--config", "datasets={bccd: {path: nowhere}}")
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return fresh_copy(tmp_path / "automedbench")


@dataclass
class Terminal:
    """Snakemake on a terminal of 100 columns, and all that it wrote there."""

    process: subprocess.Popen[bytes]
    written: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        """What was written so far, without colours."""
        return re.sub(r"\x1b\[[\d;]*m", "", self.written.decode(errors="replace"))


@contextlib.contextmanager
def terminal(project: Project, *options: str) -> Iterator[Terminal]:
    """Start Snakemake with the demo's profile on a terminal; it is killed in the end if it still runs."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["snakemake", "--profile", "profiles/demo", *options],
        cwd=project.path,
        env={**project.environment, "TERM": "xterm", "COLUMNS": "100"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    shown = Terminal(process)

    def read() -> None:
        with contextlib.suppress(OSError):  # the other side was closed
            while block := os.read(master, 65536):
                shown.written.extend(block)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield shown
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        reader.join(timeout=30)
        os.close(master)


def test_few_lines_without_a_terminal(project: Project) -> None:
    """Three steps: a line each, and how it ended; the details are in Snakemake's own log."""
    done = project.snakemake("prepare")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Using profile")
    assert [re.sub(r"\d:\d\d", "TIME", line) for line in lines[1:]] == [
        " 33 % · 1 of 3 steps · TIME",
        " 66 % · 2 of 3 steps · TIME",
        "3 of 3 steps done in TIME",
    ]
    (log,) = (project.path / ".snakemake/log").glob("*.log")
    assert "Shell command: python scripts/stage_task.py" in log.read_text()


def test_failure_without_a_terminal(project: Project) -> None:
    """Rule and data set, the message of the step, its log, its command; what follows from it is counted as not done."""
    done = project.snakemake(*NO_DATA)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    lines = done.stdout.splitlines()
    start = lines.index("Failed: fetch_dataset bccd")
    assert lines[start + 1] == "  MissingDataError: No raw data for 'bccd': nowhere is not a folder."
    assert lines[start + 2].startswith("  How to get it: ")
    assert lines[start + 3] == "  log: logs/fetch_dataset/bccd.log"
    assert "python scripts/fetch_dataset.py --campaign results/demo/campaign.json --dataset bccd" in lines[start + 4]
    assert re.fullmatch(r"0 of 3 steps done, 1 failed \(fetch_dataset bccd\) in \d:\d\d", lines[-1])


def test_quiet_failure(project: Project) -> None:
    """`--quiet` leaves out progress, never the failure."""
    printed = project.snakemake(*NO_DATA, "--quiet").stdout
    assert "Failed: fetch_dataset bccd" in printed
    assert "steps done" not in printed


def test_live_line(project: Project) -> None:
    """It names what runs and goes away; the failure stands above it."""
    with terminal(project, *NO_DATA) as shown:
        assert shown.process.wait(timeout=120) == 1
        wait_for(lambda: "steps done" in shown.text, 10)
    assert "0/3 steps   0 %" in shown.text
    assert "fetch_dataset bccd" in shown.text
    assert "MissingDataError: No raw data for 'bccd'" in shown.text
    assert re.search(r"0 of 3 steps done, 1 failed \(fetch_dataset bccd\) in \d:\d\d\s*$", shown.text)
    assert shown.text.rindex(SHOW_CURSOR) > shown.text.rindex(HIDE_CURSOR)


def test_ctrl_c_on_a_terminal(project: Project) -> None:
    """The cursor is back and nothing is left of the line."""
    add_agent(project, "slow", "touch began; sleep 300")
    with terminal(project, *only("slow"), "--", "runs") as shown:
        attempt = run_folder(project, "slow") / "attempts/0001/workspace/began"
        wait_for(attempt.exists, 120)
        wait_for(lambda: "run_agent slow/" in shown.text, 10)
        os.killpg(shown.process.pid, signal.SIGINT)
        assert shown.process.wait(timeout=60) != 0
        wait_for(lambda: "steps done" in shown.text, 10)
    assert "Terminating processes on user request" in shown.text
    assert "Traceback" not in shown.text
    assert shown.text.rindex(SHOW_CURSOR) > shown.text.rindex(HIDE_CURSOR)
