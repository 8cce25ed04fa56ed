"""Files that speak of training: which count, and that finding them never fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from automedbench.base.records import Finding
from automedbench.sandbox.container.telemetry import changed_no_network, training_files, training_findings
from automedbench.sandbox.evidence.audit import corroborated

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


TOLD = {
    "image parameters": (["training.image_parameters", "training.counts"], [], "notice"),
    "gradients of a class": (["training.backward", "training.counts"], [], "notice"),
    "parameters changed": (["training.backward", "training.counts"], ["training.changed"], "warning"),
    "nothing of the hook's": ([], [], "warning"),
    "no end of the counting": (["training.image_parameters"], [], "warning"),
}


@pytest.mark.parametrize(("low", "medium", "severity"), TOLD.values(), ids=TOLD)
def test_what_an_optimised_image_saves_is_no_trained_network(
    tmp_path: Path, low: list[str], medium: list[str], severity: str
) -> None:
    """The text names an optimiser and a tensor is saved: a warning, but where the hook knows what was optimised."""

    def told(rule: str, source: str, confidence: str) -> Finding:
        return Finding.of(rule, source, "training", "notice", confidence, "x", turn=1, call=4)  # type: ignore[arg-type]

    make(tmp_path, "field.pt")
    told_by = [*((rule, "runtime", "low") for rule in low), *((rule, "runtime", "medium") for rule in medium)]
    findings = [told(*each) for each in [("static.training", "static", "medium"), *told_by]]
    followed = changed_no_network(findings[1:], 4)
    findings += training_findings({}, training_files(tmp_path), turn=1, call=4, followed=followed)
    found = corroborated(findings)
    assert found[0].severity == severity
