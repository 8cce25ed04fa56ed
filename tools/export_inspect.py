"""Write scored runs as logs of Inspect AI, one JSON file per agent, task and tier, for `inspect view`.

``python tools/export_inspect.py --out logs/inspect``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from exported_runs import (
    TOOL,
    LoggedRun,
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
from automedbench.base.records import CodeCall, Conversation, Message, Tokens
from automedbench.commands._output import show


def main(words: list[str]) -> None:
    """Write the logs and say how many."""
    options = parse_selection(words, __doc__, "logs")
    folders = scored_runs(options)
    cells = [list(found) for _, found in groupby(folders, key=lambda folder: folder.parent)]
    written = []
    for cell in cells:
        runs = [read_logged_run(folder) for folder in cell]
        written.append(options.out / log_name(runs))
        write_json(written[-1], eval_log(runs))
    lines = [
        f"{counted(len(cells), 'log')} of {counted(len(folders), 'run')} in {options.out}",
        f"To read them: inspect view --log-dir {options.out}",
    ]
    show(options, {"runs": len(folders), "files": written}, lines)


# Format: ``EvalLog`` version 2 of inspect_ai.log, checked with release 0.3.285. Every repeat is an epoch of one sample.
SCORER = "automedbench"
SCORES = ("overall", "agentic", "task", "s1", "s2", "s3", "s4", "s5")


def log_name(runs: Sequence[LoggedRun]) -> str:
    """File name as Inspect writes it: time, task, id; others are not listed."""
    first = runs[0]
    time = first.run.started_at.strftime("%Y-%m-%dT%H-%M-%S+00-00")
    run = first.score.run
    return f"{time}_{run.task}-{run.tier}-{run.agent}_{first.identity}.json"


def eval_log(runs: Sequence[LoggedRun]) -> dict[str, Any]:
    """One log of the repeats of one agent on one task and tier, in their order."""
    runs = sorted(runs, key=lambda run: run.score.run.repeat)
    first = runs[0]
    means = {name: fmean(getattr(run.score.scores, name) for run in runs) for name in SCORES}
    return {
        "version": 2,
        "status": "success",
        "eval": _spec(first, len(runs)),
        "plan": {"name": "plan", "steps": [{"solver": "automedbench", "params": {"provider": first.run.provider}}]},
        "results": {
            "total_samples": len(runs),
            "completed_samples": len(runs),
            "scores": [_mean_score(name, value, len(runs)) for name, value in means.items()],
        },
        "stats": {
            "started_at": min(run.run.started_at for run in runs).isoformat(),
            "completed_at": max(run.run.ended_at for run in runs).isoformat(),
            "model_usage": {first.score.model or SCORER: _usage([run.score.totals.tokens for run in runs])},
        },
        "samples": [_sample(run) for run in runs],
    }


def _spec(first: LoggedRun, n_repeats: int) -> dict[str, Any]:
    run, recipe = first.score.run, first.score.recipe
    return {
        "eval_id": first.identity,
        "run_id": first.identity,
        "created": first.run.started_at.isoformat(),
        "task": f"automedbench/{run.task}",
        "task_id": f"{run.task}-{run.tier}",
        "task_version": recipe.task_version,
        "task_args": {"tier": run.tier},
        "solver": run.agent,
        "dataset": {"name": run.task, "samples": 1, "sample_ids": [run.task]},
        "model": first.score.model or SCORER,
        "config": {"epochs": n_repeats},
        "packages": {SCORER: recipe.code_version},
        "metadata": {
            "agent": run.agent,
            "track": first.score.track,
            "tier": run.tier,
            "judge": recipe.judge,
            "judge_kind": recipe.judge_kind,
            "rubric_version": recipe.rubric_version,
            "cases_sha256": recipe.cases_sha256,
            "sandbox": f"{first.score.enforced.backend}/{first.score.enforced.network}",
        },
    }


def _mean_score(name: str, value: float, n: int) -> dict[str, Any]:
    return {
        "name": name,
        "scorer": SCORER,
        "scored_samples": n,
        "unscored_samples": 0,
        "params": {},
        "metrics": {"mean": {"name": "mean", "value": value, "params": {}}},
    }


def _sample(run: LoggedRun) -> dict[str, Any]:
    score, record = run.score, run.run
    messages = list(_messages(run.conversation))
    limit = record.outcome.removesuffix("_limit") if record.outcome.endswith("_limit") else None
    notes = {
        "overall": f"{score.quality_name} {score.quality:.4f}, completion {score.completion_rate:.1%}, {score.outcome}"
    }
    opening = (message for message in run.conversation.messages if message.role in ("system", "user"))
    brief = "\n\n".join(message.content for message in opening if not message.by_program)
    sample: dict[str, Any] = {
        "id": score.run.task,
        "epoch": score.run.repeat,
        "input": brief,
        "target": "",
        "messages": messages,
        "output": _output(run, messages),
        "scores": {name: {"value": getattr(score.scores, name), "explanation": notes.get(name)} for name in SCORES},
        "metadata": {
            "outcome": record.outcome,
            "detail": record.detail,
            "disqualified": score.disqualified,
            "medal": score.medal,
            "completion_rate": score.completion_rate,
            "error_codes": [code.model_dump(mode="json") for code in score.error_codes],
        },
        "model_usage": {score.model or SCORER: _usage([score.totals.tokens])},
        "started_at": record.started_at.isoformat(),
        "completed_at": record.ended_at.isoformat(),
        "total_time": score.totals.wall_s,
        "working_time": max(0.0, score.totals.wall_s - score.totals.api_retry_s),
        "uuid": run.identity,
        "turn_count": score.totals.turns,
    }
    return sample | ({"limit": {"type": limit, "limit": 0.0}} if limit else {})


def _output(run: LoggedRun, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Last message of the agent."""
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    choices = [{"message": last, "stop_reason": "stop"}] if last else []
    return {"model": run.score.model or SCORER, "choices": choices}


def _messages(conversation: Conversation) -> Iterator[dict[str, Any]]:
    """Messages by turn; code calls hang on the turn's assistant message, what they printed answers them."""
    for turn in messages_by_turn(conversation):
        if turn.message.content or turn.calls or turn.message.role != "system":
            yield _message(turn.message, turn.calls)
        for call in turn.calls:
            yield {"role": "tool", "content": render_result(call), "tool_call_id": call_id(call), "function": TOOL}
        yield from ({"role": "user", "content": message.content} for message in turn.results)


def _message(message: Message, calls: Sequence[CodeCall]) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if calls:
        found["tool_calls"] = [
            {"id": call_id(call), "function": TOOL, "arguments": arguments(call), "type": "function"} for call in calls
        ]
    return found


def _usage(tokens: Sequence[Tokens]) -> dict[str, int]:
    prompt, completion = sum(item.prompt for item in tokens), sum(item.completion for item in tokens)
    return {
        "input_tokens": prompt,
        "output_tokens": completion,
        "total_tokens": prompt + completion,
        "input_tokens_cache_read": sum(item.cached for item in tokens),
        "input_tokens_cache_write": sum(item.cache_write for item in tokens),
        "reasoning_tokens": sum(item.reasoning for item in tokens),
    }


if __name__ == "__main__":
    run_script(main)
