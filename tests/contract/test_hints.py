"""Hints of the tiers: every route is used and whole, its code parses, its packages are pinned; no remark on sources.

Rendered as runs of the research image get them: behind the proxy, with a GPU.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator

import pytest
from test_briefs import BASE, CARDS, HUB, PROMPTS, ROOT, card_of, render

from automedbench.agent.plan import HINTED, list_requirements
from automedbench.base.cards import TaskCard
from automedbench.base.records import TIERS, Tier
from automedbench.reading.injection import AgentText, find_injections

SETTING = BASE | {"network": "proxied", "gpu": 1, "hub": HUB}
SEALED = BASE | {"network": "sealed", "provider": "command"}
LITE = PROMPTS / "hints/lite"
ROUTES = sorted(path.name for path in LITE.iterdir())
LITE_BYTES = (4000, 6144)
"""S1 to S3 of a lite route together: 4 to 6 kB, as the public benchmark has them (issue 14)."""
STANDARD_BYTES = (2000, 3500)
BENCHMARK = [path for path in CARDS if not card_of(str(path)).demo]


@functools.cache
def briefs() -> list[tuple[str, Tier, str]]:
    """Card, tier and text of all of them."""
    return [
        (card.id, tier, render(card, tier, setting).system)
        for card in cards()
        for tier in card.tiers
        for setting in (SETTING, SEALED)
    ]


def cards() -> list[TaskCard]:
    return [card_of(str(path)) for path in BENCHMARK]


def hints(text: str) -> dict[str, str]:
    """Stage → hint."""
    found = re.findall(r"### Hint for (S\d)\n\n(.*?)(?=\n\n## S\d |\n\n# Submission)", text, flags=re.DOTALL)
    return dict(found)


def test_every_lite_card_has_a_route_and_every_route_a_card() -> None:
    routes = {card.id: card.briefs.route for card in cards() if "lite" in card.tiers}
    assert [task for task, route in routes.items() if route not in ROUTES] == []
    used = {card.briefs.route for card in cards()}
    assert set(ROUTES) == used and {path.name for path in (PROMPTS / "hints/standard").iterdir()} == {
        card.track for card in cards()
    }


def test_a_tier_has_its_hints_and_no_others() -> None:
    wrong = [
        (task, tier, list(hints(text)))
        for task, tier, text in briefs()
        if [*hints(text)] != [stage.upper() for stage in HINTED[tier]]
    ]
    assert wrong == []


@pytest.mark.parametrize(("tier", "bounds"), [("lite", LITE_BYTES), ("standard", STANDARD_BYTES)])
def test_sizes(tier: Tier, bounds: tuple[int, int]) -> None:
    sizes = {
        card.id: sum(len(hint.encode()) for hint in hints(render(card, tier, SETTING).system).values())
        for card in cards()
        if tier in card.tiers
    }
    assert {task: size for task, size in sizes.items() if not bounds[0] <= size <= bounds[1]} == {}


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and code of every fenced block of the hints."""
    for hint in hints(text).values():
        assert hint.count("```") % 2 == 0
        yield from re.findall(r"^```(\w+)\n(.*?)^```$", hint, flags=re.DOTALL | re.MULTILINE)


def test_code_parses() -> None:
    """Python by its own parser, Bash by ``bash -n``; here-documents of Python too."""
    python: dict[str, str] = {}
    bash: dict[str, str] = {}
    for task, tier, text in briefs():
        for language, code in blocks(text):
            assert language in ("python", "bash"), (task, tier, language)
            (python if language == "python" else bash)[code] = f"{task} {tier}"
    for code, where in list(bash.items()):
        python |= dict.fromkeys(re.findall(r"<<'PY'\n(.*?)\nPY\n", code, flags=re.DOTALL), where)
    assert len(python) > 100 and len(bash) > 20
    problems = [f"{where}: {problem}" for code, where in python.items() if (problem := _wrong(code))]
    together = "\n".join(f"f{number}() {{\n{code}\n}}" for number, code in enumerate(bash))
    checked = subprocess.run(["bash", "-n"], input=together, capture_output=True, text=True, check=False)
    assert problems == [] and checked.returncode == 0, checked.stderr


