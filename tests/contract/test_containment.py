"""What the real container denies and limits, and that ordinary work goes on inside it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from unprivileged import IMAGES, as_user, user_folder, why_not

from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Enforced, Finding
from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container.launcher import (
    find_runtime,
    host_environment,
    trusted_command,
    write_profile,
)
from automedbench.sandbox.container.process import CodeResult, Stop, Supervised
from automedbench.sandbox.evidence.audit import decoy_findings
from automedbench.sandbox.evidence.decoy import Decoy

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(180)]

Call = tuple[str, str]


@dataclass
class Box:
    """One attempt in Apptainer, as an ordinary user."""

    folder: Path
    findings: list[Finding] = field(default_factory=list)
    enforced: Enforced | None = None

    def calls(self, *codes: Call, timeout_s: float = 60, **options: Any) -> list[CodeResult]:
        """Run calls one after the other."""
        results, self.findings, self.enforced = as_user(lambda: self._run(codes, timeout_s, options))
        return results

    def call(self, language: str, code: str, **options: Any) -> CodeResult:
        """Run one call."""
        return self.calls((language, code), **options)[0]

    def _run(self, codes: Sequence[Call], timeout_s: float, options: dict[str, Any]) -> Any:
        for name in ("workspace", "log", "public"):
            (self.folder / name).mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            watch = options.pop("watch", None)
            box = stack.enter_context(
                ApptainerSandbox(
                    image=IMAGES / "light.sif",
                    public=self.folder / "public",
                    workspace=self.folder / "workspace",
                    **options,
                )
            )
            results, findings = [], []
            for number, (language, code) in enumerate(codes, start=1):
                results.append(
                    box.run_code(
                        language,  # type: ignore[arg-type]
                        code,
                        call=number,
                        turn=number,
                        log=self.folder / "log",
                        timeout_s=timeout_s,
                        watch=watch,
                    )
                )
                findings += box.drain_findings()
            box.selfcheck()
        return results, findings, box.enforced


@pytest.fixture
def box() -> Iterator[Box]:
    """A fresh attempt."""
    if reason := why_not("light"):
        pytest.skip(reason)
    with user_folder() as folder:
        yield Box(folder)


# --- system calls ---------------------------------------------------------------------------------------------------

# Numbers of x86-64 and of the generic table (aarch64); None: no such call there.
NUMBERS: dict[str, tuple[int, int | None]] = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "mount_setattr": (442, 442),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "memfd_secret": (447, 447),
    "vmsplice": (278, 75),
    "shmget": (29, 194),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "iopl": (172, None),
    "modify_ldt": (154, None),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
}
# Bad arguments: what the filter lets through fails otherwise (EINVAL, EFAULT, EBADF), or not at all.
CALLS = """
import ctypes, errno, json, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
column = 0 if platform.machine() == "x86_64" else 1
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(value) for value in arguments])
    return errno.errorcode.get(ctypes.get_errno(), "done") if result == -1 else "done"
said = {name: call(pair[column], 0, 0, 0, 0, 0) for name, pair in NUMBERS.items() if pair[column] is not None}
said["clone3"] = call(435, 0, 0)
clone = (56, 220)[column]
for bit in (17, 25, 26, 27, 28, 29, 30):
    said["clone %d" % bit] = call(clone, 1 << bit | 17, 0, 0, 0, 0)
    if said["clone %d" % bit] == "done" and os.getpid() == 1:
        os._exit(0)
personality = (135, 92)[column]
values = {"ask": 0xffffffff, "no-random": 0x40000, "executable-data": 0x400000, "page-zero": 0x100000}
for name, value in values.items():
    said["personality " + name] = call(personality, value)
new_socket = (41, 198)[column]
for family in (1, 2, 10, 16, 3, 9, 17, 38, 40, 44, 1 << 32 | 17):
    said["socket %d" % family] = call(new_socket, family, 2, 0) if family != 16 else call(new_socket, 16, 3, 0)
