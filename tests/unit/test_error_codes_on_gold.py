"""Detectors that read the transcript, on the gold set: verdicts of a person on S3 bound what may be called unread."""

from __future__ import annotations

from pathlib import Path

import pytest
from failed_runs import TASKS, case, codes_of, found_by

from automedbench.judge.gold import GoldTranscript, load_gold

GOLD = load_gold(Path(__file__).resolve().parents[2] / "config/gold")


def unread(gold: GoldTranscript) -> bool:
    """Whether poor outputs of this run count as never read back."""
    names = [f"case_{number}" for number in range(1, 5)]
    found = codes_of(gold.track, [case(name) for name in names], calls=gold.conversation.calls)
    return found_by(found, "verify.unread_poor") is not None


@pytest.mark.parametrize(
    "gold", [gold for gold in GOLD if gold.expected["s3"].verdict == 1.0], ids=lambda gold: gold.id
)
def test_validated_outputs_were_read(gold: GoldTranscript) -> None:
    """A person saw an output read back and checked."""
    assert gold.track in TASKS
    assert not unread(gold)
