"""Agent text as data in a judge's prompt: nothing in it can end its fence, look like another part, or stay unseen.

Every line of a fenced text starts with ``| ``, and no other line of a prompt does. Characters that a reader would not
see, and the marks by which chat models tell turns apart, are shown instead of meant. All of it can be undone exactly
(``readings``), so that a quote copied from a prompt is looked up in the original text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

PREFIX = "| "
BEGIN, END = "=== BEGIN", "=== END"
MAX_LABEL = 120
BREAK = "⟨·⟩"
"""Stands in chat tokens, which mean nothing with it inside."""
LINE_END = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
"""Everything that a reader could take for the end of a line."""

_MAX_REPEATS = 99_999
# Marks of turns, roles, tools and ends of text in the templates of the usual model families.
_CHAT = re.compile(
    r"<(?=[|｜])|(?<=[|｜])>"
    r"|<(?=/?(?:s|bos|eos|eot|unk|pad|start_of_turn|end_of_turn|start_of_image|end_of_image|start_header_id|end_header_id"
    r"|image_soft_token|think|thinking|tool_call|tool_calls|tool_response|tool_result|function_calls?|function_results?"
    r"|invoke|parameter|antml:\w+|fim_prefix|fim_suffix|fim_middle|extra_id_\d+|system|user|assistant|human|im_start"
    r"|im_end|endoftext|end_of_text|begin_of_text|eot_id|eom_id)(?:\s[^<>\n]{0,200})?/?>)"
    r"|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|IMG|PREFIX|SUFFIX|MIDDLE)\])",
    re.IGNORECASE,
)
_UNSEEN_CATEGORIES = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
# Letters and marks without a shape of their own: fillers, joiners, selectors, the blank of braille.
_UNSEEN_LETTERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# One emoji selector behind a symbol only colours it.
_SUSPECT = re.compile("[^\x20-\x7e\n\t]")
_SHOWN = re.compile(r"⟨U\+([0-9A-F]{4,6})(?:×([0-9]{1,7}))?⟩")
_EDGE = re.compile(rf"^(?:{re.escape(BEGIN)}|{re.escape(END)}) .*===$")


def neutralise(text: str) -> str:
    """``text`` with every line end as ``\\n``, unseen characters shown as ``⟨U+200B⟩`` (or ``⟨U+200B×50⟩``), chat
    tokens broken by ``⟨·⟩`` and ``⟨`` itself shown as ``⟨U+27E8⟩``. Undone by ``restored``; not to be applied twice.
    """
    text = LINE_END.sub("\n", text)
    if not text.isascii() or not text.isprintable():
        text = _show_unseen(text)
    return _CHAT.sub(_broken, text)


def restored(text: str) -> str:
    """What ``neutralise`` was given, line ends apart; marks that it does not write stay as they are."""
    return _SHOWN.sub(_meant, text.replace(BREAK, ""))


def fence(label: str, text: str) -> str:
    """``text`` as data under a header that names it and counts its lines and characters, with a footer.

    ``label`` may hold names that an agent chose: it becomes one harmless line of at most 120 characters.
    """
    name = re.sub(r"\s+", " ", neutralise(label)).replace("===", "= = =").strip()[:MAX_LABEL]
    lines = LINE_END.sub("\n", text).split("\n") if text else []
    count = f"{len(lines)} line{'' if len(lines) == 1 else 's'}, {len(text)} characters"
    body = [PREFIX + line for line in neutralise(text).split("\n")] if text else []
    return "\n".join([f"{BEGIN} agent text: {name} ({count}) ===", *body, f"{END} agent text: {name} ==="])


def readings(quote: str) -> tuple[str, ...]:
    """What a quote copied out of a fence may mean in the original text: with the prefix taken off, and as it stands.

    A quote may begin in the middle of a line, and a line of the original may begin with the prefix itself, so both
    are possible. Headers and footers are ours and are left out.
    """
    lines = [line for line in quote.split("\n") if not _EDGE.match(line)]
    bare = [line.removeprefix(PREFIX) if line != PREFIX.rstrip() else "" for line in lines]
    return tuple(dict.fromkeys(restored("\n".join(form)) for form in (bare, lines)))


def _show_unseen(text: str) -> str:
    parts: list[str] = []
    done = 0
    for match in _SUSPECT.finditer(text):
        at = match.start()
        if at < done or not _unseen(match[0]) or _colours(text, at):
            continue
        end = at + 1
        while end < len(text) and text[end] == match[0] and end - at < _MAX_REPEATS:
            end += 1
        times = f"×{end - at}" if end - at > 1 else ""
        parts += [text[done:at], f"⟨U+{ord(match[0]):04X}{times}⟩"]
        done = end
    return "".join([*parts, text[done:]])


def _colours(text: str, at: int) -> bool:
    return text[at] == "\ufe0f" and at > 0 and unicodedata.category(text[at - 1]) == "So"


@lru_cache(maxsize=20_000)
def _unseen(char: str) -> bool:
    return char == "⟨" or unicodedata.category(char) in _UNSEEN_CATEGORIES or bool(_UNSEEN_LETTERS.match(char))


def _broken(match: re.Match[str]) -> str:
    return f"{BREAK}>" if match[0] == ">" else f"{match[0]}{BREAK}"


def _meant(match: re.Match[str]) -> str:
    """The character that a mark shows; an impossible one stays a mark, so that no quote grows without bound."""
    code, times = int(match[1], 16), int(match[2] or 1)
    if code > 0x10FFFF or not 1 <= times <= _MAX_REPEATS:
        return match[0]
    return chr(code) * times
