"""Tries in containers: a package and a hub file by the network of a run, a checkpoint, a GPU, a case to its score.

Each goes the way of a run: its egress, image, limits and cards, and the scripts of its steps.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from automedbench.agent.plan import RunPlan
from automedbench.base.cards import Source, TaskCard
from automedbench.base.checkpoints import load_checkpoints
from automedbench.base.files import read_record, to_json, write_text
from automedbench.base.records import DetailReport
from automedbench.campaign.load import Campaign, build_campaign_record
from automedbench.campaign.record import CampaignRecord
from automedbench.commands._machine.containers import BUILD, Inside, run_inside
from automedbench.commands._machine.examine import Host, ProbeResult, ProbeResults, fail, next_step, ok, warn
from automedbench.commands._machine.first.code import CHECKPOINT, KERNEL, PACKAGES
from automedbench.commands._machine.host import run_program
from automedbench.commands.tasks import way_to_data
from automedbench.datasets.sampling import replace_sampling
from automedbench.planning.rehearsal import has_stand_in
from automedbench.sandbox.container import gpus
from automedbench.sandbox.container.image import record_beside
from automedbench.sandbox.egress.rules import PYPI, read_index
from automedbench.steps.run_agent import plan_with_manifest
from automedbench.steps.stage_task import expected_manifest
from automedbench.tracks import judges_answers, preflight

WHEEL = "six"
"""A package of 11 kB without requirements, in every mirror of PyPI."""
MODEL = "hf-internal-testing/tiny-random-bert"
"""A hub model for campaigns without a checkpoint."""
CHECKPOINT_MB = 800
"""Larger checkpoints are not fetched for a try."""
PIP_S, LOAD_S, KERNEL_S, STEP_S = 150.0, 400.0, 120.0, 240.0
ALLOW = "Add it to sandbox.egress.allow, or let pip's index-url name an index that serves its own files."
PRIVATE = "Let pip's index serve its files under its own address, or fill sandbox.egress.cache and set offline: true."
"""For another host than PyPI's; its names lead to a private address where a site's DNS names a mirror."""
MIRROR = "Name the mirror: `pip config set global.index-url https://HOST/simple`; an index that is set may be private."
NO_WAY = "Set HTTPS_PROXY on the node of runs, or fill a cache: sandbox.egress.cache and offline (docs/network.md)."
LOAD = "Load it by hand: `apptainer exec {image} python3`; if that fails, lite runs need another image or weights."
FILL = "Name it in sandbox.egress.packages or models, then `snakemake prepare`."
TOKEN = "Accept its licence on the hub, and name model and token in sandbox.egress.tokens."


def _ready(host: Host, probe: str) -> tuple[Campaign | None, list[ProbeResult]]:
    """The campaign whose agents run in containers that can be started; None, and why, where there is none."""
    campaign = host.campaign
    if campaign is None or campaign.config.sandbox.backend != "apptainer":
        return None, []
    absent = [name for name in campaign.images if not (host.images / f"{name}.sif").exists()]
    if shutil.which("apptainer") is None or absent:
        return None, [warn(probe, f"not tried: {', '.join(absent) or 'apptainer'} is not there yet", BUILD)]
    return campaign, []


def uses_network(campaign: Campaign) -> bool:
    """Check whether the network of runs reaches anything."""
    return campaign.config.sandbox.network != "sealed" or campaign.config.sandbox.from_cache


def uses_gpus(campaign: Campaign) -> bool:
    """Check whether runs have GPUs."""
    return campaign.config.sandbox.gpu > 0


def _plan(campaign: Campaign) -> RunPlan | None:
    """The campaign's first run, on cases that need not be staged; None where its network reaches nothing."""
    run = campaign.runs[0]
    if not uses_network(campaign):
        return None
    manifest = expected_manifest(campaign.cards[run.task])
    return plan_with_manifest(build_campaign_record(campaign), run, Path(), manifest)


def _checkpoints(campaign: Campaign) -> list[Source]:
    """Checkpoints of the campaign's lite runs that are files by themselves, small ones of known size first."""
    tasks = {run.task for run in campaign.runs if run.tier == "lite"}
    found = [each.source for each in load_checkpoints().values() if tasks & {*each.tasks}]
    plain = [source for source in found if not any(each.name.endswith(".zip") for each in source.downloads)]
    return sorted(plain, key=lambda source: sum(each.bytes or 10**9 for each in source.downloads) or 10**10)


