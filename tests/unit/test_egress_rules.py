"""Every rule about where agent code may go, as a table.

Expectations by hand from docs/specification.md, 9.3 and 9.8.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from upstreams import WebServer, client_hello

from automedbench.base.cards import DataSet, Download, Source, TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import CaseEntry, Downloaded, FileEntry, Manifest, Receipt, now
from automedbench.campaign.config import EgressConfig
from automedbench.sandbox.egress import rules
from automedbench.sandbox.egress.mirror import check_mirror
from automedbench.sandbox.egress.proxy import Hello, NotTLS, read_hello
from automedbench.sandbox.egress.rules import (
    NO_INDEX,
    EgressRefused,
    EgressSettings,
    PackageIndex,
    add_linked_hosts,
    build_settings,
    check_plain,
    check_sni,
    check_tunnel,
    configured_url,
    drop_hop_headers,
    host_name,
    is_public,
    label_hashes,
    list_homes,
    matches_any,
    parse_index_url,
    read_index,
)

BOTH = ("b.example",)
"""A host that is listed and a home of data sets."""
SETTINGS = EgressSettings(
    allow=("code.example", "*.content.example", "index.example", "zenodo.org", "data.example", "10.1.2.3", *BOTH),
    deny_hosts=(
        "data.example",
        "*.data.example",
        "zenodo.org",
        "*.zenodo.org",
        "other.example",
        "*.other.example",
        *BOTH,
    ),
    deny_urls=("code.example/someone/labels", "huggingface.co/datasets/acme/task-data", "zenodo.org/records/7"),
    own_hosts=("data.example", "*.data.example", "zenodo.org", "*.zenodo.org"),
    general_hosts=("zenodo.org", "*.zenodo.org"),
    own_urls=("code.example/someone/labels", "huggingface.co/datasets/acme/task-data"),
    hub="https://hub.example",
    index=PackageIndex("http://10.1.2.3:3141/simple", ("10.1.2.3",), ("10.1.2.3:3141",)),
)

TUNNELS = [
    # target, reason
    ("code.example:443", "listed"),
    ("CODE.Example:443", "listed"),
    ("code.example.:443", "listed"),
    ("a.content.example:443", "listed"),
    ("a.b.content.example:443", "listed"),
    ("10.1.2.3:3141", "listed"),
    ("content.example:443", "not_listed"),
    ("evilcontent.example:443", "not_listed"),
    ("code.example.evil.org:443", "not_listed"),
    ("evil-code.example:443", "not_listed"),
    ("localhost:443", "not_listed"),
    ("metadata.google.internal:443", "not_listed"),
    ("xn--cde-tna.example:443", "not_listed"),
    ("code.example:80", "port"),
    ("code.example:22", "port"),
    ("code.example:8443", "port"),
    ("code.example", "malformed"),
    ("code.example:", "malformed"),
    ("code.example:0", "malformed"),
    ("code.example:65536", "malformed"),
    ("code.example:443:443", "malformed"),
    ("code.example:0443x", "malformed"),
    ("user@code.example:443", "malformed"),
    ("code.example@evil.org:443", "malformed"),
    ("https://code.example:443", "malformed"),
    ("code.example/:443", "malformed"),
    ("code.example\\.evil.org:443", "malformed"),
    ("code..example:443", "malformed"),
    ("-code.example:443", "malformed"),
    ("c%6fde.example:443", "malformed"),
    ("cöde.example:443", "malformed"),
    ("/run/user/1000/bus:443", "malformed"),
    ("unix:/run/x.sock:443", "malformed"),
    (f"{'a' * 64}.example:443", "malformed"),
    ("127.0.0.1:443", "address"),
    ("169.254.169.254:443", "address"),
    ("8.8.8.8:443", "address"),
    ("10.1.2.3:443", "address"),
    ("127.1:443", "address"),
    ("0177.0.0.1:443", "address"),
    ("2130706433:443", "address"),
    ("0x7f000001:443", "address"),
    ("0x7f.0.0.0x1:443", "address"),
    ("[::1]:443", "address"),
    ("[::ffff:127.0.0.1]:443", "address"),
    ("[fe80::1%25eth0]:443", "address"),
    ("1.1.1.1.:443", "address"),
    ("hub.example:443", "hub"),
    ("cdn.hub.example:443", "hub"),
    ("other.example:443", "dataset_home"),
    ("www.other.example:443", "dataset_home"),
    ("b.example:443", "dataset_home"),
    ("data.example:443", "own_home"),
    ("cdn.data.example:443", "own_home"),
    ("data.example:22", "own_home"),
    ("zenodo.org:443", "own_home"),
]


def judged(check: Callable, *args: object, **options: object) -> tuple[str, Any]:
    """Reason of a refusal, or ``listed``, and what the check gives."""
    try:
        return "listed", check(*args, **options)
    except EgressRefused as error:
        assert not error.ruling.allowed
        return error.ruling.reason, None


@pytest.mark.parametrize(("target", "reason"), TUNNELS, ids=[target for target, _ in TUNNELS])
def test_tunnel(target: str, reason: str) -> None:
    verdict, place = judged(check_tunnel, SETTINGS, target)
    assert verdict == reason
    assert place is None or place.host == place.host.lower().rstrip(".")


PLAIN = [
    # method, target, host header, more headers, reason
    ("GET", "http://code.example/", "code.example", [], "listed"),
    ("GET", "http://code.example", "code.example", [], "listed"),
    ("GET", "HTTP://Code.Example:80/a?b=c", "code.example:80", [], "listed"),
    ("HEAD", "http://a.content.example/x", "a.content.example", [], "listed"),
    ("POST", "http://code.example/api", "code.example", [(b"content-length", b"3")], "listed"),
    ("GET", "http://10.1.2.3:3141/simple/x/", "10.1.2.3:3141", [], "listed"),
    ("GET", "http://code.example/someone/labels2", "code.example", [], "listed"),
    ("GET", "/", "code.example", [], "scheme"),
    ("GET", "https://code.example/", "code.example", [], "scheme"),
    ("GET", "ftp://code.example/", "code.example", [], "scheme"),
    ("GET", "file:///etc/passwd", "code.example", [], "scheme"),
    ("GET", "gopher://code.example/", "code.example", [], "scheme"),
    ("GET", "http:/code.example/", "code.example", [], "scheme"),
    ("GET", "http://user:secret@code.example/", "code.example", [], "malformed"),
    ("GET", "http://code.example@evil.org/", "code.example", [], "malformed"),
    ("GET", "http://code.example\\@evil.org/", "code.example", [], "malformed"),
    ("GET", "http://code.example/a#b", "code.example", [], "malformed"),
    ("GET", "http://code.example#@evil.org/", "code.example", [], "malformed"),
    ("GET", "http:///code.example/", "code.example", [], "malformed"),
    ("GET", "http://code.example/a\tb", "code.example", [], "malformed"),
    ("GET", "http://code.example:8080/", "code.example:8080", [], "port"),
    ("GET", "http://code.example:443/", "code.example:443", [], "port"),
    ("GET", "http://evil.org/", "evil.org", [], "not_listed"),
    ("GET", "http://evil.org?code.example/", "evil.org", [], "not_listed"),
    ("GET", "http://169.254.169.254/latest/meta-data", "169.254.169.254", [], "address"),
    ("GET", "http://[::1]/", "[::1]", [], "address"),
    ("GET", "http://0/", "0", [], "address"),
    ("GET", "http://code.example/", "evil.org", [], "host_header"),
    ("GET", "http://code.example/", "code.example:8080", [], "host_header"),
    ("GET", "http://code.example/", "code.example, evil.org", [], "host_header"),
    ("GET", "http://code.example/", "code.example", [(b"host", b"code.example")], "host_header"),
    ("GET", "http://code.example/", "code.example", [(b"upgrade", b"websocket")], "upgrade"),
    ("GET", "http://code.example/", "code.example", [(b"connection", b"keep-alive, Upgrade")], "upgrade"),
    ("GET", "http://code.example/", "code.example", [(b"upgrade", b"h2c")], "upgrade"),
    (
        *("POST", "http://code.example/", "code.example"),
        [(b"transfer-encoding", b"chunked"), (b"content-length", b"3")],
        "malformed",
    ),
    ("PUT", "http://code.example/", "code.example", [], "method"),
    ("DELETE", "http://code.example/", "code.example", [], "method"),
    ("TRACE", "http://code.example/", "code.example", [], "method"),
    ("get", "http://code.example/", "code.example", [], "method"),
    ("GET", "http://hub.example/acme/model", "hub.example", [], "hub"),
    ("GET", "http://other.example/x", "other.example", [], "dataset_home"),
    ("GET", "http://data.example/x", "data.example", [], "own_home"),
    ("GET", "http://code.example/someone/labels", "code.example", [], "own_home"),
    ("GET", "http://code.example/Someone/Labels/archive.zip", "code.example", [], "own_home"),
    ("GET", "http://code.example/someone/%6cabels/a", "code.example", [], "own_home"),
    ("GET", "http://code.example/someone/%256cabels/a", "code.example", [], "own_home"),
    ("GET", "http://code.example//someone///labels/", "code.example", [], "own_home"),
    ("GET", "http://code.example/x/../someone/./labels/", "code.example", [], "own_home"),
    ("GET", "http://code.example/x/%2e%2e/someone/labels/", "code.example", [], "own_home"),
    ("GET", "http://www.zenodo.org/records/7/files/x", "www.zenodo.org", [], "dataset_home"),
]


@pytest.mark.parametrize(
    ("method", "target", "host", "more", "reason"), PLAIN, ids=[f"{r[0]} {r[1]} {i}" for i, r in enumerate(PLAIN)]
)
def test_plain(method: str, target: str, host: str, more: list[tuple[bytes, bytes]], reason: str) -> None:
    verdict, place = judged(check_plain, SETTINGS, method, target, [(b"host", host.encode()), *more])
    assert verdict == reason
    assert place is None or place.path.startswith("/")


MIRROR = [
    # method, target, reason
    ("GET", "/api/models", "listed"),
    ("GET", "/api/models?search=chest&limit=5", "listed"),
    ("GET", "/api/models/gpt2", "listed"),
    ("GET", "/api/models/acme/tiny", "listed"),
    ("GET", "/api/models/acme/tiny/revision/main", "listed"),
    ("GET", "/api/models/acme/tiny/revision/refs%2Fpr%2F1", "listed"),
    ("GET", "/api/models/acme/tiny/tree/main?recursive=True&expand=False", "listed"),
    ("GET", "/api/models/acme/tiny/tree/main/sub%2Ffolder", "listed"),
    ("GET", "/api/models/acme/tiny/refs", "listed"),
    ("POST", "/api/models/acme/tiny/paths-info/main", "listed"),
    ("HEAD", "/acme/tiny/resolve/main/config.json", "listed"),
    ("GET", "/acme/tiny/resolve/main/sub/model%20final.bin", "listed"),
    ("GET", "/gpt2/resolve/refs%2Fpr%2F1/config.json", "listed"),
    ("GET", "/acme/tiny/raw/main/README.md", "listed"),
    ("GET", "/api/resolve-cache/models/acme/tiny/abc123/config.json", "listed"),
    ("GET", "/datasets/acme/x/resolve/main/labels.csv", "hub_dataset"),
    ("GET", "/Datasets/acme/x/resolve/main/labels.csv", "hub_dataset"),
    ("GET", "/DATASETS/acme/x", "hub_dataset"),
    ("GET", "/%64atasets/acme/x", "hub_dataset"),
    ("GET", "/%2564atasets/acme/x", "hub_dataset"),
    ("GET", "//datasets/acme/x", "hub_dataset"),
    ("GET", "/./datasets/acme/x", "hub_dataset"),
    ("GET", "/acme/../datasets/acme/x", "hub_dataset"),
    ("GET", "/%2e%2e/datasets/acme/x", "hub_dataset"),
    ("GET", "/\\datasets\\acme\\x", "hub_dataset"),
    ("GET", "/api/datasets/acme/x", "hub_dataset"),
    ("GET", "/api//datasets/acme/x", "hub_dataset"),
    ("GET", "/api/resolve-cache/datasets/acme/x/abc/labels.csv", "hub_dataset"),
    ("GET", "/datasets%2Facme%2Fx", "hub_dataset"),
    ("GET", "/spaces/acme/x", "hub_dataset"),
    ("GET", "/datasets/acme/task-data/resolve/main/labels.csv", "own_home"),
    ("GET", "/api/datasets/Acme/Task-Data/tree/main", "own_home"),
    ("GET", "/acme/tiny/resolve/main/../../../../datasets/acme/x", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/%2e%2e/%2e%2e/x", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/..%2f..%2f..%2fapi/whoami-v2", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/a%2Fb", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/a%5Cb", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/a%00b", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/a%0d%0ax", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/%252e%252e/x", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/%ff", "hub_path"),
    ("GET", "/acme/tiny/resolve/main//x", "hub_path"),
    ("GET", "/acme%2Ftiny/resolve/main/x", "hub_path"),
    ("GET", "/acme/tiny/resolve/main", "hub_path"),
    ("GET", "/acme/tiny/blob/main/x", "hub_path"),
    ("GET", "/acme/tiny", "hub_path"),
    ("GET", "/", "hub_path"),
    ("GET", "/api/whoami-v2", "hub_path"),
    ("GET", "/api/models/acme/tiny/xet-read-token/main", "hub_path"),
    ("GET", "/api/models/acme/tiny/xet-write-token/main", "hub_path"),
    ("GET", "/api/models/acme/tiny/settings", "hub_path"),
    ("GET", "/api/models/../datasets-x", "hub_path"),
    ("GET", "/API/models/gpt2", "hub_path"),
    ("GET", "/login", "hub_path"),
    ("GET", "/settings/tokens/resolve/main/x", "hub_path"),
    ("GET", "http://hub.example/acme/tiny/resolve/main/x", "hub_path"),
    ("GET", "*", "hub_path"),
    ("GET", "/acme/tiny/resolve/main/x?a=b#c", "hub_path"),
    ("POST", "/api/repos/create", "hub_path"),
    ("POST", "/api/models/acme/tiny/commit/main", "hub_path"),
    ("POST", "/acme/tiny/resolve/main/x", "method"),
    ("PUT", "/acme/tiny/resolve/main/x", "method"),
    ("DELETE", "/api/models/acme/tiny", "method"),
]


@pytest.mark.parametrize(
    ("method", "target", "reason"), MIRROR, ids=[f"{method} {target}" for method, target, _ in MIRROR]
)
def test_mirror(method: str, target: str, reason: str) -> None:
    verdict, asked = judged(check_mirror, SETTINGS, method, target)
    assert verdict == reason
    # What is asked of the hub is what the client said: nothing is "repaired" into another path.
    assert asked is None or asked == target


@pytest.mark.parametrize(
    ("verdict", "rule", "severity", "confidence"),
    [
        pytest.param(
            lambda: check_tunnel(SETTINGS, "data.example:443"), "net.labels", "warning", "high", id="own home"
        ),
        pytest.param(lambda: check_tunnel(SETTINGS, "zenodo.org:443"), "net.labels", "notice", "medium", id="general"),
        pytest.param(lambda: check_tunnel(SETTINGS, "other.example:443"), "net.refused", "notice", "low", id="other"),
        pytest.param(lambda: check_tunnel(SETTINGS, "evil.org:443"), "net.refused", "notice", "low", id="not listed"),
        pytest.param(
            lambda: check_mirror(SETTINGS, "GET", "/datasets/acme/task-data"), "net.labels", "warning", "high", id="hub"
        ),
    ],
)
def test_severity(verdict: Callable, rule: str, severity: str, confidence: str) -> None:
    """docs/specification.md, 9.8: own upstream → warning, high; a host for many purposes proves less (9.5)."""
    with pytest.raises(EgressRefused) as refused:
        verdict()
    found = refused.value.ruling
    assert (found.rule, found.severity, found.confidence) == (rule, severity, confidence)


@pytest.mark.parametrize(
    ("sni", "encrypted", "allowed"),
    [
        ("code.example", False, True),
        ("CODE.example", False, True),
        ("evil.org", False, False),
        (None, False, False),
        ("code.example", True, False),
        ("", False, False),
    ],
)
def test_server_name(sni: str | None, encrypted: bool, allowed: bool) -> None:
    verdict, _ = judged(check_sni, "code.example", sni, encrypted=encrypted)
    assert verdict == ("listed" if allowed else "sni")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        *((text, True) for text in ("8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")),
        *((text, False) for text in ("10.0.0.1", "172.16.0.1", "192.168.1.1", "127.0.0.1", "0.0.0.0", "100.64.0.1")),
        *((text, False) for text in ("169.254.169.254", "224.0.0.1", "255.255.255.255", "198.18.0.1", "240.0.0.1")),
        *((text, False) for text in ("::1", "::", "fe80::1%eth0", "fd00:ec2::254", "::ffff:127.0.0.1", "ff02::1")),
        *((text, False) for text in ("2002:7f00:1::", "64:ff9b::7f00:1", "2001:0:7f00:1::", "::ffff:169.254.169.254")),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    """IANA special-purpose address registries; 64:ff9b::/96 is RFC 6052, 2002::/16 RFC 3056."""
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        *(("a.b", "a.b", True), ("a.b", "x.a.b", False), ("*.a.b", "x.a.b", True), ("*.a.b", "a.b", False)),
        *(("*.a.b", "xa.b", False), ("*.a.b", ".a.b", False)),
    ],
)
def test_patterns(pattern: str, host: str, expected: bool) -> None:
    assert matches_any([pattern], host) is expected


def test_no_bytes_break_the_reader_of_a_hello() -> None:
    """Every beginning of a hello is incomplete, and a changed one is read, incomplete or refused, never a crash."""
    hello = client_hello("code.example")
    assert read_hello(hello) == Hello("code.example", False)
    assert read_hello(hello + b"more") == Hello("code.example", False)
    assert [read_hello(hello[:size]) for size in range(len(hello))] == [None] * len(hello)
    generator = random.Random(1)
    for _ in range(5000):
        changed = bytearray(hello)
        for _ in range(generator.randint(1, 4)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        with contextlib.suppress(NotTLS):
            read_hello(bytes(changed[: generator.randint(0, len(changed))]))


def test_hidden_and_double_names_in_a_hello() -> None:
    """Extension 0xfe0d hides another hello inside (ECH); two server names are none."""
    name = b"code.example"
    entry = b"\0" + len(name).to_bytes(2, "big") + name

    def hello(*extensions: tuple[int, bytes]) -> bytes:
        coded = b"".join(kind.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data for kind, data in extensions)
        body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(coded).to_bytes(2, "big") + coded
        message = b"\1" + len(body).to_bytes(3, "big") + body
        return b"\x16\3\1" + len(message).to_bytes(2, "big") + message

    def names(*entries: bytes) -> tuple[int, bytes]:
        return 0, len(b"".join(entries)).to_bytes(2, "big") + b"".join(entries)

    assert read_hello(hello(names(entry))) == Hello("code.example", False)
    assert read_hello(hello(names(entry), (0xFE0D, b"x"))) == Hello("code.example", True)
    assert read_hello(hello()) == Hello(None, False)
    for twice in (hello(names(entry, entry)), hello(names(entry), names(entry))):
        with pytest.raises(NotTLS):
            read_hello(twice)


def test_hop_by_hop_headers_are_dropped() -> None:
    """RFC 9110, 7.6.1: those of the list, and those that Connection names."""
    headers = [(b"connection", b"close, X-Private"), (b"x-private", b"1"), (b"te", b"trailers"), (b"accept", b"*/*")]
    assert drop_hop_headers([*headers, (b"proxy-authorization", b"x")]) == [(b"accept", b"*/*")]


def test_an_odd_name_is_no_name() -> None:
    assert [host_name(text) for text in ("", ".", "a.", "a b", "a_b.c", "A.B")] == [
        None,
        None,
        "a",
        None,
        "a_b.c",
        "a.b",
    ]


# --- settings from cards --------------------------------------------------------------------------------------------


def data_set(pages: list[str], *sources: tuple[str, str]) -> DataSet:
    return DataSet.model_construct(
        homepages=pages, sources=[Source.model_construct(kind=kind, where=where) for kind, where in sources]
    )


def card(pages: list[str], *sources: tuple[str, str]) -> TaskCard:
    return TaskCard.model_construct(dataset=data_set(pages, *sources))


@pytest.mark.parametrize(
    ("pages", "source", "host", "url"),
    [
        ([], ("git", "https://github.com/A/B"), "*.githubusercontent.com", "github.com/a/b"),
        ([], ("huggingface", "acme/Data"), "*.hf.co", "huggingface.co/datasets/acme/data"),
        ([], ("kaggle", "me/brain"), "kaggle.com", "kaggle.com/datasets/me/brain"),
        ([], ("url", "https://bucket.s3.amazonaws.com/x"), "bucket.s3.amazonaws.com", "s3.amazonaws.com/bucket/x"),
        ([], ("physionet", "mimic-cxr/2.1.0"), "*.physionet.org", "physionet.org/mimic-cxr/2.1.0"),
        (["https://www.Some.org/Data/"], ("manual", "ask the authors"), "some.org", "some.org/data"),
        (["https://nihcc.app.box.com/v/x"], ("path", "/data/x"), "*.nihcc.app.box.com", "nihcc.app.box.com/v/x"),
    ],
)
def test_homes(pages: list[str], source: tuple[str, str], host: str, url: str) -> None:
    homes = list_homes(data_set(pages, source))
    assert host in homes.hosts
    assert url in homes.urls


def test_homes_of_everything_that_is_downloaded() -> None:
    """Whole URLs of downloads, places beside the first, and other addresses of the same record or bucket."""
    source = Source(
        kind="url",
        where="https://zenodo.org/records/12/files",
        downloads=[Download(name="a.zip"), Download(name="https://ndownloader.figshare.com/files/{n}", numbers=(1, 2))],
        also=[
            Source(kind="synapse", where="syn1", downloads=[Download(name="syn2", to="x")]),
            Source(kind="url", where="https://bucket.s3.amazonaws.com", downloads=[Download(name="k")]),
            Source(kind="url", where="https://msd.s3-us-west-2.amazonaws.com", downloads=[Download(name="T.tar")]),
        ],
    )
    data = data_set([], ("manual", "ask")).model_copy(update={"sources": [source]})
    homes = list_homes(data)
    assert homes.hosts >= {
        *("zenodo.org", "ndownloader.figshare.com", "figshare.com", "*.prod.sagebase.org", "synapse.org"),
        *("bucket.s3.amazonaws.com", "msd.s3-us-west-2.amazonaws.com", "msd.s3.amazonaws.com"),
    }
    assert homes.urls >= {
        *("zenodo.org/records/12/files", "zenodo.org/record/12", "zenodo.org/api/records/12"),
        *("ndownloader.figshare.com/files", "synapse.org/syn2", "s3.amazonaws.com/bucket", "s3.amazonaws.com/msd"),
    }


def test_a_homepage_on_a_code_host_is_refused_by_url_only() -> None:
    """The published model of the data's authors often lives there: agents need it."""
    homes = list_homes(data_set(["https://github.com/a/model"], ("url", "https://files.example/d.zip")))
    assert "github.com" not in homes.hosts
    assert (homes.urls, homes.code) == ({"files.example/d.zip"}, {"github.com/a/model"})


