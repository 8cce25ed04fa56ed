"""Run from start to end: lease, attempt, sandbox, loop, seal, publish."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

import automedbench
from automedbench.agent import opening
from automedbench.agent.budget.ledger import MeteredModel
from automedbench.agent.budget.limits import Budget, Ending
from automedbench.agent.budget.used import ProcessStart, UsageRecorder
from automedbench.agent.durable.attempts import (
    AttemptFolder,
    Identity,
    Journal,
    JournalMismatch,
    Start,
    count_silent_attempts,
    count_silent_deaths,
    create_attempt,
    find_usable_attempt,
    list_attempts,
    next_attempt,
    publish,
    record_failure,
    seal,
)
from automedbench.agent.durable.lease import hold_lease
from automedbench.agent.durable.workspaces import is_lost, open_workspace, take_home
from automedbench.agent.faults import PUT_OFF
from automedbench.agent.log import Dialogue, Masker, RunLog
from automedbench.agent.loop import AgentLoop
from automedbench.agent.opening import OpenModel, OpenSandbox, log_attempt
from automedbench.agent.plan import (
    Brief,
    RunPlan,
    compose_brief,
    make_contract,
    plan_identity,
    planned_fields,
    refuse_unsafe,
)
from automedbench.agent.toolbox import OUTPUTS, Toolbox
from automedbench.agent.tools import tool_specs
from automedbench.agent.workspace import has_plot, list_files, read_plan, take_snapshot
from automedbench.base.code import present_code
from automedbench.base.endpoint.client import Attempt
from automedbench.base.errors import AutoMedBenchError, InfrastructureError
from automedbench.base.files import write_record
from automedbench.base.keys import read_keys
from automedbench.base.masking import secret_among
from automedbench.base.records import Code, Conversation, Enforced, FaultEvidence, RunRecord, Totals, now
from automedbench.base.reserve import give_up_reserve, hold_reserve
from automedbench.campaign.prices import format_money
from automedbench.sandbox.boxes import Sandbox
from automedbench.sandbox.container.cgroup import oom_kills
from automedbench.sandbox.container.scratch import scratch_folder, why_no_scratch
from automedbench.sandbox.evidence.policy import Strikes

if TYPE_CHECKING:
    from automedbench.agent.command.loop import CommandLoop

MAX_SERVED = 20
"""Names of the model as served that a record keeps."""

WAIT_BEYOND_LIMIT_S = 600.0
"""Seconds beyond the run's own time limit that a second starter waits for the first."""

START: TypeAdapter[Start] = TypeAdapter(Start)


def run_agent(
    plan: RunPlan,
    *,
    wait_s: float | None = None,
    open_model: OpenModel | None = None,
    open_sandbox: OpenSandbox | None = None,
    count_invalid: Callable[[Path], int | None] = lambda _workspace: None,
    say: Callable[[str], None] = print,
) -> RunRecord:
    """Let the agent do the task once and publish the result below ``plan.folder``.

    An interrupted attempt continues where it stopped; a finished one that a crash left unpublished is published.
    ``count_invalid`` counts the malformed ones among the expected files of a workspace; None when it cannot.

    Raises ConfigError when the run must not start and InfrastructureError when the machine or the endpoint fails; the
    attempt is then kept with what it had cost, and goes on with the next call.
    """
    since = ProcessStart()
    refuse_unsafe(plan)
    brief = compose_brief(plan)
    identity = plan_identity(plan, brief)
    sealed_before = {attempt.number for attempt in list_attempts(plan.folder) if attempt.sealed}
    patience = (plan.limits.time_limit_s or 24 * 3600.0) + WAIT_BEYOND_LIMIT_S if wait_s is None else wait_s
    with hold_lease(plan.folder / "lease.json", patience, say=say) as lease:
        attempt = find_usable_attempt(plan.folder, identity, sealed_before)
        driver = _Driver(
            plan,
            brief,
            identity,
            lease.check,
            open_model or opening.open_model,
            open_sandbox or opening.open_sandbox,
            count_invalid,
            since,
        )
        if attempt is None:
            if (last := list_attempts(plan.folder)[-1:]) and not last[0].sealed and is_lost(last[0].path):
                where = os.path.realpath(last[0].workspace)
                say(f"Attempt {last[0].number} cannot go on without {where}, which is not here; a new one starts.")
            attempt = driver.execute(None)
        elif attempt.sealed:
            say(f"Attempt {attempt.number} is finished already; it is adopted instead of repeated.")
        else:
            say(f"Attempt {attempt.number} was interrupted; it continues where it stopped.")
            try:
                driver.execute(attempt)
            except JournalMismatch as mismatch:
                say(f"{mismatch}")
                attempt = driver.execute(None)
        lease.check()
        publish(attempt)
    return attempt.record()


