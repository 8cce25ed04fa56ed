"""Loading rubrics, and what a valid judgement makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hand_made_runs import conversation

from automedbench.base.errors import ConfigError
from automedbench.base.records import Conversation, Criterion, Effect, JudgeRecord, Tier, Tokens
from automedbench.judge import judge_conversation, judge_run, load_rubric
from automedbench.judge.evidence import RunEvidence
from automedbench.judge.rubric import Rubric
from automedbench.judge.rules import HeuristicJudge

QUOTE = "I choose Otsu thresholding"
IDS = ["s1a", "s1b", "s1c", "s1d", "s1e", "s1f", "s2a", "s2b", "s2c", "s2d", "s2e", "s3"]


@pytest.fixture(scope="module")
def rubric(root: Path) -> Rubric:
    return load_rubric(root / "config/rubrics", "detection")


class FixedJudge(HeuristicJudge):
    """Gives prepared answers in turn, then repeats the last."""

    id = "fixed"
    kind: Literal["heuristic", "llm"] = "llm"
    tokens = Tokens(prompt=10)
    cost_usd: str | None = None

    def __init__(self, *answers: list[Criterion]) -> None:
        self.answers, self.asked = list(answers), 0

    def judge(self, evidence: RunEvidence, rubric: Rubric, tier: Tier, effect: Effect) -> list[Criterion]:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


def answer(tier: Tier = "standard", quote: str = QUOTE, **given: float) -> list[Criterion]:
    """Verdicts of all judged criteria, 1 unless given."""
    judged = [name for name in IDS if tier != "lite" or name not in ("s1d", "s1e", "s1f")]
    return [
        Criterion.model_validate(
            {"id": name, "stage": name[:2].upper(), "verdict": given.get(name, 1.0), "quote": quote, "reason": "x"}
        )
        for name in judged
    ]


# --- loading ----------------------------------------------------------------------------------------------------


def test_structure_of_the_skeleton(rubric: Rubric) -> None:
    # spec: six items in S1, five in S2, one in S3; lite credits d, e, f; b and c need a; f needs e.
    assert [criterion.id for criterion in rubric.criteria] == IDS
    assert {item.id: item.needs for item in rubric.criteria if item.needs} == {"s1b": "s1a", "s1c": "s1a", "s1f": "s1e"}
    assert [item.id for item in rubric.criteria if item.auto_tiers == ["lite"]] == ["s1d", "s1e", "s1f"]
    assert {item.id: item.values for item in rubric.criteria if item.values != [0, 1]} == {"s3": [0, 0.5, 1]}


def test_track_replaces_wording(rubric: Rubric) -> None:
    assert "boxes" in {item.id: item for item in rubric.criteria}["s1c"].title
    assert rubric.vocabulary.outputs == ["prediction.json"]
    assert rubric.vocabulary.preprocessing


def test_version_rises_with_either_file(root: Path, tmp_path: Path) -> None:
    def version(skeleton: int, track: int) -> int:
        edit(root, tmp_path, "skeleton", lambda data: data.update(version=skeleton))
        edit(root, tmp_path, "detection", lambda data: data.update(version=track))
        return load_rubric(tmp_path, "detection").version

    assert version(1, 1) < version(1, 2) < version(2, 1) < version(2, 99) < version(3, 1)


def edit(root: Path, folder: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Copy one rubric file with a change."""
    data = yaml.safe_load((root / f"config/rubrics/{name}.yaml").read_text())
    change(data)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))


