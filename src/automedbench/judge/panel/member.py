"""One member of a panel: asks its model about one stage until the answer is valid, and keeps what was answered.

The cache lies outside every run, so that no agent can write into it. An answer is paid once, also when a judgement is
interrupted, and one that is taken from the cache is read and checked as strictly as a fresh one.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import Field

from automedbench.base.closing import Closing
from automedbench.base.endpoint.client import Client, RequestGivenUp
from automedbench.base.endpoint.replies import Completion, read_completion
from automedbench.base.endpoint.usage import Billed, tokens_in
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import known_record, sha256_bytes, write_record
from automedbench.base.keys import read_keys, shown_place
from automedbench.base.masking import masked, secret_forms
from automedbench.base.records import Criterion, Effect, ErrorCode, JudgedStage, Model, Tier, Tokens
from automedbench.campaign.agents import JudgeModel
from automedbench.judge.evidence import RunEvidence
from automedbench.judge.panel.structured import JudgeReply, answer_schema, confirm_weak, read_reply
from automedbench.judge.picture import TOKENS as PICTURE_TOKENS
from automedbench.judge.prompt import PROMPT_VERSION, repair_messages, stage_messages, weak_messages
from automedbench.judge.record import History, read_history
from automedbench.judge.rubric import Rubric, RubricCriterion
from automedbench.judge.selection import MIN_ROOM, ShownEvidence, estimate_tokens, select

ATTEMPTS = 5
"""Fewer than an agent gets: answers are kept, so a job that fails loses nothing."""


class JudgeText(NamedTuple):
    """Reply of a judge: its text, or the reason for none, and the cost of all attempts."""

    text: str
    problem: str | None
    spent: tuple[Billed, ...] = ()

    @property
    def tokens(self) -> Tokens:
        """Tokens of all attempts."""
        return tokens_in(self.spent)


class WindowExceeded(Exception):
    """The endpoint says that the request does not fit the model's window."""


class NotAccepted(InfrastructureError):
    """The endpoint refuses the request's form (status 400): a wrong setting, or something that the run holds."""


