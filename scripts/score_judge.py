"""Judge stages S1–S3 of one run by rules, or by a panel of language models, and write judge.json."""

from __future__ import annotations

from automedbench.base.console import run_script
from automedbench.steps.command_line import step_options, step_parser
from automedbench.steps.score_judge import score_judge


def main(arguments: list[str]) -> None:
    record = score_judge(**step_options(step_parser(__doc__, "run"), arguments))
    scores = ", ".join(f"{stage} {score:g}" for stage, score in record.stages.items())
    usage = f"; {sum(item.requests for item in record.judgements)} requests, {record.tokens.total} tokens"
    print(f"{record.run.path}: {record.judge}: {scores}{usage * (record.kind == 'llm')}")


if __name__ == "__main__":
    run_script(main)
