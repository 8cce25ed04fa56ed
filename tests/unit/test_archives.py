"""Archives: what comes out, what is passed over, what is refused."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import sha256_bytes
from automedbench.datasets.download import archives
from automedbench.datasets.download.archives import archive_kind, is_archive_name, safe_path, unpack
from automedbench.datasets.patterns import is_pattern, path_matcher
from automedbench_rehearsal.making.files import gzipped, tarred, zipped

FILES = {"a/one.txt": b"1", "a/b/two.txt": b"22", "three.txt": b""}
JUNK = {"__MACOSX/a/._one.txt": b"x", "a/._one.txt": b"x", "a/.DS_Store": b"x", "Thumbs.db": b"x"}


def written(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def put(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        (tmp_path / "archive").write_bytes(data)
        return tmp_path / "archive"

    return write


@pytest.mark.parametrize("make", [zipped, tarred, lambda files: tarred(files, gz=True)], ids=["zip", "tar", "tar.gz"])
def test_content(tmp_path: Path, put: Callable[[bytes], Path], make: Callable[[dict[str, bytes]], bytes]) -> None:
    """Files below the place, with their hashes; what file managers leave is passed over."""
    found = unpack(put(make({**FILES, **JUNK})), tmp_path / "out", "in/here", "")
    assert written(tmp_path / "out") == {f"in/here/{name}": data for name, data in FILES.items()}
    assert {name: (entry.sha256, entry.bytes) for name, entry in found.items()} == {
        f"in/here/{name}": (sha256_bytes(data), len(data)) for name, data in FILES.items()
    }


def test_single_file(tmp_path: Path, put: Callable[[bytes], Path]) -> None:
    found = unpack(put(gzipped(b"inner")), tmp_path / "out", "", "labels/x.h5")
    assert written(tmp_path / "out") == {"labels/x.h5": b"inner"}
    assert set(found) == {"labels/x.h5"}


def test_kinds_by_content(put: Callable[[bytes], Path]) -> None:
    """A Box link ends in .gz also where it is a compressed tar."""
    assert archive_kind(put(zipped(FILES))) == "zip"
    assert archive_kind(put(zipped({}))) == "zip"
    assert archive_kind(put(tarred(FILES))) == "tar"
    assert archive_kind(put(tarred(FILES, gz=True))) == "tar.gz"
    assert archive_kind(put(gzipped(b"x"))) == "gz"
    assert archive_kind(put(b"<html>")) is None


def test_names_of_archives() -> None:
    names = ["a.zip", "a.tar", "A.TGZ", "a.tar.gz", "a.h5.gz", "a.nii.gz", "a.parquet", "zip"]
    assert [is_archive_name(name) for name in names] == [True] * 5 + [False] * 3


def test_only_what_is_wanted(tmp_path: Path, put: Callable[[bytes], Path]) -> None:
    """The rest is not even written."""
    unpack(put(zipped(FILES)), tmp_path / "out", "", "", wanted=path_matcher(["a/*.txt"]))
    assert written(tmp_path / "out") == {"a/one.txt": b"1"}


def test_windows_names(tmp_path: Path, put: Callable[[bytes], Path]) -> None:
    unpack(put(zipped({"a\\b.txt": b"x"})), tmp_path / "out", "", "")
    assert written(tmp_path / "out") == {"a/b.txt": b"x"}


@pytest.mark.parametrize("name", ["../out", "a/../../b", "/etc/x", "C:\\x", "\\\\host\\x", "a/..", "x" * 300])
@pytest.mark.parametrize("make", [zipped, tarred], ids=["zip", "tar"])
def test_names_that_lead_outside(
    tmp_path: Path, put: Callable[[bytes], Path], make: Callable[[dict[str, bytes]], bytes], name: str
) -> None:
    """The whole archive is refused, in three lines, and nothing lies outside."""
    with pytest.raises(InfrastructureError, match="leads outside") as caught:
        unpack(put(make({name: b"x"})), tmp_path / "in/out", "", "", name="the.zip")
    assert str(caught.value).startswith("the.zip: ")
    assert len(str(caught.value).splitlines()) <= 3
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def special(kind: bytes, link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("a/x")
        entry.type, entry.linkname = kind, link
        tar.addfile(entry)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar(tmp_path: Path, put: Callable[[bytes], Path], kind: bytes) -> None:
    with pytest.raises(InfrastructureError, match="'a/x' is a link or a special file"):
        unpack(put(special(kind, "/etc/passwd")), tmp_path / "out", "", "")


def test_link_in_zip(tmp_path: Path, put: Callable[[bytes], Path]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo("x")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(InfrastructureError, match="'x' is a link"):
        unpack(put(buffer.getvalue()), tmp_path / "out", "", "")


def test_encrypted_zip(tmp_path: Path, put: Callable[[bytes], Path]) -> None:
    """Bit 0 of the flags (APPNOTE 4.4.4), in the local and the central header."""
    data = bytearray(zipped({"x": b"x"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(InfrastructureError, match="'x' is encrypted"):
        unpack(put(bytes(data)), tmp_path / "out", "", "")


@pytest.mark.parametrize(
    "data",
    [zipped({"x": bytes(10_000)}), tarred({"x": bytes(10_000)}, gz=True), gzip.compress(bytes(10_000))],
    ids=["zip", "tar.gz", "gz"],
)
def test_bombs(tmp_path: Path, put: Callable[[bytes], Path], data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on what comes out, not on what the archive says."""
    monkeypatch.setattr(archives, "ALWAYS", 5000)
    monkeypatch.setattr(archives, "MOST_RATIO", 1)
    with pytest.raises(InfrastructureError, match="unpacks to more than 5000 bytes"):
        unpack(put(data), tmp_path / "out", "", "x")


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_many_small_files_are_one_bomb(
    tmp_path: Path, put: Callable[[bytes], Path], pack: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three has 2 000 of 5 000 bytes."""
    monkeypatch.setattr(archives, "ALWAYS", 5000)
    monkeypatch.setattr(archives, "MOST_RATIO", 0)
    with pytest.raises(InfrastructureError, match="unpacks to more than 5000 bytes"):
        unpack(put(pack({name: bytes(2000) for name in "xyz"})), tmp_path / "out", "", "")


def test_too_many_members(tmp_path: Path, put: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 10)
    many = {f"{n}": b"" for n in range(11)}
    for data in (zipped(many), tarred(many)):
        with pytest.raises(InfrastructureError, match="more than 10"):
            unpack(put(data), tmp_path / "out", "", "")


def test_ratio_grows_with_the_archive(
    tmp_path: Path, put: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "ALWAYS", 10)
    monkeypatch.setattr(archives, "MOST_RATIO", 3)
    data = zipped({"x": bytes(1000)})
    with pytest.raises(InfrastructureError, match=f"unpacks to more than {3 * len(data)} bytes"):
        unpack(put(data), tmp_path / "out", "", "")
    monkeypatch.setattr(archives, "ALWAYS", 1000)
    assert unpack(put(data), tmp_path / "all", "", "")["x"].bytes == 1000


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "an empty file"),
        (b"<!DOCTYPE html><p>Please log in", "a web page"),
        (b'{"message": "no"}', "a message of the host"),
        (b"\x89PNG....", "something else"),
    ],
)
def test_wrong_file(tmp_path: Path, put: Callable[[bytes], Path], data: bytes, found: str) -> None:
    with pytest.raises(InfrastructureError, match=f"expected a zip, tar or gz archive, found {found}"):
        unpack(put(data), tmp_path / "out", "", "")


@pytest.mark.parametrize(
    "data",
    [
        zipped({"x": bytes(range(256)) * 100}, compress=False)[:-40],
        tarred({"x": bytes(range(256)) * 100})[:20_000],
        tarred({"x": bytes(range(256)) * 100}, gz=True)[:300],
        gzipped(bytes(range(256)) * 100)[:-20],
    ],
    ids=["zip", "tar", "tar.gz", "gz"],
)
def test_half_an_archive(tmp_path: Path, put: Callable[[bytes], Path], data: bytes) -> None:
    with pytest.raises(InfrastructureError, match="found a damaged one"):
        unpack(put(data), tmp_path / "out", "", "x")


def test_damaged_member(tmp_path: Path, put: Callable[[bytes], Path]) -> None:
    """The CRC of a zip member is checked."""
    data = zipped({"x": b"content of the file"}, compress=False).replace(b"content", b"CONTENT")
    with pytest.raises(InfrastructureError, match="damaged"):
        unpack(put(data), tmp_path / "out", "", "")


def test_room_is_asked_for(tmp_path: Path, put: Callable[[bytes], Path]) -> None:
    """What a zip will write is known before it is written; only wanted members count."""
    told: list[int] = []
    unpack(put(zipped(FILES)), tmp_path / "out", "", "", wanted=path_matcher(["a/**"]), room=told.append)
    assert told == [3]


@pytest.mark.parametrize(("name", "path"), [("./a//b", "a/b"), ("a", "a"), ("", None), (".", None), ("..", None)])
def test_safe_paths(name: str, path: str | None) -> None:
    assert safe_path(name) == path


# --- patterns -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["*.txt", "a/*", "**/*", "**/*.txt", "a/**/*.txt", "?/*.txt", "[ab]/*", "[!a]/x", "a/b/two.txt", "*/*"]
)
def test_patterns_are_those_of_glob(tmp_path: Path, pattern: str) -> None:
    """Path.glob is the reference."""
    names = ["x.txt", "a/one.txt", "a/b/two.txt", "a/b/c/d.txt", "b/x", "a/.hidden", "aa/x.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    expected = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob(pattern) if path.is_file()}
    assert set(filter(path_matcher([pattern]), names)) == expected


def test_takers() -> None:
    assert path_matcher([])("anything/at.all")
    assert not path_matcher(["a", "b/*"])("c")
    assert (is_pattern("a*"), is_pattern("a[1]"), is_pattern("a b.zip")) == (True, True, False)
