"""A run with GPUs in the real container: its own device files and no others, variables, a context on each card.

No card is needed: harmless devices of the machine stand for cards, and a library of six lines for the driver.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from unprivileged import IMAGES, as_user, user_folder, why_not
from waiting import wait_for

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Language
from automedbench.sandbox.boxes import CLEARED, ApptainerSandbox
from automedbench.sandbox.container import gpus
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.container.turns import Turns

sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu_check import CHECKS, Node, check, rehearse

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(180)]

# A run that tries to keep the card: a daemon in a session of its own locks it and outlives the call. It looks for the
# queue, too.
HOSTILE = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", DAEMON], start_new_session=True, stdout=subprocess.DEVNULL)
assert not [name for name in os.listdir("/tmp") if "automedbench-gpus" in name]
"""
DAEMON = """
import fcntl, os, time
card, a = open("/dev/full"), time.time()
try:
    fcntl.flock(card, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    pass
time.sleep(0.3)
open(f"/workspace/held-{os.getpid()}", "w").write(str([a, time.time()]))
"""
LOOK = """
import json, os
print(json.dumps([sorted(set(os.listdir("/dev")) & {"full", "fuse"}), os.environ["CUDA_VISIBLE_DEVICES"],
                  open("/dev/full", "wb").fileno() > 2]))
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if reason := why_not("light"):
        pytest.skip(reason)
    if shutil.which("gcc") is None:
        pytest.skip("no gcc, with which the driver is made up")
    for name in ("list_cards", "list_devices"):  # put back what the rehearsal replaces
        monkeypatch.setattr(gpus, name, getattr(gpus, name))
    with user_folder() as folder:
        yield folder


def looked(folder: Path) -> Any:
    """What a call in a run of one card sees, what it complains of, and what the run's record says."""
    for name in ("public", "workspace", "log"):
        (folder / name).mkdir(exist_ok=True)
    image = IMAGES / "light.sif"
    with ApptainerSandbox(image=image, public=folder / "public", workspace=folder / "workspace", gpu=1) as box:
        done = box.run_code("python", LOOK, call=1, turn=1, log=folder / "log", timeout_s=30)
        found = box.drain_findings()
        box.selfcheck()
        return json.loads(done.stdout or "null"), done.stderr, box.enforced, found, box.drain_gpu_use()


def test_own_cards_and_no_others(place: Path) -> None:
    rehearse(place)
    seen, complaint, enforced, findings, used = as_user(lambda: looked(place))
    assert seen == [["full"], "GPU-full", True], complaint
    assert (enforced.gpu, enforced.gpu_names, enforced.selfcheck) == (True, ["made-up card full"], True)
    assert findings == []
    assert used is None  # there is no NVML here; a record says so, and no number is made up


def taking_turns(folder: Path) -> list[list[float]]:
    """Begin and end of every call of four runs that share one card, and of what one of them leaves behind."""
    (folder / "public").mkdir(exist_ok=True)

    def run(number: int) -> None:
        for name in ("workspace", "log"):
            (folder / str(number) / name).mkdir(parents=True)
        code = "import time; card = open('/dev/full'); a = time.time(); time.sleep(0.1); print([a, time.time()])"
        code += "" if number else f"\nDAEMON = {DAEMON!r}{HOSTILE}"
        home = folder / str(number)
        own = {"workspace": home / "workspace", "gpu": 1, "gpu_share": 4}
        with ApptainerSandbox(image=IMAGES / "light.sif", public=folder / "public", **own) as box:
            for call in range(1, 6):
                done = box.run_code("python", code, call=call, turn=1, log=home / "log", timeout_s=30)
                assert done.status == "ok" and done.elapsed_s < 2, done
                time.sleep(0.0 if number else 0.6)  # its daemon would be at work beside the next call
            (home / "turns.json").write_text(json.dumps(box.gpu_turns_s))
            assert box.enforced.gpu_share == 4

    pids = []
    for number in range(4):
        pids.append(os.fork())
        if not pids[-1]:
            try:
                run(number)
            finally:
                os._exit(0)
    for pid in pids:
        os.waitpid(pid, 0)
    turns = [json.loads(path.read_text()) for path in sorted(folder.glob("*/turns.json"))]
    assert len(turns) == 4
    return [json.loads(path.read_text()) for path in [*folder.glob("*/log/*.out"), *folder.glob("0/workspace/held-*")]]


