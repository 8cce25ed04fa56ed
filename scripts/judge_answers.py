"""Ask a language model whether the open answers of a collected submission mean what the gold answers say."""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.base.endpoint.keys import read_keys
from automedbench.judge.answer_model import AnswerModel, Endpoint
from automedbench.judge.answers import judge_answers


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="task card")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest of the staged task")
    parser.add_argument("--private", type=Path, required=True, help="root of held-out answers")
    parser.add_argument("--submission", type=Path, required=True, help="folder of the collected files")
    parser.add_argument("--submission-record", type=Path, required=True, help="submission.json")
    parser.add_argument("--model", required=True, help="model that judges")
    parser.add_argument("--base-url", required=True, help="OpenAI-compatible endpoint")
    parser.add_argument("--api-key-env", required=True, help="environment variable that holds the key")
    parser.add_argument("--no-temperature", action="store_true", help="send no temperature (else 0)")
    parser.add_argument("--no-json-mode", action="store_true", help="do not ask for response_format json_object")
    parser.add_argument("--cache", type=Path, required=True, help="folder of verdicts, outside every run")
    parser.add_argument("--out", type=Path, required=True, help="answer_judge.json to write")
    options = parser.parse_args(arguments)
    endpoint = Endpoint(
        model=options.model,
        base_url=options.base_url,
        api_key_env=options.api_key_env,
        temperature=None if options.no_temperature else 0.0,
        json_mode=not options.no_json_mode,
    )
    with AnswerModel(endpoint, read_keys(endpoint)) as model:
        record = judge_answers(
            options.card,
            options.manifest,
            options.private,
            options.submission,
            options.submission_record,
            options.cache,
            options.out,
            model,
        )
    names = ("judged", "shortcut", "unjudged", "not_sent")
    counts = [f"{sum(verdict.status == name for verdict in record.verdicts)} {name}" for name in names]
    print(f"{record.run.path}: {', '.join(counts)}; {record.tokens.total} tokens")


if __name__ == "__main__":
    run_script(main)
