"""Which program asks, and how a scripted turn is told to it: by our own tools, by its shell tool, or as a fenced block.

A program is known by what its request offers, never by its name. Requests beside the work (titles, topics, quotas)
are answered with plain text and count as no turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from automedbench.agent.models.scripted import CodeStep, ScriptedTurn, Step, SubmitStep, scripted_reply
from automedbench_rehearsal.model_server.wire import Asked, Call, Tool

ECHO_ENDS = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""Programs whose brief says this word end when a command prints it."""
EDITS = re.compile(r"SEARCH/REPLACE|file listing")
"""Programs whose brief says this take edits of files in text."""
SIDE_ANSWER = "ok"
LONG_MS = 600_000

_ID = re.compile(r"[a-z]+_(\d{1,4})_\d+")
_STEP = re.compile(r"^\(step (\d+)\)$", re.MULTILINE)
_SHELL = re.compile(
    r"(?:\w+[._])?(?:bash|shell|shell_command|exec_command|local_shell|run_shell_command|execute_bash|terminal|"
    r"run_terminal_cmd|run_in_terminal|run_command|execute_command|execute_shell|run_bash\w*|cmd)",
    re.IGNORECASE,
)
_RUNNING = re.compile(r"Process running with session ID (\d+)")
_SUBMIT = re.compile(r"submit|submit_results|finish|complete_task|attempt_completion|task_done", re.IGNORECASE)
_COMMAND = ("command", "cmd", "script", "commands")
_BESIDE = re.compile(r"\btitles?\b|commit message|\bsummar|\btopic\b|\bclassif", re.IGNORECASE)

Manner = Literal["own", "own_text", "shell", "text", "side"]


@dataclass(frozen=True)
class Program:
    """What a request tells of the program that sent it; ``shell`` and ``submit`` are the tools that it offers."""

    manner: Manner
    shell: Tool | None = None
    submit: Tool | None = None
    echo_ends: bool = False
    fence: str = "bash"
    edits: str = ""
    """The word that names the form in which it takes edits."""
    runs: str = ""
    """The one Python program that it runs after an edit."""
    parallel: bool = True
    poll: Tool | None = None
    """The tool that waits for commands which are running still; None when none is."""


def program_of(asked: Asked, turns: Sequence[ScriptedTurn], protocol: str) -> Program:
    """The program that sent a request, as far as a script of these turns needs to know it."""
    opening = json.dumps(asked.opening, ensure_ascii=False, default=str)
    named = {tool.name: tool for tool in asked.tools}
    shell = _shell_of(asked.tools)
    if "execute_code" in named or not any(turn.calls for turn in turns):
        return Program("own")
    if shell is not None:
        submit = next((tool for tool in asked.tools if _SUBMIT.fullmatch(tool.name)), None)
        poll = named.get("write_stdin") if asked.sessions else None
        return Program("shell", shell, submit, ECHO_ENDS in opening, parallel=asked.parallel, poll=poll)
    if asked.tools or asked.form is not None or asked.limit == 1:
        return Program("side")
    if "execute_code" in opening:
        return Program("own_text")
    edits = EDITS.search(opening)
    if ECHO_ENDS in opening or edits:
        fence = "mswea_bash_command" if "mswea_bash_command" in opening else "bash"
        form = edits[0] if edits else ""
        return Program("text", echo_ends=ECHO_ENDS in opening, fence=fence, edits=form, runs=asked.runs, parallel=False)
    return Program("own_text" if protocol == "chat" and not _BESIDE.search(opening) else "side")


def turn_of(asked: Asked, program: Program) -> int:
    """Number of the turn that is asked for. A shortened conversation still shows it in the ids of its calls."""
    earlier = asked.earlier
    if program.manner == "side":
        return 0
    if program.manner == "text":
        return max([int(step) for reply in earlier for step in _STEP.findall(reply.text)], default=0) + 1
    known = [reply.turn + len(earlier) - place for place, reply in enumerate(earlier, start=1) if reply.turn]
    if program.manner == "shell":
        # Texts of a program's own making stand among the replies: only calls count. Waiting continues a turn.
        last = max(reply.turn for reply in earlier) if known else sum(reply.called for reply in earlier)
        return last if program.poll else last + 1
    return max([len(earlier), *known]) + 1


