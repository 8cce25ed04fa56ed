"""Opposites in short answers: what normalised words name on an axis, what they deny, and what says nothing at all.

One table for closed and open questions. Positions, planes and directions are general terms of Terminologia Anatomica
(2nd edition, chapter 1) with their everyday words; projections and sequences are radiology's usual short forms
(RadLex); negations are the triggers of NegEx (Chapman et al. 2001) that stand before or behind one thing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

AXES: dict[str, dict[str, str]] = {
    "side": {"left": "left l bilateral", "right": "right r bilateral"},
    "height": {"upper": "upper superior top", "middle": "middle mid", "lower": "lower inferior bottom"},
    "depth": {"anterior": "anterior ventral", "middle": "middle mid", "posterior": "posterior dorsal"},
    "midline": {"medial": "medial mesial", "lateral": "lateral"},
    "origin": {"proximal": "proximal", "distal": "distal"},
    "direction": {"cranial": "cranial cephalad", "caudal": "caudal caudad"},
    "layer": {"internal": "internal inner", "external": "external outer"},
    "core": {"central": "central", "peripheral": "peripheral"},
    "end": {"apical": "apical apex apices", "basal": "basal base bases"},
    "course": {"ascending": "ascending", "descending": "descending", "sigmoid": "sigmoid"},
    "lobe": {"frontal": "frontal", "parietal": "parietal", "temporal": "temporal", "occipital": "occipital"},
    "plane": {"axial": "axial transverse transaxial", "coronal": "coronal", "sagittal": "sagittal"},
    "view": {"ap": "ap", "pa": "pa", "lateral": "lateral"},
    "sequence": {name: name for name in ("t1", "t2", "flair", "dwi", "adc", "swi", "stir", "pd")},
    "modality": {"ct": "ct", "mri": "mri", "pet": "pet", "ultrasound": "ultrasound", "ray": "ray"},
    "change": {"increased": "increased raised", "decreased": "decreased reduced"},
    "rank": {"high": "high elevated", "low": "low"},
    "size": {"large": "large big enlarged", "small": "small"},
    "time": {"acute": "acute", "chronic": "chronic"},
    "nature": {"benign": "benign", "malignant": "malignant"},
    "vessel": {"arterial": "arterial artery arteries", "venous": "venous vein veins"},
    "sex": {"male": "male man", "female": "female woman"},
}
"""Axis → value → words that name it. An answer that names other values of an axis than the gold excludes it."""

_NAMED: dict[str, list[tuple[str, str]]] = {}
for _axis, _values in AXES.items():
    for _value, _words in _values.items():
        for _word in _words.split():
            _NAMED.setdefault(_word, []).append((_axis, _value))
_LEVEL = re.compile(r"[ctls]\d{1,2}")
_PREFIXED = re.compile(r"(hyper|hypo|iso|intra|extra|supra|infra|pre|post)(\w{5,})")

SPELLINGS = {
    **{
        word: value
        for axis in ("height", "depth", "midline", "plane")
        for value, words in AXES[axis].items()
        for word in words.split()[1:]
    },
    **dict.fromkeys(("both sides", "left and right", "right and left", "both", "bilaterally"), "bilateral"),
    **dict.fromkeys(("antero posterior", "anteroposterior", "anterior posterior", "anterior to posterior"), "ap"),
    **dict.fromkeys(("postero anterior", "posteroanterior", "posterior anterior", "posterior to anterior"), "pa"),
    **dict.fromkeys(("t2 weighted flair", "t2 flair", "flair t2", "fluid attenuated inversion recovery"), "flair"),
    **dict.fromkeys(("diffusion weighted imaging", "diffusion weighted"), "dwi"),
    **dict.fromkeys(("susceptibility weighted imaging", "susceptibility weighted"), "swi"),
    **dict.fromkeys(("absence of", "lack of", "free of", "clear of", "devoid of", "negative for", "without"), "no"),
    **dict.fromkeys(("no evidence of", "no sign of", "no signs of", "absent"), "no"),
    **dict.fromkeys(("ruled out", "rules out", "rule out", "resolution of", "resolved"), "no"),
    "apparent diffusion coefficient": "adc",
    "proton density": "pd",
    "iv contrast": "intravenous contrast",
    "radiograph": "x ray",
}
"""Other words for the same → the ones that are compared."""
_SPELLING = re.compile(rf"\b(?:{'|'.join(sorted(SPELLINGS, key=len, reverse=True))})\b")

_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ROMAN = "i ii iii iv v vi vii viii ix x xi xii"
_NUMBERS = {word: str(number) for text in (_ORDINALS, _ROMAN) for number, word in enumerate(text.split(), start=1)}
_LETTERS = frozenset("ivx")
_COUNTED = re.compile(r"grade|stage|type|class|nerve|level|phase|zone|segment|group|category|lobule|layer")
"""Words before a single letter that make it a Roman number."""

_NEGATIONS = (
    "no not never neither nor none nil cannot negative non denies denied lacks lacking excluded isnt arent wasnt werent"
    " doesnt dont didnt hasnt havent cant"
)
NEGATIONS = frozenset(_NEGATIONS.split())
"""Words that turn a statement round: an answer with one never earns overlap with an answer without."""
_DENYING = re.compile(r"\b(?:non|un|in|im|ir|dis|ab|a)([a-z]{5,})\b")

_NO_ANSWER = re.compile(
    r"n ?a\b|(?:nan|null|unknown|unclear|unsure|uncertain|undetermined|unanswerable|unspecified|idk|tbd|skip(?:ped)?)$"
    r"|no (?:idea|clue|info|information|data|answer|response|comment|opinion|prediction|output|guess|context|way)s?\b"
    r"|none (?:available|given|provided|specified|of the above)\b"
    r"|not (?:sure|certain|known|clear|available|applicable|provided|given|specified|stated|mentioned|determin\w+"
    r"|answerable|enough|possible|able|assess\w+|evaluat\w+|reported|documented|recorded)\b"
    r"|(?:i |we |it |this |that )*(?:cannot|can not|cant|could not|couldnt|unable to|impossible to|am not able to)"
    r"(?: be)? (?:answer|determin|tell|say|assess|know|evaluat|identif|judge|decide|confirm|conclude|interpret|provide)"
    r"|(?:i |we )*(?:am |are )?(?:do not|dont|did not|didnt|not) (?:know|understand|sure|certain)\b"
    r"|(?:there is )?(?:insufficient|inadequate|not enough|lack of) (?:information|data|evidence|context)\b"
)


def says_nothing(text: str) -> bool:
    """Return whether a text in plain lower-case words is no answer: "n a", "no idea", "cannot be determined"."""
    return not text or _NO_ANSWER.match(text) is not None


def unify_words(text: str) -> str:
    """A normalised text in the table's words: "superior" is upper, "both" bilateral, "4th" and "iv" are 4."""
    text = re.sub(r"\b([ctls])(\d{1,2})(?: (\d{1,2})| ?([ctls]\d{1,2}))\b", _both_levels, text)
    words = _SPELLING.sub(lambda found: SPELLINGS[found[0]], text).split()
    return " ".join(_number(word, words[place - 1] if place else "") for place, word in enumerate(words))


