"""Scratch folders are gone with their process, however that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from automedbench.sandbox.container.scratch import make_scratch, remove_scratch, remove_tree, repair_modes

# Makes two folders, fills one and takes its permissions away, removes the other, says so, and waits.
DRIVER = """
import os, sys, time
from pathlib import Path
from automedbench.sandbox.container.scratch import make_scratch, remove_scratch
kept, removed = make_scratch("kept-", Path(sys.argv[1])), make_scratch("removed-", Path(sys.argv[1]))
(kept / "a/b").mkdir(parents=True)
(kept / "a/b/file").write_text("x")
(kept / "link").symlink_to(sys.argv[2])
os.chmod(kept / "a/b", 0)
os.chmod(kept, 0)
remove_scratch(removed)
print(removed.exists(), flush=True)
{end}
"""


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


@pytest.mark.parametrize(
    ("end", "number"),
    [
        pytest.param("time.sleep(600)", signal.SIGKILL, id="kill -9"),
        pytest.param("time.sleep(600)", signal.SIGTERM, id="SIGTERM without a handler"),
        pytest.param("os._exit(3)", None, id="without clean-up"),
        pytest.param("", None, id="end without removing"),
    ],
)
def test_gone_with_the_process(tmp_path: Path, end: str, number: int | None) -> None:
    place, other = tmp_path / "place", tmp_path / "other"
    place.mkdir()
    other.mkdir()
    (other / "precious").write_text("stays")
    program = DRIVER.replace("{end}", end)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(place), str(other)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "False\n"
        if number is not None:
            assert len(list(place.iterdir())) == 1
            process.send_signal(number)
        process.wait(30)
    wait_until(lambda: not list(place.iterdir()))
    assert (other / "precious").read_text() == "stays"


def test_ctrl_c_does_not_reach_the_caretaker(tmp_path: Path) -> None:
    """A terminal signals the whole group; the driver dies of it here, the folder goes all the same."""
    program = DRIVER.replace("{end}", "import signal; signal.signal(2, signal.SIG_DFL); time.sleep(600)")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), "/nowhere"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)
    wait_until(lambda: not list(tmp_path.iterdir()))


def test_a_forked_child_has_its_own(tmp_path: Path) -> None:
    """The end of a child does not take its parent's folders away, and a child's folder goes with the child."""
    mine = make_scratch("mine-", tmp_path)
    pid = os.fork()
    if pid == 0:
        make_scratch("child-", tmp_path)
        os._exit(0)
    os.waitpid(pid, 0)
    wait_until(lambda: [path.name[:5] for path in tmp_path.iterdir()] == ["mine-"])
    remove_scratch(mine)
    remove_scratch(mine)
    assert not list(tmp_path.iterdir())


def test_private_and_with_a_name_of_its_own(tmp_path: Path) -> None:
    folders = {make_scratch("x-", tmp_path) for _ in range(3)}
    assert len(folders) == 3
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
    for folder in folders:
        remove_scratch(folder)


def test_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    target.chmod(0o755)
    (target / "file").write_text("stays")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(target)
    remove_tree(folder)
    assert not folder.exists()
    assert (target / "file").read_text() == "stays"
    assert target.stat().st_mode & 0o777 == 0o755


def test_modes_are_given_back_and_no_link_is_followed(tmp_path: Path) -> None:
    """Folders may be entered and changed, files read; what a link or another name leads to stays as it is."""
    other, folder = tmp_path / "other", tmp_path / "folder"
    for path in (other, folder / "a/b"):
        path.mkdir(parents=True)
    for path in (other / "secret", folder / "a/b/file", folder / "a/plain"):
        path.write_text("x")
        path.chmod(0)
    other.chmod(0o100)
    os.link(other / "secret", folder / "a/second")
    (folder / "a/link").symlink_to(other)
    for path in (folder / "a/b", folder / "a", folder):
        path.chmod(0)
    repair_modes(folder)
    modes = {path: os.lstat(path).st_mode & 0o777 for path in (folder, folder / "a", folder / "a/b", other)}
    assert list(modes.values()) == [0o700, 0o700, 0o700, 0o100]
    files = [os.lstat(folder / "a" / name).st_mode & 0o777 for name in ("b/file", "plain", "second")]
    assert files == [0o400, 0o400, 0]
    repair_modes(tmp_path / "nowhere")
