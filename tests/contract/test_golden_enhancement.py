"""Enhancement against the golden data: PSNR and SSIM of pairs, bands, ratings, whole submissions.

Every case follows its verdict: what is right is reproduced, the rest as ``recommended`` or the verdict's words say.
Files of other modules are left out: ``agentic`` (S4, S5), ``failure_kind`` and ``aggregate``. So is the rating of an
aborted run: a track never sees how a run ended.
"""

from __future__ import annotations

import base64
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_data import golden as golden_of
from golden_data import load as load_golden
from toys.enhancement import inputs_of, make_card, make_manifest

from automedbench.base.errors import AutoMedBenchError
from automedbench.base.files import write_bytes, write_record
from automedbench.base.untrusted.npy import npy_bytes
from automedbench.metrics.image_quality import psnr, ssim
from automedbench.metrics.structural_similarity import windowed_ssim
from automedbench.tracks.enhancement import TRACK as enhancement
from automedbench.tracks.enhancement.score import gaussian_weights
from automedbench.tracks.enhancement.settings import BaselineQuality
from automedbench.tracks.enhancement.truth import BANDS, RATINGS, BaselineBands, make_bands, rate

golden = functools.partial(golden_of, "enh")
load = functools.partial(load_golden, "enh")
PSNR_DB, SSIM = 1e-3, 1e-5  # tolerances of the README: the reference computes in single precision


def array(value: dict[str, Any]) -> np.ndarray[Any, Any]:
    data = base64.b64decode(value["b64"])
    return np.frombuffer(data, np.dtype(value["dtype"]).newbyteorder("<")).reshape(value["shape"])


def number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float, str)) else math.nan


# --- pairs ----------------------------------------------------------------------------------------------------

# Verdicts that ask for something else than a number: the metric refuses, the track counts 0.
REFUSED = {"one_inf", "broadcastable_shape", "constant_reference"}


@pytest.mark.parametrize("case", golden("metrics"))
def test_pair(case: Any) -> None:
    """PSNR and SSIM, and the twin's SSIM."""
    prediction, reference, expected = array(case["pred"]), array(case["ref"]), case["expected"]
    data_range = case["data_range"]
    if case["id"] in REFUSED:
        for metric in (psnr, ssim):
            with pytest.raises(ValueError, match=r"finite|the same shape|data_range"):
                metric(prediction, reference, data_range=data_range)
        return
    assert psnr(prediction, reference, data_range=data_range) == pytest.approx(expected["psnr"], abs=PSNR_DB)
    if "raises" in str(expected["ssim"]):
        with pytest.raises(ValueError, match="11-pixel window"):
            ssim(prediction, reference, data_range=data_range)
        return
    assert ssim(prediction, reference, data_range=data_range) == pytest.approx(expected["ssim"], abs=SSIM)
    twin = windowed_ssim(prediction, reference, data_range=data_range, weights=gaussian_weights())
    assert twin == pytest.approx(expected["ssim"], abs=SSIM)


# --- bands and ratings ----------------------------------------------------------------------------------------


def baselines(values: dict[str, Any]) -> dict[str, BaselineQuality]:
    """The file's names of the classical and the neural baseline as ours."""
    names = {"classical_bm3d": "classical", "classical_bicubic": "classical"}
    names |= {"dnn_drunet": "neural", "dnn_swinir_x2": "neural"}
    return {
        names.get(name, name): BaselineQuality(mean_ssim=item["mean_ssim"], mean_psnr=item["mean_psnr"])
        for name, item in values.items()
    }


@pytest.mark.parametrize("case", golden("bands"))
def test_bands(case: Any) -> None:
    """Anchor and bands; A may not lie above 1 (docs/specification.md, 10.2): there it is half way to 1."""
    expected = case["expected"]
    known = baselines(expected["baselines"])
    found = make_bands("golden", known, classical="classical", source="published")
    assert found.anchor == {"classical_bm3d": "classical", "dnn_drunet": "neural"}[expected["anchor_keys"]["stronger"]]
    for letter in "ABC":
        assert found.bands[letter].psnr_min == expected["bands"][letter]["psnr_min"]
    assert found.bands["B"].ssim_min == expected["bands"]["B"]["ssim_min"]
    assert found.bands["C"].ssim_min == expected["bands"]["C"]["ssim_min"]
    assert expected["bands"]["A"]["ssim_min"] > 1
    assert found.bands["A"].ssim_min == round((1 + known[found.anchor].mean_ssim) / 2, 4)


@pytest.mark.parametrize("case", golden("bands"))
def test_baselines_are_means_of_pairs(case: Any) -> None:
    """The identity's means from its images; the range is maximum − minimum, as the file was made without a table."""
    pairs = [(array(case["inputs"][name]), array(case["references"][name])) for name in case["inputs"]]
    spans = [float(reference.max() - reference.min()) for _, reference in pairs]
    expected = case["expected"]["baselines"]["identity"]
    quality = [ssim(image, reference, data_range=span) for (image, reference), span in zip(pairs, spans, strict=True)]
    assert np.mean(quality) == pytest.approx(expected["mean_ssim"], abs=SSIM)
    levels = [psnr(image, reference, data_range=span) for (image, reference), span in zip(pairs, spans, strict=True)]
    assert np.mean(levels) == pytest.approx(expected["mean_psnr"], abs=PSNR_DB)


def published(task: str) -> BaselineBands:
    return make_bands(
        task, baselines(load("rating_clinical")["baselines"][task]), classical="classical", source="published"
    )


