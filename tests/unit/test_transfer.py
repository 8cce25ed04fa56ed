"""One file over HTTP, from servers that cut, forget, redirect, refuse and change it."""

from __future__ import annotations

import base64
import errno
import os
import threading
import time
from pathlib import Path

import pytest
from upstreams import FileHost, WebServer

from automedbench.base.cards import Source
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import sha256_bytes
from automedbench.datasets.download import transfer
from automedbench.datasets.download.access import Access, mask_url, read_mirrors
from automedbench.datasets.download.transfer import (
    TRIES,
    DownloadProgress,
    Request,
    SourceUnreachable,
    Stopped,
    digests,
    download,
)

DATA = bytes(range(256)) * 8192  # 2 MiB
FAST = DownloadProgress(patience_s=0.001)


def get(host: FileHost, target: Path, **more: object) -> tuple[WebServer, bool]:
    """Download /f from the host; returns the server, with what it was asked, and whether parts were there."""
    with WebServer(host.answer) as server:
        continued = download(Request(f"{server.url}/f", "the file", **more), target, DownloadProgress(patience_s=0.001))  # type: ignore[arg-type]
    return server, continued


def ranges(server: WebServer) -> list[str]:
    return [seen.headers.get("range", "") for seen in server.seen]


def test_whole_file(tmp_path: Path) -> None:
    """One request, nothing beside the file afterwards."""
    server, continued = get(FileHost({"/f": DATA}), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA
    assert (ranges(server), continued) == ([""], False)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_cut_connection_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Range from the bytes that are there, tied to the version by If-Range."""
    server, _ = get(FileHost({"/f": DATA}, {"/f": ["cut 1048576", "cut 524288"]}), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA
    assert ranges(server) == ["", "bytes=1048576-", "bytes=1572864-"]
    assert server.seen[1].headers["if-range"] == f'"{sha256_bytes(DATA)}"'


def test_half_a_download_of_an_earlier_process(tmp_path: Path) -> None:
    """What a killed process left is used by the next one."""
    host = FileHost({"/f": DATA}, {"/f": ["cut 1048576", *["404"]]})
    with pytest.raises(MissingDataError):
        get(host, tmp_path / "f")
    assert (tmp_path / "f.part").stat().st_size == 1048576
    server, continued = get(host, tmp_path / "f")
    assert (ranges(server), continued) == (["bytes=1048576-"], True)
    assert (tmp_path / "f").read_bytes() == DATA


def test_range_ignored(tmp_path: Path) -> None:
    """200 instead of 206: the file begins anew and is not appended to."""
    server, _ = get(FileHost({"/f": DATA}, {"/f": ["cut 1048576", "whole"]}), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA
    assert len(server.seen) == 2


def test_changed_in_between(tmp_path: Path) -> None:
    """The two halves are never of two versions."""
    server, _ = get(FileHost({"/f": DATA}, {"/f": ["cut 1048576", "other x"]}), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"x" * len(DATA)
    assert len(server.seen) == 2


def test_changed_without_validators(tmp_path: Path) -> None:
    """Without ETag and date nothing tells that the rest belongs to it: it starts over."""
    host = FileHost({"/f": DATA}, {"/f": ["cut 1048576", "other " + "x" * 3]}, tagged=False)
    get(host, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == host.files["/f"]


def test_changed_behind_a_weak_tag(tmp_path: Path) -> None:
    """A weak ETag may stand for several contents (RFC 9110, 8.8.1): nothing is continued by it."""
    script = {"/f": ["cut 1048576", "other " + "x" * 3]}
    host = FileHost({"/f": DATA}, script, tagged=False, more={"ETag": 'W/"1"'})
    get(host, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == host.files["/f"]


@pytest.mark.parametrize("step", ["429 0", "500", "503 0", "cut 0"])
def test_passing_failures_are_tried_again(tmp_path: Path, step: str) -> None:
    server, _ = get(FileHost({"/f": DATA}, {"/f": [step, step]}), tmp_path / "f")
    assert len(server.seen) == 3
    assert (tmp_path / "f").read_bytes() == DATA


def test_retry_after_is_waited_for(tmp_path: Path) -> None:
    begun = time.monotonic()
    get(FileHost({"/f": DATA}, {"/f": ["429 1"]}), tmp_path / "f")
    assert time.monotonic() - begun >= 1


def test_failures_that_do_not_pass(tmp_path: Path) -> None:
    """A limit of attempts, and the status in the message."""
    host = FileHost({"/f": DATA}, {"/f": ["503"] * 20})
    with pytest.raises(SourceUnreachable, match=rf"the file: HTTP 503 .*{TRIES} times in a row"):
        get(host, tmp_path / "f")
    assert len(host.script["/f"]) == 20 - TRIES


@pytest.mark.parametrize(
    ("status", "more", "text", "all_alike"),
    [
        ("401", {"authorization": "Bearer x"}, r"\(the credentials are wrong\)", True),
        ("403", {"authorization": "Bearer x"}, "are the terms accepted with that account", True),
        ("401", {}, "the host wants a login, and the card knows of none", True),
        ("403", {}, "the host refuses: a blocked network", True),
        ("403", {"mirrored": True}, "the mirror refuses; look at fetch.mirrors", True),
        ("404", {}, "not found", False),
        ("410", {}, "withdrawn", False),
    ],
)
def test_refusals_are_final(tmp_path: Path, status: str, more: dict[str, object], text: str, all_alike: bool) -> None:
    """One request; expected and found in one line; of an account only where one was told."""
    host = FileHost({"/f": DATA}, {"/f": [status] * 3})
    with pytest.raises(MissingDataError, match=rf"the file: expected the file, found HTTP {status} .*{text}") as caught:
        get(host, tmp_path / "f", **more)
    assert "account" not in str(caught.value) or "authorization" in more
    assert isinstance(caught.value, SourceUnreachable) == all_alike
    assert len(host.script["/f"]) == 2


def test_nobody_listens(tmp_path: Path) -> None:
    with WebServer(FileHost({}).answer) as server:
        pass
    with pytest.raises(SourceUnreachable, match="the connection was refused"):
        download(Request(f"{server.url}/f", "the file"), tmp_path / "f", FAST)


def test_published_size_differs(tmp_path: Path) -> None:
    """Told before anything is downloaded."""
    with pytest.raises(InfrastructureError, match=r"expected 5 bytes as the card says, found 2097152"):
        get(FileHost({"/f": DATA}), tmp_path / "f", size=5)


def test_compressed_by_the_server(tmp_path: Path) -> None:
    """A .gz that the server declares as encoding is the file itself."""
    host = FileHost({"/f": b"\x1f\x8b" + DATA}, more={"Content-Encoding": "gzip"})
    with WebServer(host.answer) as server:
        download(Request(f"{server.url}/f", "x.csv.gz"), tmp_path / "f", FAST)
    assert (tmp_path / "f").read_bytes() == b"\x1f\x8b" + DATA


def test_disk_is_looked_at_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needed against free, and nothing is written."""
    monkeypatch.setattr(transfer, "free_bytes", lambda folder: transfer.KEPT_FREE + 10**6)
    with pytest.raises(InfrastructureError, match=r"needs about 2\.1 MB, 0\.1 GB are free") as caught:
        get(FileHost({"/f": DATA}), tmp_path / "f")
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("number", "text"), [(errno.ENOSPC, "Not enough space in"), (errno.EIO, "Cannot write below .*Input/output error")]
)
def test_disk_that_fails_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, text: str) -> None:
    """What arrived before is kept."""
    real = transfer._Sink.write

    def write(sink: transfer._Sink, block: bytes) -> int:
        if sink.size > 10**6:
            raise OSError(number, os.strerror(number))
        return real(sink, block)

    with monkeypatch.context() as patch, pytest.raises(InfrastructureError, match=text) as caught:
        patch.setattr(transfer._Sink, "write", write)
        get(FileHost({"/f": DATA}), tmp_path / "f")
    assert len(str(caught.value).splitlines()) <= 3
    _, continued = get(FileHost({"/f": DATA}), tmp_path / "f")
    assert continued
    assert (tmp_path / "f").read_bytes() == DATA


