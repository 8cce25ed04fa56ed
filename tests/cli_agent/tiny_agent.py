"""A small command-line agent: reads its brief, asks its model, runs what the model calls, ends when it says so.

Standard library only, as a program inside the container finds it. Every other request is streamed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from typing import Any

TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in ("execute_code", "submit_results")
]


def ask(messages: list[dict[str, Any]], stream: bool) -> dict[str, Any]:
    """One request; the assistant's message."""
    body = {"model": "any", "messages": messages, "tools": TOOLS, "stream": stream, "temperature": 1.0}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        if not stream:
            return dict(json.load(response)["choices"][0]["message"])
        return collected(line.decode().strip() for line in response)


def collected(lines: Any) -> dict[str, Any]:
    """A streamed message put together."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    for line in lines:
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        for choice in json.loads(line[6:])["choices"]:
            message["content"] += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls", []):
                call = calls.setdefault(part["index"], {"function": {"name": "", "arguments": ""}})
                call |= {key: part[key] for key in ("id", "type") if key in part}
                for key in ("name", "arguments"):
                    call["function"][key] += part["function"].get(key) or ""
    return message | ({"tool_calls": [calls[index] for index in sorted(calls)]} if calls else {})


def run(arguments: dict[str, Any], tells: str) -> str:
    """Execute code as the model asked for it, and tell all of it, no exit code, or a made-up one."""
    program = {"python": [sys.executable, "-c"], "bash": ["bash", "-c"]}[arguments["language"]]
    done = subprocess.run([*program, arguments["code"]], capture_output=True, text=True, check=False)
    if tells == "no-code":
        return done.stdout
    code = 0 if tells == "lies" else done.returncode
    return json.dumps({"exit_code": code, "stdout": done.stdout[-4000:], "stderr": done.stderr[-4000:]})


def main(brief: str, tells: str = "all") -> int:
    """Turn after turn; 0 after submit_results, 3 when the model has nothing more to say."""
    with open(brief, encoding="utf-8") as stream:
        messages: list[dict[str, Any]] = [{"role": "system", "content": stream.read()}]
    messages.append({"role": "user", "content": "Begin."})
    for turn in range(100):
        reply = ask(messages, stream=turn % 2 == 1)
        messages.append(reply)
        print(f"turn {turn + 1}: {reply.get('content')}", flush=True)
        if not reply.get("tool_calls"):
            return 3
        for call in reply["tool_calls"]:
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "submit_results":
                return 0
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": run(arguments, tells)})
    return 4


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
