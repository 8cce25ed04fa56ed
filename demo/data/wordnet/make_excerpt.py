"""Cuts this excerpt out of a complete WordNet 3.0 folder: `python make_excerpt.py /usr/share/wordnet`.

Kept are the synsets of every word in words.txt (and of its base forms), and the head synsets of their satellites.
Pointers to synsets outside the excerpt and example sentences are cut, byte offsets counted anew; both our reader and
NLTK's read the result. Needs this project's environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from nltk.stem.porter import PorterStemmer

from automedbench.metrics.meteor import FILES, PARTS, Wordnet

POS = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
LETTER = {part: letter for letter, part in POS.items() if letter != "s"}
# Names of the lexicographer files in their order (manual page lexnames.5WN).
LEXNAMES = (
    "adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body noun.cognition "
    "noun.communication noun.event noun.feeling noun.food noun.group noun.location noun.motive noun.object noun.person "
    "noun.phenomenon noun.plant noun.possession noun.process noun.quantity noun.relation noun.shape noun.state "
    "noun.substance noun.time verb.body verb.change verb.cognition verb.communication verb.competition "
    "verb.consumption verb.contact verb.creation verb.emotion verb.motion verb.perception verb.possession verb.social "
    "verb.stative verb.weather adj.ppl"
)
NUMBER = {"noun": 1, "verb": 2, "adj": 3, "adv": 4}
Key = tuple[str, int]  # part of speech and offset in the complete WordNet


class Synset:
    """One data line, taken apart."""

    def __init__(self, part: str, line: str) -> None:
        columns, _, gloss = line.partition("|")
        fields = columns.split()
        count = int(fields[3], 16)
        self.part, self.offset, self.kind = part, int(fields[0]), fields[2]
        self.head, self.names = fields[1:4], fields[4 : 4 + 2 * count]
        place = 4 + 2 * count
        n_pointers = int(fields[place])
        flat = fields[place + 1 : place + 1 + 4 * n_pointers]
        self.pointers = [tuple(flat[row : row + 4]) for row in range(0, len(flat), 4)]
        self.frames = fields[place + 1 + 4 * n_pointers :]
        self.gloss = gloss.strip().split('; "')[0].split('"')[0].strip().rstrip(";")

    @property
    def lemmas(self) -> list[str]:
        return [name.split("(")[0].lower() for name in self.names[::2]]

    def heads(self) -> list[Key]:
        """Synsets that a satellite cannot do without."""
        similar = [pointer for pointer in self.pointers if pointer[0] == "&"]
        return [(POS[part], int(offset)) for _, offset, part, _ in similar] if self.kind == "s" else []

    def line(self, place: Callable[[Key], int | None]) -> str:
        kept = [
            (symbol, f"{new:08d}", part, numbers)
            for symbol, offset, part, numbers in self.pointers
            if (new := place((POS[part], int(offset)))) is not None
        ]
        pointers = [field for pointer in kept for field in pointer]
        own = place((self.part, self.offset))
        words = [f"{own:08d}", *self.head, *self.names, f"{len(kept):03d}", *pointers, *self.frames]
        return " ".join(words) + f" | {self.gloss}  \n"


def choose(full: Wordnet, words: list[str]) -> dict[Key, Synset]:
    """Synsets of the words, their stems and base forms, and the heads of satellites."""
    stem = PorterStemmer().stem
    parts = dict(zip(PARTS, full._parts, strict=True))
    wanted = [
        (name, offset)
        for word in sorted({each for word in words for each in (word, stem(word))})
        for name, part in parts.items()
        for form in part._forms(word)
        for offset in part._offsets(form)
    ]
    chosen: dict[Key, Synset] = {}
    while wanted:
        key = wanted.pop()
        if key not in chosen:
            data = parts[key[0]].data
            chosen[key] = Synset(key[0], data[key[1] : data.find(b"\n", key[1])].decode())
            wanted += chosen[key].heads()
    return chosen


def main(source: Path) -> None:
    folder = Path(__file__).resolve().parent
    full = Wordnet(source)
    chosen = choose(full, (folder / "words.txt").read_text().split())
    header = "".join(line for line in (source / "data.adj").read_text().splitlines(True) if line.startswith("  "))
    places: dict[Key, int] = {}
    for part in PARTS:
        position = len(header)
        for key in sorted(key for key in chosen if key[0] == part):
            places[key] = position
            # Offsets have eight digits whatever they are, so that lengths are known before places.
            position += len(chosen[key].line(lambda other: 0 if other in chosen else None).encode())
    for part, complete in zip(PARTS, full._parts, strict=True):
        synsets = [chosen[key] for key in sorted(key for key in chosen if key[0] == part)]
        (folder / f"data.{part}").write_text(header + "".join(synset.line(places.get) for synset in synsets))
        lines = []
        for lemma in sorted({lemma for synset in synsets for lemma in synset.lemmas}):
            every = complete._offsets(lemma.encode())
            offsets = [places[part, offset] for offset in every if (part, offset) in places]
            tagged = min(len(offsets), int(complete.index[lemma.encode()].split()[-len(every) - 1]))
            numbers = " ".join(f"{offset:08d}" for offset in offsets)
            lines.append(f"{lemma} {LETTER[part]} {len(offsets)} 0 {len(offsets)} {tagged} {numbers}  \n")
        (folder / f"index.{part}").write_text(header + "".join(lines))
        known = {line.split()[0].encode() for line in lines}
        kept = [
            b" ".join([form, *bases]).decode() + "\n"
            for form, bases in sorted(complete.exceptions.items())
            if known & {form, *bases}
        ]
        (folder / f"{part}.exc").write_text("".join(kept))
    rows = (f"{row:02d}\t{name}\t{NUMBER[name.split('.')[0]]}\n" for row, name in enumerate(LEXNAMES.split()))
    (folder / "lexnames").write_text("".join(rows))
    (folder / "index.sense").write_text("")
    print(f"{len(chosen)} synsets,", sum((folder / name).stat().st_size for name in FILES), "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
