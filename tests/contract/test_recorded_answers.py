"""Recorded requests and answers of real providers: read as by an independent reader, and through the bridge and back.

The reader here is written from the providers' documentation and shares no code with the package.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automedbench.agent.models.model import Reply
from automedbench.agent.protocols import PROTOCOLS, read_reply
from automedbench.agent.protocols.common import ApiCall, ProgramRequest, RequestRefused
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.endpoint.faults import FaultyReply, classify_status
from automedbench.campaign.agents import Agent

RECORDED = Path(__file__).resolve().parents[3] / "shared/data/cassettes"
NAMES: tuple[ProtocolName, ...] = ("chat", "responses", "messages", "gemini")
pytestmark = pytest.mark.skipif(not RECORDED.is_dir(), reason="no recorded answers beside the repository")

REFUSED = {
    "test_groq/test_tool_use_failed_error_streaming#0": "bad_request",  # an error within the stream
    "test_groq/test_tool_use_failed_error_streaming_with_text#0": "bad_request",
    "test_openrouter/test_openrouter_stream_error#0": "bad_request",
    "test_openai/test_invalid_response#0": "malformed",  # a test server that echoes the request
    "test_openai/test_text_response#0": "malformed",
    "test_openai_responses/test_background_mode_reasoning_vcr#0": "malformed",  # queued, not answered yet
    "test_openai_responses/test_background_mode_with_tool_vcr#0": "malformed",
    "test_openai_responses/test_background_mode_with_tool_vcr#2": "malformed",
    "test_google/test_google_model_armor_prompt_template_text_gets_blocked#1": "content_policy",
    "test_google/test_google_model_safety_settings#0": "content_policy",
}
"""Answers with status 200 that are no reply, and the fault that each is."""

Call = tuple[str, Any]
Body = dict[str, Any]


@functools.cache
def rows(protocol: str) -> list[Body]:
    return [json.loads(line) for line in (RECORDED / f"{protocol}.jsonl").read_text().splitlines()]


def answered(protocol: str) -> Iterator[Body]:
    """Rows whose answer is a reply."""
    return (row for row in rows(protocol) if row["status"] == 200 and row["id"] not in REFUSED)


def data_of(row: Body) -> bytes:
    return (row["response"] if row["form"] == "stream" else json.dumps(row["response"])).encode()


def events_of(text: str) -> list[Body]:
    """JSON objects behind ``data:``, one a line in all that was recorded."""
    found = []
    for line in text.splitlines():
        if line.startswith("data:") and line[5:].strip() not in ("", "[DONE]"):
            found.append(json.loads(line[5:]))
    return found


# --- the independent reader: text and calls of an answer ------------------------------------------------------


def arguments(text: Any) -> Any:
    """Arguments as a value; none at all are an empty object, and what is no JSON is itself."""
    if not isinstance(text, str):
        return text or {}
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def said_chat(row: Body) -> tuple[str, list[Call]]:
    if row["form"] == "whole":
        message = row["response"]["choices"][0]["message"]
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text") or "" for part in content)
        functions = [call["function"] for call in message.get("tool_calls") or []]
        return content, [(each["name"], arguments(each.get("arguments"))) for each in functions]
    text, calls = "", {}
    for event in events_of(row["response"]):
        for choice in event.get("choices", [])[:1]:
            delta = choice.get("delta") or {}
            content = delta.get("content") or ""
            text += content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
            for part in delta.get("tool_calls") or []:
                name, words = calls.get(part.get("index", 0), ("", ""))
                function = part.get("function") or {}
                calls[part.get("index", 0)] = (name or function.get("name"), words + (function.get("arguments") or ""))
    return text, [(name, arguments(words)) for name, words in calls.values()]


def said_responses(row: Body) -> tuple[str, list[Call]]:
    if row["form"] == "whole":
        items = row["response"]["output"]
    else:
        events = events_of(row["response"])
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    calls = [item for item in items if item["type"] in ("function_call", "custom_tool_call")]
    text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    return text, [(item["name"], arguments(item.get("arguments", item.get("input")))) for item in calls]


def said_messages(row: Body) -> tuple[str, list[Call]]:
    if row["form"] == "whole":
        blocks = row["response"]["content"]
        calls = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        return "".join(block["text"] for block in blocks if block["type"] == "text"), calls
    text, inputs = "", {}
    for event in events_of(row["response"]):
        if event["type"] == "content_block_start":
            text += event["content_block"].get("text") or ""
            if event["content_block"]["type"] == "tool_use":
                inputs[event["index"]] = [event["content_block"]["name"], ""]
        elif event["type"] == "content_block_delta":
            text += event["delta"].get("text") or ""
            if event["delta"]["type"] == "input_json_delta" and event["index"] in inputs:
                inputs[event["index"]][1] += event["delta"]["partial_json"]
    return text, [(name, arguments(words)) for name, words in inputs.values()]


def said_gemini(row: Body) -> tuple[str, list[Call]]:
    chunks = [row["response"]] if row["form"] == "whole" else events_of(row["response"])
    contents = [(chunk.get("candidates") or [{}])[0].get("content") or {} for chunk in chunks]
    parts = [part for content in contents for part in content.get("parts") or []]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    text = "".join(part.get("text") or "" for part in parts if not part.get("thought"))
    return text, [(call["name"], call.get("args") or {}) for call in calls]


SAID = {"chat": said_chat, "responses": said_responses, "messages": said_messages, "gemini": said_gemini}


def said(reply: Reply) -> tuple[str, list[Call]]:
    return reply.content, [(call.name, arguments(call.arguments)) for call in reply.calls]


# --- usage: prompt and completion tokens, as the provider counts them ------------------------------------------


def usage_of(protocol: str, row: Body) -> tuple[int, int] | None:
    """Tokens of prompt and completion; None where none are reported."""
    bodies = [row["response"]] if row["form"] == "whole" else events_of(row["response"])
    if protocol == "responses":
        bodies = [body.get("response", body) for body in bodies]
    counts: Body = {}
    for body in bodies:
        found = body.get("usageMetadata") or body.get("usage") or (body.get("message") or {}).get("usage") or {}
        counts |= {name: value for name, value in found.items() if value is not None}
    if protocol == "chat":
        details = counts.get("completion_tokens_details") or {}
        if "prompt_tokens" not in counts:
            return None
        prompt, completion = counts["prompt_tokens"], counts["completion_tokens"]
        thoughts = details.get("reasoning_tokens") or 0
        beside = thoughts if counts.get("total_tokens") == prompt + completion + thoughts else 0
        return prompt, completion + beside
    if protocol == "responses":
        return (counts["input_tokens"], counts["output_tokens"]) if "input_tokens" in counts else None
    if protocol == "messages":
        cache = [counts.get(f"cache_{kind}_input_tokens") or 0 for kind in ("read", "creation")]
        return (counts["input_tokens"] + sum(cache), counts["output_tokens"]) if "input_tokens" in counts else None
    if "promptTokenCount" not in counts:
        return None
    prompt = counts["promptTokenCount"] + counts.get("toolUsePromptTokenCount", 0)
    return prompt, counts.get("candidatesTokenCount", 0) + counts.get("thoughtsTokenCount", 0)


# --- tests ----------------------------------------------------------------------------------------------------


def test_all_rows_are_there() -> None:
    """The control: 845 rows, of which 823 have status 200 (SOURCE.md, counted)."""
    every = [row for name in NAMES for row in rows(name)]
    assert (len(every), sum(row["status"] == 200 for row in every)) == (845, 823)


@pytest.mark.parametrize("protocol", NAMES)
def test_text_and_calls_are_those_of_an_independent_reader(protocol: ProtocolName) -> None:
    wrong = []
    for row in answered(protocol):
        found, expected = said(read_reply(protocol, data_of(row), [])), SAID[protocol](row)
        wrong += [(row["id"], found, expected)] if found != expected else []
    assert not wrong


@pytest.mark.parametrize("protocol", NAMES)
def test_usage_is_that_of_an_independent_reader(protocol: ProtocolName) -> None:
    wrong = []
    for row in answered(protocol):
        usage, expected = read_reply(protocol, data_of(row), []).usage, usage_of(protocol, row)
        found = None if usage.estimated else (usage.prompt, usage.completion)
        wrong += [(row["id"], found, expected)] if found != expected else []
    assert not wrong


def test_what_is_no_reply_is_a_fault_of_its_kind() -> None:
    found = {}
    for protocol in NAMES:
        for row in rows(protocol):
            if row["status"] == 200:
                try:
                    read_reply(protocol, data_of(row), [])
                except FaultyReply as failure:
                    found[row["id"]] = failure.fault.kind
            else:
                kind = classify_status(row["status"], data_of(row).decode())
                assert kind == ("rate_limit" if row["status"] == 429 else "bad_request"), row["id"]
    assert found == REFUSED


@pytest.mark.parametrize("protocol", NAMES)
def test_a_program_gets_the_same_as_a_stream(protocol: ProtocolName) -> None:
    """An endpoint's whole answer, streamed by the bridge and read by the independent reader: same text and calls."""
    wrong = []
    for row in answered(protocol):
        whole = dict(read_reply(protocol, data_of(row), []).body or {})
        request = ProgramRequest(protocol, {}, (), include_usage=True)
        text = b"".join(PROTOCOLS[protocol].stream_answer(request, whole)).decode()
        streamed, expected = row | {"form": "stream", "response": text}, SAID[protocol](row)
        if SAID[protocol](streamed) != expected or usage_of(protocol, streamed) != usage_of(protocol, row):
            wrong.append((row["id"], SAID[protocol](streamed), expected))
    assert not wrong


