"""The lease of a run: one holder at a time, across processes; a dead holder is replaced, a live one never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from automedbench.agent.durable import lease as lease_module
from automedbench.agent.durable.lease import Holder, find_living_holder, hold_lease, identify, process_start
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import set_sharing, to_json

HOLD = """
    import sys, time
    from pathlib import Path
    from automedbench.agent.durable.lease import hold_lease
    with hold_lease(Path(sys.argv[1]), 0):
        print("held", flush=True)
        time.sleep(60)
"""


def quiet(_text: str) -> None:
    return None


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease."""
    command = [sys.executable, "-c", textwrap.dedent(HOLD), str(tmp_path / "lease.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_free_lease(tmp_path: Path) -> None:
    path = tmp_path / "runs/r1/lease.json"
    with hold_lease(path, 0) as lease:
        lease.check()
        held = Holder.model_validate_json(path.read_bytes())
        assert (held.pid, held.process_start) == (os.getpid(), process_start(os.getpid()))
    assert list(path.parent.iterdir()) == []


def test_released_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), hold_lease(tmp_path / "lease.json", 0):
        raise KeyboardInterrupt
    assert not (tmp_path / "lease.json").exists()


def test_a_live_holder_is_not_replaced(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with (
        pytest.raises(InfrastructureError, match=f"already being executed by process {holder.pid}") as caught,
        hold_lease(tmp_path / "lease.json", 0.3, poll_s=0.05, say=quiet),
    ):
        pass
    assert len(str(caught.value).splitlines()) <= 3


def test_a_killed_holder_is_replaced(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    said: list[str] = []
    with hold_lease(tmp_path / "lease.json", 10, poll_s=0.05, say=said.append) as lease:
        lease.check()
    assert any("Taking over" in line for line in said)
    assert list(tmp_path.iterdir()) == []


def test_a_second_starter_waits_for_the_first(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    threading.Timer(0.4, holder.terminate).start()
    said: list[str] = []
    with hold_lease(tmp_path / "lease.json", 10, poll_s=0.05, say=said.append):
        pass
    assert said[0].startswith(f"Waiting for process {holder.pid}")


def test_one_of_many_takes_a_dead_lease(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    inside: list[int] = []
    most: list[int] = []

    def starter(number: int) -> None:
        with hold_lease(tmp_path / "lease.json", 30, poll_s=0.001, say=quiet):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.01)
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(starter, range(8)))
    assert most == [1] * 8


def elsewhere(path: Path) -> Holder:
    """A holder on another node, of which only the file can be seen."""
    other = identify().model_copy(update={"host": "node-far-away", "boot": "other", "pid": 1})
    path.write_text(to_json(other.model_dump(mode="json")))
    return other


def test_a_silent_holder_on_another_node_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    elsewhere(path)
    os.utime(path, (0, 0))  # its clock may be wrong by decades
    began = time.monotonic()
    with hold_lease(path, 10, stale_s=0.4, poll_s=0.05, say=quiet) as lease:
        lease.check()
    assert time.monotonic() - began > 0.4


def test_a_beating_holder_on_another_node_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    elsewhere(path)
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.05):
            os.utime(path)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with (
            pytest.raises(InfrastructureError, match="node-far-away"),
            hold_lease(path, 1.2, stale_s=0.4, poll_s=0.05, say=quiet),
        ):
            pass
    finally:
        stop.set()
        thread.join()


def test_the_heartbeat_touches_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.02)
    path = tmp_path / "lease.json"
    with hold_lease(path, 0):
        os.utime(path, (0, 0))
        time.sleep(0.3)
        assert path.stat().st_mtime > 0


@pytest.mark.parametrize(("share", "mode"), [("private", 0o600), ("group", 0o640), ("all", 0o644)])
def test_who_may_read_a_lease(tmp_path: Path, share: str, mode: int) -> None:
    """As ``share`` says: the group must see who works on a run."""
    before = os.umask(0o077)
    try:
        set_sharing(share)
        with hold_lease(tmp_path / "lease.json", 0):
            assert (tmp_path / "lease.json").stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


def test_the_living_among_several(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """A process here is asked, one elsewhere is watched for a heartbeat; what the dead left is removed."""
    elsewhere(tmp_path / "far.json")
    found = find_living_holder(tmp_path, stale_s=0)
    assert found is not None and found.pid == holder.pid
    holder.kill()
    holder.wait()
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.02):
            os.utime(tmp_path / "far.json")

    thread = threading.Thread(target=beat)
    thread.start()
    found = find_living_holder(tmp_path, stale_s=60, poll_s=0.05)
    stop.set()
    thread.join()
    assert found is not None and found.host == "node-far-away"
    assert [path.name for path in tmp_path.iterdir()] == ["far.json"]
    assert find_living_holder(tmp_path, stale_s=0.2, poll_s=0.05) is None
    assert list(tmp_path.iterdir()) == []


def test_a_reused_process_number_is_not_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    old = identify().model_copy(update={"process_start": 1})
    path.write_text(to_json(old.model_dump(mode="json")))
    with hold_lease(path, 0.5, poll_s=0.05, say=quiet) as lease:
        lease.check()


def test_a_replaced_holder_notices_and_leaves_the_lease_alone(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    with hold_lease(path, 0) as lease:
        path.unlink()
        other = elsewhere(path)
        with pytest.raises(InfrastructureError, match="node-far-away"):
            lease.check()
    assert Holder.model_validate_json(path.read_bytes()) == other
    assert list(tmp_path.iterdir()) == [path]


def test_a_lost_lease_stays_lost(tmp_path: Path) -> None:
    """Whoever took it may have ended and removed it; what he did in between is not known here."""
    path = tmp_path / "lease.json"
    with hold_lease(path, 0) as lease:
        mine = path.read_bytes()
        path.unlink()
        with pytest.raises(InfrastructureError, match="taken by someone who removed it"):
            lease.check()
        path.write_bytes(mine)
        with pytest.raises(InfrastructureError, match="taken by someone who removed it"):
            lease.check()


def test_the_heartbeat_does_not_keep_a_successors_lease_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.02)
    path = tmp_path / "lease.json"
    with hold_lease(path, 0) as lease:
        path.unlink()
        elsewhere(path)
        os.utime(path, (0, 0))
        time.sleep(0.3)
        assert path.stat().st_mtime == 0
        with pytest.raises(InfrastructureError, match="node-far-away"):
            lease.check()


def test_a_holder_whose_disk_hangs_gives_up_before_others_may_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the time after which it counts as stale."""
    monkeypatch.setattr(lease_module, "_touch", lambda _path: False)
    with hold_lease(tmp_path / "lease.json", 0, stale_s=0.6) as lease:
        lease.check()
        time.sleep(0.4)
        with pytest.raises(InfrastructureError, match="was not touched for 0 s"):
            lease.check()


SUSPENDED = """
    import sys, time
    from pathlib import Path
    from automedbench.agent.durable.lease import hold_lease
    from automedbench.base.errors import InfrastructureError
    with hold_lease(Path(sys.argv[1]), 0, stale_s=2.0) as lease:
        lease.check()
        print("held", flush=True)
        sys.stdin.readline()
        try:
            lease.check()
            print("goes on", flush=True)
        except InfrastructureError as error:
            print(error, flush=True)
"""


@pytest.mark.parametrize(("suspended_s", "said"), [(0.0, "goes on"), (1.6, "suspended")])
def test_a_suspended_holder_does_not_go_on(tmp_path: Path, suspended_s: float, said: str) -> None:
    """SIGSTOP, a frozen container, a sleeping laptop: longer than half of the time, and another may be at work."""
    command = [sys.executable, "-c", textwrap.dedent(SUSPENDED), str(tmp_path / "lease.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        if suspended_s:
            process.send_signal(signal.SIGSTOP)
            time.sleep(suspended_s)
            process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n", timeout=30)
    assert said in out


def test_a_suspended_holder_on_this_host_is_not_replaced(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGSTOP)
    with (
        pytest.raises(InfrastructureError, match=f"process {holder.pid}"),
        hold_lease(tmp_path / "lease.json", 0.6, stale_s=0.2, poll_s=0.05, say=quiet),
    ):
        pass


def test_another_process_namespace_is_another_host(tmp_path: Path) -> None:
    """Containers of one host may have the same name and boot; their process numbers mean different processes."""
    path = tmp_path / "lease.json"
    here = identify()
    boot = here.boot.split()[0]
    path.write_text(to_json(here.model_copy(update={"boot": f"{boot} pid:[1]", "pid": 1}).model_dump(mode="json")))
    with (
        pytest.raises(InfrastructureError, match="process 1"),
        hold_lease(path, 0.3, stale_s=30, poll_s=0.05, say=quiet),
    ):
        pass


def test_a_claim_whose_maker_died_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    old = identify().model_copy(update={"process_start": 1})
    path.write_text(to_json(old.model_dump(mode="json")))
    claim = tmp_path / f"lease.json.{old.token}"
    claim.touch()
    os.utime(claim, (2**32, 2**32))  # the file server's clock is ahead by decades
    began = time.monotonic()
    with hold_lease(path, 10, stale_s=0.4, poll_s=0.05, say=quiet):
        assert time.monotonic() - began > 0.4
    assert list(tmp_path.iterdir()) == []


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from automedbench.agent.durable.lease import hold_lease
    unlink = Path.unlink
    def unlink_then_die(path, missing_ok=False):
        unlink(path, missing_ok=missing_ok)
        if path.name == "lease.json":
            os.kill(os.getpid(), signal.SIGKILL)
    Path.unlink = unlink_then_die
    with hold_lease(Path(sys.argv[1]), 0):
        pass
"""


def test_a_claim_outlives_its_lease_until_the_next_holder(tmp_path: Path) -> None:
    """A process may be killed while it gives its lease up: between removing the lease and removing its claim."""
    path = tmp_path / "lease.json"
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (claim,) = tmp_path.iterdir()
    assert claim.name.startswith("lease.json.")
    with hold_lease(path, 0, say=quiet):
        assert list(tmp_path.iterdir()) == [path]


def test_a_repeated_request_of_the_file_server_is_no_other_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS repeats a link whose answer was lost and says 'exists', and a cached link count hides that it was made."""

    link = os.link

    def answer_lost(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", answer_lost)
    with hold_lease(tmp_path / "lease.json", 5, poll_s=0.05, say=quiet) as lease:
        lease.check()


RACE = """
    import sys, time
    from pathlib import Path
    from automedbench.agent.durable.lease import hold_lease
    place = Path(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[2])):
        with hold_lease(place / "lease.json", 60, poll_s=0.001, say=lambda _text: None) as lease:
            lease.check()
            (place / "inside").mkdir()  # fails when another process is inside
            time.sleep(0.002)
            (place / "inside").rmdir()
            lease.check()
"""


def test_processes_take_turns(tmp_path: Path) -> None:
    """Real processes, all at once, on a lease that a dead one left behind."""
    dead = identify().model_copy(update={"process_start": 1})
    (tmp_path / "lease.json").write_text(to_json(dead.model_dump(mode="json")))
    command = [sys.executable, "-c", textwrap.dedent(RACE), str(tmp_path), "15"]
    starters = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for starter in starters:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("\n")
        starter.stdin.flush()
    ended = [(starter.communicate(timeout=120)[1], starter.returncode) for starter in starters]
    assert ended == [("", 0)] * 4
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_lease_is_waited_for_and_reported(tmp_path: Path) -> None:
    (tmp_path / "lease.json").write_text("{")
    with (
        pytest.raises(InfrastructureError, match=r"lease\.json"),
        hold_lease(tmp_path / "lease.json", 0.2, poll_s=0.05, say=quiet),
    ):
        pass
