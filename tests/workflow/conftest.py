"""Copies of the repository to run whole workflows in: quick ones, and one of an unprivileged stranger."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from unprivileged import IMAGES, USER, why_not

ROOT = Path(__file__).resolve().parents[2]
STRANGER_HOME = Path("/var/tmp/automedbench-stranger")
CLONES = ("automedbench", "automedbench-2")
"""One for each process that runs tests of the stranger at the same time (``OF_THE_STRANGER``)."""


@dataclass(frozen=True)
class Project:
    """A copy of the repository and how to run commands in it."""

    path: Path
    environment: dict[str, str]
    prefix: tuple[str, ...] = ()

    def run(self, *command: str, timeout: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy; both streams come back together in ``stdout``."""
        return subprocess.run(
            [*self.prefix, *command],
            cwd=self.path,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )

    def snakemake(self, *options: str, timeout: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake with the demo's profile unless another one is named."""
        profile = () if "--profile" in options else ("--profile", "profiles/demo")
        return self.run("snakemake", *profile, *options, timeout=timeout, **environment)


def copy_tree(destination: Path) -> None:
    """Copy what git tracks or would track, so that uncommitted work is tested as well."""
    listed = subprocess.run(
        # The checkout may belong to somebody else than the user who tests it.
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, destination / name
        if not (source.exists() or source.is_symlink()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        else:
            shutil.copy2(source, target)


def clean_environment(home: Path, path: str) -> dict[str, str]:
    """A user's environment without anything of the test runner's but network and Slurm (tests/conftest.py)."""
    places = ("PIP_", "SSL_", "REQUESTS_", "UV_", "NODE_", "SLURM_CONF")
    kept = {name: value for name, value in os.environ.items() if name.startswith(places)}
    return {**kept, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb"}


def narrow_demo(place: Path) -> None:
    """Leave one task in a copy's demo: what is tested on it needs five runs, not all of them."""
    config = place / "demo" / "config.yaml"
    text, n_lines = re.subn(r"(?m)^  tasks: .*$", "  tasks: [bccd-det-task]", config.read_text())
    assert n_lines == 1
    config.write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A copy of the repository that uses this interpreter's environment; its demo has one task."""
    place = tmp_path / "automedbench"
    copy_tree(place)
    narrow_demo(place)
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    environment = clean_environment(tmp_path, path) | {"PYTHONPATH": str(place / "src")}
    return Project(place, environment)


@pytest.fixture(scope="session")
def stranger() -> Iterator[Project]:
    """A fresh clone of an unprivileged user with a ``.venv`` of its own, made by ``make setup``.

    As root the user is ``ambtest`` (made by tests/setup/user.sh) and the clone lies in /var/tmp, where its environment
    is kept between test runs as long as the pins are the same. Other users get a clone of their own. Tests of one
    process share the clone: each empties what it fills (``make clean``) before it starts.
    """
    root = os.geteuid() == 0
    if root:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            pytest.skip(f"no unprivileged user '{USER}': run tests/setup/user.sh add")
    home = STRANGER_HOME if root else Path.home() / ".cache" / "automedbench-stranger"
    prefix = ("runuser", "-u", USER, "--") if root else ()
    home.mkdir(parents=True, exist_ok=True)
    if root:
        shutil.chown(home, USER)
    with _free_clone(home) as place:
        clone = _stranger_clone(place, prefix)
        made = clone.run("make", "setup", f"PYTHON={'/usr/bin/python3' if root else 'python3'}")
        if made.returncode != 0:
            pytest.fail(f"make setup failed in a fresh clone:\n{made.stdout[-3000:]}")
        assert "DEPRECATION" not in made.stdout
        yield clone


@pytest.fixture(scope="session")
def container_stranger(stranger: Project) -> Project:
    """The stranger's clone with both images, so that a run in Apptainer builds none."""
    if reason := why_not("light", "scorer"):
        pytest.skip(reason)
    folder = stranger.path / "images"
    folder.mkdir(exist_ok=True)
    for name in ("light.sif", "light.json", "scorer.sif", "scorer.json"):
        # A new date: a record older than the definition would be made again.
        shutil.copyfile(IMAGES / name, folder / name)
    give_to_stranger(stranger, folder)
    return stranger


def give_to_stranger(stranger: Project, path: Path) -> None:
    """Make the stranger the owner of what the test wrote into the clone."""
    if stranger.prefix:
        subprocess.run(["chown", "-R", f"{USER}:", str(path)], check=True)


@contextlib.contextmanager
def _free_clone(home: Path) -> Iterator[Path]:
    """Where a clone lies that no other process uses, which waits until this one ends."""
    with contextlib.ExitStack() as stack:
        locks = {name: stack.enter_context(open(home / f"{name}.in-use", "w")) for name in CLONES}
        while True:
            for name, lock in locks.items():
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield home / name
                    return
            time.sleep(1)


def _stranger_clone(place: Path, prefix: tuple[str, ...]) -> Project:
    kept = place.with_name(f"{place.name}.venv-of-last-time")
    if (place / ".venv").is_dir():
        shutil.rmtree(kept, ignore_errors=True)
        (place / ".venv").rename(kept)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    copy_tree(place)
    narrow_demo(place)
    if kept.is_dir():
        kept.rename(place / ".venv")
    path = f"{place / '.venv' / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    clone = Project(place, clean_environment(place.parent, path), prefix)
    give_to_stranger(clone, place)
    return clone