def test_code_addresses_no_judge() -> None:
    """An agent that copies it gets no finding."""
    every = {block: task for task, _, text in briefs() for block in blocks(text)}
    for (_, code), task in every.items():
        assert not find_injections([AgentText("code", 1, code)]), (task, code[:80])


def _wrong(code: str) -> str | None:
    try:
        ast.parse(code)
    except SyntaxError as error:
        return str(error)
    return None


PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==(\d[\w.]*)")
OWN_ENVIRONMENT = {
    "chexagent": "transformers",
    "cxrmate": "transformers",
    "konfai-synthrad": "torch",
    "llava-med": "transformers",
    "medformer": "torch",
    "nnunet-msd": "torch",
    "nnunet-panther": "nnunetv2",
    "raidionics": "onnxruntime",
}
"""Routes that cannot work in the image's Python → the package that it has in another version, or not at all."""


def pins(text: str) -> dict[str, str]:
    """Package, named as the index does (PEP 503) → version; every line must be a pin, and no package twice."""
    found = [PIN.fullmatch(line) for line in text.splitlines()]
    assert all(found) and found, text
    versions = {re.sub(r"[-_.]+", "-", each[1]).lower(): each[2] for each in found if each}
    assert len(versions) == len(found)
    return versions


def test_requirements_agree_with_the_research_image() -> None:
    """Every lite card: pip changes nothing in the image's Python; a route with other versions has its own."""
    image = pins((ROOT / "envs/research.txt").read_text())
    wrong = {}
    for card in (each for each in cards() if "lite" in each.tiers):
        asked = pins(list_requirements(PROMPTS, card))
        differing = {name: (asked[name], image.get(name)) for name in asked if asked[name] != image.get(name)}
        own = OWN_ENVIRONMENT.get(str(card.briefs.route))
        text = render(card, "lite", SETTING).system
        makes_one = "python3 -m venv env && env/bin/python -m pip install" in text
        beside = "pip install --user" in text or "--system-site-packages" in text
        if (own in differing) != makes_one or (differing and beside) or (own is None and differing):
            wrong[card.id] = (own, differing)
    assert wrong == {}
    assert set(OWN_ENVIRONMENT) <= set(ROUTES)


REMARKS = (
    r"not settled|(?:not|un)published|is not known|unverified|provisional|provenance|proposal|gallery|release packages?"
    r"|website|\bApril\b|the reference used|upstream|open question|\bthe paper\b|netdisk|seed\b.*gallery"
)
"""Words that speak about where the benchmark's facts come from; they belong into open_questions and provenance."""


def test_no_remark_on_sources_reaches_an_agent() -> None:
    """All cards and tiers; nor does any sentence of a card's notes for people, comments included."""
    said = [
        (task, tier, text[max(0, found.start() - 40) : found.end() + 20])
        for task, tier, text in briefs()
        for found in re.finditer(REMARKS, text, flags=re.IGNORECASE)
    ]
    assert said == []
    notes = {
        card.id: [*card.open_questions, card.dataset.how_to_get, card.dataset.layout, card.staging.sampling.rule]
        for card in cards()
    }
    comments = {
        card_of(str(path)).id: [line.split("# ", 1)[1] for line in path.read_text().splitlines() if "# " in line]
        for path in BENCHMARK
    }
    leaked = [
        (task, tier, note)
        for task, tier, text in briefs()
        for note in [*notes[task], *comments[task]]
        if len(note) > 30 and note in text
    ]
    assert leaked == []


def test_tiers_are_three_texts() -> None:
    """Each lower tier is longer by more than the help that it gives."""
    for card in cards():
        texts = {tier: render(card, tier, SETTING).system for tier in card.tiers}
        if "lite" in texts:
            assert len(texts["lite"]) - len(texts["standard"]) > 1000, card.id
        if "pro" in texts:
            assert len(texts["standard"]) - len(texts["pro"]) > 1500, card.id
            assert card.briefs.lite_model is None or card.briefs.lite_model.name not in texts["pro"]
    assert set(TIERS) == set(HINTED)
