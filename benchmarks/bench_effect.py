"""Effect of the case: how often chance is taken for one, how weak a method may be, and what the measure costs.

    python benchmarks/bench_effect.py                    # errors and power; ten minutes on one core
    python benchmarks/bench_effect.py --nulls 200 --runs 50 --tracks segmentation vqa
    python benchmarks/bench_effect.py --cost             # seconds beside those of scoring, on made-up runs

Submissions are made up: every output is an answer, that of its own case with probability *knows*, else that of a case
drawn at random from another pool, so that 0 is chance. The comparison is the tracks' own; gains of pictures are normal
with the given mean, as a share of what the input lacks. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # one core: before numpy is loaded

import numpy as np  # noqa: E402
from effect_runs import RUNS, make_run  # noqa: E402

from automedbench.scoring.effect import judge_effect, measure_effect  # noqa: E402
from automedbench.tracks import EffectEvidence, Restoration, ScoringInputs, get_track  # noqa: E402
from automedbench.tracks.classification.effect import equal  # noqa: E402
from automedbench.tracks.common.coarse import correlation, same_picture  # noqa: E402
from automedbench.tracks.detection import effect as detection  # noqa: E402
from automedbench.tracks.report_generation import effect as reports  # noqa: E402
from automedbench.tracks.segmentation import effect as segmentation  # noqa: E402
from automedbench.tracks.vqa import effect as vqa  # noqa: E402

MARGIN = 0.05
KNOWS = (0.05, 0.1, 0.2, 0.5)
GAINS = (0.02, 0.05, 0.1, 0.3)
Random = np.random.Generator


@dataclass(frozen=True)
class Pool:
    """Made-up answers: those of n cases and as many of other cases, and the track's comparison of all with all."""

    quality: np.ndarray
    same: np.ndarray
    labels: bool = False
    kinds: tuple[str, ...] = ()
    pictures: bool = False

    @property
    def n(self) -> int:
        """Number of cases; items n … 2n - 1 of the pool are of other cases."""
        return len(self.quality) // 2

    def submission(self, random: Random, knows: float, gain: float = 0.0) -> EffectEvidence:
        """Outputs of a run that knows this share of its cases; of pictures all, with this mean gain."""
        n = self.n
        chance = n + self._drawn(random)
        outputs = np.where(random.random(n) < (1.0 if self.pictures else knows), np.arange(n), chance)
        found = EffectEvidence(
            outputs=outputs.tolist(),
            answers=list(range(n)),
            quality=lambda first, second: self.quality[np.ix_(first, second)],
            same=lambda first, second: self.same[np.ix_(first, second)],
            labels=self.labels,
            none_below=0.10 if self.labels else 0.15,
            groups=self.kinds or None,
        )
        return replace(found, restoration=_gained(random, n, gain)) if self.pictures else found

    def _drawn(self, random: Random) -> np.ndarray:
        """A case of the same kind for every case."""
        kinds = np.array(self.kinds or [""] * self.n)
        drawn = np.empty(self.n, int)
        for kind in set(kinds):
            rows = np.flatnonzero(kinds == kind)
            drawn[rows] = random.choice(rows, len(rows))
        return drawn


def _gained(random: Random, n: int, gain: float) -> Restoration:
    """Qualities of the input and of outputs that win this share of what it lacks, on average."""
    given = random.uniform(0.7, 0.9, n)
    smoothed = given + random.normal(0.02, 0.01, n)
    outputs = smoothed + (1 - smoothed) * random.normal(gain, 0.15, n)
    return Restoration(outputs, {"input": given, "smoothed input": smoothed}, np.ones(n))


def pool(
    items: Sequence[Any], quality: Callable[..., np.ndarray], same: Callable[..., np.ndarray], **more: Any
) -> Pool:
    """All items compared by a track's own functions."""
    return Pool(quality(items, items), same(items, items), **more)


# --- made-up answers ------------------------------------------------------------------------------------------


def classes(random: Random) -> Pool:
    """A hundred cases of four classes, two of five cases of the first."""
    items = random.choice(4, 200, p=[0.4, 0.2, 0.2, 0.2]).tolist()
    return pool(items, lambda a, b: equal(a, b).astype(float), equal, labels=True)


def questions(random: Random) -> Pool:
    """300 questions: options, yes or no, counts, and texts of one to three of forty words."""
    kinds = ["choice", "yes_no", "number", "open"] * 75
    words = [first + second for first in ("cardio", "pneumo", "hepato", "nephro") for second in "abcdefghij"]

    def one(kind: str) -> vqa.ComparedAnswer:
        match kind:
            case "choice":
                return vqa.letter_answer(str(random.choice(list("ABCD"))))
            case "yes_no":
                return vqa.text_answer(str(random.choice(["yes", "no"])), "yes_no")
            case "number":
                return vqa.text_answer(str(random.integers(1, 6)), "number")
        return vqa.text_answer(" ".join(random.choice(words, random.integers(1, 4), replace=False)), "open")

    items = [one(kind) for kind in kinds + kinds]
    return pool(items, vqa.quality, vqa.same, labels=True, kinds=tuple(kinds))


