"""A bundle whose forger owns the key cannot fill the disk that opens it; the form of its archive of calls."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import to_json
from automedbench.base.records import FileEntry, RunId
from automedbench.commands._bundle import RECORD, SIGNATURE, Bundle, Labels, open_bundle
from automedbench.commands._transcript import check_archive
from automedbench.sandbox.airlock.archive import pack


def signed_bundle(place: Path, record: Bundle, member: tarfile.TarInfo | None = None) -> Path:
    """The record signed by its forger, and one member of two bytes."""
    text, key = to_json(record.model_dump(mode="json", by_alias=True)).encode(), Ed25519PrivateKey.generate()
    signed = {"key": key.public_key().public_bytes_raw().hex(), "signature": base64.b64encode(key.sign(text)).decode()}
    with tarfile.open(place, "w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in (
            (tarfile.TarInfo(RECORD), text),
            (tarfile.TarInfo(SIGNATURE), to_json(signed).encode()),
            *([(member, b"{}")] if member else []),
        ):
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return place


@pytest.mark.parametrize("agent", ["..", ".", "", "a/../../b", "\x1b[2J", "x" * 200])
def test_a_run_that_leads_elsewhere_is_refused(tmp_path: Path, agent: str) -> None:
    """Checks write beside the runs of a bundle: a name must not lead out of its folder."""
    runs = [RunId(agent=agent, task="t", tier="lite", repeat=1)]
    record = Bundle(labels=Labels(lab="forger"), code_version="0", agents={}, runs=runs, files={})
    with pytest.raises(InfrastructureError, match="is not the name of a run"):
        open_bundle(signed_bundle(tmp_path / "bundle.tar", record), tmp_path / "laid out")


def test_a_bundle_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="does not exist: name a bundle"):
        open_bundle(tmp_path / "none.bundle", tmp_path / "laid out")


def test_a_sparse_member_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """Two bytes that stand for a terabyte; pax headers of GNU tar, sparse format 0.1."""
    size, run = 10**12, RunId(agent="a", task="t", tier="lite", repeat=1)
    member = tarfile.TarInfo(f"runs/{run.path}/attempts/0001/outputs.tar")
    files = {member.name: FileEntry(sha256="0" * 64, bytes=size)}
    record = Bundle(labels=Labels(lab="forger"), code_version="0", agents={}, runs=[run], files=files)
    member.pax_headers = {"GNU.sparse.map": "0,2", "GNU.sparse.size": str(size)}
    signed_bundle(tmp_path / "bundle.tar", record, member)
    with pytest.raises(InfrastructureError, match=r"outputs\.tar' is a sparse file"):
        open_bundle(tmp_path / "bundle.tar", tmp_path / "laid out")
    assert not list((tmp_path / "laid out").rglob("*"))


def test_an_archive_of_calls_has_each_name_once(tmp_path: Path) -> None:
    """An output of zeros may have been stored as a hole, which is honest."""
    archive, output = tmp_path / "exec.tar", tmp_path / "exec" / "0001.out"
    output.parent.mkdir()
    with open(output, "wb") as stream:
        stream.truncate(10 << 20)
    pack(output.parent, archive)
    with tarfile.open(archive) as tar:
        assert archive.stat().st_size < 1 << 20 and tar.getmember("0001.out").issparse()
    assert check_archive(archive) == ""
    with tarfile.open(archive, "a") as tar:
        tar.addfile(tarfile.TarInfo("0001.out"))
    assert "holds a name twice" in check_archive(archive)
