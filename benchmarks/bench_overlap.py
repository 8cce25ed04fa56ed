"""Dice of every label from two .nii.gz files: our segmentation scorer beside the libraries in use, in memory and time.

    python benchmarks/bench_overlap.py [--scale 1] [--rounds 3]

Two volumes: three labels in 512 × 512 × 200, and 91 of 117 labels in 300 × 300 × 400. ``--scale`` shrinks their sides.
Then the whole job, from the start of a process to its result. Every value is compared with ours.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import plain_dice
import yaml
from peers import has_monai, keep_values, load
from plain_dice import Dice
from side_by_side import Candidate, measure, table
from synthetic_volumes import Volume, kidney_pair, organ_pair, save
from whole_job import measure_jobs

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.files import write_record
from automedbench.base.records import CaseEntry, Manifest, RunId
from automedbench.campaign.config import CampaignConfig
from automedbench.campaign.record import CampaignRecord
from automedbench.sandbox.airlock import archive
from automedbench.steps.inside.check_workspace import OUTPUTS, check_workspace
from automedbench.tracks import ScoringInputs, get_track

ROOT = Path(__file__).resolve().parents[1]
CARD = ROOT / "config/tasks/segmentation/tsg-multiorgan-seg-task.yaml"
CASE, FILE = "case-0001", "dseg.nii.gz"
SLOW_S = 5.0  # candidates that take longer are measured once
MONAI_LABELS = 20  # with more of them it takes more than a minute


@dataclass(frozen=True)
class StagedCase:
    """One case as staging and collection leave it below ``folder``, ready to be scored."""

    folder: Path
    inputs: ScoringInputs
    n_labels: int

    @property
    def truth(self) -> Path:
        """The true label map."""
        return self.inputs.private / CASE / FILE

    @property
    def prediction(self) -> Path:
        """The predicted one, as it was collected."""
        return self.inputs.submission / OUTPUTS / CASE / FILE

    @property
    def shape(self) -> str:
        """For headings."""
        return " × ".join(map(str, self.inputs.manifest.cases[0].geometry["shape"]))

    def job(self) -> list[str]:
        """The command with which the workflow scores it, without a container."""
        options = [
            "--campaign",
            str(self.folder / "results/campaign.json"),
            "--run",
            str(self.inputs.submission.parent),
        ]
        return [sys.executable, str(ROOT / "scripts/score_metrics.py"), *options]

    def scorer(self) -> list[str]:
        """The process of the scorer role within it, as it is started in a container."""
        places = {
            "card": self.folder / f"{self.inputs.card.id}.yaml",
            "manifest": self.folder / f"{self.inputs.card.id}.json",
            "public": self.folder / "public",
            "private": self.inputs.private,
            "submission": self.inputs.submission,
            "submission-record": self.inputs.submission.parent / "submission.json",
            "output": self.folder / "scored",
        }
        options = [word for name, place in places.items() for word in (f"--{name}", str(place))]
        return [sys.executable, "-m", "automedbench.steps.inside.grade_submission", *options]

    def plain_job(self, way: str) -> list[str]:
        """The same by nibabel alone."""
        program = [sys.executable, str(ROOT / "benchmarks/plain_dice.py"), way]
        return [*program, str(self.truth), str(self.prediction), str(self.n_labels), str(self.folder / "plain.json")]


def stage(pair: tuple[Volume, Volume], n_labels: int, folder: Path) -> StagedCase:
    """Lay out one case of a task with the labels 1 … n; Dice only, no surface distances."""
    card = _card(n_labels)
    private = folder / "private" / card.id
    (folder / "public" / card.id).mkdir(parents=True)
    save(pair[0], private / CASE / FILE)
    save(pair[1], folder / "workspace" / OUTPUTS / CASE / FILE)
    manifest = Manifest(
        task=card.id,
        task_version=card.version,
        track=card.track,
        dataset=card.dataset.name,
        sampling="synthetic",
        cases=[CaseEntry(id=CASE, inputs={}, private={}, geometry=_geometry(pair[0]))],
    )
    run = RunId(agent="bench", task=card.id, tier="lite", repeat=1)
    collected = folder / "results/runs" / run.path
    checked = check_workspace(card, manifest, run, folder / "workspace", collected)
    (folder / f"{card.id}.yaml").write_text(yaml.safe_dump(card.model_dump(mode="json")))
    write_record(folder / f"{card.id}.json", manifest)
    write_record(collected / "submission.json", checked)
    archive.pack(folder / "workspace", collected / archive.OUTPUTS)
    data = {"public": "public", "private": "private", "raw": "raw", "manifests": ""}
    settings = CampaignConfig.model_validate(
        {
            "matrix": {"agents": ["bench"], "tasks": [card.id]},
            "data": {name: str(folder / place) for name, place in data.items()},
            "results": str(folder / "results"),
            "sandbox": {"backend": "local"},
            "leaderboard": {"case_views": "none"},
        }
    )
    record = CampaignRecord(settings=settings, cards={card.id: str(folder / f"{card.id}.yaml")}, datasets={})
    write_record(folder / "results/campaign.json", record)
    return StagedCase(folder, ScoringInputs(card, manifest, collected / "submission", private, checked), n_labels)


def _card(n_labels: int) -> TaskCard:
    value = load_card(CARD).model_dump()
    value["targets"] = value["targets"][:n_labels]
    value["metric"]["settings"] |= {"surface_metrics": False}
    return TaskCard.model_validate(value)


def _geometry(volume: Volume) -> dict[str, Any]:
    return {"shape": list(volume.shape), "spacing": [1.0] * 3, "affine": np.eye(4).tolist()}


# --- candidates: two files → Dice of the labels 1, 2, …, None where a label is in neither ------------------------


def ours(case: StagedCase) -> Dice:
    """The track's scorer."""
    scored = get_track("segmentation").score(case.inputs).cases[0].detail["targets"]
    return [scored[target.name]["dice"] if target.name in scored else None for target in case.inputs.card.targets]


