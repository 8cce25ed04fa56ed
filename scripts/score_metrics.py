"""Score a collected submission against the held-out answers."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.score_metrics import report_lines, score_metrics


def main(arguments: list[str]) -> None:
    parser = step_parser(__doc__, "run")
    parser.add_argument("--verify", action="store_true", help="compute the metric with an independent library as well")
    print("\n".join(report_lines(score_metrics(**step_options(parser, arguments)))))


if __name__ == "__main__":
    run_script(main)
