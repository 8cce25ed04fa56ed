"""``make clean``: removes what the demo made, and never the results of another campaign."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = {"results/demo/runs/careful", "data/demo/raw"}
PAID = {"results/runs/my-model", "results/runs/careful", "data/raw"}


def clean(place: Path) -> None:
    """Run the recipe as make would hand it to the shell, in another folder."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nclean:\n")[2].partition("\n\n")[0]
    for line in re.findall(r"^\t@(.+)$", recipe, re.MULTILINE):
        subprocess.run(["/bin/sh", "-c", line.replace("$$", "$")], cwd=place, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("there", "left"),
    [
        pytest.param({*DEMO, "logs"}, set(), id="demo"),
        pytest.param({*DEMO, *PAID, "logs"}, {*PAID, "logs"}, id="demo-and-paid"),
        pytest.param({*PAID, "logs"}, {*PAID, "logs"}, id="paid"),
        pytest.param({"data/raw", "logs"}, {"data/raw"}, id="results-elsewhere"),
        pytest.param(set(), set(), id="twice"),
    ],
)
def test_clean_removes_only_what_the_demo_made(tmp_path: Path, there: set[str], left: set[str]) -> None:
    for name in there:
        (tmp_path / name).mkdir(parents=True)
    clean(tmp_path)
    leaves = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not any(path.iterdir())}
    assert leaves == left
