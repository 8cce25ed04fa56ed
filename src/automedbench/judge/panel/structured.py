"""The form of a judge's answer about one stage: the schema that is asked for, and the strict reading of what comes.

What is not exactly an answer is a list of problems, never a number: prose, two answers in one text, wrong ids,
verdicts between the levels, NaN, keys given twice, quotes that stand nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, create_model

from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CodeName, Criterion, ErrorCode, Stage
from automedbench.base.untrusted import parse_json, shown
from automedbench.judge.evidence import one_line
from automedbench.judge.rubric import RubricCriterion
from automedbench.judge.selection import ShownEvidence

MAX_REPLY = 200_000
MAX_QUOTE, MAX_REASON, MAX_CODE_EVIDENCE = 600, 1_000, 300
MAX_CODES = 20
_THOUGHT = "</think>"


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class VerdictAnswer(_Strict):
    """Verdict of a judge on one criterion."""

    reason: str = Field(description="one or two sentences: what decides")
    quote: str = Field(description="copied word for word from one fenced text; empty when the verdict is 0")
    turn: int | None = Field(description="turn of the quoted text; null for plan, file list and picture")
    verdict: Annotated[float, Field(allow_inf_nan=False)]


class CodeAnswer(_Strict):
    """An error code that a judge assigns."""

    code: CodeName
    stage: Stage = Field(description="stage in which the error arose")
    reason: str
    quote: str = Field(description="copied word for word: the line that shows it")
    turn: int | None


class StructuredStage(_Strict):
    """Base of the answers about one stage; ``criteria`` has one field per criterion that is asked."""

    criteria: Any
    error_codes: list[CodeAnswer] = Field(default_factory=list)


@dataclass(frozen=True)
class JudgeReply:
    """A reading of a judge's text; ``problems`` is empty for a valid answer. ``criteria`` are those it could read."""

    criteria: list[Criterion]
    codes: list[ErrorCode]
    problems: list[str]


def answer_model(criteria: Sequence[RubricCriterion]) -> type[StructuredStage]:
    """The model of an answer that gives a verdict on every one of ``criteria``, and on nothing else."""
    fields: dict[str, Any] = {item.id: (_verdict_model(item), Field(description=item.title)) for item in criteria}
    verdicts = create_model("Criteria", __base__=_Strict, **fields)
    return create_model("Answer", __base__=StructuredStage, criteria=(verdicts, ...))


def answer_schema(criteria: Sequence[RubricCriterion]) -> dict[str, Any]:
    """JSON Schema of an answer as strict structured output takes it: every property required, no other allowed."""
    schema = answer_model(criteria).model_json_schema()
    closed: dict[str, Any] = _closed(schema, schema.get("$defs", {}))
    return closed


def read_reply(text: str, shown_to_judge: ShownEvidence, criteria: Sequence[RubricCriterion]) -> JudgeReply:
    """Read a judge's text and check every quote against what this judge was shown; never raises.

    Error codes without a quote that exists are dropped: they change no score.
    """
    value, problem = find_answer(text)
    if value is None:
        return JudgeReply([], [], [problem])
    try:
        answer = answer_model(criteria).model_validate(value)
    except ValidationError as error:
        problems = [
            f"{'.'.join(shown(str(part)).strip(chr(39)) for part in item['loc']) or 'answer'}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)[:20]
        ]
        return JudgeReply([], [], problems)
    except RecursionError:
        return JudgeReply([], [], ["the answer is nested too deeply"])
    found, unproven_quotes = [], []
    for rule in criteria:
        criterion, unproven = _checked(rule, getattr(answer.criteria, rule.id), shown_to_judge)
        found.append(criterion)
        unproven_quotes += [f"{rule.id}: {unproven}"] if unproven else []
    codes = [code for item in answer.error_codes[:MAX_CODES] if (code := _code(item, shown_to_judge))]
    return JudgeReply(found, codes, unproven_quotes)


