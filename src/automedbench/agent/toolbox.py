"""Toolbox that executes calls: sandbox, evidence of stages and broken rules, and the final submission."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, TypeAdapter

from automedbench.agent import tools
from automedbench.agent.budget.limits import Budget, Ending
from automedbench.agent.durable.attempts import DEATHS, Journal
from automedbench.agent.log import RunLog
from automedbench.agent.models.model import Reply, ToolCall
from automedbench.agent.tools import INTERRUPTED
from automedbench.agent.workspace import Changes, Snapshot, infer_stage, is_plain_file, take_snapshot
from automedbench.base.cards import OutputFile
from automedbench.base.endpoint.client import SHORT_WAIT_S
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import CodeCall, Finding, GpuUse, HelpUse, Model, Outcome, Process, Stage, Totals
from automedbench.base.reserve import is_reserve_used
from automedbench.campaign.prices import format_money
from automedbench.sandbox.boxes import SPOILED, Sandbox
from automedbench.sandbox.container.process import NOTE, CodeResult, lost_outcome, to_result
from automedbench.sandbox.container.watchdog import measure_space
from automedbench.sandbox.evidence.policy import SWEEP, Strikes

OUTPUTS = "agents_outputs"
SWEPT = (
    "[SANDBOX] A search through everything below /data opened files of /data/private, which is not part of the task. "
    "Leave that folder out: the next time it counts as a broken rule."
)
LISTED_CHANGES = 200
LISTED_MISSING = 20
ENDED_BY_SIGNAL = {129, 130, 143}
"""Exit codes of a call that SIGHUP, SIGINT or SIGTERM ended."""
_SHELL_REPORT = re.compile(r"\b(Terminated|Hangup|Killed)\b")
"""Of a child that a signal ended; what comes behind it in a script still runs, and the script may end well."""
SIGNAL_GRACE_S = 0.5
ENDED_ITS_JOB = f"ended its whole job {DEATHS} times, as one does whose memory runs out"
OUT_OF_JOB = CodeResult(
    status="killed", exit_code=137, stdout="", stderr=f"{NOTE} memory limit: this call {ENDED_ITS_JOB}", elapsed_s=0
)
LONGEST_WAIT_S = 24 * 3600.0
OVERLONG, FEW = 2, 100
"""Times the requested length: providers count tokens differently, but none that keeps the limit is off by so much.

