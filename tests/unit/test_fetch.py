"""Getting raw data: the user's own copy, git, and everything that can be absent or go wrong."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from toys.detection import make_card

from automedbench.base.cards import Source, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import FileEntry
from automedbench.datasets.download import fetch
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.fetch import RECEIPT, describe, fetch_dataset

FILES = {"LICENSE": b"MIT", "BCCD/JPEGImages/a.jpg": b"picture", "BCCD/Annotations/a.xml": b"<annotation/>"}
PATTERNS = ["BCCD/JPEGImages/*.jpg", "BCCD/Annotations/*.xml", "LICENSE"]


def card_of(*sources: Source) -> TaskCard:
    card = make_card()
    return card.model_copy(update={"dataset": card.dataset.model_copy(update={"sources": list(sources)})})


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's copy, with a file that no pattern takes."""
    for name, content in {**FILES, "training/script.py": b"import os"}.items():
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_bytes(content)
    return tmp_path / "own"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return tmp_path / "data/raw/bccd"


@pytest.fixture
def card() -> TaskCard:
    """Its only source would need the network; tests give a path instead."""
    return card_of(Source(kind="git", where="https://example.invalid/x", revision="0" * 40, files=PATTERNS))


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


# --- nothing there --------------------------------------------------------------------------------------------


def test_own_path_does_not_exist(card: TaskCard, raw: Path, tmp_path: Path) -> None:
    """Says which folder, and how to get the data; leaves nothing behind."""
    with pytest.raises(MissingDataError, match="absent is not a folder") as caught:
        fetch_dataset(card, tmp_path / "absent", raw)
    assert f"How to get it: {card.dataset.how_to_get}" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
    assert not raw.exists()


def test_made_up_data_is_no_own_copy(card: TaskCard, own: Path, raw: Path) -> None:
    """A folder that a rehearsal filled, given as the data set."""
    made_up = own.parent / "raw-fixtures"
    fetch_dataset(card, own, made_up, Access(stand_in=True))
    with pytest.raises(InfrastructureError, match="raw-fixtures holds made-up data") as caught:
        fetch_dataset(card, made_up, raw)
    assert len(str(caught.value).splitlines()) <= 3
    assert not raw.exists()


def test_sources_that_need_a_person(raw: Path) -> None:
    """Kinds that no program can fetch are listed, a line each, then the way to get the data."""
    card = card_of(
        Source(kind="box", where="https://a.box.com/v/x", files=["*.png"]), Source(kind="manual", where="a form")
    )
    with pytest.raises(MissingDataError) as caught:
        fetch_dataset(card, None, raw)
    head, box, manual, how = str(caught.value).splitlines()
    assert head == "No raw data for 'bccd': none of its 2 sources worked."
    assert box.startswith("- box https://a.box.com/v/x must be fetched by hand")
    assert manual.startswith("- manual a form must be fetched by hand")
    assert how.startswith(f"How to get it: {card.dataset.how_to_get}")


def test_pattern_without_a_match(card: TaskCard, own: Path, raw: Path) -> None:
    """An incomplete copy is refused as a whole, with all that it lacks."""
    (own / "LICENSE").unlink()
    with pytest.raises(MissingDataError, match="holds nothing that matches 'LICENSE'"):
        fetch_dataset(card, own, raw)
    assert not raw.exists()
    (own / "BCCD/Annotations/a.xml").unlink()
    with pytest.raises(MissingDataError, match=r"matches 'BCCD/Annotations/\*\.xml' or 'LICENSE'\.\nHow to get it"):
        fetch_dataset(card, own, raw)


def test_card_without_a_source(own: Path, raw: Path) -> None:
    """The data are the user's own: taken whole from their folder, or the message names the setting."""
    with pytest.raises(MissingDataError, match=r"names no source\.\nHow to get it: .*datasets: \{bccd: \{path"):
        fetch_dataset(card_of(), None, raw)
    assert set(fetch_dataset(card_of(), own, raw).files) == {*FILES, "training/script.py"}


# --- the user's own copy --------------------------------------------------------------------------------------


