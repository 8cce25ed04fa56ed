"""Getting raw data: from the user's own folder or a git repository, never half, with a receipt of every file."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from automedbench.cards import DataSet, Source, TaskCard
from automedbench.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.files import read_record, sha256_file, write_record, write_text
from automedbench.records import FileEntry, Receipt, now

RECEIPT = "receipt.json"
MARKER = ".fetched-by-automedbench"
GIT_TIMEOUT_S = 3600
# A stalled transfer ends after a minute; file contents are taken as they are, not with local line ends.
_GIT = ["git", "-c", "core.autocrlf=false", "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60"]
# Set inside git hooks; they would point git at the caller's repository.
_REPOSITORY_VARIABLES = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"})
_OURS = frozenset({RECEIPT, MARKER})


def fetch_dataset(card: TaskCard, override: Path | None, destination: Path) -> Receipt:
    """Fill ``destination`` with the card's raw data and a receipt; fetching the same again changes nothing.

    ``override`` is the user's own copy, in the layout of the card's first source; without it the card's sources are
    tried in order. Raises MissingDataError with the way to get the data when no source works, and
    InfrastructureError when a checksum differs or the destination holds files of somebody else.
    """
    destination = Path(destination)
    sources = [_own_copy(card.dataset, override)] if override is not None else card.dataset.sources
    reasons = []
    for source in sources:
        known = _up_to_date(destination, source)
        if known is not None:
            return known
        try:
            return _fetch(card.dataset, source, destination)
        except MissingDataError as error:
            reasons.append(str(error))
    how = " ".join(card.dataset.how_to_get.split())
    raise MissingDataError(f"No raw data for '{card.dataset.name}': {'; '.join(reasons)}.\nHow to get it: {how}")


def describe(source: Source) -> str:
    """Kind and place of a source as the receipt tells it, without credentials in a URL."""
    parts = urlsplit(source.where)
    if source.kind == "path" or not parts.netloc:
        return f"{source.kind} {source.where}"
    clean = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return f"{source.kind} {urlunsplit(clean)}"


def _own_copy(dataset: DataSet, override: Path) -> Source:
    return Source(kind="path", where=str(override), files=dataset.sources[0].files, sha256=dataset.sources[0].sha256)


def _fetch(dataset: DataSet, source: Source, destination: Path) -> Receipt:
    if source.kind == "path":
        return _install(dataset, source, Path(source.where), None, destination)
    if source.kind == "git":
        with _scratch(destination) as clone:
            revision = _clone(source, clone)
            return _install(dataset, source, clone, revision, destination)
    raise MissingDataError(f"{describe(source)} must be fetched by hand")


# --- what is there already ------------------------------------------------------------------------------------


def _up_to_date(destination: Path, source: Source) -> Receipt | None:
    """The receipt of a finished fetch of exactly this pinned source, if every file is still what it says."""
    if source.kind == "path" or source.revision is None or not (destination / RECEIPT).is_file():
        return None
    receipt = read_record(destination / RECEIPT, Receipt)
    same = (receipt.source, receipt.revision) == (describe(source), source.revision)
    covered = all(any(_matches(name, pattern) for name in receipt.files) for pattern in source.files)
    return receipt if same and covered and _entries(destination) == receipt.files else None


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern of the card takes the path (``*`` stays within one folder, as in ``Path.glob``)."""
    parts, wanted = name.split("/"), pattern.split("/")
    return "**" in wanted or (
        len(parts) == len(wanted) and all(Path(part).match(piece) for part, piece in zip(parts, wanted, strict=True))
    )


