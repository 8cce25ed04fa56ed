"""The loop: every way a run ends, and a tool message for every call, executed or not."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness_fakes import ALL_OUTPUTS, Bench, FakeModel, code, raw_call, submit, text, warning

from automedbench.agent.budget.limits import Ending
from automedbench.agent.models.model import (
    ChatMessage,
    ContextOverflow,
    CostLimit,
    EndpointError,
    ProviderRefusal,
    Reply,
    ReplyTimeout,
    RequestRejected,
    TokenLimit,
    ToolCall,
)
from automedbench.base.cards import Limits
from automedbench.base.endpoint.usage import Billed
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import GpuUse, Process, Tokens
from automedbench.campaign.prices import Pricing
from automedbench.sandbox.evidence.policy import SWEEP

PRICES = Pricing(input="1", output="10", as_of="2026-01-01", source="test")
THOUGHT = "[a thought that the provider wants back]"


def play(folder: Path, *replies: Reply | Exception, **options: Any) -> tuple[Bench, Ending]:
    with Bench(folder, FakeModel(*replies), **options) as bench:
        ending = bench.loop.run()
    check_transcript(bench)
    return bench, ending


def check_transcript(bench: Bench) -> None:
    """Every call has exactly one tool message, in order, directly behind its reply."""
    messages = [json.loads(line) for line in (bench.folder / "log/transcript.jsonl").read_text().splitlines()]
    for index, message in enumerate(messages):
        ids = [call["id"] for call in message["tool_calls"]]
        behind = messages[index + 1 : index + 1 + len(ids)]
        assert [answer["tool_call_id"] for answer in behind] == ids
        assert all(answer["role"] == "tool" for answer in behind)


def answers(bench: Bench) -> list[dict[str, Any]]:
    records = bench.loop.dialogue.records()
    return [json.loads(message.content) for message in records if message.role == "tool"]


def notices(bench: Bench) -> list[str]:
    records = bench.loop.dialogue.records()
    return [message.content for message in records if message.role == "user"][1:]


def events(bench: Bench, kind: str) -> list[dict[str, Any]]:
    lines = (bench.folder / "log/events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


# --- ends ------------------------------------------------------------------------------------------------------

SLOW = Limits(time_limit_s=100)
ENDS: dict[str, tuple[list[Reply | Exception], dict[str, Any], str, str]] = {
    "empty replies": ([text("")], {}, "stopped", "no_action"),
    "text only": ([text("I am thinking.")], {}, "stopped", "stopped_without_submit"),
    "text, then empty": ([text("hm"), text("")], {}, "stopped", "stopped_without_submit"),
    "fenced code only": ([text("```python\nprint(1)\n```")], {}, "stopped", "stopped_without_submit"),
    "cut replies": ([text("long", "length")], {}, "stopped", "format_breakdown"),
    "cut calls": ([raw_call("execute_code", '{"code": "pri', "length")], {}, "stopped", "format_breakdown"),
    "submitted": ([code(ALL_OUTPUTS), submit()], {}, "submitted", "every expected file exists"),
    "submitted twice with files missing": ([submit()], {}, "submitted", "4 of 4 expected files are missing"),
    "turn limit": ([code("write a")], {"limits": Limits(max_turns=3)}, "turn_limit", "3 turns used of 3"),
    "time limit in a call": ([code("sleep 500")], {"limits": SLOW}, "time_limit", "100 s used of 100 s"),
    "time limit in a request": ([ReplyTimeout("too late")], {"limits": SLOW}, "time_limit", "no reply"),
    "token limit": ([code("write a"), TokenLimit("999 tokens used of 1000")], {}, "token_limit", "999 tokens used"),
    "cost limit": ([code("write a"), CostLimit("1 USD used of 0.5 USD")], {}, "cost_limit", "1 USD used of 0.5 USD"),
    "provider refuses": ([ProviderRefusal("content_filter")], {}, "refused", "provider_refusal: content_filter"),
    "second violation": ([code("open-decoy")], {}, "disqualified", "decoy.open"),
    "disqualifying at once": (
        [code("x")],
        {"seen": {"x": [warning("egress.escape", severity="disqualifying")]}},
        "disqualified",
        "egress.escape",
    ),
    "no warning allowed": ([code("open-decoy")], {"max_warnings": 0}, "disqualified", "decoy.open"),
    "disk": ([code("write big")], {"limits": Limits(disk_gb=1e-9)}, "out_of_disk", "the limit is 1e-09 GB"),
    "what it wrote provokes the endpoint": (
        [code("write a"), RequestRejected("server, status 500: broken")],
        {},
        "stopped",
        "the endpoint fails at this conversation and answered a plain request: server, status 500: broken",
    ),
    "what it wrote never fits": ([code("write a"), *[ContextOverflow("too long")] * 2], {}, "stopped", "does not fit"),
}


@pytest.mark.parametrize(("replies", "options", "outcome", "detail"), ENDS.values(), ids=ENDS.keys())
def test_end(
    tmp_path: Path, replies: list[Reply | Exception], options: dict[str, Any], outcome: str, detail: str
) -> None:
    bench, ending = play(tmp_path, *replies, **options)
    assert ending.outcome == outcome
    assert detail in ending.detail
    assert bench.toolbox.submitted == (outcome == "submitted")


def test_memory_ran_out_in_the_last_call(tmp_path: Path) -> None:
    with Bench(tmp_path, FakeModel(code("kill"), text("I give up."))) as bench:
        counts = iter([0, 1])
        bench.toolbox.oom_kills = lambda: next(counts)
        ending = bench.loop.run()
    assert ending.outcome == "out_of_memory"


def test_a_killed_call_alone_is_no_evidence_of_memory(tmp_path: Path) -> None:
    assert play(tmp_path, code("kill"), text("I give up."))[1].outcome == "stopped"


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("kill\nprint noise [SANDBOX] memory limit: the call uses 66 GB", "out_of_memory"),
        ("kill\nprint [SANDBOX] memory limit: ha [SANDBOX] disk limit: the workspace holds", "out_of_disk"),
        ("fail\nprint [SANDBOX] memory limit: ha", "stopped"),
    ],
    ids=["by the sandbox", "only printed, ended for its disk", "only printed"],
)
def test_memory_that_the_sandbox_ended_a_call_for(tmp_path: Path, program: str, outcome: str) -> None:
    """The sandbox's own note comes last; what code prints before it proves nothing."""
    assert play(tmp_path, code(program), text("I give up."))[1].outcome == outcome


