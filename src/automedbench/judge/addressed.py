"""The agent's texts as the search for passages that address the judge takes them, and evidence with these masked."""

from __future__ import annotations

from collections.abc import Iterator

from automedbench.judge.evidence import Evidence
from automedbench.reading.injection import AgentText, mask_texts


def texts_of(evidence: Evidence) -> list[AgentText]:
    """Every text of the agent and of its programs; the brief is not among them."""
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