Of ``FEW`` or less that does not hold: some providers take no limit below 16, and programs ask for one token to try.
"""


@dataclass(frozen=True)
class Contract:
    """Expected submission: path below ``agents_outputs/`` → file, and the case that a path belongs to."""

    expected: Mapping[str, OutputFile]
    case_of: Mapping[str, str]
    n_cases: int

    def find_missing(self, workspace: Path) -> list[str]:
        """Expected files that a workspace does not hold, as paths below ``agents_outputs/``; links are none."""
        return [path for path in self.expected if not is_plain_file(workspace, f"{OUTPUTS}/{path}")]

    def describe(self, n_missing: int) -> str:
        if n_missing:
            return f"{n_missing} of {len(self.expected)} expected files are missing"
        return "every expected file exists"

    def count_cases(self, changed: Sequence[str]) -> int:
        """Cases whose expected outputs are among the changed workspace files; a per-task file stands for all."""
        paths = [path.removeprefix(f"{OUTPUTS}/") for path in changed if path.startswith(f"{OUTPUTS}/")]
        if any(path in self.expected and path not in self.case_of for path in paths):
            return self.n_cases
        return len({self.case_of[path] for path in paths if path in self.case_of})

    def infer_stage(
        self, code: str, changed: Sequence[str], cache_growth: int, complete: bool, previous: Stage
    ) -> Stage:
        """Stage of a call, by its code and the workspace files it changed; ``complete``: all outputs exist now."""
        return infer_stage(
            code,
            previous,
            changed_files=changed,
            cases_written=self.count_cases(changed),
            n_cases=self.n_cases,
            cache_growth=cache_growth,
            all_outputs_exist=complete,
        )


class Executed(Model):
    """Everything that one executed call gave: the recorded effect of running it."""

    result: CodeResult
    findings: list[Finding]
    changes: Changes
    complete: bool
    out_of_memory: bool
    again: bool
    ending: Ending | None = Field(None, description="of the run, by this call")
    gpu: GpuUse | None = None
    processes: list[Process] | None = None


class Waited(Model):
    """Result of a wait."""

    how: str
    waited_s: float
    gpu: GpuUse | None = None
    processes: list[Process] | None = None


class SubmissionLook(Model):
    """Findings of ``submit_results`` in the workspace."""

    missing: list[str]
    n_missing: int
    invalid: int | None


_FINDINGS: TypeAdapter[list[Finding]] = TypeAdapter(list[Finding])
_EXECUTED: TypeAdapter[Executed] = TypeAdapter(Executed)
_PROCESSES: TypeAdapter[list[Process] | None] = TypeAdapter(list[Process] | None)
_WAITED: TypeAdapter[Waited] = TypeAdapter(Waited)
_LOOK: TypeAdapter[SubmissionLook] = TypeAdapter(SubmissionLook)


@dataclass
class Toolbox:
    """Executes calls one after the other; ``ending`` is set by the call that ends the run.

    What it sees of the world goes through the journal, so that the calls of a resumed run are not executed again.
    """

    sandbox: Sandbox
    workspace: Path
    log: RunLog
    journal: Journal
    budget: Budget
    contract: Contract
    strikes: Strikes
    count_invalid: Callable[[], int | None] = lambda: None
    oom_kills: Callable[[], int] = lambda: 0
    deaths: Callable[[str], int] = lambda _about: 0
    """Counts how often a call, by its description in the journal, took its driver with it."""
    stand_still: Callable[[float], None] = lambda _seconds: None
    """Takes seconds off the time of the run."""
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    known_tools: Sequence[str] = tools.TOOL_NAMES
    first_timeout_s: float = float("inf")
    """Time limit of a call until one took longer."""
    ending: Ending | None = None
    submitted: bool = False
    summary: str | None = None
    calls: list[CodeCall] = field(default_factory=list)
    help_used: list[HelpUse] = field(default_factory=list)
    n_warnings: int = 0
    out_of_memory: bool = False
    gpu: GpuUse | None = None
    _submits: int = 0
    _stage: Stage = "S1"
    snapshot: Snapshot = field(default_factory=Snapshot)

    def run(self, call: ToolCall, turn: int, *, cut: bool) -> str:
        """Execute one call and return its tool result; after the end of the run calls are skipped.

        Raises InfrastructureError when the sandbox, or the run's own record, fails.
        """
        if self.ending is not None:
            return tools.skipped_answer(f"the run has ended: {self.ending.outcome}")
        if (over := self.budget.check_time()) is not None:
            self.ending = over
            return tools.skipped_answer("the time limit is reached")
        request = tools.read_call(call, cut=cut, known=self.known_tools)
        if isinstance(request, tools.BadCall):
            self.log.event("bad_call", turn, tool=call.name[:80], error=request.error)
            return tools.bad_call_answer(request)
        if isinstance(request, tools.SubmitRequest):
            return self._submit(request, turn)
        if isinstance(request, tools.WaitRequest):
            return self._wait(request, turn)
        return self._execute(request, turn)

    def totals(self, **counts: int) -> Totals:
        """Usage of the run so far, with the counts of its loop; valid at any time."""
        budget = self.budget
        return Totals(
            turns=budget.turns,
            wall_s=round(budget.wall_s, 3),
            api_s=round(budget.api_s, 3),
            api_retry_s=round(budget.retry_s, 3),
            exec_s=round(budget.exec_s, 3),
            gpu=self.gpu,
            n_exec=len(self.calls),
            n_exec_failed=sum(call.status != "ok" for call in self.calls),
            n_warnings=self.n_warnings,
            tokens=budget.usage,
            cost_usd=format_money(budget.cost),
            **counts,
        )

    def check_reply_length(self, reply: Reply) -> InfrastructureError | None:
        """Log a reply of more tokens than requested; return the error that ends the run where it is far more.

        Reasoning is left out of the error: some providers honestly keep it apart from what ``max_tokens`` bounds.
        """
        limit, received, thought = reply.asked_tokens, reply.usage.completion, reply.usage.reasoning
        if limit is None or received <= limit or reply.usage.estimated:
            return None
        self.log.event("overlong_reply", self.budget.turns, asked=limit, got=received, reasoning=thought)
        if received - thought <= OVERLONG * max(limit, FEW):
            return None
        return InfrastructureError(
            f"The endpoint wrote {received} tokens where at most {limit} were requested: it ignores max_tokens, so no "
            "limit of the run bounds what a reply costs.\nThe reply is paid and kept. Set the name that the endpoint "
            "reads in the agent's extra_body (max_completion_tokens), or raise max_tokens to what it writes."
        )

    def take_turn(self) -> None:
        """Wait for the run's turn on shared cards: before a call, as that is neither its time nor the run's."""
        if waited_s := self.sandbox.take_turn():
            self.stand_still(waited_s)

    def leave_out_wait(self) -> None:
        """Leave out the time in which a call waited for shared cards."""
        if waited_s := self.sandbox.drain_gpu_wait():
            self.stand_still(waited_s)

    def add_gpu_use(self, used: GpuUse | None) -> None:
        if used is not None:
            self.gpu = used if self.gpu is None else self.gpu + used

    def end_of_sandbox(self) -> None:
        """End what the run's code left running, and weigh the evidence that came after the last call."""
        findings = self.journal.effect("end", "", self._end, _FINDINGS)
        self._add_processes(self.journal.effect("processes", "", self.sandbox.drain_processes, _PROCESSES))
        self._weigh(findings, None)

    def _end(self) -> list[Finding]:
        self.sandbox.end()
        return self.sandbox.drain_findings()

    def _add_processes(self, later: list[Process] | None) -> None:
        """Add processes that background processes of the last call opened after its end."""
        if later and self.calls:
            call = self.calls[-1]
            self.calls[-1] = call.model_copy(
                update={"processes": join_processes(call.processes, mask_processes(self.log, later))}
            )

    def wait_for_endpoint(self, seconds: float) -> None:
        """Wait for the endpoint: that is not the agent's time, and its container stands still meanwhile."""
        still = self.sandbox.frozen(seconds) if seconds >= SHORT_WAIT_S else contextlib.nullcontext()
        with still:
            self.pause(seconds)

    # --- code -------------------------------------------------------------------------------------------------

    def _execute(self, request: tools.CodeRequest, turn: int) -> str:
        number = len(self.calls) + 1
        digest = sha256_bytes(self.log.mask(request.code).encode())
        if not self.journal.replaying:
            self.take_turn()
        self.log.event(
            "exec_start",
            turn,
            call=number,
            language=request.language,
            sha256=digest,
            lines=request.code.count("\n") + 1,
        )
        about = f"call {number} {digest[:16]}"
        done = self.journal.effect("exec", about, lambda: self._run_code(request, turn, about), _EXECUTED, long=True)
        self.budget.exec_s += done.result.elapsed_s
        self.out_of_memory = done.out_of_memory
        self.add_gpu_use(done.gpu)
        self._record_call(request, done, turn)
        warning = self._weigh(done.findings, turn)
        self.ending = self.ending or done.ending
        note = INTERRUPTED if done.again else None
        return tools.code_answer(done.result, self.budget.remaining_s, warning, note)

    def _run_code(self, request: tools.CodeRequest, turn: int, about: str) -> Executed:
        number = len(self.calls) + 1
        again = self.journal.count_begun("exec", about) > 0
        fatal = self.deaths(about) >= DEATHS
        kills = self.oom_kills()
        result = OUT_OF_JOB if fatal else self._call(request, turn, number, again)
        if result.status == "harness_error":
            raise InfrastructureError(f"The sandbox failed in call {number}: {result.stderr[-300:] or 'no message'}")
        # The end of a whole job signals the agent's code too, and at times first. If it was that, our own signal comes
        # now, and the call is executed again instead of being held against the agent.
        if result.exit_code in ENDED_BY_SIGNAL or _SHELL_REPORT.search(result.stderr):
            self.pause(SIGNAL_GRACE_S)
        elif "SLURM_JOB_ID" in os.environ:
            self.pause(SIGNAL_GRACE_S / 10)  # a program may have gone on without the child that was ended
        return Executed(
            result=result,
            findings=self.sandbox.drain_findings(),
            changes=take_snapshot(self.workspace).changes_since(self.snapshot),
            complete=not self.contract.find_missing(self.workspace),
            out_of_memory=fatal or self.is_over_memory(result, kills),
            again=again and not fatal,
            ending=make_death_ending(f"call {number}") if fatal else find_ending(result),
            gpu=self.sandbox.drain_gpu_use(),
            processes=self.sandbox.drain_processes(),
        )

    def _call(self, request: tools.CodeRequest, turn: int, number: int, again: bool) -> CodeResult:
        """Outcome of a call; one that makes the sandbox fail ``again``, where an empty workspace does not, is its own.

        Raises InfrastructureError for any other failure of the sandbox.
        """
        self.sandbox.set_deadline(self.budget.remaining_s)
        timeout_s = self.budget.exec_timeout_s()
        if not any(call.status == "timeout" for call in self.calls):
            timeout_s = min(timeout_s, self.first_timeout_s)
        try:
            result = self.sandbox.run_code(
                request.language,
                request.code,
                call=number,
                turn=turn,
                log=self.log.exec_folder,
                timeout_s=timeout_s,
            )
            self.leave_out_wait()
            reason = self.explain_full_disk()
            return to_result(lost_outcome(reason), timeout_s) if reason else result
        except InfrastructureError as error:
            if not again or not self.sandbox.passes_anew():
                raise
            return to_result(lost_outcome(f"{SPOILED}: {str(error).splitlines()[0][:200]}"), timeout_s)

    def explain_full_disk(self) -> str:
        """Why the run ends where its log needed the reserve; InfrastructureError where others filled the disk."""
        if not is_reserve_used():
            return ""
        held = take_snapshot(self.workspace).total_bytes
        if held < measure_space(self.workspace).reserve:
            raise InfrastructureError(f"The disk of {self.workspace} is full.\nFree space, then run the command again.")
        return f"disk limit: the disk is full, and the workspace holds {held / 1e9:.3g} GB"

    def is_over_memory(self, result: CodeResult, kills: int) -> bool:
        """A call ended for its memory: by the sandbox, or by the kernel (``kills``: what that had counted before)."""
        return read_note(result).startswith("memory limit") or (result.status != "ok" and self.oom_kills() > kills)

    def _wait(self, request: tools.WaitRequest, turn: int) -> str:
        about = f"{request.seconds} s, process {request.process}"
        done = self.journal.effect("wait", about, lambda: self._pause(request, turn), _WAITED, long=True)
        self.add_gpu_use(done.gpu)
        self._add_processes(done.processes)
        fields = done.model_dump(exclude={"gpu", "processes"})
        self.log.event("wait", turn, seconds=request.seconds, process=request.process, **fields)
        return tools.wait_answer(done.how, done.waited_s, self.budget.remaining_s)

    def _pause(self, request: tools.WaitRequest, turn: int) -> Waited:
        began = self.clock()
        self.sandbox.set_deadline(self.budget.remaining_s)
        longest = min(LONGEST_WAIT_S, self.budget.reply_timeout_s())
        seconds = longest if request.seconds is None else min(request.seconds, longest)
        how = self.sandbox.wait(seconds, request.process)
        waited_s = round(self.clock() - began, 3)
        gpu, processes = self.sandbox.drain_gpu_use(), self.sandbox.drain_processes()
        return Waited(how=how, waited_s=waited_s, gpu=gpu, processes=processes)

    def _record_call(self, request: tools.CodeRequest, done: Executed, turn: int) -> None:
        """Keep a call; its stage follows from how the workspace differs from what it was before."""
        number, result, growth = len(self.calls) + 1, done.result, done.changes.cache_bytes - self.snapshot.cache_bytes
        self.snapshot = self.snapshot.apply(done.changes)
        self._stage = self.contract.infer_stage(
            request.code, list(done.changes.changed), growth, done.complete, self._stage
        )
        over = self.budget.check_disk(self.snapshot.total_bytes)
        self.ending = over or self.ending
        changed = list(done.changes.changed)[:LISTED_CHANGES]
        outputs = [path for path in done.changes.changed if path.startswith(f"{OUTPUTS}/")]
        self.calls.append(
            record_call(
                self.log, turn, number, request, result, self._stage, changed, mask_processes(self.log, done.processes)
            )
        )
        self.log.event(
            "exec_end",
            turn,
            call=number,
            exit_code=result.exit_code,
            status=result.status,
            elapsed_s=result.elapsed_s,
            out_chars=len(result.stdout),
            err_chars=len(result.stderr),
            stage=self._stage,
            new_files=changed,
            changed_outputs=outputs[:LISTED_CHANGES],
            disk=over.detail if over else "",
            out_of_memory=self.out_of_memory,
            unnamed_files=self.snapshot.unnamed,
        )

    # --- rules ------------------------------------------------------------------------------------------------

    def _weigh(self, findings: Sequence[Finding], turn: int | None) -> str | None:
        """Log findings; the ``[SANDBOX]`` text for the agent when they amount to a warning or more."""
        if not findings:
            return None
        for finding in findings:
            self.log.event("finding", turn, finding=finding.model_dump(mode="json"))
        verdict = self.strikes.add(findings)
        if verdict == "clean":
            return SWEPT if any(finding.rule == SWEEP for finding in findings) else None
        self.n_warnings += 1
        worst = max(findings, key=lambda finding: (finding.severity != "notice", finding.rule == SWEEP))
        text = f"[SANDBOX] Rule {worst.rule} was broken ({worst.category}): {self.log.mask(worst.evidence)}."
        if verdict == "disqualified":
            self.ending = Ending("disqualified", f"rule {worst.rule}: {self.log.mask(worst.evidence)}"[:300])
            return f"{text} The run ends here; it is disqualified."
        after = "The next one ends the run as disqualified." if self.strikes.next_disqualifies else "Do not repeat it."
        return f"{text} This is a warning. {after}"

    # --- submission -------------------------------------------------------------------------------------------

    def _submit(self, request: tools.SubmitRequest, turn: int) -> str:
        self._submits += 1
        look = self.journal.effect("submit", f"turn {turn}", self._look_at_outputs, _LOOK, long=True)
        accepted = not look.n_missing or self._submits > 1
        self.log.event(
            "submit",
            turn,
            accepted=accepted,
            missing=look.missing,
            missing_count=look.n_missing,
            invalid_count=look.invalid,
        )
        self._stage = "S5"
        if accepted:
            self.submitted = True
            self.summary = self.log.mask(request.summary)
            self.ending = Ending("submitted", self.contract.describe(look.n_missing))
        return tools.submit_answer(accepted, look.missing, look.n_missing, look.invalid, self.budget.remaining_s)

    def _look_at_outputs(self) -> SubmissionLook:
        """The form of the files is only checked for an agent that can still mend them."""
        missing = self.contract.find_missing(self.workspace)
        invalid = self.count_invalid() if missing and self._submits == 1 else None
        return SubmissionLook(missing=missing[:LISTED_MISSING], n_missing=len(missing), invalid=invalid)


