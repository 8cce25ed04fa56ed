"""Task metrics of one run: the track's scorer over a collected submission and the held-out answers, and its pictures.

``main`` runs in the scorer role: it sees the copies that were collected and the private data, has no network, and
runs nothing that an agent made.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import DetailReport, Manifest, SubmissionRecord, Verification
from automedbench.base.records.views import CaseViews
from automedbench.base.yamlfile import suggestion
from automedbench.sandbox.container.launcher import DATA_DIR
from automedbench.sandbox.container.roles import Backend, add_resource_option, output_folder, run_scorer_role
from automedbench.scoring import medal
from automedbench.steps.case_views import draw_views, no_views
from automedbench.tracks import ScoringInputs, get_track, track_settings

REPORT, VIEWS = "detail_report.json", "case_views.json"


def score_metrics(
    card: Path,
    manifest: Path,
    public: Path,
    private: Path,
    submission: Path,
    submission_record: Path,
    out: Path,
    *,
    backend: Backend,
    image: Path | None,
    verify: bool,
    resources: Mapping[str, Path] | None = None,
    cases_shown: int = 0,
    views: Path | None = None,
) -> DetailReport:
    """Score one submission in the scorer role and write its detail report, and ``views``: pictures of some cases.

    ``public`` and ``private`` are the folders of all tasks; at most ``cases_shown`` cases are drawn. Raises
    InfrastructureError when answers are missing or ``verify`` finds a difference above tolerance: that is an error of
    ours, not a score.
    """
    task = load_card(card).id
    given = public / task if backend == "local" else Path(DATA_DIR)
    options = ["--public", str(given), "--cases-shown", str(cases_shown), *(["--verify"] if verify else [])]
    with output_folder(out) as folder:
        run_scorer_role(
            __name__,
            options,
            backend,
            image,
            card=card,
            manifest=manifest,
            public=public / task,
            private=private / task,
            submission=submission,
            submission_record=submission_record,
            output=folder,
            resources=resources or {},
        )
        report = read_record(folder / REPORT, DetailReport)
        drawn = read_record(folder / VIEWS, CaseViews)
    write_record(out, report)
    if views is not None:
        write_record(views, drawn)
    return report


def grade(inputs: ScoringInputs, *, verify: bool) -> DetailReport:
    """The track's scores with recipe, medal and, if asked for, the independent twin's value."""
    card, checked = inputs.card, inputs.checked
    track = get_track(card.track)
    scored = track.score(inputs)
    name = scored.quality_name or track.quality
    metrics = {name: scored.quality, **scored.metrics}
    _check_medals(card, metrics)
    verification = _verified(inputs, scored.quality) if verify else None
    return DetailReport(
        run=checked.run,
        track=card.track,
        track_version=track.version,
        task_version=card.version,
        settings=track_settings(card).model_dump(mode="json"),
        quality_name=name,
        quality=scored.quality,
        completion_rate=checked.completion_rate,
        task_score=scored.task_score,
        medal=medal(card.medals, metrics),
        metrics=scored.metrics,
        groups=scored.groups,
        cases=scored.cases,
        notes=scored.notes,
        verification=verification,
    )


def _check_medals(card: TaskCard, metrics: Mapping[str, float | None]) -> None:
    """A threshold on a metric that the track does not have would silently never be reached."""
    problems = [
        f"{card.id}: medals.{number}.at_least: unknown metric '{name}'{suggestion(name, list(metrics))}"
        for number, item in enumerate(card.medals)
        for name in item.at_least
        if name not in metrics
    ]
    if problems:
        raise ConfigError(problems)


def _verified(inputs: ScoringInputs, quality: float) -> Verification:
    library, value, tolerance = get_track(inputs.card.track).verify(inputs)
    difference = abs(value - quality)
    if difference > tolerance:
        raise InfrastructureError(
            f"{inputs.card.id}: {quality!r} differs from {library}'s {value!r} by {difference:.1e} > {tolerance:.0e}."
            "\nThis is an error of the scorer, not of the submission; please report it with the submission."
        )
    return Verification(library=library, value=value, difference=difference, tolerance=tolerance)


def main(arguments: list[str]) -> None:
    """Score inside the scorer role."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("card", "manifest", "public", "private", "submission", "submission-record", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--cases-shown", type=int, default=0)
    parser.add_argument("--verify", action="store_true")
    add_resource_option(parser)
    options = parser.parse_args(arguments)
    inputs = ScoringInputs(
        card=load_card(options.card, named=False),
        manifest=read_record(options.manifest, Manifest),
        submission=options.submission,
        private=options.private,
        checked=read_record(options.submission_record, SubmissionRecord),
        resources=dict(options.resource),
        public=options.public,
    )
    report = grade(inputs, verify=options.verify)
    write_record(options.output / REPORT, report)
    write_record(options.output / VIEWS, _views(inputs, report, options.cases_shown))


def _views(inputs: ScoringInputs, report: DetailReport, limit: int) -> CaseViews:
    """Pictures of some cases; without them the scores are written and stay."""
    try:
        return draw_views(inputs, report, limit)
    except Exception:
        logging.getLogger(__name__).exception("the cases could not be drawn")
        return no_views(report, "No case is shown: drawing failed; the log of score_metrics says why.")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
