"""Exports of scored runs, common part: choice of runs, their records, and their conversation by turns."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from automedbench.base.errors import ConfigError
from automedbench.base.files import read_record, set_sharing
from automedbench.base.records import CodeCall, Conversation, Message, RunRecord, ScoreRecord
from automedbench.commands._campaign import add_campaign_options, find_results

TOOL = "execute_code"


class LoggedRun(NamedTuple):
    """The records of one run that a log is made of."""

    score: ScoreRecord
    run: RunRecord
    conversation: Conversation

    @property
    def identity(self) -> str:
        """Stable id of 22 characters, as long as Inspect's own."""
        return hashlib.sha256(f"{self.score.run.path} {self.run.started_at.isoformat()}".encode()).hexdigest()[:22]


class MessageWithCalls(NamedTuple):
    """One message with the calls that hang on it; ``results``: answers to other tools, such as submit_results."""

    message: Message
    calls: list[CodeCall]
    results: list[Message]


def parse_selection(arguments: list[str], description: str | None, files: str) -> argparse.Namespace:
    """Options: which runs, and the folder for their files, which only their owner can read."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", help="only this agent")
    parser.add_argument("--task", help="only this task")
    parser.add_argument("--out", type=Path, required=True, help=f"folder for the {files}")
    add_campaign_options(parser)
    set_sharing("private")
    return parser.parse_args(arguments)


def scored_runs(options: argparse.Namespace) -> list[Path]:
    """Folders of the scored runs; raises ConfigError without any."""
    pattern = f"{options.agent or '*'}/{options.task or '*'}/*/r*/score.json"
    results = find_results(options)
    found = sorted(path.parent for path in (results / "runs").glob(pattern))
    if not found:
        raise ConfigError([f"{results}/runs/{pattern}: no scored run; give --results, check agent and task"])
    return found


def read_logged_run(folder: Path) -> LoggedRun:
    """Records of a scored run; raises MissingDataError or InfrastructureError when one is not there or broken."""
    return LoggedRun(
        read_record(folder / "score.json", ScoreRecord),
        read_record(folder / "run.json", RunRecord),
        read_record(folder / "conversation.json", Conversation),
    )


def messages_by_turn(conversation: Conversation) -> Iterator[MessageWithCalls]:
    """Messages in their order; code calls hang on the last one of the agent in their turn, or on an empty one."""
    calls = {turn: list(group) for turn, group in groupby(conversation.calls, key=lambda call: call.turn)}
    for turn, group in groupby(sorted(conversation.messages, key=lambda m: m.turn), key=lambda m: m.turn):
        yield from _group_turn(list(group), calls.pop(turn, []))
    for rest in calls.values():
        yield from _group_turn([], rest)


def _group_turn(messages: list[Message], calls: list[CodeCall]) -> Iterator[MessageWithCalls]:
    spoken = [message for message in messages if message.role != "tool"]
    results = [message for message in messages if message.role == "tool" and not message.repeats(calls)]
    if calls and not any(message.role == "assistant" for message in spoken):
        spoken.append(Message(turn=calls[0].turn, role="assistant", content=""))
    if not spoken and results:
        spoken.append(Message(turn=results[0].turn, role="system", content=""))
    last = max((i for i, message in enumerate(spoken) if message.role == "assistant"), default=len(spoken) - 1)
    for i, message in enumerate(spoken):
        yield MessageWithCalls(message, calls if i == last else [], results if i == last else [])


def call_id(call: CodeCall) -> str:
    """Id of a call within its run."""
    return f"call-{call.turn}-{call.call}"


def arguments(call: CodeCall) -> dict[str, str]:
    """Arguments of a call."""
    return {"language": call.language, "code": call.code}


def render_result(call: CodeCall) -> str:
    """Output of a call, below a line with its exit status."""
    text = call.stdout + (f"\n[stderr]\n{call.stderr}" if call.stderr else "")
    code = "unknown" if call.exit_code is None else call.exit_code
    return f"{call.status}, exit code {code}, {call.elapsed_s:.1f} s, stage {call.stage}\n{text}"
