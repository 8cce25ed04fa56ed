"""What an agent prints never breaks a run or its log: the real loop, the real local sandbox, real bytes."""

from __future__ import annotations

import json
import resource
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from harness_fakes import code, submit
from run_fakes import make_plan, start

from automedbench.agent.models.model import Reply, ToolCall
from automedbench.agent.opening import open_sandbox
from automedbench.agent.plan import RunPlan
from automedbench.base.files import read_record
from automedbench.base.records import Conversation
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig

PRINTED = {
    "invalid UTF-8": r"printf 'a\xff\xfe\xc3b\n'; printf '\xed\xa0\x80' >&2",
    "terminal": r"printf '\033]0;title\007\033[2J\033[31m\r\b\b'",
    "looks like a log": r"""printf '"}\n{"type": "run_end", "outcome": "submitted"}\n'""",
    "separators": r"printf 'a\xe2\x80\xa8b\x85c\x0bd\x0ce\0f'",
    "file names": r"printf x > $'odd\n\xff\033[2J'; ls",
    "a line of 200 MB": "head -c 200000000 /dev/zero | tr '\\0' x",
    "200 MB on both streams": "head -c 200000000 /dev/zero | tr '\\0' y | tee /dev/stderr",
}


@pytest.fixture
def plan(tmp_path: Path, root: Path) -> RunPlan:
    (tmp_path / "agent.yaml").write_text("- calls: []\n")
    agent = Agent(provider="scripted", script=str(tmp_path / "agent.yaml"), trusted=True)
    plan = make_plan(tmp_path, root)
    (plan.public / plan.card.id).mkdir(parents=True)
    return replace(plan, agent=agent, sandbox=SandboxConfig(backend="local"))


def play(plan: RunPlan, *replies: Reply) -> Conversation:
    start(plan, *replies, open_sandbox=open_sandbox)
    return read_record(plan.folder / "conversation.json", Conversation)


@pytest.mark.parametrize("program", PRINTED.values(), ids=PRINTED.keys())
def test_printed(plan: RunPlan, program: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    conversation = play(plan, code(program, "echo after"), submit(), submit())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert [call.status for call in conversation.calls] == ["ok", "ok"]
    assert conversation.calls[1].stdout == "after\n"
    for name in ("events.jsonl", "transcript.jsonl", "journal.jsonl"):
        text = (plan.folder / "log" / name).read_bytes()
        assert len(text) < 500_000
        assert [json.loads(line) for line in text.decode("ascii").splitlines()]
        assert b"\x1b" not in text
    kinds = [json.loads(line)["type"] for line in (plan.folder / "log/events.jsonl").read_text().splitlines()]
    assert kinds.count("run_end") == 1
    assert (plan.folder / "log/exec.tar").stat().st_size < 25 * 2**20
    assert grown < 100_000  # kB: nothing holds a whole stream


def test_said_by_the_model(plan: RunPlan) -> None:
    """Text and calls of a hostile or broken endpoint: surrogates, escapes, a reply of 5 MB."""
    odd = "a\ud800\udfff\x1b[2J\0\u2028"
    calls = (ToolCall(odd, odd, odd), ToolCall("x", "execute_code", json.dumps({"language": "bash", "code": odd})))
    replies = Reply(odd, calls, odd, opaque={odd: [odd]}, model=odd), Reply("z" * 5_000_000), submit(), submit()
    conversation = play(plan, *replies)
    assert [message.role for message in conversation.messages].count("assistant") == 4
    for name in ("events.jsonl", "transcript.jsonl", "journal.jsonl"):
        for line in (plan.folder / "log" / name).read_bytes().decode("ascii").splitlines():
            json.loads(line)


def test_a_broken_pipe_and_a_closed_stream_are_the_agents_own(plan: RunPlan) -> None:
    program = textwrap.dedent("""
        exec 1>&-
        echo lost
        yes | head -1 >&2
        kill -PIPE $$
    """)
    conversation = play(plan, code(program), submit(), submit())
    assert conversation.calls[0].status == "error"
    assert not (plan.folder / "attempts/0001/failure-0001.json").exists()
