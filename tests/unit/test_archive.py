"""Archives of workspaces: what a collector sees of them is what it would have seen, and holes take no room."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import write_record
from automedbench.base.records import CaseSubmission, FileEntry, RunId, SubmissionRecord
from automedbench.campaign.record import RunFiles
from automedbench.sandbox.airlock.archive import (
    OUTPUTS,
    drop_members,
    is_evidence,
    list_members,
    pack,
    unpack,
    unpack_outputs,
    unpack_submission,
)
from automedbench.sandbox.airlock.collector import collect
from automedbench.sandbox.container.scratch import MAX_DEPTH

GIGABYTES = 64 * 10**9


def make_odd(workspace: Path) -> None:
    """Everything that an agent can leave: links of both kinds, a pipe, odd names and times, closed folders, holes."""
    outputs = workspace / "agents_outputs"
    for case in ("good", "closed", "empty"):
        (outputs / case).mkdir(parents=True)
    (outputs / "good/out.json").write_text("{}")
    (outputs / "closed/out.json").write_text("[]")
    (outputs / "link").symlink_to("/etc/passwd")
    (outputs / "folder").symlink_to("good")
    (outputs / "shared").write_text("two names")
    os.link(outputs / "shared", workspace / "elsewhere")
    os.mkfifo(outputs / "pipe")
    (outputs / "large").write_bytes(b"x" * 200)
    with open(outputs / "hole", "wb") as stream:
        stream.truncate(GIGABYTES)
    with open(workspace / "middle", "wb") as stream:
        stream.seek(5_000_000)
        stream.write(b"data")
        stream.truncate(GIGABYTES)
    Path(os.fsdecode(os.fsencode(workspace) + b"/\xff\n")).write_text("x")
    os.utime(workspace / "middle", ns=(-5_500_000_001, -5_500_000_001))
    os.chmod(outputs / "closed/out.json", 0)
    os.chmod(outputs / "closed", 0)


def pack_both(workspace: Path, place: Path) -> None:
    pack(workspace, place / OUTPUTS, is_evidence)
    pack(workspace, place / "workspace.tar", lambda path: not is_evidence(path))


def test_nothing_is_lost(tmp_path: Path) -> None:
    """Kinds, contents, sizes, exact times: the looks that an attempt compares after it went on see no change."""
    workspace, again = tmp_path / "one", tmp_path / "two"
    workspace.mkdir()
    again.mkdir()
    make_odd(workspace)
    pack_both(workspace, tmp_path)
    for name in (OUTPUTS, "workspace.tar"):
        unpack(tmp_path / name, again)
    seen = [
        {
            str(path.relative_to(folder)): (status.st_mode, status.st_size, status.st_mtime_ns)
            for path in folder.rglob("*")
            if (status := path.lstat())
        }
        for folder in (workspace, again)
    ]
    assert seen[0] == {path: told for path, told in seen[1].items() if path in seen[0]}
    assert len(seen[0]) == len(seen[1])
    assert (again / "agents_outputs/link").readlink() == Path("/etc/passwd")
    with open(again / "middle", "rb") as stream:
        assert stream.read(5_000_000).count(0) == 5_000_000
        assert stream.read(5) == b"data\0"
    # By hand: some 20 entries of 1 to 2 KiB, no gigabyte.
    files = (again / "middle", again / "agents_outputs/hole", *tmp_path.glob("*.tar"))
    sizes = [path.stat().st_blocks * 512 for path in files]
    assert max(sizes) < 100_000


def test_a_collector_sees_the_same(tmp_path: Path) -> None:
    """The refusals too: links, second names also across the two archives, pipes, what is too large or not asked for."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    make_odd(workspace)
    names = ("good/out.json", "closed/out.json", "empty/out.json", "link", "folder/out.json", "shared", "pipe", "large")
    expected = {f"agents_outputs/{name}": 100 for name in (*names, "hole")}
    pack_both(workspace, tmp_path)
    live = collect(workspace, expected, tmp_path / "live")
    with unpack_outputs(tmp_path, expected) as folder:
        packed = collect(folder, expected, tmp_path / "packed")
    assert packed == live
    # By hand: of nine expected files two are good, one is not there.
    assert sorted(live.files) == ["agents_outputs/closed/out.json", "agents_outputs/good/out.json"]
    assert sorted(item.reason for item in live.rejected if item.path in expected) == [
        "fifo", "hardlink", "link", "link", "too_large", "too_large",
    ]  # fmt: skip
    assert not folder.exists()


