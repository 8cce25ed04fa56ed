"""Workspace, looked at from outside: sizes, changes, single files read without links, and the stage of a call.

The stage is inferred from the effects of a call (docs/specification.md, 8.8). Descriptive only: no score uses it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from automedbench.base.records import Model, Stage
from automedbench.base.untrusted.picture import HEADER, looks_like_png
from automedbench.sandbox.airlock.collector import read_beneath
from automedbench.sandbox.container.scratch import repair_modes

PLAN_BYTES = 64 * 1024
LARGEST_READ = 20 * 1024 * 1024
LISTED_FILES, LISTED_CHARACTERS = 2000, 200_000
NAMED_FILES, NAMED_CHARACTERS = 20_000, 1_000_000
MAX_SEEN, MAX_PENDING = 2_000_000, 100_000
FIRST = frozenset({"agents_outputs", "plan"})
"""Folders of a workspace whose files are named before all others."""
STATE = re.compile(
    r"\.(?:claude|codex|gemini|qwen|aider|opencode|openhands|inspect|mini-swe-agent|npm|bash_history)\b.*"
)
"""Names below which programs keep their own settings and histories, which are no work."""
CACHES = frozenset(
    {".cache", ".local", ".config", ".venv", "venv", "env", "__pycache__", "node_modules", "site-packages", ".git"}
)


@dataclass(frozen=True)
class Snapshot:
    """Regular files of a workspace: path → (bytes, modification time in ns); caches are only summed up.

    At most 20 000 files are named, with a million characters; those of a folder that exceeds it are ``unnamed``.
    """

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    total_bytes: int = 0
    cache_bytes: int = 0
    unnamed: int = 0

    def select(self, names: Collection[str]) -> Snapshot:
        """The look at these files alone: what lay there before the first call."""
        return Snapshot({path: seen for path, seen in self.files.items() if path in names})

    def changes_since(self, before: Snapshot) -> Changes:
        return Changes(
            changed={path: seen for path, seen in sorted(self.files.items()) if before.files.get(path) != seen},
            removed=sorted(before.files.keys() - self.files.keys()),
            total_bytes=self.total_bytes,
            cache_bytes=self.cache_bytes,
            unnamed=self.unnamed,
        )

    def apply(self, changes: Changes) -> Snapshot:
        """The look after ``changes``; the inverse of ``changes_since``."""
        gone = set(changes.removed)
        kept = {path: seen for path, seen in self.files.items() if path not in gone}
        return Snapshot(kept | changes.changed, changes.total_bytes, changes.cache_bytes, changes.unnamed)


class Changes(Model):
    """Changes of a workspace by one code call; with those of all calls, no earlier snapshot is needed."""

    changed: dict[str, tuple[int, int]] = Field(default_factory=dict, description="new or different files")
    removed: list[str] = Field(default_factory=list)
    total_bytes: int = 0
    cache_bytes: int = 0
    unnamed: int = 0


def take_snapshot(workspace: Path) -> Snapshot:
    """Walk the workspace without following links; what vanishes meanwhile is left out.

    Where a folder forbids to be listed, the modes of all are repaired first.
    """
    look = _Look(workspace)
    if look.forbidden:
        repair_modes(workspace)
        look = _Look(workspace)
    return look.snapshot


class _Look:
    """One walk through a workspace, folder by folder in an order that depends on names only."""

    def __init__(self, workspace: Path) -> None:
        self.forbidden = workspace.is_dir() and workspace.stat().st_mode & 0o700 != 0o700
        self._workspace = workspace
        self._files: dict[str, tuple[int, int]] = {}
        self._characters = self._total = self._cached = self._seen = 0
        self._unnamed = 0
        self._pending: list[tuple[str, bool]] = [("", False)]
        while self._pending:
            self._enter(*self._pending.pop())

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self._files, self._total, self._cached, self._unnamed)

    def _enter(self, folder: str, in_cache: bool) -> None:
        listed: list[tuple[str, int, int]] = []
        characters, below, full = 0, [], False
        for name, status in self._entries(folder):
            path = f"{folder}/{name}" if folder else name
            state = STATE.fullmatch(name) is not None
            if stat.S_ISDIR(status.st_mode):
                below.append((path, in_cache or state or name in CACHES))
            elif stat.S_ISREG(status.st_mode):
                # Blocks, not length: a sparse file takes no disk.
                self._total += status.st_blocks * 512
                if in_cache or state:
                    self._cached += status.st_blocks * 512
                    continue
                listed.append((path, status.st_size, status.st_mtime_ns))
                characters += len(path)
                too_many = len(self._files) + len(listed) > NAMED_FILES
                full = full or too_many or self._characters + characters > NAMED_CHARACTERS
                if full:
                    self._unnamed += len(listed)
                    listed.clear()
        if not full:
            # Names are bytes that an agent chose: what is no UTF-8 is replaced.
            for path, size, changed in listed:
                self._files[os.fsencode(path).decode("utf-8", "replace")] = (size, changed)
            self._characters += characters
        # A stack: what is to be looked at first is put on it last.
        below.sort(key=lambda item: (item[0] not in FIRST, item), reverse=True)
        room = max(0, MAX_PENDING - len(self._pending))
        self._pending += below[-room:] if room else []

    def _entries(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            with os.scandir(self._workspace / folder) as entries:
                for entry in entries:
                    self._seen += 1
                    if self._seen > MAX_SEEN:
                        break
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.name, entry.stat(follow_symlinks=False)
        except PermissionError:
            self.forbidden = True
        except OSError:  # gone, or at the end of too long a path
            return


def list_files(snapshot: Snapshot) -> dict[str, int]:
    """Path → bytes of at most 2 000 files and 200 000 characters, in order of their paths."""
    listed: dict[str, int] = {}
    room = LISTED_CHARACTERS
    for path in sorted(snapshot.files)[:LISTED_FILES]:
        room -= len(path)
        if room < 0:
            break
        listed[path] = snapshot.files[path][0]
    return listed


def read_plan(workspace: Path) -> str | None:
    """``plan/plan.md``, at most 64 KiB, decoded with replacement."""
    data = read_beneath(workspace, "plan/plan.md", LARGEST_READ)
    return None if data is None else data[:PLAN_BYTES].decode("utf-8", "replace")


def has_plot(workspace: Path) -> bool:
    """True when ``plan/plan.png`` begins as a PNG image of a bounded size; it is decoded in the import role only."""
    data = read_beneath(workspace, "plan/plan.png", LARGEST_READ)
    return data is not None and looks_like_png(data[:HEADER])


def is_plain_file(root: Path, path: str) -> bool:
    """Check for a regular file below ``root`` that is reached without any link."""
    current = root
    *folders, name = path.split("/")
    try:
        for folder in folders:
            current = current / folder
            if not stat.S_ISDIR(current.lstat().st_mode):
                return False
        return stat.S_ISREG((current / name).lstat().st_mode)
    except OSError:
        return False


WEIGHTS_BYTES = 1 << 20
"""Growth of the caches within one call that counts as a download."""

_LABEL = re.compile(r"^\s*(?:#|//)\W*(?:stage\s*)?s([1-5])\b", re.IGNORECASE)
_INSTALL = re.compile(
    r"\b(?:pip3?|conda|mamba|uv|apt(?:-get)?)\s+(?:-\S+\s+)*(?:install|add)\b|-m\s+venv\b|\bvirtualenv\b"
)
_DOWNLOAD = re.compile(r"\b(?:wget|curl|snapshot_download|hf_hub_download|urlretrieve|git\s+clone|gdown)\b")
_LOAD = re.compile(
    r"\b(?:from_pretrained|load_state_dict|load_model|load_checkpoint|InferenceSession)\s*\("
    r"|\b(?:torch|joblib|jit)\.load\s*\(|\bYOLO\s*\("
)


def infer_stage(
    code: str,
    previous: Stage,
    *,
    changed_files: Collection[str] = (),
    cases_written: int = 0,
    n_cases: int = 1,
    cache_growth: int = 0,
    all_outputs_exist: bool = False,
) -> Stage:
    """Stage of a call, never earlier than that of the call before.

    By its code, the workspace files it changed, the cases with expected outputs among them, and bytes of caches.
    """
    seen: list[Stage] = []  # what the evidence speaks for, strongest first
    if "agents_outputs" in code and not cases_written and all_outputs_exist:
        seen.append("S5")
    if cases_written > max(2, n_cases // 10):
        seen.append("S4")
    elif cases_written:
        seen.append("S3")
    if {"plan/plan.md", "plan/plan.png"} & set(changed_files):
        seen.append("S1")
    if not cases_written and _sets_up(code, cache_growth):
        seen.append("S2")
    label = read_stage_label(code)
    if not seen:
        return max(label or previous, previous)
    return max(label if label in seen else seen[0], previous)


def _sets_up(code: str, cache_growth: int) -> bool:
    return cache_growth >= WEIGHTS_BYTES or any(pattern.search(code) for pattern in (_INSTALL, _DOWNLOAD, _LOAD))


def read_stage_label(code: str) -> Stage | None:
    """A stage that the code names in a comment of its first three lines."""
    for line in code.lstrip().splitlines()[:3]:
        match = _LABEL.match(line)
        if match:
            stages: dict[str, Stage] = {"1": "S1", "2": "S2", "3": "S3", "4": "S4", "5": "S5"}
            return stages[match[1]]
    return None
