"""Durable runs: wherever a run is killed, it goes on to the same result, and pays at most one request twice."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness_fakes import ALL_OUTPUTS, Bench, Clock, code, submit, text, warning
from pydantic import TypeAdapter

from automedbench.agent.budget.limits import Ending
from automedbench.agent.durable.attempts import Journal, JournalMismatch, Line, read_lines
from automedbench.agent.log import Masker, RunLog
from automedbench.agent.loop import Failed, ModelAnswer
from automedbench.agent.models.model import (
    ChatMessage,
    ContextOverflow,
    EndpointError,
    ProviderRefusal,
    Reply,
    ReplyTimeout,
    RequestFailed,
    ToolCall,
    ToolSpec,
)
from automedbench.base.cards import Limits
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Tokens, Totals
from automedbench.campaign.prices import Pricing

NUMBER: TypeAdapter[int] = TypeAdapter(int)
TEXT: TypeAdapter[str] = TypeAdapter(str)
KEY = "sk-canary-0123456789"
PRICES = Pricing(input="1", output="10", as_of="2026-01-01", source="test")


def opened(folder: Path, clock: Clock | None = None, **options: Any) -> Journal:
    return Journal(folder / "journal.jsonl", RunLog(folder, Masker([KEY])), clock=clock or Clock(), **options)


def never() -> Any:
    raise AssertionError("computed again")


def play(journal: Journal, *values: int) -> list[int]:
    """Record or replay one effect per value."""
    with journal, journal._log:
        return [
            journal.effect("n", f"{number}", lambda value=value: value, NUMBER) for number, value in enumerate(values)
        ]


# --- the journal -----------------------------------------------------------------------------------------------


def test_recorded_effects_come_back_in_order(tmp_path: Path) -> None:
    assert play(opened(tmp_path), 1, 2) == [1, 2]
    assert play(opened(tmp_path), 7, 8, 3) == [1, 2, 3]
    assert play(opened(tmp_path), 7, 8, 9) == [1, 2, 3]


def test_it_is_on_disk_before_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    with (journal := opened(tmp_path)), journal._log:
        journal.effect("n", "", lambda: 5, NUMBER)
        assert synced == [(tmp_path / "journal.jsonl").stat().st_size]
        assert [line.value for line in read_lines(tmp_path / "journal.jsonl")[0]] == [5]


@pytest.mark.parametrize(
    ("kind", "about", "adapter"),
    [("other", "0", NUMBER), ("n", "another call", NUMBER), ("n", "0", TypeAdapter(list[str]))],
    ids=["kind", "what it is about", "form of the value"],
)
def test_another_effect_is_a_mismatch(tmp_path: Path, kind: str, about: str, adapter: Any) -> None:
    play(opened(tmp_path), 1)
    with (journal := opened(tmp_path)), journal._log, pytest.raises(JournalMismatch):
        journal.effect(kind, about, never, adapter)


@pytest.mark.parametrize("torn", [b"", b"{", b'{"type": "effect", "kind": "n", "about": "2"', b"\0" * 100, b"\xff\n"])
def test_a_torn_last_line_is_dropped(tmp_path: Path, torn: bytes) -> None:
    play(opened(tmp_path), 1, 2)
    with open(tmp_path / "journal.jsonl", "ab") as stream:
        stream.write(torn)
    assert play(opened(tmp_path), 7, 8, 3) == [1, 2, 3]
    assert play(opened(tmp_path), 7, 8, 9) == [1, 2, 3]


def test_a_line_without_its_end_does_not_count(tmp_path: Path) -> None:
    """All but the newline was written: what comes next would stand on the same line."""
    play(opened(tmp_path), 1, 2)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert play(opened(tmp_path), 7, 5) == [1, 5]
    assert play(opened(tmp_path), 7, 8) == [1, 5]


def test_damage_in_the_middle_is_a_mismatch(tmp_path: Path) -> None:
    play(opened(tmp_path), 1, 2)
    path = tmp_path / "journal.jsonl"
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(first[:-5] + b"\n" + rest)
    with pytest.raises(JournalMismatch, match="line 1"):
        read_lines(path)


def test_time_stands_still_between_effects_and_while_nothing_runs(tmp_path: Path) -> None:
    """By hand: 5 s in the first effect; an interrupted one of 100 s and a night count nothing; then 3 + 1 s."""
    clock = Clock()

    def lasting(seconds: float) -> Callable[[], int]:
        def compute() -> int:
            clock.now += seconds
            return 1

        return compute

    with (journal := opened(tmp_path, clock)), journal._log:
        journal.effect("n", "0", lasting(5), NUMBER)
        clock.now += 1
        assert journal.clock() == 5
        with pytest.raises(AssertionError):
            journal.effect("n", "1", lambda: lasting(100)() and never(), NUMBER)
        assert journal.clock() == 5
    clock.now += 30_000
    with (journal := opened(tmp_path, clock)), journal._log:
        journal.effect("n", "0", never, NUMBER)
        clock.now += 50  # containers start again
        journal.effect("n", "1", lasting(3), NUMBER)
        clock.now += 1  # the harness's own work is the run's
        journal.effect("n", "2", lasting(0), NUMBER)
        assert journal.clock() == 9


def test_what_was_interrupted_is_known(tmp_path: Path) -> None:
    with (journal := opened(tmp_path)), journal._log:
        journal.effect("exec", "call 1", lambda: 1, NUMBER, long=True)
        with pytest.raises(AssertionError):
            journal.effect("exec", "call 2", never, NUMBER, long=True)
        with pytest.raises(AssertionError):
            journal.effect("exec", "call 2", never, NUMBER, long=True)
    with (journal := opened(tmp_path)), journal._log:
        assert journal.count_begun("exec", "call 1") == 0
        assert journal.count_begun("exec", "call 2") == 2


def test_what_is_free_is_rehearsed(tmp_path: Path) -> None:
    """A scripted model counts its turns: it is asked again, and its answer is thrown away."""
    play(opened(tmp_path), 1)
    asked: list[int] = []
    with (journal := opened(tmp_path)), journal._log:
        assert journal.effect("n", "0", lambda: asked.append(1) or 99, NUMBER, rehearse=True) == 1
    assert asked == [1]


def test_nothing_is_done_without_leave(tmp_path: Path) -> None:
    def check() -> None:
        raise InfrastructureError("lease lost")

    with (journal := opened(tmp_path, check=check)), journal._log, pytest.raises(InfrastructureError, match="lost"):
        journal.effect("n", "", never, NUMBER)


def test_what_ended_after_the_lease_was_lost_is_not_recorded(tmp_path: Path) -> None:
    """The journal is written by whoever took over meanwhile."""
    lost: list[int] = []

    def check() -> None:
        if lost:
            raise InfrastructureError("lease lost")

    with (journal := opened(tmp_path, check=check)), journal._log, pytest.raises(InfrastructureError, match="lost"):
        journal.effect("n", "", lambda: lost.append(1) or 5, NUMBER)
    assert read_lines(tmp_path / "journal.jsonl") == ([], 0)


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that did not fit is taken back, so that the next process finds a whole journal."""
    play(opened(tmp_path), 1)
    real = os.write
    with (journal := opened(tmp_path)), journal._log:
        journal.effect("n", "0", never, NUMBER)

        def full(handle: int, data: bytes) -> int:
            if handle != journal._file:
                return real(handle, data)
            if len(data) > 10:
                return real(handle, data[:10])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(InfrastructureError, match="No space left"):
            journal.effect("n", "1", lambda: 2, NUMBER)
        monkeypatch.undo()
        assert (tmp_path / "journal.jsonl").read_bytes().endswith(b"}\n")
    assert play(opened(tmp_path), 7, 2) == [1, 2]


