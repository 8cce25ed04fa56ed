"""Ledger of a campaign: what it has cost and may still cost, kept over all nodes without a server.

Every process appends to a file of its own below ``<results>/ledger/`` and syncs it: money that was spent stays
counted, also after a kill. Only reserving money for an attempt needs the sums of all, and is done one at a time under
a lease. The lock lies in the same folder as the files: making it also makes an NFS client look for new files there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pydantic

from automedbench.agent.budget.ledger_files import (
    CLOSED,
    CLOSED_FOLDER,
    ZERO,
    Account,
    ClosedFile,
    Contents,
    Entry,
    Key,
    ProcessFile,
    append_line,
    drop_torn_tail,
    read_ledger,
    read_process_file,
)
from automedbench.agent.budget.prices import as_money
from automedbench.agent.durable.lease import STALE_S, Holder, Lease, hold_lease, identify, process_start
from automedbench.base.errors import ConfigError, InfrastructureError

LOCK = "lock.json"
LOCK_WAIT_S, LOCK_STALE_S, LOCK_POLL_S = 300.0, 60.0, 0.05
CLOSE_WAIT_S = 30.0
MORE = 4
"""A reservation that is too small for the next request grows by a quarter."""


class BudgetExhausted(InfrastructureError):
    """The campaign's budget does not allow what an attempt may cost; the run can be repeated with a larger one."""


@dataclass
class Position:
    """Money and tokens of one attempt, a run, an agent or all; USD.

    ``doubtful`` is the upper bound of requests that were under way when their process died: whether the provider
    charged for them is not known, and the budget counts them as spent.
    """

    spent: Decimal = ZERO
    reserved: Decimal = ZERO
    doubtful: Decimal = ZERO
    tokens: int = 0
    requests: int = 0
    unpriced: int = 0

    def __add__(self, other: Position) -> Position:
        return Position(
            self.spent + other.spent,
            self.reserved + other.reserved,
            self.doubtful + other.doubtful,
            self.tokens + other.tokens,
            self.requests + other.requests,
            self.unpriced + other.unpriced,
        )

    @property
    def committed(self) -> Decimal:
        """What the budget has to cover: spent, in doubt, and still reserved beyond that."""
        return self.spent + self.doubtful + self.reserved


@dataclass(frozen=True)
class LedgerTotals:
    """The ledger's sums: per run (``agent/task/tier/r1``) and in all, and lines that could not be read."""

    runs: dict[str, Position]
    problems: tuple[str, ...] = ()

    @property
    def all(self) -> Position:
        """Everything."""
        return sum(self.runs.values(), Position())

    def by(self, group: Callable[[str], str]) -> dict[str, Position]:
        """Sums over runs for which ``group`` gives the same name, sorted by it."""
        sums: dict[str, Position] = {}
        for run, position in self.runs.items():
            sums[group(run)] = sums.get(group(run), Position()) + position
        return dict(sorted(sums.items()))

    def by_agent(self) -> dict[str, Position]:
        """Sums per agent."""
        return self.by(lambda run: run.split("/")[0])

    def by_agent_and_task(self) -> dict[str, Position]:
        """Sums per ``agent/task``."""
        return self.by(lambda run: "/".join(run.split("/")[:2]))


@dataclass
class _Held:
    """What this process has reserved and spent for one attempt."""

    reserved: Decimal | None = None
    spent: Decimal = ZERO


