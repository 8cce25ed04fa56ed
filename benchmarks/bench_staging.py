"""Where the time of staging goes, for one large synthetic data set of each form, and what its files cost to read alone.

    python benchmarks/bench_staging.py [--scale 1.0] [--rounds 2] [--workers N]

Four shipped cards are staged from made-up data: CT volumes with label maps (NIfTI), photographs in folders (JPEG),
chest CT series (DICOM) and questions with pictures in tables (Parquet). The profile is cProfile's, by what a function
does. Beside it, in the same rounds: with as many workers as the machine has processors, only reading and decompressing
the same files by the same libraries, and only hashing them. Peak memory is measured with as few cases as the card can
have, with all of them, and with all workers. Prints Markdown.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import importlib
import io
import os
import pstats
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from automedbench.base.cards import load_card
from automedbench.base.files import write_bytes
from automedbench.steps.stage_task import stage_cases

ROOT = Path(__file__).resolve().parents[1]

# Part of a function's name in the profile → what it does; the first that fits counts.
KINDS = (
    ("hash", ("_hashlib", "hashlib.", "sha256")),
    ("measure the baselines of the bands", ("skimage", "_nd_image")),
    ("encode", ("'compress' of", "'flush' of 'zlib", "Compress' objects", "ImagingEncoder", "encode_to")),
    ("decompress, decode", ("decompress", "ImagingDecoder", "'decode' of 'Imaging", "polars", "PyLazyFrame")),
    ("write", ("'write' of", "fsync", "posix.rename", "posix.replace", "posix.mkdir", "rmdir", "unlink")),
    ("read", ("'read' of", "'readinto' of", "'readinto1' of", "io.open", "posix.open", "scandir", "posix.stat")),
)
LIBRARIES = ("nibabel", "PIL.Image", "polars", "pydicom", "scipy.ndimage", "skimage.restoration", "skimage.metrics")
REST = "all else: NumPy, parsing, Python"


@dataclass(frozen=True)
class Form:
    """A data set of one form, the card that stages it, and the bare cost of its files."""

    title: str
    card: Path
    fewest: Path
    """The same card, asking for as few cases as it can."""
    raw: Path
    files: Sequence[Path]
    """Raw files that staging reads."""
    bare: Callable[[], object]


def main() -> None:
    """Make each data set, stage it, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="number of cases, relative")
    parser.add_argument("--rounds", type=int, default=2, help="rounds without profiler")
    processors = len(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, default=max(processors, 2), help="cases at a time, beside one")
    parser.add_argument("--memory-of", nargs=3, type=Path, metavar=("CARD", "RAW", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(growth(*options.memory_of, options.workers))
        return
    for make in (volumes, photographs, series, tables):
        with tempfile.TemporaryDirectory(prefix="bench-staging-") as name:
            form = make(Path(name), options.scale)
            print(report(form, Path(name) / "staged", options.rounds, options.workers), flush=True)


def report(form: Form, folder: Path, rounds: int, workers: int) -> str:
    """Markdown: where the time goes, beside the bare costs."""

    def everything(card: Path = form.card, workers: int = 1) -> list[str]:
        return staged(card, form.raw, folder, workers)

    def cleared(call: Callable[[], Any], measure: Callable[[Callable[[], Any]], Any]) -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        return measure(call)

    cases, few = (len(cleared(call, lambda run: run())) for call in (everything, lambda: everything(form.fewest)))
    wall, together, bare, hashing = [], [], [], []
    for _ in range(rounds):
        wall.append(cleared(everything, timed))
        together.append(cleared(lambda: everything(workers=workers), timed))
        bare.append(timed(form.bare))
        hashing.append(timed(lambda: [hash_of(path) for path in form.files]))
    spent = cleared(everything, profile)
    fewest, one, all_workers = (
        peak_mib(card, form.raw, folder, n) for card, n in ((form.fewest, 1), (form.card, 1), (form.card, workers))
    )
    total, alone = statistics.median(wall), statistics.median(bare)
    size = sum(path.stat().st_size for path in form.files) / 1e6
    whole = sum(spent.values())
    rows = [(f"staging, {cases} cases, {workers} workers", statistics.median(together), None)]
    rows += [("staging, 1 worker", total, None)]
    rows += [(f"– {kind}", total * seconds / whole, seconds / whole) for kind, seconds in spent.items()]
    rows += [("only reading and decompressing the same files", alone, None)]
    rows += [("only reading and hashing them", statistics.median(hashing), None)]
    return "\n".join(
        [
            f"**{form.title}**: {len(form.files)} files, {size:.0f} MB",
            "",
            "| | ms | share | ÷ reading and decompressing |",
            "|---|---|---|---|",
            *(f"| {name} | {1000 * s:.0f} | {_percent(part)} | {s / alone:.2f} |" for name, s, part in rows),
            "",
            f"Peak memory beyond the libraries: {fewest:.0f} MiB for {_cases(few)}, {one:.0f} MiB for {cases}; "
            f"{all_workers:.0f} MiB with {workers} workers, {all_workers / workers:.0f} each.",
            "",
        ]
    )


def _cases(number: int) -> str:
    return "1 case" if number == 1 else f"{number} cases"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


# --- measuring ------------------------------------------------------------------------------------------------


def staged(card: Path, raw: Path, folder: Path, workers: int = 1) -> list[str]:
    """Case ids of the task; ``folder`` is cleared before, so that everything is written."""
    places = (folder / "public", folder / "private", folder / "manifest.json")
    return stage_cases(card, raw, *places, workers=workers).case_ids


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak_mib(card: Path, raw: Path, folder: Path, workers: int) -> float:
    """Growth of memory during staging, in a process of its own (polars' threads do not survive a fork)."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, __file__, "--workers", str(workers), "--memory-of", str(card), str(raw), str(folder)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def growth(card: Path, raw: Path, folder: Path, workers: int) -> float:
    """MiB that the resident set of this process grows by, libraries loaded before."""
    for library in LIBRARIES:
        importlib.import_module(library)
    before = _status("VmRSS")
    staged(card, raw, folder, workers)
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{key}:")).split()[1])


def profile(call: Callable[[], object]) -> dict[str, float]:
    """Seconds inside functions of each kind, the calls that they make left out."""
    profiler = cProfile.Profile()
    profiler.runcall(call)
    spent = {kind: 0.0 for kind, _ in KINDS} | {REST: 0.0}
    stats: Any = pstats.Stats(profiler)
    for (file, _, function), (_, _, own, _, _) in stats.stats.items():
        name = f"{file}:{function}"
        spent[next((kind for kind, words in KINDS if any(word in name for word in words)), REST)] += own
    return {kind: seconds for kind, seconds in spent.items() if seconds > 0.0005}


def hash_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def asking(folder: Path, track: str, task: str, count: int, fewest: int = 1, **sampling: Any) -> tuple[Path, Path]:
    """A shipped card that asks for so many cases, and one that asks for as few as it can."""
    found = []
    for number, place in ((count, "all"), (fewest, "few")):
        value = load_card(ROOT / f"config/tasks/{track}/{task}.yaml").model_dump(mode="json")
        value["staging"]["sampling"] |= {"count": number}
        value["staging"]["sampling"]["options"] |= {key: each(number) for key, each in sampling.items()}
        path = folder / place / f"{task}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(value), "utf-8")
        found.append(path)
    return found[0], found[1]


# --- one data set of each form --------------------------------------------------------------------------------


def volumes(folder: Path, scale: float) -> Form:
    """CT of 512×512×80 with a label map each, as the Medical Segmentation Decathlon has them."""
    from isal import igzip

    raw, count = folder / "raw", _number(4, scale)
    for number in range(count):
        values, label = _trunk(number)
        _nifti(raw / f"Task09_Spleen/imagesTr/spleen_{number}.nii.gz", values)
        _nifti(raw / f"Task09_Spleen/labelsTr/spleen_{number}.nii.gz", label)
    files = sorted(raw.rglob("*.nii.gz"))

    def bare() -> None:
        for path in files:
            with igzip.open(path) as stream:
                while stream.read(2**20):
                    pass

    cards = asking(folder, "segmentation", "spleen-seg-task", count)
    return Form("NIfTI volumes, `label_maps`", *cards, raw, files, bare)


def photographs(folder: Path, scale: float) -> Form:
    """JPEG of 640×640 in a folder per class."""
    from PIL import Image

    raw, each = folder / "raw", _number(40, scale)
    for label in ("glioma", "meningioma", "notumor", "pituitary"):
        for number in range(each):
            write_bytes(raw / f"Testing/{label}/Te-{label[:2]}_{number:04d}.jpg", _jpeg(number, 640))
    files = sorted(raw.rglob("*.jpg"))

    def bare() -> None:
        for path in files:
            with Image.open(path) as image:
                image.load()

    cards = asking(folder, "classification", "braintumor-cls-task", 4 * each, 4, per_class=lambda count: count // 4)
    return Form("JPEG in folders, `class_folders`", *cards, raw, files, bare)


def series(folder: Path, scale: float) -> Form:
    """Chest CT of 80 slices, uncompressed, a folder per series."""
    import pydicom

    from automedbench_rehearsal.making.scans import dicom

    raw, count = folder / "raw", _number(4, scale)
    for patient in range(1, count + 1):
        values, _ = _trunk(patient)
        name = f"LIDC-IDRI-{patient:04d}"
        for z in range(values.shape[2]):
            data = dicom(values[:, :, z] + np.int16(1024), patient=name, series=patient, number=z + 1, place=-2.0 * z)
            write_bytes(raw / f"{name}/study/{patient}/1-{z + 1:03d}.dcm", data)
    files = sorted(raw.rglob("*.dcm"))

    def bare() -> None:
        for patient in range(1, count + 1):
            paths = sorted((raw / f"LIDC-IDRI-{patient:04d}").rglob("*.dcm"))
            for path in paths:
                pydicom.dcmread(path, stop_before_pixels=True)
            _ = pydicom.dcmread(paths[len(paths) // 2]).pixel_array

    cards = asking(folder, "enhancement", "lidc-idri-denoising-task", count)
    return Form("DICOM series, `dicom_slices` (headers of all, pixels of the chosen)", *cards, raw, files, bare)


def tables(folder: Path, scale: float) -> Form:
    """Questions with a picture of 512×512 each, in Parquet as on the hub."""
    import polars
    from PIL import Image

    from automedbench_rehearsal.making.files import parquet

    raw, each = folder / "raw", _number(100, scale)
    for name, rows in (("test", 3 * each), ("validation", 30)):
        for part in range(3 if name == "test" else 1):
            cells = [_question(row) for row in range(rows // 3 * part, rows // 3 * (part + 1))]
            write_bytes(raw / f"data/{name}-{part:05d}-of-00003.parquet", parquet(cells))
    files = sorted(raw.rglob("*.parquet"))

    def bare() -> None:
        for path in files:
            for cell in polars.read_parquet(path)["image"]:
                with Image.open(io.BytesIO(cell["bytes"])) as image:
                    image.load()

    cards = asking(folder, "vqa", "pathvqa-task", 3 * each)
    return Form("Parquet with pictures, `question_files`", *cards, raw, files, bare)


def _number(usual: int, scale: float) -> int:
    return max(round(usual * scale), 2)


def _trunk(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """CT in HU with a scanner's noise and a label map of one organ, int16 and uint8, 512×512×80."""
    random = np.random.default_rng(seed)
    x, y = np.ogrid[-1:1:512j, -1:1:512j]
    plane = np.where((x / 0.8) ** 2 + (y / 0.6) ** 2 < 1, 40.0, -1000.0)
    plane[((np.abs(x) - 0.4) / 0.25) ** 2 + (y / 0.4) ** 2 < 1] = -800
    noise = random.normal(0, 15, (512, 512, 20)).astype(np.float32)
    values = np.concatenate([plane[:, :, None] + np.roll(noise, 7 * turn, axis=0) for turn in range(4)], axis=2)
    label = ((x - 0.4) ** 2 + (y - 0.1) ** 2 < 0.02)[:, :, None] & (np.abs(np.arange(80) - 40) < 20)
    return np.rint(values).astype(np.int16), label.astype(np.uint8)


def _nifti(path: Path, values: np.ndarray) -> None:
    import gzip

    from automedbench_rehearsal.making.scans import nifti

    write_bytes(path, gzip.compress(nifti(np.asfortranarray(values), gz=False), 1))


def _jpeg(seed: int, side: int) -> bytes:
    from PIL import Image

    random = np.random.default_rng(seed)
    coarse = random.integers(0, 255, (side // 8, side // 8, 3)).astype(np.uint8)
    image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _question(row: int) -> dict[str, Any]:
    picture = {"bytes": _jpeg(row, 512), "path": None}
    return {"image": picture, "question": f"what is shown in picture {row}?", "answer": f"tissue number {row}"}


if __name__ == "__main__":
    main()