def test_copies_what_the_patterns_take(card: TaskCard, own: Path, raw: Path) -> None:
    """Files, receipt with hash and size of each, readable by others; no other file, no temporary folder."""
    receipt = fetch_dataset(card, own, raw)
    assert {name: content for name, content in tree(raw).items() if name in FILES} == FILES
    assert set(tree(raw)) == {*FILES, RECEIPT, fetch.MARKER}
    assert {name: (entry.sha256, entry.bytes) for name, entry in receipt.files.items()} == {
        name: (sha256_bytes(content), len(content)) for name, content in FILES.items()
    }
    assert (receipt.source, receipt.revision, receipt.licence) == (f"path {own}", None, "MIT")
    assert [path.name for path in raw.parent.iterdir()] == ["bccd"]
    assert raw.stat().st_mode & 0o777 == 0o755


def test_without_patterns_everything_but_git_is_taken(own: Path, raw: Path) -> None:
    """A clone's own bookkeeping is not data."""
    (own / ".git").mkdir()
    (own / ".git/config").write_text("[url]")
    receipt = fetch_dataset(card_of(Source(kind="path", where=str(own))), None, raw)
    assert set(receipt.files) == {*FILES, "training/script.py"}


def test_second_fetch_changes_nothing(card: TaskCard, own: Path, raw: Path) -> None:
    """Not a byte and not a time."""
    first = fetch_dataset(card, own, raw)
    before = stamps(raw)
    assert fetch_dataset(card, own, raw) == first
    assert stamps(raw) == before


def test_lost_receipt_is_written_again(card: TaskCard, own: Path, raw: Path) -> None:
    """A workflow engine deletes a rule's output before it runs the rule again; the data is kept."""
    fetch_dataset(card, own, raw)
    (raw / RECEIPT).unlink()
    before = (raw / "LICENSE").stat().st_mtime_ns
    assert set(fetch_dataset(card, own, raw).files) == set(FILES)
    assert (raw / RECEIPT).is_file()
    assert (raw / "LICENSE").stat().st_mtime_ns == before


@pytest.mark.parametrize("receipt_lost", [False, True])
def test_changed_source_replaces_the_whole(card: TaskCard, own: Path, raw: Path, receipt_lost: bool) -> None:
    """No file of the old state stays behind."""
    (own / "BCCD/JPEGImages/old.jpg").write_bytes(b"old")
    fetch_dataset(card, own, raw)
    if receipt_lost:
        (raw / RECEIPT).unlink()
    (own / "BCCD/JPEGImages/old.jpg").unlink()
    (own / "LICENSE").write_bytes(b"changed")
    receipt = fetch_dataset(card, own, raw)
    assert set(tree(raw)) == {*FILES, RECEIPT, fetch.MARKER}
    assert receipt.files["LICENSE"].sha256 == sha256_bytes(b"changed")
    assert [path.name for path in raw.parent.iterdir()] == ["bccd"]


