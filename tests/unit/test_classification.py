"""The classification track: staging, the format check on hostile files, the specification's worked cases."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys import classification as toy
from toys._bench import collected, inputs, manifest_of

from automedbench.base.cards import OutputFile, Target, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import sha256_file, to_json, write_bytes
from automedbench.base.records import CaseEntry, CaseSubmission, Prior, RunId, SubmissionRecord
from automedbench.scoring.run import s4
from automedbench.steps.inside.grade_submission import grade
from automedbench.tracks import ScoringInputs, TrackScore, get_track, track_settings
from automedbench.tracks.classification import TRACK as classification

RUN = RunId(agent="toy", task="toy", tier="lite", repeat=1)


def make_card(*classes: str, **settings: Any) -> TaskCard:
    """The toy's card with other classes and metric settings."""
    targets = [Target(id=number, name=name) for number, name in enumerate(classes or ("a", "b"))]
    metric = toy.CARD.metric.model_copy(update={"settings": settings})
    return toy.CARD.model_copy(update={"targets": targets, "metric": metric})


class Toy:
    """Cases c1, c2, … with the given truth and a submission that tests fill."""

    def __init__(self, folder: Path, truth: list[str], card: TaskCard) -> None:
        self.card, self.private, self.submission = card, folder / "private", folder / "submission"
        cases = [f"c{number}" for number in range(1, len(truth) + 1)]
        self.manifest = manifest_of("classification", {case: {} for case in cases})
        for case, label in zip(cases, truth, strict=True):
            write_bytes(self.private / case / "label.json", json.dumps({"label": label}).encode())

    def table(self, *rows: str, header: str = "patient_id,label") -> None:
        """``predictions.csv`` with these rows."""
        self.raw_table("\n".join([header, *rows, ""]).encode())

    def raw_table(self, data: bytes) -> None:
        write_bytes(self.submission / "agents_outputs/predictions.csv", data)

    def file(self, case: str, content: Any) -> None:
        """``prediction.json`` of one case."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        write_bytes(self.submission / "agents_outputs" / case / "prediction.json", data)

    def check(self) -> list[CaseSubmission]:
        return classification.check(self.card, self.manifest, self.submission)

    def record(self) -> SubmissionRecord:
        return collected(self.card, self.manifest, self.submission)

    def inputs(self) -> ScoringInputs:
        return inputs(self.card, self.manifest, self.submission, self.private)

    def score(self) -> TrackScore:
        return classification.score(self.inputs())


@pytest.fixture
def pair(tmp_path: Path) -> Toy:
    """One case of each of two classes."""
    return Toy(tmp_path, ["a", "b"], make_card())


def codes(case: CaseSubmission) -> list[str]:
    return [problem.code for problem in case.problems]


def test_interface() -> None:
    """The track is found by name; its settings have defaults and refuse nonsense."""
    assert get_track("classification") is classification
    assert track_settings(make_card()) == classification.settings(score_metric="accuracy")
    with pytest.raises(ConfigError, match="score_metric"):
        track_settings(make_card(score_metric="auc"))


# --- worked cases, by hand (docs/specification.md, 10.6) -------------------------------------

WORKED = [
    # id, truth, classes, rows, files, accuracy, balanced accuracy, S4 flag, completion
    ("missing is wrong", "AAAB", "AB", ["c1,A", "c2,A", "c3,A"], {}, 0.75, 0.5, True, 0.75),
    ("constant", "AAAB", "AB", ["c1,A", "c2,A", "c3,A", "c4,A"], {}, 0.75, 0.5, True, 1),
    ("class without truth", "AABC", "ABCD", ["c1,A", "c2,B", "c3,B", "c4,C"], {}, 0.75, 2.5 / 3, True, 1),
    ("blanks and capitals", "AB", "AB", ["c1,a ", "c2,B"], {}, 1, 1, True, 1),
    ("unknown label", "AB", "AB", ["c1,A", "c2,nv"], {}, 0.5, 0.5, False, 1),
    ("all rows missing", "AB", "AB", [], {}, 0, 0, False, 0),
    ("conflicting rows", "AB", "AB", ["c1,A", "c1,B", "c2,B"], {}, 0.5, 0.5, False, 1),
    ("duplicate rows", "AB", "AB", ["c1,A", "c1,A", "c2,B"], {}, 1, 1, True, 1),
    ("file for an empty label", "AB", "AB", ['c1,""', "c2,B"], {"c1": {"label": "A"}}, 1, 1, True, 1),
    ("always A", "A" * 25 + "B" * 25 + "C" * 25 + "D" * 25, "ABCD",
     [f"c{number},A" for number in range(1, 101)], {}, 0.25, 0.25, True, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("truth", "classes", "rows", "files", "accuracy", "balanced", "flag", "completion"),
    [row[1:] for row in WORKED],
    ids=[row[0] for row in WORKED],
)
def test_worked_cases(
    tmp_path: Path,
    truth: str,
    classes: str,
    rows: list[str],
    files: dict[str, Any],
    accuracy: float,
    balanced: float,
    flag: bool,
    completion: float,
) -> None:
    """Accuracy, balanced accuracy, format and completion of every row; nothing is multiplied by the completion."""
    run = Toy(tmp_path, list(truth.lower()), make_card(*classes.lower()))
    run.table(*rows)
    for case, content in files.items():
        run.file(case, content)
    score, checked = run.score(), run.record()
    assert (score.quality, score.task_score) == (accuracy, accuracy)
    assert score.metrics["balanced_accuracy"] == pytest.approx(balanced, abs=1e-15)
    assert (checked.submitted_valid, checked.completion_rate) == (flag, completion)
    # S4 with the validity of the whole form in the place of the flag.
    assert s4(checked) == 0.5 * completion + 0.5 * flag


# --- format check ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("content", "code"), [row[1:] for row in toy.LOST], ids=[row[0] for row in toy.LOST])
def test_tables_that_cannot_be_read(pair: Toy, content: bytes, code: str) -> None:
    """Every case is malformed; a JSON file still gives a label, which is scored but not valid."""
    pair.raw_table(toy.filled(content, "c1"))
    pair.file("c2", {"label": "b"})
    first, second = pair.check()
    assert (first.status, first.completed, codes(first)) == ("malformed", False, [code])
    assert (second.status, second.completed, codes(second)) == ("malformed", True, [code])
    assert pair.score().quality == 0.5
    assert pair.check()[0].problems[0].message.startswith("predictions.csv ")


def test_too_large_a_table_is_not_read(pair: Toy) -> None:
    """Should the collector ever let one through."""
    pair.raw_table(b"patient_id,label\nc1,a\n" + b" " * toy.MAX_BYTES)
    assert [(case.status, codes(case)) for case in pair.check()] == [("malformed", ["too_large"])] * 2


@pytest.mark.parametrize(
    ("n_unknown", "n_rows", "valid"),
    [
        pytest.param(0, 10, True, id="none"),
        pytest.param(1, 10, True, id="exactly 10 %"),
        pytest.param(2, 19, False, id="10.5 %"),
        pytest.param(3, 3, False, id="all"),
    ],
)
def test_rows_for_no_case(tmp_path: Path, n_unknown: int, n_rows: int, valid: bool) -> None:
    """Up to 10 % of the rows are a remark, made once; more make every case with a label malformed; all are scored."""
    run = Toy(tmp_path, ["a"] * (n_rows - n_unknown) + ["b"], make_card())
    run.table(*[f"x{number},a" for number in range(n_unknown)], *[f"c{n},a" for n in range(1, n_rows - n_unknown + 1)])
    *labelled, last = run.check()
    assert {case.status for case in labelled} == ({"valid" if valid else "malformed"} if labelled else set())
    assert last.status == "missing"
    said = [case.case for case in run.check() if "unknown_id" in codes(case)]
    assert len(said) == (0 if not n_unknown else 1 if valid else len(labelled) + 1)
    assert run.score().metrics["n_correct"] == len(labelled)
    if said:
        message = run.check()[0].problems[-1].message
        assert f"{n_unknown} of {n_rows} rows whose patient_id is no case, the first 'x0'" in message


FILES = [
    # id, rows, JSON of c1, status, completed, codes, score of c1
    ("file only", [], {"label": "a"}, "valid", True, [], 1),
    ("blanks and capitals", [], {"label": " A "}, "valid", True, [], 1),
    ("other keys", [], {"label": "a", "score": 0.3}, "valid", True, [], 1),
    ("table wins, same label", ["c1,A"], {"label": "a"}, "valid", True, [], 1),
    ("table wins, other label", ["c1,a"], {"label": "b"}, "valid", True, ["other_label"], 1),
    ("table wins, though unknown", ["c1,nv"], {"label": "a"}, "malformed", True, ["unknown_label", "other_label"], 0),
    ("table wins, file broken", ["c1,a"], b"{", "valid", True, ["json_invalid"], 1),
    ("conflict in the table", ["c1,a", "c1,b"], {"label": "a"}, "malformed", True, ["conflicting_rows"], 0),
    ("empty label in both", ["c1,"], {"label": " "}, "missing", False, ["empty_label"], 0),
    ("unknown label", [], {"label": "nv"}, "malformed", True, ["unknown_label"], 0),
    ("class number", [], {"label": "0"}, "malformed", True, ["unknown_label"], 0),
    ("no text", [], {"label": 0}, "malformed", False, ["json_invalid"], 0),
]


@pytest.mark.parametrize(
    ("rows", "content", "status", "completed", "expected", "correct"),
    [row[1:] for row in FILES],
    ids=[row[0] for row in FILES],
)
def test_a_file_beside_the_table(
    pair: Toy, rows: list[str], content: Any, status: str, completed: bool, expected: list[str], correct: float
) -> None:
    """The table's label counts; the file's where the table has none."""
    pair.table(*rows, "c2,b")
    pair.file("c1", content)
    first, second = pair.check()
    assert (first.status, first.completed, codes(first)) == (status, completed, expected)
    assert second.status == "valid"
    assert pair.score().cases[0].metrics == {"correct": correct}


def test_files_of_the_record(pair: Toy) -> None:
    """Each case names the files that its label comes from."""
    pair.table("c1,a")
    pair.file("c2", {"label": "b"})
    assert [list(case.files) for case in pair.check()] == [["predictions.csv"], ["c2/prediction.json"]]


def test_names_are_labels_aliases_are_not(tmp_path: Path) -> None:
    """Upstream codes and synonyms are unknown labels (docs/specification.md, 10.6)."""
    targets = [Target(id=0, name="Melanoma", source="mel", aliases=["melanomas"]), Target(id=1, name="b")]
    run = Toy(tmp_path, ["melanoma"] * 3, make_card().model_copy(update={"targets": targets}))
    run.table("c1,mel", "c2,melanomas", "c3,MELANOMA")
    assert [case.status for case in run.check()] == ["malformed", "malformed", "valid"]


@pytest.mark.parametrize(
    "targets",
    [pytest.param([], id="no class"), pytest.param([Target(id=0, name="None"), Target(id=1, name="b")], id="none")],
)
def test_unusable_classes(pair: Toy, targets: list[Target]) -> None:
    card = pair.card.model_copy(update={"targets": targets})
    with pytest.raises(ConfigError, match="targets"):
        classification.check(card, pair.manifest, pair.submission)


@pytest.mark.parametrize("number", [(), (1,), (0, 0), (0, 1, 1)])
def test_outputs_of_the_card(pair: Toy, number: tuple[int, ...]) -> None:
    """One table, and at most one JSON file per case."""
    outputs = [pair.card.outputs[place] for place in number]
    card = pair.card.model_copy(update={"outputs": outputs})
    with pytest.raises(ConfigError, match="outputs: classification needs one csv file"):
        classification.check(card, pair.manifest, pair.submission)


def test_card_without_files(pair: Toy) -> None:
    """A card may allow the table alone."""
    card = pair.card.model_copy(update={"outputs": pair.card.outputs[:1]})
    pair.table("c1,a")
    pair.file("c2", {"label": "b"})
    assert [case.status for case in classification.check(card, pair.manifest, pair.submission)] == ["valid", "missing"]


# --- score ----------------------------------------------------------------------------------------------------


def test_diagnostics(tmp_path: Path) -> None:
    """By hand on five cases: a a b c c, said a b – c c of the classes a b c d."""
    run = Toy(tmp_path, list("aabcc"), make_card(*"abcd"))
    run.table("c1,a", "c2,b", "c4,c", "c5,c")
    score = run.score()
    assert score.metrics == {
        "accuracy": 0.6, "balanced_accuracy": pytest.approx((0.5 + 0 + 1) / 3),
        "macro_f1": pytest.approx((2 / 3 + 0 + 1) / 3), "n_cases": 5, "n_correct": 3, "n_predicted": 4,
        "accuracy_low95": pytest.approx(0.2307, abs=5e-5), "accuracy_high95": pytest.approx(0.8824, abs=5e-5),
        "majority_share": 0.5, "best_permutation_accuracy": 0.6,
    }  # fmt: skip
    assert score.groups["a"] == {
        "n_truth": 2, "n_predictions": 1, "n_correct": 1, "recall": 0.5, "precision": 1, "f1": pytest.approx(2 / 3),
        "predicted_as_a": 1, "predicted_as_b": 1, "predicted_as_c": 0, "predicted_as_d": 0, "predicted_as_none": 0,
    }  # fmt: skip
    assert score.groups["b"]["predicted_as_none"] == 1
    assert (score.groups["d"]["recall"], score.groups["d"]["precision"], score.groups["d"]["f1"]) == (None,) * 3
    assert score.notes == ["No case is of class d; it is left out of the balanced accuracy."]
    assert [(case.status, case.detail["reference"], case.detail["predicted"]) for case in score.cases][1:3] == [
        ("valid", "a", "b"),
        ("missing", "b", None),
    ]
    to_json(score.model_dump(mode="json"))


def test_balanced_accuracy_as_the_score(tmp_path: Path) -> None:
    """The card's choice is the quality; the medal on accuracy is not touched by it."""
    run = Toy(tmp_path, list("aaab"), make_card(score_metric="balanced_accuracy"))
    run.table("c1,a", "c2,a", "c3,a", "c4,a")
    score = run.score()
    assert (score.quality, score.task_score, score.metrics["accuracy"]) == (0.5, 0.5, 0.75)
    assert score.notes[0].startswith("The quality is the balanced accuracy")
    assert score.prior == Prior(answers="a for every case", value=0.5)  # recall 1 and 0
    assert classification.verify(run.inputs())[1] == 0.5
    report = grade(run.inputs(), verify=True)
    assert (report.medal, report.quality) == ("okay", 0.5)


