"""Definitions on the page: tracks, stages, tiers and isolation in one place, same words everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from automedbench.base.cards import TaskCard
from automedbench.statistics.intervals import MIN_REPEATS, method_text
from automedbench.statistics.samples import Pooling, StatisticsMethod
from automedbench.tracks import TrackText, get_track, track_names

SECTIONS: dict[str, dict[str, str]] = {
    "Ranking": {"ranking": "Overall score", "tracks": "Agents by track", "tasks": "Per-task leaderboard"},
    "Agents": {
        "agents": "Models and settings",
        "profiles": "Stage profiles",
        "frontier": "Cost and score",
        "compare": "Two agents side by side",
    },
    "Judging": {"stages": "Stages, judges and tiers", "errors": "What went wrong"},
    "Runs": {"runs": "Runs"},
    "Data": {"data-sets": "Data sets", "rules": "Sandbox rules"},
    "About": {"about": "About and how to cite", "published": "Beside the public benchmark"},
}
"""Group of the navigation → section of the board → its name."""

CITATION = "Liu et al., AutoMedBench: Towards Medical AutoResearch with Agentic AI Models, arXiv:2606.01961 (2026)"
LICENCE = "MIT"
"""As in ``CITATION.cff``."""

PUBLISHED_HEADS = ("Segmentation", "Enhancement", "VQA", "Report", "Detection", "Overall")
PUBLISHED_OVERALL: dict[str, tuple[float, ...]] = {
    "Opus 4.6": (67.2, 78.3, 55.5, 55.8, 85.7, 66.5),
    "GLM-5": (58.0, 68.8, 64.0, 48.6, 83.3, 61.6),
    "Gemini 3.1 Pro": (54.7, 70.9, 62.3, 47.7, 77.2, 59.0),
    "ChatGPT-5.4": (59.4, 75.1, 36.5, 40.8, 73.8, 55.3),
    "MiniMax-M2.5": (46.5, 74.5, 55.8, 28.9, 80.0, 51.6),
    "Qwen3.5 (397B-A17B)": (42.8, 63.5, 57.0, 38.7, 81.4, 51.2),
}
"""Overall ×100 of the public benchmark's agents on its tracks and over all of them: arXiv:2606.01961, table 4."""
_OURS = frozenset({"ours", "proposal", "unknown"})
"""Words of a card's ``provenance`` for a value that no public text gives."""


def list_issues(card: TaskCard) -> list[str]:
    """Differences of a task from the public benchmark, and unknown facts about it, a sentence each."""
    decided = [name for name, source in card.provenance.items() if source in _OURS]
    found = [" ".join(text.split()) for text in card.open_questions]
    if decided:
        found.append(f"Decided here, as no public text says it: {', '.join(f'`{name}`' for name in decided)}.")
    return found


POOLINGS: dict[Pooling, str] = {
    "tasks": "Scores: mean over tasks of the mean over tiers of the mean over repeats (pooling: tasks).",
    "runs": "Scores: mean over all runs, so that tasks with more repeats weigh more (pooling: runs).",
}


@dataclass(frozen=True)
class StageText:
    """A stage of the agentic half: weight, who decides, and on what."""

    id: str
    title: str
    weight: int
    kind: str
    work: str
    formula: str


STAGES: tuple[StageText, ...] = (
    StageText(
        "S1",
        "Plan",
        25,
        "judged",
        "Understand the brief, the files, the format and the metric; choose a method; write plan.md.",
        "Mean of six criteria.",
    ),
    StageText(
        "S2",
        "Set up",
        15,
        "judged",
        "Get packages, weights and paths into a working state and look at the input.",
        "Mean of five criteria, four without a GPU.",
    ),
    StageText(
        "S3",
        "Validate",
        35,
        "judged",
        "Try one case first, read its output back, check form and plausibility, repair.",
        "One of three levels: 0, ½ or 1; 0 where the case has no effect on the outputs.",
    ),
    StageText(
        "S4",
        "Run",
        15,
        "computed",
        "Process every case: one output per case.",
        "½ · completion rate + ½ · [something was submitted and every submitted output is valid]; at most 0.3 where "
        "the case has no effect on the outputs.",
    ),
    StageText(
        "S5",
        "Submit",
        10,
        "computed",
        "Check the outputs against the contract and call submit_results.",
        "½ · [task score above 0, and not without an effect of the case on the outputs] "
        "+ ½ · [all cases valid and the submission accepted].",
    ),
)