@pytest.mark.parametrize("task", load("rating_clinical").get("bands", {}))
def test_published_bands(task: str) -> None:
    """Made from the published baselines they are the published bands."""
    expected = load("rating_clinical")["bands"][task]
    found = {letter: (band.ssim_min, band.psnr_min) for letter, band in published(task).bands.items()}
    assert found == {letter: (expected[letter]["ssim_min"], expected[letter]["psnr_min"]) for letter in "ABC"}


def of_finished_runs(cases: list[Any]) -> list[Any]:
    """How a run ended is not the track's business: the run's own score is 0 when it was ended."""
    return [case for case in cases if not case.values[0].get("input", {}).get("aborted")]


@pytest.mark.parametrize("case", of_finished_runs(golden("rating_clinical", key="rating")))
def test_rating(case: Any) -> None:
    given = case["input"]
    complete = given["format_valid"] and given["completion_rate"] in (None, 1.0)
    expected = "F" if case["verdict"] == "wrong: must be F" else case["expected"]["rating"]
    found = rate(published(given["task"]), number(given["mean_ssim"]), number(given["mean_psnr"]), all_valid=complete)
    assert found == expected


# --- whole submissions ----------------------------------------------------------------------------------------

# Reasons of the reference's format check as codes of ours.
CODES = {
    "missing_enhanced_npy": "not_found",
    "contains_nan_or_inf": "not_finite",
    "non_float_dtype=int32": "not_float",
    "unreadable: ValueError": "object_array",
}


@pytest.mark.parametrize("case", golden("submissions"))
def test_submission(case: Any, tmp_path: Path) -> None:
    """Format check, score, completion, the flags behind S4 and S5, pass rate and rating of a whole run."""
    recommended, report = case["expected"]["recommended"], case["expected"].get("report")
    if not case["patient_ids"]:
        with pytest.raises(ValueError, match="cases"):
            make_manifest({})
        return
    card = make_card(intensity_range=[-1024, 3000])
    shapes = {name: tuple(case["references"].get(name, {"shape": [16, 16]})["shape"]) for name in case["patient_ids"]}
    manifest = make_manifest(shapes)
    lay_out(case, tmp_path)
    inputs = inputs_of(card, manifest, tmp_path)
    if recommended["harness_error"]:
        with pytest.raises(AutoMedBenchError, match="stage the task again"):
            enhancement.score(inputs)
        return
    score = enhancement.score(inputs)
    checked = inputs.checked
    assert codes_of(checked) == {
        row["patient_id"]: CODES.get(row["reason"]) for row in case["expected"]["format"]["per_patient"]
    }
    found = {row.case: row.metrics["ssim"] for row in score.cases}
    assert found == pytest.approx(recommended["per_patient_ssim_clipped"], abs=SSIM)
    assert score.quality == score.task_score == pytest.approx(recommended["task_score"], abs=SSIM)
    assert checked.completion_rate == pytest.approx(recommended["completion_rate"])
    assert 0.5 * checked.completion_rate + 0.5 * checked.submitted_valid == pytest.approx(recommended["s4"])
    submitted = case["agent_summary"]["submitted"]
    s5 = 0.5 * (score.task_score > 0) + 0.5 * (checked.all_valid and submitted)
    assert s5 == pytest.approx(recommended["s5"])
    library, value, tolerance = enhancement.verify(inputs)
    assert "numpy" in library
    assert abs(value - score.quality) <= tolerance
    if report is not None and checked.completion_rate == 1:
        check_diagnostics(score.metrics, report)


def check_diagnostics(found: dict[str, float | None], report: dict[str, Any]) -> None:
    """Means, shuffled control, pass rate and rating where the reference scored the same set of cases."""
    assert found["mean_ssim"] == pytest.approx(report["scores"]["mean_ssim"], abs=SSIM)
    assert found["mean_psnr"] == pytest.approx(report["scores"]["mean_psnr"], abs=PSNR_DB)
    assert found["control_ssim"] == pytest.approx(report["shuffle"]["mean_ssim"], abs=SSIM)
    assert found["control_psnr"] == pytest.approx(report["shuffle"]["mean_psnr"], abs=PSNR_DB)
    assert found["pass_rate"] == pytest.approx(report["pass_rate"]["pass_rate"], abs=1e-4)
    assert found["pass_threshold"] == report["pass_rate"]["threshold_ssim"]
    assert found["rating"] == RATINGS[report["rating"]["rating"]]


def lay_out(case: Any, folder: Path) -> None:
    """Private and submitted files exactly as the golden case gives them, and the published bands."""
    for name, reference in case["references"].items():
        write_bytes(folder / "private" / name / "reference.npy", npy_bytes(array(reference)))
    for name, content in case["enhanced_npy_files_b64"].items():
        if content is not None:
            path = folder / "submission/agents_outputs" / name / "enhanced.npy"
            write_bytes(path, base64.b64decode(content))
    write_bytes(folder / "private/ground_truth.csv", case["ground_truth_csv"].encode())
    write_record(folder / "private" / BANDS, published(case["task"]))


def codes_of(checked: Any) -> dict[str, str | None]:
    """Case → code of what is wrong; None for a valid one, whatever is remarked."""
    return {row.case: None if row.status == "valid" else row.problems[0].code for row in checked.cases}


def test_all_of_it_is_used(shared: Path) -> None:
    """A file that is renamed or emptied would make the tests above say nothing."""
    counts = {name: len(load(name)["cases"]) for name in ("metrics", "bands", "submissions")}
    assert min(counts.values()) >= 2
