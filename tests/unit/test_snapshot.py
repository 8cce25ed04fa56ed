"""Snapshots of a workspace: bounded, the same whatever order a folder tells its files in, outputs first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from automedbench.agent import workspace as module
from automedbench.agent.workspace import Snapshot, list_files, take_snapshot


def put(folder: Path, *names: str, content: str = "x") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_a_folder_that_exceeds_the_bound_is_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five files may be named: two outputs and one below b; the six of a are a number."""
    monkeypatch.setattr(module, "NAMED_FILES", 5)
    put(tmp_path, *(f"a/{number}" for number in range(6)), "b/1", "agents_outputs/c1/p", "agents_outputs/c2/p")
    first = take_snapshot(tmp_path)
    assert sorted(first.files) == ["agents_outputs/c1/p", "agents_outputs/c2/p", "b/1"]
    assert first.unnamed == 6
    put(tmp_path, "a/6")
    second = take_snapshot(tmp_path)
    assert second.unnamed == 7
    changes = second.changes_since(first)
    assert not changes.changed and first.apply(changes) == second


def test_names_are_bounded_by_their_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMED_CHARACTERS", 100)
    put(tmp_path, "long/" + "n" * 100, "short/x")
    assert list(take_snapshot(tmp_path).files) == ["short/x"]
    monkeypatch.setattr(module, "LISTED_CHARACTERS", 7)
    assert list_files(Snapshot({"a/b": (1, 1), "c/d": (2, 2), "e/f": (3, 3)})) == {"a/b": 1, "c/d": 2}


def test_what_cannot_be_reached_is_left_out(tmp_path: Path) -> None:
    """A path of more bytes than the kernel takes, and a folder whose name is no UTF-8, which is looked into."""
    handle = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=handle)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    with open(odd + b"/file", "wb") as stream:
        stream.write(b"12345")
    seen = take_snapshot(tmp_path)
    assert {path: size for path, (size, _) in seen.files.items()} == {"\ufffd/file": 5}
