"""Short free-text answers against a gold answer: normalisation, exact match, token F1, yes/no, option letters.

Strings in, numbers out; nothing is read or downloaded. The definitions are those of SQuAD (Rajpurkar et al. 2016:
exact match, token F1 over multisets) behind a normaliser made for medical answers, ``amb-3``. It differs from deleting
punctuation in that 3.5 stays apart from 35 and ``left/right`` stays two words.

Its word tables are from the AutoMedBench VQA track as published (yes/no words, number words, abbreviations), with its
ambiguous abbreviations split off. Units, the names of modalities and the opposites (``opposites``) are ours, each with
its source. Any change to them changes scores: name the normaliser anew. ``amb-2`` compared sides and numbers, which
``amb-1`` took for words; ``amb-3`` compares all opposites and ordinals, and knows answers that say nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from automedbench.metrics.opposites import exclude, says_nothing, split_denials, unify_words

YES = frozenset({"yes", "y", "yeah", "yep", "true", "present", "positive"})
NO = frozenset({"no", "n", "nope", "false", "absent", "negative"})
_PAIRS = {"y": "n", "true": "false", "present": "absent", "positive": "negative"}
OPPOSITES = {word: {"no", "nope", _PAIRS.get(word, "no")} for word in YES} | {
    word: {"yes", "yeah", "yep", *(yes for yes, no in _PAIRS.items() if no == word)} for word in NO
}
"""First word of an answer → words that take it back. "No, not present" is a no, "present or absent" is neither."""

_COUNTS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {"single": "1"} | {word: str(number) for number, word in enumerate(_COUNTS.split())}

ABBREVIATIONS = {
    "bil": "bilateral",
    "bilat": "bilateral",
    "ivc": "inferior vena cava",
    "svc": "superior vena cava",
    "lv": "left ventricle",
    "rv": "right ventricle",
    "lad": "left anterior descending",
    "mca": "middle cerebral artery",
    "ica": "internal carotid artery",
    "aca": "anterior cerebral artery",
    "dvt": "deep vein thrombosis",
    "chf": "congestive heart failure",
    "cad": "coronary artery disease",
    "gi": "gastrointestinal",
    "gu": "genitourinary",
    "cns": "central nervous system",
    "cn": "cranial nerve",
}
AMBIGUOUS = {
    "r": "right",
    "l": "left",
    "rt": "right",
    "lt": "left",
    "ra": "right atrium",
    "la": "left atrium",
    "pe": "pulmonary embolism",
    "pca": "posterior cerebral artery",
    "mr": "mri",
    "us": "ultrasound",
}
"""Abbreviations with other meanings (an option letter, an article, posterior communicating artery, mitral
regurgitation): spelt out only where the other answer has the long form."""

VARIANTS = {
    "mri": r"(?:magnetic resonance(?: imaging)?|mr imaging|mri)(?: scan| imaging)?",
    "ct": r"(?:computed tomography|cat scan|ct)(?: scan)?",
    "pet": "positron emission tomography",
    "ultrasound": "ultrasonography|sonography",
    "chest x ray": "cxr",
    "x ray": "xray",
    r"t\1 weighted": r"t([12]) ?w(?:i|eighted)?",
    "mr angiography": "mra",
    "ct angiography": "cta",
    "ap": "a p",
    "pa": "p a",
}
"""What is compared → pattern of its other spellings; applied in this order to whole words. Modalities: entry terms of
the headings of MeSH (Magnetic Resonance Imaging; Tomography, X-Ray Computed; Positron-Emission Tomography;
Ultrasonography); CXR is the usual short form of a chest radiograph."""

UNITS = {
    **dict.fromkeys(
        ("um", "\u03bcm", "micron", "microns", "micrometer", "micrometers", "micrometre"), ("mm", Decimal("0.001"))
    ),
    **dict.fromkeys(("mm", "millimeter", "millimeters", "millimetre", "millimetres"), ("mm", Decimal(1))),
    **dict.fromkeys(("cm", "centimeter", "centimeters", "centimetre", "centimetres"), ("mm", Decimal(10))),
    **dict.fromkeys(("ml", "cc", "milliliter", "milliliters", "millilitre", "millilitres"), ("ml", Decimal(1))),
    **dict.fromkeys(("mg", "milligram", "milligrams"), ("mg", Decimal(1))),
    **dict.fromkeys(("kg", "kilogram", "kilograms"), ("mg", Decimal(1_000_000))),
}
"""Units → the one that values are compared in, and how many of it they are (SI Brochure, 9th edition; a cubic
centimetre is a millilitre). Units of one letter are left out: they are other things as well."""
JOINS = frozenset({"x", "by", "to"})
"""Words between values that share the unit behind the last of them."""

ARTICLES = frozenset({"a", "an", "the"})
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\ufe58"
SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2032\u02bc"
DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"


NORMALISER: Literal["amb-3"] = "amb-3"
MAX_LABEL = 80
"""Longest option label that is looked at, in characters."""

_TYPOGRAPHIC = str.maketrans(
    dict.fromkeys(DASHES, "-") | dict.fromkeys(SINGLE_QUOTES, "'") | dict.fromkeys(DOUBLE_QUOTES, '"')
)
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)", re.ASCII)
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*", re.ASCII)
_VALUE = re.compile(r"-?\d{1,30}(?:[.,]\d{1,30})?", re.ASCII)
_WITH_UNIT = re.compile(rf"(?<!\S)({_VALUE.pattern})({'|'.join(UNITS)})(?!\S)", re.ASCII)
NOT_THERE = re.compile(
    r"(?:not (?:present|seen|visible|identified|detected|evident|demonstrated|apparent|noted|found)|none)\b"
)
_LABEL = re.compile(r"\W*(?:(?:final )?answer|option|choice)?\W*([A-Z])\W*", re.IGNORECASE)


@dataclass(frozen=True)
class Comparison:
    """One prediction against its gold answer; all values in [0, 1]."""

    exact_match: float
    token_f1: float
    score: float
    """Strict yes/no where the gold is one, else the larger of the two."""
    site_score: float
    """The public site's: the same of the words alone, so that an opposite earns for the words that it shares."""


