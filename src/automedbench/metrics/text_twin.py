"""BLEU, METEOR and ROUGE-L again by NLTK and rouge-score: the independent twins of ``bleu``, ``meteor``, ``rouge``.

For tests and ``--verify``; slow, and never what a score rests on.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

# NLTK demands a list of 45 names of lexicographer files, which Debian's package lacks; METEOR never looks at them.
_LEXNAMES = "".join(f"{row:02d}\tfile{row:02d}\t1\n" for row in range(45))
_Tokens = Sequence[str]


def library() -> str:
    """Names and versions of the libraries behind this module."""
    return f"nltk {version('nltk')}, rouge-score {version('rouge-score')}"


@contextlib.contextmanager
def nltk_wordnet(folder: Path) -> Iterator[Any]:
    """NLTK's own reader of a WordNet folder in NLTK's or Debian's layout; nothing is copied and nothing fetched."""
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    opened: list[Any] = []

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, name: str) -> Any:
            stream = io.StringIO(_LEXNAMES) if name == "lexnames" else (folder / name).open(encoding="utf-8")
            opened.append(stream)
            return stream

        def map_wn(self, _: str = "wordnet") -> None:
            """No mapping to other versions: it takes seconds and serves other languages only."""

    nltk.data.path.append(str(folder.resolve()))  # NLTK reads nothing outside its list of folders
    try:
        yield Reader(str(folder.resolve()), object())
    finally:
        for stream in opened:
            stream.close()
        nltk.data.path.remove(str(folder.resolve()))


def nltk_meteor(pairs: Sequence[tuple[_Tokens, _Tokens]], wordnet: Any) -> list[float]:
    """NLTK's METEOR of each pair (candidate, reference)."""
    from nltk.translate.meteor_score import single_meteor_score

    return [float(single_meteor_score(list(right), list(left), wordnet=wordnet)) for left, right in pairs]


def nltk_corpus_meteor(pairs: Sequence[tuple[_Tokens, _Tokens]], wordnet: Any) -> float:
    """The same formula on the sums of NLTK's alignments."""
    from nltk.translate import meteor_score

    alignments = [meteor_score.align_words(left, right, wordnet=wordnet)[0] for left, right in pairs]
    matches = sum(map(len, alignments))
    if not matches:
        return 0.0
    chunks = sum(meteor_score._count_chunks(each) for each in alignments if each)
    precision, recall = (matches / sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    return float((1 - 0.5 * (chunks / matches) ** 3) * precision * recall / (0.9 * precision + 0.1 * recall))


def nltk_bleu(pairs: Sequence[tuple[_Tokens, _Tokens]]) -> float:
    """COCO's mean of B_1 to B_4 over all pairs (candidate, reference) together, from NLTK's clipped precisions."""
    from nltk.translate.bleu_score import modified_precision

    lengths = [sum(len(pair[side]) for pair in pairs) for side in (0, 1)]
    logarithms = []
    for order in range(1, 5):
        matches = sum(modified_precision([right], left, order).numerator for left, right in pairs if left)
        ngrams = sum(max(0, len(left) - order + 1) for left, _ in pairs)
        logarithms.append(math.log(matches + 1e-15) - math.log(ngrams + 1e-9))
        if order == 1 and not matches:
            return 0.0
    brevity = min(0.0, 1 - (lengths[1] + 1e-9) / (lengths[0] + 1e-15))
    return sum(math.exp(math.fsum(logarithms[:order]) / order + brevity) for order in range(1, 5)) / 4


def rouge_score_l(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """rouge-score's ROUGE-L F1 of each pair of texts (candidate, reference)."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    return [float(scorer.score(right, left)["rougeL"].fmeasure) for left, right in pairs]
