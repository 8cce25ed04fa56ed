"""Every kind of source from servers on loopback that stand for its host, and what can go wrong with each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import written_campaign
from toys.detection import make_card
from upstreams import FileHost, Seen, WebServer

from automedbench.base.cards import Download, Source, TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import Receipt
from automedbench.datasets.download import transfer
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.fetch import MARKER, RECEIPT, fetch_dataset
from automedbench.datasets.download.transfer import ContentMismatch
from automedbench.datasets.fetchers import PLANNERS
from automedbench_rehearsal.making.files import gzipped, tarred, zipped
from automedbench_rehearsal.upstreams import Upstream
from automedbench_rehearsal.upstreams.server import serve

ROOT = Path(__file__).resolve().parents[2]
IMAGES = {"images/a.png": b"a" * 1000, "images/b.png": b"b" * 2000}
Fetch = Callable[..., Receipt]


def card_of(*sources: Source, **more: Any) -> TaskCard:
    card = make_card()
    dataset = card.dataset.model_copy(update={"name": "toy", "sources": list(sources), "download_gb": None, **more})
    return card.model_copy(update={"dataset": dataset})


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return tmp_path / "raw/toy"


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY", "ZENODO_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def content(folder: Path) -> dict[str, bytes]:
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if name not in (RECEIPT, MARKER)}


def fetch(raw: Path, mirrors: Mapping[str, str], *sources: Source, check: bool = False, **more: Any) -> Receipt:
    return fetch_dataset(card_of(*sources), None, raw, Access(mirrors, patience_s=0.001, **more), check=check)


def offered(upstream: Upstream, raw: Path, *sources: Source, **more: Any) -> Receipt:
    with serve(upstream) as mirrors:
        return fetch(raw, mirrors, *sources, **more)


def test_every_kind_has_a_fetcher() -> None:
    """Kinds of the card; ``path`` needs none."""
    kinds = set(Source.model_fields["kind"].annotation.__args__)  # type: ignore[union-attr]
    assert PLANNERS.keys() == kinds - {"path"}


# --- plain URLs -----------------------------------------------------------------------------------------------


def test_url_places_and_archives(raw: Path) -> None:
    """Archives are unpacked and gone, files keep their names or get theirs, numbers are filled in."""
    files = {
        "https://zenodo.org/records/1/files/images.zip?download=1": zipped({**IMAGES, "__MACOSX/x": b""}),
        "https://h.example/d/abc.gz": tarred({"more/c.png": b"c"}, gz=True),
        "https://h.example/d/labels.h5.gz": gzipped(b"labels"),
        "https://h.example/d/scan_001.nii.gz": gzipped(b"1"),
        "https://h.example/d/scan_002.nii.gz": gzipped(b"2"),
        "https://h.example/f/77": zipped({"x.csv": b"x"}),
        "https://h.example/d/kept.zip": zipped({"y": b""}),
        "https://h.example/d/a%20table.csv": b"1,2",
    }
    source = Source(
        kind="url",
        where="https://h.example/d/",
        revision="v1",
        downloads=[
            Download(name="https://zenodo.org/records/1/files/images.zip?download=1"),
            Download(name="abc.gz", to="under"),
            Download(name="labels.h5.gz"),
            Download(name="scan_{n:03d}.nii.gz", numbers=(1, 2), to="scans/{n}/image.nii.gz"),
            Download(name="https://h.example/f/77", unpack=True, to="table"),
            Download(name="kept.zip", unpack=False),
            Download(name="a%20table.csv"),
        ],
    )
    receipt = offered(Upstream(files=files), raw, source)
    assert content(raw) == {
        **IMAGES,
        "under/more/c.png": b"c",
        "labels.h5": b"labels",
        "scans/1/image.nii.gz": gzipped(b"1"),
        "scans/2/image.nii.gz": gzipped(b"2"),
        "table/x.csv": b"x",
        "kept.zip": zipped({"y": b""}),
        "a table.csv": b"1,2",
    }
    assert set(receipt.files) == set(content(raw))
    assert {name: entry.sha256 for name, entry in receipt.files.items()} == {
        name: sha256_bytes(data) for name, data in content(raw).items()
    }
    first = receipt.downloads[0]
    assert (first.name, first.sha256) == (
        "https://zenodo.org/records/1/files/images.zip",
        sha256_bytes(files["https://zenodo.org/records/1/files/images.zip?download=1"]),
    )
    assert first.client.startswith("requests 2.")
    assert [path.name for path in raw.parent.iterdir()] == ["toy"]


def test_only_what_the_card_wants_is_kept(raw: Path) -> None:
    source = Source(kind="url", where="https://h.example/all.zip", files=["images/a.*"])
    offered(Upstream(files={"https://h.example/all.zip": zipped(IMAGES)}), raw, source)
    assert set(content(raw)) == {"images/a.png"}


def test_wrong_archive(raw: Path) -> None:
    """Expected pattern against what the archive holds."""
    source = Source(kind="url", where="https://h.example/all.zip", files=["**/*.dcm"])
    with pytest.raises(MissingDataError, match=r"expected files that match '\*\*/\*.dcm', found nothing"):
        offered(Upstream(files={"https://h.example/all.zip": zipped(IMAGES)}), raw, source)
    assert not raw.exists()


def test_a_web_page_instead_of_the_file(raw: Path) -> None:
    """A login page with status 200 is no data, whether an archive or a plain file was expected."""
    page = b"<!DOCTYPE html><html>Please log in</html>"
    for name in ("all.zip", "table.csv"):
        with pytest.raises((MissingDataError, InfrastructureError), match="found a web page") as caught:
            offered(
                Upstream(files={f"https://h.example/{name}": page}),
                raw,
                Source(kind="url", where=f"https://h.example/{name}"),
            )
        assert len(str(caught.value).splitlines()) <= 3
    assert not raw.exists()


def test_a_web_page_is_told_before_a_checksum(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a host sends that wants a login is no damaged download, and no file that was had."""
    files = {"https://h.example/all.zip": b"<!DOCTYPE html><html>Please log in</html>"}
    downloads = [Download(name="all.zip", checksum="md5:" + "0" * 32)]
    source = Source(kind="url", where="https://h.example", downloads=downloads)
    with pytest.raises(MissingDataError, match=r"all\.zip: expected the file, found a web page.*\nHow to get it"):
        offered(Upstream(files=files), raw, source, stand_in=False)
    assert "0 of 1 files" in capsys.readouterr().err


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_checksums(raw: Path, algorithm: str) -> None:
    """Expected against found; the damaged file goes, so that the next call gets it anew."""
    import hashlib

    files = {"https://h.example/a.csv": b"right", "https://h.example/b.csv": b"b"}
    right = f"{algorithm}:{hashlib.new(algorithm, b'right').hexdigest()}"

    def source(checksum: str) -> Source:
        downloads = [Download(name="a.csv", checksum=checksum), Download(name="b.csv")]
        return Source(kind="url", where="https://h.example", downloads=downloads)

    wrong = f"{algorithm}:" + "0" * (len(right) - len(algorithm) - 1)
    with pytest.raises(InfrastructureError, match=rf"bccd-det-task: https://h.example/a.csv: found {algorithm}") as bad:
        offered(Upstream(files=files), raw, source(wrong))
    assert "expected 0000" in str(bad.value)
    assert "1 of 2 files are kept" in str(bad.value)
    assert len(str(bad.value).splitlines()) <= 3
    assert offered(Upstream(files=files), raw, source(right)).downloads[0].published == right


