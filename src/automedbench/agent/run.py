"""One run from start to end: lease, attempt, sandbox, loop, seal, publish. The only function the script calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import automedbench
from automedbench.agent.attempts import (
    AttemptFolder,
    Identity,
    adoptable,
    create_attempt,
    list_attempts,
    publish,
    record_failure,
    seal,
)
from automedbench.agent.brief import Brief, Setting, write_brief
from automedbench.agent.chat import Attempt, ChatModel
from automedbench.agent.dialogue import Dialogue
from automedbench.agent.lease import hold_lease
from automedbench.agent.limits import Budget, Ending
from automedbench.agent.log import Masker, RunLog
from automedbench.agent.loop import AgentLoop
from automedbench.agent.memory import oom_kills
from automedbench.agent.openai_model import OpenAIModel, read_key
from automedbench.agent.scripted import load_script
from automedbench.agent.toolbox import Contract, Toolbox
from automedbench.agent.tools import Language, tool_specs
from automedbench.agent.workspace import has_plot, listed_files, read_plan, take_snapshot
from automedbench.agents import Agent
from automedbench.campaign import SandboxConfig
from automedbench.cards import Limits, TaskCard
from automedbench.errors import AutoMedBenchError, ConfigError, MissingDataError
from automedbench.records import Conversation, Enforced, Finding, Manifest, RunId, RunRecord, Totals, now
from automedbench.sandbox import Sandbox
from automedbench.sandbox.audit import Strikes
from automedbench.sandbox.backends import make_sandbox
from automedbench.sandbox.decoy import Decoy
from automedbench.sandbox.policy import check_code

WAIT_BEYOND_LIMIT_S = 600.0
"""How much longer than the run's own time limit a second starter waits for the first."""

DATA_DIR, WORKSPACE = "/data/public", "/workspace"


@dataclass(frozen=True)
class RunPlan:
    """Everything that defines one run. ``public`` is the folder of all staged tasks, ``folder`` the run's own."""

    run: RunId
    card: TaskCard
    manifest: Manifest
    agent: Agent
    limits: Limits
    sandbox: SandboxConfig
    public: Path
    folder: Path
    prompts: Path
    image: Path | None = None


class OpenModel(Protocol):
    """Makes the chat model of an attempt."""

    def __call__(
        self, agent: Agent, key: str, on_attempt: Callable[[Attempt], None]
    ) -> AbstractContextManager[ChatModel]: ...


class OpenSandbox(Protocol):
    """Makes the sandbox of an attempt."""

    def __call__(self, plan: RunPlan, attempt: AttemptFolder, log: RunLog) -> AbstractContextManager[Sandbox]: ...


def run_agent(
    plan: RunPlan,
    *,
    wait_s: float | None = None,
    open_model: OpenModel | None = None,
    open_sandbox: OpenSandbox | None = None,
    say: Callable[[str], None] = print,
) -> RunRecord:
    """Let the agent do the task once and publish the result below ``plan.folder``.

    A finished attempt that a crash kept from being published is published instead of being repeated. Raises
    ConfigError when the run must not start and InfrastructureError when the machine or the endpoint fails; the
    attempt is then kept with what it had cost.
    """
    refuse_unsafe(plan)
    brief = brief_of(plan)
    identity = _identity(plan, brief)
    sealed_before = {attempt.number for attempt in list_attempts(plan.folder) if attempt.sealed}
    patience = _patience(plan.limits) if wait_s is None else wait_s
    with hold_lease(plan.folder / "lease.json", patience, say=say) as lease:
        attempt = adoptable(plan.folder, identity, sealed_before, lease.waited)
        if attempt is None:
            driver = _Driver(
                plan, brief, identity, lease.check, open_model or _open_model, open_sandbox or _open_sandbox
            )
            attempt = driver.execute()
        else:
            say(f"Attempt {attempt.number} is finished already; it is adopted instead of repeated.")
        publish(attempt)
    return attempt.record()


