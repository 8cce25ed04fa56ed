"""The import airlock: only regular files of expected names and sizes come out of a workspace."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from pathlib import Path

import pytest

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.airlock import collector
from automedbench.sandbox.airlock.collector import MAX_UNEXPECTED, Collected, collect, read_beneath

ONE = "agents_outputs/c1/p.json"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An agent's workspace with the output folder of one case."""
    folder = tmp_path / "workspace"
    (folder / "agents_outputs/c1").mkdir(parents=True)
    return folder


def take(workspace: Path, limit: int = 100, **options: object) -> Collected:
    return collect(workspace, {ONE: limit}, workspace.parent / "submission", **options)  # type: ignore[arg-type]


def reasons(collected: Collected) -> dict[str, str]:
    return {item.path: item.reason for item in collected.rejected}


def test_nothing_expected(workspace: Path) -> None:
    collected = collect(workspace, {}, workspace.parent / "submission")
    assert (collected.files, collected.extra, collected.rejected) == ({}, {}, [])
    assert list((workspace.parent / "submission").iterdir()) == []


def test_a_missing_file_is_in_no_list(workspace: Path) -> None:
    assert take(workspace) == Collected({}, {}, [])


def test_a_missing_folder_is_in_no_list(workspace: Path) -> None:
    (workspace / "agents_outputs/c1").rmdir()
    (workspace / "agents_outputs").rmdir()
    assert take(workspace) == Collected({}, {}, [])


def test_a_regular_file_is_copied_with_its_hash(workspace: Path) -> None:
    (workspace / ONE).write_bytes(b"abc")
    collected = take(workspace)
    assert collected.files[ONE].sha256 == hashlib.sha256(b"abc").hexdigest()
    assert collected.files[ONE].bytes == 3
    copy = workspace.parent / "submission" / ONE
    assert copy.read_bytes() == b"abc"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o444


def test_an_empty_file_is_a_file(workspace: Path) -> None:
    (workspace / ONE).touch()
    assert take(workspace).files[ONE].bytes == 0


def test_extra_files_are_kept_apart(workspace: Path) -> None:
    (workspace / "plan").mkdir()
    (workspace / "plan/plan.md").write_text("1. look")
    collected = take(workspace, extra={"plan/plan.md": 100, "plan/plan.png": 100})
    assert (list(collected.files), list(collected.extra), collected.rejected) == ([], ["plan/plan.md"], [])


def make_link(path: Path) -> None:
    path.symlink_to("/data/private/c1/p.json")