def texts(random: Random) -> Pool:
    """A hundred reports: twenty common words, and eight of sixty rarer ones."""
    common = [f"common{letter}" for letter in "abcdefghijklmnopqrst"]
    rare = [first + second for first in ("opacity", "effusion", "nodule") for second in "abcdefghijklmnopqrst"]
    items = [frozenset([*random.choice(common, 15, False), *random.choice(rare, 8, False)]) for _ in range(200)]
    weights = reports.rarity(items[:100])
    return pool(
        items,
        lambda a, b: reports.overlap(a, b, weights),
        lambda a, b: reports.overlap(a, b, {}) >= reports.SAME,
    )


def images_with_boxes(random: Random) -> Pool:
    """A hundred images with up to five boxes of three classes; a fifth of them have none."""

    def one() -> detection.ImageBoxes:
        count = int(random.choice([0, 1, 2, 3, 5], p=[0.2, 0.2, 0.2, 0.2, 0.2]))
        corners = random.uniform(0, 700, (count, 2))
        places = np.hstack([corners, corners + random.uniform(50, 300, (count, 2))])
        return detection.ImageBoxes(places, places / 1000, random.integers(0, 3, count))

    return pool([one() for _ in range(200)], detection.quality, detection.same)


def masks(random: Random) -> Pool:
    """Twenty volumes with an organ near its usual place and, in three of four, a lesion in it."""
    grid = np.stack(np.meshgrid(*[np.arange(16)] * 3, indexing="ij"), axis=-1)

    def ball(place: np.ndarray, radius: float) -> np.ndarray:
        return (((grid - place) ** 2).sum(-1) < radius**2).astype(np.float32).ravel()

    def one() -> np.ndarray:
        organ = np.array([6, 8, 8]) + random.normal(0, 1, 3)
        lesion = ball(organ + random.normal(0, 1.5, 3), 1.5) * (random.random() < 0.75)
        return np.stack([ball(organ, random.uniform(3, 4)), lesion])

    items = [one() for _ in range(40)]
    return pool(items, segmentation.overlap, lambda a, b: segmentation.overlap(a, b) >= segmentation.SAME)


def pictures(random: Random, n: int) -> Pool:
    """Coarse images that share half of what they show."""
    shared = random.standard_normal(64)
    return pool([shared + random.standard_normal(64) for _ in range(2 * n)], correlation, same_picture, pictures=True)


POOLS: dict[str, Callable[[Random], Pool]] = {
    "classification": classes,
    "detection": images_with_boxes,
    "enhancement": lambda random: pictures(random, 100),
    "report_generation": texts,
    "segmentation": masks,
    "synthesis": lambda random: pictures(random, 20),
    "vqa": questions,
}


def verdicts(made: Pool, runs: int, seed: int, knows: float, gain: float = 0.0) -> Counter[str]:
    """Verdicts on so many submissions."""
    randoms = (np.random.default_rng([seed, number]) for number in range(runs))
    return Counter(judge_effect(made.submission(random, knows, gain), MARGIN).verdict for random in randoms)


def row(track: str, what: str, n: int, found: Counter[str]) -> str:
    """One line of the table, in percent."""
    shares = (f"{100 * found[verdict] / found.total():.1f}" for verdict in ("shown", "unclear", "none"))
    return f"| {track} | {n} | {what} | {' | '.join(shares)} |"


def print_errors(tracks: Sequence[str], nulls: int, runs: int) -> None:
    """Verdicts on chance and on methods of several strengths."""
    print("| track | cases | outputs | shown % | unclear % | none % |\n|---|---|---|---|---|---|")
    for track in tracks:
        made = POOLS[track](np.random.default_rng(1))
        print(
            row(track, "no gain over the input" if made.pictures else "chance", made.n, verdicts(made, nulls, 2, 0.0))
        )
        for strength in GAINS if made.pictures else KNOWS:
            what = f"gain {strength:.0%}" if made.pictures else f"knows {strength:.0%}"
            found = verdicts(made, runs, 3, strength, strength)
            print(row(track, what, made.n, found), flush=True)


# --- cost -----------------------------------------------------------------------------------------------------


def print_costs(tracks: Sequence[str]) -> None:
    """Seconds of the measure beside those of the track's scorer, on made-up runs of realistic size; best of two."""
    print("| track | run | scoring s | effect s | share | verdict |\n|---|---|---|---|---|---|")
    for track in tracks:
        with tempfile.TemporaryDirectory() as folder:
            inputs = make_run(track, Path(folder))
            scoring = min(seconds(get_track(track).score, inputs) for _ in range(2))
            effect = min(seconds(measure_effect, inputs) for _ in range(2))
            found = measure_effect(inputs)
        what = (RUNS[track].__doc__ or "").rstrip(".")
        print(
            f"| {track} | {what} | {scoring:.2f} | {effect:.2f} | {effect / scoring:.0%} | {found.verdict} |",
            flush=True,
        )


def seconds(work: Callable[[ScoringInputs], Any], inputs: ScoringInputs) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work(inputs)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracks", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--nulls", type=int, default=1000, help="submissions by chance, per track")
    parser.add_argument("--runs", type=int, default=200, help="submissions of each strength, per track")
    parser.add_argument("--cost", action="store_true", help="seconds instead of errors")
    options = parser.parse_args()
    if options.cost:
        print_costs(options.tracks)
    else:
        print_errors(options.tracks, options.nulls, options.runs)


if __name__ == "__main__":
    main()
