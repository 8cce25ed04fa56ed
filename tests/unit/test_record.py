"""Order of events where one file holds the outputs of all cases: pilot, check, full run. Verdicts are those of S3."""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_made_runs import call, conversation, failing

from automedbench.base.records import CodeCall
from automedbench.judge import NOT_MEASURED, load_rubric
from automedbench.judge.evidence import collect_evidence
from automedbench.judge.record import ALL_CASES, History, output_case, read_trace
from automedbench.judge.rubric import Rubric
from automedbench.judge.rules import HeuristicJudge

TABLE = ["agents_outputs/predictions.csv"]
NAMES = frozenset(["predictions.csv", "prediction.json"])
WORDS = ["label"]


@pytest.fixture(scope="module")
def rubric(root: Path) -> Rubric:
    return load_rubric(root / "config/rubrics", "classification")


PATHS = [
    ("a case's file", "agents_outputs/c_0001/prediction.json", NAMES, "c_0001"),
    ("deeper", "agents_outputs/c_0001/a/b/prediction.json", NAMES, "c_0001"),
    ("another file of a case", "agents_outputs/c_0001/note.txt", NAMES, None),
    ("the task's file", "agents_outputs/predictions.csv", NAMES, ALL_CASES),
    ("with a dot", "./agents_outputs/./predictions.csv", NAMES, ALL_CASES),
    ("another file of the task", "agents_outputs/log.txt", NAMES, None),
    ("any file counts without names", "agents_outputs/log.txt", frozenset[str](), ALL_CASES),
    ("the folder itself", "agents_outputs", NAMES, None),
    ("elsewhere", "predictions.csv", NAMES, None),
]


@pytest.mark.parametrize(("path", "names", "expected"), [row[1:] for row in PATHS], ids=[row[0] for row in PATHS])
def test_output_case(path: str, names: frozenset[str], expected: str | None) -> None:
    assert output_case(path, names) == expected


def test_an_unknown_exit_code_counts_as_run() -> None:
    """A call whose status is an error failed, with or without a code."""
    states = [("ok", 0), ("ok", None), ("ok", 3), ("error", None), ("error", 1), ("refused", None)]
    events = read_trace([call(n, "x = 1", status=status, exit_code=code) for n, (status, code) in enumerate(states)])
    assert [(event.ok, event.failed) for event in events] == [
        (True, False),
        (True, False),
        (False, False),
        (False, True),
        (False, True),
        (False, False),
    ]


# --- runs -----------------------------------------------------------------------------------------------------

MODEL = """import csv, os
from PIL import Image
def classify(path):
    image = Image.open(path)
    return "glioma" if image.getextrema()[1] > 5 else "notumor"
data = os.environ["DATA_DIR"]
cases = sorted(os.listdir(data))
"""
TRY = MODEL + 'label = classify(f"{data}/{cases[0]}/image.jpg")\nprint(cases[0], label)\n'
WRITE_ONE = TRY + 'open("agents_outputs/predictions.csv", "w").write(f"patient_id,label\\n{cases[0]},{label}\\n")\n'
RUN = (
    MODEL
    + """with open("agents_outputs/predictions.csv", "w") as file:
    for case in cases:
        print(case, label := classify(f"{data}/{case}/image.jpg"))
        file.write(f"{case},{label}\\n")
"""
)
CHECK = """import csv
rows = list(csv.DictReader(open("agents_outputs/predictions.csv")))
assert rows[0]["label"] in ("glioma", "notumor")
"""
LOOK = MODEL + 'image = Image.open(f"{data}/{cases[0]}/image.jpg")\nprint(cases[0], image.size, image.mode)\n'
SCRIPT = """import sys
from model import classify
for case in sys.argv[1:]:
    label = classify(case)
    print(case, label)
"""


def tried(number: int = 1) -> CodeCall:
    """One case, its label printed, no file."""
    return call(number, TRY, stdout="c_0001 glioma")


def wrote_one(number: int = 1) -> CodeCall:
    """One case, its row written."""
    return call(number, WRITE_ONE, stdout="c_0001 glioma", new_files=TABLE)


def full(number: int) -> CodeCall:
    """The full run."""
    return call(number, RUN, stdout="c_0001 glioma\nc_0002 notumor", new_files=TABLE)


def script(number: int, command: str, new_files: list[str] | None = None) -> CodeCall:
    """A program that takes the cases to run, and how it is started."""
    code = f"cat > run.py <<'EOF'\n{SCRIPT}EOF\n{command}"
    return call(number, code, language="bash", stdout="c_0001 glioma", new_files=new_files or [])


