"""Every card renders in every tier and setting: nothing unresolved, the real limits, no rule that nobody enforces."""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from factories import ROOT, make_brief_plan

from automedbench.agent import plan as plan_module
from automedbench.agent.loop import MAX_IDLE
from automedbench.agent.plan import Brief, RunPlan, compose_brief
from automedbench.agent.tools import TOOL_NAMES
from automedbench.base.cards import Limits, TaskCard, find_cards, load_card
from automedbench.base.effects import NO_EFFECT
from automedbench.base.records import TIERS, Tier
from automedbench.base.untrusted.table import Bounds
from automedbench.campaign.config import HubToken
from automedbench.campaign.treatments import Difference
from automedbench.metrics.average_precision import RECALL_POINTS
from automedbench.metrics.chexbert import LABELS
from automedbench.metrics.image_quality import SIGMA, WINDOW
from automedbench.scoring.run import AGENTIC_WEIGHTS
from automedbench.tracks.classification.check import MAX_UNKNOWN_SHARE
from automedbench.tracks.common.affines import TOLERANCE_VOXELS
from automedbench.tracks.report_generation.settings import ReportSettings
from automedbench.tracks.vqa.check import MAX_ANSWER_BYTES, MAX_RAW_BYTES
from automedbench.tracks.vqa.score import MAX_EXCERPT

PROMPTS = ROOT / "config/prompts"
CARDS = find_cards([str(ROOT / "config/tasks")])

ALL_SET = Limits(
    time_limit_s=1234,
    max_turns=77,
    exec_timeout_s=55,
    max_total_tokens=98765,
    max_cost_usd=3.5,
    disk_gb=12,
    mem_gb=21,
    max_processes=333,
)
ALL_LIMITS = {
    "usual": Limits(),
    "all": ALL_SET,
    "none": Limits.model_validate(dict.fromkeys(Limits.model_fields)),
}
TOLD = {
    "time_limit_s": "Time: 1234 s of wall clock",
    "max_turns": "Turns: 77.",
    "exec_timeout_s": "One code call: 55 s",
    "max_total_tokens": "Tokens: 98765 in all",
    "max_cost_usd": "Cost: 3.5 USD",
    "disk_gb": "Disk: 12 GB",
    "mem_gb": "Memory: 21 GB",
    "max_processes": "Processes and threads: 333",
}
"""How each limit of ALL_SET stands in the brief."""
NOT_FOR_COMMANDS = {"exec_timeout_s"}

HUB, TOKEN = "https://huggingface.co", HubToken(api_key_env="HF_TOKEN", models=["google/gemma"])
BASE: dict[str, Any] = {"allow": ["code.example", "*.weights.example"], "max_tokens": 8191}
SETTINGS = [
    BASE
    | {"network": network, "gpu": int(gpu), "limits": limits, "max_warnings": warnings, "hub": HUB if gpu else None}
    | tools
    for network in ("sealed", "proxied", "open")
    for tools in ({}, {"native_tools": False}, {"provider": "command"})
    for gpu, warnings in ((False, 1), (True, 0), (False, 3))
    for limits in ALL_LIMITS.values()
]
FROM_CACHE = BASE | {"offline": True, "models": ["org/model"], "packages": ["a-package"]}
READ = FROM_CACHE | {"network": "proxied", "hub": HUB, "open_tls": True, "tokens": [TOKEN]}
SETTINGS += [each | {"limits": limits} for each in (FROM_CACHE, READ) for limits in ALL_LIMITS.values()]
PAIRS = [27 * a + 9 * b + 3 * ((-a - b) % 3) + (b - a) % 3 for a in range(3) for b in range(3)]
SOME_SETTINGS = [*(SETTINGS[number] for number in PAIRS), *SETTINGS[81:]]
"""Any value of one part of a setting meets each of another's: an orthogonal array of the four parts above."""


@functools.cache
def card_of(path: str) -> TaskCard:
    return load_card(Path(path))


@functools.cache
def firsts_of_tracks() -> frozenset[Path]:
    return frozenset({card_of(str(path)).track: path for path in reversed(CARDS)}.values())


