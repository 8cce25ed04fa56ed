"""VQA's pictures: images, question and options, the answer, and the gold it was compared with."""

from __future__ import annotations

import json

from automedbench.base.records import CaseEntry, CaseScore
from automedbench.base.views import ViewText
from automedbench.tracks import Drawing, ScoringInputs
from automedbench.tracks.common.pictures import photo_frames
from automedbench.tracks.vqa.score import read_answer
from automedbench.tracks.vqa.stage import QUESTION, TRUTH, read_truth

MAX_TEXT = 4000


def show(inputs: ScoringInputs, case: CaseScore) -> Drawing:
    """The question with its images, the answer if it can be read, and the reference answer."""
    entry = inputs.entry(case.case)
    folder = inputs.given(entry.id)
    names: list[str] = json.loads((folder / QUESTION).read_text("utf-8"))["image_paths"]
    truth = read_truth(inputs.private / entry.id / TRUTH, entry)
    options: dict[str, str] = entry.geometry["options"]
    question = "\n".join([truth.question, *(f"{letter}) {text}" for letter, text in options.items())])
    answer = _answer(inputs, entry)
    reference = _labelled(truth.answer_label, truth.answer_text)
    texts = [
        ViewText(side="input", title="Question", text=question[:MAX_TEXT]),
        *([ViewText(side="prediction", title="Answer", text=answer[:MAX_TEXT])] if answer is not None else []),
        ViewText(side="reference", title=f"Reference answer ({truth.kind})", text=reference[:MAX_TEXT]),
    ]
    return Drawing(frames=photo_frames(folder, names), texts=texts)


def _answer(inputs: ScoringInputs, entry: CaseEntry) -> str | None:
    """The agent's answer as it was read for scoring; None where there was none."""
    if not inputs.verdict(entry.id).completed:
        return None
    answer = read_answer(inputs, entry)
    return _labelled(answer.label, answer.text)


def _labelled(label: str | None, text: str) -> str:
    # JSON may hold lone surrogates, which no file of ours can.
    cleaned = text.encode("utf-8", "replace").decode("utf-8")
    return cleaned if label is None else f"{label}) {cleaned}"
