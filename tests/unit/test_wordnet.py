"""The WordNet reader: a tiny folder by hand, the demo's excerpt, and NLTK's reader over all of WordNet 3.0."""

from __future__ import annotations

import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from automedbench.metrics.meteor import ENTRIES, FILES, Wordnet
from automedbench.tracks.report_generation.score import nltk_wordnet

ROOT = Path(__file__).resolve().parents[2]
EXCERPT = ROOT / "demo/data/wordnet"
LICENCE = "  1 WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved.  \n"


def write_folder(folder: Path) -> Path:
    """Four synsets in WordNet's format (wndb.5WN), offsets counted here."""
    folder.mkdir(parents=True)
    synsets = {
        "noun": ["03 n 03 lung 0 bellows 0 breathing_apparatus 0 000 | what breathes", "03 n 01 X-ray 0 000 | a ray"],
        "verb": ["29 v 02 clear 0 brighten 0 000 | make clear"],
        "adj": ["00 a 01 clear(p) 0 000 | free", "00 s 01 galore(ip) 0 000 | in abundance"],
        "adv": ["02 r 01 clearly 0 000 | in a clear way"],
    }
    offsets: dict[str, list[int]] = {}
    for part, lines in synsets.items():
        text, offsets[part] = LICENCE, []
        for line in lines:
            offsets[part].append(len(text))
            text += f"{len(text):08d} {line}  \n"
        (folder / f"data.{part}").write_text(text)
    index = {
        "noun": [("lung", "n", [0]), ("bellows", "n", [0]), ("breathing_apparatus", "n", [0]), ("x-ray", "n", [1])],
        "verb": [("brighten", "v", [0]), ("clear", "v", [0])],
        "adj": [("clear", "a", [0]), ("galore", "a", [1])],
        "adv": [("clearly", "r", [0])],
    }
    for part, entries in index.items():
        lines = [
            f"{lemma} {letter} {len(rows)} 0 {len(rows)} 0 {' '.join(f'{offsets[part][row]:08d}' for row in rows)}  \n"
            for lemma, letter, rows in entries
        ]
        (folder / f"index.{part}").write_text(LICENCE + "".join(lines))
        (folder / f"{part}.exc").write_text("lungen lung\n" if part == "noun" else "")
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "wordnet")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param("", set(), id="empty"),
        pytest.param("xyzzy", set(), id="unknown"),
        pytest.param("lung", {"lung", "bellows"}, id="one-word lemmas only"),
        pytest.param("LUNG", {"lung", "bellows"}, id="any case"),
        pytest.param("lungs", {"lung", "bellows"}, id="plural"),
        pytest.param("lungen", {"lung", "bellows"}, id="from the list of exceptions"),
        pytest.param("clear", {"clear", "brighten"}, id="verb and adjective; marker taken off"),
        pytest.param("cleared", {"clear", "brighten"}, id="past tense"),
        pytest.param("clearest", {"clear"}, id="superlative is an adjective only"),
        pytest.param("galore", {"galore"}, id="satellite"),
        pytest.param("x-ray", {"X-ray"}, id="spelt as in WordNet"),
        pytest.param("clearlys", set(), id="adverbs have no endings"),
    ],
)
def test_by_hand(tiny: Path, word: str, expected: set[str]) -> None:
    assert Wordnet(tiny).synonyms(word) == expected


def test_version_and_size(tiny: Path) -> None:
    wordnet = Wordnet(tiny)
    assert (wordnet.version, wordnet.entries) == ("3.0", 9)


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_needed(tiny: Path, name: str) -> None:
    """What is absent is named."""
    (tiny / name).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(name)):
        Wordnet(tiny)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a WordNet folder"):
        Wordnet(tmp_path / "nothing")


def damage(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param("index.noun", "lung n 1", "lung n one", id="count is a word"),
        pytest.param("index.noun", "lung n 1 0 1 0 000", "lung n 1 0 1 0 001", id="offset of nothing"),
        pytest.param("data.noun", " n 03 lung", " n zz lung", id="number of words is none"),
        pytest.param("data.noun", LICENCE, "", id="data of another edition"),
    ],
)
def test_damaged(tiny: Path, name: str, old: str, new: str) -> None:
    """An error of ours to report, never silence: the value would be another metric."""
    damage(tiny / name, old, new)
    with pytest.raises(ValueError, match="damaged or of another WordNet"):
        Wordnet(tiny).synonyms("lung")


