"""Each task of the benchmark has one public checkpoint for its lite tier, or says why it is not offered as lite."""

from __future__ import annotations

import functools
import re
import runpy
from pathlib import Path

import pytest
from test_briefs import BASE, HUB, render

from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.checkpoints import Checkpoint, Checkpoints, load_checkpoints
from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import load_yaml, validate
from automedbench.campaign.load import describe_missing_tier
from automedbench.datasets.fetchers import PLANNERS

ROOT = Path(__file__).resolve().parents[2]
ONLINE, FENCED = BASE | {"network": "proxied", "hub": HUB}, re.DOTALL | re.MULTILINE
HASHED = {"drunet", "yolov8m-bccd", "resnet18-kather100k", "blip-base", "swin2sr-x2", "llava-med"}
"""Those for which a public page gave a checksum, when the table was made."""


@functools.cache
def cards() -> dict[str, TaskCard]:
    return {path.stem: load_card(path) for path in find_cards([str(ROOT / "config/tasks")])}


@functools.cache
def table() -> dict[str, Checkpoint]:
    return load_checkpoints(ROOT / "config/checkpoints.yaml")


def test_every_task_has_one_or_says_why() -> None:
    """46 of 48; the two others lack the tier and give the reason, which a person reads in three lines."""
    named = {task for each in table().values() for task in each.tasks}
    lite = {name for name, card in cards().items() if "lite" in card.tiers}
    without = set(cards()) - lite
    assert (named, len(cards())) == (lite, 48)
    assert without == {"panther-t1-seg-task", "vindr-cxr-det-task"}
    assert all(cards()[name].briefs.lite_model is None for name in without)
    for name in without:
        head, why, what = describe_missing_tier(cards()[name], "lite").splitlines()
        assert head == f"task '{name}' has no tier 'lite'."
        assert why == " ".join(cards()[name].briefs.no_lite.split())
        assert what.startswith("Ask for standard or pro; matrix.exclude: ")


def test_briefs_name_the_checkpoint() -> None:
    """The model that an agent reads of is the one in the table."""
    wrong = []
    for name, each in table().items():
        places = [part.where for part in each.parts] + [part.where.removesuffix("/files") for part in each.parts]
        if name == "plaincnn-ctsr":
            places = ["Roldbach/autoencoder_ct_3d_super_resolution"]
        for task in each.tasks:
            model = cards()[task].briefs.lite_model
            told = " ".join(((model.reference if model else "") or "").split())
            wrong += [] if any(place in told for place in places) else [f"{task}: '{told}' does not name {places}"]
    assert wrong == []


BESIDE = {
    *("https://github.com/MrGiovanni/R-Super.git", "https://github.com/vboussot/Synthrad2025_Task_1.git"),
    "https://github.com/microsoft/LLaVA-Med.git",
}
"""Programs that run a checkpoint."""
OF_ITSELF = {"totalsegmentator": "totalseg_download_weights"}
"""Checkpoint → the command of its own package that fetches it."""
PLACES = re.compile(
    r"""https://(?:github\.com|zenodo\.org|raw\.githubusercontent\.com)/[^\s"'`?]+"""
    r"""|(?:(?:hf_hub_download|snapshot_download|from_pretrained)\(\s*|repo(?:, revision)? = )["'][\w-]+/[\w.-]+["']"""
)


def test_hints_have_one_true_route() -> None:
    """What the code of a lite brief downloads is the task's checkpoint and nothing else."""
    wrong = []
    for name, each in table().items():
        known = [re.sub("/files$", "", part.where) for part in each.parts]
        for task in each.tasks:
            code = "\n".join(re.findall(r"^```\w+\n(.*?)^```$", render(cards()[task], "lite", ONLINE).system, FENCED))
            places = {place.replace("/api/", "/") for place in PLACES.findall(code)} - BESIDE
            wrong += [(task, place) for place in places if not any(where in place for where in known)]
            if not places and OF_ITSELF.get(name, "?") not in code:
                wrong.append((task, "downloads nothing of its checkpoint"))
    assert wrong == []


def test_what_is_not_known_is_an_open_question() -> None:
    """Every fact has a source, a missing one stands among the open questions, and no checksum came from nowhere."""
    wrong = []
    for name, each in table().items():
        files = [told for part in each.parts for told in part.downloads]
        weights = [told for told in files if re.search(r"\.(pt|pth|bin|zip|safetensors)$", told.name)]
        text = " ".join(each.open_questions)
        for missing, words in (
            (any(part.revision is None for part in each.parts), "revision"),
            (any(told.bytes is None for told in weights) or not weights, "size"),
            (any(told.checksum is None for told in weights) or not weights, "checksum|SHA-256"),
            ("not stated" in each.licence and "ultralytics" not in each.licence, "licence|revision|checksum"),
        ):
            wrong += [f"{name}: open_questions lack {words}"] if missing and not re.search(words, text) else []
        hashed = any(told.checksum for told in files)
        if hashed != (name in HASHED) or (hashed and "checksum" not in " ".join(each.provenance)):
            wrong.append(f"{name}: a checksum needs a source")
    assert wrong == []


def test_kinds_can_be_fetched() -> None:
    assert {PLANNERS[part.kind].__name__ for each in table().values() for part in each.parts} == {
        "plan_huggingface",
        "plan_url",
    }


def test_a_task_has_one_checkpoint() -> None:
    data = load_yaml(ROOT / "config/checkpoints.yaml")
    data["checkpoints"]["blip-base"]["tasks"] += ["heart-seg-task"]
    with pytest.raises(ConfigError, match="two checkpoints for heart-seg-task"):
        validate(data, Checkpoints, "x")


def test_page_is_current() -> None:
    """After a change, of a brief as well: ``python docs/make_tiers.py docs/tasks.md``."""
    updated = runpy.run_path(str(ROOT / "docs/make_tiers.py"))["updated"]
    page = (ROOT / "docs/tasks.md").read_text("utf-8")
    assert updated(page, ROOT) == page
    with pytest.raises(ValueError, match="brief sizes: begin"):
        updated("# Tasks", ROOT)