def test_published_size(raw: Path) -> None:
    source = Source(kind="url", where="https://h.example", downloads=[Download(name="a.csv", bytes=6)])
    with pytest.raises(InfrastructureError, match="expected 6 bytes as the card says, found 5"):
        offered(Upstream(files={"https://h.example/a.csv": b"right"}), raw, source)


def test_good_files_are_kept_when_another_fails(raw: Path) -> None:
    """The next call asks only for what is missing; nothing is visible before."""
    host = FileHost({f"/{n}.bin": bytes([n]) * 1000 for n in range(5)}, {"/3.bin": ["404"]})
    downloads = [Download(name="{n}.bin", numbers=(0, 4))]
    source = Source(kind="url", where="https://h.example", downloads=downloads)
    with WebServer(host.answer) as server:
        with pytest.raises(MissingDataError, match=r"3\.bin: expected .* HTTP 404 .*\(4 of 5 files are kept\)"):
            fetch(raw, {"h.example": server.url}, source)
        assert not raw.exists()
        asked = len(server.seen)
        fetch(raw, {"h.example": server.url}, source)
        assert [seen.target for seen in server.seen[asked:]] == ["/3.bin"]
    assert len(content(raw)) == 5
    assert [path.name for path in raw.parent.iterdir()] == ["toy"]


def test_refused_for_all_is_not_asked_for_all(raw: Path) -> None:
    """Without the right to read, five thousand files are not tried one by one."""
    host = FileHost({}, {f"/{n}.bin": ["403"] for n in range(50)})
    source = Source(kind="url", where="https://h.example", downloads=[Download(name="{n}.bin", numbers=(0, 49))])
    with WebServer(host.answer) as server, pytest.raises(MissingDataError, match="HTTP 403"):
        fetch(raw, {"h.example": server.url}, source, workers=2)
    assert len(server.seen) <= 4


