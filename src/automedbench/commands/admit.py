"""Check a bundle of another lab: each score against its records, and the campaign for all of its runs.

The bundle is laid out, each step of a run is executed once more beside it, and the records are compared field by field;
signature, digests, plan, attempts and ledger are checked. What cannot be compared here is reported. Exit code 0:
admitted; 3: refused, with the reasons.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from automedbench.agent.budget.ledger import Book, sum_attempts
from automedbench.agent.budget.used import FOLDER, UsedBook, sum_usage
from automedbench.agent.durable.attempts import list_attempts
from automedbench.agent.plan import RunPlan, compose_brief, plan_identity, planned_fields
from automedbench.agent.workspace import LARGEST_READ, read_plan
from automedbench.base.cards import Limits, TaskCard
from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import new_folder, read_record
from automedbench.base.records import (
    AuditRecord,
    Conversation,
    DetailReport,
    Enforced,
    JudgeRecord,
    Manifest,
    Model,
    RunId,
    RunRecord,
    ScoreRecord,
    SubmissionRecord,
)
from automedbench.campaign.agents import REACHED, Agent, load_campaign_agents
from automedbench.campaign.config import DEFAULT, RUBRICS, CampaignConfig, JudgeConfig
from automedbench.campaign.load import Campaign, build_campaign_record, expand_matrix
from automedbench.campaign.prices import Pricing, format_money
from automedbench.campaign.recipes import RECIPES
from automedbench.campaign.record import CampaignRecord
from automedbench.commands._bundle import AGENTS, MIB, Opened, closed_tasks, open_bundle
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._check import (
    DIFFERS,
    Check,
    check_lines,
    check_score,
    first_difference,
    none_of,
    same_unless,
)
from automedbench.commands._limits import UNREADABLE, Allowance, describe, run_limited
from automedbench.commands._output import show
from automedbench.commands._transcript import difference_from_log
from automedbench.commands.verify import check_digest, check_records
from automedbench.judge.evidence import blind, collect_evidence, quote_exists
from automedbench.judge.rubric import load_rubric, settle_verdicts, stage_score
from automedbench.leaderboard.conditions import draw_name, find_outdated
from automedbench.leaderboard.plan import Plan, make_plan
from automedbench.planning.conditions import requested_conditions
from automedbench.planning.versions import image_version
from automedbench.sandbox.airlock.archive import OUTPUTS, is_plain, unpack_outputs
from automedbench.sandbox.container.roles import ROLE_TIMEOUT_S
from automedbench.steps.audit_run import audit_run
from automedbench.steps.collect_submission import collect_submission
from automedbench.steps.run_agent import plan_with_manifest
from automedbench.steps.score_judge import score_judge
from automedbench.steps.score_metrics import score_metrics
from automedbench.tracks import judges_answers

ModelT = TypeVar("ModelT", bound=Model)

VERSIONS = (
    *("preset", "task version", "track version", "metric settings", "rubric version"),
    *("audit policy", "score version"),
)
"""Conditions that make the numbers, and that must be this machine's."""
PLAN, PLOT = "plan/plan.md", "plan/plan.png"
CAMPAIGN = "campaign"
RUN_S, READ_PER_S, NAMES_PER_S = 2.0, 4 * MIB, 5000
"""Processor seconds for a run; bytes of a run, and files of all runs, for each one more."""
MEMORY_OF_STEPS = 16_384 * MIB
"""Bytes for collection and metrics, whose readers have limits of their own: as the tasks' staging may have."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench admit``."""
    parser.add_argument("bundle", type=Path, help="file that `automedbench pack` wrote")
    parser.add_argument("--signer", metavar="KEY", help="public key that must have signed it, as `pack` printed it")
    parser.add_argument(
        "--accept-decisions",
        action="store_true",
        help="take their operators' decisions that can raise a score: disqualifications lifted, tasks of some agents "
        "only, limits lowered half-way, images of their own",
    )
    parser.add_argument("--into", type=Path, help="new folder in which the bundle stays laid out, for `merge`")
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print what was found; exit 0 or 3."""
    if options.into is not None and options.into.exists():
        raise ConfigError([f"--into: {options.into} exists already; name a new folder"])
    campaign = select_campaign(options)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="automedbench-admit-"))
        folder = stack.enter_context(new_folder(options.into)) if options.into else Path(scratch) / "results"
        code = run_limited(lambda allowance: tell(options, campaign, folder, allowance), str(options.bundle))
        if code not in (0, DIFFERS):
            sys.exit(code)
    sys.exit(code)


def tell(options: argparse.Namespace, campaign: Campaign, folder: Path, allowance: Allowance) -> int:
    """Admit the bundle in ``folder`` and print what was found; the exit code."""
    opened = open_bundle(options.bundle, folder, allowance)
    if options.signer not in (None, opened.signer):
        raise InfrastructureError(f"{options.bundle}: was signed by {opened.signer}, not by {options.signer}.")
    found = admit(opened, campaign, decisions=options.accept_decisions, allowance=allowance)
    reasons = [
        f"{where}: {check.what}: {check.detail}"
        for where, checks in found.items()
        for check in checks
        if check.verdict == "differs"
    ]
    lab = opened.record.labels.lab
    shown = {"bundle": opened.digest, "lab": lab, "signer": opened.signer, "reasons": reasons}
    lines = [
        *check_lines(found),
        f"{lab}: {'REFUSED, ' + str(len(reasons)) + ' reasons' if reasons else 'admitted'}; "
        f"bundle {opened.digest}, signed by {opened.signer}",
    ]
    show(options, {**shown, "admitted": not reasons, "checks": found}, lines)
    return DIFFERS if reasons else 0


def admit(
    opened: Opened,
    ours: Campaign,
    *,
    decisions: bool = False,
    only: Collection[str] | None = None,
    allowance: Allowance | None = None,
) -> dict[str, list[Check]]:
    """Every check of a bundle: ``campaign``, then the path of each run, → what was found.

    ``ours`` is a campaign of this machine: its cards, data and scorer are the measure. ``decisions``: those of their
    operators count. ``only``: paths of the runs that are looked at, beside the campaign as a whole. ``allowance``: told
    of each step. The records of all runs are read before anything is computed again.
    Raises InfrastructureError for a bundle whose plan or ledger cannot be read.
    """
    theirs, told = _BundleCampaign(opened, ours, decisions), allowance or Allowance()
    told.step("reading its plan", len(opened.record.files) / NAMES_PER_S, opened.memory)
    found = {CAMPAIGN: [*check_plan(theirs), *check_ledger(theirs)]}
    runs = [run for run in theirs.plan.runs if only is None or run.path in only]
    sizes = Counter[str]()
    for name, entry in opened.record.files.items():
        sizes["/".join(name.split("/")[1:5])] += entry.bytes
    for run in runs:
        told.step(f"reading {run.path}", RUN_S + sizes[run.path] / READ_PER_S, opened.memory)
        found[run.path] = list(_check_records(theirs, run))
    for run in runs:
        told.step(f"scoring {run.path} again", ROLE_TIMEOUT_S, MEMORY_OF_STEPS)
        found[run.path] += _check_steps(theirs, run)
    return found


@dataclass(frozen=True)
class _BundleCampaign:
    """A bundle as a campaign: its own settings and agents, over the cards and data of this machine."""

    opened: Opened
    ours: Campaign
    decisions: bool

    @cached_property
    def plan(self) -> Plan:
        """Raises InfrastructureError for one without runs, or with runs of agents that the bundle does not have."""
        plan = read_record(self.opened.folder / "plan.json", Plan)
        if unknown := sorted({*plan.agents} - {*self.agents}):
            raise InfrastructureError(f"plan.json: the bundle has no agent {unknown[0]!r}.")
        if not plan.runs:
            raise InfrastructureError("plan.json: plans no run.")
        return plan

    @cached_property
    def settings(self) -> CampaignConfig:
        """Their settings as they wrote them."""
        return read_record(self.opened.folder / "campaign.json", CampaignRecord).settings

    @cached_property
    def record(self) -> CampaignRecord:
        """Their settings, with what lies here: results, agents, images' records, cards, data."""
        folder, settings = self.opened.folder, self.settings
        here = {
            "agents_file": str(folder / AGENTS),
            "containers": settings.containers.model_copy(update={"folder": str(folder / "images")}),
            "data": self.ours.config.data,
        }
        return self._over(settings.model_copy(update=here))

    @cached_property
    def scoring(self) -> CampaignRecord:
        """This machine's way to score, on their results and the cases that they name."""
        settings = self.ours.config
        data = settings.data.model_copy(update={"manifests": str(self.opened.folder / "manifests")})
        return self._over(settings.model_copy(update={"data": data}))

    @cached_property
    def rules(self) -> CampaignRecord:
        """The same with the judge that costs nothing."""
        return self._over(self.ours.config.model_copy(update={"judge": JudgeConfig()}))

    def _over(self, settings: CampaignConfig) -> CampaignRecord:
        """These settings over the bundle's results, with this machine's cards as its preset has them."""
        own = build_campaign_record(self.ours)
        here = {"results": str(self.opened.folder), "cards": own.card_folders, "preset": DEFAULT}
        return own.model_copy(update={"settings": settings.model_copy(update=here)})

    @cached_property
    def agents(self) -> dict[str, Agent]:
        return load_campaign_agents(self.record.settings)

    @cached_property
    def closed(self) -> set[str]:
        return closed_tasks(self.opened.record, self.ours.cards)

    def folder(self, run: RunId) -> Path:
        return self.opened.folder / "runs" / run.path

    def decided(self, what: str, choice: str) -> Check:
        """A choice of their operator's, which the admitting side may accept; empty: none was made."""
        check = same_unless(what, f"{choice}; --accept-decisions" if choice else "")
        return replace(check, verdict="absent") if choice and self.decisions else check

    def why_not_staged(self, place: Path) -> str:
        """Reason why data staged here cannot be compared with their cases; empty when it can."""
        draws = [draw_name(each.cases.draw) for each in (self.settings, self.ours.config)]
        if draws[0] != draws[1]:
            return f"their cases are of the draw {draws[0]}, here are those of {draws[1]}"
        return "" if place.exists() else f"{place} does not exist: the task is not staged here"


