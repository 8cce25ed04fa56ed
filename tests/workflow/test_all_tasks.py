"""Every task there is, from its fixture to its scores: fetched, staged twice, briefed, worked on, collected, scored.

In one process; a data set is fetched once for all of its tasks. What a perfect, an empty and half a perfect submission
score is worked out from the truth, by each track's contract (expected_scores.py).
"""

from __future__ import annotations

import csv
import functools
import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import Project
from expected_scores import expected_score
from fixture_raw import raw_folder
from left_workspaces import changing
from toys import report_generation as report_toy
from unit import tiny_models

from automedbench.agent.run import RunPlan, run_agent
from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.files import read_record, sha256_file, write_bytes
from automedbench.base.records import DetailReport, Manifest, Receipt, RunId, SubmissionRecord
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.fetch import RECEIPT, describe, fetch_dataset
from automedbench.planning.targets import has_stand_in
from automedbench.steps.inside.check_workspace import OUTPUTS, check_workspace
from automedbench.steps.inside.grade_submission import grade
from automedbench.steps.stage_task import stage_cases
from automedbench.tracks import ScoringInputs, track_settings

ROOT = Path(__file__).resolve().parents[2]
CARDS = {
    path.stem: path for path in find_cards([str(ROOT / "config/tasks")]) if has_stand_in(load_card(path).dataset.name)
}
FIRST_OF_DATA_SET = list({load_card(path).dataset.name: name for name, path in reversed(CARDS.items())}.values())
"""One task of each data set."""
TOLERANCE = 1e-6

Fetch = Callable[[TaskCard], Path]


@dataclass(frozen=True)
class Task:
    """A task, staged from its fixture."""

    card: TaskCard
    path: Path
    folder: Path
    manifest: Manifest

    @property
    def public(self) -> Path:
        """What an agent sees."""
        return self.folder / "public" / self.card.id

    @property
    def private(self) -> Path:
        """The answers."""
        return self.folder / "private" / self.card.id

    def perfect(self, cases: list[str]) -> dict[str, bytes]:
        """The truth of these cases in the form of a submission."""
        toy = importlib.import_module(f"toys.{self.card.track}")
        outputs: dict[str, bytes] = toy.perfect(self.manifest, self.public, self.private, cases, self.card)
        return outputs

    def expected(self, cases: list[str]) -> float:
        """What that scores."""
        return expected_score(self.card, self.manifest, self.private, cases)

    def hand_in(self, cases: list[str], folder: Path, **options: Any) -> DetailReport:
        """Scores of the truth of these cases alone."""
        for path, content in (self.perfect(cases) if cases else {}).items():
            write_bytes(folder / "workspace" / OUTPUTS / path, content)
        (folder / "workspace").mkdir(parents=True, exist_ok=True)
        return self.graded(folder / "workspace", folder, **options)

    def graded(self, workspace: Path, folder: Path, *, verify: bool = False, **resources: Path) -> DetailReport:
        """Scores of a workspace, which is collected into ``folder/submission``."""
        run = RunId(agent="a", task=self.card.id, tier="lite", repeat=1)
        checked = check_workspace(self.card, self.manifest, run, workspace, folder)
        return grade(self._inputs(checked, folder / "submission", resources), verify=verify)

    def _inputs(self, checked: SubmissionRecord, submission: Path, resources: dict[str, Path]) -> ScoringInputs:
        return ScoringInputs(
            card=self.card,
            manifest=self.manifest,
            submission=submission,
            private=self.private,
            checked=checked,
            resources=report_toy.RESOURCES | resources,
            public=self.public,
        )


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of baselines are relative to it."""
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Fetch:
    """The raw data of a card's data set."""
    place, known = tmp_path_factory.mktemp("raw"), dict[str, Path]()

    def get(card: TaskCard) -> Path:
        if card.dataset.name not in known:
            known[card.dataset.name] = raw_folder(card, place)
        return known[card.dataset.name]

    return get


def staged_in(folder: Path, path: Path, raw: Path) -> Task:
    manifest = stage_cases(path, raw, folder / "public", folder / "private", folder / "manifest.json", excerpt=True)
    return Task(load_card(path), path, folder, manifest)


