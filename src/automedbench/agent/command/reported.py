"""Forms in which programs ask for work and report it: tools and texts that run or write something, and outcomes.

What is here was read from recorded traffic of Claude Code, Codex, Gemini CLI, OpenCode, mini-swe-agent, Aider,
OpenHands and Inspect; a form belongs to no program, so that any other one of the same kind is read as well.
A written file becomes the shell text that writes it, which judge and reader know how to read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from automedbench.agent.models.model import ToolCall
from automedbench.agent.tools import CodeRequest, repair_arguments
from automedbench.base.files import parse_json_object
from automedbench.base.records import Language
from automedbench.sandbox.evidence.trace import TracedProgram
from automedbench.sandbox.evidence.tracer import MAX_LINE

_CODE_KEYS = ("code", "command", "cmd", "script", "source", "input", "commands")
_PATH_KEYS = ("file_path", "filePath", "path", "filename", "absolute_path")
_CONTENT_KEYS = ("content", "file_text", "contents")
_SKILL_KEYS, LONGEST_NAME = ("skill", "name", "command"), 300
_OLD_KEYS, _NEW_KEYS = ("old_string", "oldString", "old_str"), ("new_string", "newString", "new_str")
_PATCH_KEYS = ("input", "patch", "patchText", "command", "cmd")

_PYTHON = re.compile(r"py|jupyter|notebook|interpreter", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|\bsh\b|term|command|cmd|exec|run", re.IGNORECASE)
_READ = re.compile(r"read(?:_?file)?|view|cat|open_?file", re.IGNORECASE)
_EDITOR = ("view", "create", "str_replace", "insert", "undo_edit")
"""Commands of an editor tool, not of a shell."""

_FENCE = re.compile(r"```([\w+-]*)[ \t]*")
_RUN: Mapping[str, Language] = {
    **dict.fromkeys(("bash", "sh", "shell", "mswea_bash_command"), "bash"),
    **dict.fromkeys(("python", "py"), "python"),
}
"""Names of fenced blocks that are run."""
_FILE_NAME = re.compile(r"[*`#\s]{0,8}(/?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.\w{1,8})[*`:\s]{0,8}")
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update) File: (.+)$", re.MULTILINE)
_SEARCH, _BETWEEN, _REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"

_EXIT = re.compile(
    r"\W*(?:(?:the|command|process) )*(?:(?:exited|finished|completed|failed|returned) with (?:exit )?|exit[ _]?"
    r"|return[ _]?)(?:code|status)[^\w-]{1,4}(-?\d{1,3})(?:\W*|</returncode>)",
    re.IGNORECASE,
)
_AROUND = re.compile(
    r"(?:Chunk ID|Wall time|Original token count|Process Group PGID|Background PIDs|Signal): .*"
    r"|Process running with session ID \d+|</?(?:untrusted_context|output|warning)>"
    r"|\[(?:Current working directory|Python interpreter): .*\]|Output:"
    r"|\[Below is the output of the previous command\.\]|\[The command (?:has no new output|timed out) after .*\]"
)
"""Lines that programs put around the output of a call."""
_SESSION_KEYS = ("session_id", "bash_id", "shell_id", "task_id")
_SESSION = re.compile(
    r"^(?:Process running with session ID|Command running in background with ID:) ([\w-]+)", re.MULTILINE
)
"""Codex and Claude Code: a long call is reported before its end, the rest when a later call polls it."""
_TERMINAL = "terminal"
_STILL_RUNS = ("[The command has no new output after ", "[The command timed out after ")
_NOT_RUN = '" is NOT executed. The previous command is still running'
"""OpenHands has one terminal: an empty command, and one that comes too early, poll the call that still runs."""
_LINES_AROUND, _LONGEST_AROUND = 10, 600
_SAYS_ONLY_FAILURES = "Process Group PGID: "
"""Gemini CLI reports an exit code only where it is not 0 (its own description of the tool)."""
_NOTHING = frozenset({"(empty)", "(no output)", "(Bash completed with no output)", "(no output or error)"})
_EXIT_KEYS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "status")
_OUTPUT_KEYS = ("output", "output_head", "output_tail", "stdout", "stderr", "error")
_RUN_REPORT = re.compile(r"I ran this command:\s{1,4}(\S[^\n]*)\s{1,4}And got this output:\s{0,4}")


@dataclass(frozen=True)
class ReportedWork:
    """Work of a program that a reply requests, as code; what it does ``itself`` (edits, reading) starts no process.

    ``files`` are those that an edit changes: their content afterwards is more telling than the edit. ``session`` names
    a call that was still running when its result was reported, and is polled.
    """

    program: CodeRequest
    files: tuple[str, ...] = ()
    itself: bool = False
    session: str = ""


@dataclass(frozen=True)
class ReportedOutcome:
    """Output of a call, and the exit code that the program reported for it; None where it reported none.

    ``session``: the call goes on, and later calls refer to it by this name. ``belongs_to_session``: this call was not
    run, and the output is that of the session.
    """

    output: str
    exit_code: int | None
    session: str = ""
    belongs_to_session: bool = False


def read_tool_call(call: ToolCall) -> ReportedWork | None:
    """Parse the work that a tool call requests, by the tool's name and its arguments; None for other tools."""
    arguments = repair_arguments(call.arguments or "{}")
    if arguments is None:
        return _patch(call.arguments)
    if (edit := _edit(arguments)) is not None:
        return edit
    if (patch := _patch(_first(arguments, _PATCH_KEYS))) is not None:
        return patch
    if arguments.get("command") not in _EDITOR:
        program = _code(call.name[:80], arguments)
        if program is not None:
            return ReportedWork(program)
    path = _first(arguments, _PATH_KEYS)
    if path and (_READ.fullmatch(call.name[:80]) or arguments.get("command") == "view"):
        return ReportedWork(CodeRequest("bash", f"cat {shlex.quote(path)}\n"), itself=True)
    session = next((str(arguments[key])[:80] for key in _SESSION_KEYS if arguments.get(key)), "")
    if not session and arguments.get("command") == "" and _SHELL.search(call.name[:80]):
        session = _TERMINAL
    return ReportedWork(CodeRequest("bash", ""), session=session) if session else None


