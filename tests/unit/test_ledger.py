"""The campaign's ledger: what is spent stays counted, reservations of the dead are free, the budget is never exceeded.

Amounts in the expectations are added by hand.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from automedbench.agent.budget.ledger import BudgetExhausted, CampaignLedger, Position
from automedbench.agent.budget.ledger_files import Entry, append_line
from automedbench.agent.durable.lease import STALE_S, Holder, identify
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import to_json
from automedbench.base.records import now

RUN, OTHER, THIRD = "careful/bccd-det-task/lite/r1", "careful/toy-task/lite/r1", "hasty/bccd-det-task/lite/r1"


def usd(text: str) -> Decimal:
    return Decimal(text)


def ledger_of(tmp_path: Path, budget: str | None = None) -> CampaignLedger:
    return CampaignLedger(tmp_path / "results/ledger", None if budget is None else usd(budget))


def in_process(tmp_path: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with a ledger without budget, called ``ledger``, in a process of its own."""
    return subprocess.run(command(tmp_path, code, *arguments), capture_output=True, text=True, check=False, timeout=60)


def command(tmp_path: Path, code: str, *arguments: str) -> list[str]:
    head = """
        import os, signal, sys, time
        from decimal import Decimal
        from pathlib import Path
        from automedbench.agent.budget.ledger import BudgetExhausted, CampaignLedger
        ledger = CampaignLedger(Path(sys.argv[1]), None)
    """
    text = textwrap.dedent(head) + textwrap.dedent(code)
    return [sys.executable, "-c", text, str(tmp_path / "results/ledger"), *arguments]


DIE = "os.kill(os.getpid(), signal.SIGKILL)"


# --- sums -----------------------------------------------------------------------------------------------------


def test_nothing_booked(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "5")
    assert ledger.totals().all == Position()
    assert not ledger.folder.exists()


def test_an_attempt_from_start_to_end(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "5")
    ledger.reserve(RUN, usd("2"), "a")
    assert ledger.totals().all == Position(reserved=usd("2"))
    ledger.announce(RUN, "a", usd("0.5"))
    ledger.spend(RUN, "a", usd("0.25"), 1000)
    ledger.spend(RUN, "a", usd("0.10"), 300)
    assert ledger.totals().all == Position(usd("0.35"), usd("1.65"), tokens=1300, requests=2)
    ledger.settle(RUN, "a", usd("0.35"))
    assert ledger.totals().all == Position(usd("0.35"), tokens=1300, requests=2)


