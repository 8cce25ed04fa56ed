"""Gemini generateContent: parts of text, thought and function calls; cached tokens inside the prompt's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from automedbench_rehearsal.model_server.program import turn_in
from automedbench_rehearsal.model_server.wire import (
    Asked,
    Earlier,
    Proof,
    Said,
    Tool,
    Usage,
    Wire,
    event,
    marked,
    pieces,
    signature_of,
    text_of,
)

_STATES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_TYPES = "type.googleapis.com/google.rpc."


class Gemini(Wire):
    """``/v1beta/models/{model}:generateContent`` and ``:streamGenerateContent``"""

    name = "gemini"
    usage_key = "usageMetadata"
    usage_totals = ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")
    items_key = "candidates"
    no_key_status = 400
    lost = (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        "correctly, position {position}."
    )
    changed = "Thought signature is not valid, position {position}."

    def read(self, request: Mapping[str, Any], path: str) -> Asked:
        contents = [dict(content) for content in request["contents"]]
        earlier, begin = [], 0
        for position, content in enumerate(contents):
            parts = [dict(part) for part in content["parts"]]
            if content.get("role") == "model":
                earlier.append(_earlier(position, parts))
            elif not any(_get(part, "functionResponse") for part in parts):
                begin = len(earlier)
        config = _get(request, "generationConfig") or {}
        system = _get(request, "systemInstruction") or {}
        return Asked(
            model=path.rpartition("/models/")[2].rpartition(":")[0],
            opening=[text_of(system.get("parts") or []), text_of(contents[0]["parts"][:1])],
            earlier=marked(earlier, begin),
            tools=[tool for entry in request.get("tools") or () for tool in _tools(entry)],
            stream="streamGenerateContent" in path,
            limit=_get(config, "maxOutputTokens"),
            form=_get(config, "responseJsonSchema") or _get(config, "responseSchema"),
            characters=len(json.dumps([system, contents])),
        )

    def whole(self, said: Said, asked: Asked) -> dict[str, Any]:
        parts: list[dict[str, Any]] = []
        if said.thought:
            parts.append({"text": said.thought, "thought": True})
        if said.text:
            parts.append({"text": said.text})
        calls = [{"id": call.id, "name": call.name, "args": dict(call.arguments)} for call in said.calls]
        parts += [{"functionCall": call} for call in calls]
        if said.thought and calls:
            # Of parallel calls only the first one is signed.
            parts[-len(calls)]["thoughtSignature"] = signature_of(said.turn)
        content = {"role": "model", "parts": parts}
        return {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": self.counted(said.usage),
            "modelVersion": asked.model,
            "responseId": f"{said.turn}-{said.conversation}",
        }

    def counted(self, usage: Usage) -> dict[str, Any]:
        found = {
            "promptTokenCount": usage.prompt,
            "candidatesTokenCount": usage.output - usage.reasoning,
            "totalTokenCount": usage.prompt + usage.output,
        }
        found |= {"cachedContentTokenCount": usage.cache_read} if usage.cache_read else {}
        return found | ({"thoughtsTokenCount": usage.reasoning} if usage.reasoning else {})

    def chunks(self, body: Any) -> list[dict[str, Any]]:
        """A body as the chunks of a stream; the last one has no part of the reply but its end and its tokens."""
        candidate = body["candidates"][0]
        parts = [*(piece for part in candidate["content"]["parts"] for piece in _pieces(part)), {"text": ""}]
        usage = body.get("usageMetadata")
        begun = {key: usage[key] for key in ("promptTokenCount",) if isinstance(usage, dict) and key in usage}
        head = {key: value for key, value in body.items() if key not in ("candidates", "usageMetadata")}
        found = [
            {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}], "usageMetadata": begun} | head
            for part in parts
        ]
        others = {key: value for key, value in candidate.items() if key != "content"}
        found[-1]["candidates"][0] |= others
        found[-1] |= {"usageMetadata": usage}
        return found

    def events(self, body: Any, request: Mapping[str, Any]) -> list[bytes]:
        return [event(chunk) for chunk in self.chunks(body)]

    def error(self, status: int, message: str, kind: str = "", code: str | None = None) -> dict[str, Any]:
        details: list[dict[str, Any]] = []
        if code == "context_length_exceeded":
            message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
        elif code == "invalid_api_key":
            status, message = 400, "API key not valid. Please pass a valid API key."
            details = [{"@type": f"{_TYPES}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
        state = _STATES.get(status, "UNKNOWN" if status >= 500 else "INVALID_ARGUMENT")
        found = {"code": status, "message": message, "status": state}
        return {"error": found | ({"details": details} if details else {})}

    def failure(self, body: Any, number: int) -> bytes:
        return event(self.error(503, "The model is overloaded. Please try again later."))

    def limited(self, seconds: float) -> dict[str, Any]:
        """The body of a refusal by limits: headers tell none."""
        body = self.error(429, "You exceeded your current quota, please check your plan and billing details.")
        broken = {"quotaMetric": "generativelanguage.googleapis.com/generate_content_requests", "quotaValue": "60"}
        broken |= {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}
        body["error"]["details"] = [
            {"@type": f"{_TYPES}QuotaFailure", "violations": [broken]},
            {"@type": f"{_TYPES}RetryInfo", "retryDelay": f"{seconds:g}s"},
        ]
        return body

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        able = {"supportedGenerationMethods": ["generateContent", "countTokens"], "version": "001"}
        sizes = {"inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536}
        return {"models": [{"name": f"models/{name}", "displayName": name} | able | sizes for name in names]}

    def count(self, tokens: int) -> dict[str, Any]:
        return {"totalTokens": tokens}

    def calls(self, body: Any) -> list[dict[str, Any]]:
        parts = body["candidates"][0]["content"]["parts"]
        return [part["functionCall"] for part in parts if "functionCall" in part]

    def cut(self, body: Any) -> None:
        candidate = body["candidates"][0]
        candidate["finishReason"] = "MAX_TOKENS"
        parts = candidate["content"]["parts"]
        if parts and "functionCall" in parts[-1]:
            candidate["content"]["parts"] = parts[:-1]
        elif parts:
            parts[-1]["text"] = parts[-1]["text"][: len(parts[-1]["text"]) // 2]

    def filtered(self, body: Any) -> None:
        body["candidates"] = [{"finishReason": "SAFETY", "index": 0, "content": {"role": "model", "parts": []}}]

    def hosted(self, body: Any) -> None:
        code = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
        result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
        candidate = body["candidates"][0]
        candidate["content"]["parts"][:0] = [code, result]
        page = {"web": {"uri": "https://example.org/page", "title": "A page"}}
        candidate["groundingMetadata"] = {"webSearchQueries": ["a page"], "groundingChunks": [page]}


def _get(data: Mapping[str, Any], name: str) -> Any:
    """A field by its name or by the one with underscores, which the API takes too."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return data.get(name, data.get(snake))


def _tools(entry: Mapping[str, Any]) -> list[Tool]:
    declared = _get(entry, "functionDeclarations") or []
    hosted = [
        Tool(name, kind="hosted") for name in entry if name not in ("functionDeclarations", "function_declarations")
    ]
    schemas = [_get(one, "parametersJsonSchema") or one.get("parameters") or {} for one in declared]
    return [Tool(str(one["name"]), schema) for one, schema in zip(declared, schemas, strict=True)] + hosted


def _earlier(position: int, parts: list[dict[str, Any]]) -> Earlier:
    calls = [(part, _get(part, "functionCall")) for part in parts if _get(part, "functionCall")]
    signatures = [_get(part, "thoughtSignature") for part, _ in calls]
    proofs = tuple(Proof(str(signature)) for signature in signatures if signature)
    spoken = text_of([part for part in parts if not part.get("thought")])
    return Earlier(position, turn_in([call.get("id") for _, call in calls]), bool(calls), spoken, proofs)


def _pieces(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A part as several chunks tell it; calls come whole."""
    return [{**part, "text": piece} for piece in pieces(part["text"])] if "text" in part else [dict(part)]