# --- the campaign as a whole --------------------------------------------------------------------------------


def check_plan(theirs: _BundleCampaign) -> Iterator[Check]:
    """Every run that the settings ask for is planned and scored, and every cell has the same repeats."""
    plan, record, settings = theirs.plan, theirs.opened.record, theirs.settings
    planned = {run.path for run in plan.runs}
    again = make_plan(Campaign(settings, {}, {}, theirs.agents, plan.runs))
    yield same_unless("agents of the plan", first_difference(plan, again))
    expanded = expand_matrix(settings.matrix, settings.only)
    yield _compare_names("plan as the settings ask", planned, {run.path for run in expanded})
    yield _compare_names("plan as labelled", planned, {run.path for run in record.runs})
    repeats, cells = max(run.repeat for run in plan.runs), {(run.task, run.tier) for run in plan.runs}
    lacks = {agent: _first_lacking(plan, agent, cells, repeats) for agent in plan.agents}
    short = [f"{agent} lacks {cell}" for agent, cell in lacks.items() if cell]
    yield theirs.decided("the same tasks for all agents", f"{short[0]}; {len(short)} agents" if short else "")
    scored = {run.path for run in plan.runs if f"runs/{run.path}/score.json" in record.files}
    yield _compare_names("a score for every planned run", scored, planned)
    open_runs = [run for run in plan.runs if run.task not in theirs.closed]
    without = [run.path for run in open_runs if not (theirs.folder(run) / OUTPUTS).exists()]
    yield none_of("submitted files of all runs", [f"{path} has none" for path in without])