def make_relative_link(path: Path) -> None:
    path.symlink_to("../../secret")


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_hard_link(path: Path) -> None:
    other = path.parents[2] / "other"
    other.write_text("x")
    os.link(other, path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket must be short
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def make_sparse(path: Path) -> None:
    with open(path, "wb") as stream:
        stream.truncate(1 << 40)


SPECIAL = [
    pytest.param(make_link, "link", "/data/private/c1/p.json", id="link"),
    pytest.param(make_relative_link, "link", "../../secret", id="relative-link"),
    pytest.param(make_loop, "link", "p.json", id="link-to-itself"),
    pytest.param(make_hard_link, "hardlink", None, id="hard-link"),
    pytest.param(os.mkfifo, "fifo", None, id="fifo"),
    pytest.param(make_socket, "socket", None, id="socket"),
    pytest.param(Path.mkdir, "directory", None, id="directory"),
    pytest.param(make_sparse, "too_large", None, id="sparse"),
    pytest.param(lambda path: path.write_bytes(b"x" * 101), "too_large", None, id="one-byte-too-large"),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("make", "reason", "target"), SPECIAL)
def test_what_is_no_plain_file_stays_behind(workspace: Path, make: object, reason: str, target: str | None) -> None:
    make(workspace / ONE)  # type: ignore[operator]
    collected = take(workspace)
    assert collected.files == {}
    assert [(item.path, item.reason, item.target) for item in collected.rejected] == [(ONE, reason, target)]
    assert not (workspace.parent / "submission" / ONE).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes")
def test_a_device_stays_behind(workspace: Path) -> None:
    try:
        os.mknod(workspace / ONE, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this root may make no device nodes")
    assert reasons(take(workspace)) == {ONE: "device"}


def test_a_link_in_the_middle_of_a_path(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/p.json").write_text("secret")
    (workspace / "agents_outputs/c1").rmdir()
    (workspace / "agents_outputs/c1").symlink_to(tmp_path / "private")
    collected = take(workspace)
    assert collected.files == {}
    assert [(i.path, i.reason, i.target) for i in collected.rejected] == [(ONE, "link", str(tmp_path / "private"))]


def test_the_output_folder_itself_is_a_link(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "private/c1").mkdir(parents=True)
    (tmp_path / "private/c1/p.json").write_text("secret")
    (workspace / "agents_outputs/c1").rmdir()
    (workspace / "agents_outputs").rmdir()
    (workspace / "agents_outputs").symlink_to(tmp_path / "private")
    assert reasons(take(workspace)) == {ONE: "link"}


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_a_folder(workspace: Path) -> None:
    (workspace / "agents_outputs/c1").rmdir()
    os.mkfifo(workspace / "agents_outputs/c1")
    assert reasons(take(workspace)) == {ONE: "fifo"}


def test_a_file_in_the_place_of_a_folder(workspace: Path) -> None:
    (workspace / "agents_outputs/c1").rmdir()
    (workspace / "agents_outputs/c1").write_text("x")
    assert take(workspace).files == {}


def test_a_file_that_grows_while_it_is_copied(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / ONE).write_bytes(b"x")
    whole_read = os.read

    def read_and_grow(handle: int, size: int) -> bytes:
        data = whole_read(handle, size)
        with open(workspace / ONE, "ab") as stream:
            stream.write(b"y" * 60)
        return data

    monkeypatch.setattr(collector.os, "read", read_and_grow)
    assert reasons(take(workspace)) == {ONE: "too_large"}


def test_a_file_that_changes_while_it_is_copied(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / ONE).write_bytes(b"good")
    whole_read = os.read

    def read_and_change(handle: int, size: int) -> bytes:
        data = whole_read(handle, size)
        (workspace / ONE).write_bytes(b"evil")
        os.utime(workspace / ONE, (1, 1))
        return data

    monkeypatch.setattr(collector.os, "read", read_and_change)
    assert reasons(take(workspace)) == {ONE: "unreadable"}


def test_what_was_not_asked_for_is_listed(workspace: Path) -> None:
    (workspace / ONE).write_text("{}")
    (workspace / "agents_outputs/c1/notes.txt").touch()
    (workspace / "agents_outputs/link").symlink_to("/etc/passwd")
    (workspace / "agents_outputs/folder").symlink_to(workspace.parent)
    os.mkfifo(workspace / "agents_outputs/pipe")
    (workspace / "elsewhere").touch()
    collected = take(workspace)
    assert list(collected.files) == [ONE]
    assert reasons(collected) == {
        "agents_outputs/c1/notes.txt": "unexpected",
        "agents_outputs/folder": "unexpected",
        "agents_outputs/link": "unexpected",
        "agents_outputs/pipe": "unexpected",
    }


def test_every_refusal_of_an_expected_file_is_listed(workspace: Path) -> None:
    """The bound is on what nobody asked for: a refused case must never look like one without output."""
    count = MAX_UNEXPECTED + 49
    expected = {f"agents_outputs/{index}.nii.gz": 1 for index in range(count)}
    for path in expected:
        (workspace / path).write_bytes(b"xx")
        (workspace / f"{path}.txt").touch()
    collected = collect(workspace, expected, workspace.parent / "submission")
    refused = [item.path for item in collected.rejected if item.reason == "too_large"]
    assert refused == list(expected)
    assert len(collected.rejected) == count + MAX_UNEXPECTED


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "", "a/", "a\0b"], ids=repr)
def test_expected_names_must_be_plain(workspace: Path, path: str) -> None:
    with pytest.raises(ValueError, match="plain relative path"):
        collect(workspace, {path: 10}, workspace.parent / "submission")


def test_the_destination_is_replaced_as_a_whole(workspace: Path) -> None:
    (workspace / ONE).write_text("1")
    take(workspace)
    (workspace / ONE).unlink()
    take(workspace)
    assert list((workspace.parent / "submission").rglob("*")) == []
    assert sorted(path.name for path in workspace.parent.iterdir()) == ["submission", "workspace"]


def test_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="No such file"):
        collect(tmp_path / "none", {ONE: 1}, tmp_path / "submission")


def test_full_disk_is_no_fault_of_the_agent(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / ONE).write_text("1")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collector.os, "fsync", full)
    with pytest.raises(InfrastructureError, match="No space left"):
        take(workspace)
    assert [path.name for path in workspace.parent.iterdir()] == ["workspace"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_file_of_another_user(workspace: Path) -> None:
    (workspace / ONE).write_text("1")
    os.chown(workspace / ONE, 12345, 12345)
    assert reasons(take(workspace)) == {ONE: "unreadable"}


def test_read_beneath(workspace: Path) -> None:
    (workspace / "s.py").write_bytes(b"x")
    (workspace / "l.py").symlink_to("s.py")
    assert read_beneath(workspace, "s.py", 1) == b"x"
    assert [read_beneath(workspace, name, 1) for name in ("none", "l.py", "../x", "agents_outputs")] == [None] * 4
    assert read_beneath(workspace, "s.py", 0) is None


def test_a_file_that_grows_before_it_is_read_is_not_read_in_part(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "s.py").write_bytes(b"x")
    whole_read = os.read

    def grow_and_read(handle: int, size: int) -> bytes:
        (workspace / "s.py").write_bytes(b"xyz")
        return whole_read(handle, size)

    monkeypatch.setattr(collector.os, "read", grow_and_read)
    assert read_beneath(workspace, "s.py", 1) is None
    assert read_beneath(workspace, "s.py", 3) == b"xyz"
