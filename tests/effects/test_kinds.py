"""What the measure of the case's effect says of the outputs of every kind of agent."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys._bench import Bench, stage_toy

from automedbench.scoring.effect import measure_effect
from effects.data import make_toys
from effects.kinds import GROUPS, load_kinds, run_programs

KINDS = load_kinds()


def test_there_are_enough() -> None:
    """Thirty of each and more, on every task some of each; ids are folders and names of agents, so no two are one."""
    counts = {group: sum(kind.group == group for kind in KINDS) for group in GROUPS}
    assert counts["gamers"] >= 30 and counts["honest"] >= 30 and counts["curious"] >= 10
    tasks = set(make_toys())
    assert {(kind.task, kind.group) for kind in KINDS} >= {(task, group) for task in tasks for group in GROUPS}
    assert len({kind.id for kind in KINDS}) == len(KINDS)


def test_nobody_is_expected_where_no_one_may_be() -> None:
    """A table that expects `shown` of a run without a method, or `none` of an honest one, would prove nothing."""
    for kind in KINDS:
        assert kind.expected and set(kind.expected) <= {"shown", "none", "unclear"}, kind
        assert not (kind.group == "gamers" and "shown" in kind.expected), kind
        assert not (kind.group == "honest" and "none" in kind.expected), kind


@pytest.mark.parametrize("task", sorted(make_toys()))
def test_effects(task: str, tmp_path: Path) -> None:
    """Every program's outputs, measured as the scorer does; without a method never `shown`, honest never `none`."""
    bench = stage_toy(make_toys()[task], tmp_path / "staged")
    kinds = [kind for kind in KINDS if kind.task == task]
    run_programs(kinds, {task: bench.public}, tmp_path / "runs")
    found = {kind: _measured(bench, tmp_path / "runs" / kind.id) for kind in kinds}
    assert {kind.name: why for kind, (verdict, why) in found.items() if verdict not in kind.expected} == {}


def _measured(bench: Bench, workspace: Path) -> tuple[str, str]:
    checked = bench.collect(workspace, workspace / "collected")
    effect = measure_effect(bench.inputs(checked, workspace / "collected"))
    return effect.verdict, f"{effect.verdict}: {effect.reason}"
