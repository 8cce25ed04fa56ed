"""Evidence that a judge may see of a run, and whether a quote is really in it.

Left out on purpose: the agent's and the model's name, the run's path, every score. The brief is shown so that text
copied from it can be told from the agent's own, but it is never evidence: a quote from it proves nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from automedbench.base.records import CodeCall, Conversation, Message, Model, RunId
from automedbench.judge.fencing import LINE_END

if TYPE_CHECKING:
    from automedbench.reading.injection import AgentText

MIN_QUOTE = 4
"""Fewer visible characters would be found in almost any run."""
MAX_QUOTE = 300

HIDDEN_PATH, HIDDEN_NAME = "[run folder]", "[agent]"
"""What stands in the place of the run's path and of the agent's name."""


class Evidence(Model):
    """Everything a judge may use."""

    brief: str = Field(description="what the agent was told; never evidence")
    plan: str | None
    has_plot: bool
    notes: list[Message] = Field(description="what the agent wrote beside its code")
    calls: list[CodeCall]
    files: dict[str, int] = Field(description="workspace at the end: path → bytes")
    n_cases: int | None = None

    def mapped(self, change: Callable[[str], str]) -> Evidence:
        """The same evidence with every text of the agent and of its programs changed; the brief stays."""
        return Evidence(
            brief=self.brief,
            plan=None if self.plan is None else change(self.plan),
            has_plot=self.has_plot,
            notes=[note.model_copy(update={"content": change(note.content)}) for note in self.notes],
            calls=[_changed(call, change) for call in self.calls],
            files={change(path): size for path, size in self.files.items()},
            n_cases=self.n_cases,
        )


def collect_evidence(conversation: Conversation) -> Evidence:
    """Evidence of one run, without names and scores."""
    messages = conversation.messages
    return Evidence(
        brief="\n".join(message.content for message in messages if message.role in ("system", "user")),
        plan=conversation.plan,
        has_plot=conversation.has_plot,
        notes=[message for message in messages if message.role == "assistant"],
        calls=conversation.calls,
        files=conversation.workspace_files,
        n_cases=conversation.n_cases,
    )


def blind(evidence: Evidence, run: RunId) -> Evidence:
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


def file_list(evidence: Evidence) -> str:
    """The workspace at its end as text that can be quoted: one ``path (n bytes)`` per line."""
    lines = [file_line(path, size) for path, size in sorted(evidence.files.items())]
    if evidence.has_plot:
        lines.append(PLOT_LINE)
    return "\n".join(lines)


PLOT_LINE = "plan/plan.png opens as a picture"


def file_line(path: str, size: int) -> str:
    """One line of ``file_list``."""
    return f"{on_one_line(path)} ({size} bytes)"


def on_one_line(path: str) -> str:
    """A path whose line ends are spelled out, so that no name reads like the line of another file."""
    return LINE_END.sub(r"\\n", path)


def quote_exists(evidence: Evidence, quote: str, turn: int | None = None) -> bool:
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


def _texts(evidence: Evidence, turn: int | None) -> Iterator[str]:
    yield evidence.plan or ""
    yield file_list(evidence)
    for note in evidence.notes:
        if turn in (None, note.turn):
            yield note.content
    for call in evidence.calls:
        if turn in (None, call.turn):
            yield from (call.code, call.stdout, call.stderr)


def _changed(call: CodeCall, change: Callable[[str], str]) -> CodeCall:
    texts = {name: change(getattr(call, name)) for name in ("code", "stdout", "stderr")}
    return call.model_copy(update={**texts, "new_files": [change(path) for path in call.new_files]})


def texts_of(evidence: Evidence) -> list[AgentText]:
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


def masked_evidence(evidence: Evidence) -> Evidence:
    """The same evidence with passages that address the judge masked, also those that are split over several texts."""
    from automedbench.reading.injection import mask_texts

    texts = iter([item.text for item in mask_texts(texts_of(evidence))])
    return Evidence(
        brief=evidence.brief,
        plan=None if evidence.plan is None else next(texts),
        has_plot=evidence.has_plot,
        notes=[note.model_copy(update={"content": next(texts)}) for note in evidence.notes],
        calls=[call.model_copy(update=_call_texts(len(call.new_files), texts)) for call in evidence.calls],
        files={next(texts): size for size in evidence.files.values()},
        n_cases=evidence.n_cases,
    )


def _call_texts(n_files: int, texts: Iterator[str]) -> dict[str, object]:
    code, stdout, stderr = next(texts), next(texts), next(texts)
    return {"code": code, "stdout": stdout, "stderr": stderr, "new_files": [next(texts) for _ in range(n_files)]}
