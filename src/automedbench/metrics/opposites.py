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
    "side": {"left": "left l lt bilateral", "right": "right r rt bilateral"},
    "height": {"upper": "upper superior top", "middle": "middle mid", "lower": "lower inferior bottom"},
    "depth": {"anterior": "anterior ventral volar palmar", "middle": "middle mid", "posterior": "posterior dorsal"},
    "midline": {"medial": "medial mesial", "lateral": "lateral"},
    "origin": {"proximal": "proximal", "distal": "distal"},
    "direction": {"cranial": "cranial cephalad rostral", "caudal": "caudal caudad"},
    "relation": {"above": "above", "below": "below beneath"},
    "layer": {"internal": "internal inner", "external": "external outer"},
    "fascia": {"superficial": "superficial", "deep": "deep"},
    "core": {"central": "central", "peripheral": "peripheral"},
    "end": {"apical": "apical apex apices biapical", "basal": "basal base bases basilar bibasal bibasilar"},
    "course": {"ascending": "ascending", "descending": "descending", "sigmoid": "sigmoid"},
    "lobe": {"frontal": "frontal", "parietal": "parietal", "temporal": "temporal", "occipital": "occipital"},
    "chamber": {"atrial": "atrium atrial atria", "ventricular": "ventricle ventricular ventricles"},
    "spine": {"cervical": "cervical", "thoracic": "thoracic", "lumbar": "lumbar", "sacral": "sacral"},
    "forearm": {"radial": "radial radius", "ulnar": "ulnar ulna"},
    "lower leg": {"tibial": "tibial tibia", "fibular": "fibular fibula"},
    "eminence": {"major": "major greater", "minor": "minor lesser"},
    "plane": {"axial": "axial transverse transaxial", "coronal": "coronal", "sagittal": "sagittal"},
    "view": {"ap": "ap", "pa": "pa", "lateral": "lateral"},
    "projection": {"frontal": "frontal_view frontal_projection frontal_radiograph frontal_film", "lateral": "lateral"},
    "posture": {"supine": "supine", "prone": "prone", "upright": "upright erect standing"},
    "breath": {"in": "inspiratory inspiration", "out": "expiratory expiration"},
    "beat": {"systolic": "systolic systole", "diastolic": "diastolic diastole"},
    "joint": {"flexion": "flexion flexed", "extension": "extension extended"},
    "sequence": {name: name for name in ("t1", "t2", "flair", "dwi", "adc", "swi", "stir", "pd")},
    "echo": {"spin": "spin_echo", "gradient": "gradient_echo gre"},
    "modality": {
        "ct": "ct",
        "mri": "mri mr",
        "pet": "pet",
        "spect": "spect",
        "ultrasound": "ultrasound us",
        "x": "ray",
    },
    "change": {"more": "increased increase increasing raised", "less": "decreased decrease decreasing reduced"},
    "rank": {"high": "high elevated", "low": "low"},
    "size": {"large": "large big enlarged", "small": "small"},
    "degree": {"mild": "mild slight minimal", "moderate": "moderate", "severe": "severe marked massive"},
    "extent": {"complete": "complete total", "partial": "partial incomplete"},
    "number": {"one": "1 solitary", "many": "multiple several many numerous"},
    "outline": {"well": "well", "ill": "ill poorly"},
    "matter": {"solid": "solid", "cystic": "cystic"},
    "moment": {"early": "early", "late": "late delayed"},
    "heading": {"front": "front", "back": "back", "up": "up", "down": "down"},
    "time": {"acute": "acute new recent", "subacute": "subacute", "chronic": "chronic old"},
    "period": {unit: f"{unit} {unit}s" for unit in ("minute", "hour", "day", "week", "month", "year")},
    "nature": {"benign": "benign", "malignant": "malignant"},
    "seat": {"primary": "primary", "secondary": "secondary metastatic"},
    "vessel": {"arterial": "arterial artery arteries", "venous": "venous vein veins"},
    "sex": {"male": "male man", "female": "female woman"},
}
"""Axis → value → words that name it (two words joined by "_").

An answer that names other values of an axis than the gold excludes it.
"""

_NAMED: dict[str, list[tuple[str, str]]] = {}
for _axis, _values in AXES.items():
    for _value, _words in _values.items():
        for _word in _words.split():
            _NAMED.setdefault(_word, []).append((_axis, _value))
_LEVEL = re.compile(r"[ctls]\d{1,2}")
_CODE = re.compile(r"([a-z]+)\d+[a-z]?|\d+[a-z]")
_PREFIX = re.compile(
    "(hyper|hypo|iso|intra|extra|supra|infra|sub|epi|pre|post|ante|retro|uni|bi|multi|ipsi|contra|homo|hetero|tachy|brady|dextro|levo"
    r"|endo|exo|peri|macro|micro|over|under)_?([a-z]{5,})"
)
_COMPOUND = re.compile(r"(anter|poster|super|infer)o([a-z]*)")
_SUFFIX = re.compile(r"(?:wards?|most|ly)$")

