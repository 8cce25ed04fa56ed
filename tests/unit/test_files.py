"""Files are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import json
import math
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import make_score

from automedbench.base import files
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.records import Message, ScoreRecord


@pytest.fixture
def small_files() -> Iterator[int]:
    """No file can grow beyond 64 KiB: a write fails in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    try:
        yield 64 * 1024
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- whole or not there ---------------------------------------------------------------------------------------


def test_empty_content(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "deep/er/a", b"")
    assert (tmp_path / "deep/er/a").read_bytes() == b""


def test_replaced_in_one_step(tmp_path: Path) -> None:
    """A reader that opened the old file keeps reading the old file."""
    path = tmp_path / "a"
    files.write_text(path, "old")
    with open(path) as reader:
        files.write_text(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert names_in(tmp_path) == ["a"]


def test_failure_in_the_block_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError, match="stop"), files.atomic_path(path) as temporary:
        temporary.write_text("half of")
        raise RuntimeError("stop")
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a"]


def test_full_disk_keeps_the_old_file(tmp_path: Path, small_files: int) -> None:
    """The message says what failed, why, and what to do, in at most three lines."""
    path = tmp_path / "a"
    files.write_text(path, "old")
    with pytest.raises(InfrastructureError, match=r"Cannot write .*/a: File too large\.") as caught:
        files.write_bytes(path, b"x" * (small_files + 1))
    assert len(str(caught.value).splitlines()) <= 3
    assert "run the same command again" in str(caught.value)
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_no_space_left(tmp_path: Path) -> None:
    """The kernel's real ENOSPC, from the device that is always full."""
    with (
        pytest.raises(InfrastructureError, match="No space left on device"),
        files.atomic_path(tmp_path / "a") as temporary,
    ):
        temporary.unlink()
        temporary.symlink_to("/dev/full")
        temporary.write_bytes(b"x" * 100_000)
    assert names_in(tmp_path) == []


def test_killed_while_writing(tmp_path: Path) -> None:
    """``kill -9`` in the middle leaves the old file and a hidden temporary one, which no reader takes for it."""
    code = (
        "import os, signal, sys, pathlib\n"
        "from automedbench.base.files import atomic_path\n"
        "with atomic_path(pathlib.Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "a.json"
    files.write_text(path, "old")
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -9
    assert path.read_text() == "old"
    assert all(name == "a.json" or (name.startswith(".") and name.endswith(".tmp")) for name in names_in(tmp_path))
    assert len(names_in(tmp_path)) == 2
    files.remove_temporaries(tmp_path)
    assert names_in(tmp_path) == ["a.json"]


def test_only_our_temporary_files_are_removed(tmp_path: Path) -> None:
    """Below the folder as well; nothing behind a link, no folder, and no name that only looks alike."""
    kept = ["a.json", ".a.json.tmp", "a.json.abcdefgh.tmp", ".a.json.ABCDEFGH.tmp", ".a.json.abcdefg.tmp", "page.tmp"]
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    for place in (outside, folder, folder / "below"):
        place.mkdir()
        for name in [*kept, ".a.json.abc_def9.tmp"]:
            (place / name).touch()
    (folder / ".b.abcdefgh.tmp").mkdir()
    (folder / "link").symlink_to(outside)
    files.remove_temporaries(folder)
    assert names_in(folder) == sorted([*kept, ".b.abcdefgh.tmp", "below", "link"])
    assert names_in(folder / "below") == sorted(kept)
    assert len(names_in(outside)) == len(kept) + 1


def test_no_folder_has_no_temporary_files(tmp_path: Path) -> None:
    files.remove_temporaries(tmp_path / "nowhere")
    assert names_in(tmp_path) == []


def test_parent_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match="Cannot write"):
        files.write_text(tmp_path / "file/a", "x")


def test_who_else_may_read_is_no_matter_of_the_callers_umask(tmp_path: Path) -> None:
    """A temporary file's 0600 would lock a group out; the caller's umask may let every user in."""
    for share, folder, file in (("private", 0o700, 0o600), ("group", 0o750, 0o640), ("all", 0o755, 0o644)):
        place, before = tmp_path / share, os.umask(0)
        try:
            files.set_sharing(share)
            files.write_text(place / "a", "x")
        finally:
            os.umask(before)
        assert [stat.S_IMODE(path.stat().st_mode) for path in (place, place / "a")] == [folder, file], share
        place.chmod(0o777)
        files.close_folder(place, share)
        assert stat.S_IMODE(place.stat().st_mode) == folder, share
    files.close_folder(tmp_path / "absent", "private")


# --- text and JSON --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", b"", id="empty"),
        pytest.param("é\n", b"\xc3\xa9\n", id="utf-8"),
        # A lone surrogate has no UTF-8 form; its escape is six plain characters.
        pytest.param("a\ud800b", b"a\\ud800b", id="lone surrogate"),
        pytest.param("\x00\x1b[31m", b"\x00\x1b[31m", id="control characters"),
    ],
)
def test_whatever_an_agent_prints_can_be_written(tmp_path: Path, text: str, expected: bytes) -> None:
    files.write_text(tmp_path / "a", text)
    assert (tmp_path / "a").read_bytes() == expected


