"""The campaign's configuration: typed, validated, all problems at once, and written down as its record.

A *campaign* is the matrix agents × tasks × tiers × repeats with its paths, limits and sandbox (``config/config.yaml``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.errors import ConfigError
from automedbench.base.files import close_folder, parse_json_object, to_json, write_text
from automedbench.base.records import HEADLINE_TIERS, RunId
from automedbench.base.yamlfile import suggestion, validate
from automedbench.campaign.agents import Agent, EndpointSettings, JudgeModel, load_campaign_agents, load_judges
from automedbench.campaign.config import DEFAULT, CampaignConfig, Matrix, Selection
from automedbench.campaign.presets import apply_preset, load_preset
from automedbench.campaign.recipes import load_recipe, protocol_mismatch
from automedbench.campaign.record import FILE, CampaignRecord

LoadedT = TypeVar("LoadedT")
CONFIG = "config"
"""Name of the merged configuration in messages; ``planning.load.name_files`` replaces it by the file."""

FIRST_RUN = "first-run/report.json"
"""Below the results: what `automedbench first-run` found."""


@dataclass(eq=False)
class Campaign:
    """A validated configuration with its cards, agents and runs."""

    config: CampaignConfig
    cards: dict[str, TaskCard]
    card_paths: dict[str, str]
    agents: dict[str, Agent]
    runs: list[RunId]
    judges: dict[str, JudgeModel] = field(default_factory=dict)

    @functools.cache  # noqa: B019 - one object per process
    def digest(self, agent: str, task: str) -> str:
        """Identity of what an agent does with a task."""
        return self.agents[agent].for_task(self.cards[task]).digest()

    @functools.cached_property
    def takes_part(self) -> list[str]:
        """Agents with at least one run, in matrix order."""
        return list(dict.fromkeys(run.agent for run in self.runs))

    def flavour(self, agent: str) -> str:
        """Name of the image that an agent's code runs in."""
        return self.config.flavour(self.agents[agent].image)

    @functools.cached_property
    def images(self) -> list[str]:
        """Names of the images that the campaign needs: none for the local sandbox."""
        if self.config.sandbox.backend != "apptainer":
            return []
        return [*dict.fromkeys(map(self.flavour, self.takes_part)), "scorer"]

    @property
    def all_tasks(self) -> list[RunId]:
        """The campaign's agents and repeats with every task in its folders of cards, in the tiers of the headline.

        That is the benchmark's 48 and the user's own; what a campaign leaves out stays out. Demonstrations on invented
        data are no tasks of a benchmark.
        """
        tasks = [name for name, card in self.cards.items() if not card.demo]
        every = self.config.matrix.model_copy(update={"tasks": tasks, "tiers": list(HEADLINE_TIERS), "include": []})
        return [run for run in expand_matrix(every, Selection()) if run.tier in self.cards[run.task].tiers]

    @functools.cached_property
    def tasks(self) -> list[str]:
        """Tasks with at least one run, in matrix order."""
        return list(dict.fromkeys(run.task for run in self.runs))

    @property
    def closed_folders(self) -> list[Path]:
        """Folders with data, results or logs; none where all data is open: then only new files follow ``share``."""
        names = (*self.config.data.model_dump().values(), self.config.results, *_OF_THE_WORKFLOW)
        return [Path(name) for name in names] if _restricted(self.runs, self.cards) else []

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(self.cards[task].dataset.name for task in self.tasks))


def load_campaign(raw: dict[str, Any]) -> Campaign:
    """Validate a whole campaign; raises ConfigError with every problem: of the configuration, then of what it names."""
    config = validate(raw, CampaignConfig, CONFIG).as_run
    problems: list[str] = []
    agents = _collect(problems, lambda: load_campaign_agents(config))
    cards, paths, broken = _load_cards(problems, config.cards)
    judges = _panel(problems, config)
    if agents is not None:
        problems += _unknown_names(config, "agent", list(agents))
    problems += _unknown_names(config, "task", [*cards, *broken])
    if config.preset != DEFAULT and not problems:
        config, cards = _apply_preset(config, cards)
        paths = {task: f"{config.results}/cards/{task}.yaml" for task in cards}
    problems += [*_misplaced_data(config), *_wrong_folders(config, agents or {})]
    if not problems:
        runs = expand_matrix(config.matrix, config.only)
        problems += _refused_runs(runs, config, agents or {}, judges, cards)
        if not runs:
            problems.append(f"{CONFIG}: only: no run is left of the matrix; check 'only' and 'matrix.exclude'")
    if problems:
        raise ConfigError(problems)
    return Campaign(config, cards, paths, agents or {}, runs, judges)


