"""Traffic of a program with its model: the conversation that it shows, and the code that it says it ran.

The program runs its tools itself; we see only what it tells its model. So a call of this kind is the program's own
report, while changed files are seen from outside. Both go where judge and reader look for them.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from automedbench.agent.calls import repair_arguments
from automedbench.agent.dialogue import Dialogue
from automedbench.agent.models.chat import ChatMessage, Reply, ToolCall, clean_text
from automedbench.agent.stages import CallEvidence, stage_of
from automedbench.agent.toolbox import LISTED_CHANGES, Toolbox
from automedbench.agent.workspace import Snapshot, take_snapshot
from automedbench.base.files import sha256_bytes
from automedbench.base.records import CodeCall, Stage

Language = Literal["python", "bash"]

KEPT_HEAD, KEPT_TAIL = 2048, 8192
"""Characters of a reported output that are kept, as of any call's (docs/specification.md, 8.4)."""

_CODE_KEYS = ("code", "command", "cmd", "script", "source", "input")
_PYTHON = re.compile(r"py|jupyter|notebook|interpreter", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|\bsh\b|term|command|cmd|exec|run", re.IGNORECASE)
_FENCE = re.compile(r"^```(?P<name>bash|sh|shell|python|py)[ \t]*\n(?P<code>.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_EXIT = re.compile(r"(?:exit[ _]?(?:code|status)|return[ _]?code)\W{1,4}(-?\d{1,3})\b", re.IGNORECASE)
_EXIT_KEYS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "status")


@dataclass(frozen=True)
class Program:
    """Code that a model asked for."""

    language: Language
    code: str


@dataclass(frozen=True)
class _Pending:
    """A call whose result the program has not told yet."""

    turn: int
    program: Program
    since: float


@dataclass
class Traffic:
    """Conversation, reported calls and changed files of one command."""

    dialogue: Dialogue
    toolbox: Toolbox
    clock: Callable[[], float] = time.monotonic
    calls: list[CodeCall] = field(default_factory=list)
    last_words: str = ""
    _known: Counter[str] = field(default_factory=Counter)
    _pending: dict[str, _Pending] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _cache_growth: int = 0
    _stage: Stage = "S1"
    _snapshot: Snapshot = field(default_factory=Snapshot)

    def received(self, messages: Sequence[ChatMessage]) -> None:
        """Keep what is new in a request: a program sends its whole conversation each time, and may shorten it."""
        seen: Counter[str] = Counter()
        new = []
        for message in messages:
            digest = _digest(message)
            seen[digest] += 1
            if seen[digest] > self._known[digest]:
                new.append(message)
        self._known |= seen
        if new:
            self.look()
        results = [message for message in new if self._is_result(message)]
        for message in new:
            if message in results:
                self._finish(message, last=message is results[-1])
            self.dialogue.add(message)

    def replied(self, reply: Reply, turn: int) -> None:
        """Keep a reply, and the code that it asks for until the program tells what came of it."""
        self.dialogue.turn = turn
        message = ChatMessage("assistant", clean_text(reply.content), reply.calls, opaque=reply.opaque)
        self._known[_digest(message)] += 1
        self.dialogue.add(message)
        self.last_words = message.content or self.last_words
        for call in reply.calls:
            program = program_of(call)
            if program is not None:
                self._pending[call.id] = _Pending(turn, program, self.clock())
        self._pending.pop("", None)
        fenced = None if reply.calls else fenced_program(reply.content)
        if fenced is not None:
            self._pending[""] = _Pending(turn, fenced, self.clock())

    def look(self) -> list[str]:
        """Files that changed since the last look; they belong to the next call that is reported."""
        before, self._snapshot = self._snapshot, take_snapshot(self.toolbox.workspace)
        changed = list(self._snapshot.since(before).changed)
        self._changed.update(changed)
        self._cache_growth += max(0, self._snapshot.cache_bytes - before.cache_bytes)
        return changed

    def whole_command(self, call: CodeCall) -> CodeCall:
        """The command itself as a call: the files that no reported call accounts for are its own."""
        changed, stage = self._take("" if self.calls else call.code, "S1")
        return call.model_copy(update={"stage": stage, "new_files": changed})

    @property
    def workspace_bytes(self) -> int:
        """Size of the workspace at the last look."""
        return self._snapshot.total_bytes

    # --- reported calls ---------------------------------------------------------------------------------------

    def _is_result(self, message: ChatMessage) -> bool:
        if message.role == "tool":
            return message.call_id in self._pending
        return message.role == "user" and "" in self._pending

    def _finish(self, message: ChatMessage, *, last: bool) -> None:
        """A reported call; files that changed meanwhile belong to the last one of several."""
        pending = self._pending.pop(message.call_id or "" if message.role == "tool" else "", None)
        if pending is None:
            return
        number, log = len(self.calls) + 2, self.toolbox.log
        changed: list[str] = []
        if last:
            changed, self._stage = self._take(pending.program.code, self._stage)
        output, exit_code = outcome_of(message.content)
        elapsed = round(self.clock() - pending.since, 3)
        self.calls.append(
            CodeCall(
                turn=pending.turn,
                call=number,
                language=pending.program.language,
                code=log.mask(pending.program.code),
                status="ok" if exit_code in (0, None) else "error",
                exit_code=exit_code,
                elapsed_s=elapsed,
                stdout=log.mask(shortened(output)),
                stderr="",
                stage=self._stage,
                new_files=changed,
            )
        )
        log.event(
            "reported_call",
            pending.turn,
            call=number,
            language=pending.program.language,
            sha256=sha256_bytes(clean_text(pending.program.code).encode()),
            exit_code=exit_code,
            elapsed_s=elapsed,
            stage=self._stage,
            new_files=changed,
        )

    def _take(self, code: str, previous: Stage) -> tuple[list[str], Stage]:
        """The changes that no call accounts for yet, and the stage that they and the code speak for."""
        contract = self.toolbox.contract
        changed, growth = sorted(self._changed), self._cache_growth
        self._changed, self._cache_growth = set(), 0
        evidence = CallEvidence(
            code=code,
            changed_files=changed,
            cases_written=contract.cases_in(changed),
            n_cases=contract.n_cases,
            cache_growth=growth,
            all_outputs_exist=not contract.missing_in(self.toolbox.workspace),
        )
        masked = [self.toolbox.log.mask(path) for path in changed[:LISTED_CHANGES]]
        return masked, stage_of(evidence, previous)


def program_of(call: ToolCall) -> Program | None:
    """The code of a tool call that runs some; None for other tools. Told by the tool's name and its arguments."""
    arguments = repair_arguments(call.arguments or "{}")
    if arguments is None:
        return None
    code = next((text for key in _CODE_KEYS if (text := _as_code(arguments.get(key)))), None)
    if code is None:
        return None
    language = str(arguments.get("language") or arguments.get("lang") or call.name)
    if _PYTHON.search(language):
        return Program("python", code)
    return Program("bash", code) if _SHELL.search(language) or _SHELL.search(call.name) else None


def fenced_program(text: str) -> Program | None:
    """The code of a reply that holds exactly one fenced block of Python or shell; None else."""
    blocks = list(_FENCE.finditer(text))
    if len(blocks) != 1:
        return None
    return Program("python" if blocks[0]["name"].startswith("py") else "bash", blocks[0]["code"])


def _as_code(value: Any) -> str | None:
    """Code as text; some programs take a command as a list of words."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return value[-1] if value[0] in ("bash", "sh") and len(value) > 2 else " ".join(value)
    return value if isinstance(value, str) and value.strip() else None


def outcome_of(content: str) -> tuple[str, int | None]:
    """Output and exit code as the program reports them; the code is None where nothing of the kind is said."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        codes = [value[key] for key in _EXIT_KEYS if isinstance(value.get(key), int)]
        parts = [str(value[key]) for key in ("output", "stdout", "stderr", "error") if value.get(key)]
        return "\n".join(parts) or content, int(codes[0]) if codes else None
    found = _EXIT.search(content[:400]) or _EXIT.search(content[-400:])
    return content, int(found[1]) if found else None


def shortened(text: str) -> str:
    """Head and tail of an output, as of any call's."""
    if len(text) <= KEPT_HEAD + KEPT_TAIL:
        return text
    left_out = len(text) - KEPT_HEAD - KEPT_TAIL
    return f"{text[:KEPT_HEAD]}\n[… {left_out} characters left out …]\n{text[-KEPT_TAIL:]}"


def _digest(message: ChatMessage) -> str:
    """Identity of a message as it is sent back and forth: ids and blanks may change."""
    calls = [[call.name, repair_arguments(call.arguments or "{}") or call.arguments] for call in message.calls]
    return sha256_bytes(json.dumps([message.role, message.content.strip(), calls], sort_keys=True).encode())