@pytest.mark.parametrize(
    ("said", "note"),
    [
        pytest.param("bcabca", "Below chance, but 1.0000 after the best renaming", id="names turned round"),
        pytest.param("cccccc", "Every prediction is the same class.", id="constant"),
        pytest.param("abcabc", None, id="all right"),
    ],
)
def test_notes(tmp_path: Path, said: str, note: str | None) -> None:
    run = Toy(tmp_path, list("abcabc"), make_card(*"abc"))
    run.table(*[f"c{number},{label}" for number, label in enumerate(said, start=1)])
    notes = run.score().notes
    assert len(notes) == (note is not None)
    assert note is None or notes[0].startswith(note)


# --- what is not the agent's fault ----------------------------------------------------------------------------


def test_strange_truth(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="class 'giraffe' is not in the card"):
        Toy(tmp_path, ["giraffe"], make_card()).score()


# --- staging --------------------------------------------------------------------------------------------------


def card_with(count: int | None = None, **options: Any) -> TaskCard:
    """The toy's card with other sampling."""
    sampling = toy.CARD.staging.sampling.model_copy(update={"count": count, "options": options})
    return toy.CARD.model_copy(update={"staging": toy.CARD.staging.model_copy(update={"sampling": sampling})})


def stage(card: TaskCard, folder: Path, raw: Path | None = None) -> list[CaseEntry]:
    return classification.stage(card, raw or folder / "raw", folder / "public", folder / "private")


