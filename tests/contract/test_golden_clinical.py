"""Clinical report metrics against the golden data: CheXbert's agreement, RadGraph's rewards, the tiny checkpoints."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automedbench.metrics.checkpoints import quiet_and_offline
from automedbench.metrics.chexbert import LABELS, ChexbertLabeler, binary, corpus_prf, report_prf
from automedbench.metrics.radgraph import RadgraphScorer, reward

GOLDEN = Path(__file__).resolve().parents[3] / "shared/golden/report"
TINY = GOLDEN / "tiny_checkpoints"


def read(name: str) -> dict[str, Any]:
    """One golden file; skips where there is none."""
    path = GOLDEN / f"{name}.json"
    if not path.is_file():
        pytest.skip("no golden data beside the repository")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def text_of(value: Any) -> str:
    """A text, written out or as a repetition."""
    return value if isinstance(value, str) else value["repeat"] * value["times"]


# --- agreement -------------------------------------------------------------------------------------------------


def test_label_order() -> None:
    assert list(LABELS) == read("chexbert_prf")["label_order"]


def test_chexbert_agreement() -> None:
    """Binary labels, counts per report and corpus values; every case of the file is right."""
    cases = read("chexbert_prf")["cases"]
    assert {case["verdict"] for case in cases} == {"right"}
    for case in cases:
        references, candidates = case["reference_classes"], case["prediction_classes"]
        expected = case["expected"]
        assert binary(references).astype(int).tolist() == expected["reference_binary"], case["id"]
        assert binary(candidates).astype(int).tolist() == expected["prediction_binary"], case["id"]
        micro = expected["corpus_micro"]
        corpus = corpus_prf(references, candidates)
        assert corpus[3:] == pytest.approx((micro["p"], micro["r"], micro["f1"]), abs=1e-12), case["id"]
        assert corpus.tp + corpus.fn == micro["support"], case["id"]
        for row, counts in enumerate(expected["per_report_counts"]):
            found = report_prf(references[row], candidates[row])
            assert found[:3] == (counts["tp"], counts["fp"], counts["fn"]), case["id"]


def test_radgraph_rewards() -> None:
    """The level that scores, for every ordered pair of graphs."""
    golden = read("radgraph_reward")
    graphs = {name: annotation["entities"] for name, annotation in golden["annotations"].items()}
    assert len(golden["cases"]) >= 50
    for case in golden["cases"]:
        found = reward(graphs[case["ref"]], graphs[case["hyp"]])
        assert found == pytest.approx(case["partial"], abs=1e-12), case


# --- tiny checkpoints ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("something wanted to use the network")

    monkeypatch.setattr(socket.socket, "__init__", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What the original packages answer for the tiny checkpoints."""
    found = read("tiny_expected")
    with quiet_and_offline():
        for name in ("torch", "transformers", "radgraph"):
            pytest.importorskip(name, reason=f"{name} is not installed (make setup-radiology)")
    return found


@pytest.fixture(scope="module")
def labeler(expected: dict[str, Any]) -> ChexbertLabeler:
    return ChexbertLabeler(TINY / "chexbert.pth", TINY / "bert-base-uncased")


@pytest.mark.radiology
def test_tiny_chexbert_labels(labeler: ChexbertLabeler, expected: dict[str, Any]) -> None:
    """Class codes of each text, an empty and a too long one among them, as f1chexbert gives them."""
    cases = expected["chexbert"]["cases"]
    assert len(cases) == 10
    for case in cases:
        found = labeler.label(text_of(case["text"]))
        assert found.tolist() == case["classes"], case["text"]
        assert binary(found).astype(int).tolist() == case["binary"], case["text"]


@pytest.mark.radiology
def test_tiny_chexbert_corpus(labeler: ChexbertLabeler, expected: dict[str, Any]) -> None:
    """Micro values over the batch and all 14 labels; the five of the competition are no component of ours."""
    golden = expected["chexbert"]
    references, candidates = (
        np.stack([labeler.label(text) for text in golden[key]]) for key in ("batch_refs", "batch_hyps")
    )
    micro = golden["micro_all14"]
    found = corpus_prf(references, candidates)
    assert found[3:] == pytest.approx((micro["precision"], micro["recall"], micro["f1-score"]), abs=1e-12)
    assert found.tp + found.fn == micro["support"]


@pytest.mark.radiology
def test_tiny_radgraph(expected: dict[str, Any]) -> None:
    """The annotation of a text, and the rewards of each pair, as the package's own classes give them."""
    golden = expected["radgraph"]
    scorer = RadgraphScorer(TINY / "radgraph.tar.gz", TINY / "bert-base-uncased")
    assert scorer.annotate(golden["first_annotation"]["text"]) == golden["first_annotation"]["entities"]
    found = [
        reward(scorer.annotate(reference), scorer.annotate(candidate))
        for reference, candidate in zip(golden["refs"], golden["hyps"], strict=True)
    ]
    assert found == pytest.approx(golden["partial"], abs=golden["tolerance"])
    assert np.mean(found) == pytest.approx(golden["mean"][1], abs=golden["tolerance"])