ORDERS = [
    # id, calls, s3 by the levels of the rubric: 1 pilot and check before the full run, ½ one of both
    ("full run at once", [full(1)], 0),
    ("full run, then check", [full(1), call(2, CHECK)], 0.5),
    ("one case shown, full run", [tried(), full(2)], 0.5),
    ("one row written, full run", [wrote_one(), full(2)], 0.5),
    ("one row written, read back, full run", [wrote_one(), call(2, CHECK), full(3)], 1),
    ("one row written and read back in one call", [
        call(1, WRITE_ONE + CHECK, stdout="x", new_files=TABLE), full(2)], 1),
    ("one case shown, full run, then check", [tried(), full(2), call(3, CHECK)], 0.5),
    ("one row and its check, never a full run", [wrote_one(), call(2, CHECK)], 0.5),
    ("one case that fails", [failing(1, TRY, "ValueError: x", stdout="c_0001 glioma"), full(2)], 0),
    ("one case, nothing printed", [call(1, TRY), full(2)], 0),
    ("looking at one image is no trial", [call(1, LOOK, stdout="c_0001 (9, 9) L"), full(2)], 0),
    ("a label only claimed", [call(1, LOOK + 'print("label glioma")', stdout="label glioma"), full(2)], 0),
    ("three cases are no pilot", [call(1, RUN.replace("in cases:", "in cases[:3]:"), stdout="x", new_files=TABLE),
                                  full(2)], 0),
    ("full run with a word on the first", [call(1, RUN + "print(cases[0], label)", stdout="x", new_files=TABLE),
                                           full(2)], 0),
    ("full run that failed and went on", [failing(1, RUN, "ValueError: x", new_files=TABLE), full(2)], 0),
    ("case id written out", [script(1, "python3 run.py BTMRI_0001"), full(2)], 0.5),
    ("two case ids", [script(1, "python3 run.py BTMRI_0001 BTMRI_0002"), full(2)], 0.5),
    ("three case ids", [script(1, "python3 run.py BTMRI_0001 BTMRI_0002 BTMRI_0003"), full(2)], 0),
    ("first line of ls", [script(1, 'python3 run.py $(ls "$DATA_DIR" | sort | head -n 1)'), full(2)], 0.5),
    ("ten lines of ls", [script(1, 'python3 run.py $(ls "$DATA_DIR" | head -n 10)'), full(2)], 0),
    ("ls without head", [script(1, 'ls "$DATA_DIR" | head -1\npython3 run.py $(ls "$DATA_DIR")', TABLE), full(2)], 0),
    ("a file for one case, then the table", [
        call(1, TRY, stdout="x", new_files=["agents_outputs/c_0001/prediction.json"]),
        call(2, CHECK.replace("predictions.csv", "c_0001/prediction.json")), full(3)], 1),
]  # fmt: skip


@pytest.mark.parametrize(("calls", "expected"), [row[1:] for row in ORDERS], ids=[row[0] for row in ORDERS])
def test_validation(calls: list[CodeCall], expected: float, rubric: Rubric) -> None:
    verdicts = HeuristicJudge().judge(collect_evidence(conversation(calls)), rubric, "standard", NOT_MEASURED)
    assert {each.id: each.verdict for each in verdicts}["s3"] == expected


def test_places_of_pilot_and_full_run() -> None:
    """The table that a pilot wrote is no batch; the same table of the full run is."""
    events = read_trace([call(1, LOOK, stdout="x"), wrote_one(2), call(3, CHECK), full(4)], NAMES)
    history = History(events, 9)
    assert (history.pilot, history.batch, history.full) == (1, 3, 3)
    assert [event.cases for event in events] == [frozenset(), {ALL_CASES}, frozenset(), {ALL_CASES}]


def test_a_pilot_that_failed_at_first_counts_once_it_works() -> None:
    """A first try that left a file and failed, a repaired one, the look at it, the full run (judge rubric, S3)."""
    first, rest = "agents_outputs/a/x.npy", [f"agents_outputs/{name}/x.npy" for name in "bcdefgh"]
    failed = call(1, "work()", new_files=[first]).model_copy(update={"status": "error", "exit_code": 1})
    again, look, all_cases = call(2, "work()", new_files=[first]), call(3, "look()"), call(4, "run()", new_files=rest)
    assert History(read_trace([failed, again, look, all_cases]), 8).pilot == 1
    assert History(read_trace([failed, look, all_cases]), 8).pilot is None


def test_trial_without_output_counts_only_where_one_file_holds_all() -> None:
    """In a task with a file per case, showing a label is no pilot."""
    files = [f"agents_outputs/c_{number:04d}/prediction.json" for number in range(1, 9)]
    history = History(read_trace([tried(), call(2, RUN, new_files=files)], NAMES), 8)
    assert (history.pilot, history.batch) == (None, 1)


def test_input_is_looked_at_before_the_full_run(rubric: Rubric) -> None:
    """S2b: looking at an image counts before the table of all cases, not after it."""
    for order, expected in (((1, 2), 1.0), ((2, 1), 0.0)):
        numbered = dict(zip(order, (call(order[0], LOOK, stdout="x"), full(order[1])), strict=True))
        calls = [numbered[number] for number in (1, 2)]
        verdicts = HeuristicJudge().judge(collect_evidence(conversation(calls)), rubric, "standard", NOT_MEASURED)
        assert {each.id: each.verdict for each in verdicts}["s2b"] == expected


@pytest.mark.parametrize(("n_cases", "expected"), [(2, 2), (3, None)])
def test_of_two_cases_one_is_left_for_the_full_run(n_cases: int, expected: int | None) -> None:
    """A pilot, a look at its output, the other case: all there is to do of two cases, too little of more."""
    events = read_trace(
        [
            call(1, "work()", new_files=["agents_outputs/a/x.npy"]),
            call(2, "look()"),
            call(3, "work()", new_files=["agents_outputs/b/x.npy"]),
        ]
    )
    assert History(events, n_cases).full == expected
