"""``answer.json`` of the VQA track: what an agent answered, read within bounds, and whether it counts as an answer.

One function decides for the format check and for the scorer. A record that cannot be scored raises; a record with
faults that leave the answer readable (no run time, another question's id) is malformed but scored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, CaseSubmission, Manifest, Problem
from automedbench.base.untrusted import parse_json, shown
from automedbench.metrics.answers import normalise, parse_label
from automedbench.tracks import track_settings
from automedbench.tracks.common.cases import Judged, case_output, check_file, malformed_verdict
from automedbench.tracks.vqa.settings import VqaSettings

REQUIRED = ("question_id", "predicted_label", "predicted_answer", "raw_model_output")
"""Keys without which there is no answer; ``model_name`` and ``runtime_s`` are asked for as well."""
MAX_ANSWER_BYTES = 2 * 1024
MAX_RAW_BYTES = 64 * 1024
FILLERS = frozenset({"unknown", "n/a", "na", "none", "null"})
STUBS = ("heuristic:", "fallback:", "placeholder:", "mock:", "dummy:", "stub:", "error:", "traceback (most recent")
UNREADABLE = frozenset(
    {"not_utf8", "duplicate_key", "json_parse", "too_deep", "not_an_object", "not_a_file", "too_large"}
)
"""Codes of files that are no JSON object at all."""


@dataclass(frozen=True)
class QuestionAnswer:
    """An answer that can be scored: its text, its option letter (multiple choice only), and what is wrong or odd."""

    text: str
    label: str | None
    label_field: str
    filler: str | None
    """The model's whole output where that is one of the usual words for nothing."""
    problems: list[Problem] = field(default_factory=list)
    remarks: list[Problem] = field(default_factory=list)


def check(card: TaskCard, manifest: Manifest, submission: Path) -> list[CaseSubmission]:
    """Verdict on each expected ``answer.json``; the options come from the manifest, nothing private is read.

    A word for nothing ("unknown") is an answer by itself and a stand-in when much of the submission consists of it.
    """
    settings: VqaSettings = track_settings(card)
    output = case_output(card, "json")
    answers: dict[str, QuestionAnswer] = {}

    def judge(case: CaseEntry, data: bytes) -> Judged:
        answers[case.id] = answer = parse_answer(data, case.id, case.geometry["options"])
        return answer.problems, answer.remarks

    verdicts = [check_file(case, output, submission, judge) for case in manifest.cases]
    fillers = mass_fillers(list(answers.values()), settings.filler_share)
    for row, case in enumerate(manifest.cases):
        if case.id in answers and (filler := answers[case.id].filler) in fillers:
            error = InvalidSubmission("placeholder", f"has the model output '{filler}', as too many others have")
            path = output.path.replace("{case}", case.id)
            verdicts[row] = malformed_verdict(case, path, error, verdicts[row].files)
    return verdicts


def parse_answer(data: bytes, case: str, options: Mapping[str, str]) -> QuestionAnswer:
    """The answer in one file; ``options`` are the question's own (letter → text), empty for an open question.

    Raises InvalidSubmission when there is nothing that could be scored.
    """
    record = parse_json(data)
    if not isinstance(record, dict):
        raise InvalidSubmission("not_an_object", f"must hold an object at top level, not {shown(record)}")
    text, raw = _texts(record)
    reason = placeholder_reason(raw, text)
    if reason is not None:
        raise InvalidSubmission("placeholder", f"is no output of a model: {reason}")
    label = _label(record["predicted_label"], text, raw, options) if options else None
    if not options and not text.strip():
        code = "skipped" if not raw.strip() else "empty_answer"
        raise InvalidSubmission(code, "has an empty predicted_answer")
    problems = _faults(record, case)
    if label is not None and text.strip() and normalise(text) != normalise(options[label]):
        problems.append(Problem(code="option_text", message=f"has {label} but not the text of that option"))
    return QuestionAnswer(
        text, label, str(record["predicted_label"]), find_filler(raw), problems, _remarks(raw, text, label, options)
    )


