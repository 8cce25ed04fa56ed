"""Child process in which LiteLLM translates between a program's protocol and the endpoint's.

It reads and writes lines of JSON. One exchange: ``{"ask": …}`` is answered by the body that the endpoint gets, then
``{"reply": …}``, the endpoint's answer, by the answer that the program gets; a problem is ``{"problem": text}``. In
between LiteLLM waits in what it takes for its HTTP request: it goes nowhere, and nothing else gets out of here either.
Run as a file, with the folder of LiteLLM: nothing else is imported, neither the package nor what it uses.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from typing import Any, NoReturn

CPU_S = 20.0
"""Seconds of processor time for one translation; honest ones take milliseconds."""
MEMORY = 6 << 30
MODELS = {"chat": "custom_openai", "responses": "openai/responses", "messages": "anthropic", "gemini": "gemini"}
"""LiteLLM's names of providers that speak a protocol."""


class GivenUp(BaseException):
    """The exchange ends without an answer of the endpoint."""


class Line:
    """The driver at the other end: a message a line."""

    def __init__(self) -> None:
        # What libraries print must not come between the lines.
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._next: dict[str, Any] | None = None
        self.sent = False

    def say(self, message: dict[str, Any]) -> None:
        """Send a message; until the next one comes no time is counted."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def hear(self) -> dict[str, Any]:
        """The next message; ends the process when the other end is closed."""
        message, self._next = self._next, None
        if message is None:
            line = sys.stdin.buffer.readline()
            if not line:
                sys.exit(0)
            message = dict(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        return message

    def exchange(self, body: bytes) -> Any:
        """What LiteLLM would send, handed out; the endpoint's answer. A second request of an exchange is refused."""
        if self.sent or not body:
            raise ConnectionError("one request only")
        self.sent = True
        self.say({"body": json.loads(body)})
        message = self.hear()
        if "reply" not in message:
            self._next = message
            raise GivenUp
        return message["reply"]


def _intercept(library: Any, line: Line) -> None:
    """Put our exchange in the place of the library's connections."""

    def handle(_self: Any, request: Any) -> Any:
        return library.Response(200, json=line.exchange(request.read()), request=request)

    async def handle_async(_self: Any, request: Any) -> Any:
        return library.Response(200, json=line.exchange(await request.aread()), request=request)

    library.HTTPTransport.handle_request = handle
    library.AsyncHTTPTransport.handle_async_request = handle_async


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise ConnectionError("nothing gets out of here")


def _load(line: Line) -> Any:
    """LiteLLM, without telemetry, price lists from elsewhere, caches and connections."""
    sys.path.insert(0, sys.argv[1])
    import httpx
    import litellm

    try:
        import httpx2
    except ImportError:
        libraries = [httpx]
    else:
        libraries = [httpx, httpx2]
    for library in libraries:
        _intercept(library, line)
    litellm.telemetry = False
    litellm.drop_params = True
    litellm.disable_aiohttp_transport = True
    litellm.suppress_debug_info = True
    socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = _refuse  # type: ignore[method-assign]
    return litellm


def _as_json(value: Any) -> dict[str, Any]:
    return dict(value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value)


def translated(litellm: Any, ask: dict[str, Any]) -> dict[str, Any]:
    """One exchange: the program's body through LiteLLM and back."""
    body = ask["body"]
    if ask["to"] == "gemini":
        body = without_marks(body)  # LiteLLM would make a cache at the provider of what is marked
    way = {
        "model": f"{MODELS[ask['to']]}/{ask['model']}",
        "api_key": "none",
        "api_base": "http://endpoint.invalid/v1",
        "max_retries": 0,
    }
    if ask["from"] == "chat":
        return _as_json(litellm.completion(**way, **body))
    if ask["from"] == "responses":
        return readable(_as_json(litellm.responses(**way, **body)))
    if ask["from"] == "messages":
        return _as_json(asyncio.run(litellm.anthropic_messages(**way, **body)))
    return _gemini(litellm, way, body)


def _gemini(litellm: Any, way: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """As LiteLLM's own entry for Gemini's clients, but calls of one function keep apart: they get numbers."""
    from litellm.google_genai.adapters.transformation import GoogleGenAIAdapter

    adapter = GoogleGenAIAdapter()
    contents, config = body["contents"], body.get("generationConfig")
    more = {name: value for name, value in body.items() if name in ("systemInstruction", "tools", "toolConfig")}
    chat = adapter.translate_generate_content_to_completion(way["model"], contents, config, **more)
    number_calls(chat["messages"])
    return dict(adapter.translate_completion_to_generate_content(litellm.completion(**chat | way)))


def without_marks(value: Any) -> Any:
    """A body without ``cache_control``."""
    if isinstance(value, dict):
        return {name: without_marks(inner) for name, inner in value.items() if name != "cache_control"}
    return [without_marks(inner) for inner in value] if isinstance(value, list) else value


def readable(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer whose reasoning is told as summaries: LiteLLM tells it as a kind of text that it never is.

    Codex leaves such an item out, and with it the signature that the next request must hold.
    """
    for item in answer.get("output") or []:
        if item.get("type") == "reasoning":
            texts = [part.get("text") or "" for part in item.pop("content", None) or []]
            item["summary"] = item.get("summary") or [{"type": "summary_text", "text": text} for text in texts]
    return answer


def number_calls(messages: list[dict[str, Any]]) -> None:
    """Give calls and their results ids of their own: results come in the order of the calls of the same name."""
    open_calls: dict[str, list[str]] = {}
    number = 0
    for message in messages:
        for call in message.get("tool_calls") or []:
            number += 1
            open_calls.setdefault(call["id"], []).append(f"call_{number}")
            call["id"] = f"call_{number}"
        if message["role"] == "tool" and open_calls.get(message["tool_call_id"]):
            message["tool_call_id"] = open_calls[message["tool_call_id"]].pop(0)


def main() -> None:
    """Translate one exchange after the other until the other end is closed; SIGPROF ends what takes too long."""
    line = Line()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    litellm = _load(line)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    while True:
        message, line.sent = line.hear(), False
        if "ask" not in message:
            line.say({"problem": "no exchange"})
            continue
        try:
            line.say({"answer": translated(litellm, message["ask"])})
        except GivenUp:
            continue
        except Exception as error:
            line.say({"problem": f"{type(error).__name__}: {error}"[:500]})


if __name__ == "__main__":
    main()