SPELLINGS = {
    **{
        f"{side[0]}{height[0]}{part[0]}": f"{side} {height} {part}"
        for side in ("left", "right")
        for height in ("upper", "middle", "lower")
        for part in ("lobe", "quadrant", "zone")
    },
    **{
        word: value
        for axis in ("height", "depth", "midline", "plane")
        for value, words in AXES[axis].items()
        for word in words.split()[1:]
    },
    **dict.fromkeys(("both sides", "both", "bilaterally", "l and r", "r and l", "l r", "r l"), "bilateral"),
    **dict.fromkeys(("b l", "b left", "bi lateral", "2 sided", "both bilateral"), "bilateral"),
    **dict.fromkeys(("antero posterior", "anteroposterior", "anterior posterior", "anterior to posterior"), "ap"),
    **dict.fromkeys(("postero anterior", "posteroanterior", "posterior anterior", "posterior to anterior"), "pa"),
    **dict.fromkeys(("t2 weighted flair", "t2 flair", "flair t2", "fluid attenuated inversion recovery"), "flair"),
    **dict.fromkeys(("diffusion weighted imaging", "diffusion weighted"), "dwi"),
    **dict.fromkeys(("susceptibility weighted imaging", "susceptibility weighted"), "swi"),
    **dict.fromkeys(("absence of", "lack of", "free of", "free from", "clear of", "devoid of", "negative for"), "no"),
    **dict.fromkeys(("no evidence of", "no sign of", "no signs of", "absent", "without"), "no"),
    **dict.fromkeys(("ruled out", "rules out", "rule out", "resolution of", "resolved", "w o", "other than"), "no"),
    **dict.fromkeys(("unenhanced", "non enhanced", "nonenhanced"), "no contrast"),
    "plain ct": "ct no contrast",
    "apparent diffusion coefficient": "adc",
    "proton density": "pd",
    "iv contrast": "intravenous contrast",
    "radiograph": "x ray",
}
"""Other words for the same → the ones that are compared."""
_BOTH_SIDES = re.compile(
    r"\b(?:left|right)( \w+)?(?: and| as well as| (?:greater|more|worse) than)?(?: the)? (?:left|right)\b(?(1)\1)"
)
"""Both sides one after the other, of the same thing where there is one: "left lung and right lung"."""
_SPELLING = re.compile(rf"\b(?:{'|'.join(sorted(SPELLINGS, key=len, reverse=True))})\b")

_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ROMAN = "i ii iii iv v vi vii viii ix x xi xii"
_TEENS = "thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
_NUMBERS = {
    word: str(number)
    for text, start in ((_ORDINALS, 1), (_ROMAN, 1), (_TEENS, 13))
    for number, word in enumerate(text.split(), start)
}
_ROMAN_SUFFIX = re.compile(r"([ivx]+)([a-f]?)")
_COUNTED = re.compile(r"grade|stage|type|class|nerve|level|phase|zone|segment|group|category|lobule|layer")
"""Words before a single letter, or a number with one ("IIIa"), that make it Roman; as the last word it always is."""

_NEGATIONS = (
    "no not never neither nor none nil nothing 0 cannot cant couldnt isnt arent wasnt werent doesnt dont didnt hasnt"
    " havent negative neg non denies denied lacks lacking excluded excludes exclusion fails failed disappeared cleared"
    " gone unlikely"
)
NEGATIONS = frozenset(_NEGATIONS.split())
"""Words that turn a statement round: an answer with one never earns overlap with an answer without."""
DENYING = re.compile(r"\b(?:non|un|in|im|ir|dis|ab|a)([a-z]{5,})\b")
"""Words with a prefix that may deny the rest."""

