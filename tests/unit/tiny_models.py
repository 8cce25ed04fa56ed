"""CheXbert and RadGraph with a few hundred random weights, in the files and forms of the published ones."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest

from automedbench.metrics.checkpoints import quiet_and_offline
from automedbench_rehearsal.making.models import (
    CLASSES,
    chexbert_state,
    write_bert,
    write_chexbert,
    write_radgraph,
    write_wordnet,
)

__all__ = ["CLASSES", "chexbert_state", "write_bert", "write_chexbert", "write_radgraph", "write_wordnet"]


def require_packages(*names: str) -> None:
    """Skip the test where an optional package is not installed."""
    with quiet_and_offline():
        for name in names:
            pytest.importorskip(name, reason=f"{name} is not installed (make setup-radiology)")


def pack(folder: Path, archive: Path, prefix: str = "") -> Path:
    """The folder's contents as a tar.gz, at its top level."""
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, arcname=f"{prefix}{path.name}")
    return archive


def refuse_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket can be made, no name looked up."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("something wanted to use the network")

    monkeypatch.setattr("socket.socket.__init__", refused)
    monkeypatch.setattr("socket.getaddrinfo", refused)


def main(folder: Path) -> None:
    """In a new process, with sockets that cannot be made from the start: load both models and use them."""
    refuse_network(pytest.MonkeyPatch())
    from automedbench.metrics.chexbert import ChexbertLabeler
    from automedbench.metrics.radgraph import RadgraphScorer

    codes = ChexbertLabeler(folder / "chexbert.pth", folder / "bert").label("heart size is normal")
    graph = RadgraphScorer(folder / "radgraph.tar.gz", folder / "bert").annotate("heart size is normal")
    print(json.dumps({"codes": codes.tolist(), "tokens": [entity["tokens"] for entity in graph.values()]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
