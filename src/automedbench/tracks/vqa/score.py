"""VQA's report: the score of every question, tables per group, and what the numbers rest on."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np

from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import AnswerJudgement, AnswerVerdict, CaseEntry, CaseScore, CaseSubmission, Prior
from automedbench.metrics import answers
from automedbench.metrics.answers import Comparison, compare, is_no_answer, normalise_pair
from automedbench.metrics.opposites import exclude
from automedbench.tracks import Metrics, ScoringInputs, TrackScore, track_settings
from automedbench.tracks.common.cases import case_output, mean, read_collected
from automedbench.tracks.common.signals import has_problem
from automedbench.tracks.vqa.check import UNREADABLE, QuestionAnswer, parse_answer
from automedbench.tracks.vqa.settings import VqaSettings
from automedbench.tracks.vqa.stage import TRUTH, QuestionTruth, read_truth

RESOURCE = "answer_verdicts"


def read_verdicts(inputs: ScoringInputs, model: str | None) -> dict[str, AnswerVerdict] | None:
    """Case → verdict on exactly this submission; None when none are given and none are asked for.

    ``model`` is the judge that the card's settings name, None for lexical scoring. Raises MissingDataError when its
    verdicts are missing, ConfigError when they are another judge's, InfrastructureError when they are about other
    answers.
    """
    path = inputs.resources.get(RESOURCE)
    if path is None:
        if model is None:
            return None
        raise MissingDataError(
            f"{inputs.manifest.task} is scored by the answer judge {model}, but no verdicts are given.\n"
            "Run scripts/judge_answers.py with the same --campaign and --run first."
        )
    found = read_record(path, AnswerJudgement)
    if model is not None and found.model != model:
        raise ConfigError([f"{path}: verdicts of {found.model}, but metric.settings.judge_model is {model}"])
    judged = [(verdict.case, verdict.answer_sha256) for verdict in found.verdicts]
    submitted = [
        (case.case, next((file.sha256 for file in case.files.values()), None)) for case in inputs.checked.cases
    ]
    if judged != submitted:
        raise InfrastructureError(f"{path}: verdicts on other answers than these; judge this submission again.")
    return {verdict.case: verdict for verdict in found.verdicts}


DRAWS, SEED, BLOCK = 1000, 20260101, 50
MAX_EXCERPT = 300
MOST_TRIED = 10
"""Constant answers of a kind that are tried as a prior; rarer ones earn less."""


NOT_ANSWERED = Comparison(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Scored:
    """One expected question: verdict of the format check, gold, answer (None: not answered), and its scores.

    ``judged`` is the answer judge's score, None where it gave none; ``score`` is the one that counts.
    """

    verdict: CaseSubmission
    truth: QuestionTruth
    answer: QuestionAnswer | None
    comparison: Comparison
    lexical: float
    judged: float | None
    score: float


def score(inputs: ScoringInputs) -> TrackScore:
    """Mean answer score over all expected questions, tables per group, and the diagnostics.

    Raises InfrastructureError when the gold is missing or does not fit, and when the card asks for an answer judge
    whose verdicts on this submission are not given.
    """
    settings: VqaSettings = track_settings(inputs.card)
    verdicts = read_verdicts(inputs, settings.judge_model)
    rows = [
        _scored(case, truth, answer, (verdicts or {}).get(case.case), settings)
        for case, truth, answer in read_evidence(inputs)
    ]
    quality = min(sum(row.score for row in rows) / len(rows), 1.0)
    judged = judge_metrics(rows) if verdicts is not None else {}
    return TrackScore(
        quality=quality,
        task_score=quality,
        metrics=overall(rows) | judged,
        groups=groups(rows),
        cases=[case_score(row) for row in rows],
        prior=prior([row.truth for row in rows], settings),
        notes=_notes(settings, judged),
    )


def prior(truths: Sequence[QuestionTruth], settings: VqaSettings) -> Prior:
    """Best constant answer for each kind of question by words, and its score.

    Tried are the letters, or the ``MOST_TRIED`` most frequent golds. An answer judge is not asked.
    """
    total = 0.0
    for kind in KINDS:
        golds = Counter(
            truth.answer_label if kind == "choice" else truth.answer_text for truth in truths if truth.kind == kind
        )
        tried = (answer for answer, _ in golds.most_common(MOST_TRIED) if answer)
        total += max((_earned(kind, answer, golds, settings) for answer in tried), default=0.0)
    return Prior(answers="one answer for all questions of a kind", value=min(total / len(truths), 1.0))


def _earned(kind: str, answer: str, golds: Mapping[str | None, int], settings: VqaSettings) -> float:
    """Points of one answer to all questions of a kind."""
    if kind == "choice":
        return float(golds[answer])
    return sum(count * lexical_score(compare(answer, gold), kind, settings) for gold, count in golds.items() if gold)


def lexical_score(found: Comparison, kind: str, settings: VqaSettings) -> float:
    """Score of a text by its words, in [0, 1]: as the settings join exact match and token F1; yes/no is strict."""
    if settings.open_score == "max" or kind == "yes_no":
        return found.score
    return (found.exact_match + found.token_f1) / 2


def read_evidence(inputs: ScoringInputs) -> list[tuple[CaseSubmission, QuestionTruth, QuestionAnswer | None]]:
    """Verdict, gold and answer of every expected question; no answer where the format check found none."""
    return [
        (
            verdict,
            read_truth(inputs.private / case.id / TRUTH, case),
            read_answer(inputs, case) if verdict.completed else None,
        )
        for case, verdict in inputs.pairs
    ]


def read_answer(inputs: ScoringInputs, case: CaseEntry) -> QuestionAnswer:
    """The answer to one question that the format check found complete."""
    output, options = case_output(inputs.card, "json"), case.geometry["options"]
    return read_collected(inputs.submission, output, case.id, lambda data: parse_answer(data, case.id, options))


def _scored(
    case: CaseSubmission,
    truth: QuestionTruth,
    answer: QuestionAnswer | None,
    verdict: AnswerVerdict | None,
    settings: VqaSettings,
) -> Scored:
    if answer is None:
        return Scored(case, truth, None, NOT_ANSWERED, 0.0, None, 0.0)
    if truth.kind == "choice":
        right = float(answer.label == truth.answer_label)
        return Scored(case, truth, answer, NOT_ANSWERED, right, None, right)
    comparison = compare(answer.text, truth.answer_text)
    judged = verdict.score if verdict is not None and truth.kind == "open" else None
    lexical = lexical_score(comparison, truth.kind, settings)
    counts = judged if settings.scoring == "judge" and judged is not None else lexical
    return Scored(case, truth, answer, comparison, lexical, judged, counts)


def _notes(settings: VqaSettings, judged: dict[str, float | None]) -> list[str]:
    if settings.scoring == "lexical":
        how = "max(exact match, token F1)" if settings.open_score == "max" else "half exact match, half token F1"
        return [f"Texts are scored lexically: {how}, normaliser {settings.normaliser}."]
    return [
        f"Texts are scored by the answer judge {settings.judge_model}; not comparable with lexical scores.",
        f"{judged['n_unjudged']:.0f} answers have no verdict and are scored lexically.",
    ]


def overall(rows: Sequence[Scored]) -> Metrics:
    """Means over all expected questions, missing ones as 0; rates over the questions of one kind; 95 % interval."""
    n = len(rows)
    answered = [row for row in rows if row.answer is not None]
    texts = [row for row in rows if row.truth.kind != "choice"]
    low, high = bootstrap_interval([row.score for row in rows])
    readable = [row for row in rows if row.verdict.status != "missing" and not has_problem(row.verdict, *UNREADABLE)]
    return {
        "lexical_score": mean(row.lexical for row in rows),
        "ci95_low": low,
        "ci95_high": high,
        "accuracy_answered": mean(row.score for row in answered) or 0.0,
        "exact_match": mean(row.comparison.exact_match for row in texts),
        "token_f1": mean(row.comparison.token_f1 for row in texts),
        "site_score": mean(_site_score(row) for row in rows),
        **{f"{kind}_score": mean(row.score for row in rows if row.truth.kind == kind) for kind in KINDS},
        "record_rate": len(readable) / n,
        "placeholder_rate": sum(has_problem(row.verdict, "placeholder") for row in rows) / n,
        "n_questions": n,
        "n_answered": len(answered),
        "n_skipped": sum(has_problem(row.verdict, "skipped") for row in rows),
    }


def judge_metrics(rows: Sequence[Scored]) -> Metrics:
    """Metrics of the answer judge: score with it, number of its verdicts, rate of agreement with the lexical score."""
    judged = [row for row in rows if row.judged is not None]
    judgeable = [row for row in rows if row.truth.kind == "open" and row.answer is not None]
    return {
        "judged_score": mean(row.lexical if row.judged is None else row.judged for row in rows),
        "n_judged": len(judged),
        "n_unjudged": len(judgeable) - len(judged),
        "judge_agreement_rate": mean(float((row.judged or 0) >= 0.5) == (row.lexical >= 0.5) for row in judged),
    }


KINDS = ("choice", "yes_no", "number", "open")


def groups(rows: Sequence[Scored]) -> dict[str, Metrics]:
    """Tables by kind of answer and by every descriptor of the data set; rows are named ``table: value``."""
    members: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for row in rows:
        for table, value in {**row.truth.groups, "answer_kind": row.truth.kind}.items():
            members[table, value].append(row)
    return {f"{table}: {value}": _group(of_value) for (table, value), of_value in sorted(members.items())}


def case_score(row: Scored) -> CaseScore:
    """One question's row. The gold answer is not in it: reports may be passed on, answers may not."""
    texts = row.truth.kind != "choice" and row.answer is not None
    detail: dict[str, Any] = {"kind": row.truth.kind, "question": row.truth.question[:MAX_EXCERPT]}
    if row.answer is not None:
        detail |= {"answer": row.answer.text[:MAX_EXCERPT], "label": row.answer.label}
    return CaseScore(
        case=row.verdict.case,
        status=row.verdict.status,
        metrics={
            "answer_score": row.score,
            "exact_match": row.comparison.exact_match if texts else None,
            "token_f1": row.comparison.token_f1 if texts else None,
            "judge_score": row.judged,
        },
        detail=detail,
    )