def test_next_source_is_tried(raw: Path) -> None:
    """In the card's order; the receipt names the one that worked."""
    upstream = Upstream(files={"https://b.example/x.csv": b"x"})
    receipt = offered(
        upstream,
        raw,
        Source(kind="manual", where="a form"),
        Source(kind="url", where="https://a.example/x.csv"),
        Source(kind="url", where="https://b.example/x.csv"),
    )
    assert receipt.source == "url https://b.example/x.csv"


WRONG = {
    "checksum": (Download(name="x.zip", checksum="md5:" + "0" * 32), zipped(IMAGES), r"found md5 \w+, expected 0000"),
    "size": (Download(name="x.zip", bytes=5), zipped(IMAGES), r"expected 5 bytes as the card says, found \d+"),
    "archive": (Download(name="x.zip"), b"no archive", "expected a zip, tar or gz archive"),
    "leads outside": (Download(name="x.zip"), zipped({"../x": b""}), "leads outside"),
}


@pytest.mark.parametrize("how", WRONG)
def test_next_source_after_other_content(raw: Path, capsys: pytest.CaptureFixture[str], how: str) -> None:
    """What the card does not know is warned of, never taken; the next source that it does know is asked."""
    download, data, why = WRONG[how]
    right = zipped({"y": b"y"})
    checksum = f"sha256:{sha256_bytes(right)}"
    first = Source(kind="url", where="https://a.example", downloads=[download])
    unknown = Source(kind="url", where="https://c.example/y.zip")
    second = Source(kind="url", where="https://b.example", downloads=[Download(name="y.zip", checksum=checksum)])
    upstream = Upstream(files={"https://a.example/x.zip": data, "https://b.example/y.zip": right})
    receipt = offered(upstream, raw, first, unknown, second, stand_in=False)
    (told,) = receipt.passed_over
    assert re.search(rf"https://a\.example/x\.zip: .*{why}", told)
    assert receipt.source == "url https://b.example"
    assert content(raw) == {"y": b"y"}
    warning = rf"Warning: not taken from https://a\.example/x\.zip: .*{why}.* Next: url https://c\.example/y\.zip"
    assert re.search(warning, capsys.readouterr().out)


def test_what_nobody_can_check_does_not_replace_what_is_wrong(raw: Path) -> None:
    """Else the very file that was refused would be taken from the next place that has it."""
    first = Source(kind="url", where="https://a.example", downloads=WRONG["checksum"][:1])
    copy = Source(kind="huggingface", where="me/copy", revision="main", files=["x.zip"])
    upstream = Upstream(files={"https://a.example/x.zip": WRONG["checksum"][1]}, hubs={"me/copy": {"x.zip": b"x"}})
    with pytest.raises(ContentMismatch, match=r"- huggingface me/copy.*: skipped, because") as caught:
        offered(upstream, raw, first, copy, stand_in=False)
    assert "found md5" in str(caught.value)
    assert not raw.exists()


def pinned(where: str, name: str) -> Source:
    """A source of one file with a checksum."""
    return Source(kind="url", where=where, downloads=[Download(name=name, checksum="md5:" + "0" * 32)])


def test_every_source_is_told_when_none_works(raw: Path) -> None:
    """Other content, a missing file, a missing login, a refusal: a line each, then what a person can do."""
    wrong = Download(name="x.csv", checksum="md5:" + "0" * 32)
    sources = (
        Source(kind="url", where="https://a.example", downloads=[wrong]),
        pinned("https://a.example", "gone.csv"),
        Source(kind="kaggle", where="me/set", credentials=["KAGGLE_USERNAME", "KAGGLE_KEY"], downloads=[wrong]),
        pinned("https://a.example", "refused.csv"),
    )
    host = FileHost({"/x.csv": b"x"}, {"/refused.csv": ["403"]})
    with WebServer(host.answer) as server, pytest.raises(ContentMismatch) as caught:
        fetch(raw, {"a.example": server.url}, *sources)
    lines = str(caught.value).splitlines()
    for line, text in zip(
        lines,
        [
            "No raw data for 'toy': none of its 4 sources worked.",
            "- https://a.example/x.csv: found md5 ",
            "- https://a.example/gone.csv: expected the file, found HTTP 404",
            "- kaggle me/set: KAGGLE_USERNAME and KAGGLE_KEY are not set in the environment",
            "- https://a.example/refused.csv: expected the file, found HTTP 403",
            "How to get it: ",
        ],
        strict=True,
    ):
        assert line.startswith(text)
    assert not raw.exists()


