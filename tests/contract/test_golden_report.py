"""Report generation against the golden data: texts, the three text metrics, the file check, whole submissions, medals.

Every case follows its verdict: what is right is reproduced, the rest as ``recommended`` or the specification says. Left
out: ``observations`` and ``lightweight_pairs`` (a fallback metric that is not offered), ``judge_*`` and ``key_file``
(other modules), ``chexbert_prf``, ``radgraph_reward`` and ``tiny_*`` (tests of the clinical metrics), and of
``submissions`` and ``aggregate_primitives`` whatever a track does not decide (ratings, workflow scores).
"""

from __future__ import annotations

import base64
import functools
import os
import re
from pathlib import Path
from typing import Any

import pytest
from golden_data import golden as golden_of
from golden_data import load as load_golden
from toys import report_generation as toy

from automedbench.base.cards import Medal
from automedbench.base.errors import InvalidSubmission
from automedbench.base.files import write_bytes
from automedbench.base.records import CaseEntry, Manifest, RunId, SubmissionRecord
from automedbench.metrics.bleu import NOTHING, bleu, bleu_counts, mean_bleu
from automedbench.metrics.meteor import Wordnet, meteor, meteor_counts
from automedbench.metrics.rouge import rouge_l, rouge_tokens
from automedbench.scoring.run import medal
from automedbench.tracks import ScoringInputs
from automedbench.tracks.report_generation import TRACK as report_generation
from automedbench.tracks.report_generation import components
from automedbench.tracks.report_generation.check import read_report
from automedbench.tracks.report_generation.components import Measured, ReportPair
from automedbench.tracks.report_generation.settings import ReportSettings
from automedbench.tracks.report_generation.text import extract, has_section, normalise, sections, tokens

golden = functools.partial(golden_of, "report")
load = functools.partial(load_golden, "report")
CODES = {"missing_file": "not_found"}  # our name for a file that is not there, the same in every track


# --- texts ----------------------------------------------------------------------------------------------------

# Verdicts "wrong" and "questionable", and the headings that the specification's D.1 reads differently.
FINDINGS_BY_RULE = {
    "lowercase_header": "The lungs are clear. No pleural effusion or pneumothorax is seen. Heart size is normal.",
    "mixed_case_header": "The lungs are clear. No pleural effusion or pneumothorax is seen. Heart size is normal.",
    "header_slash": "The lungs are clear. No pleural effusion or pneumothorax is seen. Heart size is normal.",
    "empty_findings": "",
    "two_findings": "first part here.\nsecond part here.",
    "bom_crlf": "The lungs\nare clear.",
}


@pytest.mark.parametrize("case", golden("text"))
def test_text(case: Any) -> None:
    """Normalised text, tokens, sections, and the findings."""
    expected, text = case["expected"], case["text"]
    assert normalise(text) == expected["normalized"]
    assert tokens(normalise(text)) == expected["tokens"]
    assert extract(text, "findings") == FINDINGS_BY_RULE.get(case["id"], expected["findings"])
    if case["id"] not in FINDINGS_BY_RULE:
        assert {name: content for name, content in sections(text).items() if content} == expected["sections"]
        # Strict mode raises where a report of the data set has no findings: staging leaves it out.
        assert has_section(text, "findings_only") == isinstance(expected["findings_strict"], str)


# --- text metrics ---------------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    return tokens(normalise(text))


@pytest.mark.parametrize("case", golden("nlg"))
def test_bleu_and_rouge(case: Any) -> None:
    expected = case["expected"]
    counts = bleu_counts(words(case["prediction"]), words(case["reference"]))
    # COCO's constants leave 1e-16 where not one token matches; ours is 0.
    assert bleu(counts) == pytest.approx(expected["recommended_bleu_1_to_4"], abs=1e-12)
    assert mean_bleu(counts) == pytest.approx(expected["recommended_bleu_mean"], abs=1e-12)
    pair = (rouge_tokens(normalise(case[side])) for side in ("reference", "prediction"))
    assert rouge_l(*pair) == pytest.approx(expected["rouge_score_rougeL_f"], abs=1e-12)


