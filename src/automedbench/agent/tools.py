"""Tools of every track, two of them: how they are offered, how a call is read, and what the model gets back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, cast

from automedbench.agent.calls import error_position, is_complete, repair_arguments
from automedbench.agent.models.chat import ToolCall, ToolSpec, clean_text
from automedbench.sandbox import CodeResult

EXECUTE, SUBMIT = "execute_code", "submit_results"
TOOL_NAMES = (EXECUTE, SUBMIT)
LANGUAGES = ("python", "bash")
SUMMARY_LENGTH = 500

Language = Literal["python", "bash"]


@dataclass(frozen=True)
class CodeRequest:
    """Run this code."""

    language: Language
    code: str


@dataclass(frozen=True)
class SubmitRequest:
    """Accept what lies in the output folder."""

    summary: str


@dataclass(frozen=True)
class BadCall:
    """A call that cannot be executed; ``error`` tells the model why."""

    error: str
    position: int | None = None


def tool_specs(execute_description: str) -> tuple[ToolSpec, ToolSpec]:
    """Both tools in the shape of the chat-completions protocol (docs/specification.md, 8.2)."""
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
    return execute, submit


def read_call(call: ToolCall, *, cut: bool = False) -> CodeRequest | SubmitRequest | BadCall:
    """What a call asks for. With ``cut`` (the reply hit its length limit) arguments are taken as they stand or not."""
    if call.name not in TOOL_NAMES:
        return BadCall(f"unknown tool '{call.name[:80]}'; known are {' and '.join(TOOL_NAMES)}")
    if cut and not is_complete(call.arguments):
        return BadCall("the reply was cut by its length limit before the call was complete; send a shorter call")
    arguments = repair_arguments(call.arguments or "{}")
    if arguments is None:
        return BadCall("arguments are not valid JSON", error_position(call.arguments))
    if call.name == SUBMIT:
        return SubmitRequest(clean_text(str(arguments.get("summary") or ""))[:SUMMARY_LENGTH])
    return _read_code(arguments)


def _read_code(arguments: dict[str, Any]) -> CodeRequest | BadCall:
    language, code = arguments.get("language"), arguments.get("code")
    if not isinstance(code, str) or not code.strip():
        return BadCall("'code' is missing or empty")
    if language not in LANGUAGES:
        return BadCall(f"'language' must be python or bash, not {str(language)[:40]!r}")
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
    said = {"warning": warning, "note": note}
    return _dump(_with_rest(answer, remaining_s) | {key: text for key, text in said.items() if text})


def refused_answer(warning: str, remaining_s: float | None) -> str:
    """Tool result of a call that the policy did not let run."""
    return _dump(_with_rest({"status": "refused", "exit_code": None, "warning": warning}, remaining_s))


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


def was_cut(call: ToolCall) -> bool:
    """True for a native call whose arguments are incomplete."""
    return not call.recovered and not is_complete(call.arguments)
