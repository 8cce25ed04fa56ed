"""The public release's own scorer on one submission, in the scorer role: what it says of the same outputs.

It is Python code of the user's copy, which is read-only here; there is no network, and nothing that an agent made is
run. What it prints may hold answers and is dropped.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import math
import sys
from pathlib import Path
from typing import Any

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import write_record
from automedbench.base.option_types import add_resource_option
from automedbench.base.records import Model
from automedbench.base.yamlfile import load_yaml
from automedbench.tracks.common.cases import OUTPUTS

OPINION = "opinion.json"
PACKAGE = "automedbench_release"


class Opinion(Model):
    """``opinion.json``: the release's task score, and the facts that it counts besides."""

    track: str
    score: float
    facts: dict[str, bool | int]


def ask_release(release: Path, task: str, outputs: Path, conversation: Path) -> Opinion:
    """Score the outputs of a task (``agents_outputs``) with the package in ``release``, over all of its cases.

    Raises InfrastructureError where the package lacks the task, fails, or gives no number.
    """
    sys.path.insert(0, str(release))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return _ask(release, task, outputs, conversation)
    except Exception as error:  # code of others: what fails in it is told, with its kind
        why = (str(error).splitlines() or [""])[0][:200]
        raise InfrastructureError(f"{task}: the release's scorer failed: {type(error).__name__}: {why}") from error
    finally:
        sys.path.remove(str(release))


def _ask(release: Path, task: str, outputs: Path, conversation: Path) -> Opinion:
    tasks, worker = (importlib.import_module(f"{PACKAGE}.{name}") for name in ("tasks", "raw_track_worker"))
    track, entry = next((name, one) for name, one in tasks.TASK_BY_TRACK.items() if one.task_id == task)
    layout, data = worker.TRACK_LAYOUTS[track], Path(entry.data_path(release))
    evaluation, public = release / layout["eval_dir"], data / "public"
    cases = sorted(path.name for path in public.iterdir() if (path / entry.public_marker).is_file())
    scorer = worker._SCORERS[track]
    takes_it = "conversation_path" in inspect.signature(scorer).parameters
    more: dict[str, Any] = {"conversation_path": conversation} if takes_it else {}
    with worker._track_modules(evaluation, tuple(layout["modules"])) as modules:
        score, facts, _ = scorer(
            modules=modules,
            output_dir=outputs,
            public_dir=public,
            private_dir=data / "private",
            selected=cases,
            config=load_yaml(evaluation / layout["config"]),
            **more,
        )
    if not math.isfinite(score):
        raise ValueError(f"gives {score}")
    kept = {name: value for name, value in facts.items() if isinstance(value, bool | int)}
    return Opinion(track=track, score=float(score), facts=kept)


def main(arguments: list[str]) -> None:
    """Ask inside the scorer role."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True)
    for name in ("submission", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    add_resource_option(parser)
    options = parser.parse_args(arguments)
    given = dict(options.resource)
    opinion = ask_release(given["release"], options.task, options.submission / OUTPUTS, given["conversation"])
    write_record(options.output / OPINION, opinion)


if __name__ == "__main__":
    main(sys.argv[1:])
