"""The campaign's ledger: what is spent stays counted, reservations of the dead are free, the budget is never exceeded.

Amounts in the expectations are added by hand.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from automedbench.agent.budget.ledger import Book, BudgetExhausted, CampaignLedger, Position, sum_attempts
from automedbench.agent.durable.lease import STALE_S, Holder, identify
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import to_json, write_record
from automedbench.commands.spending import spending_lines

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


def test_what_all_attempts_at_a_run_cost(tmp_path: Path) -> None:
    """By hand: 0.25 of a first attempt whose folder was moved away, 0.10 of its successor, 0.20 of the second."""
    ledger = ledger_of(tmp_path)
    ledger.spend(RUN, "0001", usd("0.25"), 1)
    ledger.begin(RUN, "0001")
    for run, attempt, cost in ((RUN, "0001", "0.10"), (RUN, "0002", "0.20"), (RUN, "0003", "4"), (OTHER, "0001", "8")):
        ledger.spend(run, attempt, usd(cost), 1)
    assert sum_attempts(ledger.folder, RUN, 2) == usd("0.55")
    ledger.spend(RUN, "0002", None, 1)
    assert sum_attempts(ledger.folder, RUN, 2) is None
    assert sum_attempts(ledger.folder, THIRD, 1) == 0


def test_an_attempt_from_start_to_end(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "5")
    ledger.reserve(RUN, usd("2"), "a")
    assert ledger.totals().all == Position(reserved=usd("2"))
    ledger.announce(RUN, "a", usd("0.5"))
    ledger.spend(RUN, "a", usd("0.25"), 1000)
    ledger.spend(RUN, "a", usd("0.10"), 300)
    assert ledger.totals().all == Position(usd("0.35"), usd("1.65"), tokens=1300, requests=2)
    ledger.settle(RUN, "a")
    assert ledger.totals().all == Position(usd("0.35"), tokens=1300, requests=2)


def test_sums_per_agent_and_task(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    for run, amount in ((RUN, "1"), (OTHER, "2"), (THIRD, "4")):
        ledger.reserve(run, usd("5"), "t")
        ledger.spend(run, "t", usd(amount), 10)
    totals = ledger.totals()
    spent = [(name, position.spent) for name, position in totals.by_agent_and_task().items()]
    assert spent == [("careful/bccd-det-task", 1), ("careful/toy-task", 2), ("hasty/bccd-det-task", 4)]
    assert totals.runs[OTHER] == Position(usd("2"), usd("3"), tokens=10, requests=1)


def test_more_spent_than_reserved_counts_in_full(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    ledger.reserve(RUN, usd("1"), "a")
    ledger.spend(RUN, "a", usd("1.5"), 1)
    assert ledger.totals().all.committed == usd("1.5")


def test_unknown_price(tmp_path: Path) -> None:
    """Counted as requests and tokens without a price, never as 0 USD for sure."""
    ledger = ledger_of(tmp_path)
    ledger.reserve(RUN, None, "a")
    ledger.spend(RUN, "a", None, 700)
    ledger.settle(RUN, "a")
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
    ledger.settle(RUN, "a")
    ledger.reserve(THIRD, usd("3"), "c")


def test_refused_when_the_budget_is_spent(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "5")
    ledger.reserve(RUN, usd("4"), "a")
    ledger.spend(RUN, "a", usd("4"), 1)
    ledger.settle(RUN, "a")
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


def test_a_request_in_doubt_is_counted_once(tmp_path: Path) -> None:
    """By hand: 0.5 USD asked for when the process died, then the attempt goes on, is settled, and is looked at."""
    in_process(
        tmp_path, f"ledger.reserve({RUN!r}, Decimal('2'), 'a'); ledger.announce({RUN!r}, 'a', Decimal('0.5')); {DIE}"
    )
    ledger = ledger_of(tmp_path, "5")
    ledger.reserve(RUN, usd("2"), "a")
    ledger.settle(RUN, "a")
    assert ledger.totals().all == ledger_of(tmp_path).totals().all == Position(doubtful=usd("0.5"))


def test_an_attempt_that_goes_on_has_spent_part_of_its_reservation(tmp_path: Path) -> None:
    in_process(tmp_path, f'ledger.reserve("{RUN}", Decimal(4), "a"); ledger.spend("{RUN}", "a", Decimal(3), 1); {DIE}')
    ledger = ledger_of(tmp_path, "5")
    ledger.reserve(RUN, usd("4"), "a")
    assert ledger.totals().all == Position(usd("3"), usd("1"), tokens=1, requests=1)
    ledger.announce(RUN, "a", usd("1"))
    with pytest.raises(BudgetExhausted):
        ledger.announce(RUN, "a", usd("2.5"))
    ledger.spend(RUN, "a", usd("1"), 1)
    ledger.settle(RUN, "a")
    assert ledger.totals().all.committed == usd("4")


def test_another_token_is_another_attempt(tmp_path: Path) -> None:
    in_process(tmp_path, f'ledger.reserve("{RUN}", Decimal(4), "a"); ledger.spend("{RUN}", "a", Decimal(3), 1); {DIE}')
    with pytest.raises(BudgetExhausted):
        ledger_of(tmp_path, "5").reserve(RUN, usd("4"), "b")


def test_what_was_moved_away_stays_counted(tmp_path: Path) -> None:
    """A run's folder is moved away to repeat it: the new attempt has the number of the old one, and starts at 0."""
    ledger, attempt = ledger_of(tmp_path, "5"), tmp_path / "results/runs" / RUN / "attempts/0001"
    for spent in ("2", "1.5"):
        attempt.mkdir(parents=True)
        ledger.begin(RUN, "0001")
        ledger.reserve(RUN, usd("1"), "0001")
        ledger.announce(RUN, "0001", usd(spent))
        ledger.spend(RUN, "0001", usd(spent), 10)
        ledger.settle(RUN, "0001")
        before = ledger.totals().moved
        shutil.rmtree(tmp_path / "results/runs")
        assert ledger.totals().moved == before + Position(usd(spent), tokens=10, requests=1)
    assert ledger.totals().all == ledger.totals().moved == Position(usd("3.5"), tokens=20, requests=2)
    assert "3.50 USD by attempts whose folders were moved" in "\n".join(spending_lines(ledger.totals(), {}))
    with pytest.raises(BudgetExhausted):  # 1.5 of 5 are left
        ledger.reserve(OTHER, usd("2"), "0001")


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
    """A process on another node that has reserved 4 USD, and maybe holds the run's lease."""

    def make(*, lease_s: float | None, lease_token: str = "same") -> Holder:
        owner = identify().model_copy(update={"host": "node-7", "boot": "another"})
        path = tmp_path / "results/ledger" / f"{RUN.replace('/', '+')}+a.json"
        write_record(path, Book(run=RUN, attempt="a", holder=owner, reserved="4"))
        if lease_s is not None:
            holder = owner if lease_token == "same" else owner.model_copy(update={"pid": owner.pid + 1})
            lease = tmp_path / "results/runs" / RUN / "lease.json"
            lease.parent.mkdir(parents=True)
            lease.write_text(to_json(holder.model_dump(mode="json")))
            os.utime(lease, (time.time() - lease_s,) * 2)
        return owner

    return make


