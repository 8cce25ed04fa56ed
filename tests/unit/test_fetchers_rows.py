"""Downloads that a table of the source lists: which rows, which names, what is remembered, what is refused."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from toys.detection import make_card
from upstreams import FileHost, WebServer

from automedbench.base.cards import Download, Rows, Source
from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import sha256_bytes
from automedbench.base.records import Receipt
from automedbench.datasets.download.access import Access
from automedbench.datasets.download.fetch import MARKER, RECEIPT, fetch_dataset
from automedbench.sandbox.egress.rules import list_homes
from automedbench_rehearsal.making.files import gzipped, zipped

TABLE = "image,study,split\naa,1234,test\nbb,1234,test\ncc,2345,train\naa,1234,test\ndd,3456, test \nee,3456,testing\n"
NAME = "files/p{study:.2}/s{study}/{image}.jpg"
# By hand: the rows whose split is test, the repeated one once.
NAMES = ["files/p12/s1234/aa.jpg", "files/p12/s1234/bb.jpg", "files/p34/s3456/dd.jpg"]
OTHERS = ["files/p23/s2345/cc.jpg", "files/p34/s3456/ee.jpg"]
IMAGES = {name: name.encode() for name in [*NAMES, *OTHERS]}


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return tmp_path / "raw/toy"


def chosen(table: str = "split.csv.gz", *, name: str = NAME, split: str = "test", **more: Any) -> Download:
    return Download(name=name, rows=Rows(table=table, where={"split": [split]}), **more)


def source(kind: str, *downloads: Download) -> Source:
    where = "db/1.0" if kind == "physionet" else "https://physionet.org/files/db/1.0"
    return Source.model_validate({"kind": kind, "where": where, "downloads": downloads or (chosen(),)})


def host(table: bytes = gzipped(TABLE.encode()), name: str = "split.csv.gz", **images: bytes) -> FileHost:
    """A project of PhysioNet; its list of checksums tells nothing of ``images``."""
    listed = {name: table, **IMAGES}
    sums = "".join(f"{sha256_bytes(data)} {path}\n" for path, data in listed.items()).encode()
    files = {**listed, **images, "SHA256SUMS.txt": sums}
    return FileHost({f"/files/db/1.0/{path}": data for path, data in files.items()})


def fetch(raw: Path, server: WebServer, part: Source, **more: Any) -> Receipt:
    card = make_card()
    dataset = card.dataset.model_copy(update={"name": "toy", "sources": [part], "download_gb": None})
    mirrors: Mapping[str, str] = {"physionet.org": server.url}
    access = Access(mirrors, patience_s=0.001, **more)
    return fetch_dataset(card.model_copy(update={"dataset": dataset}), None, raw, access)


def fetched(raw: Path, offered: FileHost, part: Source, **more: Any) -> Receipt:
    with WebServer(offered.answer) as server:
        return fetch(raw, server, part, **more)


def content(folder: Path) -> dict[str, bytes]:
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if name not in (RECEIPT, MARKER)}


def refused(raw: Path, error: type[AutoMedBenchError], why: str, offered: FileHost, part: Source) -> str:
    """The message, which is short; nothing is installed."""
    with pytest.raises(error, match=why) as caught:
        fetched(raw, offered, part)
    assert not raw.exists()
    assert len(str(caught.value).splitlines()) <= 3
    return str(caught.value)


# --- which files ----------------------------------------------------------------------------------------------


def test_physionet(raw: Path) -> None:
    """Only files of the chosen rows are asked for, each once, against the project's checksums."""
    with WebServer(host().answer) as server:
        receipt = fetch(raw, server, source("physionet"))
        asked = [seen.target.removeprefix("/files/db/1.0/") for seen in server.seen]
    assert content(raw) == {name: IMAGES[name] for name in NAMES}
    assert sorted(asked) == sorted(["SHA256SUMS.txt", "split.csv.gz", *NAMES])
    assert {each.published for each in receipt.downloads} == {f"sha256:{sha256_bytes(IMAGES[name])}" for name in NAMES}
    assert receipt.revision == "1.0"


def test_url(raw: Path) -> None:
    """Places are the names of the URLs, or what ``to`` makes of the row."""
    fetched(raw, host(), source("url", chosen(to="{split}/{image:.1}/x.jpg")))
    assert content(raw) == {f"test/{name[-5]}/x.jpg": IMAGES[name] for name in NAMES}


@pytest.mark.parametrize("kind", ["url", "physionet"])
@pytest.mark.parametrize(
    ("table", "name"),
    [
        pytest.param(TABLE.encode(), "split.csv", id="plain"),
        pytest.param(b"\xef\xbb\xbf" + TABLE.replace("\n", "\r\n").encode(), "split.csv", id="of Windows"),
        pytest.param(gzip.compress(TABLE.encode()), "split.csv.gz", id="gzip"),
    ],
)
def test_forms_of_the_table(raw: Path, kind: str, table: bytes, name: str) -> None:
    fetched(raw, host(table, name), source(kind, chosen(name)))
    assert sorted(content(raw).values()) == sorted(IMAGES[name] for name in NAMES)


