"""A campaign judged by language models: a server on loopback plays them, and the scores say who judged."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from campaigns import copy_of_finished, executed, planned
from conftest import Project

from automedbench_rehearsal.model_server.server import Answer, ScriptedServer, completion

RUN = "results/demo/runs/careful/bccd-det-task/lite/r1"
KEY = "sk-canary-of-the-judges"
PLAN = ("Decision: I choose the last one as detector.", None)
SETUP = ('DATA = Path(os.environ["DATA_DIR"])', 4)
CHECK = ("bccd_0001 640 x 480 {'wbc': 1", 6)
ASKED = {
    "S1": (PLAN, ("s1a", "s1b", "s1c")),  # the lite tier credits s1d, s1e and s1f
    "S2": (SETUP, ("s2a", "s2b", "s2c", "s2d")),  # the run has no GPU, so s2e is not asked
    "S3": (CHECK, ("s3",)),
}


def says(stage: str, **given: float) -> Answer:
    """An answer about a stage: 1 unless given, each with a line of the careful agent's run."""
    (quote, turn), names = ASKED[stage]
    verdicts = {
        name: {"reason": "seen", "quote": quote, "turn": turn, "verdict": given.get(name, 1.0)} for name in names
    }
    return Answer(body=completion(json.dumps({"criteria": verdicts, "error_codes": []})))


ALL = [says(stage) for stage in ASKED]
PRICE = {"input": "1000000", "output": "1000000", "as_of": "2026-01-01", "source": "by hand"}


class Campaign:
    """The demo's detection task, done by the careful agent and judged by models."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.options = ("--configfile", "demo/config.yaml", "judged.yaml")

    def judges(self, url: str, *names: str, repeats: int = 1, **settings: Any) -> None:
        """Write the judges file and who of it judges."""
        plain = {"base_url": url, "api_key_env": "JUDGE_KEY", "pricing": PRICE}
        judges = {name: {"model": f"model-of-{name}"} | plain | settings for name in names}
        (self.project.path / "my-judges.yaml").write_text(yaml.safe_dump({"judges": judges}))
        config = {
            "matrix": {"agents": ["careful"], "tasks": ["bccd-det-task"]},
            "judges_file": "my-judges.yaml",
            "judge": {"kind": "llm", "panel": list(names), "repeats": repeats},
        }
        (self.project.path / "judged.yaml").write_text(yaml.safe_dump(config))

    def run(self, key: str = KEY) -> tuple[int, str]:
        done = self.project.snakemake(*self.options, JUDGE_KEY=key)
        return done.returncode, done.stdout

    def read(self, name: str) -> Any:
        return json.loads((self.project.path / RUN / name).read_text())

    def log(self) -> str:
        (path,) = (self.project.path / "logs/score_judge").rglob("*.log")
        return path.read_text()

    def files_with(self, text: str) -> list[Path]:
        places = [self.project.path / name for name in ("results", "logs", ".snakemake")]
        files = [path for place in places for path in place.rglob("*") if path.is_file()]
        return [path for path in files if text.encode() in path.read_bytes()]


@pytest.fixture
def campaign(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Its run is done and checked, and not yet judged."""
    project = copy_of_finished(tmp_path_factory, tmp_path / "automedbench")
    for name in ("judge.json", "score.json"):
        (project.path / RUN / name).unlink()
    shutil.rmtree(project.path / "logs/score_judge")
    return Campaign(project)