@pytest.mark.parametrize(
    ("lease_s", "lease_token", "alive"),
    [
        pytest.param(5, "same", True, id="lease is fresh"),
        pytest.param(2 * STALE_S, "same", False, id="lease is stale"),
        pytest.param(None, "same", False, id="no lease"),
        pytest.param(5, "other", False, id="lease of another process"),
        pytest.param(-86_400, "same", False, id="touched before the clock was set back"),
    ],
)
def test_processes_on_other_nodes(
    tmp_path: Path,
    elsewhere: Callable[..., Holder],
    lease_s: float | None,
    lease_token: str,
    alive: bool,
) -> None:
    elsewhere(lease_s=lease_s, lease_token=lease_token)
    ledger = ledger_of(tmp_path, "5")
    if alive:
        with pytest.raises(BudgetExhausted):
            ledger.reserve(OTHER, usd("2"), "b")
    else:
        ledger.reserve(OTHER, usd("5"), "b")


# --- books ----------------------------------------------------------------------------------------------------


def booked(tmp_path: Path) -> Path:
    """The book of an attempt that spent 1 + 2 USD and whose process was killed."""
    spends = "; ".join(f'ledger.spend("{RUN}", "a", Decimal({amount}), 1)' for amount in (1, 2))
    in_process(tmp_path, f'ledger.reserve("{RUN}", Decimal(4), "a"); {spends}; {DIE}')
    return next((tmp_path / "results/ledger").glob("*.json"))