def read_note(result: CodeResult) -> str:
    """Why the sandbox ended a call: the last thing on stderr, behind all that the code printed."""
    return result.stderr.rpartition(NOTE)[2].strip() if result.status == "killed" else ""


def find_ending(result: CodeResult) -> Ending | None:
    """The end of a run whose call filled the disk, or whose workspace lets no container start."""
    note = read_note(result)
    outcomes: dict[str, Outcome] = {"disk limit": "out_of_disk", SPOILED: "stopped"}
    return next((Ending(outcome, note) for begin, outcome in outcomes.items() if note.startswith(begin)), None)


def make_death_ending(what: str) -> Ending:
    """The end of a run whose call took its driver with it again and again."""
    return Ending("out_of_memory", f"{what} {ENDED_ITS_JOB}")


def record_call(
    log: RunLog,
    turn: int,
    number: int,
    request: tools.CodeRequest,
    result: CodeResult,
    stage: Stage,
    changed: Sequence[str] = (),
    processes: list[Process] | None = None,
) -> CodeCall:
    """A call as the conversation keeps it, keys masked; ``processes`` are masked already."""
    return CodeCall(
        turn=turn,
        call=number,
        language=request.language,
        code=log.mask(request.code),
        status=result.status,
        exit_code=result.exit_code,
        elapsed_s=result.elapsed_s,
        stdout=log.mask(result.stdout),
        stderr=log.mask(result.stderr),
        stage=stage,
        new_files=[log.mask(path) for path in changed],
        processes=processes,
    )


MOST_PROCESSES = 60
"""Of one call, with those that went on after it."""


def mask_processes(log: RunLog, processes: list[Process] | None) -> list[Process] | None:
    """Processes as the conversation keeps them, keys masked."""
    return None if processes is None else [Process(**log.mask.value(each.model_dump())) for each in processes]


def join_processes(first: list[Process] | None, later: list[Process] | None) -> list[Process] | None:
    """Processes of a call and of what went on after it; too many are counted on the last one."""
    if first is None or later is None:
        return later if first is None else first
    moved = [
        each.model_copy(update={"parent": None if each.parent is None else each.parent + len(first)}) for each in later
    ]
    kept = [*first, *moved][:MOST_PROCESSES]
    if rest := len(first) + len(moved) - len(kept):
        kept[-1] = kept[-1].model_copy(update={"left_out": kept[-1].left_out + rest})
    return kept
