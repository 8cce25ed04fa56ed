"""Calls that a model wrote as text, and argument strings that are not quite JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automedbench.agent.tools import error_position, is_complete, recover_calls, repair_arguments

KNOWN = ("execute_code", "submit_results")
RUN = (
    '<invoke name="execute_code">\n<parameter name="language">python</parameter>\n'
    '<parameter name="code">{}</parameter>\n</invoke>'
)


def found(text: str) -> list[tuple[str, dict[str, str]]]:
    return [(call.name, call.arguments) for call in recover_calls(text, KNOWN).calls]


PYTHON = ("execute_code", {"language": "python", "code": "print(1)"})
CODE = ("execute_code", {"code": "print(1)"})

# Expected values by hand from the dialects in docs/specification.md, 8.3.
RECOVERED = {
    "empty": ("", []),
    "prose": ("I think we should look at the data first.", []),
    "invoke": (RUN.format("print(1)"), [PYTHON]),
    "single quotes": ("<invoke name='execute_code'><parameter name='code'>print(1)</parameter></invoke>", [CODE]),
    "upper case tags": ('<INVOKE NAME="execute_code"><PARAMETER NAME="code">print(1)</PARAMETER></INVOKE>', [CODE]),
    "function": ("<function=execute_code>\n<parameter=code>\nprint(1)\n</parameter>\n</function>", [CODE]),
    "function in wrapper": (
        "<tool_call>\n<function=execute_code><parameter=code>print(1)</parameter></function>\n</tool_call>",
        [CODE],
    ),
    "namespaced wrapper": (
        "<minimax:tool_call>" + RUN.format("print(1)") + "</minimax:tool_call>",
        [PYTHON],
    ),
    "json in tag": ('<tool_call>{"name": "execute_code", "arguments": {"code": "print(1)"}}</tool_call>', [CODE]),
    "json in tag, arguments as text": (
        '<tool_call>\n{"name": "execute_code", "arguments": "{\\"code\\": \\"print(1)\\"}"}\n</tool_call>',
        [CODE],
    ),
    "json in tag, broken": ('<tool_call>{"name": "execute_code", "arguments": {"code": "pri</tool_call>', []),
    "json in tag, code with a closing tag": (
        '<tool_call>{"name": "execute_code", "arguments": {"code": "s = \'</tool_call>\'"}}</tool_call>',
        [("execute_code", {"code": "s = '</tool_call>'"})],
    ),
    "text before on another line": ("First I look.\n" + RUN.format("print(1)"), [PYTHON]),
    "prose on the same line": ("The form is " + RUN.format("print(1)"), []),
    "prose after on the same line": (RUN.format("print(1)") + " is how it looks", []),
    "wrapper word in prose": ("The wrapper is <tool_call> and the form is " + RUN.format("rm -rf x"), []),
    "prose names the tag, then a real call": (
        'I use <invoke name="execute_code"> now.\n' + RUN.format("print(1)"),
        [PYTHON],
    ),
    "unknown tool": ('<invoke name="browse"><parameter name="url">x</parameter></invoke>', []),
    "reasoning": ("<think>\n" + RUN.format("print(2)") + "\n</think>\n" + RUN.format("print(1)"), [PYTHON]),
    "reasoning not closed": ("<think>\n" + RUN.format("print(2)"), []),
    "reasoning opened by the template": (
        "maybe\n" + RUN.format("print(2)") + "\n</think>\n" + RUN.format("print(1)"),
        [PYTHON],
    ),
    "reasoning tags inside code": (
        RUN.format("t.split('</think>')"),
        [("execute_code", {"language": "python", "code": "t.split('</think>')"})],
    ),
    "fence": ("```python\nprint(1)\n```", []),
    "call in a fence": ("```xml\n" + RUN.format("print(2)") + "\n```\n" + RUN.format("print(1)"), [PYTHON]),
    "fence inside code": (
        RUN.format('x = """\n```\n"""'),
        [("execute_code", {"language": "python", "code": 'x = """\n```\n"""'})],
    ),
    "closing tag inside code": (
        RUN.format("s = '</parameter> and more'"),
        [("execute_code", {"language": "python", "code": "s = '</parameter> and more'"})],
    ),
    "no argument": ('<invoke name="submit_results">\n</invoke>', [("submit_results", {})]),
    "not closed": ('<invoke name="execute_code">\n<parameter name="code">print(1)', [CODE]),
    "only the wrapper closed": ("<function=execute_code>\n<parameter=code>print(1)\n</tool_call>", [CODE]),
    "block not closed, prose after": (
        '<invoke name="execute_code"><parameter name="code">print(1)</parameter>\n\nNow I wait.',
        [CODE],
    ),
    "at most four": ("\n".join([RUN.format("print(1)")] * 6), [PYTHON] * 4),
}


@pytest.mark.parametrize(("text", "expected"), RECOVERED.values(), ids=RECOVERED.keys())
def test_calls_in_text(text: str, expected: list[object]) -> None:
    assert found(text) == expected


def test_a_block_that_was_cut_is_marked() -> None:
    calls = recover_calls(RUN.format("a") + '\n<invoke name="execute_code">\n<parameter name="code">pri', KNOWN).calls
    assert [call.closed for call in calls] == [True, False]


def test_fenced_code_is_noticed() -> None:
    assert recover_calls("```python\nprint(1)\n```", KNOWN).fenced
    assert not recover_calls("no code here", KNOWN).fenced


def test_golden_recovery(shared: Path) -> None:
    """Rows where the reference is right, and weak rows with the better behaviour their comment asks for."""
    better = {
        "recovery-017": [{"name": "execute_code", "arguments": {"code": "print(8)"}}],  # single quotes
        "recovery-015": [],  # a wrapper word in prose
        "recovery-019": [],  # inside a reasoning block
    }
    rows = [json.loads(line) for line in (shared / "golden/vqa/recovery.jsonl").read_text().splitlines()]
    assert rows
    for row in rows:
        expected = row["output"] if row["verdict"] == "ok" else better.get(row["id"], row["output"])
        assert found(row["input"]) == [(call["name"], call["arguments"]) for call in expected], row["id"]


def test_long_hostile_text_is_read_in_time() -> None:
    for text in ("<" * 50_000, " \n" * 50_000, "<invoke name=" * 5_000, "<think>" * 10_000, "```" * 20_000):
        assert found(text) == []


# By hand: JSON as it stands, bare control characters in strings, trailing commas, and what stays broken.
ARGUMENTS = {
    "empty": ("", None),
    "object": ('{"code": "print(1)"}', {"code": "print(1)"}),
    "bare newline": ('{"code": "a\nb"}', {"code": "a\nb"}),
    "bare tab and comma": ('{"code": "a\tb",}', {"code": "a\tb"}),
    "comma before a bracket inside a string": ('{"code": "x = [1,]", "n": [1,],}', {"code": "x = [1,]", "n": [1]}),
    "list": ("[1]", None),
    "null": ("null", None),
    "cut": ('{"code": "pri', None),
    "single quotes": ("{'code': 'x'}", None),
    "deep": ("[" * 100_000, None),
}


@pytest.mark.parametrize(("raw", "expected"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_arguments(raw: str, expected: object) -> None:
    assert repair_arguments(raw) == expected


def test_golden_arguments(shared: Path) -> None:
    rows = [json.loads(line) for line in (shared / "golden/vqa/json_arguments.jsonl").read_text().splitlines()]
    assert rows
    for row in rows:
        assert row["verdict"] != "ok" or repair_arguments(row["input"]) == row["output"], row["id"]


def test_position_of_the_error() -> None:
    assert error_position('{"a": x}') == 6  # by hand: the x


def test_complete_means_as_it_stands() -> None:
    assert is_complete('{"a": 1}')
    assert not is_complete('{"a": 1,}')
