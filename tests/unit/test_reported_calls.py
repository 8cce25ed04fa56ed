"""Calls that programs report, read from recorded traffic, and held against what the container saw.

``recorded_traffic.json``: bodies that Claude Code 2.1.332, Codex 0.169.0, Gemini CLI 0.61.0, OpenCode 1.18.33,
mini-swe-agent 2.4.6, Aider 0.86.2 and inspect-ai 0.3.285 sent to a scripted server, prompts cut; messages follow the
first ``same`` ones of the request before. The commands, and so the expected codes and outputs, are those of the
script: exit 3 after a line on both streams, a Python error, ``true``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness_fakes import contract
from traffic_reader import Reader, reading

from automedbench.agent.command import traffic as command_traffic
from automedbench.agent.command.reported import find_traced_program, parse_outcome, read_code_blocks, read_tool_call
from automedbench.agent.models.model import ChatMessage, Reply, ToolCall, distinct_calls
from automedbench.agent.protocols import PROTOCOLS, find_call
from automedbench.base.records import CodeCall, Process
from automedbench.sandbox.evidence.trace import TracedProgram

RECORDED = json.loads((Path(__file__).parent / "recorded_traffic.json").read_text(encoding="utf-8"))
ERROR = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nValueError: 1'


def replay(
    reader: Reader, requests: Sequence[dict[str, Any]], before: Callable[[Reader, int], None] = lambda _r, _n: None
) -> list[CodeCall]:
    """Send recorded requests; ``before`` each of them something may happen in the container. Gives reported calls."""
    sent: list[Any] = []
    for number, request in enumerate(requests):
        before(reader, number)
        body = dict(request["body"])
        key = next(key for key in ("messages", "input", "contents") if key in body)
        sent = body[key] = sent[: request["same"]] + body[key]
        call = find_call("POST", request["path"])
        assert call is not None
        asked = PROTOCOLS[call.protocol].parse_request(call, json.dumps(body).encode())
        calls = distinct_calls([ToolCall(*each) for each in request["reply"]["calls"]], number + 1)
        reader.exchange(asked.chat, Reply(request["reply"]["content"], calls), tools=bool(asked.fields.get("tools")))
    before(reader, len(requests))
    return reader.end()[1:]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with reading(tmp_path, contract()) as made:
        yield made


def shown(calls: Sequence[CodeCall]) -> list[tuple[str, int | None, str, str]]:
    return [(call.code, call.exit_code, call.status, call.stdout.strip()) for call in calls]


FIRST, SECOND, THIRD = "echo before; echo problem >&2; exit 3", "python3 -c 'raise ValueError(1)'", "true"
KNOWN = [(FIRST, 3, "error", "before\nproblem"), (SECOND, 1, "error", ERROR), (THIRD, 0, "ok", "")]
UNTOLD = [(FIRST, None, "ok", "before\nproblem"), (SECOND, None, "ok", ERROR), (THIRD, None, "ok", "")]
FAILED = {
    "claude-code": [*KNOWN[:2], (THIRD, None, "ok", "")],
    "codex": KNOWN,
    "gemini-cli": KNOWN,
    "mini-swe-agent": [*KNOWN, ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", None, "ok", "")][:3],
    "opencode": UNTOLD,
    "inspect": [(FIRST, None, "ok", "problem\n\nbefore"), *UNTOLD[1:]],
}


@pytest.mark.parametrize("program", FAILED)
def test_failures_as_each_program_tells_them(program: str, reader: Reader) -> None:
    """Without a trace there is what the program says; what it does not say counts as run."""
    assert shown(replay(reader, RECORDED[program]["fail"])) == FAILED[program]


@pytest.mark.parametrize("program", FAILED)
def test_the_container_knows_what_a_program_does_not_tell(program: str, reader: Reader) -> None:
    """The same three exit codes of all programs; command lines as the trace saw those of the real ones, shortened."""
    wraps = {
        "claude-code": "/bin/bash -c source /root/x.sh || true && eval '{}' < /dev/null && pwd -P >| /tmp/x",
        "codex": "/bin/bash -c {}",
        "gemini-cli": "/usr/bin/bash -c shopt -u extglob\n(\n  trap 'jobs -p' EXIT\n{}\n)\n__code=$?\nexit $__code",
        "mini-swe-agent": "/bin/sh -c {}",
        "opencode": "/usr/bin/bash -c {}",
        "inspect": "bash --login -c {}",
    }
    begin = sum("tools" not in request["body"] for request in RECORDED[program]["fail"])

    def happens(to: Reader, number: int) -> None:
        ran = [(FIRST, 3), (SECOND, 1), (THIRD, 0)]
        if begin < number <= begin + len(ran):
            code, exit_code = ran[number - begin - 1]
            to.ran(number, wraps[program].format(code.replace("'", "'\"'\"'")), exit_code)
            to.ran(number + 100, "python3 -c something else", 7, parent=number)

    calls = replay(reader, RECORDED[program]["fail"], happens)
    assert [(call.exit_code, call.status) for call in calls[:3]] == [(3, "error"), (1, "error"), (0, "ok")]
    assert reader.events("exit_code_differs") == []


@pytest.mark.parametrize("program", FAILED)
def test_two_calls_of_one_reply(program: str, reader: Reader) -> None:
    calls = replay(reader, RECORDED[program]["parallel"])
    assert [(call.code, call.stdout.strip()) for call in calls][:2] == [
        ("echo one; exit 0", "one"),
        ("echo two; exit 3", "two"),
    ]
    told = program not in ("opencode", "inspect")
    assert [call.status for call in calls[:2]] == ["ok", "error" if told else "ok"]


NOTE = "first line\nsecond line\n"
WRITES = {
    "claude-code": ("cat > /workspace/note.txt <<'EOF'\nfirst line\nsecond line\nEOF\n", None),
    "gemini-cli": ("cat > /workspace/note.txt <<'EOF'\nfirst line\nsecond line\nEOF\n", None),
    "opencode": ("cat > /workspace/note.txt <<'EOF'\nfirst line\nsecond line\nEOF\n", None),
    "codex": ("cat > note.txt <<'EOF'\nfirst line\nsecond line\nEOF\n", 0),
}


@pytest.mark.parametrize("program", WRITES)
def test_a_written_file(program: str, reader: Reader) -> None:
    """It belongs to the call that wrote it, and what the program keeps for itself to none."""

    def happens(to: Reader, number: int) -> None:
        if number == len(RECORDED[program]["write"]) - 2:
            (to.workspace / "note.txt").write_text(NOTE)
            (to.workspace / ".claude").mkdir()
            (to.workspace / ".claude/history.jsonl").write_text("{}")
            (to.workspace / ".aider.chat.history.md").write_text("#")

    written, read = replay(reader, RECORDED[program]["write"], happens)
    assert (written.code, written.exit_code, written.status, written.new_files) == (
        *WRITES[program],
        "ok",
        ["note.txt"],
    )
    assert (read.code, read.stdout.strip(), read.new_files) == ("cat /workspace/note.txt", NOTE.strip(), [])


def test_python_that_came_by_the_input(reader: Reader) -> None:
    """Inspect's python tool: its code stands in no command line; the only process that can have run it did."""

    def happens(to: Reader, number: int) -> None:
        if number:
            to.ran(10 + number, "bash --login -c python3 -", 3 * (number - 1))
            to.ran(10 + number, "python3 -", 3 * (number - 1))
            to.ran(50 + number, "/bin/sh -c uname", 9, parent=10 + number)

    calls = replay(reader, RECORDED["inspect"]["write"], happens)
    assert [(call.language, call.exit_code) for call in calls] == [("bash", None), ("python", 0), ("python", 3)]


