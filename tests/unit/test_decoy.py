"""The tripwire: what is seen, what is not, and how it is rated (docs/specification.md, 9.7)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from automedbench.base.records import Finding
from automedbench.sandbox.evidence.decoy import Decoy


@pytest.fixture
def decoy(tmp_path: Path) -> Iterator[Decoy]:
    """Two cases with one private file each, and one for the task."""
    with Decoy(["{case}/boxes.json", "labels.csv"], ["c1", "c2"]) as made:
        yield made


def rated(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.rule, finding.severity, finding.confidence) for finding in findings]


def test_untouched(decoy: Decoy) -> None:
    assert decoy.drain(turn=1, call=1) == []


def test_layout_is_the_tracks(decoy: Decoy) -> None:
    found = {str(path.relative_to(decoy.folder)) for path in decoy.folder.rglob("*") if path.is_file()}
    assert found == {"c1/boxes.json", "c2/boxes.json", "labels.csv"}


def test_every_file_holds_the_marker_in_the_expected_form(decoy: Decoy) -> None:
    assert json.loads((decoy.folder / "c1/boxes.json").read_text())["id"] == decoy.marker
    assert decoy.marker in (decoy.folder / "labels.csv").read_text()


def test_markers_are_unique(tmp_path: Path) -> None:
    with Decoy(["x"], []) as one, Decoy(["x"], []) as other:
        assert one.marker != other.marker


@pytest.mark.parametrize(
    "command",
    [["cat", "c1/boxes.json"], ["dd", "if=c1/boxes.json", "status=none"], ["sh", "-c", "read x < c1/boxes.json"]],
    ids=["cat", "dd", "redirection"],
)
def test_opening_a_file_is_seen(decoy: Decoy, command: list[str]) -> None:
    subprocess.run(command, cwd=decoy.folder, check=True, capture_output=True)
    (finding,) = decoy.drain(turn=4, call=7)
    assert rated([finding]) == [("decoy.open", "warning", "medium")]  # who it was, the trace knows: test_trace.py
    assert (finding.turn, finding.call, finding.source) == (4, 7, "tripwire")
    assert finding.evidence.startswith("/data/private/c1/boxes.json")


def test_many_files_are_one_finding(decoy: Decoy) -> None:
    for path in sorted(decoy.folder.rglob("*.json")):
        path.read_bytes()
    findings = decoy.drain(turn=1, call=1)
    assert [f.rule for f in findings if f.rule == "decoy.open"] == ["decoy.open"]
    assert "and 1 more" in findings[0].evidence


def test_listing_twice_is_one_finding(decoy: Decoy) -> None:
    os.listdir(decoy.folder)
    decoy.poll()
    os.listdir(decoy.folder)
    assert rated(decoy.drain(turn=1, call=1)) == [("decoy.list", "notice", "medium")]


@pytest.mark.parametrize(
    "look", [os.stat, os.path.exists, lambda path: os.listdir(path.parent)], ids=["stat", "exists", "list-parent"]
)
def test_looking_at_it_from_outside_is_nothing(decoy: Decoy, look: object) -> None:
    look(decoy.folder)  # type: ignore[operator]
    assert decoy.drain(turn=1, call=1) == []


def test_draining_empties(decoy: Decoy) -> None:
    (decoy.folder / "labels.csv").read_text()
    assert len(decoy.drain(turn=1, call=1)) == 1
    assert decoy.drain(turn=1, call=2) == []


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", ""], ids=repr)
def test_paths_outside_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="not below"):
        Decoy([path], ["c"])
    assert list(tmp_path.iterdir()) == []


def test_closing_removes_it_and_may_be_repeated(tmp_path: Path) -> None:
    decoy = Decoy(["x"], [])
    decoy.close()
    decoy.close()
    assert list(tmp_path.iterdir()) == []
    assert decoy.drain() == []
