"""The benchmarks of scorers run (tiny, so that nothing is timed in earnest) and print tables; docs/performance.md has
a place for each.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TINY = {
    "average_precision": ["--images", "20"],
    "overlap": ["--scale", "0.06"],
    "structural_similarity": ["--scale", "0.06"],
    "text_metrics": ["--pairs", "5"],
}
PEERS = {
    "average_precision": ["pycocotools", "faster_coco_eval"],
    "overlap": ["nibabel", "SimpleITK"],
    "structural_similarity": ["nibabel", "skimage"],
    "text_metrics": ["nltk", "rouge_score", "sacrebleu"],
}
TABLE = re.compile(r"^\| \| ms \| .*\n\|(?:---\|)+\n(?:\| .+ \|\n){2,}", re.MULTILINE)


@pytest.mark.parametrize("name", TINY)
def test_it_prints_tables(root: Path, name: str) -> None:
    """Ours first, at least one peer below it; a value that differs from a peer's would end it."""
    for peer in PEERS[name]:
        pytest.importorskip(peer)
    command = [sys.executable, str(root / f"benchmarks/bench_{name}.py"), "--rounds", "1", *TINY[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    tables = TABLE.findall(done.stdout)
    assert tables
    assert all(table.splitlines()[2].startswith("| automedbench") for table in tables)


def test_places_and_benchmarks_fit(root: Path) -> None:
    """`make bench` writes what these print, and nothing else."""
    document = (root / "docs/performance.md").read_text("utf-8")
    places = re.findall(r"^<!-- bench:(\w+) -->$", document, re.MULTILINE)
    assert sorted(places) == sorted(TINY)
    assert document.count("<!-- /bench -->") == len(places)


@pytest.mark.parametrize("name", ["nonsense", "dry_run"])
def test_a_benchmark_without_a_place(root: Path, name: str) -> None:
    """Refused before anything runs, with the names that there are."""
    command = [sys.executable, str(root / "benchmarks/write_tables.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"no place for {name}" in done.stderr and "text_metrics" in done.stderr
