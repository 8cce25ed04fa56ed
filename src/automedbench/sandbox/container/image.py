"""Container images: wheels of a pinned list are downloaded here, ``apptainer build`` installs them offline.

Downloading on the host keeps the build free of certificates, proxies and index settings, and serves sites whose
build nodes have no network. The definition files in ``containers/`` take everything as build arguments.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automedbench.base import files
from automedbench.base.errors import InfrastructureError, MissingDataError

DEBIAN_12_PYTHON = "3.11"

# glibc 2.17 is the oldest that today's wheels are made for (PEP 599), 2.36 is Debian 12's: a wheel made for a newer
# one would not load in the container.
GLIBC_MINORS = range(36, 16, -1)

# Pure Python that its authors publish as source only: made into wheels on the host.
SOURCE_ONLY = ("radgraph", "rouge-score")

# Which GPU libraries this one needs depends on the machine: its own wheel names and pins them.
WITH_DEPENDENCIES = ("torch",)

# Apptainer's bootstrap agents that take a registry reference, by the scheme in front of it.
REGISTRY_SCHEMES = ("docker", "oras", "library")

# The host's binds and container settings do not belong into an image.
NOT_FOR_BUILDS = ("APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH")


@dataclass(frozen=True)
class ImageRecipe:
    """What one image is made from; ``base`` is a registry reference, a SIF file or a root file system folder."""

    definition: Path
    requirements: Path
    base: str
    wheels: Path
    python_version: str = DEBIAN_12_PYTHON
    machine: str = "x86_64"

    @property
    def wheels_for_list(self) -> Path:
        """The subfolder of ``wheels`` for this list, Python and machine; another list never meets its wheels."""
        digest = files.sha256_file(self.requirements)[:16]
        return self.wheels / f"{digest}-py{self.python_version}-{self.machine}"


def parse_base(reference: str) -> tuple[str, str]:
    """Split a base reference into bootstrap agent and source: ``docker://debian:12-slim``, a SIF, or a folder.

    Raises MissingDataError when it is neither a known scheme nor an existing path.
    """
    scheme, separator, source = reference.partition("://")
    if separator and scheme in REGISTRY_SCHEMES:
        return scheme, source
    path = Path(reference)
    if not reference or not path.exists():
        raise MissingDataError(
            f"The base {reference} is not there (a SIF file, a root file system folder, or "
            f"{', '.join(f'{known}://…' for known in REGISTRY_SCHEMES)}).\n"
            "Give docker://debian:12-slim, or make a Debian root as root: tests/setup/debian_root.sh DIR"
        )
    return "localimage", str(path.resolve())


def platform_tags(machine: str) -> list[str]:
    """Wheel platforms that run in the container, newest first; pip expands none of them by itself."""
    return [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS] + [f"manylinux2014_{machine}"]


def download_argvs(recipe: ImageRecipe) -> list[list[str]]:
    """The pip calls that fetch the pinned list for the container's Python, not the host's.

    The list is complete, so nothing is resolved, and the installation in the container checks that it is.
    """
    pins = recipe.requirements.read_text("utf-8").split()
    source = [pin for pin in pins if _name(pin) in SOURCE_ONLY]
    resolved = [pin for pin in pins if _name(pin) in WITH_DEPENDENCIES]
    plain = [pin for pin in pins if pin not in (*source, *resolved)]
    return [
        [*_download(recipe), "--no-deps", *plain],
        *([[*_download(recipe), "--constraint", str(recipe.requirements), *resolved]] if resolved else []),
        *(
            [[*_pip("wheel"), "--no-deps", "--use-pep517", "--wheel-dir", str(recipe.wheels_for_list), *source]]
            if source
            else []
        ),
    ]


def _name(pin: str) -> str:
    return pin.partition("==")[0]


def _pip(command: str) -> list[str]:
    return [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]


def _download(recipe: ImageRecipe) -> list[str]:
    platforms = [word for tag in platform_tags(recipe.machine) for word in ("--platform", tag)]
    return [
        *(*_pip("download"), "--dest", str(recipe.wheels_for_list), "--only-binary=:all:"),
        *("--implementation", "cp", "--python-version", recipe.python_version, *platforms),
    ]


def build_argv(recipe: ImageRecipe, target: Path) -> list[str]:
    """The ``apptainer build`` call that makes ``target``; ``--force`` because the temporary name exists already.

    Raises MissingDataError when the base is not there.
    """
    bootstrap, source = parse_base(recipe.base)
    arguments = {
        "bootstrap": bootstrap,
        "base": source,
        "requirements": str(recipe.requirements),
        "wheels": str(recipe.wheels_for_list),
        "requirements_sha256": files.sha256_file(recipe.requirements),
    }
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    return ["apptainer", "--quiet", "build", "--force", *words, str(target), str(recipe.definition)]


def build_environment(caller: Mapping[str, str], scratch: Path | None) -> dict[str, str]:
    """The caller's environment without its binds; ``scratch`` is where the unpacked image lies meanwhile."""
    environment = {name: value for name, value in caller.items() if name not in NOT_FOR_BUILDS}
    if scratch is not None:
        environment["APPTAINER_TMPDIR"] = str(scratch)
    return environment


