"""Report generation: one text per study; quality is the mean over reports of the mean of the card's components.

The seven components are BLEU, METEOR, ROUGE-L, RadGraph F1 and CheXbert's micro precision, recall and F1. A missing
or invalid report scores 0, which already is the completion rate's effect. Values over all reports together (as other
publications print them) stand beside it.
"""

from __future__ import annotations

from automedbench.tracks import Outputs, Signal, Track, TrackText
from automedbench.tracks.common.signals import remark_signal
from automedbench.tracks.report_generation import check, components, effect, score, settings, show, stage

TEXT_FLOOR = 0.10
"""Below it in both measures a report has nothing to do with its study (docs/specification.md, 10.4)."""


def unrelated_text(outputs: Outputs) -> str | None:
    """Valid reports that share neither words nor findings with their studies."""
    findings, words = (outputs.detail.metrics.get(name) for name in ("micro_average_f1", "ROUGE_L"))
    if findings is None or words is None or not outputs.submission.all_valid or max(findings, words) >= TEXT_FLOOR:
        return None
    return f"micro F1 {findings:.4f} and ROUGE-L {words:.4f}, both below {TEXT_FLOOR:g}"


SIGNALS = (
    remark_signal("verify.no_words", "reports with nothing to compare", "nothing_to_compare", "no words to compare"),
    Signal("verify.unrelated_text", "micro F1 and ROUGE-L below 0.1", unrelated_text),
)


TRACK = Track(
    version=2,
    quality="report_score",
    settings=settings.ReportSettings,
    stage=stage.stage,
    check=check.check,
    score=score.score,
    verify=score.verify,
    effect=effect.read_effect,
    show=show.show,
    needs_model=True,
    text=TrackText("Report generation", "Report", "mean of seven report metrics over reports"),
    signals=SIGNALS,
    preflight=components.preflight,
    staged_settings=("text_mode",),
)