def name_used_help(call: ToolCall) -> str:
    """Tool of an MCP server, or file of the skills, that a call of the program's tools uses; empty for other calls."""
    if call.name.startswith("mcp__"):
        return call.name[:LONGEST_NAME]
    arguments = repair_arguments(call.arguments or "{}") or {}
    if call.name.lower() == "skill":
        return f"{_first(arguments, _SKILL_KEYS)[:LONGEST_NAME]}/SKILL.md"
    path = _first(arguments, _PATH_KEYS) if _READ.fullmatch(call.name[:80]) else ""
    return path.partition("/skills/")[2][:LONGEST_NAME]


def read_code_blocks(text: str) -> list[ReportedWork]:
    """Parse the work that a reply without calls requests: files that it lists or edits, else its one block of code."""
    blocks = list(_blocks(text))
    files = [work for name, path, body in blocks if path and (work := _listed(path, body)) is not None]
    if files:
        return files
    programs = [CodeRequest(_RUN[name], body) for name, _, body in blocks if name in _RUN]
    return [ReportedWork(programs[0])] if len(programs) == 1 else []


def write_heredoc(path: str, content: str) -> CodeRequest:
    """The shell text that writes a file."""
    end = "EOF"
    while f"\n{end}\n" in f"\n{content}\n":
        end += "_"
    return CodeRequest("bash", f"cat > {shlex.quote(path)} <<'{end}'\n{content.removesuffix(chr(10))}\n{end}\n")