def _first_lacking(plan: Plan, agent: str, cells: Collection[tuple[str, str]], repeats: int) -> str:
    """The first task, tier and repeat that a plan does not have of an agent; empty: it has all."""
    own = {(run.task, run.tier, run.repeat) for run in plan.runs if run.agent == agent}
    every = ((*cell, repeat) for cell in sorted(cells) for repeat in range(1, repeats + 1))
    return next(("/".join(map(str, each)) for each in every if each not in own), "")


def check_ledger(theirs: _BundleCampaign) -> Iterator[Check]:
    """Every attempt that money or a machine's time was booked for is here, made once.

    Runs of agents and tiers that the plan does not have, of earlier campaigns in the same folder, are named.
    """
    folder, plan = theirs.opened.folder, theirs.plan
    tiers, paid = {run.tier for run in plan.runs}, set()
    booked, anew = [], []
    for path in sorted((folder / "ledger").glob("*.json")):
        book = read_record(path, Book)
        paid.add(book.run)
        booked.append((book.run, "moved away" if ".moved-" in path.name else book.attempt, f"cost {book.spent} USD"))
    for path in sorted((folder / "ledger/used").glob("*.json")):
        used, attempt = read_record(path, UsedBook), path.stem.rpartition("+")[2]
        named = path.stem == f"{used.run.replace('/', '+')}+{attempt}"
        booked.append((used.run, attempt if named else path.name, "was at work"))
        anew += [(used.run, attempt)] if sum(shift.anew for shift in used.shifts) > 1 else []
    names = {run: [*run.split("/"), "", ""] for run, *_ in booked}
    others = {run for run, name in names.items() if name[0] not in plan.agents or name[2] not in tiers}
    here = {attempt.path for run in plan.runs for attempt in list_attempts(theirs.folder(run))}
    gone = [
        f"attempt {attempt} of {run} {what}, and is not here"
        for run, attempt, what in booked
        if run not in others and folder / "runs" / run / "attempts" / attempt not in here
    ]
    yield none_of("attempts of the ledger", gone)
    more = [f"attempt {attempt} of {run}: a folder was moved away" for run, attempt in anew if run not in others]
    yield none_of("attempts made once", more)
    unbooked = [run.path for run in plan.runs if theirs.agents[run.agent].paid and run.path not in paid]
    yield none_of("a book for every paid run", [f"{path} has none" for path in unbooked])
    if others:
        detail = f"{min(others)} is of no agent and tier of the plan; {len(others)} such"
        yield Check("other runs of the ledger", "absent", detail)


