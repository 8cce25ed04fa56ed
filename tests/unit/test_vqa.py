"""The VQA track on its toy: what is staged and what is not, what counts as an answer, and what it scores."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from toys.vqa import CARD, HOSTILE, ROWS, make_raw, perfect, record

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, InvalidSubmission, MissingDataError
from automedbench.base.files import write_record
from automedbench.base.records import AnswerJudgement, Manifest, RunId, SubmissionRecord
from automedbench.steps.inside.check_workspace import check_workspace
from automedbench.steps.stage_task import stage_cases
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.vqa import TRACK as vqa
from automedbench.tracks.vqa.check import mass_fillers, parse_answer, placeholder_reason
from automedbench.tracks.vqa.score import bootstrap_interval, prior
from automedbench.tracks.vqa.settings import VqaSettings
from automedbench.tracks.vqa.stage import QuestionTruth, question_form


def with_settings(**settings: Any) -> TaskCard:
    return CARD.model_copy(update={"metric": CARD.metric.model_copy(update={"settings": settings})})


def with_sampling(**changes: Any) -> TaskCard:
    sampling = CARD.staging.sampling.model_copy(update=changes)
    return CARD.model_copy(update={"staging": CARD.staging.model_copy(update={"sampling": sampling})})


@dataclass
class Staged:
    """The toy task on disk."""

    folder: Path
    manifest: Manifest

    @property
    def public(self) -> Path:
        return self.folder / "public" / CARD.id

    @property
    def private(self) -> Path:
        return self.folder / "private" / CARD.id

    def truth(self, case: str) -> dict[str, Any]:
        return dict(json.loads((self.private / case / "answer.json").read_text()))

    def case(self, answer: str) -> str:
        """The case with this gold answer."""
        return next(case for case in self.manifest.case_ids if self.truth(case)["answer_text"] == answer)

    def check(self, files: dict[str, bytes], card: TaskCard = CARD) -> SubmissionRecord:
        """Collect files of ``agents_outputs/`` and check them."""
        for path, data in files.items():
            place = self.folder / "workspace/agents_outputs" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        (self.folder / "workspace/agents_outputs").mkdir(parents=True, exist_ok=True)
        run = RunId(agent="toy", task=CARD.id, tier="lite", repeat=1)
        return check_workspace(card, self.manifest, run, self.folder / "workspace", self.folder)

    def score(self, files: dict[str, bytes], card: TaskCard = CARD, **resources: Path) -> TrackScore:
        inputs = ScoringInputs(
            card, self.manifest, self.folder / "submission", self.private, self.check(files, card), resources
        )
        score = vqa.score(inputs)
        assert vqa.verify(inputs)[1] == pytest.approx(score.quality, abs=1e-9)
        assert score.task_score == score.quality
        return score

    def perfect(self, *left_out: str) -> dict[str, bytes]:
        kept = [case for case in self.manifest.case_ids if case not in left_out]
        return perfect(self.manifest, self.public, self.private, kept)


def stage(folder: Path, card: TaskCard = CARD) -> Staged:
    folder.mkdir(exist_ok=True)
    if not (folder / "raw").exists():
        make_raw(folder / "raw")
    path = folder / f"{card.id}.yaml"
    path.write_text(yaml.safe_dump(card.model_dump(mode="json")))
    manifest = stage_cases(path, folder / "raw", folder / "public", folder / "private", folder / "manifest.json")
    return Staged(folder, manifest)


@pytest.fixture
def task(tmp_path: Path) -> Staged:
    return stage(tmp_path)


def answers(**texts: str) -> dict[str, bytes]:
    """Records of open questions by case."""
    return {
        f"{case}/answer.json": json.dumps(record(case, predicted_answer=text, raw_model_output=f"raw: {text}")).encode()
        for case, text in texts.items()
    }


# --- staging --------------------------------------------------------------------------------------------------


def test_what_an_agent_sees(task: Staged) -> None:
    """Question, form and images; neither the answer, nor what it was made of, nor anything to look it up by."""
    case = task.case("The liver")
    shown = json.loads((task.public / case / "question.json").read_text())
    assert shown == {
        "question_id": case,
        "question": "Which organ?",
        "question_type": "open",
        "answer_mode": "open_ended",
        "image_paths": ["image_1.jpg"],
    }
    everything = b"".join(path.read_bytes() for path in task.public.rglob("*") if path.is_file())
    for secret in (b"SECRET", b"right upper lobe", b"a.jpg", b"b.png", b"CHEST", b"qid"):
        assert secret not in everything
    assert b"liver" not in task.manifest.model_dump_json().encode()


def test_multiple_choice_shows_its_options(task: Staged) -> None:
    case = task.case("Pneumothorax")
    shown = json.loads((task.public / case / "question.json").read_text())
    assert (shown["valid_labels"], shown["options"]["B"]) == (["A", "B", "C", "D"], "Pneumothorax")
    assert shown["image_paths"] == ["image_1.jpg", "image_2.jpg"]
    entry = next(entry for entry in task.manifest.cases if entry.id == case)
    assert entry.geometry["options"] == shown["options"]
    assert sorted(entry.inputs) == ["image_1.jpg", "image_2.jpg", "question.json"]


def test_images_keep_their_pixels_and_lose_the_rest(task: Staged) -> None:
    with Image.open(task.public / task.case("Yes") / "image_1.jpg") as image:
        assert (image.format, image.mode, image.size, image.getpixel((3, 3))) == ("JPEG", "L", (24, 16), 90)
        assert not image.getexif() and "comment" not in image.info
    with Image.open(task.public / task.case("three") / "image_1.jpg") as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (20, 30))


def test_kinds(task: Staged) -> None:
    kinds = {"Yes": "yes_no", "no": "yes_no", "The liver": "open", "three": "number", "Pneumothorax": "choice"}
    assert {answer: task.truth(task.case(answer))["kind"] for answer in kinds} == kinds


FORMS = {
    "Is there a mass?": "closed",
    "does it show the heart": "closed",
    "Island of Reil: where?": "open",
    "What is it?": "open",
    "": "open",
}


@pytest.mark.parametrize(("question", "form"), FORMS.items(), ids=map(repr, FORMS))
def test_form_comes_from_the_question(question: str, form: str) -> None:
    assert question_form(question, {}) == form
    assert question_form(question, {"A": "x", "B": "y"}) == "multiple_choice"


def test_order_tells_nothing(task: Staged) -> None:
    """Case ids say neither the place nor the id upstream; the private table does."""
    split = json.loads((task.private / "split.json").read_text())
    rows = [split["cases"][case]["row"] for case in task.manifest.case_ids]
    assert sorted(rows) == list(range(len(ROWS))) != rows
    assert {each["source_id"] for each in split["cases"].values()} == {str(row["qid"]) for row in ROWS}


def test_gold_without_content_is_refused(tmp_path: Path) -> None:
    make_raw(tmp_path / "raw")
    (tmp_path / "raw/testset.json").write_text(json.dumps([ROWS[0] | {"answer": "..."}]))
    with pytest.raises(InfrastructureError, match="nothing is left to compare"):
        stage(tmp_path)


def test_calibration(tmp_path: Path) -> None:
    """Questions of another file, with their answers; nothing of them is a case."""
    make_raw(tmp_path / "raw")
    rows = [row | {"qid": 100 + row["qid"]} for row in ROWS]
    (tmp_path / "raw/trainset.json").write_text(json.dumps(rows))
    source = {"options": {"questions": "trainset.json"}, "count": 2}
    task = stage(tmp_path, with_sampling(options={"calibration": source}))
    folder = task.public / "calibration"
    assert sorted(path.name for path in folder.iterdir()) == ["calibration_0001", "calibration_0002"]
    gold = json.loads((folder / "calibration_0001/answer.json").read_text())
    shown = json.loads((folder / "calibration_0001/question.json").read_text())
    answer = next(row["answer"] for row in ROWS if row["question"] == shown["question"])
    assert (gold["question_id"], gold["answer_text"]) == ("calibration_0001", answer)
    assert len(task.manifest.cases) == len(ROWS)


def test_calibration_never_gives_away_the_test(tmp_path: Path) -> None:
    make_raw(tmp_path / "raw")
    with pytest.raises(InfrastructureError, match="among the evaluated ones"):
        stage(tmp_path, with_sampling(options={"calibration": {"options": {"questions": "testset.json"}}}))


# --- records --------------------------------------------------------------------------------------------------

OPTIONS = {"A": "Pneumonia", "B": "Pneumothorax"}
CHOICES: dict[str, tuple[dict[str, Any], str | None, list[str], list[str]]] = {
    # changes → letter (None: no answer), codes that make it malformed (or that refuse it), codes of remarks
    "good": ({}, "B", [], []),
    "letter with a dot": ({"predicted_label": "B."}, "B", [], []),
    "other case of the text": ({"predicted_answer": "pneumothorax "}, "B", [], ["option_spelling"]),
    "text of another option": ({"predicted_answer": "Pneumonia"}, "B", ["option_text"], []),
    "no text": ({"predicted_answer": ""}, "B", [], []),
    "no text and no output": ({"predicted_answer": "", "raw_model_output": ""}, None, ["no_output"], []),
    "nothing at all": (
        {"predicted_label": "", "predicted_answer": "", "raw_model_output": ""},
        None,
        ["skipped"],
        [],
    ),
    "letter of no option": ({"predicted_label": "C"}, None, ["bad_label"], []),
    "null": ({"predicted_label": None}, None, ["wrong_type"], []),
    "sentence": ({"predicted_label": "The answer is B"}, None, ["bad_label"], []),
}


@pytest.mark.parametrize(("changes", "letter", "problems", "remarks"), CHOICES.values(), ids=CHOICES.keys())
def test_choice(changes: dict[str, Any], letter: str | None, problems: list[str], remarks: list[str]) -> None:
    value = record("q", predicted_label="B", predicted_answer="Pneumothorax") | changes
    if letter is None:
        with pytest.raises(InvalidSubmission) as caught:
            parse_answer(json.dumps(value).encode(), "q", OPTIONS)
        assert [caught.value.code] == problems
        return
    answer = parse_answer(json.dumps(value).encode(), "q", OPTIONS)
    assert answer.label == letter
    assert [problem.code for problem in answer.problems] == problems
    assert [problem.code for problem in answer.remarks] == remarks


PLACEHOLDERS = {
    "both empty": ("", "", None),
    "answer from nothing": (" ", "yes", "raw_empty_with_answer"),
    "genuine": ("It is the liver.", "liver", None),
    "genuine none": ("None", "none", None),
    "none of a count": ("None.", "0", None),
    "none as no": ("none", "no", None),
    "filler with an answer": ("n/a", "liver", "raw_empty_or_generic"),
    "filler alone": ("unknown", "", None),
    "stub": ("  STUB: x", "x", "raw_prefix_stub"),
    "error": ("Error: out of memory", "liver", "raw_prefix_error"),
    "traceback": ("Traceback (most recent call last):", "liver", "raw_prefix_traceback"),
    "the word later": ("The heuristic: x", "x", None),
}


@pytest.mark.parametrize(("raw", "answer", "reason"), PLACEHOLDERS.values(), ids=PLACEHOLDERS.keys())
def test_placeholder(raw: str, answer: str, reason: str | None) -> None:
    assert placeholder_reason(raw, answer) == reason


def test_fillers_of_many() -> None:
    """More than a fifth, and at least two: one honest "none" of three answers stays one."""
    filler, other = (
        parse_answer(json.dumps(record("q", predicted_answer=text, raw_model_output=text)).encode(), "q", {})
        for text in ("None", "liver")
    )
    assert mass_fillers([], 0.2) == set()
    assert mass_fillers([filler, other], 0.2) == set()
    assert mass_fillers([filler] * 2 + [other] * 8, 0.2) == set()
    assert mass_fillers([filler] * 3 + [other] * 8, 0.2) == {"none"}


def test_mass_fillers_are_stand_ins(task: Staged) -> None:
    liver, lobe, heart = task.case("The liver"), task.case("right upper lobe"), task.case("no")
    files = {
        f"{case}/answer.json": json.dumps(record(case, predicted_answer="unknown", raw_model_output="unknown")).encode()
        for case in (liver, lobe)
    } | answers(**{heart: "no"})
    found = {case.case: case for case in task.check(files).cases}
    assert [found[case].completed for case in (liver, lobe, heart)] == [False, False, True]
    assert found[liver].problems[0].code == "placeholder"
    assert task.score(files).metrics["placeholder_rate"] == pytest.approx(2 / 6)


# --- score ----------------------------------------------------------------------------------------------------


def test_perfect(task: Staged) -> None:
    score = task.score(task.perfect())
    assert score.quality == 1
    assert score.metrics["choice_score"] == score.metrics["record_rate"] == 1
    assert score.groups["organ: ABD"] == {
        "answer_score": 1,
        "site_score": 1,
        "n_questions": 2,
        "n_correct": 2,
        "completion_rate": 1,
    }


def test_nothing(task: Staged) -> None:
    score = task.score({})
    assert (score.quality, score.metrics["accuracy_answered"], score.metrics["n_answered"]) == (0, 0, 0)
    assert {case.status for case in score.cases} == {"missing"}


def test_mean_over_all_questions(task: Staged) -> None:
    """By hand: yes 1, a wrong no 0, F1 of "right lobe" (P 1, R 2/3) 0.8, count 1; liver and choice missing: 0."""
    given = {"Yes": "yes, it is", "no": "yes", "right upper lobe": "right lobe", "three": "3"}
    score = task.score(answers(**{task.case(gold): text for gold, text in given.items()}))
    assert score.quality == pytest.approx((1 + 0 + 0.8 + 1) / 6)
    assert score.metrics["accuracy_answered"] == pytest.approx(2.8 / 4)
    assert score.metrics["yes_no_score"] == 0.5
    assert score.metrics["open_score"] == pytest.approx(0.4)
    assert score.metrics["site_score"] == score.quality
    assert score.metrics["exact_match"] == pytest.approx(1 / 5)  # the count; over the five questions with a text
    assert score.groups["answer_kind: choice"]["completion_rate"] == 0
    # As the Full release: half of exact match (0) and half of F1, so 0.4 for "right lobe"; the count stays 1.
    halves = task.score(
        answers(**{task.case(gold): text for gold, text in given.items()}), with_settings(open_score="mean")
    )
    assert halves.quality == pytest.approx((1 + 0 + 0.4 + 1) / 6)


def test_malformed_but_scored(task: Staged) -> None:
    """A missing time costs validity, not the answer."""
    case = task.case("The liver")
    value = record(case)
    del value["runtime_s"]
    files = {f"{case}/answer.json": json.dumps(value).encode()}
    verdict = next(each for each in task.check(files).cases if each.case == case)
    assert (verdict.status, verdict.completed) == ("malformed", True)
    assert task.score(files).quality == pytest.approx(1 / 6)


def test_hostile_records_cost_only_themselves(task: Staged) -> None:
    """Whatever stands in the folder of the choice question, the other five keep their score."""
    case = task.case("Pneumothorax")
    for hostile in HOSTILE:
        shutil.rmtree(task.folder / "workspace", ignore_errors=True)
        hostile.write(task.folder / "workspace/agents_outputs", case, task.manifest, task.public)
        assert task.score(task.perfect(case)).quality >= 5 / 6 - 1e-9, hostile.id


def test_prior_is_the_best_constant_of_each_kind() -> None:
    """By hand: no for 3 questions (2 right), B for 2 (1 right), 'liver' for 2 ('liver' 1, 'left lung' 0): 4 of 7."""
    golds = [("yes_no", "no"), ("yes_no", "no"), ("yes_no", "yes"), ("open", "liver"), ("open", "left lung")]
    truths = [
        QuestionTruth(question="?", answer_text=gold, answer_label=None, kind=kind, groups={}) for kind, gold in golds
    ]
    truths += [
        QuestionTruth(question="?", answer_text="x", answer_label=label, kind="choice", groups={}) for label in "BA"
    ]
    assert prior(truths, VqaSettings()).value == pytest.approx(4 / 7)


def test_the_report_holds_no_gold(task: Staged) -> None:
    text = task.score({}).model_dump_json()
    assert "liver" not in text and "upper lobe" not in text


def test_gold_that_does_not_fit(task: Staged) -> None:
    path = task.private / task.case("Pneumothorax") / "answer.json"
    path.write_text(path.read_text().replace('"B"', '"E"'))
    with pytest.raises(InfrastructureError, match="does not fit the options"):
        task.score({})


def test_bootstrap() -> None:
    """Equal scores have no spread; of half zeros, half ones the normal interval is about ±1.96·0.5/√n."""
    assert bootstrap_interval([0.5] * 10) == (0.5, 0.5)
    low, high = bootstrap_interval([0.0, 1.0] * 200)
    assert (low, high) == pytest.approx((0.451, 0.549), abs=0.01)
    assert bootstrap_interval([0.0, 1.0] * 200) == (low, high)


# --- settings and verdicts of a judge --------------------------------------------------------------------------

BAD_SETTINGS: dict[str, dict[str, Any]] = {
    "judge without a name": {"scoring": "judge"},
    "name without a judge": {"judge_model": "m"},
    "unknown normaliser": {"normaliser": "mine"},
    "misspelt": {"scorings": "lexical"},
}


@pytest.mark.parametrize("settings", BAD_SETTINGS.values(), ids=BAD_SETTINGS.keys())
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        track_settings(with_settings(**settings))


JUDGED = with_settings(scoring="judge", judge_model="m")


def verdicts(
    task: Staged, files: dict[str, bytes], given: dict[str, tuple[str, float | None]], model: str = "m"
) -> Path:
    """An ``answer_judge.json`` about this submission; questions not given were not sent."""
    checked = task.check(files)
    rows = []
    for case in checked.cases:
        status, score = given.get(case.case, ("not_sent", None))
        digest = next((file.sha256 for file in case.files.values()), None)
        rows.append({"case": case.case, "status": status, "score": score, "answer_sha256": digest, "rationale": ""})
    path = task.folder / "answer_judge.json"
    about = {"schema": "automedbench/answer-judge/1", "run": checked.run, "model": model, "prompt_version": 1}
    write_record(path, AnswerJudgement.model_validate(about | {"verdicts": rows, "n_unjudged": 0}))
    return path


def test_judged_scoring(task: Staged) -> None:
    """Open answers by their verdicts, an unjudged one lexically, the strict kinds as ever; notes say how many."""
    liver, lobe, heart = task.case("The liver"), task.case("right upper lobe"), task.case("no")
    files = answers(**{liver: "hepatic tissue", lobe: "right lobe", heart: "yes"})
    path = verdicts(task, files, {liver: ("judged", 1.0), lobe: ("unjudged", None), heart: ("judged", 1.0)})
    score = task.score(files, JUDGED, answer_verdicts=path)
    assert score.quality == pytest.approx((1 + 0.8 + 0) / 6)
    assert score.metrics["lexical_score"] == pytest.approx(0.8 / 6)
    assert (score.metrics["n_judged"], score.metrics["n_unjudged"]) == (1, 1)
    assert "1 answers have no verdict" in score.notes[1]


def test_verdicts_beside_lexical_scoring(task: Staged) -> None:
    """Both values are shown; the one that the card names is the score."""
    case = task.case("The liver")
    files = answers(**{case: "hepatic tissue"})
    score = task.score(files, CARD, answer_verdicts=verdicts(task, files, {case: ("judged", 1.0)}))
    assert (score.quality, score.metrics["judged_score"]) == (0, pytest.approx(1 / 6))


def test_verdicts_are_missing(task: Staged) -> None:
    with pytest.raises(MissingDataError, match=r"judge_answers\.py"):
        task.score({}, JUDGED)


def test_verdicts_of_another_judge(task: Staged) -> None:
    path = verdicts(task, {}, {}, model="other")
    with pytest.raises(ConfigError, match="verdicts of other"):
        task.score({}, JUDGED, answer_verdicts=path)


@pytest.mark.parametrize("text", ["spleen", "hepatic tissue, left", "Hepatic tissue"])
def test_verdicts_on_other_answers(text: str, task: Staged) -> None:
    case = task.case("The liver")
    path = verdicts(task, answers(**{case: "hepatic tissue"}), {case: ("judged", 1.0)})
    with pytest.raises(InfrastructureError, match="other answers"):
        task.score(answers(**{case: text}), JUDGED, answer_verdicts=path)
