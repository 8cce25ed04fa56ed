"""The segmentation track: staging, verdicts, scores worked out by hand, real volumes."""

from __future__ import annotations

import csv
import gzip
import json
import math
import shutil
import struct
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from factories import make_brief_plan
from toys._bench import inputs, manifest_of
from toys.segmentation import AFFINE, CARD, INVALID, LOST, RIGHT, SHAPE, make_raw, mask_card, nifti

from automedbench.agent.plan import compose_brief
from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import write_bytes
from automedbench.base.records import CaseEntry, CaseSubmission
from automedbench.tracks import ScoringInputs, TrackScore, get_track, track_settings
from automedbench.tracks.segmentation import TRACK as segmentation
from automedbench.tracks.segmentation import compare
from automedbench.tracks.segmentation.check import orientation
from automedbench.tracks.segmentation.settings import label_files

GEOMETRY = {"shape": list(SHAPE), "spacing": [1.5, 1.5, 3.0], "affine": AFFINE.tolist()}
NIBABEL: Any = nib


def changed(card: TaskCard, **settings: Any) -> TaskCard:
    """The card with other metric settings."""
    return card.model_copy(
        update={"metric": card.metric.model_copy(update={"settings": card.metric.settings | settings})}
    )


def with_sampling(**sampling: Any) -> TaskCard:
    """The toy's card with other sampling."""
    value = CARD.model_dump()
    value["staging"]["sampling"] |= sampling
    return TaskCard.model_validate(value)


class Toy:
    """Truth and submission as volumes, per case and file name."""

    def __init__(self, folder: Path, card: TaskCard, truth: dict[str, dict[str, Any]]) -> None:
        self.card, self.private, self.submission = card, folder / "private", folder / "submission"
        for case, files in truth.items():
            for name, volume in files.items():
                write_bytes(self.private / case / name, nifti(volume))
        self.manifest = manifest_of("segmentation", dict.fromkeys(truth, GEOMETRY))

    def submit(self, case: str, **files: Any) -> None:
        """Bytes as they are, arrays as volumes; names without their suffix."""
        for name, content in files.items():
            data = content if isinstance(content, bytes) else nifti(content)
            write_bytes(self.submission / "agents_outputs" / case / f"{name}.nii.gz", data)

    def inputs(self) -> ScoringInputs:
        return inputs(self.card, self.manifest, self.submission, self.private)

    def check(self) -> dict[str, CaseSubmission]:
        return {case.case: case for case in self.inputs().checked.cases}

    def score(self) -> TrackScore:
        """The score, after the twin agreed."""
        inputs = self.inputs()
        score = segmentation.score(inputs)
        library, value, tolerance = segmentation.verify(inputs)
        assert abs(value - score.quality) <= tolerance, library
        return score


def volume(*painted: tuple[Any, int]) -> Any:
    """A map with boxes painted one after the other."""
    labels = np.zeros(SHAPE, np.uint8)
    for place, label in painted:
        labels[place] = label
    return labels


EMPTY = volume()
BOX = np.s_[0:4, 0:4, 0:4]  # 64 voxels
HALF_BOX = np.s_[0:2, 0:4, 0:4]  # 32 of them: Dice 2·32 / (64 + 32) = 2/3
FAR_BOX = np.s_[8:12, 5:9, 4:8]
DIAGONAL_MM = math.hypot(12 * 1.5, 10 * 1.5, 8 * 3)
THREE = volume((BOX, 1), (FAR_BOX, 2), (np.s_[6, 0, :], 3))


# --- card -----------------------------------------------------------------------------------------------------


def test_interface() -> None:
    assert get_track("segmentation") is segmentation
    defaults = changed(CARD).model_copy(update={"metric": CARD.metric.model_copy(update={"settings": {}})})
    assert track_settings(defaults) == segmentation.settings(both_empty="one", surface_metrics=True, tolerance_mm=2.0)