def coco_tokens(text: str) -> list[str]:
    """The reference's: a period stands alone, case and everything else stay."""
    return re.sub(" +", " ", text.replace(".", " .")).split()


def test_corpus_bleu(shared: Path) -> None:
    """Corpus values on the reference's own tokens (pycocoevalcap 1.2), and the mean of per-report values."""
    corpus = load("nlg")["corpus"]
    counts = [
        bleu_counts(coco_tokens(right), coco_tokens(left))
        for left, right in zip(corpus["references"], corpus["predictions"], strict=True)
    ]
    expected = corpus["expected"]
    assert bleu(sum(counts, NOTHING)) == pytest.approx(expected["coco_bleu_1_to_4"], abs=1e-12)
    assert mean_bleu(sum(counts, NOTHING)) == pytest.approx(expected["coco_bleu_mean"], abs=1e-12)
    mean = sum(map(mean_bleu, counts)) / len(counts)
    assert mean == pytest.approx(expected["mean_of_per_report_bleu_mean"], abs=1e-12)


@pytest.fixture(scope="module")
def wordnet() -> Wordnet:
    folder = Path(os.environ.get("AMB_WORDNET", "/usr/share/wordnet"))
    if not (folder / "data.noun").is_file():
        pytest.skip("no complete WordNet: install wordnet-base or set AMB_WORDNET")
    return Wordnet(folder)


@pytest.mark.wordnet
@pytest.mark.parametrize("case", golden("nlg"))
def test_meteor(case: Any, wordnet: Wordnet) -> None:
    """NLTK's value with all of WordNet, without tolerance."""
    counts = meteor_counts(words(case["prediction"]), words(case["reference"]), wordnet)
    assert meteor(counts) == case["expected"]["nltk_meteor_recommended_tokens"]


# --- file check -----------------------------------------------------------------------------------------------


def by_rule(case: Any, text: str) -> list[str]:
    """Expected codes; letters, signs and one byte order mark that the reference refuses are allowed (spec, part C)."""
    codes: list[str] = case["expected"]["errors"]
    if case["verdict"].startswith("too strict") or text.startswith("\ufeff"):
        codes = [code for code in codes if code != "non_printable_characters"]
    return codes


@pytest.mark.parametrize("case", golden("format_file"))
def test_format_of_a_file(case: Any) -> None:
    limits = load("format_file")["limits"]
    settings = ReportSettings(
        min_chars=limits["min_chars"], max_chars=limits["max_chars"], min_alpha_chars=limits["min_alpha_chars"]
    )
    if not case["expected"]["exists"]:
        assert case["expected"]["errors"] == ["missing_file"]
        return
    data = base64.b64decode(case["file_b64"])
    try:
        found = [problem.code for problem in read_report(data, "report.txt", settings).problems]
    except InvalidSubmission as error:
        found = [error.code]
    assert found == by_rule(case, data.decode(errors="replace"))


# --- whole submissions ----------------------------------------------------------------------------------------

STUB = load("submissions").get("metric_stub", {})
LABELS = {"micro_average_precision": "p", "micro_average_recall": "r", "micro_average_f1": "f1"}


def constant(names: dict[str, float]) -> Any:
    """A clinical engine that gives every report that is there the same values, as the golden stack does."""

    def engine(pairs: list[ReportPair], _: Any) -> Measured:
        values = {name: [value if pair.candidate else 0.0 for pair in pairs] for name, value in names.items()}
        return Measured(values, dict(names))  # type: ignore[arg-type]

    return engine


