"""Telemetry: files that speak of training (weights, optimiser states), looked for in the workspace from outside.

Weak evidence, since weights may have been downloaded or converted. Rules: docs/specification.md, 9.8 and 9.9.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from automedbench.base.records import Confidence, Finding

MAX_LOOKED_AT = 200_000
SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".h5", ".keras", ".onnx")
# Downloads of the model libraries lie here (launcher.agent_environment).
CACHES = {".cache", ".local"}
_STATES = ("optim", "trainer_state", "scheduler")
_LOGS = "events.out.tfevents"

Stamp = tuple[int, int]


def training_files(workspace: Path) -> dict[str, Stamp]:
    """Path below the workspace → (bytes, time of change) of weights, optimiser states and training logs."""
    found: dict[str, Stamp] = {}
    pending, seen = [workspace], 0
    while pending and seen < MAX_LOOKED_AT:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        if folder != workspace or entry.name not in CACHES:
                            pending.append(Path(entry.path))
                    elif _speaks(entry.name) and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found[os.path.relpath(entry.path, workspace)] = (status.st_size, status.st_mtime_ns)
        except OSError:
            continue
    return found


def _speaks(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) or name.startswith(_LOGS) or _is_state(name)


def _is_state(name: str) -> bool:
    return any(word in name.lower() for word in _STATES) and name.lower().endswith((*SUFFIXES, ".bin", ".json"))


def training_findings(
    before: Mapping[str, Stamp], after: Mapping[str, Stamp], *, turn: int, call: int, followed: bool = False
) -> list[Finding]:
    """One notice for new or changed weights, one for optimiser states and training logs.

    ``followed``: the call's gradients are known to have changed no network, so that what it saved is none it trained.
    """
    new = sorted(path for path, stamp in after.items() if before.get(path) != stamp)
    states = [path for path in new if _is_state(Path(path).name) or Path(path).name.startswith(_LOGS)]
    weights = [path for path in new if path not in states]
    kinds = (("telemetry.training_state", states), ("telemetry.weights", weights))
    confidence: Confidence = "low" if followed else "medium"
    return [_finding(rule, confidence, paths, after, turn, call) for rule, paths in kinds if paths]


def changed_no_network(findings: Iterable[Finding], call: int) -> bool:
    """The hook has counted a call's gradients to its end, and all of them were of images or of no consequence."""
    told = {found.rule: found.confidence for found in findings if found.call == call and found.category == "training"}
    return "training.counts" in told and set(told.values()) == {"low"}


def _finding(
    rule: str, confidence: Confidence, paths: list[str], stamps: Mapping[str, Stamp], turn: int, call: int
) -> Finding:
    largest = max(paths, key=lambda path: stamps[path][0])
    shown = largest.encode("utf-8", "backslashreplace").decode()[-160:]
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    evidence = f"{shown} ({stamps[largest][0]} bytes){more}"
    return Finding.of(rule, "telemetry", "training", "notice", confidence, evidence, turn=turn, call=call)