@pytest.mark.parametrize(
    ("card", "message"),
    [
        pytest.param(changed(CARD, both_empty="two"), "both_empty", id="unknown policy"),
        pytest.param(changed(CARD, positive_only=["livr"]), "did you mean 'liver'", id="misspelt target"),
        pytest.param(changed(CARD, files={"lung": "l.nii.gz"}), "'lung' is no target", id="file of an unknown target"),
        pytest.param(changed(CARD, files={"liver": "dseg.nii.gz"}), "each target", id="target without a file"),
        pytest.param(changed(mask_card(), files={}), "not 2", id="two label maps"),
        pytest.param(CARD.model_copy(update={"targets": []}), "at least one", id="no targets"),
        pytest.param(
            CARD.model_copy(update={"targets": [t.model_copy(update={"id": 1}) for t in CARD.targets]}),
            "different numbers",
            id="two targets with one id",
        ),
        pytest.param(
            CARD.model_copy(update={"targets": [t.model_copy(update={"id": t.id - 1}) for t in CARD.targets]}),
            "from 1",
            id="background as a target",
        ),
    ],
)
def test_bad_cards(card: TaskCard, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        label_files(card)


@pytest.mark.parametrize("card", [CARD, mask_card()], ids=["label map", "masks"])
def test_brief(card: TaskCard) -> None:
    """Both forms of the contract are told with every file, label and rule."""
    text = compose_brief(make_brief_plan(card, ["TSG_0001"])).markdown
    for output in card.expected_outputs(["TSG_0001"]):
        assert f"/workspace/agents_outputs/{output}" in text
    assert all(f"`{target.name}`" in text for target in card.targets)
    assert ("truly have it" in text) == bool(card.metric.settings.get("positive_only"))
    assert not any(mark in text for mark in ("{{", "{%", "Undefined"))


# --- staging --------------------------------------------------------------------------------------------------


def stage(card: TaskCard, raw: Path, folder: Path) -> list[CaseEntry]:
    return segmentation.stage(card, raw, folder / "public", folder / "private")


def test_staging(tmp_path: Path) -> None:
    """Opaque ids, images and truth without upstream texts, geometry, tables; the same bytes the second time."""
    make_raw(tmp_path / "raw")
    cases = stage(CARD, tmp_path / "raw", tmp_path / "a")
    assert [case.id for case in cases] == ["TSG_0001", "TSG_0002", "TSG_0003", "TSG_0004"]
    assert cases == stage(CARD, tmp_path / "raw", tmp_path / "b")
    split = json.loads((tmp_path / "a/private/split.json").read_text())
    subjects = [split["cases"][case.id]["subject"] for case in cases]
    assert sorted(subjects) == ["s0000", "s0011", "s0022", "s0033"] != subjects
    for case, subject in zip(cases, subjects, strict=True):
        assert case.geometry == GEOMETRY
        upstream = NIBABEL.load(tmp_path / "raw" / subject / "ct.nii.gz")
        staged = NIBABEL.load(tmp_path / "a/public" / case.id / "ct.nii.gz")
        np.testing.assert_array_equal(staged.dataobj, upstream.dataobj)
        np.testing.assert_array_equal(staged.affine, upstream.affine)
        assert staged.get_data_dtype() == upstream.get_data_dtype()
        data = gzip.decompress((tmp_path / "a/public" / case.id / "ct.nii.gz").read_bytes())
        assert b"named place" not in data
        truth = np.asarray(NIBABEL.load(tmp_path / "a/private" / case.id / "dseg.nii.gz").dataobj)
        for number, name in enumerate(("liver", "spleen", "aorta"), start=1):
            mask = NIBABEL.load(tmp_path / "raw" / subject / f"segmentations/{name}.nii.gz")
            np.testing.assert_array_equal(truth == number, np.asarray(mask.dataobj) == 1)
    rows = list(csv.DictReader((tmp_path / "a/private/ground_truth.csv").read_text().splitlines()))
    assert len(rows) == 12
    assert {row["voxels"] for row in rows if row["target"] == "aorta"} == {"0", "8"}
    assert sorted(p.name for p in (tmp_path / "a/public/TSG_0001").iterdir()) == ["ct.nii.gz"]


def test_staging_masks_from_a_label_map(tmp_path: Path) -> None:
    """KiTS: organ = label 1 or 2, lesion = label 2, one binary file each."""
    labels = volume((BOX, 1), (HALF_BOX, 2))
    write_bytes(tmp_path / "raw/case_00000/imaging.nii.gz", nifti(np.ones(SHAPE, np.int16)))
    write_bytes(tmp_path / "raw/case_00000/segmentation.nii.gz", nifti(labels.astype(np.float32)))
    value = mask_card().model_dump()
    value["staging"] |= {"reader": "label_maps"}
    value["staging"]["options"] = {
        "image": "{id}/imaging.nii.gz",
        "label": "{id}/segmentation.nii.gz",
        "labels": {"organ": [1, 2], "lesion": [2]},
    }
    value["staging"]["sampling"]["count"] = 1
    (case,) = stage(TaskCard.model_validate(value), tmp_path / "raw", tmp_path)
    assert set(case.private) == {"organ.nii.gz", "lesion.nii.gz"}
    for name, expected in (("organ", labels > 0), ("lesion", labels == 2)):
        found = np.asarray(NIBABEL.load(tmp_path / "private" / case.id / f"{name}.nii.gz").dataobj)
        np.testing.assert_array_equal(found, expected)


def test_overlapping_masks(tmp_path: Path) -> None:
    """The later target of the card has a voxel that two claim, and the record says how many."""
    make_raw(tmp_path / "raw")
    for subject in (tmp_path / "raw").glob("s*"):
        shutil.copy(subject / "segmentations/liver.nii.gz", subject / "segmentations/aorta.nii.gz")
    stage(CARD, tmp_path / "raw", tmp_path)
    truth = np.asarray(NIBABEL.load(tmp_path / "private/TSG_0001/dseg.nii.gz").dataobj)
    assert set(np.unique(truth)) == {0, 2, 3}
    split = json.loads((tmp_path / "private/split.json").read_text())["cases"]["TSG_0001"]
    assert split["overwritten_voxels"] == np.count_nonzero(truth == 3)


def test_a_channel_axis_is_no_part_of_the_grid(tmp_path: Path) -> None:
    """MSD Prostate: the image has two channels, label maps are 3-D."""
    make_raw(tmp_path / "raw")
    for subject in (tmp_path / "raw").glob("s*"):
        write_bytes(subject / "ct.nii.gz", nifti(np.zeros((*SHAPE, 2), np.int16)))
    cases = stage(CARD, tmp_path / "raw", tmp_path)
    assert cases[0].geometry["shape"] == list(SHAPE)
    assert NIBABEL.load(tmp_path / "public/TSG_0001/ct.nii.gz").shape == (*SHAPE, 2)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        pytest.param({"count": 2, "options": {"order": "sorted"}}, ["s0000", "s0011"], id="sorted"),
        pytest.param(
            {"count": 1, "options": {"order": "sorted", "require": ["aorta"]}}, ["s0011"], id="has the target"
        ),
        pytest.param(
            {"count": None, "options": {"order": "sorted", "require": ["aorta"]}}, None, id="all that have it"
        ),
        pytest.param({"count": None}, 4, id="all"),
    ],
)
def test_which_subjects(sampling: dict[str, Any], expected: Any, tmp_path: Path) -> None:
    make_raw(tmp_path / "raw")
    stage(with_sampling(**sampling), tmp_path / "raw", tmp_path)
    cases = json.loads((tmp_path / "private/split.json").read_text())["cases"]
    found = [case["subject"] for case in cases.values()]
    assert (len(found) if isinstance(expected, int) else found) == (expected or ["s0011", "s0022", "s0033"])


