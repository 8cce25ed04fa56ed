"""Scripted agents: a YAML list of assistant turns with tool calls, for the demo, for tests and for baselines.

Baselines are reference rows without a model: ``config/baselines/<track>/<name>.yaml`` works for every card of its
track. ``{card}`` in its code becomes a Python string with JSON: what the brief tells about files, targets and settings
of the task. The code runs like any agent's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from automedbench.agent.models.model import PreparedModel, Reply, ToolCall
from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError
from automedbench.base.records import Language, Model
from automedbench.base.yamlfile import load_yaml, validate
from automedbench.campaign.agents import Agent


class CodeStep(Model):
    """``{tool: execute_code, language: python, code: …}``"""

    tool: Literal["execute_code"]
    language: Language
    code: str = Field(min_length=1)


class SubmitStep(Model):
    """``{tool: submit_results, summary: …}``"""

    tool: Literal["submit_results"]
    summary: str = Field("", max_length=500)


Step = Annotated[CodeStep | SubmitStep, Field(discriminator="tool")]


class ScriptedTurn(Model):
    """One assistant turn: text, calls, or both."""

    content: str = ""
    calls: list[Step] = Field(default_factory=list)


class Script(Model):
    """All turns of a scripted agent."""

    turns: list[ScriptedTurn] = Field(min_length=1)


def scripted_model(turns: Sequence[ScriptedTurn], name: str = "scripted") -> PreparedModel:
    """Answers with the turns of a script, one per request."""
    return PreparedModel(scripted_reply(turns, number, name) for number in itertools.count(1))


def scripted_reply(turns: Sequence[ScriptedTurn], number: int, name: str) -> Reply:
    """Turn ``number`` (from 1) as a reply; after the last turn the text 'done'."""
    if number > len(turns):
        return Reply("done", model=name)
    turn = turns[number - 1]
    calls = tuple(_make_call(step, number, index) for index, step in enumerate(turn.calls, start=1))
    return Reply(turn.content, calls, "tool_calls" if calls else "stop", model=name)


def load_script(path: Path) -> PreparedModel:
    """Read a script as a model; raises ConfigError with every problem, one line each."""
    return scripted_model(load_turns(path), path.stem)


def load_turns(path: Path) -> list[ScriptedTurn]:
    """Read a script; raises ConfigError with every problem, one line each."""
    data = load_yaml(path)
    if not isinstance(data, list):
        raise ConfigError([f"{path}: a script is a list of turns, '- content: …' or '- calls: […]'"])
    return validate({"turns": data}, Script, str(path)).turns


def _make_call(step: Step, turn: int, index: int) -> ToolCall:
    arguments = step.model_dump(mode="json", exclude={"tool"})
    return ToolCall(f"call_{turn}_{index}", step.tool, json.dumps(arguments, ensure_ascii=False))


PLACEHOLDER = "{card}"


def load_baseline(agent: Agent, card: TaskCard) -> PreparedModel:
    """The turns of a baseline, filled in for one task; raises ConfigError when the track has no such baseline."""
    agent = agent.for_task(card)
    facts = repr(json.dumps(card_facts(card), sort_keys=True))
    turns = [_fill_card(turn, facts) for turn in load_turns(Path(agent.script or ""))]
    return scripted_model(turns, f"baseline-{agent.baseline}")


def card_facts(card: TaskCard) -> dict[str, object]:
    """Facts that a baseline may use: only those that every agent's brief states."""
    return {
        "track": card.track,
        "modality": card.modality,
        "inputs": [entry.file for entry in card.inputs],
        "outputs": [output.path for output in card.outputs if not output.optional],
        "targets": [{"id": target.id, "name": target.name} for target in card.targets],
        "settings": card.metric.settings,
        "degradation": card.staging.degradation,
    }


def _fill_card(turn: ScriptedTurn, facts: str) -> ScriptedTurn:
    calls = [
        step.model_copy(update={"code": step.code.replace(PLACEHOLDER, facts)}) if isinstance(step, CodeStep) else step
        for step in turn.calls
    ]
    return turn.model_copy(update={"calls": calls})
