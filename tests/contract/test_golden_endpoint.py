"""Model replies against the golden data: rows marked ``ok`` are reproduced, of the others the better behaviour."""

from __future__ import annotations

from typing import Any

import pytest
from golden_data import golden

from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import ChatMessage, EndpointError, Reply
from automedbench.agent.tools import TOOL_NAMES, recover_calls, repair_arguments, tool_specs
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent
from automedbench_rehearsal.model_server.server import Answer, ScriptedServer

# Attempts at the request and at the plain one: the reference gives up after four; the specification's table allows
# 4 and 8 (of malformed 4).
GIVES_UP = {
    "503 four times": ("server", 12),
    "401": ("auth", 2),
    "529": ("server", 12),
    "html always": ("malformed", 8),
}
# Rows marked wrong, with what "better" asks for: the reply that comes in the end, and the requests it took.
BETTER = {"no choices": ("hi", 2), "null usage": ("x", 1), "hopeless arguments": ("", 1)}


def ask(sequence: list[Any]) -> tuple[Reply | EndpointError, int, int]:
    """What becomes of a sequence of answers (the last one for ever), requests, pauses."""
    bodies = [item["text"].encode() if "text" in item else item["body"] for item in sequence]
    answers = [Answer(item["code"], body) for item, body in zip(sequence, bodies, strict=True)]
    waits: list[float] = []
    with ScriptedServer(answers=answers) as server:
        agent = Agent(provider="openai", model="m", base_url=server.url, api_key_env="K")
        with EndpointModel(agent, ["sk-key"], sleep=waits.append) as model:
            try:
                found: Reply | EndpointError = model.reply([ChatMessage("user", "x")], tool_specs("run"), 600)
            except EndpointError as error:
                found = error
        return found, server.count(), len(waits)


@pytest.mark.parametrize("row", golden("vqa", "api_replies"))
def test_api_replies(row: Any) -> None:
    case, expected = row["input"]["case"], row["output"]
    found, requests, waits = ask(row["input"]["sequence"])
    if case in GIVES_UP:
        kind, attempts = GIVES_UP[case]
        assert isinstance(found, EndpointError) and f": {kind}, status " in str(found)
        assert (requests, waits) == (attempts, attempts - 2)
        return
    assert isinstance(found, Reply) and waits == requests - 1
    if row["verdict"] == "ok":
        assert (found.content, found.finish_reason) == (
            expected["result"]["content"],
            expected["result"]["finish_reason"],
        )
        assert found.usage == Tokens(prompt=expected["result"]["in"], completion=expected["result"]["out"])
        assert requests == expected["calls"]
        assert calls_of(found) == [(call["name"], call["arguments"]) for call in expected["result"]["tool_calls"]]
        return
    assert (found.content, requests) == BETTER[case]
    if case == "hopeless arguments":
        # The call is kept with what the model wrote: the loop answers it with an error.
        assert [repair_arguments(call.arguments) for call in found.calls] == [None]
    if case == "null usage":
        assert found.usage.estimated


def calls_of(reply: Reply) -> list[tuple[str, Any]]:
    """Calls as the loop takes them: native ones, else those in the text."""
    if reply.calls:
        return [(call.name, repair_arguments(call.arguments)) for call in reply.calls]
    return [(call.name, call.arguments) for call in recover_calls(reply.content, TOOL_NAMES).calls]