def bootstrap_interval(scores: Sequence[float]) -> tuple[float, float]:
    """2.5th and 97.5th percentile of the mean over questions drawn with replacement; the same for the same scores."""
    values, generator = np.asarray(scores, float), np.random.default_rng(SEED)
    means = [
        values[generator.integers(0, len(values), (BLOCK, len(values)))].mean(axis=1) for _ in range(DRAWS // BLOCK)
    ]
    low, high = np.percentile(np.concatenate(means), (2.5, 97.5)).tolist()
    return low, high


def _group(rows: list[Scored]) -> Metrics:
    answered = sum(row.answer is not None for row in rows)
    return {
        "answer_score": mean(row.score for row in rows),
        "site_score": mean(_site_score(row) for row in rows),
        "n_questions": len(rows),
        "n_correct": sum(row.score == 1 for row in rows),
        "completion_rate": answered / len(rows),
    }


def _site_score(row: Scored) -> float:
    """Score of one question by the public site's definition, which takes no opposite for a wrong answer."""
    return row.lexical if row.truth.kind == "choice" else row.comparison.site_score


# --- verification ---------------------------------------------------------------------------------------------------


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The mean again: token F1 by rouge-score, everything else by plain comparison; verdicts of a judge as given."""
    settings: VqaSettings = track_settings(inputs.card)
    verdicts = read_verdicts(inputs, settings.judge_model) or {}
    judged = verdicts if settings.scoring == "judge" else {}
    given = {case: verdict.score for case, verdict in judged.items() if verdict.score is not None}
    total = 0.0
    for case, truth, answer in read_evidence(inputs):
        if answer is None:
            continue
        if truth.answer_label is not None:
            total += choice_score(answer.label_field, truth.answer_label)
        elif truth.kind == "open" and case.case in given:
            total += given[case.case]
        else:
            halves = settings.open_score == "mean" and truth.kind != "yes_no"
            total += answer_score(answer.text, truth.answer_text, halves=halves)
    return f"rouge-score {version('rouge-score')}", total / len(inputs.manifest.cases), 1e-9


def answer_score(prediction: str, gold: str, *, halves: bool = False) -> float:
    """The score of ``metrics.answers.compare`` by rouge-score and plain comparison.

    ``halves``: unequal texts earn half of it.
    """
    predicted, expected = normalise_pair(prediction, gold)
    if predicted == expected:
        return float(bool(expected))
    if is_no_answer(prediction):
        return 0.0
    if expected in ("yes", "no"):
        return float(_leading(predicted) == expected)
    if exclude(tuple(predicted.split()), tuple(expected.split())) or _other_numbers(predicted, expected):
        return 0.0
    return float(_scorer().score(expected, predicted)["rouge1"].fmeasure) / (2 if halves else 1)


def _other_numbers(prediction: str, gold: str) -> bool:
    predicted, expected = (
        sorted(re.findall(r"(?<!\S)-?[0-9]+(?:\.[0-9]+)?(?!\S)", text)) for text in (prediction, gold)
    )
    alone = re.fullmatch(r"(?:-?[0-9]+(?:\.[0-9]+)?|mm|ml|mg|[ ])+", gold) is not None
    return bool(expected) and predicted != expected and (bool(predicted) or alone)


def choice_score(label: str, gold: str) -> float:
    """1 when a label field names the gold letter and nothing else, brackets and the like aside."""
    return float(re.sub(r"(?i)final answer|answer|option|choice|[\W_]", "", label).upper() == gold)


def _leading(text: str) -> str | None:
    first, _, rest = re.sub(rf"^{answers.NOT_THERE.pattern}", "no", text).partition(" ")
    if any(re.search(rf"\b{word}\b", rest) for word in answers.OPPOSITES.get(first, ())):
        return None
    return {**dict.fromkeys(answers.YES, "yes"), **dict.fromkeys(answers.NO, "no")}.get(first)


@functools.cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rouge1"], tokenizer=SimpleNamespace(tokenize=str.split))  # our texts are normalised
