"""Write scored runs as trajectories in the Agent Trajectory Interchange Format (ATIF), one JSON file per run.

Format: ATIF-v1.6, as Harbor and trainers of agents read it; checked with the models of Harbor 0.26.0. Code calls are
tool calls of the step in which the agent made them, what they printed is its observation; scores stand in `extra`.

``python tools/export_atif.py --out trajectories``
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exported_runs import (
    TOOL,
    LoggedRun,
    MessageWithCalls,
    arguments,
    call_id,
    messages_by_turn,
    parse_selection,
    read_logged_run,
    render_result,
    scored_runs,
)

from automedbench.base.console import run_script
from automedbench.base.files import write_json
from automedbench.base.plaintable import counted
from automedbench.base.records import Message
from automedbench.commands._output import show

VERSION = "ATIF-v1.6"
_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}


def main(words: list[str]) -> None:
    """Write the trajectories and say how many."""
    options = parse_selection(words, __doc__, "trajectories")
    written = []
    for folder in scored_runs(options):
        run = read_logged_run(folder)
        written.append(options.out / f"{run.score.run.path.replace('/', '_')}.json")
        write_json(written[-1], trajectory(run))
    note = f"{options.out}: trajectories of {counted(len(written), 'run')}"
    show(options, {"runs": len(written), "files": written}, [note])


def trajectory(run: LoggedRun) -> dict[str, Any]:
    """One run."""
    score, record = run.score, run.run
    steps = [step for turn in messages_by_turn(run.conversation) for step in _steps(turn)]
    steps = steps or [{"source": "system", "message": record.detail or record.outcome}]
    tokens = score.totals.tokens
    return {
        "schema_version": VERSION,
        "session_id": run.identity,
        "agent": {
            "name": score.run.agent,
            "version": score.recipe.code_version,
            "model_name": score.model,
            "extra": {"provider": record.provider, "digest": record.agent_digest},
        },
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": {
            "total_prompt_tokens": tokens.prompt,
            "total_completion_tokens": tokens.completion,
            "total_cached_tokens": tokens.cached,
            "total_cost_usd": None if score.totals.cost_usd is None else float(score.totals.cost_usd),
            "total_steps": len(steps),
            "extra": {"wall_s": score.totals.wall_s, "turns": score.totals.turns, "tokens_estimated": tokens.estimated},
        },
        "extra": {
            "run": score.run.path,
            "track": score.track,
            "started_at": record.started_at.isoformat(),
            "outcome": score.outcome,
            "scores": score.scores.model_dump(),
            "medal": score.medal,
            "disqualified": score.disqualified,
            "effect": score.effect.model_dump(mode="json"),
            "error_codes": [code.model_dump(mode="json") for code in score.error_codes],
            "recipe": score.recipe.model_dump(mode="json"),
        },
    }


def _steps(turn: MessageWithCalls) -> Iterator[dict[str, Any]]:
    """The message with its calls; answers of other tools are observations of an agent's step, else own steps."""
    message = turn.message
    step: dict[str, Any] = {"source": _SOURCES[message.role], "message": message.content, "extra": _extra(message)}
    if message.role != "assistant":
        if message.content:
            yield step
        yield from ({"source": "system", "message": result.content, "extra": _extra(result)} for result in turn.results)
        return
    results: list[dict[str, Any]] = [
        {"source_call_id": call_id(call), "content": render_result(call)} for call in turn.calls
    ]
    results += [{"content": result.content} for result in turn.results]
    if message.reasoning:
        step["reasoning_content"] = message.reasoning
    if turn.calls:
        step["tool_calls"] = [
            {"tool_call_id": call_id(call), "function_name": TOOL, "arguments": arguments(call)} for call in turn.calls
        ]
    if results:
        step["observation"] = {"results": results}
    yield step


def _extra(message: Message) -> dict[str, Any]:
    return {"turn": message.turn} | ({"by_program": True} if message.by_program else {})


if __name__ == "__main__":
    run_script(main)