def test_one_book_per_attempt(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, "5")
    for run in (RUN, OTHER):
        ledger.reserve(run, usd("2"), "0001")
        ledger.spend(run, "0001", usd("2"), 1)
        ledger.settle(run, "0001")
    assert sorted(path.name for path in ledger.folder.iterdir()) == [
        "careful+bccd-det-task+lite+r1+0001.json",
        "careful+toy-task+lite+r1+0001.json",
    ]
    assert ledger.totals().all.spent == 4


def test_a_damaged_book_is_reported_and_stops_a_budget(tmp_path: Path) -> None:
    path = booked(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    totals = ledger_of(tmp_path).totals()
    assert totals.all.spent == 0
    assert totals.problems == (f"{path} cannot be read",)
    with pytest.raises(InfrastructureError, match="cannot be read"):
        ledger_of(tmp_path, "100").reserve(OTHER, usd("1"), "b")
    with pytest.raises(InfrastructureError, match="what the attempt has spent is not known"):
        ledger_of(tmp_path).reserve(RUN, usd("1"), "a")


def test_what_a_killed_writer_left_is_no_book(tmp_path: Path) -> None:
    path = booked(tmp_path)
    path.with_name(f".{path.name}.0123abcd.tmp").write_bytes(b"{")
    totals = ledger_of(tmp_path).totals()
    assert (totals.all.spent, totals.problems) == (3, ())


@pytest.mark.parametrize("moment", ["before the write", "before the rename", "after the rename"])
@pytest.mark.parametrize("step", ["announce", "spend"])
def test_killed_while_it_writes(tmp_path: Path, step: str, moment: str) -> None:
    """A request of at most 0.6 USD that costs 0.5: never less than was spent, and never a book that is half there."""
    code = f"""
        from automedbench.base import files
        ledger.reserve("{RUN}", Decimal(4), "a")
        def die(*_): {DIE}
        def arm():
            replace = files.os.replace
            if "{moment}" == "before the write":
                files.new_beside = die
            elif "{moment}" == "before the rename":
                files.os.replace = die
            else:
                files.os.replace = lambda *names: (replace(*names), die())
        if "{step}" == "announce":
            arm()
        ledger.announce("{RUN}", "a", Decimal("0.6"))
        arm()
        ledger.spend("{RUN}", "a", Decimal("0.5"), 100)
    """
    assert in_process(tmp_path, code).returncode == -signal.SIGKILL
    total = ledger_of(tmp_path).totals()
    expected = {
        ("announce", True): Position(doubtful=usd("0.6")),
        ("announce", False): Position(),
        ("spend", True): Position(spent=usd("0.5"), tokens=100, requests=1),
        ("spend", False): Position(doubtful=usd("0.6")),
    }
    assert (total.all, total.problems) == (expected[step, moment == "after the rename"], ())


def test_a_full_disk_leaves_the_book_as_it_was(tmp_path: Path) -> None:
    """The limit on the size of files plays the full disk. What was asked before it stays in doubt."""
    code = f"""
        import resource
        from automedbench.base.errors import InfrastructureError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        ledger.reserve("{RUN}", Decimal(1), "a")
        ledger.announce("{RUN}", "a", Decimal("0.5"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            ledger.spend("{RUN}", "a", Decimal("0.25"), 1)
        except InfrastructureError as error:
            print(error)
    """
    done = in_process(tmp_path, code)
    assert "Cannot write" in done.stdout, done.stderr
    assert ledger_of(tmp_path).totals().runs == {RUN: Position(doubtful=usd("0.5"))}


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
        ledger.settle(run, token)
"""


def test_many_processes_never_exceed_the_budget(tmp_path: Path) -> None:
    """Each worker notes what it really spends before it books it; some are killed at a random moment.

    Refused attempts keep their reservation until the worker ends, as a crash between two lines would.
    """
    budget = usd("12")
    chance = random.Random(1)
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
