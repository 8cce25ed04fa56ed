"""Answer normalisation and scores: values by hand from the definitions, and beside rouge-score on many pairs."""

from __future__ import annotations

import random

import pytest

from automedbench.metrics.answers import (
    MAX_LABEL,
    compare,
    exact_match,
    is_number,
    is_yes_no,
    normalise,
    normalise_pair,
    parse_label,
    token_f1,
    yes_no,
)
from automedbench.tracks.vqa import score as answers_twin

# written → compared (by hand from the normaliser's eight rules)
NORMALISED = {
    "": "",
    " \t\n": "",
    "...": "",
    "YES!!": "yes",
    "Negative.": "no",
    "not present": "not present",
    "Œdème": "œdeme",  # accents go, ligatures that are letters stay
    "Ｌｕｎｇ": "lung",
    "ﬁssure": "fissure",
    "x–ray": "x ray",
    "X-Ray": "x ray",
    "Xray of chest": "x ray of chest",
    "Crohn’s disease": "crohns disease",
    "“left”": "left",
    "left/right": "left right",
    "3.5 cm": "3.5 cm",
    "35 cm": "35 cm",
    "3,5": "3,5",
    "1,000": "1000",
    "1,234,567.5": "1234567.5",
    "12,34": "12,34",  # no thousands
    "0,125": "0,125",
    "cm.": "cm",
    "-5 HU": "-5 hu",
    "−5 HU": "-5 hu",
    "(-5)": "-5",
    "5-10": "5 10",
    "T2-weighted": "t2 weighted",
    "T1weighted image": "t1 weighted image",
    "CT scan": "ct",
    "MRI-scan": "mri",
    "magnetic resonance imaging": "mri",
    "two masses": "2 masses",
    "thirteen": "thirteen",
    "a single mass": "1 mass",
    "the the liver": "liver",
    "lobe of the liver": "lobe of the liver",
    "A": "a",
    "the": "the",
    "IVC": "inferior vena cava",
    "L": "l",
    "PE": "pe",
    "none": "none",
    "a\u200bb": "ab",
    "\ud800x": "\ud800x",
}


@pytest.mark.parametrize(("written", "compared"), NORMALISED.items(), ids=map(ascii, NORMALISED))
def test_normalise(written: str, compared: str) -> None:
    assert normalise(written) == compared


PAIRS = {
    "side with its letter": ("R lung", "right lung", "right lung", "right lung"),
    "the gold may be the short one": ("right lung", "r lung", "right lung", "right lung"),
    "letter without the long form": ("R", "left", "r", "left"),
    "abbreviation and its long form": ("PE", "Pulmonary embolism", "pulmonary embolism", "pulmonary embolism"),
    "both short": ("LA", "la", "la", "la"),
    "part of a word is no long form": ("r", "rightmost", "r", "rightmost"),
    "none where a count is asked": ("None", "0", "0", "0"),
    "none where the count is a word": ("none", "two", "0", "2"),
    "none where it is no count": ("none", "none of these", "none", "none of these"),
}


@pytest.mark.parametrize(("prediction", "gold", "predicted", "expected"), PAIRS.values(), ids=PAIRS.keys())
def test_pairs(prediction: str, gold: str, predicted: str, expected: str) -> None:
    assert normalise_pair(prediction, gold) == (predicted, expected)


def test_exact_match() -> None:
    """Two empty texts don't match: nothing was said."""
    assert [exact_match("", ""), exact_match("a", ""), exact_match("a", "b"), exact_match("a", "a")] == [0, 0, 0, 1]


F1 = {
    "both empty": ("", "", 0.0),
    "one empty": ("liver", "", 0.0),
    "nothing shared": ("liver", "spleen", 0.0),
    "half of one": ("lung", "left lung", 2 / 3),  # P 1, R 1/2
    "order does not matter": ("lobe of the right liver", "right liver lobe", 3 / 4),  # P 3/5, R 1
    "a word counts as often as it stands there": ("heart", "heart heart", 2 / 3),
}


