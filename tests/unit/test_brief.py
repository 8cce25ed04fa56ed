"""The brief of one task: it states what holds in this run, and nothing else."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from run_fakes import make_plan

from automedbench.agent.plan import Brief, Setting, compose_brief, list_extra_folders, write_brief
from automedbench.base.cards import Limits, TaskCard, load_card
from automedbench.base.errors import ConfigError
from automedbench.base.records import TIERS, Tier
from automedbench.sandbox.container.image import ImageRecord

SETTING = Setting(
    data_dir="/data/public",
    workspace_dir="/workspace",
    network="sealed",
    gpu=False,
    limits=Limits(),
    max_warnings=1,
    reply_tokens=8192,
)
CASES = [f"bccd_{number:04d}" for number in range(1, 17)]


@pytest.fixture(scope="module")
def card(root: Path) -> TaskCard:
    return load_card(root / "config/tasks/detection/bccd-det-task.yaml")


def render(
    root: Path, card: TaskCard, tier: Tier = "lite", setting: Setting = SETTING, cases: list[str] = CASES
) -> Brief:
    return write_brief(root / "config/prompts", card, tier, cases, setting)


def test_blocks_stand_in_the_order_of_the_specification(root: Path, card: TaskCard) -> None:
    """docs/specification.md, 8.7."""
    text = render(root, card).system
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


def test_what_is_promised_is_what_the_image_holds(root: Path, card: TaskCard) -> None:
    """Named packages with versions, tools, and programs that know the proxy; of an unknown image only Python's own."""
    proxied = replace(SETTING, network="proxied")
    unknown, known = (
        render(root, card, setting=setting).system for setting in (proxied, replace(proxied, holds=HOLDS))
    )
    assert "Python 3.11.2. Installed with the libraries of CUDA 13.2: monai 1.6.1, numpy 2.4.6;" in known
    assert "Programs: curl, git." in known
    assert "`pip`, `urllib`, `requests`, `curl`, `git` use them" in known
    assert "six" not in known
    assert "`pip`, `urllib` use them by themselves. The" in unknown
    assert "curl" not in unknown


SAID = {
    "time": (SETTING, "3600 s of wall clock"),
    "own time limit": (replace(SETTING, limits=Limits(time_limit_s=90)), "90 s of wall clock"),
    "turns": (SETTING, "Turns: 150."),
    "limit per call": (replace(SETTING, limits=Limits(exec_timeout_s=600)), "One code call: 600 s"),
    "tokens": (replace(SETTING, limits=Limits(max_total_tokens=12345)), "Tokens: 12345"),
    "cost": (replace(SETTING, limits=Limits(max_cost_usd=2.5)), "Cost: 2.5 USD"),
    "disk": (SETTING, "Disk: 100 GB"),
    "memory": (replace(SETTING, limits=Limits(mem_gb=12.5)), "Memory: 12.5 GB for all processes of one code call"),
    "processes": (SETTING, "Processes and threads: 4096 in one code call"),
    "proxied": (replace(SETTING, network="proxied", hosts=("a.example",)), "with the package index, a.example, and"),
    "proxied without hosts": (replace(SETTING, network="proxied"), "with the package index, and refuses all else"),
    "hub": (replace(SETTING, network="proxied", hub=True), "come through `HF_ENDPOINT`"),
    "hub at its own address": (
        replace(SETTING, network="proxied", hub=True, open_tls=True),
        "https://huggingface.co itself serves their files too. Data sets, Spaces, uploads and gated models are refused",
    ),
    "opened TLS": (replace(SETTING, network="proxied", open_tls=True), "reads requests to GitHub and Zenodo, which"),
    "gated models": (
        replace(SETTING, network="proxied", hub=True, gated=("google/*",)),
        "gated models other than google/* are refused",
    ),
    "program: end": (replace(SETTING, command=True), "End with exit code 0"),
    "program: model": (replace(SETTING, command=True), "at `$OPENAI_BASE_URL`"),
    "program: memory": (replace(SETTING, command=True), "Memory: 64 GB for all your processes"),
    "program: one warning": (replace(SETTING, command=True), "A first clear violation is put down as a warning"),
    "reply": (SETTING, "Reply: 8192 tokens"),
    "sealed": (SETTING, "has no network"),
    "sealed, from the cache": (
        replace(SETTING, network="sealed_cache", stored=("org/model", "alpha==1.0")),
        "answered with status 404. Among what it holds: org/model, alpha==1.0.",
    ),
    "sealed, packages": (replace(SETTING, network="sealed_cache"), "pip install --user"),
    "proxied, from the cache": (replace(SETTING, network="proxied", offline=True), "answer from a store alone"),
    "open": (replace(SETTING, network="open"), "may reach the internet"),
    "GPU": (replace(SETTING, gpu=True), "A GPU is visible"),
    "no GPU": (SETTING, "There is no GPU"),
    "warnings": (SETTING, "You have 1 warning, and the next clear violation"),
    "three warnings": (replace(SETTING, max_warnings=3), "You have 3 warnings, and the next"),
    "no warnings": (replace(SETTING, max_warnings=0), "The first clear violation ends the run"),
    "tools in text": (replace(SETTING, native_tools=False), '<invoke name="execute_code">'),
    "data folder": (SETTING, "`/data/public/bccd_0001/`"),
    "outputs": (SETTING, "`/workspace/agents_outputs/bccd_0001/prediction.json`"),
    "variables": (SETTING, "`DATA_DIR` and `WORKSPACE`"),
    "cases are named": (SETTING, "bccd_0016"),
    "lite names the model": (SETTING, "YOLOv8m fine-tuned on BCCD"),
}


