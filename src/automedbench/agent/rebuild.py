"""Rebuild of a finished attempt from its journal: the same loop over the recorded effects.

No model is called and no code is executed. Messages, limits, findings, totals and outcome follow from the effects by
the code that made them, so that records of unknown origin can be compared field by field.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from automedbench.agent.budget.limits import Budget
from automedbench.agent.durable.attempts import Journal, JournalMismatch
from automedbench.agent.log import Dialogue, RunLog
from automedbench.agent.loop import AgentLoop
from automedbench.agent.models.model import ChatModel
from automedbench.agent.plan import Brief, RunPlan, make_contract
from automedbench.agent.run import MAX_SERVED, START
from automedbench.agent.toolbox import Toolbox
from automedbench.agent.tools import tool_specs
from automedbench.agent.workspace import take_snapshot
from automedbench.base.files import write_text
from automedbench.base.records import CodeCall, Message
from automedbench.sandbox.boxes import LocalSandbox
from automedbench.sandbox.evidence.policy import Strikes


@dataclass(frozen=True)
class Rebuilt:
    """Result of an attempt's effects: fields of its ``run.json``, messages and calls of its conversation."""

    record: dict[str, Any]
    messages: list[Message]
    calls: list[CodeCall]


class RebuiltLog(RunLog):
    """A log that is written while effects are replayed."""

    def mute(self) -> None:
        """Write on: nothing is in this log yet."""

    def unmute(self, events: int, messages: int, run_s: float, **resumed: Any) -> None:
        """Note no interruption: the last recorded effect ends the run."""


def rebuild_attempt(plan: RunPlan, brief: Brief, journal: Path, folder: Path) -> Rebuilt:
    """Replay a finished attempt's journal through the loop, and write its log below ``folder``.

    Raises JournalMismatch when the journal is not that of this loop under this plan.
    """
    workspace = folder / "workspace"
    workspace.mkdir(parents=True)
    for name, text in brief.given.items():
        write_text(workspace / name, text)
    copy = Path(shutil.copy(journal, folder))
    specs = tool_specs(brief.execute_description, wait=plan.sandbox.wait)
    with RebuiltLog(folder / "log") as log, Journal(copy, log, _refuse_new_effect) as recorded:
        recorded.effect("start", "", _refuse_new_effect, START)
        toolbox = Toolbox(
            sandbox=LocalSandbox(public=plan.public, workspace=workspace),  # never started: every call is recorded
            workspace=workspace,
            log=log,
            journal=recorded,
            budget=Budget(plan.limits, plan.agent.pricing, recorded.clock),
            contract=make_contract(plan.card, plan.manifest.case_ids),
            strikes=Strikes(plan.sandbox.max_warnings),
            known_tools=[spec.name for spec in specs],
            snapshot=take_snapshot(workspace).select(brief.given),
        )
        dialogue = Dialogue(brief.system, brief.kickoff, log, plan.agent.context_tokens)
        loop = AgentLoop(cast(ChatModel, None), dialogue, toolbox, specs)
        ending = loop.run()
    if recorded.replaying:
        raise JournalMismatch("log/journal.jsonl continues after the end of the run.")
    record = {
        "outcome": ending.outcome,
        "detail": " ".join(ending.detail.split()),
        "submitted": toolbox.submitted,
        "summary": toolbox.summary,
        "served": list(toolbox.budget.served)[:MAX_SERVED],
        "totals": loop.totals(),
    }
    return Rebuilt(record, dialogue.records(), toolbox.calls)


def _refuse_new_effect() -> Any:
    raise JournalMismatch("log/journal.jsonl ends before the run does.")