def test_keys_are_masked(tmp_path: Path) -> None:
    with (journal := opened(tmp_path)), journal._log:
        assert journal.effect("t", "", lambda: f"my key is {KEY}", TEXT) == "my key is [masked]"
    assert KEY not in (tmp_path / "journal.jsonl").read_text()


ANSWERS = [
    ModelAnswer(reply=Reply("a\x1b[2J\u2028\0", opaque={"reasoning_details": [{"x": [1, None, 2.5, True]}]})),
    ModelAnswer(
        reply=Reply(
            "",
            (ToolCall("i", "execute_code", '{"code": "x"}'), ToolCall("j", "?", "", recovered=True)),
            "tool_calls",
            Tokens(prompt=3, cached=1, completion=2, reasoning=1, estimated=True),
            (Billed(Tokens(prompt=3, cached=1, completion=2, reasoning=1)), Billed(Tokens(prompt=3), "flex")),
            model="m",
            api_s=1.25,
            retry_s=0.5,
            reported_cost=0.01,
        )
    ),
    ModelAnswer(failure=Failed("overflow", "too long", (Billed(Tokens(prompt=5)),), 1.5)),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=["text", "calls", "failure"])
def test_answers_come_back_as_they_were(tmp_path: Path, answer: ModelAnswer) -> None:
    adapter: TypeAdapter[ModelAnswer] = TypeAdapter(ModelAnswer)
    for compute in (lambda: answer, never):
        with (journal := opened(tmp_path)), journal._log:
            assert journal.effect("reply", "", compute, adapter) == answer