# --- faults of ours --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "replies",
    [
        [EndpointError("endpoint is down")],
        [code("break")],
        [ContextOverflow("too long"), ContextOverflow("still too long")],
        [RequestRejected("server, status 500: broken")],
    ],
    ids=["endpoint", "sandbox", "brief never fits", "brief provokes"],
)
def test_our_faults_are_no_result(tmp_path: Path, replies: list[Reply | Exception]) -> None:
    with Bench(tmp_path, FakeModel(*replies)) as bench, pytest.raises(InfrastructureError):
        bench.loop.run()


def test_failed_requests_are_paid_for(tmp_path: Path) -> None:
    failure = EndpointError("down", (Billed(Tokens(prompt=70)),), retry_s=12.0)
    with Bench(tmp_path, FakeModel(failure)) as bench, pytest.raises(InfrastructureError):
        bench.loop.run()
    assert bench.loop.totals().tokens.prompt == 70
    assert bench.loop.totals().api_retry_s == 12.0


# --- money -----------------------------------------------------------------------------------------------------


def asked(limit: int | None, completion: int, reasoning: int = 0, *, estimated: bool = False) -> Reply:
    usage = Tokens(prompt=10, completion=completion, reasoning=reasoning, estimated=estimated)
    return replace(code("write a", usage=usage), asked_tokens=limit)


LENGTHS = {
    "as asked": (asked(100, 100), None, False),
    "a little more": (asked(100, 101), 101, False),
    "twice": (asked(100, 200), 200, False),
    "more than twice": (asked(100, 201), 201, True),
    "few, which a provider rounds up": (asked(1, 16), 16, False),
    "reasoning kept apart": (asked(100, 900, 700), 900, False),
    "a long answer beside reasoning": (asked(100, 901, 700), 901, True),
    "no usage": (asked(100, 5000, estimated=True), None, False),
    "nothing asked": (asked(None, 5000), None, False),
}


