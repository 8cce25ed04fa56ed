"""Skills and MCP servers of variants: what a run opened or called of them, by which call and in which stage."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from automedbench.base.errors import MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import Conversation, HelpUse, ScoreRecord
from automedbench.leaderboard.entries import BoardEntry, list_scores

PLACE = "/skills/"


def read_skill_use(results: Path, entries: Iterable[BoardEntry]) -> dict[str, list[HelpUse]]:
    """Run → what it used of its skills or MCP servers, of the scored runs that had some and where it is known."""
    found = {}
    for score in list_scores(entries):
        if kind := _given_kind(score):
            try:
                conversation = read_record(results / "runs" / score.run.path / "conversation.json", Conversation)
            except MissingDataError:
                continue
            if kind == "mcp":
                found[score.run.path] = [use for use in conversation.help_used if use.file.startswith("mcp__")]
            elif any(call.processes is not None for call in conversation.calls):
                found[score.run.path] = _list_reads(conversation, score)
    return found


def _given_kind(score: ScoreRecord) -> str:
    """``skills`` or ``mcp`` where the run's agent is a variant with them."""
    treatment = score.recipe.agent_settings.get("treatment")
    kinds = treatment if isinstance(treatment, dict) else {}
    return next((kind for kind in ("skills", "mcp") if kind in kinds), "")


def _list_reads(conversation: Conversation, score: ScoreRecord) -> list[HelpUse]:
    """Files in the order of the calls. What a program opens at its start, when it lists all skills, is no use.

    It may show its model a text that it keeps from there: then its own tool call says so, and the trace that there is
    such a file among the skills.
    """
    started = 1 if score.recipe.agent_settings.get("provider") == "command" else 0
    opened = [
        HelpUse(file=path.removeprefix(PLACE), call=call.call, stage=call.stage)
        for call in conversation.calls
        for process in call.processes or ()
        for path in process.reads
        if path.startswith(PLACE)
    ]
    files = {read.file for read in opened}
    named = [use for use in conversation.help_used if use.file in files]
    found = [*(read for read in opened if read.call > started), *named]
    return sorted(dict.fromkeys(found), key=lambda read: read.call)
