"""Conditions of a machine that runs must tell with their fix: first the doctor, then the run itself.

Messages of the runtime are those of Apptainer 1.4.5, taken where the condition was made: a user namespace that allows
none below it, /dev/fuse that is no such device, a temporary folder of 64 KB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import namedtuple
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from toys._bench import stage
from unprivileged import IMAGES, as_user, python_for_user, user_folder, why_not

from automedbench.agent import run as runs
from automedbench.agent.durable import attempts, lease
from automedbench.agent.plan import RunPlan
from automedbench.base import records
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import RunId
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig
from automedbench.commands._machine import local
from automedbench.commands._machine.examine import Host, ProbeResult
from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container.remedies import FUSE, NAMESPACES, SPACE, remedy
from automedbench.sandbox.container.scratch import make_scratch, why_no_scratch

ROOT = Path(__file__).resolve().parents[2]
NO_NAMESPACES = (
    "ERROR  : Failed to create user namespace: maximum number of user namespaces exceeded, "
    "check /proc/sys/user/max_user_namespaces"
)
SAID = {
    NO_NAMESPACES: NAMESPACES,
    "ERROR  : Could not write info to setgroups: Permission denied": NAMESPACES,
    "FATAL:   container creation failed: image driver mount failure: image driver squashfuse_ll instance exited with "
    "error: squashfuse_ll exited: fuse: mount failed: Invalid argument": FUSE,
    "fuse: device not found, try 'modprobe fuse' first": FUSE,
    "FATAL:   while writing: no space left on device": SPACE,
    "FATAL:   could not open image /x/light.sif: failed to retrieve path": "",
}


def test_what_a_runtime_says_and_what_to_do() -> None:
    for words, fix in SAID.items():
        assert remedy(words) == fix, words


def fake_apptainer(folder: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """A runtime first on PATH that refuses every container with these words."""
    program = folder / "bin/apptainer"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncase $1 in buildcfg) exit 1;; esac\necho '{words}' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_a_run_without_user_namespaces_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_apptainer(tmp_path, monkeypatch, NO_NAMESPACES)
    for name in ("public", "workspace"):
        (tmp_path / name).mkdir()
    image = tmp_path / "light.sif"
    image.touch()
    sandbox = ApptainerSandbox(image=image, public=tmp_path / "public", workspace=tmp_path / "workspace")
    with pytest.raises(InfrastructureError) as raised, sandbox:
        pass
    lines = str(raised.value).splitlines()
    assert (len(lines), lines[-1]) == (2, NAMESPACES)
    assert "maximum number of user namespaces exceeded" in lines[0]


# Allows one user namespace below it, which this user is then in: Apptainer can make none.
WITHOUT_NAMESPACES = """
echo 1 > /proc/sys/user/max_user_namespaces
exec unshare -U --map-user=1000 "$1" -c '
import sys
from pathlib import Path
from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.boxes import ApptainerSandbox
try:
    with ApptainerSandbox(image=Path(sys.argv[1]), public=Path(sys.argv[2]), workspace=Path(sys.argv[2])):
        print("started")
except InfrastructureError as error:
    print(error)
' "$2" "$3"
"""


@pytest.mark.apptainer
def test_without_user_namespaces_for_real() -> None:
    if reason := why_not("light"):
        pytest.skip(reason)
    with user_folder() as folder:
        words = ["sh", "-ec", WITHOUT_NAMESPACES, "sh", "PYTHON", str(IMAGES / "light.sif"), str(folder)]
        done = as_user(lambda: in_a_namespace(folder, words))
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert (len(lines), lines[-1]) == (2, NAMESPACES)


def in_a_namespace(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """As the ordinary user: a command as root of a user namespace; PYTHON is an interpreter with our packages."""
    named = [python_for_user(folder) if word == "PYTHON" else word for word in words]
    return subprocess.run(
        ["unshare", "-Urm", *named],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


# --- a full temporary folder --------------------------------------------------------------------------------------

IN_A_SMALL_FOLDER = """
mount -t tmpfs -o size=64k small "$1" && TMPDIR="$1" exec "$2" -c '
from pathlib import Path
from automedbench.base.errors import InfrastructureError
from automedbench.commands._machine import local
from automedbench.commands._machine.examine import Host
from automedbench.sandbox.container.scratch import make_scratch
print(*[each.status for each in local.disks(Host(None, Path()))])
try:
    make_scratch("x-")
