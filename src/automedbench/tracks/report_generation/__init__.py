"""Report generation: one text per study; quality is the mean over reports of the mean of the card's components.

The seven components are BLEU, METEOR, ROUGE-L, RadGraph F1 and CheXbert's micro precision, recall and F1. A missing
or invalid report scores 0, which already is the completion rate's effect. Values over all reports together (as other
publications print them) stand beside it.
"""

from __future__ import annotations

from automedbench.tracks import Track, TrackText
from automedbench.tracks.report_generation import check, errors, preflight, score, settings, show, stage, verify

TRACK = Track(
    version=1,
    quality="report_score",
    case_quality="report_score",
    settings=settings.Settings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=verify.verify,
    show=show.show,
    text=TrackText("Report generation", "Report", "mean of seven report metrics over reports"),
    mishaps=errors.MISHAPS,
    signals=errors.SIGNALS,
    preflight=preflight.preflight,
    staged_settings=("text_mode",),
)
