"""Collection of one run: what is taken out of a workspace, and what submission.json says about it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from factories import make_campaign, make_run, make_run_record, make_score
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from toys import classification
from toys.detection import box, make_manifest

from automedbench.base.cards import load_card
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import read_record, sha256_bytes, write_record
from automedbench.base.records import SubmissionRecord
from automedbench.sandbox.airlock.archive import OUTPUTS, is_evidence, pack, unpack_submission
from automedbench.steps.collect_submission import collect_submission
from automedbench.steps.inside.check_workspace import check_workspace

CARD = Path(__file__).resolve().parents[2] / "config/tasks/detection/bccd-det-task.yaml"
CASES = ["case_0001", "case_0002", "case_0003"]
GOOD = {"boxes": [box("rbc", 1, 1, 20, 20, score=0.5)]}


class Run:
    """The folder of a finished run on three images, collected in the local sandbox."""

    def __init__(self, place: Path) -> None:
        self.place, self.campaign = place, make_campaign(place, CARD)
        self.folder = folder = self.campaign.results / "runs" / make_run().path
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        self.submission, self.out = folder / "submission", folder / "submission.json"
        self.manifest = make_manifest(CASES).model_copy(update={"task": "bccd-det-task"})
        write_record(self.campaign.manifest("bccd-det-task"), self.manifest)
        record = make_run_record(make_score()).model_copy(update={"cases_sha256": self.manifest.cases_sha256})
        write_record(folder / "run.json", record)

    def output(self, case: str) -> Path:
        path = self.workspace / "agents_outputs" / case / "prediction.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def predict(self, *cases: str, content: Any = GOOD) -> None:
        for case in cases:
            text = content if isinstance(content, str) else json.dumps(content)
            self.output(case).write_text(text)

    def collect(self) -> SubmissionRecord:
        pack(self.workspace, self.folder / OUTPUTS, is_evidence)
        record = collect_submission(self.campaign, self.folder)
        assert read_record(self.out, SubmissionRecord) == record
        return record

    def collected(self) -> list[str]:
        with unpack_submission(self.campaign.run_files(self.folder)) as folder:
            return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def statuses(record: SubmissionRecord) -> list[str]:
    return [case.status for case in record.cases]


# --- nothing there --------------------------------------------------------------------------------------------


def test_empty_workspace(run: Run) -> None:
    record = run.collect()
    assert statuses(record) == ["missing"] * 3
    assert (record.completion_rate, record.valid_rate) == (0.0, 0.0)
    assert not record.submitted_valid
    assert run.collected() == []


def test_no_archive(run: Run) -> None:
    """Outputs that are gone are a fault of the machine, not an empty submission."""
    with pytest.raises(InfrastructureError, match=r"outputs\.tar does not exist"):
        collect_submission(run.campaign, run.folder)
    assert not run.out.exists()


def test_no_run_record(run: Run) -> None:
    (run.folder / "run.json").unlink()
    with pytest.raises(MissingDataError, match=r"run\.json does not exist"):
        run.collect()


# --- rates ----------------------------------------------------------------------------------------------------


def test_everything_valid(run: Run) -> None:
    run.predict(*CASES)
    record = run.collect()
    assert statuses(record) == ["valid"] * 3
    assert (record.completion_rate, record.valid_rate) == (1.0, 1.0)
    assert run.collected() == [f"agents_outputs/{case}/prediction.json" for case in CASES]


def test_one_of_each(run: Run) -> None:
    """By hand: one valid, one unreadable, one missing of three: both rates are 1/3."""
    run.predict("case_0001")
    run.predict("case_0002", content="{")
    record = run.collect()
    assert statuses(record) == ["valid", "malformed", "missing"]
    assert record.completion_rate == record.valid_rate == pytest.approx(1 / 3, abs=1e-15)
    assert record.cases[1].problems[0].code == "json_parse"
    assert not record.submitted_valid


def test_malformed_but_usable(run: Run) -> None:
    """A box of an unknown class is dropped; the rest is scored: completed, not valid."""
    run.predict(*CASES[:2])
    run.predict(CASES[2], content={"boxes": [*GOOD["boxes"], box("cell", 1, 1, 5, 5, score=0.5)]})
    record = run.collect()
    assert statuses(record) == ["valid", "valid", "malformed"]
    assert (record.completion_rate, record.valid_rate) == (1.0, pytest.approx(2 / 3))
    assert record.cases[2].dropped == 1


# --- what is not taken ----------------------------------------------------------------------------------------


def test_only_expected_files(run: Run) -> None:
    """Other cases, other names and whole folders stay behind and are listed; the plan comes along."""
    run.predict(*CASES)
    run.predict("case_0004")
    (run.workspace / "agents_outputs/model.pt").write_bytes(b"x" * 10)
    (run.workspace / "plan").mkdir()
    (run.workspace / "plan/plan.md").write_text("# Plan")
    (run.workspace / "code.py").write_text("print()")
    record = run.collect()
    assert statuses(record) == ["valid"] * 3
    assert {item.path for item in record.rejected} == {
        "agents_outputs/case_0004/prediction.json",
        "agents_outputs/model.pt",
    }
    assert list(record.extra) == ["plan/plan.md"]
    assert run.collected() == [*[f"agents_outputs/{case}/prediction.json" for case in CASES], "plan/plan.md"]


def test_the_picture_is_written_anew_or_left(run: Run) -> None:
    """Only its pixels come out, small; one that does not open is none, and the record says so."""
    (run.workspace / "plan").mkdir()
    plot = run.workspace / "plan/plan.png"
    text = PngInfo()
    text.add_text("note", "CANARY")
    Image.new("RGB", (2560, 1000), "red").save(plot, pnginfo=text)
    record = run.collect()
    data = (run.submission / "plan/plan.png").read_bytes()
    assert record.extra["plan/plan.png"].sha256 == sha256_bytes(data)
    assert b"CANARY" in plot.read_bytes() and b"CANARY" not in data
    with Image.open(io.BytesIO(data)) as image:
        assert image.size == (1280, 500)
    plot.write_bytes(plot.read_bytes()[:200])
    record = run.collect()
    assert not record.extra and not (run.submission / "plan/plan.png").exists()
    assert [(item.path, item.reason) for item in record.rejected] == [("plan/plan.png", "unreadable")]


def test_a_link_to_a_secret(run: Run) -> None:
    """The case says why it is missing, and nothing of the target is copied."""
    (run.folder / "secret.json").write_text(json.dumps(GOOD))
    run.predict(*CASES[1:])
    run.output(CASES[0]).symlink_to(run.folder / "secret.json")
    record = run.collect()
    assert statuses(record) == ["missing", "valid", "valid"]
    assert record.cases[0].problems[0].code == "link"
    assert f"agents_outputs/{CASES[0]}/prediction.json" not in run.collected()


def test_too_large_a_file_was_submitted_but_is_malformed(run: Run) -> None:
    """The card's max_bytes for a prediction is 2 000 000."""
    limit = load_card(CARD).outputs[0].max_bytes
    run.predict(*CASES[1:])
    run.output(CASES[0]).write_bytes(b" " * (limit + 1))
    record = run.collect()
    assert statuses(record) == ["malformed", "valid", "valid"]
    assert record.cases[0].problems[0].code == "too_large"
    assert not record.cases[0].completed