def test_aiders_files_and_runs(reader: Reader) -> None:
    """Files of its replies are calls; a failed run is told, once, a good one is known from the container alone."""
    texts = [
        "import sys\nprint('before')\nsys.exit(3)\n",
        "raise ValueError(1)\n",
        "open('note.txt', 'w').write('first line')\n",
    ]

    def happens(to: Reader, number: int) -> None:
        if number:
            (to.workspace / "run.py").write_text(texts[number - 1])
            to.ran(number, "/bin/bash -c python3 run.py", [3, 1, 0][number - 1])
            to.ran(number, "python3 run.py", [3, 1, 0][number - 1])
        if number == 3:
            (to.workspace / "note.txt").write_text("first line")

    calls = replay(reader, RECORDED["aider"]["fail"], happens)
    edits = [f"cat > run.py <<'EOF'\n{text}EOF\n" for text in texts]
    assert [(call.code, call.exit_code, call.status) for call in calls] == [
        ("python3 run.py", 3, "error"),
        (edits[0], None, "ok"),
        ("python3 run.py", 1, "error"),
        (edits[1], None, "ok"),
        (edits[2], None, "ok"),
        ("python3 run.py", 0, "ok"),
    ]
    assert (calls[-2].new_files, calls[-1].new_files) == (["run.py"], ["note.txt"])


