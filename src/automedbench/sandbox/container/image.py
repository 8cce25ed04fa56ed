"""Container images: wheels of a pinned list are downloaded here, ``apptainer build`` installs them offline.

Downloading on the host keeps the build free of certificates, proxies and index settings, and serves sites whose
build nodes have no network. The definition files in ``containers/`` take everything as build arguments.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automedbench.base import files
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.records import Model
from automedbench.sandbox.container.launcher import find_runtime

DEFAULT_BASE = "docker://debian:12-slim"
RECORD = "/opt/automedbench/image.json"

# glibc 2.17 is the oldest that today's wheels are made for (PEP 599).
OLDEST_GLIBC = 17

# What apt installs where a base has no Python of its own.
PYTHONS = {"debian-12": "3.11", "debian-13": "3.13", "ubuntu-22.04": "3.10", "ubuntu-24.04": "3.12"}

# Prints the base's Python, or else its distribution, and then its C library.
ASK_BASE = """\
python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null ||
    { . /etc/os-release; echo "$ID-$VERSION_ID"; }
getconf GNU_LIBC_VERSION"""

# Pure Python that its authors publish as source only: made into wheels on the host.
SOURCE_ONLY = ("acvl-utils", "func-timeout", "radgraph", "rouge-score")

# Which GPU libraries this one needs depends on the machine: its own wheel names and pins them.
WITH_DEPENDENCIES = ("torch",)

# Apptainer's bootstrap agents that take a registry reference, by the scheme in front of it.
REGISTRY_SCHEMES = ("docker", "oras", "library")

# The host's binds and container settings do not belong into an image.
NOT_FOR_BUILDS = ("APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH")


class ImageRecord(Model):
    """Contents of an image as its build recorded them (``containers/inventory.py``); lies inside and beside it."""

    flavour: str
    recipe: str
    base: str
    system: str
    python: str
    cuda: str | None
    named: list[str]
    packages: dict[str, str]
    tools: list[str]

    @property
    def versions(self) -> list[str]:
        """The packages that its recipe names, each with its version; briefs name them."""
        return [f"{name} {self.packages[name]}" for name in self.named]


@dataclass(frozen=True)
class ImageRecipe:
    """Recipe of an image; ``base`` is a registry reference, a SIF file or a root file system folder.

    Without a base, an image that is there stays on the one it has, and a new one is built on ``DEFAULT_BASE``.
    """

    definition: Path
    requirements: Path
    base: str | None
    wheels: Path
    machine: str = "x86_64"

    @property
    def digest(self) -> str:
        """Identity of what the image holds beside its base."""
        return recipe_digest(self.definition, self.requirements)

    def made(self, found: ImageRecord | None) -> bool:
        """Check whether the image of this record fits the recipe."""
        base = found and (self.base is None or _split_base(self.base)[1] == found.base)
        return bool(found and base and found.recipe == self.digest)


@dataclass(frozen=True)
class ImagePlatform:
    """Platform tag for the wheels of a base: its Python, and the minor version of its glibc 2."""

    python: str
    glibc: int


def recipe_digest(definition: Path, requirements: Path) -> str:
    """Digest of a definition and its pinned list; comments and empty lines do not count.

    Raises MissingDataError when one of them is not there.
    """
    _require_files(definition, requirements)
    lines = [line.strip() for path in (definition, requirements) for line in path.read_text("utf-8").splitlines()]
    return files.hash_json([line for line in lines if line and not line.startswith("#")])


def record_beside(image: Path) -> ImageRecord | None:
    """Record beside an image; None before it is built."""
    path = image.with_suffix(".json")
    return files.read_record(path, ImageRecord) if path.is_file() else None


def parse_base(reference: str) -> tuple[str, str]:
    """Split a base reference, checked, into bootstrap agent and source (``_split_base``).

    Raises MissingDataError when it is neither a known scheme nor an existing path.
    """
    agent, source = _split_base(reference)
    if agent == "localimage" and not (reference and Path(source).exists()):
        raise MissingDataError(
            f"The base {reference} does not exist (a SIF file, a root file system folder, or "
            f"{', '.join(f'{known}://…' for known in REGISTRY_SCHEMES)}).\n"
            "Give docker://debian:12-slim, or make a Debian root as root: tests/setup/debian_root.sh DIR"
        )
    return agent, source


def _split_base(reference: str) -> tuple[str, str]:
    """Bootstrap agent and source, which a record names, of ``docker://debian:12-slim``, a SIF or a folder."""
    scheme, separator, source = reference.partition("://")
    if separator and scheme in REGISTRY_SCHEMES:
        return scheme, source
    return "localimage", str(Path(reference).resolve())