def test_four_runs_take_turns_on_a_card(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its own container; no two calls are at once, and no call's own time grows; one run is hostile."""
    cards = rehearse(place)
    monkeypatch.setattr(gpus, "list_cards", lambda: cards[:1])
    calls = sorted(as_user(lambda: taking_turns(place)))
    assert len(calls) == 20 + 5
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(calls)), calls


# Every way to a device, each in a thread of its own; and one that changes the path while others open it.
WAYS = """
import ctypes, json, os, struct, threading, time
libc, seen, refused = ctypes.CDLL(None, use_errno=True), [], []
def note(way, opened):
    try:
        descriptor = opened()
    except OSError as error:
        return error.errno
    if os.fstat(descriptor).st_rdev == os.makedev(1, 7):
        seen.append([way, time.monotonic(), os.get_inheritable(descriptor)])
        return None
    os.close(descriptor)
    return 0
def called(number, *words):
    descriptor = libc.syscall(number, *words)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return descriptor
os.symlink("/dev/full", "link")
place, folder = os.open("/dev/full", os.O_PATH), os.open("/dev", os.O_RDONLY)
how = struct.pack("QQQ", os.O_RDWR, 0, 0)
ways = {
    "path": lambda: os.open("/dev/full", os.O_RDWR),
    "link": lambda: os.open("link", os.O_RDONLY),
    "descriptor": lambda: os.open(f"/proc/self/fd/{place}", os.O_RDWR),
    "folder": lambda: os.open("full", os.O_RDONLY, dir_fd=folder),
    "root": lambda: os.open(f"/proc/self/root/dev/../dev/full", os.O_WRONLY),
    "openat2": lambda: called(437, -100, b"/dev/full", how, len(how)),
}
path, over = ctypes.create_string_buffer(b"/dev/null"), threading.Event()
def change():
    while not over.is_set():
        path.raw = b"/dev/full\\0"
        path.raw = b"/dev/null\\0"
def race():
    while not over.is_set() and (errno := note("race", lambda: called(257, -100, path, os.O_RDONLY, 0))) is not None:
        refused.extend([errno] if errno else [])
threads = [threading.Thread(target=note, args=way) for way in ways.items()]
threads += [threading.Thread(target=each) for each in (change, *[race] * 50)]
for thread in threads:
    thread.start()
time.sleep(SECONDS)
over.set()
for thread in threads:
    thread.join()
print(json.dumps([seen, sorted(set(refused)), len(refused)]))
"""


