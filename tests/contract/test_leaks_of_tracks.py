"""The leak audit and the tripwire understand what every track writes: names upstream, classes, private files."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys._bench import Bench, stage, toy_names

from automedbench.base.files import sha256_file
from automedbench.datasets.leaks import case_class, read_split, upstream_names, upstream_order
from automedbench.sandbox.egress.rules import MIN_LABEL_BYTES, label_hashes
from automedbench.tracks import get_track

WITH_CLASSES = {"classification", "detection", "vqa"}


@pytest.fixture(scope="module", params=toy_names())
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return stage(request.param, tmp_path_factory.mktemp(request.param))


def test_names_and_order_upstream_are_known(bench: Bench) -> None:
    """A track that writes split.json in another form would be audited for nothing."""
    split = read_split(bench.private)
    names = upstream_names(split)
    assert sorted(names) == sorted(bench.cases)
    assert all(names.values())
    assert sorted(upstream_order(split, bench.cases)) == list(range(len(bench.cases)))


def test_classes_are_known(bench: Bench) -> None:
    """Where the answer is one of few, the order and the files are held against it."""
    split = read_split(bench.private)
    found = {case_class(split, bench.private, case) for case in bench.cases} - {None}
    assert bool(found) == (bench.card.track in WITH_CLASSES)


def test_every_private_file_trips_the_wire(bench: Bench) -> None:
    """All but those too short to be anybody's own, and those that repeat an input."""
    hashes = set(label_hashes(bench.manifest))
    copies = get_track(bench.card.track).copies_of_inputs
    files = [path for path in bench.private.rglob("*") if path.is_file()]
    assert {"split.json", *(path.name for path in bench.private.glob("*.csv"))} <= {path.name for path in files}
    missed = [
        path.relative_to(bench.private).as_posix()
        for path in files
        if path.stat().st_size >= MIN_LABEL_BYTES and path.name not in copies and sha256_file(path) not in hashes
    ]
    assert missed == []


def test_no_public_file_trips_the_wire(bench: Bench) -> None:
    """An agent may send and fetch what it was given."""
    hashes = set(label_hashes(bench.manifest))
    shown: list[Path] = [path for path in bench.public.rglob("*") if path.is_file()]
    assert shown
    assert not [path for path in shown if sha256_file(path) in hashes]