def test_what_the_program_says_is_no_word_of_the_models(reader: Reader) -> None:
    """Its own system prompt, its examples of what the model might say; a request for a title is left out."""
    replay(reader, RECORDED["opencode"]["fail"])
    said = reader.dialogue.records()
    assert [(one.role, one.by_program) for one in said[:5]] == [
        ("system", False),
        ("user", False),
        ("system", True),
        ("user", True),
        ("assistant", False),
    ]
    assert not any("title" in one.content for one in said)
    kept = [json.loads(line) for line in (reader.log.folder / "transcript.jsonl").read_text().splitlines()]
    assert any("title" in line["content"].lower() for line in kept)


def test_a_request_for_a_title_in_the_middle(reader: Reader) -> None:
    ask = ChatMessage("user", "Begin.")
    reader.exchange([ask], Reply("I begin."))
    reader.exchange(
        [ask, ChatMessage("assistant", "I begin."), ChatMessage("user", "A title?")], Reply("Title"), tools=False
    )
    reader.exchange([ask, ChatMessage("assistant", "I begin."), ChatMessage("user", "Go on.")], Reply("Done."))
    assert [one.content for one in reader.dialogue.records()[2:]] == ["Begin.", "I begin.", "Go on.", "Done."]
    assert reader.traffic.last_text == "Done."
    assert len(reader.events("side_request")) == 1


def test_the_container_is_believed(reader: Reader) -> None:
    reader.exchange([ChatMessage("user", "Begin.")], Reply("", (ToolCall("c", "bash", '{"command": "make all"}'),)))
    reader.ran(5, "bash -c make all", 2)
    call = ChatMessage("assistant", "", (ToolCall("c", "bash", '{"command": "make all"}'),))
    reader.exchange(
        [ChatMessage("user", "Begin."), call, ChatMessage("tool", "exit code: 0", call_id="c")], Reply("ok")
    )
    assert [(one.exit_code, one.status) for one in reader.traffic.calls] == [(2, "error")]
    (event,) = reader.events("exit_code_differs")
    assert (event["call"], event["reported"], event["seen"]) == (2, 0, 2)


