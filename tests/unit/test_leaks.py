"""The leak audit: every kind of planted leak is found, a clean task passes, and chance is not taken for a leak."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from scipy import stats
from toys.classification import CARD

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes, sha256_file
from automedbench.base.records import CaseEntry, FileEntry
from automedbench.datasets.leaks import ENOUGH, LIMIT, audit, correlation, rank_sums, runs, set_times, telling
from automedbench.datasets.leaks.headers import inspect_headers
from automedbench.steps.stage_task import stage_cases

nib: Any = nibabel
CLASSES = ("glioma", "meningioma", "notumor", "pituitary")
N_CASES = 40


def entry_of(path: Path) -> FileEntry:
    return FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size)


def jpeg(seed: int = 0, size: int = 12, **options: Any) -> bytes:
    """A picture of its own for each seed."""
    buffer = io.BytesIO()
    values = np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)
    Image.fromarray(values).save(buffer, "JPEG", quality=options.pop("quality", 90), **options)
    return buffer.getvalue()


class Task:
    """Forty staged pictures, ten of each class, as classification leaves them; changed by each test."""

    def __init__(self, folder: Path, file: str = "image.jpg") -> None:
        self.raw, self.public, self.private = (folder / name for name in ("raw", "public", "private"))
        self.file = file
        self.labels = [label for label in CLASSES for _ in range(N_CASES // len(CLASSES))]
        self.sources = [f"{label}/Te-{label[:2]}_{number:04d}.jpg" for number, label in enumerate(self.labels)]
        order = list(range(N_CASES))
        random.Random(7).shuffle(order)
        self.labels, self.sources = [self.labels[place] for place in order], [self.sources[place] for place in order]
        self.ids = [f"BTMRI_{number:04d}" for number in range(1, N_CASES + 1)]
        for folder_ in (self.raw, self.public, self.private):
            folder_.mkdir(parents=True)
        for number, case in enumerate(self.ids):
            self.write(self.public / case / file, jpeg(number))
            self.write(self.private / case / "label.json", json.dumps({"label": case}).encode())
        self.write(self.private / "ground_truth.csv", b"patient_id,label\n")

    def write(self, path: Path, data: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def case(self, number: int = 3) -> Path:
        """The public file of one case."""
        return self.public / self.ids[number] / self.file

    def audit(self, card: TaskCard = CARD, *, times: bool = True, copies: frozenset[str] = frozenset()) -> list[str]:
        split = {
            case: {"source": source, "source_sha256": sha256_bytes(source.encode()), "label": label}
            for case, source, label in zip(self.ids, self.sources, self.labels, strict=True)
        }
        self.write(self.private / "split.json", json.dumps({"cases": split}).encode())
        if times:
            set_times(self.public)
        entries = [
            CaseEntry(
                id=case,
                inputs={path.name: entry_of(path) for path in (self.public / case).glob("image.*")},
                private={"label.json": entry_of(self.private / case / "label.json")},
            )
            for case in self.ids
        ]
        return audit(card, self.raw, self.public, self.private, entries, copies=copies)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


def test_clean_task(task: Task) -> None:
    assert task.audit() == []


# --- names and other files ------------------------------------------------------------------------------------------


def hide(task: Task) -> None:
    task.write(task.public / task.ids[0] / "notes.txt", b"nothing")


PLANTED: dict[str, tuple[Callable[[Task], Any], str]] = {
    "undeclared file": (hide, "notes.txt is not in the manifest"),
    "class in a name": (
        lambda task: task.write(task.public / "examples/some_glioma.jpg", jpeg(99)),
        "examples/some_glioma.jpg holds the class glioma",
    ),
    "upstream id in a name": (
        lambda task: task.write(task.public / f"more/{task.sources[5].split('/')[1]}", jpeg(99)),
        "holds the upstream id te_",
    ),
    "link": (
        lambda task: (task.public / "truth.jpg").symlink_to(task.private / "ground_truth.csv"),
        "not a regular file",
    ),
    "private file of a case": (
        lambda task: task.case().write_bytes((task.private / task.ids[8] / "label.json").read_bytes()),
        "is the private file BTMRI_0009/label.json",
    ),
    "private table": (
        lambda task: task.write(task.public / "table.csv", b"patient_id,label\n"),
        "table.csv is the private file ground_truth.csv",
    ),
    "JPEG comment": (lambda task: task.case().write_bytes(jpeg(3, comment="glioma")), "holds metadata"),
    "EXIF": (lambda task: task.case().write_bytes(jpeg(3, exif=exif("Te-gl_0010"))), "holds metadata"),
    "behind a JPEG": (lambda task: task.case().write_bytes(jpeg(3) + b"glioma"), "holds metadata"),
    "no JPEG": (lambda task: task.case().write_bytes(b"glioma"), "no JPEG"),
    "order of the classes": (
        lambda task: task.__dict__.update(labels=sorted(task.labels), sources=[str(n) for n in range(N_CASES)][::-1]),
        "the order of the cases of class glioma",
    ),
    "classes in turn": (
        lambda task: task.__dict__.update(labels=[*CLASSES[:2]] * 20),
        "of equal classes in a row is +",
    ),
    "order of upstream": (
        lambda task: task.__dict__.update(sources=[f"image_{number}.jpg" for number in range(N_CASES)]),
        "follows that of upstream's names",
    ),
    "order of upstream backwards": (  # by hand: a rank correlation of -1 times √39
        lambda task: task.__dict__.update(sources=[f"image_{number}.jpg" for number in range(N_CASES)][::-1]),
        "follows that of upstream's names (-6.2 standard deviations",
    ),
    "tables of one class": (
        lambda task: [
            path.write_bytes(jpeg(number, quality=75))
            for number, path in enumerate(task.case(place) for place in range(N_CASES))
            if task.labels[number] == "notumor"
        ],
        "image.jpg are stored in a way that only class notumor has",
    ),
}


def exif(text: str) -> bytes:
    tags = Image.Exif()
    tags[0x010E] = text
    return tags.tobytes()


@pytest.mark.parametrize(("plant", "message"), PLANTED.values(), ids=PLANTED.keys())
def test_planted_leaks(task: Task, plant: Callable[[Task], Any], message: str) -> None:
    """Found and said in at most three lines, with the task's name."""
    plant(task)
    with pytest.raises(InfrastructureError) as caught:
        task.audit()
    text = str(caught.value)
    assert message in text
    assert text.startswith(f"{CARD.id} is not staged")
    assert len(text.splitlines()) <= 3


