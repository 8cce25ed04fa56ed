"""The benchmarks of scorers run (tiny, so that nothing is timed in earnest) and print tables; docs/performance.md has
a place for each.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from unprivileged import why_not

TINY = {
    "average_precision": ["--images", "20"],
    "overlap": ["--scale", "0.06"],
    "text_metrics": ["--pairs", "5"],
}
PEERS = {
    "average_precision": ["pycocotools", "faster_coco_eval"],
    "overlap": ["nibabel", "SimpleITK"],
    "text_metrics": ["nltk", "rouge_score", "sacrebleu"],
}
TABLE = re.compile(r"^\| \| ms \| .*\n\|(?:---\|)+\n(?:\| .+ \|\n)+", re.MULTILINE)


@pytest.mark.parametrize("name", TINY)
def test_it_prints_tables(root: Path, name: str) -> None:
    """Ours first, at least one peer below it; a value that differs from a peer's would end it."""
    for peer in PEERS[name]:
        pytest.importorskip(peer)
    command = [sys.executable, str(root / f"benchmarks/bench_{name}.py"), "--rounds", "1", *TINY[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stderr
    tables = TABLE.findall(done.stdout)
    assert tables
    assert all(table.splitlines()[2].startswith("| automedbench") for table in tables)


@pytest.mark.apptainer
def test_overhead(root: Path) -> None:
    """Three tables whose first row is what everything else is compared with."""
    if reason := why_not("light"):
        pytest.skip(reason)
    command = [sys.executable, str(root / "benchmarks/bench_overhead.py"), "--rounds", "1", "--turns", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stderr
    tables = TABLE.findall(done.stdout)
    firsts = [table.splitlines()[2] for table in tables]
    assert [first.split("|")[1].split()[0] for first in firsts] == ["bare", "bare", "start"]
    assert all(first.split("|")[3].strip() == "1.00" for first in firsts)
    assert "| 16 loaders read 20000 files of 4 KB |" in done.stdout


@pytest.mark.long
def test_staging(root: Path) -> None:
    """A table for each form: staging, its parts, and the bare costs; memory for few cases, many, and workers."""
    command = [sys.executable, str(root / "benchmarks/bench_staging.py"), "--rounds", "1", "--scale", "0.02"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\| staging, \d+ cases, \d+ workers \|", done.stdout, re.MULTILINE)) == 4
    assert done.stdout.count("| staging, 1 worker |") == 4
    assert done.stdout.count("| only reading and decompressing the same files |") == 4
    assert done.stdout.count("Peak memory beyond the libraries") == 4


def test_places_and_benchmarks_fit(root: Path) -> None:
    """`make bench` writes what these print, and nothing else."""
    document = (root / "docs/performance.md").read_text("utf-8")
    places = re.findall(r"^<!-- bench:(\w+) -->$", document, re.MULTILINE)
    assert sorted(places) == sorted([*TINY, "overhead", "staging"])
    assert document.count("<!-- /bench -->") == len(places)


@pytest.mark.parametrize("name", ["nonsense", "scale"])
def test_a_benchmark_without_a_place(root: Path, name: str) -> None:
    """Refused before anything runs, with the names that there are."""
    command = [sys.executable, str(root / "benchmarks/write_tables.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"no place for {name}" in done.stderr and "text_metrics" in done.stderr