@pytest.fixture(scope="module")
def stage(fetched: Fetch, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Task]:
    """A task, staged once."""

    @functools.cache
    def get(name: str) -> Task:
        path = CARDS[name]
        return staged_in(tmp_path_factory.mktemp("staged"), path, fetched(load_card(path)))

    return get


SLOW_TWINS = ("deeplesion-denoising-task", "lidc-idri-denoising-task")
"""Denoising of 512 × 512 pixels as for ldct-denoising-task: seconds for the same code of the baseline."""


@pytest.fixture(params=CARDS)
def task(request: pytest.FixtureRequest, stage: Callable[[str], Task]) -> Task:
    return stage(request.param)


# --- fetching -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIRST_OF_DATA_SET)
def test_the_first_source_gives_all_and_once(name: str, fetched: Fetch) -> None:
    """What the card says of it leads to every file, and a second call asks nobody; else a person's own folder."""
    card = load_card(CARDS[name])
    folder = fetched(card)
    receipt = read_record(folder / RECEIPT, Receipt)
    sources = [source for source in card.dataset.sources if source.kind not in ("path", "manual")]
    assert receipt.source.startswith(f"fixture of {describe(sources[0]) if sources else 'path'}")
    assert receipt.files
    if sources:
        assert fetch_dataset(card, None, folder, Access(stand_in=True, offline=True)) == receipt


# --- staging --------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, str]:
    """Path below ``folder`` → hash."""
    return {
        path.relative_to(folder).as_posix(): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_stages_twice_to_the_same_hashes(task: Task, fetched: Fetch, tmp_path: Path) -> None:
    again = staged_in(tmp_path, task.path, fetched(task.card))
    assert again.manifest == task.manifest
    assert contents(again.public) == contents(task.public)
    assert contents(again.private) == contents(task.private)


def test_staged_files_keep_the_card_and_the_secrets(task: Task) -> None:
    """Opaque ids; only files that the card names; no content on both sides; each file as the manifest says."""
    numbers = range(1, len(task.manifest.cases) + 1)
    assert task.manifest.case_ids == [f"{task.card.staging.case_prefix}_{number:04d}" for number in numbers]
    public, private = contents(task.public), contents(task.private)
    evaluated = {name: digest for name, digest in public.items() if not name.startswith("calibration/")}
    assert evaluated == {
        f"{case.id}/{name}": file.sha256 for case in task.manifest.cases for name, file in case.inputs.items()
    }
    declared = {unnumbered(each.file) for each in task.card.inputs}
    assert {unnumbered(name.partition("/")[2]) for name in evaluated} <= declared
    # The mask of a synthesis case is given, and says as well where the result is compared.
    answers = {digest for name, digest in private.items() if not name.endswith("/region.nii.gz")}
    assert not set(public.values()) & answers


def unnumbered(name: str) -> str:
    return re.sub(r"\d+", "#", name)


# --- scripted agents ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task",
    [pytest.param(name, marks=[pytest.mark.long] if name in SLOW_TWINS else []) for name in CARDS],
    indirect=True,
)
def test_a_baseline_runs_from_its_brief_to_its_score(task: Task, tmp_path: Path) -> None:
    """The track's classical baseline in the local sandbox, driven as every agent is; all cases are handed in."""
    agent = Agent.model_validate(
        {"provider": "baseline", "baseline": "classical", "trusted": True, "approved_for": ["credentialed"]}
    )
    run = RunId(agent="classical", task=task.card.id, tier="standard", repeat=1)
    plan = RunPlan(
        run=run,
        card=task.card,
        manifest=task.manifest,
        agent=agent.for_task(task.card),
        limits=task.card.limits,
        sandbox=SandboxConfig(backend="local"),
        public=task.folder / "public",
        folder=tmp_path / "run",
        prompts=ROOT / "config/prompts",
    )
    record = run_agent(plan, say=lambda _text: None)
    assert record.outcome == "submitted", record.detail
    with changing(tmp_path / "run") as workspace:
        report = task.graded(workspace, tmp_path)
    said = "".join(path.read_text() for path in (tmp_path / "run").rglob("*.stderr"))
    assert {case.case: case.status for case in report.cases} == dict.fromkeys(task.manifest.case_ids, "valid"), said
    assert 0 <= report.task_score <= 1