def test_too_few_subjects(tmp_path: Path) -> None:
    make_raw(tmp_path / "raw")
    with pytest.raises(InfrastructureError, match="asks for 9 cases, but only 4 of 4"):
        stage(with_sampling(count=9), tmp_path / "raw", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(nifti(np.zeros((2, 2, 2), np.uint8)), "its image has", id="another grid"),
        pytest.param(RIGHT[:-5], "spleen.nii.gz: is damaged", id="damaged"),
    ],
)
def test_bad_raw_data(content: bytes, message: str, tmp_path: Path) -> None:
    make_raw(tmp_path / "raw")
    (tmp_path / "raw/s0022/segmentations/spleen.nii.gz").write_bytes(content)
    with pytest.raises(InfrastructureError, match=message):
        stage(CARD, tmp_path / "raw", tmp_path)


def test_nothing_to_score(tmp_path: Path) -> None:
    make_raw(tmp_path / "raw")
    for mask in (tmp_path / "raw").glob("*/segmentations/*"):
        mask.write_bytes(nifti(EMPTY))
    with pytest.raises(InfrastructureError, match="none of its targets"):
        stage(CARD, tmp_path / "raw", tmp_path)


# --- format check ---------------------------------------------------------------------------------------------


@pytest.fixture
def maps(tmp_path: Path) -> Toy:
    """Two cases with the same label map of three targets; both empty counts 1."""
    truth = {"c1": {"dseg.nii.gz": THREE}, "c2": {"dseg.nii.gz": THREE}}
    return Toy(tmp_path, changed(CARD, both_empty="one"), truth)


