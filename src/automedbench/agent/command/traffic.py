"""Requests of a program to its model, parsed: conversation, reported calls, and the files that changed meanwhile."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from automedbench.agent.command.reported import (
    ReportedWork,
    find_traced_program,
    name_used_help,
    parse_outcome,
    parse_run_report,
    read_code_blocks,
    read_tool_call,
    write_heredoc,
)
from automedbench.agent.log import Dialogue
from automedbench.agent.models.model import ChatMessage, Reply, ToolCall
from automedbench.agent.toolbox import LISTED_CHANGES, Toolbox, join_processes, mask_processes, record_call
from automedbench.agent.tools import CodeRequest, repair_arguments
from automedbench.agent.workspace import NAMED_FILES, Snapshot, take_snapshot
from automedbench.base.files import clean_text, sha256_bytes
from automedbench.base.records import CodeCall, HelpUse, Process, Stage
from automedbench.sandbox.airlock.collector import read_beneath
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.container.streams import HEAD_BYTES, TAIL_BYTES
from automedbench.sandbox.evidence.trace import TracedProgram

MAX_MESSAGE, MAX_TRANSCRIPT, MAX_CODE = 1_000_000, 16_000_000, 16_000_000
"""Characters of one message, of all messages and of all reported code of a run that are kept; the endpoint gets all.