def lay_out(case: Any, folder: Path) -> tuple[Manifest, SubmissionRecord]:
    """References, submitted files and the verdict on them."""
    for name, reference, prediction in zip(case["case_ids"], case["references"], case["predictions_b64"], strict=True):
        write_bytes(folder / "private" / name / "report.txt", reference.encode())
        if prediction is not None:
            path = folder / "submission/agents_outputs" / name / "report.txt"
            write_bytes(path, base64.b64decode(prediction))
    entries = [CaseEntry(id=name, inputs={}, private={}) for name in case["case_ids"]]
    manifest = Manifest(
        task="golden", task_version=1, track="report_generation", dataset="golden", sampling="", cases=entries
    )
    cases = report_generation.check(toy.CARD, manifest, folder / "submission")
    checked = SubmissionRecord(
        run=RunId(agent="golden", task="golden", tier="lite", repeat=1),
        track_version=report_generation.version,
        cases=cases,
        completion_rate=sum(each.completed for each in cases) / len(cases),
        valid_rate=sum(each.status == "valid" for each in cases) / len(cases),
    )
    return manifest, checked


@pytest.mark.parametrize("case", golden("submissions"))
def test_submission(case: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Completion and the flags behind S4 and S5 as recommended; the score by the specification's D.9.

    The heavy metrics of the golden file are constants; so are the clinical ones here.
    """
    radgraph = {"F1RadGraph": STUB["F1-Radgraph-partial"]}
    chexbert = {name: STUB[f"chexbert_all_micro_{key}"] for name, key in LABELS.items()}
    monkeypatch.setattr(components, "measure_radgraph", constant(radgraph))
    monkeypatch.setattr(components, "measure_chexbert", constant(chexbert))
    manifest, checked = lay_out(case, tmp_path)
    card = toy.CARD.model_copy(update={"metric": toy.CARD.metric.model_copy(update={"settings": {}})})
    scored = report_generation.score(
        ScoringInputs(card, manifest, tmp_path / "submission", tmp_path / "private", checked, toy.RESOURCES)
    )
    recommended = case["expected"]["recommended"]
    assert checked.completion_rate == pytest.approx(recommended["completion_rate"])
    assert 0.5 * checked.completion_rate + 0.5 * checked.submitted_valid == pytest.approx(recommended["s4"])
    assert 0.5 * (scored.task_score > 0) + 0.5 * checked.all_valid == pytest.approx(recommended["s5_if_submitted"])
    clinical = sum(radgraph.values()) + sum(chexbert.values())
    for each in scored.cases:
        text = sum(each.metrics[name] or 0 for name in ("BLEU", "METEOR", "ROUGE_L"))
        there = each.status == "valid"
        assert each.metrics["report_score"] == pytest.approx((text + clinical) / 7 if there else 0)
    per_case = [each.metrics["report_score"] or 0 for each in scored.cases]
    assert scored.task_score == pytest.approx(sum(per_case) / len(per_case))


@pytest.mark.parametrize("case", golden("submissions", id="perfect_light") + golden("submissions", id="sections_light"))
def test_perfect_submissions(case: Any, tmp_path: Path) -> None:
    """The references themselves, with and without headings: text metrics at their ceiling (METEOR just below 1)."""
    manifest, checked = lay_out(case, tmp_path)
    scored = report_generation.score(
        ScoringInputs(toy.CARD, manifest, tmp_path / "submission", tmp_path / "private", checked, toy.RESOURCES)
    )
    assert scored.metrics["BLEU"] == pytest.approx(1, abs=1e-8)
    assert scored.metrics["ROUGE_L"] == 1
    assert 0.999 < (scored.metrics["METEOR"] or 0) < 1


# --- medals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", golden("aggregate_primitives", f="medal"))
def test_medal(case: Any) -> None:
    """Thresholds 0.80 and 0.55, inclusive."""
    medals = [Medal(name="good", at_least={"s": 0.80}), Medal(name="okay", at_least={"s": 0.55})]
    assert medal(medals, {"s": case["clinical"]}) == case["expected"]["name"]
