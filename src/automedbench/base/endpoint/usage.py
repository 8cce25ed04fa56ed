"""Usage that an answer reports, in one convention for all providers: each protocol's usage object as ``Tokens``.

Pure functions. Usage that is not reported, or makes no sense, gives None: the caller decides what is estimated.

- OpenAI (chat, Responses) counts what it read from and wrote to its cache inside the input, reasoning inside the
  output. Some servers of the same form count the reasoning that they report beside the output (xAI): their total
  shows it. A total that exceeds the counts for no reason given is not believed.
- Anthropic counts both parts of the cache beside ``input_tokens``; thinking is inside ``output_tokens``.
- Gemini counts the cached part inside the prompt, but thoughts beside the candidates, and what its own tools put into
  the prompt beside that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from automedbench.base.records import Tokens

_STANDARD = frozenset({"auto", "default", "standard", "on_demand", "unspecified", "traffic_type_unspecified"})
_LONGER_KEPT = "ttl_12h_tokens"
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@dataclass(frozen=True)
class Billed:
    """One request as its provider bills it: its tokens, and what it was served as (see ``service_tier``)."""

    tokens: Tokens
    tier: str = ""


def tokens_in(spent: Iterable[Billed]) -> Tokens:
    """Tokens of some requests together; what they cost is no function of this sum (see ``compute_cost``)."""
    return sum((each.tokens for each in spent), Tokens())


def chat_usage(usage: Any) -> Tokens | None:
    """Tokens of the ``usage`` of a chat completion, or of the chunk of a stream that holds it."""
    found = _openai(usage, "prompt_tokens", "completion_tokens")
    if found is None:
        return None
    is_beside = found.reasoning and _count(usage.get("total_tokens")) == found.total + found.reasoning
    return found.model_copy(update={"completion": found.completion + found.reasoning}) if is_beside else found


def responses_usage(usage: Any) -> Tokens | None:
    """Tokens of the ``usage`` of an OpenAI response, whole or of ``response.completed``."""
    return _openai(usage, "input_tokens", "output_tokens")


def messages_usage(usage: Any) -> Tokens | None:
    """Tokens of the ``usage`` of an Anthropic message; of a stream, see ``merge_usage``."""
    if not isinstance(usage, Mapping):
        return None
    fresh, completion = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    if fresh is None or completion is None:
        return None
    cached = _count(usage.get("cache_read_input_tokens")) or 0
    short, long = (_detail(usage, "cache_creation", f"ephemeral_{kept}_input_tokens") for kept in ("5m", "1h"))
    written = _count(usage.get("cache_creation_input_tokens")) or short + long
    thinking = _detail(usage, "output_tokens_details", "thinking_tokens")
    return _tokens(fresh + cached + written, cached, written, long, completion, thinking)


def gemini_usage(usage: Any) -> Tokens | None:
    """Tokens of the ``usageMetadata`` of a Gemini answer, or of the last chunk of a stream that holds one."""
    if not isinstance(usage, Mapping):
        return None
    prompt = _count(usage.get("promptTokenCount"))
    if prompt is None:
        return None
    prompt += _count(usage.get("toolUsePromptTokenCount")) or 0
    thoughts = _count(usage.get("thoughtsTokenCount")) or 0
    completion = (_count(usage.get("candidatesTokenCount")) or 0) + thoughts
    return _tokens(prompt, _count(usage.get("cachedContentTokenCount")) or 0, 0, 0, completion, thoughts)


def merge_usage(parts: Iterable[Any]) -> dict[str, Any]:
    """One usage object from those of a stream in their order: counts are running sums, so that the last one holds.

    For ``message_start`` and ``message_delta`` of Anthropic and the chunks of Gemini; empty without any.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, Mapping):
            merged |= {name: value for name, value in part.items() if value is not None}
    return merged


def service_tier(body: Mapping[str, Any]) -> str:
    """Service tier that an answer reports (``batch``, ``flex``, ``priority``, ``fast``, …); empty for the standard.

    OpenAI tells it beside the usage, Anthropic and Gemini within; Anthropic's fast mode counts as a tier of its own.
    """
    usage = next((part for name in ("usage", "usageMetadata") if isinstance(part := body.get(name), Mapping)), {})
    if usage.get("speed") == "fast":
        return "fast"
    tiers = (body.get("service_tier"), usage.get("service_tier"), usage.get("serviceTier"), usage.get("trafficType"))
    name = next((each for each in tiers if isinstance(each, str)), "").lower()
    return "" if name in _STANDARD else name.removeprefix("on_demand_")


def reported_cost(usage: Any) -> float | None:
    """USD that the provider itself reports for the request, if it does (``usage.cost`` of OpenRouter)."""
    value = usage.get("cost") if isinstance(usage, Mapping) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def asked_tokens(body: Mapping[str, Any]) -> int | None:
    """The most tokens that a request of any protocol asks for; None without such a limit."""
    inner = body.get("generationConfig")
    limits = [body.get(name) for name in _LIMITS]
    limits.append(inner.get("maxOutputTokens") if isinstance(inner, Mapping) else None)
    return max((count for each in limits if (count := _count(each)) is not None), default=None)


def _openai(usage: Any, input_name: str, output_name: str) -> Tokens | None:
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = _count(usage.get(input_name)), _count(usage.get(output_name))
    if prompt is None or completion is None:
        return None
    details = f"{input_name}_details"
    cached = _detail(usage, details, "cached_tokens") or _first(
        usage, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"
    )
    written = _detail(usage, details, "cache_write_tokens") or _first(usage, "cache_creation_input_tokens")
    kept = usage.get(details)
    longer = _detail(kept, "cache_write_tokens_details", _LONGER_KEPT) if isinstance(kept, Mapping) else 0
    reasoning = _detail(usage, f"{output_name}_details", "reasoning_tokens")
    return _tokens(prompt, cached, written, longer, completion, reasoning)


def _tokens(prompt: int, cached: int, written: int, longer: int, completion: int, reasoning: int) -> Tokens:
    """Counts as a record; a part is never larger than what it is part of."""
    cached = min(cached, prompt)
    written = min(written, prompt - cached)
    return Tokens(
        prompt=prompt,
        cached=cached,
        cache_write=written,
        cache_write_1h=min(longer, written),
        completion=completion,
        reasoning=reasoning,
    )


def _detail(usage: Mapping[str, Any], group: str, name: str) -> int:
    details = usage.get(group)
    return (_count(details.get(name)) or 0) if isinstance(details, Mapping) else 0


def _first(usage: Mapping[str, Any], *names: str) -> int:
    return next((count for name in names if (count := _count(usage.get(name)))), 0)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
