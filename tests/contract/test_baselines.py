"""Baselines: each runs on every track's toy, hands in what it says, and earns what can be worked out by hand."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from toys import enhancement as enhancement_toy
from toys import segmentation as segmentation_toy
from toys import synthesis as synthesis_toy
from toys._bench import Bench, stage

from automedbench.agent.models.model import ChatModel
from automedbench.agent.models.scripted import load_baseline
from automedbench.agent.tools import CodeRequest, SubmitRequest, read_call
from automedbench.agent.workspace import take_snapshot
from automedbench.base.cards import TaskCard, find_cards, load_card
from automedbench.base.records import CodeCall, DetailReport, Manifest, RunId, SubmissionRecord
from automedbench.campaign.agents import Agent
from automedbench.sandbox.boxes import LocalSandbox
from automedbench.steps.inside.check_workspace import check_workspace
from automedbench.tracks import track_names

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("constant", "empty", "classical")
CARDS = [load_card(path) for path in find_cards([str(ROOT / "config/tasks"), str(ROOT / "demo/tasks")])]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of baselines are relative to it."""
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    """Each toy, staged once."""
    staged: dict[str, Bench] = {}

    def get(track: str) -> Bench:
        if track not in staged:
            staged[track] = stage(track, tmp_path_factory.mktemp(track))
        return staged[track]

    return get


def baseline(name: str, card: TaskCard) -> tuple[ChatModel, Agent]:
    agent = Agent.model_validate({"provider": "baseline", "baseline": name, "trusted": True}).for_task(card)
    return load_baseline(agent, card), agent


def requests(name: str, card: TaskCard) -> list[list[CodeRequest | SubmitRequest]]:
    """What each turn asks for, until the model has nothing more to say."""
    model, _ = baseline(name, card)
    turns = []
    while (reply := model.reply([], [], 1.0)).calls:
        read = [read_call(call) for call in reply.calls]
        assert all(isinstance(request, (CodeRequest, SubmitRequest)) for request in read)
        turns.append([request for request in read if isinstance(request, (CodeRequest, SubmitRequest))])
    return turns


def run(name: str, card: TaskCard, public: Path, folder: Path) -> tuple[Path, list[CodeCall]]:
    """Execute a baseline's code as the loop does: the workspace that it leaves, and its calls."""
    workspace = folder / "workspace"
    workspace.mkdir(parents=True)
    calls: list[CodeCall] = []
    before = take_snapshot(workspace)
    codes = [request for turn in requests(name, card) for request in turn if isinstance(request, CodeRequest)]
    with LocalSandbox(public=public, workspace=workspace) as sandbox:
        for number, code in enumerate(codes, start=1):
            done = sandbox.run_code(
                code.language, code.code, call=number, turn=number, log=folder / "log", timeout_s=120
            )
            assert done.status == "ok", done.stderr
            now = take_snapshot(workspace)
            fields = done.model_dump(include={"status", "exit_code", "elapsed_s", "stdout", "stderr"})
            new = list(now.changes_since(before).changed)
            told = {"turn": number, "call": number, "language": code.language, "code": code.code, "new_files": new}
            calls.append(CodeCall.model_validate({**fields, **told, "stage": "S4"}))
            before = now
    return workspace, calls


@pytest.fixture(scope="module")
def worked(
    benches: Callable[[str], Bench], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], DetailReport]:
    """Each baseline on each toy, run once."""

    @functools.cache
    def get(track: str, name: str) -> DetailReport:
        bench, folder = benches(track), tmp_path_factory.mktemp(f"{track}-{name}")
        workspace, _ = run(name, bench.card, bench.public, folder)
        return bench.grade(bench.collect(workspace, folder), folder)

    return get


@dataclass(frozen=True)
class Earned:
    """What a baseline hands in and earns: status of every case, task score (None: only bounded)."""

    status: str
    score: float | None


# Worked out by hand from the toys.
#   detection: no box, a box of the whole 100×100 image (IoU ≤ 0.16 with cells of 30 and 40 pixels), no blob in an even
#     image: nothing is found.
#   segmentation: the block is x 3–9, y 2–7, z 2–6 (120 voxels), the liver x 1–7, y 1–6+n, z 1–6 in case n: Dice is
#     128/270, 160/300, 160/330, 160/360; spleen and aorta 0; the mean over three targets.
#   classification: one of four classes; brightness rises with the class, so equal groups are the classes.
#   vqa: a record without an answer says so and counts as none; of six questions "yes" answers one; the rules also find
#     half of "right upper lobe" (precision 1, recall 1/3).
LIVER = (128 / 270 + 160 / 300 + 160 / 330 + 160 / 360) / 4
EXPECTED = {
    ("detection", "constant"): Earned("valid", 0),
    ("detection", "empty"): Earned("valid", 0),
    ("detection", "classical"): Earned("valid", 0),
    ("segmentation", "constant"): Earned("valid", LIVER / 3),
    ("segmentation", "empty"): Earned("valid", 0),
    ("segmentation", "classical"): Earned("valid", None),
    ("classification", "constant"): Earned("valid", 1 / 4),
    ("classification", "empty"): Earned("missing", 0),
    ("classification", "classical"): Earned("valid", 1),
    ("vqa", "constant"): Earned("valid", 1 / 6),
    ("vqa", "empty"): Earned("malformed", 0),
    ("vqa", "classical"): Earned("valid", 1.5 / 6),
    ("enhancement", "constant"): Earned("valid", None),
    ("enhancement", "empty"): Earned("missing", 0),
    ("enhancement", "classical"): Earned("valid", None),
    ("synthesis", "constant"): Earned("valid", None),
    ("synthesis", "empty"): Earned("missing", 0),
    ("synthesis", "classical"): Earned("valid", None),
    ("report_generation", "constant"): Earned("valid", None),
    ("report_generation", "empty"): Earned("missing", 0),
    ("report_generation", "classical"): Earned("valid", None),
}


