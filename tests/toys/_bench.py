"""A toy on the bench: stage it, hand something in, collect and score that, as the workflow does step by step.

As a program (``python -m toys._bench TRACK FOLDER``) it hands in every hostile output of a staged toy, within 2 GiB of
address space and a minute each, and prints one JSON line for each.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import pkgutil
import resource
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import toys
from automedbench.base.cards import TaskCard
from automedbench.base.files import read_record, write_bytes
from automedbench.base.records import CaseEntry, DetailReport, Manifest, RunId, SubmissionRecord
from automedbench.steps.inside.case_views import draw_views
from automedbench.steps.inside.check_workspace import OUTPUTS, check_workspace
from automedbench.steps.inside.grade_submission import grade
from automedbench.steps.stage_task import stage_cases
from automedbench.tracks import ScoringInputs, get_track
from toys import Hostile

MEMORY_LIMIT = 2 * 1024**3
SECONDS_PER_FILE = 60


def toy_names() -> list[str]:
    """Every toy there is; modules with an underscore are no toys."""
    return sorted(module.name for module in pkgutil.iter_modules(toys.__path__) if module.name[0] != "_")


def load_toy(name: str) -> Any:
    """The module of one toy."""
    return importlib.import_module(f"toys.{name}")


@dataclass(frozen=True)
class Bench:
    """A staged toy below ``folder``."""

    toy: Any
    folder: Path
    manifest: Manifest

    @property
    def card(self) -> TaskCard:
        """The toy's card."""
        card: TaskCard = self.toy.CARD
        return card

    @property
    def public(self) -> Path:
        """The folder that an agent sees."""
        return self.folder / "public" / self.card.id

    @property
    def private(self) -> Path:
        """The folder with the answers."""
        return self.folder / "private" / self.card.id

    @property
    def cases(self) -> list[str]:
        """Case ids in the manifest's order."""
        return self.manifest.case_ids

    def perfect(self, cases: list[str]) -> dict[str, bytes]:
        """Outputs of the toy's perfect submission for these cases."""
        outputs: dict[str, bytes] = self.toy.perfect(self.manifest, self.public, self.private, cases)
        return outputs

    def collect(self, workspace: Path, folder: Path) -> SubmissionRecord:
        """Collect a workspace into ``folder/submission`` and check it."""
        run = RunId(agent="toy", task=self.card.id, tier="lite", repeat=1)
        workspace.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        return check_workspace(self.card, self.manifest, run, workspace, folder)

    def inputs(self, checked: SubmissionRecord, folder: Path) -> ScoringInputs:
        """What the scorer reads of what was collected into ``folder/submission``."""
        return ScoringInputs(
            card=self.card,
            manifest=self.manifest,
            submission=folder / "submission",
            private=self.private,
            checked=checked,
            resources=self.toy.RESOURCES,
            public=self.public,
        )

    def grade(self, checked: SubmissionRecord, folder: Path, *, verify: bool = False) -> DetailReport:
        """Score what was collected into ``folder/submission``."""
        return grade(self.inputs(checked, folder), verify=verify)

    def hand_in(self, outputs: Mapping[str, bytes], folder: Path, *, verify: bool = False) -> DetailReport:
        """The scores of these outputs (path below ``agents_outputs`` → content)."""
        write_outputs(folder / "workspace", outputs)
        return self.grade(self.collect(folder / "workspace", folder), folder, verify=verify)


def stage(name: str, folder: Path, workers: int = 1) -> Bench:
    """Make the raw data of a toy of this name and stage it below ``folder``."""
    return stage_toy(load_toy(name), folder, workers)


def stage_toy(toy: Any, folder: Path, workers: int = 1) -> Bench:
    """Make a toy's raw data and stage it below ``folder``."""
    raw, card = folder / "raw", folder / f"{toy.CARD.id}.yaml"
    raw.mkdir(parents=True)
    toy.make_raw(raw)
    card.write_text(yaml.safe_dump(toy.CARD.model_dump(mode="json")))
    places = (folder / "public", folder / "private", folder / "manifest.json")
    manifest = stage_cases(card, raw, *places, workers=workers)
    return Bench(toy, folder, manifest)


def write_outputs(workspace: Path, outputs: Mapping[str, bytes]) -> None:
    """Files below ``agents_outputs`` of a workspace."""
    for path, content in outputs.items():
        write_bytes(workspace / OUTPUTS / path, content)