def refuse_unsafe(plan: RunPlan) -> None:
    """Raise ConfigError for what must never start, and when card and staged data differ."""
    problems = []
    if plan.sandbox.backend == "local" and not plan.agent.trusted:
        problems.append(
            f"agents.{plan.run.agent}: is not trusted, and the sandbox 'local' isolates nothing; use 'apptainer'"
        )
    if plan.card.dataset.access == "credentialed" and "credentialed" not in plan.agent.approved_for:
        problems.append(f"agents.{plan.run.agent}.approved_for: '{plan.card.id}' uses credentialed data; see the card")
    if (plan.manifest.task, plan.manifest.task_version) != (plan.card.id, plan.card.version):
        staged = f"{plan.manifest.task} version {plan.manifest.task_version}"
        problems.append(
            f"manifest: is of {staged}, the card of {plan.card.id} version {plan.card.version}; stage the task again"
        )
    if plan.limits.max_cost_usd is not None and plan.agent.pricing is None:
        problems.append(f"agents.{plan.run.agent}.pricing: is missing, so limits.max_cost_usd cannot be kept")
    if plan.run.tier not in plan.card.tiers:
        problems.append(f"{plan.card.id}: has no tier '{plan.run.tier}'")
    if problems:
        raise ConfigError(problems)


def brief_of(plan: RunPlan) -> Brief:
    """The brief of a run. The local sandbox has host paths, which differ per attempt: it shows their variables."""
    local = plan.sandbox.backend == "local"
    setting = Setting(
        data_dir="$DATA_DIR" if local else DATA_DIR,
        workspace_dir="$WORKSPACE" if local else WORKSPACE,
        network="open" if local else plan.sandbox.network,
        gpu=plan.sandbox.gpu,
        limits=plan.limits,
        max_warnings=plan.sandbox.max_warnings,
        reply_tokens=plan.agent.max_tokens,
        native_tools=plan.agent.native_tools,
    )
    return write_brief(plan.prompts, plan.card, plan.run.tier, plan.manifest.case_ids, setting)


def contract_of(card: TaskCard, case_ids: list[str]) -> Contract:
    """The expected files of a task, with the case that each belongs to."""
    per_case = [output.path for output in card.outputs if "{case}" in output.path]
    case_of = {path.replace("{case}", case): case for case in case_ids for path in per_case}
    expected = {path: output for path, output in card.expected_outputs(case_ids).items() if not output.optional}
    return Contract(expected, case_of, len(case_ids))


@dataclass
class _Driver:
    """Makes one attempt and seals it."""

    plan: RunPlan
    brief: Brief
    identity: Identity
    before_request: Callable[[], None]
    open_model: OpenModel
    open_sandbox: OpenSandbox

    def execute(self) -> AttemptFolder:
        """Run the loop in a new attempt; what breaks it is kept in the attempt before it is raised again."""
        key = read_key(self.plan.agent) if self.plan.agent.provider == "openai" else ""
        attempt = create_attempt(self.plan.folder, self.brief.markdown)
        loop: AgentLoop | None = None
        try:
            with contextlib.ExitStack() as stack:
                log = stack.enter_context(RunLog(attempt.log, Masker([key])))
                model = stack.enter_context(self.open_model(self.plan.agent, key, _attempt_logger(log)))
                sandbox = stack.enter_context(self.open_sandbox(self.plan, attempt, log))
                loop = self._loop(attempt, log, model, sandbox)
                self._run_and_seal(attempt, log, loop, sandbox.enforced)
        except BaseException as error:
            # A full disk must not hide the first error.
            with contextlib.suppress(AutoMedBenchError):
                if not attempt.sealed:
                    record_failure(attempt, self.plan.run, error, loop.totals() if loop else Totals())
            raise
        return attempt

    def _loop(self, attempt: AttemptFolder, log: RunLog, model: ChatModel, sandbox: Sandbox) -> AgentLoop:
        plan = self.plan

        def check(language: Language, code: str, *, turn: int, call: int) -> list[Finding]:
            return check_code(language, code, turn=turn, call=call, workspace=attempt.workspace)

        toolbox = Toolbox(
            sandbox=sandbox,
            workspace=attempt.workspace,
            log=log,
            budget=Budget(plan.limits, plan.agent.pricing),
            contract=contract_of(plan.card, plan.manifest.case_ids),
            check_code=check,
            strikes=Strikes(plan.sandbox.max_warnings),
            oom_kills=oom_kills,
        )
        dialogue = Dialogue(self.brief.system, self.brief.kickoff, log, plan.agent.context_tokens)
        return AgentLoop(model, dialogue, toolbox, tool_specs(self.brief.execute_description), self.before_request)

    def _run_and_seal(self, attempt: AttemptFolder, log: RunLog, loop: AgentLoop, enforced: Enforced) -> None:
        started = now()
        log.event(
            "run_start",
            run=self.plan.run.path,
            attempt=attempt.number,
            limits=self.plan.limits.model_dump(),
            enforced=enforced.model_dump(mode="json"),
            brief_sha256=self.brief.sha256,
            code_version=automedbench.__version__,
        )
        ending = loop.run()
        record = self._record(attempt, loop, ending, enforced, started)
        log.event("run_end", outcome=ending.outcome, detail=ending.detail, totals=record.totals.model_dump(mode="json"))
        seal(attempt, self._conversation(attempt, loop, log), record)

    def _record(
        self, attempt: AttemptFolder, loop: AgentLoop, ending: Ending, enforced: Enforced, started: datetime
    ) -> RunRecord:
        plan, mask = self.plan, loop.toolbox.log.mask
        return RunRecord(
            run=plan.run,
            attempt=attempt.number,
            outcome=ending.outcome,
            detail=" ".join(mask(ending.detail).split()),
            submitted=loop.toolbox.submitted,
            summary=loop.toolbox.summary,
            provider=plan.agent.provider,
            model=plan.agent.model or "scripted",
            agent_digest=self.identity.agent_digest,
            task_version=self.identity.task_version,
            brief_sha256=self.identity.brief_sha256,
            cases_sha256=self.identity.cases_sha256,
            limits=self.identity.limits,
            enforced=enforced,
            totals=loop.totals(),
            started_at=started,
            ended_at=now(),
            code_version=automedbench.__version__,
        )

    def _conversation(self, attempt: AttemptFolder, loop: AgentLoop, log: RunLog) -> Conversation:
        plan = read_plan(attempt.workspace)
        files = listed_files(take_snapshot(attempt.workspace))
        return Conversation(
            run=self.plan.run,
            n_cases=len(self.plan.manifest.cases),
            messages=loop.dialogue.records(),
            calls=loop.toolbox.calls,
            plan=None if plan is None else log.mask(plan),
            has_plot=has_plot(attempt.workspace),
            workspace_files={log.mask(path): size for path, size in files.items()},
        )