# --- one run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BundleRun:
    """A run of a bundle with the records that every check needs."""

    theirs: _BundleCampaign
    run: RunId
    record: RunRecord
    score: ScoreRecord

    @property
    def folder(self) -> Path:
        return self.theirs.folder(self.run)

    @property
    def card(self) -> TaskCard:
        return self.theirs.ours.cards[self.run.task]

    def read(self, name: str, kind: type[ModelT]) -> ModelT:
        return read_record(self.folder / name, kind)

    def made(self, what: str, **fields: Any) -> Check:
        """``run.json`` against these fields of it, made again."""
        return same_unless(what, first_difference(self.record, self.record.model_copy(update=fields)))

    def again(self) -> Path:
        """Folder in which steps run once more; what is not there they read from the run's own."""
        folder = self.theirs.opened.folder / "again" / "admit" / self.run.path
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def manifest(self) -> Manifest:
        return read_record(self.theirs.opened.folder / "manifests" / f"{self.run.task}.json", Manifest)

    @cached_property
    def plan(self) -> RunPlan:
        """Plan of the run by the bundle's settings; prices may have been edited since, so they are the run's own."""
        plan = plan_with_manifest(self.theirs.record, self.run, self.folder, self.manifest)
        prices = self.record.agent_settings.get("pricing")
        agent = plan.agent.model_copy(update={"pricing": Pricing.model_validate(prices) if prices else None})
        return replace(plan, agent=agent, limits=self.theirs.record.limits(self.card, agent))


def check_attempts(run: _BundleRun) -> Iterator[Check]:
    """Check which attempt counts, its machine time in the ledger, and that the score is of this run."""
    record, score = run.record, run.score
    names = "run", "model", "outcome", "totals", "attempts_cost_usd", "used", "enforced"
    copied = {name: getattr(record, name) for name in names} | {"attempts": record.attempt}
    copied["recipe"] = score.recipe.model_copy(update={"cases_sha256": record.cases_sha256})
    yield same_unless("score of this run", first_difference(score, score.model_copy(update=copied)))
    attempts = {attempt.number: attempt for attempt in list_attempts(run.folder)}
    counts = attempts.get(record.attempt)
    sealed = [number for number, attempt in attempts.items() if attempt.sealed and number != record.attempt]
    wrong = ""
    if max(attempts, default=0) != len(attempts):
        wrong = f"attempts {', '.join(map(str, sorted(attempts)))} are here, and none between"
    elif counts is None or not counts.sealed or counts.record() != record:
        wrong = f"run.json is not that of attempt {record.attempt}"
    elif newer := [number for number in sealed if number > record.attempt]:
        wrong = f"attempt {newer[0]} was finished after attempt {record.attempt}, which counts"
    elif same := [number for number in sealed if _question(attempts[number].record()) == _question(record)]:
        wrong = f"attempt {same[0]} was finished on the same question; a later one must not count instead"
    yield same_unless("attempts", wrong)
    silent = sorted(place for place in run.theirs.opened.record.silent if place.startswith(f"runs/{run.run.path}/"))
    if silent:
        yield Check("attempts without a record", "absent", f"{len(silent)}, killed or never started: {silent[0]}")
    book = run.theirs.opened.folder / FOLDER / f"{run.run.path.replace('/', '+')}+{record.attempt:04d}.json"
    used = sum_usage(read_record(book, UsedBook).shifts) if book.is_file() else None
    yield run.made("machine time", used=used)
    cost = sum_attempts(run.theirs.opened.folder / "ledger", run.run.path, record.attempt)
    yield run.made("cost of all attempts", attempts_cost_usd=format_money(cost))


