"""Ledger of a campaign's money: what each attempt has spent, asks for and has set aside, without a server.

``<results>/ledger/`` holds one book per attempt, written whole by the one process that works on it: before each request
with the most that it can cost, and after it with what it did cost. What the campaign has spent is the sum of the books,
also after kills. Only setting money aside needs the sums of all, and is done one at a time under a lease. That lock
lies in the same folder as the books: making it also makes an NFS client look for new ones there.

Prices of tokens are exact decimals, with no number where the price is unknown.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import pydantic

from automedbench.agent.budget.bounds import NOTHING, RequestBound, bound_request, require_room, reserve_for_run
from automedbench.agent.budget.estimate import PromptHistory, bound_reply, read_prompt
from automedbench.agent.budget.limits import Budget
from automedbench.agent.durable.lease import STALE_S, Holder, Lease, hold_lease, identify, is_running, touched_at_ns
from automedbench.agent.models.model import (
    ChatMessage,
    ChatModel,
    ContextOverflow,
    CostLimit,
    Reply,
    RequestFailed,
    ToolSpec,
)
from automedbench.agent.protocols import PROTOCOLS
from automedbench.base.cards import Limits
from automedbench.base.endpoint.client import Attempt
from automedbench.base.endpoint.usage import Billed, tokens_in
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import known_record, sync_folder, write_record
from automedbench.base.records import Model, Money
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import BudgetConfig
from automedbench.campaign.prices import compute_cost, format_money

if TYPE_CHECKING:
    from automedbench.agent.models.endpoint import EndpointModel

LOCK = "lock.json"
LOCK_WAIT_S, LOCK_STALE_S, LOCK_POLL_S = 300.0, 60.0, 0.05
READ_TOGETHER = 16
ZERO = Decimal(0)
MORE = 4
"""A reservation that is too small for the next request grows by a quarter."""


class BudgetExhausted(InfrastructureError):
    """The campaign's budget does not allow what an attempt may cost; the run can be repeated with a larger one."""


