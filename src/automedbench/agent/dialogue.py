"""Dialogue of a run: what was said, what of it is sent, and the log of both."""

from __future__ import annotations

from collections.abc import Sequence

from automedbench.agent.log import RunLog
from automedbench.agent.models.chat import ChatMessage
from automedbench.agent.models.compaction import FILL, CallNote, Entry, compact, token_estimator
from automedbench.base.records import Message

SHRINK = 0.6
"""Of what was sent, the share that may be sent again after the provider said that it does not fit."""


class Dialogue:
    """Messages in order. ``sent`` may be shortened; ``messages`` and the transcript never are."""

    def __init__(self, system: str, kickoff: str, log: RunLog, context_tokens: int) -> None:
        self.turn = 0
        self.notes: list[CallNote] = []
        self._log = log
        self._window = context_tokens
        self._all: list[Entry] = []
        self._sent: list[Entry] = []
        self._estimate = token_estimator(0, [])
        self.add(ChatMessage("system", system))
        self.add(ChatMessage("user", kickoff))

    @property
    def sent(self) -> list[ChatMessage]:
        """What the next request holds."""
        return [entry.message for entry in self._sent]

    @property
    def estimated_tokens(self) -> int:
        """Size of the next request."""
        return self._estimate(self.sent)

    def add(self, message: ChatMessage, unabridged: ChatMessage | None = None) -> None:
        """Append a message; ``unabridged`` is what the log keeps when the message was cut."""
        self._log.message(self.turn, unabridged or message)
        self._all.append(Entry(self.turn, unabridged or message))
        self._sent.append(Entry(self.turn, message))

    def notice(self, text: str) -> None:
        """Say something to the model; ``text`` starts with its bracketed tag."""
        self._log.event("notice", self.turn, text=text)
        self.add(ChatMessage("user", text))

    def measured(self, prompt_tokens: int, messages: Sequence[ChatMessage]) -> None:
        """Learn from the provider how many tokens ``messages`` were."""
        if prompt_tokens:
            self._estimate = token_estimator(prompt_tokens, messages)

    def fit(self) -> None:
        """Shorten what is sent when it fills 80 % of the model's window."""
        if self.estimated_tokens > FILL * self._window:
            self._compact(int(FILL * self._window), "window")

    def shrink(self) -> None:
        """Shorten what is sent after the provider refused its size."""
        self._compact(int(SHRINK * self.estimated_tokens), "overflow")

    def records(self) -> list[Message]:
        """Every message for judge and reader, without the opaque reasoning."""
        return [
            Message(turn=entry.turn, role=entry.message.role, content=self._log.mask(entry.message.content))
            for entry in self._all
        ]

    def _compact(self, target: int, why: str) -> None:
        before, count = self.estimated_tokens, len(self._sent)
        self._sent = compact(self._sent, self.notes, lambda messages: self._estimate(messages) <= target)
        self._log.event(
            "compaction",
            self.turn,
            why=why,
            tokens_before=before,
            tokens_after=self.estimated_tokens,
            messages_before=count,
            messages_after=len(self._sent),
        )
