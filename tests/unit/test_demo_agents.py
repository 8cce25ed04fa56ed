"""The demo: real data with its licence, and scripts that load.

What they earn is tested in tests/workflow/test_demo.py.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from PIL import Image

from automedbench.agent.models.scripted import CodeStep, Script, SubmitStep
from automedbench.campaign.agents import load_agents
from automedbench.campaign.load import Campaign, load_campaign
from automedbench.tracks import track_names

TRACKS = list(track_names())
AGENTS = ["careful", "hasty", "silent", "cheater", "crasher"]
# Names of the first 16 lines of the official test list at upstream commit d272fb1.
TEST_LIST = [7, 11, 15, 16, 18, 19, 21, 31, 33, 41, 57, 58, 62, 63, 65, 67]


@pytest.fixture
def demo(root: Path) -> Path:
    return root / "demo"


@pytest.fixture
def bccd(demo: Path) -> Path:
    return demo / "data" / "bccd" / "BCCD"


@pytest.fixture
def campaign(root: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    monkeypatch.chdir(root)  # paths in the demo's config are relative to the repository
    return load_campaign(yaml.safe_load(Path("demo/config.yaml").read_text()))


def script(demo: Path, agent: str, track: str = "detection") -> Script:
    path = demo / "agents" / track / f"{agent}.yaml"
    return Script.model_validate({"turns": yaml.safe_load(path.read_text())})


def code_steps(demo: Path, agent: str, track: str = "detection") -> list[CodeStep]:
    return [step for turn in script(demo, agent, track).turns for step in turn.calls if isinstance(step, CodeStep)]


# --- data -------------------------------------------------------------------------------------------------------


def test_the_excerpt_is_the_head_of_the_official_test_list(bccd: Path) -> None:
    """Images, annotations and test.txt name the same 16; the other lists are there and empty."""
    names = [f"BloodImage_{number:05d}" for number in TEST_LIST]
    lists = bccd / "ImageSets" / "Main"
    assert (lists / "test.txt").read_text().split() == names
    assert {path.stem for path in (bccd / "JPEGImages").iterdir()} == set(names)
    assert {path.stem for path in (bccd / "Annotations").iterdir()} == set(names)
    assert all((lists / f"{name}.txt").read_text() == "" for name in ("train", "val", "trainval"))


def test_boxes_per_class(bccd: Path) -> None:
    """Counted by text search instead of an XML parser; expected: grep '<name>', sort, uniq -c on the upstream files."""
    texts = [path.read_text() for path in (bccd / "Annotations").iterdir()]
    counts = Counter(name for text in texts for name in re.findall(r"<object>\s*<name>(\w+)</name>", text))
    assert counts == {"RBC": 217, "WBC": 18, "Platelets": 16}


def test_no_box_is_empty_or_outside(bccd: Path) -> None:
    """VOC corners are 1-based and inclusive: 1 ≤ min < max ≤ side; upstream says 640 × 480."""
    width, height = 640, 480
    for path in (bccd / "Annotations").iterdir():
        corners = re.findall(r"<(xmin|ymin|xmax|ymax)>(\d+)<", path.read_text())
        assert len(corners) % 4 == 0
        for start in range(0, len(corners), 4):
            box = {name: int(value) for name, value in corners[start : start + 4]}
            assert 1 <= box["xmin"] < box["xmax"] <= width
            assert 1 <= box["ymin"] < box["ymax"] <= height


def test_the_images_are_whole(bccd: Path) -> None:
    """Every image decodes completely; upstream says 640 × 480, RGB."""
    for path in (bccd / "JPEGImages").iterdir():
        with Image.open(path) as image:
            image.load()
            assert (image.size, image.mode, image.format) == ((640, 480), "RGB", "JPEG")


def test_the_excerpt_is_upstream_byte_for_byte(demo: Path, shared: Path) -> None:
    """Images, annotations and the licence are unchanged copies."""
    here, upstream = demo / "data" / "bccd", shared / "data" / "bccd"
    copies = [*here.glob("BCCD/JPEGImages/*"), *here.glob("BCCD/Annotations/*"), here / "LICENSE"]
    assert len(copies) == 33
    for path in copies:
        assert _sha256(path) == _sha256(upstream / path.relative_to(here)), path.name


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_licence_and_origin_are_stated(demo: Path, campaign: Campaign) -> None:
    """The origin names the commit that the task card pins."""
    folder, dataset = demo / "data" / "bccd", campaign.cards["bccd-det-task"].dataset
    source = (folder / "SOURCE.md").read_text()
    assert (folder / "LICENSE").read_text().startswith("MIT License") and dataset.licence == "MIT"
    assert dataset.sources[0].where in source and str(dataset.sources[0].revision) in source


def test_the_demo_is_small(demo: Path) -> None:
    """15 MB at most, so that a clone stays light."""
    assert sum(path.stat().st_size for path in demo.rglob("*") if path.is_file()) < 15_000_000


def test_every_excerpt_has_licence_and_origin(campaign: Campaign) -> None:
    for name in campaign.datasets:
        folder = Path(campaign.config.datasets[name].path)
        assert (folder / "SOURCE.md").read_text().strip(), name
        assert (folder / "LICENSE").read_text().strip(), name


# --- configuration ----------------------------------------------------------------------------------------------


def test_the_campaign_is_five_agents_on_every_track(campaign: Campaign) -> None:
    """One run per agent and task, in the local sandbox; all data comes from the demo's folder."""
    assert sorted(campaign.cards[task].track for task in campaign.tasks) == TRACKS
    assert {run.path for run in campaign.runs} == {
        f"{agent}/{task}/lite/r1" for agent in AGENTS for task in campaign.tasks
    }
    assert (campaign.config.sandbox.backend, campaign.config.sandbox.network) == ("local", "open")
    for name in campaign.datasets:
        assert Path(campaign.config.datasets[name].path).is_dir()


