"""Cards that runs share in turn: one holder at a time, in order, whatever ends; and none of it in a run's time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from waiting import wait_for

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.boxes import CLEARED, LocalSandbox
from automedbench.sandbox.container import process, turns
from automedbench.sandbox.container.gpus import Card, grant_cards
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.container.turns import Clerk, Turns, queue_folder
from automedbench.sandbox.evidence.gate import WANTED, WITHDRAWN


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "nvidia0").touch()
    return "GPU-0", tmp_path / "nvidia0"


def start(work: Callable[[], None], *, alone: bool = True) -> int:
    """A process of its own that does ``work``; ``alone``: without the open files, and so the locks, of this one."""
    pid = os.fork()
    if pid == 0:
        if alone:
            os.closerange(3, 256)
        try:
            work()
        finally:
            os._exit(0)
    return pid


def take_turns(cards: list[tuple[str, Path]], record: Path, times: int, hold_s: float) -> None:
    """Hold the cards ``times`` times, and note begin and end of each; a line is written at once."""
    mine = Turns(cards)
    with open(record, "ab", buffering=0) as lines:
        for _ in range(times):
            mine.take()
            lines.write(b"begin %d %f\n" % (os.getpid(), time.monotonic()))
            time.sleep(hold_s)
            lines.write(b"end %d %f\n" % (os.getpid(), time.monotonic()))
            mine.close()


def overlaps(record: Path, killed: set[int] = frozenset()) -> tuple[int, int]:  # type: ignore[assignment]
    """Turns in the record, and those that began while another process, not killed, had its turn."""
    holder, wrong, number = 0, 0, 0
    for line in record.read_text().splitlines():
        what, pid, _ = line.split()
        if what == "begin":
            wrong += holder not in {0, *killed}
            holder, number = int(pid), number + 1
        else:
            wrong += holder != int(pid)
            holder = 0
    return number, wrong


def test_four_runs_never_have_a_card_at_once(card: tuple[str, Path], tmp_path: Path) -> None:
    """2 000 turns; and nobody starves: nearly every process gets its turns at the same pace."""
    record = tmp_path / "record"
    for pid in [start(lambda: take_turns([card], record, 500, 0.0)) for _ in range(4)]:
        os.waitpid(pid, 0)
    assert overlaps(record) == (2000, 0)
    assert len(os.listdir(queue_folder("GPU-0") / "queue")) <= 2  # the gate, and the last ticket


def test_the_order_is_that_of_asking(card: tuple[str, Path], tmp_path: Path) -> None:
    record, queue = tmp_path / "record", queue_folder("GPU-0") / "queue"
    mine = Turns([card])
    mine.take()
    pids = []
    for number in range(5):
        pids.append(start(lambda: take_turns([card], record, 1, 0.0)))
        while len(os.listdir(queue)) < number + 3:
            time.sleep(0.002)
    mine.close()
    for pid in pids:
        os.waitpid(pid, 0)
    assert [int(line.split()[1]) for line in record.read_text().splitlines()[::2]] == pids


@pytest.mark.parametrize("kills", [30, pytest.param(100, marks=pytest.mark.long)])
def test_killed_holders_and_waiters_hold_nobody_up(card: tuple[str, Path], tmp_path: Path, kills: int) -> None:
    """Half of the kills are of the holder; nothing else serves the queue that could be killed."""
    record, killed, chance = tmp_path / "record", set[int](), random.Random(5)
    record.touch()
    alive = [start(lambda: take_turns([card], record, 10**6, 0.001)) for _ in range(4)]
    for _ in range(kills):
        time.sleep(0.01)
        victim = alive.pop(chance.randrange(4))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        killed.add(victim)
        alive.append(start(lambda: take_turns([card], record, 10**6, 0.001)))
    before = overlaps(record, killed)
    time.sleep(0.2)
    after = overlaps(record, killed)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert after[1] == 0
    assert after[0] > before[0] > kills


def test_two_cards_are_taken_in_one_order(card: tuple[str, Path], tmp_path: Path) -> None:
    """A run that is given them the other way round takes them in order of their index: no two wait for each other."""
    (tmp_path / "nvidia1").touch()
    known = [Card(f"GPU-{k}", "H100", (tmp_path / f"nvidia{k}",), k) for k in (0, 1)]
    record = tmp_path / "record"
    order = [(each.uuid, each.nodes[-1]) for each in known]
    pids = [start(partial(take_turns, cards, record, 100, 0.0)) for cards in (order, order, order[1:], order[:1])]
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
    grants = [grant_cards(2, cards=known, share=2, environment={"CUDA_VISIBLE_DEVICES": "1,0"}) for _ in range(2)]
    assert [each.uuid for each in grants[1].cards] == ["GPU-1", "GPU-0"]  # as the program counts them
    with pytest.raises(InfrastructureError, match="Other runs hold"):
        grant_cards(1, cards=known, share=2, environment={}, patience_s=0)
    for grant in grants:
        grant.close()


def test_members_are_spread_over_cards(card: tuple[str, Path], tmp_path: Path) -> None:
    (tmp_path / "nvidia1").touch()
    known = [Card(f"GPU-{k}", "H100", (tmp_path / f"nvidia{k}",), k) for k in (0, 1)]
    grants = [grant_cards(1, cards=known, share=3, environment={}) for _ in range(6)]
    assert [each.cards[0].index for each in grants] == [0, 1, 0, 1, 0, 1]
    grants[2].close()
    grants.append(grant_cards(1, cards=known, share=3, environment={}))
    assert grants[-1].cards[0].index == 0
    for grant in grants:
        grant.close()


def test_a_run_with_a_card_of_its_own_is_waited_for(card: tuple[str, Path]) -> None:
    """Also that of another user or another folder: the lock on the device file is the same."""
    own = grant_cards(1, cards=[Card("GPU-0", "H100", (card[1],), 0)], environment={})
    mine = Turns([card])
    threading.Timer(0.3, own.close).start()
    assert mine.take() > 0.2
    mine.close()


def test_memory_of_the_one_before_is_waited_for(card: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True])
    mine = Turns([card], lambda _: next(answers))
    assert mine.take() >= 0.04
    mine.close()
    monkeypatch.setattr(turns, "IDLE_PATIENCE_S", 0.1)
    with pytest.raises(InfrastructureError, match="no run of this benchmark computes on GPU GPU-1"):
        Turns([("GPU-1", card[1])], lambda _: False).take()


# --- in a sandbox ---------------------------------------------------------------------------------------------------


class Shared(LocalSandbox):
    """A local sandbox whose calls take turns on a card."""

    calls = 0

    def __init__(self, folder: Path, card: tuple[str, Path], longest_s: float = 60.0) -> None:
        for name in ("public", "workspace", "log"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        super().__init__(public=folder / "public", workspace=folder / "workspace")
        self._turns, self._longest_turn_s, self.log = Turns([card]), longest_s, folder / "log"

    def bash(self, code: str) -> CodeResult:
        self.calls += 1
        return self.run_code("bash", code, call=self.calls, turn=1, log=self.log, timeout_s=30)

    @property
    def turns(self) -> Turns:
        assert self._turns is not None
        return self._turns


@pytest.fixture
def box(card: tuple[str, Path], tmp_path: Path) -> Iterator[Shared]:
    with Shared(tmp_path / "one", card, longest_s=0.3) as sandbox:
        yield sandbox


def free(card: tuple[str, Path]) -> bool:
    with open(card[1], "rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_turn_lasts_from_the_call_to_its_last_process(card: tuple[str, Path], box: Shared) -> None:
    assert box.bash(f"flock -n {card[1]} true; echo $?").stdout == "1\n"
    wait_for(lambda: free(card))
    assert not box.turns.held
    box.bash("sleep 0.8 >/dev/null 2>&1 &")
    time.sleep(0.2)
    assert not free(card)  # it could open the card at any time
    wait_for(lambda: free(card))
    held_s, waited_s = box.gpu_turns_s or (0, 0)
    assert 0.8 < held_s < 1.6
    assert waited_s < 0.1


def test_no_call_without_its_turn(card: tuple[str, Path], box: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run of the user may keep so many descriptors on their way that the kernel passes no more on."""
    refusal = OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
    monkeypatch.setattr(process.socket, "send_fds", Mock(side_effect=refusal))
    with pytest.raises(InfrastructureError, match="cannot be handed to a code call: Too many references"):
        box.bash("touch made")
    assert not (box.workspace_dir / Path("made")).exists()
    assert free(card)