def test_sums_per_agent_and_task(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    for run, amount in ((RUN, "1"), (OTHER, "2"), (THIRD, "4")):
        ledger.reserve(run, usd("5"), "t")
        ledger.spend(run, "t", usd(amount), 10)
    totals = ledger.totals()
    assert {name: position.spent for name, position in totals.by_agent().items()} == {"careful": 3, "hasty": 4}
    assert list(totals.by_agent_and_task()) == ["careful/bccd-det-task", "careful/toy-task", "hasty/bccd-det-task"]
    assert totals.runs[OTHER] == Position(usd("2"), usd("3"), tokens=10, requests=1)


def test_more_spent_than_reserved_counts_in_full(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    ledger.reserve(RUN, usd("1"), "a")
    ledger.spend(RUN, "a", usd("1.5"), 1)
    assert ledger.totals().all.committed == usd("1.5")


def test_a_settled_cost_beyond_the_booked_requests_counts(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    ledger.reserve(RUN, usd("1"), "a")
    ledger.spend(RUN, "a", usd("0.5"), 1)
    ledger.settle(RUN, "a", usd("0.75"))
    assert ledger.totals().all.spent == usd("0.75")


def test_unknown_price(tmp_path: Path) -> None:
    """Counted as requests and tokens without a price, never as 0 USD for sure."""
    ledger = ledger_of(tmp_path)
    ledger.reserve(RUN, None, "a")
    ledger.spend(RUN, "a", None, 700)
    ledger.settle(RUN, "a", None)
    assert ledger.totals().all == Position(tokens=700, requests=1, unpriced=1)


def test_exact_decimals(tmp_path: Path) -> None:
    """Ten thousand millionths are a hundredth; floats would miss it."""
    ledger = ledger_of(tmp_path)
    ledger.reserve(RUN, usd("1"), "a")
    for _ in range(10):
        ledger.spend(RUN, "a", usd("0.1"), 1)
    assert ledger.totals().all.spent == 1


# --- the budget -----------------------------------------------------------------------------------------------


def test_refused_when_reservations_fill_the_budget(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "5")
    ledger.reserve(RUN, usd("3"), "a")
    with pytest.raises(BudgetExhausted) as refusal:
        ledger.reserve(OTHER, usd("2.01"), "b")
    assert str(refusal.value) == (
        "The campaign's budget of 5.00 USD does not allow another 2.01 USD: 0.00 USD are spent and 3.00 USD reserved "
        "by runs in progress.\nRun the same command again when running ones have ended, or raise budget.max_cost_usd."
    )
    ledger.reserve(OTHER, usd("2"), "b")
    ledger.settle(RUN, "a", usd("0"))
    ledger.reserve(THIRD, usd("3"), "c")


def test_refused_when_the_budget_is_spent(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "5")
    ledger.reserve(RUN, usd("4"), "a")
    ledger.spend(RUN, "a", usd("4"), 1)
    ledger.settle(RUN, "a", usd("4"))
    with pytest.raises(BudgetExhausted, match=r"4\.00 USD are spent[^\n]*\nRaise budget\.max_cost_usd"):
        ledger.reserve(OTHER, usd("1.5"), "b")
    assert isinstance(BudgetExhausted(""), InfrastructureError)


def test_a_price_is_needed_to_keep_a_budget(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agents\.careful\.pricing: is missing"):
        ledger_of(tmp_path, "5").reserve(RUN, None, "a")


def test_a_reservation_grows_with_need(tmp_path: Path) -> None:
    """An expected cost is no limit: the request that would go beyond it needs money of the budget first."""
    ledger = ledger_of(tmp_path, "2")
    ledger.reserve(RUN, usd("1"), "a")
    ledger.spend(RUN, "a", usd("0.9"), 1)
    ledger.announce(RUN, "a", usd("0.3"))
    assert ledger.totals().all.committed == usd("1.5")  # 0.9 + 0.3, and a quarter of that
    ledger.spend(RUN, "a", usd("0.3"), 1)
    ledger.announce(RUN, "a", usd("0.75"))
    ledger.spend(RUN, "a", usd("0.75"), 1)
    assert ledger.totals().all.committed == usd("1.95")  # a quarter more did not fit
    with pytest.raises(BudgetExhausted):
        ledger.announce(RUN, "a", usd("0.06"))


# --- crashes --------------------------------------------------------------------------------------------------


def test_what_a_killed_process_spent_stays_counted(tmp_path: Path) -> None:
    code = f"""
        ledger.reserve("{RUN}", Decimal(4), "a")
        ledger.announce("{RUN}", "a", Decimal("0.5"))
        ledger.spend("{RUN}", "a", Decimal("0.4"), 100)
        ledger.announce("{RUN}", "a", Decimal("0.6"))
        {DIE}
    """
    assert in_process(tmp_path, code).returncode == -signal.SIGKILL
    ledger = ledger_of(tmp_path, "5")
    assert ledger.totals().all == Position(usd("0.4"), doubtful=usd("0.6"), tokens=100, requests=1)
    with pytest.raises(BudgetExhausted):
        ledger.reserve(OTHER, usd("4.01"), "b")
    ledger.reserve(OTHER, usd("4"), "b")


def test_an_attempt_that_goes_on_has_spent_part_of_its_reservation(tmp_path: Path) -> None:
    in_process(tmp_path, f'ledger.reserve("{RUN}", Decimal(4), "a"); ledger.spend("{RUN}", "a", Decimal(3), 1); {DIE}')
    ledger = ledger_of(tmp_path, "5")
    ledger.reserve(RUN, usd("4"), "a")
    assert ledger.totals().all == Position(usd("3"), usd("1"), tokens=1, requests=1)
    ledger.announce(RUN, "a", usd("1"))
    with pytest.raises(BudgetExhausted):
        ledger.announce(RUN, "a", usd("2.5"))
    ledger.spend(RUN, "a", usd("1"), 1)
    ledger.settle(RUN, "a", usd("4"))
    assert ledger.totals().all.committed == usd("4")


def test_another_token_is_another_attempt(tmp_path: Path) -> None:
    in_process(tmp_path, f'ledger.reserve("{RUN}", Decimal(4), "a"); ledger.spend("{RUN}", "a", Decimal(3), 1); {DIE}')
    with pytest.raises(BudgetExhausted):
        ledger_of(tmp_path, "5").reserve(RUN, usd("4"), "b")


def test_a_living_process_keeps_its_reservation(tmp_path: Path) -> None:
    code = f'ledger.reserve("{RUN}", Decimal(4), "a"); print("reserved", flush=True); time.sleep(60)'
    with subprocess.Popen(command(tmp_path, code), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reserved\n"
        ledger = ledger_of(tmp_path, "5")
        with pytest.raises(BudgetExhausted):
            ledger.reserve(OTHER, usd("2"), "b")
        process.kill()
        process.wait()
        ledger.reserve(OTHER, usd("5"), "b")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Callable[..., Holder]:
    """A process on another node that has reserved 4 USD, long ago or just now, and maybe holds the run's lease."""

    def make(*, written_s: float, lease_s: float | None, lease_token: str = "same") -> Holder:
        owner = identify().model_copy(update={"host": "node-7", "boot": "another"})
        path = tmp_path / "results/ledger/node-7-1-1-0.jsonl"
        append_line(path, Entry(event="reserve", run=RUN, token="a", usd="4", at=now()), first=owner)
        os.utime(path, (time.time() - written_s,) * 2)
        if lease_s is not None:
            holder = owner if lease_token == "same" else owner.model_copy(update={"pid": owner.pid + 1})
            lease = tmp_path / "results/runs" / RUN / "lease.json"
            lease.parent.mkdir(parents=True)
            lease.write_text(to_json(holder.model_dump(mode="json")))
            os.utime(lease, (time.time() - lease_s,) * 2)
        return owner

    return make


@pytest.mark.parametrize(
    ("written_s", "lease_s", "lease_token", "alive"),
    [
        pytest.param(1, None, "same", True, id="written just now"),
        pytest.param(2 * STALE_S, 5, "same", True, id="lease is fresh"),
        pytest.param(2 * STALE_S, 2 * STALE_S, "same", False, id="lease is stale"),
        pytest.param(2 * STALE_S, None, "same", False, id="no lease"),
        pytest.param(2 * STALE_S, 5, "other", False, id="lease of another process"),
    ],
)
def test_processes_on_other_nodes(
    tmp_path: Path,
    elsewhere: Callable[..., Holder],
    written_s: float,
    lease_s: float | None,
    lease_token: str,
    alive: bool,
) -> None:
    elsewhere(written_s=written_s, lease_s=lease_s, lease_token=lease_token)
    ledger = ledger_of(tmp_path, "5")
    if alive:
        with pytest.raises(BudgetExhausted):
            ledger.reserve(OTHER, usd("2"), "b")
    else:
        ledger.reserve(OTHER, usd("5"), "b")


# --- files ----------------------------------------------------------------------------------------------------


def booked(tmp_path: Path) -> Path:
    """The file of a process that spent 1 + 2 USD and was killed."""
    spends = "; ".join(f'ledger.spend("{RUN}", "a", Decimal({amount}), 1)' for amount in (1, 2))
    in_process(tmp_path, f'ledger.reserve("{RUN}", Decimal(4), "a"); {spends}; {DIE}')
    return next((tmp_path / "results/ledger").glob("*.jsonl"))


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    path = booked(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    totals = ledger_of(tmp_path).totals()
    assert (totals.all.spent, totals.problems) == (1, ())


def test_a_whole_last_line_without_its_newline_counts(tmp_path: Path) -> None:
    path = booked(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    assert ledger_of(tmp_path).totals().all.spent == 3


def test_a_damaged_line_is_reported_and_stops_a_budget(tmp_path: Path) -> None:
    path = booked(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\0\0garbage\n", *lines[3:]]))
    totals = ledger_of(tmp_path).totals()
    assert totals.all.spent == 2
    assert totals.problems == (f"{path}: line 3 cannot be read",)
    with pytest.raises(InfrastructureError, match="line 3 cannot be read"):
        ledger_of(tmp_path, "100").reserve(OTHER, usd("1"), "b")


@pytest.mark.parametrize("content", [b"", b'{"token": "abc'], ids=["empty", "torn header"])
def test_a_file_of_a_process_killed_at_once(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "results/ledger"
    folder.mkdir(parents=True)
    (folder / "node-1-1-0.jsonl").write_bytes(content)
    totals = ledger_of(tmp_path).totals()
    assert (totals.all, totals.problems) == (Position(), ())


def test_settled_files_are_closed_and_counted_once(tmp_path: Path) -> None:
    """Thousands of finished runs leave one file to read."""
    for number in range(3):
        run = RUN.replace("r1", f"r{number + 1}")
        code = f'ledger.reserve("{run}", None, "a"); ledger.spend("{run}", "a", Decimal("1.5"), 7)'
        assert in_process(tmp_path, f'{code}; ledger.settle("{run}", "a", None)').returncode == 0
    folder = tmp_path / "results/ledger"
    assert [path.name for path in folder.glob("*.jsonl")] == ["closed.jsonl"]
    assert len(list((folder / "closed").iterdir())) == 3
    ledger = ledger_of(tmp_path, "5")
    assert ledger.totals().all == Position(usd("4.5"), tokens=21, requests=3)
    with pytest.raises(BudgetExhausted):
        ledger.reserve(OTHER, usd("0.6"), "b")


def test_a_file_whose_sums_are_there_already_is_not_read_again(tmp_path: Path) -> None:
    """Its process was killed between the two steps of closing."""
    ledger = ledger_of(tmp_path)
    ledger.reserve(RUN, usd("1"), "a")
    ledger.spend(RUN, "a", usd("1"), 1)
    ledger.settle(RUN, "a", usd("1"))
    closed = next((ledger.folder / "closed").iterdir())
    closed.rename(ledger.folder / closed.name)
    assert ledger.totals().all.spent == 1


def test_the_same_process_goes_on_after_closing(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "5")
    for run in (RUN, OTHER):
        ledger.reserve(run, usd("2"), "a")
        ledger.spend(run, "a", usd("2"), 1)
        ledger.settle(run, "a", usd("2"))
    assert ledger.totals().all.spent == 4
    assert len(list((ledger.folder / "closed").iterdir())) == 2


def test_a_torn_line_of_closed_files_is_cut_off(tmp_path: Path) -> None:
    """Its file was not moved, so that nothing is lost."""
    ledger = ledger_of(tmp_path)
    for run in (RUN, OTHER):
        ledger.reserve(run, usd("1"), "a")
        ledger.spend(run, "a", usd("1"), 1)
        ledger.settle(run, "a", usd("1"))
        with open(ledger.folder / "closed.jsonl", "ab") as stream:
            stream.write(b'{"file": "torn')
    totals = ledger.totals()
    assert (totals.all.spent, totals.problems) == (2, ())


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """The limit on the size of files plays the full disk: 700 bytes hold the first line and one entry, not more."""
    code = f"""
        import resource
        from automedbench.base.errors import InfrastructureError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
        ledger.reserve("{RUN}", Decimal(1), "a")
        try:
            for _ in range(10):
                ledger.spend("{RUN}", "a", Decimal("0.001"), 1)
        except InfrastructureError as error:
            print(error)
    """
    done = in_process(tmp_path, code)
    assert "Cannot write to the campaign's ledger" in done.stdout, done.stderr
    path = next((tmp_path / "results/ledger").glob("*.jsonl"))
    assert path.read_bytes().endswith(b"}\n")
    assert ledger_of(tmp_path).totals().problems == ()


# --- many processes -------------------------------------------------------------------------------------------

WORKER = """
    import random
    chance = random.Random(int(sys.argv[2]))
    ledger.budget_usd = Decimal(sys.argv[3])
    record = open(sys.argv[4], "a")
    for number in range(6):
        run, token = f"agent{sys.argv[2]}/task/lite/r{number + 1}", "t"
        try:
            ledger.reserve(run, Decimal(chance.randint(50, 300)) / 100, token)
            for _ in range(chance.randint(1, 4)):
                most = Decimal(chance.randint(1, 150)) / 100
                ledger.announce(run, token, most)
                cost = most * chance.randint(0, 100) / 100
                print(cost, file=record, flush=True)
                ledger.spend(run, token, cost, 1)
        except BudgetExhausted:
            print("refused", file=record, flush=True)
            continue
        ledger.settle(run, token, None)
"""


@pytest.mark.parametrize("seed", range(3))
def test_many_processes_never_exceed_the_budget(tmp_path: Path, seed: int) -> None:
    """Each worker notes what it really spends before it books it; some are killed at a random moment.

    Refused attempts keep their reservation until the worker ends, as a crash between two lines would.
    """
    budget = usd("12")
    chance = random.Random(seed)
    workers = [
        subprocess.Popen(command(tmp_path, WORKER, str(number), str(budget), str(tmp_path / f"spent{number}.txt")))
        for number in range(6)
    ]
    ledger = CampaignLedger(tmp_path / "results/ledger", budget)
    victims = chance.sample(workers, 2)
    kill_at = [time.monotonic() + chance.uniform(0.5, 2.5) for _ in victims]
    try:
        while any(worker.poll() is None for worker in workers):
            for worker, moment in zip(victims, kill_at, strict=True):
                if time.monotonic() > moment:
                    worker.kill()
            assert ledger.totals().all.spent <= budget
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    noted = [line for path in tmp_path.glob("spent*.txt") for line in path.read_text().split()]
    really = sum((usd(line) for line in noted if line != "refused"), Decimal(0))
    total = ledger.totals()
    assert total.problems == ()
    assert "refused" in noted
    assert total.all.spent <= really <= total.all.spent + total.all.doubtful <= budget