def _entries(folder: Path) -> dict[str, FileEntry]:
    """Content of every file below the folder, our own two left out."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: _entry(folder / name) for name in names if name not in _OURS}


def _entry(path: Path) -> FileEntry:
    return FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size)


# --- copying --------------------------------------------------------------------------------------------------


def _install(dataset: DataSet, source: Source, origin: Path, revision: str | None, destination: Path) -> Receipt:
    """Copy what the patterns take into a temporary folder, then put it in place of the destination."""
    names = _select(origin, source.files, destination)
    try:
        with _scratch(destination) as folder:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(origin / name, folder / name, follow_symlinks=False)
            receipt = _receipt(dataset, source, revision, _entries(folder))
            _check_sums(source, receipt)
            return _replace(folder, receipt, destination)
    except OSError as error:
        raise InfrastructureError(
            f"Cannot copy raw data to {destination}: {error.strerror or error}.\n"
            "Free space or fix the permissions, then run the same command again."
        ) from error


def _select(origin: Path, patterns: list[str], destination: Path) -> list[str]:
    """Relative paths of the regular files that the patterns take (all but git's own without patterns)."""
    if not origin.is_dir():
        raise MissingDataError(f"{origin} is not a folder")
    inner, outer = origin.resolve(), destination.resolve()
    if inner == outer or inner in outer.parents or outer in inner.parents:
        raise InfrastructureError(f"{origin} and {destination} contain each other; keep your own copy elsewhere.")
    outside = [pattern for pattern in patterns if pattern.startswith("/") or ".." in pattern.split("/")]
    if outside:
        raise ConfigError([f"dataset.sources.files: '{pattern}' must be relative, without '..'" for pattern in outside])
    found: set[str] = set()
    for pattern in patterns or ["**/*"]:
        taken = {path.relative_to(origin).as_posix() for path in origin.glob(pattern) if not path.is_dir()}
        taken = {name for name in taken if name.split("/")[0] != ".git"}
        if not taken:
            raise MissingDataError(f"{origin} holds nothing that matches '{pattern}'")
        found |= taken
    for name in sorted(found):
        _refuse_special(origin / name)
    return sorted(found - _OURS)


def _refuse_special(path: Path) -> None:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise InfrastructureError(
            f"{path} is a link or a special file; only regular files are copied.\n"
            "Make a copy with the links resolved (`cp -rL`) and give that folder."
        )


def _receipt(dataset: DataSet, source: Source, revision: str | None, files: dict[str, FileEntry]) -> Receipt:
    return Receipt(
        dataset=dataset.name,
        source=describe(source),
        revision=revision,
        licence=dataset.licence,
        attribution=dataset.attribution,
        fetched_at=now(),
        files=files,
    )


def _check_sums(source: Source, receipt: Receipt) -> None:
    for name, expected in source.sha256.items():
        found = receipt.files.get(name)
        if found is not None and found.sha256 != expected:
            raise InfrastructureError(
                f"{name} from {receipt.source} has SHA-256 {found.sha256}, the card says {expected}.\n"
                "The source changed or the download is damaged; nothing was installed."
            )


def _replace(folder: Path, receipt: Receipt, destination: Path) -> Receipt:
    """Put the finished folder in place; identical content keeps the files (and, if unchanged, the receipt)."""
    if destination.is_dir() and any(destination.iterdir()):
        there = _entries(destination)
        if there == receipt.files:
            return _keep(receipt, destination)
        if not (destination / MARKER).is_file():
            raise InfrastructureError(
                f"{destination} holds other files that this program did not fetch; they are left alone.\n"
                "Move them away, then run the same command again."
            )
    write_text(folder / MARKER, "Fetched by automedbench; replaced as a whole when the source changes.\n")
    write_record(folder / RECEIPT, receipt)
    folder.chmod(0o755)
    with _scratch(destination) as old:
        _swap(folder, destination, old / "replaced")
    return receipt


def _swap(folder: Path, destination: Path, aside: Path) -> None:
    """Rename ``folder`` to the destination, whose old content goes aside and comes back if that fails."""
    if destination.exists():
        os.rename(destination, aside)
    try:
        os.rename(folder, destination)
    except OSError:
        if aside.exists():
            os.rename(aside, destination)
        raise


def _keep(receipt: Receipt, destination: Path) -> Receipt:
    """The receipt already there when it says the same, else the new one, written beside the unchanged files."""
    if (destination / RECEIPT).is_file():
        old = read_record(destination / RECEIPT, Receipt)
        if old.model_copy(update={"fetched_at": receipt.fetched_at}) == receipt:
            return old
    write_record(destination / RECEIPT, receipt)
    return receipt


@contextlib.contextmanager
def _scratch(destination: Path) -> Iterator[Path]:
    """A temporary folder beside the destination that is gone afterwards."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".tmp", dir=destination.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- git ------------------------------------------------------------------------------------------------------


def _clone(source: Source, folder: Path) -> str:
    """Check the revision out into the empty folder, shallow if the server lets us; returns its commit."""
    wanted = source.revision or "HEAD"
    where = str(Path(source.where).resolve()) if Path(source.where).is_dir() else source.where
    _git(folder, "init", "--quiet")
    try:
        _git(folder, "fetch", "--quiet", "--depth", "1", "--", where, wanted)
        _git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    except MissingDataError:
        # Some servers refuse a single commit by its number, so take everything and look there.
        _git(folder, "fetch", "--quiet", "--tags", "--", where, "+refs/heads/*:refs/remotes/origin/*")
        _git(folder, "checkout", "--quiet", "--detach", wanted)
    commit = _git(folder, "rev-parse", "HEAD").strip()
    if re.fullmatch(r"[0-9a-f]{40}", wanted) and commit != wanted:
        raise MissingDataError(f"{describe(source)} gave commit {commit} instead of {wanted}")
    return commit


def _git(folder: Path, *arguments: str) -> str:
    """Run git without prompts; raises MissingDataError with git's own reason."""
    environment = {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
    try:
        done = subprocess.run(
            [*_GIT, *arguments],
            cwd=folder,
            env=environment | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise MissingDataError("git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise MissingDataError(f"git {arguments[0]} took longer than {GIT_TIMEOUT_S} s") from error
    if done.returncode:
        raise MissingDataError(f"git {arguments[0]} failed: {_reason(done.stderr)}")
    return done.stdout


def _reason(text: str) -> str:
    """The line of git's messages that says what failed, without credentials in a URL."""
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    said = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return re.sub(r"//[^/@\s]*@", "//", (said or lines)[0])