@dataclass(frozen=True)
class Position:
    """Money and tokens of one attempt, a run, an agent or all; USD.

    ``doubtful`` is the upper bound of requests that were under way when their process died or their connection broke:
    whether the provider charged for them is not known, and the budget counts them as spent.
    """

    spent: Decimal = ZERO
    reserved: Decimal = ZERO
    doubtful: Decimal = ZERO
    tokens: int = 0
    requests: int = 0
    unpriced: int = 0

    def __add__(self, other: Position) -> Position:
        return Position(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def gone(self) -> Decimal:
        """Money that is not available any more: spent, and in doubt."""
        return self.spent + self.doubtful

    @property
    def committed(self) -> Decimal:
        """Money that the budget has to cover: spent, in doubt, and still reserved beyond that."""
        return self.gone + self.reserved


@dataclass(frozen=True)
class LedgerTotals:
    """The ledger's sums: per run (``agent/task/tier/r1``) and in all, and books that could not be read.

    ``moved`` is what of it attempts have spent whose folders are not below the results any more.
    """

    runs: dict[str, Position]
    problems: tuple[str, ...] = ()
    moved: Position = Position()

    @property
    def all(self) -> Position:
        return sum(self.runs.values(), Position())

    def by_agent_and_task(self) -> dict[str, Position]:
        sums: dict[str, Position] = {}
        for run, position in self.runs.items():
            name = "/".join(run.split("/")[:2])
            sums[name] = sums.get(name, Position()) + position
        return dict(sorted(sums.items()))


class Book(Model):
    """``ledger/<run>+<attempt>.json``: the money of one attempt."""

    schema_: Literal["automedbench/book/1"] = pydantic.Field("automedbench/book/1", alias="schema")
    run: str
    attempt: str
    holder: Holder = pydantic.Field(description="the process that worked on the attempt last")
    reserved: Money | None = pydantic.Field(
        None, description="what is set aside for it in all, while its process lives"
    )
    asked: Money | None = pydantic.Field(None, description="the most that the request under way can cost")
    spent: Money = "0"
    doubtful: Money = pydantic.Field(
        "0", description="the most that requests cut off by a crash or a broken connection can have cost"
    )
    tokens: int = 0
    requests: int = 0
    unpriced: int = pydantic.Field(0, description="requests whose price is unknown")

    def replace(self, **changes: Any) -> Self:
        """A copy with other values; amounts in USD, exact."""
        money = {name: format_money(value) if isinstance(value, Decimal) else value for name, value in changes.items()}
        return self.model_copy(update=money)

    def close(self) -> Self:
        """The book once its process works on it no more: nothing is set aside, an unanswered request is in doubt."""
        return self.replace(reserved=None, asked=None, doubtful=Decimal(self.doubtful) + Decimal(self.asked or 0))

    @property
    def position(self) -> Position:
        """The book as amounts; what is reserved is what it has not spent yet."""
        spent, doubtful = Decimal(self.spent), Decimal(self.doubtful)
        reserved = max(ZERO, Decimal(self.reserved or 0) - spent - doubtful)
        return Position(spent, reserved, doubtful, self.tokens, self.requests, self.unpriced)


class CampaignLedger:
    """The ledger as one process uses it, in one thread at a time.

    ``attempt`` stays the same when an attempt goes on after a crash: what it has spent before then counts towards its
    reservation. Amounts are USD; None stands for an unknown price.
    """

    def __init__(self, folder: Path, budget_usd: Decimal | None = None) -> None:
        self.folder = Path(folder)
        self.budget_usd = budget_usd
        self._books: dict[Path, Book] = {}

    def begin(self, run: str, attempt: str) -> None:
        """A new attempt of this name: a book of it is of one that was moved away, and goes on counting under another.

        Raises InfrastructureError when the ledger cannot be written.
        """
        path = self._path(Book(run=run, attempt=attempt, holder=identify()))
        others = (path.with_suffix(f".moved-{number}.json") for number in itertools.count(1))
        self._books.pop(path, None)
        try:
            if path.exists():
                path.rename(next(other for other in others if not other.exists()))
        except OSError as error:
            raise InfrastructureError(f"The campaign's ledger cannot be written: {path}: {error.strerror}.") from error

    def reserve(self, run: str, usd: Decimal | None, attempt: str) -> None:
        """Set aside what an attempt is expected to cost, before its first request.

        Raises BudgetExhausted when spent + reserved + ``usd`` is more than the budget, ConfigError when there is a
        budget but no price, InfrastructureError when the ledger cannot be read or written.
        """
        if self.budget_usd is None:
            self._write(self._book(run, attempt).replace(reserved=usd))
            return
        if usd is None:
            agent = run.split("/")[0]
            raise ConfigError([f"agents.{agent}.pricing: is missing, so budget.max_cost_usd cannot be kept for {run}"])
        with self._locked() as lock:
            book = self._book(run, attempt)
            self._afford(book, usd)
            lock.check()
            self._write(book.replace(reserved=usd))

    def announce(self, run: str, attempt: str, usd: Decimal | None) -> None:
        """Note a request that is about to be sent and costs at most ``usd``; ``spend`` follows, of 0 if it fails.

        A reservation that does not cover it is raised first, with some room so that this stays rare. Raises
        BudgetExhausted when the budget does not allow it, InfrastructureError when the ledger cannot be written.
        """
        book = self._book(run, attempt)
        needed = book.position.gone + (usd or ZERO)
        if usd is None or self.budget_usd is None or needed <= Decimal(book.reserved or 0):
            self._write(book.replace(asked=usd))
            return
        with self._locked() as lock:
            try:
                wanted = needed + needed / MORE
                self._afford(book, wanted)
            except BudgetExhausted:
                wanted = needed
                self._afford(book, wanted)
            lock.check()
            self._write(book.replace(reserved=wanted, asked=usd))

    def spend(self, run: str, attempt: str, usd: Decimal | None, tokens: int, doubtful: Decimal = ZERO) -> None:
        """Book what one request cost, answered or not. Never refused: the money is gone.

        ``doubtful`` USD may have been charged for attempts at it that broke off.

        Raises InfrastructureError when the ledger cannot be written; the request then stays in doubt.
        """
        book = self._book(run, attempt)
        self._write(
            book.replace(
                asked=None,
                spent=Decimal(book.spent) + (usd or ZERO),
                doubtful=Decimal(book.doubtful) + doubtful,
                tokens=book.tokens + tokens,
                requests=book.requests + 1,
                unpriced=book.unpriced + (usd is None),
            )
        )

    def settle(self, run: str, attempt: str) -> None:
        """End an attempt: what is left of its reservation is free again.

        Raises InfrastructureError when the ledger cannot be written; the end of this process frees it then.
        """
        self._write(self._book(run, attempt).close())

    def totals(self) -> LedgerTotals:
        """Sums of everything booked so far, by all processes, without a lock; InfrastructureError if unreadable."""
        books, problems = self._read(time.time_ns())
        runs: dict[str, Position] = {}
        moved = Position()
        for path, book in books.items():
            runs[book.run] = runs.get(book.run, Position()) + book.position
            folder = self.folder.parent / "runs" / book.run / "attempts" / book.attempt
            moved += Position() if folder.is_dir() and path == self._path(book) else book.position
        return LedgerTotals(dict(sorted(runs.items())), tuple(problems), moved)

    # --- the budget -------------------------------------------------------------------------------------------

    def _afford(self, own: Book, usd: Decimal) -> None:
        """Raise BudgetExhausted when the budget does not allow ``usd`` for the attempt of ``own``, all in all."""
        assert self.budget_usd is not None
        books, problems = self._read(self._server_time_ns())
        if problems:
            raise InfrastructureError(
                f"The campaign's ledger is damaged, so the budget cannot be kept: {problems[0]} ({len(problems)} in "
                "all).\nRemove the file if you know what it cost, or raise the budget without it: "
                "budget.max_cost_usd: null."
            )
        books.pop(self._path(own), None)
        others = sum((book.position for book in books.values()), Position())
        before = own.position.gone
        if others.committed + max(before, usd) > self.budget_usd:
            raise BudgetExhausted(self._refusal(others, before, usd))

    def _refusal(self, others: Position, before: Decimal, usd: Decimal) -> str:
        assert self.budget_usd is not None
        remedy = (
            "Run the same command again when running ones have ended, or raise budget.max_cost_usd."
            if others.gone + max(before, usd) <= self.budget_usd
            else "Raise budget.max_cost_usd and run the same command again; what is finished is kept."
        )
        return (
            f"The campaign's budget of {_usd(self.budget_usd)} USD does not allow another {_usd(usd - before)} USD: "
            f"{_usd(others.gone + before)} USD are spent and {_usd(others.reserved)} USD reserved by runs in progress."
            f"\n{remedy}"
        )

    # --- books ------------------------------------------------------------------------------------------------

    def _book(self, run: str, attempt: str) -> Book:
        """The book that this process keeps of an attempt; one that a dead process left is taken over as it is."""
        new = Book(run=run, attempt=attempt, holder=identify())
        path = self._path(new)
        if path not in self._books:
            left = _read_book(path)
            if None in left:
                raise InfrastructureError(
                    f"{path} cannot be read, so what the attempt has spent is not known.\n"
                    "Remove the file if you know what it cost, then run the same command again."
                )
            self._books[path] = left[0].close().replace(holder=new.holder) if left and left[0] else new
        return self._books[path]

    def _write(self, book: Book) -> None:
        path = self._path(book)
        write_record(path, book)
        sync_folder(self.folder)
        self._books[path] = book

    def _path(self, book: Book) -> Path:
        return self.folder / f"{book.run.replace('/', '+')}+{book.attempt}.json"

    def _read(self, now_ns: int) -> tuple[dict[Path, Book], list[str]]:
        """All books, those closed that no living process works on, and what cannot be read."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".json"))
        except FileNotFoundError:
            return {}, []
        except OSError as error:
            raise InfrastructureError(
                f"The campaign's ledger {self.folder} cannot be read: {error.strerror or error}."
            ) from error
        paths = [self.folder / name for name in names if name != LOCK]
        with ThreadPoolExecutor(READ_TOGETHER) as pool:
            found = [
                (path, book) for path, read in zip(paths, pool.map(_read_book, paths), strict=True) for book in read
            ]
        books = {path: book if self._is_alive(book, now_ns) else book.close() for path, book in found if book}
        return books, [f"{path} cannot be read" for path, book in found if book is None]

    def _is_alive(self, book: Book, now_ns: int) -> bool:
        """True when the process that wrote the book still works on the attempt.

        One that cannot be seen, mostly on another node, has touched its run's lease of late, by the clock of the file
        server, so that clocks of nodes need not agree. What lies far ahead, as of a clock that was set back, is not of
        late either.
        """
        if book.reserved is None and book.asked is None:
            return False
        running = is_running(book.holder)
        return abs(now_ns - self._lease_touched_ns(book)) <= STALE_S * 1e9 if running is None else running

    def _lease_touched_ns(self, book: Book) -> int:
        """Time of the last heartbeat of the run's lease if the book's process holds it; else 0."""
        path = self.folder.parent / "runs" / book.run / "lease.json"
        holder = known_record(path, Holder)
        own = holder is not None and holder.process == book.holder.process
        return touched_at_ns(path) or 0 if own else 0

    # --- the lock ---------------------------------------------------------------------------------------------

    def _locked(self) -> AbstractContextManager[Lease]:
        return hold_lease(
            self.folder / LOCK,
            LOCK_WAIT_S,
            stale_s=LOCK_STALE_S,
            poll_s=LOCK_POLL_S,
            say=lambda _text: None,
            refusal="The campaign's ledger is locked",
        )

    def _server_time_ns(self) -> int:
        """The file server's clock: the time that it gives to the lock, which this process holds."""
        lock = self.folder / LOCK
        try:
            os.utime(lock)
            return lock.stat().st_mtime_ns
        except OSError:
            return time.time_ns()


def sum_attempts(folder: Path, run: str, last: int) -> Decimal | None:
    """USD that are booked for all attempts at a run up to the ``last``, also those moved away; None: unknown prices."""
    found = [book for path in sorted(folder.glob(f"{run.replace('/', '+')}+*.json")) for book in _read_book(path)]
    books = [book for book in found if book is None or int(book.attempt) <= last]
    if any(book is None or book.unpriced for book in books):
        return None
    return sum((Decimal(book.spent) for book in books if book), ZERO)


def _read_book(path: Path) -> list[Book | None]:
    """The book in a file, None where it is damaged; nothing without a file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InfrastructureError(f"The campaign's ledger {path} cannot be read: {error.strerror or error}.") from error
    try:
        return [Book.model_validate_json(data)]
    except pydantic.ValidationError:
        return [None]


def _usd(amount: Decimal) -> str:
    return format(amount.quantize(Decimal("0.01")), "f")


@dataclass
class _Request:
    """A request under way: the most of one attempt, and what its failed attempts have cost."""

    attempt: RequestBound
    attempts: int = 0
    spent: tuple[Billed, ...] = ()
    doubtful: RequestBound = NOTHING


@dataclass
class MeteredModel:
    """A model whose requests are admitted and booked: announced before they are sent, with their cost after.

    No request is sent, and none again, whose upper bound exceeds what is left of the run's limits (``limits``) or of
    the campaign's budget. ``attempt`` stays the same when an attempt goes on after a crash. Without a ledger nothing is
    booked.
    """

    agent: Agent
    run: str
    attempt: str
    ledger: CampaignLedger | None = None
    limits: Budget | None = None
    model: ChatModel = field(init=False)
    _answered: RequestBound | None = None
    """The most that the last request which was answered could cost."""
    _history: PromptHistory = field(default_factory=PromptHistory)
    _request: _Request = field(default_factory=lambda: _Request(NOTHING))

    @classmethod
    def open(
        cls,
        results: Path | None,
        agent: Agent,
        limits: Limits,
        budget: BudgetConfig,
        run: str,
        attempt: str,
        *,
        new: bool,
    ) -> Self:
        """Set aside what the attempt is expected to cost, nothing without a model.

        Raises as ``reserve`` does, and ConfigError for limits of the run that no request fits.
        """
        if agent.paid:
            require_room(agent, limits, run.split("/")[0])
        if results is None or not agent.paid:
            return cls(agent, run, attempt)
        allowed = None if budget.max_cost_usd is None else Decimal(budget.max_cost_usd)
        ledger = CampaignLedger(results / "ledger", allowed)
        if new:
            ledger.begin(run, attempt)
        ledger.reserve(run, reserve_for_run(agent, limits, budget), attempt)
        return cls(agent, run, attempt, ledger)

    def meter(self, model: ChatModel) -> Self:
        """Send requests to this model."""
        self.model = model
        return self

    def sum_attempts(self) -> Decimal | None:
        """See ``sum_attempts``: of all attempts at the run up to this one; without a ledger nothing is spent."""
        return sum_attempts(self.ledger.folder, self.run, int(self.attempt)) if self.ledger else ZERO

    def settle(self) -> None:
        """Free what is left of the reservation; raises InfrastructureError when the ledger cannot be written."""
        if self.ledger is not None:
            self.ledger.settle(self.run, self.attempt)

    def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], timeout_s: float) -> Reply:
        """See ``ChatModel.reply``; also raises as ``complete`` does."""
        if not self.agent.paid:
            return self.model.reply(messages, tools, timeout_s)
        body = PROTOCOLS[self.agent.protocol].make_request(self.agent, messages, tools)
        return self._send(body, lambda: self.model.reply(messages, tools, timeout_s))

    def complete(self, body: dict[str, Any], messages: Sequence[ChatMessage], timeout_s: float) -> Reply:
        """The answer of an endpoint to a request body as it is; ``messages`` are what it says.

        Raises ContextOverflow for a prompt that cannot fit the model's window, CostLimit and TokenLimit when the run's
        limits leave too little for it, BudgetExhausted when the campaign's budget does.
        """
        model = cast("EndpointModel", self.model)
        return self._send(body, lambda: model.complete(body, messages, timeout_s))

    def admit_attempt(self) -> None:
        """Admit another attempt at the request under way, of which one has failed; raises as ``complete`` does."""
        if self._request.attempts:
            self._admit(self._request)

    def note_attempt(self, attempt: Attempt) -> None:
        """Count an attempt at the request under way, with what it has cost."""
        request = self._request
        request.attempts += 1
        request.spent += attempt.spent
        request.doubtful += request.attempt if attempt.doubtful else NOTHING

    def _send(self, body: dict[str, Any], send: Callable[[], Reply]) -> Reply:
        prompt = read_prompt(self.agent, body)
        if prompt.least > self.agent.context_tokens:
            window = self.agent.context_tokens
            raise ContextOverflow(f"the prompt has at least {prompt.least} tokens; the model takes {window}")
        most = bound_request(self.agent, self._history.bound(prompt), bound_reply(self.agent, body))
        request = self._request = _Request(most)
        self._admit(request)
        try:
            reply = send()
        except RequestFailed as failure:
            request.spent = failure.spent or request.spent
            self._book(request)
            failure.spent = request.spent
            raise
        except BudgetExhausted:
            self._book(request)
            raise
        request.spent = reply.spent
        if reply.usage.estimated:  # what it did cost is not known
            request.doubtful += RequestBound(request.attempt.usd)
        self._book(request)
        self._history.learn(prompt, reply.usage)
        self._answered = most
        return reply

    def _admit(self, request: _Request) -> None:
        """Announce the most that the request costs with another attempt; raises where that is not left."""
        failed = RequestBound(compute_cost(request.spent, self.agent.pricing), tokens_in(request.spent).total)
        most = request.attempt + failed + request.doubtful
        if self.limits is not None:
            self.limits.admit(most)
        if self.ledger is None:
            return
        try:
            self.ledger.announce(self.run, self.attempt, most.usd)
        except BudgetExhausted as refusal:
            if self._is_outsized(self.ledger):
                raise CostLimit(str(refusal)) from refusal
            raise

    def _is_outsized(self, ledger: CampaignLedger) -> bool:
        """True when the budget has room for a program's last request again, but not for this one.

        Else a program could make its run void by a request that no budget allows.
        """
        if self.agent.provider != "command" or self._answered is None:
            return False
        try:
            ledger.announce(self.run, self.attempt, self._answered.usd)
        except BudgetExhausted:
            return False
        ledger.announce(self.run, self.attempt, ZERO)
        return True

    def _book(self, request: _Request) -> None:
        if self.limits is not None:
            self.limits.doubtful += request.doubtful
        if self.ledger is not None:
            cost, tokens = compute_cost(request.spent, self.agent.pricing), tokens_in(request.spent).total
            self.ledger.spend(self.run, self.attempt, cost, tokens, request.doubtful.usd or ZERO)
