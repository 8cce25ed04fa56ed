"""A short Slurm job, asked for as the executor of this workflow would, and waited for."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedbench.base.errors import InfrastructureError
from automedbench.base.slurm import ENDED, states_in_accounting, states_in_queue
from automedbench.commands._machine.examine import next_step
from automedbench.commands._machine.host import read_lines, run_program
from automedbench.commands._machine.placement import ADVICE
from automedbench.commands._machine.profile import Profile

FOLDER = Path(".snakemake/automedbench/first-run")
"""Logs of the jobs, in the clone, where the executor's are."""
LINE = "snakemake_executor_plugin_automedbench.line"
START_S, RUN_S, POLL_S = 240.0, 320.0, 2.0
BUSY = {"Resources", "Priority", "None", "(null)", "BeginTime", "Cleaning", ""}
"""Reasons of a job that waits for its turn."""
_OTHER = "`sinfo -R` and `squeue --me --long` say more; ask the administrators."


class JobRefusedError(InfrastructureError):
    """No job begins: sbatch refuses it, or it waits for what will not come."""


@dataclass(frozen=True)
class TrialJob:
    """A job in Slurm: which of the campaign's it stands for, its number, its name."""

    what: str
    number: str
    name: str

    @property
    def log_path(self) -> Path:
        """What the job prints; it stays there when the job fails."""
        return FOLDER / f"{self.name}.log"

    @property
    def log(self) -> list[str]:
        """Lines that the job has printed."""
        return read_lines(self.log_path)

    def state(self) -> str:
        """State now, ``GONE`` where Slurm knows nothing of it; empty where the controller does not answer."""
        states = states_in_queue(self.name)
        if states is None:
            return ""
        return states.get(self.number) or states_in_accounting([self.number]).get(self.number, "GONE")

    def wait(self, wanted: Collection[str]) -> str:
        """Wait for one of these states, within START_S in the queue and RUN_S afterwards.

        Raises InfrastructureError, with the next step, when the job waits for what will not come, or ends otherwise.
        """
        since, queued = time.monotonic(), True
        while (state := self.state()) not in wanted:
            if queued and state not in ("", "PENDING"):
                since, queued = time.monotonic(), False
            if state in ENDED or state == "GONE":
                last = next((line for line in reversed(self.log) if line.strip()), "it printed nothing")
                raise InfrastructureError(
                    f"{self.what}: job {self.number} ended as {state}: {last[:160]}\n"
                    f"Run its command by hand there; all nodes must see this folder ({Path.cwd()}) and its .venv."
                )
            late = time.monotonic() > since + (START_S if queued else RUN_S)
            if late or state == "PENDING":
                self._refuse_waiting(state or "without an answer of slurmctld", late=late)
            time.sleep(POLL_S)
        return state

    def _refuse_waiting(self, state: str, *, late: bool) -> None:
        _, reason = run_program(["squeue", "--noheader", f"--jobs={self.number}", "--format=%r"])
        first = reason.partition(",")[0]
        if not late and (first in BUSY or first.startswith(("Dependency", "Licenses", "AssocGrp", "QOSGrp"))):
            return
        if state != "PENDING":
            raise InfrastructureError(f"{self.what}: job {self.number} is still {state} after {RUN_S:.0f} s\n{_OTHER}")
        wait = f" for {START_S:.0f} s" if late else ""
        fix = next_step(reason, ADVICE, _OTHER)
        raise JobRefusedError(f"{self.what}: job {self.number} stays in the queue{wait}: {reason}\n{fix}")

    def cancel(self) -> None:
        """Take it out of Slurm; one that has ended stays as it is."""
        run_program(["scancel", self.number], 30)


def submit(profile: Profile, what: str, rule: str, requested: Mapping[str, Any], command: Sequence[str]) -> TrialJob:
    """Submit a command as a job of a rule.

    Raises JobRefusedError, with the next step, when sbatch refuses.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = f"first-run-{uuid.uuid4().hex[:12]}"
    text = _call_sbatch(profile, what, rule, requested, command, name)
    number = text.splitlines()[-1].partition(";")[0]
    partition = profile.job(rule, requested).get("slurm_partition", "by default")
    return TrialJob(f"{what} (partition {partition})", number, name)


def check(profile: Profile, what: str, rule: str, requested: Mapping[str, Any]) -> None:
    """Ask Slurm whether it would take a job of a rule; raises JobRefusedError, with the next step, when not."""
    _call_sbatch(profile, what, rule, requested, ["true"], "first-run-test", "--test-only")


def _call_sbatch(
    profile: Profile, what: str, rule: str, requested: Mapping[str, Any], command: Sequence[str], name: str, *test: str
) -> str:
    """What sbatch prints for the line that a call of Snakemake would use; raises JobRefusedError when it refuses."""
    content, resources = profile.content, profile.job(rule, requested)
    options = {
        key: content.get(f"slurm-{key.replace('_', '-')}") for key in ("requeue", "no_requeue", "qos", "reservation")
    }
    partition, account = resources.get("slurm_partition"), resources.get("slurm_account")
    parameters = {
        "run_uuid": name,
        "slurm_logfile": str(FOLDER / f"{name}.log"),
        "comment_str": f"first-run: {what}",
        "account": f"-A {shlex.quote(str(account))}" if account else "",
        "partition": f"-p {shlex.quote(str(partition))}" if partition else "",
        "workdir": str(Path.cwd()),
    }
    before = content.get("precommand")
    asked = {
        "name": rule,
        "resources": resources,
        "parameters": parameters,
        "settings": options,
        "script": (f"{before} && " if before else "") + f"exec {shlex.join(command)}",
    }
    status, line = run_program([sys.executable, "-m", LINE, json.dumps(asked)], 120)
    if status:
        raise JobRefusedError(f"{what}: Snakemake's plugin for Slurm makes no job: {line[-200:]}\n{_OTHER}")
    status, text = run_program(["bash", "-c", " ".join([line.splitlines()[-1], *test])], 60)
    if status:
        said = re.sub(r"(sbatch: error|allocation failure): |\n", " ", text).strip()
        raise JobRefusedError(f"{what}: sbatch refuses the job: {said[:200]}\n{next_step(text, ADVICE, _OTHER)}")
    return text