@pytest.mark.parametrize(("data", "code"), [pytest.param(data, code, id=name) for name, data, code in LOST])
def test_files_that_cannot_be_read(maps: Toy, data: bytes, code: str) -> None:
    """The case is not completed; the other is scored as if nothing was wrong."""
    maps.submit("c1", dseg=data)
    maps.submit("c2", dseg=THREE)
    verdict = maps.check()["c1"]
    assert (verdict.status, verdict.completed, [p.code for p in verdict.problems]) == ("malformed", False, [code])
    score = maps.score()
    assert (score.quality, score.task_score) == (1.0, 0.5)


@pytest.mark.parametrize(("data", "code"), [pytest.param(data, code, id=name) for name, data, code in INVALID])
def test_files_that_are_invalid(maps: Toy, data: bytes, code: str) -> None:
    """Completed, invalid, scored; of the wrong shape: 0 in every target."""
    maps.submit("c1", dseg=data)
    maps.submit("c2", dseg=THREE)
    verdict = maps.check()["c1"]
    assert (verdict.status, verdict.completed) == ("malformed", True)
    assert code in [problem.code for problem in verdict.problems]
    score = maps.score()
    assert score.task_score == score.quality
    if code == "shape_mismatch":
        assert score.quality == 0.5


def test_messages(maps: Toy) -> None:
    """What is wrong, with the value, the number of voxels, and the file."""
    labels = THREE.astype(np.float32)
    labels[0, 0, 0], labels[0, 0, 1], labels[0, 0, 2] = 1.4, 9, np.nan
    maps.submit("c1", dseg=labels)
    messages = {problem.code: problem.message for problem in maps.check()["c1"].problems}
    assert messages == {
        "non_integer": "c1/dseg.nii.gz holds 1 voxels whose values are not integers, for example 1.4",
        "unexpected_label": "c1/dseg.nii.gz holds 2 voxels whose values are not a label of the task, for example 9",
    }


@pytest.mark.parametrize(
    "second", [None, b"no volume", nifti(THREE[:, :, :-1])], ids=["missing", "unreadable", "shape"]
)
def test_surfaces_of_what_cannot_be_compared(maps: Toy, second: bytes | None) -> None:
    """As a target that was missed: surface Dice 0, HD95 the diagonal; the first of two cases is the truth itself."""
    maps.submit("c1", dseg=THREE)
    if second is not None:
        maps.submit("c2", dseg=second)
    metrics = maps.score().metrics
    assert (metrics["hd95_mm"], metrics["surface_dice"]) == (pytest.approx(DIAGONAL_MM / 2), 0.5)


@pytest.mark.parametrize(("shift_mm", "code"), [(1e-3, "affine_rounding"), (2e-3, "affine_mismatch"), (1e-6, None)])
def test_tolerance_of_affines(maps: Toy, shift_mm: float, code: str | None) -> None:
    """A thousandth of the smallest voxel side, 1.5 mm here."""
    moved = AFFINE + np.diag([shift_mm], 3)
    maps.submit("c1", dseg=nifti(THREE, moved))
    assert [problem.code for problem in maps.check()["c1"].problems] == ([code] if code else [])


def test_orientation_is_named(maps: Toy) -> None:
    """A flipped volume is scored as it lies: a remark, no resampling."""
    maps.submit("c1", dseg=nifti(THREE[::-1], np.diag([-1, 1, 1, 1]) @ AFFINE))
    maps.submit("c2", dseg=THREE)
    verdict = maps.check()["c1"]
    assert (verdict.status, [problem.code for problem in verdict.problems]) == ("valid", ["affine_mismatch"])
    assert "orientation RAS, the case has LAS" in verdict.problems[0].message
    score = maps.score()
    assert score.metrics["n_affine_mismatch"] == 1
    assert score.quality < 1
    assert any("another affine" in note for note in score.notes)
    assert orientation(np.full((4, 4), np.nan)) == "?"