said["TIOCSTI"] = call((16, 29)[column], 0, 0x5412, 0)
print(json.dumps(said))
"""


def test_denied_calls_fail_in_the_container(box: Box) -> None:
    result = box.call("python", f"NUMBERS = {NUMBERS!r}\n{CALLS}")
    assert result.status == "ok", result.stderr
    said = json.loads(result.stdout)
    assert {name: said[name] for name in NUMBERS if name in said} == dict.fromkeys(
        [name for name in NUMBERS if name in said], "EPERM"
    )
    assert said["clone3"] == "ENOSYS"
    assert {said[f"clone {bit}"] for bit in (17, 25, 26, 27, 28, 29, 30)} == {"EPERM"}
    assert {name: said[f"personality {name}"] for name in ("ask", "no-random", "executable-data", "page-zero")} == {
        "ask": "done",
        "no-random": "done",
        "executable-data": "EPERM",
        "page-zero": "EPERM",
    }
    assert {said[f"socket {family}"] for family in (1, 2, 10, 16)} == {"done"}
    assert {said[f"socket {family}"] for family in (3, 9, 17, 38, 40, 44, 1 << 32 | 17)} == {"EPERM"}
    assert said["TIOCSTI"] == "EPERM"


TRUSTED = """
import json, socket
said = {}
for name in ("AF_UNIX", "AF_NETLINK", "AF_INET", "AF_INET6"):
    try:
        socket.socket(getattr(socket, name), socket.SOCK_DGRAM).close()
        said[name] = "done"
    except PermissionError:
        said[name] = "EPERM"
import concurrent.futures, multiprocessing, asyncio
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    said["processes"] = list(pool.map(abs, [-1, 2]))
said["loop"] = asyncio.run(asyncio.sleep(0, "done"))
json.dump(said, open("report.json", "w"))
"""


def test_trusted_roles_have_no_internet_sockets_at_all() -> None:
    if reason := why_not("scorer"):
        pytest.skip(reason)
    with user_folder() as folder:

        def run() -> dict[str, Any]:
            for name in ("workspace", "tmp", "output", "src"):
                (folder / name).mkdir()
            for name in ("card.yaml", "manifest.json"):
                (folder / name).touch()
            write_profile(folder / "filter.json", "trusted")
            seen = {
                "source": folder / "src",
                "card": folder / "card.yaml",
                "manifest": folder / "manifest.json",
                "workspace": folder / "workspace",
            }
            runtime = find_runtime()
            command = trusted_command(
                ("python3", "-c", TRUSTED),
                image=IMAGES / "scorer.sif",
                seen=seen,
                tmp=folder / "tmp",
                output=folder / "output",
                seccomp=folder / "filter.json",
                runtime=runtime,
            )
            environment = host_environment(folder / "tmp", runtime)
            streams = (folder / "out", folder / "err")
            with Supervised(command, env=environment, cwd=folder, streams=streams, timeout_s=60) as supervised:
                outcome = supervised.attend(60)
            assert outcome.exit_code == 0, outcome.stderr.text()
            found: dict[str, Any] = json.loads((folder / "output/report.json").read_text())
            return found

        assert as_user(run) == {
            "AF_UNIX": "done",
            "AF_NETLINK": "done",
            "AF_INET": "EPERM",
            "AF_INET6": "EPERM",
            "processes": [1, 2],
            "loop": "done",
        }


# --- ordinary work --------------------------------------------------------------------------------------------------

WORK = {
    "threads": (
        "python",
        "import threading\nt = [threading.Thread(target=int) for _ in range(50)]\n[x.start() for x in t]",
    ),
    "pools": (
        "python",
        "import multiprocessing as mp\nif __name__ == '__main__':\n  for how in ('fork', 'spawn', 'forkserver'):\n"
        "    with mp.get_context(how).Pool(2) as pool:\n      assert pool.map(abs, [-1, 2]) == [1, 2]",
    ),
    "manager-and-shared-memory": (
        "python",
        "import multiprocessing as mp\nfrom multiprocessing import shared_memory\nif __name__ == '__main__':\n"
        "  with mp.Manager() as m:\n    d = m.dict()\n    d['a'] = 1\n"
        "  s = shared_memory.SharedMemory(create=True, size=10**6)\n  s.buf[0] = 1\n  s.close()\n  s.unlink()",
    ),
    "numeric": (
        "python",
        "import numpy as np, scipy.linalg, scipy.ndimage, skimage.filters\na = np.random.rand(200, 200)\n"
        "np.linalg.svd(a)\nscipy.linalg.eigh(a @ a.T)\nscipy.ndimage.gaussian_filter(a, 2)\nskimage.filters.sobel(a)",
    ),
    "plot": (
        "python",
        "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\n"
        "plt.savefig('p.png')\nfrom PIL import Image\nImage.open('p.png').load()",
    ),
    "sqlite": (
        "python",
        "import sqlite3\nc = sqlite3.connect('x.db')\nc.execute('pragma journal_mode=wal')\n"
        "c.execute('create table t(a)')\nc.commit()",
    ),
    "asyncio": (
        "python",
        "import asyncio\nasync def f():\n  p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\n"
        "  return (await p.communicate())[0]\nassert asyncio.run(f()) == b'hi\\n'",
    ),
    "loopback": (
        "python",
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(s.getsockname())",
    ),
    "memmap": ("python", "import numpy as np\nm = np.memmap('m', 'f4', 'w+', shape=(1000,))\nm[:] = 1\nm.flush()"),
    "pipes": (
        "bash",
        "set -euo pipefail; seq 1000 | sort -rn | awk '{s+=$1} END {exit s!=500500}'; cat <(echo x) | tr x y",
    ),
    "tools": ("bash", "set -e; mkdir a; echo x > a/b; tar czf a.tgz a; tar tzf a.tgz; find . -name b | xargs -P 2 cat"),
    "environment": ("bash", "set -e; python3 -m venv v; v/bin/python -c 'import json'"),
    "wheel": (
        "bash",
        """set -e