def plan_of(card: TaskCard, tier: Tier, setting: dict[str, Any] = BASE, n_cases: int = 3) -> RunPlan:
    cases = [f"{card.staging.case_prefix}_{number:04d}" for number in range(1, n_cases + 1)]
    return make_brief_plan(card, cases, tier, **setting)


def render(card: TaskCard, tier: Tier, setting: dict[str, Any] = BASE, n_cases: int = 3) -> Brief:
    return compose_brief(plan_of(card, tier, setting, n_cases))


def test_there_are_cards() -> None:
    """Of every track that has words of its own."""
    tracks = {card_of(path).track for path in map(str, CARDS)}
    assert {path.stem for path in (PROMPTS / "tracks").glob("[!_]*.md")} <= tracks


def test_every_limit_is_checked_here() -> None:
    """A new limit of a run must be told, and this test must know how."""
    assert set(TOLD) == set(Limits.model_fields)
    assert all(value is not None for value in ALL_SET.model_dump().values())


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_brief(path: Path, tier: Tier) -> None:
    """In every network class, with every way to call tools, with and without GPU, limits and warnings.

    Every setting with the first card of each track, some with the others.
    """
    card = card_of(str(path))
    if tier not in card.tiers:
        pytest.skip(f"{card.id} has no tier {tier}")
    texts = set()
    settings = SETTINGS if path in firsts_of_tracks() else SOME_SETTINGS
    for setting in settings:
        texts.add(assert_brief(plan_of(card, tier, setting)))
    assert len(texts) == len(settings)  # nothing that was varied is without words


@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_brief_of_a_track_without_words(path: Path) -> None:
    """Every card says enough by itself."""
    card = card_of(str(path)).model_copy(update={"track": "a_new_track"})
    assert_brief(plan_of(card, card.tiers[0]))


def assert_brief(plan: RunPlan) -> str:
    """Complete, true, and nothing private; returns the text."""
    brief, card, limits, sandbox = compose_brief(plan), plan.card, plan.limits, plan.sandbox
    egress, command, proxied = sandbox.egress, plan.agent.provider == "command", sandbox.network == "proxied"
    text = brief.markdown

    # No placeholder, no template syntax, no stray backslash at a line's end survives; no lines run into one another.
    assert not re.search(r"\{\{|\}\}|\{%|%\}|Undefined|\\\n", brief.system)
    prose = re.sub(r"```.*?```|`[^`\n]+`", "", brief.system, flags=re.DOTALL)
    assert not re.search(r"\{[a-z_]+\}|\bNone\b|\bTrue\b|\bFalse\b", prose)
    assert not re.search(r"[a-z][.!?:]- |\n\n\n| \n", text)

    # What is enforced is told, and nothing else.
    numbered = set(re.findall(r"(?m)^- ([^:\n]+): \d", brief.system))
    for name, told in TOLD.items():
        mine = limits is ALL_SET and not (command and name in NOT_FOR_COMMANDS)
        assert (told in brief.system) == mine, name
        if getattr(limits, name) is None:
            assert told.removeprefix("- ").split(":")[0] not in numbered, name
    assert ("8191 tokens" in brief.system) != command
    assert ("code has no network" in text) == (sandbox.network == "sealed")
    assert all((host in text) == proxied for host in egress.allow)
    assert ("models of the Hugging Face hub come" in text) == (proxied and egress.hub is not None)
    assert all((name in text) == egress.offline for name in (*egress.models, *egress.packages))
    assert ("A GPU is visible" in text) == (sandbox.gpu > 0)

    # One way to work, and only that one.
    assert all((f"`{tool}" in text) != command for tool in TOOL_NAMES)
    assert ("<invoke" in text) == (not plan.agent.native_tools and not command)
    assert ("OPENAI_BASE_URL" in text) == ("exit code 0" in text) == command
    assert bool(brief.execute_description) != command

    # Paths and contract, with an example each.
    example = f"{card.staging.case_prefix}_0001"
    for output in [path for path, each in card.expected_outputs([example]).items() if not each.optional]:
        assert f"/workspace/agents_outputs/{output}" in brief.system
    for file in card.inputs:
        assert file.file in brief.system
    assert "/workspace/plan/plan.md" in brief.system

    # Nothing private: no place of the data set's files, and no path of the machine.
    assert not any(source.where in text for source in card.dataset.sources if "/" in source.where)
    assert not [path for path in re.findall(r"(?<![\w.~*/<>:)])/[a-z][\w./-]*", text) if not path.startswith(PLACES)]
    return text


