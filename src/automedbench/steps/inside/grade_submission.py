"""Task metrics inside the scorer role: the track's scorer over a submission and the held-out answers, and its pictures.

``main`` sees the copies that were collected and the private data, has no network, and runs nothing that an agent made.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path

from automedbench.base.cards import TaskCard, load_card
from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.option_types import add_resource_option
from automedbench.base.records import DetailReport, Manifest, SubmissionRecord, Verification
from automedbench.base.views import CaseViews
from automedbench.base.yamlfile import suggestion
from automedbench.scoring.effect import measure_effect
from automedbench.scoring.run import medal
from automedbench.steps.inside.case_views import draw_views, no_views
from automedbench.tracks import ScoringInputs, get_track, track_settings

REPORT, VIEWS = "detail_report.json", "case_views.json"


def grade(inputs: ScoringInputs, *, verify: bool) -> DetailReport:
    """The track's scores with recipe, medal, effect of the case and, if asked for, the independent twin's value."""
    card, checked = inputs.card, inputs.checked
    track = get_track(card.track)
    scored = track.score(inputs)
    name = scored.quality_name or track.quality
    metrics = {name: scored.quality, **scored.metrics}
    _check_medals(card, metrics)
    verification = _verify(inputs, scored.quality) if verify else None
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
        prior=scored.prior,
        effect=measure_effect(inputs),
        contradicting=scored.contradicting,
        notes=[*(f"Staged data: {remark}." for remark in inputs.manifest.remarks), *scored.notes],
        made_up=inputs.manifest.made_up,
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


def _verify(inputs: ScoringInputs, quality: float) -> Verification:
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
