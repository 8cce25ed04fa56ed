"""Process trees: limits, bounded output, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from automedbench.agent.toolbox import find_ending, read_note
from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.boxes import SPOILED, LocalSandbox
from automedbench.sandbox.container import process, streams
from automedbench.sandbox.container.cgroup import Group
from automedbench.sandbox.container.freezer import Freezer
from automedbench.sandbox.container.launcher import RUNNER
from automedbench.sandbox.container.process import (
    Captured,
    Guard,
    Outcome,
    Stop,
    Supervised,
    count_tasks,
    default_limits,
)
from automedbench.sandbox.container.streams import HEAD_BYTES, LOG_BYTES, TAIL_BYTES, Room, Stream
from automedbench.sandbox.container.tree import read_task

ENV = {"PATH": "/usr/bin:/bin"}


def run(tmp_path: Path, code: str, timeout_s: float = 30, **options: object) -> Outcome:
    """Run Python code; its output goes to ``out`` and ``err`` in the folder."""
    command, watch = options.pop("command", [sys.executable, "-c", code]), options.pop("watch", None)
    streams = (tmp_path / "out", tmp_path / "err")
    settings = {"env": ENV, "cwd": tmp_path, "streams": streams, "timeout_s": timeout_s, **options}
    with Supervised(command, **settings) as supervised:  # type: ignore[arg-type]
        return supervised.attend(timeout_s, watch)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    """Exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone, or while it is read
        return False


def test_streams_and_exit_code(tmp_path: Path) -> None:
    outcome = run(tmp_path, "import sys; print('a'); print('b', file=sys.stderr); sys.exit(3)")
    assert (outcome.exit_code, outcome.stdout.text(), outcome.stderr.text()) == (3, "a\n", "b\n")
    assert ((tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == ("a\n", "b\n")


def test_end_by_signal_is_negative(tmp_path: Path) -> None:
    assert run(tmp_path, "import os; os.abort()").exit_code == -signal.SIGABRT


def test_missing_program(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="Cannot start no-such-program"):
        run(tmp_path, "", command=["no-such-program"])


def test_environment_is_exactly_what_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    outcome = run(tmp_path, "", command=["/usr/bin/env"], env={"A": "b"})
    assert outcome.stdout.text() == "A=b\n"
    # Every user of the machine may read a command line.
    shown = run(tmp_path, "", command=["/bin/sh", "-c", "cat /proc/$PPID/cmdline"], env={"PATH": "/bin", "A": "sk-b"})
    assert ("container.supervisor" in shown.stdout.text(), "sk-b" in shown.stdout.text()) == (True, False)


def test_descriptors_and_stdin_are_not_inherited(tmp_path: Path) -> None:
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    try:
        outcome = run(tmp_path, "import os, sys; print(sorted(os.listdir('/proc/self/fd')), sys.stdin.read() == '')")
    finally:
        os.close(secret)
    # 3 is the folder that listdir itself has open.
    assert outcome.stdout.text() == "['0', '1', '2', '3'] True\n"


def test_200_megabytes_on_one_line(tmp_path: Path) -> None:
    size = 200 * 1024 * 1024
    code = f"import sys; b = b'x' * (1 << 20)\nfor _ in range({size >> 20}): sys.stdout.buffer.write(b)"
    outcome = run(tmp_path, code, 120)
    text = outcome.stdout.text()
    removed = size - HEAD_BYTES - TAIL_BYTES
    assert text == "x" * HEAD_BYTES + f"\n[... {removed} bytes removed ...]\n" + "x" * TAIL_BYTES
    assert LOG_BYTES < (tmp_path / "out").stat().st_size < LOG_BYTES + 100


def test_odd_bytes_become_text(tmp_path: Path) -> None:
    outcome = run(tmp_path, r"import sys; sys.stdout.buffer.write(b'\xff\x00\x1b[2J ok \xf0\x9f')")
    assert outcome.stdout.text() == "\ufffd\x00\x1b[2J ok \ufffd"


def test_wall_limit_gives_a_chance_to_end(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: (print('bye'), sys.exit(0)))\n"
        "print('hi', flush=True)\ntime.sleep(60)"
    )
    outcome = run(tmp_path, code, 1)
    assert (outcome.ending, outcome.stdout.text()) == ("timeout", "hi\nbye\n")
    assert outcome.elapsed_s < 4


# Daemons that leave the process group and the session keep the pipes open and must end with their call.
ESCAPES = {
    "background": "import subprocess; p = subprocess.Popen(['sleep', '77']); print(p.pid)",
    "own-session": "import subprocess; p = subprocess.Popen(['sleep', '77'], start_new_session=True); print(p.pid)",
    "double-fork": (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
        "    print(os.getpid(), flush=True); time.sleep(77)\n  os._exit(0)\nos.wait(); time.sleep(0.3)"
    ),
    "ignores-term": (
        "import subprocess; p = subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP; sleep 77; sleep 77']); print(p.pid)"
    ),
}


@pytest.mark.parametrize("code", ESCAPES.values(), ids=ESCAPES)
def test_nothing_outlives_a_call(tmp_path: Path, code: str) -> None:
    outcome = run(tmp_path, code)
    assert outcome.exit_code == 0
    assert outcome.elapsed_s < 5
    assert not alive(int(outcome.stdout.text()))


def test_nothing_outlives_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.5)
    code = (
        "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nfor i in range(20):\n  if os.fork() == 0:\n"
        "    os.setsid(); print(os.getpid(), flush=True)\n    while True: time.sleep(9)\ntime.sleep(77)"
    )
    outcome = run(tmp_path, code, 1)
    pids = [int(line) for line in outcome.stdout.text().split()]
    assert len(pids) == 20
    assert [pid for pid in pids if alive(pid)] == []