class CampaignLedger:
    """The ledger as one process uses it; several threads may share it.

    ``token`` names an attempt and stays the same when the attempt goes on after a crash: what it has spent before then
    counts towards its reservation. Amounts are USD; None stands for an unknown price.
    """

    def __init__(self, folder: Path, budget_usd: Decimal | None = None, *, runs: Path | None = None) -> None:
        """``runs`` is the folder with the runs and their leases, by default ``runs`` beside ``folder``."""
        self.folder = Path(folder)
        self.budget_usd = budget_usd
        self._runs = self.folder.parent / "runs" if runs is None else runs
        self._mutex = threading.RLock()
        self._me: Holder | None = None
        self._file: Path | None = None
        self._serial = 0
        self._held: dict[Key, _Held] = {}

    def reserve(self, run_path: str, usd: Decimal | None, token: str) -> None:
        """Set aside the most that an attempt may cost, before its first request.

        Raises BudgetExhausted when spent + reserved + ``usd`` is more than the budget, ConfigError when there is a
        budget but no price, InfrastructureError when the ledger cannot be read or written.
        """
        with self._mutex:
            if self.budget_usd is None:
                self._append(Entry(event="reserve", run=run_path, token=token, usd=as_money(usd)))
                self._held[run_path, token] = _Held(usd)
                return
            if usd is None:
                agent = run_path.split("/")[0]
                raise ConfigError(
                    [f"agents.{agent}.pricing: is missing, so budget.max_cost_usd cannot be kept for {run_path}"]
                )
            with self._locked() as lock:
                before = self._affordable((run_path, token), usd)
                lock.check()
                self._append(Entry(event="reserve", run=run_path, token=token, usd=as_money(usd)))
            self._held[run_path, token] = _Held(usd, before)

    def announce(self, run_path: str, token: str, usd: Decimal | None) -> None:
        """Note a request that is about to be sent and costs at most ``usd``; ``spend`` follows, of 0 if it fails.

        A reservation that does not cover it is raised first. Raises BudgetExhausted when the budget does not allow it.
        """
        with self._mutex:
            held = self._held.setdefault((run_path, token), _Held())
            if usd is not None and self.budget_usd is not None and held.spent + usd > (held.reserved or ZERO):
                self._raise_reservation(run_path, token, held, usd)
            self._append(Entry(event="announce", run=run_path, token=token, usd=as_money(usd)))

    def spend(self, run_path: str, token: str, usd: Decimal | None, tokens: int) -> None:
        """Book what one request cost, answered or not. Never refused: the money is gone."""
        with self._mutex:
            self._append(Entry(event="spend", run=run_path, token=token, usd=as_money(usd), tokens=tokens))
            self._held.setdefault((run_path, token), _Held()).spent += usd or ZERO

    def settle(self, run_path: str, token: str, usd: Decimal | None) -> None:
        """End an attempt that cost ``usd`` in all, as far as known: what is left of its reservation is free again."""
        with self._mutex:
            self._append(Entry(event="settle", run=run_path, token=token, usd=as_money(usd)))
            self._held.pop((run_path, token), None)
            if not self._held:
                # It only makes the next reservation faster.
                with contextlib.suppress(InfrastructureError):
                    self._close_file()

    def totals(self) -> LedgerTotals:
        """Sums of everything booked so far, by all processes; takes no lock."""
        contents = read_ledger(self.folder)
        positions = self._positions(contents, None)
        runs: dict[str, Position] = {}
        for (run, _token), position in positions.items():
            runs[run] = runs.get(run, Position()) + position
        return LedgerTotals(dict(sorted(runs.items())), tuple(contents.problems))

    # --- the budget -------------------------------------------------------------------------------------------

    def _affordable(self, key: Key, usd: Decimal) -> Decimal:
        """What ``key`` has spent already; raises BudgetExhausted when the budget does not allow ``usd`` for it."""
        assert self.budget_usd is not None
        contents = read_ledger(self.folder)
        if contents.problems:
            raise InfrastructureError(
                f"The campaign's ledger is damaged, so the budget cannot be kept: {contents.problems[0]} "
                f"({len(contents.problems)} in all).\nRemove the line if you know what it cost, or raise the budget "
                "without it: budget.max_cost_usd: null."
            )
        positions = self._positions(contents, self._server_time_ns())
        own = positions.pop(key, Position())
        others = sum(positions.values(), Position())
        before = own.spent + own.doubtful
        if others.committed + max(before, usd) > self.budget_usd:
            raise BudgetExhausted(self._refusal(others, before, usd))
        return before

    def _refusal(self, others: Position, before: Decimal, usd: Decimal) -> str:
        assert self.budget_usd is not None
        spent = others.spent + others.doubtful + before
        enough_later = spent - before + max(before, usd) <= self.budget_usd
        remedy = (
            "Run the same command again when running ones have ended, or raise budget.max_cost_usd."
            if enough_later
            else "Raise budget.max_cost_usd and run the same command again; what is finished is kept."
        )
        return (
            f"The campaign's budget of {_usd(self.budget_usd)} USD does not allow another {_usd(usd - before)} USD: "
            f"{_usd(spent)} USD are spent and {_usd(others.reserved)} USD reserved by runs in progress.\n{remedy}"
        )

    def _raise_reservation(self, run_path: str, token: str, held: _Held, usd: Decimal) -> None:
        """Make the reservation large enough for the next request, with some room so that this stays rare."""
        needed = held.spent + usd
        with self._locked() as lock:
            try:
                wanted = needed + needed / MORE
                self._affordable((run_path, token), wanted)
            except BudgetExhausted:
                wanted = needed
                self._affordable((run_path, token), wanted)
            lock.check()
            self._append(Entry(event="reserve", run=run_path, token=token, usd=as_money(wanted)))
        held.reserved = wanted

    def _positions(self, contents: Contents, server_ns: int | None) -> dict[Key, Position]:
        """Where each attempt stands, over the files of all processes that worked on it."""
        parts: dict[Key, list[tuple[Account, bool]]] = {}
        for key, account in contents.closed:
            parts.setdefault(key, []).append((account, False))
        for found in contents.files:
            for key, account in found.accounts.items():
                in_use = account.reserved is not None or account.announced
                alive = bool(in_use) and self._is_alive(found, key[0], server_ns)
                parts.setdefault(key, []).append((account, alive))
        return {key: _position(accounts) for key, accounts in parts.items()}

    def _is_alive(self, found: ProcessFile, run_path: str, server_ns: int | None) -> bool:
        """True when the process that wrote the file still works on the run.

        On this machine its process exists. Of one that cannot be seen, mostly on another node, the run's lease is its
        own and was touched of late; ages are differences of times that the file server set, so that clocks of nodes
        need not agree.
        """
        owner = found.owner
        me = self._identity()
        if owner is None:
            return False
        if (owner.host, owner.boot) == (me.host, me.boot):
            started = process_start(owner.pid)
            if started is not None or not _is_foreign(owner.pid):
                return started == owner.process_start
        reference = server_ns if server_ns is not None else time.time_ns()
        if reference - found.written_ns <= STALE_S * 1e9:
            return True
        lease = self._runs / run_path / "lease.json"
        try:
            holder = Holder.model_validate_json(lease.read_bytes())
            touched_ns = lease.stat().st_mtime_ns
        except (OSError, pydantic.ValidationError):
            return False
        same = (holder.host, holder.boot, holder.pid, holder.process_start)
        return same == (owner.host, owner.boot, owner.pid, owner.process_start) and (
            reference - touched_ns <= STALE_S * 1e9
        )

    def _server_time_ns(self) -> int:
        """The file server's clock: the time that it gives to the lock, which this process holds."""
        lock = self.folder / LOCK
        try:
            os.utime(lock)
            return lock.stat().st_mtime_ns
        except OSError:
            return time.time_ns()

    # --- this process's file ----------------------------------------------------------------------------------

    def _identity(self) -> Holder:
        """This process; a fork is another one, with a file of its own."""
        if self._me is None or self._me.pid != os.getpid():
            self._me, self._file, self._held = identify(), None, {}
        return self._me

    def _append(self, entry: Entry) -> None:
        me = self._identity()
        if self._file is not None:
            append_line(self._file, entry)
            return
        name = f"{me.host}-{me.boot[:8]}-{me.pid}-{me.process_start}"
        while (path := self._path(name)).exists() or (self.folder / CLOSED_FOLDER / path.name).exists():
            self._serial += 1
        append_line(path, entry, first=me)
        self._file = path

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}-{self._serial}.jsonl"

    def _close_file(self) -> None:
        """Move the sums of this process's settled file to ``closed.jsonl``, so that fewer files are to be read."""
        if self._file is None:
            return
        with self._locked(CLOSE_WAIT_S) as lock:
            found = read_process_file(self._file, [])
            accounts = found.accounts.items() if found else ()
            drop_torn_tail(self.folder / CLOSED)
            lock.check()
            line = ClosedFile(file=self._file.name, sums=[account.sums(key) for key, account in accounts])
            append_line(self.folder / CLOSED, line)
            closed = self.folder / CLOSED_FOLDER
            closed.mkdir(exist_ok=True)
            os.rename(self._file, closed / self._file.name)
        self._file = None

    @contextlib.contextmanager
    def _locked(self, wait_s: float = LOCK_WAIT_S) -> Iterator[Lease]:
        path = self.folder / LOCK
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(
                    hold_lease(path, wait_s, stale_s=LOCK_STALE_S, poll_s=LOCK_POLL_S, say=lambda _text: None)
                )
            except InfrastructureError as error:
                if isinstance(error.__cause__, OSError):
                    raise
                raise InfrastructureError(
                    f"The campaign's ledger is in use by another process for more than {wait_s:.0f} s ({path}).\n"
                    "Run the same command again; if it stays so, look whether that process hangs."
                ) from error
            yield lock


def _position(accounts: Iterable[tuple[Account, bool]]) -> Position:
    """One attempt from its accounts in several processes' files, each with whether that process is alive."""
    listed = list(accounts)
    spends = sum((account.spent for account, _ in listed), ZERO)
    spent = max(spends, *(account.settled for account, _ in listed))
    doubtful = sum((sum(account.announced, ZERO) for account, alive in listed if not alive), ZERO)
    reserved = max((account.reserved or ZERO for account, alive in listed if alive), default=ZERO)
    return Position(
        spent=spent,
        reserved=max(ZERO, reserved - spent - doubtful),
        doubtful=doubtful,
        tokens=sum(account.tokens for account, _ in listed),
        requests=sum(account.requests for account, _ in listed),
        unpriced=sum(account.unpriced for account, _ in listed),
    )


def _is_foreign(pid: int) -> bool:
    """The process exists and belongs to another user, whose processes this machine may hide."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _usd(amount: Decimal) -> str:
    return format(amount.quantize(Decimal("0.01")), "f")
