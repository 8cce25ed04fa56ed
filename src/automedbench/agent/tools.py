"""Tools of every track, two of them: how they are offered, how a call is read, and what the model gets back.

A call may be written as text, its arguments not quite JSON. Dialects (docs/specification.md, 8.3):
``<invoke name="X"><parameter name="K">V</parameter></invoke>``, ``<function=X><parameter=K>V</parameter></function>``
and ``<tool_call>{"name": X, "arguments": {…}}</tool_call>``. Reasoning and fenced blocks are skipped, and a block
counts only when nothing but markup shares its lines. Reading takes time in proportion to the text, and is capped.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from automedbench.agent.models.model import ToolCall, ToolSpec
from automedbench.base.files import clean_text, parse_json_object
from automedbench.base.records import Language
from automedbench.sandbox.container.process import CodeResult

EXECUTE, WAIT, SUBMIT = "execute_code", "wait", "submit_results"
TOOL_NAMES = (EXECUTE, WAIT, SUBMIT)
LANGUAGES = ("python", "bash")
SUMMARY_LENGTH = 500
MAX_CODE = 1_000_000
"""Characters of one program; far more than any model writes in a reply."""


@dataclass(frozen=True)
class CodeRequest:
    """Run this code."""

    language: Language
    code: str


@dataclass(frozen=True)
class WaitRequest:
    """Wait for a time, or for the end of a background process by the id that it has inside."""

    seconds: float | None = None
    process: int | None = None


@dataclass(frozen=True)
class SubmitRequest:
    """Accept what lies in the output folder."""

    summary: str


@dataclass(frozen=True)
class BadCall:
    """A call that cannot be executed; ``error`` is the reason, for the model."""

    error: str
    position: int | None = None


def tool_specs(execute_description: str, *, wait: bool = True) -> tuple[ToolSpec, ...]:
    """The tools in the shape of the chat-completions protocol (docs/specification.md, 8.2)."""
    execute = ToolSpec(
        EXECUTE,
        execute_description,
        {
            "type": "object",
            "properties": {
                "language": {"type": "string", "enum": list(LANGUAGES)},
                "code": {"type": "string", "description": "complete program; variables of earlier calls are gone"},
            },
            "required": ["language", "code"],
            "additionalProperties": False,
        },
    )
    submit = ToolSpec(
        SUBMIT,
        "Declare the work finished. When every expected file exists, the first accepted call ends the run for good. "
        "When files are missing, the first call is refused once with their list; a second call is accepted as it is.",
        {
            "type": "object",
            "properties": {
                "summary": {
                    "type": "string",
                    "maxLength": SUMMARY_LENGTH,
                    "description": "what was done and how far to trust it",
                }
            },
            "required": [],
        },
    )
    return (execute, _WAIT, submit) if wait else (execute, submit)


_WAIT = ToolSpec(
    WAIT,
    "Wait while background processes of earlier calls work: for some seconds, until a process has ended, or for "
    "whichever of the two comes first. The time counts as time of the run.",
    {
        "type": "object",
        "properties": {
            "seconds": {"type": "number", "description": "longest time to wait"},
            "process": {"type": "integer", "description": "process id, as code printed it ($! in bash)"},
        },
        "required": [],
        "additionalProperties": False,
    },
)


def read_call(
    call: ToolCall, *, cut: bool = False, known: Sequence[str] = TOOL_NAMES
) -> CodeRequest | WaitRequest | SubmitRequest | BadCall:
    """Parse a call. With ``cut`` (the reply hit its length limit) arguments are taken as they stand or not."""
    if call.name not in known:
        return BadCall(f"unknown tool '{call.name[:80]}'; known are {', '.join(known)}")
    if cut and not is_complete(call.arguments):
        return BadCall("the reply was cut by its length limit before the call was complete; send a shorter call")
    arguments = repair_arguments(call.arguments or "{}")
    if arguments is None:
        return BadCall("arguments are not valid JSON", error_position(call.arguments))
    if call.name == SUBMIT:
        return SubmitRequest(clean_text(str(arguments.get("summary") or ""))[:SUMMARY_LENGTH])
    return _read_wait(arguments) if call.name == WAIT else _read_code(arguments)


def _read_wait(arguments: dict[str, Any]) -> WaitRequest | BadCall:
    given = {name: arguments[name] for name in ("seconds", "process") if arguments.get(name) is not None}
    if not given:
        return BadCall("'seconds' or 'process' is needed")
    try:
        numbers = {name: float(value) for name, value in given.items()}  # a call written as text holds texts
    except (TypeError, ValueError, OverflowError):
        return BadCall("'seconds' and 'process' must be numbers")
    if not all(0 < number < 2**31 for number in numbers.values()):
        return BadCall("'seconds' and 'process' must be above 0, and no larger than numbers of their kind are")
    return WaitRequest(numbers.get("seconds"), int(numbers["process"]) if "process" in numbers else None)


def _read_code(arguments: dict[str, Any]) -> CodeRequest | BadCall:
    language, code = arguments.get("language"), arguments.get("code")
    if not isinstance(code, str) or not code.strip():
        return BadCall("'code' is missing or empty")
    if language not in LANGUAGES:
        return BadCall(f"'language' must be python or bash, not {str(language)[:40]!r}")
    if len(code) > MAX_CODE:
        return BadCall(f"'code' has {len(code)} characters, at most {MAX_CODE} are taken")
    if clean_text(code) != code or "\0" in code:
        return BadCall("'code' holds a NUL or a lone surrogate, which no source file can hold")
    return CodeRequest(cast(Language, language), code)


def code_answer(result: CodeResult, remaining_s: float | None, warning: str | None, note: str | None = None) -> str:
    """Tool result of an executed call."""
    answer: dict[str, Any] = {
        "status": result.status,
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "elapsed_s": round(result.elapsed_s, 3),
        "truncated": {"stdout": result.stdout_truncated, "stderr": result.stderr_truncated},
        "timed_out": result.status == "timeout",
    }
    remarks = {"warning": warning, "note": " ".join(filter(None, (note, result.note)))}
    return _dump(_with_rest(answer, remaining_s) | {key: text for key, text in remarks.items() if text})


def wait_answer(how: str, waited_s: float, remaining_s: float | None) -> str:
    """Tool result of a wait; ``how`` it ended, as the sandbox reports it."""
    answer: dict[str, Any] = {"status": "ok" if how in ("time", "ended") else "error", "waited_s": round(waited_s, 1)}
    return _dump(_with_rest(answer | {"note": _WAITED[how]}, remaining_s))


_WAITED = {
    "time": "the time is over",
    "ended": "the process has ended",
    "unknown": "there is no such process",
    "gone": "nothing runs: there is no container, or it has ended; the next call starts a new one",
}


def bad_call_answer(bad: BadCall) -> str:
    """Tool result of a call that cannot be read."""
    position = {} if bad.position is None else {"position": bad.position}
    return _dump({"status": "error", "error": bad.error} | position)


def skipped_answer(why: str) -> str:
    """Tool result of a call that is not executed because the run has ended."""
    return _dump({"status": "skipped", "note": why})


def submit_answer(
    accepted: bool, missing: list[str], n_missing: int, invalid: int | None, remaining_s: float | None
) -> str:
    """Tool result of ``submit_results``; ``missing`` holds the first missing files, ``invalid`` is None if unknown."""
    answer = {
        "accepted": accepted,
        "missing": missing,
        "missing_count": n_missing,
        "invalid_count": invalid,
    }
    return _dump(_with_rest(answer, remaining_s))


def _with_rest(answer: dict[str, Any], remaining_s: float | None) -> dict[str, Any]:
    return answer if remaining_s is None else answer | {"remaining_s": max(0, int(remaining_s))}


def _dump(answer: dict[str, Any]) -> str:
    return clean_text(json.dumps(answer, ensure_ascii=False))


def encode(arguments: dict[str, Any]) -> str:
    """Arguments as a call holds them."""
    return json.dumps(arguments, ensure_ascii=False)


def valid_json(arguments: str) -> str:
    """Arguments that every endpoint accepts back: as they were, repaired, or an empty object."""
    if is_complete(arguments):
        return arguments
    return encode(repair_arguments(arguments) or {})


MAX_CALLS = 4
MAX_TEXT = 1_000_000
"""Characters of a reply that are searched for calls written as text."""
MAX_TRIED = 200
"""Opening tags that are tried in one reply."""
MAX_BESIDE = 2_000
"""Characters on the lines of a block beside it; more are no markup."""

_REASONING = r"think|thinking|reasoning|reflection"
_NEXT = re.compile(
    rf"(?P<thought><(?P<tag>{_REASONING})>)"
    rf"|(?P<thought_end></(?:{_REASONING})>)"
    r"|(?P<fence>^[ \t]*(?P<ticks>```+|~~~+))"
    r"|(?P<invoke><invoke\s+name\s*=\s*[\"']?(?P<invoke_name>[\w.-]+)[\"']?\s*>)"
    r"|(?P<function><function\s*=\s*[\"']?(?P<function_name>[\w.-]+)[\"']?\s*>)"
    r"|(?P<json><tool_call>\s*(?=\{))",
    re.IGNORECASE | re.MULTILINE,
)
_PARAMETER = re.compile(
    r"\s*<parameter(?:\s+name)?\s*=\s*(?:\"(?P<a>[^\"<>]+)\"|'(?P<b>[^'<>]+)'|(?P<c>[\w.-]+))\s*>", re.IGNORECASE
)
_CLOSERS = r"</(?:parameter|invoke|function|function_calls|tool_call|\w+:function_calls|\w+:tool_call)>"
_PARAMETER_END = re.compile(rf"</parameter>(?=\s*(?:<parameter\b|(?!</parameter>){_CLOSERS}|\Z))", re.IGNORECASE)
_BLOCK_END = re.compile(r"\s*</(?:invoke|function)>", re.IGNORECASE)
_TOOL_CALL_END = re.compile(r"\s*</tool_call>", re.IGNORECASE)
_LAST_CLOSER = re.compile(rf"{_CLOSERS}\Z", re.IGNORECASE)
_TAG = re.compile(r"</?[\w:.-]+(?:\s[^<>]*)?>")
# A string that is not closed reaches the end: no second look at what it holds.
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True)
class TextCall:
    """A call found in text, from ``start`` to ``end``; ``closed`` is false when its block ran into the text's end."""

    name: str
    arguments: dict[str, Any]
    closed: bool
    start: int
    end: int