def test_json_of_a_lone_surrogate_can_be_read_again(tmp_path: Path) -> None:
    """Python's own escape of it would be refused by strict readers, among them pydantic's."""
    message = Message(turn=1, role="user", content="a\ud800b")
    files.write_record(tmp_path / "a.json", message)
    assert files.read_record(tmp_path / "a.json", Message).content == "a\ufffdb"


def test_json_form() -> None:
    """docs/specification.md, 3: UTF-8, sorted keys; written down by hand."""
    assert files.to_json({"b": [1, 2.5, None], "a": "é"}) == (
        '{\n  "a": "é",\n  "b": [\n    1,\n    2.5,\n    null\n  ]\n}\n'
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_has_no_nan(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"score": value})
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_records_have_no_nan(value: float) -> None:
    """The model refuses it before it could be written."""
    data = make_score().model_dump()
    with pytest.raises(ValueError, match="finite number"):
        ScoreRecord.model_validate({**data, "quality": value})


# --- records --------------------------------------------------------------------------------------------------


def test_record_there_and_back(tmp_path: Path) -> None:
    record = make_score()
    files.write_record(tmp_path / "score.json", record)
    assert files.read_record(tmp_path / "score.json", ScoreRecord) == record
    assert json.loads((tmp_path / "score.json").read_text())["schema"] == "automedbench/score/2"


def test_missing_record(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="run the rule that writes it first"):
        files.read_record(tmp_path / "score.json", ScoreRecord)


def test_record_of_another_format(tmp_path: Path) -> None:
    """One sentence: what it is, what is read here, and what to do."""
    record = make_score().model_dump(mode="json", by_alias=True) | {"schema": "automedbench/score/1"}
    files.write_json(tmp_path / "score.json", record)
    with pytest.raises(InfrastructureError) as caught:
        files.read_record(tmp_path / "score.json", ScoreRecord)
    assert str(caught.value) == (
        f"{tmp_path}/score.json: has the format automedbench/score/1, not 'automedbench/score/2'; read it with the "
        "version of automedbench that wrote it, or run its campaign again in a new results folder."
    )


def _without_run(data: dict[str, Any]) -> bytes:
    return json.dumps({key: value for key, value in data.items() if key != "run"}).encode()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: json.dumps(data).encode()[:100], id="cut off"),
        pytest.param(lambda data: b"\xff" + json.dumps(data).encode(), id="not utf-8"),
        pytest.param(_without_run, id="key missing"),
        pytest.param(lambda data: json.dumps(data | {"more": 1}).encode(), id="unknown key"),
        pytest.param(lambda data: json.dumps(data | {"quality": 1.5}).encode(), id="score above 1"),
        pytest.param(lambda data: json.dumps(data | {"quality": "x" * 9999}).encode(), id="long nonsense"),
    ],
)
def test_damaged_record(tmp_path: Path, content: Any) -> None:
    """Says which file and what to do, in at most three lines of bearable length."""
    path = tmp_path / "score.json"
    path.write_bytes(content(make_score().model_dump(mode="json", by_alias=True)))
    with pytest.raises(InfrastructureError, match=r"score\.json: .*\n.*run its rule again") as caught:
        files.read_record(path, ScoreRecord)
    lines = str(caught.value).splitlines()
    assert len(lines) <= 3
    assert max(map(len, lines)) < 400


def test_record_path_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"cannot be read: Is a directory"):
        files.read_record(tmp_path, ScoreRecord)


# --- digests --------------------------------------------------------------------------------------------------


def test_digests(tmp_path: Path) -> None:
    """SHA-256 of nothing and of 'abc': FIPS 180-2, appendix B."""
    (tmp_path / "abc").write_bytes(b"abc")
    assert files.sha256_bytes(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert files.sha256_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_digest_of_values_ignores_the_order_of_keys() -> None:
    assert files.hash_json({"a": 1, "b": [1, 2]}) == files.hash_json({"b": [1, 2], "a": 1})
    assert files.hash_json({"a": [1, 2]}) != files.hash_json({"a": [2, 1]})
    assert len(files.hash_json(None)) == 16


def test_digest_of_text_that_has_no_utf8() -> None:
    """A lone surrogate in a configuration must not break an identity."""
    assert len(files.hash_json("\ud800")) == 16


def test_synced_at_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the block nothing below the folder is synced, at its end each file once; elsewhere as ever."""
    synced: list[str] = []

    def note(handle: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))

    monkeypatch.setattr(os, "fsync", note)
    folder = tmp_path / "staged"
    with files.synced_at_end(folder):
        files.write_bytes(folder / "a/1.txt", b"1")
        files.write_bytes(folder / "2.txt", b"2")
        assert synced == []
        files.write_bytes(tmp_path / "other.txt", b"3")
        assert len(synced) == 1
    assert sorted(synced[1:]) == ["1.txt", "2.txt"]
    files.write_bytes(folder / "2.txt", b"4")
    assert len(synced) == 4


def test_a_failed_block_is_not_synced(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), files.synced_at_end(tmp_path):
        raise ValueError("broken")
    with pytest.raises(InfrastructureError, match="No space left"), files.synced_at_end(tmp_path):
        raise OSError(28, "No space left on device")
