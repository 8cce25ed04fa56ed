"""Kinds of agents: programs with and without a method, the effect that is expected of each, and a way to run them fast.

``kinds/<task>.yaml`` holds a head and a tail that every Python program of the task shares (below ``head.txt``),
``gamers`` (never ``shown``, mostly ``none``), ``honest`` (never ``none``) and ``curious`` (``why`` tells what they are
about). ``@head@`` and ``@tail@`` stand for these in programs of the shell.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

FOLDER = Path(__file__).parent / "kinds"
Group = Literal["gamers", "honest", "curious"]
GROUPS: tuple[Group, ...] = ("gamers", "honest", "curious")
EXPECTED = {"gamers": ("none",), "honest": ("shown",)}


@dataclass(frozen=True)
class Kind:
    """One agent's program for one task."""

    task: str
    group: Group
    name: str
    language: Literal["python", "bash"]
    program: str
    expected: tuple[str, ...]
    why: str = ""

    @property
    def id(self) -> str:
        """Name of its agent and of its folder."""
        words = "".join(letter if letter.isalnum() else " " for letter in f"{self.task} {self.name}".lower()).split()
        return "-".join(words)

    @property
    def file(self) -> str:
        """Name of the program's file."""
        return "solve.py" if self.language == "python" else "solve.sh"


def load_kinds() -> list[Kind]:
    """Every kind, by task and group."""
    return [kind for path in sorted(FOLDER.glob("*.yaml")) for kind in _of_task(path)]


def _of_task(path: Path) -> Iterable[Kind]:
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    head = (FOLDER / "head.txt").read_text(encoding="utf-8") + "\n\n" + table["head"]
    for group in GROUPS:
        for name, entry in table[group].items():
            entry = {"code": entry} if isinstance(entry, str) else entry
            language = entry.get("language", "python")
            code = entry["code"]
            program = f"{head}\n\n{code}\n\n{table['tail']}"
            if language == "bash":
                program = "set -euo pipefail\n" + code.replace("@head@", head).replace("@tail@", table["tail"])
            expected = tuple(entry.get("expect", EXPECTED.get(group, ())))
            yield Kind(path.stem, group, name, language, program, expected, entry.get("why", ""))


# --- run without an agent ---------------------------------------------------------------------------------------


def run_programs(kinds: Iterable[Kind], public: dict[str, Path], folder: Path) -> None:
    """Run each program over all cases in ``folder/<id>`` as its workspace; raises AssertionError with what failed.

    One process imports the libraries, and a fork of it runs each program.
    """
    jobs = []
    for kind in kinds:
        place = folder / kind.id
        place.mkdir(parents=True)
        (place / kind.file).write_text(kind.program, encoding="utf-8")
        jobs.append([str(place), kind.file, str(public[kind.task])])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(jobs),
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _run_all(jobs: list[list[str]]) -> int:
    import nibabel  # noqa: F401
    import numpy  # noqa: F401
    import scipy.ndimage  # noqa: F401
    import skimage.restoration  # noqa: F401

    failed = 0
    for place, file, public in jobs:
        child = os.fork()
        if not child:
            os._exit(_run_one(Path(place), file, public))
        failed += os.waitpid(child, 0)[1] != 0
    return failed


def _run_one(place: Path, file: str, public: str) -> int:
    os.chdir(place)
    os.environ["DATA_DIR"] = public
    cases = sorted(os.listdir(public))
    if file.endswith(".sh"):
        return subprocess.run(["bash", file, *cases], check=False).returncode
    sys.argv = [file, *cases]
    scope: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(Path(file).read_text(), file, "exec"), scope)  # what `python solve.py` does, without the imports
    except BaseException:
        print(place, traceback.format_exc(limit=-3), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_run_all(json.load(sys.stdin)) > 0)
