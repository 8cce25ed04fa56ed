"""Loading a campaign to plan it: everything that could stop it is found now, with the file that it stands in."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.campaign.load import Campaign, load_campaign
from automedbench.planning.configfiles import name_files
from automedbench.planning.inputs import judges_answers
from automedbench.tracks import track_settings


def plan(config: dict[str, Any], configfiles: Sequence[str | Path]) -> Campaign:
    """The campaign of a merged configuration; raises ConfigError with every problem of config, agents and cards."""
    try:
        campaign = load_campaign(config)
    except ConfigError as error:
        raise ConfigError(name_files(error.problems, config, list(map(str, configfiles)))) from error
    if problems := [*_wrong_metrics(campaign)] or [*_missing_judge(campaign)]:
        raise ConfigError(problems)
    return campaign


def plan_thousands(config: dict[str, Any], configfiles: Sequence[str | Path]) -> Campaign:
    """``plan`` for a process that then plans every step of the campaign.

    That allocates millions of objects which live until the end: scanning them for garbage again and again would be a
    quarter of the planning time.
    """
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    return plan(config, configfiles)


def _wrong_metrics(campaign: Campaign) -> list[str]:
    """What the tracks say against the metric settings of their cards."""
    problems: list[str] = []
    for task, card in campaign.cards.items():
        try:
            track_settings(card)
        except ConfigError as error:
            problems += [f"{campaign.card_paths[task]}: {each.removeprefix(f'{task}: ')}" for each in error.problems]
    return problems


def _missing_judge(campaign: Campaign) -> list[str]:
    """Tasks that are scored by a model when there is none."""
    return [
        f"config: answer_judge: is missing, but '{task}' is scored by one (scoring: judge in its card)"
        for task in ([] if campaign.config.answer_judge else campaign.tasks)
        if judges_answers(campaign.cards[task])
    ]
