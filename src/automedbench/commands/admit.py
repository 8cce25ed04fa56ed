"""Check a bundle of another lab: is every score what its records make of it, and does the campaign hold all its runs?

Signature and digests, plan, attempts and ledger, brief, limits, sandbox, image, cases, transcript, quotes, audit and
rules judge are checked for every run; the metrics are made again where the task's data is staged here. What cannot be
looked at here is said. Exit code 0: admitted; 3: refused, with the reasons.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from automedbench.agent.budget.ledger import Book
from automedbench.agent.budget.used import FOLDER, UsedBook, total_of
from automedbench.agent.durable.attempts import (
    list_attempts,
)
from automedbench.agent.models.replay import first_divergence
from automedbench.agent.plan import brief_of
from automedbench.agent.workspace import LARGEST_READ, read_plan
from automedbench.base.cards import Limits
from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import new_folder, read_record, sha256_bytes
from automedbench.base.option_types import whole_number
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
    Tokens,
)
from automedbench.campaign.agents import REACHED, Agent
from automedbench.campaign.config import DEFAULT, RUBRICS, CampaignConfig, JudgeConfig
from automedbench.campaign.load import Campaign, expand_matrix, record_of
from automedbench.campaign.recipes import RECIPES
from automedbench.campaign.record import CampaignRecord
from automedbench.commands._bundle import Opened, agents_of, closed_tasks, open_bundle, write_agents
from automedbench.commands._output import add_json, show
from automedbench.commands._transcript import told_otherwise
from automedbench.commands.replay import replay_run
from automedbench.commands.verify import (
    DIFFERS,
    Check,
    check_digest,
    check_lines,
    check_records,
    check_score,
    check_submission,
)
from automedbench.judge.evidence import collect_evidence, neutralise, quote_exists
from automedbench.judge.rubric import load_rubric, settled, stage_score
from automedbench.leaderboard.conditions import BY_NAME, draw_name, what_is_outdated
from automedbench.leaderboard.plan import Plan, PlannedAgent
from automedbench.planning.asked import asked_of
from automedbench.planning.load import add_campaign_options, campaign_of
from automedbench.planning.versions import of_image
from automedbench.sandbox.airlock.archive import (
    DATA_PER_BLOCK,
    FREE_DATA,
    OUTPUTS,
    collected_files,
    is_plain,
    opened_outputs,
)
from automedbench.sandbox.container.image import ImageRecord
from automedbench.scoring.run import CASE_METRICS
from automedbench.steps.audit_run import audit_run
from automedbench.steps.collect_submission import collect_submission
from automedbench.steps.run_agent import plan_with
from automedbench.steps.score_judge import score_judge
from automedbench.steps.score_metrics import score_metrics
from automedbench.tracks import judges_answers, settings_that_count

AGAIN = "again/admit"
TOLERANCE = 1e-6
MEANS = frozenset({"ssim", "answer_score", "report_score"})
"""Qualities that are the mean over all expected cases, in every task."""
VERSIONS = (
    *("preset", "task version", "track version", "metric settings", "rubric version"),
    *("audit policy", "score version"),
)
"""Conditions that make the numbers, and that must be this machine's."""
PLAN = "plan/plan.md"
UNREADABLE = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RecursionError, TypeError, ValueError),
    *(EOFError, tarfile.TarError),
)
"""What reading another lab's files can end with."""
CAMPAIGN = "campaign"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench admit``."""
    parser.add_argument("bundle", type=Path, help="file that `automedbench pack` wrote")
    parser.add_argument("--signer", metavar="KEY", help="public key that must have signed it, as `pack` printed it")
    parser.add_argument(
        "--judge", action="store_true", help="let the panel of this campaign judge again where a panel judged; paid"
    )
    parser.add_argument(
        "--replay", type=whole_number(0), default=0, metavar="N", help="execute the code of N runs again, in Apptainer"
    )
    parser.add_argument(
        "--accept-decisions",
        action="store_true",
        help="take their operators' decisions that can raise a score: disqualifications lifted, tasks of some agents "
        "only, limits lowered half-way, images of their own",
    )
    parser.add_argument("--into", type=Path, help="new folder in which the bundle stays laid out, for `merge`")
    add_json(parser)
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Print what was found; exit 0 or 3."""
    if options.into is not None and options.into.exists():
        raise ConfigError([f"--into: {options.into} exists already; name a new folder"])
    campaign = campaign_of(options)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="automedbench-admit-"))
        folder = stack.enter_context(new_folder(options.into)) if options.into else Path(scratch) / "results"
        opened = open_bundle(options.bundle, folder)
        if options.signer not in (None, opened.signer):
            raise InfrastructureError(f"{options.bundle}: was signed by {opened.signer}, not by {options.signer}.")
        found = admit(opened, campaign, panel=options.judge, decisions=options.accept_decisions)
        replayed = {run.path: check_replay(opened, run, campaign) for run in sample_of(opened, options.replay)}
    for name, check in replayed.items():
        found[name].append(check)
    reasons = [
        f"{where}: {check.what}: {check.detail}"
        for where, checks in found.items()
        for check in checks
        if check.verdict == "differs"
    ]
    lab = opened.record.labels.lab
    said = {"bundle": opened.digest, "lab": lab, "signer": opened.signer, "reasons": reasons}
    lines = [
        *check_lines(found),
        *(f"{name}: executed again: {neutralise(check.detail) or check.verdict}" for name, check in replayed.items()),
        f"{lab}: {'REFUSED, ' + str(len(reasons)) + ' reasons' if reasons else 'admitted'}; "
        f"bundle {opened.digest}, signed by {opened.signer}",
    ]
    show(options, {**said, "admitted": not reasons, "checks": found}, lines)
    if reasons:
        sys.exit(DIFFERS)