# --- network ------------------------------------------------------------------------------------------------------


def packages(host: Host) -> ProbeResults:
    """Install a small wheel and read a file of a hub model, as agent code would."""
    campaign, problems = _ready(host, "packages")
    yield from problems
    plan = _plan(campaign) if campaign is not None else None
    if campaign is None or plan is None:
        return
    egress, on_hub = plan.sandbox.egress, [each for each in _checkpoints(campaign) if each.kind == "huggingface_model"]
    model, _, revision = (on_hub[0].where, "", on_hub[0].revision) if on_hub else _stored(egress.models)
    wheel = next(iter(egress.packages), "") if egress.offline else WHEEL
    asked = {"WHEEL": wheel, "MODEL": model if egress.hub else "", "REVISION": revision or "main"}
    found = run_inside(host, _filled(PACKAGES, asked), plan=plan, timeout_s=PIP_S)
    report = found.report()
    if report is None:
        yield fail("packages", f"code inside could not ask for a package: {found.last_words}", "See 'isolation'.")
        return
    index = read_index(ask=False)
    place = index.url or f"https://{(index.hosts or PYPI.hosts)[0]}/simple"
    yield from _told(found, "pip", f"pip install {wheel} from {place}", report["pip"])
    yield from _told(found, "hub", f"a file of {model} from {egress.hub}", report["hub"])


def _stored(models: Iterable[str]) -> tuple[str, str, str]:
    return next(iter(models), MODEL).partition("@")


def _told(found: Inside, service: str, what: str, error: str | None) -> Iterator[ProbeResult]:
    """Finding about one service; None: it was not asked, empty: it answered."""
    if error is None:
        return
    requests = [each for each in found.requests if (each["service"] == "hub") == (service == "hub")]
    bad = next((each for each in requests if each["verdict"] == "refused" or each["reason"] in _FAILED), None)
    if not error:
        yield ok("packages", f"{what}: works in the container")
    elif bad is not None and bad["reason"] == "not_cached":
        yield fail("packages", f"{what}: is not in the cache, which is all that runs can reach", FILL)
    elif bad is not None and bad["reason"] in ("unreachable", "broken"):
        yield fail("packages", f"{what}: {bad['host']} does not answer from this node", NO_WAY)
    elif bad is not None and bad["reason"] in ("private", "address"):
        fix = MIRROR if bad["host"].partition(":")[0] in PYPI.hosts else PRIVATE
        yield fail("packages", f"{what}: {bad['host']} has a private address, which is refused", fix)
    elif bad is not None and service == "pip":
        yield fail("packages", f"{what}: files come from {bad['host']}, which runs may not reach", ALLOW)
    else:
        yield fail("packages", f"{what}: {error}", explain(error))


_FAILED = ("unreachable", "broken", "not_cached")
_FIXES = {
    "No matching distribution": "Let the index mirror PyPI, or name in pip's index-url one that does.",
    "HTTP 401": TOKEN,
    "HTTP 403": TOKEN,
    "HTTP 404": "Correct its name or revision in config/checkpoints.yaml, or in sandbox.egress.models.",
    "CERTIFICATE": "Set SSL_CERT_FILE to the certificates of this site: runs then trust them too.",
    "central directory": "Delete the file in sandbox.egress.cache, then `snakemake prepare`; else it is broken there.",
    "IncompleteRead": "Try again; where it stays, delete the file in sandbox.egress.cache, then `snakemake prepare`.",
    "No module named": "Build the image again: `make images` (docs/cluster.md).",
    "too old": "Update the driver, or build the image with a PyTorch for its CUDA.",
}


def explain(error: str, otherwise: str = NO_WAY) -> str:
    """Next step for an error of a download, of a checkpoint or of a card in a container."""
    return next_step(error, _FIXES, otherwise)


def _filled(code: str, values: dict[str, Any]) -> str:
    """Code behind assignments of these values."""
    return "".join(f"{name} = {value!r}\n" for name, value in values.items()) + code


# --- computing ----------------------------------------------------------------------------------------------------


