"""Roles of our own code on hostile or private files: run in a container, or here with the local sandbox.

The code is a module of the package with a ``main(arguments)`` that writes into one empty folder. In a container it
sees what the role's argument vector binds and nothing else; both ways produce the same bytes.
"""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.sandbox import places
from automedbench.sandbox.container import launcher
from automedbench.sandbox.container.helper import SOURCE
from automedbench.sandbox.container.process import Guard, Supervised
from automedbench.sandbox.container.remedies import remedy
from automedbench.sandbox.container.scratch import scratch_folder

Backend = Literal["apptainer", "local"]
ROLE_TIMEOUT_S = 3600.0
FILTER = "filter.json"


@contextlib.contextmanager
def output_folder(beside: Path) -> Iterator[Path]:
    """An empty folder on the same file system as ``beside``, gone afterwards."""
    beside.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{beside.name}.", dir=beside.parent) as name:
        yield Path(name)


def run_role(
    module: str,
    arguments: Sequence[str],
    backend: Backend,
    image: Path | None,
    files: Mapping[str, Path],
    output: Path,
    *,
    public: Path | None = None,
    resources: Mapping[str, Path] | None = None,
) -> None:
    """Run ``module`` where it sees ``files`` (named as in ``places.INPUTS``), read-only; it writes into ``output``.

    The import role is given a workspace and nothing private, the scorer role private data and no agent code. ``public``
    is seen without being an option of the module; ``resources`` are further files and folders that it may read, by
    name. Raises MissingDataError without an image or such a file, InfrastructureError when the container cannot start
    or ``module`` fails in it.
    """
    given = resources or {}
    for name, path in given.items():
        if not path.exists():
            raise MissingDataError(f"The resource '{name}' is not at {path}.\nCorrect resources.{name} in the config.")
    if backend == "local":
        options = [*_file_options(files), "--output", str(output), *arguments, *_resource_options(given)]
        return importlib.import_module(module).main(options)  # type: ignore[no-any-return]
    named = _file_options({name: places.INPUTS[name] for name in files})
    inside = _resource_options({name: Path(places.RESOURCE_DIR, name) for name in given})
    command = ("python3", "-m", module, *named, "--output", places.OUTPUT_DIR, *arguments, *inside)
    seen = {"source": SOURCE, **files} | ({"public": public} if public else {})
    return _run_container(module, command, image, seen, output, given)


def _resource_options(resources: Mapping[str, Path]) -> list[str]:
    return [word for name, path in sorted(resources.items()) for word in ("--resource", f"{name}={path}")]


def _file_options(files: Mapping[str, Path | str]) -> list[str]:
    return [part for name, place in files.items() for part in (f"--{name.replace('_', '-')}", str(place))]


def _run_container(
    module: str,
    command: tuple[str, ...],
    image: Path | None,
    seen: Mapping[str, Path],
    output: Path,
    resources: Mapping[str, Path],
) -> None:
    if image is None or not image.exists():
        raise MissingDataError(f"No container image at {image}.\nRun `snakemake prepare`.")
    runtime = launcher.find_runtime()
    with scratch_folder("automedbench-role-") as scratch:
        tmp, profile = scratch / "tmp", scratch / FILTER
        tmp.mkdir()
        launcher.write_profile(profile, "trusted")
        contained = launcher.trusted_command(
            command,
            image=image.resolve(),
            seen={name: path.resolve() for name, path in seen.items()},
            tmp=tmp,
            output=output.resolve(),
            resources={name: path.resolve() for name, path in resources.items()},
            seccomp=profile,
            runtime=runtime,
        )
        with Supervised(
            contained,
            env=launcher.host_environment(scratch, runtime),
            cwd=scratch,
            guard=Guard([tmp], Limits(disk_gb=None), shm=True),
            streams=(scratch / "out", scratch / "err"),
            timeout_s=ROLE_TIMEOUT_S,
        ) as supervised:
            outcome = supervised.attend(ROLE_TIMEOUT_S)
    messages = outcome.stderr.text()
    print(outcome.stdout.text(), messages, sep="", end="")
    if outcome.ending == "stopped":
        raise InfrastructureError(f"{module} was ended in its container: {outcome.reason}.")
    if outcome.ending == "timeout":
        raise InfrastructureError(f"{module} did not end within {ROLE_TIMEOUT_S:.0f} s in its container.")
    if outcome.exit_code != 0:
        why = launcher.last_words(messages.encode())
        message = f"{module} failed in its container (exit {outcome.exit_code}): {why}\n{remedy(messages)}"
        raise InfrastructureError(message.rstrip())