def admit(
    opened: Opened,
    ours: Campaign,
    *,
    panel: bool = False,
    decisions: bool = False,
    only: Collection[str] | None = None,
) -> dict[str, list[Check]]:
    """Every check of a bundle: ``campaign``, then the path of each run, → what was found.

    ``ours`` is a campaign of this machine: its cards, data and scorer are the measure. ``panel``: its panel judges
    runs again that a panel judged. ``decisions``: those of their operators count. ``only``: paths of the runs that are
    looked at, beside the campaign as a whole.
    Raises InfrastructureError for a bundle whose plan or ledger cannot be read.
    """
    theirs = _Theirs(opened, ours, panel, decisions)
    found = {CAMPAIGN: [*check_plan(theirs), *check_ledger(theirs)]}
    for run in theirs.plan.runs:
        if only is None or run.path in only:
            found[run.path] = list(_check_run(theirs, run))
    return found


@dataclass(frozen=True)
class _Theirs:
    """A bundle as a campaign: its own settings and agents, over the cards and data of this machine."""

    opened: Opened
    ours: Campaign
    panel: bool
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
        folder = self.opened.folder
        write_agents(self.opened.record, folder / "agents.json")
        settings = self.settings
        here = {
            "results": str(folder),
            "agents_file": str(folder / "agents.json"),
            "containers": settings.containers.model_copy(update={"folder": str(folder / "images")}),
            "data": self.ours.config.data,
            **self._cards,
        }
        own = record_of(self.ours)
        return own.model_copy(update={"settings": settings.model_copy(update=here)})

    @cached_property
    def scoring(self) -> CampaignRecord:
        """This machine's way to score, on their results."""
        own = record_of(self.ours)
        here = {"results": str(self.opened.folder), **self._cards}
        return own.model_copy(update={"settings": own.settings.model_copy(update=here)})

    @cached_property
    def rules(self) -> CampaignRecord:
        """The same with the judge that costs nothing."""
        settings = self.scoring.settings.model_copy(update={"judge": JudgeConfig()})
        return self.scoring.model_copy(update={"settings": settings})

    @property
    def _cards(self) -> dict[str, Any]:
        """This machine's cards as its preset has them, for records whose results lie elsewhere."""
        return {"cards": record_of(self.ours).card_folders, "preset": DEFAULT}

    @cached_property
    def agents(self) -> dict[str, Agent]:
        return agents_of(self.opened.record)

    @cached_property
    def closed(self) -> set[str]:
        return closed_tasks(self.opened.record, self.ours.cards)

    def folder(self, run: RunId) -> Path:
        return self.opened.folder / "runs" / run.path


# --- the campaign as a whole --------------------------------------------------------------------------------


