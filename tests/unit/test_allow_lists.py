"""What a program may send to its provider: hostile requests of four protocols, and bodies that cost to read.

Each hostile request names ``evil.example``, or what else must not go out, at one place. It is refused with the rule of
a finding, or what is hostile is left out: then it is nowhere in the body that the endpoint gets.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from test_bridge import agent

from automedbench.agent.protocols import PROTOCOLS
from automedbench.agent.protocols.common import MAX_VALUES, ApiCall, RequestRefused, count_values
from automedbench.base.endpoint.address import ProtocolName

Body = dict[str, Any]
TOOL, REMOTE, BAD = "net.provider_tool", "net.remote_content", None
LEFT = "left out"
URL = "https://evil.example/x"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30)).decode()
PDF = base64.b64encode(b"%PDF-1.7 and so on").decode()
SCHEMAS: tuple[Any, ...] = (
    {"$ref": URL},
    {"properties": {"a": {"anyOf": [{"$ref": "evil.example.json#/a"}]}}},
    {"$schema": "https://evil.example/json-schema.org/schema"},
    {"$id": URL, "properties": {"a": {"$ref": "#"}}},
    {"items": {"$dynamicRef": "//evil.example/x"}},
    {"$ref": [URL]},
)
OWN_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$defs": {"A": {"type": "string", "description": f"see {URL}"}},
    "properties": {"a": {"$ref": "#/$defs/A"}, "$ref": {"type": "string"}, "id": {"const": "x"}},
}
NOT_DATA = (
    URL,
    f"data:image/png;base64,{URL}",
    "data:image/png;base64,//evil/example",
    f"data:image/png,{URL}",
    f"data:image/svg+xml;base64,{PNG}",
    f"data:image/png;base64,{PDF}",
    "data:application/vnd.apple.mpegurl;base64,I0VYVE0zVQ==",
    "file:///etc/evil.example",
    "DATA:,evil.example",
)


def chat_part(part: Any) -> Body:
    return {"messages": [{"role": "user", "content": [part]}]}


def chat_tool(tool: Any) -> Body:
    return {"tools": [tool]}


FUNCTION: Body = {"type": "function", "function": {"name": "bash"}}
CHAT: list[tuple[Body, Any]] = [
    *[(chat_part({"type": "image_url", "image_url": {"url": each}}), REMOTE) for each in NOT_DATA],
    (chat_part({"type": "image_url", "image_url": URL}), REMOTE),
    (chat_part({"type": "image_url", "image_url": {"uri": URL}}), REMOTE),
    (chat_part({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "uri": URL}}), LEFT),
    (chat_part({"type": "text", "text": "x", "image_url": {"url": URL}}), LEFT),
    (chat_part({"type": "file", "file": {"file_id": "evil.example", "filename": "x.pdf"}}), REMOTE),
    (chat_part({"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}", "file_url": URL}}), LEFT),
    (chat_part({"type": "input_audio", "input_audio": {"data": URL, "format": "wav"}}), REMOTE),
    (chat_part({"type": "input_audio", "input_audio": {"data": PNG, "format": "wav", "url": "evil.example"}}), REMOTE),
    (chat_part({"type": "input_audio", "input_audio": {"data": "//evils/example0", "format": "mp3"}}), REMOTE),
    (chat_part({"type": "video_url", "video_url": {"url": URL}}), REMOTE),
    (chat_part({"type": "document_url", "document_url": URL}), REMOTE),
    (chat_part({"text": "evil.example"}), REMOTE),
    ({"messages": [{"role": "assistant", "content": "x", "audio": {"id": "evil.example"}}]}, LEFT),
    ({"messages": [{"role": "tool", "tool_call_id": "c", "content": [{"type": "image", "source": URL}]}]}, REMOTE),
    ({"messages": [{"role": "assistant", "tool_calls": [{"type": "builtin_function", "server_url": URL}]}]}, BAD),
    ({"messages": [{"role": "assistant", "tool_calls": [FUNCTION | {"id": "c", "server_url": URL}]}]}, LEFT),
    *[(chat_tool({"type": kind, "server_url": URL}), TOOL) for kind in ("web_search", "mcp", "code_interpreter")],
    (chat_tool({"google_search": {"x": URL}}), TOOL),
    (chat_tool("evil.example"), TOOL),
    (chat_tool(FUNCTION | {"googleSearch": {"x": URL}}), LEFT),
    (chat_tool({"type": "function", "function": {"name": "f", "url": URL}, "server_url": URL}), LEFT),
    (chat_tool({"type": "function", "function": {"name": "$web_search"}}), TOOL),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "$web_search"}}]}]}, TOOL),
    ({"messages": [{"role": "tool", "name": "$web_search", "content": "evil"}]}, TOOL),
    *[(chat_tool({"type": "function", "function": {"name": "f", "parameters": each}}), REMOTE) for each in SCHEMAS],
    (chat_tool({"type": "function", "function": {"name": "f", "parameters": URL}}), BAD),
    ({"tools": {"type": "computer_use", "x": URL}}, TOOL),
    ({"tool_choice": {"type": "web_search_preview", "x": URL}}, TOOL),
    ({"tool_choice": "evil.example"}, BAD),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "mcp", "x": URL}]}}}, TOOL),
    ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp", "server_url": URL}]}}, LEFT),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMAS[0]}}}, REMOTE),
    ({"response_format": {"type": "evil.example"}}, BAD),
    ({"web_search_options": {"x": URL}}, TOOL),
    ({"plugins": [{"id": "web", "x": URL}]}, TOOL),
    ({"modalities": ["audio", "evil.example"], "audio": {"voice": "x"}}, LEFT),
    ({"functions": [{"name": "f", "parameters": SCHEMAS[0]}], "models": ["evil.example"]}, LEFT),
]


def item(**fields: Any) -> Body:
    return {"input": [fields]}


def input_part(**fields: Any) -> Body:
    return item(type="message", role="user", content=[fields])


def response_tool(**fields: Any) -> Body:
    return {"tools": [{"name": "x"} | fields]}


PICTURE = f"data:image/png;base64,{PNG}"
NAMESPACE = {"type": "namespace", "name": "n"}
RESPONSES: list[tuple[Body, Any]] = [
    *[(input_part(type="input_image", image_url=each), REMOTE) for each in NOT_DATA],
    (input_part(type="input_image", file_id="evil.example", detail="auto"), REMOTE),
    (input_part(type="input_image", image_url=PICTURE, file_id="evil.example"), LEFT),
    (input_part(type="input_file", file_url=URL, filename="x"), REMOTE),
    (input_part(type="input_file", file_data=URL), REMOTE),
    (input_part(type="input_text", text="x", file_url=URL), LEFT),
    (input_part(type="input_audio", input_audio={"data": URL, "format": "mp3"}), REMOTE),
    (input_part(type="computer_screenshot", image_url=URL), REMOTE),
    (item(type="message", role="user", content={"type": "input_image", "image_url": URL}), BAD),
    (item(type="message", role="assistant", content=[{"type": "output_text", "annotations": [{"url": URL}]}]), LEFT),
    (item(type="function_call_output", call_id="c", output=[{"type": "input_image", "image_url": URL}]), REMOTE),
    (item(type="function_call", call_id="c", name="f", arguments="{}", server_url=URL), LEFT),
    (item(type="item_reference", id="evil.example"), REMOTE),
    (item(type="reasoning", id="evil.example", summary=[]), LEFT),
    (item(type="mcp_approval_response", approval_request_id="evil.example", approve=True), TOOL),
    *[(item(type=kind, id="evil.example"), TOOL) for kind in ("web_search_call", "tool_search_call", "mcp_list_tools")],
    *[(response_tool(type=kind, x=URL), TOOL) for kind in ("web_search", "file_search", "mcp", "image_generation")],
    *[(response_tool(type=kind, x=URL), TOOL) for kind in ("code_interpreter", "computer_use_preview", "shell", "")],
    (response_tool(type="custom", server_url=URL, format={"type": "text", "server_url": URL}), LEFT),
    ({"tools": [NAMESPACE | {"server_url": URL, "tools": []}]}, LEFT),
    ({"tools": [NAMESPACE | {"tools": [{"type": "mcp", "server_url": URL}]}]}, TOOL),
    ({"tools": [NAMESPACE | {"tools": [NAMESPACE | {"tools": [], "server_url": URL}]}]}, TOOL),
    *[(response_tool(type="function", parameters=each), REMOTE) for each in SCHEMAS],
    ({"tool_choice": {"type": "web_search", "x": URL}}, TOOL),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "x": URL}]}}, TOOL),
    ({"tool_choice": {"type": "mcp", "server_label": "evil.example"}}, TOOL),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMAS[1]}}}, REMOTE),
    ({"include": ["file_search_call.results", "evil.example"]}, LEFT),
    *[({name: "evil.example"}, REMOTE) for name in ("previous_response_id", "conversation")],
    ({"prompt": {"id": "evil.example"}}, REMOTE),
    ({"background": True, "metadata": {"x": URL}}, TOOL),
    ({"instructions": [{"role": "user", "content": URL}]}, BAD),
    ({"context_management": [{"type": "compaction", "x": URL}], "moderation": {"x": URL}}, LEFT),
]


def block(**fields: Any) -> Body:
    return {"messages": [{"role": "user", "content": [fields]}]}


def image(**source: Any) -> Body:
    return block(type="image", source=source)


RESULT: Body = {"type": "tool_result", "tool_use_id": "x"}
MESSAGES: list[tuple[Body, Any]] = [
    *[(image(type="base64", media_type="image/png", data=each), REMOTE) for each in (URL, PDF, "//evil/example", "")],
    (image(type="base64", media_type=f"image/png;url={URL}", data=PNG), REMOTE),
    (block(type="tool_use", id="x", name="$web_search", input={}), TOOL),
    (image(type="url", url=URL), REMOTE),
    (image(type="file", file_id="evil.example"), REMOTE),
    (image(type="text", data="evil.example"), REMOTE),
    (image(type="base64", media_type="image/png", data=PNG, url=URL), LEFT),
    (block(type="document", source={"type": "url", "url": URL}), REMOTE),
    (block(type="document", source={"type": "base64", "media_type": "text/html", "data": PDF}), REMOTE),
    (block(type="document", source={"type": "base64", "media_type": "application/pdf", "data": URL}), REMOTE),
    (block(type="document", source={"type": "content", "content": [image(url=URL)["messages"][0]]}), REMOTE),
    (block(type="document", source={"type": "text", "data": "x", "url": URL}, url=URL), LEFT),
    (block(type="container_upload", file_id="evil.example"), REMOTE),
    (block(type="compaction", content="evil.example"), REMOTE),
    (block(**RESULT, content=[{"type": "image", "source": {"type": "url", "url": URL}}]), REMOTE),
    (block(**RESULT, content=[{"type": "web_fetch_result", "url": URL}]), TOOL),
    (block(type="search_result", source="x", content=[{"type": "image", "source": {"url": URL}}]), REMOTE),
    (block(type="text", text="x", citations=[{"type": "web_search_result_location", "url": URL}]), TOOL),
    (block(type="text", text="x", source={"type": "url", "url": URL}), LEFT),
    *[(block(type=kind, id="x", name=URL), TOOL) for kind in ("server_tool_use", "mcp_tool_use", "tool_addition")],
    *[(block(type=kind, content=URL), TOOL) for kind in ("web_search_tool_result", "mcp_tool_result")],
    ({"system": [{"type": "image", "source": {"type": "url", "url": URL}}]}, REMOTE),
    *[({"tools": [{"type": f"web_{kind}", "name": "x", "x": URL}]}, TOOL) for kind in ("search_20250305", "fetch_9")],
    *[
        ({"tools": [{"type": kind, "x": URL}]}, TOOL)
        for kind in ("code_execution_20260120", "mcp_toolset", "advisor_1")
    ],
    ({"tools": [{"name": "f", "input_schema": {}, "server_url": URL, "allowed_callers": [URL]}]}, LEFT),
    *[({"tools": [{"name": "f", "input_schema": each}]}, REMOTE) for each in SCHEMAS],
    ({"tool_choice": {"type": "web_search", "x": URL}}, TOOL),
    ({"tool_choice": {"type": "tool", "name": "f", "server_url": URL}}, LEFT),
    ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMAS[0]}}}, REMOTE),
    ({"mcp_servers": [{"type": "url", "url": URL}]}, TOOL),
    ({"container": {"id": "evil.example", "skills": []}}, TOOL),
    ({"context_management": {"edits": [URL]}, "metadata": {"user_id": "evil.example"}}, LEFT),
]


def gemini_part(**fields: Any) -> Body:
    return {"contents": [{"role": "user", "parts": [fields]}]}


def declared(**fields: Any) -> Body:
    return {"tools": [{"functionDeclarations": [{"name": "f"} | fields]}]}


FILE = {"fileUri": URL}
GEMINI: list[tuple[Body, Any]] = [
    *[(gemini_part(inlineData={"mimeType": "image/png", "data": each}), REMOTE) for each in (URL, PDF, "//evil/x", "")],
    (gemini_part(inline_data={"mime_type": "text/html", "data": PDF}), REMOTE),
    (gemini_part(inlineData={"mimeType": "image/png", "data": PNG, "fileUri": URL}), LEFT),
    (gemini_part(fileData=FILE), REMOTE),
    (gemini_part(file_data=FILE), REMOTE),
    (gemini_part(text="x", fileData=FILE), REMOTE),
    ({"contents": [{"role": "user", "parts": {"fileData": FILE}}]}, REMOTE),
    ({"systemInstruction": {"parts": [{"fileData": FILE}]}}, REMOTE),
    ({"system_instruction": {"parts": {"file_data": FILE}}}, REMOTE),
    (gemini_part(functionResponse={"name": "f", "response": {}, "fileData": FILE}), LEFT),
    (gemini_part(functionResponse={"name": "f", "response": {}, "parts": [{"fileData": FILE}]}), REMOTE),
    (gemini_part(function_response={"name": "f", "parts": {"file_data": FILE}}), REMOTE),
    *[(gemini_part(**{kind: {"x": URL}}), TOOL) for kind in ("executableCode", "code_execution_result", "toolCall")],
    *[
        ({"tools": [{kind: {"x": URL}}]}, TOOL)
        for kind in ("googleSearch", "google_search", "urlContext", "mcpServers")
    ],
    *[({"tools": [{kind: {"x": URL}}]}, TOOL) for kind in ("codeExecution", "fileSearch", "googleMaps", "retrieval")],
    ({"tools": [{"functionDeclarations": [], "googleSearchRetrieval": {"x": URL}}]}, TOOL),
    ({"tools": {"url_context": {"x": URL}}}, TOOL),
    *[(declared(parametersJsonSchema=each), REMOTE) for each in SCHEMAS],
    *[(declared(**{name: SCHEMAS[0]}), REMOTE) for name in ("parameters", "response_json_schema")],
    (declared(parameters={"ref": URL}), REMOTE),
    (declared(server_url=URL), LEFT),
    ({"generationConfig": {"responseJsonSchema": SCHEMAS[1]}}, REMOTE),
    ({"generation_config": {"response_schema": {"ref": URL}}}, REMOTE),
    ({"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}}, BAD),
    ({"generationConfig": {"speechConfig": {"x": URL}, "imageConfig": {"x": URL}}}, LEFT),
    ({"generationConfig": {"thinkingConfig": {"thinkingBudget": "32000"}}}, BAD),
    ({"toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["$web_search"]}}}, TOOL),
    ({"toolConfig": {"retrievalConfig": {"x": URL}}}, TOOL),
    ({"toolConfig": {"includeServerSideToolInvocations": URL}}, LEFT),
    *[({name: "evil.example"}, REMOTE) for name in ("cachedContent", "cached_content")],
    ({"modelArmorConfig": {"x": URL}, "labels": {"x": URL}}, LEFT),
]

HELLO: Mapping[ProtocolName, Body] = {
    "chat": {"messages": [{"role": "user", "content": "x"}]},
    "responses": {"input": [{"role": "user", "content": "x"}]},
    "messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 10},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "x"}]}]},
}
HOSTILE: Mapping[ProtocolName, list[tuple[Body, Any]]] = {
    "chat": CHAT,
    "responses": RESPONSES,
    "messages": MESSAGES,
    "gemini": GEMINI,
}


def send(protocol: ProtocolName, body: Any) -> str:
    """The body that the endpoint would get; raises RequestRefused."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = PROTOCOLS[protocol].parse_request(ApiCall(protocol, model="m"), data)
    return json.dumps(PROTOCOLS[protocol].upstream_body(agent(protocol=protocol), request))


