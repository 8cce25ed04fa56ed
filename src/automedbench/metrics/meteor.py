"""METEOR as NLTK defines it (α 0.9, β 3, γ 0.5), to the last bit and some ten times faster.

Lavie and Agarwal, WMT 2007, in the form of ``nltk.translate.meteor_score`` 3.10: words are matched greedily, first as
they are, then by Porter stem, then by WordNet synset. One habit of NLTK's is kept because its value is called NLTK's:
after the second stage the left-over words *are* their stems, so that WordNet is asked for "effus", not "effusion".
It is another metric than METEOR 1.5 (the Java program), whose values are far lower.

WordNet 3.0's own files are read by ``Wordnet``: which one-word lemmas share a synset with a word is all METEOR asks of
them. Opening takes 0.1 s where NLTK's reader takes 3 s, because data lines are read when they are needed. The answers
are those of ``nltk.corpus.reader.WordNetCorpusReader``, inflections included (Morphy: Fellbaum, WordNet, 1998; file
formats: the manual pages wndb.5WN and morphy.7WN).
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5
_Words = dict[int, str]  # left-over words by their places in the text, in order
_Matches = list[tuple[int, int]]  # places in candidate and reference


@dataclass(frozen=True)
class MeteorCounts:
    """Counts behind METEOR; the sum over texts gives a corpus value."""

    matches: int
    chunks: int
    """Runs of matches that are adjacent and in order on both sides."""
    candidate: int
    """Words of the candidate."""
    reference: int

    def __add__(self, other: MeteorCounts) -> MeteorCounts:
        return MeteorCounts(
            self.matches + other.matches,
            self.chunks + other.chunks,
            self.candidate + other.candidate,
            self.reference + other.reference,
        )


NOTHING = MeteorCounts(0, 0, 0, 0)


def meteor_counts(candidate: Sequence[str], reference: Sequence[str], wordnet: Wordnet) -> MeteorCounts:
    """Aligns two token lists, the candidate's last word first, as NLTK does."""
    left, right = (dict(enumerate(map(str.lower, words))) for words in (candidate, reference))
    matches = _match_equal(left, right)
    left, right = _stems(left), _stems(right)
    matches += _match_equal(left, right)
    matches += _match_synonyms(left, right, wordnet)
    return MeteorCounts(len(matches), _chunks(sorted(matches)), len(candidate), len(reference))


def meteor(counts: MeteorCounts) -> float:
    """F-mean × (1 − fragmentation penalty), in [0, 1); 0 when nothing matches. n equal words give 1 − 0.5 / n³."""
    if not counts.matches:
        return 0.0
    precision = counts.matches / counts.candidate
    recall = counts.matches / counts.reference
    mean = (precision * recall) / (ALPHA * precision + (1 - ALPHA) * recall)
    penalty: float = GAMMA * (counts.chunks / counts.matches) ** BETA
    return (1 - penalty) * mean


def _match_equal(left: _Words, right: _Words) -> _Matches:
    """Take equal words out of both and return their places: from the last word on, each with the last one."""
    last: dict[str, int | None] = {}
    earlier: dict[int, int | None] = {}  # the place before with the same word
    for place, word in right.items():
        earlier[place] = last.get(word)
        last[word] = place
    matches = []
    for place, word in reversed(left.items()):
        partner = last.get(word)
        if partner is not None:
            last[word] = earlier[partner]
            matches.append((place, partner))
    return _taken(matches, left, right)


def _match_synonyms(left: _Words, right: _Words, wordnet: Wordnet) -> _Matches:
    """Take synonyms out of both and return their places.

    From the last word of ``left`` on, each takes the last word of ``right`` that is itself or a synonym.
    """
    free = list(reversed(right))
    matches = []
    for place, word in reversed(left.items()):
        synonyms = wordnet.synonyms(word)
        for partner in free:
            if right[partner] == word or right[partner] in synonyms:
                matches.append((place, partner))
                free.remove(partner)
                break
    return _taken(matches, left, right)


def _taken(matches: _Matches, left: _Words, right: _Words) -> _Matches:
    for place, partner in matches:
        del left[place], right[partner]
    return matches


def _chunks(matches: _Matches) -> int:
    """Number of runs in which both places grow by one from match to match."""
    chunks, next_left, next_right = 0, -1, -1
    for left, right in matches:
        if left != next_left or right != next_right:
            chunks += 1
        next_left, next_right = left + 1, right + 1
    return chunks


def _stems(words: _Words) -> _Words:
    stem = _stemmer()
    return {place: stem(word) for place, word in words.items()}


@contextlib.contextmanager
def _not_installed(*names: str) -> Iterator[None]:
    """Within the block these packages cannot be imported, unless they are already.

    NLTK does without them; where they are installed, it loads them for parts that are not used here: a second of
    processor time and 130 MiB.
    """
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in names if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


@functools.cache
def _stemmer() -> Callable[[str], str]:
    """NLTK's Porter stemmer, which remembers; importing NLTK takes 0.2 s, so it waits until needed."""
    with _not_installed("joblib", "pandas", "scipy", "sklearn"):
        from nltk.stem.porter import PorterStemmer

    return functools.lru_cache(maxsize=100_000)(PorterStemmer().stem)