def test_own_home_is_refused_as_a_whole_and_others_by_url_where_the_host_is_needed() -> None:
    own = card([], ("git", "https://git.example/me/own"))
    other = card(["https://else.example/x"], ("git", "https://code.example/me/other"))
    allow, deny = ["git.example", "code.example"], ["extra.example", "code.example/z"]
    settings = build_settings(own, [own, other], EgressConfig(allow=allow, deny=deny, hub=None, open_tls=False))
    reasons = {
        host: judged(check_tunnel, settings, f"{host}:443")[0]
        for host in ("git.example", "code.example", "else.example", "extra.example", "x.extra.example", "no.example")
    }
    assert reasons == {
        "git.example": "own_home",
        "code.example": "listed",
        "else.example": "dataset_home",
        "extra.example": "dataset_home",
        "x.extra.example": "dataset_home",
        "no.example": "not_listed",
    }
    assert settings.reachable == ("code.example",)
    for path, reason in (("me/other/x", "dataset_home"), ("z", "dataset_home"), ("me", "listed")):
        target = f"http://code.example/{path}"
        assert judged(check_plain, settings, "GET", target, [(b"host", b"code.example")])[0] == reason


def test_settings_survive_the_way_to_the_process_and_change_the_digest() -> None:
    sent = json.dumps(dataclasses.asdict(SETTINGS))
    assert EgressSettings.from_json(json.loads(sent)) == SETTINGS
    changed = [{"allow": ()}, {"hashes": ("0" * 64,)}, {"hub": None}, {"index": NO_INDEX}]
    digests = {dataclasses.replace(SETTINGS, **change).digest for change in changed} | {SETTINGS.digest}
    assert len(digests) == 5