def test_a_refusal_without_an_account(raw: Path) -> None:
    """No talk of terms and accounts where there are none; the ways round the host are named."""
    with WebServer(FileHost({}, {"/x.csv": ["403", "403"]}).answer) as server:
        for where, mirrors in ((f"{server.url}/x.csv", {}), ("https://a.example/x.csv", {"a.example": server.url})):
            with pytest.raises(MissingDataError) as caught:
                fetch(raw, mirrors, Source(kind="url", where=where))
            text = str(caught.value)
            assert "account" not in text.splitlines()[0]
            assert "`datasets: {toy: {path: <folder>}}`" in text
            assert "`fetch: {mirrors: {<host>: <URL>}}`" in text
            assert len(text.splitlines()) == 2


def test_the_disk_is_no_reason_for_the_next_source(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong here would be wrong with every source."""
    monkeypatch.setattr(transfer, "free_bytes", lambda folder: 0)
    upstream = Upstream(files={"https://a.example/x.csv": b"x", "https://b.example/x.csv": b"x"})
    sources = [Source(kind="url", where=f"https://{name}.example/x.csv") for name in "ab"]
    with pytest.raises(InfrastructureError, match="are free") as caught:
        offered(upstream, raw, *sources)
    assert not isinstance(caught.value, ContentMismatch)


def test_places_that_hold_the_rest(raw: Path) -> None:
    """``also``: laid over the same folder; on equal paths the first one wins."""
    upstream = Upstream(
        files={"https://a.example/x.zip": zipped({"x": b"1", "README": b"a"})},
        hubs={"me/rest": {"y": b"2", "README": b"b"}},
    )
    source = Source(
        kind="url", where="https://a.example/x.zip", also=[Source(kind="huggingface", where="me/rest", revision="main")]
    )
    receipt = offered(upstream, raw, source)
    assert content(raw) == {"x": b"1", "y": b"2", "README": b"a"}
    assert receipt.source == "url https://a.example/x.zip + huggingface me/rest"


def test_missing_credentials(raw: Path) -> None:
    """Which variables, then the paragraph of the card; nothing is asked."""
    source = Source(kind="kaggle", where="me/set", credentials=["KAGGLE_USERNAME", "KAGGLE_KEY"])
    with pytest.raises(
        MissingDataError, match="KAGGLE_USERNAME and KAGGLE_KEY are not set in the environment"
    ) as caught:
        fetch(raw, {}, source)
    assert "How to get it: Run `snakemake prepare`" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
    assert list(raw.parent.iterdir()) == []


def test_secrets_stay_out_of_what_is_written(raw: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A signed query is in no receipt, marker or log."""
    url = "https://h.example/x.csv?X-Signature=secret"
    offered(Upstream(files={url: b"x"}), raw, Source(kind="url", where=url))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret" not in written
    out, err = capfd.readouterr()
    assert "secret" not in out + err


@pytest.mark.parametrize("place", ["../x", "/etc/x"])
def test_cards_cannot_write_outside(place: str) -> None:
    with pytest.raises(ValueError, match="relative path"):
        Download(name="x", to=place)


def test_hosts_cannot_write_outside(raw: Path) -> None:
    """A name that a URL hides is a name of the folder or an error."""
    source = Source(kind="url", where="https://h.example/a/..%2f..%2fx")
    with pytest.raises(ConfigError, match="give `to`"):
        offered(Upstream(), raw, source)


def test_disk_space_by_the_card(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known sizes are looked at before the first byte, archives with what they become."""
    monkeypatch.setattr(transfer, "free_bytes", lambda folder: 10**9)
    source = Source(kind="url", where="https://h.example", downloads=[Download(name="a.zip", bytes=10**9)])
    with pytest.raises(InfrastructureError, match=r"needs about 2\.3 GB, 1\.0 GB are free"):
        fetch(raw, {}, source)
    with pytest.raises(InfrastructureError, match=r"'toy' needs about 25\.0 GB"):
        fetch_dataset(card_of(Source(kind="url", where="https://h.example/x"), download_gb=25.0), None, raw)


def test_full_disk_while_unpacking(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The download is kept, the message says how much is needed; with room again nothing is downloaded twice."""
    host = FileHost({"/x.zip": zipped({"x": bytes(10**7)})})
    source = Source(kind="url", where="https://h.example/x.zip")
    with WebServer(host.answer) as server:
        monkeypatch.setattr(transfer, "free_bytes", lambda folder: transfer.KEPT_FREE + 10**6)
        with pytest.raises(InfrastructureError, match=r"needs about 10\.0 MB"):
            fetch(raw, {"h.example": server.url}, source)
        monkeypatch.undo()
        asked = len(server.seen)
        fetch(raw, {"h.example": server.url}, source)
        assert len(server.seen) == asked


# --- offline, again, mirrors ----------------------------------------------------------------------------------


def test_offline(raw: Path) -> None:
    """What is finished is taken; what is not is named; complete downloads are finished without a host."""
    files = {f"/{n}.bin": b"x" for n in range(3)}
    host = FileHost(files, {"/1.bin": ["404"]})
    source = Source(kind="url", where="https://h.example", downloads=[Download(name="{n}.bin", numbers=(0, 2))])
    with WebServer(host.answer) as server:
        mirrors = {"h.example": server.url}
        with pytest.raises(MissingDataError, match=r"offline, and 3 of 3 files are not downloaded: .*0\.bin"):
            fetch(raw, mirrors, source, offline=True)
        with pytest.raises(MissingDataError):
            fetch(raw, mirrors, source)
        with pytest.raises(
            MissingDataError, match=r"offline, and 1 of 3 files are not downloaded: https://h.example/1\.bin"
        ):
            fetch(raw, mirrors, source, offline=True)
        receipt = fetch(raw, mirrors, source)
        asked = len(server.seen)
        assert fetch(raw, mirrors, source, offline=True) == receipt
        assert len(server.seen) == asked


def test_finished_downloads_are_not_asked_for_again(raw: Path) -> None:
    """Also when the workflow engine has deleted the receipt."""
    with serve(Upstream(files={"https://h.example/x.csv": b"x"})) as mirrors:
        source = Source(kind="url", where="https://h.example/x.csv")
        receipt = fetch(raw, mirrors, source)
        (raw / RECEIPT).unlink()
        asked = len(mirrors.requests)
        assert fetch(raw, mirrors, source) == receipt
        assert (raw / RECEIPT).is_file()
        assert len(mirrors.requests) == asked


def test_a_full_check_fetches_damaged_files_again(raw: Path) -> None:
    """Size and time of a flipped bit are as they were."""
    source = Source(kind="url", where="https://h.example/x.csv")
    with serve(Upstream(files={"https://h.example/x.csv": b"x"})) as mirrors:
        fetch(raw, mirrors, source)
        before = (raw / "x.csv").stat()
        (raw / "x.csv").write_bytes(b"y")
        os.utime(raw / "x.csv", ns=(before.st_atime_ns, before.st_mtime_ns))
        fetch(raw, mirrors, source)
        assert content(raw) == {"x.csv": b"y"}
        fetch(raw, mirrors, source, check=True)
    assert content(raw) == {"x.csv": b"x"}


def test_a_fixture_never_passes_for_the_data(raw: Path) -> None:
    """Made-up data is marked, has no published checksum, and is replaced by a real fetch."""
    source = Source(
        kind="url", where="https://h.example", downloads=[Download(name="x.csv", checksum="md5:" + "0" * 32, bytes=9)]
    )
    receipt = offered(Upstream(files={"https://h.example/x.csv": b"x"}), raw, source, stand_in=True)
    assert receipt.source == "fixture of url https://h.example"
    with pytest.raises(InfrastructureError, match="expected 9 bytes"):
        offered(Upstream(files={"https://h.example/x.csv": b"x"}), raw, source)


# --- hubs, archives, registries -------------------------------------------------------------------------------


def test_huggingface(raw: Path) -> None:
    """Pinned commit, patterns, archives."""
    files = {"data/test-0.parquet": b"0", "data/test-1.parquet": b"1", "data/train-0.parquet": b"t"}
    hub = {"me/set": {**files, "imgs.zip": zipped(IMAGES), "README.md": b"r"}}
    commit = "a" * 40
    source = Source(
        kind="huggingface",
        where="me/set",
        revision=commit,
        downloads=[Download(name="data/test-*.parquet"), Download(name="imgs.zip", to="imgs")],
    )
    receipt = offered(Upstream(hubs=hub), raw, source)
    expected = {f"imgs/{name}": data for name, data in IMAGES.items()}
    assert content(raw) == {**expected, "data/test-0.parquet": b"0", "data/test-1.parquet": b"1"}
    assert receipt.revision == commit
    assert [download.name for download in receipt.downloads] == [
        "me/set/data/test-0.parquet",
        "me/set/data/test-1.parquet",
        "me/set/imgs.zip",
    ]
    assert receipt.downloads[0].client.startswith("requests 2.")


def test_huggingface_without_downloads_takes_the_files(raw: Path) -> None:
    """And a branch is fetched at one commit, which the receipt tells."""
    hub = {"me/set": {"a.json": b"a", "b/c.json": b"c", "d.bin": b"d"}}
    receipt = offered(
        Upstream(hubs=hub), raw, Source(kind="huggingface", where="me/set", revision="main", files=["**/*.json"])
    )
    assert set(content(raw)) == {"a.json", "b/c.json"}
    assert receipt.revision is not None
    assert len(receipt.revision) == 40


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Source(kind="huggingface", where="me/none"), "HTTP 404"),
        (Source(kind="huggingface", where="me/set", downloads=[Download(name="*.tar")]), r"no file matches '\*\.tar'"),
    ],
)
def test_huggingface_without_a_match(raw: Path, source: Source, message: str) -> None:
    with pytest.raises(MissingDataError, match=message):
        offered(Upstream(hubs={"me/set": {"a": b"a"}}), raw, source)