@pytest.fixture
def masks(tmp_path: Path) -> Toy:
    """An organ in both cases, a lesion in the first only."""
    truth = {
        "c1": {"organ.nii.gz": volume((BOX, 1)), "lesion.nii.gz": volume((HALF_BOX, 1))},
        "c2": {"organ.nii.gz": volume((BOX, 1)), "lesion.nii.gz": EMPTY},
    }
    return Toy(tmp_path, mask_card(), truth)


@pytest.mark.parametrize(
    ("files", "status", "codes"),
    [
        pytest.param({}, "missing", ["not_found"], id="neither file"),
        pytest.param({"organ": EMPTY}, "malformed", ["not_found"], id="organ only"),
        pytest.param({"lesion": EMPTY, "kidney": EMPTY}, "malformed", ["not_found"], id="organ under another name"),
        pytest.param({"organ": EMPTY, "lesion": RIGHT[:-4]}, "malformed", ["truncated"], id="one of two is damaged"),
        pytest.param({"organ": EMPTY * 0 + 2, "lesion": EMPTY}, "malformed", ["non_binary"], id="not binary"),
        pytest.param({"organ": EMPTY, "lesion": EMPTY}, "valid", [], id="both, empty"),
    ],
)
def test_both_masks_are_required(masks: Toy, files: dict[str, Any], status: str, codes: list[str]) -> None:
    """A case is completed when both can be read."""
    masks.submit("c1", **files)
    verdict = masks.check()["c1"]
    assert (verdict.status, [problem.code for problem in verdict.problems]) == (status, codes)
    assert verdict.completed == (codes in ([], ["non_binary"]))


# --- score ----------------------------------------------------------------------------------------------------


def test_no_submission(maps: Toy) -> None:
    score = maps.score()
    assert (score.quality, score.task_score) == (0.0, 0.0)
    assert score.cases[0].metrics == {"dice": None, "hd95_mm": DIAGONAL_MM, "surface_dice": 0}


def test_perfect(maps: Toy) -> None:
    for case in ("c1", "c2"):
        maps.submit(case, dseg=THREE)
    score = maps.score()
    assert (score.quality, score.task_score) == (1.0, 1.0)
    assert score.groups["aorta"] == {
        "dice": 1.0,
        "n_cases": 2.0,
        "n_both_empty": 0.0,
        "n_false_positive": 0.0,
        "n_missed": 0.0,
        "reference_ml": pytest.approx(8 * 1.5 * 1.5 * 3 / 1000),
        "prediction_ml": pytest.approx(8 * 1.5 * 1.5 * 3 / 1000),
        "hd95_mm": 0.0,
        "surface_dice": 1.0,
    }


def test_half_a_box(maps: Toy) -> None:
    """Liver: 2/3 and 1; spleen and aorta: missing in one of two cases."""
    maps.submit("c1", dseg=volume((HALF_BOX, 1)))
    maps.submit("c2", dseg=THREE)
    score = maps.score()
    assert {name: group["dice"] for name, group in score.groups.items()} == {
        "liver": pytest.approx(5 / 6),
        "spleen": 0.5,
        "aorta": 0.5,
    }
    assert score.quality == pytest.approx((5 / 6 + 0.5 + 0.5) / 3)
    assert score.cases[0].metrics["dice"] == pytest.approx(2 / 9)
    assert score.cases[0].detail["targets"]["spleen"] == {
        "dice": 0.0,
        "reference_voxels": 64,
        "predicted_voxels": 0,
        "hd95_mm": pytest.approx(math.sqrt(18**2 + 15**2 + 24**2)),  # 12 x 10 x 8 voxels of 1.5, 1.5, 3 mm
        "surface_dice": 0.0,
    }
    # The half box ends 2 voxels of 1.5 mm before the whole one.
    assert score.cases[0].detail["targets"]["liver"]["hd95_mm"] == pytest.approx(3.0)