def test_what_is_opened_before_the_first_call_is_the_command_s(reader: Reader) -> None:
    """As Claude Code does: it lists its skills at the start, and its Skill and Read tools start no process."""
    path = "/skills/cells/SKILL.md"
    listed = Process(command="prog", parent=None, exit_code=None, reads=[path])
    ran = Process(command="ls", parent=None, exit_code=0, reads=["/data/public/x"])
    messages = [ChatMessage("user", "Begin.")]
    asked = [("Bash", {"command": "ls"}), ("Skill", {"skill": "cells"}), ("Skill", {"skill": "none"})]
    asked += [
        ("mcp__cells__count", {}),
        ("Read", {"file_path": f"/tmp/home/.claude{path}"}),
        ("Read", {"file_path": "/workspace/a"}),
    ]
    reader.sandbox.opened = [listed]
    for name, arguments in asked:
        call = ToolCall(f"c{len(messages)}", name, json.dumps(arguments))
        reader.exchange(messages, Reply("", (call,)))
        reader.sandbox.opened += [ran] if name == "Bash" else []
        result = ChatMessage("tool", "x", call_id=call.id, failed=arguments.get("skill") == "none")
        messages = [*messages, ChatMessage("assistant", "", (call,)), result]
    reader.exchange(messages, Reply("Done."))
    whole, first, *_ = reader.end()
    assert (whole.processes, first.processes) == ([listed], [ran])
    used = [(2, "cells/SKILL.md"), (2, "mcp__cells__count"), (3, "cells/SKILL.md")]
    assert [(use.call, use.file) for use in reader.traffic.help_used] == used


def test_a_call_that_takes_long_is_told_in_parts(reader: Reader) -> None:
    """Codex: the first result comes before the end; what is told when it is asked after belongs to the call."""
    messages = [ChatMessage("user", "Begin.")]

    def answer(name: str, arguments: dict[str, Any], result: str) -> None:
        nonlocal messages
        call = ToolCall(f"c{len(messages)}", name, json.dumps(arguments))
        reader.exchange(messages, Reply("", (call,)))
        messages = [*messages, ChatMessage("assistant", "", (call,)), ChatMessage("tool", result, call_id=call.id)]

    head = "Chunk ID: a\nWall time: 10.0 seconds\n"
    runs = f"{head}Process running with session ID 7\nOriginal token count: 1\nOutput:\n"
    answer("exec_command", {"cmd": "python3 train.py"}, f"{runs}epoch 1\n")
    (reader.workspace / "one.txt").write_text("1")
    answer("write_stdin", {"session_id": 7, "chars": ""}, f"{runs}epoch 2\n")
    (reader.workspace / "two.txt").write_text("2")
    answer("write_stdin", {"session_id": 7}, f"{head}Process exited with code 4\nOutput:\nno memory\n")
    answer("write_stdin", {"session_id": 8}, "no such session")
    reader.exchange(messages, Reply("Done."))
    (call,) = reader.traffic.calls
    assert (call.stdout, call.exit_code, call.status) == ("epoch 1\nepoch 2\nno memory\n", 4, "error")
    assert call.new_files == ["one.txt", "two.txt"]


def test_one_terminal_for_all(reader: Reader) -> None:
    """OpenHands: more of a call that still runs comes with an empty command, or with one that is not run."""
    messages = [ChatMessage("user", "Begin.")]
    still = "\n[The command has no new output after 30 seconds. You may wait longer by sending empty command '', …]"
    earlier = "[Below is the output of the previous command.]\n"
    for command, result in (
        ("python3 train.py", f"epoch 1{still}"),
        ("ls", f'{earlier}epoch 2\n[Your command "ls" is NOT executed. The previous command is still running - …]'),
        ("", f"{earlier}epoch 3\n[The command completed with exit code 2.]\n[Current working directory: /workspace]"),
        ("ls", "run.py\n[The command completed with exit code 0.]"),
    ):
        call = ToolCall(f"c{len(messages)}", "terminal", json.dumps({"command": command, "is_input": "false"}))
        reader.exchange(messages, Reply("", (call,)))
        messages = [*messages, ChatMessage("assistant", "", (call,)), ChatMessage("tool", result, call_id=call.id)]
    reader.exchange(messages, Reply("Done."))
    train, listed = reader.traffic.calls
    assert (train.code, train.exit_code, train.status) == ("python3 train.py", 2, "error")
    assert [line for line in train.stdout.split("\n") if line.startswith("epoch")] == ["epoch 1", "epoch 2", "epoch 3"]
    assert (listed.code, listed.stdout, listed.exit_code) == ("ls", "run.py", 0)