class Shared(ApptainerSandbox):
    """A run with half of the made-up card."""

    def __init__(self, folder: Path) -> None:
        for name in ("public", "workspace", "log"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        own = {"gpu": 1, "gpu_share": 2}
        super().__init__(image=IMAGES / "light.sif", public=folder / "public", workspace=folder / "workspace", **own)
        self.log, self.calls = folder / "log", 0

    def end_patience(self) -> None:
        """Background work has had the card for too long."""
        self._longest_turn_s = 0.0

    def call(self, language: Language, code: str, timeout_s: float = 30.0) -> CodeResult:
        self.calls += 1
        return self.run_code(language, code, call=self.calls, turn=1, log=self.log, timeout_s=timeout_s)


def is_free() -> bool:
    with open("/dev/full", "rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def opened_early(folder: Path) -> tuple[Any, float, float, float]:
    """What ``WAYS`` prints while another run has the card for six seconds of it, when that ended, and its times."""
    other, ended = Turns([("GPU-full", Path("/dev/full"))]), list[float]()

    def end(box: Shared, before_s: float) -> None:
        wait_for(lambda: (box.gpu_turns_s or (0, 0))[1] > before_s + 6)
        ended.append(time.monotonic())
        other.close()

    with Shared(folder) as box:
        other.take()
        assert box.call("bash", "test -c /dev/full").status == "ok"  # without the card it does not wait
        threading.Thread(target=end, args=(box, (box.gpu_turns_s or (0, 0))[1])).start()
        done = box.call("python", WAYS.replace("SECONDS", "8"), timeout_s=7)
        waited_s = box.drain_gpu_wait()
        assert done.status == "ok", done.stderr
        wait_for(is_free)
        return json.loads(done.stdout), ended[0], done.elapsed_s, waited_s


def test_no_way_to_a_card_before_the_turn(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way waits, and has the card then; what races past the tracer gets EACCES of the kernel."""
    cards = rehearse(place)
    monkeypatch.setattr(gpus, "list_cards", lambda: cards[:1])
    (seen, refused, _), ended, elapsed_s, waited_s = as_user(lambda: opened_early(place))
    assert {way for way, _, _ in seen} == {"path", "link", "descriptor", "folder", "root", "openat2", "race"}
    assert all(at >= ended for _, at, _ in seen)
    assert refused in ([errno.EACCES], [])  # on a busy machine all may be kept, and none gets past
    assert {way for way, _, inherited in seen if inherited} == {"openat2", "race"}  # Python asks for O_CLOEXEC
    assert waited_s > 6
    assert elapsed_s < 7  # by the clock of the wall it took longer than this, its time limit


def waiting_and_killed(folder: Path) -> None:
    """Processes that wait are killed: nothing of them is left; the others go on, and the turn is not theirs."""
    other = Turns([("GPU-full", Path("/dev/full"))])
    with Shared(folder) as box:
        other.take()
        done = box.call("bash", "timeout -s KILL 1 cat /dev/full; echo $?; sleep 2")
        assert (done.stdout, done.status) == ("137\n", "ok")
        assert box.drain_gpu_wait() > 0.5
        assert done.elapsed_s > 1  # its time went on when nobody waited any more
        assert not is_free()
        box.call("bash", "cat /dev/full >/dev/null 2>&1 & sleep 0.5; kill -KILL $!")
        other.close()
        wait_for(is_free)  # the thread that waited gives the turn back
        assert box.call("bash", "head -c 3 /dev/full | wc -c").stdout == "3\n"
        wait_for(is_free)
        other.take()
        box.call("bash", "cat /dev/full >/dev/null 2>&1 &")
        box.end()
        other.close()
        wait_for(is_free)
        assert box.call("bash", "head -c 3 /dev/full | wc -c").stdout == "3\n"  # in a new container
        wait_for(is_free)


def test_killed_processes_that_wait_hold_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = rehearse(place)
    monkeypatch.setattr(gpus, "list_cards", lambda: cards[:1])
    as_user(lambda: waiting_and_killed(place))


def background(folder: Path) -> list[str]:
    """Notes of calls beside background work that opens the card between two calls."""
    with Shared(folder) as box:
        box.call("bash", "(sleep 0.5; exec 3</dev/full; touch opened; exec sleep 60) >/dev/null 2>&1 &")
        assert is_free()
        wait_for(lambda: (folder / "workspace/opened").exists())
        assert not is_free()
        notes = [box.call("bash", "head -c 1 /dev/full | wc -c").note]
        box.end_patience()
        notes += [box.call("bash", "true").note, box.call("bash", "pgrep sleep").note]
        wait_for(is_free)
        return notes


def test_background_work_has_the_card_from_its_opening_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = rehearse(place)
    monkeypatch.setattr(gpus, "list_cards", lambda: cards[:1])
    first, told, cleared = as_user(lambda: background(place))
    assert (first, cleared) == ("", CLEARED)
    assert told.startswith("Your background processes have had the GPU")


def test_no_run_on_a_card_that_does_not_compute(place: Path) -> None:
    """What is wrong is said before the agent costs anything."""
    rehearse(place, fault=999)
    with pytest.raises(InfrastructureError, match="card full inside the container: cuInit gives CUDA error 999"):
        as_user(lambda: looked(place))


def test_the_check_of_a_node_as_far_as_it_goes_without_a_card(place: Path) -> None:
    """By hand: two cards that only look so; what computes needs PyTorch, which this image has not."""
    node = Node(IMAGES / "light.sif", place, rehearse(place), rehearsed=True)
    tried = ("cards", "two runs", "out of GPU memory", "kill -9", "NVML")
    assert set(tried) < set(CHECKS)
    found = as_user(lambda: {name: check(node, name) for name in tried})
    assert [found[name][0] for name in tried] == ["pass", "pass", "-", "-", "-"], found
    assert check(Node(IMAGES / "light.sif", place, []), "cards")[0] == "FAIL"