def ask_base(base: str) -> ImagePlatform:
    """Ask a base for its Python and its C library, in a container of it.

    Raises MissingDataError when it does not exist, InfrastructureError when it cannot be started or has no Python.
    """
    parse_base(base)
    versions = _read_inside(base, ["sh", "-c", ASK_BASE])
    python, _, library = versions.strip().partition("\n")
    version, glibc = PYTHONS.get(python, python), library.rpartition(".")[2]
    if version[:2] != "3." or not glibc.isdigit():
        raise InfrastructureError(
            f"The base {base} reports no Python and C library: {versions.strip()[-200:]!r}.\n"
            f"Needed: python3 in it, or one of {', '.join(PYTHONS)}. {_AS_USER}"
        )
    return ImagePlatform(version, int(glibc))


def image_record(image: Path) -> ImageRecord | None:
    """The record inside an image; None when there is no such image, or one without a record that can be read."""
    if not image.is_file():
        return None
    try:
        return ImageRecord.model_validate_json(_read_inside(str(image), ["cat", RECORD]))
    except ValueError:
        return None


def _read_inside(image: str, command: list[str]) -> str:
    """Output of a program in a container of the image; its stderr is printed here."""
    argv = ["apptainer", "--silent", "exec", "--containall", image, *command]
    return subprocess.run(
        argv, env=build_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ).stdout


def platform_tags(machine: str, glibc: int) -> list[str]:
    """Wheel platforms that run on glibc 2.``glibc``, newest first; pip expands none of them by itself."""
    minors = range(glibc, OLDEST_GLIBC - 1, -1)
    return [f"manylinux_2_{minor}_{machine}" for minor in minors] + [f"manylinux2014_{machine}"]


def wheels_folder(recipe: ImageRecipe, inside: ImagePlatform) -> Path:
    """The subfolder for this list, Python, C library and machine; another list never meets its wheels."""
    digest = files.sha256_file(recipe.requirements)[:16]
    return recipe.wheels / f"{digest}-py{inside.python}-glibc2.{inside.glibc}-{recipe.machine}"


def download_argvs(recipe: ImageRecipe, inside: ImagePlatform) -> list[list[str]]:
    """The pip calls that fetch the pinned list for the container's Python, not the host's.

    The list is complete, so nothing is resolved, and the installation in the container checks that it is.
    """
    pins = recipe.requirements.read_text("utf-8").split()
    source = [pin for pin in pins if _name(pin) in SOURCE_ONLY]
    resolved = [pin for pin in pins if _name(pin) in WITH_DEPENDENCIES]
    plain = [pin for pin in pins if pin not in (*source, *resolved)]
    folder = str(wheels_folder(recipe, inside))
    platforms = [word for tag in platform_tags(recipe.machine, inside.glibc) for word in ("--platform", tag)]
    download = [
        *(*_pip("download"), "--dest", folder, "--only-binary=:all:"),
        *("--implementation", "cp", "--python-version", inside.python, *platforms),
    ]
    return [
        [*download, "--no-deps", *plain],
        *([[*download, "--constraint", str(recipe.requirements), *resolved]] if resolved else []),
        *([[*_pip("wheel"), "--no-deps", "--use-pep517", "--wheel-dir", folder, *source]] if source else []),
    ]


def _name(pin: str) -> str:
    return re.split(r"[<>=!~ \[]", pin)[0]


def _pip(command: str) -> list[str]:
    return [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]


def named_packages(requirements: Path) -> list[str]:
    """The packages that a list was made for: those of the file that it is resolved from, else all of it."""
    wanted = requirements.with_suffix(".in")
    lines = (wanted if wanted.is_file() else requirements).read_text("utf-8").splitlines()
    return [_name(line) for line in lines if line and not line.startswith("#")]


