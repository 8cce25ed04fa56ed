"""Skills that variants were given: which of their files a run opened, by which call and in which stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from automedbench.base.errors import MissingDataError
from automedbench.base.files import read_record
from automedbench.base.records import Conversation, ScoreRecord, Stage
from automedbench.leaderboard.entries import BoardEntry, list_scores

PLACE = "/skills/"


@dataclass(frozen=True)
class SkillRead:
    """A file of the skills that a call opened, by its path in the folder."""

    file: str
    call: int
    stage: Stage


def read_skill_use(results: Path, entries: Iterable[BoardEntry]) -> dict[str, list[SkillRead]]:
    """Run → what it opened of its skills, of the scored runs that had some and whose processes were traced."""
    found = {}
    for score in list_scores(entries):
        if has_skills(score):
            try:
                conversation = read_record(results / "runs" / score.run.path / "conversation.json", Conversation)
            except MissingDataError:
                continue
            if any(call.processes is not None for call in conversation.calls):
                found[score.run.path] = _list_reads(conversation, score)
    return found


def has_skills(score: ScoreRecord) -> bool:
    """Check whether the run's agent is a variant with skills."""
    treatment = score.recipe.agent_settings.get("treatment")
    return isinstance(treatment, dict) and "skills" in treatment


def _list_reads(conversation: Conversation, score: ScoreRecord) -> list[SkillRead]:
    """Files in the order of the calls. What a program opens at its start, when it lists all skills, is no use.

    It may show its model a text that it keeps from there: then its own tool call says so, and the trace that there is
    such a file among the skills.
    """
    started = 1 if score.recipe.agent_settings.get("provider") == "command" else 0
    opened = [
        SkillRead(path.removeprefix(PLACE), call.call, call.stage)
        for call in conversation.calls
        for process in call.processes or ()
        for path in process.reads
        if path.startswith(PLACE)
    ]
    files = {read.file for read in opened}
    named = [SkillRead(use.name, use.call, use.stage) for use in conversation.help_used if use.name in files]
    found = [*(read for read in opened if read.call > started), *named]
    return sorted(dict.fromkeys(found), key=lambda read: read.call)
