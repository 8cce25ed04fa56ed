"""Files that speak of training: which count, and that finding them never fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from automedbench.sandbox.container.telemetry import training_files, training_findings

COUNTED = ["m.pt", "deep/er/m.pth", "x.CKPT", "x.safetensors", "optimizer.bin", "run/events.out.tfevents.1", "x.keras"]
PASSED_OVER = [
    *(".cache/huggingface/m.safetensors", ".local/lib/x.pt", "model.bin", "optimal.json.txt", "plan.md"),
    *("agents_outputs/c1/mask.nii.gz", "data.npy"),
]


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * 10)


def test_no_workspace(tmp_path: Path) -> None:
    assert training_files(tmp_path / "none") == {}
    assert training_files(tmp_path) == {}


@pytest.mark.parametrize(("name", "counts"), [*((n, True) for n in COUNTED), *((n, False) for n in PASSED_OVER)])
def test_what_counts(tmp_path: Path, name: str, counts: bool) -> None:
    make(tmp_path, name)
    assert list(training_files(tmp_path)) == ([name] if counts else [])


def test_links_folders_and_odd_names(tmp_path: Path) -> None:
    (tmp_path / "loop.pt").symlink_to(tmp_path)
    (tmp_path / "folder.pt").mkdir()
    os.mkfifo(tmp_path / "pipe.pt")
    (tmp_path / os.fsdecode(b"\xff\n.pt")).write_bytes(b"")
    found = training_files(tmp_path)
    assert list(found) == [os.fsdecode(b"\xff\n.pt")]
    (finding,) = training_findings({}, found, turn=1, call=1)
    assert finding.model_dump_json()


def test_new_and_changed_files_are_notices_of_training(tmp_path: Path) -> None:
    make(tmp_path, "old.pt", "changed.pt")
    before = training_files(tmp_path)
    (tmp_path / "changed.pt").write_bytes(b"y" * 20)
    make(tmp_path, "new.pt", "optimizer.pt")
    findings = training_findings(before, training_files(tmp_path), turn=2, call=5)
    assert [(item.rule, item.severity, item.confidence, item.call) for item in findings] == [
        ("telemetry.training_state", "notice", "medium", 5),
        ("telemetry.weights", "notice", "medium", 5),
    ]
    assert findings[1].evidence == "changed.pt (20 bytes) and 1 more"
    assert training_findings(before, before, turn=2, call=6) == []