# --- normalisation --------------------------------------------------------------------------------------------


def normalise(answer: str, *, against: str = "", count: bool = False) -> str:
    """One answer as it is compared: lower case, words and numbers, single spaces; empty when nothing is left.

    ``against`` is the other answer of the pair, as written: the ambiguous abbreviations (r, l, ra, la, pe, pca) are
    spelt out only where it has the long form. ``count``: the gold is a number, so that "none" means 0.
    """
    words = _words(answer, count=count)
    if len(words) == 1 and words[0] in YES | NO:
        return "yes" if words[0] in YES else "no"
    other = f" {_one_spelling(' '.join(_words(against)))} "
    expanded = _one_spelling(" ".join(_expand(word, other) for word in words))
    return " ".join(_without_articles(expanded.split()))


def _one_spelling(text: str) -> str:
    for compared, spellings in VARIANTS.items():
        text = re.sub(rf"\b(?:{spellings})\b", compared, text)
    return text


def _measured(text: str) -> str:
    """A normalised text with values in the unit that is compared: 3.5 cm, 3.5cm and 35 mm, 2 x 3 cm and 20 x 30 mm."""
    words = _WITH_UNIT.sub(r"\1 \2", text).split()
    times = Decimal(1)  # of the unit behind; a unit holds for all values of a range or product before it
    for place in reversed(range(len(words))):
        word = words[place]
        if word in UNITS:
            words[place], times = UNITS[word]
        elif _VALUE.fullmatch(word):
            value = Decimal(word.replace(",", ".")) * times
            words[place] = f"{value.normalize() + 0:f}"  # neither zeros behind the point nor -0
        elif word not in JOINS:
            times = Decimal(1)
    return " ".join(words)


def normalise_pair(prediction: str, gold: str) -> tuple[str, str]:
    """Prediction and gold, each normalised with a view to the other, in one unit and in one word for one thing."""
    predicted, expected = (_measured(unify_words(text)) for text in _normalise_both(prediction, gold))
    return split_denials(predicted, expected)


def _normalise_both(prediction: str, gold: str) -> tuple[str, str]:
    """Prediction and gold, each with a view to the other."""
    count = is_number(gold)
    return normalise(prediction, against=gold, count=count), normalise(gold, against=prediction, count=count)


def is_yes_no(gold: str) -> bool:
    """Return whether a gold answer is a plain yes or no (or a synonym: present, absent, true, …)."""
    return normalise(gold) in ("yes", "no")


def is_number(gold: str) -> bool:
    """Return whether a gold answer is a number, in digits or as a word."""
    words = _words(gold)
    return len(words) == 1 and _NUMBER.fullmatch(words[0]) is not None


def _words(text: str, *, count: bool = False) -> list[str]:
    """Words of a text with number words as digits, without any expansion."""
    words = _plain(text).split()
    numbers = NUMBERS | {"none": "0"} if count else NUMBERS
    return [numbers.get(word, word) for word in words]


def _plain(text: str) -> str:
    """Compatible characters unified, accents and case dropped, punctuation gone but for the signs inside numbers."""
    text = unicodedata.normalize("NFKC", text.translate(_TYPOGRAPHIC)).translate(_TYPOGRAPHIC)
    text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    text = re.sub(r"(?<![\w.,])\.(?=\d)", "0.", text)
    text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text.casefold())
    return "".join(_kept(text, place) for place in range(len(text)))