# --- cases written down by hand -------------------------------------------------------------------------------


def collected(card: TaskCard, manifest: Manifest, submission: Path) -> SubmissionRecord:
    """What ``collect_submission`` writes after the track's format check."""
    track = get_track(card.track)
    cases = track.check(card, manifest, submission)
    return SubmissionRecord(
        run=RunId(agent="toy", task="toy", tier="lite", repeat=1),
        track_version=track.version,
        cases=cases,
        completion_rate=sum(case.completed for case in cases) / len(cases),
        valid_rate=sum(case.status == "valid" for case in cases) / len(cases),
    )


def inputs(
    card: TaskCard,
    manifest: Manifest,
    submission: Path,
    private: Path,
    checked: SubmissionRecord | None = None,
    resources: Mapping[str, Path] | None = None,
) -> ScoringInputs:
    """What the scorer reads of a submission; it is checked now unless it was before."""
    return ScoringInputs(
        card=card,
        manifest=manifest,
        submission=submission,
        private=private,
        checked=checked or collected(card, manifest, submission),
        resources=resources or {},
    )


def manifest_of(track: str, geometry: Mapping[str, Mapping[str, Any]]) -> Manifest:
    """A manifest of cases with these geometries and no files."""
    cases = [CaseEntry(id=case, inputs={}, private={}, geometry=dict(facts)) for case, facts in geometry.items()]
    return Manifest(task="toy", task_version=1, track=track, dataset="toy", sampling="by hand", cases=cases)


# --- the hostile outputs of one toy ---------------------------------------------------------------------------


def hostile_verdicts(bench: Bench, folder: Path) -> Iterable[dict[str, Any]]:
    """For each hostile output of the first case, handed in beside perfect ones of the others, what came of it.

    A file that holds several cases is the hostile one's own: then the other cases are not looked at.
    """
    case, others = bench.cases[0], bench.cases[1:]
    shared = any("{case}" not in output.path for output in bench.card.outputs)
    outputs = {} if shared else bench.perfect(others)
    expected = {} if shared else _case_metrics(bench.hand_in(bench.perfect(bench.cases), folder / "perfect"), others)
    for number, hostile in enumerate(bench.toy.HOSTILE):
        place = folder / f"{number:03d}"
        faulthandler.dump_traceback_later(SECONDS_PER_FILE, exit=True)
        try:
            found = _hand_in_hostile(bench, hostile, case, outputs, place)
            wrong = [other for other, metrics in expected.items() if found.pop(other, None) != metrics]
            yield {"id": hostile.id, **found["verdict"], "others_changed": wrong, "error": None}
        except Exception:
            yield {"id": hostile.id, "error": traceback.format_exc(limit=-6)}
        finally:
            faulthandler.cancel_dump_traceback_later()


def _hand_in_hostile(
    bench: Bench, hostile: Hostile, case: str, outputs: Mapping[str, bytes], folder: Path
) -> dict[str, Any]:
    workspace = folder / "workspace"
    (workspace / OUTPUTS).mkdir(parents=True)
    write_outputs(workspace, outputs)
    hostile.write(workspace / OUTPUTS, case, bench.manifest, bench.public)
    start = time.monotonic()
    checked = bench.collect(workspace, folder)
    report = bench.grade(checked, folder)
    seconds = time.monotonic() - start
    views = draw_views(bench.inputs(checked, folder), report, len(bench.cases))
    (verdict,) = [each for each in checked.cases if each.case == case]
    return {
        "verdict": {
            "status": verdict.status,
            "codes": [problem.code for problem in verdict.problems],
            "longest": max((len(problem.message) for problem in verdict.problems), default=0),
            "task_score": report.task_score,
            "seconds": seconds,
            "not_drawn": [view.case for view in views.cases for text in view.texts if text.title == "No picture"],
            "views_bytes": len(views.model_dump_json().encode()),
        },
        **_case_metrics(report, bench.cases),
    }


def _case_metrics(report: DetailReport, cases: list[str]) -> dict[str, dict[str, float | None]]:
    return {each.case: each.metrics for each in report.cases if each.case in cases}


def main(track: str, folder: Path) -> None:
    """Print one line per hostile output of the toy staged in ``folder``; ends without one where a limit is passed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    bench = Bench(load_toy(track), folder, read_record(folder / "manifest.json", Manifest))
    for verdict in hostile_verdicts(bench, folder / "hostile"):
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
