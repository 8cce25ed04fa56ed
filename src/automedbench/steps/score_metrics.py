"""Task metrics of a run, and pictures of some cases: submission against held-out answers, in the scorer role."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.cards import TaskCard
from automedbench.base.files import read_record, write_record
from automedbench.base.records import DetailReport, Manifest
from automedbench.base.views import CaseViews
from automedbench.campaign.record import CampaignRecord, RunFiles
from automedbench.sandbox.airlock.archive import unpack_submission
from automedbench.sandbox.container.roles import output_folder, run_role
from automedbench.sandbox.places import DATA_DIR
from automedbench.steps.inside import grade_submission
from automedbench.tracks import judges_answers


def score_metrics(campaign: CampaignRecord, run: Path, *, verify: bool = False) -> DetailReport:
    """Write ``detail_report.json`` and ``case_views.json`` of a run; a run that is scored again gets no pictures.

    ``verify``: compute the metric with an independent library as well. Raises InfrastructureError when answers are
    missing or ``verify`` finds a difference above tolerance: that is an error of ours, not a score.
    """
    files = campaign.run_files(run)
    card, data, backend = campaign.card(files.run.task), campaign.settings.data, campaign.settings.sandbox.backend
    public = Path(data.public, card.id)
    read_record(campaign.manifest(card.id), Manifest).require("private", Path(data.private, card.id))
    cases = 0 if files.again else campaign.settings.leaderboard.count_cases_shown(card)
    seen = ["--public", str(public if backend == "local" else DATA_DIR), "--cases-shown", str(cases)]
    with unpack_submission(files) as submission, output_folder(files.out(grade_submission.REPORT)) as folder:
        run_role(
            grade_submission.__name__,
            [*seen, *(["--verify"] if verify else [])],
            backend,
            campaign.scorer_image,
            {
                "card": campaign.card_path(card.id),
                "manifest": campaign.manifest(card.id),
                "private": Path(data.private, card.id),
                "submission": submission,
                "submission_record": files.file("submission.json"),
            },
            folder,
            public=public,
            resources=campaign.resources | _verdicts(card, files),
        )
        report = read_record(folder / grade_submission.REPORT, DetailReport)
        views = read_record(folder / grade_submission.VIEWS, CaseViews)
    write_record(files.out(grade_submission.REPORT), report)
    if not files.again:
        write_record(files.out(grade_submission.VIEWS), views)
    return report


def report_lines(report: DetailReport) -> list[str]:
    """Quality, task score and notes of a report, and what the independent library says."""
    lines = [f"{report.run.path}: {report.quality_name} {report.quality:.4f}, task score {report.task_score:.4f}"]
    lines += [f"note: {note}" for note in report.notes]
    if (check := report.verification) is not None:
        lines.append(f"verified with {check.library}: {check.value:.6f}, difference {check.difference:.1e}")
    return lines


def _verdicts(card: TaskCard, files: RunFiles) -> dict[str, Path]:
    """The answer judge's verdicts on the run, for tasks whose card asks for one."""
    return {"answer_verdicts": files.file("answer_judge.json")} if judges_answers(card) else {}