def test_a_panel_judges(campaign: Campaign) -> None:
    """By hand: S1 of the first (3 + 3)/6 = 1, of the second (1 + 3)/6 = 0.67 → mean 0.835; S2 1 and 3/4 → 0.875; S3 ½.

    The server counts 3 prompt and 2 completion tokens per answer: 6 answers cost 30 $ at 1 $ per token.
    """
    second = [says("S1", s1b=0, s1c=0), says("S2", s2a=0), says("S3", s3=0)]
    answers = [answer for pair in zip(ALL, second, strict=True) for answer in pair]
    with ScriptedServer(answers=answers) as server:
        campaign.judges(server.url, "first", "second")
        code, output = campaign.run()
        assert code == 0, output[-3000:]
        requests = server.requests
    judged, score = campaign.read("judge.json"), campaign.read("score.json")
    assert (judged["judge"], judged["kind"]) == ("panel:first+second", "llm")
    assert judged["stages"] == {"S1": 0.835, "S2": 0.875, "S3": 0.5}
    assert judged["spread"] == {"S1": 0.2333, "S2": 0.1768, "S3": 0.7071}
    assert (judged["cost_usd"], judged["tokens"]["prompt"]) == ("30", 18)
    assert (score["recipe"]["judge"], score["recipe"]["judge_kind"]) == ("panel:first+second", "llm")
    assert [score["scores"][name] for name in ("s1", "s2", "s3")] == [0.835, 0.875, 0.5]
    # What the judges were told: nothing of who worked, where, or how well.
    assert [request["model"] for request in requests] == ["model-of-first", "model-of-second"] * 3
    sent = json.dumps([request["messages"] for request in requests])
    for word in (str(campaign.project.path), "task_score", "map50", "model-of-", KEY):
        assert word not in sent
    assert re.search(r"\bcareful\b", sent) is None
    # Answers lie outside of every run, and the key in no file.
    assert len(list((campaign.project.path / "results/demo/judge_cache").glob("??/*.json"))) == 6
    assert campaign.files_with(KEY) == []


def test_only_what_changed_is_judged_again(campaign: Campaign) -> None:
    """A finished campaign is a no-op; another judge repeats the judgement and what follows, never a run."""
    with ScriptedServer(answers=ALL) as server:
        campaign.judges(server.url, "first")
        code, output = campaign.run()
        assert code == 0, output[-3000:]
        # A price or a time-out changes no answer.
        campaign.judges(server.url, "first", request_timeout_s=30)
        assert planned(campaign.project, *campaign.options) == []
        before = (campaign.project.path / RUN / "run.json").stat().st_mtime_ns
        assert len(server.requests) == 3
    with ScriptedServer(answers=[says("S1", s1a=0), *ALL[1:]]) as server:
        campaign.judges(server.url, "first", temperature=0.5)
        assert planned(campaign.project, *campaign.options) == ["build_leaderboard", "score_judge", "score_run"]
        code, output = campaign.run()
        assert code == 0, output[-3000:]
        assert executed(campaign.project) == ["score_judge", "score_run", "build_leaderboard"]
        assert len(server.requests) == 3
    # No plan takes b and c as well: the three credits of the tier are left.
    assert campaign.read("score.json")["scores"]["s1"] == 0.5
    assert (campaign.project.path / RUN / "run.json").stat().st_mtime_ns == before


def test_no_valid_answer_is_no_number(campaign: Campaign) -> None:
    """The job fails with the reason and writes nothing; the run stays, and valid answers need not be paid again."""
    invented = {"s3": {"reason": "x", "quote": "all boxes were checked twice", "turn": 6, "verdict": 1}}
    wrong = Answer(body=completion(json.dumps({"criteria": invented, "error_codes": []})))
    with ScriptedServer(answers=[*ALL[:2], wrong]) as server:
        campaign.judges(server.url, "first")
        code, output = campaign.run()
        assert code != 0
        # Three tries about this run's S3, and three about that of a run that did nothing: the judge itself is unable.
        assert len(server.requests) == 2 + 3 + 3
        port = urlsplit(server.url).port
    assert "Traceback" not in output
    assert "NoValidAnswer: No judge of panel:first gave a valid answer about S3 in 3 tries" in campaign.log()
    assert (campaign.project.path / RUN / "detail_report.json").is_file()
    assert not (campaign.project.path / RUN / "judge.json").exists()
    assert not (campaign.project.path / RUN / "score.json").exists()
    with ScriptedServer(answers=[ALL[2]], port=port or 0) as server:
        code, output = campaign.run()
        assert code == 0, output[-3000:]
        assert len(server.requests) == 1
    assert campaign.read("judge.json")["judgements"][0]["cached"] == 2


def test_without_a_key_nothing_is_judged(campaign: Campaign) -> None:
    """A dry run needs none."""
    campaign.judges("http://127.0.0.1:9/v1", "first")
    assert "score_judge" in planned(campaign.project, *campaign.options)
    code, output = campaign.run(key="")
    assert code != 0
    assert "Traceback" not in output
    assert "ConfigError: judges.first: The environment variable JUDGE_KEY is not set" in campaign.log()
    assert (campaign.project.path / RUN / "submission.json").is_file()
    assert not (campaign.project.path / RUN / "judge.json").exists()
