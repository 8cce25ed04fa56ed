"""Count of malformed cases in a live workspace, for the answer to ``submit_results``.

The same format check as at the collection, in the same role (no network, nothing private), in a process of its own that
can be ended and that no key reaches. It tells the agent what a reader of the brief could check as well.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from automedbench.base.files import read_record
from automedbench.base.records import RunId, SubmissionRecord
from automedbench.sandbox.container.helper import SOURCE
from automedbench.sandbox.container.roles import Backend, run_role
from automedbench.sandbox.container.scratch import scratch_folder

CHECK_TIMEOUT_S = 60.0
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LANG")


def count_invalid(
    card: Path,
    manifest: Path,
    run: RunId,
    workspace: Path,
    *,
    backend: Backend,
    image: Path | None,
    timeout_s: float = CHECK_TIMEOUT_S,
) -> int | None:
    """Malformed cases of ``workspace``; None when the check fails or takes too long: it never stops a run."""
    named = {"card": card, "manifest": manifest, "run": run.model_dump_json(), "workspace": workspace}
    options = [word for name, value in named.items() for word in (f"--{name}", str(value))]
    options += ["--sandbox", backend, *(("--image", str(image)) if image else ())]
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, *options],
            env=environment | {"PYTHONPATH": str(SOURCE)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=True,
        )
        return int(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def main(arguments: list[str]) -> None:
    """Check in the import role and print the number."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("card", "manifest", "workspace"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--sandbox", choices=["apptainer", "local"], required=True)
    parser.add_argument("--image", type=Path)
    options = parser.parse_args(arguments)
    with scratch_folder("check-") as folder:
        run_role(
            "automedbench.steps.inside.check_workspace",
            ["--run", options.run],
            options.sandbox,
            options.image,
            {"card": options.card, "manifest": options.manifest, "workspace": options.workspace},
            folder,
        )
        record = read_record(folder / "submission.json", SubmissionRecord)
    print(sum(case.status == "malformed" for case in record.cases))


if __name__ == "__main__":
    main(sys.argv[1:])