@dataclass(frozen=True)
class Recovery:
    """Calls recovered from a text, in order, and whether the text holds fenced code."""

    calls: tuple[TextCall, ...] = ()
    fenced: bool = False


_Spans = Sequence[tuple[int, int]]


def recover_calls(text: str, known: Collection[str]) -> Recovery:
    """Find calls of ``known`` tools in the first million characters of ``text``, at most four."""
    text = text[:MAX_TEXT]
    ends = [match.span() for match in _PARAMETER_END.finditer(text)]
    found: list[TextCall] = []
    position = line_start = tried = 0
    fenced = False
    while tried < MAX_TRIED and (match := _NEXT.search(text, position)):
        if match["thought"]:
            end = re.compile(f"</{match['tag']}>", re.IGNORECASE).search(text, match.end())
            position = line_start = end.end() if end else len(text)
        elif match["thought_end"]:
            # A chat template opened the reasoning: all before its end was thought, calls included.
            found.clear()
            position = line_start = match.end()
        elif match["fence"]:
            fenced = True
            position = line_start = _fence_end(text, match)
        else:
            tried += 1
            call = _read_json(text, match) if match["json"] else _read_tags(text, match, ends)
            alone = call is not None and _stands_alone(text, call, line_start)
            if call and alone and call.name in known:
                found.append(call)
            # Prose that names an opening tag must not swallow the real call after it.
            position = call.end if call and (alone or call.closed) else match.end()
    return Recovery(tuple(found[:MAX_CALLS]), fenced)