def _apply_preset(config: CampaignConfig, cards: dict[str, TaskCard]) -> tuple[CampaignConfig, dict[str, TaskCard]]:
    """Settings and cards as the campaign's preset has them; raises ConfigError for what it cannot be joined with."""
    preset = load_preset(config.preset)
    if config.cases.draw is not None:
        raise ConfigError([f"{CONFIG}: cases.draw: {preset.title} has one set of cases; leave it out, or the preset"])
    if config.fixtures:
        raise ConfigError([f"{CONFIG}: fixtures: there are none of {preset.title}; leave it out, or the preset"])
    if config.release is None:
        raise ConfigError([f"{CONFIG}: release: is required by the preset {preset.name}: the folder of {preset.title}"])
    found = apply_preset(preset, cards, Path(config.release))
    changes = {"matrix": preset.matrix(config.matrix, found), "pooling": preset.pooling, "effects": preset.effects}
    return config.model_copy(update=changes), found


def _panel(problems: list[str], config: CampaignConfig) -> dict[str, JudgeModel]:
    """The models of the configured panel; none for the heuristic judge."""
    if config.judge.kind == "heuristic":
        return {}
    known = _collect(problems, lambda: load_judges(Path(config.judges_file)))
    if known is None:
        return {}
    problems += [
        f"{CONFIG}: judge.panel: no judge '{name}' in {config.judges_file}{suggestion(name, list(known))}"
        for name in config.judge.panel
        if name not in known
    ]
    return {name: known[name] for name in config.judge.panel if name in known}


def _load_cards(problems: list[str], folders: list[str]) -> tuple[dict[str, TaskCard], dict[str, str], set[str]]:
    """Cards by id, their paths, and the file names of those that could not be read."""
    cards: dict[str, TaskCard] = {}
    paths: dict[str, str] = {}
    broken: set[str] = set()
    problems += [f"{folder}: card folder does not exist" for folder in folders if not Path(folder).is_dir()]
    for path in find_cards(folders):
        card = _collect(problems, functools.partial(load_card, path))
        if card is None:
            broken.add(path.stem)
            continue
        if card.id in cards:
            problems.append(f"{path}: id: '{card.id}' is also the id of {paths[card.id]}")
        cards[card.id], paths[card.id] = card, str(path)
    return cards, paths, broken


def expand_matrix(matrix: Matrix, only: Selection) -> list[RunId]:
    """The runs of a matrix in its order, each once."""
    product = [
        RunId.model_construct(agent=agent, task=task, tier=tier, repeat=repeat)
        for agent in matrix.agents
        for task in matrix.tasks
        for tier in matrix.tiers
        for repeat in range(1, matrix.repeats + 1)
    ]
    kept = [run for run in product if not any(rule.matches(run) for rule in matrix.exclude)]
    unique = {run.path: run for run in [*kept, *matrix.include]}
    return [run for run in unique.values() if only.matches(run)]


def _collect(problems: list[str], load: Callable[[], LoadedT]) -> LoadedT | None:
    try:
        return load()
    except ConfigError as error:
        problems.extend(error.problems)
        return None


def _unknown_names(config: CampaignConfig, kind: Literal["agent", "task"], known: list[str]) -> list[str]:
    """Agents or tasks that the configuration names but that are not defined."""
    several, matrix = f"{kind}s", config.matrix
    named = [
        *((f"matrix.{several}", name) for name in getattr(matrix, several)),
        *((f"only.{several}", name) for name in getattr(config.only, several)),
        *(("matrix.include", getattr(run, kind)) for run in matrix.include),
        *(("matrix.exclude", name) for rule in matrix.exclude for name in getattr(rule, several)),
    ]
    if kind == "agent":
        named += ((f"treatments.{name}.agents", base) for name, of in config.treatments.items() for base in of.agents)
        named += (("reliability.agents", name) for name in config.reliability.agents)
    return [
        f"{CONFIG}: {key}: unknown {kind} '{name}'{suggestion(name, known)}"
        for key, name in dict.fromkeys(named)
        if name not in known
    ]


MOST_FOLDER_BYTES = 64 * 1024**2
"""Of a treatment's folder, which is hashed and searched for each run."""