def test_authorization_goes_to_its_host_alone(tmp_path: Path) -> None:
    """A redirect to another host does not take it along; .netrc is not asked."""
    store = FileHost({"/blob": DATA})
    with WebServer(store.answer) as there:
        host = FileHost({}, {"/f": [f"to {there.url}/blob?signature=secret"]})
        with WebServer(host.answer) as server:
            download(Request(f"{server.url}/f", "the file", "Bearer secret"), tmp_path / "f", FAST)
    assert server.seen[0].headers["authorization"] == "Bearer secret"
    assert "authorization" not in there.seen[0].headers
    assert (tmp_path / "f").read_bytes() == DATA


def test_nothing_secret_is_noted(tmp_path: Path) -> None:
    """Neither the query nor the header stands in what lies beside a part."""
    host = FileHost({"/f": DATA}, {"/f": ["cut 1000", "403"]})
    with WebServer(host.answer) as server, pytest.raises(MissingDataError) as caught:
        download(Request(f"{server.url}/f?token=secret", "the file", "Bearer secret"), tmp_path / "f", FAST)
    texts = [str(caught.value), *((path.read_bytes().decode("latin-1")) for path in tmp_path.iterdir())]
    assert not any("secret" in text for text in texts)
    assert {path.name for path in tmp_path.iterdir()} == {"f.part", "f.part.version"}