@pytest.mark.parametrize("protocol", HOSTILE)
def test_nothing_makes_the_provider_go_out(protocol: ProtocolName) -> None:
    """All rows at once, so that one run names each that fails; the control is that the plain request passes."""
    wrong = []
    for change, expected in HOSTILE[protocol]:
        try:
            sent = send(protocol, HELLO[protocol] | change)
            found = LEFT if "evil" not in sent and "$web" not in sent else f"passed on: {sent}"
        except RequestRefused as refusal:
            assert refusal.status == 400
            found = str(refusal) if expected == LEFT else refusal.rule
        wrong += [(change, expected, found)] if found != expected else []
    assert not wrong
    assert '"x"' in send(protocol, HELLO[protocol])


@pytest.mark.parametrize(
    ("protocol", "change"),
    [
        ("chat", {"tools": [{"type": "function", "function": {"name": "f", "parameters": OWN_SCHEMA}}]}),
        ("chat", {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": {"$ref": URL}}}]}]}),
        ("chat", chat_part({"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}})),
        ("chat", chat_part({"type": "text", "text": URL, "cache_control": {"type": "ephemeral", "ttl": "1h"}})),
        ("responses", response_tool(type="function", parameters=OWN_SCHEMA, strict=True)),
        ("responses", response_tool(type="custom", format={"type": "grammar", "syntax": "lark", "definition": URL})),
        ("responses", input_part(type="input_file", filename="x", file_data="data:text/plain;base64,aHR0cHM6Ly94")),
        ("messages", {"tools": [{"name": "f", "input_schema": OWN_SCHEMA, "input_examples": [{"$ref": URL}]}]}),
        ("messages", block(type="tool_use", id="x", name="f", input={"server_url": URL, "$schema": URL})),
        ("messages", block(type="document", source={"type": "base64", "media_type": "application/pdf", "data": PDF})),
        ("gemini", declared(parametersJsonSchema=OWN_SCHEMA)),
        ("gemini", gemini_part(functionCall={"name": "f", "args": {"fileData": FILE}})),
        ("gemini", gemini_part(functionResponse={"name": "f", "response": {"$ref": URL}})),
        ("gemini", gemini_part(inlineData={"mimeType": "application/pdf", "data": "JVBERi0xLjMKJcTl8uXrp_Og0MTGCg"})),
    ],
)
def test_what_is_the_programs_own_passes_as_it_came(protocol: ProtocolName, change: Body) -> None:
    """Arguments, texts, data that is there, schemas that refer to themselves."""
    sent = json.loads(send(protocol, HELLO[protocol] | change))
    assert json.dumps({name: sent[name] for name in change}) == json.dumps(change)


# --- the cost of a body -----------------------------------------------------------------------------------------

SIZE = 3_000_000
PLACES = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}


def filled(unit: str) -> str:
    """As many of these as 3 MB hold, with commas between."""
    return ",".join([unit] * (SIZE // (len(unit) + 1)))


def costly(protocol: ProtocolName) -> Iterator[tuple[str, bytes]]:
    """Bodies of 3 MB, or with as many values as are taken."""
    message = json.dumps(HELLO[protocol][PLACES[protocol]][0])
    tool = {
        "chat": '{"type":"function","function":{"name":"f","parameters":%s}}',
        "responses": '{"type":"function","name":"f","parameters":%s}',
        "messages": '{"name":"f","input_schema":%s}',
        "gemini": '{"functionDeclarations":[{"name":"f","parametersJsonSchema":%s}]}',
    }[protocol]
    most = MAX_VALUES - 100
    keys = ",".join(f'"k{number:06}":0' for number in range(most))

    def with_more(more: str) -> bytes:
        return f'{{"max_tokens":9,"{PLACES[protocol]}":[{message}],{more}}}'.encode()

    yield "lists in a schema", with_more('"tools":[%s]' % (tool % f'{{"enum":[{filled("[]")}]}}'))
    yield (
        "most lists in a schema",
        with_more('"tools":[%s]' % (tool % f'{{"enum":[{",".join(["[]"] * (most // 2))}]}}')),
    )
    yield "most keys in a schema", with_more('"tools":[%s]' % (tool % f'{{"properties":{{{keys}}}}}'))
    yield "tools", with_more(f'"tools":[{filled(tool % "{}")}]')
    yield "most tools", with_more(f'"tools":[{",".join([tool % "{}"] * (most // 6))}]')
    yield "lists nobody knows", with_more(f'"x":[{filled("[]")}]')
    yield "keys", with_more(",".join(f'"k{number}":0' for number in range(SIZE // 11)))
    yield "most keys", with_more(keys)
    yield "the same key", with_more(filled('"x":1'))
    yield "deep lists", with_more('"x":' + "[" * 40_000 + "]" * 40_000)
    yield "deep objects", with_more('"x":' + '{"a":' * 40_000 + "1" + "}" * 40_000)
    yield "a long number", with_more('"x":' + "1" * SIZE)
    yield "a long fraction", with_more('"seed":0.' + "1" * SIZE)
    yield "long numbers", with_more(f'"x":[{filled("1" * 4200)}]')
    yield "exponents", with_more(f'"x":[{filled("1e-999999999")}]')
    yield "messages", f'{{"{PLACES[protocol]}":[{filled(message)}]}}'.encode()
    yield "empty messages", f'{{"{PLACES[protocol]}":[{filled("{}")}]}}'.encode()
    yield "a text that does not end", with_more('"x":"' + '\\"' * (SIZE // 2))[:-1]
    for name, text in {
        "escapes": "\\u4e2d" * (SIZE // 6),
        "surrogates": "\\ud800" * (SIZE // 6),
        "backslashes": "\\\\" * (SIZE // 2),
        "brackets in a text": ",[{" * (SIZE // 3),
    }.items():
        said = message.replace('"x"', f'"{text}"')
        yield name, f'{{"max_tokens":9,"{PLACES[protocol]}":[{said}]}}'.encode()
    yield "UTF-16", with_more(f'"x":[{filled("[]")}]').decode().encode("utf-16")


@pytest.mark.parametrize("protocol", HOSTILE)
def test_reading_a_body_takes_less_than_a_second(protocol: ProtocolName) -> None:
    """16 MiB of empty lists once took 30 s and a gigabyte; 900,000 took 51 s with all that follows."""
    slow, passed = [], []
    for name, data in costly(protocol):
        begin = time.process_time()
        try:
            send(protocol, data)
            passed.append(name)
        except RequestRefused as refusal:
            assert refusal.rule is None
        elapsed = time.process_time() - begin
        slow += [(name, elapsed)] if elapsed > 1 else []
    assert not slow
    assert {"most lists in a schema", "most keys", "escapes", "backslashes", "brackets in a text"} <= set(passed)
    assert not {"lists in a schema", "lists nobody knows", "keys", "deep lists", "messages", "UTF-16"} & set(passed)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a": [1, 2, {}]}', 5),
        ('{"a, [{": "\\", [{\\\\"}', 1),
        ('["\\"", [], "', 4),
        ('{"a": "[,{', 1),
    ],
)
def test_values_are_counted_outside_of_texts(text: str, values: int) -> None:
    """By hand: brackets and commas that belong to the structure."""
    assert count_values(text) == values
