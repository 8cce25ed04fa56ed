"""Git repositories, through the git command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from automedbench.base.cards import Source
from automedbench.base.errors import MissingDataError
from automedbench.datasets.download.access import describe, pinned_commit
from automedbench.datasets.download.collecting import Collector, DownloadItem
from automedbench.datasets.download.transfer import ContentMismatch, DownloadProgress
from automedbench.datasets.fetchers.web import FetchPlan
from automedbench.datasets.patterns import path_matcher

GIT_TIMEOUT_S = 3600
# A stalled transfer ends after a minute; file contents are taken as they are, not with local line ends.
_GIT = ["git", "-c", "core.autocrlf=false", "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60"]
# Set inside git hooks; they would point git at the caller's repository.
_REPOSITORY_VARIABLES = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"})


def plan_git(source: Source, collector: Collector) -> FetchPlan:
    """One item: the files of the revision, without git's own, as far as the patterns take them."""
    stand_in = collector.access.stand_in
    where = str(Path(source.where).resolve()) if Path(source.where).is_dir() else collector.access.url(source.where)
    found: list[str] = []

    def get(folder: Path, watch: DownloadProgress) -> bool:
        wanted = "HEAD" if stand_in else source.revision or "HEAD"
        commit = _clone(where, wanted, folder)
        if not stand_in and pinned_commit(source) not in (None, commit):
            raise ContentMismatch(f"{describe(source)}: found commit {commit}, expected {wanted}")
        found.append(commit)
        _keep(folder, source)
        return False

    identity = [source.kind, source.where, source.revision, source.files, stand_in]
    name = describe(source).removeprefix("git ")
    client = _git(Path.cwd(), "--version").strip().replace("git version", "git")
    item = DownloadItem(name=name, identity=identity, get=get, client=client, tree=True, revision=lambda: found[-1])
    return FetchPlan([item])


def look_up_commit(source: Source, collector: Collector) -> str:
    """Get the source's commit without its files, where the server can leave them out; its name.

    Raises MissingDataError when it is not there.
    """
    wanted, folder = source.revision or "HEAD", collector.folder / "git"
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet")
    _git(folder, "fetch", "--quiet", "--depth=1", "--filter=tree:0", collector.access.url(source.where), wanted)
    return wanted


def _keep(folder: Path, source: Source) -> None:
    """Remove git's own folder and what no pattern takes."""
    shutil.rmtree(folder / ".git", ignore_errors=True)
    wanted = path_matcher(source.files)
    for path in sorted(folder.rglob("*")):
        if (path.is_symlink() or not path.is_dir()) and not wanted(path.relative_to(folder).as_posix()):
            path.unlink()


def _clone(where: str, wanted: str, folder: Path) -> str:
    """Check the revision out into the empty folder, shallow if the server lets us; returns its commit."""
    # Named as origin, as git-lfs looks there for the content of large files.
    origin = f"remote.origin.url={where}"
    _git(folder, "init", "--quiet")
    try:
        _git(folder, "fetch", "--quiet", "--depth", "1", "origin", wanted, setting=origin)
        _git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD", setting=origin)
    except MissingDataError:
        # Some servers refuse a single commit by its number, so take everything and look there.
        everything = "+refs/heads/*:refs/remotes/origin/*"
        _git(folder, "fetch", "--quiet", "--tags", "origin", everything, setting=origin)
        _git(folder, "checkout", "--quiet", "--detach", wanted, setting=origin)
    return _git(folder, "rev-parse", "HEAD").strip()


def _git(folder: Path, *arguments: str, setting: str = "core.quotePath=true") -> str:
    """Run git without prompts; raises MissingDataError with git's own reason."""
    environment = {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
    try:
        done = subprocess.run(
            [*_GIT, "-c", setting, *arguments],
            cwd=folder,
            env=environment | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "no_proxy": _direct(environment)},
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


def _direct(environment: Mapping[str, str]) -> str:
    """Hosts that no proxy is asked for: those that the environment names, and this machine."""
    return ",".join(filter(None, [environment.get("no_proxy"), environment.get("NO_PROXY"), "127.0.0.1", "localhost"]))


def _reason(text: str) -> str:
    """The line of git's messages that says what failed, without credentials in a URL."""
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return re.sub(r"//[^/@\s]*@", "//", (errors or lines)[0])
