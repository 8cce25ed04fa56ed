"""What the four protocols have in common: a request as it was read, a reply before it is written, proof of thinking."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

PIECE = 400
"""Characters of text or arguments in one event of a stream."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one reply by kind. ``reasoning`` is part of ``output``, ``cache_write_1h`` of ``cache_write``."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All tokens that were read, from the cache or not."""
        return self.input + self.cache_read + self.cache_write


def usage_rule(turn: int) -> Usage:
    """Four kinds of tokens that a test can compute by hand; ``turn`` is 0 for a side request."""
    return Usage(
        input=10 + turn,
        output=100 + turn,
        cache_read=1000 * max(0, turn - 1),
        cache_write=200,
        cache_write_1h=50,
        reasoning=40,
    )


ToolKind = Literal["function", "custom", "local_shell", "hosted"]


@dataclass(frozen=True)
class Tool:
    """A tool that a request offers; ``schema`` is that of its arguments."""

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    kind: ToolKind = "function"


@dataclass(frozen=True)
class Call:
    """A call of a tool in a reply."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    kind: str = "function"


@dataclass(frozen=True)
class Said:
    """A reply in no protocol yet. With a ``thought`` it carries thinking and a proof of it."""

    turn: int
    text: str
    calls: tuple[Call, ...] = ()
    usage: Usage = Usage(0, 0)
    thought: str = ""
    conversation: str = ""


@dataclass(frozen=True)
class Proof:
    """Thinking that came back. None is what the protocol does not send back; an empty text was lost on the way."""

    signature: str
    thought: str | None = None


@dataclass(frozen=True)
class Earlier:
    """An earlier reply in a request, at ``position`` of its list; ``turn`` is 0 when its calls do not tell it."""

    position: int
    turn: int = 0
    called: bool = False
    text: str = ""
    proofs: tuple[Proof, ...] = ()
    current: bool = False
    """No message of the user came after it, only results of its calls."""


@dataclass(frozen=True)
class Asked:
    """A request as its protocol tells it."""

    model: str
    opening: Sequence[Any]
    """System prompt and first message: what all requests of a conversation have in common."""
    earlier: Sequence[Earlier] = ()
    tools: Sequence[Tool] = ()
    stream: bool = False
    limit: int | None = None
    """Tokens that the reply may have."""
    form: Mapping[str, Any] | None = None
    """JSON schema that the reply must follow."""
    parallel: bool = True
    characters: int = 0
    """Length of the conversation."""
    sessions: Sequence[str] = ()
    """Commands that the last results tell to be running still."""
    conversation: str = ""
    """Name of the conversation where the request tells it itself."""
    runs: str = ""
    """File that is run after every edit, where the brief of a program without tools tells it."""