def confirm_weak(first: JudgeReply, again: JudgeReply) -> JudgeReply:
    """The first reply, with what the second says of weak verdicts; those that stay weak are not earned."""
    said = {} if again.problems else {item.id: item for item in again.criteria}
    criteria = [_confirmed(item, said.get(item.id)) if item.weak else item for item in first.criteria]
    return replace(first, criteria=criteria)


def _confirmed(weak: Criterion, again: Criterion | None) -> Criterion:
    if again is not None and not again.weak:
        return again
    why = f"0: asked twice, no quote from a call that bears on this; judged {weak.verdict:g}: {weak.reason}"
    return weak.model_copy(update={"verdict": 0.0, "reason": why[:MAX_REASON]})


def find_answer(text: str) -> tuple[dict[str, Any] | None, str]:
    """The one JSON object in a text, from its first brace to its last, or None and why there is none.

    Two objects are none: one of them may be quoted from the agent.
    """
    if not text.strip():
        return None, "the answer is empty"
    if len(text) > MAX_REPLY:
        return None, f"the answer has {len(text):,} characters; {MAX_REPLY:,} are read"
    text = text.rpartition(_THOUGHT)[2]
    begin, end = text.find("{"), text.rfind("}")
    if not 0 <= begin < end:
        return None, "the answer contains no JSON object"
    try:
        return dict(parse_json(text[begin : end + 1].encode("utf-8", "replace"))), ""
    except InvalidSubmission as error:
        return None, f"the answer {error}"


def _verdict_model(rule: RubricCriterion) -> Any:
    levels = sorted(rule.values)

    def one_of(value: float) -> float:
        if value not in levels:
            raise ValueError(f"verdict {value:g} is none of {', '.join(f'{level:g}' for level in levels)}")
        return value

    schema = {"type": "number", "enum": levels}
    verdict = Annotated[float, Field(allow_inf_nan=False), AfterValidator(one_of), WithJsonSchema(schema)]
    return create_model(f"Verdict_{rule.id}", __base__=VerdictAnswer, verdict=(verdict, ...))


def _checked(rule: RubricCriterion, answer: VerdictAnswer, seen: ShownEvidence) -> tuple[Criterion, str | None]:
    found = seen.find_quote(answer.quote, answer.turn)
    proven = found is not None or seen.shows_plot(answer.quote)
    problem = None
    if answer.verdict > 0 and not proven:
        quoted = one_line(answer.quote)[:80]
        turn = "" if answer.turn is None else f" of turn {answer.turn}"
        problem = f"the quote '{quoted}' is in no text{turn} that you were shown, or from the brief or refused code"
    criterion = Criterion(
        id=rule.id,
        stage=rule.stage,
        verdict=answer.verdict,
        valid=problem is None,
        weak=answer.verdict > 0 and found is not None and not seen.is_linked(rule.id, found),
        quote=one_line(answer.quote)[:MAX_QUOTE],
        turn=found.turn if found is not None else None if proven else answer.turn,
        reason=one_line(answer.reason)[:MAX_REASON],
    )
    return criterion, problem


def _code(answer: CodeAnswer, seen: ShownEvidence) -> ErrorCode | None:
    found = seen.find_quote(answer.quote, answer.turn)
    if found is None:
        return None
    evidence = one_line(answer.quote)[:MAX_CODE_EVIDENCE]
    return ErrorCode(code=answer.code, stage=answer.stage, evidence=evidence, source="judge", turn=found.turn)


def _closed(node: Any, parts: dict[str, Any]) -> Any:
    """A schema without references and defaults, which not every endpoint takes in strict output."""
    if isinstance(node, list):
        return [_closed(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        node = parts[node["$ref"].rpartition("/")[2]] | rest
    kept = {key: _closed(value, parts) for key, value in node.items() if key not in ("title", "default", "$defs")}
    if "properties" in node:
        kept["properties"] = {key: _closed(value, parts) for key, value in node["properties"].items()}
        kept |= {"additionalProperties": False, "required": list(kept["properties"])}
    return kept
