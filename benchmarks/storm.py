"""A storm: scripted models behind an endpoint that breaks on purpose, real runs against it, and their scores.

The truth of the task is known here, so that every character of agent has a score of its own: what a fault does to a run
would show. Pauses between attempts are shortened to a thousandth; nothing else of the harness is replaced.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from unprivileged import as_user  # noqa: E402

from automedbench.agent.models.endpoint import EndpointModel  # noqa: E402
from automedbench.agent.models.scripted import CodeStep, ScriptedTurn, SubmitStep  # noqa: E402
from automedbench.agent.run import RunPlan, run_agent  # noqa: E402
from automedbench.base.cards import Limits, load_card  # noqa: E402
from automedbench.base.endpoint.address import ProtocolName  # noqa: E402
from automedbench.base.errors import InfrastructureError  # noqa: E402
from automedbench.base.files import read_record  # noqa: E402
from automedbench.base.records import Manifest, RunId, RunRecord, ScoreRecord  # noqa: E402
from automedbench.campaign.agents import Agent  # noqa: E402
from automedbench.campaign.config import CampaignConfig, SandboxConfig  # noqa: E402
from automedbench.campaign.record import CampaignRecord  # noqa: E402
from automedbench.sandbox.boxes import LocalSandbox  # noqa: E402
from automedbench.steps.audit_run import audit_run  # noqa: E402
from automedbench.steps.collect_submission import collect_submission  # noqa: E402
from automedbench.steps.score_judge import score_judge  # noqa: E402
from automedbench.steps.score_metrics import score_metrics  # noqa: E402
from automedbench.steps.score_run import score_run  # noqa: E402
from automedbench.steps.stage_task import stage_cases  # noqa: E402
from automedbench_rehearsal.model_server.faults import FINAL, HARMLESS, TRANSIENT, FaultMix, FaultPlan, ServerFault  # noqa: E402
from automedbench_rehearsal.model_server.server import ScriptedServer  # noqa: E402

logging.getLogger("automedbench.sandbox.boxes").setLevel(logging.ERROR)  # that it isolates nothing is said above

TASK = "bccd-det-task"
CARD = ROOT / f"config/tasks/detection/{TASK}.yaml"
RAW = ROOT / "demo/data/bccd"
KEY_NAME = "STORM_API_KEY"
REQUEST_TIMEOUT_S = 4.0
SILENCE_S = 6.0
MAX_STARTS = 12
HURRY = 0.001


# --- the endpoint's faults --------------------------------------------------------------------------------------

SLOW = ("timeout", "body_timeout", "drip")
"""Each costs a real time-out of the client."""
EXPENSIVE = ("too_large", "padding")
OF_STREAMS = ("rate_limit_headers", "stream_error", "stream_cut")
"""Limits with all that a provider tells of them; streams with an error or an end within, whole replies likewise."""
FATAL = ("status_401", "status_402", "status_403")
"""The client gives up at once; the same command is run again, as a person would after mending the account."""
ONCE = ("filter_status", "context_400", "filter_finish", "context_413", "context_in_200")
"""One each in every conversation, at turns 2 to 6: by definition, a second one in a row would be the model's."""


def storm(share: float, seed: int) -> FaultPlan:
    """Every fault that says nothing about the model: a share of all answers, and the ones of ``ONCE`` in each run.

    Left out are replies cut by their length, which are the model's own, and the statuses of a wrong configuration.
    """
    weights: dict[str, float] = dict.fromkeys((*HARMLESS, *TRANSIENT), 1.0)
    weights |= dict.fromkeys(OF_STREAMS, 1.0)
    weights |= dict.fromkeys((*SLOW, *EXPENSIVE), 0.15) | dict.fromkeys(FATAL, 0.1)
    mix = FaultMix.model_validate({"share": share, "kinds": weights, "seconds": SILENCE_S})
    turns = {turn: [ServerFault(kind=kind)] for turn, kind in enumerate(ONCE, start=2)}  # type: ignore[arg-type]
    return FaultPlan(seed=seed, mix=mix, turns=turns)