def repair_arguments(raw: str) -> dict[str, Any] | None:
    """Parse a call's argument string; bare control characters and trailing commas are forgiven, nothing else."""
    for candidate, strict in ((raw, True), (raw, False), (_without_trailing_commas(raw), False)):
        value = parse_json_object(candidate, strict=strict)
        if value is not None:
            return value
    return None


def error_position(raw: str) -> int:
    """Position, in characters, at which an argument string stops being JSON."""
    try:
        json.loads(_without_trailing_commas(raw), strict=False)
    except json.JSONDecodeError as error:
        return error.pos
    except (ValueError, RecursionError):
        return 0
    return 0


def is_complete(raw: str) -> bool:
    """True when ``raw`` is a JSON object as it stands."""
    return parse_json_object(raw) is not None


def _without_trailing_commas(raw: str) -> str:
    return _STRING_OR_COMMA.sub(lambda match: "" if match[0] == "," else match[0], raw)


def _fence_end(text: str, opening: re.Match[str]) -> int:
    """End of a fenced block; an unclosed fence reaches the end of the text."""
    closing = re.compile(rf"^[ \t]*{re.escape(opening['ticks'])}[ \t]*$", re.MULTILINE)
    line_end = text.find("\n", opening.end())
    match = closing.search(text, line_end) if line_end >= 0 else None
    return match.end() if match else len(text)