def labels(folder: Path) -> list[str]:
    """True labels in case order."""
    with open(folder / "private/ground_truth.csv", newline="") as stream:
        return [row["label"] for row in csv.DictReader(stream)]


def pictures(raw: Path, **counts: int) -> None:
    """Grey pictures, all different, in class folders."""
    for number, (label, count) in enumerate(counts.items()):
        (raw / "Testing" / label).mkdir(parents=True)
        for place in range(count):
            Image.new("L", (4 + place, 4), 20 + 50 * number).save(raw / f"Testing/{label}/Te-{label}_{place:04d}.jpg")


BALANCED = dict.fromkeys(("glioma", "meningioma", "notumor", "pituitary"), 3)


def test_staged_files(tmp_path: Path) -> None:
    """One public picture per case; label, table and split agree and are private."""
    pictures(tmp_path / "raw", **BALANCED)
    entries = stage(card_with(per_class=2), tmp_path)
    split = json.loads((tmp_path / "private/split.json").read_text())
    public = sorted(path.relative_to(tmp_path / "public").as_posix() for path in (tmp_path / "public").rglob("*.*"))
    assert [entry.id for entry in entries] == [f"BTMRI_{number:04d}" for number in range(1, 9)]
    assert public == [f"{entry.id}/image.jpg" for entry in entries]
    assert split["cases_per_class"] == dict.fromkeys(BALANCED, 2)
    assert split["short"] == {}
    for entry, label in zip(entries, labels(tmp_path), strict=True):
        source = tmp_path / "raw/Testing" / split["cases"][entry.id]["source"]
        assert json.loads((tmp_path / "private" / entry.id / "label.json").read_text())["label"] == label
        assert source.parent.name == split["cases"][entry.id]["label"] == label
        assert split["cases"][entry.id]["source_sha256"] == sha256_file(source)
        with Image.open(source) as before, Image.open(tmp_path / "public" / entry.id / "image.jpg") as after:
            assert (after.mode, after.size) == ("RGB", before.size)
        assert entry.geometry == {"width": after.width, "height": after.height}


