"""Word tables of the answer normaliser ``amb-1``. Any change here changes scores: name the normaliser anew.

Origin: the AutoMedBench VQA track as published (yes/no words, number words, abbreviations), with its ambiguous
abbreviations split off; the two imaging synonyms are ours.
"""

from __future__ import annotations

YES = frozenset({"yes", "y", "yeah", "yep", "true", "present", "positive"})
NO = frozenset({"no", "n", "nope", "false", "absent", "negative"})
OPPOSITES = {
    "yes": {"no", "nope"},
    "yeah": {"no", "nope"},
    "yep": {"no", "nope"},
    "y": {"no", "nope", "n"},
    "true": {"no", "nope", "false"},
    "present": {"no", "nope", "absent"},
    "positive": {"no", "nope", "negative"},
    "no": {"yes", "yeah", "yep"},
    "nope": {"yes", "yeah", "yep"},
    "n": {"yes", "yeah", "yep", "y"},
    "false": {"yes", "yeah", "yep", "true"},
    "absent": {"yes", "yeah", "yep", "present"},
    "negative": {"yes", "yeah", "yep", "positive"},
}
"""First word of an answer → words that take it back. "No, not present" is a no, "present or absent" is neither."""

NUMBERS = {
    "zero": "0",
    "one": "1",
    "single": "1",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
    "eleven": "11",
    "twelve": "12",
}

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
}
AMBIGUOUS = {
    "r": "right",
    "l": "left",
    "ra": "right atrium",
    "la": "left atrium",
    "pe": "pulmonary embolism",
    "pca": "posterior cerebral artery",
}
"""Abbreviations with other meanings (an option letter, an article, posterior communicating artery): spelt out only
where the other answer has the long form."""

VARIANTS = (
    ("magnetic resonance imaging", "mri"),
    ("computed tomography", "ct"),
    ("xray", "x ray"),
    ("t1weighted", "t1 weighted"),
    ("t2weighted", "t2 weighted"),
    ("ct scan", "ct"),
    ("mri scan", "mri"),
)
"""Spellings of one thing → the one that is compared; applied in this order to whole words."""

ARTICLES = frozenset({"a", "an", "the"})
NEGATIONS = frozenset({"no", "not", "without", "never", "neither", "nor", "cannot", "absent", "negative"})
"""Words that turn a statement round: an answer with one never earns overlap with an answer without."""

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\ufe58"
SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2032\u02bc"
DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"