def test_any_tar_reads_it(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    make_odd(workspace)
    pack_both(workspace, tmp_path)
    done = subprocess.run(
        ["tar", "xOf", tmp_path / OUTPUTS, "agents_outputs/good/out.json"], check=True, capture_output=True
    )
    assert done.stdout == b"{}"
    listed = subprocess.run(["tar", "tvf", tmp_path / "workspace.tar", "middle"], check=True, capture_output=True)
    assert str(GIGABYTES).encode() in listed.stdout


def test_too_deep_and_too_full_of_holes(tmp_path: Path) -> None:
    """What no walk reaches, and a file of more pieces than are followed, are left out; the rest is packed."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    place = os.open(workspace, os.O_RDONLY)
    for _ in range(MAX_DEPTH + 10):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    (workspace / "kept").write_text("x")
    with open(workspace / "torn", "wb") as stream:
        for number in range(10_002):
            stream.seek(number * 65536)
            stream.write(b"x")
    pack(workspace, tmp_path / "all.tar")
    names = {path for path, _ in list_members(tmp_path / "all.tar")}
    assert {path for path in names if not path.startswith("d")} == {"kept"}
    assert len(names) == MAX_DEPTH + 1


def test_a_link_is_no_way_out(tmp_path: Path) -> None:
    """An archive that someone made: nothing is laid out through a link or above the folder."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (tmp_path / "source").write_text("x")
    with tarfile.open(tmp_path / "made.tar", "w") as tar:
        link = tarfile.TarInfo("way")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        tar.addfile(link)
        for name in ("way/file", "../file", f"{tmp_path}/file", "good"):
            member = tar.gettarinfo(tmp_path / "source")
            member.name = name
            with open(tmp_path / "source", "rb") as stream:
                tar.addfile(member, stream)
        link.name, link.type, link.linkname = "second", tarfile.LNKTYPE, f"{tmp_path}/source"
        tar.addfile(link)
    unpack(tmp_path / "made.tar", folder)
    there = {"folder", "good", "made.tar", "outside", "source", "way"}
    assert {path.name for path in tmp_path.rglob("*")} == there


def test_a_second_member_is_not_written_through_a_link(tmp_path: Path) -> None:
    """An archive that someone made: a link at an expected path, then a file of the same name."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with tarfile.open(tmp_path / "made.tar", "w") as tar:
        member = tarfile.TarInfo("file")
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
        tar.addfile(member)
        member = tarfile.TarInfo("file")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(InfrastructureError, match="holds 'file' twice"):
        unpack(tmp_path / "made.tar", folder)
    assert not (tmp_path / "outside").exists()


def test_collected_names_lead_nowhere_else(tmp_path: Path) -> None:
    """A record that someone made names files above the folder; an archive holds them."""
    run, outside = RunId(agent="a", task="t", tier="lite", repeat=1), tmp_path / "outside"
    entry = FileEntry(sha256=hashlib.sha256(b"x").hexdigest(), bytes=1)
    names = [str(outside), f"agents_outputs/{'../' * 40}{str(outside)[1:]}"]
    case = CaseSubmission(case="c", status="valid", completed=True, files={names[1].partition("/")[2]: entry})
    record = SubmissionRecord(
        run=run, track_version=1, cases=[case], extra={names[0]: entry}, completion_rate=1, valid_rate=1
    )
    write_record(tmp_path / "submission.json", record)
    with tarfile.open(tmp_path / OUTPUTS, "w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    with unpack_submission(RunFiles(run, tmp_path, tmp_path, "")) as folder:
        assert not list(folder.rglob("*"))
    assert not outside.exists()


@pytest.mark.parametrize("time", ["nonsense", "1e300"])
def test_an_odd_time_is_said(tmp_path: Path, time: str) -> None:
    (tmp_path / "again").mkdir()
    with tarfile.open(tmp_path / "all.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("file")
        member.pax_headers = {"mtime": time}
        tar.addfile(member)
    with pytest.raises(InfrastructureError, match=r"all\.tar cannot be unpacked"):
        unpack(tmp_path / "all.tar", tmp_path / "again")


@pytest.mark.parametrize("damage", ["gone", "cut", "no archive"])
def test_a_damaged_archive_is_said(tmp_path: Path, damage: str) -> None:
    workspace, archive = tmp_path / "workspace", tmp_path / "all.tar"
    workspace.mkdir()
    (workspace / "file").write_bytes(b"x" * 50_000)
    pack(workspace, archive)
    if damage == "gone":
        archive.unlink()
    else:
        archive.write_bytes(archive.read_bytes()[:20_000] if damage == "cut" else b"x" * 5000)
    (tmp_path / "again").mkdir()
    with pytest.raises(InfrastructureError, match=r"all\.tar (does not exist|cannot be unpacked)"):
        unpack(archive, tmp_path / "again")


def test_parts_are_dropped(tmp_path: Path) -> None:
    """Also a file with holes before and behind what goes; sizes are those in the archive, with headers."""
    workspace, again, archive = tmp_path / "workspace", tmp_path / "again", tmp_path / "all.tar"
    workspace.mkdir()
    again.mkdir()
    make_odd(workspace)
    pack(workspace, archive)
    names = [path for path, _ in list_members(archive)]
    assert 10_000 < sum(size for _, size in list_members(archive)) <= archive.stat().st_size
    drop_members(archive, lambda path: path.startswith("agents_outputs/good"))
    assert [path for path, _ in list_members(archive)] == [path for path in names if "/good" not in path]
    unpack(archive, again)
    assert (again / "middle").stat().st_size == GIGABYTES
    drop_members(archive, lambda _path: True)
    assert list(list_members(archive)) == []