def test_lone_surrogates_can_be_recorded(tmp_path: Path) -> None:
    adapter: TypeAdapter[ModelAnswer] = TypeAdapter(ModelAnswer)
    with (journal := opened(tmp_path)), journal._log:
        journal.effect("reply", "", lambda: ModelAnswer(reply=Reply("a\ud800b", opaque={"x": "\udfff"})), adapter)
    with (journal := opened(tmp_path)), journal._log:
        found = journal.effect("reply", "", never, adapter).reply
    assert found is not None
    assert (found.content, found.opaque) == ("a\ufffdb", {"x": "\ufffd"})


# --- a whole run, killed at every place ------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


class Provider:
    """Answers by what it was sent, as a server does, and counts requests.

    ``fails``: what happens at the first request of a turn; ``overflows``: the turn whose conversation is too long.
    """

    def __init__(self, *replies: Reply, fails: dict[int, RequestFailed] | None = None, overflows: int = 0) -> None:
        self.replies, self.fails, self.overflows = replies, dict(fails or {}), overflows
        self.asked: list[int] = []
        self.too_long = 0

    def reply(self, messages: Any, tools: Any, timeout_s: float) -> Reply:
        turn = 1
        for message in messages:
            turn = int(message.calls[0].id[2:]) + 1 if message.calls else turn + (message.role == "assistant")
        self.asked.append(turn)
        if turn in self.fails:
            raise self.fails.pop(turn)
        if turn == self.overflows:
            length = sum(len(message.content) for message in messages)
            self.too_long = self.too_long or length
            if length >= self.too_long:
                raise ContextOverflow("too long", (Billed(Tokens(prompt=3)),), 0.5)
        reply = self.replies[turn - 1]
        calls = tuple(ToolCall(f"id{turn}", call.name, call.arguments) for call in reply.calls[:1])
        return Reply(
            reply.content,
            calls,
            reply.finish_reason,
            Tokens(prompt=100, completion=10),
            (Billed(Tokens(prompt=100, completion=10)),),
            api_s=1.0,
        )


LONG = "# a long program\nwrite x\n" + "think\n" * 500
REPLIES = [
    code("write plan/plan.md\nsleep 30"),
    text("I think about it."),
    code("cat secret"),
    code("write a\nsleep 25"),
    code("fail"),
    code(LONG),
    code("# another\n" + LONG),
    code("# a third\n" + LONG),
    code("write agents_outputs/c1/out.json\nopen-decoy"),
    submit("not everything"),
    code(f"{ALL_OUTPUTS}\nsleep 30"),
    submit("all of it"),
]
OPTIONS: dict[str, Any] = {
    "limits": Limits(time_limit_s=100),
    "pricing": PRICES,
    "max_warnings": 3,
    "context_tokens": 5000,
    "seen": {"cat secret": [warning("trace.private_path")]},
}


def finish(bench: Bench) -> tuple[Ending, Totals, list[Any]]:
    ending = bench.loop.run()
    return ending, bench.loop.totals(), bench.loop.dialogue.records()


def provider() -> Provider:
    return Provider(*REPLIES, overflows=7)