def _wrong_folders(config: CampaignConfig, agents: Mapping[str, Agent]) -> Iterator[str]:
    """Folders of treatments that agents cannot be given, and agents whose programs take none."""
    hidden = [Path(each).resolve() for each in (*config.data.model_dump().values(), config.results)]
    for name, treatment in config.treatments.items():
        if treatment.folder is None:
            continue
        place, why = Path(treatment.folder).resolve(), ""
        if not place.is_dir() or not any(path.is_file() for path in place.rglob("*")):
            why = "is not a folder with files"
        elif any(place == each or each in place.parents or place in each.parents for each in hidden):
            why = "lies among data or results, or holds them"
        elif sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) > MOST_FOLDER_BYTES:
            why = f"holds more than {MOST_FOLDER_BYTES // 1024**2} MiB"
        elif treatment.mcp and not _names_servers(place / "mcp.json"):
            why = "has no mcp.json with {mcpServers: {<name>: {command: …}}}"
        if why:
            yield f"{CONFIG}: treatments.{name}.{treatment.kinds[0]}: '{treatment.folder}' {why}"
        for base in treatment.agents if treatment.mcp else ():
            if base in agents and not agents[base].takes_mcp:
                yield (
                    f"{CONFIG}: treatments.{name}.mcp: agent '{base}' takes no MCP servers; choose a command agent "
                    "whose recipe in config/agents has the key 'mcp', or add it there"
                )


def _names_servers(file: Path) -> bool:
    """Check for servers that a command starts."""
    try:
        servers = (parse_json_object(file.read_text("utf-8")) or {}).get("mcpServers")
    except (OSError, ValueError):
        return False
    known = servers.values() if isinstance(servers, dict) else ()
    return bool(known) and all(isinstance(server, dict) and "command" in server for server in known)


def _misplaced_data(config: CampaignConfig) -> list[str]:
    """Private data must not lie where an agent could see it."""
    private, public, results = (
        Path(value).resolve() for value in (config.data.private, config.data.public, config.results)
    )
    problems = []
    if public == results or public in results.parents:
        problems.append(
            f"{CONFIG}: results: lies below data.public ('{config.data.public}'); agents could read answers"
        )
    for key, value in (("data.public", config.data.public), ("results", config.results)):
        place = Path(value).resolve()
        if private == place or place in private.parents:
            problems.append(f"{CONFIG}: data.private: lies below {key} ('{value}'); agents could read the answers")
        elif private in place.parents:
            problems.append(f"{CONFIG}: {key}: lies below data.private ('{config.data.private}')")
    return problems


def _restricted(runs: list[RunId], cards: dict[str, TaskCard]) -> list[str]:
    """Tasks whose data has no open access."""
    return [task for task in dict.fromkeys(run.task for run in runs) if cards[task].dataset.access != "public"]


def _refused_runs(
    runs: list[RunId],
    config: CampaignConfig,
    agents: dict[str, Agent],
    judges: dict[str, JudgeModel],
    cards: dict[str, TaskCard],
) -> list[str]:
    """Combinations that must never start: untrusted code without isolation, credentialed data sent away."""
    problems = []
    if config.sandbox.backend == "local":
        pairs = dict.fromkeys((run.agent, run.task) for run in runs)
        reasons = {name: why for name, task in pairs if (why := agents[name].for_task(cards[task]).needs_isolation)}
        problems += [
            f"{CONFIG}: sandbox.backend: 'local' isolates nothing and agent '{name}' {why}; use 'apptainer'"
            for name, why in reasons.items()
        ]
    for name in dict.fromkeys(run.agent for run in runs):
        if config.budget.max_cost_usd is not None and agents[name].paid and agents[name].pricing is None:
            problems.append(
                f"{config.agents_file}: agents.{name}.pricing: is missing, so budget.max_cost_usd cannot be kept"
            )
    if config.sandbox.backend == "apptainer":
        problems += _unknown_images(config, {run.agent: agents[run.agent].image for run in runs})
    problems += _wrong_recipes(config.agents_file, {run.agent: agents[run.agent] for run in runs})
    entries: list[tuple[str, EndpointSettings, str]] = [
        *((f"{config.agents_file}: agents.{run.agent}", agents[run.agent], run.task) for run in runs),
        *((f"{config.judges_file}: judges.{name}", judge, run.task) for name, judge in judges.items() for run in runs),
    ]
    problems += dict.fromkeys(
        f"{entry}.approved_for: '{task}' uses credentialed data and transcripts leave the machine; "
        "add 'credentialed' only if your agreement allows it"
        for entry, model, task in entries
        if cards[task].dataset.access == "credentialed" and "credentialed" not in model.approved_for
    )
    if config.share == "all" and (closed := _restricted(runs, cards)):
        problems.append(f"{CONFIG}: share: '{closed[0]}' uses data without open access; use 'private' or 'group'")
    for task, tier in dict.fromkeys((run.task, run.tier) for run in runs):
        if tier not in cards[task].tiers:
            problems.append(f"{CONFIG}: matrix.tiers: {describe_missing_tier(cards[task], tier)}")
    return problems


