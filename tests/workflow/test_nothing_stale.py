"""Whatever must repeat a run or a score is planned in one call, also while all that stands above it is made again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import yaml
from campaigns import commands, fresh_copy
from conftest import Project

DETECTION, REPORTS = "bccd-det-task", "demo-cxr-report-task"
"""Without and with a preflight."""
FIRST, SECOND = "hasty", "silent"
EVERY = [(agent, task) for agent in (FIRST, SECOND) for task in (DETECTION, REPORTS)]
SCORING = ("collect_submission", "audit_run", "score_metrics", "score_judge", "score_run")
ALL = ("run_agent", *SCORING)
ABOVE = ("--forcerun", "stage_task", "preflight")
"""Options that make staged data and preflights again in the same call."""
Steps = set[tuple[str, str]]
"""Rule, and agent/task of the run."""


def configure(**changes: object) -> Callable[[Project], object]:
    """A change of the campaign's configuration; mappings are laid over each other, one level deep."""

    def change(project: Project) -> None:
        path = project.path / "demo/config.yaml"
        config = yaml.safe_load(path.read_text())
        for key, value in changes.items():
            config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(config))

    return change


def edit(name: str, pattern: str, replacement: str) -> Callable[[Project], object]:
    """A change of the one match of a pattern in a file."""

    def change(project: Project) -> None:
        path = project.path / name
        text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
        assert count == 1, f"{name}: {pattern}"
        path.write_text(text)

    return change


def add_line(name: str, line: str) -> Callable[[Project], object]:
    def change(project: Project) -> None:
        path = project.path / name
        path.write_text(f"{path.read_text()}\n{line}\n")

    return change


def other_word_list(project: Project) -> None:
    (project.path / "words").symlink_to("demo/data/wordnet")
    configure(resources={"wordnet": "words"})(project)


def lose(name: str) -> Callable[[Project], object]:
    return lambda project: (project.path / name).rename(project.path / "lost" / Path(name).name)


def steps_of(rules: Iterable[str], runs: Iterable[tuple[str, str]]) -> Steps:
    return {(rule, f"{agent}/{task}") for rule in rules for agent, task in runs}


def of_task(task: str) -> list[tuple[str, str]]:
    return [run for run in EVERY if run[1] == task]


RUNS = "results/demo/runs/{}/{}/lite/r1"
LOCAL: dict[str, tuple[Callable[[Project], object], Steps]] = {
    "a judgement is gone": (
        lose(RUNS.format(SECOND, REPORTS) + "/judge.json"),
        steps_of(("score_judge", "score_run"), [(SECOND, REPORTS)]),
    ),
    "effects": (configure(effects="shown_only"), steps_of(("score_judge", "score_run"), EVERY)),
    "audit policy": (configure(sandbox={"max_warnings": 7}), steps_of(("audit_run", "score_run"), EVERY)),
    "resources of a metric": (other_word_list, steps_of(SCORING, of_task(REPORTS))),
    "track version": (
        edit("src/automedbench/tracks/detection/__init__.py", r"^    version=\d+,$", "    version=99,"),
        steps_of(SCORING, of_task(DETECTION)),
    ),
    "agent": (
        add_line(f"demo/agents/detection/{FIRST}.yaml", "- content: One more word."),
        steps_of(ALL, [(FIRST, DETECTION)]),
    ),
    "task version": (
        edit(f"config/tasks/detection/{DETECTION}.yaml", "^version: 1$", "version: 2"),
        steps_of(ALL, of_task(DETECTION)),
    ),
    "a run is gone": (lose(RUNS.format(FIRST, REPORTS)), steps_of(ALL, [(FIRST, REPORTS)])),
}
"""Change → what it repeats. Each one adds steps to those of the changes before it."""

ISOLATED: dict[str, Callable[[Project], object]] = {
    "sandbox backend": configure(
        sandbox={"backend": "apptainer", "network": "sealed"}, containers={"agent": {"image": "light"}}
    ),
    "network": configure(sandbox={"network": "open"}),
    "recipe of the image": add_line("containers/light.def", "    true"),
}
"""Changes that repeat every run, while its image is made."""


def plan(project: Project, *options: str) -> Steps:
    """Steps that a dry run would execute; of a step that belongs to no run only the rule."""
    done = project.snakemake("-n", "-p", *options)
    assert done.returncode == 0, done.stdout[-3000:]
    pattern = r"python scripts/(\w+)\.py(?:.* --run \S+/runs/(\S+)/lite/r1)?"
    found = [re.match(pattern, command) for command in commands(done.stdout)]
    return {(step[1], step[2] or "") for step in found if step}


def of_runs(planned: Steps) -> Steps:
    return {step for step in planned if step[1]}


def of_two_tasks(place: Path) -> Project:
    project = fresh_copy(place)
    configure(matrix={"agents": [FIRST, SECOND], "tasks": [DETECTION, REPORTS]})(project)
    return project


@pytest.mark.timeout(1500)
def test_keys_of_runs_and_scores(tmp_path: Path) -> None:
    """Two changes a plan, each with staged data and preflights made again; then made for real, at once."""
    project = of_two_tasks(tmp_path / "automedbench")
    (project.path / "lost").mkdir()
    assert project.snakemake().returncode == 0
    expected: Steps = set()
    for number, (name, (change, repeated)) in enumerate(LOCAL.items(), start=1):
        change(project)
        assert not repeated <= expected, f"{name}: shows nothing after the changes before it"
        expected |= repeated
        assert number % 2 or of_runs(plan(project, *ABOVE)) == expected, f"{name}, or the change before"
    done = project.snakemake(*ABOVE)
    assert done.returncode == 0, done.stdout[-3000:]
    assert plan(project) == set()


@pytest.mark.timeout(1500)
def test_keys_of_isolation(tmp_path: Path) -> None:
    """No container is started: all that was planned counts as made (``--touch``), images included."""
    project = of_two_tasks(tmp_path / "automedbench")
    touch(project)
    assert plan(project) == set()
    for name, change in ISOLATED.items():
        change(project)
        planned = plan(project)
        assert of_runs(planned) == steps_of(ALL, EVERY), name
        assert (("build_image", "") in planned) == (name != "network"), name
        touch(project)
    assert plan(project) == set()
    elsewhere = plan(project, "--config", "fixtures=true", f"matrix={{tasks: [{DETECTION}]}}")
    assert of_runs(elsewhere) == steps_of(ALL, of_task(DETECTION)), "fixtures have folders of their own"


def touch(project: Project) -> None:
    """Make every file of the campaign there, and count it as made by the steps as they are now."""
    listed = project.snakemake("--summary").stdout.splitlines()
    head = next(number for number, line in enumerate(listed) if line.startswith("output_file\t"))
    for line in listed[head + 1 :]:
        path = project.path / line.partition("\t")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    done = project.snakemake("--touch", "--forceall")
    assert done.returncode == 0, done.stdout[-3000:]