PLACES = (
    "/data/public",
    "/data/private",
    "/workspace",
    "/tmp",
    "/etc/shadow",
    "/dev/shm",
    "/parameter",
    "/invoke",
    "/image",
)
"""Absolute paths that a brief may name: they exist in the container, or are forbidden there (and closing tags)."""


# --- canary ---------------------------------------------------------------------------------------------------

CANARY = (ROOT / "config/prompts/canary.md").read_text(encoding="utf-8").partition("Canary: ")[2].strip()
"""By which a training corpus can be searched for cards and briefs (docs/decisions.md)."""


@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_cards_and_briefs_hold_the_canary(path: Path) -> None:
    assert re.fullmatch(r"automedbench [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", CANARY)
    assert CANARY in path.read_text(encoding="utf-8")
    card = card_of(str(path))
    assert all(CANARY in render(card, tier, setting).system for tier in card.tiers for setting in SOME_SETTINGS)


# --- wordings ---------------------------------------------------------------------------------------------------


def facts(text: str) -> list[str]:
    """Numbers, names in backquotes, stages, and what is looked at, in any order."""
    looked = re.findall(r"\*Looked at:\* .*", text)
    return sorted([*re.findall(r"\d+(?:\.\d+)?", text), *re.findall(r"`[^`\n]+`", text), *looked])


@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_both_wordings_say_the_same(path: Path) -> None:
    """The same facts in every tier and setting, in other words."""
    card = card_of(str(path))
    for tier, setting in itertools.product(card.tiers, SOME_SETTINGS):
        first, second = (
            render(card, tier, setting | {"treatment": of}).markdown for of in (None, Difference(wording=2))
        )
        assert first != second
        assert facts(first) == facts(second), (tier, setting)


# --- numbers --------------------------------------------------------------------------------------------------

HARNESS = {
    *(f"{100 * weight:g}" for weight in AGENTIC_WEIGHTS.values()),
    *re.findall(r"\d+", str(list(plan_module._CONSTANTS.values()))),
    f"{NO_EFFECT['S4']:g}",
    "0", "1",  # bounds of scores and labels, exit code
    "2", "3", "4", "5",  # S1 to S5
    "8191", "429", "403", "404", "443", "80",  # reply limit of the setting; a used-up limit, a refused request; ports
}  # fmt: skip
OF_TRACK = {
    "detection": {f"{RECALL_POINTS}"},
    "classification": {
        *f"{Bounds.rows:,}".split(","), f"{Bounds.columns}", *f"{Bounds.cell_chars:,}".split(","),
        f"{100 * MAX_UNKNOWN_SHARE:g}",
    },
    "enhancement": {f"{WINDOW}", f"{SIGMA:g}", "16", "32", "64"},  # widths of float types
    "report_generation": {
        f"{ReportSettings().min_chars}", f"{ReportSettings().max_chars}", f"{ReportSettings().min_alpha_chars}",
        f"{len(ReportSettings().components)}", f"{len(LABELS)}",
    },
    "segmentation": {"0.5"},  # threshold of masks
    "synthesis": {f"{TOLERANCE_VOXELS:g}", "1000", "16", "32", "4095"},  # HU of air, widths of types, data range
    "vqa": {f"{MAX_ANSWER_BYTES // 1024}", f"{MAX_RAW_BYTES // 1024}", f"{MAX_EXCERPT}", "20"},  # 100 × filler_share
}  # fmt: skip