@pytest.mark.parametrize(("setting", "said"), SAID.values(), ids=SAID.keys())
def test_the_brief_says(root: Path, card: TaskCard, setting: Setting, said: str) -> None:
    assert said in render(root, card, setting=setting).system


UNLIMITED = replace(
    SETTING,
    limits=Limits(time_limit_s=None, max_turns=None, disk_gb=None),
)
UNSAID = {
    "no limit of tokens": (SETTING, "Tokens:"),
    "no limit of cost": (SETTING, "Cost:"),
    "no limit of turns": (UNLIMITED, "Turns:"),
    "no limit of time": (UNLIMITED, "wall clock"),
    "no limit of disk": (UNLIMITED, "Disk:"),
    "installing without network": (SETTING, "pip install"),
    "dialect for models with tools": (SETTING, "<invoke"),
    "hub without mirror": (replace(SETTING, network="proxied"), "HF_ENDPOINT"),
    "hosts of another network": (replace(SETTING, hosts=("a.example",), hub=True), "a.example"),
    "program: our tools": (replace(SETTING, command=True), "execute_code"),
    "program: one call": (replace(SETTING, command=True, limits=Limits(exec_timeout_s=600)), "One code call"),
    "program: warnings": (replace(SETTING, command=True), "[SANDBOX]"),
}


@pytest.mark.parametrize(("setting", "unsaid"), UNSAID.values(), ids=UNSAID.keys())
def test_the_brief_does_not_say(root: Path, card: TaskCard, setting: Setting, unsaid: str) -> None:
    assert unsaid not in render(root, card, setting=setting).system


@pytest.mark.parametrize(
    ("tier", "model", "candidates", "background"),
    [("lite", True, False, False), ("standard", False, True, False), ("pro", False, False, True)],
)
def test_tiers_differ(root: Path, card: TaskCard, tier: Tier, model: bool, candidates: bool, background: bool) -> None:
    text = render(root, card, tier).system
    assert (card.briefs.lite_model.name in text) == model
    assert (card.briefs.standard_candidates[0] in text) == candidates
    assert (card.briefs.background in text) == background


def test_calibration_is_named_where_it_is(root: Path, tmp_path: Path) -> None:
    """By the card before staging; afterwards only when files lie there: an excerpt may have none to spare."""
    slake = load_card(root / "config/tasks/vqa/slake-task.yaml")
    rad = load_card(root / "config/tasks/vqa/vqa-rad-task.yaml")
    named = "`/data/public/calibration/` holds further questions"

    def told(card: TaskCard, beside: frozenset[str] | None) -> bool:
        return named in render(root, card, setting=replace(SETTING, beside=beside), cases=["a_0001"]).system

    assert (told(slake, None), told(rad, None)) == (True, False)
    assert told(slake, frozenset({"calibration"}))
    assert not told(slake, frozenset())
    (tmp_path / "a_0001").mkdir()
    (tmp_path / "a_0001/question.json").write_text("{}")
    (tmp_path / "calibration/empty").mkdir(parents=True)
    assert list_extra_folders(tmp_path / "none", ["a_0001"]) is None
    assert list_extra_folders(tmp_path, ["a_0001"]) == frozenset()
    (tmp_path / "calibration/empty/question.json").write_text("{}")
    assert list_extra_folders(tmp_path, ["a_0001"]) == {"calibration"}


