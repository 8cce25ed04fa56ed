"""The forecast: expected from finished runs or the configuration, at most from limits, and nothing unknown shown as 0.

By hand, at 2.50 USD per million prompt tokens and 15 USD per million reply tokens: a run as configured (33 turns of
15 000 + 1 000 tokens) has 528 000 tokens for 1.7325 USD; a finished one of the factory (90 000 + 10 000 tokens in
100 s) 0.375 USD.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from factories import make_run_record, make_score, make_totals

from automedbench.agent.budget.ledger import CampaignLedger, LedgerTotals, Position
from automedbench.agent.budget.used import ProcessUsage, UsedBook
from automedbench.base.errors import ConfigError, MissingDataError
from automedbench.base.files import write_record
from automedbench.base.records import RunId, Used, now
from automedbench.campaign.load import Campaign, build_campaign_record, load_campaign
from automedbench.commands import main
from automedbench.commands.spending import spending_lines
from automedbench.planning.forecast import (
    MAX_READ,
    estimate_slow_down,
    forecast_lines,
    forecast_shares,
    make_forecast,
    planned_runs,
    runs_to_do,
)

ROOT = Path(__file__).resolve().parents[2]
CARD: dict[str, Any] = yaml.safe_load((ROOT / "config/tasks/detection/bccd-det-task.yaml").read_text())
TASK = "bccd-det-task"
ALL_BASES = "8 the configuration, 4 no model"
PRICING = {"input": "2.50", "output": "15.00", "as_of": "2026-05-28", "source": "test"}
PAID = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "KEY"}
SCRIPTED = {"provider": "scripted", "script": "script.yaml"}
AGENTS = {"priced": PAID | {"pricing": PRICING}, "unpriced": PAID, "script": SCRIPTED}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cards").mkdir()
    (tmp_path / f"cards/{TASK}.yaml").write_text(yaml.safe_dump(CARD))
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump({"agents": AGENTS}))
    return tmp_path


def config_of(*agents: str, **changes: Any) -> dict[str, Any]:
    return {
        "agents_file": "agents.yaml",
        "cards": ["cards"],
        "matrix": {"agents": list(agents), "tasks": [TASK], "tiers": ["lite", "standard"], "repeats": 2},
        "data": {name: f"data/{name}" for name in ("raw", "public", "private", "manifests")},
        **changes,
    }


def campaign_of(*agents: str, **changes: Any) -> Campaign:
    return load_campaign(config_of(*agents, **changes))


def finish(campaign: Campaign, *runs: str, **totals: Any) -> None:
    """Write ``run.json`` of runs, as the driver does."""
    for path in runs:
        agent, task, tier, repeat = path.split("/")
        run = RunId.model_validate({"agent": agent, "task": task, "tier": tier, "repeat": repeat[1:]})
        record = make_run_record(make_score(run, totals=make_totals(**totals)))
        digest = campaign.digest(agent, task)
        record = record.model_copy(update={"agent_digest": digest, "task_version": campaign.cards[task].version})
        write_record(Path("results/runs") / path / "run.json", record)


def rows(campaign: Campaign) -> dict[str, list[str]]:
    """Agent → cells of its row, columns parted by two blanks."""
    lines = forecast_lines(campaign, runs_to_do(campaign))
    table = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[2:]]
    return {cells[0]: cells[1:] for cells in table if len(cells) == 9}


# --- numbers --------------------------------------------------------------------------------------------------


def test_before_any_run(place: Path) -> None:
    """4 runs each: 528 000 tokens and 1.7325 USD per priced run; an hour each at most.

    By hand, at most 150 turns × (a window of 200 000 + a reply of 8192 tokens) = 31 228 800 tokens, and
    150 × (200 000 × 2.5 + 8192 × 15) millionths = 93.432 USD per run.
    """
    assert rows(campaign_of("priced", "unpriced", "script")) == {
        "priced": ["4", "unknown", "4.0", "2,112,000", "124,915,200", "6.93", "373.73", "the configuration"],
        "unpriced": ["4", "unknown", "4.0", "2,112,000", "124,915,200", "unknown", "unknown", "the configuration"],
        "script": ["4", "unknown", "4.0", "0", "0", "0.00", "0.00", "no model"],
        "all": ["12", "unknown", "12.0", "4,224,000", "249,830,400", "unknown", "unknown", ALL_BASES],
    }


def test_limits_bound_what_is_expected(place: Path) -> None:
    """100 000 tokens per run cost 1.5 USD at most (see test_prices)."""
    limited = campaign_of("priced", limits={"max_total_tokens": 100_000, "time_limit_s": 1800, "max_cost_usd": None})
    assert rows(limited)["priced"][1:7] == ["unknown", "2.0", "400,000", "400,000", "6.00", "6.00"]
    cheap = campaign_of("priced", limits={"max_cost_usd": 0.5})
    assert rows(cheap)["priced"][5:7] == ["2.00", "2.00"]  # 4 × 0.5


def test_the_limit_of_turns(place: Path) -> None:
    """Not 33 turns but 10 are expected: 10 × (15 000 + 1000) tokens and 10 × 0.0525 USD; 10 × 0.62288 USD at most."""
    short = campaign_of("priced", limits={"max_turns": 10})
    assert rows(short)["priced"][3:7] == ["640,000", "8,327,680", "2.10", "24.92"]
    finish(campaign_of("priced"), f"priced/{TASK}/lite/r1", turns=40)
    # Of a finished run with 40 turns a quarter: 25 000 tokens, 0.09375 USD.
    assert rows(short)["priced"][3:7] == ["75,000", "6,245,760", "0.28", "18.69"]


def test_no_limit_at_all(place: Path) -> None:
    free = campaign_of("priced", limits={"max_turns": None, "time_limit_s": None})
    assert rows(free)["priced"][1:7] == ["unknown", "no limit", "2,112,000", "no limit", "6.93", "no limit"]


def test_a_limit_of_cost_needs_a_price_or_a_limit_of_tokens(place: Path) -> None:
    campaign = campaign_of("unpriced", "script", limits={"max_cost_usd": 5, "max_total_tokens": 1000})
    assert {name: cells[4:7] for name, cells in rows(campaign).items()} == {
        "unpriced": ["4,000", "unknown", "unknown"],
        "script": ["0", "0.00", "0.00"],
        "all": ["4,000", "unknown", "unknown"],
    }
    card, record = campaign.cards[TASK], build_campaign_record(campaign)
    assert record.limits(card, campaign.agents["unpriced"]).max_cost_usd is None
    alone = build_campaign_record(campaign_of("unpriced", "script", limits={"max_cost_usd": 5}))
    assert alone.limits(card, campaign.agents["unpriced"]).max_cost_usd == 5  # refused when its run starts
    assert alone.limits(card, campaign.agents["script"]).max_cost_usd is None


def test_expected_from_runs_of_the_same_tier(place: Path) -> None:
    campaign = campaign_of("priced")
    finish(campaign, f"priced/{TASK}/lite/r1")
    finish(campaign, f"priced/{TASK}/standard/r1", wall_s=3600.0)
    # 100 s and 3600 s; twice 100 000 tokens, twice 0.375 USD.
    assert rows(campaign)["priced"] == [
        *("2", "1.0", "2.0", "200,000", "62,457,600", "0.75", "186.86", "runs like these")
    ]


def test_expected_from_other_runs_of_the_agent(place: Path) -> None:
    campaign = campaign_of("priced")
    finish(campaign, f"priced/{TASK}/lite/r1", f"priced/{TASK}/lite/r2")
    assert rows(campaign)["priced"][3:] == ["200,000", "62,457,600", "0.75", "186.86", "its other runs"]


def test_cached_tokens_cost_what_they_cost(place: Path) -> None:
    """By hand: 60 000 × 2.5 + 30 000 × 0.25 + 10 000 × 15 millionths = 0.3075 USD per run."""
    agents = AGENTS | {"priced": PAID | {"pricing": PRICING | {"cached_input": "0.25"}}}
    (place / "agents.yaml").write_text(yaml.safe_dump({"agents": agents}))
    campaign = campaign_of("priced")
    tokens = make_totals().tokens.model_copy(update={"cached": 30_000})
    finish(campaign, f"priced/{TASK}/lite/r1", f"priced/{TASK}/standard/r1", tokens=tokens)
    assert rows(campaign)["priced"][5] == "0.62"


def test_damaged_results_are_passed_over(place: Path) -> None:
    campaign = campaign_of("priced")
    for name, text in (("r1", "{"), ("r2", json.dumps({"totals": {"turns": "many"}}))):
        path = place / f"results/runs/priced/{TASK}/lite/{name}/run.json"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert rows(campaign)["priced"][0] == "4"


def test_few_files_are_looked_for(place: Path) -> None:
    """A slice of thousands of planned runs must not look for thousands of files that are not there."""
    matrix = {"agents": ["priced"], "tasks": [TASK], "tiers": ["lite"], "repeats": MAX_READ + 50}
    campaign = campaign_of(matrix=matrix)
    finish(campaign, f"priced/{TASK}/lite/r{MAX_READ + 40}")
    [forecast] = make_forecast(campaign, campaign.runs[:1])
    assert list(forecast.basis) == ["the configuration"]


def test_a_changed_agent_is_to_be_run_again(place: Path) -> None:
    campaign = campaign_of("priced")
    finish(campaign, f"priced/{TASK}/lite/r1")
    assert len(runs_to_do(campaign)) == 3
    agents = AGENTS | {"priced": AGENTS["priced"] | {"temperature": 0.5}}
    (place / "agents.yaml").write_text(yaml.safe_dump({"agents": agents}))
    assert len(runs_to_do(campaign_of("priced"))) == 4


def test_nothing_left(place: Path) -> None:
    campaign = campaign_of("script")
    assert forecast_lines(campaign, []) == []


# --- the budget -----------------------------------------------------------------------------------------------


def money_lines(campaign: Campaign) -> list[str]:
    lines = forecast_lines(campaign, runs_to_do(campaign))
    return [line for line in lines[2:] if line.endswith(".")]


@pytest.mark.parametrize(
    ("budget", "limits", "answer"),
    [
        pytest.param("20", {"max_cost_usd": 4}, "enough for all of them", id="more than the limits allow"),
        pytest.param("7", {"max_cost_usd": 4}, "enough for what is expected", id="more than expected"),
        pytest.param("7", {}, "enough for what is expected", id="no limit"),
        pytest.param(
            "4", {}, "enough for about 2 of 4 runs; the others will be refused", id="less than expected: 4 ÷ 1.7325"
        ),
    ],
)
def test_is_the_budget_enough(place: Path, budget: str, limits: dict[str, float], answer: str) -> None:
    campaign = campaign_of("priced", budget={"max_cost_usd": budget}, limits=limits)
    amount = f"{Decimal(budget):.2f}"
    assert money_lines(campaign) == [f"Budget: {amount} USD, of which {amount} USD are left: {answer}."]


def test_spent_money_is_gone(place: Path) -> None:
    ledger = CampaignLedger(Path("results/ledger"))
    ledger.reserve(f"priced/{TASK}/lite/r1", Decimal(2), "a")
    ledger.spend(f"priced/{TASK}/lite/r1", "a", Decimal("1.25"), 1000)
    ledger.spend(f"unpriced/{TASK}/lite/r1", "b", None, 1000)
    campaign = campaign_of("priced", budget={"max_cost_usd": "10"})
    assert money_lines(campaign) == [
        "Spent so far: 1.25 USD; 0.75 USD reserved by runs in progress; 1 request at an unknown price.",
        "Budget: 10.00 USD, of which 8.00 USD are left: enough for what is expected.",
    ]


def test_unknown_prices_are_named(place: Path) -> None:
    assert money_lines(campaign_of("priced", "unpriced")) == [
        "No budget is set (budget.max_cost_usd).",
        "Without 'pricing' in the agents file the cost stays unknown: unpriced.",
    ]


def test_a_budget_without_prices_is_no_campaign(place: Path) -> None:
    with pytest.raises(ConfigError, match=r"agents\.unpriced\.pricing: is missing, so budget\.max_cost_usd"):
        campaign_of("unpriced", budget={"max_cost_usd": "10"})


def test_gpu_hours(place: Path) -> None:
    """By hand, × 4: a finished run held its node for 1.5 h; of another, an old record, 0.5 h of wall clock."""

    def told(campaign: Campaign) -> list[str]:
        _, head, *lines = forecast_lines(campaign, runs_to_do(campaign))
        assert head.split("  ")[0] == "agent"
        return [cell.strip() for cell in lines[0].split("  ") if cell.strip()][:6]

    campaign = campaign_of("priced", sandbox={"gpu": 4})
    assert told(campaign) == ["priced", "4", "unknown", "4.0", "unknown", "16.0"]
    finish(campaign, *(f"priced/{TASK}/{tier}/r1" for tier in ("lite", "standard")), wall_s=1800.0, exec_s=1080.0)
    path = Path(f"results/runs/priced/{TASK}/lite/r1/run.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"used": {"held_s": 5400.0}}))
    assert told(campaign) == ["priced", "2", "1.0", "2.0", "6.0", "8.0"]  # 1.5 h × 4, but at most 4; 0.5 h × 4
    # Of two that share, by hand: calls are 1/5 and 3/5 of these runs, 1.5 h × 4 / 2 × 1.04 + 0.5 h × 4 / 2 × 1.36.
    shares = forecast_shares(campaign, runs_to_do(campaign))
    assert (shares[1], shares[2]) == (6.0, pytest.approx(4.48))
    assert "by sandbox.gpu_share: 1: 6.0 (+0% time), 2: 4.5 (+49% time)" in "".join(
        forecast_lines(campaign, runs_to_do(campaign))
    )
    assert "GPU" not in forecast_lines(campaign_of("priced"), campaign.runs)[1]


def test_runs_that_share_a_card_take_longer() -> None:
    """By hand for 0.2: calls last 0.2, 0.24, 0.2923, 0.3606 with 1 … 4 runs, by the queue that the one before found."""
    assert [round(estimate_slow_down(0.2, share), 4) for share in (1, 2, 3, 4)] == [1.0, 1.04, 1.0923, 1.1606]


# --- commands -------------------------------------------------------------------------------------------------


def test_of_planned_steps(place: Path) -> None:
    """What the workflow hands over: wildcards, in any order."""
    steps = [SimpleNamespace(agent="priced", task=TASK, tier="lite", repeat=str(number)) for number in (2, 1)]
    assert forecast_lines(campaign_of("priced"), planned_runs(steps))[0].startswith("Forecast of 2 runs still to do")


def test_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files over each other, single keys over all, as Snakemake reads them."""
    base = config_of("priced")
    (place / "base.yaml").write_text(yaml.safe_dump(base))
    (place / "more.yaml").write_text(yaml.safe_dump({"matrix": {"repeats": 3}}))
    main(["forecast", "--configfile", "base.yaml", "more.yaml", "--config", "only={tiers: [lite]}"])
    assert capsys.readouterr().out.startswith("Forecast of 3 runs still to do")
    main(["forecast", "--configfile", "base.yaml", "--config", "matrix={repeats: 1}", "budget={max_cost_usd: 2}"])
    assert "Budget: 2.00 USD" in capsys.readouterr().out