def checkpoint(host: Host) -> ProbeResults:
    """Load a lite checkpoint of the campaign in the image, and let it compute on random input."""
    campaign, problems = _ready(host, "checkpoint")
    yield from problems
    sources = _checkpoints(campaign)[:3] if campaign is not None else []
    if campaign is None or not sources:
        return
    holds, plan = record_beside(host.agent_image), _plan(campaign)
    if holds is not None and "torch" not in holds.packages:
        yield ok("checkpoint", f"not tried: {host.agent_image.name} has no PyTorch; lite agents bring their own")
        return
    if plan is None:
        fix = "Set sandbox.network: proxied, or sandbox.egress.cache with offline: true (docs/network.md)."
        yield warn("checkpoint", f"lite tasks need {sources[0].where}, but the network is sealed without a cache", fix)
        return
    asked = {"PLACES": [_place(source) for source in sources], "LIMIT": CHECKPOINT_MB * 10**6}
    found = run_inside(host, _filled(CHECKPOINT, asked), plan=plan, timeout_s=LOAD_S)
    report = found.report() or {"error": found.last_words, "where": sources[0].where, "fetched": True}
    if error := report["error"]:
        otherwise = LOAD.format(image=host.agent_image) if report["fetched"] else NO_WAY
        yield fail("checkpoint", f"{report['where']}: {error}", explain(error, otherwise))
    else:
        yield ok("checkpoint", f"{report['where']}: {report['text']}")


def _place(source: Source) -> dict[str, Any]:
    names = {each.name: each.bytes for each in source.downloads}
    return {"hub": source.kind == "huggingface_model", "where": source.where, "at": source.revision, "names": names}


def kernel(host: Host) -> ProbeResults:
    """Take a card as a run does, and compute on it in the image."""
    campaign, problems = _ready(host, "kernel")
    yield from problems
    elsewhere = shutil.which("sbatch") and "SLURM_JOB_ID" not in os.environ and not gpus.list_cards()
    if campaign is None or not uses_gpus(campaign) or elsewhere:
        return
    found = run_inside(host, KERNEL, gpu=campaign.config.sandbox.gpu, timeout_s=KERNEL_S)
    names, report = ", ".join(found.enforced.gpu_names), found.report() or {"error": found.last_words, "driver": 0}
    holds, driver = record_beside(host.agent_image), report["driver"] // 1000
    cuda = holds.cuda if holds is not None else None
    if driver and cuda and driver < int(cuda.partition(".")[0]):
        why = f"{names}: the driver is too old, it has CUDA {driver}, and the image CUDA {cuda}"
        yield fail("kernel", why, _FIXES["too old"])
    elif report["error"]:
        yield fail("kernel", f"{names}: {report['error']}", explain(report["error"], "See containers/gpus.md."))
    else:
        yield ok("kernel", f"{names}: {report['text']}")


# --- one case -----------------------------------------------------------------------------------------------------


Given = Literal["fetched data", "its own copy", "made-up data"]
SMALL_GB = 0.5
"""Larger copies of one's own are not fetched for a try."""


@dataclass(frozen=True)
class Trial:
    """A campaign of one run in a folder of its own; its agent is the track's reference without a model."""

    record: CampaignRecord
    card: TaskCard
    given: Given

    @property
    def run(self) -> Path:
        return self.record.results / f"runs/first-run/{self.card.id}/{self.card.tiers[-1]}/r1"


def case(host: Host) -> ProbeResults:
    """Take one case from staging over a run and its collection to a score, in the containers of a run."""
    campaign, problems = _ready(host, "case")
    yield from problems
    if campaign is None:
        return
    chosen = _cheapest(campaign)
    if chosen is None:
        fix = "Run `snakemake prepare`, then repeat."
        yield warn("case", "not tried: no task of the campaign has its data here, and none has made-up data", fix)
        return
    with tempfile.TemporaryDirectory(prefix="automedbench-first-", ignore_cleanup_errors=True) as folder:
        trial = _trial(host, campaign, *chosen, Path(folder))
        for step, option in _steps(trial):
            script = [sys.executable, str(host.root / f"scripts/{step}.py"), "--campaign", f"{folder}/campaign.json"]
            status, text = run_program([*script, *option], STEP_S)
            if status:
                yield _broken_step(host, trial, step, text)
                return
        report = read_record(trial.run / "detail_report.json", DetailReport)
        score = f"{report.quality_name} {report.quality:.2f} for a constant answer"
        yield ok("case", f"{trial.card.id}, {trial.given}: staged, run, collected and scored ({score})")


