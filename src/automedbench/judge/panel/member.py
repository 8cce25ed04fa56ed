"""One member of a panel: asks its model about one stage until the answer is valid, and keeps what was answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from automedbench.base.errors import ConfigError
from automedbench.base.records import Criterion, ErrorCode, JudgedStage, Tier, Tokens
from automedbench.campaign.agents import JudgeModel
from automedbench.judge.evidence import Evidence
from automedbench.judge.panel.cache import AnswerCache, CachedAnswer, answer_key
from automedbench.judge.panel.llm import Said, WindowExceeded
from automedbench.judge.panel.structured import Reply, answer_schema, read_reply
from automedbench.judge.passages import Shown
from automedbench.judge.picture import TOKENS as PICTURE_TOKENS
from automedbench.judge.prompt import PROMPT_VERSION, repair_messages, stage_messages
from automedbench.judge.rubric import Rubric, RubricCriterion
from automedbench.judge.selection import MIN_ROOM, read_events, select, tokens_of
from automedbench.judge.trace import Event

TRIES = 3
"""How often a judge is asked about a stage before its answer counts as invalid (the first and two more)."""
SHRINKS = 3
"""How often the evidence is made smaller when the endpoint says that it exceeds the model's window."""
SHRINK = 0.6
MARGIN = 0.05
"""Share of the window that is kept free: tokens are estimated."""


NOTHING = Evidence(brief="", plan=None, has_plot=False, notes=[], calls=[], files={})


class Asks(Protocol):
    """A judge's endpoint; see ``llm.JudgeEndpoint``."""

    def ask(self, messages: Sequence[dict[str, Any]], schema: dict[str, Any]) -> Said:
        """One answer; raises WindowExceeded, ConfigError or InfrastructureError."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True)
class Matter:
    """One run as all members are asked about it."""

    evidence: Evidence
    rubric: Rubric
    tier: Tier
    task: str
    picture: bytes | None = None
    """plan.png made small; only judges of S1 that take images are shown it."""

    @cached_property
    def events(self) -> list[Event]:
        """What its calls did."""
        return read_events(self.evidence, self.rubric)


@dataclass(frozen=True)
class Question:
    """One stage of one run."""

    matter: Matter
    stage: JudgedStage

    @property
    def criteria(self) -> list[RubricCriterion]:
        """The criteria that are asked."""
        return [rule for rule in self.matter.rubric.judged(self.matter.tier) if rule.stage == self.stage]

    def shown(self, room: int) -> Shown:
        """What is shown in so many tokens."""
        return select(self.matter.evidence, self.matter.rubric, self.stage, room, self.matter.events)


@dataclass
class Bill:
    """What asking used."""

    requests: int = 0
    cached: int = 0
    tokens: list[Tokens] = field(default_factory=list)


@dataclass(frozen=True)
class StageAnswer:
    """What a member answered about one stage; ``problem`` says why the answer is invalid, None when it is valid."""

    criteria: list[Criterion]
    codes: list[ErrorCode]
    problem: str | None
    left_out: str
    saw_plot: bool


class Member:
    """A judge of the judges file with its endpoint and the cache of its answers."""

    def __init__(self, name: str, judge: JudgeModel, endpoint: Asks, cache: AnswerCache) -> None:
        self.name, self.judge = name, judge
        self._endpoint, self._cache, self._digest = endpoint, cache, judge.digest()

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()

    def messages(self, question: Question, room: int | None = None) -> tuple[list[dict[str, Any]], Shown]:
        """What this judge is sent and shown; ``room``: tokens for the evidence, default what its window holds.

        Raises ConfigError when the window is too small for any evidence.
        """
        picture = question.matter.picture if self.judge.images and question.stage == "S1" else None
        room = self._room(question, picture is not None) if room is None else room
        shown = question.shown(room)
        return self._rendered(question, shown, picture), shown

    def ask(self, question: Question, repeat: int, bill: Bill) -> StageAnswer:
        """The answer about one stage: from the cache, or asked at most three times until it is valid.

        Raises ConfigError for a missing key or a window that is too small, InfrastructureError when the endpoint fails.
        """
        room: int | None = None
        for _ in range(SHRINKS):
            messages, shown = self.messages(question, room)
            try:
                return self._answer(question, messages, shown, repeat, bill)
            except WindowExceeded:
                bill.requests += 1
                used = self._room(question, False) if room is None else room
                room = max(MIN_ROOM, int(used * SHRINK))
        raise ConfigError(
            [f"judges.{self.name}.context_tokens: the endpoint says that {self.judge.context_tokens} is too much"]
        )

    def _answer(
        self, question: Question, messages: list[dict[str, Any]], shown: Shown, repeat: int, bill: Bill
    ) -> StageAnswer:
        key = answer_key(self._digest, messages, repeat)
        known = self._cache.get(key)
        if known is not None:
            reply = read_reply(known.answer, shown, question.criteria)
            if not reply.problems:
                bill.cached += 1
                return _stage_answer(reply, shown, messages)
        reply = self._asked(question, messages, shown, key, repeat, bill)
        return _stage_answer(reply, shown, messages)

    def _asked(
        self, question: Question, messages: list[dict[str, Any]], shown: Shown, key: str, repeat: int, bill: Bill
    ) -> Reply:
        criteria, schema = question.criteria, answer_schema(question.criteria)
        reply = Reply([], [], ["was not asked"])
        repairs: list[dict[str, Any]] = []
        for _ in range(TRIES):
            said = self._endpoint.ask([*messages, *repairs], schema)
            bill.requests += 1
            bill.tokens.append(said.tokens)
            reply = Reply([], [], [said.problem]) if said.problem else read_reply(said.text, shown, criteria)
            if not reply.problems:
                answer = CachedAnswer(
                    judge_digest=self._digest,
                    prompt_version=PROMPT_VERSION,
                    stage=question.stage,
                    repeat=repeat,
                    answer=said.text,
                    tokens=said.tokens,
                )
                self._cache.put(key, answer)
                return reply
            repairs = repair_messages(said.text, reply.problems)
        return reply

    def _room(self, question: Question, has_picture: bool) -> int:
        """Tokens of the window that are left for evidence and brief."""
        blank = select(NOTHING, question.matter.rubric, question.stage, MIN_ROOM)
        fixed = sum(tokens_of(message["content"]) for message in self._rendered(question, blank, None))
        repair = 2_000  # an invalid answer and its problems come on top
        window = int(self.judge.context_tokens * (1 - MARGIN)) - self.judge.max_tokens
        room = window - fixed - repair - (PICTURE_TOKENS if has_picture else 0)
        if room < MIN_ROOM:
            needed = self.judge.context_tokens + int((MIN_ROOM - room) / (1 - MARGIN)) + 1
            why = f"{self.judge.context_tokens} leaves no room for evidence beside max_tokens {self.judge.max_tokens}"
            raise ConfigError([f"judges.{self.name}.context_tokens: {why}; it must be at least {needed}"])
        return room

    def _rendered(self, question: Question, shown: Shown, picture: bytes | None) -> list[dict[str, Any]]:
        matter = question.matter
        return stage_messages(
            shown,
            question.criteria,
            stage=question.stage,
            track=matter.rubric.track,
            task=matter.task,
            tier=matter.tier,
            picture=picture,
        )


def _stage_answer(reply: Reply, shown: Shown, messages: Sequence[dict[str, Any]]) -> StageAnswer:
    return StageAnswer(
        criteria=reply.criteria,
        codes=reply.codes,
        problem="; ".join(reply.problems)[:600] or None,
        left_out=shown.left_out,
        saw_plot=isinstance(messages[-1]["content"], list),
    )