def simple_itk(case: StagedCase) -> Dice:
    """SimpleITK, which says 0 for labels in neither volume, with a warning each."""
    import SimpleITK

    toolkit: Any = SimpleITK
    toolkit.ProcessObject.SetGlobalWarningDisplay(False)
    measures = toolkit.LabelOverlapMeasuresImageFilter()
    measures.Execute(*(toolkit.ReadImage(str(path)) for path in (case.truth, case.prediction)))
    return [measures.GetDiceCoefficient(label) for label in range(1, case.n_labels + 1)]


def monai(case: StagedCase) -> Dice:
    """MONAI on label numbers; its other input, a channel per label, would need gigabytes."""
    import nibabel
    import torch
    from monai.metrics import compute_dice

    read: Any = nibabel.load
    truth, prediction = (
        torch.from_numpy(np.asarray(read(path).dataobj))[None, None] for path in (case.truth, case.prediction)
    )
    found = compute_dice(prediction, truth, include_background=False, ignore_empty=False, num_classes=case.n_labels + 1)
    return [float(value) for value in found[0]]


def candidates(case: StagedCase) -> dict[str, Callable[[], Dice]]:
    """Ours first."""
    plain = partial(plain_dice.masks, case.truth, case.prediction, case.n_labels)
    counted = partial(plain_dice.table, case.truth, case.prediction, case.n_labels)
    nibabel = f"nibabel {version('nibabel')}"
    found: dict[str, Callable[[], Dice]] = {
        "automedbench": partial(ours, case),
        f"{nibabel} get_fdata, a mask per label": plain,
        f"{nibabel} dataobj, one bincount": counted,
        f"SimpleITK {version('simpleitk')}": partial(simple_itk, case),
    }
    if has_monai() and case.n_labels <= MONAI_LABELS:
        found[f"MONAI {version('monai')} on label numbers"] = partial(monai, case)
    return found


# --- tables -----------------------------------------------------------------------------------------------------


def compare(case: StagedCase, rounds: int, beside: Mapping[str, Candidate] | None = None) -> None:
    """Print one table, ``beside`` at its end; raises SystemExit when a library gives another Dice."""
    timed, values = keep_values(candidates(case))
    measured = measure({**timed, **(beside or {})}, rounds, once_above_s=SLOW_S)
    for name, found in values.items():
        _demand_equal(name, found, values["automedbench"], 1e-6 if "MONAI" in name else 1e-12)
    present = sum(value is not None for value in values["automedbench"])
    size = sum(path.stat().st_size for path in (case.truth, case.prediction)) / 1e6
    print(f"**Two files of {case.shape}** ({size:.1f} MB together), {present} of {case.n_labels} labels present\n")
    print(table(measured), end="\n\n")


def folded(volume: Volume, n_labels: int) -> Volume:
    """The same structures with the labels 1 … n in turn: does time depend on the number of labels?"""
    table = np.concatenate([[0], 1 + np.arange(255) % n_labels]).astype(np.uint8)
    return np.asfortranarray(table[volume])


def compare_jobs(case: StagedCase, rounds: int) -> None:
    """Print the table of the whole job."""
    jobs = {
        "automedbench, the scorer's process": case.scorer(),
        "automedbench, scripts/score_metrics.py": case.job(),
        "nibabel get_fdata, a mask per label": case.plain_job("masks"),
        "nibabel dataobj, one bincount": case.plain_job("table"),
    }
    print(f"**Whole job, {case.shape}, {case.n_labels} labels** (peak: the process with Python and its libraries)\n")
    print(table(measure_jobs(jobs, rounds, once_above_s=SLOW_S)), end="\n\n")


def _demand_equal(name: str, found: Dice, expected: Dice, tolerance: float) -> None:
    """The same value wherever ours is defined."""
    pairs = [(one, other) for one, other in zip(found, expected, strict=True) if other is not None]
    wrong = [(one, other) for one, other in pairs if one is None or abs(one - other) > tolerance]
    if not pairs or wrong:
        raise SystemExit(f"{name}: {len(wrong)} of {len(pairs)} values of Dice differ: {wrong[:3]}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    load("nibabel", "SimpleITK")
    kidneys, organs = kidney_pair(options.scale), organ_pair(options.scale)
    with tempfile.TemporaryDirectory(prefix="bench-overlap-") as name:
        cases = [stage(kidneys, 3, Path(name, "kidneys")), stage(organs, 117, Path(name, "organs"))]
        few = stage((folded(organs[0], 3), folded(organs[1], 3)), 3, Path(name, "few"))
        compare(cases[0], options.rounds)
        compare(cases[1], options.rounds, {"automedbench, its labels folded into 3": partial(ours, few)})
        print("MONAI is left out where it takes over a minute.\n" if has_monai() else "MONAI is not installed.\n")
        for case in cases:
            compare_jobs(case, options.rounds)


if __name__ == "__main__":
    main()