def test_formats(task: Task) -> None:
    """One class comes as PNG, the others as JPEG."""
    for number, label in enumerate(task.labels):
        if label == "pituitary":
            task.case(number).rename(task.case(number).with_suffix(".png"))
            with Image.open(io.BytesIO(jpeg(number))) as image:
                image.save(task.case(number).with_suffix(".png"))
    with pytest.raises(InfrastructureError, match="some files have a format that only class pituitary has"):
        task.audit()


def test_modification_times(task: Task) -> None:
    """Staging gives all files the same; where it did not, that is found."""
    set_times(task.public)
    task.audit(times=False)
    os.utime(task.case(), (1, 1))
    with pytest.raises(InfrastructureError, match="2 different modification times"):
        task.audit(times=False)
    task.audit()
    assert {path.stat().st_mtime for path in task.public.rglob("*")} == {1577836800.0}


def test_label_table_of_the_raw_data(task: Task) -> None:
    """By the receipt's hashes; a picture that equals upstream's is none."""
    data = b"image,label\n"
    entries = {"labels.csv": data, "Testing/a.jpg": task.case(0).read_bytes()}
    receipt = {
        "dataset": "brain_tumor_mri",
        "source": "path x",
        "revision": None,
        "licence": "",
        "attribution": "",
        "fetched_at": "2026-01-01T00:00:00Z",
        "files": {name: {"sha256": sha256_bytes(text), "bytes": len(text)} for name, text in entries.items()},
    }
    task.write(task.raw / "receipt.json", json.dumps({"schema": "automedbench/receipt/1"} | receipt).encode())
    assert task.audit() == []
    task.write(task.public / "helpful.csv", data)
    with pytest.raises(InfrastructureError, match=r"helpful\.csv is labels\.csv of the raw data"):
        task.audit()


def test_declared_order_is_remarked_on(task: Task) -> None:
    """A card that takes upstream's order on purpose is staged, and the log says so."""
    task.sources = [f"case_{number}" for number in range(N_CASES)]
    sampling = CARD.staging.sampling.model_copy(update={"options": {"order": "sorted"}})
    card = CARD.model_copy(update={"staging": CARD.staging.model_copy(update={"sampling": sampling})})
    (remark,) = task.audit(card)
    assert "as the card declares (order: sorted)" in remark


