"""Bounds of the tokens of a request, by the whole body that goes out: no tokenizer and no provider is asked.

A token holds a byte of UTF-8 at least, so a prompt has at most as many tokens as its JSON has bytes. Of what an
answered request held already, the provider's own count stands for it: only what came behind is bounded by its bytes.
Pictures count with the most tokens that a provider of the protocol makes of one. Documents and recordings may have any
number of pages and seconds in few bytes: each counts as a full window.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from automedbench.agent.protocols.common import list_objects
from automedbench.base.endpoint.address import ProtocolName
from automedbench.base.endpoint.usage import asked_tokens
from automedbench.base.records import Tokens
from automedbench.campaign.agents import Agent

LONGEST_TOKEN = 16
"""Characters: no text has longer tokens on average; runs of blanks come close."""
ADDED = 1_000
"""Tokens of instructions that a provider adds itself, about the use of tools for one; up to 800 are documented."""
PICTURE: Mapping[ProtocolName, int] = {"chat": 48_169, "responses": 48_169, "messages": 4_784, "gemini": 8_000}
"""The most tokens of a picture: gpt-4o-mini's eight tiles, Claude's longest edge, Gemini's thirty tiles."""
REMEMBERED = 8
"""Answered prompts that later ones may begin with: a program has several conversations."""