def _both_levels(found: re.Match[str]) -> str:
    """Both vertebrae of a segment that is written as "l4/5", "l4-l5" or "l4l5"."""
    return f"{found[1]}{found[2]} {found[4] or found[1] + found[3]}"


def _number(word: str, before: str) -> str:
    if word in _LETTERS and not _COUNTED.fullmatch(before):
        return word
    return _NUMBERS.get(word) or re.sub(r"^(\d+)(?:st|nd|rd|th)$", r"\1", word)


def split_denials(first: str, second: str) -> tuple[str, str]:
    """Two texts in which words with a denying prefix are split where only the other text has the rest.

    "noncontrast" and "atypical" deny "contrast" and "typical"; beside "specific changes" alone "nonspecific" stays.
    """
    joined = [re.sub(r"\bnon ([a-z]{5,})\b", r"non\1", text) for text in (first, second)]
    words = [set(text.split()) for text in joined]
    return _split(joined[0], words[1] - words[0]), _split(joined[1], words[0] - words[1])


def _split(text: str, denied: set[str]) -> str:
    return _DENYING.sub(lambda found: f"no {found[1]}" if found[1] in denied else found[0], text)


@functools.lru_cache(maxsize=20_000)
def named_values(words: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Values that words name, by axis; levels of the spine and words that differ by a prefix are axes too."""
    found: dict[str, set[str]] = {}
    for word in words:
        pairs = list(_NAMED.get(word, ()))
        if _LEVEL.fullmatch(word):
            pairs.append(("level", word))
        if prefixed := _PREFIXED.fullmatch(word):
            pairs.append((prefixed[2], prefixed[1]))
        for axis, value in pairs:
            found.setdefault(axis, set()).add(value)
    return {axis: frozenset(values) for axis, values in found.items()}


def exclude(prediction: tuple[str, ...], gold: tuple[str, ...]) -> bool:
    """Return whether one answer is negated and the other is not, or they name different values of an axis."""
    if NEGATIONS.isdisjoint(prediction) != NEGATIONS.isdisjoint(gold):
        return True
    named, wanted = named_values(prediction), named_values(gold)
    return any(values != wanted.get(axis, values) for axis, values in named.items())