@pytest.mark.parametrize(("prediction", "gold", "expected"), F1.values(), ids=F1.keys())
def test_token_f1(prediction: str, gold: str, expected: float) -> None:
    assert token_f1(prediction.split(), gold.split()) == pytest.approx(expected, abs=1e-12)


SCORES = {
    "empty": ("", "liver", 0.0),
    "article": ("the liver", "liver", 1.0),
    "negation turns it round": ("no pneumothorax", "pneumothorax", 0.0),
    "both negated": ("no mass", "no masses", 0.5),
    "yes with a sentence": ("yes, the wall is thick", "Yes", 1.0),
    "no with a sentence": ("No evidence of tumor", "no", 1.0),
    "no by synonym": ("absent", "no", 1.0),
    "no that says present": ("no, not present", "no", 1.0),
    "yes and no": ("yes and no", "yes", 0.0),
    "both synonyms": ("present or absent", "yes", 0.0),
    "y/n": ("y/n", "yes", 0.0),
    "later in the sentence": ("there is no tumor", "no", 0.0),
    "neither": ("possibly", "yes", 0.0),
    "yes or no gets no overlap": ("no yes", "yes", 0.0),
    "number word": ("Three", "3", 1.0),
    "point is no punctuation": ("35", "3.5", 0.0),
    "wrong side": ("left lung", "right lung", 0.0),
    "wrong side in a sentence": ("opacity in the left lower lobe", "right lower lobe", 0.0),
    "right side": ("the left lung", "left lung", 1.0),
    "both sides for one": ("both lungs", "left lung", 0.0),
    "side by its letter": ("R lung", "left lung", 0.0),
    "side that is not asked": ("left lung", "lung", 2 / 3),
    "same length in other units": ("35 mm", "3.5 cm", 1.0),
    "one unit for a product": ("20 x 30 mm", "2 x 3 cm", 1.0),
    "one unit for a range": ("20-30 mm", "2-3 cm", 1.0),
    "a unit behind another thing": ("2 masses of 30 mm", "2 masses of 3 cm", 1.0),
    "unit without a blank": ("3.5cm", "3.5 cm", 1.0),
    "unit spelt out": ("2 centimetres", "20 mm", 1.0),
    "wrong number, same unit": ("3.5 cm", "35 cm", 0.0),
    "unit alone": ("cm", "35 cm", 0.0),
    "zeros behind the point": ("2.0", "2", 1.0),
    "another count": ("two masses", "3 masses", 0.0),
    "count left out": ("masses", "3 masses", 2 / 3),
    "modality by its short form": ("MR", "MRI", 1.0),
    "modality spelt out": ("magnetic resonance imaging", "MR", 1.0),
    "radiograph": ("CXR", "chest x-ray", 1.0),
    "not there": ("not present", "no", 1.0),
    "none": ("None", "no", 1.0),
    "not there, but": ("not seen, yes", "no", 0.0),
}


@pytest.mark.parametrize(("prediction", "gold", "expected"), SCORES.values(), ids=SCORES.keys())
def test_score(prediction: str, gold: str, expected: float) -> None:
    assert compare(prediction, gold).score == pytest.approx(expected, abs=1e-12)
    assert answers_twin.answer_score(prediction, gold) == pytest.approx(expected, abs=1e-12)


def test_twin_agrees() -> None:
    """rouge-score on 2 000 random pairs of short answers, a third of them longer ones."""
    words = ["left", "right", "lung", "the", "a", "no", "not", "yes", "2", "two", "R", "L", "mass", "masses,", "PE"]
    words += ["both", "bilateral", "3.5", "cm", "35", "mm", "MR", "mri", "seen", "none"]
    draw = random.Random(7)
    for _ in range(2000):
        one, other = (" ".join(draw.choices(words, k=draw.randint(0, 5))) for _ in range(2))
        assert compare(one, other).score == pytest.approx(answers_twin.answer_score(one, other), abs=1e-12)


