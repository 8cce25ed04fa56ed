"""Baselines: reference rows without a model, as scripted turns that work for every card of their track.

``config/baselines/<track>/<name>.yaml`` has the form of a scripted agent's file. ``{card}`` in its code becomes a
Python string with JSON: what the brief tells about files, targets and settings of the task. The code runs like any
agent's.
"""

from __future__ import annotations

import json
from pathlib import Path

from automedbench.agent.models.scripted import CodeStep, ScriptedModel, ScriptedTurn, load_turns
from automedbench.base.cards import TaskCard
from automedbench.campaign.agents import Agent

PLACEHOLDER = "{card}"


def load_baseline(agent: Agent, card: TaskCard) -> ScriptedModel:
    """The turns of a baseline, filled in for one task; raises ConfigError when the track has no such baseline."""
    agent = agent.for_task(card)
    facts = repr(json.dumps(card_facts(card), sort_keys=True))
    turns = [_filled(turn, facts) for turn in load_turns(Path(agent.script or ""))]
    return ScriptedModel(turns, f"baseline-{agent.baseline}")


def card_facts(card: TaskCard) -> dict[str, object]:
    """What a baseline may know: nothing but what every agent's brief says."""
    return {
        "track": card.track,
        "modality": card.modality,
        "inputs": [entry.file for entry in card.inputs],
        "outputs": [output.path for output in card.outputs if not output.optional],
        "targets": [{"id": target.id, "name": target.name} for target in card.targets],
        "settings": card.metric.settings,
        "degradation": card.staging.degradation,
    }


def _filled(turn: ScriptedTurn, facts: str) -> ScriptedTurn:
    calls = [
        step.model_copy(update={"code": step.code.replace(PLACEHOLDER, facts)}) if isinstance(step, CodeStep) else step
        for step in turn.calls
    ]
    return turn.model_copy(update={"calls": calls})