def test_sizes_are_remarked_on(task: Task) -> None:
    """A class of larger pictures may be so by nature: it is said, not refused."""
    for number, label in enumerate(task.labels):
        task.case(number).write_bytes(jpeg(number, size=40 if label == "pituitary" else 12))
    remarks = task.audit()
    assert any("image.jpg of class pituitary: sizes are +" in remark for remark in remarks)


def test_declared_copy(task: Task) -> None:
    """A private file that repeats an input on purpose (the mask of a synthetic CT) is none."""
    (task.private / task.ids[3] / "label.json").write_bytes(task.case(3).read_bytes())
    assert task.audit(copies=frozenset({"label.json"})) == []
    with pytest.raises(InfrastructureError, match="is the private file"):
        task.audit()


def test_few_cases_say_nothing(tmp_path: Path) -> None:
    """Sorted classes of ten cases may be chance."""
    task = Task(tmp_path)
    for case in task.ids[10:]:
        for side in (task.public, task.private):
            for path in (side / case).iterdir():
                path.unlink()
            (side / case).rmdir()
    task.ids, task.sources = task.ids[:10], [f"{number:05d}a" for number in range(10)]
    task.labels = ["glioma"] * 5 + ["notumor"] * 5
    assert task.audit() == []


# --- headers of other formats -----------------------------------------------------------------------------------------


def nifti(folder: Path, **fields: Any) -> Path:
    image: Any = nib.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.eye(4))
    for name, value in fields.items():
        image.header[name] = value
    path = folder / "ct.nii.gz"
    path.write_bytes(gzip.compress(image.to_bytes(), mtime=0))
    return path


@pytest.mark.parametrize("field", ["descrip", "aux_file", "intent_name", "db_name", "data_type"])
def test_nifti_texts(tmp_path: Path, field: str) -> None:
    assert inspect_headers(nifti(tmp_path), "ct.nii.gz")[0] == []
    (found,) = inspect_headers(nifti(tmp_path, **{field: b"s0011"}), "ct.nii.gz")[0]
    assert found == f"{field} 's0011'"


def test_nifti_extension_and_gzip(tmp_path: Path) -> None:
    image: Any = nib.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.eye(4))
    image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"s0011"))
    path = tmp_path / "ct.nii.gz"
    path.write_bytes(gzip.compress(image.to_bytes(), mtime=0))
    assert "extension" in inspect_headers(path, "ct.nii.gz")[0][0]
    clean = nifti(tmp_path).read_bytes()
    path.write_bytes(clean[:4] + b"\1\2\3\4" + clean[8:])
    assert inspect_headers(path, "ct.nii.gz")[0] == ["a time of gzip"]
    with open(path, "wb") as stream, gzip.GzipFile("case_00012.nii", "wb", fileobj=stream, mtime=0) as packed:
        packed.write(gzip.decompress(clean))
    assert inspect_headers(path, "ct.nii.gz")[0] == ["a file name or comment of gzip"]


def test_png_chunks(tmp_path: Path) -> None:
    path, texts = tmp_path / "image.png", PngImagePlugin.PngInfo()
    picture = Image.new("RGB", (3, 3))
    picture.save(path)
    assert inspect_headers(path, "image.png")[0] == []
    path.write_bytes(path.read_bytes() + b"x")
    assert inspect_headers(path, "image.png")[0] == ["a chunk behind the end"]
    texts.add_text("Title", "Atelectasis")
    picture.save(path, pnginfo=texts, dpi=(72, 72))
    assert inspect_headers(path, "image.png")[0] == ["a chunk tEXt", "a chunk pHYs"]
    path.write_bytes(b"no picture")
    assert inspect_headers(path, "image.png")[0] == ["a chunk without a PNG's signature"]


