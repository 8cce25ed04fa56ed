"""The brief of one task: it states what holds in this run, and nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from factories import make_brief_plan, vary_plan

from automedbench.agent.plan import Brief, compose_brief, compose_common_brief
from automedbench.base.cards import Limits, TaskCard, load_card
from automedbench.base.errors import ConfigError
from automedbench.base.records import TIERS, Tier
from automedbench.campaign.config import HubToken
from automedbench.campaign.treatments import Difference
from automedbench.sandbox.container.image import ImageRecord

HUB = "https://huggingface.co"
CASES = [f"bccd_{number:04d}" for number in range(1, 17)]


@pytest.fixture(scope="module")
def card(root: Path) -> TaskCard:
    return load_card(root / "config/tasks/detection/bccd-det-task.yaml")


def render(card: TaskCard, tier: Tier = "lite", cases: list[str] = CASES, **changes: Any) -> Brief:
    return compose_brief(make_brief_plan(card, cases, tier, **changes))


def test_blocks_stand_in_the_order_of_the_specification(card: TaskCard) -> None:
    """docs/specification.md, 8.7."""
    text = render(card).system
    headings = [
        "# Your role", "# Your tools", "# Rules of the sandbox", "# The task", "# The data", "# The output contract",
        "# The environment", "# Limits of this run", "## S1", "## S2", "## S3", "## S4", "## S5", "# Submission",
        "# What counts",
    ]  # fmt: skip
    places = [text.index(f"{heading} ") if heading.startswith("## S") else text.index(heading) for heading in headings]
    assert places == sorted(places)


HOLDS = ImageRecord(
    flavour="research",
    recipe="0",
    base="debian:12-slim",
    system="Debian GNU/Linux 12",
    python="3.11.2",
    cuda="13.2",
    named=["monai", "numpy"],
    packages={"monai": "1.6.1", "numpy": "2.4.6", "requests": "2.34.2", "six": "1.17.0"},
    tools=["curl", "git"],
)


def test_what_is_promised_is_what_the_image_holds(card: TaskCard) -> None:
    """Named packages with versions, tools, and programs that know the proxy; of an unknown image only Python's own."""
    unknown, known = (render(card, network="proxied", holds=holds).system for holds in (None, HOLDS))
    assert "Python 3.11.2. Installed with the libraries of CUDA 13.2: monai 1.6.1, numpy 2.4.6;" in known
    assert "Programs: curl, git." in known
    assert "`pip`, `urllib`, `requests`, `curl`, `git` use them" in known
    assert "six" not in known
    assert "`pip`, `urllib` use them by themselves. The" in unknown
    assert "curl" not in unknown


SAID = {
    "time": ({}, "3600 s of wall clock"),
    "own time limit": ({"limits": Limits(time_limit_s=90)}, "90 s of wall clock"),
    "turns": ({}, "Turns: 150."),
    "limit per call": ({"limits": Limits(exec_timeout_s=600)}, "One code call: 600 s"),
    "tokens": ({"limits": Limits(max_total_tokens=12345)}, "Tokens: 12345"),
    "cost": ({"limits": Limits(max_cost_usd=2.5)}, "Cost: 2.5 USD"),
    "disk": ({}, "Disk: 100 GB"),
    "memory": ({"limits": Limits(mem_gb=12.5)}, "Memory: 12.5 GB for all processes of one code call"),
    "processes": ({}, "Processes and threads: 4096 in one code call"),
    "proxied": ({"network": "proxied", "allow": ["a.example"]}, "with the package index, a.example, and"),
    "proxied without hosts": ({"network": "proxied"}, "with the package index, and refuses all else"),
    "hub": ({"network": "proxied", "hub": HUB}, "come through `HF_ENDPOINT`"),
    "hub at its own address": (
        {"network": "proxied", "hub": HUB, "open_tls": True},
        "https://huggingface.co itself serves their files too. Data sets, Spaces, uploads and gated models are refused",
    ),
    "opened TLS": ({"network": "proxied", "open_tls": True}, "reads requests to GitHub and Zenodo, which"),
    "gated models": (
        {"network": "proxied", "hub": HUB, "tokens": [HubToken(api_key_env="T", models=["google/*"])]},
        "gated models other than google/* are refused",
    ),
    "program: end": ({"provider": "command"}, "End with exit code 0"),
    "program: model": ({"provider": "command"}, "at `$OPENAI_BASE_URL`"),
    "program: memory": ({"provider": "command"}, "Memory: 64 GB for all your processes"),
    "program: one warning": ({"provider": "command"}, "A first clear violation is put down as a warning"),
    "reply": ({}, "Reply: 8192 tokens"),
    "sealed": ({}, "has no network"),
    "sealed, from the cache": (
        {"offline": True, "models": ["org/model", "alpha==1.0"]},
        "answered with status 404. Among what it holds: org/model, alpha==1.0.",
    ),
    "sealed, packages": ({"offline": True}, "pip install --user"),
    "proxied, from the cache": ({"network": "proxied", "offline": True}, "answer from a store alone"),
    "open": ({"network": "open"}, "may reach the internet"),
    "GPU": ({"gpu": 1}, "A GPU is visible"),
    "no GPU": ({}, "There is no GPU"),
    "warnings": ({}, "You have 1 warning, and the next clear violation"),
    "three warnings": ({"max_warnings": 3}, "You have 3 warnings, and the next"),
    "no warnings": ({"max_warnings": 0}, "The first clear violation ends the run"),
    "tools in text": ({"native_tools": False}, '<invoke name="execute_code">'),
    "data folder": ({}, "`/data/public/bccd_0001/`"),
    "outputs": ({}, "`/workspace/agents_outputs/bccd_0001/prediction.json`"),
    "variables": ({}, "`DATA_DIR` and `WORKSPACE`"),
    "cases are named": ({}, "bccd_0016"),
    "lite names the model": ({}, "YOLOv8m fine-tuned on BCCD"),
}