def test_background_work_is_told_and_then_ended(card: tuple[str, Path], box: Shared) -> None:
    box.bash("sleep 60 >/dev/null 2>&1 & echo $! >pid")
    assert box.bash("true").note == ""
    time.sleep(0.4)
    told = box.bash("kill -0 $(cat pid) && echo lives")
    assert told.note.startswith("Your background processes have had the GPU")
    assert told.stdout == "lives\n"
    ended = box.bash("true")
    assert ended.note == CLEARED
    wait_for(lambda: free(card))


CHAIN = """
import os, time
os.setsid()
while not os.path.exists("stop"):
    if os.fork():
        os._exit(0)
"""


def test_a_chain_of_processes_keeps_the_turn(card: tuple[str, Path], box: Shared) -> None:
    """Each starts the next one and ends: what a list of all processes names has ended before it is looked at."""
    (Path(box.workspace_dir) / "chain.py").write_text(CHAIN)
    box.bash(f"{sys.executable} -I -S chain.py >/dev/null 2>&1 & sleep 0.3")
    for _ in range(100):
        assert not free(card)
        time.sleep(0.01)
    box.bash("touch stop")
    wait_for(lambda: free(card))


def test_waiting_is_in_no_time_of_a_call(card: tuple[str, Path], tmp_path: Path, box: Shared) -> None:
    mine = Turns([card])
    mine.take()
    threading.Timer(1.5, mine.close).start()
    took = box.take_turn()
    result = box.bash("sleep 0.3")
    assert took >= 1.4
    assert 0.3 <= result.elapsed_s < 1.4