def _question(record: RunRecord) -> tuple[object, ...]:
    """Fields of which another attempt must differ in one to be another question."""
    return (
        *(record.agent_digest, record.task_version, record.brief_sha256, record.cases_sha256),
        *(str(record.limits), record.image_recipe, record.enforced.isolation),
    )


def check_settings(run: _BundleRun) -> Iterator[Check]:
    """The run against what this version makes of the bundle's settings: agent, brief, limits, sandbox and image."""
    what, record, theirs, plan = "run as its settings give it", run.record, run.theirs, run.plan
    had = replace(plan, limits=Limits.model_validate(record.limits), preset=theirs.settings.preset)
    made = {**dict(plan_identity(had, compose_brief(had))), **planned_fields(had)}
    made["agent_settings"] |= {name: value for name, value in record.agent_settings.items() if name in REACHED}
    unknown = {"origin"} if plan.agent.provider == "replay" else set()
    if not (plan.public / run.card.id).is_dir():
        yield Check("brief written again", "absent", f"{run.card.id} is not staged here")
        unknown |= {"brief_sha256", "common_brief_sha256"}
    if why := _explain_other_digest(plan.agent, record):
        yield Check("agent's files", "absent", why)
        unknown.add("agent_digest")
    yield run.made(what, **{name: value for name, value in made.items() if name not in unknown})
    yield check_digest("brief", run.folder / "brief.md", record.brief_sha256)
    yield _check_limits(run, plan.limits.model_dump())
    kept = {"backend": plan.sandbox.backend, "network": plan.sandbox.network}
    local = Enforced(backend="local", network="open")
    enforced = local if plan.sandbox.backend == "local" else record.enforced.model_copy(update=kept)
    yield run.made("sandbox", enforced=enforced)
    if plan.sandbox.backend != "local":
        yield _check_image(run)


def _explain_other_digest(agent: Agent, record: RunRecord) -> str:
    """Reason not to compare the agent's digest: its files are missing in this folder, or others."""
    named = (agent.script, agent.command_folder, agent.transcript, agent.difference.folder)
    files = [path for path in named if path]
    files += [f"{RECIPES}/{agent.layer}.yaml"] if agent.layer else []
    if absent := [path for path in files if not is_plain(path) or not Path(path).exists()]:
        return f"{absent[0]} is not here"
    if not files or agent.baseline or agent.digest() == record.agent_digest:  # baselines are this version's
        return ""
    return f"{files[0]} or what belongs to it is another one here"


def _check_limits(run: _BundleRun, given: Mapping[str, float | None]) -> Check:
    """The run had what the settings give, or less: a limit may be raised while a campaign is under way."""
    kept = run.record.limits
    other = {name: (kept.get(name), given.get(name)) for name in {**kept, **given} if kept.get(name) != given.get(name)}
    for name, (had, gives) in other.items():
        if gives is not None and (had is None or had > gives):
            return run.theirs.decided("limits", f"{name}: the run had {had}, the settings give {gives}")
    raised = ", ".join(f"{name} {had} → {gives}" for name, (had, gives) in other.items())
    return Check("limits", "absent", f"raised since the run: {raised}") if other else Check("limits", "same")


def _check_image(run: _BundleRun) -> Check:
    """The image's recipe against this version's definition; the digest of its file is each cluster's own."""
    settings = run.theirs.settings
    flavour = settings.flavour(run.plan.agent.image)
    if not Path(settings.definition(flavour)).is_file():
        return run.theirs.decided("image", f"{settings.definition(flavour)} is not here: an image of their own")
    return run.made("image", image_recipe=image_version(run.theirs.ours, flavour))


