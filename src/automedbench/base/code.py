"""The code at work: a digest of its files, which needs no Git, and the commit that they belong to, if there is one."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Collection
from pathlib import Path

from automedbench.base.files import hash_json, sha256_file
from automedbench.base.records import Code

PACKAGE = Path(__file__).parents[1]
RUBRICS, PROMPTS = "config/rubrics", "config/prompts"
NO_NUMBERS = frozenset({"commands", "leaderboard", "planning", "statistics"})
"""Parts of the package that no run and no score of one passes through."""
_KINDS = (".py", ".yaml", ".json", ".md", ".txt")
_GIT_S = 20.0


@functools.cache
def code_digest(*folders: Path, without: frozenset[str] = frozenset()) -> str:
    """Digest of all files of the package, less these parts, and of ``folders``: another one after any edit."""
    return hash_json({name: sha256_file(path) for name, path in _files(folders, without).items()})


@functools.cache
def present_code() -> Code:
    """The code that makes numbers here, rubrics and prompts included; the same within a process."""
    folders = (Path(RUBRICS), Path(PROMPTS))
    commit, dirty = _commit([PACKAGE, *folders])
    return Code(digest=code_digest(*folders, without=NO_NUMBERS), commit=commit, dirty=dirty)


def _files(folders: Collection[Path], without: frozenset[str]) -> dict[str, Path]:
    """Name that is the same wherever the package lies → file."""
    return {
        f"{folder.name}/{path.relative_to(folder).as_posix()}": path
        for folder in (PACKAGE, *folders)
        for path in folder.rglob("*")
        if path.suffix in _KINDS and not (folder == PACKAGE and path.relative_to(folder).parts[0] in without)
    }


def _commit(places: list[Path]) -> tuple[str | None, bool | None]:
    """Commit of the repository that holds the package, and whether files in ``places`` differ from it; else None."""
    shown = [str(place.absolute()) for place in places if place.exists()]
    try:
        # A package that was installed below some other repository is no file of that one.
        _git("ls-files", "--error-unmatch", "--", str(PACKAGE / "__init__.py"))
        lines = _git("status", "--porcelain=v2", "--branch", "--no-renames", "--", *shown).splitlines()
    except (OSError, subprocess.SubprocessError):
        return None, None
    heads = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    commit = next((head for head in heads if head != "(initial)"), None)
    return commit, None if commit is None else any(not line.startswith("#") for line in lines)


def _git(*arguments: str) -> str:
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-C", str(PACKAGE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_S, env=environment)
    return done.stdout