def test_a_process_that_keeps_forking_is_ended(tmp_path: Path) -> None:
    code = (
        "import os, time\nopen('last', 'w').write('0')\nfor i in range(3000):\n  if os.fork(): os._exit(0)\n"
        "  open('last', 'w').write(str(os.getpid())); time.sleep(0.002)"
    )
    outcome = run(tmp_path, code, 20)
    assert outcome.elapsed_s < 5  # the whole chain takes longer than six seconds
    last = (tmp_path / "last").read_text()
    time.sleep(0.1)
    assert (tmp_path / "last").read_text() == last


def test_a_killed_driver_takes_its_calls_along(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom automedbench.sandbox.container.process import Supervised\n"
        "folder = Path(sys.argv[1])\n"
        "Supervised(['sh', '-c', 'echo $$ > pid; setsid sleep 77'], env={'PATH': '/usr/bin:/bin'}, cwd=folder,"
        " streams=(folder / 'out', folder / 'err'), timeout_s=60).attend(60)"
    )
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    pid_file = tmp_path / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
    pid = int(pid_file.read_text())
    driver.kill()
    driver.wait()
    wait_until(lambda: not alive(pid))
    sleepers = [name for name in os.listdir("/proc") if name.isdigit() and cmdline(name) == ["sleep", "77"]]
    assert sleepers == []