def _identity(plan: RunPlan, brief: Brief) -> Identity:
    limits = plan.limits.model_dump()
    return Identity(plan.run, plan.agent.digest(), plan.card.version, brief.sha256, plan.manifest.cases_sha256, limits)


def _patience(limits: Limits) -> float:
    return (limits.time_limit_s or 24 * 3600.0) + WAIT_BEYOND_LIMIT_S


def _attempt_logger(log: RunLog) -> Callable[[Attempt], None]:
    def write(attempt: Attempt) -> None:
        log.event(
            "api_attempt",
            **{"class": attempt.kind},
            status=attempt.status,
            wait_s=round(attempt.wait_s, 3),
            elapsed_s=round(attempt.elapsed_s, 3),
            body=attempt.body,
        )

    return write


def _open_model(agent: Agent, key: str, on_attempt: Callable[[Attempt], None]) -> AbstractContextManager[ChatModel]:
    if agent.provider == "scripted":
        return contextlib.nullcontext(load_script(Path(agent.script or "")))
    return OpenAIModel(agent, key, on_attempt=on_attempt)


@contextlib.contextmanager
def _open_sandbox(plan: RunPlan, attempt: AttemptFolder, log: RunLog) -> Iterator[Sandbox]:
    public = plan.public / plan.card.id
    if not public.is_dir():
        raise MissingDataError(f"No staged data in {public}.\nRun `snakemake prepare` (or the rule stage_task) first.")
    with contextlib.ExitStack() as stack:
        decoy = None
        if plan.sandbox.decoy and plan.sandbox.backend == "apptainer":
            decoy = stack.enter_context(Decoy(_private_layout(plan.manifest), plan.manifest.case_ids))
            log.event("decoy", marker=decoy.marker)
        sandbox = make_sandbox(
            plan.sandbox.backend,
            public=public,
            workspace=attempt.workspace,
            image=plan.image,
            network=plan.sandbox.network,
            gpu=plan.sandbox.gpu,
            decoy=decoy,
            disk_gb=plan.limits.disk_gb,
        )
        yield stack.enter_context(sandbox)


def _private_layout(manifest: Manifest) -> list[str]:
    """Names of the private files, so that the decoy looks like what it stands for; the manifest holds no more."""
    names = sorted({name for case in manifest.cases for name in case.private})
    return [f"{{case}}/{name}" for name in names]