def _read_tags(text: str, opening: re.Match[str], ends: _Spans) -> TextCall | None:
    name = opening["invoke_name"] or opening["function_name"]
    arguments, position, closed = _read_parameters(text, opening.end(), ends)
    return TextCall(name, arguments, closed, opening.start(), position) if closed or arguments else None


def _read_parameters(text: str, position: int, ends: _Spans) -> tuple[dict[str, Any], int, bool]:
    """Parameters from ``position``: (arguments, end of block, closed); ``ends`` are those of all parameters."""
    arguments: dict[str, Any] = {}
    while match := _PARAMETER.match(text, position):
        name = match["a"] or match["b"] or match["c"]
        index = bisect_left(ends, (match.end(), 0))
        if index == len(ends):
            arguments[name], position = _open_value(text, match.end())
            return arguments, position, False
        end, position = ends[index]
        arguments[name] = text[match.end() : end].strip()
    end_of_block = _BLOCK_END.match(text, position)
    return (arguments, end_of_block.end(), True) if end_of_block else (arguments, position, False)


def _open_value(text: str, start: int) -> tuple[str, int]:
    """A value whose block is not closed: up to its last closing tag, else to the end less closing tags of wrappers."""
    closing = text.rfind("</parameter>", start)
    if closing >= 0:
        return text[start:closing].strip(), closing + len("</parameter>")
    value = text[start:].strip()
    end = len(value)
    while match := _LAST_CLOSER.search(value, max(0, end - 40), end):
        end = match.start()
        while end and value[end - 1].isspace():
            end -= 1
    return value[:end], len(text)


def _read_json(text: str, opening: re.Match[str]) -> TextCall | None:
    """``{"name": …, "arguments": {…}}``; decoding from the brace leaves closing tags inside the code alone."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, opening.end())
    except (ValueError, RecursionError):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = repair_arguments(arguments)
    if not isinstance(value.get("name"), str) or not isinstance(arguments, dict):
        return None
    closing = _TOOL_CALL_END.match(text, end)
    end = closing.end() if closing else end
    return TextCall(value["name"], arguments, closing is not None, opening.start(), end)


def _stands_alone(text: str, call: TextCall, line_start: int) -> bool:
    """Return whether only markup and non-word characters surround the call on its first and last line."""
    start = max(text.rfind("\n", 0, call.start) + 1, line_start)
    end = text.find("\n", call.end)
    before, after = text[start : call.start], text[call.end : len(text) if end < 0 else end]
    return not any(len(part) > MAX_BESIDE or re.search(r"\w", _TAG.sub("", part)) for part in (before, after))


CONTINUE_EMPTY = "[CONTINUE] Your reply was empty. Call execute_code, or submit_results when the work is finished."

CONTINUE_TEXT = (
    "[CONTINUE] Your reply called no tool, so nothing was executed. Call execute_code to go on, or submit_results "
    "when the work is finished. A second reply without a call ends the run."
)

FORMAT_FENCE = (
    "[FORMAT] Code in a fenced block is not executed. Send it as a call of execute_code with 'language' and 'code'. "
    "A second reply without a call ends the run."
)

FORMAT_LENGTH = (
    "[FORMAT] Your reply was cut by its length limit, and nothing incomplete was executed. Send a shorter reply: "
    "write long programs to files in several calls. Three cut replies in a row end the run."
)

INTERRUPTED = (
    "The machine was interrupted during this call, and the call was executed again from its start. Files that it "
    "writes may have been written in part before."
)