@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_every_number_has_an_origin(path: Path) -> None:
    """The card, the limits, or a constant of the code that enforces it. Examples in fences are free."""
    card = card_of(str(path))
    of_card = set(re.findall(r"\d+(?:\.\d+)?", card.model_dump_json()))
    of_card |= {f"{output.max_bytes // 10**6}" for output in card.outputs}  # MB
    values = ("1234", "77", "55", "98765", "3.5", "12", "21", "333", "3", "0001", "0002", "0003")
    known = of_card | HARNESS | OF_TRACK[card.track] | set(values)
    hintless = card.model_copy(update={"briefs": card.briefs.model_copy(update={"route": None})})
    for tier, setting in itertools.product(card.tiers, SOME_SETTINGS):
        if setting["limits"] is ALL_SET:
            text = re.sub(
                r"### Hint for .*?(?=\n## |\n# )", "", render(hintless, tier, setting).markdown, flags=re.DOTALL
            )
            text = re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace(CANARY, "")
            text = re.sub(r"[A-Za-z*]+\d+(?:\.\d+)?|@\d+(?:\.\d+)?", "", text)  # S1, BLEU-1, mAP@0.5: names
            assert set(re.findall(r"\d+(?:\.\d+)?", text)) <= known


# --- words ----------------------------------------------------------------------------------------------------

OWN_WORDS = {
    "segmentation": ("Dice", "single-file NIfTI"),
    "enhancement": ("enhanced.npy", "PSNR"),
    "vqa": ("answer.json", "predicted_answer"),
    "report_generation": ("report.txt", "ROUGE"),
    "detection": ("mAP@", '"boxes"', "IoU"),
    "classification": ("predictions.csv", "patient_id", "accuracy"),
    "synthesis": ("sct.nii.gz",),
}
"""What belongs to one track's contract and would mislead in another's."""


@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_words(path: Path) -> None:
    """One word for one thing (docs/specification.md, 1); no word of another track's contract; a readable length."""
    card = card_of(str(path))
    assert card.track in OWN_WORDS
    for tier in card.tiers:
        text = render(card, tier, BASE | {"limits": ALL_SET, "native_tools": False}, n_cases=50).markdown
        assert not re.search(r"(?i)\b(job|trial|sample|experiment|gold|ground[- ]truth|harness error)s?\b", text)
        for track, words in OWN_WORDS.items():
            assert all(word in text for word in words) or track != card.track
            assert not [word for word in words if word in text and track != card.track]
        # About 4 500 tokens (lite: 6 000): 2 to 3 % of a usual window, sent with every request.
        assert len(text) < (24_000 if tier == "lite" else 20_000)


def test_consequences_of_the_loop() -> None:
    """Numbers that the texts say as words."""
    assert MAX_IDLE == 2  # "a second one in a row"


# --- claims ---------------------------------------------------------------------------------------------------