PROBLEMS: list[tuple[str, str, Callable[[dict[str, Any]], Any], str]] = [
    ("unknown criterion", "detection", lambda d: d["criteria"].update(s1g={"title": "x"}),
     "detection.yaml: criteria.s1g: not in skeleton.yaml"),
    ("misspelt key", "detection", lambda d: d["criteria"]["s1c"].update(earned_wen="x"),
     "criteria.s1c.earned_wen: unknown key (did you mean 'earned_when'?)"),
    ("structure changed by a track", "detection", lambda d: d["criteria"]["s1c"].update(needs="s1b"),
     "criteria.s1c.needs: unknown key"),
    ("version missing", "detection", lambda d: d.pop("version"), "version: is required"),
    ("version too high", "detection", lambda d: d.update(version=100), "version:"),
    ("word list empty", "detection", lambda d: d["vocabulary"].update(method=[]), "vocabulary.method: is empty"),
    ("needs nothing known", "skeleton", lambda d: d["criteria"]["s1b"].update(needs="s1x"),
     "criteria.s1b.needs: no criterion 's1x' (did you mean"),
    ("stage without criterion", "skeleton", lambda d: d["criteria"].pop("s3"), "criteria: stage S3 has no criterion"),
    ("one level only", "skeleton", lambda d: d["criteria"]["s3"].update(levels=[{"value": 1, "text": "x"}]),
     "criteria.s3.levels:"),
    ("tier unknown", "skeleton", lambda d: d["criteria"]["s1d"].update(auto_tiers=["light"]),
     "criteria.s1d.auto_tiers.0:"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), [row[1:] for row in PROBLEMS], ids=[row[0] for row in PROBLEMS])
def test_problem(name: str, change: Callable[[dict[str, Any]], Any], message: str, root: Path, tmp_path: Path) -> None:
    for other in ("skeleton", "detection"):
        edit(root, tmp_path, other, change if other == name else len)
    with pytest.raises(ConfigError) as caught:
        load_rubric(tmp_path, "detection")
    assert any(message in problem for problem in caught.value.problems), caught.value.problems
    assert all("\n" not in problem for problem in caught.value.problems)


def test_all_problems_at_once(root: Path, tmp_path: Path) -> None:
    edit(root, tmp_path, "skeleton", lambda data: data["criteria"]["s1b"].update(needs="s9"))
    edit(root, tmp_path, "detection", lambda data: data["criteria"].update(s0={}, s8={}))
    with pytest.raises(ConfigError) as caught:
        load_rubric(tmp_path, "detection")
    assert len(caught.value.problems) == 3


def test_track_without_a_file(root: Path, rubric: Rubric) -> None:
    """The skeleton's wording and words; every file in a case's folder is its output; its first own file is newer."""
    plain = load_rubric(root / "config/rubrics", "eighth")
    assert (plain.track, plain.version) == ("eighth", rubric.version - rubric.version % 100)
    assert [criterion.id for criterion in plain.criteria] == IDS
    assert "boxes" not in {item.id: item for item in plain.criteria}["s1c"].title
    assert plain.vocabulary.outputs == []
    assert plain.vocabulary.method != rubric.vocabulary.method
    assert plain.version < rubric.version


def test_skeleton_that_is_not_enough(root: Path, tmp_path: Path) -> None:
    edit(root, tmp_path, "skeleton", lambda data: data["vocabulary"].pop("method"))
    with pytest.raises(ConfigError, match=r"skeleton\.yaml: vocabulary\.method: is empty"):
        load_rubric(tmp_path, "eighth")


def test_no_skeleton(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"skeleton\.yaml: file does not exist"):
        load_rubric(tmp_path, "eighth")


# --- judging ----------------------------------------------------------------------------------------------------