def test_manifest_does_not_tell_the_label(tmp_path: Path) -> None:
    """Truth files of two cases of one class have different hashes, and all have one size."""
    pictures(tmp_path / "raw", **BALANCED)
    private = [entry.private["label.json"] for entry in stage(card_with(), tmp_path)]
    assert len({entry.sha256 for entry in private}) == 12
    assert len({entry.bytes for entry in private}) == 1


def test_excerpt_is_staged_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fewer images than the card asks for: all are taken, the shortage is written down and said."""
    pictures(tmp_path / "raw", **BALANCED | {"notumor": 5})
    with caplog.at_level(logging.WARNING):
        stage(card_with(per_class=4), tmp_path)
    split = json.loads((tmp_path / "private/split.json").read_text())
    assert split["cases_per_class"] == BALANCED | {"notumor": 4}
    assert split["short"] == {"glioma": 1, "meningioma": 1, "pituitary": 1}
    assert "glioma 3 of 4, meningioma 3 of 4, pituitary 3 of 4" in caplog.text


def test_a_group_is_named_as_the_cause_of_too_few(tmp_path: Path) -> None:
    """12 pictures of the 3 numbers in their names: three can be taken, one of each."""
    pictures(tmp_path / "raw", **BALANCED)
    card = card_with(count=4)
    options = card.staging.options | {"group": r"_(\d+)"}
    grouped = card.model_copy(update={"staging": card.staging.model_copy(update={"options": options})})
    with pytest.raises(
        InfrastructureError, match=r"asks for 4 cases.* 3 .*one from each of 3 groups \(staging.options"
    ):
        stage(grouped, tmp_path)


def test_classes_of_their_own_number(tmp_path: Path) -> None:
    """A map per class; a class that is not in it is not drawn, and the rest is filled at random up to the count."""
    pictures(tmp_path / "raw", **BALANCED)
    per_class = {"glioma": 1, "Meningioma": 2, "notumor": 0}
    stage(card_with(per_class=per_class), tmp_path / "a", tmp_path / "raw")
    assert sorted(labels(tmp_path / "a")) == ["glioma", "meningioma", "meningioma"]
    stage(card_with(per_class=1, count=7), tmp_path / "b", tmp_path / "raw")
    assert len(labels(tmp_path / "b")) == 7
    assert set(labels(tmp_path / "b")) == set(BALANCED)


WRONG = [
    # id, images per class, sampling, error, part of the message
    ("class without image", {"glioma": 1, "meningioma": 1, "notumor": 1}, {}, InfrastructureError,
     "contains no image of class pituitary"),
    ("class that the card does not know", {**BALANCED, "other": 1}, {}, InfrastructureError,
     "class 'other' is not among the card's targets"),
    ("more cases than there are", BALANCED, {"count": 13}, InfrastructureError,
     "asks for 13 cases, but the raw data has 12"),
    ("unknown class in the map", BALANCED, {"per_class": {"gliom": 1}}, ConfigError,
     "no class 'gliom' (did you mean 'glioma'?)"),
    ("nonsense for a number", BALANCED, {"per_class": 0}, ConfigError, "per_class"),
    ("unknown option", BALANCED, {"perclass": 5}, ConfigError, "perclass"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "sampling", "error", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_what_cannot_be_staged(
    tmp_path: Path, counts: dict[str, int], sampling: dict[str, Any], error: type[Exception], message: str
) -> None:
    pictures(tmp_path / "raw", **counts)
    with pytest.raises(error) as caught:
        stage(card_with(**sampling), tmp_path)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_upstream_names_and_groups(tmp_path: Path) -> None:
    """HAM10000's form: codes become the contract's labels, and of two images of one lesion one is taken."""
    (tmp_path / "raw/images").mkdir(parents=True)
    rows = [("i1", "NV", "l1"), ("i2", "nv", "l1"), ("i3", "mel", "l2"), ("i4", "nv", "l3")]
    for name, _, _ in rows:
        Image.new("RGB", (4, 4)).save(tmp_path / f"raw/images/{name}.jpg")
    table = "".join(f"{name},{dx},{lesion}\n" for name, dx, lesion in rows)
    (tmp_path / "raw/labels.csv").write_text("image_id,dx,lesion_id\n" + table)
    options = {"table": "labels.csv", "label_column": "dx", "group_column": "lesion_id"}
    card = card_with(per_class=5)
    staging = card.staging.model_copy(update={"reader": "label_table", "options": options})
    targets = [Target(id=0, name="melanoma", source="mel"), Target(id=1, name="melanocytic_nevi", source="nv")]
    stage(card.model_copy(update={"staging": staging, "targets": targets}), tmp_path)
    assert sorted(labels(tmp_path)) == ["melanocytic_nevi", "melanocytic_nevi", "melanoma"]


def test_png_input(tmp_path: Path) -> None:
    """The card's file name decides about the format."""
    pictures(tmp_path / "raw", **BALANCED)
    inputs = [toy.CARD.inputs[0].model_copy(update={"file": "image.png"})]
    entries = stage(card_with().model_copy(update={"inputs": inputs}), tmp_path)
    assert (tmp_path / "public" / entries[0].id / "image.png").read_bytes().startswith(b"\x89PNG")


def test_shipped_card(root: Path) -> None:
    """Four balanced classes; okay is half-way from chance to good: 0.25 + 0.5 · (0.85 - 0.25) (a card's rule)."""
    card = toy.CARD
    assert card.staging.sampling.options == {"per_class": 25}
    assert [medal.at_least["accuracy"] for medal in card.medals] == [0.85, 0.25 + 0.5 * (0.85 - 0.25)]
    assert isinstance(card.outputs[0], OutputFile)


def test_real_images_keep_their_pixels(shared: Path, tmp_path: Path) -> None:
    """All 100 images of the real excerpt: 25 of each class, every JPEG carried over bit for bit."""
    stage(toy.CARD, tmp_path, shared / "data/brain_tumor_mri")
    split = json.loads((tmp_path / "private/split.json").read_text())
    assert split["cases_per_class"] == dict.fromkeys(BALANCED, 25)
    for case in list(split["cases"])[::10]:
        source = shared / "data/brain_tumor_mri/Testing" / split["cases"][case]["source"]
        with Image.open(source) as before, Image.open(tmp_path / "public" / case / "image.jpg") as after:
            assert after.tobytes() == before.tobytes()
