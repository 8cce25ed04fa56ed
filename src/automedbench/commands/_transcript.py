"""Whether what a run's records say of it is what its log and its journal tell: the first thing that is otherwise.

The loop of ours is made of the journal's effects, so that every reply, call, finding and look at the submission is held
against them. Of a program that ran by itself the journal holds no more than its start.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from automedbench.agent.durable.attempts import (
    AttemptFolder,
    Identity,
    Line,
    identity_of,
    read_lines,
    started,
)
from automedbench.agent.loop import ANSWER
from automedbench.agent.run import MAX_SERVED
from automedbench.base.endpoint.usage import tokens_in
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record
from automedbench.base.records import CodeCall, Conversation, Message, Process, RunRecord, Totals
from automedbench.campaign.agents import Pricing, as_money, cost_of
from automedbench.sandbox.airlock.archive import DATA_PER_BLOCK, FREE_DATA
from automedbench.sandbox.container.process import NOTE

LOGS = ("events.jsonl", "transcript.jsonl", "journal.jsonl")
CALLS = "exec.tar"
SUFFIX = {"python": "py", "bash": "sh"}
ROUNDED_S = 0.002
"""What times may differ by that were rounded to a thousandth, each for itself."""
_REMOVED = re.compile(r"\n\[\.\.\. \d+ bytes removed \.\.\.\]\n")
_NOT_LOGGED = re.compile(r"\n\[\.\.\. \d+ bytes not logged \.\.\.\]\n\Z")
_CUT_CHARACTER, _OF_A_CHARACTER = "\ufffd", 4
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def told_otherwise(folder: Path, record: RunRecord, n_cases: int) -> str:
    """What is otherwise in the run's ``conversation.json`` or record than in its log; empty: nothing.

    Raises InfrastructureError, and what malformed files make of reading them.
    """
    log = folder / "log"
    if missing := [name for name in (*LOGS, CALLS) if not (log / name).is_file()]:
        return f"log/{missing[0]} is missing"
    conversation = read_record(folder / "conversation.json", Conversation)
    return log_differs(folder, record, conversation, n_cases) or _in_archive(log / CALLS, conversation.calls, record)


def log_differs(folder: Path, record: RunRecord, conversation: Conversation, n_cases: int) -> str:
    """The same without the archive of calls."""
    events, lines = (_json_lines(folder / "log" / name) for name in LOGS[:2])
    if (conversation.n_cases, conversation.gpu) != (n_cases, record.enforced.gpu):
        return "conversation.json says another number of cases, or another GPU"
    wrong = _end(events, record) or _start(folder, record)
    if by_program(record):
        return wrong or _program_said(conversation, lines)
    effects = [line for line in read_lines(folder / "log/journal.jsonl")[0] if line.type == "effect"]
    wrong = wrong or _messages(conversation, lines, resumed=record.resumes > 0) or _calls(conversation.calls, events)
    return wrong or _totals(effects, record) or _results(effects, conversation.calls) or _findings(effects, events)


def by_program(record: RunRecord) -> bool:
    """Whether a command-line agent did the work, of which the log has what it told its model."""
    return "command" in (record.origin, record.provider)


def _program_said(conversation: Conversation, lines: list[dict[str, Any]]) -> str:
    said = [(line.get("turn"), line["content"]) for line in lines if line.get("role") == "assistant"]
    lost = [each.turn for each in conversation.messages if each.role == "assistant" and not _among(each, said)]
    return f"turn {lost[0]} of conversation.json is not in log/transcript.jsonl" if lost else ""


def _among(message: Message, said: list[tuple[Any, str]]) -> bool:
    return any(number == message.turn and message.content in text for number, text in said)


def _messages(conversation: Conversation, lines: list[dict[str, Any]], *, resumed: bool) -> str:
    """The first message that the log has otherwise; of a run that went on it also has what was lost meanwhile."""
    shown = [(each.turn, each.role, each.content, each.reasoning, each.by_program) for each in conversation.messages]
    said = [
        (line["turn"], line["role"], line["content"], line.get("reasoning", ""), bool(line.get("by_program")))
        for line in lines
        if not line.get("aside")
    ]
    if len(said) != len(shown) and not resumed:
        return f"{len(said)} messages in log/transcript.jsonl, {len(shown)} in conversation.json"
    left = iter(said)
    lost = [message[0] for message in shown if message not in left]
    return f"turn {lost[0]} of conversation.json is not as log/transcript.jsonl has it" if lost else ""


def _end(events: list[dict[str, Any]], record: RunRecord) -> str:
    """How the run ended and what it had used by then."""
    end = next((event for event in reversed(events) if event.get("type") == "run_end"), None)
    if end is None:
        return "log/events.jsonl has no end of the run"
    totals = Totals.model_validate(end["totals"])
    if other := [name for name, value in record.totals if getattr(totals, name) != value]:
        return f"log/events.jsonl tells other totals: {other[0]}"
    same = (end["outcome"], " ".join(end["detail"].split())) == (record.outcome, record.detail)
    return "" if same else "log/events.jsonl tells another end"


def _start(folder: Path, record: RunRecord) -> str:
    """What the attempt was begun with, and when; nothing was enforced in the end that was not at its start."""
    start, lines = started(AttemptFolder(folder, record.attempt)), read_lines(folder / "log/journal.jsonl")[0]
    if start is None:
        return "log/journal.jsonl has no start"
    was, fixed = identity_of(record), ("backend", "network", "image_sha256", "layer_sha256")
    other = [name for name in Identity.model_fields if getattr(start.identity, name) != getattr(was, name)]
    for name, value in start.enforced:
        kept = getattr(record.enforced, name)
        other += [name] if (name in fixed and value != kept) or (value is False and kept is True) else []
    if other:
        return f"log/journal.jsonl began with another {other[0].replace('_sha256', '')}"
    if record.started_at != start.started_at or record.ended_at < lines[-1].at:
        return "log/journal.jsonl tells other times"
    resumes = sum(line.type == "resume" for line in lines)
    return "" if resumes == record.resumes else f"{resumes} interruptions in log/journal.jsonl, not {record.resumes}"


def _calls(calls: list[CodeCall], events: list[dict[str, Any]]) -> str:
    """The first call that the log of events has otherwise."""
    ended = {event["call"]: event for event in events if event.get("type") == "exec_end"}
    names = ("turn", "status", "exit_code", "elapsed_s", "stage", "new_files")
    for call in calls:
        if other := [name for name in names if ended.get(call.call, {}).get(name, ...) != getattr(call, name)]:
            return f"call {call.call}: log/events.jsonl has another {other[0]}"
    return "" if len(calls) == len(ended) else f"{len(ended)} calls in log/events.jsonl, {len(calls)} in the transcript"


def _totals(effects: list[Line], record: RunRecord) -> str:
    """Turns, tokens, cost, models, times and the submission; what the record does not tell is not compared."""
    answers = [ANSWER.validate_python(line.value) for line in effects if line.kind == "reply"]
    replies = [answer.reply for answer in answers if answer.reply]
    spent = [each for one in answers for came in (one.reply, one.failure) if came for each in came.spent]
    looks = [line.value["n_missing"] for line in effects if line.kind == "submit"]
    done = [line.value["result"] for line in effects if line.kind == "exec"]
    prices, totals = (record.agent_settings or {}).get("pricing"), record.totals
    told: dict[str, tuple[object, object]] = {
        "turns": (totals.turns, len(replies)),
        "tokens": (totals.tokens, tokens_in(spent)),
        "code calls": (totals.n_exec, len(done)),
        "failed code calls": (totals.n_exec_failed, sum(result["status"] != "ok" for result in done)),
        "submission": (record.submitted, 0 in looks or len(looks) > 1),
    }
    if prices:
        told["cost"] = (totals.cost_usd, as_money(cost_of(spent, Pricing.model_validate(prices))))
    if record.served is not None:
        names = dict.fromkeys(reply.model for reply in replies if reply.model)
        told["models"] = (record.served, list(names)[:MAX_SERVED])
    times = {
        "time": totals.wall_s - (effects[-1].run_s - effects[0].run_s),
        "time of code calls": totals.exec_s - sum(result["elapsed_s"] for result in done),
        "time of replies": totals.api_s - sum(reply.api_s for reply in replies),
    }
    other = [name for name, (one, another) in told.items() if one != another]
    other += [name for name, seconds in times.items() if abs(seconds) > ROUNDED_S]
    return f"log/journal.jsonl has another number or name: {other[0]}" if other else ""


def _results(effects: list[Line], calls: list[CodeCall]) -> str:
    """The first call of which the journal has another result; processes that went on later stand behind its own."""
    names = ("status", "exit_code", "stdout", "stderr")
    for call, line in zip(calls, (line for line in effects if line.kind == "exec"), strict=True):
        if [line.value["result"][name] for name in names] != [getattr(call, name) for name in names]:
            return f"call {call.call}: log/journal.jsonl has another result"
        if (seen := line.value["processes"]) is None:
            continue  # what went on later may have been seen
        opened = [Process.model_validate(one) for one in seen]
        if call.processes is None or _files(call.processes[: len(opened)]) != _files(opened[: len(call.processes)]):
            return f"call {call.call}: log/journal.jsonl has other processes"
    seen_one = any(line.value["processes"] for line in effects if line.kind in ("exec", "wait") and line.value)
    seen_one = seen_one or any(line.value for line in effects if line.kind == "processes")
    told = [call.call for call in calls if call.processes]
    return f"call {told[0]}: log/journal.jsonl has no processes" if told and not seen_one else ""


def _files(processes: list[Process]) -> list[tuple[list[str], list[str]]]:
    return [(each.reads, each.writes) for each in processes]


def _findings(effects: list[Line], events: list[dict[str, Any]]) -> str:
    """Evidence of broken rules, which the audit takes of the log of events."""
    found = [each for line in effects if line.kind in ("check", "end") for each in line.value]
    found += [each for line in effects if line.kind == "exec" for each in line.value["findings"]]
    logged = [event["finding"] for event in events if event.get("type") == "finding"]
    one, other = ({json.dumps(each, sort_keys=True) for each in given} for given in (found, logged))
    return "" if one == other else f"{len(one)} findings in log/journal.jsonl, {len(other)} in log/events.jsonl"


def _in_archive(archive: Path, calls: list[CodeCall], record: RunRecord) -> str:
    """The first call whose code or output is not what the log kept of it. A program's calls are its own report."""
    with tarfile.open(archive, "r:") as tar:
        members = list(tar)
        kept = {member.name: member for member in members if member.isfile()}
        if len(kept) < len(members):
            return f"log/{CALLS} holds a name twice, or what is no file"
        if sum(member.size for member in members) > FREE_DATA + DATA_PER_BLOCK * archive.stat().st_size:
            return f"log/{CALLS} claims more than it can hold"
        for call in calls[: 1 if by_program(record) else None]:
            for suffix, texts in (
                (SUFFIX[call.language], [call.code]),
                ("out", [call.stdout]),
                ("err", [call.stderr, *_without_notes(call.stderr)]),
            ):
                name = f"{call.call:04d}.{suffix}"
                stream = tar.extractfile(kept[name]) if name in kept else None
                found = stream.read().decode("utf-8", "replace") if stream else ""
                if found not in texts and (texts[0] is call.code or not any(_is_shown(each, found) for each in texts)):
                    return f"call {call.call}: not what log/{CALLS} has as {name}"
    return ""