def download_wheels(recipe: ImageRecipe) -> None:
    """Fill the wheels folder; does nothing, and needs no network, when it holds this list already.

    Raises MissingDataError without the list, InfrastructureError when a download fails.
    """
    _require_files(recipe.requirements)
    complete = recipe.wheels_for_list / "complete.txt"
    if complete.is_file():
        return
    for argv in download_argvs(recipe):
        _run(
            argv,
            dict(os.environ),
            f"The wheels of {recipe.requirements} could not be downloaded to {recipe.wheels}",
            "Check network and pip settings of this machine; where build nodes have no network, run this once with "
            "--download-only on one that has.",
        )
    files.write_text(complete, f"All wheels of {recipe.requirements.name} are here.\n")


def build_image(recipe: ImageRecipe, out: Path, *, scratch: Path | None = None) -> None:
    """Make the image ``out`` from the recipe, downloading wheels first; an older image is replaced at the end.

    Raises MissingDataError when Apptainer, the base or a file is missing, InfrastructureError when a step fails.
    """
    _require_apptainer()
    _require_files(recipe.definition)
    parse_base(recipe.base)
    download_wheels(recipe)
    with files.atomic_path(out) as unfinished:
        _run(
            build_argv(recipe, unfinished),
            build_environment(os.environ, scratch),
            f"The image {out} could not be built from {recipe.definition} on {recipe.base}",
            _build_hint(recipe, as_root=os.geteuid() == 0),
        )


def _build_hint(recipe: ImageRecipe, *, as_root: bool) -> str:
    if as_root:
        return "Apptainer often cannot build as root inside a container or virtual machine: run this as another user."
    return (
        f"Needed: Python {recipe.python_version} in the base (else --python-version), disk space in "
        "$APPTAINER_TMPDIR or --scratch, user namespaces."
    )


def _require_apptainer() -> None:
    if shutil.which("apptainer") is None:
        raise MissingDataError(
            "Apptainer is not installed (no 'apptainer' on PATH), so no image can be built.\n"
            "On a cluster load its module; on Debian or Ubuntu run as root: tests/setup/apptainer.sh"
        )


def _require_files(*paths: Path) -> None:
    for path in paths:
        if not path.is_file():
            raise MissingDataError(f"{path} does not exist; run from the repository's folder, or give its path.")


def _run(argv: list[str], environment: Mapping[str, str], failure: str, hint: str) -> None:
    """Run one command with its output going to ours; the message of a failure names the program and its status."""
    print("+", shlex.join(argv), flush=True)
    try:
        # What lies in an image belongs to root there: other modes than these would lock its user out.
        status = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, check=False, umask=0o022).returncode
    except OSError as error:
        raise InfrastructureError(f"{failure}: {argv[0]}: {error.strerror}.\n{hint}") from error
    if status != 0:
        raise InfrastructureError(f"{failure}: {argv[0]} ended with status {status}, its output is above.\n{hint}")