def test_a_call_in_the_background_ends_later(reader: Reader) -> None:
    """The program never tells its end; the container does."""
    call = ToolCall("c", "Bash", '{"command": "python3 train.py", "run_in_background": true}')
    messages = [ChatMessage("user", "Begin."), ChatMessage("assistant", "", (call,))]
    reader.exchange(messages[:1], Reply("", (call,)))
    begin = time.monotonic()
    reader.sandbox.inside = [TracedProgram(5, 1, "/bin/bash -c eval 'python3 train.py'", begin, None, True)]
    reader.sandbox.opened = [Process(command="python3 train.py", parent=None, exit_code=None, reads=["train.py"])]
    told = ChatMessage("tool", "Command running in background with ID: b1. Output is being written to: x.", call_id="c")
    reader.exchange([*messages, told], Reply("I wait."))
    assert [(one.exit_code, one.status) for one in reader.traffic.calls] == [(None, "ok")]
    reader.sandbox.inside = [TracedProgram(5, 1, "/bin/bash -c eval 'python3 train.py'", begin, 1, False)]
    reader.sandbox.opened = [Process(command="python3 train.py", parent=None, exit_code=1, writes=["w.pt"])]
    whole, train = reader.end()
    assert (train.exit_code, train.status) == (1, "error")
    opened = [[(each.reads, each.writes) for each in call.processes or ()] for call in (whole, train)]
    assert opened == [[([], ["w.pt"])], [(["train.py"], [])]]


def test_results_that_all_have_the_same_id(reader: Reader) -> None:
    """Gemini CLI behind a translating server: the call of the same place counts, whatever id it has."""
    begin, calls = (
        ChatMessage("user", "Begin."),
        tuple(ToolCall("x", "bash", f'{{"command": "echo {n}"}}') for n in range(3)),
    )
    reader.exchange([begin], Reply("", distinct_calls(calls, 1)))
    results = [ChatMessage("tool", f"{n}\nexit code: {n}", call_id="x") for n in range(3)]
    reader.exchange([begin, ChatMessage("assistant", "", calls), *results], Reply("Done."))
    assert [(call.code, call.exit_code) for call in reader.traffic.calls] == [(f"echo {n}", n) for n in range(3)]


@pytest.mark.parametrize(
    ("content", "output", "code"),
    [
        ("Exit code 3\nbefore", "before", 3),
        ("Chunk ID: a\nWall time: 0.1 seconds\nProcess running with session ID 7\nOutput:\nepoch 1", "epoch 1", None),
        ("Wall time: 0.0 seconds\nOutput:\nExit code: 0\nWall time: 0 seconds\nOutput:\nSuccess.", "Success.", 0),
        ("<returncode>2</returncode>\n<output>\nno file\n</output>", "no file", 2),
        ("a\n[The command completed with exit code 1.]\n[Current working directory: /workspace]", "a", 1),
        ("a\n[Command finished with exit code 0]", "a", 0),
        ('{"output": "a", "metadata": {"exit_code": 4, "duration_seconds": 1}}', "a", 4),
        ('{"exit_code": 0, "stdout": "done", "stderr": ""}', "done", 0),
        ('{"dice": 0.9, "output": "x.nii.gz"}', '{"dice": 0.9, "output": "x.nii.gz"}', None),
        ("Status: 200\nfine", "Status: 200\nfine", None),
        ('{"exit_code": 4294967295, "output": "x"}', '{"exit_code": 4294967295, "output": "x"}', None),
        ("checked; exit code 1 was expected", "checked; exit code 1 was expected", None),
        ("(no output)", "", None),
        ("a\n\n", "a\n\n", None),
    ],
)
def test_outcomes(content: str, output: str, code: int | None) -> None:
    """By hand from the programs' sources: Codex, mini-swe-agent, OpenHands (both generations), Claude Code, ours."""
    told = parse_outcome(content)
    assert (told.output, told.exit_code) == (output, code)


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** End Patch"