# --- the site ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A staged task below one folder, which an ordinary user may read."""

    folder: Path

    @property
    def public(self) -> Path:
        """Root of public data."""
        return self.folder / "public"

    @property
    def private(self) -> Path:
        """Root of held-out answers."""
        return self.folder / "private"

    @property
    def manifest(self) -> Path:
        """Cases of the task."""
        return self.folder / f"{TASK}.json"

    def truth(self) -> dict[str, list[dict[str, Any]]]:
        """The true boxes of every case."""
        cases = read_record(self.manifest, Manifest).case_ids
        return {case: json.loads((self.private / TASK / case / "boxes.json").read_text())["boxes"] for case in cases}


def make_site(folder: Path) -> Site:
    """Stage the detection task from the demo's excerpt."""
    site = Site(folder)
    stage_cases(CARD, RAW, site.public, site.private, site.manifest, excerpt=True)
    return site


# --- the models -------------------------------------------------------------------------------------------------


def _bash(*programs: str, content: str = "") -> ScriptedTurn:
    calls = [CodeStep(tool="execute_code", language="bash", code=program) for program in programs]
    return ScriptedTurn(content=content, calls=calls)


_SUBMIT = ScriptedTurn(calls=[SubmitStep(tool="submit_results", summary="as planned")])
_PLAN = _bash(
    "mkdir -p plan\ncat > plan/plan.md <<'END'\n# Plan\n1. Preprocessing: normalise the image.\n2. Model: a detector "
    "with its checkpoint; candidates were YOLO, Faster R-CNN and RetinaNet, YOLO is chosen.\n3. Inference on every "
    "image.\n4. Export the boxes as JSON.\nEND\ncat plan/plan.md",
    content="First a plan.",
)
_LOOK = _bash(
    "python3 -c \"import os, glob; p = sorted(glob.glob(os.environ['DATA_DIR'] + '/*/image.png'))[0]; "
    "d = open(p, 'rb').read(); print('size', int.from_bytes(d[16:20], 'big'), int.from_bytes(d[20:24], 'big'), "
    "'mode', d[25], 'min', min(d), 'max', max(d))\""
)
_CHECK = _bash(
    "python3 -c \"import json, glob; f = sorted(glob.glob('agents_outputs/*/prediction.json')); "
    "b = [json.load(open(p))['boxes'] for p in f]; assert all(x['x1'] < x['x2'] for y in b for x in y); "
    "print(len(f), 'files checked')\""
)
_PEEK = _bash("cat /data/private/answers.json")


def _boxes(boxes: Sequence[Mapping[str, Any]]) -> str:
    corners = ("x1", "y1", "x2", "y2")
    return json.dumps(
        {"boxes": [{"class": b["class"], "score": 0.9} | {key: b[key] for key in corners} for b in boxes]}
    )


def _write(outputs: Mapping[str, str]) -> str:
    return "\n".join(
        f"mkdir -p agents_outputs/{case}\ncat > agents_outputs/{case}/prediction.json <<'END'\n{text}\nEND"
        for case, text in outputs.items()
    )