@pytest.mark.parametrize(("reply", "noted", "ends"), LENGTHS.values(), ids=LENGTHS.keys())
def test_a_server_that_ignores_max_tokens(tmp_path: Path, reply: Reply, noted: int | None, ends: bool) -> None:
    """The first such reply is paid and kept, and ends the run as no fault of the agent's; a doubtful one is noted."""
    with Bench(tmp_path, FakeModel(reply, submit(), submit())) as bench, contextlib.ExitStack() as stack:
        if ends:
            message = rf"wrote {noted} tokens where at most 100 were requested[^\n]*\n[^\n]*extra_body"
            stack.enter_context(pytest.raises(InfrastructureError, match=message))
        bench.loop.run()
    expected = [(reply.asked_tokens, noted)] * bool(noted)
    assert [(event["asked"], event["got"]) for event in events(bench, "overlong_reply")] == expected
    assert bench.loop.totals().tokens.completion == reply.usage.completion
    assert bool(bench.sandbox.ran) is not ends


WRITTEN = Tokens(prompt=10, cache_write=5)
UNPRICED = {
    "only a limit of cost": (Billed(WRITTEN), Limits(max_cost_usd=1), "pricing has no 'cache_write'"),
    "a tier": (Billed(Tokens(prompt=1), "flex"), Limits(max_cost_usd=1), "pricing has no 'service_tiers.flex'"),
    "tokens have one too": (Billed(WRITTEN), Limits(max_cost_usd=1, max_total_tokens=1000), None),
    "no limit": (Billed(WRITTEN), Limits(), None),
}


@pytest.mark.parametrize(("billed", "limits", "message"), UNPRICED.values(), ids=UNPRICED.keys())
def test_a_cost_that_is_not_known(tmp_path: Path, billed: Billed, limits: Limits, message: str | None) -> None:
    """It is null, and where nothing else bounds what the run costs it ends the run."""
    reply = replace(code("write a", usage=billed.tokens), spent=(billed,), service_tier=billed.tier)
    with Bench(tmp_path, FakeModel(reply, submit(), submit()), limits=limits, pricing=PRICES) as bench:
        with pytest.raises(InfrastructureError, match=message) if message else contextlib.nullcontext():
            bench.loop.run()
        totals = bench.loop.totals()
    assert (totals.cost_usd, totals.tokens.prompt) == (None, billed.tokens.prompt)


def test_every_attempt_costs_by_its_own_price(tmp_path: Path) -> None:
    """By hand, in millionths: 100 × 1 + 10 × 10 for the reply, 300 × 2 for an attempt above 200 tokens, 50 × 0.5."""
    pricing = Pricing.model_validate(
        {
            **PRICES.model_dump(),
            "long_context": {"above": 200, "input": "2", "output": "20"},
            "service_tiers": {"flex": {"input": "0.5", "output": "5"}},
        }
    )
    usage = Tokens(prompt=100, completion=10)
    spent = (Billed(Tokens(prompt=300)), Billed(Tokens(prompt=50), "flex"), Billed(usage))
    bench, _ = play(tmp_path, replace(submit(), usage=usage, spent=spent), submit(), pricing=pricing)
    assert bench.loop.totals().cost_usd == "0.000825"


def test_a_lost_lease_stops_before_the_next_request(tmp_path: Path) -> None:
    def lost() -> None:
        raise InfrastructureError("lease lost")

    with (
        Bench(tmp_path, FakeModel(code("write a")), check=lost, starts=False) as bench,
        pytest.raises(InfrastructureError, match="lease lost"),
    ):
        bench.loop.run()
    assert bench.model.sent == []


def test_a_lease_lost_meanwhile_stops_before_the_code_runs(tmp_path: Path) -> None:
    """The reply is recorded no more either: whoever took over writes the journal now."""

    def check() -> None:
        if model.sent:
            raise InfrastructureError("lease lost")

    model = FakeModel(code("write a"))
    with Bench(tmp_path, model, check=check) as bench, pytest.raises(InfrastructureError, match="lease lost"):
        bench.loop.run()
    assert bench.sandbox.ran == []
    assert '"reply"' in (tmp_path / "log/journal.jsonl").read_text()
    assert '"value": {' not in (tmp_path / "log/journal.jsonl").read_text()


# --- calls -----------------------------------------------------------------------------------------------------

