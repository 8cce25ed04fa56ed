"""Judge stages S1–S3 of one run by rules, or by a panel of language models, and write judge.json."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.judge import judge_conversation
from automedbench.judge.panel import panel_of


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversation", type=Path, required=True, help="conversation.json of the run")
    parser.add_argument("--rubrics", type=Path, required=True, help="folder with skeleton.yaml and <track>.yaml")
    parser.add_argument("--track", required=True, help="track of the task, for example detection")
    parser.add_argument("--submission", type=Path, help="folder of the collected files, for plan.png; a panel needs it")
    parser.add_argument("--panel", nargs="+", metavar="NAME", help="names from the judges file; none: judged by rules")
    parser.add_argument("--judges", type=Path, help="judges file, for --panel")
    parser.add_argument("--repeats", type=int, default=1, help="how often each of the panel judges (default: 1)")
    parser.add_argument("--cache", type=Path, help="folder of answers, outside every run, for --panel")
    parser.add_argument("--out", type=Path, required=True, help="judge.json to write")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        panel = None
        if options.panel is not None:
            panel = panel_of(options.panel, options.judges, options.repeats, options.cache, options.submission)
            stack.enter_context(panel)
        record = judge_conversation(
            options.conversation,
            options.rubrics,
            options.track,
            options.out,
            submission=options.submission,
            panel=panel,
        )
    scores = ", ".join(f"{stage} {score:g}" for stage, score in record.stages.items())
    asked = f"; {sum(item.requests for item in record.judgements)} requests, {record.tokens.total} tokens"
    print(f"{record.run.path}: {record.judge}: {scores}{asked if panel else ''}")


if __name__ == "__main__":
    run_script(main)
