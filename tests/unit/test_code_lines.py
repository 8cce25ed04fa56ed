"""Lines that a call ran, and what they do with outputs: hand-made calls, each with what a reader of it would say."""

from __future__ import annotations

import json
import time

import pytest
from hand_made_runs import call

from automedbench.judge.record import read_trace
from automedbench.reading.lines import MAX_CODE, Scripts, imports, said, split_lines
from automedbench.reading.outputs import OutputReading

CHECK = 'import json\na = json.load(open("agents_outputs/c/answer.json"))\nassert a["x"] > 0\n'
NOTEBOOK = json.dumps(
    {"cells": [{"cell_type": "code", "source": ["work()\n"]}, {"cell_type": "markdown", "source": []}]}
)
RAN = [
    # id, code of the calls in order, whether the last one ran work()
    ("here-document for an interpreter", ["python - <<'EOF'\nwork()\nEOF"], True),
    ("script that is only written", ["cat > a.py <<'EOF'\nwork()\nEOF"], False),
    ("script that is started later", ["cat > a.py <<'EOF'\nwork()\nEOF", "python a.py x"], True),
    ("script that is only looked at", ["cat > a.py <<'EOF'\nwork()\nEOF", "cat a.py && chmod +x a.py"], False),
    ("module that is imported", ["cat > tools/a.py <<'EOF'\nwork()\nEOF", "from tools.a import b"], True),
    ("module of a package", ["cat > src/pkg/cli.py <<'EOF'\nwork()\nEOF", "PYTHONPATH=src python -m pkg verify"], True),
    ("file of a patch", ["apply_patch <<'EOF'\n*** Add File: a.py\n+work()\n*** End Patch\nEOF", "python a.py"], True),
    ("notebook", [f"cat > a.ipynb <<'EOF'\n{NOTEBOOK}\nEOF", "papermill a.ipynb b.ipynb"], True),
    ("plan in a here-document", ["cat > plan.md <<'EOF'\nwork()\nEOF"], False),
    ("text in triple quotes", ['"""\nwork()\n"""'], False),
    ("comment", ["# work()"], False),
    ("printed", ["print('work()')\necho work()"], False),
]


@pytest.mark.parametrize(("codes", "expected"), [row[1:] for row in RAN], ids=[row[0] for row in RAN])
def test_lines_that_ran(codes: list[str], expected: bool) -> None:
    scripts = Scripts()
    ran = [scripts.read(call(number, code, language="bash")) for number, code in enumerate(codes, start=1)]
    assert any("work()" in line.code for line in ran[-1]) is expected


def test_a_line_of_a_script_has_the_turn_that_wrote_it() -> None:
    scripts = Scripts()
    scripts.read(call(1, "cat > a.py <<'EOF'\nwork()\nEOF", language="bash"))
    ran = scripts.read(call(2, "python a.py", language="bash"))
    assert [(line.text, line.turn) for line in ran] == [("python a.py", 2), ("work()", 1)]


def test_a_failure_that_nobody_hears_of() -> None:
    silent = split_lines("try:\n    check()\nexcept Exception:\n    pass\ngo()", 1)
    heard = split_lines("try:\n    check()\nexcept Exception as e:\n    raise SystemExit(e)\n", 1)
    assert [line.unseen for line in silent] == [True, True, False, False, False]
    assert not any(line.unseen for line in heard)


def test_imported_packages() -> None:
    code = "import os, numpy as np\nfrom skimage.io import imread\nimport mine\npython -c 'import torch'"
    assert [name for name, _ in imports(split_lines(code, 1), frozenset(["mine"]))] == ["numpy", "skimage", "torch"]


def test_what_is_printed_whatever_happens() -> None:
    assert said(split_lines('print(f"on cuda:0 {x} done")\nopen("a.txt")', 1)) == {"on cuda:0", "done"}


CHECKS = [
    ("asserted", CHECK, True),
    ("by names of paths", 'p = "agents_outputs/c"\nd = p + "/m.npy"\nm = np.load(d)\nassert m.max() > 0', True),
    ("in a function", 'def f(p):\n    d = np.load(p)\n    assert d.any()\nf("agents_outputs/c/m.npy")', True),
    ("what a function returned", 'def f(p):\n    return np.load(p).shape\nprint(f("agents_outputs/c/m.npy"))', True),
    ("by a test", '@pytest.mark.parametrize("p", glob("agents_outputs/*"))\n'
                  "def test(p):\n    assert np.load(p).any()", True),
    ("by an object", 'class T:\n    def setUp(self):\n        self.d = np.load("agents_outputs/m.npy")\n'
                     "    def test(self):\n        self.assertGreater(self.d.max(), 0)", True),
    ("a part shown", 'm = np.load("agents_outputs/c/m.npy")\nprint(m.shape, m.min())', True),
    ("tool of a shell", "jq -e '.boxes | length > 0' agents_outputs/c/x.json", True),
    ("all of it shown", 'print(json.load(open("agents_outputs/c/answer.json")))', False),
    ("all of it shown by a shell", "cat agents_outputs/c/answer.json; jq . agents_outputs/c/answer.json", False),
    ("cannot fail", 'a = json.load(open("agents_outputs/c/answer.json"))\nassert a is not None\nassert a == a', False),
    ("only listed", "ls -la agents_outputs; du -sh agents_outputs", False),
    ("an input", 'a = np.load("/data/public/c/a.npy")\nassert a.max() > 0', False),
    ("written", 'json.dump(x, open("agents_outputs/c/answer.json", "w"))\nassert x', False),
    ("case of a loop that writes", 'for c in cases:\n    a = np.load(f"/data/public/{c}/a.npy")\n    print(a.shape)\n'
                                   '    np.save(f"agents_outputs/{c}/m.npy", a)', False),
]  # fmt: skip


@pytest.mark.parametrize(("code", "expected"), [row[1:] for row in CHECKS], ids=[row[0] for row in CHECKS])
def test_checks_of_outputs(code: str, expected: bool) -> None:
    assert any(OutputReading(split_lines(code, 1), ["m.npy"]).checks()) is expected


def test_the_trace_shows_what_no_line_does() -> None:
    """A program of which no text is known read an output back; one that wrote it beside weights used them."""
    output = "agents_outputs/c/m.npy"
    shell = {"command": "sh", "parent": None, "exit_code": 0}
    writes = {"command": "./tool", "parent": 0, "exit_code": 0, "writes": [output]}
    loads = {"command": "./model", "parent": 1, "exit_code": 0, "reads": ["/models/w.safetensors"]}
    reads = {"command": "./check", "parent": 0, "exit_code": 0, "reads": [output]}
    first, second, third = read_trace(
        [
            call(1, "./run", new_files=[output], processes=[shell, writes, loads]),
            call(2, "./run", new_files=[output], processes=[shell, writes]),
            call(3, "./check", processes=[shell, reads]),
        ]
    )
    assert (first.wrote_with_weights, second.wrote_with_weights) == (True, False)
    assert (second.reads_output, third.reads_output) == (False, True)


@pytest.mark.parametrize(
    "text", ["cat <<A\n", "try:\n", "'''", "print('", "assert ", "a = ", "x.", "with a as ", "\u200b", "import a, "]
)
def test_time_does_not_grow_with_the_square(text: str) -> None:
    began = time.monotonic()
    (event,) = read_trace([call(1, text * (MAX_CODE // len(text)), language="bash", new_files=["agents_outputs/x"])])
    assert event.checks == [] and not event.installs
    assert time.monotonic() - began < 15