except InfrastructureError as error:
    print(error)
'
"""


def test_a_full_temporary_folder_for_real() -> None:
    if reason := why_not():
        pytest.skip(reason)

    with user_folder() as folder:
        (folder / "small").mkdir(mode=0o777)
        (folder / "small").chmod(0o777)
        words = ["sh", "-ec", IN_A_SMALL_FOLDER, "sh", str(folder / "small"), "PYTHON"]
        done = as_user(lambda: in_a_namespace(folder, words))
    assert done.stderr == ""
    status, first, fix = done.stdout.splitlines()
    assert (status, "is full: " in first, "set TMPDIR" in fix) == ("FAIL", True, True)


def test_no_temporary_folder_and_no_free_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    assert "No temporary folder can be used" in why_no_scratch()
    with pytest.raises(InfrastructureError, match="set TMPDIR"):
        make_scratch("x-")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert why_no_scratch() == ""
    facts = namedtuple("facts", "f_bavail f_frsize f_files f_favail")(10**9, 4096, 1000, 0)
    monkeypatch.setattr(os, "statvfs", lambda _folder: facts)
    assert "0 files are free" in why_no_scratch()


# --- cgroups of version 1 -----------------------------------------------------------------------------------------


def test_kills_for_memory_are_counted_in_both_versions(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    for line, file, text in (
        ("0::/job", "job/memory.events", "low 0\noom 3\noom_kill 2\n"),
        ("9:cpu,memory:/job", "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text)
        membership.write_text(f"3:cpu:/other\n{line}\n")
        assert runs.oom_kills(tmp_path, membership) == 2, line
        (tmp_path / file).unlink()
        assert runs.oom_kills(tmp_path, membership) == 0, line
    assert runs.oom_kills(tmp_path, tmp_path / "absent") == 0


def test_doctor_on_cgroups_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "cgroup"
    old.write_text("9:memory:/job\n1:name=systemd:/job\n")
    monkeypatch.setattr(local, "MEMBERSHIP", old)
    first: ProbeResult = next(iter(local.memory_limit(Host(None, tmp_path))))
    assert (first.status, "unified_cgroup_hierarchy" in first.fix) == ("warn", True)
    old.write_text("9:memory:/job\n0::/job\n")
    assert "version 1" not in next(iter(local.memory_limit(Host(None, tmp_path)))).message


# --- a clock that jumps -------------------------------------------------------------------------------------------


def test_a_run_in_which_the_clock_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its budget and its lease go by a clock that cannot be set; the run is sealed as if nothing had been."""
    begun = records.now()
    looks = iter(range(10**6))

    def jumping() -> datetime:
        look = next(looks)
        return begun + timedelta(seconds=look, hours=0 if look < 10 else -30 if look < 20 else 30)

    for module in (runs, attempts, lease, sys.modules["automedbench.agent.log"]):
        monkeypatch.setattr(module, "now", jumping)
    bench = stage("detection", tmp_path)
    script = tmp_path / "script.yaml"
    call = "{tool: execute_code, language: python, code: 'print(1)'}"
    script.write_text(f"- calls: [{call}]\n" + "- calls: [{tool: submit_results, summary: done}]\n" * 2)
    record = runs.run_agent(
        RunPlan(
            run=RunId(agent="scripted", task=bench.card.id, tier="lite", repeat=1),
            card=bench.card,
            manifest=bench.manifest,
            agent=Agent(provider="scripted", script=str(script), trusted=True),
            limits=bench.card.limits.model_copy(update={"time_limit_s": 600}),
            sandbox=SandboxConfig(backend="local", network="open"),
            public=bench.folder / "public",
            folder=tmp_path / "run",
            prompts=ROOT / "config/prompts",
        )
    )
    assert next(looks) > 25  # the clock did jump, back and ahead
    assert (record.outcome, record.totals.turns) == ("submitted", 3)
    assert record.totals.wall_s < 60