@pytest.mark.parametrize("entry", ["novalue", "9=1", "a b=1"])
def test_wrong_entries(place: Path, entry: str) -> None:
    with pytest.raises(ConfigError, match="is not of the form key=value"):
        main(["forecast", "--configfile", "agents.yaml", "--config", entry])


def test_words_behind_configfile_are_files(place: Path) -> None:
    """`verify --configfile demo/config.yaml careful/a/lite/r1`: the option takes the run for a file, and says so."""
    (place / "base.yaml").write_text(yaml.safe_dump(config_of("priced")))
    with pytest.raises(ConfigError, match="'careful/a/lite/r1' does not exist") as raised:
        main(["forecast", "--configfile", "base.yaml", "careful/a/lite/r1"])
    assert "put other arguments before it" in str(raised.value)


def test_spending(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = CampaignLedger(Path("results/ledger"))
    ledger.reserve("priced/a-task/lite/r1", Decimal(2), "a")
    ledger.spend("priced/a-task/lite/r1", "a", Decimal("0.05"), 1000)
    ledger.spend("unpriced/a-task/lite/r1", "b", None, 234_567)
    for attempt in ("priced/a-task/lite/r1/attempts/a", "unpriced/a-task/lite/r1/attempts/b"):
        Path("results/runs", attempt).mkdir(parents=True)
    main(["spending"])
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells == [
        ["agent/task", "USD spent", "reserved", "in doubt", "tokens", "requests"],
        ["priced/a-task", "0.0500", "1.95", "0.00", "1,000", "1"],
        ["unpriced/a-task", "unknown", "0.00", "0.00", "234,567", "1"],
        ["all", "0.0500 + unknown", "1.95", "0.00", "235,567", "2"],
        ["Spent so far: 0.0500 USD; 1.95 USD reserved by runs in progress; 1 request at an unknown price."],
    ]
    main(["spending", "--json"])
    found = json.loads(capsys.readouterr().out)["runs"]["priced/a-task/lite/r1"]
    assert (found["spent_usd"], found["reserved_usd"], found["tokens"]) == ("0.05", "1.95", 1000)


def test_spending_of_gpus(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of runs without a model too, and apart from what is not known; without a GPU there are no such columns."""
    for run, gpus, held_s, busy_s in (
        ("priced/a-task/lite/r1", 2, 7200.0, 900.0),
        ("script/a-task/lite/r1", 1, 1800.0, None),
        ("script/b-task/lite/r1", 0, None, None),
    ):
        shift = ProcessUsage(began=now(), anew=True, gpus=gpus, used=Used(gpu_held_s=held_s, gpu_busy_s=busy_s))
        path = Path("results/ledger/used") / f"{run.replace('/', '+')}+0001.json"
        write_record(path, UsedBook(run=run, shifts=[shift]))
    CampaignLedger(Path("results/ledger")).spend("priced/a-task/lite/r1", "0001", Decimal(1), 1000)
    Path("results/runs/priced/a-task/lite/r1/attempts/0001").mkdir(parents=True)
    main(["spending"])
    lines = [
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in capsys.readouterr().out.splitlines()
    ]
    assert [[line[0], *line[-2:]] for line in lines[:-1]] == [
        ["agent/task", "GPU hours", "computing"],
        ["priced/a-task", "2.00", "0.25"],
        ["script/a-task", "0.50", "unknown"],
        ["all", "2.50", "unknown"],
    ]
    assert spending_lines(
        LedgerTotals({"a/b": Position()}), {"a/b": Used(gpu_held_s=7200.0, gpu_busy_s=900.0, gpu_idle_s=90.0)}
    )[-2:] == [
        "GPUs were held 8.00 times as long as they computed.",
        "The longest time in which a GPU did not compute: 1.5 minutes.",
    ]
    main(["spending", "--json"])
    found = json.loads(capsys.readouterr().out)["runs"]["script/a-task/lite/r1"]
    assert (found["gpu_held_s"], found["gpu_busy_s"], found["requests"]) == (1800.0, None, 0)


def test_spending_of_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MissingDataError, match="results is not a folder"):
        main(["spending"])
    (place / "results").mkdir()
    main(["spending"])
    assert capsys.readouterr().out == "Nothing was spent or reserved yet.\n"