def hub_answer(status: int, code: str, sha: str = "b" * 40) -> Callable[..., tuple[int, dict[str, str], bytes]]:
    def answer(seen: object) -> tuple[int, dict[str, str], bytes]:
        info = {"id": "me/set", "sha": sha, "siblings": [], "private": False, "downloads": 0, "tags": [], "likes": 0}
        return status, {"X-Error-Code": code} if code else {}, json.dumps(info).encode()

    return answer


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "GatedRepo", "gated: the terms must be accepted"),
        (401, "", "HTTP 40[14]"),
        (404, "RevisionNotFound", "the revision of the card no longer exists"),
        (503, "", "HTTP 503 .* 5 times in a row"),
        (200, "", r"found commit b{40}, expected a{40}"),
    ],
)
def test_huggingface_refusals(raw: Path, status: int, code: str, message: str) -> None:
    """Gated, gone, changed, failing: said as such, without a URL."""
    source = Source(kind="huggingface", where="me/set", revision="a" * 40)
    with WebServer(hub_answer(status, code)) as server, pytest.raises(InfrastructureError, match=message) as caught:
        fetch(raw, {"huggingface.co": server.url}, source)
    assert server.url not in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_a_commit_that_was_wrong_once(raw: Path) -> None:
    """The next call asks again: a mirror is corrected, a host comes to itself."""
    source = Source(kind="huggingface", where="me/set", revision="a" * 40)
    upstream = Upstream(hubs={"me/set": {"x": b"x"}})
    with WebServer(hub_answer(200, "")) as server, pytest.raises(ContentMismatch):
        fetch(raw, {"huggingface.co": server.url}, source)
    assert offered(upstream, raw, source, stand_in=False).revision == "a" * 40


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<html>log in</html>", b"null"])
def test_what_is_no_hub(raw: Path, body: bytes) -> None:
    """A mirror that answers something else."""
    source = Source(kind="huggingface", where="me/set", revision="main")
    message = "expected the hub's description of its files|found a web page"
    with WebServer(lambda seen: (200, {}, body)) as server, pytest.raises(MissingDataError, match=message):
        fetch(raw, {"huggingface.co": server.url}, source)