def test_the_brief_of_a_run_looks_at_what_is_staged(root: Path, tmp_path: Path) -> None:
    plan = make_plan(tmp_path, root)
    plan = replace(plan, card=load_card(root / "config/tasks/vqa/slake-task.yaml"))
    assert "/calibration/" in compose_brief(plan).system  # before staging the card tells
    (plan.public / "slake-task/calibration/calibration_0001").mkdir(parents=True)
    assert "/calibration/" not in compose_brief(plan).system
    (plan.public / "slake-task/calibration/calibration_0001/answer.json").write_text("{}")
    assert "/calibration/" in compose_brief(plan).system


def test_many_cases_are_not_listed(root: Path, card: TaskCard) -> None:
    cases = [f"bccd_{number:04d}" for number in range(1, 52)]
    text = render(root, card, cases=cases).system
    assert "bccd_0051" not in text
    assert "There are 51 cases" in text


def test_hints_stand_behind_their_stage(root: Path, card: TaskCard) -> None:
    """Three in lite, two in standard, none in pro or for a card without route; a route's folder must be whole."""
    found = {
        tier: re.findall(r"(?m)^## (S\d) |^### Hint for (S\d)$", render(root, card, tier).system) for tier in TIERS
    }
    hinted = {tier: [hint for _, hint in pairs if hint] for tier, pairs in found.items()}
    assert hinted == {"lite": ["S1", "S2", "S3"], "standard": ["S1", "S3"], "pro": []}
    order = [stage or hint for stage, hint in found["lite"]]
    assert order == ["S1", "S1", "S2", "S2", "S3", "S3", "S4", "S5"]
    assert "pip install" not in render(root, card).system  # SETTING is sealed
    assert "pip install" in render(root, card, setting=replace(SETTING, network="proxied")).system

    without = card.model_copy(update={"briefs": card.briefs.model_copy(update={"route": None})})
    assert "### Hint" not in render(root, without).system and not render(root, without).given
    lost = card.model_copy(update={"briefs": card.briefs.model_copy(update={"route": "nowhere"})})
    with pytest.raises(ConfigError, match=r"hints/lite/nowhere/S1\.md: file does not exist"):
        render(root, lost)


def test_requirements_are_a_file_and_a_part_of_the_text(root: Path, card: TaskCard) -> None:
    """Lite only; in the digest, so that a raised pin is another brief."""
    brief = render(root, card)
    pins = (root / "config/prompts/hints/lite/yolo/requirements.txt").read_text()
    assert brief.given == {"requirements.txt": pins} and pins in brief.markdown
    assert "/workspace/requirements.txt" in brief.system
    for tier in ("standard", "pro"):
        assert not render(root, card, tier).given and "requirements.txt" not in render(root, card, tier).markdown


def test_digest_is_of_the_whole_text(root: Path, card: TaskCard) -> None:
    digests = {
        render(root, card).sha256,
        render(root, card, "standard").sha256,
        render(root, card, setting=replace(SETTING, limits=Limits(exec_timeout_s=5))).sha256,
    }
    assert len(digests) == 3
    assert render(root, card).sha256 == render(root, card).sha256


def test_problems_of_blocks(root: Path, card: TaskCard, tmp_path: Path) -> None:
    prompts = shutil.copytree(root / "config/prompts", tmp_path / "prompts")
    (prompts / "task.md").write_text("{{ unknown }}")
    with pytest.raises(ConfigError, match=r"task\.md: 'unknown' is undefined"):
        write_brief(prompts, card, "lite", CASES, SETTING)
    (prompts / "task.md").write_text("{% if %}")
    with pytest.raises(ConfigError, match=r"task\.md: "):
        write_brief(prompts, card, "lite", CASES, SETTING)
    (prompts / "task.md").unlink()
    with pytest.raises(ConfigError, match=r"task\.md: file does not exist"):
        write_brief(prompts, card, "lite", CASES, SETTING)


def test_track_without_a_fragment(root: Path, card: TaskCard, tmp_path: Path) -> None:
    """The contract as the card states it: files, names, metric and its settings."""
    prompts = shutil.copytree(root / "config/prompts", tmp_path / "prompts")
    (prompts / "tracks/detection.md").unlink()
    text = write_brief(prompts, card, "lite", CASES, SETTING).system
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
        write_brief(prompts, card, "lite", CASES, SETTING)


def test_fragment_without_targets_and_settings(root: Path, card: TaskCard) -> None:
    """No empty list, no `with` without anything behind it."""
    metric = card.metric.model_copy(update={"settings": {}})
    plain = card.model_copy(update={"track": "eighth", "targets": [], "metric": metric})
    text = render(root, plain).system
    assert "by the names to use" not in text
    assert "The metric is `map50`. The task score" in text