def check_plan(theirs: _Theirs) -> Iterator[Check]:
    """Every run that the settings ask for is planned and scored, and every cell has the same repeats."""
    plan, record = theirs.plan, theirs.opened.record
    settings = theirs.settings
    planned = {run.path for run in plan.runs}
    named = {run.agent: theirs.agents[run.agent] for run in plan.runs}
    asked = Plan(
        agents={name: PlannedAgent(provider=agent.provider, model=agent.model) for name, agent in named.items()},
        runs=plan.runs,
        judge_kind=settings.judge.kind,
        preset=settings.preset,
    )
    yield _said("agents of the plan", "" if plan == asked else "plan.json says other models, judge or preset")
    yield _equal(
        "plan as the settings ask", planned, {run.path for run in expand_matrix(settings.matrix, settings.only)}
    )
    yield _equal("plan as labelled", planned, {run.path for run in record.runs})
    cells: dict[tuple[str, str, str], set[int]] = {}
    for run in plan.runs:
        cells.setdefault((run.agent, run.task, run.tier), set()).add(run.repeat)
    most = max(map(max, cells.values()))
    gaps = ["/".join(cell) for cell, repeats in cells.items() if repeats != set(range(1, most + 1))]
    yield _decided(theirs, "repeats", f"{gaps[0]}: not each of 1 … {most}; {len(gaps)} cells" if gaps else "")
    tasks = {agent: {cell[1:] for cell in cells if cell[0] == agent} for agent in plan.agents}
    every = set.union(*tasks.values())
    short = [f"{agent} lacks {'/'.join(min(every - own))}" for agent, own in tasks.items() if every - own]
    yield _decided(theirs, "the same tasks for all agents", short[0] if short else "")
    scored = {run.path for run in plan.runs if f"runs/{run.path}/score.json" in record.files}
    yield _equal("a score for every planned run", scored, planned)
    open_runs = [run for run in plan.runs if run.task not in theirs.closed]
    without = [run.path for run in open_runs if not any(theirs.folder(run).glob(f"attempts/*/{OUTPUTS}"))]
    wrong = f"{without[0]} has none; {len(without)} such" if 0 < len(without) < len(open_runs) else ""
    yield _said("outputs of all runs, or of none", wrong)
    held = {"/".join(name.split("/")[1:5]) for name in record.files if name.startswith("runs/")}
    yield _equal("no runs beside the plan", held | planned, planned)


