"""Tries of models and judges: a reply with a call of a tool, as runs ask for one, and one that a limit must cut."""

from __future__ import annotations

import contextlib
import email.utils
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from automedbench.agent.models.model import ChatMessage, Reply, ToolSpec, estimate_tokens
from automedbench.agent.protocols import PROTOCOLS, endpoint_path, read_reply, whole_or_stream
from automedbench.base.endpoint.address import api_root
from automedbench.base.endpoint.faults import Fault, FaultyReply, classify_status
from automedbench.base.endpoint.http import (
    FAILURES,
    CutStream,
    EndpointHttp,
    classify_failure,
    is_loopback,
    parse_context,
    parse_model_ids,
)
from automedbench.base.endpoint.rate_headers import read_rate_limits
from automedbench.base.endpoint.replies import is_stream
from automedbench.base.endpoint.usage import Billed, asked_tokens
from automedbench.base.errors import AutoMedBenchError
from automedbench.base.files import parse_json_object
from automedbench.base.masking import masked, secret_forms
from automedbench.campaign.agents import Agent
from automedbench.commands._machine.examine import Host, ProbeResult, ProbeResults, Status, fail, next_step, ok, warn
from automedbench.commands._machine.inputs import (
    ask_each,
    ask_for_models,
    list_clients,
    list_judges,
    list_models,
    name_listed,
    name_place,
)

TOOL = ToolSpec("note", "Keep a note.", {"type": "object", "properties": {"text": {"type": "string"}}})
CALL = (ChatMessage("user", "Call the tool `note` once, with the text READY. Write nothing else."),)
FORM = (ChatMessage("user", 'Answer with the JSON object {"ready": true} and nothing else.'),)
COUNT = (ChatMessage("user", "Write the numbers from 1 to 400 in digits, with spaces between. Call no tool."),)
REPLY_TOKENS, CUT_TOKENS, PROMPT_TOKENS = 2048, 64, 600
"""Limits of the two replies, and more than both prompts together have."""
REPLY_S = 120.0
CLOCK_S = 60.0
"""Seconds that a clock may be off: signatures and certificates fail a little later."""
_RECORDING = threading.Lock()


def endpoints(host: Host) -> ProbeResults:
    """Every endpoint answers with this key: its list of models, which is free."""
    return ask_each(host, "endpoints", list_clients(host.campaign), _look, is_try=False)


def models(host: Host) -> ProbeResults:
    """Every model of the campaign answers as its runs need it."""
    return ask_each(host, "models", list_models(host.campaign), _Try("models", host.record))


def judges(host: Host) -> ProbeResults:
    """Every judge answers in the form that it is asked for."""
    return ask_each(host, "judges", list_judges(host.campaign), _Try("judges", host.record))


def sum_costs(clients: Mapping[str, Agent]) -> float | None:
    """The most that trying these endpoints may cost, in USD; None where a price is not known."""
    costs = [_most_usd(client) for client in clients.values()]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _most_usd(client: Agent) -> float | None:
    """The most that both requests cost; nothing at servers of one's own."""
    if client.pricing is None:
        return 0.0 if client.endpoint_file or is_loopback(client.address) else None
    prompt, reply = client.pricing.dearest(PROMPT_TOKENS)
    return float(PROMPT_TOKENS * prompt + (REPLY_TOKENS + CUT_TOKENS) * reply)


# --- asking ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TriedReply:
    """A reply, whether it came as a stream, its headers, and the limit of tokens that the request set."""

    reply: Reply
    streamed: bool
    headers: Mapping[str, str]
    limit: int | None

    @property
    def tokens(self) -> int:
        """Tokens of the reply, estimated where they are not told."""
        usage = self.reply.usage
        return usage.completion if not usage.estimated else estimate_tokens([ChatMessage("user", self.reply.content)])