def cmdline(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    except OSError:
        return []


def wait_until(condition: object, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def test_watch_ends_a_call(tmp_path: Path) -> None:
    looks: list[float] = []

    def watch() -> Stop | None:
        looks.append(time.monotonic())
        return Stop("too much") if len(looks) > 1 else None

    outcome = run(tmp_path, "import time; time.sleep(60)", watch=watch)
    assert (outcome.ending, outcome.reason, outcome.exit_code) == ("stopped", "too much", -signal.SIGTERM)
    assert len(looks) == 2


def test_the_kernel_would_end_the_call_before_the_driver(tmp_path: Path) -> None:
    assert run(tmp_path, "print(open('/proc/self/oom_score_adj').read())").stdout.text().strip() == "1000"


def test_limits_reach_the_process(tmp_path: Path) -> None:
    code = "import resource as r; print(*(r.getrlimit(n)[0] for n in (r.RLIMIT_CORE, r.RLIMIT_FSIZE)))"
    assert run(tmp_path, code).stdout.text().split() == ["0", str(50 * 10**9)]


def test_processes_are_limited_for_users_only() -> None:
    assert "RLIMIT_NPROC" not in default_limits(0)
    assert "RLIMIT_NPROC" not in default_limits(12345, Limits(max_processes=None))
    assert default_limits(12345)["RLIMIT_NPROC"] == 4096  # docs/specification.md, 9.2; a user without processes


def test_what_a_user_runs_already_is_added_to_the_limit() -> None:
    # The kernel counts per user and machine (setrlimit(2)): 30 more threads of this user, 30 more in the limit.
    before = count_tasks(os.geteuid())
    ready, done = threading.Barrier(31), threading.Event()
    threads = [threading.Thread(target=lambda: (ready.wait(), done.wait())) for _ in range(30)]
    for thread in threads:
        thread.start()
    ready.wait()
    try:
        assert abs(count_tasks(os.geteuid()) - before - 30) <= 20  # other processes of the user come and go
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_file_size_limit_ends_a_write(tmp_path: Path) -> None:
    outcome = run(tmp_path, "with open('big', 'wb') as f: f.write(b'x' * 5000)", limits={"RLIMIT_FSIZE": 1000})
    assert outcome.exit_code != 0
    assert (tmp_path / "big").stat().st_size == 1000


def captured(stream: Stream) -> Captured:
    stream.close()
    return Captured(stream._head, stream._tail, stream.total)


def stream_of(log: Path, room: int = 10**9) -> Stream:
    return Stream(os.open(os.devnull, os.O_RDONLY), str(log), Room(room))


# By hand: 2 KiB head, 8 KiB tail.
def test_a_stream_does_not_depend_on_blocks(tmp_path: Path) -> None:
    data = bytes(range(32, 127)) * 200
    removed = len(data) - HEAD_BYTES - TAIL_BYTES
    head, tail = data[:HEAD_BYTES].decode(), data[-TAIL_BYTES:].decode()
    for block in (1, 7, 4096, 1 << 20):
        stream = stream_of(tmp_path / "log")
        for at in range(0, len(data), block):
            stream._feed(data[at : at + block])
        assert captured(stream).text() == f"{head}\n[... {removed} bytes removed ...]\n{tail}", block
        assert (tmp_path / "log").read_bytes() == data, block


def test_a_stream_is_cut_only_when_too_long_and_not_within_a_character(tmp_path: Path) -> None:
    for size, cut in ((0, False), (10240, False), (10241, True)):
        stream = stream_of(tmp_path / "log")
        stream._feed(b"x" * size)
        assert (captured(stream).truncated, "removed" in captured(stream).text()) == (cut, cut), size
    stream = stream_of(tmp_path / "log")
    stream._feed(b"a" + "é".encode() * 20_000)
    assert "\ufffd" not in captured(stream).text()


def test_all_logs_together_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "0001.out").write_bytes(b"x" * 100)
    assert Room.beside(str(tmp_path / "0002.out")).left == streams.TOTAL_LOG_BYTES - 100
    stream = stream_of(tmp_path / "0002.out", room=10)
    stream._feed(b"0123456789abc")
    stream.close()
    assert (tmp_path / "0002.out").read_bytes() == b"0123456789\n[... 3 bytes not logged ...]\n"


# --- a runner and its calls: here without a container ------------------------------------------------------------


def supervised(folder: Path, limits: Limits | None = None) -> Supervised:
    guard = Guard([folder], limits)
    box = Supervised([sys.executable, "-I", "-S", str(RUNNER)], env=ENV, cwd=folder, guard=guard)
    assert box.wait_until_ready(30)
    return box


def call(box: Supervised, folder: Path, code: str, timeout_s: float = 30) -> Outcome:
    box.begin(1, ["bash", "-c", code], folder / "out", folder / "err", timeout_s)
    return box.attend(timeout_s)


def test_what_a_call_leaves_lives_on_until_the_container_ends(tmp_path: Path) -> None:
    with supervised(tmp_path) as box:
        left = call(box, tmp_path, "setsid sh -c 'sleep 0.4; echo late; sleep 77' & echo $!")
        pid = int(left.stdout.text())
        assert left.elapsed_s < 1
        assert call(box, tmp_path, f"kill -0 {pid}").exit_code == 0
        # A time limit ends what its call started, and nothing else.
        late = call(box, tmp_path, "setsid sleep 78 & echo $!; disown; sleep 77", timeout_s=0.5)
        assert (late.ending, late.gone) == ("timeout", False)
        wait_until(lambda: not alive(int(late.stdout.text())))
        assert alive(pid)
    assert not alive(pid)


def test_late_output_goes_to_the_log_of_its_call(tmp_path: Path) -> None:
    with supervised(tmp_path) as box:
        box.begin(1, ["bash", "-c", "(sleep 0.5; echo late) & echo now"], tmp_path / "1", tmp_path / "e", 30)
        first = box.attend(30)
        box.begin(2, ["sleep", "1"], tmp_path / "2", tmp_path / "e2", 30)
        box.attend(30)
    assert (first.stdout.text(), (tmp_path / "1").read_text()) == ("now\n", "now\nlate\n")


def test_a_dead_runner_ends_the_container_and_is_told(tmp_path: Path) -> None:
    with supervised(tmp_path) as box:
        outcome = call(box, tmp_path, "sleep 77 & echo $!; kill -9 $PPID; sleep 77")
        assert (outcome.ending, outcome.gone, outcome.exit_code) == ("stopped", True, None)
        # Here the runner is the first program too, and its end may be seen before that of its socket.
        assert outcome.reason in ("the runner ended", "its first program has ended")
        assert not box.alive
        assert not alive(int(outcome.stdout.text()))


def test_a_runner_that_lies_ends_its_container_only(tmp_path: Path) -> None:
    """What is no answer, and an answer that was not asked for."""
    for said in ("b'x' * 9", "b'nonsense'", "struct.pack('!cIi', b'E', 1, 0)"):
        lie = f"import socket, struct; s = socket.socket(fileno=0); s.send(b'H' + bytes(8)); s.send({said})"
        with Supervised([sys.executable, "-c", lie + "; s.recv(9)"], env=ENV, cwd=tmp_path) as box:
            assert box.wait_until_ready(30), said
            wait_until(lambda box=box: not box.alive)  # type: ignore[misc]
            assert box.gone and "runner" in box.gone["reason"], said


def test_waiting_for_a_time_and_for_a_process(tmp_path: Path) -> None:
    with supervised(tmp_path) as box:
        pid = int(call(box, tmp_path, "sleep 0.5 & echo $!").stdout.text())
        assert box.wait(20, pid) == "ended"
        assert (box.wait(0.1, None), box.wait(20, pid), box.wait(20, 1)) == ("time", "unknown", "unknown")


def test_a_limit_ends_the_container_also_between_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.5)
    with supervised(tmp_path, Limits(disk_gb=0.002)) as box:
        call(box, tmp_path, "(sleep 1; head -c 9000000 /dev/zero > big; sleep 77) & true")
        wait_until(lambda: not box.alive)
        assert box.gone is not None and box.gone["reason"].startswith("disk limit")