_CONVERSATION: Mapping[ProtocolName, str] = {
    "chat": "messages",
    "responses": "input",
    "messages": "messages",
    "gemini": "contents",
}
_TEXTS = ("system", "instructions", "systemInstruction", "tools")
_FREE = frozenset(
    {
        *("model", "max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "top_p", "top_k", "stop"),
        *("stop_sequences", "stream", "stream_options", "prompt_cache_key", "metadata", "user", "seed", "store"),
    }
)
"""Fields that change neither the prompt nor which parts of it are read."""
_JSON = json.JSONEncoder(ensure_ascii=False)
_MARK = "cache_control"
"""Field of a part: a mark for the cache, which moves on from request to request."""


class Piece(NamedTuple):
    """A part of a prompt: a keyed hash of its text, the most tokens that it has, and its characters."""

    digest: int
    most: int
    characters: int


@dataclass(frozen=True)
class Prompt:
    """A prompt in pieces: the conversation, other texts, and everything else that a provider may read."""

    items: tuple[Piece, ...]
    texts: tuple[Piece, ...]
    rest: Piece
    is_open: bool
    """It ends in a message of the model's: how much of that is read may differ in the next request."""

    @property
    def most(self) -> int:
        """Tokens at most, of which nothing is known."""
        return sum(piece.most for piece in (*self.items, *self.texts, self.rest)) + ADDED

    @property
    def least(self) -> int:
        """Tokens at least, without pictures and the like."""
        return sum(piece.characters for piece in (*self.items, *self.texts)) // LONGEST_TOKEN


class PromptHistory:
    """Prompts whose tokens a provider has counted."""

    def __init__(self) -> None:
        self._seen: deque[tuple[Prompt, int]] = deque(maxlen=REMEMBERED)

    def bound(self, prompt: Prompt) -> int:
        """The most tokens of a prompt."""
        return min(
            [prompt.most, *(tokens + _new_tokens(seen, prompt) for seen, tokens in self._seen if _begins(prompt, seen))]
        )

    def learn(self, prompt: Prompt, counted: Tokens) -> None:
        """Remember what the provider counted; an estimate is none."""
        if counted.estimated or not counted.prompt or prompt.is_open:
            return
        others = [each for each in self._seen if not _begins(prompt, each[0])]
        self._seen = deque([*others, (prompt, counted.prompt)], maxlen=REMEMBERED)


def _begins(prompt: Prompt, seen: Prompt) -> bool:
    """The prompt begins with all of another one's conversation, read in the same way."""
    known = [piece.digest for piece in seen.items]
    return seen.rest.digest == prompt.rest.digest and [piece.digest for piece in prompt.items[: len(known)]] == known


def _new_tokens(seen: Prompt, prompt: Prompt) -> int:
    """Tokens of what was not in the other one, or not as often."""
    new = [*prompt.items[len(seen.items) :], *(Counter(prompt.texts) - Counter(seen.texts)).elements()]
    return sum(piece.most for piece in new)


def read_prompt(agent: Agent, body: Mapping[str, Any]) -> Prompt:
    """The prompt in a request body of the agent's protocol."""
    conversation = _CONVERSATION[agent.protocol]
    items = _as_list(body.get(conversation))
    rest = {key: value for key, value in body.items() if key not in _FREE and key not in (conversation, *_TEXTS)}
    return Prompt(
        items=tuple(_measure(_plain(item), agent) for item in items),
        texts=tuple(_measure([name, _unmark(part)], agent) for name in _TEXTS for part in _as_list(body.get(name))),
        rest=_measure(rest, agent),
        is_open=bool(items) and _is_by_model(items[-1]),
    )


def bound_reply(agent: Agent, body: Mapping[str, Any]) -> int:
    """The most tokens that a request may get: its limit, or the agent's, for each of its choices.

    Reasoning with a budget of its own comes on top: not every provider counts it inside the limit.
    """
    config, reasoning = _as_object(body.get("generationConfig")), _as_object(body.get("reasoning"))
    budgets = [reasoning.get("max_tokens"), _as_object(config.get("thinkingConfig")).get("thinkingBudget")]
    choices = [body.get("n"), body.get("best_of"), config.get("candidateCount")]
    limit = asked_tokens(body) or agent.reply_tokens
    return max([1, *_counts(choices)]) * (limit + max([0, *_counts(budgets)]))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _as_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _counts(values: Sequence[Any]) -> list[int]:
    return [value for value in values if isinstance(value, int) and value > 0]


def _is_by_model(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = str(item.get("type", "message"))
    role = item.get("role", "user" if kind.endswith("_output") or "parts" in item else "assistant")
    return role in ("assistant", "model")


def _plain(item: Any) -> Any:
    """A message without marks; one whose only part is a text as one with that text: marks need parts."""
    parts = item.get("content") if isinstance(item, dict) else None
    if not isinstance(parts, list):
        return item
    parts = [_unmark(part) for part in parts]
    is_text = len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}
    return {**item, "content": parts[0]["text"] if is_text and parts[0]["type"] == "text" else parts}


def _unmark(part: Any) -> Any:
    if isinstance(part, dict) and _MARK in part:
        return {name: value for name, value in part.items() if name != _MARK}
    return part


def _measure(value: Any, agent: Agent) -> Piece:
    text = _JSON.encode(value)
    digest, size = hash(text), len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if not ("base64" in text or '"data"' in text):
        return Piece(digest, size, len(text))
    media = list(find_media(value))
    encoded = sum(len(content) for _, content in media)
    tokens = sum(_media_tokens(agent, kind, content) for kind, content in media)
    return Piece(digest, size - encoded + tokens, len(text) - encoded)


def find_media(parts: Any) -> Iterator[tuple[str, str]]:
    """Media type and content in base64 of each picture, document and recording in parts of any of the protocols."""
    for part in list_objects(parts if isinstance(parts, list) else [parts]):
        yield from _own_media(part)
        for name in ("content", "output", "parts"):
            yield from find_media(part.get(name))
        yield from find_media(_as_object(part.get("functionResponse")).get("parts"))
        yield from find_media(_as_object(part.get("source")).get("content"))


def _own_media(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    picture, file = part.get("image_url"), _as_object(part.get("file")).get("file_data")
    for url in (picture, _as_object(picture).get("url"), part.get("file_data"), file, part.get("document_url")):
        if isinstance(url, str):
            head, _, content = url.partition(",")
            yield head.removeprefix("data:").partition(";")[0], content
    sound, source, inline = (_as_object(part.get(name)) for name in ("input_audio", "source", "inlineData"))
    places = [("audio/", sound), (source.get("media_type"), source), (inline.get("mimeType"), inline)]
    for kind, place in places:
        if isinstance(data := place.get("data"), str) and place.get("type") in (None, "base64"):
            yield str(kind), data


def _media_tokens(agent: Agent, kind: str, content: str) -> int:
    """The most tokens of one; of a document, a recording, and what is not known, all that the model's window takes."""
    match kind.partition("/")[0]:
        case "image":
            return PICTURE[agent.protocol]
        case "text":
            return len(content)
    return agent.context_tokens
