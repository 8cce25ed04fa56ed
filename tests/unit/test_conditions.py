"""Conditions of scores: what a signature says, what differs, and which differences matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import make_enforced, make_recipe, make_run, make_score

from automedbench.base.errors import ConfigError
from automedbench.base.files import write_record
from automedbench.base.records import Code, PanelMember, ScoreRecord, Used
from automedbench.commands import main
from automedbench.commands.explain_signature import conclusion, find_differing_fields
from automedbench.leaderboard.conditions import (
    BY_NAME,
    CHANGES,
    MAY,
    NOT,
    is_judged_by,
    parse_signature,
    read_conditions,
    signature,
)
from automedbench.leaderboard.conditions import find_differences as compare_conditions

LIMITS = {"max_turns": 50, "time_limit_s": 3600, "max_cost_usd": None}
TOLD: dict[str, Any] = {
    "preset": "default",
    "agent_digest": "a" * 16,
    "served": ["model-1"],
    "image_flavour": "research",
    "image_recipe": "b" * 16,
    "brief_sha256": "c" * 64,
    "common_brief_sha256": "d" * 64,
    "limits": LIMITS,
    "policy_version": 6,
    "score_version": 4,
    "code": Code(digest="e" * 16),
    "run_code": Code(digest="e" * 16),
}
PANEL = [PanelMember(name="one", digest="f" * 16, settings={})]


@pytest.mark.parametrize(
    ("models", "pinned"),
    [
        (["claude-opus-5"], True),
        (["anthropic/claude-opus-5-20261001"], True),
        (["us.anthropic.Claude-Opus-5:0"], True),
        (["claude-opus-5-1"], False),
        (["claude-opus-5.1"], False),
        (["claude-opus-50"], False),
        (["claude-opus-5", "gpt-6"], False),
        ([], False),
    ],
)
def test_pinned_judge(models: list[str], pinned: bool) -> None:
    """The model itself with any provider and date beside its id; no other of its family, and none beside it."""
    panel = [PanelMember(name=f"judge-{model}", digest="", settings={"model": model}) for model in models]
    assert is_judged_by(score(panel=panel), "claude-opus-5") is pinned


def score(repeat: int = 1, *, enforced: Any = None, used: Used | None = None, **recipe: Any) -> ScoreRecord:
    run = make_run(repeat=repeat)
    return make_score(
        run,
        recipe=make_recipe(**(TOLD | recipe)),
        enforced=enforced or make_enforced(),
        used=used or Used(machines=["a processor, 8 of it, 32 GiB"]),
    )


def differences(*scores: ScoreRecord) -> list[str]:
    return compare_conditions(map(read_conditions, scores))


CHANGED: dict[str, ScoreRecord] = {
    "preset": score(2, preset="lite-v0.1"),
    "task version": score(2, task_version=2),
    "cases": score(2, cases_sha256="1" * 64),
    "draw": score(2, draw=7),
    "track version": score(2, track_version=2),
    "metric settings": score(2, settings={"iou_threshold": 0.1}),
    "rubric version": score(2, rubric_version=102),
    "judge": score(2, judge="heuristic-2"),
    "audit policy": score(2, policy_version=5),
    "score version": score(2, score_version=3),
    "effects": score(2, effects="shown_only"),
    "sandbox": score(2, enforced=make_enforced(network="open")),
    "GPU": score(2, enforced=make_enforced().model_copy(update={"gpu": True})),
    "GPU share": score(2, enforced=make_enforced().model_copy(update={"gpu_share": 4})),
    "image": score(2, image_recipe="9" * 16),
    "brief": score(2, common_brief_sha256="9" * 64),
    "limits": score(2, limits=LIMITS | {"max_turns": 100}),
    "keeping of limits": score(2, enforced=make_enforced().model_copy(update={"memory_bytes": 1 << 30})),
    "evidence": score(2, enforced=make_enforced().model_copy(update={"trace": not make_enforced().trace})),
    "hardware": score(2, used=Used(machines=["another processor"])),
    "code": score(2, code=Code(digest="0" * 16)),
    "code of the run": score(2, run_code=Code(digest="0" * 16)),
    "agent": score(2, agent_digest="0" * 16),
    "model served": score(2, served=["model-1-new"]),
    "agent's brief": score(2, brief_sha256="0" * 64),
}


@pytest.mark.parametrize("name", CHANGED)
def test_each_condition_is_compared_alone(name: str) -> None:
    """Named for the row, in the signature's `mixed`, and with what it does to a score."""
    both = score(), CHANGED[name]
    assert differences(*both) == [name]
    found = parse_signature(signature(map(read_conditions, both)))
    assert found["mixed"] == name.replace(" ", "-")
    assert BY_NAME[name].key not in found or not BY_NAME[name].key
    fields = find_differing_fields(*both)
    assert name in [field.name for field in fields]
    assert BY_NAME[name].effect in (CHANGES, MAY)
    wanted = "Not comparable" if BY_NAME[name].effect == CHANGES else "Compare with care"
    assert conclusion(fields).startswith(wanted)