def check_cases(run: _BundleRun) -> Iterator[Check]:
    """The cases that were staged, collected and scored, and the versions of everything that makes the numbers."""
    theirs, score, staged = run.theirs, run.score, run.manifest
    here = Path(theirs.ours.config.data.manifests, f"{run.run.task}.json")
    if why := theirs.why_not_staged(here):
        yield Check("cases as staged here", "absent", why)
    else:
        same = read_record(here, Manifest).cases_sha256 == staged.cases_sha256
        yield same_unless("cases as staged here", "" if same else "other cases are staged here")
    if run.run.task not in theirs.closed:
        collected = [case.case for case in run.read("submission.json", SubmissionRecord).cases]
        scored = [case.case for case in run.read("detail_report.json", DetailReport).cases]
        for what, ids in (("collected cases", collected), ("scored cases", scored)):
            yield same_unless(what, "" if ids == staged.case_ids else "are not the staged ones, in order")
    requested = requested_conditions(theirs.ours, run.run)
    other = find_outdated(score, {name: requested[name] for name in VERSIONS if name in requested})
    yield same_unless("versions", f"{', '.join(other)}: not those of this version" if other else "")


# --- the steps of a run, once more --------------------------------------------------------------------------


def check_scoring(run: _BundleRun) -> Iterator[Check]:
    """The records against the digests in the score, and the score made again from them."""
    yield check_records(run.folder, run.score)
    yield check_score(run.folder, run.card)


def check_transcript(run: _BundleRun) -> Iterator[Check]:
    """The run rebuilt from its journal: conversation, record and log are what its effects make."""
    yield same_unless("transcript", difference_from_log(run.record, run.plan, run.again() / "rebuilt"))


def check_collection(run: _BundleRun) -> Iterator[Check]:
    """The submitted files collected again, with the cases that the bundle names, and the plan among them."""
    what, before = "collected again", run.read("submission.json", SubmissionRecord)
    collected = collect_submission(run.theirs.scoring, run.again())
    # Pictures are written anew by the library that is here, and so are not the same bytes.
    pictures = {PLOT: before.extra[PLOT]} if PLOT in before.extra and PLOT in collected.extra else {}
    extra = {"extra": collected.extra | pictures}
    yield same_unless(what, first_difference(before, collected.model_copy(update=extra)))
    with unpack_outputs(run.folder, {PLAN: LARGEST_READ}) as workspace:
        same = run.read("conversation.json", Conversation).plan == read_plan(workspace)
        yield same_unless("plan", "" if same else f"conversation.json has another one than {OUTPUTS}")


def check_audit(run: _BundleRun) -> Iterator[Check]:
    """The audit of the same log, and what their operator made of it."""
    what, before = "audit made again", run.read("audit.json", AuditRecord)
    yield same_unless(what, first_difference(before, audit_run(run.theirs.record, run.again())))
    decision = before.decision
    if decision and (decision.decision == "lift" or decision.confirmed_no_inference is False):
        choice = f"raised by {decision.by}: {' '.join(decision.why.split())[:200]}"
        yield run.theirs.decided("operator's decision", choice)


def check_judgement(run: _BundleRun) -> Iterator[Check]:
    """The judgement by rules of the same transcript; of a panel its verdicts, their sums and quotes."""
    what, before, theirs = "judged again", run.read("judge.json", JudgeRecord), run.theirs
    kind = theirs.settings.judge.kind
    if before.kind != kind:
        yield Check(what, "differs", f"judged by the kind {before.kind}, the settings say {kind}")
        return
    if kind == "heuristic":
        yield same_unless(what, first_difference(before, score_judge(theirs.rules, run.again())))
        return
    yield same_unless("panel's judgements", _panel_difference(before, run))
    yield Check(what, "absent", f"{before.judge} was not asked again")


