"""Process trees: limits, bounded output, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.container import process
from automedbench.sandbox.container.process import (
    HEAD_BYTES,
    LOG_BYTES,
    TAIL_BYTES,
    Capture,
    Outcome,
    Stop,
    default_limits,
    run_process,
    tasks_of,
)

ENV = {"PATH": "/usr/bin:/bin"}


def run(tmp_path: Path, code: str, timeout_s: float = 30, **options: object) -> Outcome:
    """Run Python code; its output goes to ``out`` and ``err`` in the folder."""
    command = options.pop("command", [sys.executable, "-c", code])
    return run_process(
        command,  # type: ignore[arg-type]
        **{"env": ENV, "cwd": tmp_path, "out": tmp_path / "out", "err": tmp_path / "err", **options},  # type: ignore[arg-type]
        timeout_s=timeout_s,
    )


def alive(pid: int) -> bool:
    """Exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_nothing_printed(tmp_path: Path) -> None:
    outcome = run(tmp_path, "")
    assert (outcome.ending, outcome.exit_code, outcome.stdout.text(), outcome.stderr.text()) == ("exited", 0, "", "")


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
    assert ("supervisor.py" in shown.stdout.text(), "sk-b" in shown.stdout.text()) == (True, False)


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


def test_wall_limit_kills_what_ignores_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.5)
    outcome = run(tmp_path, "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(60)", 0.5)
    assert (outcome.ending, outcome.exit_code) == ("timeout", -signal.SIGKILL)
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


def test_a_process_that_keeps_forking_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.2)
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
        "import sys\nfrom pathlib import Path\nfrom automedbench.sandbox.container.process import run_process\n"
        "folder = Path(sys.argv[1])\n"
        "run_process(['sh', '-c', 'echo $$ > pid; setsid sleep 77'], env={'PATH': '/usr/bin:/bin'}, cwd=folder,"
        " timeout_s=60, out=folder / 'out', err=folder / 'err')"
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
    roots: list[int] = []

    def watch(root: int) -> Stop | None:
        roots.append(root)
        return Stop("too much") if len(roots) > 1 else None

    outcome = run(tmp_path, "import time; time.sleep(60)", watch=watch)
    assert (outcome.ending, outcome.reason, outcome.exit_code) == ("stopped", "too much", -signal.SIGTERM)
    assert len(set(roots)) == 1
    assert not alive(roots[0])


def test_what_endangers_the_machine_is_killed_without_grace(tmp_path: Path) -> None:
    code = (
        "import signal, time\nsignal.signal(15, lambda *_: print('term', flush=True))\ntime.sleep(60)\ntime.sleep(60)"
    )
    outcome = run(tmp_path, code, watch=lambda _root: Stop("memory", at_once=True))
    assert (outcome.ending, outcome.exit_code, outcome.stdout.text()) == ("stopped", -signal.SIGKILL, "")


def test_the_kernel_would_end_the_call_before_the_driver(tmp_path: Path) -> None:
    assert run(tmp_path, "print(open('/proc/self/oom_score_adj').read())").stdout.text().strip() == "1000"


def test_limits_reach_the_process(tmp_path: Path) -> None:
    code = "import resource as r; print(*(r.getrlimit(n)[0] for n in (r.RLIMIT_CORE, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE)))"
    hard = int(subprocess.run(["bash", "-c", "ulimit -Hn"], capture_output=True, text=True, check=True).stdout)
    assert run(tmp_path, code).stdout.text().split() == ["0", str(50 * 10**9), str(min(65536, hard))]


def test_processes_are_limited_for_users_only() -> None:
    assert "RLIMIT_NPROC" not in default_limits(0)
    assert "RLIMIT_NPROC" not in default_limits(12345, Limits(max_processes=None))
    assert default_limits(12345)["RLIMIT_NPROC"] == 4096  # docs/specification.md, 9.2; a user without processes


def test_what_a_user_runs_already_is_added_to_the_limit() -> None:
    # The kernel counts per user and machine (setrlimit(2)): 30 more threads of this user, 30 more in the limit.
    before = tasks_of(os.geteuid())
    ready, done = threading.Barrier(31), threading.Event()
    threads = [threading.Thread(target=lambda: (ready.wait(), done.wait())) for _ in range(30)]
    for thread in threads:
        thread.start()
    ready.wait()
    try:
        assert abs(tasks_of(os.geteuid()) - before - 30) <= 20  # other processes of the user come and go
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_file_size_limit_ends_a_write(tmp_path: Path) -> None:
    outcome = run(tmp_path, "with open('big', 'wb') as f: f.write(b'x' * 5000)", limits={"RLIMIT_FSIZE": 1000})
    assert outcome.exit_code != 0
    assert (tmp_path / "big").stat().st_size == 1000


# Capture by hand: 2 KiB head, 8 KiB tail.
@pytest.mark.parametrize("block", [1, 7, 4096, 1 << 20], ids=str)
def test_capture_does_not_depend_on_blocks(tmp_path: Path, block: int) -> None:
    data = bytes(range(32, 127)) * 200
    capture = Capture(tmp_path / "log")
    for at in range(0, len(data), block):
        capture.feed(data[at : at + block])
    capture.close()
    removed = len(data) - HEAD_BYTES - TAIL_BYTES
    head, tail = data[:HEAD_BYTES].decode(), data[-TAIL_BYTES:].decode()
    assert capture.text() == f"{head}\n[... {removed} bytes removed ...]\n{tail}"
    assert (tmp_path / "log").read_bytes() == data


@pytest.mark.parametrize(("size", "cut"), [(0, False), (10240, False), (10241, True)], ids=str)
def test_capture_cuts_only_what_is_too_long(tmp_path: Path, size: int, cut: bool) -> None:
    capture = Capture(tmp_path / "log")
    capture.feed(b"x" * size)
    capture.close()
    assert capture.truncated is cut
    assert ("removed" in capture.text()) is cut


def test_capture_does_not_cut_characters(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "log")
    capture.feed(b"a" + "é".encode() * 20_000)
    capture.close()
    assert "\ufffd" not in capture.text()


@pytest.mark.parametrize("block", [1, 3, 1000], ids=str)
def test_marker_separates_the_preamble(tmp_path: Path, block: int) -> None:
    data = b"WARNING: x\nMARK\nagent said MARK\n"
    capture = Capture(tmp_path / "log", b"MARK\n")
    for at in range(0, len(data), block):
        capture.feed(data[at : at + block])
    capture.close()
    assert (capture.started, capture.preamble, capture.text()) == (True, b"WARNING: x\n", "agent said MARK\n")


def test_without_marker_nothing_has_started(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "log", b"MARK\n")
    capture.feed(b"FATAL: no image\n")
    capture.close()
    assert (capture.started, capture.preamble, capture.text()) == (False, b"FATAL: no image\n", "")