def _is_shown(shown: str, logged: str) -> bool:
    """Whether a call's output is what its log has, which differs from it in what the sandbox does.

    Of a long output the middle is not shown. The log also has what background processes wrote behind the call's end,
    and of a very long one the end is not there.
    """
    whole = _NOT_LOGGED.sub("", logged)
    is_cut, whole = whole != logged, whole.rstrip(_CUT_CHARACTER)

    def begins(text: str) -> bool:
        text = text.rstrip(_CUT_CHARACTER)
        return whole.startswith(text) or (is_cut and text.startswith(whole))

    def ends(text: str) -> bool:
        return is_cut or text.rstrip(_CUT_CHARACTER)[_OF_A_CHARACTER:] in whole

    cuts = _REMOVED.finditer(shown)
    return begins(shown) or any(begins(shown[: cut.start()]) and ends(shown[cut.end() :]) for cut in cuts)


def _without_notes(stderr: str) -> list[str]:
    """The text before the notes of the sandbox, two at most, which are added to what a call wrote."""
    told, *notes = stderr.rsplit(NOTE, 2)
    return [NOTE.join([told, *notes[:count]]).removesuffix("\n") for count in range(len(notes))]


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Raises InfrastructureError for a line that is none."""
    try:
        return [_OBJECT.validate_json(line) for line in path.read_bytes().splitlines() if line]
    except ValidationError as error:
        raise InfrastructureError(f"{path.name}: {error.errors()[0]['msg']}.") from error
