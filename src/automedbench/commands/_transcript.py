"""Records of a run against its log and its journal: the run is rebuilt from the journal and compared field by field.

Of a program that ran by itself the journal holds no more than its start.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from automedbench.agent.durable.attempts import AttemptFolder, read_lines, read_start
from automedbench.agent.log import STAMPS
from automedbench.agent.plan import RunPlan, compose_brief
from automedbench.agent.rebuild import Rebuilt, rebuild_attempt
from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record
from automedbench.base.records import Conversation, RunRecord, Totals
from automedbench.commands._check import first_difference
from automedbench.sandbox.airlock.archive import DATA_PER_BLOCK, FREE_DATA, read_archive

LOGS = ("events.jsonl", "transcript.jsonl", "journal.jsonl")
CALLS = "exec.tar"
FIXED = ("backend", "network", "image_sha256", "layer_sha256")
"""Fields of what is enforced that cannot change while an attempt is under way."""
FOUND = ("finding", "exec_end")
"""Events of the loop that the audit and readers rest on: none may be there that the journal does not make."""
ENDED = ("status", "exit_code", "elapsed_s", "new_files")
"""Fields of the program's own call in both events and conversation."""
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def difference_from_log(record: RunRecord, plan: RunPlan, out: Path) -> str:
    """The first difference between the records in ``plan.folder`` and what their log makes; empty: none.

    ``out``: new folder for the rebuilt run. Raises InfrastructureError, and what reading malformed files raises.
    """
    log = plan.folder / "log"
    if missing := [name for name in (*LOGS, CALLS) if not (log / name).is_file()]:
        return f"log/{missing[0]} is missing"
    conversation = read_record(plan.folder / "conversation.json", Conversation)
    if (conversation.n_cases, conversation.gpu) != (len(plan.manifest.cases), record.enforced.gpu):
        return "conversation.json names another number of cases, or another GPU"
    if wrong := _compare_start_and_end(plan.folder, record) or check_archive(log / CALLS):
        return wrong
    if is_program(record):
        return _compare_program(conversation, log)
    rebuilt = rebuild(plan, record, conversation, out)
    made = conversation.model_copy(update={"messages": rebuilt.messages, "calls": rebuilt.calls})
    for name, difference in (
        ("run.json", first_difference(record, record.model_copy(update=rebuilt.record))),
        ("conversation.json", first_difference(conversation, made)),
    ):
        if difference:
            return f"{name}: {difference} from log/journal.jsonl"
    return _compare_lines(log, out / "log", resumed=record.resumes > 0)


def is_program(record: RunRecord) -> bool:
    """True when a command-line agent did the work, of which the log has its requests to the model."""
    return record.origin == "command"


def rebuild(plan: RunPlan, record: RunRecord, conversation: Conversation, out: Path) -> Rebuilt:
    """The run made again from its journal, with the limits that it had, and its own brief where that is not known."""
    had = replace(plan, limits=Limits.model_validate(record.limits))
    brief = compose_brief(had)
    if brief.sha256 != record.brief_sha256 and len(conversation.messages) >= 2:
        brief = replace(brief, system=conversation.messages[0].content, kickoff=conversation.messages[1].content)
    return rebuild_attempt(had, brief, plan.folder / "log/journal.jsonl", out)


def _compare_start_and_end(folder: Path, record: RunRecord) -> str:
    """First difference of the record from the attempt's start in its journal, and from its end in the log of events."""
    start, lines = read_start(AttemptFolder(folder, record.attempt)), read_lines(folder / "log/journal.jsonl")[0]
    if start is None:
        return "log/journal.jsonl has no start"
    # Nothing was enforced in the end that was not at the start.
    enforced = {name: value for name, value in start.enforced if name in FIXED or value is False}
    begun = {
        **dict(start.identity),
        "enforced": record.enforced.model_copy(update=enforced),
        "started_at": start.started_at,
        "ended_at": max(record.ended_at, lines[-1].at),
        "resumes": sum(line.type == "resume" for line in lines),
    }
    if difference := first_difference(record, record.model_copy(update=begun)):
        return f"run.json: {difference} from log/journal.jsonl"
    end = next(
        (line for line in reversed(_json_lines(folder / "log/events.jsonl")) if line.get("type") == "run_end"), None
    )
    if end is None:
        return "log/events.jsonl has no end of the run"
    ended = {
        "totals": Totals.model_validate(end["totals"]),
        "outcome": end["outcome"],
        "detail": " ".join(end["detail"].split()),
    }
    difference = first_difference(record, record.model_copy(update=ended))
    return f"run.json: {difference} from log/events.jsonl" if difference else ""


def _compare_program(conversation: Conversation, log: Path) -> str:
    """The first reply that is not among the lines of its turn, or how the program itself ended."""
    lines = _json_lines(log / "transcript.jsonl")
    logged = [(line.get("turn"), line["content"]) for line in lines if line.get("role") == "assistant"]
    replies = [each for each in conversation.messages if each.role == "assistant"]
    lost = [
        each.turn for each in replies if not any(turn == each.turn and each.content in text for turn, text in logged)
    ]
    if lost:
        return f"turn {lost[0]} of conversation.json is not in log/transcript.jsonl"
    ended = [event for event in _json_lines(log / "events.jsonl") if event.get("type") == "exec_end"]
    own = conversation.calls[0].model_dump() if conversation.calls else {}
    other = [name for name in ENDED if [event.get(name) for event in ended] != [own.get(name)]]
    return f"call 1: log/events.jsonl has another {other[0]}" if other else ""


def check_archive(path: Path) -> str:
    """Fault in the form of an archive of calls, empty without one; its content is in the journal too."""
    sizes: dict[str, int] = {}
    with read_archive(path) as (_, members):
        for member in members:
            if member.name in sizes or not member.isfile():
                return f"log/{CALLS} holds a name twice, or something that is not a file"
            sizes[member.name] = member.size
    if sum(sizes.values()) > FREE_DATA + DATA_PER_BLOCK * path.stat().st_size:
        return f"log/{CALLS} claims more than it can hold"
    return ""


def _compare_lines(log: Path, again: Path, *, resumed: bool) -> str:
    """The first line that the rebuilt run wrote and the log does not have in its place, or one too many.

    The log of a run that was resumed may also have what was lost meanwhile.
    """
    for name in ("transcript", "events"):
        had, made = (_json_lines(each / f"{name}.jsonl") for each in (log, again))
        if name == "events":
            kinds = {event["type"] for event in made} | {*FOUND}
            had = [event for event in had if event.get("type") in kinds]
        left = iter([_strip_stamps(line) for line in had])
        if lost := [line for line in made if _strip_stamps(line) not in left]:
            return f"turn {lost[0]['turn']} is not in log/{name}.jsonl as log/journal.jsonl makes it"
        if len(had) != len(made) and not resumed:
            return f"log/{name}.jsonl has {len(had)} lines of the loop, log/journal.jsonl makes {len(made)}"
    return ""


def _strip_stamps(line: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in line.items() if name not in STAMPS}, sort_keys=True)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Raises InfrastructureError for a line that is none."""
    try:
        return [_OBJECT.validate_json(line) for line in path.read_bytes().splitlines() if line]
    except ValidationError as error:
        raise InfrastructureError(f"{path.name}: {error.errors()[0]['msg']}.") from error