# --- perfect, empty, half -------------------------------------------------------------------------------------


def test_perfect_empty_and_half_submissions(task: Task, tmp_path: Path) -> None:
    cases = task.manifest.case_ids
    kept = cases[: len(cases) // 2]
    perfect = task.hand_in(cases, tmp_path / "perfect", verify=True)
    assert {case.status for case in perfect.cases} == {"valid"}, list(perfect.cases)
    assert perfect.task_score == pytest.approx(task.expected(cases), abs=TOLERANCE)
    assert perfect.made_up
    empty = task.hand_in([], tmp_path / "empty")
    assert (empty.task_score, empty.completion_rate) == (0, 0)
    assert {case.status for case in empty.cases} == {"missing"}
    half = task.hand_in(kept, tmp_path / "half")
    assert half.task_score == pytest.approx(task.expected(kept), abs=TOLERANCE)
    assert half.task_score < perfect.task_score
    if task.card.medals and kept:
        assert perfect.medal == task.card.medals[0].name


# --- reports with the models that read them -------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """CheXbert and RadGraph of random weights, in the files of the published ones."""
    tiny_models.require_packages("torch", "transformers", "radgraph")
    folder = tmp_path_factory.mktemp("models")
    bert = tiny_models.write_bert(folder / "bert")
    state = tiny_models.chexbert_state(bert, [1] * len(tiny_models.CLASSES))
    return {
        "bert": bert,
        "chexbert": tiny_models.write_chexbert(folder / "chexbert.pth", state),
        "radgraph": tiny_models.write_radgraph(folder / "radgraph", bert),
        "radgraph_bert": bert,
    }


CLINICAL = [
    name
    for name, path in CARDS.items()
    if (card := load_card(path)).track == "report_generation"
    and "F1RadGraph" in track_settings(card).model_dump()["components"]
]


@pytest.mark.radiology
@pytest.mark.parametrize("name", CLINICAL)
def test_reports_are_scored_with_all_components(
    name: str, stage: Callable[[str], Task], models: dict[str, Path], tmp_path: Path
) -> None:
    """As the card has it: each report's score is a mean of all components, and half of the reports earn their own."""
    task = stage(name)
    cases = task.manifest.case_ids
    kept = cases[: len(cases) // 2]
    perfect = task.hand_in(cases, tmp_path / "perfect", **models)
    earned = {case.case: case.metrics["report_score"] or 0.0 for case in perfect.cases}
    assert set(track_settings(task.card).components) <= set(perfect.metrics)
    assert all(3 * 0.99 / 7 < value <= 1 for value in earned.values()), "\n".join(map(str, perfect.cases))
    assert perfect.task_score == pytest.approx(np.mean(list(earned.values())), abs=TOLERANCE)
    half = task.hand_in(kept, tmp_path / "half", **models)
    assert half.task_score == pytest.approx(sum(earned[case] for case in kept) / len(cases), abs=TOLERANCE)
    assert task.hand_in([], tmp_path / "empty", **models).task_score == 0


# --- the same through Snakemake -------------------------------------------------------------------------------


@pytest.fixture
def everything(project: Project) -> list[str]:
    """Snakemake with a campaign of one scripted agent and all tasks on fixtures, in a copy of the repository."""
    config = yaml.safe_load((project.path / "demo/config.yaml").read_text())
    config |= {"cards": ["config/tasks"], "datasets": {}}
    config["matrix"] |= {"agents": ["careful"], "tasks": ["bccd-det-task"]}
    (project.path / "all.yaml").write_text(yaml.safe_dump(config))
    return ["snakemake", "--cores", "2", "--configfile", "all.yaml", "--config", "fixtures=true"]


def test_all_tasks_are_planned_in_both_tiers(project: Project, everything: list[str]) -> None:
    done = project.run(*everything, "-n", "-p", "--", "all_tasks")
    assert done.returncode == 0, done.stdout[-3000:]
    runs = re.findall(r"python scripts/run_agent\.py .* --run \S+/careful/(\S+)/(\w+)/r\d ", done.stdout)
    offered = {name: load_card(path).tiers for name, path in CARDS.items()}
    assert sorted(runs) == sorted(
        (name, tier) for name in CARDS for tier in ("lite", "standard") if tier in offered[name]
    )
    staged = re.findall(r"python scripts/stage_task\.py .* --task (\S+) ", done.stdout)
    assert sorted(staged) == sorted(CARDS)
    assert len(re.findall(r"python scripts/fetch_dataset\.py ", done.stdout)) == len(FIRST_OF_DATA_SET)


ONE_OF_EACH_TRACK = {"bccd-det-task", *{load_card(path).track: name for name, path in CARDS.items()}.values()}
"""And the one of the matrix."""


@pytest.mark.parametrize(
    "tasks", [ONE_OF_EACH_TRACK, pytest.param(set(CARDS), marks=pytest.mark.long)], ids=["one of each track", "all"]
)
@pytest.mark.timeout(1200)
def test_prepare_stages_every_task(
    project: Project, everything: list[str], stage: Callable[[str], Task], tasks: set[str]
) -> None:
    """``snakemake prepare --config fixtures=true``: the same manifests, in folders of their own, and nothing else."""
    for name in set(CARDS) - tasks:
        (project.path / CARDS[name].relative_to(ROOT)).unlink()
    done = project.run(*everything, "--quiet", "all", "--", "prepare", timeout=1100)
    logs = "\n".join(log.read_text() for log in project.path.glob("logs/*_*/*.log") if "rror" in log.read_text())
    assert done.returncode == 0, done.stdout[-2000:] + logs[-4000:]
    made = {path.stem: read_record(path, Manifest) for path in project.path.glob("data/demo/manifests-fixtures/*.json")}
    assert set(made) == tasks
    assert [name for name, manifest in made.items() if manifest != stage(name).manifest] == []
    assert sorted(path.name for path in (project.path / "data/demo").iterdir()) == [
        *(f"{part}-fixtures" for part in ("manifests", "private", "public", "raw")),
    ]


REHEARSED = {"mimic-cxr-report-task"}
"""A sample of the 48: its metrics read models, and its data are behind an agreement."""


@pytest.mark.parametrize("tasks", [REHEARSED, pytest.param(set(CARDS), marks=pytest.mark.long)], ids=["one", "all"])
@pytest.mark.timeout(3600)
def test_tasks_rehearse_to_scores_that_say_so(project: Project, tasks: set[str]) -> None:
    """``demo/rehearsal.yaml``: every task is scored; manifest, detail report, score, table and page carry the mark."""
    matrix = yaml.safe_load((project.path / "demo/rehearsal.yaml").read_text())["matrix"]
    assert sorted(matrix["tasks"]) == sorted(CARDS)
    places = {part: f"data/{part}" for part in ("raw", "public", "private", "manifests")}
    (project.path / "only.yaml").write_text(yaml.safe_dump({"only": {"tasks": sorted(tasks)}, "data": places}))
    files = ("demo/rehearsal.yaml", "only.yaml")
    done = project.run("snakemake", "--cores", "2", "--quiet", "all", "--configfile", *files, timeout=3500)
    assert done.returncode == 0, done.stdout[-3000:]
    results = project.path / "results-fixtures"
    runs = sorted(path.parent for path in results.glob("runs/*/*/*/*/score.json"))
    assert [run.parents[1].name for run in runs] == sorted(tasks)  # one each
    marked = [*(project.path / "data/manifests-fixtures").glob("*.json")]
    marked += [run / name for run in runs for name in ("detail_report.json", "score.json")]
    assert [path for path in marked if not json.loads(path.read_bytes())["made_up"]] == []
    with open(results / "leaderboard/runs.csv", newline="") as table:
        assert {row["made_up"] for row in csv.DictReader(table)} == {"true"}
    assert 'id="made-up"' in (results / "leaderboard/index.html").read_text()
    reports = [read_record(run / "detail_report.json", DetailReport) for run in runs]
    text, clinical = {"BLEU", "METEOR", "ROUGE_L"}, {"F1RadGraph", "micro_average_f1"}
    for report in (each for each in reports if each.track == "report_generation"):
        has_models = (results / "resources/radgraph").is_dir()
        assert text <= set(report.metrics) and (clinical <= set(report.metrics)) == has_models, report.metrics
        assert any("components_reduced" in note for note in report.notes) != has_models
