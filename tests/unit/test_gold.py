"""Gold transcripts: from YAML to the record that a judge is given, and what is found wrong with their expectations."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from gold_rules import gold_problems
from PIL import Image

from automedbench.base.errors import ConfigError
from automedbench.judge import load_rubric
from automedbench.judge.gold import GoldTranscript, expand, load_gold, picture

BARE: dict[str, Any] = {
    "id": "a-b",
    "track": "detection",
    "tier": "lite",
    "quality": "bad",
    "split": "dev",
    "why": "shows the smallest transcript",
    "n_cases": 2,
    "effect": "none",
    "calls": [],
    "expected": {},
}
TEXT = """
id: a-b
track: detection
tier: lite
quality: bad
split: dev
why: shows the smallest transcript
n_cases: 2
effect: none
calls: [{stage: S3, code: "run()", new: ["agents_outputs/c_{08..10}/prediction.json"]}]
expected: {}
"""


def gold(**changes: Any) -> GoldTranscript:
    return GoldTranscript.model_validate(BARE | changes)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(["a/b.json"], ["a/b.json"], id="one path"),
        pytest.param(["c_{08..10}/x"], ["c_08/x", "c_09/x", "c_10/x"], id="leading zeros"),
        pytest.param(["{1..1}", "z"], ["1", "z"], id="one number and a plain path"),
        pytest.param(["c_{3..2}"], [], id="nothing between"),
        pytest.param(["{a..b}"], ["{a..b}"], id="letters are no range"),
    ],
)
def test_ranges_of_paths(pattern: list[str], paths: list[str]) -> None:
    assert list(expand(pattern)) == paths


def test_smallest_transcript() -> None:
    talk = gold().conversation
    assert (talk.plan, talk.has_plot, talk.calls, talk.workspace_files) == (None, False, [], {})
    assert (talk.run.tier, talk.n_cases) == ("lite", 2)


def test_calls_become_records() -> None:
    calls = [
        {"stage": "S2", "code": "a", "out": "1"},
        {"stage": "S2", "code": "b", "lang": "bash", "status": "error", "err": "no", "turn": 7},
        {"stage": "S3", "code": "c", "status": "refused"},
    ]
    talk = gold(calls=calls, notes={2: "second", 1: "first"}, brief="told").conversation
    assert [(call.turn, call.call, call.language, call.status, call.exit_code) for call in talk.calls] == [
        (1, 1, "python", "ok", 0),
        (7, 2, "bash", "error", 1),
        (3, 3, "python", "refused", None),
    ]
    assert [(note.turn, note.role, note.content) for note in talk.messages] == [
        (0, "system", "told"),
        (1, "assistant", "first"),
        (2, "assistant", "second"),
    ]


def test_sizes_of_files() -> None:
    # By hand: a file made by a call has 2000 bytes unless listed; the plan as many as its text ("ü" has two).
    calls = [{"stage": "S2", "code": "a", "new": ["w.pt", "x_{1..2}"]}]
    files = gold(calls=calls, files={"w.pt": 5, "given.txt": 9}, plan="für").conversation.workspace_files
    assert files == {"w.pt": 5, "x_1": 2000, "x_2": 2000, "given.txt": 9, "plan/plan.md": 4}


@pytest.mark.parametrize(
    ("plot", "opens"), [("none", False), ("broken", False), ("blank", True), ("unrelated", True), ("pipeline", True)]
)
def test_picture_opens_when_the_record_says_so(plot: str, opens: bool) -> None:
    transcript = gold(plot=plot, plot_steps=["image", "model", "boxes"])
    data = picture(transcript)
    assert transcript.conversation.has_plot == opens == (data is not None)


def test_only_a_blank_picture_is_blank() -> None:
    colours = {}
    for plot in ("blank", "unrelated", "pipeline"):
        data = picture(gold(plot=plot, plot_steps=["image", "boxes"]))
        assert data is not None
        colours[plot] = len(Image.open(io.BytesIO(data)).getcolors(10_000) or [])
    assert colours["blank"] == 1
    assert min(colours["unrelated"], colours["pipeline"]) > 1


# --- expectations ---------------------------------------------------------------------------------------------

CALLS = [{"stage": "S2", "code": "import torch\nprint(torch.__version__)", "out": "2.3.1"}]


def expectation(verdict: float, *evidence: str, turn: int | None = None) -> dict[str, Any]:
    return {"verdict": verdict, "reason": "for a reason", "evidence": list(evidence), "turn": turn}


ZEROS = {name: expectation(0) for name in ("s1a", "s1b", "s1c", "s2a", "s2b", "s2c", "s2d", "s2e", "s3")}

WRONG = [
    ("nothing wrong", {}, ""),
    ("earned with evidence", {"s2c": expectation(1, "import torch", turn=1)}, ""),
    ("not judged in lite", {"s1d": expectation(0)}, "s1d: is not judged in the lite tier"),
    ("no level", {"s2c": expectation(0.5, "import torch")}, "s2c: 0.5 is no level"),
    ("without evidence", {"s2c": expectation(1)}, "s2c: earned without evidence"),
    ("evidence of another turn", {"s2c": expectation(1, "import torch", turn=2)}, "s2c: evidence is not in"),
    ("invented evidence", {"s2c": expectation(1, "import jax")}, "s2c: evidence is not in"),
    ("needed one is missing", {"s1b": expectation(1, "import torch")}, "s1b: must be 0, because s1a is"),
]


@pytest.mark.parametrize(("changes", "problem"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_problems_of_expectations(changes: dict[str, Any], problem: str, root: Path) -> None:
    transcript = gold(calls=CALLS, expected=ZEROS | changes)
    found = gold_problems(transcript, load_rubric(root / "config/rubrics", "detection"))
    assert len(found) == bool(problem)
    assert all(problem in line for line in found)


def test_missing_expectation(root: Path) -> None:
    expected = {name: verdict for name, verdict in ZEROS.items() if name != "s3"}
    found = gold_problems(gold(expected=expected), load_rubric(root / "config/rubrics", "detection"))
    assert found == ["a-b: s3: no expected verdict"]


# --- files ----------------------------------------------------------------------------------------------------


def write(folder: Path, text: str = TEXT, name: str = "detection/a-b.yaml", *, briefs: bool = True) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if briefs:
        (folder / "briefs").mkdir(exist_ok=True)
        (folder / "briefs/common.md").write_text("for all")
        (folder / "briefs/detection.md").write_text("for detection")
    return folder


def test_default_brief_is_filled_in(tmp_path: Path) -> None:
    [found] = load_gold(write(tmp_path))
    assert found.brief == "for all\nfor detection"
    assert list(found.conversation.workspace_files) == [
        f"agents_outputs/c_{n}/prediction.json" for n in ("08", "09", "10")
    ]


def test_own_brief_is_kept(tmp_path: Path) -> None:
    [found] = load_gold(write(tmp_path, TEXT + "brief: another task", briefs=False))
    assert found.brief == "another task"


def test_filters(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, TEXT.replace("a-b", "c-d").replace("dev", "held_out"), "detection/c-d.yaml")
    assert [item.id for item in load_gold(tmp_path)] == ["a-b", "c-d"]
    assert [item.id for item in load_gold(tmp_path, "detection", "held_out")] == ["c-d"]


REFUSED = [
    ("empty folder", None, "a-b.yaml", "contains no <track>/<id>.yaml"),
    ("another name", TEXT, "detection/other.yaml", "must lie at detection/a-b.yaml"),
    ("misspelt key", TEXT + "qualty: good", "detection/a-b.yaml", "qualty: unknown key (did you mean 'quality'?)"),
    ("no brief", TEXT, "detection/a-b.yaml", "common.md cannot be read"),
]


@pytest.mark.parametrize(("text", "name", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(text: str | None, name: str, message: str, tmp_path: Path) -> None:
    if text is not None:
        write(tmp_path, text, name, briefs=False)
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        load_gold(tmp_path)


def test_unknown_track_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no transcript of track 'detecton' \(did you mean 'detection'\?\)"):
        load_gold(write(tmp_path), "detecton")