def test_unchanged_files_are_not_read_again(
    card: TaskCard, own: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size and time are enough, unless all is to be checked."""
    receipt = fetch_dataset(card, own, raw)
    read: list[Path] = []
    real = fetch.describe_file

    def noted(path: Path) -> FileEntry:
        read.append(path)
        return real(path)

    monkeypatch.setattr(fetch, "describe_file", noted)
    assert fetch_dataset(card, own, raw) == receipt
    assert read == []
    assert fetch_dataset(card, own, raw, check=True) == receipt
    assert len(read) == len(FILES)


def test_a_full_check_finds_what_kept_its_time(card: TaskCard, own: Path, raw: Path) -> None:
    """A flipped bit on the disk changes neither size nor time."""
    fetch_dataset(card, own, raw)
    before = (raw / "LICENSE").stat()
    (raw / "LICENSE").write_bytes(b"MIX")
    os.utime(raw / "LICENSE", ns=(before.st_atime_ns, before.st_mtime_ns))
    fetch_dataset(card, own, raw)
    assert (raw / "LICENSE").read_bytes() == b"MIX"
    fetch_dataset(card, own, raw, check=True)
    assert (raw / "LICENSE").read_bytes() == b"MIT"


def test_touched_files_are_believed_after_reading(card: TaskCard, own: Path, raw: Path) -> None:
    """A copy of the folder with new times stays; nothing is fetched again."""
    receipt = fetch_dataset(card, own, raw)
    os.utime(raw / "LICENSE")
    inode = (raw / "LICENSE").stat().st_ino
    assert fetch_dataset(card, own, raw) == receipt
    assert (raw / "LICENSE").stat().st_ino == inode


def test_the_same_content_from_elsewhere_keeps_its_receipt(
    card: TaskCard, own: Path, raw: Path, tmp_path: Path
) -> None:
    """Made-up data lie in another folder each time; a receipt with another time would repeat staging and runs."""
    before = fetch_dataset(card, own, raw, Access(stand_in=True))
    inode = (raw / "LICENSE").stat().st_ino
    shutil.copytree(own, tmp_path / "again")
    assert fetch_dataset(card, tmp_path / "again", raw, Access(stand_in=True)) == before
    assert (raw / "LICENSE").stat().st_ino == inode


def test_a_killed_replacement_is_undone(card: TaskCard, own: Path, raw: Path) -> None:
    """Killed between its two renames: what was there before is put back, also into the empty folder that a workflow
    engine makes, and the temporary folder goes.
    """
    fetch_dataset(card, own, raw)
    aside = raw.parent / ".bccd.download"
    aside.mkdir()
    raw.rename(aside / "replaced")
    raw.mkdir()
    with pytest.raises(MissingDataError):
        fetch_dataset(card, None, raw, Access(offline=True))
    assert (raw / "LICENSE").read_bytes() == b"MIT"
    assert [path.name for path in raw.parent.iterdir()] == ["bccd"]


def test_own_copy_stays_the_users(card: TaskCard, own: Path, raw: Path) -> None:
    """No hard links: whoever edits their copy does not edit ours."""
    fetch_dataset(card, own, raw)
    assert (own / "LICENSE").stat().st_ino != (raw / "LICENSE").stat().st_ino


def test_damaged_destination_is_repaired(card: TaskCard, own: Path, raw: Path) -> None:
    """A file changed after the fetch does not pass for the fetched one."""
    fetch_dataset(card, own, raw)
    (raw / "LICENSE").write_bytes(b"edited")
    fetch_dataset(card, own, raw)
    assert (raw / "LICENSE").read_bytes() == b"MIT"


def test_files_of_somebody_else_are_left_alone(card: TaskCard, own: Path, raw: Path) -> None:
    """A folder that this program did not fill is never deleted."""
    raw.mkdir(parents=True)
    (raw / "thesis.txt").write_text("only copy")
    with pytest.raises(InfrastructureError, match="holds other files"):
        fetch_dataset(card, own, raw)
    assert (raw / "thesis.txt").read_text() == "only copy"


def test_empty_destination_is_filled(card: TaskCard, own: Path, raw: Path) -> None:
    """A workflow engine makes folders for outputs beforehand."""
    raw.mkdir(parents=True)
    fetch_dataset(card, own, raw)
    assert (raw / RECEIPT).is_file()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_special_files_are_refused(card: TaskCard, own: Path, raw: Path, kind: str) -> None:
    """Only regular files are copied, and the message says what to do."""
    path = own / "BCCD/JPEGImages/b.jpg"
    path.symlink_to("/etc/hostname") if kind == "link" else os.mkfifo(path)
    with pytest.raises(InfrastructureError, match=r"b\.jpg is a link or a special file"):
        fetch_dataset(card, own, raw)
    assert not raw.exists()


@pytest.mark.parametrize("relation", [".", "..", "BCCD"])
def test_copy_and_destination_must_not_contain_each_other(card: TaskCard, own: Path, relation: str) -> None:
    """Otherwise replacing the destination would delete the copy."""
    with pytest.raises(InfrastructureError, match="contain each other"):
        fetch_dataset(card, own, (own / relation).resolve())
    assert (own / "LICENSE").is_file()


@pytest.mark.parametrize("pattern", ["../*.txt", "/etc/hostname"])
def test_patterns_stay_inside(own: Path, raw: Path, pattern: str) -> None:
    """A card cannot reach outside the folder."""
    with pytest.raises(ConfigError, match="must be relative"):
        fetch_dataset(card_of(Source(kind="path", where=str(own), files=[pattern])), None, raw)


def test_full_disk_keeps_the_old_state(card: TaskCard, own: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that fails half-way leaves what was there, and no temporary folder."""
    fetch_dataset(card, own, raw)
    before = stamps(raw)
    (own / "LICENSE").write_bytes(b"changed")
    real = shutil.copyfile

    def full(source: Path, target: Path, **options: bool) -> object:
        if source.name == "LICENSE":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(source, target, **options)

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(InfrastructureError, match="No space left on device"):
        fetch_dataset(card, own, raw)
    assert stamps(raw) == before
    assert [path.name for path in raw.parent.iterdir()] == ["bccd"]


def test_real_copy(shared: Path, raw: Path) -> None:
    """The BCCD copy: 364 images, 364 annotations, four lists, the licence."""
    receipt = fetch_dataset(make_card(), shared / "data/bccd", raw)
    assert len(receipt.files) == 364 + 364 + 4 + 1


# --- git ------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(own: Path) -> tuple[Path, str]:
    """The user's copy as a git repository with a later commit; returns it and its first commit."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    commit = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "commit", "--quiet", "-m", "state"]
    for arguments in (["init", "--quiet"], ["add", "."], commit):
        subprocess.run(["git", *arguments], cwd=own, check=True)
    first = subprocess.run(["git", "rev-parse", "HEAD"], cwd=own, check=True, capture_output=True, text=True)
    (own / "LICENSE").write_bytes(b"later")
    subprocess.run(["git", "add", "."], cwd=own, check=True)
    subprocess.run(["git", *commit], cwd=own, check=True)
    return own, first.stdout.strip()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_git_revision(repository: tuple[Path, str], raw: Path, scheme: str) -> None:
    """The card's commit, not the newest; a second fetch does not even start git."""
    own, first = repository
    card = card_of(Source(kind="git", where=f"{scheme}{own}", revision=first, files=PATTERNS))
    receipt = fetch_dataset(card, None, raw)
    assert (receipt.source, receipt.revision) == (f"git {scheme}{own}", first)
    assert {name: content for name, content in tree(raw).items() if name in FILES} == FILES
    shutil.rmtree(own)
    assert fetch_dataset(card, None, raw) == receipt


def test_git_without_revision_records_the_commit(repository: tuple[Path, str], raw: Path) -> None:
    """The newest commit, by its number."""
    receipt = fetch_dataset(card_of(Source(kind="git", where=str(repository[0]), files=PATTERNS)), None, raw)
    assert receipt.revision is not None
    assert len(receipt.revision) == 40
    assert receipt.revision != repository[1]
    assert (raw / "LICENSE").read_bytes() == b"later"


def test_git_unknown_commit(repository: tuple[Path, str], raw: Path) -> None:
    """git's reason, then the way to get the data."""
    card = card_of(Source(kind="git", where=str(repository[0]), revision="1" * 40, files=PATTERNS))
    with pytest.raises(MissingDataError, match=r"git (fetch|checkout) failed") as caught:
        fetch_dataset(card, None, raw)
    assert "How to get it" in str(caught.value)
    assert list(raw.parent.iterdir()) == []


def test_git_not_installed(card: TaskCard, raw: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Said as such."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"git is not installed\.\nHow to get it: .*\(card: bccd-det-task\)$"):
        fetch_dataset(card, None, raw)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("https://user:token@host.example/a/b?key=secret#c", "git https://host.example/a/b"),
        ("https://host.example/a/b", "git https://host.example/a/b"),
        ("/home/me/a@b", "git /home/me/a@b"),
    ],
)
def test_receipts_hold_no_credentials(where: str, expected: str) -> None:
    """User, password and query of a URL are left out."""
    assert describe(Source(kind="git", where=where)) == expected


def test_messages_hold_no_credentials(raw: Path) -> None:
    """git repeats the URL in its messages."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    card = card_of(Source(kind="git", where="ftp://me:token@127.0.0.1:1/x", files=PATTERNS))
    with pytest.raises(MissingDataError) as caught:
        fetch_dataset(card, None, raw)
    assert "token" not in str(caught.value)