@pytest.mark.parametrize("kind", ["url", "physionet"])
@pytest.mark.parametrize("told", [{"unpack": False}, {}, {"to": "tables/t.csv.gz", "unpack": False}])
def test_a_table_that_is_kept_as_well(raw: Path, kind: str, told: dict[str, Any]) -> None:
    """It is one of the downloads, too, in its place and form there; asked for once if it is kept as it is."""
    with WebServer(host().answer) as server:
        fetch(raw, server, source(kind, Download(name="split.csv.gz", **told), chosen()))
        asked = [seen.target for seen in server.seen if "split" in seen.target]
    place = told.get("to", "split.csv.gz" if told else "split.csv")
    assert content(raw)[place] == (gzipped(TABLE.encode()) if told else TABLE.encode())
    assert len(asked) == (1 if told else 2)


def test_every_row(raw: Path) -> None:
    """Without a condition; a column of any case; texts keep their zeros; whole URLs."""
    table = b"ID,Note\n007,x\n010,\n"
    offered = FileHost({"/t.csv": table, "/007.zip": zipped({"7/a": b"7"}), "/010.zip": zipped({"a": b"10"})})
    name = "https://physionet.org/{ID}.zip"
    part = Source(
        kind="url",
        where="https://physionet.org",
        downloads=[Download(name=name, to="all", rows=Rows(table="t.csv"))],
    )
    fetched(raw, offered, part)
    assert content(raw) == {"all/7/a": b"7", "all/a": b"10"}


def test_a_name_is_no_pattern(raw: Path) -> None:
    """Whatever characters a cell has; a file that the list of checksums does not name is taken without."""
    table = b"image\n[a]*\n"
    receipt = fetched(
        raw,
        host(table, "t.csv", **{"files/[a]*.jpg": b"!"}),
        source("physionet", Download(name="files/{image}.jpg", rows=Rows(table="t.csv"))),
    )
    assert content(raw) == {"files/[a]*.jpg": b"!"}
    assert receipt.downloads[0].published is None


# --- interruptions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["url", "physionet"])
def test_interrupted(raw: Path, kind: str) -> None:
    """The table is remembered: the next call asks for the one file that is missing, offline it is named."""
    offered = host()
    offered.script[f"/files/db/1.0/{NAMES[1]}"] = ["404"]
    with WebServer(offered.answer) as server:
        with pytest.raises(MissingDataError, match=r"bb\.jpg: expected .* HTTP 404 .*\(2 of 3 files are kept\)"):
            fetch(raw, server, source(kind))
        with pytest.raises(MissingDataError, match=r"offline, and 1 of 3 files are not downloaded: .*bb\.jpg"):
            fetch(raw, server, source(kind), offline=True)
        asked = len(server.seen)
        receipt = fetch(raw, server, source(kind))
        assert [seen.target for seen in server.seen[asked:]] == [f"/files/db/1.0/{NAMES[1]}"]
        assert fetch(raw, server, source(kind), offline=True) == receipt
        assert len(server.seen) == asked + 1


def test_offline_without_the_table(raw: Path) -> None:
    with (
        WebServer(host().answer) as server,
        pytest.raises(MissingDataError, match=r"offline, and .*split\.csv\.gz is not"),
    ):
        fetch(raw, server, source("url"), offline=True)
    assert server.seen == []


def test_a_damaged_table_is_had_anew(raw: Path) -> None:
    offered = host()
    right = offered.files["/files/db/1.0/split.csv.gz"]
    offered.files["/files/db/1.0/split.csv.gz"] = right[:-9]
    told = refused(raw, MissingDataError, "damaged gzip file", offered, source("url"))
    assert "url https://physionet.org/files/db/1.0: split.csv.gz: expected a table" in told
    offered.files["/files/db/1.0/split.csv.gz"] = right
    fetched(raw, offered, source("url"))
    assert len(content(raw)) == 3


def test_checksum_of_the_table(raw: Path) -> None:
    offered = host()
    offered.files["/files/db/1.0/split.csv.gz"] = gzip.compress(TABLE.replace("train", "test").encode())
    refused(raw, InfrastructureError, r"split\.csv\.gz: found sha256", offered, source("physionet"))


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["url", "physionet"])
@pytest.mark.parametrize(
    ("table", "why"),
    [
        (b"image,study\naa,1\n", r"expected the columns study, image, split; the table lacks .* \(has 'image'"),
        (b"image,study,split,split\naa,1,test,x\n", "has the column split 2 times"),
        (b"image,study,split\naa,1,TEST\nbb,1,train\n", r"where {'split': \['test'\]}, found none among 2 rows"),
        (b"image,study,split\n", r"where {'split': \['test'\]}, found none among 0 rows"),
        (b"image,study,split\naa,,test\n", "expected a text in column study of every row, found an empty cell"),
        (b"", "is empty"),
        (b"\0\0\0", "holds a NUL"),
        (b"\xff\xfeimage", "is not UTF-8"),
        (b'image\n"aa', "is not CSV"),
    ],
)
def test_other_tables(raw: Path, kind: str, table: bytes, why: str) -> None:
    """Source, table, expected and found."""
    told = refused(raw, MissingDataError, why, host(table, "split.csv"), source(kind, chosen("split.csv")))
    assert "split.csv: expected" in told
    assert f"{kind} " in told


