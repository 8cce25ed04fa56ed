"""Each detector fires on at least two runs and is silent on two of its track: counted over the tables of runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
import test_error_codes as by_calls
import test_error_signals as by_records
from failed_runs import case, codes_of

from automedbench.base.cards import load_card
from automedbench.scoring.codes import detectors
from automedbench.tracks import track_names

BY_TRACE = "execute.no_model_call"
"""Needs an audit; test_models_used.py has its runs."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def counted() -> dict[str, Counter[bool]]:
    """Detector → how many of the runs that its track has it fires on, and how many not."""
    card = load_card(ROOT / "config/tasks/detection/bccd-det-task.yaml")
    runs = [("detection", by_calls.codes(card, *row[1:5])) for row in by_calls.ROWS]
    runs += [(track, codes_of(track, **given)) for _, track, _, given, _ in by_records.ROWS]
    refused = [case("bccd_0001", "json", status="malformed"), case("bccd_0002", "json", status="malformed")]
    runs += [
        ("detection", codes_of("detection", refused, messages=messages, calls=calls))
        for _, messages, calls, _ in by_calls.REFUSALS
    ]
    gone = [case("c1", status="missing"), case("c2", status="missing")]
    runs += [(track, codes_of(track, gone, files=files)) for _, track, files, _ in by_calls.PLACES]
    found: dict[str, Counter[bool]] = defaultdict(Counter)
    for track, codes in runs:
        fired = {code.detector for code in codes}
        for detector in detectors(track):
            found[detector.id][detector.id in fired] += 1
    return found


def test_two_of_each(counted: dict[str, Counter[bool]]) -> None:
    names = {detector.id for track in track_names() for detector in detectors(track)} - {BY_TRACE}
    assert {name: dict(counted[name]) for name in names if min(counted[name][True], counted[name][False]) < 2} == {}