python3 - <<'PY'
import zipfile
with zipfile.ZipFile("demo_pkg-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("demo_pkg/__init__.py", "X = 3\\n")
    wheel.writestr("demo_pkg-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: demo-pkg\\nVersion: 1.0\\n")
    wheel.writestr("demo_pkg-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("demo_pkg-1.0.dist-info/RECORD", "")
PY
python3 -m pip install --quiet --user --no-index ./demo_pkg-1.0-py3-none-any.whl
python3 -c 'import demo_pkg; assert demo_pkg.X == 3'""",
    ),
}


def test_ordinary_work_is_not_disturbed(box: Box) -> None:
    results = box.calls(*WORK.values(), timeout_s=120)
    failed = {name: item.stderr for name, item in zip(WORK, results, strict=True) if item.status != "ok"}
    assert failed == {}
    assert [item for item in box.findings if item.severity != "notice"] == []


# --- limits ---------------------------------------------------------------------------------------------------------

MEMORY = {
    "heap": ("python", "b = []\nwhile True: b.append(bytearray(10_000_000))"),
    "shared-folder": ("bash", "dd if=/dev/zero of=/dev/shm/x bs=1M count=700 status=none; sleep 60"),
}


@pytest.mark.parametrize(("language", "code"), MEMORY.values(), ids=MEMORY)
def test_memory_is_limited(box: Box, language: str, code: str) -> None:
    result = box.call(language, code, limits=Limits(mem_gb=0.5))
    assert (result.status, result.exit_code) == ("killed", 137)
    assert "[SANDBOX] memory limit: " in result.stderr


def test_forks_are_limited_and_nothing_of_a_bomb_stays(box: Box) -> None:
    code = (
        "import os, time\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: time.sleep(76503)\n    n += 1\n"
        "except OSError as error: print(n, error.errno == 11)"
    )
    result = box.call("python", code, limits=Limits(max_processes=100))
    forked, again = result.stdout.split()
    assert 50 < int(forked) < 110
    assert again == "True"
    assert box.enforced is not None
    assert box.enforced.max_processes == 100


def test_disk_of_deleted_files_in_tmp_is_limited(box: Box) -> None:
    code = (
        "import os, time\nf = open('/tmp/big', 'wb')\nos.unlink('/tmp/big')\nf.write(bytes(20_000_000))\nf.flush()\n"
        "time.sleep(60)"
    )
    result = box.call("python", code, limits=Limits(disk_gb=0.01))
    assert result.status == "killed"
    assert "disk limit" in result.stderr


def test_resource_limits_are_in_force_inside(box: Box) -> None:
    code = (
        "import resource as r\nprint(*(r.getrlimit(getattr(r, 'RLIMIT_' + n))[0] for n in ('CORE', 'FSIZE', 'NOFILE')))"
    )
    core, size, files = map(int, box.call("python", code).stdout.split())
    assert (core, size) == (0, 50 * 10**9)  # docs/specification.md, 9.2
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert files == min(16_384, hard // 2)  # starts of other containers may have more on their way


STUBBORN = {
    "ignores-term": "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(76504)",
    "double-fork": (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(76504)\n  os._exit(0)\n"
        "time.sleep(76504)"
    ),
    "stopped": (
        "import os, signal\nif os.fork() == 0: os.execvp('sleep', ['sleep', '76504'])\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    ),
    "stopped-children": (
        "import signal, subprocess, time\np = subprocess.Popen(['sleep', '76504'])\np.send_signal(signal.SIGSTOP)\n"
        "time.sleep(76504)"
    ),
}


@pytest.mark.parametrize("code", STUBBORN.values(), ids=STUBBORN)
def test_a_call_ends_within_ten_seconds_of_its_limit(box: Box, code: str) -> None:
    result = box.call("python", code, timeout_s=3)
    assert result.status == "timeout"
    assert result.elapsed_s < 3 + 10  # docs/specification.md, 8.4
    assert sleepers() == []


def sleepers() -> list[str]:
    time.sleep(0.1)
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            found += [name] if b"76504" in arguments else []
    return found


# --- evidence -------------------------------------------------------------------------------------------------------


def test_the_hook_reports_from_every_python_of_a_call(box: Box) -> None:
    tried = "import ctypes; ctypes.CDLL(None).ptrace"
    box.calls(
        ("python", tried),
        ("bash", f'python3 -c "{tried}"'),
        ("python", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {tried!r}])"),
        ("python", "print('quiet')"),
    )
    assert [item.call for item in box.findings if item.rule == "runtime.native_escape"] == [1, 2, 3]


def test_hook_and_pipe_cannot_be_changed_inside(box: Box) -> None:
    code = (
        "touch /run/hook/x; echo > /run/hook/sitecustomize.py; rm -f /run/evidence; chmod 777 /run/evidence;"
        " cat /run/evidence; mv /run/hook /run/other; ls /run"
    )
    result = box.call("bash", code)
    assert result.stdout.split() == ["call", "evidence", "hook", "lock", "runner.py", "trace", "trace_filter.py"]
    assert result.stderr.count("Read-only file system") >= 3
    assert "cat: /run/evidence: Permission denied" in result.stderr


def test_a_flood_into_the_pipe_harms_nobody(box: Box) -> None:
    code = (
        "import os\nf = os.open('/run/evidence', os.O_WRONLY | os.O_NONBLOCK)\nn = 0\n"
        "for i in range(200_000):\n  try:\n    n += os.write(f, b'native\\t1\\tforged %d\\n' % i)\n"
        "  except BlockingIOError: pass\nprint('done')"
    )
    flood, after = box.calls(("python", code), ("python", "import ctypes; ctypes.CDLL(None).ptrace; 1 / 0"))
    assert (flood.status, flood.stdout, after.status) == ("ok", "done\n", "error")
    found = [(item.rule, item.severity, item.call) for item in box.findings if item.source == "runtime"]
    assert found == [
        ("hook.dropped", "notice", 1),
        ("runtime.native", "notice", 1),
        ("runtime.native_escape", "warning", 2),
    ]


def test_training_ends_a_call(box: Box) -> None:
    """With a module in PyTorch's place: the image has none; the real one is in tests/unit/test_hook.py."""
    report = (
        "import os, time\nf = os.open('/run/evidence', os.O_WRONLY | os.O_NONBLOCK)\n"
        "os.write(f, b'torch.backward\\t9\\tbackward\\ntorch.step\\t9\\tSGD\\n')\n"
        "time.sleep(60)"
    )
    result = box.call("python", report)
    assert result.status == "killed"
    assert "[SANDBOX] training:" in result.stderr
    assert {(item.rule, item.severity, item.confidence) for item in box.findings} == {
        ("training.step", "warning", "high"),
        ("training.backward", "notice", "low"),
    }


def test_a_decoy_that_is_submitted_is_recognised(box: Box) -> None:
    code = (
        "mkdir -p agents_outputs/c1; cp /data/private/c1/mask.nii.gz agents_outputs/c1/mask.nii.gz;"
        " zcat /data/private/c1/mask.nii.gz > agents_outputs/c1/raw; rm agents_outputs/c1/mask.nii.gz"
    )
    marker = as_user(lambda: marker_of_a_call(box, code))
    (finding,) = decoy_findings(box.folder / "workspace/agents_outputs", marker)
    assert (finding.rule, finding.severity) == ("decoy.used", "disqualifying")


def marker_of_a_call(box: Box, code: str) -> str:
    """Run one call with a decoy; returns the decoy's marker."""
    for name in ("workspace", "log", "public"):
        (box.folder / name).mkdir(exist_ok=True)
    with (
        Decoy(["{case}/mask.nii.gz"], ["c1"]) as decoy,
        ApptainerSandbox(
            image=IMAGES / "light.sif", public=box.folder / "public", workspace=box.folder / "workspace", decoy=decoy
        ) as sandbox,
    ):
        sandbox.run_code("bash", code, call=1, turn=1, log=box.folder / "log", timeout_s=60)
        assert "decoy.open" in {item.rule for item in sandbox.drain_findings()}
        return decoy.marker


# --- the driver's side ----------------------------------------------------------------------------------------------


def test_what_is_enforced_is_measured(box: Box) -> None:
    box.call("bash", "true")
    assert box.enforced is not None
    assert (box.enforced.seccomp, box.enforced.hook, box.enforced.max_processes) == (True, True, 4096)


def test_the_driver_may_end_a_call(box: Box) -> None:
    began = time.monotonic()
    result = box.call(
        "bash", "echo on; sleep 76505", watch=lambda: Stop("no budget") if time.monotonic() > began + 3 else None
    )
    assert (result.status, result.stdout) == ("killed", "on\n")
    assert "[SANDBOX] no budget" in result.stderr


def test_a_frozen_container_does_no_work(box: Box) -> None:
    """A loop in the background, one second at work and three frozen; then it goes on, and so do calls."""

    def frozen() -> tuple[int, int, int, str]:
        place = box.folder / "workspace/count"
        for name in ("workspace", "log", "public"):
            (box.folder / name).mkdir()
        with ApptainerSandbox(
            image=IMAGES / "light.sif", public=box.folder / "public", workspace=box.folder / "workspace"
        ) as sandbox:
            code = "while :; do printf x >> count; done & sleep 1; stat -c %s count"
            first = sandbox.run_code("bash", code, call=1, turn=1, log=box.folder / "log", timeout_s=60)
            with sandbox.frozen(10):
                time.sleep(0.2)
                begun = place.stat().st_size
                time.sleep(3)
                worked = place.stat().st_size - begun
            again = sandbox.run_code("bash", "sleep 0.2", call=2, turn=2, log=box.folder / "log", timeout_s=60)
            return int(first.stdout), worked, place.stat().st_size - begun - worked, again.status

    in_a_second, in_three_frozen, later, status = as_user(frozen)
    assert in_three_frozen <= 0.05 * 3 * in_a_second
    assert (later > 0, status) == (True, "ok")


def test_a_leak_stops_the_run_before_any_code_runs(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site whose runtime binds the host's folders into every container: here the flag against it is left out."""
    monkeypatch.setattr("automedbench.sandbox.container.launcher._ISOLATION", ("--no-init", "--containall"))
    monkeypatch.setattr("automedbench.sandbox.container.launcher._SEALED", ("--bind", str(box.folder)))
    with pytest.raises(InfrastructureError, match=r"does not isolate.*of the host can be read"):
        box.call("bash", "touch /workspace/ran")
    assert not (box.folder / "workspace/ran").exists()


def test_start_up_files_of_the_agent_do_not_reach_the_probe(box: Box) -> None:
    """The last check comes after the agent's calls, which may have left start-up files."""
    code = (
        "d=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d;"
        " echo 'import os; print(\"mine\"); os._exit(0)' > $d/mine.pth; cp $d/mine.pth /workspace/sitecustomize.py;"
        " cp $d/mine.pth /workspace/json.py; echo exit > /workspace/.bashrc"
    )
    assert box.call("bash", code).status == "ok"
    assert box.enforced is not None
    assert box.enforced.seccomp