def test_a_workspace_over_its_limit_ends_calls_and_not_the_start_or_the_probe(tmp_path: Path) -> None:
    """A run that has ended over its disk limit is probed once more in a new container, as call 0, and sealed."""
    (tmp_path / "big").write_bytes(b"x" * 5_000_000)
    with supervised(tmp_path, Limits(disk_gb=0.002)) as box:
        box.begin(0, ["sleep", "1"], tmp_path / "out", tmp_path / "err", 30)
        probed = box.attend(30)
        assert (probed.ending, probed.exit_code) == ("exited", 0)
        ended = call(box, tmp_path, "sleep 77")
    assert (ended.ending, ended.gone, ended.reason[:10]) == ("stopped", True, "disk limit")


def test_why_a_container_ended_between_calls_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.2)
    public, workspace, log = (tmp_path / name for name in ("public", "workspace", "log"))
    for folder in (public, workspace, log):
        folder.mkdir()
    deep = f'{sys.executable} -c "import os; [(os.mkdir(chr(100)), os.chdir(chr(100))) for _ in range(510)]"'
    with LocalSandbox(public=public, workspace=workspace) as sandbox:
        sandbox.run_code("bash", f"(sleep 0.3; {deep}; sleep 77) & true", call=1, turn=1, log=log, timeout_s=30)
        assert sandbox.wait(20, None) == "gone"
        shutil.rmtree(workspace / "d")
        again = sandbox.run_code("bash", "echo on", call=2, turn=2, log=log, timeout_s=30)
        assert again.stdout == "on\n"
        assert "cannot be counted: folders are nested" in again.note
        more = sandbox.run_code("bash", "echo more", call=3, turn=3, log=log, timeout_s=30)
    assert (more.stdout, more.note) == ("more\n", "")