Of code beyond that head and tail are kept.
"""
LEAST = 100
"""Characters that a message or a call counts at least."""

FILE_BYTES = 200_000
"""Size up to which a file that a program edits is shown as it was afterwards."""

NAMED_EDITS, MAX_PENDING, MAX_CALLS = 20, 500, 10_000
"""Files of one edit that are shown, calls whose results are waited for, and calls that are kept."""

_SHELL_LINE = re.compile(r"\S*sh (?:-\w+ )*-\w*c ")
_FROM_ELSEWHERE = re.compile(r"(?:python[\d.]*|sh)(?: -\w+)*(?: -| \S+\.\w+)?$")
"""A command line without the code: that came as a file, or by the input."""

MAX_TRACED = 40_000
"""Paths that processes opened which are kept of a run."""

MAX_PROGRAMS = 1000
"""Shells and Pythons of the container that are remembered, to be found again in what the program reports."""


@dataclass(frozen=True)
class _Pending:
    """Work whose result the program has not reported yet; ``call`` is None where a text requests it.

    ``key`` identifies the program's copy of the call, which may have another id there.
    """

    turn: int
    call: ToolCall | None
    work: ReportedWork | None
    since: float
    key: str = ""


@dataclass
class Traffic:
    """Conversation, reported calls and changed files of one command.

    A program sends its whole conversation each time: what a request has in common with the one before is compared, and
    only the rest is read. Requests beside the conversation (titles, topics, summaries) go to the transcript alone.
    """

    dialogue: Dialogue
    toolbox: Toolbox
    clock: Callable[[], float] = time.monotonic
    calls: list[CodeCall] = field(default_factory=list)
    help_used: list[HelpUse] = field(default_factory=list)
    last_text: str = ""
    snapshot: Snapshot = field(default_factory=Snapshot)
    _last: Sequence[ChatMessage] = ()
    _digests: list[str] = field(default_factory=list)
    _known: Counter[str] = field(default_factory=Counter)
    _replies: set[str] = field(default_factory=set)
    _pending: list[_Pending] = field(default_factory=list)
    _programs: dict[tuple[int, float], TracedProgram] = field(default_factory=dict)
    _matched: dict[tuple[int, float], int] = field(default_factory=dict)
    _sessions: dict[str, int] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _processes: list[Process] | None = None
    _of_start: list[Process] | None = None
    _traced_room: int = MAX_TRACED
    _cache_growth: int = 0
    _stage: Stage = "S1"
    _room: int = MAX_TRANSCRIPT
    _code_room: int = MAX_CODE
    _tools: bool = False
    _aside: bool = False

    def record_request(self, messages: Sequence[ChatMessage], *, tools: bool = False) -> None:
        """Keep what is new in a request; once one has offered ``tools``, one without is beside the conversation."""
        begin = self._count_common(messages)
        digests = self._digests[:begin] + [_digest(message) for message in messages[begin:]]
        self._aside = self._tools and not tools
        if self._aside:
            self.toolbox.log.event("side_request", self.toolbox.budget.turns + 1, n_messages=len(messages))
            self._keep(messages[-1], aside=True)
            return
        if tools and not self._tools and not self.calls and not self._replies.intersection(digests):
            # What came before was beside the conversation, such as a request for a title.
            self.dialogue.set_aside()
            self._known, self._pending, begin = Counter(), [], 0
        self._tools = tools
        self._last, self._digests = messages, digests
        seen: Counter[str] = Counter(digests[:begin])
        new = []
        for place in range(begin, len(messages)):
            seen[digests[place]] += 1
            if seen[digests[place]] > self._known[digests[place]]:
                new.append(place)
        self._known |= seen
        if new:
            self._look_inside()
        self._read(messages, new)

    def _count_common(self, messages: Sequence[ChatMessage]) -> int:
        """Number of leading messages that are equal to those of the request before."""
        pairs = zip(messages, self._last, strict=False)
        return next(
            (place for place, (one, other) in enumerate(pairs) if one != other), min(len(messages), len(self._last))
        )

    def _read(self, messages: Sequence[ChatMessage], new: Sequence[int]) -> None:
        """Calls and messages out of what is new."""
        keys: dict[int, str] = {}
        callers = _find_callers(messages)
        results = [
            (place, found)
            for place in new
            if (found := self._match_result(messages, place, callers[place], keys)) is not None
        ]
        ends = dict(results)
        # Files that changed meanwhile belong to the last call of several that started something.
        last = max((place for place, found in results if found.work and not found.work.itself), default=-1)
        for place in new:
            message, pending = messages[place], ends.get(place)
            if pending is not None and pending.work is not None:
                self._finish(pending.turn, pending.work, message, pending.since, last=place == last)
            elif (
                message.role == "user"
                and not _is_reported_call(messages, place)
                and (run := parse_run_report(message.content))
            ):
                work = ReportedWork(CodeRequest("bash", run[0]))
                self._finish(self.toolbox.budget.turns, work, replace(message, content=run[1]), 0.0, last=True)
            if pending is not None and pending.call is not None and not message.failed:
                self._note_help(pending.call)
            self._keep(message)
        if new:
            self._finish_texts()

    def _match_result(
        self, messages: Sequence[ChatMessage], place: int, before: int, keys: dict[int, str]
    ) -> _Pending | None:
        """The call that a message is the result of, which is then no longer waited for.

        Ids may be missing, repeated or the program's own: then the call of the same place counts. ``before`` is the
        place of the message with the call, ``keys`` are those of the request's calls that are known already.
        """
        if not self._pending:
            return None
        message = messages[place]
        if message.role == "user":
            texts = [one for one in self._pending if one.call is None and one.work and not one.work.itself]
            found = texts[:1] if place and messages[place - 1].role == "assistant" else []
        elif message.role == "tool":
            found = [one for one in self._pending if one.call is not None and one.call.id == message.call_id]
            calls = messages[before].calls if before >= 0 else ()
            if len(found) != 1:
                named = [call for call in calls if call.id and call.id == message.call_id]
                at = place - before - 1
                meant = named if len(named) == 1 else calls[at : at + 1]
                key = next((keys.get(id(call)) or keys.setdefault(id(call), _key(call)) for call in meant), None)
                found = [one for one in self._pending if one.call is not None and one.key == key]
        else:
            return None
        if found:
            self._pending.remove(found[0])
        return found[0] if found else None

    def _keep(self, message: ChatMessage, *, aside: bool = False) -> None:
        """Put a message into the transcript while that has room; a very long one loses its middle."""
        if self._room < 0:
            return
        kept = bound_message(message)
        self._room -= LEAST + len(kept.content) + len(kept.call_id or "")
        self._room -= sum(LEAST + len(call.id) + len(call.name) + len(call.arguments) for call in kept.calls)
        if self._room >= 0:
            self.dialogue.add(kept, by_program=True, aside=aside)
        else:
            self.toolbox.log.event("transcript_full", self.toolbox.budget.turns, characters=MAX_TRANSCRIPT)

    def record_reply(self, reply: Reply, turn: int) -> None:
        """Keep a reply, and the work that it requests until the program reports the result."""
        self.dialogue.turn = turn
        message = ChatMessage("assistant", clean_text(reply.content), reply.calls, opaque=reply.opaque)
        digest = _digest(message)
        self._replies.add(digest)
        self.dialogue.add(bound_message(message), aside=self._aside)
        if self._aside:
            return
        self._known[digest] += 1
        self.last_text = message.content or self.last_text
        if not self.calls and not self._pending:
            # The model has asked for nothing yet: what was opened so far (lists of skills, settings) is the command's.
            self.look()
            self._of_start = join_processes(self._of_start, self._take_processes())
        now = self.clock()
        self._pending = [one for one in self._pending if one.call is not None][-MAX_PENDING:]
        self._pending += [_Pending(turn, call, read_tool_call(call), now, _key(call)) for call in reply.calls]
        if not reply.calls and not self._tools:
            self._pending += [_Pending(turn, None, work, now) for work in read_code_blocks(message.content)]

    def look(self) -> list[str]:
        """Files that changed since the last look; they belong to the next call that is reported."""
        before, self.snapshot = self.snapshot, take_snapshot(self.toolbox.workspace)
        changed = list(self.snapshot.changes_since(before).changed)
        if len(self._changed) < 2 * NAMED_FILES:
            self._changed.update(changed)
        self._cache_growth += max(0, self.snapshot.cache_bytes - before.cache_bytes)
        self._processes = join_processes(
            self._processes, mask_processes(self.toolbox.log, self.toolbox.sandbox.drain_processes())
        )
        return changed

    def _look_inside(self) -> None:
        """Files that changed, and what the container itself saw running."""
        self.look()
        for program in self.toolbox.sandbox.programs():
            key = program.pid, program.begin
            if key not in self._matched:
                self._programs[key] = program
            elif not program.runs:
                self._revise(self._matched.pop(key), program.code, "", (), seen=True)
        for old in list(self._programs)[:-MAX_PROGRAMS]:
            del self._programs[old]

    def whole_command(self, call: CodeCall) -> CodeCall:
        """The command itself as a call: the files that no reported call accounts for are its own."""
        self._look_inside()
        self._finish_texts()
        changed, stage, processes = self._take("" if self.calls else call.code, "S1")
        processes = join_processes(self._of_start, processes)
        return call.model_copy(update={"stage": stage, "new_files": changed, "processes": processes})

    # --- reported calls ---------------------------------------------------------------------------------------

    def _finish(self, turn: int, work: ReportedWork, result: ChatMessage, since: float, *, last: bool) -> None:
        """Record a reported call, or the rest of a polled one; ``last``: of those that are reported together."""
        outcome = parse_outcome(result.content)
        session = outcome.session if outcome.belongs_to_session else work.session
        if session:
            if session in self._sessions:
                place = self._sessions[session]
                self._revise(place, outcome.exit_code, outcome.output, self._select_files(work, last))
            return
        if outcome.session:
            self._sessions[outcome.session] = len(self.calls)
        seen = None if work.itself else self._find_process(work.program, since)
        exit_code = outcome.exit_code if seen is None or seen.code is None else seen.code
        if outcome.exit_code is not None and exit_code != outcome.exit_code:
            self.toolbox.log.event(
                "exit_code_differs", turn, call=len(self.calls) + 2, reported=outcome.exit_code, seen=exit_code
            )
        failed = exit_code not in (None, 0) or (exit_code is None and result.failed is True)
        request = work.program if failed else self._read_as_written(work)
        self._add(turn, request, outcome.output, exit_code, since, failed=failed, files=self._select_files(work, last))

    def _revise(
        self, place: int, exit_code: int | None, output: str, files: Collection[str] | None, *, seen: bool = False
    ) -> None:
        """Complete a call that was reported before its end; an exit code that the container has ``seen`` stays."""
        if place >= len(self.calls):  # not kept
            return
        call, log = self.calls[place], self.toolbox.log
        changed, self._stage, processes = self._take(call.code, self._stage, files)
        known = exit_code is None or (call.exit_code is not None and not seen)
        exit_code = call.exit_code if known else exit_code
        new = {
            "exit_code": exit_code,
            "status": call.status if known else "error" if exit_code else "ok",
            "stdout": shorten("\n".join(filter(None, [call.stdout.removesuffix("\n"), log.mask(output)]))),
            "new_files": sorted({*call.new_files, *changed})[:LISTED_CHANGES],
            "processes": join_processes(call.processes, processes),
        }
        self.calls[place] = call.model_copy(update=new)
        log.event("reported_call_goes_on", call.turn, call=call.call, exit_code=exit_code, new_files=changed)

    def _finish_texts(self) -> None:
        """Files that a reply without calls lists, and what the program then ran by itself.

        Such a program (Aider) reports a run only if it failed; the others are known from the container alone.
        """
        texts = [one for one in self._pending if one.call is None and one.work and one.work.itself]
        for one in texts:
            assert one.work is not None
            self._pending.remove(one)
            self._add(one.turn, self._read_as_written(one.work), "", None, one.since, files=one.work.files)
        runs = self._new_programs(texts[0].since) if texts else []
        for run in runs:
            code = _SHELL_LINE.match(run.line)
            if code and run.parent not in {one.pid for one in runs} and (run.pid, run.begin) in self._programs:
                self._match(run)
                request = CodeRequest("bash", run.line[code.end() :])
                self._add(texts[0].turn, request, "", run.code, run.begin, failed=bool(run.code))

    def _select_files(self, work: ReportedWork, last: bool) -> Collection[str] | None:
        """Changed files that belong to a call: to an edit its own, to the last one of several calls all others."""
        if work.itself:
            return [self._relative_path(path) for path in work.files]
        return None if last else ()

    def _find_process(self, request: CodeRequest, since: float) -> TracedProgram | None:
        """The process that ran this code; without a word of it in a command line the only one that can have been it."""
        programs = self._new_programs(since)
        found = find_traced_program(request.code, programs)
        if found is None and request.language == "python":
            begun = {one.pid for one in programs}
            outer = [one for one in programs if one.parent not in begun and _FROM_ELSEWHERE.search(one.line)]
            found = outer[0] if len({one.pid for one in outer}) == 1 else None
        if found is not None:
            self._match(found)
        return found

    def _match(self, program: TracedProgram) -> None:
        """Take a process, and what it became, for no other call."""
        for key in [key for key in self._programs if key[0] == program.pid]:
            if self._programs.pop(key).runs:
                self._matched[key] = len(self.calls)

    def _new_programs(self, since: float) -> list[TracedProgram]:
        return [one for one in self._programs.values() if one.begin >= since]

    def _read_as_written(self, work: ReportedWork) -> CodeRequest:
        """The code; of edited files what stands in them now."""
        texts = [self._file(path) for path in work.files[:NAMED_EDITS]]
        if not texts or None in texts:
            return work.program
        written = [write_heredoc(path, text or "") for path, text in zip(work.files, texts, strict=False)]
        return CodeRequest("bash", "".join(request.code for request in written))

    def _relative_path(self, path: str) -> str:
        return path.removeprefix(f"{self.toolbox.sandbox.workspace_dir}/").removeprefix("./")

    def _file(self, path: str) -> str | None:
        data = read_beneath(self.toolbox.workspace, self._relative_path(path), FILE_BYTES)
        return None if data is None else clean_text(data.decode("utf-8", "replace"))

    def _add(
        self,
        turn: int,
        request: CodeRequest,
        output: str,
        exit_code: int | None,
        since: float,
        *,
        failed: bool = False,
        files: Collection[str] | None = None,
    ) -> None:
        """A call as judge and reader see it; of the changed files it takes ``files``, or all (None)."""
        if len(self.calls) >= MAX_CALLS:
            return
        number, log = len(self.calls) + 2, self.toolbox.log
        request = self._limit_code(request)
        changed, self._stage, processes = self._take(request.code, self._stage, files)
        elapsed = round(self.clock() - since, 3) if since else 0.0
        result = CodeResult(
            status="error" if failed else "ok",
            exit_code=exit_code,
            stdout=shorten(output),
            stderr="",
            elapsed_s=elapsed,
        )
        self.calls.append(record_call(log, turn, number, request, result, self._stage, changed, processes))
        log.event(
            "reported_call",
            turn,
            call=number,
            language=request.language,
            sha256=sha256_bytes(clean_text(request.code).encode()),
            exit_code=exit_code,
            elapsed_s=elapsed,
            stage=self._stage,
            new_files=changed,
        )

    def _note_help(self, call: ToolCall) -> None:
        """Keep what a call that succeeded used of skills or MCP servers, if anything."""
        name = name_used_help(call)
        if name and len(self.help_used) < MAX_CALLS:
            name = self.toolbox.log.mask(name)
            self.help_used.append(HelpUse(file=name, call=len(self.calls) + 1, stage=self._stage))

    def _limit_code(self, request: CodeRequest) -> CodeRequest:
        """The code as it is kept; a program may tell of megabytes in each of its calls."""
        code = _short(request.code)
        self._code_room -= len(code)
        return replace(request, code=code if self._code_room >= 0 else shorten(code))

    def _take(
        self, code: str, previous: Stage, files: Collection[str] | None = None
    ) -> tuple[list[str], Stage, list[Process] | None]:
        """Changes and processes that no call accounts for yet, and the stage that changes and code speak for."""
        contract, workspace = self.toolbox.contract, self.toolbox.workspace
        taken = self._changed if files is None else self._changed.intersection(files)
        changed, growth = sorted(taken), self._cache_growth if files is None else 0
        self._changed = self._changed - taken
        self._cache_growth -= growth
        stage = contract.infer_stage(code, changed, growth, not contract.find_missing(workspace), previous)
        named = [self.toolbox.log.mask(path) for path in changed[:LISTED_CHANGES]]
        # A call that ran nothing itself has no processes, where there is a trace.
        untraced: list[Process] | None = None if self._processes is None else []
        return named, stage, self._take_processes() if files is None else untraced

    def _take_processes(self) -> list[Process] | None:
        """Processes that no call accounts for yet; without their paths once a run has named too many."""
        taken, self._processes = self._processes, None if self._processes is None else []
        self._traced_room -= sum(len(each.reads) + len(each.writes) for each in taken or ())
        if taken is None or self._traced_room >= 0:
            return taken
        return [
            each.model_copy(
                update={"reads": [], "writes": [], "left_out": each.left_out + len(each.reads) + len(each.writes)}
            )
            for each in taken
        ]


def _find_callers(messages: Sequence[ChatMessage]) -> list[int]:
    """For each message the place of the last one before it that is no result; -1 where there is none."""
    places, last = [], -1
    for place, message in enumerate(messages):
        places.append(last)
        last = last if message.role == "tool" else place
    return places


def _is_reported_call(messages: Sequence[ChatMessage], place: int) -> bool:
    """The message repeats the last one of the user, as Aider reports a failed run twice."""
    before = messages[place - 2].content.rstrip() if place > 1 else ""
    return bool(before) and messages[place].content.startswith(before)


def _key(call: ToolCall) -> str:
    return sha256_bytes(f"{call.name} {_sort_keys(call.arguments)}".encode())


def shorten(text: str) -> str:
    """Head and tail of an output, as many characters as any call's has bytes."""
    left_out = len(text) - HEAD_BYTES - TAIL_BYTES
    if left_out <= 0:
        return text
    return f"{text[:HEAD_BYTES]}\n[… {left_out} characters left out …]\n{text[-TAIL_BYTES:]}"


def bound_message(message: ChatMessage) -> ChatMessage:
    """The message as a transcript keeps it: texts of more than a million characters lose their middle."""
    sizes = [len(message.content), *(len(call.arguments) for call in message.calls)]
    if max(sizes) <= MAX_MESSAGE:
        return message
    calls = tuple(replace(call, arguments=_short(call.arguments)) for call in message.calls)
    return replace(message, content=_short(message.content), calls=calls)


def _short(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else shorten(text)


def _digest(message: ChatMessage) -> str:
    """Identity of a message as it is sent back and forth: ids and blanks may change."""
    calls = [[call.name, _sort_keys(call.arguments)] for call in message.calls]
    return sha256_bytes(json.dumps([message.role, message.content.strip(), calls]).encode())


def _sort_keys(arguments: str) -> str:
    """Arguments with their keys in order; as they are where they are no object, or nested too deeply."""
    try:
        return json.dumps(repair_arguments(arguments or "{}") or arguments, sort_keys=True)
    except RecursionError:
        return arguments