def test_empty_index(tiny: Path) -> None:
    (tiny / "index.verb").write_text(LICENCE)
    with pytest.raises(ValueError, match="empty"):
        Wordnet(tiny)


def nltk_names(wordnet: Any, word: str) -> set[str]:
    """What NLTK's METEOR asks for."""
    return {lemma.name() for synset in wordnet.synsets(word) for lemma in synset.lemmas() if "_" not in lemma.name()}


def test_excerpt_equals_nltk() -> None:
    """Every lemma of the excerpt and its inflections; the reader is NLTK's."""
    own = Wordnet(EXCERPT)
    lemmas = {
        line.split()[0]
        for part in ("noun", "verb", "adj", "adv")
        for line in (EXCERPT / f"index.{part}").read_text().splitlines()
        if not line.startswith(" ")
    }
    words = {lemma + ending for lemma in lemmas for ending in ("", "s", "es", "ed", "ing", "er", "est")}
    with nltk_wordnet(EXCERPT) as theirs:
        assert [word for word in sorted(words) if own.synonyms(word) != nltk_names(theirs, word)] == []


def test_excerpt_covers_the_invented_reports() -> None:
    """words.txt, from which the excerpt was cut, holds every word of the demo's reports."""
    words = set((EXCERPT / "words.txt").read_text().split())
    table = (ROOT / "demo/data/demo_cxr_reports/invented_reports.csv").read_text().lower().splitlines()[1:]
    reports = [line.split(",", 3)[3] for line in table]
    assert set(re.findall("[a-z]+(?:-[a-z]+)?", " ".join(reports))) <= words


def test_excerpt_is_one() -> None:
    assert Wordnet(EXCERPT).entries < ENTRIES
    assert sum(path.stat().st_size for path in EXCERPT.iterdir()) < 300_000


def test_excerpt_in_nltks_own_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied below corpora/wordnet, NLTK opens it by itself, lexnames and index.sense included."""
    import nltk
    from nltk.corpus import LazyCorpusLoader
    from nltk.corpus.reader import WordNetCorpusReader

    shutil.copytree(EXCERPT, tmp_path / "corpora/wordnet")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setattr(WordNetCorpusReader, "map_wn", lambda self, version="wordnet": None)
    reader = LazyCorpusLoader("wordnet", WordNetCorpusReader, object())
    assert reader.get_version() == "3.0"
    assert [synset.name() for synset in reader.synsets("pneumothorax")] == ["pneumothorax.n.01"]
    for stream in reader._data_file_map.values():
        stream.close()


# --- all of WordNet -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def complete() -> Path:
    """WordNet 3.0 where AMB_WORDNET says or Debian puts it."""
    folder = Path(os.environ.get("AMB_WORDNET", "/usr/share/wordnet"))
    if not (folder / "data.noun").is_file():
        pytest.skip("no complete WordNet: install wordnet-base or set AMB_WORDNET")
    return folder


@pytest.mark.wordnet
def test_complete_equals_nltk(complete: Path) -> None:
    """Several thousand words, inflected forms, stems and irregular forms (all differ by nothing)."""
    from nltk.stem.porter import PorterStemmer

    own = Wordnet(complete)
    assert (own.version, own.entries) == ("3.0", ENTRIES)
    rng = random.Random(3)
    lemmas = rng.sample(sorted(lemma.decode() for part in own._parts for lemma in part.index), 3000)
    irregular = rng.sample(sorted(form.decode() for part in own._parts for form in part.exceptions), 1000)
    stem = PorterStemmer().stem
    words = {*lemmas, *map(stem, lemmas), *irregular}
    words |= {lemma + ending for lemma in lemmas[:1000] for ending in ("s", "es", "ed", "ing", "er", "est", "men")}
    with nltk_wordnet(complete) as theirs:
        assert [word for word in sorted(words) if own.synonyms(word) != nltk_names(theirs, word)] == []