@pytest.mark.parametrize(
    ("name", "arguments", "code", "files"),
    [
        ("Edit", {"file_path": "a.py", "old_string": "1", "new_string": "2"}, "text.replace('1', '2', 1)", ("a.py",)),
        ("replace", {"file_path": "a", "old_string": "1", "new_string": "2"}, "text.replace('1', '2', 1)", ("a",)),
        ("edit", {"filePath": "a", "oldString": "1", "newString": "2"}, "text.replace('1', '2', 1)", ("a",)),
        ("str_replace_editor", {"command": "create", "path": "a", "file_text": "x"}, "cat > a <<'EOF'\nx\nEOF", ("a",)),
        (
            "str_replace_editor",
            {"command": "str_replace", "path": "a", "old_str": "1", "new_str": ""},
            "('1', '', 1)",
            ("a",),
        ),
        ("str_replace_editor", {"command": "view", "path": "a"}, "cat a\n", ()),
        ("execute_bash", {"command": "ls"}, "ls", ()),
        ("apply_patch", {"input": PATCH}, PATCH, ("a.py",)),
        ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}\nEOF"}, PATCH, ("a.py",)),
        ("apply_patch", PATCH, PATCH, ("a.py",)),
        ("write", {"filePath": "a", "content": "EOF\n"}, "cat > a <<'EOF_'\nEOF\nEOF_\n", ("a",)),
    ],
)
def test_tools_that_edit_and_read(name: str, arguments: Any, code: str, files: tuple[str, ...]) -> None:
    asked = read_tool_call(ToolCall("i", name, arguments if isinstance(arguments, str) else json.dumps(arguments)))
    assert asked is not None
    assert code in asked.program.code and asked.files == files


def test_files_in_a_text() -> None:
    """Aider's two formats, by its documentation."""
    whole = "I write it.\n\nsrc/a.py\n```python\nx = 1\n```\n\n`run.sh`:\n```\nls\n```\n"
    assert [(one.files, one.program.code) for one in read_code_blocks(whole)] == [
        (("src/a.py",), "cat > src/a.py <<'EOF'\nx = 1\nEOF\n"),
        (("run.sh",), "cat > run.sh <<'EOF'\nls\nEOF\n"),
    ]
    (edit,) = read_code_blocks("a.py\n```python\n<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n```\n")
    assert (edit.files, "text.replace('x = 1', 'x = 2', 1)" in edit.program.code) == (("a.py",), True)


def test_a_long_code_is_found_by_its_beginning() -> None:
    code = "python3 - <<'PY'\n" + "".join(f"print('{n}')\n" for n in range(900)) + "PY\n"
    line = f"bash -c source x && eval '{code}'".replace("print('", "print('\"'\"'")[:2000]
    other = TracedProgram(1, 1, "bash -c python3 - <<'PY'\nprint('7')", 0.0, 1, False)
    assert find_traced_program(code, [other, TracedProgram(2, 1, line, 0.0, 0, False)]) == TracedProgram(
        2, 1, line, 0.0, 0, False
    )
    assert find_traced_program(code, [other]) is None


def test_a_short_code_is_no_part_of_a_word() -> None:
    """``ls`` did not run as utils.py; what was typed into a shell that stays is a process of its own."""
    lines = [
        "python3 utils.py",
        "bash -c ls-all",
        "bash -c source x || true && eval 'ls' < /dev/null",
        "python3 a.py -n 1",
    ]
    programs = [TracedProgram(pid, 1, line, 0.0, 0, False) for pid, line in enumerate(lines)]
    found = {
        code: find_traced_program(code, programs)
        for code in ("ls", "python3 a.py -n 1", "python3 a.py", "a.py", "cat x")
    }
    assert {code: one and one.pid for code, one in found.items()} == {
        "ls": 2,
        "python3 a.py -n 1": 3,
        "python3 a.py": 3,
        "a.py": 3,
        "cat x": None,
    }