BAD = {
    "unknown tool": (raw_call("browse", "{}"), "unknown tool 'browse'"),
    "no JSON": (raw_call("execute_code", "{'code'"), "arguments are not valid JSON"),
    "no code": (raw_call("execute_code", '{"language": "python"}'), "'code' is missing"),
    "blank code": (raw_call("execute_code", '{"language": "python", "code": " "}'), "'code' is missing"),
    "no language": (raw_call("execute_code", '{"code": "x"}'), "'language' must be"),
    "other language": (raw_call("execute_code", '{"language": "R", "code": "x"}'), "'language' must be"),
    "NUL": (raw_call("execute_code", '{"language": "bash", "code": "a\\u0000b"}'), "NUL"),
    "lone surrogate": (raw_call("execute_code", '{"language": "bash", "code": "\\ud800"}'), "surrogate"),
}


@pytest.mark.parametrize(("reply", "error"), BAD.values(), ids=BAD.keys())
def test_bad_call_is_answered(tmp_path: Path, reply: Reply, error: str) -> None:
    bench, _ = play(tmp_path, reply, text("stop"))
    assert answers(bench)[0]["status"] == "error"
    assert error in answers(bench)[0]["error"]
    assert bench.sandbox.ran == []


def test_position_of_broken_arguments(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, raw_call("execute_code", '{"code": x}'), text("stop"))
    assert answers(bench)[0]["position"] == 9  # by hand: the x


def test_broken_arguments_are_echoed_as_valid_json(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, raw_call("execute_code", '{"code": "pri'), text("stop"))
    echoed = [call for message in bench.model.sent[-1] for call in message.calls]
    assert [call.arguments for call in echoed] == ["{}"]
    assert '{\\"code\\": \\"pri' in (tmp_path / "log/transcript.jsonl").read_text()


def test_calls_run_in_order_and_rest_is_skipped_after_submit(tmp_path: Path) -> None:
    calls = (*code(ALL_OUTPUTS).calls, ToolCall("s", "submit_results", ""), ToolCall("late", "execute_code", "{}"))
    bench, ending = play(tmp_path, Reply("", calls, "tool_calls"))
    assert ending.outcome == "submitted"
    assert [answer.get("status", answer.get("accepted")) for answer in answers(bench)] == ["ok", True, "skipped"]
    assert bench.sandbox.ran == [ALL_OUTPUTS]


def test_rest_is_skipped_after_disqualification_and_time(tmp_path: Path) -> None:
    bench, _ = play(tmp_path / "a", code("open-decoy", "write a"), max_warnings=0)
    assert [answer["status"] for answer in answers(bench)] == ["ok", "skipped"]
    bench, ending = play(tmp_path / "b", code("sleep 100", "write a"), limits=SLOW)
    assert [answer["status"] for answer in answers(bench)] == ["timeout", "skipped"]
    assert ending.outcome == "time_limit"


def test_ids_are_made_unique(tmp_path: Path) -> None:
    same = tuple(ToolCall(name, "execute_code", '{"language": "bash", "code": "write a"}') for name in ("", "x", "x"))
    bench, _ = play(tmp_path, Reply("", same, "tool_calls"), text("stop"))
    ids = [call.id for message in bench.model.sent[-1] for call in message.calls]
    assert ids == ["call_1_1", "x", "call_1_3"]


def test_calls_in_text_are_run_and_counted(tmp_path: Path) -> None:
    said = (
        '<invoke name="execute_code"><parameter name="language">bash</parameter>'
        '<parameter name="code">write a</parameter></invoke>'
    )
    bench, _ = play(tmp_path, text(said), text("stop"))
    assert bench.sandbox.ran == ["write a"]
    assert bench.loop.totals().n_recovered_calls == 1


def test_a_text_call_cut_by_length_is_not_run(tmp_path: Path) -> None:
    said = '<invoke name="execute_code"><parameter name="language">bash</parameter><parameter name="code">write'
    bench, _ = play(tmp_path, text(said, "length"), text("stop"))
    assert bench.sandbox.ran == []
    assert notices(bench)[0].startswith("[FORMAT]")


def test_a_complete_call_in_a_cut_reply_is_run(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, code("write a", finish="length"), text("stop"))
    assert bench.sandbox.ran == ["write a"]
    assert bench.loop.totals().n_format_warnings == 0


def test_cut_text_is_shortened_for_the_model_but_not_in_the_log(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, text("x" * 5000, "length"), text("stop"))
    assert len(bench.model.sent[1][2].content) == 2000
    assert "x" * 5000 in (tmp_path / "log/transcript.jsonl").read_text()