def check_ledger(theirs: _Theirs) -> Iterator[Check]:
    """Every attempt that money or a machine's time was booked for is here, made once.

    Runs of agents and tiers that the plan does not have, of earlier campaigns in the same folder, are said.
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
        f"attempt {attempt} of {run} {what}"
        for run, attempt, what in booked
        if run not in others and folder / "runs" / run / "attempts" / attempt not in here
    ]
    yield _said("attempts of the ledger", f"{gone[0]}, and is not here; {len(gone)} such" if gone else "")
    more = [f"attempt {attempt} of {run}" for run, attempt in anew if run not in others]
    yield _said("attempts made once", f"{more[0]}: a folder was moved away; {len(more)} such" if more else "")
    unbooked = [run.path for run in plan.runs if theirs.agents[run.agent].paid and run.path not in paid]
    yield _said("a book for every paid run", f"{unbooked[0]} has none; {len(unbooked)} such" if unbooked else "")
    if others:
        said = f"{min(others)} is of no agent and tier of the plan; {len(others)} such"
        yield Check("other runs of the ledger", "absent", said)


Look = Callable[["_Theirs", RunId, RunRecord, ScoreRecord], Iterator[Check]]


# --- one run ------------------------------------------------------------------------------------------------


def _check_run(theirs: _Theirs, run: RunId) -> Iterator[Check]:
    """All checks of one run; one that cannot be made for a broken record is a difference."""
    folder = theirs.folder(run)
    try:
        record = read_record(folder / "run.json", RunRecord)
        score = read_record(folder / "score.json", ScoreRecord)
    except AutoMedBenchError as error:
        yield Check("records", "differs", str(error).partition("\n")[0])
        return
    tried: dict[str, Look] = {"records": _of_records, "surroundings": _of_the_run, "cases": _of_cases}
    if run.task not in theirs.closed:
        tried |= {
            "score made again": check_again,
            "transcript": check_transcript,
            "quotes": check_quotes,
            "audit made again": check_audit,
            "judged again": check_judgement,
            "metrics made again": check_metrics,
        }
    for what, look in tried.items():
        try:
            yield from look(theirs, run, record, score)
        except AutoMedBenchError as error:
            ours = isinstance(error, MissingDataError) and str(theirs.opened.folder) not in str(error)
            yield Check(what, "absent" if ours else "differs", str(error).partition("\n")[0])
        except UNREADABLE as error:
            yield Check(what, "differs", f"cannot be read: {type(error).__name__}: {str(error)[:200]}")
    if run.task in theirs.closed:
        yield Check("transcript, outputs, judgement", "absent", theirs.opened.record.left_out[run.task])


def _of_records(theirs: _Theirs, run: RunId, record: RunRecord, score: ScoreRecord) -> Iterator[Check]:
    """Names and digests of the records, and which attempt counts."""
    folder = theirs.folder(run)
    yield _equal("records of this run", {record.run.path, score.run.path}, {run.path})
    if run.task not in theirs.closed:
        yield check_records(folder, score)
    attempts = {attempt.number: attempt for attempt in list_attempts(folder)}
    counts = attempts.get(record.attempt)
    wrong = ""
    if sorted(attempts) != list(range(1, max(attempts, default=0) + 1)):
        wrong = f"attempts {', '.join(map(str, sorted(attempts)))} are here, and none between"
    elif counts is None or not counts.sealed or counts.record() != record:
        wrong = f"run.json is not that of attempt {record.attempt}"
    elif newer := [number for number in attempts if number > record.attempt and attempts[number].sealed]:
        wrong = f"attempt {newer[0]} was finished after attempt {record.attempt}, which counts"
    else:
        same = [
            number
            for number, attempt in attempts.items()
            if number < record.attempt and attempt.sealed and _question(attempt.record()) == _question(record)
        ]
        if same:
            wrong = f"attempt {same[0]} was finished on the same question; a later one must not count instead"
    yield _said("attempts", wrong)
    if silent := sorted(place for place in theirs.opened.record.silent if place.startswith(f"runs/{run.path}/")):
        yield Check("attempts without a word", "absent", f"{len(silent)}, killed or never begun: {silent[0]}")
    yield _said("machine time", _wrong_time(theirs, run, record))


def _wrong_time(theirs: _Theirs, run: RunId, record: RunRecord) -> str:
    """What the run says that it took of machines, against the ledger."""
    if record.used is None:
        return ""
    path = theirs.opened.folder / FOLDER / f"{run.path.replace('/', '+')}+{record.attempt:04d}.json"
    if not path.is_file():
        return "the ledger has no book of it"
    return "" if total_of(read_record(path, UsedBook).shifts) == record.used else "the ledger tells another one"


def _question(record: RunRecord) -> tuple[object, ...]:
    """What makes another attempt another question."""
    return (
        *(record.agent_digest, record.task_version, record.brief_sha256, record.cases_sha256),
        *(str(record.limits), record.image_recipe, record.enforced.isolation),
    )


def _of_the_run(theirs: _Theirs, run: RunId, record: RunRecord, score: ScoreRecord) -> Iterator[Check]:
    """Agent, brief, limits, sandbox and image against the settings that the bundle names, and this version's."""
    settings, card, agent = theirs.record.settings, theirs.ours.cards.get(run.task), theirs.agents.get(run.agent)
    if card is None or agent is None:
        yield _said("task and agent", f"no {'task' if card is None else 'agent'} of that name")
        return
    yield _agent(agent.for_task(card), run, record)
    folder = theirs.folder(run)
    yield check_digest("brief", folder / "brief.md", record.brief_sha256)
    yield _brief(theirs, run, record)
    told = record.agent_settings  # prices may have been edited since, and a limit of cost is for those with one
    then = agent if told is None else agent.model_copy(update={"pricing": told.get("pricing")})
    yield _limits(theirs, record, theirs.record.limits(card, then).model_dump())
    place = f"{settings.sandbox.backend}/{'open' if settings.sandbox.backend == 'local' else settings.sandbox.network}"
    kept = f"{record.enforced.backend}/{record.enforced.network}"
    wrong = "" if place == kept else f"the run was in {kept}, the settings say {place}"
    if not wrong and kept == "local/open" and record.enforced != Enforced(backend="local", network="open"):
        wrong = "the sandbox 'local' enforces nothing, and is said to"
    yield _said("sandbox", wrong)
    yield _equal("what was enforced", _items(score.enforced), _items(record.enforced))
    yield _image(theirs, run, record, score)


