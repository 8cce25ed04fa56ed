"""A copy of a checkout in which one fault at a time can be seeded, and which of its tests can see a module."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TEST_S = 60.0
"""A single test that takes longer hangs."""
LIKELIEST = 2
"""Test files that are tried before all others."""
_FAILED = re.compile(r"^(\S+?::.+?) (?:FAILED|ERROR)\b", re.MULTILINE)
_NOT_COLLECTED = re.compile(r"^ERROR (\S+\.py)", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """``find`` occurs once below src/, wherever that is; ``replace`` stands in its place."""

    id: str
    area: str
    find: str
    replace: str
    wrong: str

    def problem(self, source: Path) -> str:
        """Why it cannot be applied; empty when it can."""
        count = sum(text.count(self.find) for text in _texts(source).values())
        return "" if count == 1 else f"{self.id}: `find` occurs {count} times below {source}, not once"

    def place(self, source: Path) -> Path:
        """The file that it changes."""
        return next(path for path, text in _texts(source).items() if self.find in text)


@functools.cache
def _texts(source: Path) -> dict[Path, str]:
    return {path: path.read_text("utf-8") for path in sorted(source.rglob("*.py"))}


@dataclass(frozen=True)
class Result:
    """Of one pytest process: the first test that failed, whether it hung, whether tests were left when time was up."""

    failed: str = ""
    timed_out: bool = False
    cut_short: bool = False


@dataclass
class Checkout:
    """The copy in folder ``root``, run with the interpreter ``python``."""

    root: Path
    python: Path
    _sound: dict[str, bool] = field(default_factory=dict)
    _seeded: int = 0

    @functools.cached_property
    def tiers(self) -> Tiers:
        """Which tests see what."""
        return Tiers(self.root)

    @classmethod
    def copy_of(cls, original: Path, place: Path) -> Checkout:
        """Copy the tracked files, as a repository of its own; reference material beside the original is linked."""
        root = place / original.name
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=original, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (original / name).exists() or (original / name).is_symlink():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(original / name, root / name, follow_symlinks=False)
        (root / ".venv").symlink_to(original / ".venv")
        if (original.parent / "shared").is_dir():
            (place / "shared").symlink_to(original.parent / "shared")
        for command in (["git", "init", "-q"], ["git", "add", "-A"]):
            subprocess.run(command, cwd=root, check=True, capture_output=True)
        return cls(root, original / ".venv/bin/python")

    @contextlib.contextmanager
    def broken_by(self, fault: Fault) -> Iterator[None]:
        """The fault is there within the block; a time of change of its own makes Python compile the file again."""
        path = fault.place(self.root / "src")
        text, status = path.read_text("utf-8"), path.stat()
        self._seeded += 1
        try:
            path.write_text(text.replace(fault.find, fault.replace), "utf-8")
            os.utime(path, (status.st_atime, status.st_mtime + 100 * self._seeded))
            yield
        finally:
            path.write_text(text, "utf-8")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def run(self, tests: Sequence[str], limit_s: float, passed_over: Sequence[str] = ()) -> Result:
        """Run tests up to the first failure; a process that does not end in time is killed with all that it began."""
        options = ["-x", "-v", "-p", "no:cacheprovider", "-o", "addopts=", f"--timeout={TEST_S:.0f}"]
        deselected = [f"--deselect={name}" for name in passed_over]
        environment = os.environ | {"PYTHONPATH": str(self.root / "src")}
        log = self.root.with_name("pytest.log")
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                [self.python, "-m", "pytest", *options, *deselected, *tests],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
            try:
                process.wait(limit_s)
                late = False
            except subprocess.TimeoutExpired:
                late = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        text = log.read_text("utf-8", "replace")
        found = _FAILED.search(text) or _NOT_COLLECTED.search(text)
        if found:
            return Result(found[1], timed_out="Failed: Timeout" in text)
        # A test that wrote nothing for so long hangs where no signal reaches it.
        if late and time.time() - log.stat().st_mtime > TEST_S + 10:
            return Result(text.rstrip().splitlines()[-1].split(" ")[0], timed_out=True)
        return Result(cut_short=late)

    def is_sound(self, test: str, limit_s: float) -> bool:
        """The test passes without any fault."""
        if test not in self._sound:
            result = self.run([test], limit_s)
            self._sound[test] = not (result.failed or result.cut_short)
        return self._sound[test]


@dataclass(frozen=True)
class Tiers:
    """Tests of a checkout by how closely they import a module."""

    root: Path
    slow: frozenset[str] = frozenset({"workflow", "security", "browser"})
    """Folders of tests that are left out."""

    def of(self, module: Path, n_files: int) -> list[list[str]]:
        """Test files that reach the module: the likeliest, others that import it, the next ``n_files``."""
        name = _dotted(module, self.root / "src")
        distances = self._distances(name)
        tests = [path for path in distances if path.name.startswith("test_") and not self.slow & set(path.parts)]
        *folders, stem = (set(part.split("_")) for part in name.split("."))

        def order(path: Path) -> tuple[int, int, str]:
            words = set(path.stem.split("_"))
            likeness = 3 * len(stem & words) + len(set().union(*folders) & words)
            return distances[path] - likeness, path.stat().st_size, str(path)

        ordered = sorted(tests, key=order)
        first, rest = ordered[:LIKELIEST], ordered[LIKELIEST:]
        near = [path for path in rest if distances[path] == 1]
        far = [path for path in rest if path not in near][:n_files]
        return [[str(path.relative_to(self.root)) for path in tier] for tier in (first, near, far)]

    def _distances(self, name: str) -> dict[Path, int]:
        """File → number of imports between it and the module."""
        found: dict[Path, int] = {}
        wanted, distance = {name}, 0
        while wanted:
            distance += 1
            new = [path for path, names in self.imports.items() if path not in found and names & wanted]
            found |= dict.fromkeys(new, distance)
            wanted = {self._name(path) for path in new}
        return found

    def _name(self, path: Path) -> str:
        return _dotted(path, self.root / "src") if path.is_relative_to(self.root / "src") else path.stem

    @functools.cached_property
    def imports(self) -> dict[Path, frozenset[str]]:
        """File of the sources or the tests → names that it imports."""
        files = [path for folder in ("src", "tests") for path in sorted((self.root / folder).rglob("*.py"))]
        return {path: frozenset(_imported(path)) for path in files}


def _dotted(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> Iterator[str]:
    """Modules that a file imports anywhere; of ``from a import b`` both ``a`` and ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