class JudgeEndpoint(Closing):
    """The chat endpoint of a judge of stages or answers; key and connection are made ready with the first request.

    A context manager that closes its connections.
    """

    def __init__(
        self,
        name: str,
        judge: JudgeModel,
        shared: Path | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.name, self.judge, self._shared = name, judge, shared
        self._environment, self._sleep, self._jitter = environment, sleep, jitter
        self._client: Client | None = None
        self._keys: tuple[str, ...] = ()

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(self, messages: Sequence[dict[str, Any]], schema: Mapping[str, Any]) -> JudgeText:
        """One answer; transient faults are repeated.

        Raises WindowExceeded, ConfigError for a missing key, and InfrastructureError when the endpoint fails for good.
        """
        try:
            found = self._opened().ask(self._body(messages, schema), read_completion)
        except RequestGivenUp as failure:
            return self._refused(failure)
        usage = found.value.usage or _estimated(messages, found.value.text)
        spent = (*found.spent, Billed(usage, found.value.service_tier))
        problem = find_problem(found.value)
        return JudgeText(self._masked(found.value.text), problem and self._masked(problem), spent)

    def _masked(self, text: str) -> str:
        """Without the key, which an endpoint may echo and which must stand in no record or cache."""
        return masked(text, secret_forms(self._keys))

    def _refused(self, failure: RequestGivenUp) -> JudgeText:
        kind = failure.fault.kind
        if kind == "context_overflow":
            raise WindowExceeded from None
        if kind == "content_policy":
            return JudgeText("", "the endpoint refuses the request for its content", failure.spent)
        status = f"status {failure.fault.status}" if failure.fault.status else "no answer"
        remedy = "Answers so far are kept in the cache; run the same command again when the endpoint works."
        if kind == "auth":
            source = self.judge.api_key_env or self.judge.api_key_file
            remedy = f"Check the key in {source} and the credit of its account, then run the same command again."
        if kind == "bad_request":
            remedy = "Check its settings: model, how an answer is asked for, images, temperature and extra_body."
        raise (NotAccepted if kind == "bad_request" else InfrastructureError)(
            f"The judge {self.name} at {shown_place(self.judge.address)} failed ({kind}, {status}): {failure.shown}\n"
            f"{remedy}"
        ) from None

    def _opened(self) -> Client:
        if self._client is None:
            judge = self.judge
            try:
                keys = read_keys(judge, self._environment)
            except InfrastructureError as error:
                raise ConfigError([f"judges.{self.name}: {' '.join(str(error).split())}"]) from error
            self._keys = keys
            target = judge.target(judge.model, keys)
            self._client = Client(
                target, shared=self._shared, max_attempts=ATTEMPTS, sleep=self._sleep, jitter=self._jitter
            )
        return self._client

    def _body(self, messages: Sequence[dict[str, Any]], schema: Mapping[str, Any]) -> dict[str, Any]:
        judge = self.judge
        body: dict[str, Any] = {"model": judge.model, "messages": list(messages)}
        if "max_completion_tokens" not in judge.extra_body:
            body["max_tokens"] = judge.max_tokens
        if judge.temperature is not None:
            body["temperature"] = judge.temperature
        return body | response_format(judge, schema) | judge.extra_body


def response_format(judge: JudgeModel, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The field of a request that asks for the form of an answer; none for plain text."""
    if judge.structured == "text":
        return {}
    form: dict[str, Any] = {"type": judge.structured}
    if judge.structured == "json_schema":
        form["json_schema"] = {"name": "judgement", "strict": True, "schema": dict(schema)}
    return {"response_format": form}


def find_problem(completion: Completion) -> str | None:
    """Reason why a completion is no valid answer, if it is none."""
    refusal = completion.message.get("refusal")
    if isinstance(refusal, str) and refusal.strip():
        return f"the judge refused: {' '.join(refusal.split())[:200]}"
    if completion.finish_reason == "length":
        return "the answer was cut off at max_tokens"
    if completion.finish_reason == "content_filter":
        return "the answer was stopped by a content filter"
    return None if completion.text.strip() else "the answer is empty"


def _estimated(messages: Sequence[dict[str, Any]], answer: str) -> Tokens:
    """Characters / 4 where the provider does not tell."""
    characters = sum(len(text) for message in messages for text in _texts(message["content"]))
    return Tokens(prompt=characters // 4, completion=len(answer) // 4, estimated=True)


def _texts(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [part["text"] for part in content if part.get("type") == "text"]


class CachedAnswer(Model):
    """One file of the cache: a valid answer of a judge about one stage, or its second word about weak quotes."""

    schema_: Literal["automedbench/judge-answer/1"] = Field("automedbench/judge-answer/1", alias="schema")
    judge_digest: str
    prompt_version: int
    stage: JudgedStage
    repeat: int
    answer: str = Field(description="the judge's text")
    tokens: Tokens = Field(Tokens(), description="what it cost when it was given")


def require_outside(cache: Path, of_run: Path) -> None:
    """Raises ConfigError when the cache lies in the folder that holds this file or folder of a run."""
    run = of_run.resolve().parent
    if run in (cache.resolve(), *cache.resolve().parents):
        raise ConfigError([f"--cache {cache}: lies inside the run {run}; give a folder outside every run"])


AnswerT = TypeVar("AnswerT", bound=Model)


class AnswerCache(Generic[AnswerT]):
    """A folder of answers of one kind; ``folder`` None keeps nothing."""

    def __init__(self, folder: Path | None, kind: type[AnswerT]) -> None:
        self.folder, self._kind = folder, kind

    def get(self, key: str) -> AnswerT | None:
        """The answer under a key; a damaged file is as good as none."""
        return None if self.folder is None else known_record(self._path(key), self._kind)

    def put(self, key: str, answer: AnswerT) -> None:
        """Keep a valid answer."""
        if self.folder is not None:
            write_record(self._path(key), answer)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.json"


TRIES = 3
"""How often a judge is asked about a stage before its answer counts as invalid (the first and two more)."""
SHRINKS = 5
"""How often the evidence is made smaller when the endpoint says that it exceeds the model's window."""
SHRINK = 0.6
MARGIN = 0.05
"""Share of the window that is kept free: tokens are estimated."""


NOTHING = RunEvidence(brief="", plan=None, has_plot=False, notes=[], calls=[], files={}, n_cases=0)


@dataclass(frozen=True)
class JudgedRun:
    """One run as all members judge it."""

    evidence: RunEvidence
    rubric: Rubric
    tier: Tier
    task: str
    picture: bytes | None = None
    """plan.png made small; only judges of S1 that take images are shown it."""

    gpu: bool = True
    """Whether the run had one; without one, criteria that need one are not asked."""

    effect: Effect = field(default_factory=Effect)
    """Measured effect of the case on the outputs."""

    @cached_property
    def history(self) -> History:
        """History of its calls."""
        return read_history(self.evidence, self.rubric)

    @property
    def blank(self) -> JudgedRun:
        """A run that did nothing, judged in the same way."""
        return replace(self, evidence=NOTHING, picture=None, effect=Effect())


@dataclass(frozen=True)
class Question:
    """One stage of one run."""

    run: JudgedRun
    stage: JudgedStage

    @property
    def criteria(self) -> list[RubricCriterion]:
        """Criteria of the stage that apply to the run."""
        rules = [rule for rule in self.run.rubric.judged(self.run.tier) if rule.stage == self.stage]
        return [rule for rule in rules if not (rule.gpu and not self.run.gpu)]


@dataclass
class Bill:
    """Usage of a judge's requests."""

    requests: int = 0
    cached: int = 0
    spent: list[Billed] = field(default_factory=list)
    wasted: list[Billed] = field(default_factory=list)
    """The part of ``spent`` that went into invalid answers."""


@dataclass(frozen=True)
class StageAnswer:
    """Answer of a member about one stage; ``problem`` says why the answer is invalid, None when it is valid."""

    criteria: list[Criterion] = field(default_factory=list)
    codes: list[ErrorCode] = field(default_factory=list)
    problem: str | None = None
    left_out: str = ""
    saw_plot: bool = False


class Member:
    """A judge of the judges file with its endpoint and the cache of its answers."""

    def __init__(self, name: str, judge: JudgeModel, endpoint: JudgeEndpoint, cache: AnswerCache[CachedAnswer]) -> None:
        self.name, self.judge = name, judge
        self._endpoint, self._cache, self._digest = endpoint, cache, judge.digest()

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()

    def messages(self, question: Question, room: int | None = None) -> tuple[list[dict[str, Any]], ShownEvidence]:
        """Messages for this judge with the evidence; ``room``: tokens for it, default what its window holds.

        Raises ConfigError when the window is too small for any evidence, or for the calls that the stage rests on.
        """
        picture = question.run.picture if self.judge.images and question.stage == "S1" else None
        own = self._room(question, picture is not None) if room is None else room
        run = question.run
        evidence = select(run.evidence, run.rubric, question.stage, own, run.history, run.effect)
        if room is None and evidence.needed > evidence.spare:
            missing = int((evidence.needed - evidence.spare) / (1 - MARGIN)) + 1
            spare = f"{self.judge.context_tokens} leaves {max(0, evidence.spare)} tokens for calls"
            raise ConfigError(
                [
                    f"judges.{self.name}.context_tokens: {spare}, and those that {question.stage} of "
                    f"{question.run.task} rests on need {evidence.needed}; "
                    f"nothing was asked. It must be at least {self.judge.context_tokens + missing}"
                ]
            )
        return self._rendered(question, evidence, picture), evidence

    def ask(self, question: Question, repeat: int, bill: Bill) -> StageAnswer:
        """The answer about one stage: from the cache, or asked at most three times until it is valid.

        Verdicts with a weak quote are asked about once more, and are not earned where it stays weak.
        What does not fit the endpoint's window, or is not accepted, however little of it is shown has no valid answer.
        Raises ConfigError for a missing key or a window that is too small, InfrastructureError when the endpoint fails.
        """
        room: int | None = None
        problem = ""
        for attempt in range(SHRINKS):
            messages, evidence = self.messages(question, room)
            try:
                return self._answer(question, messages, evidence, repeat, bill)
            except (WindowExceeded, NotAccepted) as error:
                problem = "says that the request does not fit its window"
                if isinstance(error, NotAccepted):
                    if question.run.evidence is NOTHING:
                        raise
                    # Raises when it accepts nothing: then its settings are the cause, and not what the run holds.
                    self.ask(Question(question.run.blank, question.stage), repeat, bill)
                    problem = "does not accept the request"
                bill.requests += 1
                used = self._room(question, False) if room is None else room
                # An agent's text may have more tokens than any estimate: the last attempt shows as little as can be.
                room = MIN_ROOM if attempt == SHRINKS - 2 else max(MIN_ROOM, int(used * SHRINK))
        if question.run.evidence is NOTHING:
            raise ConfigError(
                [f"judges.{self.name}.context_tokens: the endpoint rejects {self.judge.context_tokens} tokens"]
            )
        return StageAnswer(problem=f"the endpoint {problem}")

    def _answer(
        self, question: Question, messages: list[dict[str, Any]], evidence: ShownEvidence, repeat: int, bill: Bill
    ) -> StageAnswer:
        reply, text = self._valid(question, messages, evidence, repeat, bill, TRIES)
        if not reply.problems and any(item.weak for item in reply.criteria):
            doubts = weak_messages(text, reply.criteria, evidence.links)
            again, _ = self._valid(question, [*messages, *doubts], evidence, repeat, bill, 1)
            reply = confirm_weak(reply, again)
        return StageAnswer(
            criteria=reply.criteria,
            codes=reply.codes,
            problem="; ".join(reply.problems)[:600] or None,
            left_out=evidence.left_out,
            saw_plot=isinstance(messages[-1]["content"], list),
        )

    def _valid(
        self,
        question: Question,
        messages: Sequence[dict[str, Any]],
        evidence: ShownEvidence,
        repeat: int,
        bill: Bill,
        tries: int,
    ) -> tuple[JudgeReply, str]:
        """A valid reply and its text, kept or asked for; where only one try is made, its reply is kept in any case."""
        said = [self._digest, PROMPT_VERSION, list(messages), repeat]
        key = sha256_bytes(json.dumps(said, sort_keys=True).encode())
        known = self._cache.get(key)
        if known is not None:
            reply = read_reply(known.answer, evidence, question.criteria)
            if not reply.problems or tries == 1:
                bill.cached += 1
                return reply, known.answer
        reply, output = JudgeReply([], [], ["was not asked"]), JudgeText("", None)
        repairs: list[dict[str, Any]] = []
        for _ in range(tries):
            output = self._endpoint.ask([*messages, *repairs], answer_schema(question.criteria))
            bill.requests += max(1, len(output.spent))
            bill.spent += output.spent
            problem = output.problem
            reply = JudgeReply([], [], [problem]) if problem else read_reply(output.text, evidence, question.criteria)
            if not reply.problems:
                break
            bill.wasted += output.spent
            repairs = repair_messages(output.text, reply.problems)
        if not reply.problems or tries == 1:
            kept = CachedAnswer(
                judge_digest=self._digest,
                prompt_version=PROMPT_VERSION,
                stage=question.stage,
                repeat=repeat,
                answer="" if output.problem else output.text,
                tokens=output.tokens,
            )
            self._cache.put(key, kept)
        return reply, output.text

    def _room(self, question: Question, has_picture: bool) -> int:
        """Tokens of the window that are left for evidence and brief."""
        blank = select(NOTHING, question.run.rubric, question.stage, MIN_ROOM)
        fixed = sum(estimate_tokens(message["content"]) for message in self._rendered(question, blank, None))
        repair = 2_000  # an invalid answer and its problems come on top
        window = int(self.judge.context_tokens * (1 - MARGIN)) - self.judge.max_tokens
        room = window - fixed - repair - (PICTURE_TOKENS if has_picture else 0)
        if room < MIN_ROOM:
            needed = self.judge.context_tokens + int((MIN_ROOM - room) / (1 - MARGIN)) + 1
            why = f"{self.judge.context_tokens} leaves no room for evidence beside max_tokens {self.judge.max_tokens}"
            raise ConfigError([f"judges.{self.name}.context_tokens: {why}; it must be at least {needed}"])
        return room

    def _rendered(self, question: Question, evidence: ShownEvidence, picture: bytes | None) -> list[dict[str, Any]]:
        run = question.run
        return stage_messages(
            evidence,
            question.criteria,
            stage=question.stage,
            track=run.rubric.track,
            task=run.task,
            tier=run.tier,
            definitions=run.rubric.definitions[question.stage],
            picture=picture,
        )
