"""Evidence that a judge may see of a run, and whether a quote is really in it.

Left out on purpose: the agent's and the model's name, the run's path, every score. The brief is shown so that text
copied from it can be told from the agent's own, but it is never evidence: a quote from it proves nothing.

Agent text is data in a judge's prompt: nothing in it can end its fence, look like another part, or stay unseen. Every
line of a fenced text starts with ``| ``, and no other line of a prompt does. Characters that a reader would not see,
and the marks by which chat models tell turns apart, are shown instead of meant. All of it can be undone exactly
(``quote_readings``), so that a quote copied from a prompt is looked up in the original text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import Field

from automedbench.base.records import CodeCall, Conversation, Message, Model, RunId

if TYPE_CHECKING:
    from automedbench.reading.injection import AgentText


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
_RUN = re.compile(rf"([^\x20-\x7e\n\t])\1{{0,{_MAX_REPEATS - 1}}}")
_MARK = re.compile(r"⟨U\+([0-9A-F]{4,6})(?:×([0-9]{1,7}))?⟩")
_EDGE = re.compile(rf"^(?:{re.escape(BEGIN)}|{re.escape(END)}) .*===$")


def neutralise(text: str) -> str:
    """``text`` with every line end as ``\\n``, unseen characters shown as ``⟨U+200B⟩`` (or ``⟨U+200B×50⟩``), chat
    tokens broken by ``⟨·⟩`` and ``⟨`` itself shown as ``⟨U+27E8⟩``. Undone by ``restore``; not to be applied twice.
    """
    text = LINE_END.sub("\n", text)
    if not text.isascii() or not text.isprintable():
        text = _RUN.sub(_show_unseen, text)
    return _CHAT.sub(lambda mark: f"{BREAK}>" if mark[0] == ">" else f"{mark[0]}{BREAK}", text)


def restore(text: str) -> str:
    """Original of a neutralised text, line ends apart; marks that ``neutralise`` does not write stay as they are."""
    return _MARK.sub(_meant, text.replace(BREAK, ""))


def fence(label: str, text: str) -> str:
    """``text`` as data under a header that names it and counts its lines and characters, with a footer.

    ``label`` may hold names that an agent chose: it becomes one harmless line of at most 120 characters.
    """
    name = re.sub(r"\s+", " ", neutralise(label)).replace("===", "= = =").strip()[:MAX_LABEL]
    lines = LINE_END.sub("\n", text).split("\n") if text else []
    count = f"{len(lines)} line{'' if len(lines) == 1 else 's'}, {len(text)} characters"
    body = [PREFIX + line for line in neutralise(text).split("\n")] if text else []
    return "\n".join([f"{BEGIN} agent text: {name} ({count}) ===", *body, f"{END} agent text: {name} ==="])


def quote_readings(quote: str) -> tuple[str, ...]:
    """Candidates for a quote copied out of a fence: with the prefix of its lines removed, and unchanged.

    A quote may begin in the middle of a line, and a line of the original may begin with the prefix itself, so both
    are possible. Headers and footers are ours and are left out.
    """
    lines = [line for line in quote.split("\n") if not _EDGE.match(line)]
    bare = [line.removeprefix(PREFIX) if line != PREFIX.rstrip() else "" for line in lines]
    return tuple(dict.fromkeys(restore("\n".join(form)) for form in (bare, lines)))


def _show_unseen(run: re.Match[str]) -> str:
    """The mark of a run of one unseen character; an emoji selector behind a symbol only colours it and stays."""
    if not _unseen(run[1]):
        return run[0]
    char, before = run[1], run.string[max(0, run.start() - 1) : run.start()]
    kept = char if char == "\ufe0f" and before and unicodedata.category(before) == "So" else ""
    count = len(run[0]) - len(kept)
    times = f"×{count}" if count > 1 else ""
    return f"{kept}⟨U+{ord(char):04X}{times}⟩" if count else kept


@lru_cache(maxsize=20_000)
def _unseen(char: str) -> bool:
    return char == "⟨" or unicodedata.category(char) in _UNSEEN_CATEGORIES or bool(_UNSEEN_LETTERS.match(char))


def _meant(match: re.Match[str]) -> str:
    """The character that a mark shows; an impossible one stays a mark, so that no quote grows without bound."""
    code, times = int(match[1], 16), int(match[2] or 1)
    if code > 0x10FFFF or not 1 <= times <= _MAX_REPEATS:
        return match[0]
    return chr(code) * times


MIN_QUOTE = 4
"""Fewer visible characters would be found in almost any run."""
MAX_QUOTE = 300

HIDDEN_PATH, HIDDEN_NAME = "[run folder]", "[agent]"
"""What stands in the place of the run's path and of the agent's name."""


class RunEvidence(Model):
    """Everything a judge may use."""

    brief: str = Field(description="what the agent was told; never evidence")
    plan: str | None
    has_plot: bool
    notes: list[Message] = Field(description="what the agent wrote beside its code")
    calls: list[CodeCall]
    files: dict[str, int] = Field(description="workspace at the end: path → bytes")
    n_cases: int

    def mapped(self, change: Callable[[str], str]) -> RunEvidence:
        """The same evidence with every text of the agent and of its programs changed, in the order of ``texts_of``."""
        changed = {
            "plan": None if self.plan is None else change(self.plan),
            "notes": [note.model_copy(update={"content": change(note.content)}) for note in self.notes],
            "calls": [_changed(call, change) for call in self.calls],
            "files": {change(path): size for path, size in self.files.items()},
        }
        return self.model_copy(update=changed)


def collect_evidence(conversation: Conversation) -> RunEvidence:
    """Evidence of one run, without names and scores."""
    messages = [message for message in conversation.messages if not message.by_program]
    return RunEvidence(
        brief="\n".join(message.content for message in messages if message.role in ("system", "user")),
        plan=conversation.plan,
        has_plot=conversation.has_plot,
        notes=[message.model_copy(update={"reasoning": ""}) for message in messages if message.role == "assistant"],
        calls=conversation.calls,
        files=conversation.workspace_files,
        n_cases=conversation.n_cases,
    )


def blind(evidence: RunEvidence, run: RunId) -> RunEvidence:
    """Evidence without the run's folder, which tracebacks show, and without the agent's name as a word."""
    name = re.compile(rf"(?<!\w){re.escape(run.agent)}(?!\w)", re.IGNORECASE)

    def hide(text: str) -> str:
        return name.sub(HIDDEN_NAME, _without_path(text, run.path))

    return evidence.mapped(hide).model_copy(update={"brief": hide(evidence.brief)})


def _without_path(text: str, path: str) -> str:
    """``text`` with every path that ends in ``path`` hidden, from its first character on."""
    parts = text.split(path)
    starts = [_PATH_END.sub("", part[-_LONGEST_PATH:]) for part in parts[:-1]]
    kept = [part[:-_LONGEST_PATH] + start for part, start in zip(parts[:-1], starts, strict=True)]
    return HIDDEN_PATH.join([*kept, parts[-1]])


_LONGEST_PATH = 1_000
_PATH_END = re.compile(r"[^\s\"'`(<>|:,;=]+\Z")


def file_list(evidence: RunEvidence) -> str:
    """The workspace at its end as text that can be quoted: one ``path (n bytes)`` per line."""
    lines = [file_line(path, size) for path, size in sorted(evidence.files.items())]
    if evidence.has_plot:
        lines.append(PLOT_LINE)
    return "\n".join(lines)


PLOT_LINE = "plan/plan.png opens as a picture"


def file_line(path: str, size: int) -> str:
    """One line of ``file_list``."""
    return f"{escape_line_ends(path)} ({size} bytes)"


def escape_line_ends(path: str) -> str:
    """A path whose line ends are spelled out, so that no name reads like the line of another file."""
    return LINE_END.sub(r"\\n", path)


def quote_exists(evidence: RunEvidence, quote: str, turn: int | None = None) -> bool:
    """Whether ``quote`` stands word for word in the evidence (runs of white space count as one blank).

    With ``turn``, only texts of that turn count, and those that belong to none: plan and file list.
    """
    wanted = one_line(quote)
    if len(visible(wanted)) < MIN_QUOTE:
        return False
    return any(wanted in one_line(text) for text in _texts(evidence, turn))


def clip(text: str) -> str:
    """The beginning of ``text`` on one line, short enough for a quote."""
    return one_line(text)[:MAX_QUOTE].rstrip()


def visible(text: str) -> str:
    """``text`` without blanks, control and zero-width characters."""
    return "".join(char for char in text if not char.isspace() and unicodedata.category(char) not in ("Cc", "Cf"))


def one_line(text: str) -> str:
    """``text`` with every run of white space as one blank."""
    return re.sub(r"\s+", " ", text).strip()


def _texts(evidence: RunEvidence, turn: int | None) -> Iterator[str]:
    yield file_list(evidence)
    texts = (each for each in collect_agent_texts(evidence) if each.where != "file name")
    yield from (each.text for each in texts if turn is None or each.turn in (None, turn))


def _changed(call: CodeCall, change: Callable[[str], str]) -> CodeCall:
    texts = {name: change(getattr(call, name)) for name in ("code", "stdout", "stderr")}
    return call.model_copy(update={**texts, "new_files": [change(path) for path in call.new_files]})


def collect_agent_texts(evidence: RunEvidence) -> list[AgentText]:
    """Every text of the agent and of its programs; the brief is not among them."""
    from automedbench.reading.injection import AgentText  # takes a while to load; most who read evidence judge nothing

    texts = [AgentText("plan", None, evidence.plan)] if evidence.plan is not None else []
    texts += [AgentText("note", note.turn, note.content) for note in evidence.notes]
    for call in evidence.calls:
        texts += [
            AgentText("code", call.turn, call.code),
            AgentText("stdout", call.turn, call.stdout),
            AgentText("stderr", call.turn, call.stderr),
        ]
        texts += [AgentText("file name", call.turn, path) for path in call.new_files]
    texts += [AgentText("file name", None, path) for path in evidence.files]
    return texts


def mask_evidence(evidence: RunEvidence) -> RunEvidence:
    """The same evidence with passages that address the judge masked, also those that are split over several texts."""
    from automedbench.reading.injection import mask_texts

    masked = iter(mask_texts(collect_agent_texts(evidence)))
    return evidence.mapped(lambda _text: next(masked).text)
