"""The stand-in for the hosts: plain files, the hub's interface and git, as their clients see them."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from automedbench_rehearsal import upstreams as fixtures
from automedbench_rehearsal.upstreams import Upstream
from automedbench_rehearsal.upstreams.server import Mirrors, serve, stand_in

DATA = bytes(range(100))
COMMIT = "0123456789abcdef0123456789abcdef01234567"
UPSTREAM = Upstream(
    files={"https://zenodo.org/records/1/files/a b.zip?download=1&x=y": DATA, "https://www.host.org/empty.txt": b""},
    hubs={"owner/set": {"data/test-0.parquet": b"rows", "README.md": b"text", "a folder/é.txt": b"accent"}},
    repositories={"https://github.com/owner/repo.git": {"data/a file.txt": b"one\n", "README": b"two"}},
)


@pytest.fixture(scope="module")
def mirrors() -> Iterator[Mirrors]:
    with serve(UPSTREAM) as served:
        yield served


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body, redirects and errors as they come."""
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_every_host_has_a_place_on_this_machine(mirrors: Mirrors) -> None:
    assert mirrors["zenodo.org"].startswith("http://127.0.0.1:")
    assert mirrors["a.host.that.nobody.named"].endswith("/a.host.that.nobody.named")
    assert list(mirrors) == ["github.com", "huggingface.co", "www.host.org", "zenodo.org"]
    assert len(mirrors) == 4


def test_a_file_whole_and_without_its_body(mirrors: Mirrors) -> None:
    url = mirrors["zenodo.org"] + "/records/1/files/a%20b.zip?x=y&download=1"
    status, headers, body = ask(url)
    assert (status, body, headers["Content-Length"], headers["Accept-Ranges"]) == (200, DATA, "100", "bytes")
    status, head, body = ask(url, "HEAD")
    assert (status, body, head["Content-Length"], head["ETag"]) == (200, b"", "100", headers["ETag"])
    assert ask(mirrors["www.host.org"] + "/empty.txt")[::2] == (200, b"")


@pytest.mark.parametrize(
    ("asked", "status", "body", "said"),
    [
        ("bytes=0-9", 206, DATA[:10], "bytes 0-9/100"),
        ("bytes=90-", 206, DATA[90:], "bytes 90-99/100"),
        ("bytes=90-500", 206, DATA[90:], "bytes 90-99/100"),
        ("bytes=-7", 206, DATA[93:], "bytes 93-99/100"),
        ("bytes=100-", 416, b"", "bytes */100"),
        ("bytes=1-2,4-5", 200, DATA, None),
    ],
)
def test_a_piece_of_a_file(mirrors: Mirrors, asked: str, status: int, body: bytes, said: str | None) -> None:
    found, headers, data = ask(
        mirrors["zenodo.org"] + "/records/1/files/a b.zip?download=1&x=y".replace(" ", "%20"), Range=asked
    )
    assert (found, data, headers.get("Content-Range")) == (status, body, said)


def test_a_piece_of_a_file_that_changed_is_the_whole_new_file(mirrors: Mirrors) -> None:
    url = mirrors["zenodo.org"] + "/records/1/files/a%20b.zip?download=1&x=y"
    assert ask(url, Range="bytes=50-", **{"If-Range": '"another"'})[::2] == (200, DATA)
    assert ask(url, Range="bytes=50-", **{"If-Range": ask(url)[1]["ETag"]})[::2] == (206, DATA[50:])


@pytest.mark.parametrize(
    "path", ["zenodo.org/records/1/files/a%20b.zip", "zenodo.org/records/2", "github.com/owner/other/info/refs", ""]
)
def test_what_is_not_offered_is_named(mirrors: Mirrors, path: str) -> None:
    status, _, body = ask(f"{mirrors.base}/{path}")
    assert status == 404
    assert b"The fixture does not offer https://" + path.rstrip("/").encode() in body
    assert mirrors.requests[-1].startswith("GET https://")


# --- hub ------------------------------------------------------------------------------------------------------


def test_the_hub_names_a_commit(mirrors: Mirrors) -> None:
    """A pinned one is itself; a branch has one of the fixture's own."""
    base = mirrors["huggingface.co"] + "/api/datasets/owner/set"
    pinned = json.loads(ask(f"{base}/revision/{COMMIT}")[2])
    assert pinned["sha"] == COMMIT
    assert [each["rfilename"] for each in pinned["siblings"]] == ["README.md", "a folder/é.txt", "data/test-0.parquet"]
    branch = json.loads(ask(base)[2])["sha"]
    assert len(branch) == 40 != COMMIT
    assert branch == json.loads(ask(f"{base}/revision/main")[2])["sha"]
    status, headers, data = ask(f"{mirrors['huggingface.co']}/datasets/owner/set/resolve/main/a%20folder/%C3%A9.txt")
    assert (status, headers["X-Repo-Commit"], data) == (200, branch, b"accent")


def test_the_hub_says_what_it_does_not_have(mirrors: Mirrors) -> None:
    hub = mirrors["huggingface.co"]
    status, headers, _ = ask(f"{hub}/datasets/owner/set/resolve/main/absent.txt", "HEAD")
    assert (status, headers["X-Error-Code"]) == (404, "EntryNotFound")
    status, headers, _ = ask(f"{hub}/api/datasets/owner/other")
    assert (status, headers["X-Error-Code"]) == (404, "RepoNotFound")


# --- git ------------------------------------------------------------------------------------------------------


def clone(url: str, folder: Path) -> str:
    """A shallow copy, as it is made of a real host; its commit."""
    git = ["git", "-C", str(folder)]
    folder.mkdir()
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "fetch", "-q", "--depth", "1", "--", url, "HEAD"], check=True)
    subprocess.run([*git, "checkout", "-q", "FETCH_HEAD"], check=True, capture_output=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("suffix", ["", ".git"])
def test_a_repository_is_cloned_and_always_the_same(mirrors: Mirrors, tmp_path: Path, suffix: str) -> None:
    commit = clone(f"{mirrors['github.com']}/owner/repo{suffix}", tmp_path / "one")
    assert (tmp_path / "one/data/a file.txt").read_bytes() == b"one\n"
    assert (tmp_path / "one/README").read_bytes() == b"two"
    with serve(UPSTREAM) as again:
        assert clone(f"{again['github.com']}/owner/repo{suffix}", tmp_path / "two") == commit


# --- a person's folder ----------------------------------------------------------------------------------------


def test_data_got_by_hand_is_a_folder_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixtures, "_makers", lambda: {"by_hand_set": lambda: Upstream(by_hand={"val/a.h5": b"x"})})
    with stand_in("by-hand-set") as (_, own):
        assert own is not None
        assert (own / "val/a.h5").read_bytes() == b"x"
    assert not own.exists()