def _unknown_images(config: CampaignConfig, own: Mapping[str, str | None]) -> list[str]:
    """Images in which agents' code is to run, and that have no definition; ``own``: agent → what its entry names."""
    known = [path.stem for path in sorted(Path(config.definition("light")).parent.glob("*.def"))]
    wanted = {
        f"{config.agents_file}: agents.{agent}.image" if name else "config: containers.agent.image": config.flavour(
            name
        )
        for agent, name in own.items()
    }
    wrong = {place: name for place, name in wanted.items() if known and name not in known}
    return [f"{place}: there is no containers/{name}.def{suggestion(name, known)}" for place, name in wrong.items()]


def _wrong_recipes(agents_file: str, agents: Mapping[str, Agent]) -> Iterator[str]:
    """Recipes that agents name and that cannot be used, or not with the agent's endpoint."""
    for name, agent in agents.items():
        if agent.layer is None:
            continue
        try:
            recipe = load_recipe(agent.layer)
        except ConfigError as error:
            yield from (f"{agents_file}: agents.{name}.layer: {problem}" for problem in error.problems)
        else:
            if problem := protocol_mismatch(recipe.protocol, agent.protocol):
                yield f"{agents_file}: agents.{name}.protocol: {problem}"


def describe_missing_tier(card: TaskCard, tier: str) -> str:
    """Message for a task that a tier does not offer; for lite with the reason and an alternative."""
    message = f"task '{card.id}' has no tier '{tier}'"
    if tier != "lite" or not card.briefs.no_lite:
        return message
    without = f"matrix.exclude: [{{tasks: [{card.id}], tiers: [lite]}}]"
    return f"{message}.\n{' '.join(card.briefs.no_lite.split())}\nAsk for {' or '.join(card.tiers)}; {without}"


_OF_THE_WORKFLOW = ("logs", ".snakemake")


def build_campaign_record(campaign: Campaign) -> CampaignRecord:
    """The record of a validated campaign."""
    cards = campaign.cards.items()
    described_by = {card.dataset.name: campaign.card_paths[task] for task, card in reversed(cards)}
    return CampaignRecord(settings=campaign.config, cards=campaign.card_paths, datasets=described_by)


def campaign_file(campaign: Campaign) -> str:
    """Path of the campaign's record."""
    return f"{campaign.config.results}/{FILE}"


def write_campaign(campaign: Campaign) -> None:
    """Write the record in one piece, unless it is the same already: other processes may be reading it.

    Folders that an earlier umask left open are closed first, where data sets without open access take part.
    """
    for place in campaign.closed_folders:
        close_folder(place, campaign.config.share)
    files = {Path(campaign_file(campaign)): _text(campaign)}
    if campaign.config.preset != DEFAULT:
        cards = {Path(campaign.card_paths[task]): card for task, card in campaign.cards.items()}
        files |= {path: to_json(card.model_dump(mode="json", by_alias=True)) for path, card in cards.items()}
    for path, text in files.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)


def is_written(campaign: Campaign) -> bool:
    """Check whether the record is there and agrees with the campaign."""
    path = Path(campaign_file(campaign))
    return path.is_file() and path.read_text(encoding="utf-8", errors="replace") == _text(campaign)


def lacks_first_run(campaign: Campaign) -> bool:
    """Check whether real models take part that nothing was tried with: no first run, and no run of agents either."""
    is_real = any(campaign.agents[name].paid for name in campaign.takes_part)
    results = Path(campaign.config.results)
    return is_real and not (results / FIRST_RUN).is_file() and not (results / "runs").is_dir()


def _text(campaign: Campaign) -> str:
    return to_json(build_campaign_record(campaign).model_dump(mode="json", by_alias=True))
