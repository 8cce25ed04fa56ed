"""Real servers on loopback, from PyPI, with a language model of random weights: what the driver makes of their answers.

They are llama.cpp's own, `transformers serve`, and LiteLLM's proxy in front of llama.cpp. Results: docs/reality.md.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from automedbench.agent.models.endpoint import EndpointModel
from automedbench.agent.models.model import ChatMessage, ContextOverflow, EndpointError, Reply, RequestFailed, ToolSpec
from automedbench.base.endpoint.client import Attempt
from automedbench.campaign.agents import Agent

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PINS = {
    "llama": ["xllamacpp==2026.10.11549", "gguf==0.19.0"],
    "transformers": ["transformers[serving]==5.24.0", "torch==2.13.0"],
    "litellm": ["litellm[proxy]==1.108.7"],
}
UV, MAKER, KEY = (
    str(Path(sys.executable).with_name("uv")),
    Path(__file__).with_name("tiny_language_model.py"),
    "sk-right",
)
LLAMA = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.model_alias, params.port = sys.argv[1], {"tiny"}, int(sys.argv[2])
params.hostnames, params.api_keys, params.n_ctx, params.n_parallel = ["127.0.0.1"], ["sk-right"], 512, 1
params.use_jinja = True
server = xllamacpp.Server(params)
sys.stdin.read()
"""
NOTE = ToolSpec("note", "Keep a note.", {"type": "object", "properties": {"text": {"type": "string"}}})
Server = tuple[str, str]
"""Base URL, and the model's name there."""


def install(folder: Path, name: str) -> Path:
    """The ``bin`` of a new environment with a server; skips where no index has it."""
    wheels = [word for place in os.environ.get("PIP_FIND_LINKS", "").split() for word in ("--find-links", place)]
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, str(folder / name)], check=True)
    command = [UV, "pip", "install", "-q", "--python", str(folder / name / "bin/python"), *wheels, *PINS[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{name} cannot be installed: {done.stderr[-300:]}")
    return folder / name / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(stack: ExitStack, port: int, model: str, *command: str | Path, **variables: str) -> Server:
    """A server process until the stack ends, from its first answer on."""
    process = subprocess.Popen(
        [*command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | variables,
    )
    stack.enter_context(process)  # closes its pipe and waits for its end
    stack.callback(process.terminate)
    url = f"http://127.0.0.1:{port}/v1"
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    for _ in range(300):
        try:
            request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=120):
                return url, model
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert process.poll() is None, command
        time.sleep(1)
    raise AssertionError(f"{command} did not answer")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """Servers by name, each installed and started when it is first asked for."""
    folder, started = tmp_path_factory.mktemp("servers"), dict[str, Server]()
    with ExitStack() as stack:

        def find(name: str) -> Server:
            if name not in started:
                started[name] = {"llama": llama, "transformers": transformers, "litellm": litellm}[name]()
            return started[name]

        def llama() -> Server:
            python, port = install(folder, "llama") / "python", free_port()
            subprocess.run([python, MAKER, "gguf", folder / "tiny.gguf"], check=True)
            return start(stack, port, "tiny", python, "-c", LLAMA, folder / "tiny.gguf", str(port))

        def transformers() -> Server:
            programs, port = install(folder, "transformers"), free_port()
            subprocess.run([programs / "python", MAKER, "hub", folder / "tiny"], check=True)
            words = ("serve", folder / "tiny", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu")
            return start(stack, port, str(folder / "tiny"), programs / "transformers", *words, HF_HUB_OFFLINE="1")

        def litellm() -> Server:
            behind = {"model": "hosted_vllm/tiny", "api_base": find("llama")[0], "api_key": KEY}
            models = [{"model_name": "tiny", "litellm_params": behind}]
            models += [{"model_name": "limited", "litellm_params": behind | {"rpm": 1}}]
            config = {"model_list": models, "general_settings": {"master_key": KEY}}
            config |= {"router_settings": {"optional_pre_call_checks": ["enforce_model_rate_limits"]}}
            config |= {"litellm_settings": {"drop_params": True, "num_retries": 0}}
            (folder / "gateway.yaml").write_text(yaml.safe_dump(config))
            program, port = install(folder, "litellm") / "litellm", free_port()
            words = ("--config", folder / "gateway.yaml", "--host", "127.0.0.1", "--port", str(port))
            return start(stack, port, "tiny", program, *words, LITELLM_LOCAL_MODEL_COST_MAP="True")

        yield find


def ask(server: Server, text: str = "hello", key: str = KEY, **entry: Any) -> tuple[Reply | RequestFailed, list[str]]:
    """The reply or failure of one request with a tool, and the kinds of all attempts."""
    attempts: list[Attempt] = []
    fields = {"provider": "openai", "model": server[1], "base_url": server[0], "api_key_env": "K", "max_tokens": 8}
    agent = Agent.model_validate(fields | entry)
    with EndpointModel(agent, [key], on_attempt=attempts.append, sleep=lambda _: None) as model:
        try:
            found: Reply | RequestFailed = model.reply([ChatMessage("user", text)], [NOTE], 600)
        except RequestFailed as failure:
            found = failure
    return found, [attempt.kind for attempt in attempts]


@pytest.mark.parametrize("name", ["llama", "transformers", "litellm"])
def test_a_stream_is_the_whole_reply(servers: Callable[[str], Server], name: str) -> None:
    """With a tool offered; at temperature 0 the same text, and the same tokens as the server counts them."""
    server = servers(name)
    (whole, _), (streamed, _) = ask(server), ask(server, stream=True)
    assert isinstance(whole, Reply) and isinstance(streamed, Reply), (whole, streamed)
    assert (whole.finish_reason, whole.usage.completion, whole.usage.estimated) == ("length", 8, False)
    # A random model ends within a character: streams hold its bytes back, whole replies show what they are not.
    texts = [reply.content.rstrip("\ufffd") for reply in (whole, streamed)]
    assert (texts[0], whole.usage.prompt) == (texts[1], streamed.usage.prompt)


@pytest.mark.parametrize("name", ["llama", "litellm"])
def test_overflow_and_wrong_key(servers: Callable[[str], Server], name: str) -> None:
    """`transformers serve` knows neither: it has no key, and takes more than the model's window."""
    server = servers(name)
    overflow, _ = ask(server, "hello " * 300)
    assert isinstance(overflow, ContextOverflow)
    refused, kinds = ask(server, key="sk-wrong")
    assert isinstance(refused, EndpointError) and set(kinds) == {"auth"}
    assert "Check the key" in str(refused)


def test_wrong_model_and_rate_limit_of_a_gateway(servers: Callable[[str], Server]) -> None:
    server = servers("litellm")
    other, kinds = ask(server, model="other")
    assert isinstance(other, EndpointError) and set(kinds) == {"bad_request"}
    _, kinds = ask(server, model="limited")
    _, kinds = ask(server, model="limited")
    assert "rate_limit" in kinds