def test_reading_is_linear(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """150 requests, each with all before it: every message is hashed once, not once for each request."""
    hashed: list[int] = []
    digest = command_traffic._digest
    monkeypatch.setattr(command_traffic, "_digest", lambda message: hashed.append(1) or digest(message))
    messages: list[ChatMessage] = []
    for number in range(150):
        messages = [*messages, ChatMessage("user", f"{number} " * 1000)]
        reader.exchange(messages, Reply(f"reply {number}"))
        messages = [*messages, ChatMessage("assistant", f"reply {number}")]
    # 299 messages in requests and 150 replies as they are given.
    assert len(hashed) == 299 + 150


def test_many_results_take_time_in_proportion(reader: Reader) -> None:
    """20,000 results behind one call once took 44 s, while the run could not end."""
    begin = time.process_time()
    reader.exchange([ChatMessage("user", "go")], Reply("", (ToolCall("x", "bash", '{"command": "ls"}'),)))
    asked = ChatMessage("assistant", "", (ToolCall("", "bash", "{}"),))
    results = [ChatMessage("tool", "", call_id="y") for _ in range(20_000)]
    reader.exchange([ChatMessage("user", "go"), asked, *results], Reply("ok"))
    assert time.process_time() - begin < 10


def test_what_is_kept_of_a_flood(reader: Reader) -> None:
    """Ids count for the transcript, and codes that a program tells have a room of their own."""
    for number in range(40):
        told = f"I ran this command: {number:x<1000000} And got this output: x"
        reader.exchange([ChatMessage("user", told)], Reply(f"{number}"), tools=False)
        reader.exchange(
            [ChatMessage("tool", f"{number}", call_id=f"{number:x<1000000}")], Reply(f"{number}!"), tools=False
        )
    sizes = [len(call.code) for call in reader.traffic.calls]
    assert (len(sizes), sum(sizes[:16]), max(sizes[16:]) < 11_000) == (40, command_traffic.MAX_CODE, True)
    written = (reader.log.folder / "transcript.jsonl").stat().st_size
    assert written < command_traffic.MAX_TRANSCRIPT + 100_000
    assert len(reader.events("transcript_full")) == 1


def test_what_was_worked_on_is_not_set_aside(reader: Reader) -> None:
    """Only what came before any work is a request for a title: else a program could hide its model's words."""
    reader.exchange([ChatMessage("user", "Begin.")], Reply("```bash\nls\n```"), tools=False)
    messages = [ChatMessage("user", "Begin."), ChatMessage("assistant", "```bash\nls\n```"), ChatMessage("user", "x")]
    reader.exchange(messages, Reply("Now I do it."), tools=False)
    reader.exchange([ChatMessage("user", "A new one.")], Reply("Done."))
    assert len(reader.traffic.calls) == 1
    assert "Now I do it." in [one.content for one in reader.dialogue.records()]


def test_hostile_traffic_takes_no_time(reader: Reader) -> None:
    """A program may send what it likes: many results without calls, one line of a megabyte, a flood of fences."""
    begin = time.monotonic()
    call = ToolCall("x", "bash", json.dumps({"command": "x" * 1_000_000}))
    reader.exchange([ChatMessage("user", "go")], Reply("", (call,)))
    calls = ChatMessage("assistant", "", tuple(ToolCall("y", "bash", f'{{"command": "{n}"}}') for n in range(100)))
    results = [ChatMessage("tool", f"{n}", call_id="y") for n in range(4000)]
    reader.exchange([ChatMessage("user", "go"), calls, *results], Reply("a/" * 500_000 + "\n```\n" * 100_000))
    for text in (
        "Exit code " * 100_000,
        "\n" * 1_000_000,
        "[" * 1_000_000,
        '{"output":' * 10_000,
        "Output: \n" * 100_000,
    ):
        parse_outcome(text)
    assert time.monotonic() - begin < 10
