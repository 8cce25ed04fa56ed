"""Faults that are planted in a run on purpose, each at its place, and the evidence that the run met them.

The variant ``agent+fault`` runs like its base but for this one thing. How agents take it is for the board to tell
(``leaderboard.reliability``); what each fault is: docs/treatments.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from automedbench.agent.toolbox import OUTPUTS
from automedbench.agent.workspace import is_plain_file
from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.files import write_bytes
from automedbench.base.records import CodeCall, FaultEvidence, Manifest
from automedbench.campaign.treatments import FaultName
from automedbench.sandbox.airlock.collector import read_beneath
from automedbench.sandbox.egress.planted import PLANTED, NetworkFault
from automedbench.sandbox.places import DATA_DIR

CUT_S = 20.0
"""Time limit of code calls until one was cut."""
KEPT_SHARE = 0.6
"""Of a damaged file."""
EARLIER_S = 2 * 24 * 3600.0
"""Age of a stale output."""
PICTURES = (".nii.gz", ".nii", ".npy", ".png", ".jpg", ".jpeg")
STALE = {"csv": b"case\n", "json": b"{}\n", "jsonl": b"{}\n", "txt": b"Normal.\n"}
"""Output of an earlier try by its format; a picture is that of the case itself, without any work on it."""
PUT_OFF = "too many requests, as planted"
"""What an endpoint that is slow on purpose says."""


@dataclass(frozen=True)
class PlantedFault:
    """The fault of one run. Which case it is about depends on the task alone, so it is the same for all agents."""

    name: FaultName
    card: TaskCard
    manifest: Manifest

    @property
    def cases(self) -> list[str]:
        """The case whose input or output is changed: the one in the middle, which no first try takes."""
        about_a_case = self.name in ("odd-case", "damaged-case", "stale-output")
        return [self.manifest.case_ids[len(self.manifest.cases) // 2]] if about_a_case else []

    @property
    def block(self) -> str | None:
        """The block of the brief that is the fault."""
        return f"faults/{self.name}.md" if self.name in ("wrong-hint", "conflicting-requirement") else None

    @property
    def network(self) -> NetworkFault | None:
        """The fault of the run's egress."""
        return cast("NetworkFault", self.name) if self.name in get_args(NetworkFault) else None

    @property
    def call_s(self) -> float:
        """Time limit of code calls until one was cut."""
        return CUT_S if self.name == "cut-call" else float("inf")

    # --- the case's input -------------------------------------------------------------------------------------

    @property
    def input(self) -> str:
        """The changed file below the task's public folder: the case's first picture, or its first file."""
        (case,) = self.cases
        entry = self.manifest.cases[self.manifest.case_ids.index(case)]
        names = sorted(entry.inputs, key=lambda name: (not name.endswith(PICTURES), name))
        return f"{case}/{names[0]}"

    @contextlib.contextmanager
    def change_inputs(self, public: Path, copy: Path) -> Iterator[Path]:
        """The task's public folder as the run sees it: a ``copy`` of links, where one file differs, removed at the end.

        Raises OSError when it cannot be made.
        """
        change = _CHANGES.get(self.name)
        if change is None:
            yield public
            return
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(public, copy, copy_function=_link)
            file = copy / self.input
            file.unlink()
            change(public / self.input, file)
            yield copy
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    # --- the workspace ----------------------------------------------------------------------------------------

    @property
    def output(self) -> str | None:
        """The stale output, as a path of the workspace: the case's first one, or the task's."""
        if self.name != "stale-output":
            return None
        outputs = [output for output in self.card.outputs if not output.optional]
        return f"{OUTPUTS}/{outputs[0].path.replace('{case}', self.cases[0])}"

    def leave_output(self, workspace: Path, public: Path) -> None:
        """Put the stale output into a workspace that is new; raises MissingDataError where inputs are gone."""
        if self.output is not None:
            file = workspace / self.output
            file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(file, self._stale_bytes(public))
            earlier = file.stat().st_mtime - EARLIER_S
            os.utime(file, (earlier, earlier))

    def take_output(self, workspace: Path, public: Path) -> bool:
        """Take the stale output away where it lies unchanged, for it is no work of the agent's; True if it did."""
        if self.output is None or not is_plain_file(workspace, self.output):
            return False
        stale = self._stale_bytes(public)
        kept = read_beneath(workspace, self.output, len(stale) + 1) == stale
        if kept:
            (workspace / self.output).unlink()
        return kept

    def _stale_bytes(self, public: Path) -> bytes:
        form = next(output.format for output in self.card.outputs if not output.optional)
        if form in STALE:
            return STALE[form]
        self.manifest.require("inputs", public)
        return (public / self.input).read_bytes() if self.input.endswith(form) else b""

    # --- evidence ---------------------------------------------------------------------------------------------

    def gather(self, calls: Sequence[CodeCall], requests: Path, slowed: int, *, kept: bool) -> FaultEvidence:
        """What says that the run met the fault: its ``calls``, its log of egress ``requests``, replies ``slowed``."""
        met, evidence = self._look(calls, requests, slowed, kept)
        return FaultEvidence(fault=self.name, cases=self.cases, met=met, evidence=evidence, kept=kept)

    def _look(self, calls: Sequence[CodeCall], requests: Path, slowed: int, kept: bool) -> tuple[bool | None, str]:
        match self.name:
            case "index-down" | "cut-download":
                count = _count_planted(requests)
                return count > 0, f"{count} requests of the run's egress met it"
            case "slow-endpoint":
                return slowed > 0, f"{slowed} requests to the model were put off"
            case "wrong-hint" | "conflicting-requirement":
                return True, "it stands in the brief"
            case "cut-call":
                cut = [call.call for call in calls if call.status == "timeout" and call.elapsed_s < 2 * CUT_S]
                return bool(cut), f"call {cut[0]} was cut after {CUT_S:g} s" if cut else "no call took so long"
            case "stale-output":
                opened = _find_opened(calls, str(self.output))
                if kept:
                    return True, "it lay among the outputs at the end, unchanged"
                return True, f"call {opened} opened it" if opened else "it was replaced or removed"
            case _:
                opened = _find_opened(calls, f"{DATA_DIR}/{self.input}")
                if opened:
                    return True, f"call {opened} opened {self.input}"
                if all(call.processes is not None and not any(p.left_out for p in call.processes) for call in calls):
                    return False, f"no call opened {self.input}"
                return None, "the trace does not tell which inputs were opened"