def test_a_pipe_does_not_hang(run: Run) -> None:
    run.predict(*CASES[1:])
    os.mkfifo(run.output(CASES[0]))
    record = run.collect()
    assert statuses(record) == ["missing", "valid", "valid"]
    assert record.cases[0].problems[0].code == "fifo"


# --- one file for all cases -----------------------------------------------------------------------------------


class TableRun:
    """Collection of a classification run of two cases, whose labels stand in one table or in a file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "workspace/agents_outputs"
        self.outputs.mkdir(parents=True)
        self.manifest = make_manifest(["c1", "c2"])

    def file(self, case: str, label: str) -> None:
        (self.outputs / case).mkdir()
        (self.outputs / case / "prediction.json").write_text(json.dumps({"label": label}))

    def collect(self) -> SubmissionRecord:
        run = make_score().run
        return check_workspace(classification.CARD, self.manifest, run, self.folder / "workspace", self.folder)


@pytest.fixture
def table_run(tmp_path: Path) -> TableRun:
    return TableRun(tmp_path)


def verdicts(record: SubmissionRecord) -> list[tuple[str, bool, list[str]]]:
    return [(case.status, case.completed, [problem.code for problem in case.problems]) for case in record.cases]


def test_nothing_of_a_table(table_run: TableRun) -> None:
    assert verdicts(table_run.collect()) == [("missing", False, ["not_found"])] * 2


def test_refused_table_reaches_every_case(table_run: TableRun) -> None:
    """A link instead of the table: every case is missing and says why; one with a file of its own is valid."""
    (table_run.outputs / "predictions.csv").symlink_to("/etc/passwd")
    assert verdicts(table_run.collect()) == [("missing", False, ["link"])] * 2
    table_run.file("c2", "glioma")
    record = table_run.collect()
    assert verdicts(record) == [("missing", False, ["link"]), ("valid", True, [])]
    assert record.cases[0].problems[0].message == "agents_outputs/predictions.csv was not collected: link"


def test_too_large_a_table_makes_every_case_malformed(table_run: TableRun) -> None:
    """Also the one whose label is in a file of its own: that is scored, but the submission keeps no contract."""
    limit = classification.CARD.outputs[0].max_bytes
    (table_run.outputs / "predictions.csv").write_bytes(b" " * (limit + 1))
    table_run.file("c2", "glioma")
    record = table_run.collect()
    assert verdicts(record) == [("malformed", False, ["too_large"]), ("malformed", True, ["too_large"])]
    assert (record.completion_rate, record.valid_rate, record.submitted_valid) == (0.5, 0, False)


def test_refused_file_beside_a_table(table_run: TableRun) -> None:
    """What was refused of a case's own file matters only where the table has no label for it."""
    (table_run.outputs / "predictions.csv").write_text("patient_id,label\nc1,glioma\n")
    for case in ("c1", "c2"):
        (table_run.outputs / case).mkdir()
        (table_run.outputs / case / "prediction.json").write_bytes(b" " * 200_000)
    assert verdicts(table_run.collect()) == [("valid", True, []), ("malformed", False, ["too_large"])]