def parse_outcome(content: str) -> ReportedOutcome:
    """Parse output and exit code from a program's report of a call; takes time in proportion to its length."""
    value = parse_json_object(content) if content.lstrip()[:1] == "{" else None
    if value is not None and (outcome := _read_object(value)) is not None:
        return outcome
    lines = content.split("\n")
    codes: list[int] = []
    first, last = 0, len(lines)
    while first < min(last, _LINES_AROUND) and _is_wrapper(lines[first], codes):
        first += 1
    end = last
    while last > max(first, len(lines) - _LINES_AROUND) and (
        not lines[last - 1] or _is_wrapper(lines[last - 1], codes)
    ):
        last -= 1
        end = end if not lines[last] else last
    last = end  # blank lines at the end are the output's own
    session = _SESSION.search("\n".join(lines[: max(first, 1)])[:_LONGEST_AROUND])
    silent = 0 if not codes and any(_SAYS_ONLY_FAILURES in line for line in lines[last:]) else None
    output = "\n".join(lines[first:last])
    output = output.removeprefix("Output: ") if (first, last) != (0, len(lines)) else output
    code = codes[0] if codes else silent
    another = _NOT_RUN in content[-_LONGEST_AROUND - LONGEST_COMPARED :]
    in_terminal = another or any(mark in content[-_LONGEST_AROUND:] for mark in _STILL_RUNS)
    named = session[1] if session else _TERMINAL if in_terminal else ""
    return ReportedOutcome("" if output in _NOTHING else output, code, named if code is None else "", another)


def parse_run_report(content: str) -> tuple[str, str] | None:
    """Parse command and output of a user message that reports a run which no reply requested."""
    found = _RUN_REPORT.match(content)
    return None if found is None else (found[1], content[found.end() :])


LONGEST_COMPARED = 1200
"""Characters of a code that are looked for in a command line: quoting makes it longer there."""


def find_traced_program(code: str, programs: Sequence[TracedProgram]) -> TracedProgram | None:
    """The first program whose command line holds the code, however it is wrapped and quoted.

    A line that ends with the code, or has it evaluated, goes before one in which it just stands.
    """
    wanted = _words(code[:LONGEST_COMPARED])
    found = [program for program in programs if wanted and _holds(program, wanted)]
    exact = (one for one in found if f" eval {wanted}" in _words(one.line) or _words(one.line).endswith(f"c {wanted}"))
    return next(exact, found[0] if found else None)


def _holds(program: TracedProgram, wanted: str) -> bool:
    line, cut = _words(program.line), len(program.line) >= MAX_LINE
    at = line.find(wanted[:40])
    end = at + len(wanted)
    if at < 0 or (at and _IN_WORD.match(line[at - 1])):
        return False
    whole = line.startswith(wanted, at) and not (_IN_WORD.match(line[end : end + 1]) and _IN_WORD.match(wanted[-1]))
    return whole or (cut and wanted.startswith(line[at:]))


_IN_WORD = re.compile(r"[\w./-]")


@lru_cache(maxsize=2048)
def _words(text: str) -> str:
    """The text with blanks, line ends, quotes and escapes as one blank each: shells are given it in many forms."""
    return re.sub(r"[\s'\"\\]+", " ", text).strip()


# --- tools --------------------------------------------------------------------------------------------------------


