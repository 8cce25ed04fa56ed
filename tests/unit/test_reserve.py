"""Space that is held back for the end of a run: what a full disk leaves of log, journal and workspace."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from automedbench.agent.durable import workspaces
from automedbench.agent.durable.workspaces import put_away
from automedbench.agent.log import RunLog
from automedbench.base import reserve
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import unwritable, write_text
from automedbench.base.reserve import RESERVE, RESERVE_BYTES, hold_reserve, is_reserve_used


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on a disk that is full as long as the reserve is held."""
    replace = os.replace

    def replace_if_room(source: Path, target: Path) -> None:
        if (tmp_path / RESERVE).exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_if_room)
    return tmp_path


def test_what_does_not_fit_is_written_once_the_reserve_is_given_up(full: Path) -> None:
    with hold_reserve(full):
        held = (full / RESERVE).stat().st_blocks * 512
        assert not is_reserve_used()
        write_text(full / "code.py", "print(1)")
        assert is_reserve_used()
    assert (held, (full / "code.py").read_text(), (full / RESERVE).exists()) == (RESERVE_BYTES, "print(1)", False)
    with pytest.raises(InfrastructureError, match="Cannot write"), hold_reserve(full / "none"):
        (full / RESERVE).touch()  # of nobody: without a reserve the error is raised
        write_text(full / "more.py", "")


def test_a_line_of_the_log_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``/dev/full`` takes nothing; the line waits in the buffer until there is room."""
    with RunLog(tmp_path / "log") as log, hold_reserve(tmp_path):
        log.event("one")
        stream = log._events._stream
        there, nowhere = os.dup(stream.fileno()), os.open("/dev/full", os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        give_up = reserve.give_up_reserve
        monkeypatch.setattr(reserve, "give_up_reserve", lambda: (os.dup2(there, stream.fileno()), give_up())[1])
        log.event("two")
    kinds = [line.split('"type": "')[1][:3] for line in (tmp_path / "log/events.jsonl").read_text().splitlines()]
    assert kinds == ["one", "two"]


def test_of_a_workspace_that_does_not_fit_only_what_scores_need_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"agents_outputs/a.json": 3, "agents_outputs/b.json": 3, "big": 2, "notes.md": 0.01}
    for name, mb in sizes.items():
        (tmp_path / "workspace" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "workspace" / name).write_bytes(b"x" * int(mb * 2**20))
    pack = workspaces.pack

    def pack_if_room(folder: Path, archive: Path, *wanted: object) -> None:
        if (folder / "big").exists():
            raise unwritable(archive, OSError(errno.ENOSPC, "")) from OSError(errno.ENOSPC, "")
        pack(folder, archive, *wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(workspaces, "pack", pack_if_room)
    with pytest.raises(InfrastructureError):
        put_away(tmp_path)
    put_away(tmp_path, {"agents_outputs/a.json": 4 * 2**20, "agents_outputs/b.json": 10})
    left = {
        str(path.relative_to(tmp_path / "workspace")) for path in tmp_path.rglob("*.*") if "workspace/" in str(path)
    }
    assert left == {"agents_outputs/a.json", "notes.md"}