@pytest.mark.parametrize("track", track_names())
def test_constants_have_no_effect_of_their_case(worked: Callable[[str, str], DetailReport], track: str) -> None:
    """What is the same for every case is no better for its own; toys of four cases may leave it unclear."""
    assert worked(track, "constant").effect.verdict != "shown"


def test_every_track_has_its_baselines() -> None:
    found = {(path.parent.name, path.stem) for path in (ROOT / "config/baselines").glob("*/*.yaml")}
    assert found == {(track, name) for track in track_names() for name in NAMES} == set(EXPECTED)


@pytest.mark.parametrize(("track", "name"), EXPECTED, ids=["-".join(key) for key in EXPECTED])
def test_baseline_earns_what_it_should(
    benches: Callable[[str], Bench], worked: Callable[[str, str], DetailReport], track: str, name: str
) -> None:
    bench, expected, report = benches(track), EXPECTED[track, name], worked(track, name)
    assert {each.case: each.status for each in report.cases} == dict.fromkeys(bench.cases, expected.status)
    if expected.score is None:
        assert 0 <= report.task_score < bench.toy.CEILING
    else:
        assert report.task_score == pytest.approx(expected.score, abs=1e-6)


@pytest.mark.parametrize("track", ["enhancement", "synthesis"])
def test_a_method_beats_a_constant(worked: Callable[[str, str], DetailReport], track: str) -> None:
    scores = [worked(track, name).task_score for name in ("empty", "constant", "classical")]
    assert scores == sorted(scores) and len(set(scores)) == len(scores)


def test_a_constant_report_says_little(worked: Callable[[str, str], DetailReport]) -> None:
    """It is valid and shares words with some references, no more."""
    assert 0 < worked("report_generation", "constant").task_score < 0.4


# --- other forms of card ----------------------------------------------------------------------------------------


def checked(card: TaskCard, manifest: Manifest, workspace: Path, folder: Path) -> SubmissionRecord:
    return check_workspace(card, manifest, RunId(agent="b", task=card.id, tier="lite", repeat=1), workspace, folder)


@pytest.mark.parametrize("name", NAMES)
def test_masks_per_target(benches: Callable[[str], Bench], tmp_path: Path, name: str) -> None:
    bench, card = benches("segmentation"), segmentation_toy.mask_card()
    workspace, _ = run(name, card, bench.public, tmp_path)
    verdicts = checked(card, bench.manifest, workspace, tmp_path).cases
    assert {each.status for each in verdicts} == {"valid"}


@pytest.mark.parametrize("name", ["constant", "classical"])
@pytest.mark.parametrize("toy", [enhancement_toy, synthesis_toy], ids=["denoising", "another modality"])
def test_tasks_without_a_lost_resolution(
    benches: Callable[[str], Bench], tmp_path: Path, toy: object, name: str
) -> None:
    """Output as large as the input: the other branch of the classical methods."""
    shipped: TaskCard = toy.CARD  # type: ignore[attr-defined]
    bench = benches(shipped.track)
    value = shipped.model_dump()
    value["staging"]["degradation"] = None
    value["metric"]["settings"].pop("output_shape", None)
    card = TaskCard.model_validate(value)
    workspace, _ = run(name, card, bench.public, tmp_path)
    made = sorted(path.parent.name for path in workspace.glob("agents_outputs/*/*"))
    assert made == bench.cases
    if card.track == "synthesis":
        verdicts = checked(card, bench.manifest, workspace, tmp_path).cases
        assert {each.status for each in verdicts} == {"valid"}


@pytest.mark.parametrize("card", CARDS, ids=[card.id for card in CARDS])
@pytest.mark.parametrize("name", NAMES)
def test_every_card_can_be_filled_in(card: TaskCard, name: str) -> None:
    """No placeholder is left, the code parses, and it submits in the end."""
    turns = requests(name, card)
    for request in (request for turn in turns for request in turn if isinstance(request, CodeRequest)):
        assert "{card}" not in request.code
        if request.language == "python":
            ast.parse(request.code)
    assert isinstance(turns[-1][-1], SubmitRequest)


def test_a_baseline_is_known_by_its_file(tmp_path: Path) -> None:
    """Its turns are part of its identity, and an entry may name turns of its own."""
    card = CARDS[0]
    _, agent = baseline("constant", card)
    own = tmp_path / "own.yaml"
    own.write_text("- calls: [{tool: submit_results, summary: mine}]\n")
    other = Agent.model_validate({"provider": "baseline", "baseline": "constant", "script": str(own)}).for_task(card)
    assert agent.script == f"config/baselines/{card.track}/constant.yaml"
    assert agent.digest() != other.digest()
    assert load_baseline(other, card).reply([], [], 1.0).calls[0].name == "submit_results"