# --- again ----------------------------------------------------------------------------------------------------


def test_again_gives_the_same_bytes(run: Run) -> None:
    run.predict(*CASES)
    run.collect()
    first = run.out.read_bytes()
    run.collect()
    assert run.out.read_bytes() == first


def test_an_older_collection_is_replaced(run: Run) -> None:
    """What is no longer in the workspace is no longer in the submission."""
    run.predict(*CASES)
    run.collect()
    run.output(CASES[0]).unlink()
    assert statuses(run.collect()) == ["missing", "valid", "valid"]
    assert f"agents_outputs/{CASES[0]}/prediction.json" not in run.collected()


def test_other_cases_were_staged_meanwhile(run: Run) -> None:
    """The same file names may mean other images now; such outputs are not scored against them."""
    run.predict(*CASES)
    changed = run.manifest.cases[0].model_copy(update={"geometry": {"width": 5, "height": 5}})
    staged = run.manifest.model_copy(update={"cases": [changed, *run.manifest.cases[1:]]})
    write_record(run.campaign.manifest("bccd-det-task"), staged)
    with pytest.raises(InfrastructureError, match="staged again with other cases") as caught:
        run.collect()
    assert len(str(caught.value).splitlines()) <= 3
    assert not run.out.exists()


def test_container_is_asked_for_but_there_is_no_image(run: Run) -> None:
    run.collect()
    with pytest.raises(MissingDataError, match="No container image") as caught:
        collect_submission(
            make_campaign(run.place, CARD, sandbox={"backend": "apptainer"}, containers={"folder": str(run.folder)}),
            run.folder,
        )
    assert "snakemake prepare" in str(caught.value)