def test_no_table(raw: Path) -> None:
    refused(
        raw,
        MissingDataError,
        r"none\.csv: expected the file, found HTTP 404",
        host(),
        source("url", chosen("none.csv")),
    )


@pytest.mark.parametrize("kind", ["url", "physionet"])
@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("files/{image}.jpg", "../../x"),
        ("files/{image}.jpg", "%2e%2e/%2e%2e/x"),
        ("{image}.jpg", "/etc/x"),
        ("{image}.jpg", "C:/x"),
        ("{image}", ".."),
        ("{image}.jpg", "https://elsewhere.example/x"),
        ("{image}.jpg", "//elsewhere.example/x"),
        ("https://physionet.org{image}/x.jpg", ".elsewhere.example"),
        ("files/{image}.gz", "../x"),
        ("files/{image}.jpg", "a\x07"),
        ("files/{image}.jpg", "a" * 300),
    ],
)
def test_cells_that_lead_elsewhere(raw: Path, kind: str, name: str, cell: str) -> None:
    """The table is another's: it can neither write outside of the folder nor have another host asked."""
    part = source(kind, Download(name=name, rows=Rows(table="t.csv")))
    with WebServer(host(f"image\n{cell}\n".encode(), "t.csv").answer) as server:
        with pytest.raises(InfrastructureError, match=r"t\.csv: expected names below .*, found '") as caught:
            fetch(raw, server, part)
        assert {seen.target.rpartition("/")[2] for seen in server.seen} <= {"t.csv", "SHA256SUMS.txt"}
    assert len(str(caught.value).splitlines()) <= 3
    assert str(caught.value).startswith("bccd-det-task: ")
    assert not raw.exists()


@pytest.mark.parametrize("cell", ["../x", "/x", "a//b", ".", "a\x07"])
@pytest.mark.parametrize("unpack", [False, True])
def test_places_that_lead_elsewhere(raw: Path, cell: str, unpack: bool) -> None:
    download = Download(name="files/{image}.zip", to="{place}", rows=Rows(table="t.csv"), unpack=unpack)
    offered = host(f"image,place\na,{cell}\n".encode(), "t.csv", **{"files/a.zip": zipped({"a": b"a"})})
    refused(raw, InfrastructureError, "expected names below", offered, source("physionet", download))


def test_an_archive_name_that_leads_elsewhere(raw: Path) -> None:
    """A lone compressed file becomes what its URL's last part says, and that is no path."""
    part = Source(kind="url", where="https://physionet.org/files/..%2f..%2fx.gz")
    refused(raw, ConfigError, "give `to`", FileHost({"/files/../../x.gz": gzipped(b"x")}), part)


@pytest.mark.parametrize("to", [None, "x.jpg"])
def test_two_files_at_one_place(raw: Path, to: str | None) -> None:
    """Nothing is lost in silence."""
    part = source("url", chosen(name="{image}/x.jpg", to=to))
    refused(raw, ConfigError, "'aa/x.jpg' and 'bb/x.jpg' would be one file", host(), part)


def test_agents_are_kept_from_where_rows_lead() -> None:
    """Names end at the first column; the table counts as well."""
    download = Download(name="https://a.example/d/x{image}.jpg", rows=Rows(table="https://b.example/t.csv"))
    card = make_card()
    part = Source(kind="url", where="https://c.example/", downloads=[download])
    homes = list_homes(card.dataset.model_copy(update={"sources": [part], "homepages": []}))
    assert {"a.example/d/x", "b.example/t.csv"} <= homes.urls
    assert {"a.example", "b.example", "c.example"} <= homes.hosts


# --- cards ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("download", "why"),
    [
        ({"name": "x.jpg"}, "must hold a column"),
        ({"name": "{}"}, "not a column"),
        ({"name": "{0}"}, "not a column"),
        ({"name": "{x.__class__}"}, "not a column"),
        ({"name": "{x[0]}"}, "not a column"),
        ({"name": "{x!r}"}, "not a column"),
        ({"name": "{x:d}"}, "format code"),
        ({"name": "{x"}, "expected '}'"),
        ({"name": "{x}", "to": "{y!r}"}, "not a column"),
        ({"name": "{x}", "to": "../{y}"}, "relative path"),
        ({"name": "{x}{n}", "numbers": [1, 2]}, "numbers cannot be given together"),
        ({"name": "{x}", "bytes": 2}, "bytes cannot be given together"),
        ({"name": "{x}", "checksum": "md5:" + "0" * 32}, "checksum cannot be given together"),
    ],
)
def test_cards_with_mistakes(download: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Download.model_validate({**download, "rows": {"table": "t.csv"}})


def test_kinds_without_rows() -> None:
    with pytest.raises(ValidationError, match="source of kind 'kaggle' has none"):
        source("kaggle", chosen())