def test_cap_of_a_call_is_what_is_left(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, code("sleep 30"), code("sleep 30"), text("stop"), limits=SLOW)
    assert bench.sandbox.timeouts == [100, 70]
    assert [answer["remaining_s"] for answer in answers(bench)] == [70, 40]


def test_notices_are_sent(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, code("sleep 60"), code("sleep 30"), text("stop"), limits=SLOW)
    assert [notice[:12] for notice in notices(bench)] == ["[BUDGET] 50%", "[BUDGET] 80%", "[CONTINUE] Y"]


def test_a_call_between_texts_resets_the_count(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, text("a"), code("write a"), text("b"), code("write b"), text("c"))
    assert bench.sandbox.ran == ["write a", "write b"]


def test_fence_hint(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, text("```\nls\n```"))
    assert notices(bench)[0].startswith("[FORMAT] Code in a fenced block")
    assert bench.loop.totals().n_format_warnings == 1


# --- rules -----------------------------------------------------------------------------------------------------


def test_a_tripwire_warns_behind_the_call(tmp_path: Path) -> None:
    bench, ending = play(tmp_path, code("open-decoy"), code(ALL_OUTPUTS), submit())
    assert "[SANDBOX] Rule decoy.open" in answers(bench)[0]["warning"]
    assert ending.outcome == "submitted"
    assert [event["finding"]["rule"] for event in events(bench, "finding")] == ["decoy.open"]


def test_a_notice_does_nothing(tmp_path: Path) -> None:
    seen = {"write a": [warning("trace.odd", severity="notice", confidence="low")]}
    bench, _ = play(tmp_path, code("write a"), text("stop"), seen=seen)
    assert bench.sandbox.ran == ["write a"]
    assert "warning" not in answers(bench)[0]
    assert len(events(bench, "finding")) == 1


def test_a_sweep_is_told_and_the_second_one_is_a_strike(tmp_path: Path) -> None:
    seen = {f"write {name}": [warning(SWEEP, severity="notice", confidence="medium")] for name in "ab"}
    bench, ending = play(tmp_path, code("write a"), code("write b"), code("open-decoy"), seen=seen)
    told, warned, _ = [answer["warning"] for answer in answers(bench)]
    assert told.startswith("[SANDBOX] A search") and "the next time" in told
    assert warned.startswith(f"[SANDBOX] Rule {SWEEP} was broken") and "The next one ends the run" in warned
    assert (ending.outcome, bench.toolbox.n_warnings) == ("disqualified", 2)


# --- submission ------------------------------------------------------------------------------------------------


def test_missing_files_are_refused_once(tmp_path: Path) -> None:
    bench, ending = play(tmp_path, code("write agents_outputs/c1/out.json"), submit("first"), submit("second"))
    first, second = answers(bench)[1:]
    assert (first["accepted"], second["accepted"]) == (False, True)
    assert first["missing"] == ["c2/out.json", "c3/out.json", "c4/out.json"]
    assert ending.detail == "3 of 4 expected files are missing"
    assert bench.toolbox.summary == "second"


def test_malformed_files_are_told_while_they_can_be_mended(tmp_path: Path) -> None:
    counted: list[int] = []
    with Bench(tmp_path, FakeModel(submit(), submit())) as bench:
        bench.toolbox.count_invalid = lambda: counted.append(1) or 3
        bench.loop.run()
    assert [answer["invalid_count"] for answer in answers(bench)] == [3, None]
    assert counted == [1]


def test_links_are_missing_files(tmp_path: Path) -> None:
    with Bench(tmp_path, FakeModel(code(ALL_OUTPUTS), submit())) as bench:
        (tmp_path / "elsewhere").mkdir()
        bench.sandbox.run_code("bash", ALL_OUTPUTS, call=9, turn=0, log=tmp_path, timeout_s=1)
        outputs = bench.toolbox.workspace / "agents_outputs"
        (outputs / "c1/out.json").unlink()
        (outputs / "c1/out.json").symlink_to(tmp_path / "transcript.jsonl")
        (outputs / "c2").rename(tmp_path / "elsewhere/c2")
        (outputs / "c2").symlink_to(tmp_path / "elsewhere/c2")
        assert bench.toolbox.contract.find_missing(bench.toolbox.workspace) == ["c1/out.json", "c2/out.json"]