@dataclass(frozen=True)
class _TriedEndpoint:
    """An agent's endpoint, asked once for each reply; ``record``: folder of the answers, by protocol."""

    agent: Agent
    url: str
    key: str
    record: Path | None

    def ask(self, messages: Sequence[ChatMessage], limit: int) -> _TriedReply | Fault:
        """The answer to one request, or its fault; nothing is asked twice."""
        agent, data = _limited(self.agent, limit), b""
        body = whole_or_stream(agent, PROTOCOLS[agent.protocol].make_request(agent, messages, [TOOL]))
        with EndpointHttp(agent.address) as http:
            try:
                root, path = api_root(self.url, agent.protocol), endpoint_path(agent)
                data = http.post(agent.protocol, root, path, self.key, body, REPLY_S)
                reply = read_reply(agent.protocol, data, messages)
            except FaultyReply as error:
                self._keep(body, 200, data)
                return error.fault
            except (CutStream, *FAILURES) as error:
                fault = classify_failure(error.reason if isinstance(error, CutStream) else error, REPLY_S)
                self._keep(body, fault.status, fault.body.encode())
                return replace(fault, body=masked(fault.body, secret_forms([self.key])))
            self._keep(body, 200, data)
            return _TriedReply(reply, is_stream(data), http.headers, asked_tokens(body))

    def _keep(self, body: Mapping[str, object], status: int | None, data: bytes) -> None:
        """Add request and answer to the recordings, one JSON object a line; no answer is none."""
        if self.record is None or status is None:
            return
        text = masked(data.decode("utf-8", "replace"), secret_forms([self.key]))
        parts, stream = urlsplit(self.url), is_stream(data)
        path, _, query = f"{parts.path}{endpoint_path(self.agent)}".partition("?")
        row = {
            "id": f"first-run/{self.agent.model}#{time.time_ns()}",
            "host": parts.hostname,
            "path": path,
            "query": query,
            "status": status,
            "form": "stream" if stream else "whole",
            "request": body,
            "response": text if stream else (parse_json_object(text) or text),
        }
        with _RECORDING:
            self.record.mkdir(parents=True, exist_ok=True)
            with open(self.record / f"{self.agent.protocol}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _limited(agent: Agent, limit: int) -> Agent:
    """The agent with another limit of its replies, above its budget of reasoning."""
    limit += agent.reasoning.budget_tokens or 0
    named = {"max_completion_tokens": limit} if "max_completion_tokens" in agent.extra_body else {}
    return agent.model_copy(update={"max_tokens": limit, "extra_body": agent.extra_body | named})


def _look(name: str, client: Agent, url: str, key: str) -> ProbeResults:
    place = name_place(name, client, url)
    try:
        status, body = ask_for_models(client, url, key)
    except AutoMedBenchError as error:
        fix = "Nothing, if another server answers: runs pass this one over. Else start it again."
        return [fail("endpoints", f"{place} gives no answer: {error}", fix if client.endpoint_file else _reach(url))]
    if status in (404, 405, 501):
        fix = "Make sure that base_url ends as the provider says (docs/models.md)."
        return [warn("endpoints", f"{place} answers, but lists no models (HTTP {status})", fix)]
    if status >= 300:
        text = masked(body.decode("utf-8", "replace"), secret_forms([key]))
        fault = Fault(classify_status(status, text), status, text)
        find = warn if fault.kind == "rate_limit" else fail
        return [find("endpoints", *_explain(place, _TriedEndpoint(client, url, key, None), fault))]
    listed = parse_model_ids(body)
    if listed and client.model not in listed:
        text = f"{place} answers, but does not list '{client.model}'"
        return [warn("endpoints", text, name_listed(client.model, listed))]
    return [ok("endpoints", f"{place} answers and takes the key")]


@dataclass(frozen=True)
class _Try:
    """The try of one endpoint, for ``ask_each``."""

    probe: str
    record: Path | None

    def __call__(self, name: str, client: Agent, url: str, key: str) -> Iterator[ProbeResult]:
        place, endpoint = name_place(name, client, url), _TriedEndpoint(client, url, key, self.record)
        first = endpoint.ask(FORM if self.probe == "judges" else CALL, REPLY_TOKENS)
        if isinstance(first, Fault):
            yield fail(self.probe, *_explain(place, endpoint, first))
            return
        problems = [*_check_form(self.probe, client, first), *_check_facts(endpoint, first)]
        if client.max_tokens is not None:
            problems += _check_limit(endpoint.ask(COUNT, CUT_TOKENS))
        for status, message, fix in problems:
            yield ProbeResult(probe=self.probe, status=status, message=f"{place} {message}", fix=fix)
        if not any(status == "FAIL" for status, _, _ in problems):
            yield ok(self.probe, f"{place} answers{_describe(client, first)}")


def _describe(agent: Agent, answer: _TriedReply) -> str:
    """What was seen of a good answer: form, tokens, price, limits."""
    reply, rate = answer.reply, read_rate_limits(answer.headers).rate
    cost = agent.pricing.cost(Billed(reply.usage, reply.service_tier)) if agent.pricing else None
    parts = ["with a call of a tool"] * bool(reply.calls) + ["as a stream"] * answer.streamed
    parts += [f"{reply.usage.prompt} + {reply.usage.completion} tokens"]
    parts += [] if cost is None else [f"{cost:.6f} USD"]
    parts += [f"{rate.requests_per_minute:.0f} requests/min"] if rate.requests_per_minute else []
    parts += [f"{rate.tokens_per_minute:.0f} tokens/min"] if rate.tokens_per_minute else []
    return f": {', '.join(parts)}"


# --- verdicts on an answer: status, what is wrong, what to do -------------------------------------------------

Problem = tuple[Status, str, str]


def _check_form(probe: str, agent: Agent, answer: _TriedReply) -> Iterator[Problem]:
    reply = answer.reply
    if probe == "judges" and "response_format" in agent.extra_body and not parse_json_object(reply.content):
        fix = "Set the judge's structured: text (answer_judge: json_mode: false), or choose another model."
        yield "FAIL", f"writes no JSON where it is asked to: {_excerpt(reply.content)}", fix
    if probe == "models" and agent.native_tools and not reply.calls:
        if reply.finish_reason == "length":
            fix = "Nothing, if it thinks long; else set reasoning (docs/models.md)."
            yield "warn", f"used {answer.tokens} tokens before it called a tool", fix
        else:
            yield "FAIL", f"ignores tools: it answered in text, {_excerpt(reply.content)}", _TOOLS
    if agent.stream and not answer.streamed:
        yield "warn", "answers whole, although 'stream: true' asks for streams", "Set stream: false."


def _check_facts(endpoint: _TriedEndpoint, answer: _TriedReply) -> Iterator[Problem]:
    """Usage, price, window and clock."""
    agent, reply = endpoint.agent, answer.reply
    if reply.usage.estimated:
        fix = "Switch it on at the server, or go by estimates: characters / 4."
        yield "warn", "reports no usage: limits and costs would be estimates", fix
    billed = Billed(reply.usage, reply.service_tier)
    if _most_usd(agent) is None:
        yield "warn", "has no price: no limit of cost can be kept", "Add 'pricing' to its entry (docs/models.md)."
    elif agent.pricing and (missing := agent.pricing.missing(billed)):
        yield "warn", f"has no price for this request (pricing.{missing})", f"Add pricing.{missing} to its entry."
    if (window := _read_context(endpoint)) is not None and window < agent.context_tokens:
        text = f"has a window of {window} tokens; context_tokens is {agent.context_tokens}"
        yield "warn", text, f"Set context_tokens: {window}, or start the server with more."
    yield from check_clock(answer.headers.get("date", ""), "it")


def _read_context(endpoint: _TriedEndpoint) -> int | None:
    with contextlib.suppress(AutoMedBenchError):
        return parse_context(ask_for_models(endpoint.agent, endpoint.url, endpoint.key)[1], endpoint.agent.model)
    return None


def check_clock(date: str, whose: str) -> Iterator[Problem]:
    """The clock of this machine against the ``Date`` of an answer; nothing without one."""
    try:
        ahead = time.time() - email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return
    if abs(ahead) > CLOCK_S:
        text = f"shows that the clock here is off: {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {whose}"
        yield "FAIL", text, "Set the clock: timedatectl set-ntp true."


def _check_limit(answer: _TriedReply | Fault) -> Iterator[Problem]:
    """The reply was cut where the request says; some providers refuse so low a limit, which is no problem."""
    if isinstance(answer, Fault) or answer.limit is None or answer.tokens <= 2 * answer.limit:
        return
    fix = "Set the limit that it knows in extra_body (max_completion_tokens?), or one at the server."
    yield "FAIL", f"ignores max_tokens: a reply of {answer.tokens} tokens, where {answer.limit} were asked for", fix


# --- why there is none ----------------------------------------------------------------------------------------

_TOOLS = "Start the server with its parser of tool calls (docs/serving.md), or set native_tools: false."
_SAYS = {
    "response_format|json_schema|structured": "Set the judge's structured: json_object or text.",
    "tool": _TOOLS,
    "temperature": "Set temperature: null.",
    "max_tokens|max_completion_tokens": "Name the limit in extra_body: {max_completion_tokens: N}.",
    "stream": "Set stream: false.",
}
"""A word of a refusal → what to change."""
TRUST_FIX = (
    "Your network opens TLS: export SSL_CERT_FILE and REQUESTS_CA_BUNDLE, a file with its authority's certificate."
)


def _reach(url: str) -> str:
    """What to do about an endpoint that gives no answer."""
    if is_loopback(url):
        return "Is the server running? Start it (docs/serving.md), or correct the port in base_url."
    return "Check base_url, and whether this machine reaches it: HTTPS_PROXY may be needed."


def _explain(place: str, endpoint: _TriedEndpoint, fault: Fault) -> tuple[str, str]:
    """What is wrong with an endpoint that gave no reply, and what to do."""
    agent, says = endpoint.agent, _excerpt(fault.body)
    key = agent.api_key_env or agent.api_key_file
    if fault.status == 402 or (fault.kind == "auth" and re.search("quota|credit|billing", fault.body)):
        return f"{place} refuses: no credit (HTTP {fault.status})", f"Add credit to the account of the key in {key}."
    if fault.kind == "auth":
        return f"{place} refuses the key (HTTP {fault.status}): {says}", f"Put a valid key into {key}."
    if fault.kind == "rate_limit":
        fix = "Wait, or let fewer runs ask at a time; a key of a higher tier helps."
        return f"{place} refuses the first request for its rate (HTTP {fault.status}): {says}", fix
    if fault.status in (400, 404, 422) and (listed := _list_others(endpoint)):
        return f"{place} does not have the model '{agent.model}' (HTTP {fault.status})", listed
    if fault.status == 404:
        fix = "Check base_url (most end in /v1), protocol and model (docs/models.md)."
        return f"{place} has no {endpoint_path(agent)} (HTTP 404)", fix
    if fault.kind == "context_overflow":
        return f"{place} has too small a window for 100 tokens: {says}", "Start the server with a larger one."
    if fault.kind == "bad_request":
        fix = next_step(fault.body, _SAYS, "Change what it names in the entry.")
        return f"{place} refuses the request (HTTP {fault.status}): {says}", fix
    if fault.kind == "malformed":
        fix = "Check base_url and protocol; a log-in page of the network looks like this as well."
        return f"{place} does not speak '{agent.protocol}': {says}", fix
    if re.search("CERTIFICATE|certificate", fault.body):
        return f"{place} shows a certificate that is not trusted", TRUST_FIX
    if fault.status is None:
        return f"{place} gives no answer: {says}", _reach(endpoint.url)
    return f"{place} answers HTTP {fault.status}: {says}", "Look at the provider's status or the server's log."


def _list_others(endpoint: _TriedEndpoint) -> str:
    """What to set where the endpoint lists models and not this one; else empty."""
    with contextlib.suppress(AutoMedBenchError):
        models = parse_model_ids(ask_for_models(endpoint.agent, endpoint.url, endpoint.key)[1])
        if models and endpoint.agent.model not in models:
            return name_listed(endpoint.agent.model, models)
    return ""


def _excerpt(text: str) -> str:
    return " ".join(text.split())[:160] or "nothing"