PARTS = ("noun", "verb", "adj", "adv")
FILES = tuple(f"{kind}.{part}" for part in PARTS for kind in ("index", "data")) + tuple(f"{part}.exc" for part in PARTS)
"""What a WordNet folder must hold, in NLTK's layout as in Debian's."""
ENTRIES = 155_287
"""Index entries of the complete WordNet 3.0 (its documentation, wnstats.7WN); an excerpt has fewer."""

# Endings that Morphy takes off and what it puts in their place, in the order of morphy.7WN.
ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "noun": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "verb": (
        ("s", ""),
        ("ies", "y"),
        ("es", "e"),
        ("es", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ing", "e"),
        ("ing", ""),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}
_MARKER = re.compile(r"\([^()]*\)$")  # where an adjective stands: galore(ip)
_VERSION = re.compile(rb"WordNet (\d[\d.]*) Copyright")


class Wordnet:
    """An opened WordNet folder. Raises FileNotFoundError for absent files and ValueError for what is no WordNet."""

    def __init__(self, folder: Path) -> None:
        absent = [name for name in FILES if not (folder / name).is_file()]
        if absent:
            raise FileNotFoundError(f"{folder} is not a WordNet folder: it lacks {', '.join(absent)}")
        self.folder = folder
        self._parts = [_PartOfSpeech(folder, part) for part in PARTS]
        self._known: dict[str, frozenset[str]] = {}
        if not all(part.index for part in self._parts):
            raise ValueError(f"{folder} is not a WordNet folder: an index file is empty")

    @cached_property
    def entries(self) -> int:
        """Number of listed words and parts of speech; less than ``ENTRIES`` means an excerpt."""
        return sum(len(part.index) for part in self._parts)

    @cached_property
    def version(self) -> str:
        """Version in the licence text at the head of the data, for example '3.0'; '?' when there is none."""
        with (self.folder / "data.adj").open("rb") as stream:
            found = _VERSION.search(stream.read(4000))
        return found[1].decode() if found else "?"

    def synonyms(self, word: str) -> frozenset[str]:
        """Lemma names without underscore of all synsets of ``word``, of its base forms too; empty when unknown.

        Names are spelt as in WordNet ("X-ray"). Raises ValueError for a data file that does not fit its index.
        """
        if word not in self._known:
            self._known[word] = frozenset(name for part in self._parts for name in part.synonyms(word.lower()))
        return self._known[word]


@dataclass(frozen=True)
class _PartOfSpeech:
    """One part of speech: its index and exceptions in memory, its data on disk."""

    folder: Path
    name: str

    @cached_property
    def index(self) -> dict[bytes, bytes]:
        """Lemma → rest of its line; a line that starts with a blank is licence text."""
        lines = (self.folder / f"index.{self.name}").read_bytes().splitlines()
        pairs = (line.split(b" ", 1) for line in lines if line[:1] not in (b" ", b""))
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}

    @cached_property
    def exceptions(self) -> dict[bytes, list[bytes]]:
        """Irregular form → base forms."""
        lines = (self.folder / f"{self.name}.exc").read_bytes().splitlines()
        return {words[0]: words[1:] for words in map(bytes.split, lines) if words}

    @cached_property
    def data(self) -> mmap.mmap:
        """The data file, of which only the pages that are asked for are read."""
        with (self.folder / f"data.{self.name}").open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def synonyms(self, word: str) -> set[str]:
        return {name for form in self._forms(word) for offset in self._offsets(form) for name in self._names(offset)}

    def _forms(self, word: str) -> list[bytes]:
        """The word and its base forms, as far as the index lists them."""
        form = word.encode()
        if form in self.exceptions:
            bases = self.exceptions[form]
        else:
            endings = ((old.encode(), new.encode()) for old, new in ENDINGS[self.name])
            bases = [form[: -len(old)] + new for old, new in endings if form.endswith(old)]
        return [base for base in dict.fromkeys([form, *bases]) if base in self.index]

    def _offsets(self, form: bytes) -> list[int]:
        """Offsets of a lemma's synsets in the data file: the last fields of its index line."""
        fields = self.index[form].split()
        try:
            return [int(field) for field in fields[-int(fields[1]) :]]
        except (ValueError, IndexError) as error:
            raise self._damaged("index", form.decode(errors="replace")) from error

    def _names(self, offset: int) -> list[str]:
        """One-word lemma names of the synset whose line begins at ``offset``."""
        line = self.data[offset : self.data.find(b"\n", offset)]
        try:
            fields = line.split(b"|", 1)[0].decode().split()
            if int(fields[0]) != offset:
                raise ValueError("another synset is there")
            names = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        except (ValueError, IndexError) as error:
            raise self._damaged("data", f"byte {offset}") from error
        return [_MARKER.sub("", name) for name in names if "_" not in name]

    def _damaged(self, kind: str, where: str) -> ValueError:
        return ValueError(f"{self.folder / f'{kind}.{self.name}'} is damaged or of another WordNet at {where}")
