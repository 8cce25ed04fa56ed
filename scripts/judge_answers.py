"""Ask a language model whether the open answers of a collected submission mean what the gold answers say."""

from __future__ import annotations

from collections import Counter

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.judge_answers import judge_answers


def main(arguments: list[str]) -> None:
    record = judge_answers(**step_options(step_parser(__doc__, "run"), arguments))
    counts = Counter(verdict.status for verdict in record.verdicts)
    totals = ", ".join(f"{counts[name]} {name}" for name in ("judged", "shortcut", "unjudged", "not_sent"))
    print(f"{record.run.path}: {totals}; {record.tokens.total} tokens")


if __name__ == "__main__":
    run_script(main)