def test_stopping(tmp_path: Path) -> None:
    """Who asks to stop waits for no body; what is there stays."""
    watch = DownloadProgress()
    with WebServer(FileHost({"/f": DATA * 4}, {"/f": ["slow"]}).answer) as server:
        threading.Timer(0.3, watch.stop.set).start()
        with pytest.raises(Stopped):
            download(Request(f"{server.url}/f", "the file"), tmp_path / "f", watch)
    assert 0 < (tmp_path / "f.part").stat().st_size < len(DATA) * 4


def test_digests(tmp_path: Path) -> None:
    """Of "abc": FIPS 180-2 appendix B.1 and RFC 1321 appendix A.5."""
    (tmp_path / "f").write_bytes(b"abc")
    assert digests(tmp_path / "f", "md5", "sha256") == {
        "md5": "900150983cd24fb0d6963f7d28e17f72",
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    }


# --- hosts ----------------------------------------------------------------------------------------------------


def source(*names: str, where: str = "x") -> Source:
    return Source(kind="url", where=where, credentials=list(names))


def test_credentials_by_host() -> None:
    """A login is Basic, a token Bearer (RFC 7617, RFC 6750); each only for its own host."""
    access = Access(environment={"KAGGLE_USERNAME": "me", "KAGGLE_KEY": "k", "ZENODO_TOKEN": "t", "MINE": "m"})
    login = source("KAGGLE_USERNAME", "KAGGLE_KEY")
    assert access.authorization(login, "www.kaggle.com") == "Basic " + base64.b64encode(b"me:k").decode()
    assert access.authorization(login, "storage.example") is None
    assert access.authorization(source("ZENODO_TOKEN"), "zenodo.org") == "Bearer t"
    assert access.authorization(source("MINE", where="https://a.example/x"), "a.example") == "Bearer m"
    assert access.authorization(source(), "a.example") is None
    hub = Access(environment={"HF_TOKEN": "h"})
    assert hub.authorization(source(), "huggingface.co") == "Bearer h"
    assert hub.authorization(source(), "cdn.example") is None


def test_credentials_that_are_not_set() -> None:
    with pytest.raises(MissingDataError, match="KAGGLE_KEY is not set in the environment"):
        Access(environment={"KAGGLE_USERNAME": "me"}).authorization(
            source("KAGGLE_USERNAME", "KAGGLE_KEY"), "www.kaggle.com"
        )


def test_mirrors_need_and_get_no_credentials() -> None:
    access = Access({"zenodo.org": "http://in.example/z/"}, environment={"ZENODO_TOKEN": "t"})
    assert access.authorization(source("ZENODO_TOKEN"), "zenodo.org") is None
    assert (
        Access({"zenodo.org": "http://in.example"}, environment={}).authorization(source("ZENODO_TOKEN"), "zenodo.org")
        is None
    )
    assert (
        access.url("https://zenodo.org/records/1/a.zip?download=1") == "http://in.example/z/records/1/a.zip?download=1"
    )
    assert access.url("https://other.example/a") == "https://other.example/a"


def test_mirror_options() -> None:
    assert read_mirrors({"Zenodo.org": "http://a.example/z"}) == {"zenodo.org": "http://a.example/z"}
    with pytest.raises(ConfigError) as caught:
        read_mirrors({"zenodo.org": "", "a": "ftp://x/y", "b": "https://me:secret@h.example/"})
    assert len(caught.value.problems) == 3
    assert "secret" not in str(caught.value)


def test_shown_urls() -> None:
    assert mask_url("https://me:pw@h.example/a/b?token=x#y") == "https://h.example/a/b"