def test_what_was_told_before_the_turn_is_no_new_wait(card: tuple[str, Path]) -> None:
    """One process that waited has ended and another one has come while the turn was lent: both were told too late."""
    reader, writer = os.pipe()
    trace, box, lent = Mock(), Mock(), list[int]()
    trace.guard.return_value = reader
    trace.let_open.side_effect = lambda is_turn: is_turn and os.write(writer, WITHDRAWN + WANTED)
    box.keep_cards.return_value = False
    box.lend.side_effect = lambda descriptors, kept: lent.extend(map(os.dup, descriptors))
    clerk = Clerk(Turns([card]), trace, [])
    with clerk.beginning(box):
        os.write(writer, WANTED)
    wait_for(lambda: len(box.note_waits.mock_calls) == 4)
    clerk.check()
    assert [each.args[0] for each in box.note_waits.mock_calls] == [True, False, False, False]
    for descriptor in (writer, *lent):
        os.close(descriptor)


@pytest.mark.parametrize("times", [1, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("victims", ["driver", "supervisor", "driver supervisor"])
def test_a_turn_ends_with_a_killed_run(card: tuple[str, Path], tmp_path: Path, victims: str, times: int) -> None:
    """Also with that of its supervisor, which has the locks; what the call started ends with it."""
    for number in range(times):
        ready = tmp_path / f"ready-{number}"

        def run(place: Path = tmp_path / f"run-{number}", ready: Path = ready) -> None:
            with Shared(place, card) as sandbox:
                ready.touch()
                sandbox.bash("sleep 60")

        pid = start(run, alone=False)
        wait_for(lambda: ready.exists() and not free(card))  # noqa: B023
        time.sleep(0.3)
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        supervisors = [each for each in below if b"supervisor" in Path(f"/proc/{each}/cmdline").read_bytes()]
        for victim in victims.split():
            os.kill(pid if victim == "driver" else int(supervisors[0]), signal.SIGKILL)
        wait_for(lambda: free(card))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