def test_nothing_that_matters_is_left_out() -> None:
    """Tiers are rows of their own, panels and egress lists need their own set-up (below), images' files never match."""
    apart = {"tier", "panel", "spending limits", "egress lists", "agent's program"}
    assert {one.name for one in BY_NAME.values() if one.effect != NOT} - set(CHANGED) == apart


def test_what_does_not_apply_or_is_not_told_is_held_against_none() -> None:
    """A limit of cost that free agents lack, and an image without a record."""
    paid = score(limits=LIMITS | {"max_cost_usd": 5.0})
    assert differences(score(), paid) == []
    assert differences(paid, score(2, limits=LIMITS | {"max_cost_usd": 9.0})) == ["spending limits"]
    assert differences(score(), score(2, image_recipe=None)) == []
    judged = [score(n, judge="panel", judge_kind="llm", prompt_version=n, panel=PANEL) for n in (1, 2)]
    assert differences(*judged) == ["panel"]
    closed = make_enforced().model_copy(update={"network": "proxied"})
    lists = [score(n, enforced=closed.model_copy(update={"egress_sha256": str(n) * 64})) for n in (1, 2)]
    assert differences(*lists) == ["egress lists"]


def test_a_setting_that_came_later_makes_no_score_another() -> None:
    """A record of before lacks it, one of today has its default; another value is another metric."""
    before, today = {"iou_threshold": 0.5}, {"iou_threshold": 0.5, "max_detections": 100}
    assert differences(score(settings=before), score(2, settings=today)) == []
    assert differences(score(settings=before), score(2, settings=today | {"max_detections": 10})) == ["metric settings"]


def test_signature_of_a_run() -> None:
    """Digests to eight characters; what does not apply is not said; what is not known is a question mark."""
    found = parse_signature(signature([read_conditions(score())]))
    assert found | {"site": "", "limits": ""} == {
        "amb": "v1",
        "preset": "default",
        "task": "bccd-det-task.1",
        "tier": "lite",
        "cases": "0" * 8,
        "track": f"detection.1@{found['track'].partition('@')[2]}",
        "rubric": "101",
        "judge": "heuristic-1",
        "audit": "6",
        "score": "4",
        "box": "apptainer/sealed",
        "gpu": "no",
        "image": "research@bbbbbbbb",
        "brief": "d" * 8,
        "limits": "",
        "site": "",
        "code": "e" * 8,
        "n": "1",
    }
    assert parse_signature(signature([read_conditions(score(image_recipe=None))]))["image"] == "research@?"
    assert signature([]) == ""


def test_several_values_are_counted() -> None:
    """Two tasks have two versions and two draws of cases, which is no difference: 2*<digest>."""
    runs = [
        make_score(make_run(task=task), recipe=make_recipe(**TOLD, cases_sha256=digit * 64))
        for task, digit in (("one", "1"), ("two", "2"))
    ]
    found = parse_signature(signature(map(read_conditions, runs)))
    assert found["task"].startswith("2*") and found["cases"].startswith("2*") and found["tier"] == "lite"
    assert "mixed" not in found and found["n"] == "2"


@pytest.mark.parametrize("text", ["", "amb", "preset:default", "amb:v0|n:1", "amb:v1|colour:red"])
def test_what_is_no_signature(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_signature(text)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run against a signature that another lab printed; what one of them does not tell decides nothing."""
    one = score()
    write_record(tmp_path / "runs" / one.run.path / "score.json", one)
    text = signature([read_conditions(one)])

    def said(*words: str) -> str:
        main(["explain-signature", *words, "--results", str(tmp_path)])
        return capsys.readouterr().out

    assert text in said(one.run.path)
    assert said(one.run.path, text).strip() == "Comparable: nothing differs that could change a score."
    assert "Not comparable: another rubric changes the score." in said(text, text.replace("rubric:101", "rubric:102"))
    assert "Compare with care: another code may" in said(text, text.replace("code:eeeeeeee", "code:00000000"))
    assert "is not known of both" in said(text, text.replace("code:eeeeeeee", "code:?"))
    assert '"matters": "changes the score"' in said(text, "--json")
    with pytest.raises(ConfigError, match=rf"is not a signature .* \(did you mean '{one.run.path}'\?\)"):
        said(one.run.path.replace("/lite", "/lit"))
