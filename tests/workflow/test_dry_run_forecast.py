"""`snakemake -n` says what the planned runs would take, then the steps, and costs nothing itself."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml
from campaigns import at, fresh_copy, only
from conftest import Project

PAID = {
    "provider": "openai",
    "model": "m",
    "base_url": "http://127.0.0.1:9/v1",
    "api_key_env": "NOT_SET_KEY",
    "pricing": {"input": "2.50", "output": "15.00", "as_of": "2026-05-28", "source": "test"},
}
AGENTS = {"agents": {"priced": PAID, "other": PAID}}
PRICED = ("agents_file=priced.yaml", "sandbox={backend: apptainer, network: sealed}")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A clean clone with an agent that costs money; nothing in this module changes it."""
    place = tmp_path_factory.mktemp("clone") / "automedbench"
    fresh_copy(place)
    (place / "priced.yaml").write_text(yaml.safe_dump(AGENTS))
    return at(place)


def streams(project: Project, *options: str) -> tuple[str, str]:
    """Standard output and error of a dry run, apart."""
    done = subprocess.run(
        ["snakemake", "--profile", "profiles/demo", "-n", *options],
        cwd=project.path,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout, done.stderr


def test_first_what_it_takes(clone: Project) -> None:
    """By hand: 5 scripted runs of at most an hour each. The steps are counted on standard output, after it."""
    out, err = streams(clone)
    assert out.splitlines()[0] == "35 steps to do:"  # 5 runs of 6 steps, fetch, stage, plan, leaderboard, all
    assert ["run_agent", "5"] in [line.split() for line in out.splitlines()]
    assert "python scripts" not in out
    lines = err[err.index("Forecast") :].splitlines()
    assert lines[0] == "Forecast of 5 runs still to do; nothing is spent by a forecast:"
    assert re.split(r"\s{2,}", lines[-1]) == ["all", "5", "unknown", "5.0", "0", "0", "0.00", "0.00", "no model"]
    assert not (clone.path / "results/demo").exists()


def test_money_without_a_key(clone: Project) -> None:
    """By hand: 2 runs each of 1.7325 USD (33 turns of 15 000 + 1 000 tokens), 10 USD of budget, no key needed.

    At most the 20 million tokens and 20 USD of config/config.yaml each. With a third repeat there are 6 runs.
    """
    matrix = "matrix={agents: [priced, other], repeats: 2}"
    (clone.path / "paid/ledger").mkdir(parents=True)
    (clone.path / "paid/ledger/run+1.json").write_text("{")  # a ledger is read, also when the interpreter ends
    _, err = streams(clone, "--config", matrix, *PRICED, "budget={max_cost_usd: 10}", "results=paid")
    assert "\nThe ledger is damaged: paid/ledger/run+1.json cannot be read.\n" in err
    assert re.search(r"^priced +2 +unknown +2\.0 +1,056,000 +40,000,000 +3\.46 +40\.00 +the configuration$", err, re.M)
    assert "\nBudget: 10.00 USD, of which 10.00 USD are left: enough for what is expected" in err
    assert re.search(r"^as configured +4 +none +none$", err, re.M)
    assert re.search(r"^one repeat more +6 +\d\d\.\d +none$", err, re.M)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--quiet", "all"), id="quiet"),
        pytest.param(("prepare",), id="no run is planned"),
    ],
)
def test_nothing_to_say(clone: Project, options: tuple[str, ...]) -> None:
    out, err = streams(clone, *options)
    assert "Forecast" not in out + err


def test_only_planned_runs_count(clone: Project) -> None:
    _, err = streams(clone, *only("careful", "hasty"))
    assert "Forecast of 2 runs still to do" in err


def test_a_plan_that_fails_has_no_forecast(clone: Project) -> None:
    done = clone.snakemake("-n", "no-such-target")
    assert done.returncode != 0
    assert "Forecast" not in done.stdout
