"""Segmentation against the golden data: Dice of arrays and whole submissions, masks and label maps.

Cases marked ``reference_right`` give the reference's Dice values; all give ``recommended``. The judge's, the phases'
and the stages' scalar files concern other modules; of ``scalars.json`` only the medals are the card's.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from golden_data import GOLDEN
from golden_data import golden as golden_of
from toys.segmentation import CARD, mask_card

from automedbench.base.cards import Medal, TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, RunId, SubmissionRecord
from automedbench.base.untrusted.nifti import open_trusted
from automedbench.metrics.overlap import JointHistogram
from automedbench.scoring.run import medal
from automedbench.tracks import ScoringInputs
from automedbench.tracks.segmentation import TRACK as segmentation
from automedbench.tracks.segmentation.check import Encoder, describe_geometry
from automedbench.tracks.segmentation.settings import LabelFile

golden = functools.partial(golden_of, "seg")
# Our codes for a file that cannot be read say why; the reference has one.
LOAD_FAILED = {"truncated", "corrupt", "bad_crc", "not_gzip", "bad_header", "trailing_data", "unsupported_dtype"}


def numbers(value: Any) -> float:
    """JSON cannot hold NaN and infinity: they are texts."""
    return float(value)


@pytest.mark.parametrize("case", golden("dice_array"))
def test_dice_of_arrays(case: Any) -> None:
    """Two flat arrays as masks, thresholded at more than 0.5."""
    file = LabelFile(mask_card().outputs[0], (mask_card().targets[0],), is_mask=True)
    histogram = JointHistogram(Encoder(file).n_numbers)
    histogram.add(*(Encoder(file).encode(np.array([numbers(v) for v in case[key]])) for key in ("gt", "pred")))
    assert histogram.overlap().dice("one")[1] == pytest.approx(case["expected"], abs=1e-12)


def test_medals(shared: Path) -> None:
    """Thresholds 0.7 and 0.3 on the score before rounding."""
    medals = [Medal(name=item.name, at_least={"macro_dice": item.at_least["macro_dice"]}) for item in CARD.medals]
    for row in json.loads((shared / "golden/seg/scalars.json").read_text())["medal"]:
        assert medal(medals, {"macro_dice": row["score"]}) == row["expected"]["name"]


def materialize() -> ModuleType:
    """The golden data's own builder of volumes."""
    specification = importlib.util.spec_from_file_location("materialize", GOLDEN / "seg/materialize.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def golden_card(case: Any) -> TaskCard:
    """Masks of organ and lesion, or a label map; both empty counts 1, as the reference has it."""
    labels = case["task_cfg"].get("tissue_labels")
    if labels is None:
        return mask_card(both_empty="one", surface_metrics=False)
    value = CARD.model_dump()
    value["targets"] = [{"id": int(number), "name": f"label_{number}"} for number in labels]
    value["metric"]["settings"] = {"both_empty": "one", "tolerance_mm": 1.0}
    return TaskCard.model_validate(value)


def lay_out(case: Any, folder: Path) -> Manifest:
    """Private and submitted files exactly as the golden case writes them."""
    materialize().materialize_case(case, str(folder))
    (folder / "submission").mkdir()
    (folder / "agent").rename(folder / "submission/agents_outputs")
    entries = []
    for name in case["patients"]:
        with open_trusted(folder / "public" / name / case["task_cfg"]["input_filename"]) as scan:
            entries.append(CaseEntry(id=name, inputs={}, private={}, geometry=describe_geometry(scan.header)))
    return Manifest(task="golden", task_version=1, track="segmentation", dataset="golden", sampling="", cases=entries)


def checked(card: TaskCard, manifest: Manifest, submission: Path) -> SubmissionRecord:
    cases: list[CaseSubmission] = segmentation.check(card, manifest, submission)
    return SubmissionRecord(
        run=RunId(agent="golden", task="golden", tier="lite", repeat=1),
        track_version=segmentation.version,
        cases=cases,
        completion_rate=sum(case.completed for case in cases) / len(cases),
        valid_rate=sum(case.status == "valid" for case in cases) / len(cases),
    )


@pytest.mark.parametrize("case", [*golden("pipeline_binary"), *golden("pipeline_multiclass")])
def test_pipeline(case: Any, tmp_path: Path) -> None:
    """A whole submission: verdicts, quality, completion, and the flags behind S4 and S5."""
    card, manifest = golden_card(case), lay_out(case, tmp_path)
    record = checked(card, manifest, tmp_path / "submission")
    inputs = ScoringInputs(card, manifest, tmp_path / "submission", tmp_path / "private", record)
    recommended = case["recommended"]
    if "harness_error" in recommended:
        with pytest.raises(InfrastructureError):
            segmentation.score(inputs)
        return
    score = segmentation.score(inputs)
    # Recommended values of these files are rounded to six digits (README).
    found = {name: group["dice"] for name, group in score.groups.items()}
    assert found == {name: pytest.approx(value, abs=1e-6) for name, value in recommended["target_dice"].items()}
    assert score.quality == pytest.approx(recommended["macro_dice"], abs=1e-6)
    assert score.task_score == pytest.approx(recommended["task_score"], abs=1e-6)
    assert record.completion_rate == pytest.approx(recommended["completion_rate"], abs=1e-6)
    assert record.valid_rate == pytest.approx(recommended["valid_rate"], abs=1e-6)
    assert 0.5 * record.completion_rate + 0.5 * record.submitted_valid == pytest.approx(recommended["s4"])
    assert 0.5 * (score.task_score > 0) + 0.5 * record.all_valid == pytest.approx(recommended["s5"])
    assert abs(segmentation.verify(inputs)[1] - score.quality) <= 1e-9


@pytest.mark.parametrize("case", [*golden("pipeline_binary"), *golden("pipeline_multiclass")])
def test_faults_of_files(case: Any, tmp_path: Path) -> None:
    """Each file that the reference found faulty is found faulty here, for the same reason."""
    card, manifest = golden_card(case), lay_out(case, tmp_path)
    record = checked(card, manifest, tmp_path / "submission")
    for verdict in record.cases:
        names = {"multiclass": "dseg.nii.gz", "organ": "organ.nii.gz", "lesion": "lesion.nii.gz"}
        for kind, judged in case["reference"]["format"]["per_patient"][verdict.case].items():
            path = f"{verdict.case}/{names[kind]}"
            codes = {problem.code for problem in verdict.problems if path in problem.message}
            for expected in judged["error_codes"]:
                assert codes & (LOAD_FAILED if expected == "load_failed" else {expected})


def right(case: Any) -> bool:
    """Whether the reference's own numbers are to be reproduced."""
    return not case or bool(case["judgement"]["reference_right"])


@pytest.mark.parametrize("case", [each for each in golden("pipeline_binary") if right(each.values[0])])
def test_dice_of_every_patient(case: Any, tmp_path: Path) -> None:
    """Dice and voxel counts of single patients where the reference is right."""
    card, manifest = golden_card(case), lay_out(case, tmp_path)
    record = checked(card, manifest, tmp_path / "submission")
    score = segmentation.score(ScoringInputs(card, manifest, tmp_path / "submission", tmp_path / "private", record))
    for row in score.cases:
        reference = case["reference"]["dice"]["per_patient"].get(row.case, {})
        for target in {"organ", "lesion"} & set(row.detail["targets"]):
            detail = reference.get(f"{target}_detail")
            if row.status == "missing" or not detail or "pred_voxels" not in detail:
                continue
            found = row.detail["targets"][target]
            if record.cases[manifest.case_ids.index(row.case)].completed:
                assert found["dice"] == pytest.approx(detail["dice"], abs=1e-9)
                assert found["predicted_voxels"] == detail["pred_voxels"]
            assert found["reference_voxels"] == detail["gt_voxels"]
