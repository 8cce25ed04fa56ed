"""Stage that a code call belongs to, told from what it did. Descriptive only: no score uses it.

Rules: docs/specification.md, 8.8.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from automedbench.base.records import Stage

WEIGHTS_BYTES = 1 << 20
"""Growth of the caches within one call that counts as a download."""

_LABEL = re.compile(r"^\s*(?:#|//)\W*(?:stage\s*)?s([1-5])\b", re.IGNORECASE)
_INSTALL = re.compile(
    r"\b(?:pip3?|conda|mamba|uv|apt(?:-get)?)\s+(?:-\S+\s+)*(?:install|add)\b|-m\s+venv\b|\bvirtualenv\b"
)
_DOWNLOAD = re.compile(r"\b(?:wget|curl|snapshot_download|hf_hub_download|urlretrieve|git\s+clone|gdown)\b")
_LOAD = re.compile(
    r"\b(?:from_pretrained|load_state_dict|load_model|load_checkpoint|InferenceSession)\s*\("
    r"|\b(?:torch|joblib|jit)\.load\s*\(|\bYOLO\s*\("
)


@dataclass(frozen=True)
class CallEvidence:
    """What one call did: its code, the workspace files it changed, the cases whose expected outputs are among them."""

    code: str
    changed_files: Collection[str] = ()
    cases_written: int = 0
    n_cases: int = 1
    cache_growth: int = 0
    all_outputs_exist: bool = False
    submits: bool = False


def stage_of(evidence: CallEvidence, previous: Stage) -> Stage:
    """Stage of a call; never earlier than that of the call before."""
    seen = _seen(evidence)
    label = label_of(evidence.code)
    if not seen:
        return max(label or previous, previous)
    return max(label if label in seen else seen[0], previous)


def label_of(code: str) -> Stage | None:
    """A stage that the code names in a comment of its first three lines."""
    for line in code.lstrip().splitlines()[:3]:
        match = _LABEL.match(line)
        if match:
            stages: dict[str, Stage] = {"1": "S1", "2": "S2", "3": "S3", "4": "S4", "5": "S5"}
            return stages[match[1]]
    return None


def _seen(evidence: CallEvidence) -> list[Stage]:
    """Stages that the evidence speaks for, strongest first."""
    seen: list[Stage] = []
    few = max(2, evidence.n_cases // 10)
    reads_outputs = "agents_outputs" in evidence.code and evidence.cases_written == 0
    if evidence.submits or (reads_outputs and evidence.all_outputs_exist):
        seen.append("S5")
    if evidence.cases_written > few:
        seen.append("S4")
    elif evidence.cases_written:
        seen.append("S3")
    if {"plan/plan.md", "plan/plan.png"} & set(evidence.changed_files):
        seen.append("S1")
    if not evidence.cases_written and _sets_up(evidence):
        seen.append("S2")
    return seen


def _sets_up(evidence: CallEvidence) -> bool:
    code = evidence.code
    return evidence.cache_growth >= WEIGHTS_BYTES or any(
        pattern.search(code) for pattern in (_INSTALL, _DOWNLOAD, _LOAD)
    )