# --- records ---------------------------------------------------------------------------------------------------


def test_stages_and_new_files(tmp_path: Path) -> None:
    bench, _ = play(
        tmp_path,
        code("write plan/plan.md", "write agents_outputs/c1/out.json", ALL_OUTPUTS, "# agents_outputs"),
        submit(),
    )
    assert [call.stage for call in bench.toolbox.calls] == ["S1", "S3", "S4", "S5"]
    assert bench.toolbox.calls[0].new_files == ["plan/plan.md"]
    assert bench.toolbox.calls[3].new_files == []


def test_opaque_reasoning_is_echoed_but_not_shown(tmp_path: Path) -> None:
    thinking = Reply("", code("write a").calls, "tool_calls", opaque={"reasoning_content": THOUGHT})
    bench, _ = play(tmp_path, thinking, text("stop"))
    assert bench.model.sent[1][2].opaque == {"reasoning_content": THOUGHT}
    assert THOUGHT in (tmp_path / "log/transcript.jsonl").read_text()
    assert all(THOUGHT not in message.content for message in bench.loop.dialogue.records())


def test_totals(tmp_path: Path) -> None:
    """By hand: two calls of 5 s, one of them failing; 20 prompt and 4 completion tokens at 1 and 10 USD/M."""
    usage = Tokens(prompt=10, completion=2)
    bench, _ = play(
        tmp_path,
        code("sleep 5", usage=usage),
        code("sleep 5\nfail", usage=usage),
        text("stop"),
        pricing=PRICES,
    )
    totals = bench.loop.totals()
    assert (totals.turns, totals.n_exec, totals.n_exec_failed, totals.exec_s, totals.wall_s) == (4, 2, 1, 10.0, 10.0)
    assert totals.tokens.total == 24
    assert totals.cost_usd == "0.00006"


def test_use_of_gpus_is_counted_once(tmp_path: Path) -> None:
    """By hand: 3 s in a call and 4 s during the wait behind it; a process that repeats the run adds nothing."""
    replies = (code("sleep 5"), raw_call("wait", '{"seconds": 20}'), text("stop"))
    for uses in ([GpuUse(peak_mib=900, busy_s=3), GpuUse(peak_mib=700, busy_s=4)], [GpuUse(peak_mib=1, busy_s=1)]):
        with Bench(tmp_path, FakeModel(*replies)) as bench:
            bench.sandbox.gpu_uses = list(uses)
            bench.loop.run()
        assert bench.loop.totals().gpu == GpuUse(peak_mib=900, busy_s=7)


def process(command: str, parent: int | None = None) -> Process:
    return Process(command=command, parent=parent, exit_code=0)


def test_processes_belong_to_the_call_that_started_them(tmp_path: Path) -> None:
    """What they opened during a wait, and by the end, is the last call's; null without a trace."""
    bench = Bench(
        tmp_path, FakeModel(code("write a"), code("write b"), raw_call("wait", '{"seconds": 2}'), text("stop"))
    )
    with bench:
        later = [process("late"), process("child", 0)]
        bench.sandbox.processes = [[process("one")], [process("two")], later, [process("end")]]
        bench.loop.run()
    calls = bench.toolbox.calls
    assert [[(each.command, each.parent) for each in call.processes or ()] for call in calls] == [
        [("one", None)],
        [("two", None), ("late", None), ("child", 1), ("end", None)],
    ]
    bench, _ = play(tmp_path / "untraced", code("write a"), text("stop"))
    assert [call.processes for call in bench.toolbox.calls] == [None]


def test_long_conversation_is_compacted(tmp_path: Path) -> None:
    replies: list[Reply] = [code(f"# step {number}\n" + "x" * 3000) for number in range(12)]
    bench, _ = play(tmp_path, *replies, text("stop"), context_tokens=8000)
    last = bench.model.sent[-1]
    assert [message.content for message in last[:2]] == ["system", "kickoff"]
    assert sum(len(message.content) for message in last) < 8000 * 4
    assert events(bench, "compaction")
    assert len(bench.loop.dialogue.records()) > len(last)