def entry(digit: str, size: int) -> FileEntry:
    return FileEntry(sha256=digit * 64, bytes=size)


def test_label_hashes_leave_out_what_could_be_anybodys() -> None:
    """Tiny labels, licences of the raw data, and what the agent is given anyway."""
    case = CaseEntry(
        id="c",
        inputs={"i": entry("1", 10**6)},
        private={"a": entry("2", 64), "b": entry("3", 63), "i": entry("1", 10**6)},
    )
    manifest = Manifest(task="t", task_version=1, track="x", dataset="d", sampling="all", cases=[case])
    files = {"LICENSE": entry("4", 1000), "all.zip": entry("5", 10**6), "i": entry("1", 10**6)}
    files |= {"a/b.XML": entry("8", 1024), "c.xml": entry("9", 1023), "d.txt": entry("a", 2000)}
    receipt = Receipt(
        dataset="d", source="s", revision=None, licence="l", attribution="a", fetched_at=now(), files=files
    )
    assert label_hashes(manifest, receipt) == ["2" * 64, "5" * 64, "8" * 64]
    assert label_hashes(manifest) == ["2" * 64]
    told = {"name": "https://h.example/all.tar", "bytes": 10**6, "client": "c"}
    archive = receipt.model_copy(update={"files": {}, "downloads": [Downloaded(**told, sha256="6" * 64)]})
    table = manifest.model_copy(update={"private": {"ground_truth.csv": entry("7", 100), "n": entry("8", 10)}})
    assert label_hashes(table, archive) == ["2" * 64, "6" * 64, "7" * 64]


