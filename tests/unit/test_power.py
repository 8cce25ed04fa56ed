"""What a campaign can tell apart: closed forms against tables and by hand; variances and designs of campaigns."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from math import inf, sqrt
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import make_score

from automedbench.base.files import write_record
from automedbench.campaign.load import Campaign, load_campaign
from automedbench.commands import main
from automedbench.planning.power import Variances, estimate_variances, find_cheapest, list_detectable, power_lines
from automedbench.statistics import design

ROOT = Path(__file__).resolve().parents[2]
TASKS = ["bccd-det-task", "slake-task"]
SIX = [*TASKS, "dentex-det-task", "grazpedwri-det-task", "vqa-rad-task", "pathvqa-task"]
PRICING = {"input": "2.50", "output": "15.00", "as_of": "2026-05-28", "source": "test"}
AGENT = {
    "provider": "openai",
    "model": "m",
    "base_url": "http://127.0.0.1:9/v1",
    "api_key_env": "K",
    "pricing": PRICING,
}
KNOWN = Variances(runs=0.01, interaction=0.0)


@pytest.mark.parametrize(
    ("agents", "degrees", "quantile"), [(3, 20, 3.58), (7, 60, 4.31), (4, 10, 4.33), (10, inf, 4.47), (2, 20, 2.95)]
)
def test_tukey(agents: int, degrees: float, quantile: float) -> None:
    """Upper 5 % points of the studentised range as printed in textbooks (Pearson and Hartley, table 29)."""
    assert design.tukey_critical_value(agents, degrees) == pytest.approx(quantile / sqrt(2), abs=0.004)


def test_variances_by_hand() -> None:
    """Two sides × 14 cells × (1/14)² × 0.16²/3; 1, 3 and 2, 2, 5: (2 + 6) / 3; rows 1 5 / 3 3: residuals of ±1."""
    assert design.error_variance([(1 / 14, 3)] * 14, 0.0256) == pytest.approx(2 * 0.0256 / 42)
    assert design.pooled_variance([[1, 3], [2, 2, 5], [7]]) == (pytest.approx(8 / 3), 3)
    assert design.interaction_variance([[1, 5], [3, 3]]) == (pytest.approx(4), 1)


def test_smallest_difference() -> None:
    """Two agents: 1.960 + 0.842 standard errors, of √(2 · 0.01 / 10 000); of 0.6 / 4 each for three steady runs."""
    assert design.smallest_difference([(1.0, 10_000)], 0.01, 2) == pytest.approx(2.8016 * sqrt(2e-6), rel=1e-3)
    assert design.smallest_difference([(1.0, 3)], 0.0, 2) == pytest.approx(2.8016 * sqrt(2) * 0.15, rel=1e-3)


def test_six_tasks_of_the_same_sign() -> None:
    """Two agents, six tasks: only six equal signs give p = 1/32 < 0.05; Φ(1.79)⁶ = 0.8, so that 1.79 · √6 = 4.4."""
    assert design.population_factor(6, 2) == pytest.approx(4.4, rel=0.05)
    assert design.population_factor(10_000, 2) == pytest.approx(2.80, abs=0.01)


# --- campaigns ------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump({"agents": dict.fromkeys("abc", AGENT)}))
    return tmp_path


def settings(**matrix: Any) -> dict[str, Any]:
    return {
        "agents_file": "agents.yaml",
        "cards": [str(ROOT / "config/tasks/detection"), str(ROOT / "config/tasks/vqa")],
        "matrix": {"agents": ["a", "b"], "tasks": TASKS, "repeats": 3} | matrix,
        "data": {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")},
    }


def campaign_of(**matrix: Any) -> Campaign:
    return load_campaign(settings(**matrix))


def finish(campaign: Campaign, value: Any) -> None:
    """Score every run of the campaign; ``value``: run → overall score."""
    for run in campaign.runs:
        score = make_score(run)
        scores = score.scores.model_copy(update={"overall": value(run)})
        write_record(Path("results/runs") / run.path / "score.json", score.model_copy(update={"scores": scores}))


def test_what_one_more_buys(place: Path) -> None:
    """By hand: 2 agents × 2 tasks × 2 tiers × 3 repeats; another repeat adds 8 runs, another task of the track 12."""
    found = list_detectable(campaign_of(), KNOWN)
    assert [each.runs for each in found] == [24, 32, 36]
    assert found[0].these_tasks > found[1].these_tasks > found[2].these_tasks > 0  # type: ignore[operator]
    assert {each.like_these for each in found} == {None}
    faulted = load_campaign(settings() | {"reliability": {"agents": ["a"], "faults": ["cut-call"]}})
    assert list_detectable(faulted, KNOWN)[0].these_tasks == found[0].these_tasks  # no agent more to tell apart
    assert [each.these_tasks is None for each in list_detectable(campaign_of(repeats=2), KNOWN)] == [True, False, True]


def test_variances_of_finished_runs(place: Path) -> None:
    """By hand: repeats at m - 0.1, m, m + 0.1 vary by 0.01. Agent a is 0.1 better and worse on tasks in turn.

    That leaves 6 · (0.0667² + 2 · 0.0333²) / 10 = 0.004 of task × agent, of which runs are 0.01 / 6. With two tasks
    there are 2 degrees of freedom, which are too few.
    """
    few = campaign_of(agents=["a", "b", "c"])
    shipped = estimate_variances(few, [])
    assert (shipped.runs, shipped.n_runs) == (pytest.approx(0.16**2), 0)
    campaign = campaign_of(agents=["a", "b", "c"], tasks=SIX)
    finish(campaign, lambda run: 0.5 + 0.1 * (run.repeat - 2) + (run.agent == "a") * 0.1 * (-1) ** SIX.index(run.task))
    found = estimate_variances(campaign, [])
    assert (found.runs, found.n_runs) == (pytest.approx(0.01), 108)
    assert (found.interaction, found.n_interaction) == (pytest.approx(0.004 - 0.01 / 6), 108)
    found = estimate_variances(few, [])
    last = "10.0 points between runs (from 36 finished runs), 10.0 of task × agent (shipped variance)."
    assert last in power_lines(few, found)[-1]
    assert estimate_variances(few, few.runs) == shipped  # all of them are planned again


def test_cheapest_design(place: Path) -> None:
    """By hand: 2.80² · 2 · 0.01 / (4 cells · 0.02²) = 98 repeats, a few more for the estimated variances; 1.7325 USD
    per run (tests/unit/test_forecast.py)."""
    here, like = find_cheapest(campaign_of(), KNOWN, 0.02)
    assert here.repeats in (99, 100)
    assert here.left is not None and here.left.amounts[-2] == 8 * here.repeats * Decimal("1.7325")
    assert len(like.tasks) > 6 and like.tasks[:2] == tuple(TASKS)
    for repeats, enough in ((like.repeats, True), (like.repeats - 1, False)):
        [found, *_] = list_detectable(campaign_of(tasks=list(like.tasks), repeats=repeats), KNOWN)
        assert (found.like_these is not None and found.like_these <= 0.02) is enough


def test_no_design(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand, with shipped variances and 12 tasks: (1.960 + 0.842 + 2 / 8) · √(2 · 0.1² / 12) = 12.5 points."""
    config = settings() | {"budget": {"max_cost_usd": "100"}}
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    main(["forecast", "--for", "5", "--configfile", "config.yaml"])
    here, like = capsys.readouterr().out.splitlines()[-2:]
    assert re.search(r"on these tasks: \d+ repeats of 2 tasks, .* unknown hours\. Budget: .* will be refused\.$", here)
    assert like.endswith("impossible, since all 12 tasks of the campaign's tracks tell 12.5 points apart at best.")
    (place / "config.yaml").write_text(yaml.safe_dump(config | {"matrix": config["matrix"] | {"tasks": TASKS[:1]}}))
    main(["forecast", "--for", "5", "--configfile", "config.yaml", "--json"])
    here, like = json.loads(capsys.readouterr().out)["designs"]
    assert like["problem"] == "the campaign's tracks have 3 tasks, 6 are needed"
    assert Decimal(here["usd"]) == here["runs"] * Decimal("1.7325")
    alone = config["matrix"] | {"agents": config["matrix"]["agents"][:1]}
    (place / "config.yaml").write_text(yaml.safe_dump(config | {"matrix": alone}))
    main(["forecast", "--for", "5", "--configfile", "config.yaml"])
    assert "differences need at least two agents with a model" in capsys.readouterr().out.splitlines()[-1]
