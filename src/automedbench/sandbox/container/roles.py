"""Roles of our own code on hostile or private files: run in a container, or here with the local sandbox.

The code is a module of the package with a ``main(arguments)`` that writes into one empty folder. In a container it
sees what the role's argument vector binds and nothing else; both ways produce the same bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import automedbench
from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.sandbox.container.launcher import (
    OUTPUT_DIR,
    PLACES,
    RESOURCE_DIR,
    ImportRole,
    ScorerRole,
    TrustedRole,
    host_environment,
    trusted_command,
)
from automedbench.sandbox.container.process import run_process
from automedbench.sandbox.container.runtime import find_runtime, last_words
from automedbench.sandbox.container.scratch import make_scratch, remove_scratch
from automedbench.sandbox.container.seccomp import write_profile
from automedbench.sandbox.container.watchdog import Watchdog

Backend = Literal["apptainer", "local"]
SOURCE = Path(automedbench.__file__).resolve().parents[1]
ROLE_TIMEOUT_S = 3600.0
FILTER = "filter.json"


@contextlib.contextmanager
def output_folder(beside: Path) -> Iterator[Path]:
    """An empty folder on the same file system as ``beside``, gone afterwards."""
    beside.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{beside.name}.", dir=beside.parent) as name:
        yield Path(name)


def run_import_role(
    module: str,
    arguments: Sequence[str],
    backend: Backend,
    image: Path | None,
    *,
    card: Path,
    manifest: Path,
    workspace: Path,
    output: Path,
) -> None:
    """Run ``module`` where it sees card, manifest and workspace (read-only); it writes into ``output``.

    Raises MissingDataError without an image, InfrastructureError when the container cannot start or ``module`` fails.
    """
    files = {"card": card, "manifest": manifest, "workspace": workspace}
    if backend == "local":
        return _run_here(module, arguments, files, output)
    command = _inside(module, arguments, files)
    return _run_container(lambda common: ImportRole(**common, **_resolved(files)), module, command, image, output)


def run_scorer_role(
    module: str,
    arguments: Sequence[str],
    backend: Backend,
    image: Path | None,
    *,
    card: Path,
    manifest: Path,
    public: Path,
    private: Path,
    submission: Path,
    submission_record: Path,
    output: Path,
    resources: Mapping[str, Path],
) -> None:
    """Run ``module`` where it sees the collected submission and the private data (read-only), and no agent code.

    ``resources`` are further files and folders that it may read, by name. Raises MissingDataError without an image or
    such a file, InfrastructureError when the container cannot start or ``module`` fails in it.
    """
    for name, path in resources.items():
        if not path.exists():
            raise MissingDataError(f"The resource '{name}' is not at {path}.\nCorrect resources.{name} in the config.")
    files = {
        "card": card,
        "manifest": manifest,
        "private": private,
        "submission": submission,
        "submission_record": submission_record,
    }
    if backend == "local":
        return _run_here(module, [*arguments, *_resource_options(resources)], files, output)
    inside = _resource_options({name: Path(RESOURCE_DIR, name) for name in resources})
    command = _inside(module, [*arguments, *inside], files)
    places = tuple(sorted(_resolved(resources).items()))
    seen = _resolved({**files, "public": public})
    return _run_container(lambda common: ScorerRole(**common, **seen, resources=places), module, command, image, output)


def add_resource_option(parser: argparse.ArgumentParser) -> None:
    """``--resource NAME=PATH``, any number of times: what a scorer reads beyond the task's own data."""
    parser.add_argument(
        "--resource",
        type=_resource,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="file or folder that the metrics need, for example wordnet=data/wordnet (repeatable)",
    )


def _resource(text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=PATH")
    return name, Path(path)


def _resource_options(resources: Mapping[str, Path]) -> list[str]:
    return [word for name, path in sorted(resources.items()) for word in ("--resource", f"{name}={path}")]


def _resolved(files: Mapping[str, Path]) -> dict[str, Any]:
    return {name: path.resolve() for name, path in files.items()}


def _named(places: Mapping[str, Path | str]) -> list[str]:
    return [part for name, place in places.items() for part in (f"--{name.replace('_', '-')}", str(place))]


def _run_here(module: str, arguments: Sequence[str], files: dict[str, Path], output: Path) -> None:
    importlib.import_module(module).main([*_named(files), "--output", str(output), *arguments])


def _inside(module: str, arguments: Sequence[str], files: Iterable[str]) -> tuple[str, ...]:
    named = _named({name: PLACES[name] for name in files})
    return ("python3", "-m", module, *named, "--output", OUTPUT_DIR, *arguments)


def _required(image: Path | None) -> Path:
    if image is None or not image.exists():
        raise MissingDataError(f"No container image at {image}.\nRun `snakemake prepare`, or give --image.")
    return image.resolve()


def _run_container(
    make_role: Callable[[Mapping[str, Any]], TrustedRole],
    module: str,
    command: tuple[str, ...],
    image: Path | None,
    output: Path,
) -> None:
    common = {"image": _required(image), "source": SOURCE, "output": output.resolve(), "command": command}
    runtime = find_runtime()
    scratch = make_scratch("automedbench-role-")
    role = make_role({**common, "tmp": scratch / "tmp", "seccomp": scratch / FILTER})
    try:
        role.tmp.mkdir()
        write_profile(scratch / FILTER, "trusted")
        outcome = run_process(
            trusted_command(role, runtime=runtime),
            env=host_environment(scratch, runtime),
            cwd=scratch,
            timeout_s=ROLE_TIMEOUT_S,
            out=scratch / "out",
            err=scratch / "err",
            watch=Watchdog([role.tmp], Limits(disk_gb=None), private_shm=True),
        )
    finally:
        remove_scratch(scratch)
    messages = outcome.stderr.text()
    print(outcome.stdout.text(), messages, sep="", end="")
    if outcome.ending == "stopped":
        raise InfrastructureError(f"{module} was ended in its container: {outcome.reason}.")
    if outcome.ending == "timeout":
        raise InfrastructureError(f"{module} did not end within {ROLE_TIMEOUT_S:.0f} s in its container.")
    if outcome.exit_code != 0:
        why = last_words(messages.encode())
        raise InfrastructureError(f"{module} failed in its container (exit {outcome.exit_code}): {why}")
