"""The head as a Slurm job (profiles/slurm/head.sbatch); programs in place of Slurm and Snakemake note their calls."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "profiles/slurm/head.sbatch"
NOTE = 'echo "$(basename "$0") $*" >> calls'
PROGRAMS = {
    # Its environment is what jobs of steps would get. It waits where a test says so, and ends as it is told.
    "snakemake": f"""{NOTE}
case "$*" in *--unlock) rm -r .snakemake/locks; exit 0 ;; esac
env > environment
trap 'echo ended by TERM >> calls; exit 3' TERM
touch started
while [ -e wait ]; do sleep 0.05; done
exit 7""",
    "sbatch": f"{NOTE}; env | grep -E '^SBATCH_' | sort >> calls",
    "scancel": NOTE,
    "scontrol": f"{NOTE}; [ ! -e forbidden ]",
    "squeue": """case "$*" in
*PENDING*)
  own=automedbench-$(pwd | cksum | cut -d' ' -f1)
  [ -n "$SQUEUE_PARTITION" ] || printf '%s\\n' "90 ${own}_3f-1" "91 ${own}0_5a-2" '92 mine' "93 ${own}_3f-2" ;;
*) echo 3-00:00:00 ;;
esac""",
}
JOB = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_PARTITION": "long",
    "SLURM_JOB_ACCOUNT": "lab",
    "SLURM_CONF": "/etc/slurm.conf",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_MEM_PER_NODE": "1024",
    "SBATCH_EXPORT": "NONE",
    "SQUEUE_PARTITION": "gpu",
    "MY_MODEL_API_KEY": "k",
}
ARGUMENTS = ["--profile", "profiles/site", "--config", "only={agents: [a b]}"]
CALLED = "snakemake --slurm-jobname-prefix automedbench-N --profile profiles/site --config only={agents: [a b]}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    """Start the script and wait until its Snakemake is at work."""
    begun = []

    def call(**more: str) -> subprocess.Popen[str]:
        environment = {"PATH": f"{place}/bin:{os.environ['PATH']}", "AUTOMEDBENCH_HEAD_END_S": "0", **JOB, **more}
        head = subprocess.Popen(["bash", str(SCRIPT), *ARGUMENTS], cwd=place, env=environment, text=True)
        begun.append(head)
        deadline = time.monotonic() + 120
        while not (place / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return head

    yield call
    (place / "wait").unlink(missing_ok=True)
    for head in begun:
        head.kill()
        head.wait()


def calls(place: Path) -> list[str]:
    number = subprocess.run("pwd | cksum", shell=True, cwd=place, capture_output=True, text=True).stdout.split()[0]
    return (place / "calls").read_text().replace(number, "N").splitlines()


def test_it_ends_as_snakemake_does(place: Path, start: Start) -> None:
    """Waiting jobs of this folder's heads are taken back, no other folder's or user's. No lock, nothing to unlock."""
    assert start().wait(60) == 7
    assert calls(place) == ["scancel 90", "scancel 93", CALLED]


def test_jobs_of_steps_do_not_inherit_what_the_head_was_given(place: Path, start: Start) -> None:
    start().wait(60)
    environment = (place / "environment").read_text().splitlines()
    assert [line for line in environment if line.startswith(("SLURM_", "SBATCH_"))] == ["SLURM_CONF=/etc/slurm.conf"]
    assert "MY_MODEL_API_KEY=k" in environment


def test_a_lock_that_was_left_is_removed_first(place: Path, start: Start) -> None:
    (place / ".snakemake/locks").mkdir(parents=True)
    (place / ".snakemake/locks/0.input.lock").touch()
    assert start().wait(60) == 7
    assert calls(place) == [f"{CALLED} --unlock", "scancel 90", "scancel 93", CALLED]


def test_the_lock_of_a_head_that_lives_stays(place: Path, start: Start) -> None:
    """`--unlock` refuses; nothing is started beside that head."""
    (place / "bin/snakemake").write_text(f"#!/bin/bash\n{NOTE}\ntouch started\nexit 1\n")
    (place / ".snakemake/locks").mkdir(parents=True)
    (place / ".snakemake/locks/0.input.lock").touch()
    assert start().wait(60) == 1
    assert calls(place)[-1] == f"{CALLED} --unlock"


def test_before_its_time_is_over_it_is_queued_again(place: Path, start: Start) -> None:
    """Snakemake is killed, not asked to end: then it would cancel the jobs that run."""
    (place / "wait").touch()
    head = start()
    head.send_signal(signal.SIGUSR1)
    assert head.wait(60) == 0
    assert calls(place)[-2:] == [CALLED, "scontrol requeue 17"]


def test_where_jobs_may_not_be_queued_again_another_is_submitted(place: Path, start: Start) -> None:
    """Like this one in partition, account and time."""
    (place / "wait").touch()
    (place / "forbidden").touch()
    head = start()
    head.send_signal(signal.SIGUSR1)
    assert head.wait(60) == 0
    assert calls(place)[-5:] == [
        "scontrol requeue 17",
        "sbatch profiles/slurm/head.sbatch --profile profiles/site --config only={agents: [a b]}",
        "SBATCH_ACCOUNT=lab",
        "SBATCH_PARTITION=long",
        "SBATCH_TIMELIMIT=3-00:00:00",
    ]


def test_the_next_head_takes_over(place: Path, start: Start) -> None:
    """Also one that a user submitted anew; with records in a database the locks are in there, too."""
    (place / ".snakemake").mkdir()
    (place / ".snakemake/metadata.db").touch()
    (place / ".snakemake/locks").mkdir()
    assert start(SLURM_JOB_ID="44").wait(60) == 7
    assert calls(place) == [f"{CALLED} --unlock", "scancel 90", "scancel 93", CALLED]


def test_scancel_ends_it_with_its_jobs(place: Path, start: Start) -> None:
    """SIGTERM reaches Snakemake, which is waited for."""
    (place / "wait").touch()
    head = start()
    head.terminate()
    assert head.wait(60) == 3
    assert calls(place)[-2:] == [CALLED, "ended by TERM"]
