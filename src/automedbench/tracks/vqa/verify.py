"""Verification: the mean answer score again, token F1 by rouge-score."""

from __future__ import annotations

from automedbench.tracks import ScoringInputs, track_settings
from automedbench.tracks.vqa.score import evidence_of
from automedbench.tracks.vqa.settings import Settings
from automedbench.tracks.vqa.verdicts import read_verdicts


def verify(inputs: ScoringInputs) -> tuple[str, float, float]:
    """The mean again: token F1 by rouge-score, everything else by plain comparison; verdicts of a judge as given."""
    from automedbench.metrics.answers_twin import answer_score, choice_score, library

    settings: Settings = track_settings(inputs.card)
    verdicts = read_verdicts(inputs.resources, inputs.manifest, inputs.checked, settings.judge_model)
    asked = verdicts.verdicts if verdicts and settings.scoring == "judge" else []
    given = {verdict.case: verdict.score for verdict in asked if verdict.score is not None}
    total = 0.0
    for case, truth, answer in evidence_of(inputs):
        if answer is None:
            continue
        if truth.answer_label is not None:
            total += choice_score(answer.label_field, truth.answer_label)
        elif truth.kind == "open" and case.case in given:
            total += given[case.case]
        else:
            total += answer_score(answer.text, truth.answer_text)
    return library(), total / len(inputs.manifest.cases), 1e-9
