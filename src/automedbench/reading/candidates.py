"""Candidates in what an agent wrote: which methods it names, and whether anything is said for or against each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from automedbench.reading.text import find_words, without_words

MAX_READ = 256 * 1024
"""Characters of one text that are read."""
MIN_REMARK = 1
"""Words of its own that a remark on a known method has at least."""
MIN_ITEM_REMARK = 2
"""The same for an item of a list whose name no vocabulary knows."""

_REPOSITORY = re.compile(r"(?:huggingface\.co|hf\.co|github\.com|gitlab\.com)/([\w.-]+/[\w.-]+)", re.I)
_ITEM = re.compile(r"^\s*(?:[-*+•]|\(?[a-z0-9]{1,2}[.)])\s+(?P<bullet>\S.*)$|^\s*+(?P<row>[^|\n]*+\|.*\|.*)$", re.I)
_LEAD = re.compile(
    r"\b(?:candidate|option|alternative|considered|compar|weigh|looked at|contender|choices|which |kandidat|variante"
    r"|möglichkeit|verglich|vergleich|candidat|opcion|opción|alternativ|évalué|compará)|候选|备选|方案|比较|可选",
    re.I,
)
_HEAD = re.compile(
    r"\b(?:model|method|approach|checkpoint|network|tool|name|modell|verfahren|modèle|modelo|método)|模型|方法", re.I
)
"""Heads of the first column of a table of candidates."""
FEWEST_IN_PROSE = 3
MIN_CLAUSE = 3
"""Words of its own that a clause about a model has at least, beside its name."""
_BRACKETED = re.compile(r"(?P<name>[A-Za-zÀ-ÿ][^();:]{1,60}?)\s*\((?P<remark>[^()]{4,})\)")
_COLON = re.compile(r"^(?P<name>[A-ZÀ-Ý][^.;:()]{2,60}?):\s+(?P<remark>[^:]{6,})")
_MODEL_NAME = re.compile(r"\b(?:[A-Z][\w+]*[a-z0-9][A-Z][\w+]*|[A-Z]\w*-[A-Z0-9]\w*|[A-Z][a-z]+-?\d+\w*)\b")
_DIVIDER = re.compile(r"^[\s|:-]+$")
_FILLERS = frozenset(
    "and the for with from candidate candidates model models method methods checkpoint checkpoints option options "  # noqa: SIM905
    "compare compared comparing consider considered use used using will would are were have families family "
    "include includes including such like choose chose chosen looked three four several or also then first second "
    "third".split()
)


@dataclass(frozen=True)
class Candidate:
    """A method that was named, the line it stands on, and whether that line says more of it than its name."""

    name: str
    line: str
    weighed: bool


def candidates_in(text: str, vocabulary: dict[str, list[str]]) -> Iterator[Candidate]:
    """Candidates of a text, line by line: known methods, repositories, and the items of a list of candidates."""
    yield from _in_prose(text[:MAX_READ], vocabulary)
    listing = False
    for line in text[:MAX_READ].split("\n"):
        item = _ITEM.match(line)
        named = list(_named(line, vocabulary))
        yield from named
        if _opens_a_list(line, item):
            listing = bool(_LEAD.search(line)) or item is not None
        elif item is not None and listing and not named and not _DIVIDER.match(line):
            yield from _listed(item)


def _in_prose(text: str, vocabulary: dict[str, list[str]]) -> Iterator[Candidate]:
    """Methods that no vocabulary knows, in a paragraph that weighs: ``name (remark)``, ``name: remark``, or a clause
    about one that has the form of a model's name. Known ones are told line by line."""
    for block in re.split(r"\n[ \t]*\n", text):
        prose = " ".join(line for line in block.split("\n") if not _ITEM.match(line) and not line.startswith("#"))
        clauses = [
            clause.strip()
            for clause in re.split(r"[;.](?=\s|$)|(?<=\)),|\b(?:and|or|und|oder|et|ou|y) (?=a |an |ein|un)", prose)
        ]
        found = [candidate for clause in clauses if (candidate := _of_clause(clause, vocabulary)) is not None]
        if len({candidate.name for candidate in found}) >= FEWEST_IN_PROSE or _LEAD.search(prose):
            yield from found


def _of_clause(clause: str, vocabulary: dict[str, list[str]]) -> Candidate | None:
    """The candidate that a clause is about, if it says something of one."""
    for form in (_BRACKETED, _COLON):
        if (hit := form.search(clause)) and _words_beside(hit["remark"], vocabulary) >= MIN_ITEM_REMARK:
            name = re.sub(r"^.*:\s+", "", hit["name"]).strip().casefold()
            return Candidate(name, clause, weighed=True)
    if (hit := _MODEL_NAME.search(clause)) and _words_beside(clause, vocabulary) > MIN_CLAUSE:
        return Candidate(hit[0].casefold(), clause, weighed=True)
    return None


def _opens_a_list(line: str, item: re.Match[str] | None) -> bool:
    """A line of text or a heading, which says what the items below it are; or the head of a table of candidates."""
    if item is not None:
        head = (item.group("row") or "").strip(" |").partition("|")[0]
        return bool(_LEAD.search(head) or (len(head) < 40 and _HEAD.search(head)))
    return bool(line.strip()) and not line.startswith("  ")


def _named(line: str, vocabulary: dict[str, list[str]]) -> Iterator[Candidate]:
    """Known methods and repositories; what stands behind one up to the next is said of it, of a single one all."""
    hits = [next(same) for _, same in groupby(sorted(_hits(line, vocabulary)), key=lambda hit: hit[2])]
    for (_, end, name), (following, _, _) in pairwise([*hits, (len(line), 0, "")]):
        said = re.sub(r"^\S+", "", line[end:following]) if len(hits) > 1 else line
        yield Candidate(name, line, _words_beside(said, vocabulary) >= MIN_REMARK)


def _hits(line: str, vocabulary: dict[str, list[str]]) -> Iterator[tuple[int, int, str]]:
    for name, spellings in vocabulary.items():
        yield from ((hit.start(), hit.end(), name) for hit in find_words(line, spellings))
    for hit in _REPOSITORY.finditer(line):
        yield hit.start(), hit.end(), hit.group(1).casefold().rstrip(".")


def _words_beside(said: str, vocabulary: dict[str, list[str]]) -> int:
    """Words of a remark: not the names of methods themselves, nor words that only introduce them."""
    said = _REPOSITORY.sub(" ", said)
    for spellings in vocabulary.values():
        said = without_words(said, spellings)
    return len([word for word in re.findall(r"[^\W\d_]{3,}", said.casefold()) if word not in _FILLERS])


def _listed(item: re.Match[str]) -> Iterator[Candidate]:
    """An item of a list or row of a table that names a candidate of its own and says something of it."""
    text = item.group("bullet") or item.group("row")
    name, _, remark = re.sub(r"[*`_]", "", text.strip().strip("|")).partition("|" if "|" in text else ":")
    if not remark:
        name, _, remark = text.partition(" ")
    if len(re.findall(r"[^\W\d_]{3,}", remark)) >= MIN_ITEM_REMARK and name.strip():
        yield Candidate(name.strip().casefold(), item.group().strip(), weighed=True)