def contents(folder: Path) -> tuple[list[Any], list[Any]]:
    """Transcript, and events without stamps, without what belongs to one process, and without sizes.

    The remark that a call was executed again makes a conversation longer.
    """
    transcript = [json.loads(line) for line in (folder / "log/transcript.jsonl").read_text().splitlines()]
    events = [json.loads(line) for line in (folder / "log/events.jsonl").read_text().splitlines()]
    stamps = ("seq", "ts", "t_s", "tokens_before", "tokens_after")
    return transcript, [{k: v for k, v in e.items() if k not in stamps} for e in events if e["type"] != "resume"]


def killed_at(monkeypatch: pytest.MonkeyPatch, number: int, how: str) -> Callable[[], bool]:
    """Kill the process when it writes the ``number``-th line of its journal; tells whether it came so far."""
    real, count, hit = Journal._append, 0, False

    def append(journal: Journal, line: Line) -> None:
        nonlocal count, hit
        count += 1
        hit = hit or count == number
        if count == number and how == "before":
            raise Killed
        if count == number and how == "torn":
            os.write(journal._file, line.model_dump_json().encode()[:40])
            raise Killed
        real(journal, line)
        if count == number:
            raise Killed

    monkeypatch.setattr(Journal, "_append", append)
    return lambda: hit


def without_note(value: Any) -> Any:
    """Without the remark that a call was executed again."""
    text = json.dumps(value)
    start = text.find(', \\"note\\": \\"The machine')
    while start >= 0:
        end = text.index('before.\\"', start) + len('before.\\"')
        text = text[:start] + text[end:]
        start = text.find(', \\"note\\": \\"The machine')
    return json.loads(text)


@pytest.mark.parametrize("how", ["before", "torn", "after"])
def test_killed_at_every_line_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The outcome, totals, conversation and log are those of the run that nobody disturbed."""
    with Bench(tmp_path / "whole", provider(), **OPTIONS) as bench:
        whole = finish(bench)
        ran = list(bench.sandbox.ran)
    assert whole[0] == Ending("submitted", "every expected file exists")
    assert {"[BUDGET]", "[CONTINU"} <= {message.content[:8] for message in whole[2] if message.role == "user"}
    transcript, events = contents(tmp_path / "whole")
    assert {"compaction", "notice", "finding"} <= {event["type"] for event in events}
    n_requests = len(bench.model.asked)

    number = 1  # the first line is the start: an attempt without it was never begun
    while True:
        number += 1
        folder = tmp_path / f"{how}-{number}"
        model = provider()
        with monkeypatch.context() as patch:
            reached = killed_at(patch, number, how)
            with Bench(folder, model, **OPTIONS) as first, contextlib.suppress(Killed):
                finish(first)
            if not reached():
                break
        with Bench(folder, model, **OPTIONS) as second:
            assert without_note([message.model_dump() for message in finish(second)[2]]) == [
                message.model_dump() for message in whole[2]
            ]
            assert second.loop.totals() == whole[1]
            assert second.toolbox.calls == bench.toolbox.calls
        assert len(model.asked) - n_requests in (0, 1)
        again = [*first.sandbox.ran, *second.sandbox.ran]
        assert len(again) - len(ran) in (0, 1)
        seen, happened = contents(folder)
        assert without_note(seen) == transcript
        assert [event for event in happened if event["type"] != "api_request"] == [
            event for event in events if event["type"] != "api_request"
        ]
    assert number > 40  # by hand: 12 replies, 9 calls and 2 submissions have begin and end, 10 calls a check


def test_killed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once at each new effect: every kill costs at most one request and one execution, and the run comes to its end."""
    with Bench(tmp_path / "whole", provider(), **OPTIONS) as bench:
        whole = finish(bench)
    model, kills = provider(), 0
    while True:
        with monkeypatch.context() as patch:
            killed_at(patch, 4, "before")
            with Bench(tmp_path / "killed", model, **OPTIONS) as attempt:
                try:
                    ending = finish(attempt)
                    break
                except Killed:
                    kills += 1
    assert kills > 20
    assert len(model.asked) <= len(bench.model.asked) + kills
    assert without_note([message.model_dump() for message in ending[2]]) == [m.model_dump() for m in whole[2]]
    assert ending[1] == whole[1]
    assert without_note(contents(tmp_path / "killed")[0]) == contents(tmp_path / "whole")[0]