def placeholder_reason(raw: str, answer: str) -> str | None:
    """Reason that a model output is a placeholder, or None.

    Both texts empty is an honest skip and no stand-in. A usual word for nothing ("none", "unknown") can be a model's
    genuine output; it is a stand-in where the answer says something else.
    """
    if not raw.strip():
        return "raw_empty_with_answer" if answer.strip() else None
    start = raw.strip().lower()
    stub = next((stub for stub in STUBS if start.startswith(stub)), None)
    if stub is not None:
        return f"raw_prefix_{stub.split()[0].rstrip(':')}"
    filler = find_filler(raw)
    if filler is None or not answer.strip() or filler == find_filler(answer):
        return None
    says_none = filler == "none" and normalise(answer) in ("no", "0")
    return None if says_none else "raw_empty_or_generic"


def find_filler(text: str) -> str | None:
    """The word for nothing that is all there is, or None."""
    word = text.strip().rstrip(".!").lower()
    return word if word in FILLERS else None


def mass_fillers(answers: list[QuestionAnswer], share: float) -> set[str]:
    """Words for nothing that more than ``share`` of the answers, and at least two, consist of: these are stand-ins."""
    counts = Counter(answer.filler for answer in answers if answer.filler is not None)
    return {word for word, count in counts.items() if count > max(1, share * len(answers))}


def _texts(record: Mapping[str, Any]) -> tuple[str, str]:
    """Answer and raw output; raises InvalidSubmission when a key is missing, of the wrong type or too long."""
    absent = [key for key in REQUIRED if key not in record]
    if absent:
        raise InvalidSubmission("missing_key", f"lacks {', '.join(absent)}")
    text, raw = _as_text(record["predicted_answer"]), record["raw_model_output"]
    for key, value in (("predicted_answer", text), ("raw_model_output", raw)):
        if not isinstance(value, str):
            raise InvalidSubmission("wrong_type", f"has {key} {shown(value)}, not a text")
    if _bytes(text) > MAX_ANSWER_BYTES:
        raise InvalidSubmission("answer_too_long", f"has a predicted_answer of more than {MAX_ANSWER_BYTES} bytes")
    return text, raw


def _as_text(value: Any) -> Any:
    """A finite JSON number as a text: a count is an answer with or without quotes around it."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value}" if is_number and math.isfinite(value) else value


def _label(value: Any, text: str, raw: str, options: Mapping[str, str]) -> str:
    """The letter of a multiple-choice answer; raises InvalidSubmission when there is none of this question's."""
    if not isinstance(value, str):
        raise InvalidSubmission("wrong_type", f"has predicted_label {shown(value)}, not a text")
    if not text.strip() and not raw.strip():
        code = "no_output" if value.strip() else "skipped"
        raise InvalidSubmission(code, "has an empty predicted_answer and an empty raw_model_output")
    label = parse_label(value, tuple(options))
    if label is None:
        letters = ", ".join(options)
        raise InvalidSubmission("bad_label", f"has predicted_label {shown(value)}, not one letter of {letters}")
    return label


def _faults(record: Mapping[str, Any], case: str) -> list[Problem]:
    """Faults of a malformed record whose answer is scored."""
    faults = []
    if record["question_id"] != case:
        faults.append(("wrong_id", f"has question_id {shown(record['question_id'])} instead of {case}"))
    name = record.get("model_name")
    if not isinstance(name, str) or not name.strip():
        faults.append(("model_name", f"has model_name {shown(name)}, not the name of a model"))
    seconds: Any = record.get("runtime_s")
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not number or not math.isfinite(seconds) or seconds < 0:
        faults.append(("runtime", f"has runtime_s {shown(seconds)}, not a number of seconds"))
    return [Problem(code=code, message=message) for code, message in faults]


def _remarks(raw: str, text: str, label: str | None, options: Mapping[str, str]) -> list[Problem]:
    remarks = []
    if _bytes(raw) > MAX_RAW_BYTES:
        remarks.append(
            ("raw_too_long", f"has a raw_model_output of more than {MAX_RAW_BYTES} bytes; the rest is ignored")
        )
    same = label is not None and normalise(text) == normalise(options[label])
    if label is not None and same and text != options[label]:
        remarks.append(("option_spelling", f"writes the text of option {label} another way"))
    return [Problem(code=code, message=message) for code, message in remarks]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