def turn_in(ids: Sequence[Any]) -> int:
    """The turn that ids of calls tell, 0 when none does."""
    return max((int(match[1]) for match in (_ID.fullmatch(str(name)) for name in ids) if match), default=0)


def running_in(results: str) -> list[str]:
    """Sessions of commands that results tell to be running still (Codex)."""
    return _RUNNING.findall(results)


def polls(asked: Asked, tool: Tool, turn: int, prefix: str) -> list[Call]:
    """Calls that wait for what a turn's commands have not finished; ids grow with the conversation."""
    given = {"chars": "", "yield_time_ms": 300_000}
    return [
        Call(
            f"{prefix}_{turn}_{asked.characters + index}",
            tool.name,
            filled(tool.schema, {"session_id": int(name)} | given),
        )
        for index, name in enumerate(asked.sessions)
    ]


def told(turns: Sequence[ScriptedTurn], number: int, program: Program, prefix: str) -> tuple[str, list[Call]]:
    """Text and calls of turn ``number`` (from 1) for a program; after the last turn the text 'done'."""
    if program.manner in ("own", "own_text"):
        reply = scripted_reply(turns, number, "")
        own = [Call(f"{prefix}{call.id[4:]}", call.name, json.loads(call.arguments)) for call in reply.calls]
        if program.manner == "own":
            return reply.content, own
        return "\n".join([reply.content, *map(_as_text, own)]).strip(), []
    spoken = list(_spread(_as_one(turns) if program.runs else turns, program.parallel))
    text, steps = spoken[number - 1] if number <= len(spoken) else ("done", [])
    if program.manner == "text":
        return _fenced(text, steps, number, program), []
    calls = [_call(step, program, f"{prefix}_{number}_{index}") for index, step in enumerate(steps, start=1)]
    if None in calls:
        ending = [step.summary or "done" for step in steps if isinstance(step, SubmitStep)]
        return "\n\n".join(filter(None, [text, *ending])), []
    return text, [call for call in calls if call is not None]


def side_answer(asked: Asked) -> str:
    """The plain text for a request beside the work; in the form that it demands."""
    return SIDE_ANSWER if asked.form is None else json.dumps(example(asked.form))


def _spread(turns: Sequence[ScriptedTurn], parallel: bool) -> Iterator[tuple[str, list[Step]]]:
    """Turns for programs that end at a reply without calls: text waits for the next call, submitting comes alone."""
    waiting: list[str] = []
    for turn in turns:
        waiting += [turn.content] if turn.content else []
        code: list[Step] = [step for step in turn.calls if isinstance(step, CodeStep)]
        submits: list[Step] = [step for step in turn.calls if isinstance(step, SubmitStep)]
        for steps in ([code] if code and parallel else [[step] for step in code]) + [[step] for step in submits]:
            yield "\n\n".join(waiting), steps
            waiting = []
    if waiting:
        yield "\n\n".join(waiting), []


def _as_one(turns: Sequence[ScriptedTurn]) -> list[ScriptedTurn]:
    """A script as one Python program: Aider ends at the first edit whose program succeeds."""
    parts = [_python_of(step) for turn in turns for step in turn.calls if isinstance(step, CodeStep)]
    whole = CodeStep(tool="execute_code", language="python", code="\n\n".join(parts) or "pass")
    said = "\n\n".join(turn.content for turn in turns if turn.content)
    submits = [step for turn in turns for step in turn.calls if isinstance(step, SubmitStep)]
    return [ScriptedTurn(content=said, calls=[whole, *submits])]


def _python_of(step: CodeStep) -> str:
    if step.language == "python":
        return step.code.rstrip()
    return f"import subprocess\n\nsubprocess.run(['bash', '-c', {step.code!r}], check=True)"


def _call(step: Step, program: Program, name: str) -> Call | None:
    """A step as a call of the program's tools; None for submitting where no tool does it."""
    if isinstance(step, SubmitStep) and program.submit is not None:
        arguments = filled(program.submit.schema, dict.fromkeys(("summary", "message", "answer"), step.summary))
        return Call(name, program.submit.name, arguments)
    if isinstance(step, SubmitStep) and not program.echo_ends:
        return None
    assert program.shell is not None
    return Call(name, program.shell.name, _shell_arguments(program.shell, command_of(step)), program.shell.kind)


