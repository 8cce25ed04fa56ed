"""A task whose open answers a model judges: the step asks a real server on loopback, and the score says who judged."""

from __future__ import annotations

import json

import pytest
import yaml
from conftest import Project

from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

RUN = "judged/runs/silent/vqa-rad-task/lite/r1"
KEY = "sk-canary-answer-judge"


@pytest.fixture
def options(project: Project) -> tuple[str, ...]:
    """The demo's VQA task with ``scoring: judge``, done by the agent that answers yes to everything."""
    folder = project.path / "judged-cards"
    folder.mkdir()
    card = yaml.safe_load((project.path / "config/tasks/vqa/vqa-rad-task.yaml").read_text())
    card["metric"]["settings"] |= {"scoring": "judge", "judge_model": "judge-1"}
    (folder / "vqa-rad-task.yaml").write_text(yaml.safe_dump(card))
    config = {
        "cards": ["judged-cards"],
        "matrix": {"agents": ["silent"], "tasks": ["vqa-rad-task"]},
        "results": "judged",
    }
    (project.path / "judged.yaml").write_text(yaml.safe_dump(config))
    return ("--configfile", "demo/config.yaml", "judged.yaml")


def endpoint(url: str) -> str:
    judge = {"model": "judge-1", "base_url": url, "api_key_env": "JUDGE_KEY"}
    return f"answer_judge={json.dumps(judge)}"


def test_without_an_answer_judge_nothing_starts(project: Project, options: tuple[str, ...]) -> None:
    done = project.snakemake("-n", *options)
    assert done.returncode != 0
    assert "answer_judge: is missing, but 'vqa-rad-task' is scored by one" in done.stdout


def test_verdicts_become_scores(project: Project, options: tuple[str, ...]) -> None:
    """The server finds every open answer half right: 10 × ½, and 7 of 14 yes/no questions have the answer yes."""
    reply = Answer(body=completion(json.dumps({"score": 0.5, "rationale": "a part"})))
    with ScriptedServer(answers=[reply]) as server:
        done = project.snakemake(*options, "--config", endpoint(server.url), JUDGE_KEY=KEY)
        assert done.returncode == 0, done.stdout[-3000:]
    verdicts = json.loads((project.path / RUN / "answer_judge.json").read_text())["verdicts"]
    judged = [verdict for verdict in verdicts if verdict["status"] == "judged"]
    assert len(server.requests) == len({json.dumps(request) for request in server.requests}) == len(judged)
    report = json.loads((project.path / RUN / "detail_report.json").read_text())
    assert report["task_score"] == pytest.approx((7 + 0.5 * len(judged)) / len(verdicts))
    assert any("answer judge judge-1" in note for note in report["notes"])
    # The cache lies outside of every run, and the key in no file.
    assert list((project.path / "judged/answer_judge_cache").rglob("*.json"))
    kept = [
        path for path in (project.path / "judged").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert kept == []


def test_a_silent_server_fails_that_step_only(project: Project, options: tuple[str, ...]) -> None:
    """An answer that cannot be judged because nobody is there is never a number; the run stays."""
    done = project.snakemake(*options, "--config", endpoint("http://127.0.0.1:9"), JUDGE_KEY=KEY)
    assert done.returncode != 0
    assert "judge_answers" in done.stdout
    assert "Traceback" not in done.stdout
    assert (project.path / RUN / "submission.json").is_file()
    assert not (project.path / RUN / "detail_report.json").exists()