TIERS: dict[str, tuple[str, str]] = {
    "lite": ("Lite", "Carry out a known workflow: the brief names one method, its packages and the usual pitfalls."),
    "standard": ("Standard", "Choose and carry out a workflow: the brief names families of methods, not one."),
    "pro": ("Pro", "Only the clinical question. Optional, and never part of the headline ranking."),
}

NETWORKS: dict[str, str] = {
    "sealed": "No network at all for the agent's code.",
    "proxied": "No network but an allow-listed HTTP(S) proxy that logs every request and refuses the data sets' homes.",
    "open": "The host's network.",
}

BACKENDS: dict[str, str] = {
    "apptainer": "Every code call runs in its own container with a clean environment.",
    "local": "Isolates nothing; for trusted scripted agents only.",
}

OUTCOMES: dict[str, str] = {
    "submitted": "submitted",
    "stopped": "ended without submitting",
    "time_limit": "hit the time limit",
    "turn_limit": "hit the turn limit",
    "token_limit": "hit the token limit",
    "cost_limit": "hit the cost limit",
    "out_of_memory": "ran out of memory",
    "out_of_disk": "ran out of disk",
    "refused": "refused the task",
    "disqualified": "disqualified",
}

RULES: dict[str, str] = {
    "Policy": "Inference only: no training or fine-tuning. Pretrained models are allowed.",
    "Model APIs": "None: agent code has no key of a provider and, unless the network is open, no route to one. The "
    "public site lets agents of the VQA track call inference APIs with keys that it injects.",
    "Allowed": "Reading /data/public (read-only); reading and writing /workspace and a private /tmp.",
    "Forbidden": "/data/private and any held-out answer, the benchmark's source, other runs. Apptainer keeps all "
    "of them out of the agent's sight; reaching for them is evidence.",
    "Limits": "Time, turns, tokens and cost per run, equal for agents and tiers and told to the agent; what it has "
    "written by then is scored, what is missing counts 0.",
    "On violation": "First a warning: the code is not run and the agent goes on. Then disqualification: the run ends "
    "and every score is 0; raw numbers are kept for the record.",
}


def track_text(track: str) -> TrackText | None:
    """Names of a track and what its task half is; nothing for one that has none or is not here (any more)."""
    return get_track(track).text if track in track_names() else None


def track_title(track: str) -> str:
    """Title of a track; an unknown one by its id."""
    text = track_text(track)
    return text.title if text else track.replace("_", " ").capitalize()


def short_title(track: str) -> str:
    """Title of a track for an axis."""
    text = track_text(track)
    return text.short if text else track_title(track)


def interval_text(method: StatisticsMethod, n_judges: Iterable[int]) -> str:
    """Method of intervals, ties and ranks; ``n_judges``: of every run that a model judged."""
    fewest = min(n_judges, default=None)
    if fewest is None:
        judges = "Rules judged: the same record gets the same marks."
    elif fewest < 2:
        judges = "Some runs have one judge: what another would say cannot be measured, and is not in their intervals."
    else:
        judges = "Each run has several judges: what they differ by is in the intervals."
    return (
        f"{method_text(method)} {judges} Letters and possible ranks from simultaneous intervals of all differences on "
        f"these tasks, which decide also where intervals of scores overlap; tasks like these by joint sign flips. "
        f"Below {MIN_REPEATS} repeats in a cell nothing is inferred."
    )
