"""Running a function as an ordinary user: Apptainer refuses root, and so does a cluster.

Tests that run as root fork, become the account that ``tests/setup/user.sh`` makes (``AMB_TEST_USER``, default
ambtest) and send the result back; without root the function is called directly.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import pwd
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
IMAGES = Path(os.environ.get("AMB_IMAGES", ROOT / "images"))
USER = os.environ.get("AMB_TEST_USER", "ambtest")

ResultT = TypeVar("ResultT")
_OURS = sys.executable


def why_not(*images: str) -> str | None:
    """Why containers of these images (``light``, ``scorer``) cannot be started here; None when they can."""
    if shutil.which("apptainer") is None:
        return "apptainer is not installed (tests/setup/apptainer.sh)"
    for name in images:
        if not (IMAGES / f"{name}.sif").is_file():
            return f"no {name}.sif in {IMAGES} (scripts/build_image.py; AMB_IMAGES names another folder)"
    if os.geteuid() == 0 and _account() is None:
        return f"no user '{USER}' to run containers as (tests/setup/user.sh add)"
    if os.geteuid() == 0 and _python(_account()) is None:
        return f"no Python that user '{USER}' may execute"
    if not as_user(_sees_the_code):
        return f"user '{USER}' cannot read this checkout; clone it where everybody may go"
    return None


def _sees_the_code() -> bool:
    return os.access(ROOT / "src" / "automedbench" / "__init__.py", os.R_OK)


def as_user(function: Callable[[], ResultT]) -> ResultT:
    """What ``function`` returns when an ordinary user calls it; its exception is raised here."""
    if os.geteuid() != 0:
        return function()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _answer(writer, function)
    os.close(writer)
    with open(reader, "rb") as stream:
        data = stream.read()
    os.waitpid(pid, 0)
    succeeded, value = pickle.loads(data)
    if not succeeded:
        raise value
    return value


def has_user() -> bool:
    """There is an ordinary user to become, or this is one."""
    return os.geteuid() != 0 or _account() is not None


def python_for_user(folder: Path) -> str:
    """Within ``as_user``: an interpreter with our packages for child processes; ``folder`` may get a wrapper."""
    if sys.executable == _OURS:
        return _OURS
    wrapper = folder / "python"
    paths = ":".join(path for path in sys.path if path.endswith("site-packages"))
    wrapper.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{paths}"\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


@contextlib.contextmanager
def user_folder() -> Iterator[Path]:
    """A scratch folder of the ordinary user; pytest's own lies below a folder that only root may enter."""
    folder = Path(tempfile.mkdtemp(prefix="amb-test-"))
    account = _account() if os.geteuid() == 0 else None
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return None


def _python(account: pwd.struct_passwd | None) -> str | None:
    """An interpreter that the user may execute: ours may lie below root's home."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        folders = [*Path(os.path.realpath(candidate)).parents, *Path(candidate).parents]
        if account is not None and os.path.exists(candidate) and all(_enterable(folder, account) for folder in folders):
            return candidate
    return None


def _enterable(folder: Path, account: pwd.struct_passwd) -> bool:
    status = folder.stat()
    mine = status.st_uid == account.pw_uid
    return bool(status.st_mode & (0o100 if mine else 0o010 if status.st_gid == account.pw_gid else 0o001))


def _answer(writer: int, function: Callable[[], object]) -> None:
    """In the child: become the user, call, send the result, and end without running anything of the parent's."""
    try:
        account = _account()
        assert account is not None
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        os.environ["HOME"] = account.pw_dir
        sys.executable = _python(account) or sys.executable
        result: tuple[bool, object] = (True, function())
    except BaseException as error:
        error.add_note("".join(traceback.format_exception(error)))
        result = (False, error)
    with open(writer, "wb") as stream:
        try:
            stream.write(pickle.dumps(result))
        except Exception:
            stream.write(pickle.dumps((False, RuntimeError(f"cannot send {result!r}"))))
    os._exit(0)
