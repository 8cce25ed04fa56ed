"""A layer in real Apptainer, without network: built inside an image, mounted read-only, started and sealed."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from unprivileged import IMAGES, ROOT, as_user, python_for_user, user_folder, why_not

from automedbench.base.files import sha256_file
from automedbench.sandbox.container import image as images
from automedbench.sandbox.container.layer import layer_path, layer_record

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(600)]

START = """
import os, subprocess, sys
import small_agent

def start():
    for command in ("touch /opt/agent/x", "python3 -c 'import small_agent'"):
        if subprocess.run(command, shell=True, stderr=subprocess.DEVNULL).returncode == 0:
            return 5
    if os.environ["HOME"] != "/tmp/home" or open(os.environ["HOME"] + "/settings").read() != "checked":
        return 6
    return small_agent.main("/run/services/brief.md")
"""
"""A program that ends with another code where its layer can be written, where what it starts sees its packages, or
where its HOME is another one."""
RECIPE = {
    "agents": {"small": {"provider": "command", "layer": "small", "protocol": "chat"}},
    "about": "The tests' small agent",
    "protocol": "chat",
    "registry": "pip",
    "package": "small",
    "python": "3.9",
    "programs": {"small": "small_start:start"},
    "command": ["small"],
}


def write_wheel(folder: Path) -> None:
    """A wheel of two modules, as the format asks for (PyPA's binary distribution format)."""
    modules = {"small_start.py": START, "small_agent.py": (ROOT / "tests/cli_agent/tiny_agent.py").read_text()}
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / "small-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in modules.items():
            wheel.writestr(name, text)
        for name, text in about.items():
            wheel.writestr(f"small-1.0.dist-info/{name}", text)
        names = [*modules, *(f"small-1.0.dist-info/{name}" for name in about)]
        wheel.writestr("small-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in names))


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """An ordinary user's folder with a recipe, its pins, its wheel and an image: nothing is downloaded."""
    if reason := why_not("light"):
        pytest.skip(reason)
    with user_folder() as folder:
        as_user(lambda: fill(folder))
        yield folder


def fill(folder: Path) -> None:
    """Write recipe, pins and wheel where they are looked for, and link the image."""
    (folder / "config/agents/small").mkdir(parents=True)
    (folder / "envs/agents").mkdir(parents=True)
    (folder / "images").mkdir()
    for name in ("tasks", "prompts"):
        (folder / "config" / name).symlink_to(ROOT / "config" / name)
    (folder / "config/agents/small.yaml").write_text(yaml.safe_dump(RECIPE))
    (folder / "config/agents/small/settings").write_text("{model}")
    pins = folder / "envs/agents/small.txt"
    pins.write_text("small==1.0\n")
    for name in ("light.sif", "light.json"):
        (folder / "images" / name).symlink_to(IMAGES / name)
    wanted = images.ImageRecipe(pins, pins, None, folder / "images/wheels", os.uname().machine)
    wheels = images.wheels_folder(wanted, images.ask_base(str(IMAGES / "light.sif")))
    wheels.mkdir(parents=True)
    write_wheel(wheels)
    (wheels / "complete.txt").write_text("")


def do(folder: Path, action: str) -> tuple[int, str]:
    """One action of ``automedbench agents`` as the ordinary user: exit code and what it said."""

    def act() -> tuple[int, str]:
        python, image = python_for_user(folder), str(folder / "images/light.sif")
        done = subprocess.run(
            [python, "-m", "automedbench", "agents", action, "small", "--image", image],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return as_user(act)


def test_a_program_is_built_checked_and_kept(place: Path) -> None:
    code, said = do(place, "build")
    assert code == 0, said
    layer = layer_path(place / "images", "small")
    record = layer_record(layer)
    assert record is not None
    assert (record.version, record.packages, record.python) == ("1.0", {"small": "1.0"}, "3.11")
    assert record.sha256 == sha256_file(layer)
    built = layer.stat().st_mtime_ns
    code, said = do(place, "check")
    assert code == 0, said
    assert "small 1.0: works" in said and "files (1): agents_outputs.txt" in said
    (note,) = (place / "images/checks").iterdir()
    assert note.read_text().startswith("small 1.0, ")
    code, said = do(place, "build")
    assert (code, layer.stat().st_mtime_ns) == (0, built), said  # there already
    assert not list((place / "images").glob(".agent-*"))