def _kept(text: str, place: int) -> str:
    """Replacement of one character: itself, a space, or nothing."""
    char = text[place]
    kind = unicodedata.category(char)
    if kind[0] not in "PSCZ" or kind == "Cs":
        return char
    if char == "'" or kind == "Cf":
        return ""
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    inside = char in ".," and before.isdecimal() and after.isdecimal()
    minus = char == "-" and after.isdecimal() and not (before.isalnum() or before in ("-", "."))
    return char if inside or minus else " "


def _expand(word: str, other: str) -> str:
    long = AMBIGUOUS.get(word)
    if long is not None:
        return long if f" {long} " in other else word
    return ABBREVIATIONS.get(word, word)


def _without_articles(words: list[str]) -> list[str]:
    """Without leading articles, unless an article is all there is (the answer may be the letter a)."""
    first = next((place for place, word in enumerate(words) if word not in ARTICLES), len(words) - 1)
    return words[max(first, 0) :]


# --- scores ---------------------------------------------------------------------------------------------------


def exact_match(prediction: str, gold: str) -> float:
    """1 when both normalised texts are the same and not empty, else 0."""
    return float(prediction == gold != "")


def token_f1(prediction: Sequence[str], gold: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over the multisets of words; 0 when either side is empty."""
    overlap = sum((Counter(prediction) & Counter(gold)).values())
    return 2 * overlap / (len(prediction) + len(gold)) if overlap else 0.0


def yes_no(prediction: str) -> str | None:
    """Yes or no when a normalised answer begins with such a word and does not take it back; else None.

    "Yes, the wall is thick" is a yes, "not seen" is a no; "yes and no", "there is no tumour" and "possibly" are
    neither.
    """
    words = NOT_THERE.sub("no", prediction, count=1).split() if NOT_THERE.match(prediction) else prediction.split()
    if not words or words[0] not in OPPOSITES or OPPOSITES[words[0]] & set(words[1:]):
        return None
    return "yes" if words[0] in YES else "no"


def numbers(words: Iterable[str]) -> Counter[str]:
    """The numbers among normalised words, in the units that are compared."""
    return Counter(word for word in words if _VALUE.fullmatch(word))


def contradicts(prediction: Sequence[str], gold: Sequence[str]) -> bool:
    """Return whether two normalised answers exclude each other, however many words they share.

    One is negated and the other is not ("no pneumothorax"); the prediction names the opposite (side, place, level,
    sequence, ...) or other numbers; or the gold is nothing but a number with its unit, and the prediction has none.
    """
    if exclude(tuple(prediction), tuple(gold)):
        return True
    predicted, expected = numbers(prediction), numbers(gold)
    is_value = bool(expected) and all(word in expected or word in UNITS for word in gold)
    return bool(expected) and predicted != expected and (bool(predicted) or is_value)


def is_no_answer(prediction: str) -> bool:
    """Return whether a text says that it has no answer: "N/A", "no idea", "cannot be determined"."""
    return says_nothing(" ".join(_plain(prediction).split()))


def compare(prediction: str, gold: str) -> Comparison:
    """All values of one answer, both texts as written.

    A yes/no gold is scored strictly by the answer's first word; any other gold by max(exact match, token F1), where
    an answer that contradicts the gold shares nothing with it. One that says nothing earns nothing.
    """
    predicted, expected = normalise_pair(prediction, gold)
    words, gold_words = predicted.split(), expected.split()
    matched = exact_match(predicted, expected)
    silent = not matched and is_no_answer(prediction)
    overlap = 0.0 if silent or contradicts(words, gold_words) else token_f1(words, gold_words)
    strict = expected in ("yes", "no")
    score = float(not silent and yes_no(predicted) == expected) if strict else max(matched, overlap)
    return Comparison(matched, overlap, score, score if strict and not silent else _site_score(prediction, gold))


def _site_score(prediction: str, gold: str) -> float:
    """Max of exact match and token F1; strict yes/no where the gold is one."""
    predicted, expected = _normalise_both(prediction, gold)
    if expected in ("yes", "no"):
        return float(yes_no(predicted) == expected)
    return max(exact_match(predicted, expected), token_f1(predicted.split(), expected.split()))


# --- option letters -------------------------------------------------------------------------------------------


def parse_label(text: str, letters: Sequence[str]) -> str | None:
    """The one option letter that a label field holds, with brackets, dots or "answer"/"option" around it; else None.

    ``letters`` are those of the question's own options. Sentences and several letters are no label: "A patient with
    C" does not choose A.
    """
    clean = unicodedata.normalize("NFKC", text[:MAX_LABEL]).strip()
    found = _LABEL.fullmatch(clean) if len(text) <= MAX_LABEL else None
    letter = found[1].upper() if found else None
    return letter if letter is not None and letter in letters else None