class Unreliable(LocalSandbox):
    """``fails`` says of each further start whether it fails, ``anew`` whether one in an empty workspace passes."""

    fails: tuple[bool, ...] = ()
    anew = True

    def passes_anew(self) -> bool:
        return self.anew

    def _start(self, tmp: Path) -> Supervised:
        fails, self.fails = self.fails[:1] == (True,), self.fails[1:]
        if fails:
            raise InfrastructureError("the runner never answered\nTry by hand")
        return super()._start(tmp)


@pytest.mark.parametrize(
    ("used", "anew", "fails", "seen"),
    [
        (
            True,
            True,
            (True, True),
            f"{SPOILED}, and one does in an empty workspace: the runner never answered",
        ),
        (True, True, (True, False), "on"),  # the machine's moment of weakness
        (True, False, (True, False), "InfrastructureError"),
        (False, True, (True, False), "InfrastructureError"),
    ],
)
def test_a_start_that_fails_is_the_agents_fault_where_an_empty_workspace_starts_twice_the_other_does_not(
    tmp_path: Path, used: bool, anew: bool, fails: tuple[bool, ...], seen: str
) -> None:
    for name in ("public", "workspace", "log"):
        (tmp_path / name).mkdir()
    with Unreliable(public=tmp_path / "public", workspace=tmp_path / "workspace") as sandbox:
        if used:
            sandbox.run_code("bash", "true", call=1, turn=1, log=tmp_path / "log", timeout_s=30)
            sandbox.end()
        sandbox.fails, sandbox.anew = fails, anew
        try:
            result = sandbox.run_code("bash", "echo on", call=2, turn=1, log=tmp_path / "log", timeout_s=30)
            found, ending = (result.stdout or read_note(result)).strip(), find_ending(result)
        except InfrastructureError as error:
            found, ending = type(error).__name__, None
    assert found == seen
    assert (ending is not None and ending.outcome == "stopped") == (seen != "on" and used and anew)


def test_a_container_that_can_start_no_program_ends(tmp_path: Path) -> None:
    """Background processes at the limit would else keep every later call of the run from starting."""
    lie = "import socket, struct; s = socket.socket(fileno=0); s.send(b'H' + bytes(8)); s.recv(99); "
    lie += "s.send(b'F' + struct.pack('!Ii', 1, 11)); s.recv(9)"
    with Supervised([sys.executable, "-c", lie], env=ENV, cwd=tmp_path) as box:
        assert box.wait_until_ready(30)
        outcome = call(box, tmp_path, "true")
    assert (outcome.exit_code, outcome.gone, outcome.reason) == (126, True, "no further program can be started")


STOPPED_DRIVER = """
import sys
from pathlib import Path
from automedbench.sandbox.boxes import SPOILED, LocalSandbox
from automedbench.sandbox.container.launcher import RUNNER
from automedbench.sandbox.container import process
process.GRACE_SECONDS, Supervised = 2, process.Supervised
folder = Path(sys.argv[1])
with Supervised([sys.executable, "-I", "-S", str(RUNNER)], env={"PATH": "/usr/bin:/bin"}, cwd=folder) as box:
    box.wait_until_ready(30)
    box.set_deadline(2)
    code = "trap '' TERM; setsid sleep 77 & echo $! > pid; wait; sleep 77; sleep 77"
    box.begin(1, ["bash", "-c", code], folder / "out", folder / "err", float("inf"))
    outcome = box.attend(float("inf"))
    print(outcome.ending, outcome.gone, outcome.reason)
"""