class Wire(ABC):
    """One protocol: how its requests are read, how replies and errors are written, what its faults look like."""

    name: str
    usage_key = "usage"
    usage_totals = ("input_tokens", "output_tokens", "total_tokens")
    id_key = "id"
    prefix = "call"
    """How the ids of calls begin."""
    items_key: str
    """Where the reply stands in the body."""
    lost = ""
    """Message of the refusal of a request that does not give thinking back; ``{position}`` is known."""
    changed = ""
    no_key_status = 401

    @abstractmethod
    def read(self, request: Mapping[str, Any], path: str) -> Asked:
        """Raises LookupError, TypeError, ValueError or AttributeError for what is no such request."""

    @abstractmethod
    def whole(self, said: Said, asked: Asked) -> dict[str, Any]:
        """The body of a reply."""

    @abstractmethod
    def events(self, body: Any, request: Mapping[str, Any]) -> list[bytes]:
        """A body as server-sent events. Raises the errors of ``read`` for a body that cannot be streamed."""

    @abstractmethod
    def counted(self, usage: Usage) -> dict[str, Any]:
        """Tokens in the protocol's convention."""

    @abstractmethod
    def error(self, status: int, message: str, kind: str = "", code: str | None = None) -> dict[str, Any]:
        """The body of a refusal; ``kind`` and ``code`` are in the words of chat completions."""

    @abstractmethod
    def failure(self, body: Any, number: int) -> bytes:
        """The event, the ``number``-th from 0, by which the stream of a body ends with an error."""

    @abstractmethod
    def calls(self, body: Any) -> list[dict[str, Any]]:
        """The objects of a body that hold the ids of its calls, below ``id_key``."""

    @abstractmethod
    def cut(self, body: Any) -> None:
        """Mark a body as cut by the limit of tokens; text is halved."""

    @abstractmethod
    def filtered(self, body: Any) -> None:
        """Make a body one that a content filter emptied."""

    @abstractmethod
    def hosted(self, body: Any) -> None:
        """Put the use of a tool that the provider runs into a body."""

    def models(self, names: Sequence[str]) -> dict[str, Any]:
        """The list of models."""
        entries = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in names]
        return {"object": "list", "data": entries}

    def count(self, tokens: int) -> dict[str, Any]:
        """The answer to a request that only counts its tokens."""
        return {"input_tokens": tokens}

    def arguments_object(self, body: Any) -> None:
        """Arguments of calls as objects where the protocol wants text; else nothing, as in the next two."""
        return

    def content_parts(self, body: Any) -> None:
        """Text in parts where the protocol wants one string."""
        return

    def legacy(self, body: Any) -> None:
        """The call as it was told before there were several to a reply."""
        return

    def limits(self, seconds: float) -> dict[str, str]:
        """Headers of a refusal by limits: no request is left for ``seconds``."""
        return {}

    def limited(self, seconds: float) -> dict[str, Any]:
        """The body of that refusal."""
        return self.error(429, "Rate limit reached", "rate_limit_error")

    def missing(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """What the protocol demands and the request lacks; empty when nothing."""
        return ""


# --- thinking that must come back ------------------------------------------------------------------------------


def thought_of(turn: int) -> str:
    """The thinking of a turn."""
    return f"What step {turn} needs is thought over here."


def signature_of(turn: int) -> str:
    """A signature that tells its turn, in base64 as the SDKs want it."""
    digest = hashlib.sha256(f"signed:{turn}".encode()).hexdigest()
    return base64.b64encode(f"{turn}:{digest}".encode()).decode()


def _signed_turn(signature: str) -> int | None:
    try:
        text = base64.b64decode(signature.replace("-", "+").replace("_", "/"), validate=True).decode()
        turn = int(text.partition(":")[0])
    except (ValueError, binascii.Error):
        return None
    return turn if base64.b64decode(signature_of(turn)).decode() == text else None


def refusal_of(wire: Wire, asked: Asked) -> str:
    """Why a server that demands its thinking back refuses a request; empty when it came back unchanged."""
    for reply in asked.earlier:
        if any(not _is_right(proof, reply.turn) for proof in reply.proofs):
            return wire.changed.format(position=reply.position)
        if reply.current and reply.called and reply.turn and not reply.proofs:
            return wire.lost.format(position=reply.position)
    return ""


def _is_right(proof: Proof, turn: int) -> bool:
    signed = _signed_turn(proof.signature)
    return signed is not None and turn in (0, signed) and proof.thought in (None, thought_of(signed))


# --- small helpers ---------------------------------------------------------------------------------------------


def error_body(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """The body of a refusal, as most providers write it."""
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def text_of(content: Any) -> str:
    """The text of a message: a string, or parts of which some hold text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)


def pieces(text: str) -> list[str]:
    """``text`` as a stream tells it; nothing for an empty one."""
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event; ``data`` is JSON unless it is text already."""
    line = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {line}\n\n".encode()


def openai_limits(seconds: float) -> dict[str, str]:
    """Headers of OpenAI for a minute's requests that are used up."""
    return {
        "Retry-After": f"{seconds:g}",
        "Retry-After-Ms": f"{seconds * 1000:g}",
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": f"{seconds:g}s",
        "x-ratelimit-limit-tokens": "150000",
        "x-ratelimit-remaining-tokens": "149984",
        "x-ratelimit-reset-tokens": "6ms",
    }


def to_json(arguments: Mapping[str, Any]) -> str:
    """Arguments as text."""
    return json.dumps(arguments, ensure_ascii=False)


def marked(earlier: Iterable[Earlier], from_index: int) -> list[Earlier]:
    """Earlier replies, with those from ``from_index`` on marked as the current ones."""
    return [replace(reply, current=index >= from_index) for index, reply in enumerate(earlier)]