def command_of(step: Step) -> str:
    """A step as a Bash command; Python stands in it as a here-document."""
    if isinstance(step, SubmitStep):
        return f"echo {ECHO_ENDS}"
    if step.language == "bash":
        return step.code
    end = "EOF"
    while end in step.code:
        end += "_"
    return f"python3 - <<'{end}'\n{step.code.rstrip()}\n{end}"


def _fenced(text: str, steps: Sequence[Step], number: int, program: Program) -> str:
    """A turn for a program that reads commands from text; the number of the step is what turns are counted by."""
    step = steps[0] if steps else SubmitStep(tool="submit_results")
    if isinstance(step, SubmitStep) and not program.echo_ends:
        return "\n\n".join(filter(None, [text, step.summary])) or "done"
    command = command_of(step).rstrip()
    block = f"```{program.fence}\n{command}\n```"
    if program.edits:
        # Aider runs commands line by line: the command goes to a file, which its test command runs.
        marks = ("<<<<<<< SEARCH\n=======\n", "\n>>>>>>> REPLACE") if "SEARCH" in program.edits else ("", "")
        name, code = f"step_{number}.sh", command
        if program.runs and isinstance(step, CodeStep):
            name, code = program.runs, step.code
        block = f"{name}\n```\n{marks[0]}{code}{marks[1]}\n```"
    return "\n\n".join(filter(None, [text, f"(step {number})", block]))


def _as_text(call: Call) -> str:
    written = {"name": call.name, "arguments": call.arguments}
    return f"<tool_call>{json.dumps(written, ensure_ascii=False)}</tool_call>"


# --- tools of programs -----------------------------------------------------------------------------------------


def _shell_of(tools: Sequence[Tool]) -> Tool | None:
    """The tool that runs a command: by its name, else by a free text named 'command' that it demands."""
    able = [tool for tool in tools if tool.kind == "local_shell" or _command_key(tool)]
    named = [tool for tool in able if tool.kind == "local_shell" or _SHELL.fullmatch(tool.name)]
    demanding = [tool for tool in able if _command_key(tool) in (tool.schema.get("required") or ())]
    return next(iter([*named, *demanding]), None)


def _command_key(tool: Tool) -> str | None:
    properties = tool.schema.get("properties") or {}
    for key in _COMMAND:
        about = properties.get(key)
        if isinstance(about, Mapping) and _type_of(about) in ("string", "array") and not about.get("enum"):
            return key
    return None


def _shell_arguments(tool: Tool, command: str) -> dict[str, Any]:
    words = ["bash", "-lc", command]
    key = _command_key(tool)
    if tool.kind == "local_shell" or key is None:
        return {"type": "exec", "command": words, "env": {}, "timeout_ms": LONG_MS}
    properties = tool.schema["properties"]
    given: dict[str, Any] = {key: words if _type_of(properties[key]) == "array" else command}
    waits = {"yield_time_ms": 30_000, "timeout_ms": LONG_MS}
    given |= {name: value for name, value in waits.items() if name in properties}
    if "millisecond" in str(properties.get("timeout")):
        given["timeout"] = LONG_MS
    return filled(tool.schema, given)


def filled(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a tool: those given that it knows, and an example of each other one that it demands."""
    properties = schema.get("properties") or {}
    demanded = {name: example(properties.get(name) or {}) for name in schema.get("required") or ()}
    return demanded | {name: value for name, value in given.items() if name in properties}


def example(schema: Mapping[str, Any]) -> Any:
    """A value that a JSON schema allows, the plainest one."""
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return example(schema[choice][0])
    kind = _type_of(schema)
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties") or {}
        return {name: example(properties.get(name) or {}) for name in schema.get("required") or properties}
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": False, "array": [], "null": None}.get(kind, "step")


def _type_of(schema: Mapping[str, Any]) -> str:
    """The type of a value in small letters; the first one that is not null."""
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else [one for one in kind or () if one != "null"]
    if not kinds:
        kinds = [_type_of(one) for one in schema.get("anyOf") or () if isinstance(one, Mapping)]
    return str(kinds[0]).lower() if kinds else ""