def _agent(agent: Agent, run: RunId, record: RunRecord) -> Check:
    """What the record tells of the agent, and the digest of what it is; files are looked for below this folder only."""
    what = "agent's settings"
    told = {"provider": agent.provider, "model": agent.model or agent.provider}
    told |= {} if agent.provider == "replay" else {"origin": agent.origin}
    other = [name for name, value in told.items() if getattr(record, name) not in (None, value)]
    old, new = record.agent_settings, agent.settings
    if old is not None:
        other += sorted(name for name in {*old, *new} - REACHED if old.get(name) != new.get(name))
    if other:
        return Check(what, "differs", f"{other[0]} of {run.agent}: the run had another one")
    files = [path for path in (agent.script, agent.command_folder, agent.transcript) if path]
    files += [f"{RECIPES}/{agent.layer}.yaml"] if agent.layer else []
    if absent := [path for path in files if not is_plain(path) or not Path(path).exists()]:
        return Check(what, "absent", f"{absent[0]} is not here")
    if agent.digest() == record.agent_digest:
        return Check(what, "same")
    if files and old is not None and not agent.baseline:  # baselines are this version's
        return Check(what, "absent", f"{files[0]} or what belongs to it is another one here")
    return Check(what, "differs", f"{run.agent} as the bundle has it is not the agent of the run")


def _limits(theirs: _Theirs, record: RunRecord, given: Mapping[str, float | None]) -> Check:
    """The run had what the settings give, or less: a limit may be raised while a campaign is under way."""
    kept = record.limits
    other = {name: (kept.get(name), given.get(name)) for name in {**kept, **given} if kept.get(name) != given.get(name)}
    for name, (had, gives) in other.items():
        if gives is not None and (had is None or had > gives):
            return _decided(theirs, "limits", f"{name}: the run had {had}, the settings give {gives}")
    raised = ", ".join(f"{name} {had} → {gives}" for name, (had, gives) in other.items())
    return Check("limits", "absent", f"raised since the run: {raised}") if other else Check("limits", "same")


def _brief(theirs: _Theirs, run: RunId, record: RunRecord) -> Check:
    """The brief written again by this version."""
    what, task = "brief written again", theirs.ours.cards[run.task]
    if not Path(theirs.ours.config.data.public, task.id).is_dir():
        return Check(what, "absent", f"{task.id} is not staged here")
    manifest = read_record(theirs.opened.folder / "manifests" / f"{task.id}.json", Manifest)
    plan = plan_with(theirs.record, run, theirs.folder(run), manifest)
    made = brief_of(replace(plan, limits=Limits.model_validate(record.limits))).sha256
    return _said(
        what, "" if made == record.brief_sha256 else "the agent was told something else than this version tells"
    )


def _image(theirs: _Theirs, run: RunId, record: RunRecord, score: ScoreRecord) -> Check:
    """One made from this version's definition, as its record in the bundle says; its digest is each cluster's own."""
    what, settings = "image", theirs.record.settings
    if settings.sandbox.backend == "local":
        return _said(what, "the sandbox 'local' has no image" if record.enforced.image_sha256 else "")
    if score.recipe.image_sha256 != record.enforced.image_sha256:
        return _said(what, "the score names another image than the run")
    flavour = settings.flavour(theirs.agents[run.agent].image)
    if not Path(settings.definition(flavour)).is_file():
        return _decided(theirs, what, f"{settings.definition(flavour)} is not here: an image of their own")
    if record.image_recipe != of_image(theirs.ours, flavour):
        return _said(what, f"was not made from this version's containers/{flavour}.def and its list")
    path = theirs.opened.folder / "images" / f"{flavour}.json"
    if path.is_file() and read_record(path, ImageRecord).recipe != record.image_recipe:
        return _said(what, "its record is that of another image")
    return Check(what, "same")