_CANNOT = r"(?:cannot|can not|cant|could not|couldnt|unable to|impossible to|am not able to)"
_NO_ANSWER = re.compile(
    r"n ?a\b|(?:nan|null|unknown|unclear|unsure|uncertain|undetermined|unanswerable|unspecified|idk|tbd|skip(?:ped)?)$"
    r"|(?:no |nope )*no (?:(?:valid|useful|clear|relevant|sufficient|enough|further|conclusive|definit\w+|certain"
    r"|specific|reliable|model) )?(?:idea|clue|info|information|data|answer|response|comment|opinion|prediction|output"
    r"|guess|context|way|certainty|knowledge)s?\b"
    r"|no (?:image|picture|question|input|result)s?$"
    r"|no (?:\w+ )?(?:image|picture|question|input|result|finding|diagnosis|conclusion|determination|assessment)s?"
    r"(?: (?:is|was|were|are|can be|could be))?"
    r" (?:provided|given|available|made|drawn|possible|reached|attached|uploaded|assess\w+|determined)\b"
    r"|none (?:available|given|provided|specified|of the above)\b"
    r"|not (?:sure|certain|known|clear|available|applicable|provided|given|specified|stated|mentioned|determin\w+"
    r"|answerable|enough|possible|able|assess\w+|evaluat\w+|reported|documented|recorded)\b"
    rf"|(?:i |we |it |this |that )*{_CANNOT}"
    r"(?: be)? (?:answer|determin|tell|say|assess|know|evaluat|identif|judge|decide|confirm|conclude|interpret|provide)"
    rf"|(?:no|nope) (?:i |we |it )*{_CANNOT}(?: be)? (?:answer|determin|tell|say|assess|know|judge|decide)"
    r"|(?:i |we )*(?:am |are )?(?:do not|dont|did not|didnt|not) (?:know|understand|sure|certain)\b"
    r"|(?:there is )?(?:insufficient|inadequate|not enough|lack of) (?:information|data|evidence|context)\b"
)


def says_nothing(text: str) -> bool:
    """Return whether a text in plain lower-case words is no answer: "n a", "no idea", "cannot be determined"."""
    return not text or _NO_ANSWER.match(text) is not None


def unify_words(text: str) -> str:
    """A normalised text in the table's words: "superior" is upper, "both" bilateral, "4th" and "iv" are 4."""
    text = re.sub(r"\b([ctls])(\d{1,2})(?: (\d{1,2})| ?([ctls]\d{1,2}))\b", _both_levels, text)
    text = _BOTH_SIDES.sub("bilateral", text)
    words = _SPELLING.sub(lambda found: SPELLINGS[found[0]], text).split()
    last = len(words) - 1
    return " ".join(_number(word, words[place - 1] if place else "", place == last) for place, word in enumerate(words))


def _both_levels(found: re.Match[str]) -> str:
    """Both vertebrae of a segment that is written as "l4/5", "l4-l5" or "l4l5"."""
    return f"{found[1]}{found[2]} {found[4] or found[1] + found[3]}"


def _number(word: str, before: str, last: bool) -> str:
    counted = _COUNTED.fullmatch(before) is not None or (last and before.isalpha())
    roman = _ROMAN_SUFFIX.fullmatch(word)
    if roman and roman[1] in _NUMBERS and (counted or (not roman[2] and len(word) > 1)):
        return _NUMBERS[roman[1]] + roman[2]
    return _NUMBERS.get(word, re.sub(r"^(\d+)(?:st|nd|rd|th)$", r"\1", word)) if not roman else word


def split_denials(first: str, second: str) -> tuple[str, str]:
    """Two texts in which words with a denying prefix are split where only the other text has the rest.

    "noncontrast" and "atypical" deny "contrast" and "typical"; beside "specific changes" alone "nonspecific" stays.
    """
    joined = [re.sub(r"\bnon ([a-z]{5,})\b", r"non\1", text) for text in (first, second)]
    words = [set(text.split()) for text in joined]
    return _split(joined[0], words[1] - words[0]), _split(joined[1], words[0] - words[1])


def _split(text: str, denied: set[str]) -> str:
    return DENYING.sub(lambda found: f"no {found[1]}" if found[1] in denied else found[0], text)


@functools.lru_cache(maxsize=20_000)
def named_values(words: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Values that words name, by axis; levels of the spine and words that differ by a prefix are axes too."""
    found: dict[str, set[str]] = {}
    for word, after in zip(words, (*words[1:], ""), strict=False):
        for name in (word, f"{word}_{after}"):
            for axis, value in _named_by(name):
                found.setdefault(axis, set()).add(value)
    return {axis: frozenset(values) for axis, values in found.items()}


def _named_by(name: str) -> list[tuple[str, str]]:
    """Axes and values of one word, or of two joined by "_": by the table, by its parts, by its digits."""
    pairs = list(_NAMED.get(name) or _NAMED.get(_SUFFIX.sub("", name), []))
    if prefixed := _PREFIX.fullmatch(name):
        pairs.append((prefixed[2], prefixed[1]))
    if compound := _COMPOUND.fullmatch(name):
        pairs += [*_NAMED.get(f"{compound[1]}ior", ()), *_NAMED.get(compound[2], ())]
    if code := _CODE.fullmatch(name):
        pairs.append(("level" if _LEVEL.fullmatch(name) else code[1] or "code", name))
    return pairs


def exclude(prediction: tuple[str, ...], gold: tuple[str, ...]) -> bool:
    """Return whether one answer is negated and the other is not, or they name different values of an axis."""
    if NEGATIONS.isdisjoint(prediction) != NEGATIONS.isdisjoint(gold):
        return True
    named, wanted = named_values(prediction), named_values(gold)
    return any(values != wanted.get(axis, values) for axis, values in named.items())