# --- the index of this machine's pip --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listing", "url"),
    [
        ("", None),
        ("global.timeout='60'\nglobal.extra-index-url='https://x.example/'\n", None),
        ("global.index-url='https://a.example/simple'\n", "https://a.example/simple"),
        ("global.index-url='https://a.example'\n:env:.index-url='https://b.example'\n", "https://b.example"),
        ("install.index-url='https://c.example'\nglobal.index-url='https://a.example'\n", "https://c.example"),
    ],
)
def test_configured_index(listing: str, url: str | None) -> None:
    """Lines as ``pip config list`` prints them; order of precedence from pip's manual."""
    assert configured_url(listing) == url


@pytest.mark.parametrize(
    ("url", "shown", "places"),
    [
        ("https://u:secret@in.example/simple/", "https://in.example/simple/", ("in.example:443",)),
        ("http://10.0.0.1:3141/root", "http://10.0.0.1:3141/root", ("10.0.0.1:3141",)),
        ("file:///srv/wheels", None, ()),
    ],
)
def test_index_without_its_password(url: str, shown: str | None, places: tuple[str, ...]) -> None:
    assert (parse_index_url(url).url, parse_index_url(url).places) == (shown, places)


def test_hosts_that_the_operators_index_links() -> None:
    """Internal hosts are trusted with their ports; public ones are allowed, so that homes of data stay refused."""
    links = ("../../files/pip-1.whl", "http://10.0.0.9:8080/pip-2.whl", "https://1.1.1.1/pip-3.whl#sha256=0")
    page = "".join(f'<a href="{link}">file</a>' for link in links).encode()
    with WebServer(lambda _: (200, {}, page)) as server:
        index = parse_index_url(f"{server.url}/simple")
        found = add_linked_hosts(index, server.url.replace("://", "://me:word@") + "/simple")
        (seen,) = server.seen
    assert (seen.target, seen.headers["authorization"]) == ("/simple/pip/", "Basic bWU6d29yZA==")
    assert found.hosts == ("127.0.0.1", "1.1.1.1", "10.0.0.9")
    assert found.places == (*index.places, "10.0.0.9:8080")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((404, {}, b""), ""),  # an index of one's own packages need not hold pip
        ((403, {}, b""), r"refuses \(HTTP 403\)"),
        ((200, {}, b'<form><a href="/login">Log in</a></form>'), "a login page"),
        (None, "does not answer"),
    ],
)
def test_an_index_that_refuses_is_the_machines_fault(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, dict[str, str], bytes] | None, says: str
) -> None:
    """Raised before a run starts, after three requests to what may recover; not where nothing is asked."""
    monkeypatch.setattr(rules, "INDEX_PAUSES_S", (0.0, 0.0, 0.0))
    with WebServer(lambda _: answer or (200, {}, b"")) as server:
        url = server.url if answer else "http://127.0.0.1:9"
        monkeypatch.setenv("PIP_INDEX_URL", url)
        fault = pytest.raises(InfrastructureError, match=rf"(?s){says}.*docs/network.md")
        with fault if says else contextlib.nullcontext():
            assert read_index() == parse_index_url(url)
    assert len(server.seen) == {"": 1, "a login page": 1, "does not answer": 0}.get(says, 3)
    assert read_index(ask=False) == parse_index_url(url)
