"""BLEU, ROUGE-L and METEOR of 1 000 pairs of reports: our code beside NLTK, sacrebleu and rouge-score.

    python benchmarks/bench_text_metrics.py [--pairs 1000] [--rounds 5] [--wordnet /usr/share/wordnet]

Without --wordnet: Debian's folder if it is there, else the demo's excerpt.
"""

from __future__ import annotations

import argparse
import random
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from side_by_side import measure, table

from automedbench.metrics import bleu, meteor, rouge
from automedbench.metrics.meteor import Wordnet
from automedbench.tracks.report_generation import score as twin

WORDNETS = [Path("/usr/share/wordnet"), Path(__file__).resolve().parents[1] / "demo/data/wordnet"]
Pair = tuple[list[str], list[str]]  # tokens of candidate and reference

PLACES = ["left", "right", "bilateral", "basal", "apical", "retrocardiac", "perihilar", "upper lobe", "lower lobe"]
SIZES = ["small", "mild", "moderate", "large", "minimal", "extensive", "trace", "marked", "patchy", "subtle"]
FINDINGS = ["opacities", "effusion", "consolidation", "atelectasis", "pneumothorax", "oedema", "nodules", "scarring"]
FRAMES = [
    "there is {size} {place} {finding} which has increased since the prior study",
    "no evidence of {place} {finding} or {finding2} on the present images",
    "{size} {finding} in the {place} region is unchanged in appearance",
    "the heart is {size} in size and the mediastinal contours are normal",
    "findings suggest {size} {finding} with possible {place} {finding2}",
    "a catheter ends in the {place} vein and its tip is well positioned",
    "the visualized bones show {size} degenerative changes but no fractures",
]


def synthetic(n_pairs: int, seed: int = 42) -> list[Pair]:
    """References of five to seven sentences; candidates share about half of these and word others differently."""
    source = random.Random(seed)

    def sentence(frame: str) -> list[str]:
        words = {name: source.choice(values) for name, values in (("size", SIZES), ("place", PLACES))}
        first, second = source.sample(FINDINGS, 2)
        return frame.format(finding=first, finding2=second, **words).split()

    pairs = []
    for _ in range(n_pairs):
        frames = source.sample(FRAMES, source.randint(5, 7))
        reference = [sentence(frame) for frame in frames]
        candidate = [
            same if source.random() < 0.5 else sentence(frame) for same, frame in zip(reference, frames, strict=True)
        ]
        candidate[0] = reference[0]  # every order of n-grams has a match, without which the libraries smooth or warn
        source.shuffle(candidate)
        pairs.append((list(chain(*candidate)), list(chain(*reference))))
    return pairs


# --- candidates ------------------------------------------------------------------------------------------------


def our_bleu(pairs: list[Pair]) -> list[tuple[float, ...]]:
    """B_1 to B_4 of each pair."""
    return [bleu.bleu(bleu.bleu_counts(*pair)) for pair in pairs]


def nltk_bleu(pairs: list[Pair]) -> list[tuple[float, ...]]:
    """The same by sentence_bleu, all orders in one call."""
    from nltk.translate.bleu_score import sentence_bleu

    weights = [tuple([1 / order] * order) for order in range(1, 5)]
    return [tuple(sentence_bleu([reference], candidate, weights)) for candidate, reference in pairs]


def sacrebleu_4(pairs: list[Pair]) -> list[float]:
    """B_4 alone: a call gives one order. Every order has a match here, so that effective_order changes nothing."""
    from sacrebleu.metrics import BLEU

    scorer = BLEU(tokenize="none", smooth_method="none", effective_order=True)
    texts = [(" ".join(candidate), " ".join(reference)) for candidate, reference in pairs]
    return [scorer.sentence_score(candidate, [reference]).score / 100 for candidate, reference in texts]


def our_rouge(texts: list[tuple[str, str]]) -> list[float]:
    """ROUGE-L F1 of each pair of texts."""
    return [rouge.rouge_l(rouge.rouge_tokens(right), rouge.rouge_tokens(left)) for left, right in texts]


