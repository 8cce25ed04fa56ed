"""Scripted agents: turns in order, then 'done'; problems of a script one line each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automedbench.agent.models.scripted import load_script
from automedbench.base.errors import ConfigError
from automedbench.base.records import Tokens

SCRIPT = """
- content: I look first.
- calls:
    - {tool: execute_code, language: python, code: "print('ü')"}
    - {tool: submit_results, summary: finished}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "agent.yaml"
    path.write_text(text)
    return path


def test_turns_come_in_order_and_cost_nothing(tmp_path: Path) -> None:
    model = load_script(write(tmp_path, SCRIPT))
    first, second, third, fourth = (model.reply([], [], 1.0) for _ in range(4))
    assert (first.content, first.calls, first.finish_reason) == ("I look first.", (), "stop")
    assert [call.name for call in second.calls] == ["execute_code", "submit_results"]
    assert json.loads(second.calls[0].arguments) == {"language": "python", "code": "print('ü')"}
    assert json.loads(second.calls[1].arguments) == {"summary": "finished"}
    assert len({call.id for call in second.calls}) == 2
    assert third.content == fourth.content == "done"
    assert (first.spent, second.usage) == ((), Tokens())


PROBLEMS = {
    "empty file": ("", ["a script is a list of turns"]),
    "no list": ("turns: []", ["a script is a list of turns"]),
    "empty list": ("[]", ["turns: "]),
    "unknown key": ("- contents: x", ["turns.0.contents: unknown key (did you mean 'content'?)"]),
    "unknown tool": ("- calls: [{tool: browse}]", ["turns.0.calls.0: "]),
    "no code": ("- calls: [{tool: execute_code, language: bash}]", ["code: is required"]),
    "two problems": (
        "- calls: [{tool: execute_code, language: R, code: x}]\n- content: [1]",
        ["turns.0.calls.0.execute_code.language", "turns.1.content"],
    ),
}


@pytest.mark.parametrize(("text", "lines"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(tmp_path: Path, text: str, lines: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_script(write(tmp_path, text))
    assert len(caught.value.problems) == len(lines)
    assert all(expected in problem for expected, problem in zip(lines, caught.value.problems, strict=True))


def test_absent_script(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_script(tmp_path / "nowhere.yaml")