def test_a_driver_that_hangs_keeps_no_container_beyond_its_time(tmp_path: Path) -> None:
    """Limit 2 s, grace 2 s; awake again, the driver is told."""
    driver = subprocess.Popen([sys.executable, "-c", STOPPED_DRIVER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    pid_file = tmp_path / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
    os.kill(driver.pid, signal.SIGSTOP)
    pid = int(pid_file.read_text())
    wait_until(lambda: not alive(pid), 2 + 2 + 1)
    os.kill(driver.pid, signal.SIGCONT)
    assert driver.communicate(timeout=30)[0] == "stopped True time limit of the run\n"


RESTLESS = """
import subprocess, sys

with open(sys.argv[1], "a") as out:
    while True:
        subprocess.run(["true"]) if sys.argv[1] == "forks" else sum(range(10_000))
        out.write("x")
        out.flush()
"""


def test_a_frozen_container_does_no_work_and_its_time_stands_still(tmp_path: Path) -> None:
    """A loop and one that forks, at least a second of work before; 2 s are left, 5 s frozen, then the 2 s are left."""
    (tmp_path / "restless.py").write_text(RESTLESS)

    def work() -> list[int]:
        return [(tmp_path / way).stat().st_size for way in ("loop", "forks")]

    with Supervised([sys.executable, "-I", "-S", str(RUNNER)], env=ENV, cwd=tmp_path) as box:
        assert box.wait_until_ready(30)
        for way in ("loop", "forks"):
            call(
                box,
                tmp_path,
                f"setsid {sys.executable} restless.py {way} >/dev/null 2>&1 & while [ ! -s {way} ]; do :; done",
            )
        begun = work()
        time.sleep(1)
        each_s = [late - early for late, early in zip(work(), begun, strict=True)]
        box.set_deadline(2)
        box.freeze(60)
        time.sleep(2)
        frozen = work()
        time.sleep(3)
        assert all(late - early <= 0.05 * 3 * rate for late, early, rate in zip(work(), frozen, each_s, strict=True))
        assert box.alive
        box.thaw()
        wait_until(lambda: min(map(int.__sub__, work(), frozen)) > 0)
        wait_until(lambda: not box.alive, 2 + process.GRACE_SECONDS + 1)
        assert box.gone is not None and box.gone["reason"] == "time limit of the run"


def test_a_frozen_container_is_killed_with_its_driver(tmp_path: Path) -> None:
    with Supervised([sys.executable, "-I", "-S", str(RUNNER)], env=ENV, cwd=tmp_path) as box:
        assert box.wait_until_ready(30)
        pid = int(call(box, tmp_path, "setsid sleep 77 >/dev/null 2>&1 & echo $!").stdout.text())
        box.freeze(60)
        wait_until(lambda: read_task(pid) is not None and read_task(pid).state == "T")  # type: ignore[union-attr]
    assert not alive(pid)


def test_a_stopped_process_that_is_woken_from_elsewhere_is_killed(tmp_path: Path) -> None:
    """A timer of its own can send SIGCONT as well; at the third look it is killed, and one that obeys goes on."""
    stubborn, calm = (subprocess.Popen(["sleep", "77"]) for _ in range(2))
    freezer = Freezer(os.getpid(), None)
    try:
        freezer.freeze()
        for look in range(1, 4):
            assert stubborn.poll() is None
            os.kill(stubborn.pid, signal.SIGCONT)
            freezer.keep(time.monotonic() + look)
        assert stubborn.wait(10) == -signal.SIGKILL
        freezer.thaw()
        wait_until(lambda: read_task(calm.pid).state == "S")  # type: ignore[union-attr]
    finally:
        for each in (stubborn, calm):
            each.kill()
            each.wait()


def test_a_group_is_frozen_by_the_kernel(tmp_path: Path) -> None:
    freezer, switch = Freezer(os.getpid(), Group(tmp_path)), tmp_path / "cgroup.freeze"
    freezer.freeze()
    assert (switch.read_text(), freezer.since is None) == ("1", False)
    freezer.thaw()
    assert (switch.read_text(), freezer.since) == ("0", None)