def _of_cases(theirs: _Theirs, run: RunId, record: RunRecord, score: ScoreRecord) -> Iterator[Check]:
    """The cases that were asked, collected and scored, and the versions of everything that makes the numbers."""
    manifest = read_record(theirs.opened.folder / "manifests" / f"{run.task}.json", Manifest)
    digests = {record.cases_sha256, score.recipe.cases_sha256, manifest.cases_sha256}
    yield _said("staged cases", "" if len(digests) == 1 else "run, score and manifest name different cases")
    draw, here = theirs.settings.cases.draw, Path(theirs.ours.config.data.manifests, f"{run.task}.json")
    if why := _not_staged(theirs, here):
        yield Check("cases as staged here", "absent", why)
    else:
        same = read_record(here, Manifest).cases_sha256 in digests
        yield _said("cases as staged here", "" if same else "other cases are staged here")
    yield _said("draw of the cases", "" if record.draw == draw else f"the run says {record.draw}, the settings {draw}")
    folder = theirs.folder(run)
    if run.task not in theirs.closed:
        collected = [case.case for case in read_record(folder / "submission.json", SubmissionRecord).cases]
        detail = read_record(folder / "detail_report.json", DetailReport)
        yield _said("collected cases", "" if collected == manifest.case_ids else "are not the staged ones, in order")
        counted = [case.case for case in detail.cases]
        yield _said("scored cases", "" if counted == manifest.case_ids else "are not the staged ones, in order")
        yield _mean(detail)
    asked = asked_of(theirs.ours, run) if run.task in theirs.ours.cards else {}
    other = what_is_outdated(score, {name: asked[name] for name in VERSIONS if name in asked})
    untold = [name for name in VERSIONS if BY_NAME[name].value(score) is None]
    yield _said("versions", f"{', '.join([*other, *untold])}: not those of this version" if other or untold else "")


def _not_staged(theirs: _Theirs, place: Path) -> str:
    """Why what is staged here tells nothing about their cases; empty: it does."""
    draws = [draw_name(each.cases.draw) for each in (theirs.settings, theirs.ours.config)]
    if draws[0] != draws[1]:
        return f"their cases are of the draw {draws[0]}, here are those of {draws[1]}"
    return "" if place.exists() else f"{place} is not there: the task is not staged here"


def _mean(detail: DetailReport) -> Check:
    """The quality against its cases, where it is their mean."""
    name = CASE_METRICS.get(detail.quality_name, detail.quality_name)
    if detail.quality_name not in MEANS:
        return Check("quality of the cases", "absent", f"{detail.quality_name} is no plain mean over cases")
    mean = fmean(case.metrics.get(name) or 0.0 for case in detail.cases)
    same = abs(mean - detail.quality) <= TOLERANCE
    return _said(
        "quality of the cases", "" if same else f"their mean is {mean:.4f}, the report says {detail.quality:.4f}"
    )


def check_again(theirs: _Theirs, run: RunId, _record: RunRecord, score: ScoreRecord) -> Iterator[Check]:
    """The score made again from the records."""
    yield check_score(theirs.folder(run), score, theirs.ours.cards.get(run.task), whole=True)


def check_transcript(theirs: _Theirs, run: RunId, record: RunRecord, _score: ScoreRecord) -> Iterator[Check]:
    """Conversation, record, log and journal tell the same."""
    manifest = read_record(theirs.opened.folder / "manifests" / f"{run.task}.json", Manifest)
    yield _said("transcript", told_otherwise(theirs.folder(run), record, len(manifest.cases)))


def check_quotes(theirs: _Theirs, run: RunId, _record: RunRecord, _score: ScoreRecord) -> Iterator[Check]:
    """Every quote of the judge stands in the run."""
    folder = theirs.folder(run)
    evidence = collect_evidence(read_record(folder / "conversation.json", Conversation))
    judge = read_record(folder / "judge.json", JudgeRecord)
    criteria = [item for item in judge.criteria if item.valid and item.quote and not item.auto]
    lost = [item.id for item in criteria if not quote_exists(evidence, item.quote, item.turn)]
    yield _said("quotes", f"{', '.join(lost)}: quoted what the run does not hold" if lost else "")


def check_audit(theirs: _Theirs, run: RunId, _record: RunRecord, _score: ScoreRecord) -> Iterator[Check]:
    """The audit of the same log, and what their operator made of it."""
    place, before = _again(theirs, run), read_record(theirs.folder(run) / "audit.json", AuditRecord)
    if not (theirs.folder(run) / OUTPUTS).exists():
        if any(finding.rule == "decoy.used" for finding in before.findings):
            yield Check("audit made again", "absent", "it found the decoy in outputs, which are not here")
            return
        place = theirs.opened.folder / "again/audit" / run.path
        (place / "submission").mkdir(parents=True)  # what the decoy is looked for in: nothing
    again = audit_run(theirs.record, place)
    wrong = f"the bundle says {before.verdict}, its log {again.verdict}" if before.verdict != again.verdict else ""
    yield _said("audit made again", wrong or _other_fields(before, again))
    decision = before.decision
    if decision and (decision.decision == "lift" or decision.confirmed_no_inference is False):
        said = f"raised by {decision.by}: {' '.join(decision.why.split())[:200]}"
        yield _decided(theirs, "operator's decision", said)