def build_argv(recipe: ImageRecipe, wheels: Path, target: Path) -> list[str]:
    """The ``apptainer build`` call that makes ``target``; ``--force`` because the temporary name exists already.

    Raises MissingDataError when the base does not exist.
    """
    bootstrap, source = parse_base(recipe.base or DEFAULT_BASE)
    arguments = {
        "bootstrap": bootstrap,
        "base": source,
        "requirements": str(recipe.requirements),
        "recipe": recipe.digest,
        "named": " ".join(named_packages(recipe.requirements)),
    }
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    bound = ("--bind", f"{wheels.resolve()}:/mnt")
    return ["apptainer", "--quiet", "build", "--force", *bound, *words, str(target), str(recipe.definition)]


def build_environment(caller: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The caller's environment without its binds."""
    return {name: value for name, value in caller.items() if name not in NOT_FOR_BUILDS}


def download_wheels(recipe: ImageRecipe) -> Path:
    """Fill the wheels folder of the base's Python and return it; needs no network when it holds this list already.

    Raises MissingDataError without Apptainer, list or base, InfrastructureError when a step fails.
    """
    find_runtime()
    _require_files(recipe.requirements)
    return download_platform_wheels(recipe, ask_base(recipe.base or DEFAULT_BASE))


def download_platform_wheels(recipe: ImageRecipe, inside: ImagePlatform) -> Path:
    """The same for a Python and a C library that are known; raises InfrastructureError when a step fails."""
    folder = wheels_folder(recipe, inside)
    complete = folder / "complete.txt"
    if complete.is_file():
        return folder
    for argv in download_argvs(recipe, inside):
        run_step(
            argv,
            dict(os.environ),
            f"The wheels of {recipe.requirements} could not be downloaded to {recipe.wheels}",
            "Check network and pip settings of this machine; where build nodes have no network, run this once with "
            "--download-only on one that has.",
        )
    files.write_text(complete, f"All wheels of {recipe.requirements.name} are here.\n")
    return folder


def build_image(recipe: ImageRecipe, out: Path) -> None:
    """Make the image ``out`` from the recipe, unless it is there already, and write its record beside it.

    An older image is replaced at the end, by one that could be started. Raises MissingDataError when Apptainer, the
    base or a file is missing, InfrastructureError when a step fails.
    """
    find_runtime()
    _require_files(recipe.definition, recipe.requirements)
    found = image_record(out)
    if not recipe.made(found):
        found = _build(recipe, out)
    assert found is not None
    record = out.with_suffix(".json")
    files.write_record(record, found)
    record.chmod(0o644)  # as the image itself, which every user of the machine may start


def _build(recipe: ImageRecipe, out: Path) -> ImageRecord:
    wheels = download_wheels(recipe)
    failure = f"The image {out} could not be built from {recipe.definition} on {recipe.base or DEFAULT_BASE}"
    with files.atomic_path(out) as unfinished:
        argv = build_argv(recipe, wheels, unfinished)
        needed = "Needed: disk space in $APPTAINER_TMPDIR (default: /tmp), user namespaces."
        hint = _AS_USER if os.geteuid() == 0 else needed
        run_step(argv, build_environment(), failure, hint)
        found = image_record(unfinished)
        if not recipe.made(found):
            raise InfrastructureError(f"{failure}: it has no matching record at {RECORD}.\n{_AS_USER}")
    assert found is not None
    return found


_AS_USER = "Apptainer often does nothing as root inside a container or virtual machine: run this as another user."


def _require_files(*paths: Path) -> None:
    for path in paths:
        if not path.is_file():
            raise MissingDataError(f"{path} does not exist; run from the repository's folder, or give its path.")


SHOWN = 240
"""Characters of a command that are printed."""


def run_step(
    argv: list[str], environment: Mapping[str, str], failure: str, hint: str, *, cwd: Path | None = None
) -> None:
    """Run one command with its output going to ours; the message of a failure names the program and its status."""
    line = shlex.join(argv)
    print("+", line if len(line) <= SHOWN else f"{line[:SHOWN]} …", flush=True)
    try:
        # What lies in an image belongs to root there: other modes than these would lock its user out.
        done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, check=False, umask=0o022, cwd=cwd)
    except OSError as error:
        raise InfrastructureError(f"{failure}: {argv[0]}: {error.strerror}.\n{hint}") from error
    if done.returncode != 0:
        status = f"{Path(argv[0]).name} ended with status {done.returncode}"
        raise InfrastructureError(f"{failure}: {status}, its output is above.\n{hint}")
