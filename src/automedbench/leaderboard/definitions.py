"""What the page says about tracks, stages, tiers and isolation: one place, same words everywhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrackText:
    """A track and its task half (design.md section 6)."""

    title: str
    task_half: str


TRACKS: dict[str, TrackText] = {
    "segmentation": TrackText("Segmentation", "macro Dice over cases and targets"),
    "enhancement": TrackText("Image enhancement", "mean SSIM over cases"),
    "vqa": TrackText("Visual question answering", "mean answer score over questions"),
    "report_generation": TrackText("Report generation", "mean of seven report metrics over reports"),
    "detection": TrackText("Detection", "mAP at IoU 0.5 over all images, times the completion rate"),
    "classification": TrackText("Classification", "accuracy over all cases; a missing case is wrong"),
    "synthesis": TrackText("Image synthesis", "mean SSIM over cases"),
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
        "Mean of five criteria.",
    ),
    StageText(
        "S3",
        "Validate",
        35,
        "judged",
        "Try one case first, read its output back, check form and plausibility, repair.",
        "One of three levels: 0, ½ or 1.",
    ),
    StageText(
        "S4",
        "Run",
        15,
        "computed",
        "Process every case: one output per case.",
        "½ · completion rate + ½ · [something was submitted and every submitted output is valid].",
    ),
    StageText(
        "S5",
        "Submit",
        10,
        "computed",
        "Check the outputs against the contract and call submit_results.",
        "½ · [task score above 0] + ½ · [all cases valid and the submission accepted].",
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


ERROR_CODES: dict[str, str] = {
    "E1": "Understanding",
    "E2": "Data or model set-up",
    "E3": "Verification",
    "E4": "Implementation",
    "E5": "Submission",
}


def track_title(track: str) -> str:
    """Title of a track; an unknown one by its id."""
    return TRACKS[track].title if track in TRACKS else track.replace("_", " ").capitalize()
