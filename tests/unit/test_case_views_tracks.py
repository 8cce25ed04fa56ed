"""What each track shows of a case: its toy with predictions whose places, boxes and texts are known by hand."""

from __future__ import annotations

import base64
import functools
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from toys import enhancement, segmentation
from toys._bench import Bench, stage

from automedbench.base.records import CaseScore, DetailReport
from automedbench.base.views import Box, Frame, LegendItem
from automedbench.steps.inside.grade_submission import grade
from automedbench.tracks import Drawing, ScoringInputs, get_track
from automedbench.tracks.common.pictures import COLOURS, MAX_CASE_CHARS, OTHER
from automedbench.tracks.enhancement.show import SIZES
from automedbench.tracks.segmentation.show import LUNG, SOFT_TISSUE, _window
from automedbench.tracks.synthesis.show import choose_slices

Handed = tuple[ScoringInputs, DetailReport]


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    """Each toy, staged once."""

    @functools.cache
    def get(name: str) -> Bench:
        return stage(name, tmp_path_factory.mktemp(name))

    return get


def hand_in(bench: Bench, outputs: Mapping[str, bytes], folder: Path) -> Handed:
    """Collected, checked and scored, ready to be shown."""
    bench.hand_in(outputs, folder)
    checked = bench.collect(folder / "workspace", folder / "again")
    inputs = ScoringInputs(
        card=bench.card,
        manifest=bench.manifest,
        submission=folder / "again/submission",
        private=bench.private,
        checked=checked,
        resources=bench.toy.RESOURCES,
        public=bench.public,
    )
    return inputs, grade(inputs, verify=False)


def show(handed: Handed, case: str) -> Drawing:
    inputs, report = handed
    return get_track(inputs.card.track).show(inputs, next(each for each in report.cases if each.case == case))


def decoded(picture: str, mode: str) -> Any:
    data = base64.b64decode(picture.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))


def coloured(frame: Frame, side: str, colour: str) -> Any:
    """Where an overlay has a colour (rows × columns)."""
    (layer,) = [layer for layer in frame.layers if layer.overlay and layer.side == side]
    drawn = decoded(layer.picture, "RGBA")
    return (drawn[..., 3] > 0) & (drawn[..., :3] == tuple(bytes.fromhex(colour[1:]))).all(axis=-1)


def texts(drawing: Drawing) -> dict[str, str]:
    return {text.side: text.text for text in drawing.texts}


# --- segmentation ---------------------------------------------------------------------------------------------

# The toy: 12 × 10 × 8 voxels of 1.5 × 1.5 × 3 mm, first axis towards the left (so that low indices are right, which
# is the left of a picture), second to the front (rows run against it), third up. Every voxel is 3 × 3 pixels.
SCALE = 3
LIVER, SPLEEN, AORTA = COLOURS[:3]


def label_map(**boxes: tuple[slice, slice, slice]) -> bytes:
    """A label map with one box per structure."""
    values = np.zeros(segmentation.SHAPE, np.uint8)
    for name, box in boxes.items():
        values[box] = segmentation.STRUCTURES.index(name) + 1
    return segmentation.nifti(values)