def characters(site: Site) -> dict[str, list[ScriptedTurn]]:
    """Models by name: good ones, bad ones, and one for each way in which a run can end."""
    truth = {case: _boxes(boxes) for case, boxes in site.truth().items()}
    cases = list(truth)
    first = _bash(_write({cases[0]: truth[cases[0]]}))
    everything = _bash(_write(truth))
    half = {case: truth[case] for case in cases[: len(cases) // 2]}
    broken = truth | {cases[1]: '{"boxes": [', cases[2]: _boxes([]), cases[3]: truth[cases[3]].replace("rbc", "cell")}
    pairs = [cases[start : start + 2] for start in range(0, len(cases), 2)]
    long_talk = _bash("seq 1 400; echo a reading of the log >&2")
    return {
        "snoop": [everything, _PEEK, _PEEK, _SUBMIT],
        "careful": [_PLAN, _LOOK, first, _CHECK, everything, _CHECK, _SUBMIT],
        "hasty": [everything, _SUBMIT],
        "half": [_PLAN, _bash(_write(half)), _SUBMIT, _SUBMIT],
        "sloppy": [_PLAN, _LOOK, _bash(_write(broken)), _SUBMIT],
        "piecemeal": [
            *(_bash(*(_write({case: truth[case]}) for case in pair)) for pair in pairs),
            _SUBMIT,
        ],
        "talker": [_PLAN, *[long_talk] * 12, everything, _CHECK, _SUBMIT],
        "silent": [_PLAN, everything, ScriptedTurn(content="All is done.")],
        "idle": [ScriptedTurn(content="I would begin with a plan.")],
    }


def _agent(name: str, url: str, speech: Speech) -> Agent:
    # The talker's window is small, so that its conversation is shortened on the way.
    window = 9_000 if name == "talker" else 200_000
    return Agent(
        provider="openai",
        model=name,
        base_url=url,
        api_key_env=KEY_NAME,
        context_tokens=window,
        max_tokens=1024,
        request_timeout_s=REQUEST_TIMEOUT_S,
        protocol=speech.protocol,
        stream=speech.stream,
    )


# --- one run ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Speech:
    """How the driver speaks with the endpoint."""

    protocol: ProtocolName = "chat"
    stream: bool = False


CHAT = Speech()


@dataclass(frozen=True)
class Order:
    """One run: the model that plays, its number, the endpoint; with an image, its code runs in containers."""

    site: Site
    character: str
    repeat: int
    url: str
    results: Path
    image: Path | None = None
    speech: Speech = CHAT


Kind = tuple[str, bool]
"""Character, and whether its code runs in containers."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to. ``scores`` is all that stands on the leaderboard but time and money."""

    character: str
    repeat: int
    contained: bool
    outcome: str
    detail: str
    turns: int
    scores: dict[str, Any]
    starts: int
    retry_s: float
    attempts: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0

    @property
    def kind(self) -> Kind:
        """Runs of one kind are the same but for the faults: what a run opens is seen in containers only."""
        return self.character, self.contained


def play(order: Order) -> Outcome:
    """Run, collect, audit, judge, score. What an endpoint's fault stops is started again, as a person would."""
    began = time.monotonic()
    plan = plan_of(
        order.site, order.character, order.repeat, order.url, order.results, order.image, speech=order.speech
    )
    if order.image is not None:
        _warm_up(order)
        starts = as_user(lambda: _start_until_done(plan, None))
    else:
        starts = _start_until_done(plan, local_sandbox)
    score, record = _score(order, plan.folder)
    return Outcome(
        character=order.character,
        repeat=order.repeat,
        contained=order.image is not None,
        outcome=record.outcome,
        detail=record.detail,
        turns=record.totals.turns,
        scores=_comparable(score),
        starts=starts,
        retry_s=record.totals.api_retry_s,
        attempts=_attempts(plan.folder),
        wall_s=time.monotonic() - began,
    )


def plan_of(
    site: Site,
    character: str,
    repeat: int,
    url: str,
    results: Path,
    image: Path | None = None,
    *,
    speech: Speech = CHAT,
) -> RunPlan:
    """A run of a model that answers at ``url``."""
    run = RunId(agent=character, task=TASK, tier="standard", repeat=repeat)
    return RunPlan(
        run=run,
        card=load_card(CARD),
        manifest=read_record(site.manifest, Manifest),
        agent=_agent(character, url, speech),
        limits=Limits(),
        sandbox=SandboxConfig(),
        public=site.public,
        folder=results / "runs" / run.path,
        prompts=ROOT / "config/prompts",
        image=image,
        results=results,
    )


def run_quietly(plan: RunPlan, open_sandbox: Any = None) -> None:
    """One start of a run; raises InfrastructureError like it."""
    # A key of its own tells the server whose conversation it is.
    os.environ[KEY_NAME] = f"key-of-{plan.run.agent}-{plan.run.repeat}"
    run_agent(plan, open_model=_opener(plan.results or plan.folder), open_sandbox=open_sandbox, say=lambda _text: None)


def _start_until_done(plan: RunPlan, open_sandbox: Any) -> int:
    """Start the run until it has a result; returns how often that was."""
    for start in range(1, MAX_STARTS):
        with contextlib.suppress(InfrastructureError):
            run_quietly(plan, open_sandbox)
            return start
    run_quietly(plan, open_sandbox)
    return MAX_STARTS


def _opener(results: Path) -> Callable[..., EndpointModel]:
    """The real client with the real pacer; only their pauses are short."""

    def open_model(
        plan: RunPlan, keys: tuple[str, ...], on_send: Callable[[], None], on_attempt: Callable[[Any], None], _: Any
    ) -> EndpointModel:
        return EndpointModel(
            plan.agent, keys, on_send=on_send, on_attempt=on_attempt, shared=results / "endpoints", sleep=_nap
        )

    return open_model


_warm: list[bool] = []


def _warm_up(order: Order) -> None:
    """Load every module that a run needs: the containers' user may not read root's Python."""
    if not _warm and os.geteuid() == 0:
        with ScriptedServer([_SUBMIT, _SUBMIT], keep=False) as server:
            place = order.results.parent / f"warm-{os.getpid()}"
            _start_until_done(plan_of(order.site, "hasty", 1, server.url, place), local_sandbox)
    _warm.append(True)


def _nap(seconds: float) -> None:
    time.sleep(seconds * HURRY)


@contextlib.contextmanager
def local_sandbox(plan: RunPlan, attempt: Any, log: Any, *_: Any) -> Iterator[LocalSandbox]:
    """Without isolation, which only scripts as harmless as these may have."""
    with LocalSandbox(public=plan.public / TASK, workspace=attempt.workspace) as sandbox:
        yield sandbox


# --- its score --------------------------------------------------------------------------------------------------


def _score(order: Order, folder: Path) -> tuple[ScoreRecord, RunRecord]:
    campaign = _campaign_of(order)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        for step in (collect_submission, audit_run, score_metrics, score_judge, score_run):
            step(campaign, folder)
    return read_record(folder / "score.json", ScoreRecord), read_record(folder / "run.json", RunRecord)


def _campaign_of(order: Order) -> CampaignRecord:
    """Settings of the steps that score: the local sandbox, one warning, rules for a judge."""
    site = order.site
    data = {"raw": site.folder, "public": site.public, "private": site.private, "manifests": site.manifest.parent}
    settings = CampaignConfig.model_validate(
        {
            "matrix": {"agents": ["storm"], "tasks": [TASK]},
            "data": {name: str(path) for name, path in data.items()},
            "results": str(order.results),
            "sandbox": {"backend": "local"},
        }
    )
    return CampaignRecord(settings=settings, cards={TASK: str(CARD)}, datasets={})


def _comparable(score: ScoreRecord) -> dict[str, Any]:
    """Everything of a score but who, how long, how expensive, and what the sandbox enforced."""
    return score.model_dump(mode="json", exclude={"run", "totals", "used", "enforced", "recipe", "sources"})


def _attempts(folder: Path) -> Counter[str]:
    """Attempts of requests by class, from the event log."""
    lines = (folder / "log/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return Counter(event["class"] for event in events if event["type"] == "api_attempt")


# --- what the server saw ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """How often a fault was given, and after how many of them the same turn went on."""

    injected: int
    recovered: int


def tallies(exchanges: Sequence[Any]) -> dict[str, Tally]:
    """By fault: a harmless one is recovered by itself, others when the conversation got a later usable answer."""
    last_good: dict[str, int] = {}
    for exchange in exchanges:
        if not exchange.fault or exchange.fault in HARMLESS:
            last_good[exchange.conversation] = exchange.number
    injected, recovered = Counter[str](), Counter[str]()
    for exchange in exchanges:
        if exchange.fault:
            injected[exchange.fault] += 1
            recovered[exchange.fault] += last_good.get(exchange.conversation, 0) >= exchange.number
    order = [kind for kind in (*TRANSIENT, *OF_STREAMS, *FINAL, *HARMLESS) if kind in injected]
    return {kind: Tally(injected[kind], recovered[kind]) for kind in order}