ACCEPTED = {"chat": 186, "responses": 89, "messages": 126, "gemini": 157}
"""Requests without a tool of the provider's, a stored object or content behind an address."""
OWN_VALUES = ("args", "response", "parametersJsonSchema", "parameters", "responseJsonSchema", "responseSchema")
CHANGED: dict[str, dict[int, str]] = {
    "chat": {
        186: ".model .stream",
        29: ".stream_options",
        12: ".reasoning_effort",
        8: ".reasoning .thinking",
        7: ".provider .reasoning_format",
        5: ".messages[].prefix",
        4: ".prompt_cache_key",
        3: ".moderation .temperature",
        2: ".clear_thinking .frequency_penalty .messages[].content[].prompt_cache_breakpoint .models .presence_penalty "
        ".prompt_cache_options .stop .transforms",
        1: ".preset .service_tier .tools[].eager_input_streaming .usage .user",
    },
    "responses": {
        89: ".model .store",
        82: ".stream",
        5: ".context_management .input",
        4: ".input[].content[].prompt_cache_breakpoint .prompt_cache_options",
        3: ".moderation",
        2: ".provider .temperature",
        1: ".previous_response_id .reasoning.mode .service_tier",
    },
    "messages": {
        126: ".model .stream",
        4: ".messages[].role",
        1: ".metadata .temperature",
    },
    "gemini": {
        2: ".generationConfig .modelArmorConfig",
        1: ".labels",
    },
}
"""Changed places in so many of the requests that pass: fields of the agent's entry, and what not all servers know.

Null is left out of the request, and of its input reasoning without encrypted content, which only names what is stored.
"""
ENTRY = {
    "provider": "command",
    "model": "m",
    "base_url": "http://x",
    "api_key_env": "X",
    "command": ["x"],
    "temperature": None,
}