@pytest.mark.parametrize(("changes", "said"), SAID.values(), ids=SAID.keys())
def test_the_brief_says(card: TaskCard, changes: dict[str, Any], said: str) -> None:
    assert said in render(card, **changes).system


UNLIMITED = {"limits": Limits(time_limit_s=None, max_turns=None, disk_gb=None)}
UNSAID = {
    "no limit of tokens": ({}, "Tokens:"),
    "no limit of cost": ({}, "Cost:"),
    "no limit of turns": (UNLIMITED, "Turns:"),
    "no limit of time": (UNLIMITED, "wall clock"),
    "no limit of disk": (UNLIMITED, "Disk:"),
    "installing without network": ({}, "pip install"),
    "dialect for models with tools": ({}, "<invoke"),
    "hub without mirror": ({"network": "proxied"}, "HF_ENDPOINT"),
    "hosts of another network": ({"allow": ["a.example"], "hub": HUB}, "a.example"),
    "program: our tools": ({"provider": "command"}, "execute_code"),
    "program: one call": ({"provider": "command", "limits": Limits(exec_timeout_s=600)}, "One code call"),
    "program: warnings": ({"provider": "command"}, "[SANDBOX]"),
}


@pytest.mark.parametrize(("changes", "unsaid"), UNSAID.values(), ids=UNSAID.keys())
def test_the_brief_does_not_say(card: TaskCard, changes: dict[str, Any], unsaid: str) -> None:
    assert unsaid not in render(card, **changes).system


@pytest.mark.parametrize(
    ("tier", "model", "candidates", "background"),
    [("lite", True, False, False), ("standard", False, True, False), ("pro", False, False, True)],
)
def test_tiers_differ(card: TaskCard, tier: Tier, model: bool, candidates: bool, background: bool) -> None:
    text = render(card, tier).system
    assert (card.briefs.lite_model.name in text) == model
    assert (card.briefs.standard_candidates[0] in text) == candidates
    assert (card.briefs.background in text) == background


def test_calibration_is_named_where_it_is(root: Path, tmp_path: Path) -> None:
    """By the card before staging; afterwards only when files lie there: an excerpt may have none to spare."""
    slake, rad = (load_card(root / f"config/tasks/vqa/{name}.yaml") for name in ("slake-task", "vqa-rad-task"))
    staged = tmp_path / "slake-task"

    def is_told(card: TaskCard) -> bool:
        text = render(card, cases=["a_0001"], public=tmp_path).system
        return "`/data/public/calibration/` holds further questions" in text

    assert (is_told(slake), is_told(rad)) == (True, False)
    (staged / "a_0001").mkdir(parents=True)
    (staged / "a_0001/question.json").write_text("{}")
    (staged / "calibration/calibration_0001").mkdir(parents=True)
    assert not is_told(slake)
    (staged / "calibration/calibration_0001/answer.json").write_text("{}")
    assert is_told(slake)


def test_many_cases_are_not_listed(card: TaskCard) -> None:
    cases = [f"bccd_{number:04d}" for number in range(1, 52)]
    text = render(card, cases=cases).system
    assert "bccd_0051" not in text
    assert "There are 51 cases" in text