def test_huggingface_goes_on_where_it_was_cut(raw: Path) -> None:
    """A later call asks for the rest; the hub's own SHA-256 is checked."""
    data = os.urandom(12 * 2**20)
    digest = sha256_bytes(data)
    host = FileHost({"/datasets/me/set/resolve/" + "c" * 40 + "/big.bin": data})
    large = {
        "rfilename": "big.bin",
        "size": len(data),
        "lfs": {"sha256": digest, "size": len(data), "pointerSize": 134},
    }
    info = {"id": "me/set", "sha": "c" * 40, "private": False, "downloads": 0, "tags": [], "likes": 0}
    (path,) = host.files
    steps = ["cut 11534336", "404"]

    def answer(seen: Seen) -> tuple[int, dict[str, str], bytes | Iterable[bytes]]:
        if seen.target.startswith("/api/datasets/me/set"):
            return 200, {}, json.dumps({**info, "siblings": [large]}).encode()
        if seen.method == "GET" and steps:
            host.script[path] = [steps.pop(0)]
        status, headers, body = host.answer(seen)
        return status, {**headers, "X-Repo-Commit": "c" * 40, "ETag": f'"{digest}"'}, body

    source = Source(kind="huggingface", where="me/set", revision="main")
    with WebServer(answer) as server:
        with pytest.raises(MissingDataError, match="HTTP 404"):
            fetch(raw, {"huggingface.co": server.url}, source)
        asked = len(server.seen)
        receipt = fetch(raw, {"huggingface.co": server.url}, source)
        later = [(seen.method, seen.headers.get("range")) for seen in server.seen[asked:]]
    assert later == [("GET", "bytes=11534336-")]
    assert content(raw) == {"big.bin": data}
    assert receipt.downloads[0].published == f"sha256:{digest}"
    assert receipt.revision == "c" * 40