def test_overflow_is_shortened_and_asked_once_more(tmp_path: Path) -> None:
    replies: list[Reply | Exception] = [code("write a" + " " * 4000) for _ in range(8)]
    bench, ending = play(tmp_path, *replies, ContextOverflow("too long", (Billed(Tokens(prompt=3)),)), text("stop"))
    assert ending.outcome == "stopped"
    assert len(bench.model.sent[9]) < len(bench.model.sent[8]) or sum(
        len(message.content) for message in bench.model.sent[9]
    ) < sum(len(message.content) for message in bench.model.sent[8])
    assert bench.loop.totals().tokens.prompt == 3


def test_messages_are_safe_to_store(tmp_path: Path) -> None:
    bench, _ = play(tmp_path, text("a\ud800b\x1b[31m"), text("stop"))
    assert "\ud800" not in bench.loop.dialogue.records()[2].content
    assert "\x1b" not in (tmp_path / "log/transcript.jsonl").read_text()


def test_compaction_keeps_calls_and_answers_together() -> None:
    from factories import make_call

    from automedbench.agent.log import Entry, compact

    entries = [Entry(0, ChatMessage("system", "s")), Entry(0, ChatMessage("user", "k"))]
    for turn in range(1, 11):
        call = ToolCall(f"i{turn}", "execute_code", "x" * 400)
        entries.append(Entry(turn, ChatMessage("assistant", "", (call,))))
        entries.append(
            Entry(turn, ChatMessage("tool", json.dumps({"status": "ok", "stdout": "y" * 400}), call_id=call.id))
        )
    run = [make_call(turn) for turn in range(1, 11)]

    def fits(limit: int) -> Any:
        return lambda messages: sum(len(m.content) + sum(len(c.arguments) for c in m.calls) for m in messages) <= limit

    mild = compact(entries, run, fits(7000))
    assert len(mild) == len(entries)
    assert [json.loads(entry.message.content).get("note") for entry in mild[3:11:2]] == [
        "output removed, 430 characters"  # by hand: {"status": "ok", "stdout": ""} is 30 long, plus 400
    ] * 4
    strong = compact(entries, run, fits(6000))
    assert strong[2].message.content.startswith("[SUMMARY] Turns 1 to 4 were removed")
    assert [entry.turn for entry in strong[3:]] == [5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10]
    strongest = compact(entries, run, fits(0))
    assert [entry.turn for entry in strongest] == [0, 0, 9, 10, 10]


def test_waiting_is_a_tool_that_the_time_limit_bounds(tmp_path: Path) -> None:
    """Seconds and process ids may be texts, as a call written as text holds them; no code is run."""
    calls = [raw_call("wait", given) for given in ('{"seconds": 20}', '{"process": "7", "seconds": "0.5"}', "{}")]
    bench, _ = play(tmp_path, *calls, raw_call("wait", '{"seconds": 1e6}'), submit(), limits=Limits(time_limit_s=100))
    found = [(answer["status"], answer.get("waited_s")) for answer in answers(bench)]
    assert found[:4] == [("ok", 20.0), ("ok", 0.5), ("error", None), ("ok", 79.5)]
    assert bench.sandbox.ran == []
    assert [(event["seconds"], event["process"], event["how"]) for event in events(bench, "wait")][:2] == [
        (20.0, None, "time"),
        (0.5, 7, "time"),
    ]


def test_waiting_for_a_shared_card_is_no_time_of_the_run(tmp_path: Path) -> None:
    """Three calls of 20 s, before and within which they wait for 1 000 s each, within a limit of 100 s."""
    with Bench(tmp_path, FakeModel(*[code("sleep 20")] * 3, submit(), submit()), limits=SLOW) as bench:
        bench.sandbox.turn_s = bench.sandbox.wait_s = 1000.0
        bench.toolbox.stand_still = bench.journal.stand_still
        assert bench.loop.run().outcome == "submitted"
        assert (bench.toolbox.totals().wall_s, bench.toolbox.totals().exec_s) == (60.0, 60.0)
        assert bench.sandbox.timeouts == [100.0, 80.0, 60.0]


def test_without_the_tool_nothing_waits(tmp_path: Path) -> None:
    with Bench(tmp_path, FakeModel(raw_call("wait", '{"seconds": 20}'), submit(), submit())) as bench:
        bench.toolbox.known_tools = ["execute_code", "submit_results"]
        bench.loop.run()
        assert "unknown tool" in answers(bench)[0]["error"]