def test_npy_header(tmp_path: Path) -> None:
    path = tmp_path / "input.npy"
    np.save(path, np.zeros((2, 2), np.float32))
    assert inspect_headers(path, "input.npy")[0] == []
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'patient': 'L067'}\n"
    path.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(4))
    assert "no NPY header" in inspect_headers(path, "input.npy")[0][0]
    path.write_bytes(b"L067")
    assert "no NPY header" in inspect_headers(path, "input.npy")[0][0]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        pytest.param({"question": "?", "answer_mode": "open_ended", "valid_labels": ["A"]}, [], id="as staged"),
        pytest.param({"question": "?", "answer": "yes"}, ["the key answer"], id="answer"),
        pytest.param({"more": [{"Reasoning_chain": "…"}]}, ["the key Reasoning_chain"], id="deep"),
        pytest.param({"caption": ""}, ["the key caption"], id="caption"),
    ],
)
def test_json_keys(tmp_path: Path, value: Any, found: list[str]) -> None:
    path = tmp_path / "question.json"
    path.write_text(json.dumps(value))
    assert inspect_headers(path, "question.json")[0] == found


# --- chance -----------------------------------------------------------------------------------------------------------


def test_against_scipy() -> None:
    """The rank sum and the correlation are those of SciPy, ties included."""
    chance = np.random.default_rng(3)
    values, classes = chance.integers(0, 30, 60).tolist(), ["a" if x else "b" for x in chance.integers(0, 2, 60)]
    one, other = ([v for v, c in zip(values, classes, strict=True) if c == name] for name in "ab")
    expected = stats.mannwhitneyu(one, other, use_continuity=False, method="asymptotic")
    assert 2 * stats.norm.sf(abs(rank_sums(values, classes)["a"])) == pytest.approx(expected.pvalue, rel=1e-9)
    more = chance.permutation(60).tolist()
    assert correlation(values, more) == pytest.approx(stats.spearmanr(values, more).statistic * 59**0.5)


def test_runs_are_standardised() -> None:
    """Over many shuffles of three unequal classes: mean 0, standard deviation 1, and never beyond the limit."""
    classes = ["a"] * 20 + ["b"] * 15 + ["c"] * 5
    chance = random.Random(1)
    found = [runs(chance.sample(classes, len(classes))) for _ in range(3000)]
    assert np.mean(found) == pytest.approx(0, abs=0.06)
    assert np.std(found) == pytest.approx(1, abs=0.05)
    assert max(map(abs, found)) < LIMIT
    assert runs(classes) < -LIMIT
    assert runs(["a", "b"] * 20) > LIMIT


def test_limits_of_what_is_said() -> None:
    """Nothing below twenty cases; everything in order from there on is found."""
    few, enough = list(range(ENOUGH - 1)), list(range(ENOUGH))
    assert correlation(few, few) == 0
    assert correlation(enough, enough) == pytest.approx(19**0.5)
    assert correlation(enough, enough[::-1]) < -LIMIT
    assert rank_sums(few, ["a"] * len(few)) == {}
    assert rank_sums(enough, ["a"] * len(enough)) == {}
    assert runs(["a"] * ENOUGH) == 0


def test_telling_form() -> None:
    """C(5, 5) / C(20, 5) = 1 / 15 504 is below the limit, C(5, 4) / C(20, 4) = 5 / 4 845 is not."""
    classes = {str(number): "a" if number < 5 else "b" for number in range(20)}
    assert telling({case: classes[case] for case in classes}, classes) == {"a": "a", "b": "b"}
    assert telling({case: int(case) < 4 for case in classes}, classes) == {}
    assert telling(dict.fromkeys(classes, 1), classes) == {}


# --- as a part of staging ---------------------------------------------------------------------------------------------


def test_nothing_becomes_visible(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was staged before stays as it is, and nothing of the new is left anywhere."""
    card = tmp_path / f"{CARD.id}.yaml"
    card.write_text((root / f"config/tasks/classification/{CARD.id}.yaml").read_text())
    for number, target in enumerate(CARD.targets):
        (tmp_path / f"raw/Testing/{target.name}").mkdir(parents=True)
        (tmp_path / f"raw/Testing/{target.name}/Te_{number:04d}.jpg").write_bytes(jpeg(number))
    places = (tmp_path / "raw", tmp_path / "public", tmp_path / "private", tmp_path / "manifest.json")
    manifest = stage_cases(card, *places, excerpt=True)
    assert sorted(manifest.private) == ["ground_truth.csv", "split.json"]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(
        "automedbench.tracks.classification.stage.rgb_jpeg", lambda picture, anew: jpeg(1, comment="glioma")
    )
    with pytest.raises(InfrastructureError, match="would give answers away"):
        stage_cases(card, *places, excerpt=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