def test_kaggle(raw: Path) -> None:
    """One archive at a version."""
    url = "https://www.kaggle.com/api/v1/datasets/download/me/set?datasetVersionNumber=2"
    source = Source(
        kind="kaggle",
        where="me/set",
        revision="2",
        files=["images/*.png"],
        credentials=["KAGGLE_USERNAME", "KAGGLE_KEY"],
    )
    receipt = offered(Upstream(files={url: zipped(IMAGES)}), raw, source)
    assert content(raw) == IMAGES
    assert (receipt.revision, receipt.source) == ("2", "kaggle me/set")


def physionet(**changed: bytes) -> Upstream:
    base = "https://physionet.org/files/db/1.0.0"
    files = {"files/p1/a.dcm": b"a", "files/p2/b.dcm": b"b", "labels.csv.gz": gzipped(b"l")}
    sums = "".join(f"{sha256_bytes(data)} {name}\n" for name, data in files.items())
    served = {"SHA256SUMS.txt": sums.encode()} | files | changed
    return Upstream(files={f"{base}/{name}": data for name, data in served.items()})


def test_physionet(raw: Path) -> None:
    """Patterns are looked up in the project's own list, whose checksums are checked."""
    source = Source(
        kind="physionet",
        where="db/1.0.0",
        downloads=[Download(name="files/*.dcm"), Download(name="labels.csv.gz")],
        credentials=["PHYSIONET_USERNAME", "PHYSIONET_PASSWORD"],
    )
    receipt = offered(physionet(), raw, source)
    assert content(raw) == {"files/p1/a.dcm": b"a", "files/p2/b.dcm": b"b", "labels.csv": b"l"}
    assert receipt.revision == "1.0.0"
    assert receipt.downloads[0].published == f"sha256:{sha256_bytes(b'a')}"


def test_physionet_damage(raw: Path) -> None:
    source = Source(kind="physionet", where="db/1.0.0", files=["files/*/*.dcm"])
    with pytest.raises(InfrastructureError, match=r"p1/a\.dcm: found sha256"):
        offered(physionet(**{"files/p1/a.dcm": b"changed"}), raw, source)
    with pytest.raises(MissingDataError, match=r"no file matches 'x\*'"):
        offered(physionet(), raw, Source(kind="physionet", where="db/1.0.0", downloads=[Download(name="x*")]))


@pytest.mark.parametrize(
    "text", [b"come back later", b"0" * 64 + b" another.file"], ids=["no list", "without the file"]
)
def test_physionet_list_that_was_wrong_once(raw: Path, text: bytes) -> None:
    source = Source(kind="physionet", where="db/1.0.0", downloads=[Download(name="files/p1/*")])
    with pytest.raises(MissingDataError, match=r"SHA256SUMS|no file matches"):
        offered(physionet(**{"SHA256SUMS.txt": text}), raw, source)
    assert offered(physionet(), raw, source).files.keys() == {"files/p1/a.dcm"}


def test_synapse(raw: Path) -> None:
    """Ids, with their places; an archive only where the card says so."""
    base = "https://repo-prod.prod.sagebase.org/repo/v1/entity"
    upstream = Upstream(files={f"{base}/syn1/file": zipped(IMAGES), f"{base}/syn2/file": b"t"})
    downloads = [Download(name="syn1", unpack=True), Download(name="syn2", to="tables/t.csv")]
    offered(upstream, raw, Source(kind="synapse", where="syn0", downloads=downloads))
    assert content(raw) == {**IMAGES, "tables/t.csv": b"t"}


TCIA = "https://services.cancerimagingarchive.net/nbia-api/services/v1"


def tcia() -> Upstream:
    rows = [
        {"SeriesInstanceUID": f"1.{n}", "StudyInstanceUID": f"2.{n}", "PatientID": f"LIDC-{n:02d}", "Modality": "CT"}
        for n in range(3)
    ]
    files = {
        f"{TCIA}/getImage?SeriesInstanceUID=1.{n}": zipped({"1-1.dcm": bytes([n]), "LICENSE": b"l"}) for n in range(3)
    }
    return Upstream(
        files=files | {f"{TCIA}/getSeries?Collection=LIDC&Modality=CT&format=json": json.dumps(rows).encode()}
    )


@pytest.mark.parametrize(("name", "count"), [("CT", 3), ("CT LIDC-0[01]", 2)])
def test_tcia(raw: Path, name: str, count: int) -> None:
    """Series of a modality, of some patients, each in the folder of patient, study and series."""
    source = Source(kind="tcia", where="LIDC", downloads=[Download(name=name)], files=["*/*/*/*.dcm"])
    receipt = offered(tcia(), raw, source)
    assert set(content(raw)) == {f"LIDC-{n:02d}/2.{n}/1.{n}/1-1.dcm" for n in range(count)}
    assert receipt.downloads[0].name == "tcia series 1.0"


