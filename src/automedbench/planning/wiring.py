"""Wiring of the rules: paths, versions and options of a campaign, one answer each.

Rules only order steps. Everything here is plain Python over a validated campaign, cached per task or agent, because
Snakemake asks once per planned step.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from automedbench.base.code_digest import code_digest
from automedbench.base.errors import ConfigError
from automedbench.base.files import digest_of
from automedbench.base.records import RunId
from automedbench.campaign.load import Campaign, load_campaign
from automedbench.datasets.download.rehearsal import can_be_made_up
from automedbench.error_codes import CODES_VERSION
from automedbench.judge.heuristic import HEURISTIC
from automedbench.judge.prompt import PROMPT_VERSION
from automedbench.judge.rubric import load_rubric
from automedbench.leaderboard.tables.columns import TABLES
from automedbench.planning.configfiles import name_files
from automedbench.planning.step_options import (
    answer_judge_options,
    cases_shown,
    judge_options,
    options_of,
    report_options,
    run_options,
)
from automedbench.sandbox.evidence.policy import POLICY_VERSION
from automedbench.scoring import SCORE_VERSION
from automedbench.tracks import get_track, track_settings

CLINICAL = frozenset({"chexbert", "radgraph"})
"""Resources that only torch can read."""
TABLE_FORMATS = ("csv", "parquet", "json")


class Wiring:
    """Answers for one campaign. Raises ConfigError with every problem of config, agents and cards."""

    def __init__(self, config: dict[str, Any], configfiles: list[str]) -> None:
        self.config = config
        try:
            self.campaign: Campaign = load_campaign(config)
        except ConfigError as error:
            raise ConfigError(name_files(error.problems, config, list(map(str, configfiles)))) from error
        self.settings = self.campaign.config
        self._check_settings()
        self.run = f"{self.settings.results}/runs/{{agent}}/{{task}}/{{tier}}/r{{repeat}}"
        self.rubrics = "config/rubrics"
        self.dataset_cards = {
            card.dataset.name: self.campaign.card_paths[name] for name, card in reversed(self.campaign.cards.items())
        }

    def _check_settings(self) -> None:
        """Let each track check the metric settings of its cards."""
        problems: list[str] = []
        for name, card in self.campaign.cards.items():
            path = self.campaign.card_paths[name]
            try:
                track_settings(card)
            except ConfigError as error:
                problems += [f"{path}: {problem.removeprefix(f'{name}: ')}" for problem in error.problems]
        problems += [
            f"config: answer_judge: is missing, but '{task}' is scored by one (scoring: judge in its card)"
            for task in ([] if problems or self.settings.answer_judge else self.campaign.tasks)
            if self._judges_answers(task)
        ]
        if problems:
            raise ConfigError(problems)

    # --- names and files: asked with the wildcards of a step --------------------------------------------------

    def below_run(self, options: str) -> str:
        """``options`` for a shell command, with ``{run}`` as the folder of the run."""
        return options.replace("{run}", re.sub(r"\{(\w+)\}", r"{wildcards.\1:q}", self.run))

    @staticmethod
    def log(rule: str) -> str:
        """Log file of a rule that works on one run."""
        return f"logs/{rule}/{{agent}}/{{task}}/{{tier}}/r{{repeat}}.log"

    def run_files(self, pattern: str) -> list[str]:
        """``pattern`` filled in for every run of the campaign."""
        return [_fill(pattern, run) for run in self.campaign.runs]

    def all_tasks(self, pattern: str) -> Callable[[Any], list[str]]:
        """``pattern`` filled in for the campaign's agents with every task there is, as an input function."""
        return lambda _wildcards: [_fill(pattern, run) for run in self.campaign.all_tasks]

    def lost_files(self, page: str, score: str, *patterns: str) -> Callable[[Any], list[str]]:
        """Files that are not there although something made of them is, as an input function.

        Snakemake does not look for files between a finished result and its sources: a deleted judge.json, a run whose
        folder was moved away, or scores that a provisional leaderboard lacks would go unnoticed. Asking for them by
        name makes them again, and what depends on them.
        """

        def find(_wildcards: Any) -> list[str]:
            scores = {run: Path(_fill(score, run)) for run in self.campaign.runs}
            scored = {run for run, path in scores.items() if path.exists()}
            unscored = [str(path) for run, path in scores.items() if run not in scored] if Path(page).exists() else []
            files = [_fill(pattern, run) for run in self.campaign.runs if run in scored for pattern in patterns]
            return [*unscored, *[file for file in files if not Path(file).exists()]]

        return find

    def scored_again(self, pattern: str, score: str) -> Callable[[Any], list[str]]:
        """``pattern`` filled in for every run that has a score, as an input function."""
        return lambda _wildcards: [
            _fill(pattern, run) for run in self.campaign.runs if Path(_fill(score, run)).exists()
        ]

    def must_stage_again(self, wildcards: Any) -> bool:
        """True when the staged cases are of another version of the task than its card."""
        return self._must_stage_again(wildcards.task)

    def manifests(self, pattern: str) -> list[str]:
        """``pattern`` filled in for every task of the campaign; with fixtures, for every task whose data has one."""
        tasks = self._made_up if self.settings.fixtures else self.campaign.tasks
        return [pattern.replace("{task}", task) for task in tasks]

    @functools.cached_property
    def _made_up(self) -> list[str]:
        """Tasks whose data can be made up; the others are told."""
        known = {name: can_be_made_up(card.dataset.name) for name, card in self.campaign.cards.items()}
        without = [name for name, there in known.items() if not there]
        if without:
            print(f"Not rehearsed, as there is no made-up data for it: {', '.join(without)}", file=sys.stderr)
        return [name for name, there in known.items() if there]

    def card(self, wildcards: Any) -> str:
        """Path of a task's card."""
        return self.campaign.card_paths[wildcards.task]

    def dataset_card(self, wildcards: Any) -> str:
        """Path of a card that describes the data set."""
        return self.dataset_cards[wildcards.dataset]

    def receipt(self, wildcards: Any) -> str:
        """Receipt of the data set of a task."""
        return f"{self.settings.data.raw}/{self.campaign.cards[wildcards.task].dataset.name}/receipt.json"

    def track(self, wildcards: Any) -> str:
        """Track of a task."""
        return self.campaign.cards[wildcards.task].track

    @property
    def preflights(self) -> list[str]:
        """Records of every preflight that the campaign needs."""
        return [
            f"{self.settings.results}/preflight/{task}.json"
            for task in self.campaign.tasks
            if self._has_preflight(task)
        ]

    def _has_preflight(self, task: str) -> bool:
        return not self.settings.fixtures and get_track(self.campaign.cards[task].track).preflight is not None

    @property
    def images(self) -> list[str]:
        """Images that the configured sandbox needs: none for the local one."""
        return [image for name in ("agent", "scorer") if (image := self.image(name))]

    def image(self, name: str) -> str | None:
        """File of one image, or None without containers."""
        isolated = self.settings.sandbox.backend == "apptainer"
        return f"{self.settings.containers.folder}/{name}.sif" if isolated else None

    def requirements(self, wildcards: Any) -> str:
        """Pinned list that an image is built from: torch comes along only when its checkpoints are configured."""
        clinical = wildcards.image == "scorer" and CLINICAL & set(self.settings.resources)
        return f"envs/{'radiology' if clinical else wildcards.image}.txt"

    def preflight(self, wildcards: Any) -> list[str]:
        """Record of a task's preflight, for tracks that have one."""
        return (
            [f"{self.settings.results}/preflight/{wildcards.task}.json"] if self._has_preflight(wildcards.task) else []
        )

    def answer_verdicts(self, wildcards: Any) -> list[str]:
        """The answer judge's verdicts on a run, for tasks whose card asks for one."""
        return [self.run.format(**wildcards) + "/answer_judge.json"] if self._judges_answers(wildcards.task) else []

    def decision(self, wildcards: Any) -> list[str]:
        """An operator's decision on a run's findings, where there is one: the audit is repeated when it changes."""
        path = Path(self.run.format(**wildcards), "decision.yaml")
        return [str(path)] if path.is_file() else []

    def decision_option(self, wildcards: Any) -> str:
        """Option of the audit that goes with it."""
        return "".join(f"--decision {shlex.quote(path)}" for path in self.decision(wildcards))

    def verdict_option(self, wildcards: Any) -> str:
        """Option of the scorer that goes with these verdicts."""
        return "".join(f"--resource answer_verdicts={shlex.quote(path)}" for path in self.answer_verdicts(wildcards))

    @functools.cache  # noqa: B019
    def _judges_answers(self, task: str) -> bool:
        return bool(track_settings(self.campaign.cards[task]).needs_answer_judge)

    @property
    def answer_judge_options(self) -> str:
        """Data, endpoint and cache of the answer judge; the cache lies outside of every run."""
        asked = answer_judge_options(self.settings)
        return self._manifest_option + asked if asked else ""

    @property
    def report_options(self) -> str:
        """What the leaderboard is built from and how."""
        return report_options(self.settings, self.rubrics)

    @property
    def leaderboard_tables(self) -> list[str]:
        """Every table of the leaderboard."""
        folder = f"{self.settings.results}/leaderboard"
        return [f"{folder}/{table}.{suffix}" for table in TABLES for suffix in TABLE_FORMATS] + [
            f"{folder}/leaderboard.json"
        ]

    # --- versions: a changed one repeats exactly the steps it touches -----------------------------------------

    def source_version(self, wildcards: Any) -> str:
        """Identity of where raw data comes from."""
        card = self.campaign.cards[Path(self.dataset_cards[wildcards.dataset]).stem]
        return digest_of([card.dataset.model_dump(mode="json", include={"sources"}), self.path_option(wildcards)])

    def staging_version(self, wildcards: Any) -> str:
        """Identity of a task's staged data."""
        return self._staging_version(wildcards.task)

    def run_version(self, wildcards: Any) -> str:
        """Identity of what an agent is asked: the agent's behaviour and the task's version."""
        return self._run_version(wildcards.agent, wildcards.task)

    def scoring_version(self, wildcards: Any) -> str:
        """Identity of how a task is checked and scored."""
        return self._scoring_version(wildcards.task)

    def preflight_version(self, wildcards: Any) -> str:
        """Identity of what a task's scorer needs and of where it is."""
        return digest_of([self._scoring_version(wildcards.task), self.settings.resources])

    def answer_judge_version(self, wildcards: Any) -> str:
        """Identity of the answer judge and of what it is asked about."""
        judge = self.settings.answer_judge
        return digest_of([judge.model_dump(mode="json") if judge else None, self._scoring_version(wildcards.task)])

    def judge_version(self, wildcards: Any) -> str:
        """Identity of judge and rubric."""
        return self._judge_version(self.campaign.cards[wildcards.task].track)

    @property
    def policy_version(self) -> str:
        """Identity of the audit's rules."""
        return f"policy{POLICY_VERSION}-{self.settings.sandbox.max_warnings}"

    @property
    def score_version(self) -> str:
        """Identity of how a run's numbers are put together and its error codes found."""
        return f"score{SCORE_VERSION}-codes{CODES_VERSION}"

    def present_code(self, _wildcards: Any) -> str:
        """Identity of all code and rubrics, for what is made again to see what they would say now."""
        return code_digest(Path(self.rubrics))

    # Snakemake asks once per planned step; the answers below are computed once per task.

    @functools.cache  # noqa: B019 - one object per process
    def _staging_version(self, task: str) -> str:
        card = self.campaign.cards[task]
        # Some tracks prepare references that their metric is measured against.
        staged = {name: card.metric.settings.get(name) for name in get_track(card.track).staged_settings}
        parts = card.model_dump(mode="json", include={"id", "version", "staging", "inputs", "outputs", "targets"})
        return digest_of([parts, staged])

    @functools.cache  # noqa: B019
    def _must_stage_again(self, task: str) -> bool:
        try:
            staged = json.loads((Path(self.settings.data.manifests) / f"{task}.json").read_bytes())
        except (OSError, ValueError):
            return False
        return bool(staged.get("task_version") != self.campaign.cards[task].version)

    @functools.cache  # noqa: B019
    def _run_version(self, agent: str, task: str) -> str:
        return f"{self.campaign.digest(agent, task)}-v{self.campaign.cards[task].version}"

    @functools.cache  # noqa: B019
    def _scoring_version(self, task: str) -> str:
        card = self.campaign.cards[task]
        settings = card.model_dump(mode="json", include={"version", "targets", "outputs", "metric", "medals"})
        pins = Path("envs/scorer.txt").read_text() if self.images else None
        track = get_track(card.track)
        resources = self.settings.resources if track.preflight is not None else None
        return digest_of([settings, track.version, pins, resources])

    @functools.cache  # noqa: B019
    def _judge_version(self, track: str) -> str:
        panel = [judge.digest() for judge in self.campaign.judges.values()]
        asked = digest_of([panel, self.settings.judge.repeats, PROMPT_VERSION])[:12]
        return f"{asked if panel else HEURISTIC}-rubric{load_rubric(Path(self.rubrics), track).version}"

    # --- options of scripts that are the same for every step of a rule ----------------------------------------

    def path_option(self, wildcards: Any) -> str:
        """``--path`` of the user's own copy of a data set, or ``--fixtures``."""
        override = self.settings.datasets.get(wildcards.dataset)
        made_up = "--fixtures" if self.settings.fixtures else ""
        return f"--path {shlex.quote(override.path)}" if override else made_up

    def excerpt_option(self, wildcards: Any) -> str:
        """``--excerpt`` for a task on a data set of which there is a part: the user's own, or a fixture."""
        if self.settings.fixtures:
            return "--excerpt --fixtures"
        override = self.settings.datasets.get(self.campaign.cards[wildcards.task].dataset.name)
        return "--excerpt" if override and override.excerpt else ""

    @property
    def staging_options(self) -> str:
        """The two roots of staged data."""
        return options_of({"public": self.settings.data.public, "private": self.settings.data.private})

    @property
    def run_options(self) -> str:
        """Agents file, data, isolation, limits and budget of every run."""
        return run_options(self.settings, self.image("agent"), self.image("scorer"))

    @property
    def collect_options(self) -> str:
        """Manifest, and the container of the import role."""
        return self._manifest_option + options_of(self._scorer_image)

    @property
    def scorer_options(self) -> str:
        """Manifest, data, resources, and the container of the scorer role."""
        data = self.settings.data
        folders = options_of({"public": data.public, "private": data.private, **self._scorer_image})
        return self._manifest_option + self._resource_options + folders

    def view_option(self, wildcards: Any) -> str:
        """How many cases of a run are shown with their answers."""
        return f"--cases-shown {cases_shown(self.settings.leaderboard, self.campaign.cards[wildcards.task])}"

    @property
    def preflight_options(self) -> str:
        """Resources, and the container of the scorer role."""
        return self._resource_options + options_of(self._scorer_image)

    @property
    def _resource_options(self) -> str:
        return "".join(options_of({"resource": f"{name}={path}"}) for name, path in self.settings.resources.items())

    @property
    def _manifest_option(self) -> str:
        return f" --manifest {shlex.quote(self.settings.data.manifests)}/{{wildcards.task}}.json"

    @property
    def _scorer_image(self) -> dict[str, Any]:
        return {"sandbox": self.settings.sandbox.backend, "image": self.image("scorer")}

    @property
    def audit_options(self) -> str:
        """The policy's one setting."""
        return options_of({"max-warnings": self.settings.sandbox.max_warnings})

    @property
    def judge_options(self) -> str:
        """Judge and rubrics."""
        return judge_options(self.settings, self.rubrics)

    @property
    def plan_version(self) -> str:
        """Identity of the plan: which runs, and what the leaderboard says about their agents."""
        agents = {name: self.campaign.agents[name] for name in self.campaign.takes_part}
        shown = {name: [agent.provider, agent.model] for name, agent in sorted(agents.items())}
        return digest_of([shown, [run.path for run in self.campaign.runs], self.settings.judge.kind])

    @property
    def plan_options(self) -> str:
        """The merged configuration on one line; no param, because most of it changes no plan."""
        return options_of({"config": json.dumps(self.config, sort_keys=True)})

    @staticmethod
    def one_of(names: Iterable[str]) -> str:
        """Regular expression that matches exactly these names."""
        return "|".join(sorted(map(re.escape, names))) or "(?!)"


def _fill(pattern: str, run: RunId) -> str:
    return (
        pattern.replace("{agent}", run.agent)
        .replace("{task}", run.task)
        .replace("{tier}", run.tier)
        .replace("{repeat}", str(run.repeat))
    )