def test_kinds_of_gold() -> None:
    assert [is_yes_no(text) for text in ("Yes", "no.", "Present", "no mass", "none", "")] == [True] * 3 + [False] * 3
    assert [is_number(text) for text in ("3", "Three", "3.5", "-2", "3 cm", "none", "")] == [True] * 4 + [False] * 3
    assert yes_no("") is None


# gold → answers that are right (1), and that exclude it (0): other words for one thing, and the opposite on one axis.
# Kinds from public bug reports of answer scorers: places, levels, sequences, projections, ordinals, negations. Wording
# of radiology reports, judged before it was scored.
OPPOSITES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "right upper lobe": (("right superior lobe", "upper lobe, right"), ("right lower lobe", "right middle lobe")),
    "posterior wall": (("dorsal wall",), ("anterior wall", "ventral wall")),
    "IVC": (("inferior vena cava",), ("SVC", "superior vena cava")),
    "left lung": (("Lt lung",), ("Rt lung", "B/L lung", "left and right lung")),
    "right upper quadrant": (("RUQ",), ("LUQ", "RLQ")),
    "anterolateral wall": ((), ("posterolateral wall", "anteromedial wall")),
    "displaced anteriorly": ((), ("displaced posteriorly",)),
    "leftward shift": ((), ("rightward shift",)),
    "above the diaphragm": ((), ("below the diaphragm",)),
    "cervical spine": ((), ("lumbar spine",)),
    "left atrium": ((), ("left ventricle",)),
    "lateral meniscus": ((), ("medial meniscus", "both menisci medial and lateral")),
    "proximal tibia": ((), ("distal tibia",)),
    "L4-L5": (("L4/5", "L4-5", "L4L5"), ("L5-S1", "L3-L4", "L4")),
    "T1 weighted": (("T1-weighted", "T1W", "T1-w", "T1WI"), ("T2 weighted", "FLAIR weighted")),
    "FLAIR": (("T2 FLAIR", "fluid-attenuated inversion recovery"), ("T1",)),
    "T1 pre-contrast": ((), ("T1 post-contrast",)),
    "MR angiography": (("MRA",), ("CT angiography", "CTA")),
    "CT abdomen": ((), ("US abdomen", "MR abdomen")),
    "PA view": (("postero-anterior view", "P-A view"), ("AP view", "A-P view", "lateral view")),
    "frontal view": ((), ("lateral view",)),
    "supine film": ((), ("erect film", "prone film")),
    "axial plane": (("transverse plane",), ("coronal plane", "sagittal plane")),
    "fourth ventricle": (("4th ventricle", "IV ventricle"), ("third ventricle", "3rd ventricle")),
    "grade V": (("grade 5", "Grade five"), ("grade IV", "grade 4")),
    "stage IIIA": (("stage 3A",), ("stage IIIB", "stage IIA")),
    "Bosniak I": (("Bosniak 1",), ("Bosniak II",)),
    "T2 N1 M0": ((), ("T2 N0 M0",)),
    "15 mm": (("fifteen mm", "1.5 cm"), ("15 um", "15 cm")),
    "0.5 cm": ((".5 cm",), ("5 cm",)),
    "2 weeks": (("two weeks",), ("2 months",)),
    "bilateral": (
        ("both", "both sides", "left and right", "bilaterally", "B/L", "R/L", "L and R", "left, right", "bi-lateral"),
        ("left", "right", "unilateral"),
    ),
    "both lungs": (("bilateral lungs", "left and right lungs"), ("left lung",)),
    "CT with contrast": ((), ("non contrast CT", "CT without contrast", "noncontrast CT")),
    "CT without contrast": (("non-contrast CT", "no contrast CT"), ("CT with contrast",)),
    "pneumothorax": (
        (),
        tuple(
            f"{before}pneumothorax{behind}"
            for before in ("absence of ", "free of ", "free from ", "neg for ", "nothing to suggest ", "zero ", "w/o ")
            for behind in ("", " seen")
        ),
    ),
    "pneumonia": (
        (),
        ("pneumonia excluded", "pneumonia no longer seen", "pneumonia has cleared", "pneumonia unlikely"),
    ),
    "well defined margins": ((), ("ill-defined margins", "poorly defined margins")),
    "mild cardiomegaly": ((), ("severe cardiomegaly",)),
    "partial tear": ((), ("complete tear",)),
    "single lesion": ((), ("multiple lesions",)),
    "subdural hematoma": ((), ("epidural hematoma",)),
    "hypo-dense lesion": ((), ("hyper-dense lesion",)),
    "normal lungs": ((), ("abnormal lungs",)),
    "hypodense lesion": ((), ("hyperdense lesion",)),
    "renal vein": ((), ("renal artery",)),
    "no": (
        ("absent", "absence of a mass", "none", "not identified", "no longer present", "No definite abnormality"),
        ("N/A", "No idea", "not sure", "no information available", "No, I cannot determine this", "not absent"),
    ),
    "absent": (
        ("No question of malignancy", "No image evidence of a mass"),
        ("No clear answer", "No image provided", "No diagnosis can be made", "No conclusion can be drawn"),
    ),
}


