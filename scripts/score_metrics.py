"""Score a collected submission against the held-out answers."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.sandbox.container.roles import add_resource_option
from automedbench.steps.inside.score_metrics import score_metrics


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="task card")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest of the staged task")
    parser.add_argument("--public", type=Path, required=True, help="root of staged public data")
    parser.add_argument("--private", type=Path, required=True, help="root of held-out answers")
    parser.add_argument("--submission", type=Path, required=True, help="folder of the collected files")
    parser.add_argument("--submission-record", type=Path, required=True, help="submission.json")
    parser.add_argument("--sandbox", choices=["apptainer", "local"], default="apptainer")
    parser.add_argument("--image", type=Path, help="container image of the scorer role")
    add_resource_option(parser)
    parser.add_argument("--verify", action="store_true", help="compute the metric with an independent library as well")
    parser.add_argument("--cases-shown", type=int, default=0, metavar="N", help="cases to draw for the run's page")
    parser.add_argument("--views", type=Path, help="case_views.json to write")
    parser.add_argument("--out", type=Path, required=True, help="detail_report.json to write")
    options = parser.parse_args(arguments)
    report = score_metrics(
        options.card,
        options.manifest,
        options.public,
        options.private,
        options.submission,
        options.submission_record,
        options.out,
        backend=options.sandbox,
        image=options.image,
        verify=options.verify,
        resources=dict(options.resource),
        cases_shown=options.cases_shown,
        views=options.views,
    )
    print(f"{report.run.path}: {report.quality_name} {report.quality:.4f}, task score {report.task_score:.4f}")
    for note in report.notes:
        print(f"note: {note}")
    if report.verification is not None:
        check = report.verification
        print(f"verified with {check.library}: {check.value:.6f}, difference {check.difference:.1e}")


if __name__ == "__main__":
    run_script(main)