def test_segmentation_lies_where_it_was_put(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """Prediction: liver at x 0–2, y 0–1, z 3. In the picture: columns 0–2 from the left, the two lowest rows."""
    bench = benches("segmentation")
    liver = (slice(0, 3), slice(0, 2), slice(3, 4))
    handed = hand_in(bench, {"TSG_0001/dseg.nii.gz": label_map(liver=liver)}, tmp_path)
    drawing = show(handed, "TSG_0001")
    (frame,) = [frame for frame in drawing.frames if frame.title.startswith("axial 4 of 8")]
    assert (frame.width, frame.height) == (12 * SCALE, 10 * SCALE)
    expected = np.zeros((10 * SCALE, 12 * SCALE), bool)
    expected[8 * SCALE :, : 3 * SCALE] = True
    assert np.array_equal(coloured(frame, "prediction", LIVER), expected)
    assert drawing.legend[0] == LegendItem(name="liver", colour=LIVER)


def test_reference_is_drawn_as_a_line(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """The toy's liver of one subject is x 1–6, y 1–(5 + n), z 1–5; its rim is one pixel wide, its middle is open."""
    bench = benches("segmentation")
    handed = hand_in(bench, {}, tmp_path)
    for case in bench.cases:
        truth = np.asarray(segmentation.nib.load(bench.private / case / "dseg.nii.gz").dataobj)
        marked = np.argwhere(truth == 1)
        low, high = marked.min(axis=0), marked.max(axis=0) + 1
        frame = show(handed, case).frames[1]
        z = int(frame.title.split()[1]) - 1
        assert low[2] <= z < high[2]
        # Rows run from the front (high y) down, columns from the right (low x) to the left.
        rows, columns = slice((10 - high[1]) * SCALE, (10 - low[1]) * SCALE), slice(low[0] * SCALE, high[0] * SCALE)
        expected = np.zeros((10 * SCALE, 12 * SCALE), bool)
        expected[rows, columns] = True
        expected[rows.start + 1 : rows.stop - 1, columns.start + 1 : columns.stop - 1] = False
        assert np.array_equal(coloured(frame, "reference", LIVER), expected)


def test_missing_case_has_scan_and_reference_only(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    drawing = show(hand_in(benches("segmentation"), {}, tmp_path), "TSG_0001")
    assert {layer.side for frame in drawing.frames for layer in frame.layers} == {"input", "reference"}


def test_prediction_of_another_shape_is_not_drawn(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """It is malformed and completed, but voxels cannot be compared."""
    wrong = segmentation.nifti(np.ones((12, 10, 7), np.uint8))
    handed = hand_in(benches("segmentation"), {"TSG_0001/dseg.nii.gz": wrong}, tmp_path)
    assert handed[1].cases[0].status == "malformed"
    drawing = show(handed, "TSG_0001")
    assert {layer.side for frame in drawing.frames for layer in frame.layers} == {"input", "reference"}


def test_largest_slice_is_named(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """All of the volume in slice 7 (6 from 0): the largest by far, for all that the reference is elsewhere."""
    everything = (slice(None), slice(None), slice(6, 7))
    handed = hand_in(benches("segmentation"), {"TSG_0001/dseg.nii.gz": label_map(spleen=everything)}, tmp_path)
    titles = [frame.title for frame in show(handed, "TSG_0001").frames]
    (largest,) = [title for title in titles if "largest" in title]
    assert largest.startswith("axial 7 of 8")
    assert 5 <= len(titles) <= 9


def test_many_structures_share_a_colour(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """Nine targets, eight of them there: the six largest have colours, two are others."""
    bench = benches("segmentation")
    names = [f"part {number}" for number in range(1, 10)]
    targets = [{"id": number, "name": name} for number, name in enumerate(names, 1)]
    card = bench.card.model_validate(bench.card.model_dump() | {"targets": targets})
    values = np.zeros(segmentation.SHAPE, np.uint8)
    for number in range(1, 9):
        values[number, : number + 1, 4] = number  # part 8 is the largest
    bench = replace(bench, toy=type("Toy", (), {"CARD": card, "RESOURCES": {}}))
    drawing = show(hand_in(bench, {"TSG_0001/dseg.nii.gz": segmentation.nifti(values)}, tmp_path), "TSG_0001")
    # Parts 1 and 2 are large boxes in the truth, part 3 a line through all slices (at least 7 + 4 voxels); parts 4 to 8
    # have 5 to 9 voxels.
    assert [item.name for item in drawing.legend] == [*(f"part {n}" for n in (1, 2, 3, 6, 7, 8)), "2 other structures"]
    assert drawing.legend[-1].colour == OTHER
    assert len({item.colour for item in drawing.legend}) == 7


def test_masks_of_several_files_lie_above_each_other(tmp_path: Path) -> None:
    """Organ and lesion in files of their own; where both are, the later target shows."""
    card = segmentation.mask_card()
    bench = _mask_bench(tmp_path / "bench")
    organ, lesion = np.zeros((2, *segmentation.SHAPE), np.uint8)
    organ[2:6, 2:6, 4], lesion[3:5, 3:5, 4] = 1, 1
    outputs = {f"TSG_0001/{n}.nii.gz": segmentation.nifti(v) for n, v in (("organ", organ), ("lesion", lesion))}
    drawing = show(hand_in(bench, outputs, tmp_path), "TSG_0001")
    (frame,) = [frame for frame in drawing.frames if frame.title.startswith("axial 5 of 8")]
    assert coloured(frame, "prediction", COLOURS[0]).sum() == (16 - 4) * SCALE**2
    assert coloured(frame, "prediction", COLOURS[1]).sum() == 4 * SCALE**2
    assert [item.name for item in drawing.legend] == [target.name for target in card.targets]


def _mask_bench(folder: Path) -> Bench:
    """Four cases whose truth is an organ with a lesion in two files."""
    plain = stage("segmentation", folder)
    for case in plain.cases:
        for name, box in (("organ", slice(1, 7)), ("lesion", slice(2, 4))):
            values = np.zeros(segmentation.SHAPE, np.uint8)
            values[box, box, 2:6] = 1
            (plain.private / case / f"{name}.nii.gz").write_bytes(segmentation.nifti(values))
    toy = type("Toy", (), {"CARD": segmentation.mask_card(), "RESOURCES": {}})
    return replace(plain, toy=toy)


@pytest.mark.parametrize(
    ("modality", "targets", "lowest", "expected"),
    [
        pytest.param("CT (whole body)", ["liver"], -1000, SOFT_TISSUE, id="CT of organs"),
        pytest.param("Chest CT", ["lung_nodule"], -1000, LUNG, id="CT of the lung"),
        pytest.param("CT", ["lung", "heart"], -1000, SOFT_TISSUE, id="not of the lung alone"),
        pytest.param("CT", ["liver"], 0, None, id="CT that was rescaled"),
        pytest.param("Brain MRI", ["tumour"], 0, None, id="MR"),
    ],
)
def test_window(
    benches: Callable[[str], Bench], modality: str, targets: list[str], lowest: float, expected: Any
) -> None:
    value = benches("segmentation").card.model_dump() | {"modality": modality}
    value["targets"] = [{"id": number, "name": name} for number, name in enumerate(targets, 1)]
    card = benches("segmentation").card.model_validate(value)
    inputs = ScoringInputs(card, benches("segmentation").manifest, Path(), Path(), None)  # type: ignore[arg-type]
    values = np.linspace(lowest, 500, 101).reshape(1, 101)
    window, said = _window(inputs, [values])
    # 101 even steps: the 1st and 99th percentile are the second and the last but one.
    assert window == (expected or pytest.approx((values[0, 1], values[0, -2])))
    assert said.startswith("HU" if expected else "grey")


# --- detection ------------------------------------------------------------------------------------------------


def boxes_of(drawing: Drawing, side: str) -> list[Box]:
    return [box for box in drawing.frames[0].boxes if box.side == side]


def test_boxes_are_shares_of_the_image(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """A perfect prediction of the first box, one far outside, one half outside, one with a score above 1."""
    bench = benches("detection")
    case = bench.cases[0]
    truth = json.loads((bench.private / case / "boxes.json").read_text())
    width, height, first = truth["width"], truth["height"], truth["boxes"][0]
    corners = {key: first[key] for key in ("x1", "y1", "x2", "y2")}
    predicted = [
        {"class": first["class"], "score": 0.9, **corners},
        {"class": first["class"], "score": 0.8, "x1": -500, "y1": -500, "x2": -400, "y2": -400},
        {"class": first["class"], "score": 0.7, "x1": width / 2, "y1": height / 4, "x2": 9e9, "y2": height / 2},
        {"class": first["class"], "score": 7, "x1": 0, "y1": 0, "x2": 1, "y2": 1},
    ]
    handed = hand_in(bench, {f"{case}/prediction.json": json.dumps({"boxes": predicted}).encode()}, tmp_path)
    drawing = show(handed, case)
    found = boxes_of(drawing, "prediction")
    assert [box.score for box in found] == [1.0, 0.9, 0.7]
    assert found[1].matched and not found[2].matched
    assert (found[2].x0, found[2].y0, found[2].x1, found[2].y1) == (0.5, 0.25, 1.0, 0.5)
    shares = (first["x1"] / width, first["y1"] / height, first["x2"] / width, first["y2"] / height)
    assert (found[1].x0, found[1].y0, found[1].x1, found[1].y1) == pytest.approx(shares)
    references = boxes_of(drawing, "reference")
    assert len(references) == len(truth["boxes"])
    assert sum(bool(box.matched) for box in references) == 1


def test_missing_image_shows_its_truth(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    bench = benches("detection")
    drawing = show(hand_in(bench, {}, tmp_path), bench.cases[0])
    assert boxes_of(drawing, "reference") and not boxes_of(drawing, "prediction")


# --- classification, VQA, reports -----------------------------------------------------------------------------


def test_classification_shows_both_labels(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    bench = benches("classification")
    classes = [target.name for target in bench.card.targets]
    truth = json.loads((bench.private / bench.cases[0] / "label.json").read_text())["label"]
    wrong = next(name for name in classes if name != truth)
    table = f"patient_id,label\n{bench.cases[0]},{wrong}\n".encode()
    handed = hand_in(bench, {bench.card.outputs[0].path: table}, tmp_path)
    assert texts(show(handed, bench.cases[0])) == {"prediction": wrong, "reference": truth}
    assert texts(show(handed, bench.cases[1])).keys() == {"reference"}
    assert len(show(handed, bench.cases[0]).frames) == 1


def test_vqa_shows_question_options_answer_and_gold(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    bench = benches("vqa")
    choice = next(case for case in bench.manifest.cases if case.geometry["options"])
    options = choice.geometry["options"]
    truth = json.loads((bench.private / choice.id / "answer.json").read_text())
    letter = next(each for each in options if each != truth["answer_label"])
    record = bench.toy.record(choice.id, predicted_label=letter, predicted_answer=options[letter])
    handed = hand_in(bench, {f"{choice.id}/answer.json": json.dumps(record).encode()}, tmp_path)
    found = texts(show(handed, choice.id))
    assert found["input"].splitlines()[0] == truth["question"]
    assert f"{letter}) {options[letter]}" in found["input"].splitlines()
    assert found["prediction"] == f"{letter}) {options[letter]}"
    assert found["reference"] == f"{truth['answer_label']}) {truth['answer_text']}"


def test_vqa_answer_with_a_lone_surrogate(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """JSON may hold one; no file of ours can."""
    bench = benches("vqa")
    case = next(case.id for case in bench.manifest.cases if not case.geometry["options"])
    record = bench.toy.record(case, predicted_answer="\ud800 liver")
    handed = hand_in(bench, {f"{case}/answer.json": json.dumps(record).encode()}, tmp_path)
    assert texts(show(handed, case))["prediction"] == "? liver"


def test_report_shows_both_texts_and_every_image(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    bench = benches("report_generation")
    report = "The lungs are clear and the heart is of normal size."
    handed = hand_in(bench, {f"{bench.cases[0]}/report.txt": report.encode()}, tmp_path)
    drawing = show(handed, bench.cases[0])
    assert texts(drawing)["prediction"] == report
    assert texts(drawing)["reference"] == (bench.private / bench.cases[0] / "report.txt").read_text()
    counts = {case: len(show(handed, case).frames) for case in bench.cases}
    images = {case: len(list((bench.public / case / "images").iterdir())) for case in bench.cases}
    assert counts == images and max(counts.values()) == 2


def test_malformed_report_is_shown_as_it_is(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    bench = benches("report_generation")
    handed = hand_in(bench, {f"{bench.cases[0]}/report.txt": b"\xff\xfe short"}, tmp_path)
    assert handed[1].cases[0].status == "malformed"
    assert "short" in texts(show(handed, bench.cases[0]))["prediction"]


# --- enhancement and synthesis --------------------------------------------------------------------------------


def test_enhancement_shows_before_after_reference_and_difference(
    benches: Callable[[str], Bench], tmp_path: Path
) -> None:
    """Brighter by 0.05 in the upper half: the difference is half-way to its upper colour there, white below."""
    bench = benches("enhancement")
    case = bench.cases[0]
    reference = np.load(bench.private / case / "reference.npy")
    prediction = reference.copy()
    prediction[: enhancement.SIDE // 2] += 0.05
    drawing = show(hand_in(bench, {f"{case}/enhanced.npy": enhancement.npy(prediction)}, tmp_path), case)
    (frame,) = drawing.frames
    assert [layer.side for layer in frame.layers] == ["input", "prediction", "difference", "reference"]
    assert not any(layer.overlay for layer in frame.layers)
    difference = decoded(frame.layers[2].picture, "RGB").astype(int)
    half_way = np.array([0xF7 + 0xD5, 0xF7 + 0x5E, 0xF7]) / 2
    assert abs(difference[4, 16] - half_way).max() < 20
    assert abs(difference[28, 16] - 0xF7).max() < 20
    assert drawing.legend[0].name == "prediction lower by 0.1 or more"


def test_enhancement_without_output(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    bench = benches("enhancement")
    drawing = show(hand_in(bench, {}, tmp_path), bench.cases[0])
    assert [layer.side for layer in drawing.frames[0].layers] == ["input", "reference"]
    assert drawing.legend == []


def test_noise_is_made_smaller_until_it_fits(
    benches: Callable[[str], Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise compresses badly; a case keeps its pictures, in fewer pixels."""
    bench = benches("enhancement")
    case = bench.cases[0]
    values = np.random.default_rng(1).random(enhancement.SHAPE).astype(np.float32)
    handed = hand_in(bench, {f"{case}/enhanced.npy": enhancement.npy(values)}, tmp_path)
    large = show(handed, case).frames[0]
    room = sum(len(layer.picture) for layer in large.layers) - 1
    monkeypatch.setattr("automedbench.tracks.enhancement.show.MAX_CASE_CHARS", room)
    monkeypatch.setattr("automedbench.tracks.enhancement.show.SIZES", (32, 16, 8))
    small = show(handed, case).frames[0]
    assert (large.width, small.width) == (32, 16)
    assert SIZES[0] == 512 and MAX_CASE_CHARS == 150_000


def test_synthesis_shows_the_worst_slice_as_well(benches: Callable[[str], Bench], tmp_path: Path) -> None:
    """Noise in slice 8 (7 from 0), which is none of the evenly spaced ones: 4, 10, 17, 23, 29 of 32."""
    import nibabel

    bench = benches("synthesis")
    case = bench.cases[0]
    image: Any = nibabel.load(bench.private / case / "truth.nii.gz")
    values = np.asarray(image.dataobj).astype(np.float32)
    values[:, :, 7] += np.random.default_rng(0).normal(0, 500, values.shape[:2])
    output = bench.toy.packed(nibabel.Nifti1Image(values, image.affine))
    drawing = show(hand_in(bench, {f"{case}/sct.nii.gz": output}, tmp_path), case)
    assert [frame.title.split(" · ")[0] for frame in drawing.frames] == [
        f"axial {number} of 32" for number in (4, 8, 10, 17, 23, 29)
    ]
    assert ["lowest" in frame.title for frame in drawing.frames] == [False, True, False, False, False, False]
    assert [layer.side for layer in drawing.frames[0].layers] == ["input", "prediction", "difference", "reference"]
    assert drawing.legend[0].name == "prediction lower by 200 HU or more"
    # The same but for the noise: white in slice 4, not in slice 8.
    first, noisy = (decoded(drawing.frames[n].layers[2].picture, "RGB").astype(int) for n in (0, 1))
    assert abs(first - 0xF7).max() < 12 and abs(noisy - 0xF7).max() > 100


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [
        pytest.param([None] * 10, [1, 3, 5, 7, 9], id="nothing measured"),
        pytest.param([0.9, 0.1, *[0.9] * 8], [1, 3, 5, 7, 9], id="worst among them"),
        pytest.param([0.1, *[0.9] * 9], [0, 1, 3, 5, 7, 9], id="worst besides"),
        pytest.param([0.5, 0.4], [0, 1], id="fewer than asked for"),
    ],
)
def test_chosen_slices_of_synthesis(similarity: list[float | None], expected: list[int]) -> None:
    assert choose_slices(similarity) == expected


# --- without public data --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "track", ["classification", "detection", "enhancement", "report_generation", "segmentation", "synthesis", "vqa"]
)
def test_pictures_need_the_public_data(benches: Callable[[str], Bench], tmp_path: Path, track: str) -> None:
    inputs, report = hand_in(benches(track), {}, tmp_path)
    case: CaseScore = report.cases[0]
    with pytest.raises(ValueError, match="public"):
        get_track(track).show(replace(inputs, public=None), case)
