"""A smaller storm of docs/agents-measured.md: broken answers change no score, and no agent is blamed for them.

``AMB_STORM`` sets how many runs (18 by default; the figures of docs/agents-measured.md are of 500).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench_storm import blamed, different, open_to_user, run_storm  # noqa: E402
from storm import CHAT, FATAL, ONCE, Speech, characters, make_site, storm, tallies  # noqa: E402
from unprivileged import user_folder, why_not  # noqa: E402

from automedbench_rehearsal.model_server.faults import FINAL, HARMLESS, TRANSIENT  # noqa: E402

RUNS = int(os.environ.get("AMB_STORM", "18"))
NOT_THE_ENDPOINTS = {"length_cut", "status_400", "status_403", "status_404", "status_422"} - set(FATAL)
"""The model's own, or a wrong configuration."""


FEWEST = 18
"""Runs in which most kinds of faults occur."""
SPEECHES = [
    pytest.param(Speech("chat"), RUNS, id="chat"),
    pytest.param(Speech("responses"), max(FEWEST, RUNS // 2), id="responses", marks=pytest.mark.long),
    pytest.param(Speech("messages", stream=True), max(FEWEST, RUNS // 2), id="streamed", marks=pytest.mark.long),
]


@pytest.mark.timeout(900 + 5 * RUNS)
@pytest.mark.parametrize(("speech", "runs"), SPEECHES)
def test_a_storm_changes_nothing(speech: Speech, runs: int) -> None:
    """Nine characters, two at a time; a few runs in real containers where there are some."""
    contained = 0 if why_not("light") or speech != CHAT else 4
    with user_folder() as folder:
        open_to_user(folder)
        quiet, faulty, exchanges = run_storm(folder, runs=runs, share=0.3, contained=contained, seed=7, speech=speech)
    assert len(faulty) == runs
    assert {run.kind for run in faulty} == set(quiet)

    # The storm was one.
    faults = tallies(exchanges)
    assert sum(tally.injected for tally in faults.values()) >= 0.3 * len(exchanges)
    assert len(faults) >= 25
    assert sum(sum(run.attempts.values()) for run in faulty) == len(exchanges)

    # And nothing came of it.
    assert [(run.character, run.repeat, run.outcome, run.detail) for run in different(quiet, faulty)] == []
    assert blamed(quiet, faulty) == 0
    assert all(tally.recovered == tally.injected for tally in faults.values())

    # The characters differ, so that a wrong score would show; only in a container is it seen what a run opens.
    assert len({run.scores["scores"]["overall"] for run in quiet.values()}) >= 6
    assert Counter(run.outcome for run in quiet.values() if not run.contained) == {"submitted": 7, "stopped": 2}
    assert not contained or quiet["snoop", True].scores != quiet["snoop", False].scores


def test_the_storm_knows_every_fault() -> None:
    """A new kind of fault takes part in it, or it is said here why not."""
    plan = storm(0.3, 1)
    assert plan.mix is not None
    taking_part = {*plan.mix.kinds, *(fault.kind for faults in plan.turns.values() for fault in faults)}
    assert {*HARMLESS, *TRANSIENT, *FINAL} - taking_part == NOT_THE_ENDPOINTS
    assert set(ONCE) <= taking_part


def test_characters_without_a_server(tmp_path: Path) -> None:
    """The task is the demo's, staged as ever; every case is in somebody's submission."""
    site = make_site(tmp_path)
    models = characters(site)
    assert len(site.truth()) == 16
    assert all(f"agents_outputs/{case}/" in str(models["careful"]) for case in site.truth())