def test_opposites() -> None:
    wrong = [
        (answer, gold)
        for gold, (right, excluded) in OPPOSITES.items()
        for expected, answers in ((1.0, (gold, *right)), (0.0, excluded))
        for answer in answers
        if not (compare(answer, gold).score == expected == pytest.approx(answers_twin.answer_score(answer, gold)))
    ]
    assert wrong == []


def test_what_is_no_opposite() -> None:
    """A part of the answer, and a word that only looks like a denial, keep the words that they share (F1 by hand)."""
    kept = {
        ("upper lobe", "right upper lobe"): 4 / 5,
        ("nonspecific changes", "specific findings"): 0,
        ("nonspecific changes", "changes"): 2 / 3,
        ("edema and enhancing tumor", "edema, enhancing tumor and non-enhancing tumor"): 4 * 2 / (4 + 6),
        ("ventricle", "4th ventricle"): 2 / 3,
    }
    assert {pair: compare(*pair).score for pair in kept} == pytest.approx(kept)


def test_site_score_takes_words_alone() -> None:
    """The public site's definition: an opposite earns 2·2/(3 + 3) of its words, and "N/A" begins with an n."""
    pairs = {("right lower lobe", "right upper lobe"): 2 / 3, ("N/A", "no"): 1, ("no", "no"): 1, ("yes", "no"): 0}
    assert {pair: compare(*pair).site_score for pair in pairs} == pytest.approx(pairs)


LABELS = {
    "empty": ("", "ABCD", None),
    "letter": ("B", "ABCD", "B"),
    "lower case": (" c ", "ABCD", "C"),
    "brackets": ("(D).", "ABCD", "D"),
    "bold": ("**A**", "ABCD", "A"),
    "word before": ("Final answer: B", "ABCD", "B"),
    "full width": ("Ｂ", "ABCD", "B"),
    "not an option of this question": ("E", "ABCD", None),
    "many options": ("I", "ABCDEFGHI", "I"),
    "article": ("A patient with C", "ABCD", None),
    "two letters": ("Option A or B", "ABCD", None),
    "a sentence": ("The answer is B", "ABCD", None),
    "too long": (" " * MAX_LABEL + "B", "ABCD", None),
}


@pytest.mark.parametrize(("text", "letters", "expected"), LABELS.values(), ids=LABELS.keys())
def test_label(text: str, letters: str, expected: str | None) -> None:
    assert parse_label(text, tuple(letters)) == expected