STAGES: list[tuple[str, Tier, dict[str, float], dict[str, float]]] = [
    # id, tier, verdicts that are not 1, stages: by hand from S1 = sum/6 and S2 = sum/5 with two decimals
    ("all earned", "standard", {}, {"S1": 1.0, "S2": 1.0, "S3": 1.0}),
    ("nothing earned", "pro", dict.fromkeys(IDS, 0.0), {"S1": 0.0, "S2": 0.0, "S3": 0.0}),
    ("nothing earned in lite", "lite", dict.fromkeys(IDS, 0.0), {"S1": 0.5, "S2": 0.0, "S3": 0.0}),
    ("no plan takes b and c", "standard", {"s1a": 0}, {"S1": 0.5, "S2": 1.0, "S3": 1.0}),
    ("no plot takes f", "standard", {"s1e": 0}, {"S1": 0.67, "S2": 1.0, "S3": 1.0}),
    ("no plot, no f in lite", "lite", {"s1a": 0}, {"S1": 0.5, "S2": 1.0, "S3": 1.0}),
    ("five of six", "standard", {"s1d": 0}, {"S1": 0.83, "S2": 1.0, "S3": 1.0}),
    ("three of five, half", "pro", {"s2a": 0, "s2e": 0, "s3": 0.5}, {"S1": 1.0, "S2": 0.6, "S3": 0.5}),
]


@pytest.mark.parametrize(("tier", "given", "expected"), [row[1:] for row in STAGES], ids=[row[0] for row in STAGES])
def test_stages(tier: Tier, given: dict[str, float], expected: dict[str, float], rubric: Rubric) -> None:
    record = judge_run(conversation(), rubric, tier, FixedJudge(answer(tier, **given)))
    assert record.stages == expected
    assert [criterion.id for criterion in record.criteria] == IDS


def test_lite_credits_are_marked(rubric: Rubric) -> None:
    record = judge_run(conversation(), rubric, "lite", FixedJudge(answer("lite")))
    assert [criterion.id for criterion in record.criteria if criterion.auto] == ["s1d", "s1e", "s1f"]


def test_withdrawn_criterion_says_why(rubric: Rubric) -> None:
    record = judge_run(conversation(), rubric, "standard", FixedJudge(answer(s1a=0)))
    withdrawn = {criterion.id: criterion for criterion in record.criteria}["s1b"]
    assert (withdrawn.verdict, withdrawn.reason[:18]) == (0.0, "0 because s1a is 0")


def test_golden_verdicts(shared: Path, rubric: Rubric) -> None:
    """Arithmetic of the reference where it is right, for answers that are allowed verdicts already."""
    rows = json.loads((shared / "golden/det/judge.json").read_text())["build_verdict"]
    seen = 0
    for row in rows:
        if not isinstance(row["parsed"], dict):
            continue
        given = {key.split("_")[0]: value for key, value in row["parsed"].items() if key[0] == "s" and key[1].isdigit()}
        exact = all(isinstance(value, (int, float)) and value in (0, 0.5, 1) for value in given.values())
        if not (row["judgement"]["reference_right"] and exact and set(given) >= set(IDS) - {"s3"}):
            continue
        given = {key: float(value) for key, value in given.items()} | {"s3": float(given.get("s3", 0))}
        stages = judge_run(conversation(), rubric, row["tier"], FixedJudge(answer(row["tier"], **given))).stages
        expected = row["expected"]
        assert stages["S1"] == expected["s1_plan_score"], row["id"]
        assert stages["S2"] == expected["s2_setup_score"], row["id"]
        assert stages["S3"] == expected["s3_validate_score"], row["id"]
        seen += 1
    assert seen >= 4


def test_refusal_needs_no_quote(rubric: Rubric) -> None:
    nothing = answer(quote="", **dict.fromkeys(IDS, 0.0))
    assert judge_run(conversation(), rubric, "standard", FixedJudge(nothing)).stages["S3"] == 0.0


def test_files(root: Path, tmp_path: Path) -> None:
    talk: Conversation = conversation()
    (tmp_path / "conversation.json").write_text(talk.model_dump_json(by_alias=True))
    paths = tmp_path / "conversation.json", root / "config/rubrics"
    judge_conversation(*paths, "detection", tmp_path / "judge.json")
    first = (tmp_path / "judge.json").read_bytes()
    judge_conversation(*paths, "detection", tmp_path / "judge.json")
    assert (tmp_path / "judge.json").read_bytes() == first
    assert JudgeRecord.model_validate_json(first).stages == {"S1": 1.0, "S2": 0.6, "S3": 1.0}