def test_surfaces_that_would_take_too_long(maps: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without allowance no distance is known: both values are missing, a note says so, and Dice is what it was."""
    monkeypatch.setattr(compare, "MAX_SURFACE_WORK", 1.0)
    maps.submit("c1", dseg=volume((HALF_BOX, 1)))
    score = maps.score()
    liver = score.cases[0].detail["targets"]["liver"]
    assert (liver["hd95_mm"], liver["surface_dice"]) == (None, None)
    assert liver["dice"] == pytest.approx(2 / 3)
    assert any("HD95 is missing for 1 targets of single cases, surface Dice for 1" in note for note in score.notes)


@pytest.mark.parametrize("size", [0, 5, -16, 2**31 - 16, 16])
def test_header_extensions(maps: Toy, size: int) -> None:
    """Sizes that nibabel stumbles over cost the case before its twin meets them; right ones cost nothing."""
    plain = bytearray(gzip.decompress(nifti(volume((BOX, 1)))))
    struct.pack_into("<f", plain, 108, 368.0)
    extended = bytes(plain[:348]) + struct.pack("<4B2i8x", 1, 0, 0, 0, size, 6) + bytes(plain[352:])
    maps.submit("c1", dseg=gzip.compress(extended))
    verdict = maps.check()["c1"]
    assert (verdict.status, [problem.code for problem in verdict.problems]) == (
        ("valid", []) if size == 16 else ("malformed", ["bad_header"])
    )
    maps.score()


def test_surface_metrics_can_be_left_out(maps: Toy) -> None:
    maps.card = changed(maps.card, surface_metrics=False)
    maps.submit("c1", dseg=THREE)
    score = maps.score()
    assert (score.metrics["hd95_mm"], score.groups["liver"]["surface_dice"]) == (None, None)
    assert any("were not computed" in note for note in score.notes)


@pytest.mark.parametrize(
    ("policy", "c1", "c2", "expected"),
    [
        # Truth: liver in c1 only, spleen nowhere, aorta nowhere.
        pytest.param("one", volume((BOX, 1)), EMPTY, (1.0, 1.0, 1.0), id="one: all right"),
        pytest.param("skip", volume((BOX, 1)), EMPTY, (1.0, None, None), id="skip: all right"),
        pytest.param("one", EMPTY, EMPTY, (0.5, 1.0, 1.0), id="one: nothing found"),
        pytest.param("skip", EMPTY, EMPTY, (0.0, None, None), id="skip: nothing found"),
        pytest.param("one", volume((BOX, 2)), EMPTY, (0.5, 0.5, 1.0), id="one: invented"),
        pytest.param("skip", volume((BOX, 2)), EMPTY, (0.0, 0.0, None), id="skip: invented costs"),
        pytest.param("one", None, EMPTY, (1.0, 1.0, 1.0), id="one: hard case left out"),
        pytest.param("skip", None, EMPTY, (0.0, None, None), id="skip: the only liver left out is no right answer"),
        pytest.param("skip", volume((BOX, 1)), None, (1.0, None, None), id="skip: a case without targets left out"),
    ],
)
def test_both_empty(policy: str, c1: Any, c2: Any, expected: tuple[float | None, ...], tmp_path: Path) -> None:
    """The card decides what an absent target is worth (by hand); targets that nobody can score are dropped."""
    truth = {"c1": {"dseg.nii.gz": volume((BOX, 1))}, "c2": {"dseg.nii.gz": EMPTY}}
    toy = Toy(tmp_path, changed(CARD, both_empty=policy), truth)
    for case, labels in (("c1", c1), ("c2", c2)):
        if labels is not None:
            toy.submit(case, dseg=labels)
    score = toy.score()
    assert tuple(group["dice"] for group in score.groups.values()) == expected
    defined = [value for value in expected if value is not None]
    assert score.quality == pytest.approx(sum(defined) / len(defined))
    assert score.notes[0].endswith("counts as Dice 1." if policy == "one" else "is left out of the target's mean.")


def test_lesion_mean_is_over_cases_that_have_one(masks: Toy) -> None:
    """A false positive in the lesion-free case costs nothing, but is reported."""
    masks.submit("c1", organ=volume((BOX, 1)), lesion=volume((HALF_BOX, 1)))
    masks.submit("c2", organ=volume((BOX, 1)), lesion=volume((BOX, 1)))
    score = masks.score()
    assert score.quality == 1.0
    assert (score.metrics["lesion_dice"], score.metrics["organ_dice"]) == (1.0, 1.0)
    assert (score.metrics["lesion_dice_all"], score.metrics["lesion_false_positive_cases"]) == (0.5, 1.0)


def test_lesions_cannot_be_left_out_on_purpose(masks: Toy) -> None:
    """The only case with a lesion is missing: lesion Dice is 0, not undefined (docs/specification.md, 10.1)."""
    masks.submit("c2", organ=volume((BOX, 1)), lesion=EMPTY)
    score = masks.score()
    assert (score.metrics["lesion_dice"], score.quality, score.task_score) == (0.0, 0.5, 0.25)


def test_no_case_has_a_lesion(tmp_path: Path) -> None:
    """The target is dropped: nothing was wrong (golden case b05)."""
    toy = Toy(tmp_path, mask_card(), {"c1": {"organ.nii.gz": volume((BOX, 1)), "lesion.nii.gz": EMPTY}})
    toy.submit("c1", organ=volume((BOX, 1)), lesion=EMPTY)
    score = toy.score()
    assert (score.metrics["lesion_dice"], score.quality) == (None, 1.0)
    assert any("1 of 2 targets could not be scored" in note for note in score.notes)


def test_one_wrong_shape_spoils_the_case(masks: Toy) -> None:
    """docs/specification.md, 10.1: Dice 0 in every target of that patient."""
    masks.submit("c1", organ=volume((BOX, 1)), lesion=EMPTY[:, :, 1:])
    masks.submit("c2", organ=volume((BOX, 1)), lesion=EMPTY)
    score = masks.score()
    assert (score.metrics["organ_dice"], score.metrics["lesion_dice"], score.task_score) == (0.5, 0.0, 0.25)
    assert score.cases[0].detail["comparable"] is False


def test_labels_with_gaps(tmp_path: Path) -> None:
    """Ids need not be 1 … n (pancreas OAR); a number in a gap is no label."""
    value = CARD.model_dump()
    value["targets"] = [{"id": number, "name": f"t{number}"} for number in (3, 28, 300)]
    labels = volume((BOX, 3), (FAR_BOX, 28)).astype(np.int16)
    labels[7] = 300
    toy = Toy(tmp_path, TaskCard.model_validate(value), {"c1": {"dseg.nii.gz": labels}})
    toy.submit("c1", dseg=np.where(labels == 28, 5, labels))
    assert [problem.code for problem in toy.check()["c1"].problems] == ["unexpected_label"]
    assert [group["dice"] for group in toy.score().groups.values()] == [1.0, 0.0, 1.0]


def test_many_labels(tmp_path: Path) -> None:
    """More labels than one byte holds."""
    value = CARD.model_dump()
    value["targets"] = [{"id": number, "name": f"t{number}"} for number in range(1, 401)]
    labels = (np.arange(np.prod(SHAPE)).reshape(SHAPE) % 401).astype(np.uint16)
    toy = Toy(tmp_path, TaskCard.model_validate(value), {"c1": {"dseg.nii.gz": labels}})
    toy.submit("c1", dseg=np.where(labels > 200, 0, labels))
    assert toy.score().quality == 0.5


def test_our_own_faults(maps: Toy, tmp_path: Path) -> None:
    """Truth that is damaged or of another task stops the job."""
    maps.submit("c1", dseg=THREE)
    inputs = maps.inputs()
    truth = tmp_path / "private/c1/dseg.nii.gz"
    for content in (RIGHT[:-4], nifti(THREE + 5), nifti(THREE[1:])):
        truth.write_bytes(content)
        with pytest.raises(InfrastructureError, match=r"dseg\.nii\.gz"):
            segmentation.score(inputs)


def test_real_volumes(shared: Path, tmp_path: Path) -> None:
    """The full against the fast model's map of a real CT: Dice of every label as plain masks give it."""
    folder = shared / "data/totalsegmentator_example"
    truth, guess = (
        np.asarray(NIBABEL.load(folder / f"{name}.nii.gz").dataobj) for name in ("example_seg", "example_seg_fast")
    )
    value = CARD.model_dump()
    value["targets"] = [{"id": number, "name": f"t{number}"} for number in range(1, 118)]
    toy = Toy(tmp_path, TaskCard.model_validate(value), {"c1": {"dseg.nii.gz": truth}})
    geometry = GEOMETRY | {"shape": list(truth.shape)}
    entry = toy.manifest.cases[0].model_copy(update={"geometry": geometry})
    toy.manifest = toy.manifest.model_copy(update={"cases": [entry]})
    toy.submit("c1", dseg=(folder / "example_seg_fast.nii.gz").read_bytes())
    score = toy.score()
    expected = []
    for number in range(1, 118):
        left, right = truth == number, guess == number
        total = int(left.sum() + right.sum())
        expected.append(2 * int((left & right).sum()) / total if total else None)
    assert [group["dice"] for group in score.groups.values()] == [
        None if value is None else pytest.approx(value, abs=1e-12) for value in expected
    ]
