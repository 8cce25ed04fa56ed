"""Installing the package with pip: each extra in an environment of its own gives what it is for, and needs no other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, copy_tree

UV = str(Path(sys.executable).with_name("uv"))
IMPORT_ALL = """
import importlib, pkgutil, sys
import automedbench.metrics, automedbench.tracks
for package in (automedbench.metrics, automedbench.tracks):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
print(*sys.modules)
"""
SCORE = """
from numpy import uint8, array
from automedbench.metrics.overlap import JointHistogram
histogram = JointHistogram(2)
histogram.add(array([1, 1, 1, 1], uint8), array([1, 1, 0, 0], uint8))
print(histogram.overlap().dice("one")[1])
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository: building in the checkout would leave files there, and take old ones along."""
    folder = tmp_path_factory.mktemp("source") / "automedbench"
    copy_tree(folder)
    return folder


def install(source: Path, extra: str, pins: str) -> Path:
    """The ``bin`` of a new environment with ``.[extra]`` at the pinned versions; skips where no index answers."""
    folder = source.parent / extra
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "60"}
    call = {"env": environment, "cwd": source, "capture_output": True, "text": True}
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, str(folder)], check=True, **call)
    wanted = ["--python", str(folder / "bin/python"), "-c", f"envs/{pins}.txt", f".[{extra}]"]
    done = subprocess.run([UV, "pip", "install", "-q", *wanted], check=False, **call)
    if "error sending request" in done.stderr or "Failed to fetch" in done.stderr:
        pytest.skip(f"no index of packages: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def output(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command without the test's own packages on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*command], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_run_gives_the_commands(source: Path) -> None:
    """``automedbench tasks`` lists the cards of the clone that it is called in; the package is not that clone's."""
    programs = install(source, "run", "host")
    rows = json.loads(output(programs / "automedbench", "tasks", "--json", cwd=source))
    assert {row["task"] for row in rows} == {path.stem for path in (ROOT / "config/tasks").glob("*/*.yaml")}
    place = output(programs / "python", "-c", "import automedbench; print(automedbench.__file__)", cwd=source)
    assert Path(place.strip()).is_relative_to(programs.parent)


def test_score_gives_tracks_and_metrics(source: Path) -> None:
    """Importing all of them loads no agent, no sandbox and no Snakemake; every file of the package is there."""
    programs = install(source, "score", "scorer")
    loaded = output(programs / "python", "-c", IMPORT_ALL, cwd=source.parent).split()
    assert {"automedbench.tracks.segmentation.score", "automedbench.metrics.surface"} <= set(loaded)
    others = ("automedbench.agent", "automedbench.sandbox", "snakemake")
    assert [name for name in loaded if name.startswith(others)] == []
    # Two voxels in both, four in the reference, two in the prediction: 2·2 / (4 + 2).
    assert float(output(programs / "python", "-c", SCORE, cwd=source.parent)) == pytest.approx(2 / 3)
    (packages,) = programs.parent.glob("lib/python*/site-packages")
    files = [str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()]
    shipped = [name for name in files if not re.search(r"\.egg-info/|__pycache__", name)]
    assert len(shipped) > 300
    assert [name for name in shipped if not (packages / name).is_file()] == []