def _panel_difference(record: JudgeRecord, run: _BundleRun) -> str:
    """Stages, criteria and codes against the judgements that they are made of, stages against verdicts; quotes."""
    from automedbench.judge import panel

    rubric, tier, judgements = load_rubric(Path(RUBRICS), run.card.track), record.run.tier, record.judgements
    if not judgements:
        return "a panel is named, and no judgement of it"
    for one in judgements:
        valid = {item.id: item for item in one.criteria if item.valid}
        verdicts = settle_verdicts(valid, rubric, tier, gpu=run.record.enforced.gpu)
        if any(stage_score(verdicts, stage) != value for stage, value in one.stages.items()):
            return f"stages of {one.judge}#{one.repeat} are not what its verdicts make"
    evidence = collect_evidence(run.read("conversation.json", Conversation))
    shown = evidence, blind(evidence, record.run)
    quoted = [item for item in record.criteria if item.valid and item.quote and not item.auto]
    if lost := [item.id for item in quoted if not any(quote_exists(each, item.quote, item.turn) for each in shown)]:
        return f"{', '.join(lost)}: quoted what the run does not hold"
    made = panel.combine_judgements(judgements, rubric, tier, record.judge)
    return first_difference(record, record.model_copy(update=made))


def check_metrics(run: _BundleRun) -> Iterator[Check]:
    """The metrics of what was collected, made again where the same cases are staged."""
    what, data, theirs = "metrics made again", run.theirs.ours.config.data, run.theirs
    if why := theirs.why_not_staged(Path(data.private, run.run.task)):
        yield Check(what, "absent", why)
        return
    if read_record(Path(data.manifests, f"{run.run.task}.json"), Manifest).cases_sha256 != run.manifest.cases_sha256:
        yield Check(what, "absent", "other cases are staged here")
        return
    if judges_answers(run.card):
        yield Check("answers judged again", "absent", "verdicts on open answers are taken as they are")
    old = run.read("detail_report.json", DetailReport)
    again = score_metrics(theirs.scoring, run.again(), verify=old.verification is not None)
    yield same_unless(what, first_difference(old, again))


def _compare_names(what: str, found: set[str], expected: set[str]) -> Check:
    """Two sets of names; the first that is too many or too few is named."""
    more, less = sorted(found - expected), sorted(expected - found)
    return same_unless(
        what, f"{less[0]} is missing ({len(less)})" if less else f"{more[0]} is not expected" if more else ""
    )


RunChecks = Mapping[str, Callable[[_BundleRun], Iterator[Check]]]
RECORD_CHECKS: RunChecks = {"records": check_attempts, "settings": check_settings, "cases": check_cases}
TEXT_CHECKS: RunChecks = {
    "score made again": check_scoring,
    "transcript": check_transcript,
    "audit made again": check_audit,
    "judged again": check_judgement,
}
STEP_CHECKS: RunChecks = {"collected again": check_collection, "metrics made again": check_metrics}


def _check_records(theirs: _BundleCampaign, run: RunId) -> Iterator[Check]:
    """Checks of a run's records and texts; what cannot be read is a difference."""
    checked = _open_run(theirs, run)
    if isinstance(checked, Check):
        yield checked
        return
    yield from _make_checks(checked, RECORD_CHECKS)
    if run.task in theirs.closed:
        yield Check("transcript, outputs, judgement", "absent", theirs.opened.record.left_out[run.task])
    else:
        yield from _make_checks(checked, TEXT_CHECKS)


def _check_steps(theirs: _BundleCampaign, run: RunId) -> Iterator[Check]:
    """Checks that compute again what the run's outputs are worth."""
    checked = _open_run(theirs, run)
    if not isinstance(checked, Check) and run.task not in theirs.closed:
        yield from _make_checks(checked, STEP_CHECKS)


def _open_run(theirs: _BundleCampaign, run: RunId) -> _BundleRun | Check:
    """A run whose records can be read; else the check that says why not."""
    folder = theirs.folder(run)
    try:
        record, score = read_record(folder / "run.json", RunRecord), read_record(folder / "score.json", ScoreRecord)
    except AutoMedBenchError as error:
        return Check("records", "differs", str(error).partition("\n")[0])
    if run.task not in theirs.ours.cards:
        return Check("task", "differs", "no card here has this task")
    return _BundleRun(theirs, run, record, score)


def _make_checks(run: _BundleRun, checks: RunChecks) -> Iterator[Check]:
    """These checks of one run; one that cannot be made for a broken record is a difference."""
    for what, check in checks.items():
        try:
            yield from check(run)
        except AutoMedBenchError as error:
            ours = isinstance(error, MissingDataError) and str(run.theirs.opened.folder) not in str(error)
            yield Check(what, "absent" if ours else "differs", str(error).partition("\n")[0])
        except UNREADABLE as error:
            yield Check(what, "differs", f"cannot be read: {describe(error)}")
