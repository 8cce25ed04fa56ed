"""Effect of the case: statistics of the comparison, verdicts on made-up runs, and the tracks' outputs and answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter, median_filter, uniform_filter, zoom
from skimage.restoration import denoise_nl_means, denoise_tv_chambolle
from toys._bench import inputs as scoring_inputs
from toys._bench import stage
from toys.detection import box, submit, write_truth
from toys.detection import make_card as detection_card
from toys.enhancement import inputs_of, make_card, make_manifest

from automedbench.base.files import write_bytes
from automedbench.base.records import Effect
from automedbench.base.untrusted.npy import npy_bytes
from automedbench.scoring.effect import judge_effect, measure_effect
from automedbench.statistics.crossing import BLOCK, cross, draw_blocks, largest_share, mean_difference
from automedbench.tracks import EffectEvidence, ScoringInputs
from automedbench.tracks.classification.effect import equal
from automedbench.tracks.common.coarse import area_weights, coarse_plane
from automedbench.tracks.common.restoration import PositiveSums, distance, smoothings
from automedbench.tracks.detection import effect as detection
from automedbench.tracks.detection.effect import ImageBoxes
from automedbench.tracks.report_generation import effect as reports
from automedbench.tracks.segmentation import effect as segmentation
from automedbench.tracks.vqa import effect as vqa

MARGIN = 0.05
N = 100


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- statistics -----------------------------------------------------------------------------------------------


def test_comparison_by_hand() -> None:
    """Own 1, 1, 0.5; others' mean (0 + 0.5 + 0 + 0.5 + 0.2 + 0) / 6 = 0.2.

    Centred terms: diagonal less row mean less column mean plus 0.2. Rows: 0.25, 0.25, 0.1; columns: 0.1, 0, 0.5.
    Of the six permutations the observed sum 2.5 is the highest.
    """
    found = cross([np.array([[1, 0, 0.5], [0, 1, 0.5], [0.2, 0, 0.5]])])
    assert found is not None
    assert (found.own, found.other, found.value) == pytest.approx((2.5 / 3, 0.2, 2.5 / 3 - 0.2))
    assert found.terms == pytest.approx([0.85, 0.95, 0.1])
    assert found.terms.mean() == pytest.approx(found.value)
    assert (found.p, found.p_below) == pytest.approx((1 / 6, 1.0))


def test_one_output_for_all_cases_has_no_effect() -> None:
    """All rows equal: whatever the order of the answers, the sum is the same, so p is 1 on both sides."""
    found = cross([np.tile(random(1).random(30), (30, 1))])
    assert found is not None
    assert (found.value, found.p, found.p_below) == pytest.approx((0, 1, 1))


def test_p_is_uniform_without_effect() -> None:
    """300 comparisons of numbers: each tenth of the unit interval holds 30 in the mean, standard deviation 5.2."""
    values = [cross([random(seed).random((12, 12))]) for seed in range(300)]
    counts, _ = np.histogram([found.p for found in values if found], bins=10, range=(0, 1))
    assert counts.sum() == 300
    assert counts.min() >= 30 - 4 * 5.2 and counts.max() <= 30 + 4 * 5.2


def test_blocks_hold_every_case_once_and_no_two_groups() -> None:
    groups = ["a"] * 150 + ["b"] * 3
    blocks = draw_blocks(groups)
    assert sorted(np.concatenate(blocks)) == list(range(153))
    assert [len(block) for block in blocks] == [50, 50, 50, 3] and max(map(len, blocks)) <= BLOCK
    assert all(len({groups[row] for row in block}) == 1 for block in blocks)


def test_mean_difference_by_hand() -> None:
    """Six positive differences: one of 2⁶ sign patterns is as high, p = 1/64. Of -1 and 1 half are."""
    found = mean_difference(np.full(6, 0.1))
    assert (found.mean, found.low, found.high, found.p) == pytest.approx((0.1, 0.1, 0.1, 1 / 64))
    assert mean_difference(np.array([-3.0, -3.0])).p == pytest.approx(1 - 2 / 4 / 2)


def test_largest_share_is_of_equal_outputs() -> None:
    """Three of four are one; in a block of its own a single output is."""
    assert largest_share([equal([1, 1, 1, 2], [1, 1, 1, 2]), equal([5], [5])]) == pytest.approx(4 / 5)


# --- labels ---------------------------------------------------------------------------------------------------


def of_labels(predicted: Sequence[int], truth: Sequence[int]) -> Effect:
    evidence = EffectEvidence(predicted, truth, lambda a, b: equal(a, b).astype(float), equal, labels=True)
    return judge_effect(evidence, MARGIN)


TRUTH = np.tile(np.arange(4), N // 4)
"""Four classes in turn."""


def with_hits(n_right: int, otherwise: np.ndarray) -> np.ndarray:
    """Labels of which the first ``n_right`` are right."""
    return np.where(np.arange(N) < n_right, TRUTH, otherwise)


def test_perfect_labels() -> None:
    """Own 1; of a block of 50 with 12 or 13 of each class about 0.24 of the others fit."""
    found = of_labels(TRUTH, TRUTH)
    assert (found.verdict, found.n, found.own, found.p) == ("shown", N, 1.0, 1e-4)
    assert found.other == pytest.approx(0.24, abs=0.01)


def test_one_label_for_all() -> None:
    found = of_labels(np.zeros(N, int), TRUTH)
    assert (found.verdict, found.alike, found.p) == ("none", 1.0, 1.0)
    assert found.value == pytest.approx(0, abs=1e-12)
    assert "one and the same" in found.reason


@pytest.mark.parametrize("seed", range(8))
def test_labels_just_above_chance_are_never_none(seed: int) -> None:
    """A classifier that knows ten of a hundred and guesses the others: 32.5 right are expected, 25 by chance."""
    assert of_labels(with_hits(10, random(seed).integers(0, 4, N)), TRUTH).verdict != "none"


@pytest.mark.parametrize("n_others", [1, 5, 10, 20])
@pytest.mark.parametrize("seed", range(4))
def test_an_honest_classifier_that_prefers_one_class(n_others: int, seed: int) -> None:
    """It says class 0 nearly always, and is right in half of the few other cases, where chance is a quarter."""
    other = random(seed).choice(np.flatnonzero(TRUTH), n_others, replace=False)
    predicted = np.zeros(N, int)
    predicted[other] = TRUTH[other]
    predicted[other[::2]] = random(seed).integers(1, 4, len(other[::2]))
    assert of_labels(predicted, TRUTH).verdict != "none"


def test_mixed_up_classes_are_an_effect() -> None:
    """Every label is the next class: none is right, which no output without the case brings about."""
    found = of_labels((TRUTH + 1) % 4, TRUTH)
    assert found.verdict == "unclear" and found.value == pytest.approx(-0.25, abs=0.02)


def test_labels_without_answers_that_differ() -> None:
    assert of_labels(TRUTH, np.zeros(N, int)).verdict == "unclear"


def test_few_labels() -> None:
    """Three cases prove nothing, not even with one label for all."""
    assert of_labels([0, 0, 0], [0, 1, 2]).verdict == "unclear"
    assert of_labels([0, 1, 2], [0, 1, 2]).verdict == "unclear"
    assert judge_effect(EffectEvidence([], [], equal, equal), MARGIN).reason == "no output could be measured"  # type: ignore[arg-type]


# --- answers to questions -------------------------------------------------------------------------------------


def of_answers(outputs: Sequence[str], golds: Sequence[str], kinds: Sequence[Any]) -> Effect:
    both = [[vqa.text_answer(*pair) for pair in zip(texts, kinds, strict=True)] for texts in (outputs, golds)]
    return judge_effect(EffectEvidence(*both, vqa.quality, vqa.same, labels=True, groups=kinds), MARGIN)


def test_one_answer_for_all_questions_of_a_kind() -> None:
    """Case numbers and times in it change nothing; right for half of the yes/no questions, which is chance."""
    golds = ["yes", "no"] * 20 + [f"finding {name}" for name in "abcdefghijklmnopqrst"]
    outputs = ["yes"] * 40 + [f"normal scan, case {number} at 12:{number}" for number in range(20)]
    found = of_answers(outputs, golds, ["yes_no"] * 40 + ["open"] * 20)
    assert (found.verdict, found.alike) == ("none", 1.0)


def test_answers_are_compared_within_their_kind() -> None:
    """Saying yes where yes or no is asked, and a text where one is, is no knowledge of the case."""
    kinds = ["yes_no", "open"] * 40
    golds = [
        ("yes", "no")[number // 2 % 2] if kind == "yes_no" else f"x{number % 7} organ"
        for number, kind in enumerate(kinds)
    ]
    outputs = ["yes" if kind == "yes_no" else "organ" for kind in kinds]
    assert of_answers(outputs, golds, kinds).p == 1.0
    assert of_answers(golds, golds, kinds).verdict == "shown"


def test_answer_score_is_the_tracks() -> None:
    """Yes/no by the first word, negation shares nothing, else token F1 of words: 2 · 1 / (2 + 1)."""
    given = [vqa.text_answer(text, "open") for text in ("Yes, it is", "no mass", "left lung")]
    gold = [vqa.text_answer(text, "open") for text in ("yes", "mass", "lung")]
    assert np.diag(vqa.quality(given, gold)) == pytest.approx([1, 0, 2 / 3])


# --- reports --------------------------------------------------------------------------------------------------

FINDINGS = [first + second for first in ("cardio", "pneumo", "pulmo", "hilo", "costo") for second in "abcdefgh"]


def report(seed: int) -> str:
    """A sentence that all share, and eight of forty findings."""
    return "the lungs are seen and show " + " ".join(random(seed).permutation(FINDINGS)[:8])


def of_reports(outputs: Sequence[str], answers: Sequence[str]) -> Effect:
    words = [[reports.words_of(text) for text in texts] for texts in (outputs, answers)]
    weights = reports.rarity(words[1])
    evidence = EffectEvidence(
        *words,
        quality=lambda a, b: reports.overlap(a, b, weights),
        same=lambda a, b: reports.overlap(a, b, {}) >= reports.SAME,
    )
    return judge_effect(evidence, MARGIN)


def test_reports() -> None:
    answers = [report(seed) for seed in range(3 * N)]
    templates = [f"case_{number}: normal chest at 09:{number}" for number in range(3 * N)]
    others = [report(seed + 3 * N) for seed in range(3 * N)]
    hints = [
        f"the heart shows {answer.split()[-1]} and {random(9 * number).choice(FINDINGS)}"
        for number, answer in enumerate(answers)
    ]
    assert of_reports(answers, answers).verdict == "shown"
    assert (of_reports(templates, answers).verdict, of_reports(templates, answers).alike) == ("none", 1.0)
    assert "as well as their own" in of_reports(others, answers).reason
    assert of_reports(hints, answers).verdict != "none"


def test_report_overlap_by_hand() -> None:
    """Words weigh log(3/1), in both log(3/2): shared 2·log 1.5 over log 4.5 + log 4.5."""
    one, two = frozenset({"a", "b"}), frozenset({"a", "c"})
    weights = reports.rarity([one, two])
    table = reports.overlap([one, two], [one, two], weights)
    share = np.log(1.5) / np.log(4.5)
    assert table == pytest.approx(np.array([[1, share], [share, 1]]))
    assert reports.overlap([frozenset()], [frozenset(), one], weights).tolist() == [[1.0, 0.0]]
    assert reports.words_of("case 12 of t2 at noon") == {"case", "of", "at", "noon"}


# --- boxes ----------------------------------------------------------------------------------------------------


def boxes(corners: Any, classes: Sequence[int], side: float = 100) -> ImageBoxes:
    pixels = np.array(corners, float).reshape(-1, 4)
    return ImageBoxes(pixels, pixels / side, np.array(classes, np.int64))


def drawn(seed: int) -> ImageBoxes:
    """Two boxes of 20 × 20 anywhere in an image of 100 × 100, one of each class."""
    corner = random(seed).uniform(0, 80, (2, 2))
    return boxes(np.hstack([corner, corner + 20]), [0, 1])


def of_boxes(outputs: Sequence[ImageBoxes], answers: Sequence[ImageBoxes]) -> Effect:
    return judge_effect(EffectEvidence(outputs, answers, detection.quality, detection.same), MARGIN)


def test_boxes() -> None:
    answers = [drawn(seed) for seed in range(N)]
    constant = [boxes([40, 40, 60, 60], [seed % 1], side=100 + seed) for seed in range(N)]
    weak = [answer if number % 10 == 0 else drawn(number + N) for number, answer in enumerate(answers)]
    other_classes = [replace(answer, category=1 - answer.category) for answer in answers]
    assert of_boxes(answers, answers).verdict == "shown"
    assert (of_boxes(constant, answers).verdict, of_boxes(constant, answers).alike) == ("none", 1.0)
    assert (
        of_boxes([drawn(seed + N) for seed in range(3 * N)], [drawn(-~seed * 7919) for seed in range(3 * N)]).verdict
        == "none"
    )
    assert of_boxes(weak, answers).verdict != "none"
    assert of_boxes(other_classes, answers).verdict == "shown"


@pytest.mark.parametrize("seed", range(6))
def test_boxes_at_random_in_forty_images(seed: int) -> None:
    """Forty images cannot exclude 5 % of the attainable (full successes alone: 1 - 0.025^(1/40) = 9 %), but 15 %.

    By chance a fifth of such runs has p up to 0.2 and stays unclear.
    """
    answers = [drawn(number) for number in range(40)]
    found = of_boxes([drawn(1000 * (seed + 1) + number) for number in range(40)], answers)
    assert found.verdict == ("none" if (found.p or 0) > 0.2 else "unclear")


def test_equal_boxes_whose_scores_tell_images_apart() -> None:
    """Only where scores are high are boxes compared, and there they touch the true ones: IoU 5² / (2·20² - 5²) = 0.03.

    The permutation test sees it; it is no effect to speak of, for all images have the same boxes.
    """
    grid = boxes([[x, y, x + 20, y + 20] for x in (0, 30, 60) for y in (0, 30, 60)], [0] * 9)
    answers = [boxes(grid.pixels + 15, [0] * 9) if number % 2 else boxes([82, 82, 99, 99], [0]) for number in range(N)]
    found = of_boxes([replace(grid, compared=9 * (number % 2)) for number in range(N)], answers)
    assert (found.verdict, found.alike, found.p) == ("none", 1.0, 1e-4)


def test_mutual_overlap_by_hand() -> None:
    """One of two boxes is met with IoU 1/3 (10 × 20 of 600): (1/3 + 1/3 + 0) / 3; of another class half of it."""
    one, two = boxes([0, 0, 20, 20], [0]), boxes([[10, 0, 30, 20], [80, 80, 90, 90]], [0, 0])
    other = replace(two, category=np.array([1, 1]))
    assert detection.quality([one], [two, other, one])[0] == pytest.approx([2 / 9, 1 / 9, 1])
    nothing = boxes([], [])
    assert detection.quality([nothing, one], [nothing]).ravel().tolist() == [1, 0]


def test_boxes_of_files(tmp_path: Path) -> None:
    """Missing images are left out; of three true boxes three are kept by score, so that the uncertain one is not."""
    card, cell = detection_card("rbc"), box("rbc", 10, 10, 30, 30)
    manifest = write_truth(tmp_path / "private", {"a": [cell, box("rbc", 50, 50, 70, 70)], "b": [cell], "c": []})
    submit(tmp_path / "submission", "a", [cell | {"score": 0.9}, box("rbc", 50, 50, 70, 70, score=0.8)])
    submit(tmp_path / "submission", "b", [cell | {"score": 0.7}, box("rbc", 1, 1, 9, 9, score=0.1)])
    found = detection.read_effect(scoring_inputs(card, manifest, tmp_path / "submission", tmp_path / "private"))
    assert [each.compared for each in found.outputs] == [2, 1]
    assert [len(each.pixels) for each in found.answers] == [2, 1]
    assert np.diag(found.quality(found.outputs, found.answers)) == pytest.approx([1, 1])


# --- masks ----------------------------------------------------------------------------------------------------


def ball(seed: int, radius: float = 2.5) -> np.ndarray:
    """A target anywhere in a volume of 16 × 16 × 16, as its cells."""
    place = random(seed).uniform(3, 13, 3)
    grid = np.stack(np.meshgrid(*[np.arange(16)] * 3, indexing="ij"), axis=-1)
    return (((grid - place) ** 2).sum(-1) < radius**2).astype(np.float32).reshape(1, -1)


def of_masks(outputs: Sequence[np.ndarray], answers: Sequence[np.ndarray]) -> Effect:
    same = lambda a, b: segmentation.overlap(a, b) >= segmentation.SAME  # noqa: E731
    return judge_effect(EffectEvidence(outputs, answers, segmentation.overlap, same), MARGIN)


def test_masks() -> None:
    answers = [ball(seed) for seed in range(N)]
    empty = [np.zeros((1, 16**3), np.float32)] * N
    elsewhere = [ball(seed + 2 * N) for seed in range(N)]
    weak = [np.maximum(answer * 0.2, ball(number + N, 4)) for number, answer in enumerate(answers)]
    assert of_masks(answers, answers).verdict == "shown"
    assert of_masks(empty, answers).verdict == "none"
    assert of_masks([ball(0)] * N, answers).verdict == "none"
    assert "as well as their own" in of_masks(elsewhere, answers).reason
    assert of_masks(weak, answers).verdict != "none"


def test_one_output_where_the_answers_are_one_is_no_constant() -> None:
    """19 of 20 answers are one: an output that is right in 95 % of the cases may well be the same in all."""
    usual, rare = ball(0), ball(7)
    assert of_masks([usual] * 20, [usual] * 18 + [rare] * 2).verdict == "none"
    assert of_masks([usual] * 20, [usual] * 19 + [rare]).verdict == "unclear"


@pytest.mark.parametrize("shape", [(4, 4, 2), (8, 4, 4), (4, 4, 2, 1)])
def test_occupancy_by_hand(shape: tuple[int, ...]) -> None:
    """Target 1 fills the first half along x, target 2 one voxel in the last corner, 3 is no target of the task.

    On a grid of 2 × 2 × 2: target 1 has the four cells of x = 0 whole, target 2 a share of the last cell.
    """
    volume = np.zeros(shape[:3], np.uint8)
    volume[: shape[0] // 2] = 1
    volume[-1, -1, -1], volume[-1, 0, 0] = 2, 3
    planes = (volume[:, :, z].ravel(order="F") for z in range(shape[2]))
    cells = segmentation.occupancy(planes, shape=shape, side=2, n_targets=2).reshape(2, 2, 2, 2)
    assert cells[0].tolist() == [[[1, 0], [1, 0]]] * 2
    assert cells[1].ravel()[-1] == pytest.approx(8 / volume.size) and np.count_nonzero(cells[1]) == 1


def test_overlap_of_cells_by_hand() -> None:
    """2 · 1 · 0.5 / (1 + 0.25) for one target, 1 for the other that neither has."""
    whole, half = np.array([[1, 0], [0, 0]], np.float32), np.array([[0.5, 0], [0, 0]], np.float32)
    assert segmentation.overlap([whole], [half])[0, 0] == pytest.approx((0.8 + 1) / 2)


# --- pictures -------------------------------------------------------------------------------------------------


def scene(seed: int, shape: tuple[int, int] = (96, 96)) -> np.ndarray:
    """Smooth areas with edges, from 0 to 1."""
    blurred = gaussian_filter(random(seed).standard_normal(shape), 6)
    steps = np.digitize(blurred, np.quantile(blurred, [0.25, 0.5, 0.75])) / 3
    return np.asarray(0.8 * steps + 0.2 * (blurred - blurred.min()) / np.ptp(blurred), np.float32)


Method = Callable[[np.ndarray, np.ndarray, int], Any]
"""(input, reference, number of the case) to output."""


def restored(folder: Path, method: Method, *, scale: int = 1, n: int = 10) -> Effect:
    """Effect of a method on noisy images, or on images of half the size."""
    card = make_card(data_range=1.0, intensity_range=[0, 1], lpips="off")
    cases = {f"case_{number}": scene(number) for number in range(n)}
    manifest = make_manifest({case: image.shape for case, image in cases.items()})
    for number, (case, image) in enumerate(cases.items()):
        entry = next(each for each in manifest.cases if each.id == case)
        noise = 0.08 * random(number + 50).standard_normal(image.shape)
        given = zoom(gaussian_filter(image, 0.8), 1 / scale, order=1) if scale > 1 else image + noise
        entry.geometry["input_shape"] = list(given.shape)
        write_bytes(folder / "private" / case / "reference.npy", npy_bytes(image))
        write_bytes(folder / "public" / case / "input.npy", npy_bytes(given.astype(np.float32)))
        output = np.asarray(method(given.astype(np.float32), image, number), np.float32)
        write_bytes(folder / "submission/agents_outputs" / case / "enhanced.npy", npy_bytes(output))
    return measure_effect(replace(inputs_of(card, manifest, folder), public=folder / "public"))


@pytest.mark.parametrize(
    ("method", "verdict", "why"),
    [
        pytest.param(lambda x, y, _: y, "shown", "fit their own case", id="the answer"),
        pytest.param(lambda x, y, _: x, "none", "are the input", id="the input"),
        pytest.param(lambda x, y, _: x + 0 * y, "none", "are the input", id="network times 0 plus input"),
        pytest.param(lambda x, y, _: 40 - 0.3 * x, "none", "are the input", id="scaled and shifted"),
        pytest.param(lambda x, y, _: gaussian_filter(x, 0.1), "none", "are the input", id="a filter without effect"),
        pytest.param(lambda x, y, _: np.full_like(x, 0.5), "none", "one and the same", id="constant"),
        pytest.param(lambda x, y, _: scene(7), "none", "one and the same", id="one picture for all"),
        pytest.param(lambda x, y, n: scene(n + 99), "none", "as well as their own", id="other pictures"),
        pytest.param(
            lambda x, y, n: x + 0.1 * random(n).standard_normal(x.shape), "none", "no better than the input", id="noise"
        ),
        pytest.param(lambda x, y, _: 255 * y, "shown", "fit their own case", id="a method on another scale"),
        pytest.param(lambda x, y, _: denoise_tv_chambolle(x, 0.1), None, "", id="total variation"),
        pytest.param(lambda x, y, _: denoise_nl_means(x, h=0.06, sigma=0.08), None, "", id="non-local means"),
        pytest.param(lambda x, y, _: median_filter(x, 5), None, "", id="median"),
        pytest.param(lambda x, y, _: gaussian_filter(x, 1.3), "none", "a smoothing", id="smoothing that gains"),
        pytest.param(lambda x, y, _: x / 4 + uniform_filter(x, 5), "none", "a smoothing", id="input and its mean"),
        pytest.param(
            lambda x, y, n: gaussian_filter(x, 1.3) + 0.01 * random(n).standard_normal(x.shape),
            "none",
            "nearly smoothings",
            id="smoothing with noise",
        ),
    ],
)
def test_denoised_images(tmp_path: Path, method: Method, verdict: str | None, why: str) -> None:
    found = restored(tmp_path, method)
    assert found.verdict == verdict if verdict else found.verdict != "none"
    assert why in found.reason


def doubled(image: np.ndarray, kind: Image.Resampling = Image.Resampling.BICUBIC) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((96, 96), kind))


@pytest.mark.parametrize(
    ("method", "verdict"),
    [
        pytest.param(lambda x, y, _: np.kron(x, np.ones((2, 2))), "none", id="repeated"),
        pytest.param(lambda x, y, _: 3 * doubled(x) + 1, "none", id="interpolated and scaled"),
        pytest.param(lambda x, y, _: doubled(x, Image.Resampling.LANCZOS), "none", id="Lanczos"),
        pytest.param(lambda x, y, _: gaussian_filter(doubled(x), 0.5), "none", id="interpolated and smoothed"),
        pytest.param(lambda x, y, _: y, "shown", id="the answer"),
        pytest.param(
            lambda x, y, _: doubled(x) + 0.7 * (doubled(x) - gaussian_filter(doubled(x), 1)), None, id="sharpened"
        ),
    ],
)
def test_images_of_twice_the_resolution(tmp_path: Path, method: Method, verdict: str | None) -> None:
    found = restored(tmp_path, method, scale=2)
    assert found.verdict == verdict if verdict else found.verdict != "none"


def test_without_the_input_a_picture_is_not_judged(tmp_path: Path) -> None:
    """An image that fits its own case may still be the input."""
    restored(tmp_path, lambda x, y, _: y)
    card = make_card(data_range=1.0, intensity_range=[0, 1], lpips="off")
    manifest = make_manifest({f"case_{number}": (96, 96) for number in range(10)})
    found = measure_effect(inputs_of(card, manifest, tmp_path))
    assert (found.verdict, found.reason) == ("unclear", "not measured: ValueError; the log of score_metrics says more")


def test_distance_by_hand() -> None:
    """Output halfway from form to answer: half of the answer's unexplained amplitude, over its own spread.

    form (1, -1, 0, 0), answer form + (0, 0, 1, -1): the form explains half of the answer's variance, and of the
    output form + (0, 0, 0.5, -0.5) all but 0.25 / 1.25 = 0.2: √0.2 / √0.5.
    """
    form, rest = np.array([[1.0, -1, 0, 0]]), np.array([[0.0, 0, 1, -1]])
    sums = PositiveSums.of([form])
    assert distance(form + 0.5 * rest, form + rest, sums) == pytest.approx((0.2 / 0.5) ** 0.5)
    assert distance(3 - 2 * form, form + rest, sums) == pytest.approx(0, abs=1e-6)
    assert distance(np.ones((1, 4)), form + rest, sums) == np.inf


def test_positive_sums() -> None:
    """A smoothing is one, its opposite (sharpening) is not: 2·image - blur keeps a tenth and more unexplained."""
    image = random(3).random((1, 40, 40))
    blur = gaussian_filter(image, (0, 0.6, 0.6), truncate=3)
    parts = [part[:, 4:-4, 4:-4] for part in smoothings(image)]
    inner, blurred = image[:, 4:-4, 4:-4], blur[:, 4:-4, 4:-4]
    sums = PositiveSums.of(parts)
    assert sums.nearest(blurred) == pytest.approx(blurred, abs=1e-5)
    assert sums.nearest(-blurred) == pytest.approx(-blurred, abs=1e-5)
    sharp = 2 * inner - blurred
    assert np.std(sharp - sums.nearest(sharp)) > 0.1 * np.std(sharp)


def test_coarse_planes_of_any_size() -> None:
    """Three pixels in two cells: the middle one counts half in each. A gradient stays a gradient."""
    assert area_weights(3, 2) == pytest.approx(np.array([[2, 1, 0], [0, 1, 2]]) / 3)
    assert area_weights(2, 4) @ [1, 2] == pytest.approx([1, 1, 2, 2])
    assert coarse_plane(np.array([[1, 3], [5, 7]]), 1) == pytest.approx(np.array([[4]]))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_volume_that_is_the_input(tmp_path: Path, scale: float) -> None:
    """Handed back as it is or scaled, in all four cases of the toy; the answers are not."""
    bench = stage("synthesis", tmp_path / "toy")
    outputs = {}
    for case in bench.cases:
        image: Any = nibabel.load(bench.public / case / "ct.nii.gz")
        values = (np.asarray(image.dataobj) * scale).astype(np.float32)
        outputs[f"{case}/sct.nii.gz"] = nibabel.Nifti1Image(values, image.affine).to_bytes()
    import gzip

    packed = {name: gzip.compress(data) for name, data in outputs.items()}
    assert bench.hand_in(packed, tmp_path / "copy").effect.verdict == "none"
    found = bench.hand_in(bench.perfect(bench.cases), tmp_path / "perfect").effect
    assert (found.verdict, found.copies) == ("unclear", 0.0)


# --- what stands in the report --------------------------------------------------------------------------------


def test_half_of_the_cases(tmp_path: Path) -> None:
    """What is missing is left out: the other half is measured."""
    bench = stage("classification", tmp_path / "toy")
    half = bench.cases[: len(bench.cases) // 2]
    found = bench.hand_in(bench.perfect(half), tmp_path / "half").effect
    assert (found.n, found.own) == (len(half), 1.0)


@pytest.mark.parametrize("error", [MemoryError("too much"), ValueError("shapes"), OSError("gone")])
def test_a_failed_measurement_costs_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    bench = stage("classification", tmp_path / "toy")

    def fail(_: ScoringInputs) -> EffectEvidence:
        raise error

    track = __import__("automedbench.tracks.classification", fromlist=["TRACK"]).TRACK
    monkeypatch.setattr("automedbench.tracks.classification.TRACK", replace(track, effect=fail))
    with caplog.at_level(logging.ERROR):
        report = bench.hand_in(bench.perfect(bench.cases), tmp_path / "out")
    assert report.quality == 1.0
    assert (report.effect.verdict, report.effect.reason.split(";")[0]) == (
        "unclear",
        f"not measured: {type(error).__name__}",
    )
    assert "could not be measured" in caplog.text


def test_other_errors_are_bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = stage("classification", tmp_path / "toy")
    track = __import__("automedbench.tracks.classification", fromlist=["TRACK"]).TRACK
    monkeypatch.setattr("automedbench.tracks.classification.TRACK", replace(track, effect=lambda _: 1 / "x"))
    with pytest.raises(TypeError):
        bench.hand_in(bench.perfect(bench.cases), tmp_path / "out")