def our_meteor(pairs: list[Pair], wordnet: Wordnet) -> list[float]:
    """METEOR of each pair with an opened WordNet."""
    return [meteor.meteor(meteor.meteor_counts(*pair, wordnet)) for pair in pairs]


def our_cold_meteor(pair: Pair, folder: Path) -> list[float]:
    """Open WordNet, then one pair."""
    return our_meteor([pair], Wordnet(folder))


def nltk_cold_meteor(pair: Pair, folder: Path) -> list[float]:
    """The same with NLTK's reader, spared its mapping for other languages."""
    with twin.nltk_wordnet(folder) as wordnet:
        return twin.nltk_meteor([pair], wordnet)


# --- tables ----------------------------------------------------------------------------------------------------


def difference(first: list[float], second: list[float]) -> float:
    """Largest difference of values in the same places."""
    return max(abs(one - other) for one, other in zip(first, second, strict=True))


def flat(rows: list[tuple[float, ...]]) -> list[float]:
    """All values in a row."""
    return [value for row in rows for value in row]


def show(title: str, candidates: dict[str, Any], rounds: int, found: float, tolerance: float) -> None:
    """One table; a difference above the tolerance is an error."""
    if found > tolerance:
        raise SystemExit(f"{title}: values differ by {found:.1e}, more than {tolerance:.0e}")
    print(f"**{title}** (largest difference {found:.0e})\n")
    print(table(measure(candidates, rounds)), end="\n\n")


def main() -> None:
    """Print one table per metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wordnet", type=Path, default=next(folder for folder in WORDNETS if folder.is_dir()))
    options = parser.parse_args()
    pairs = synthetic(options.pairs)
    texts = [(" ".join(candidate), " ".join(reference)) for candidate, reference in pairs]
    wordnet = Wordnet(options.wordnet)
    words = sum(len(reference) for _, reference in pairs) / len(pairs)
    print(f"{len(pairs)} pairs of {words:.0f} words; WordNet {wordnet.version} with {wordnet.entries} entries.\n")

    nltk = f"nltk {version('nltk')}"
    found = our_bleu(pairs)
    # The tiny constants of COCO's form change the ninth digit.
    show(
        "BLEU-1 to 4, each pair",
        {
            "automedbench": partial(our_bleu, pairs),
            nltk: partial(nltk_bleu, pairs),
            f"sacrebleu {version('sacrebleu')} (BLEU-4 only)": partial(sacrebleu_4, pairs),
        },
        options.rounds,
        max(difference(flat(found), flat(nltk_bleu(pairs))), difference([b[3] for b in found], sacrebleu_4(pairs))),
        1e-8,
    )
    show(
        "ROUGE-L, each pair",
        {
            "automedbench": partial(our_rouge, texts),
            f"rouge-score {version('rouge-score')}": partial(twin.rouge_score_l, texts),
        },
        options.rounds,
        difference(our_rouge(texts), twin.rouge_score_l(texts)),
        1e-12,
    )
    with twin.nltk_wordnet(options.wordnet) as peer:
        show(
            "METEOR, each pair, WordNet already open",
            {
                "automedbench": partial(our_meteor, pairs, wordnet),
                nltk: partial(twin.nltk_meteor, pairs, peer),
            },
            options.rounds,
            difference(our_meteor(pairs, wordnet), twin.nltk_meteor(pairs, peer)),
            0.0,
        )
    show(
        "Opening WordNet, and METEOR of one pair",
        {
            "automedbench": partial(our_cold_meteor, pairs[0], options.wordnet),
            nltk: partial(nltk_cold_meteor, pairs[0], options.wordnet),
        },
        options.rounds,
        difference(our_cold_meteor(pairs[0], options.wordnet), nltk_cold_meteor(pairs[0], options.wordnet)),
        0.0,
    )


if __name__ == "__main__":
    main()