@dataclass
class _Driver:
    """Makes an attempt, or goes on with one, and seals it."""

    plan: RunPlan
    brief: Brief
    identity: Identity
    check: Callable[[], None]
    open_model: OpenModel
    open_sandbox: OpenSandbox
    count_invalid: Callable[[Path], int | None]
    since: ProcessStart
    """From where on machines are held for the attempt that comes next."""
    code: Code = field(default_factory=present_code)
    """Looked at before the run, during which files may change that are loaded already."""

    def execute(self, interrupted: AttemptFolder | None) -> AttemptFolder:
        """Run the loop to its end; what breaks it is kept in the attempt before it is raised again."""
        plan = self.plan
        keys = read_keys(plan.agent) if plan.agent.paid else ()
        attempt = interrupted or next_attempt(plan.folder)
        common = plan.results, plan.agent, plan.limits, plan.budget, plan.run.path, attempt.path.name
        new = interrupted is None
        metered = MeteredModel.open(*common, new=new)
        gpus, name = plan.sandbox.gpu, attempt.path.name
        cards = gpus, plan.sandbox.gpu_share if gpus else 1
        usage = UsageRecorder(plan.results, plan.run.path, name, new, *cards, self.check, self.since)
        session: _Session | None = None
        result: tuple[Conversation, RunRecord] | None = None
        try:
            if new:
                create_attempt(attempt, self.brief.markdown, self.brief.given, plan.scratch)
                if plan.fault is not None:
                    plan.fault.leave_output(attempt.workspace, plan.public / plan.card.id)
            open_workspace(attempt.path, plan.scratch)
            try:
                with usage, ExitStack() as stack:
                    try:
                        session = self._open(stack, attempt, keys, metered, usage)
                        result = self._run(attempt, session)
                    except BaseException as error:
                        # A full disk must not hide the first error. Written before anything else is put away.
                        with contextlib.suppress(AutoMedBenchError):
                            self._keep_failure(attempt, session, error)
                            self._keep_interrupted(attempt, session, error)
                        raise
            except InfrastructureError as error:
                if result is None:
                    raise
                print(f"The run has ended; putting its sandbox away failed: {error}", file=sys.stderr)
            # Nothing writes into the workspace any more.
            try:
                outputs = plan.card.expected_outputs(plan.manifest.case_ids)
                expected = {f"{OUTPUTS}/{path}": output.max_bytes for path, output in outputs.items()}
                seal(attempt, *result, self.check, expected)
            except BaseException as error:
                with contextlib.suppress(AutoMedBenchError):
                    if not attempt.sealed:
                        self._keep_failure(attempt, session, error)
                raise
        finally:
            self.since = ProcessStart()
            with contextlib.suppress(AutoMedBenchError):
                metered.settle()
            with contextlib.suppress(AutoMedBenchError):
                if not attempt.sealed:
                    take_home(attempt.path)
        return attempt

    def _open(
        self,
        stack: ExitStack,
        attempt: AttemptFolder,
        keys: tuple[str, ...],
        metered: MeteredModel,
        usage: UsageRecorder,
    ) -> _Session:
        """Everything that works on the attempt; leaving the stack ends it."""
        plan = self.plan
        stack.enter_context(hold_reserve(*{attempt.path.resolve(), attempt.workspace.resolve().parent}))
        if why_no_scratch():
            give_up_reserve()
        log = stack.enter_context(
            RunLog(attempt.log, Masker(secret_among(keys, [plan.run.path, str(plan.agent.model)])))
        )
        journal = stack.enter_context(Journal(attempt.journal, log, self.check))

        def note_attempt(each: Attempt) -> None:
            log_attempt(log, each)
            metered.note_attempt(each)

        opened = self.open_model(
            plan, keys, metered.admit_attempt, note_attempt, lambda seconds: toolbox.wait_for_endpoint(seconds)
        )
        model = metered.meter(stack.enter_context(opened))
        folder = stack.enter_context(scratch_folder("s-"))
        bridge = None
        if plan.agent.provider == "command":
            from automedbench.agent.command.bridge import Bridge

            bridge = stack.enter_context(Bridge(plan.agent, folder, brief=self.brief.markdown, mask=log.mask.value))
        offered = bridge.services if bridge else None
        sandbox = stack.enter_context(self.open_sandbox(plan, attempt, log, folder, offered))
        usage.sandbox = sandbox
        start = self._start(journal, sandbox.enforced)
        log.event(
            "run_start",
            run=plan.run.path,
            attempt=attempt.number,
            limits=plan.limits.model_dump(),
            enforced=start.enforced.model_dump(mode="json"),
            brief_sha256=self.brief.sha256,
            code_version=automedbench.__version__,
        )
        toolbox = self._toolbox(attempt, log, journal, sandbox)
        metered.limits = toolbox.budget
        dialogue = Dialogue(self.brief.system, self.brief.kickoff, log, plan.agent.context_tokens)
        loop: AgentLoop | CommandLoop
        if bridge is not None:
            from automedbench.agent.command.loop import CommandLoop
            from automedbench.agent.command.program import check_note

            note = check_note(plan.agent, plan.image.parent, start.enforced) if plan.image else None
            checked = note is not None and note.is_file()
            loop = CommandLoop(plan.agent, model, bridge, dialogue, toolbox, self.check, checked)
        else:
            specs = tool_specs(self.brief.execute_description, wait=plan.sandbox.wait)
            toolbox.known_tools = [spec.name for spec in specs]
            loop = AgentLoop(model, dialogue, toolbox, specs, free=not plan.agent.paid)
        return _Session(loop, journal, sandbox, start, usage, model)

    def _start(self, journal: Journal, enforced: Enforced) -> Start:
        """The attempt's first effect; raises JournalMismatch when it was begun in another image."""
        here = Start(
            identity=self.identity,
            resumable=self.plan.agent.provider != "command",
            enforced=enforced,
            started_at=now(),
        )
        start = journal.effect("start", "", lambda: here, START)
        if start.enforced.image_sha256 != enforced.image_sha256:
            raise JournalMismatch(
                "The container image was rebuilt since the attempt began: it is kept, and a new one starts."
            )
        return start

    def _toolbox(self, attempt: AttemptFolder, log: RunLog, journal: Journal, sandbox: Sandbox) -> Toolbox:
        plan = self.plan
        # A program that runs by itself has no effects between which its time could stand still.
        command = plan.agent.provider == "command"
        clock = time.monotonic if command else journal.clock
        deaths = (
            (lambda _: count_silent_attempts(attempt))
            if command
            else functools.partial(count_silent_deaths, attempt, journal)
        )
        budget = Budget(plan.limits, plan.agent.pricing, clock, must_know=plan.budget.max_cost_usd is not None)
        return Toolbox(
            sandbox=sandbox,
            workspace=attempt.workspace,
            log=log,
            journal=journal,
            budget=budget,
            stand_still=budget.stand_still if command else journal.stand_still,
            contract=make_contract(plan.card, plan.manifest.case_ids),
            strikes=Strikes(plan.sandbox.max_warnings),
            count_invalid=lambda: self.count_invalid(attempt.workspace),
            oom_kills=oom_kills,
            deaths=deaths,
            first_timeout_s=plan.fault.call_s if plan.fault else float("inf"),
            snapshot=take_snapshot(attempt.workspace).select(
                [*self.brief.given, *([plan.fault.output] if plan.fault and plan.fault.output else [])]
            ),
        )

    def _run(self, attempt: AttemptFolder, session: _Session) -> tuple[Conversation, RunRecord]:
        """The result, from the run's end to the end of its log."""
        loop = session.loop
        ending = loop.run()
        give_up_reserve()
        spoiled = session.sandbox.selfcheck()
        if spoiled and ending.outcome != "disqualified":
            ending = Ending("stopped", spoiled)
        fault = self._gather_fault(attempt, loop.toolbox)
        record = self._record(attempt, session, ending).model_copy(update={"fault": fault})
        loop.toolbox.log.event(
            "run_end", outcome=ending.outcome, detail=ending.detail, totals=record.totals.model_dump(mode="json")
        )
        return self._conversation(attempt, session), record

    def _gather_fault(self, attempt: AttemptFolder, toolbox: Toolbox) -> FaultEvidence | None:
        """What became of the run's fault; what it left in the workspace is taken out."""
        if (fault := self.plan.fault) is None:
            return None
        kept = fault.take_output(attempt.workspace, self.plan.public / self.plan.card.id)
        slowed = toolbox.log.count("api_attempt", body=PUT_OFF)
        return fault.gather(toolbox.calls, attempt.log / opening.EGRESS_LOG, slowed, kept=kept)

    def _keep_failure(self, attempt: AttemptFolder, session: _Session | None, error: BaseException) -> None:
        record_failure(
            attempt,
            self.plan.run,
            error,
            session.loop.totals() if session else Totals(),
            effects=session.journal.effects if session else 0,
            resumable=session is not None and session.start.resumable,
        )

    def _keep_interrupted(self, attempt: AttemptFolder, session: _Session | None, error: BaseException) -> None:
        """The conversation by now, for a reader."""
        if session is not None and not session.journal.replaying:
            session.loop.toolbox.log.event("interrupted", error=type(error).__name__, message=str(error)[:300])
            write_record(attempt.path / "conversation.json", self._conversation(attempt, session))

    def _record(self, attempt: AttemptFolder, session: _Session, ending: Ending) -> RunRecord:
        plan, loop = self.plan, session.loop
        mask = loop.toolbox.log.mask
        return RunRecord(
            **dict(self.identity),
            **planned_fields(plan) | {"agent_settings": mask.value(plan.agent.settings)},
            attempt=attempt.number,
            outcome=ending.outcome,
            detail=" ".join(mask(ending.detail).split()),
            submitted=loop.toolbox.submitted,
            summary=loop.toolbox.summary,
            served=mask.value(list(loop.toolbox.budget.served)[:MAX_SERVED]),
            resumes=session.journal.resumes,
            enforced=_merge_enforced(session.start.enforced, session.sandbox.enforced),
            totals=loop.totals(),
            attempts_cost_usd=format_money(session.metered.sum_attempts()),
            used=session.usage.close(),
            started_at=session.start.started_at,
            ended_at=now(),
            code_version=automedbench.__version__,
            code=self.code,
        )

    def _conversation(self, attempt: AttemptFolder, session: _Session) -> Conversation:
        loop = session.loop
        # First the look, which repairs the modes of folders.
        snapshot, log = take_snapshot(attempt.workspace), loop.toolbox.log
        plan, files = read_plan(attempt.workspace), list_files(snapshot)
        return Conversation(
            run=self.plan.run,
            n_cases=len(self.plan.manifest.cases),
            gpu=session.sandbox.enforced.gpu,
            messages=loop.dialogue.records(),
            calls=loop.toolbox.calls,
            help_used=loop.toolbox.help_used,
            plan=None if plan is None else log.mask(plan),
            has_plot=has_plot(attempt.workspace),
            workspace_files={log.mask(path): size for path, size in files.items() if path not in self.brief.given},
            n_unlisted=len(snapshot.files) + snapshot.unnamed - len(files),
        )


@dataclass(frozen=True)
class _Session:
    """Resources that one process opened to work on an attempt."""

    loop: AgentLoop | CommandLoop
    journal: Journal
    sandbox: Sandbox
    start: Start
    usage: UsageRecorder
    metered: MeteredModel


def _merge_enforced(first: Enforced, last: Enforced) -> Enforced:
    """Limits enforced throughout an attempt that resumed in another process, perhaps on another node."""
    return last.model_copy(update={name: _select_weaker(value, getattr(last, name)) for name, value in first})


def _select_weaker(one: object, other: object) -> object:
    """Weaker of two values: flags by and, limits by the wider one (None: no limit), others the later."""
    match one, other:
        case bool(), bool():
            return one and other
        case int(), int():
            return max(one, other)
        case (int(), None) | (None, int()):
            return None
        case ("polled", _) | (_, "polled"):
            return "polled"
    return other
