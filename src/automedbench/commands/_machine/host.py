"""Programs, folders and file systems of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "glusterfs", "afs", "panfs", "9p"}
)


def run_program(argv: Sequence[str], timeout_s: float = 8.0) -> tuple[int, str]:
    """Exit status and output of a program; 127 when it does not exist, 124 when it took too long. Never raises."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        return 127, "is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"gave no answer within {timeout_s:.0f} s"
    except OSError as error:
        return 126, error.strerror or str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


def nearest_folder(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists, as far as this user can see."""
    path = path.absolute()
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    return path


@dataclass(frozen=True)
class Folder:
    """Space of a folder, or of the nearest one above it; ``free_files``: None where they are not counted."""

    path: str
    filled: bool
    kind: str
    free_bytes: int
    free_files: int | None


def read_folder(path: Path) -> Folder:
    """Space and kind of file system of a folder that may not exist yet."""
    place = nearest_folder(path)
    facts = os.statvfs(place)
    filled = place == path.absolute() and os.access(place, os.R_OK | os.X_OK) and bool(os.listdir(place))
    # File systems without a fixed number of inodes say 0 of 0.
    free_files = facts.f_favail if facts.f_files else None
    return Folder(str(path), filled, file_system(place), facts.f_bavail * facts.f_frsize, free_files)


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Kind of the file system that a path lies on, in the kernel's terms; ``unknown`` without such a list."""
    resolved = path.resolve()
    best, kind = -1, "unknown"
    for line in read_lines(mounts):
        _, place, name, *_ = line.split(" ")
        place = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place)
        if resolved.is_relative_to(place) and len(place) >= best:
            best, kind = len(place), name
    return kind


def read_lines(path: Path) -> list[str]:
    """Lines of a file; none where it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").splitlines()
    return []