def _cheapest(campaign: Campaign) -> tuple[TaskCard, Given] | None:
    """The task with the least data among those that are scored without a judge's verdicts; made-up data if need be."""
    resources = build_campaign_record(campaign).resources
    cards = [campaign.cards[task] for task in campaign.tasks]
    fit = [card for card in cards if not judges_answers(card) and not preflight(card, resources)]
    fit.sort(key=lambda card: card.dataset.download_gb or 0.0)
    ways: dict[Given, list[TaskCard]] = {"fetched data": [], "its own copy": [], "made-up data": []}
    for card in fit:
        way, small = way_to_data(campaign, card), card.demo or (card.dataset.download_gb or SMALL_GB) < SMALL_GB
        if way == "fetched":
            ways["made-up data" if campaign.config.fixtures else "fetched data"].append(card)
        elif way == "own copy" and small and not campaign.config.fixtures:
            ways["its own copy"].append(card)
        elif has_stand_in(card.dataset.name):
            ways["made-up data"].append(card)
    return next(((found[0], given) for given, found in ways.items() if found), None)


def _trial(host: Host, campaign: Campaign, card: TaskCard, given: Given, folder: Path) -> Trial:
    """Write the trial's record, card and agent below ``folder``."""
    settings, made_up = campaign.config, given == "made-up data"
    places = {name: str(folder / name) for name in ("public", "private", "manifests", "raw")}
    there = {"raw": settings.data.raw} if given == "fetched data" else {}
    data = settings.data.model_copy(update={**places, **there})
    own = {name: each.model_copy(update={"excerpt": False}) for name, each in settings.datasets.items()}
    changes = {
        "data": data,
        "results": str(folder / "results"),
        "fixtures": made_up,
        "datasets": {} if made_up else own,
        "agents_file": str(folder / "agents.yaml"),
        "sandbox": settings.sandbox.model_copy(update={"gpu": 0}),
        "containers": settings.containers.model_copy(update={"folder": str(host.images)}),
        "share": "private",
    }
    agent = {"provider": "baseline", "baseline": "constant", "image": host.agent_image.stem}
    write_text(folder / "agents.yaml", to_json({"agents": {"first-run": agent | {"approved_for": ["credentialed"]}}}))
    one = _one_case(card) if card.staging.case_prefix is not None else card
    write_text(folder / f"{card.id}.yaml", to_json(one.model_dump(mode="json", by_alias=True)))
    record = CampaignRecord(
        settings=settings.model_copy(update=changes),
        cards={card.id: str(folder / f"{card.id}.yaml")},
        datasets={card.dataset.name: str(folder / f"{card.id}.yaml")},
    )
    write_text(folder / "campaign.json", to_json(record.model_dump(mode="json", by_alias=True)))
    return Trial(record, card, given)


def _one_case(card: TaskCard) -> TaskCard:
    """The card with one case, or one of each class where it counts them by class."""
    options = card.staging.sampling.options
    if "per_class" in options:
        return replace_sampling(card, count=None, options=options | {"per_class": 1})
    return replace_sampling(card, count=1)


def _steps(trial: Trial) -> list[tuple[str, list[str]]]:
    """Scripts and their options, in order."""
    run = ["--run", str(trial.run)]
    fetch = [("fetch_dataset", ["--dataset", trial.card.dataset.name])] if trial.given != "fetched data" else []
    stage = ("stage_task", ["--task", trial.card.id])
    return [*fetch, stage, *((step, run) for step in ("run_agent", "collect_submission", "score_metrics"))]


def _broken_step(host: Host, trial: Trial, step: str, text: str) -> ProbeResult:
    """The failure of a step: the message and the remedy of its error, or the image that did not do its work."""
    told = re.search(r"^\w+Error: ([^\n]*)\n?(.*)\Z", text, re.DOTALL | re.MULTILINE)
    message, fix = (told[1], told[2]) if told else ((text.strip().splitlines() or ["no message"])[-1], "")
    name = {"run_agent": host.agent_image.stem, "collect_submission": "scorer", "score_metrics": "scorer"}.get(step)
    image = host.images / f"{name}.sif"
    by_hand = f"`apptainer exec {image} python3 -c 'import numpy'` must work; else delete the image and `make images`."
    return fail("case", f"{trial.card.id}, {step}: {message}", fix or (by_hand if name else "Please report this line."))
