"""A bundle whose forger owns the key cannot fill the disk that opens it."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from automedbench.base.errors import InfrastructureError
from automedbench.base.files import to_json
from automedbench.base.records import FileEntry
from automedbench.commands._bundle import RECORD, SIGNATURE, Bundle, Labels, open_bundle


def test_a_sparse_member_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """Two bytes that stand for a terabyte; pax headers of GNU tar, sparse format 0.1."""
    size = 10**12
    files = {"plan.json": FileEntry(sha256="0" * 64, bytes=size)}
    record = Bundle(labels=Labels(lab="forger"), code_version="0", agents={}, runs=[], files=files)
    text, key = to_json(record.model_dump(mode="json", by_alias=True)).encode(), Ed25519PrivateKey.generate()
    signed = {"key": key.public_key().public_bytes_raw().hex(), "signature": base64.b64encode(key.sign(text)).decode()}
    with tarfile.open(tmp_path / "bundle.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in ((RECORD, text), (SIGNATURE, to_json(signed).encode()), ("plan.json", b"{}")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if name == "plan.json":
                info.pax_headers = {"GNU.sparse.map": "0,2", "GNU.sparse.size": str(size)}
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(InfrastructureError, match=r"'plan\.json' is a sparse file"):
        open_bundle(tmp_path / "bundle.tar", tmp_path / "laid out")
    assert not list((tmp_path / "laid out").rglob("*"))
