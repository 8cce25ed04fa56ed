"""What a program tells its model, read: conversation, reported calls, and the files that changed meanwhile."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from automedbench.agent.log import Dialogue
from automedbench.agent.models.model import ChatMessage, Reply, ToolCall
from automedbench.agent.toolbox import LISTED_CHANGES, Toolbox
from automedbench.agent.tools import CodeRequest, repair_arguments
from automedbench.agent.workspace import NAMED_FILES, CallEvidence, Snapshot, stage_of, take_snapshot
from automedbench.base.endpoint.completion import clean_text
from automedbench.base.files import sha256_bytes
from automedbench.base.records import CodeCall, Stage

MAX_MESSAGE, MAX_TRANSCRIPT = 1_000_000, 16_000_000
"""Characters of one message and of all messages of a run that are kept; the endpoint gets all of them."""

KEPT_HEAD, KEPT_TAIL = 2048, 8192
"""Characters of a reported output that are kept, as of any call's (docs/specification.md, 8.4)."""

_CODE_KEYS = ("code", "command", "cmd", "script", "source", "input")
_PYTHON = re.compile(r"py|jupyter|notebook|interpreter", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|\bsh\b|term|command|cmd|exec|run", re.IGNORECASE)
_FENCE = re.compile(r"```(bash|sh|shell|python|py)?[ \t]*")
_EXIT = re.compile(r"(?:exit[ _]?(?:code|status)|return[ _]?code)\W{1,4}(-?\d{1,3})\b", re.IGNORECASE)
_EXIT_KEYS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "status")


@dataclass(frozen=True)
class _Pending:
    """A call whose result the program has not told yet."""

    turn: int
    program: CodeRequest
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
    snapshot: Snapshot = field(default_factory=Snapshot)
    _room: int = MAX_TRANSCRIPT

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
        results = {id(message): message for message in new if self._is_result(message)}
        last = next(reversed(results), None)
        for message in new:
            if id(message) in results:
                self._finish(message, last=id(message) == last)
            self._keep(message)

    def _keep(self, message: ChatMessage) -> None:
        """Put a message into the transcript while that has room; a very long one loses its middle."""
        if self._room < 0:
            return
        kept = bounded(message)
        self._room -= len(kept.content) + sum(len(call.name) + len(call.arguments) for call in kept.calls)
        if self._room >= 0:
            self.dialogue.add(kept)
        else:
            self.toolbox.log.event("transcript_full", self.toolbox.budget.turns, characters=MAX_TRANSCRIPT)

    def replied(self, reply: Reply, turn: int) -> None:
        """Keep a reply, and the code that it asks for until the program tells what came of it."""
        self.dialogue.turn = turn
        message = ChatMessage("assistant", clean_text(reply.content), reply.calls, opaque=reply.opaque)
        self._known[_digest(message)] += 1
        self.dialogue.add(bounded(message))
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
        before, self.snapshot = self.snapshot, take_snapshot(self.toolbox.workspace)
        changed = list(self.snapshot.since(before).changed)
        if len(self._changed) < 2 * NAMED_FILES:
            self._changed.update(changed)
        self._cache_growth += max(0, self.snapshot.cache_bytes - before.cache_bytes)
        return changed

    def whole_command(self, call: CodeCall) -> CodeCall:
        """The command itself as a call: the files that no reported call accounts for are its own."""
        changed, stage = self._take("" if self.calls else call.code, "S1")
        return call.model_copy(update={"stage": stage, "new_files": changed})

    @property
    def workspace_bytes(self) -> int:
        """Size of the workspace at the last look."""
        return self.snapshot.total_bytes

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


def program_of(call: ToolCall) -> CodeRequest | None:
    """The code of a tool call that runs some; None for other tools. Told by the tool's name and its arguments."""
    arguments = repair_arguments(call.arguments or "{}")
    if arguments is None:
        return None
    code = next((text for key in _CODE_KEYS if (text := _as_code(arguments.get(key)))), None)
    if code is None:
        return None
    language = str(arguments.get("language") or arguments.get("lang") or call.name)[:80]
    if _PYTHON.search(language):
        return CodeRequest("python", code)
    return CodeRequest("bash", code) if _SHELL.search(language) or _SHELL.search(call.name[:80]) else None


def fenced_program(text: str) -> CodeRequest | None:
    """The code of a reply that holds exactly one fenced block of Python or shell; None else."""
    blocks: list[CodeRequest] = []
    name, begin, at = "", 0, 0
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if fence and name and not fence[1]:
            blocks.append(CodeRequest("python" if name.startswith("py") else "bash", text[begin:at]))
            name = ""
        elif fence and fence[1] and not name:
            name, begin = fence[1], at + len(line) + 1
        at += len(line) + 1
    return blocks[0] if len(blocks) == 1 else None


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


def bounded(message: ChatMessage) -> ChatMessage:
    """The message as a transcript keeps it: texts of more than a million characters lose their middle."""
    sizes = [len(message.content), *(len(call.arguments) for call in message.calls)]
    if max(sizes) <= MAX_MESSAGE:
        return message
    calls = tuple(replace(call, arguments=_short(call.arguments)) for call in message.calls)
    return replace(message, content=_short(message.content), calls=calls)


def _short(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else shortened(text)


def _digest(message: ChatMessage) -> str:
    """Identity of a message as it is sent back and forth: ids and blanks may change."""
    calls = [[call.name, _in_order(call.arguments)] for call in message.calls]
    return sha256_bytes(json.dumps([message.role, message.content.strip(), calls]).encode())


def _in_order(arguments: str) -> str:
    """Arguments with their keys in order; as they are where they are no object, or nested too deeply."""
    try:
        return json.dumps(repair_arguments(arguments or "{}") or arguments, sort_keys=True)
    except RecursionError:
        return arguments