def _find_opened(calls: Sequence[CodeCall], path: str) -> int | None:
    """The first call of which a process opened a file, to read or to write."""
    opened = (call.call for call in calls for each in call.processes or () if path in (*each.reads, *each.writes))
    return next(opened, None)


def _count_planted(requests: Path) -> int:
    """Requests of a log that met the fault; a line that a kill has torn tells nothing."""
    count = 0
    for line in requests.read_bytes().splitlines() if requests.is_file() else ():
        with contextlib.suppress(ValueError):
            count += json.loads(line).get("reason") == PLANTED.reason
    return count


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _damage(source: Path, target: Path) -> None:
    """Cut a file off, as a download or a disk does."""
    data = source.read_bytes()
    target.write_bytes(data[: int(KEPT_SHARE * len(data))])


def _change_depth(source: Path, target: Path) -> None:
    """The same picture with another data type, bit depth or number of channels; raises ConfigError for no picture."""
    import numpy as np

    if source.name.endswith((".nii.gz", ".nii")):
        import nibabel

        volume: Any = nibabel.load(source)
        image_class: Any = nibabel.Nifti1Image
        single = volume.get_data_dtype() == np.float64
        changed = image_class(volume.get_fdata(), volume.affine, volume.header)
        changed.set_data_dtype(np.float32 if single else np.float64)
        nibabel.save(changed, target)
    elif source.suffix == ".npy":
        values = np.load(source)
        np.save(target, values.astype(np.float32 if values.dtype == np.float64 else np.float64))
    elif source.name.endswith(PICTURES):
        from PIL import Image

        with Image.open(source) as picture:
            values = np.asarray(picture)
        match source.suffix, values.dtype, values.ndim:
            case ".png", np.uint8, 2:
                values = values.astype(np.uint16) * 257
            case _, np.uint8, 2:
                values = np.stack([values] * 3, axis=-1)
            case _, np.uint8, _:
                values = values.mean(axis=-1).round().astype(np.uint8)
            case _:
                values = (values >> 8).astype(np.uint8)
        Image.fromarray(values).save(target, quality=100)
    else:
        raise ConfigError([f"{source.name} is no picture, so its bit depth cannot be changed; leave odd-case out"])


_CHANGES: dict[str, Callable[[Path, Path], None]] = {"odd-case": _change_depth, "damaged-case": _damage}