def check_judgement(theirs: _Theirs, run: RunId, record: RunRecord, _score: ScoreRecord) -> Iterator[Check]:
    """The judgement of the same transcript by rules, and by the same panel, where that was asked for."""
    what, before = "judged again", read_record(theirs.folder(run) / "judge.json", JudgeRecord)
    kind, ruled = theirs.settings.judge.kind, score_judge(theirs.rules, _again(theirs, run))
    if before.kind != kind:
        yield _said(what, f"judged by the kind {before.kind}, the settings say {kind}")
        return
    if kind == "heuristic":
        yield _said(what, _other_fields(before, ruled))
        return
    found = [each.verdict if each else "" for each in (before.provenance, ruled.provenance)]
    yield _said("origin of the outputs", "" if len(set(found)) == 1 else f"{found[0]}, by its code {found[1]}")
    yield _said("panel's judgements", _wrong_panel(before, theirs.ours.cards[run.task].track, record.enforced.gpu))
    if not theirs.panel:
        yield Check(what, "absent", f"{before.judge} was not asked again; --judge asks the panel of this campaign")
        return
    again = score_judge(theirs.scoring, _again(theirs, run))
    if again.judge != before.judge:
        yield Check(what, "absent", f"{before.judge} judged, here {again.judge} would")
        return
    other = [
        f"{stage} {value:g}, again {again.stages.get(stage, 0):g}"
        for stage, value in before.stages.items()
        if abs(value - again.stages.get(stage, 0)) > 0.25 + TOLERANCE
    ]
    yield _said(what, "; ".join(other))


def _wrong_panel(record: JudgeRecord, track: str, gpu: bool) -> str:
    """Stages, criteria and codes against the judgements that they are made of, and these against their verdicts."""
    from automedbench.judge import panel

    rubric, tier, said = load_rubric(Path(RUBRICS), track), record.run.tier, record.judgements
    if not said:
        return "a panel is named, and no judgement of it"
    for one in said:
        settled_ones = settled({item.id: item for item in one.criteria if item.valid}, rubric, tier, gpu=gpu)
        if any(stage_score(settled_ones, stage) != value for stage, value in one.stages.items()):
            return f"stages of {one.judge}#{one.repeat} are not what its verdicts make"
    made = record.model_copy(
        update={
            "stages": panel.mean_stages(said),
            "spread": {stage: panel.spread_of(said, stage) for stage in panel.mean_stages(said)},
            "criteria": panel.consensus(said, rubric, tier),
            "error_codes": panel.common_codes(said, record.judge),
            "tokens": sum((one.tokens for one in said), Tokens()),
            "cost_usd": panel.total_cost([one.cost_usd for one in said]),
        }
    )
    return _other_fields(record, made)


def check_metrics(theirs: _Theirs, run: RunId, _record: RunRecord, _score: ScoreRecord) -> Iterator[Check]:
    """The collected files against their digests, and collection and metrics made again where data is at hand."""
    what, folder = "metrics made again", theirs.folder(run)
    if not (folder / OUTPUTS).exists():
        yield Check(what, "absent", "the bundle has no outputs, but their digests")
        return
    again, before = _again(theirs, run), read_record(folder / "submission.json", SubmissionRecord)
    claimed, there = sum(entry.bytes for entry in collected_files(before).values()), (folder / OUTPUTS).stat().st_size
    if claimed > FREE_DATA + DATA_PER_BLOCK * there:
        yield _said("collected files", f"{claimed} bytes out of an archive of {there}")
        return
    yield from check_submission(folder)
    with opened_outputs(folder, {PLAN: LARGEST_READ}) as workspace:
        plan = read_record(folder / "conversation.json", Conversation).plan
        yield _said("plan", "" if plan == read_plan(workspace) else f"conversation.json has another one than {OUTPUTS}")
    if why := _not_staged(theirs, Path(theirs.ours.config.data.private, run.task)):
        yield Check(what, "absent", why)
        return
    collected = collect_submission(theirs.scoring, again)
    # Pictures are written anew by the library that is here, and so are not the same bytes.
    same = collected.model_copy(update={"extra": before.extra})
    other = _other_fields(before, same) or ("extra" if before.extra.keys() != collected.extra.keys() else "")
    yield _said("collected again", other)
    if judges_answers(theirs.ours.cards[run.task]):
        yield Check("answers judged again", "absent", "verdicts on open answers are taken as they are")
    old = read_record(folder / "detail_report.json", DetailReport)
    yield _said(what, _other_fields(old, score_metrics(theirs.scoring, again, verify=old.verification is not None)))