def _first(arguments: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((value for key in keys if isinstance(value := arguments.get(key), str) and value), "")


def _edit(arguments: Mapping[str, Any]) -> ReportedWork | None:
    path = _first(arguments, _PATH_KEYS)
    content = next((arguments[key] for key in _CONTENT_KEYS if isinstance(arguments.get(key), str)), None)
    if path and content is not None:
        return ReportedWork(write_heredoc(path, content), (path,), itself=True)
    listed = arguments.get("edits")
    edits = [arguments, *(edit for edit in (listed if isinstance(listed, list) else []) if isinstance(edit, dict))]
    pairs = [(_first(edit, _OLD_KEYS), _first(edit, _NEW_KEYS)) for edit in edits]
    pairs = [pair for pair in pairs if any(pair)]
    return ReportedWork(_replacing(path, pairs), (path,), itself=True) if path and pairs else None


def _replacing(path: str, pairs: Sequence[tuple[str, str]]) -> CodeRequest:
    steps = [f"text = text.replace({old!r}, {new!r}, 1)" for old, new in pairs]
    name = repr(path)
    return CodeRequest(
        "python", "\n".join([f"text = open({name}).read()", *steps, f"open({name}, 'w').write(text)", ""])
    )


def _patch(text: str) -> ReportedWork | None:
    begin = text.find("*** Begin Patch")
    if begin < 0 or text[:begin].replace("apply_patch", "").strip(" \n<'\"EOFPATCH-"):
        return None
    patch = text[begin:]
    end = patch.find("*** End Patch")
    patch = patch if end < 0 else patch[: end + len("*** End Patch")]
    return ReportedWork(
        CodeRequest("bash", f"apply_patch <<'EOF'\n{patch}\nEOF\n"), tuple(_PATCHED.findall(patch)), itself=True
    )


def _code(name: str, arguments: Mapping[str, Any]) -> CodeRequest | None:
    code = next((text for key in _CODE_KEYS if (text := _as_code(arguments.get(key)))), None)
    if code is None:
        return None
    language = str(arguments.get("language") or arguments.get("lang") or name)[:80]
    if _PYTHON.search(language):
        return CodeRequest("python", code)
    return CodeRequest("bash", code) if _SHELL.search(language) or _SHELL.search(name) else None


def _as_code(value: Any) -> str | None:
    """Code as text; some programs take a command as a list of words."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return value[-1] if value[0] in ("bash", "sh") and len(value) > 2 else " ".join(value)
    return value if isinstance(value, str) and value.strip() else None


# --- texts --------------------------------------------------------------------------------------------------------


def _blocks(text: str) -> list[tuple[str, str, str]]:
    """Fenced blocks: language, the file that the line before names, body."""
    found: list[tuple[str, str, str]] = []
    name, path, begin, at, inside, before = "", "", 0, 0, False, ""
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if fence and inside and not fence[1]:
            found.append((name, path, text[begin:at]))
            inside = False
        elif fence and not inside:
            named = _FILE_NAME.fullmatch(before[:300])
            name, path, begin, inside = fence[1], named[1] if named else "", at + len(line) + 1, True
        before = line if line.strip() else before
        at += len(line) + 1
    return found


def _listed(path: str, body: str) -> ReportedWork | None:
    if _SEARCH not in body:
        return ReportedWork(write_heredoc(path, body), (path,), itself=True)
    pairs = []
    for part in body.split(_SEARCH)[1:]:
        old, between, rest = part.partition(f"\n{_BETWEEN}\n")
        if between:
            pairs.append((old.removeprefix("\n"), rest.partition(_REPLACE)[0].removesuffix("\n")))
    return ReportedWork(_replacing(path, pairs), (path,), itself=True) if pairs else None


# --- outcomes -----------------------------------------------------------------------------------------------------


def _is_wrapper(line: str, codes: list[int]) -> bool:
    """Return whether a line wraps an output, and note its exit code."""
    if len(line) > _LONGEST_AROUND:
        return False
    if not codes and (code := _EXIT.fullmatch(line)) is not None:
        codes.append(int(code[1]))
        return True
    return _AROUND.fullmatch(line) is not None


def _read_object(value: Mapping[str, Any]) -> ReportedOutcome | None:
    """An object that a program made of a call: it gives a code, or outputs and nothing else."""
    inner = value.get("metadata")
    every = {**value, **(inner if isinstance(inner, dict) else {})}
    codes = [every[key] for key in _EXIT_KEYS if isinstance(every.get(key), int) and -1000 < every[key] < 1000]
    parts = [every[key] for key in _OUTPUT_KEYS if isinstance(every.get(key), str)]
    if not parts or not (codes or every.keys() <= {*_OUTPUT_KEYS, "metadata"}):
        return None
    return ReportedOutcome("\n".join(part for part in parts if part), int(codes[0]) if codes else None)
