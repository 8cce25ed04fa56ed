"""Whole runs with a model that replies from a list and a sandbox of a few words."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from harness_fakes import Clock, FakeModel, FakeSandbox, code

from automedbench.agent.durable.attempts import list_attempts
from automedbench.agent.models.model import ChatModel, Reply
from automedbench.agent.run import RunPlan, run_agent
from automedbench.base.cards import Limits, load_card
from automedbench.base.records import CaseEntry, Manifest, RunId, RunRecord
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig
from automedbench.campaign.prices import Pricing
from automedbench.sandbox.boxes import Sandbox

KEY = "sk-canary-0123456789"
KEY_NAME = "TEST_KEY"
PRICES = Pricing(input="1", output="1", as_of="2026-01-01", source="test")
WORK = [code("write plan/plan.md", "write " + " ".join(f"agents_outputs/b_000{n}/prediction.json" for n in (1, 2)))]


def make_plan(folder: Path, root: Path) -> RunPlan:
    """A run of a paid agent on two cases, in ``folder/r1``; its key is asked for in TEST_KEY."""
    card = load_card(root / "config/tasks/detection/bccd-det-task.yaml")
    cases = [CaseEntry(id=f"b_000{number}", inputs={}, private={}) for number in (1, 2)]
    return RunPlan(
        run=RunId(agent="a", task=card.id, tier="lite", repeat=1),
        card=card,
        manifest=Manifest(
            task=card.id, task_version=card.version, track=card.track, dataset="bccd", sampling="two", cases=cases
        ),
        agent=Agent(provider="openai", model="m", base_url="http://127.0.0.1:9", api_key_env=KEY_NAME, pricing=PRICES),
        limits=Limits(),
        sandbox=SandboxConfig(),
        public=folder / "public",
        folder=folder / "r1",
        prompts=root / "config/prompts",
    )


def start(plan: RunPlan, *replies: Reply | BaseException, wait_s: float = 0, **options: Any) -> RunRecord:
    """Run it quietly."""

    def open_model(_plan: RunPlan, *_: object) -> AbstractContextManager[ChatModel]:
        return contextlib.nullcontext(FakeModel(*replies))

    def open_sandbox(_plan: RunPlan, attempt: Any, *_: object) -> AbstractContextManager[Sandbox]:
        return FakeSandbox(attempt.workspace, Clock())

    options = {"open_model": open_model, "open_sandbox": open_sandbox} | options
    return run_agent(plan, wait_s=wait_s, say=lambda _text: None, **options)


def numbers(plan: RunPlan) -> list[int]:
    """Attempts that exist."""
    return [attempt.number for attempt in list_attempts(plan.folder)]