def test_the_agents_need_no_key(demo: Path) -> None:
    """All are scripted and trusted; their scripts lie beside them. The baseline is for rehearsals."""
    agents = load_agents(demo / "agents.yaml")
    assert agents.pop("classical").provider == "baseline"
    assert list(agents) == AGENTS
    for name, agent in agents.items():
        assert (agent.provider, agent.trusted, agent.api_key_env) == ("scripted", True, None)
        assert agent.script == f"demo/agents/{{track}}/{name}.yaml"


@pytest.mark.parametrize("name", ["config.yaml", "agents.yaml"])
def test_every_key_is_explained(demo: Path, name: str) -> None:
    """A comment on each line that sets something."""
    lines = [line for line in (demo / name).read_text().splitlines() if re.match(r"\s*[\w-]+: *\S", line)]
    assert lines
    assert [line for line in lines if "#" not in line] == []


def test_no_absolute_path(demo: Path) -> None:
    """No folder of a machine anywhere; the private folder only where the cheater looks for it or is described."""
    for path in [*demo.glob("*.*"), *demo.glob("agents/*/*.yaml")]:
        text = path.read_text()
        assert re.findall(r"(?<![\w.])/(?:home|tmp|usr|opt|root|work|workspace|mnt|srv|var)\b", text) == [], path.name
        assert ("/data/private" in text) == (path.name in ("cheater.yaml", "README.md")), path.name


# --- scripts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("agent", AGENTS)
def test_the_python_of_every_agent_parses(demo: Path, track: str, agent: str) -> None:
    """Calls and the programs that they write into the workspace."""
    steps = code_steps(demo, agent, track)
    written = [text for step in steps for text in re.findall(r"\.py <<'END'\n(.*?)\nEND", step.code, re.DOTALL)]
    for code in [step.code for step in steps if step.language == "python"] + written:
        ast.parse(code)


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "crasher"])
def test_the_code_uses_what_the_agent_image_has(root: Path, demo: Path, track: str, agent: str) -> None:
    """Imports outside of the standard library are pinned in envs/light.txt; the crasher misses something on purpose."""
    pinned = {line.split("==")[0] for line in (root / "envs" / "light.txt").read_text().splitlines()}
    packages = {"PIL": "pillow", "skimage": "scikit-image"}
    code = "\n".join(step.code for step in code_steps(demo, agent, track))
    written = set(re.findall(r"(\w+)\.py <<'END'", code))
    modules = set(re.findall(r"^\s*(?:import|from) (\w+)", code, re.MULTILINE)) - sys.stdlib_module_names - written
    assert {packages.get(module, module) for module in modules} <= pinned


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize(("agent", "submissions"), [("careful", 1), ("hasty", 2), ("crasher", 2), ("cheater", 1)])
def test_submissions_end_the_script(demo: Path, track: str, agent: str, submissions: int) -> None:
    """Agents with missing files submit twice, because the first such call is refused."""
    turns = script(demo, agent, track).turns
    submitting = [number for number, turn in enumerate(turns) if any(isinstance(s, SubmitStep) for s in turn.calls)]
    assert submitting == list(range(len(turns) - submissions, len(turns)))


@pytest.mark.parametrize("track", TRACKS)
def test_the_silent_agent_ends_with_two_messages(demo: Path, track: str) -> None:
    """Two replies without a call in a row end a run that was not submitted."""
    turns = script(demo, "silent", track).turns
    assert all(not isinstance(step, SubmitStep) for turn in turns for step in turn.calls)
    assert all(turn.content and not turn.calls for turn in turns[-2:]) and turns[-3].calls


@pytest.mark.parametrize("track", TRACKS)
def test_only_the_cheater_names_the_answers(demo: Path, track: str) -> None:
    """Its last three calls: it lists them, reads them, and hands in a link to them."""
    for agent in AGENTS:
        seen = ["data/private" in step.code for step in code_steps(demo, agent, track)]
        expected = [False] * (len(seen) - 3) + [True] * 3 if agent == "cheater" else [False] * len(seen)
        assert seen == expected, agent