def in_camel(value: Any) -> Any:
    """Names as Gemini's protocol writes them, less in what is the program's own."""
    if isinstance(value, list):
        return [in_camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub("_(.)", lambda match: match[1].upper(), name): inner for name, inner in value.items()}
    return {name: inner if name in OWN_VALUES else in_camel(inner) for name, inner in named.items()}


def changes(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Places where two values differ, the order of names included."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() ^ after.keys():
            yield f"{path}.{name}"
        both = [name for name in before if name in after]
        if path and both != [name for name in after if name in before]:
            yield f"{path} (order)"
        for name in both:
            yield from changes(before[name], after[name], f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            yield from changes(one, other, f"{path}[]")
    elif json.dumps(before) != json.dumps(after):
        yield path


@pytest.mark.parametrize("protocol", NAMES)
def test_requests_of_real_clients_pass_as_they_came_or_are_findings(protocol: ProtocolName) -> None:
    """Each is refused with the rule of a finding, or what goes out is what came but for what is known to change."""
    agent = Agent.model_validate(ENTRY | {"protocol": protocol})
    passed, changed = 0, Counter[str]()
    for row in rows(protocol):
        body = row["request"]
        try:
            request = PROTOCOLS[protocol].parse_request(ApiCall(protocol, model="m"), json.dumps(body).encode())
        except RequestRefused as refusal:
            assert refusal.rule in ("net.provider_tool", "net.remote_content"), (row["id"], refusal)
            continue
        passed += 1
        assert request.chat, row["id"]
        before = in_camel(body) if protocol == "gemini" else body
        changed.update(set(changes(before, PROTOCOLS[protocol].upstream_body(agent, request))))
    assert passed == ACCEPTED[protocol]
    assert changed == {place: number for number, places in CHANGED[protocol].items() for place in places.split()}