def test_hints_stand_behind_their_stage(card: TaskCard) -> None:
    """Three in lite, two in standard, none in pro or for a card without route; a route's folder must be whole."""
    found = {tier: re.findall(r"(?m)^## (S\d) |^### Hint for (S\d)$", render(card, tier).system) for tier in TIERS}
    hinted = {tier: [hint for _, hint in pairs if hint] for tier, pairs in found.items()}
    assert hinted == {"lite": ["S1", "S2", "S3"], "standard": ["S1", "S3"], "pro": []}
    order = [stage or hint for stage, hint in found["lite"]]
    assert order == ["S1", "S1", "S2", "S2", "S3", "S3", "S4", "S5"]
    assert "pip install" not in render(card).system  # it is sealed
    assert "pip install" in render(card, network="proxied").system

    without = card.model_copy(update={"briefs": card.briefs.model_copy(update={"route": None})})
    assert "### Hint" not in render(without).system and not render(without).given
    lost = card.model_copy(update={"briefs": card.briefs.model_copy(update={"route": "nowhere"})})
    with pytest.raises(ConfigError, match=r"hints/lite/nowhere/S1\.md: file does not exist"):
        render(lost)


def test_requirements_are_a_file_and_a_part_of_the_text(root: Path, card: TaskCard) -> None:
    """Lite only; in the digest, so that a raised pin is another brief."""
    brief = render(card)
    pins = (root / "config/prompts/hints/lite/yolo/requirements.txt").read_text()
    assert brief.given == {"requirements.txt": pins} and pins in brief.markdown
    assert "/workspace/requirements.txt" in brief.system
    for tier in ("standard", "pro"):
        assert not render(card, tier).given and "requirements.txt" not in render(card, tier).markdown


def test_digest_is_of_the_whole_text(card: TaskCard) -> None:
    digests = {
        render(card).sha256,
        render(card, "standard").sha256,
        render(card, limits=Limits(exec_timeout_s=5)).sha256,
    }
    assert len(digests) == 3
    assert render(card).sha256 == render(card).sha256


def test_problems_of_blocks(root: Path, card: TaskCard, tmp_path: Path) -> None:
    prompts = shutil.copytree(root / "config/prompts", tmp_path / "prompts")
    (prompts / "task.md").write_text("{{ unknown }}")
    with pytest.raises(ConfigError, match=r"task\.md: 'unknown' is undefined"):
        render(card, prompts=prompts)
    (prompts / "task.md").write_text("{% if %}")
    with pytest.raises(ConfigError, match=r"task\.md: "):
        render(card, prompts=prompts)
    (prompts / "task.md").unlink()
    with pytest.raises(ConfigError, match=r"task\.md: file does not exist"):
        render(card, prompts=prompts)


def test_track_without_a_fragment(root: Path, card: TaskCard, tmp_path: Path) -> None:
    """The contract as the card states it: files, names, metric and its settings."""
    prompts = shutil.copytree(root / "config/prompts", tmp_path / "prompts")
    (prompts / "tracks/detection.md").unlink()
    text = render(card, prompts=prompts).system
    contract = text[text.index("# The output contract") : text.index("# The environment")]
    for said in (
        "`/data/public/bccd_0001/image.png`",
        "`/workspace/agents_outputs/<case>/prediction.json`, one for each case (json): boxes of one image",
        "- `wbc`: white blood cell\n",
        "The metric is `map50` with iou_threshold = 0.5, max_detections = 100.",
        "every one of the 16 cases",
    ):
        assert said in contract
    assert "101 recall points" not in text
    (prompts / "tracks/_default.md").unlink()
    with pytest.raises(ConfigError, match=r"tracks/_default\.md: file does not exist"):
        render(card, prompts=prompts)


def test_fragment_without_targets_and_settings(card: TaskCard) -> None:
    """No empty list, no `with` without anything behind it."""
    metric = card.metric.model_copy(update={"settings": {}})
    plain = card.model_copy(update={"track": "eighth", "targets": [], "metric": metric})
    text = render(plain).system
    assert "by the names to use" not in text
    assert "The metric is `map50`. The task score" in text


@pytest.mark.parametrize("treatment", [None, Difference(wording=2)])
def test_the_effect_of_the_case_is_told_where_it_counts(card: TaskCard, treatment: Difference | None) -> None:
    """A rule that changes no score is none."""
    counted, shown = (render(card, treatment=treatment, effects=rule).system for rule in ("counted", "shown_only"))
    told = [line for line in counted.splitlines() if line not in shown.splitlines()]
    assert len(told) == 1 and "answers of other cases" in told[0] and "0.3 in S4" in told[0]


def test_a_text_stands_at_the_end_of_the_brief_alone(card: TaskCard) -> None:
    """What all agents are told stays the same, so that a variant and its base have the brief in common."""
    plan = make_brief_plan(card, CASES)
    variant = vary_plan(plan, treatment=Difference(text="Check every output twice.\n"))
    assert compose_brief(variant).system == f"{compose_brief(plan).system}\n\nCheck every output twice."
    assert compose_common_brief(variant) == compose_common_brief(plan)