def _other_fields(old: Model, new: Model) -> str:
    """The first field that came out differently, numbers within the tolerance."""
    found = _other_value(_shown(old), _shown(new), "")
    return f"{found[0]}: the bundle says {str(found[1])[:80]}, here it is {str(found[2])[:80]}" if found else ""


def _shown(record: Model) -> dict[str, Any]:
    """A record as JSON; of metric settings those that are not the usual ones, which later versions may have more of."""
    content = record.model_dump(mode="json")
    if isinstance(record, DetailReport):
        content["settings"] = settings_that_count(record.track, record.settings)
    return content


def _other_value(old: Any, new: Any, where: str) -> tuple[str, Any, Any] | None:
    """Where two JSON values are not the same, and what is there."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        pairs = [(f"{where} {key}", old[key], new[key]) for key in old]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(f"{where} {number}", *pair) for number, pair in enumerate(zip(old, new, strict=True), start=1)]
    elif isinstance(old, float) and isinstance(new, float):
        return None if abs(old - new) <= TOLERANCE else (where.strip(), old, new)
    else:
        return None if old == new else (where.strip(), old, new)
    return next((found for key, one, other in pairs if (found := _other_value(one, other, key))), None)


def _again(theirs: _Theirs, run: RunId) -> Path:
    """Where a run is looked at again, beside it."""
    folder = theirs.opened.folder / AGAIN / run.path
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# --- code executed again ------------------------------------------------------------------------------------


def sample_of(opened: Opened, count: int) -> list[RunId]:
    """Runs whose code is executed again: the bundle's digest draws them, so that everyone looks at the same ones."""
    closed = opened.record.left_out
    runs = [run for run in opened.record.runs if run.task not in closed]
    return sorted(runs, key=lambda run: sha256_bytes(f"{opened.digest} {run.path}".encode()))[:count]


def check_replay(opened: Opened, run: RunId, ours: Campaign) -> Check:
    """Whether the recorded code does again what the log says; a difference is said and does not refuse: code may be
    random. It is another lab's code, and what is said of its origin is not proven: never executed without a container.
    """
    what, folder, settings = "executed again", opened.folder / "runs" / run.path, ours.config
    image = Path(settings.containers.folder, f"{settings.flavour(agents_of(opened.record)[run.agent].image)}.sif")
    if not image.is_file():
        return Check(what, "absent", f"{image} is not here, and code of others is executed in a container only")
    record, again = read_record(folder / "run.json", RunRecord), opened.folder / AGAIN / "replayed" / run.path
    try:
        first = first_divergence(replay_run(folder, record, ours, "apptainer", image, again))
    except AutoMedBenchError as error:
        return Check(what, "absent", str(error).partition("\n")[0])
    return (
        Check(what, "absent", f"turn {first.turn} came out differently: {first.reason}")
        if first
        else Check(what, "same")
    )


# --- verdicts -----------------------------------------------------------------------------------------------


def _said(what: str, wrong: str) -> Check:
    return Check(what, "differs" if wrong else "same", wrong)


def _decided(theirs: _Theirs, what: str, wrong: str) -> Check:
    """What their operator chose, and who admits may take."""
    if not wrong:
        return Check(what, "same")
    return Check(what, "absent" if theirs.decisions else "differs", f"{wrong}; --accept-decisions")


def _equal(what: str, found: set[str], expected: set[str]) -> Check:
    """Two sets of names; the first that is too many or too few is named."""
    more, less = sorted(found - expected), sorted(expected - found)
    return _said(
        what, f"{less[0]} is not there ({len(less)})" if less else f"{more[0]} is not expected" if more else ""
    )


def _items(value: Mapping[str, Any] | Any) -> set[str]:
    """A record's fields as text, to compare."""
    content = value if isinstance(value, Mapping) else value.model_dump(mode="json")
    return {
        f"{name}: {float(item) if isinstance(item, int) and not isinstance(item, bool) else item}"
        for name, item in content.items()
    }
