"""Answers in a folder of skills: each way to carry one is found, and ordinary skills pass."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest
from toys.classification import CARD

from automedbench.base.files import sha256_file
from automedbench.base.records import CaseEntry, FileEntry
from automedbench.datasets.leaks import StagedTask
from automedbench.datasets.leaks.skills import find_answers

REPORT = "The heart is mildly enlarged. There is a small left pleural effusion, and no pneumothorax."
LABEL = b'{"label": "glioma", "n": 1}'
TABLE = b"patient_id,label\nBTMRI_0001,glioma\n"
CANARY = (Path(__file__).resolve().parents[2] / "config/prompts/canary.md").read_bytes()


@pytest.fixture
def staged(tmp_path: Path) -> StagedTask:
    """Two cases; upstream called the first Te-gl_0042.jpg."""
    raw, public, private = (tmp_path / name for name in ("raw", "public", "private"))
    cases = []
    for number, source in enumerate(("glioma/Te-gl_0042.jpg", "pituitary/Te-pi_0007.jpg"), start=1):
        case = private / f"BTMRI_{number:04d}"
        case.mkdir(parents=True)
        (case / "label.json").write_bytes(LABEL.replace(b"1}", b"%d}" % number))
        (case / "report.txt").write_text(f"{REPORT} Case {number} of this series was read twice.")
        files = {path.name: FileEntry(sha256=sha256_file(path), bytes=1) for path in case.iterdir()}
        cases.append(CaseEntry(id=case.name, inputs={}, private=files))
        split = {case.name: {"source": source, "label": "glioma"}}
        known = json.loads((private / "split.json").read_text())["cases"] if number > 1 else {}
        (private / "split.json").write_text(json.dumps({"cases": known | split}))
    (private / "ground_truth.csv").write_bytes(TABLE)
    return StagedTask(CARD, raw, public, private, cases)


def zipped(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


def tarred(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


FULL = f"{REPORT} Case 1 of this series was read twice."
PLANTED: dict[str, tuple[str, bytes, str]] = {
    "a private file": ("a.json", LABEL, "a.json is a private file of BTMRI_0001"),
    "compressed": ("a.gz", gzip.compress(LABEL), "a.gz is a private file of BTMRI_0001"),
    "in an archive": ("a.zip", zipped("x/b", LABEL), "a.zip/x/b is a private file of BTMRI_0001"),
    "in a tar archive": ("a.tgz", tarred("b", LABEL), "a.tgz/b is a private file of BTMRI_0001"),
    "in an archive of an archive": ("a.zip", zipped("b.zip", zipped("c", LABEL)), "a.zip/b.zip/c is a private file"),
    "a private table": ("t.csv", TABLE, "t.csv is a private file of ground_truth.csv"),
    "our id": ("SKILL.md", b"Hints\n\nBTMRI_0002 is odd.", "SKILL.md:3 holds the case id btmri_0002"),
    "our id in code": ("s/x.py", b"KNOWN = {'BTMRI_0001': 2}", "s/x.py:1 holds the case id btmri_0001"),
    "our id in other letters": ("n.txt", b"btmri-0001: 2", "n.txt:1 holds the case id btmri_0001"),
    "our id in a path": ("n.txt", b"/data/public/BTMRI_0001/image.jpg 2", "n.txt:1 holds the case id btmri_0001"),
    "our id in a compressed text": ("n.gz", gzip.compress(b"BTMRI_0001 2"), "n.gz:1 holds the case id btmri_0001"),
    "a file's name": ("BTMRI_0001.npy", b"\0\1", "the name BTMRI_0001.npy holds the case id btmri_0001"),
    "a folder's name": ("btmri-0002/a.npy", b"\0\1", "the name btmri-0002 holds the case id btmri_0002"),
    "a hidden file": (".notes/n", b"BTMRI_0002", ".notes/n:1 holds the case id btmri_0002"),
    "upstream's id": ("t.csv", b"id,label\nTe-gl_0042,3\n", "t.csv:2 holds the case id te_gl_0042"),
    "upstream's file": ("t.json", b'{"Te-pi_0007.jpg": 1}', "t.json:1 holds the case id te_pi_0007"),
    "upstream's name of a file": ("te-gl-0042.png", b"\0", "the name te-gl-0042.png holds the case id te_gl_0042"),
    "a report": ("r.md", f"Seen: {FULL}".encode(), "r.md holds the answer of BTMRI_0001"),
    "a report in other lines": ("r.md", f"- {FULL.upper()}".replace(" ", "\n  ").encode(), "r.md holds the answer"),
    "the benchmark's mark": ("c.md", CANARY, "c.md:1 holds the mark of the benchmark's own cards and briefs"),
}
CLEAN: dict[str, tuple[str, bytes]] = {
    "nothing": ("SKILL.md", b""),
    "classes": ("SKILL.md", b"Classes: glioma, meningioma, notumor, pituitary. Expect 25 % each."),
    "other ids": ("SKILL.md", b"Folders are named like BTMRI_9999 or Te-me_0001.jpg."),
    "a longer number": ("n.csv", b"BTMRI_00010,1\nTe-gl_00421,2\n"),
    "the prefix": ("n.md", b"for case in sorted(glob('BTMRI_*')): predict(case)"),
    "code": ("predict.py", b"import torch\nmodel = torch.load('w.pt')\nprint(model(1), 42, 7)\n"),
    "a part of a report": ("r.md", b"There is a small left pleural effusion, and no pneumothorax."),
    "typical words": ("r.md", b"Usual sentences: the heart is enlarged; no pneumothorax. Read each image twice."),
    "an example of an answer": ("a.json", b'{"label": "glioma"}'),
    "an empty table": ("t.csv", b"patient_id,label\n"),
    "another uuid": ("c.md", b"automedbench skill 7c2f4a1e-93b6-4d58-8a0e-5f1d6c3b9e72"),
    "weights": ("w.pt", bytes(range(256)) * 40),
    "an array": ("m.npy", b"\x93NUMPY\1\0" + b"\0" * 100),
    "a picture": ("p.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    "a compressed text": ("n.gz", gzip.compress(b"Normalise to zero mean.")),
    "an archive": ("a.zip", zipped("lib/x.py", b"def dice(a, b): ...")),
    "a tar archive": ("a.tgz", tarred("x.md", b"Check spacing first.")),
    "a script": ("run.sh", b"#!/bin/bash\nset -e\npython3 predict.py --cases $DATA_DIR\n"),
    "a file of settings": ("s.yaml", b"seed: 42\nfolds: [0, 1, 2, 3, 4]\n"),
    "foreign letters": ("n.md", "Größe prüfen, dann 肝臓 segmentieren".encode("utf-16")),
}


def skill(folder: Path, name: str, data: bytes) -> Path:
    path = folder / "skill" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return folder / "skill"


@pytest.mark.parametrize("way", PLANTED)
def test_an_answer_is_found_with_its_place(staged: StagedTask, tmp_path: Path, way: str) -> None:
    name, data, found = PLANTED[way]
    assert found in " | ".join(find_answers(skill(tmp_path, name, data), staged))


@pytest.mark.parametrize("what", CLEAN)
def test_an_ordinary_skill_passes(staged: StagedTask, tmp_path: Path, what: str) -> None:
    assert list(find_answers(skill(tmp_path, *CLEAN[what]), staged)) == []
    assert len(PLANTED) == len(CLEAN) == 20