def test_tcia_without_a_match(raw: Path) -> None:
    with pytest.raises(MissingDataError, match="lists no series for 'CT NONE'"):
        offered(tcia(), raw, Source(kind="tcia", where="LIDC", downloads=[Download(name="CT NONE")]))


def test_box(raw: Path) -> None:
    """A static link says .gz and is a compressed tar."""
    link = "https://nihcc.box.com/shared/static/hash.gz"
    source = Source(kind="box", where="https://nihcc.app.box.com/v/x", downloads=[Download(name=link)])
    offered(Upstream(files={link: tarred(IMAGES, gz=True)}), raw, source)
    assert content(raw) == IMAGES


def test_git_from_a_mirror(raw: Path) -> None:
    """The card's commit is asked for as the server allows; a stand-in gives its own."""
    upstream = Upstream(repositories={"https://github.com/me/set": {"x/a.json": b"a", "README": b"r"}})
    source = Source(kind="git", where="https://github.com/me/set", revision="1" * 40, files=["x/*"])
    with pytest.raises(MissingDataError, match=r"git (fetch|checkout) failed"):
        offered(upstream, raw, source)
    receipt = offered(upstream, raw, source, stand_in=True)
    assert content(raw) == {"x/a.json": b"a"}
    assert receipt.revision == "1" * 40
    assert receipt.downloads[0].client.startswith("git ")


# --- the command, killed --------------------------------------------------------------------------------------


@pytest.fixture
def card_file(tmp_path: Path) -> Iterator[Path]:
    source = Source(
        kind="url",
        where="https://h.example",
        downloads=[Download(name="big.bin"), Download(name="small.bin")],
    )
    path = tmp_path / "bccd-det-task.yaml"
    path.write_text(yaml.safe_dump(card_of(source).model_dump(mode="json")))
    yield path


def command(card: Path, raw: Path, **settings: Any) -> list[str]:
    """The step's command for a campaign with these settings."""
    data = {"raw": str(raw.parent), **dict.fromkeys(("public", "private", "manifests"), "unused")}
    campaign = written_campaign(raw.parents[1], card, data=data, **settings)
    return [sys.executable, str(ROOT / "scripts/fetch_dataset.py"), "--campaign", str(campaign), "--dataset", raw.name]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_and_run_again(card_file: Path, raw: Path, number: signal.Signals) -> None:
    """The second call asks for the rest only; nothing was visible in between, and nothing is left over."""
    data = os.urandom(20 * 2**20)
    host = FileHost({"/big.bin": data, "/small.bin": b"s"}, {"/big.bin": ["slow"]})
    with WebServer(host.answer) as server:
        words = command(card_file, raw, fetch={"mirrors": {"h.example": server.url}})
        first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        part = None
        for _ in range(600):
            part = next(raw.parent.rglob("body.part"), None) if raw.parent.exists() else None
            if part is not None and part.stat().st_size > 2**20:
                break
            time.sleep(0.05)
        assert part is not None
        first.send_signal(number)
        _, told = first.communicate(timeout=30)
        assert first.returncode == (-9 if number == signal.SIGKILL else 128 + 15), told
        assert "Traceback" not in told
        assert not raw.exists()
        there = part.stat().st_size
        assert 2**20 <= there < len(data)
        asked = len(server.seen)
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        later = [(seen.target, seen.headers.get("range")) for seen in server.seen[asked:]]
    assert later == [("/big.bin", f"bytes={there}-")]
    assert (raw / "big.bin").read_bytes() == data
    assert "toy: 2 files from url https://h.example" in done.stdout
    assert [path.name for path in raw.parent.iterdir()] == ["toy"]


def test_two_at_a_time(card_file: Path, raw: Path) -> None:
    """The second process waits for the first and finds everything there."""
    host = FileHost({"/big.bin": bytes(4 * 2**20), "/small.bin": b"s"}, {"/big.bin": ["slow"]})
    with WebServer(host.answer) as server:
        words = command(card_file, raw, fetch={"mirrors": {"h.example": server.url}})
        both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        out = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all("toy: 2 files" in text for text in out)
    assert len(server.seen) == 2


def test_fixtures_option(raw: Path) -> None:
    """A shipped card, from a server that stands for its host."""
    card = ROOT / "config/tasks/vqa/vqa-rad-task.yaml"
    done = subprocess.run(
        command(card, raw.with_name("vqa_rad"), fixtures=True), capture_output=True, text=True, check=True
    )
    assert "files from fixture of git https://github.com/" in done.stdout
    assert (raw.with_name("vqa_rad") / RECEIPT).is_file()


def test_offline_option(card_file: Path, raw: Path) -> None:
    done = subprocess.run(command(card_file, raw, fetch={"offline": True}), capture_output=True, text=True)
    assert done.returncode == 1
    assert "offline, and 2 of 2 files are not downloaded" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
