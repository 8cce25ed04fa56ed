"""A judge that reads the record by itself: it lists, reads and searches the texts of a sealed run, then answers.

The tools read what a selection would show, whole and masked alike, and nothing else; they change nothing. What they
hand over stands in the same fences. A quote is looked up in the record as ever: no answer can cite what is not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedbench.base.endpoint.usage import Billed
from automedbench.base.files import sha256_bytes
from automedbench.judge.evidence import fence
from automedbench.judge.panel.structured import find_answer
from automedbench.judge.selection import Block, Passage, ShownEvidence, estimate_tokens

MAX_ACTIONS = 40
"""Times that the judge may look before it has to answer."""
MAX_RESULT = 12_000
"""Characters of one look."""
MAX_HITS = 60
MAX_INDEX = 40_000
WHOLE = 1_000_000_000
"""Room in tokens for which nothing is left out."""

HOW = """You read the record by yourself. To look, answer with one JSON object and nothing else:
{"action": {"tool": "read", "text": 12, "from": 1, "to": 200}}   lines of a text, by its number in the list
{"action": {"tool": "search", "words": "agents_outputs"}}        lines of all texts that hold these words, case aside
{"action": {"tool": "list"}}                                     the list of texts again
Every criterion must rest on what you have read. Then answer in the form that is asked for at the end."""

Ask = Callable[[Sequence[dict[str, Any]], Mapping[str, Any]], tuple[str, str | None, tuple[Billed, ...]]]
"""Messages and schema → text, problem, what it cost."""


class RunTexts:
    """The texts of a run as a judge may read them."""

    def __init__(self, shown: ShownEvidence) -> None:
        self.passages: list[Passage] = [item for block in shown.blocks for item in block.passages]
        self.headers = [block.header for block in shown.blocks for _ in block.passages]

    def index(self) -> str:
        """One line per text: number, what it is, lines; ours."""
        rows = (
            f"{number}: {header.removeprefix('## ')} | {item.where}, {len(_lines(item))} lines"
            for number, (header, item) in enumerate(zip(self.headers, self.passages, strict=True), start=1)
        )
        return "\n".join(rows)

    @property
    def digest(self) -> str:
        """Digest of all texts, part of the cache key."""
        texts = (text for item in self.passages for text in item.pieces)
        return sha256_bytes("\0".join(texts).encode("utf-8", "replace"))

    def act(self, action: Any) -> str:
        """Result of a tool call; a sentence with the reason where it fails."""
        if not isinstance(action, Mapping):
            return "An action is an object with the key 'tool'."
        match action.get("tool"):
            case "list":
                return self.index()[:MAX_RESULT]
            case "read":
                return self._read(action)
            case "search":
                return self._search(str(action.get("words", "")))
        return f"There is no tool {str(action.get('tool'))[:40]!r}; there are list, read and search."

    def _read(self, action: Mapping[str, Any]) -> str:
        number, first, last = (_whole(action.get(key)) for key in ("text", "from", "to"))
        if number is None or not 1 <= number <= len(self.passages):
            return f"There is no such text; there are 1 to {len(self.passages)}."
        item = self.passages[number - 1]
        lines = _lines(item)
        start = max(1, first or 1)
        end = min(len(lines), last or len(lines))
        text = "\n".join(lines[start - 1 : end])
        more = "" if len(text) <= MAX_RESULT else f"\n({len(text) - MAX_RESULT:,} characters more; ask for fewer lines)"
        proves = "" if item.proves else "\n(This code was refused and never ran: a quote from it proves nothing.)"
        return f"{fence(f'{item.label}, lines {start} to {end}', text[:MAX_RESULT])}{more}{proves}"

    def _search(self, words: str) -> str:
        if len(words.strip()) < 2:
            return "Give at least two characters to search for."
        hits = list(self._hits(words.strip().casefold()))
        shown = "\n".join(hits[:MAX_HITS])[:MAX_RESULT]
        return (
            f"{len(hits)} lines hold it{', the first of them' if len(hits) > MAX_HITS else ''}:\n{fence('hits', shown)}"
        )

    def _hits(self, words: str) -> Iterator[str]:
        for number, item in enumerate(self.passages, start=1):
            for place, line in enumerate(_lines(item), start=1):
                if words in line.casefold():
                    yield f"{number}:{place}: {line[:300]}"


def list_texts(shown: ShownEvidence) -> ShownEvidence:
    """The same, with the list of texts in place of the texts."""
    record = RunTexts(shown)
    index = record.index()
    listed = index if len(index) <= MAX_INDEX else f"{index[:MAX_INDEX]}\n(the rest by 'search')"
    return replace(shown, blocks=(Block(f"{HOW}\n\n(record {record.digest[:16]})\n{listed}"),))


def converse(
    ask: Ask, messages: Sequence[dict[str, Any]], shown: ShownEvidence, schema: Mapping[str, Any], room: int
) -> tuple[str, str | None, tuple[Billed, ...]]:
    """Let a judge look until it answers; its last text, a problem if it has none, and what all of it cost.

    ``room``: tokens for what it reads; when they, or ``MAX_ACTIONS``, are used up it is told to answer.
    """
    record, turns, used, spent = RunTexts(shown), list[dict[str, Any]](), 0, tuple[Billed, ...]()
    for number in range(MAX_ACTIONS + 1):
        text, problem, cost = ask([*messages, *turns], _either(schema))
        spent += cost
        value = None if problem else find_answer(text)[0]
        action = value.get("action") if value else None
        if problem or action is None:
            return _bare(text, value), problem, spent
        seen = record.act(action)
        used += estimate_tokens(seen) + estimate_tokens(text)
        if number == MAX_ACTIONS - 1 or used > room:
            seen = "There is no room for another look. Answer now, in the form that is asked for."
        turns += [{"role": "assistant", "content": text}, {"role": "user", "content": seen}]
    return "", "looked on and on and never answered", spent


def _bare(text: str, value: Mapping[str, Any] | None) -> str:
    """The answer alone, where it came in the envelope of the schema."""
    answer = value.get("answer") if value else None
    return json.dumps(answer) if isinstance(answer, dict) else text


def _either(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of one action or the answer, as strict structured output takes it."""
    whole = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    words = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    look = {"tool": {"type": "string", "enum": ["list", "read", "search"]}, "text": whole, "from": whole, "to": whole}
    action = {
        "type": "object",
        "properties": look | {"words": words},
        "required": [*look, "words"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "action": {"anyOf": [action, {"type": "null"}]},
            "answer": {"anyOf": [dict(schema), {"type": "null"}]},
        },
        "required": ["action", "answer"],
        "additionalProperties": False,
    }


def _lines(item: Passage) -> list[str]:
    return [line for piece in item.pieces for line in piece.split("\n")]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