def test_a_call_that_is_executed_again_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Provider(code("write a"), code("write b"), submit(), submit())
    with monkeypatch.context() as patch:
        killed_at(patch, 5, "before")  # by hand: start; begin and end of the reply, begin of the call, its end
        with Bench(tmp_path, model) as bench, pytest.raises(Killed):
            bench.loop.run()
    with Bench(tmp_path, model) as bench:
        bench.loop.run()
    answers = [json.loads(m.content) for m in bench.loop.dialogue.records() if m.role == "tool"]
    assert "executed again from its start" in answers[0]["note"]
    assert "note" not in answers[1]


@pytest.mark.parametrize(
    "failure",
    [ProviderRefusal("no", (Billed(Tokens(prompt=7)),)), ReplyTimeout("late")],
    ids=["refusal", "no reply in time"],
)
def test_how_a_request_failed_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: RequestFailed
) -> None:
    """The run ends as it would have: the provider is not asked once more for another answer."""
    model = Provider(submit(), fails={1: failure})
    with monkeypatch.context() as patch:
        killed_at(patch, 3, "after")
        with Bench(tmp_path, model) as bench, pytest.raises(Killed):
            bench.loop.run()
    with Bench(tmp_path, model) as bench:
        ending = bench.loop.run()
    assert ending.outcome == ("refused" if isinstance(failure, ProviderRefusal) else "time_limit")
    assert model.asked == [1]
    assert bench.loop.totals().tokens.prompt == sum(each.tokens.prompt for each in failure.spent)


def test_an_endpoint_that_was_down_is_asked_again_and_costs_no_time(tmp_path: Path) -> None:
    """By hand: 40 s of a call; two outages of 500 s each are the provider's; their 70 + 70 tokens were charged."""
    clock = Clock()

    class Down(Provider):
        def reply(self, *arguments: Any) -> Reply:
            reply = super().reply(*arguments)
            if len(self.asked) in (2, 3):
                clock.now += 500
                raise EndpointError("down", (Billed(Tokens(prompt=70)),), retry_s=480.0)
            return reply

    model = Down(code("sleep 40"), submit(), submit())
    for _ in range(2):
        with Bench(tmp_path, model, limits=Limits(time_limit_s=100)) as bench:
            use(bench, clock)
            with pytest.raises(EndpointError):
                bench.loop.run()
    with Bench(tmp_path, model, limits=Limits(time_limit_s=100)) as bench:
        use(bench, clock)
        ending = bench.loop.run()
    totals = bench.loop.totals()
    assert ending.outcome == "submitted"
    assert (totals.api_retry_s, totals.wall_s) == (1000.0, 1040.0)
    assert totals.tokens.prompt == 3 * 100 + 2 * 70
    assert model.asked == [1, 2, 2, 2, 3]


def use(bench: Bench, clock: Clock) -> None:
    """Let a bench go by another clock, that of the machine on which all of them run."""
    bench.sandbox.clock = bench.journal._clock = clock


def test_messages_that_were_compacted_are_compacted_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent after the resumption is what would have been sent."""
    with Bench(tmp_path / "whole", RecordingProvider(), **OPTIONS) as bench:
        finish(bench)
    sent = bench.model.sent
    model = RecordingProvider()
    with monkeypatch.context() as patch:
        killed_at(patch, 44, "after")
        with Bench(tmp_path / "killed", model, **OPTIONS) as first, pytest.raises(Killed):
            finish(first)
    with Bench(tmp_path / "killed", model, **OPTIONS) as second:
        finish(second)
    assert model.sent[-1] == sent[-1]
    assert len(sent[-1]) < len(second.loop.dialogue.records())


class RecordingProvider(Provider):
    """Keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(*REPLIES)
        self.sent: list[list[ChatMessage]] = []

    def reply(self, messages: Any, tools: list[ToolSpec], timeout_s: float) -> Reply:
        self.sent.append(list(messages))
        return super().reply(messages, tools, timeout_s)