CLAIMS = {
    r"Text that speaks to whoever judges the run": "sandbox.evidence.audit:judge_findings",
    # what stands in a line of tools, sandbox, network, limits and submission → who makes it true
    r"`execute_code\(language, code\)` runs": "agent.tools:tool_specs",
    r"Each stream comes back with its first 2 KiB and its last 8 KiB": "sandbox.container.process:HEAD_BYTES",
    r"`submit_results\(summary\)` declares": "agent.tools:SUBMIT",
    r"Every call is a fresh process": "sandbox.container.runner:start_program",
    r"All calls run in one container": "sandbox.boxes:Sandbox",
    r"`wait\(seconds, process\)` waits": "agent.tools:WaitRequest",
    r"Calls of one reply run one after the other": "agent.loop:AgentLoop",
    r"Code in a fenced block is not executed": "agent.tools:FORMAT_FENCE",
    r"a call may run a second time": "agent.tools:INTERRUPTED",
    r"Messages that start with `\[BUDGET\]`": "agent.budget.limits:Budget.notice",
    r"at most 4 per reply": "agent.tools:MAX_CALLS",
    r"`<invoke name=\"submit_results\">": "agent.tools:recover_calls",
    r"bring your own tools": "agent.run:run_agent",
    r"You run once, in": "agent.command.loop:CommandLoop",
    r"Your model answers at `\$OPENAI_BASE_URL`": "agent.command.bridge:Bridge",
    r"`/data/public` to read, `/workspace` to read and write": "sandbox.container.launcher:agent_command",
    r"Network class \*sealed\*: your code has no network": "sandbox.container.launcher:agent_command",
    r"your code has no network. Models and packages come from a store": "sandbox.egress.cache:Cache",
    r"Network class \*proxied\*: your code has the loopback": "sandbox.egress:Egress",
    r"The proxy reads requests to GitHub": "sandbox.egress.authority:__file__",
    r"answer from a store alone; what it does not hold .* 404": "sandbox.egress.cache:Cache",
    r"gated models other than google/gemma": "sandbox.egress.mirror:_find_token",
    r"Public models of the Hugging Face hub come through": "sandbox.egress:Egress",
    r"Every request is recorded. Downloads count": "sandbox.egress:Egress",
    r"A request to the home of this task's data set.* 1 MiB.*labels disqualifies": "sandbox.egress:Egress",
    r"Network class \*open\*": "sandbox.container.launcher:agent_command",
    r"The reference answers, .* are not in there": "sandbox.container.launcher:agent_command",
    r"Code that opens `/data/private`.*namespaces": "sandbox.evidence.decoy:Decoy",
    r"Opening files in `/data/private`": "sandbox.evidence.decoy:Decoy",
    r"Training: .* end (the call|your program)": "sandbox.boxes:HOOK",
    r"A link, pipe, socket or device where an output": "sandbox.evidence.audit:submission_findings",
    r"You have \d+ warnings?, and the next": "sandbox.evidence.audit:Strikes",
    r"clear violations? (is|are) put down as (a warning|warnings)": "sandbox.evidence.audit:Strikes",
    r"The first clear violation ends the run": "sandbox.evidence.audit:Strikes",
    r"Time: 1234 s of wall clock": "agent.budget.limits:Budget.check_time",
    r"One code call: 55 s": "agent.budget.limits:Budget.exec_timeout_s",
    r"Turns: 77": "agent.budget.limits:Budget.check_limits",
    r"Reply: 8191 tokens": "agent.loop:MAX_LENGTH_STOPS",
    r"Tokens: 98765": "agent.budget.limits:Budget.check_limits",
    r"Cost: 3.5 USD": "agent.budget.limits:Budget.check_limits",
    r"Disk: 12 GB": "agent.budget.limits:Budget.check_disk",
    r"Memory: 21 GB": "sandbox.container.watchdog:__file__",
    r"Processes and threads: 333": "sandbox.container.process:default_limits",
    r"When a limit is reached, the model answers": "agent.command.bridge:Bridge",
    r"When a limit ends the run, the files": "sandbox.airlock.collector:collect",
    r"`submit_results` ends the run and is final": "agent.toolbox:Toolbox._submit",
    r"End with exit code 0": "agent.command.loop:CommandLoop",
    r"Only regular files under exactly these names": "sandbox.airlock.collector:read_beneath",
}


def rules_in(text: str) -> list[str]:
    """Lines of a brief that promise or forbid something."""
    parts = {part.splitlines()[0]: part.splitlines()[1:] for part in re.split(r"(?m)^# ", text) if part.strip()}
    wanted = ("Your tools", "How you work", "Rules of the sandbox", "Limits of this run", "Submission")
    found = [line for title, lines in parts.items() if title in wanted for line in lines]
    outside = re.sub(r"```.*?```", "", "\n".join(found), flags=re.DOTALL).splitlines()
    return [line for line in outside if line.strip() and not line.endswith(":")]


@pytest.mark.parametrize("setting", SETTINGS[1::3], ids=range(len(SETTINGS[1::3])))
def test_every_rule_is_enforced(setting: dict[str, Any]) -> None:
    """Each line that states a rule is a claim below, and every claim names the code that makes it true."""
    assert setting["limits"] is ALL_SET
    lines = rules_in(render(card_of(str(CARDS[0])), "lite", setting).system)
    assert len(lines) > 8
    assert [line for line in lines if not any(re.search(claim, line) for claim in CLAIMS)] == []


def test_every_claim_is_made_somewhere() -> None:
    """The list holds no rule that no brief states any more."""
    text = "\n".join(render(card_of(str(CARDS[0])), "lite", setting).system for setting in SETTINGS)
    assert [claim for claim in CLAIMS if not re.search(claim, text)] == []


@pytest.mark.parametrize("place", sorted(set(CLAIMS.values())))
def test_what_enforces_exists(place: str) -> None:
    module, names = place.split(":")
    found: object = importlib.import_module(f"automedbench.{module}")
    for name in names.split("."):
        found = getattr(found, name)
    assert found
