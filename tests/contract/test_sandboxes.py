"""Every sandbox keeps the same contract; what only isolation can promise stands in tests/security."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from unprivileged import IMAGES, as_user, user_folder, why_not
from waiting import wait_for

from automedbench.base.cards import Limits
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.records import Enforced, Finding
from automedbench.sandbox import boxes
from automedbench.sandbox.boxes import ApptainerSandbox, LocalSandbox
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.container.tree import cpu_seconds
from automedbench.sandbox.evidence.decoy import Decoy

Call = tuple[str, str]


@dataclass
class Bench:
    """One attempt's folders and a backend to run calls in."""

    backend: Any
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    enforced: Enforced | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def calls(self, *codes: Call, timeout_s: float = 30, **options: Any) -> list[CodeResult]:
        """Run calls one after the other in one sandbox."""
        run = as_user if self.backend == "apptainer" else lambda function: function()
        results, self.findings, self.enforced = run(lambda: self._run(codes, timeout_s, options))
        return results

    def call(self, language: str, code: str, **options: Any) -> CodeResult:
        """Run one call."""
        return self.calls((language, code), **options)[0]

    def made(self, **options: Any) -> Any:
        """The sandbox, not entered yet."""
        settings = {"image": IMAGES / "light.sif", "limits": Limits(disk_gb=1.0), **options}
        places = {"public": self.folder / "public", "workspace": self.workspace}
        if self.backend == "local":
            return LocalSandbox(**places, limits=settings["limits"])
        return ApptainerSandbox(**places, **settings)

    def _run(self, codes: Sequence[Call], timeout_s: float, options: dict[str, Any]) -> Any:
        for name in ("workspace", "log", "public/case_0001"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "public/case_0001/note.txt").write_text("public data")
        with contextlib.ExitStack() as stack:
            decoy = stack.enter_context(Decoy(["{case}/boxes.json"], ["c1"])) if options.pop("decoy", False) else None
            looks = options.pop("selfcheck", False)
            box = stack.enter_context(self.made(decoy=decoy, **options))
            results, findings = [], []
            for number, (language, code) in enumerate(codes, start=1):
                results.append(
                    box.run_code(language, code, call=number, turn=number, log=self.log, timeout_s=timeout_s)  # type: ignore[arg-type]
                )
                findings += box.drain_findings()
            if looks:
                box.selfcheck()
        return results, findings, box.enforced


@pytest.fixture(params=["local", pytest.param("apptainer", marks=pytest.mark.apptainer)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A fresh attempt in each backend."""
    if request.param == "apptainer" and (reason := why_not("light")):
        pytest.skip(reason)
    with user_folder() as folder:
        yield Bench(request.param, folder)


@pytest.fixture
def container() -> Iterator[Bench]:
    """A fresh attempt in Apptainer."""
    if reason := why_not("light"):
        pytest.skip(reason)
    with user_folder() as folder:
        yield Bench("apptainer", folder)


@pytest.mark.parametrize("language", ["python", "bash"])
def test_empty_code(bench: Bench, language: str) -> None:
    result = bench.call(language, "")
    assert (result.status, result.exit_code, result.stdout, result.stderr) == ("ok", 0, "", "")


def test_output_and_exit_code(bench: Bench) -> None:
    python, bash = bench.calls(
        ("python", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), ("bash", "echo hi; exit 4")
    )
    assert (python.status, python.exit_code, python.stdout, python.stderr) == ("error", 3, "out\n", "err\n")
    assert (bash.status, bash.exit_code, bash.stdout) == ("error", 4, "hi\n")


def test_files_stay_and_the_workspace_is_the_working_directory(bench: Bench) -> None:
    _, second = bench.calls(
        ("python", "open('a.txt', 'w').write('kept'); x = 1"),
        ("bash", 'cat "$WORKSPACE/a.txt"; test "$PWD" -ef "$WORKSPACE" && echo " here"'),
    )
    assert second.stdout == "kept here\n"
    assert (bench.workspace / "a.txt").read_text() == "kept"


def test_public_data_is_where_the_contract_says(bench: Bench) -> None:
    code = "import os\nprint(open(os.environ['DATA_DIR'] + '/case_0001/note.txt').read())"
    assert bench.call("python", code).stdout == "public data\n"


def test_modules_of_the_workspace_can_be_imported(bench: Bench) -> None:
    (result,) = bench.calls(("bash", "echo 'A = 5' > helper.py; python3 -c 'import helper; print(helper.A)'"))
    assert result.stdout == "5\n"
    assert bench.call("python", "import helper; print(helper.A)").stdout == "5\n"


def test_nothing_of_the_callers_environment_is_visible(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "APPTAINERENV_LEAK", "SINGULARITYENV_LEAK", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "canary-value")
    shown = bench.call("bash", "env; cat /proc/self/environ | tr '\\0' '\\n'").stdout
    assert [
        word for word in ("canary-value", "APPTAINER", "SINGULARITY", "AUTOMEDBENCH", ".sif") if word in shown
    ] == []


def test_standard_input_is_empty(bench: Bench) -> None:
    assert bench.call("python", "import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_long_output_is_bounded_and_logged(bench: Bench) -> None:
    result = bench.call("python", "print('x' * 1_000_000)")
    assert (result.stdout_truncated, result.stderr_truncated) == (True, False)
    assert len(result.stdout) < 11_000
    assert (bench.log / "0001.out").stat().st_size == 1_000_001


def test_log_holds_code_and_streams(bench: Bench) -> None:
    bench.calls(("python", "print(1)"), ("bash", "echo 2 >&2"))
    assert sorted(path.name for path in bench.log.iterdir()) == [
        *("0001.err", "0001.out", "0001.py", "0002.err", "0002.out", "0002.sh")
    ]
    assert (bench.log / "0001.py").read_text() == "print(1)"
    assert (bench.log / "0002.err").read_text() == "2\n"


def test_what_the_code_used(bench: Bench) -> None:
    """A second of computing with 200 MB, by a child of the call; what a container costs comes on top."""
    child = "import time\nheld = bytearray(200_000_000)\nwhile time.process_time() < 1.0: pass\ntime.sleep(1)"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"

    def measured() -> tuple[int, float]:
        for name in ("workspace", "log", "public"):
            (bench.folder / name).mkdir(exist_ok=True)
        before = cpu_seconds()
        with bench.made() as box:
            box.run_code("python", code, call=1, turn=1, log=bench.log, timeout_s=60)
        return box.peak_memory or 0, cpu_seconds() - before

    peak, spent = (as_user if bench.backend == "apptainer" else lambda function: function())(measured)
    assert 200e6 < peak < 400e6
    assert 1.0 < spent < 10


def test_time_limit_keeps_what_was_printed(bench: Bench) -> None:
    limit_s = 6 if bench.backend == "apptainer" else 2  # a container starts first
    result = bench.call("python", "print('before')\nimport time\ntime.sleep(60)", timeout_s=limit_s)
    assert (result.status, result.stdout) == ("timeout", "before\n")
    assert "time limit" in result.stderr
    assert result.elapsed_s < 9  # code that does not resist ends at once


def test_time_limit_ends_what_resists(bench: Bench) -> None:
    code = (
        "import signal, subprocess, time\nsignal.signal(15, signal.SIG_IGN)\n"
        "subprocess.Popen(['setsid', 'sleep', '76501'])\ntime.sleep(60)"
    )
    result = bench.call("python", code, timeout_s=2)
    assert result.status == "timeout"
    assert result.elapsed_s < 12
    assert running("76501") == []


def test_background_processes_live_until_the_run_ends(bench: Bench) -> None:
    """A server that a call started answers the next one; how it was started does not matter."""
    port = 20_000 + os.getpid() % 10_000
    server = f"python3 -m http.server {port} --bind 127.0.0.1 >server.log 2>&1 &\n"
    ask = (
        f"import time, urllib.request\nfor _ in range(100):\n  try:\n    print(urllib.request.urlopen("
        f"'http://127.0.0.1:{port}/note.txt').read()); break\n  except OSError: time.sleep(0.1)"
    )
    first, second, third = bench.calls(
        ("bash", f"{server}setsid sleep 76502 & disown; (setsid nohup sleep 76502 &) & echo up; echo x > note.txt"),
        ("python", ask),
        ("bash", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 7650[2]' | wc -l"),
    )
    assert (first.status, first.stdout, second.stdout, third.stdout) == ("ok", "up\n", "b'x\\n'\n", "2\n")
    assert first.elapsed_s < 3
    assert running("76502") == []


def test_temporary_files_stay_between_calls_and_are_gone_with_the_container(bench: Bench) -> None:
    """A container that the agent's code has ended is told of, and started again."""
    end = {"local": "kill -9 $PPID; sleep 9", "apptainer": "prlimit --pid 1 --nofile=4:4; echo done"}[bench.backend]
    kept, ended, told, anew = bench.calls(
        ("bash", "echo 1 > $TMPDIR/kept; chmod 000 $WORKSPACE"),
        ("bash", f"cat $TMPDIR/kept; {end}"),
        ("bash", "ls $TMPDIR"),
        ("bash", "true"),
    )
    assert (kept.status, ended.stdout.splitlines()[0]) == ("ok", "1")
    if bench.backend == "apptainer":  # the runner cannot take the next call's streams
        ended, told = told, anew
    assert ended.status == "killed"
    assert "the next call starts a new one" in ended.stderr
    assert (told.status, told.stdout) == ("ok", "")
    assert "started anew" in told.note


def test_containers_that_end_again_and_again_are_not_replaced_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("local", tmp_path)
    monkeypatch.setattr(boxes, "MAX_STARTS", 2)
    *_, last = bench.calls(*[("bash", "kill -9 $PPID; sleep 9")] * 3)
    assert (last.status, last.exit_code) == ("killed", None)
    assert "no more code is run" in last.stderr


def running(word: str) -> list[str]:
    """Processes with this word among their arguments."""
    time.sleep(0.1)
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            found += [name] if word.encode() in arguments else []
    return found


def test_killed_by_the_system(bench: Bench) -> None:
    result = bench.call("python", "import os; os.kill(os.getpid(), 9)")
    assert (result.status, result.exit_code) == ("killed", 137)
    assert "[SANDBOX]" in result.stderr


def test_disk_limit_ends_the_call(bench: Bench) -> None:
    code = "import time\nwith open('big', 'wb') as f:\n    f.write(b'x' * 3_000_000)\ntime.sleep(60)"
    # The probe after the last call meets the same full workspace, and is no call of the agent's.
    result = bench.call("python", code, limits=Limits(disk_gb=0.001), selfcheck=True)
    assert result.status == "killed"
    assert "disk limit" in result.stderr
    assert result.elapsed_s < 15


def test_an_agent_cannot_pretend_that_the_sandbox_failed(bench: Bench) -> None:
    text = "FATAL:   container creation failed: mount hook function failure"
    result = bench.call("bash", f"echo '{text}' >&2; exit 255")
    assert (result.status, result.exit_code, result.stderr) == ("error", 255, f"{text}\n")


def test_what_is_enforced_is_said(bench: Bench) -> None:
    bench.call("bash", "true", network="sealed")
    assert bench.enforced is not None
    expected = {"local": ("local", "open", False), "apptainer": ("apptainer", "sealed", True)}[bench.backend]
    enforced = bench.enforced
    assert (enforced.backend, enforced.network, enforced.image_sha256 is not None) == expected


def test_scratch_is_removed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = bench.folder / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    bench.call("bash", "mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; chmod 0 $TMPDIR/a/b $TMPDIR/a")
    assert list(scratch.iterdir()) == []


# --- Apptainer only -------------------------------------------------------------------------------------------------


# Takes all it gets of what the kernel counts by user, says so, and keeps it until the others are done.
HOG = """
import ctypes, os, socket, time
libc, kept, watched, forked, pairs = ctypes.CDLL(None), 0, 0, 0, []
while kept < 500 and (instance := libc.inotify_init()) >= 0:
    kept, last = kept + 1, instance
for number in range(5000):
    os.mkdir(f"w{number}")
    watched += libc.inotify_add_watch(last, b"w%d" % number, 2) > 0
try:
    while True:  # descriptors on their way
        pairs.append(socket.socketpair())
        pairs[-1][0].setblocking(False)
        try:
            while True:
                socket.send_fds(pairs[-1][0], [b"x"], [0] * 250)
        except BlockingIOError:
            pass
except OSError:
    pass
try:
    while forked < 500:
        if os.fork() == 0:
            while not os.path.exists("/data/public/done"):
                time.sleep(0.2)
            os._exit(0)
        forked += 1
except OSError:
    pass
open("full", "w").close()
while not os.path.exists("/data/public/done"):
    time.sleep(0.1)
print(kept, watched, forked)
"""
NEIGHBOUR = """
import ctypes, os, time
while not os.path.exists("/data/public/go"):
    time.sleep(0.1)
for _ in range(30):
    if os.fork() == 0:
        time.sleep(0.5)
        os._exit(0)
print(ctypes.CDLL(None).inotify_init() >= 0, "30 forks")
"""


@pytest.mark.apptainer
def test_a_run_at_its_limits_disturbs_no_other_of_the_user(container: Bench) -> None:
    """Eight at a time and a late one; the kernel counts much by user, unless it is told otherwise."""
    public = container.folder / "public"
    places = [container.folder / f"run{number}" for number in range(9)]

    def one(place: Path) -> str:
        for name in ("workspace", "log"):
            (place / name).mkdir(parents=True)
        hog = place in places[:4]
        limits = Limits(disk_gb=1.0, max_processes=100)
        image, log = IMAGES / "light.sif", place / "log"
        with ApptainerSandbox(image=image, public=public, workspace=place / "workspace", limits=limits) as box:
            return box.run_code("python", HOG if hog else NEIGHBOUR, call=1, turn=1, log=log, timeout_s=90).stdout

    def all_at_once() -> list[str]:
        public.mkdir()
        with ThreadPoolExecutor(8) as pool:
            said = [pool.submit(one, place) for place in places[:8]]
            wait_for(lambda: all((place / "workspace/full").exists() for place in places[:4]))
            (public / "go").touch()
            neighbours = [one(places[8]), *(each.result() for each in said[4:])]
            (public / "done").touch()
            return [*neighbours, *(each.result() for each in said[:4])]

    *neighbours, hog, _, _, _ = as_user(all_at_once)
    assert neighbours == ["True 30 forks\n"] * 5
    kept, watched, forked = map(int, hog.split())
    assert (kept, watched, 50 < forked < 100) == (8, 4096, True)


@pytest.mark.apptainer
def test_public_data_cannot_be_changed(container: Bench) -> None:
    result = container.call("bash", "touch /data/public/x; rm -rf /data/public/case_0001; touch /x /usr/x")
    assert result.status == "error"
    assert (container.folder / "public/case_0001/note.txt").read_text() == "public data"
    assert not (container.folder / "public/x").exists()


@pytest.mark.apptainer
def test_programs_of_the_workspace_are_for_calls_alone(container: Bench) -> None:
    """A fake interpreter there neither starts the next container nor answers its probe; code finds it as any other."""
    fakes = "for name in python3 bash sh; do printf '#!/bin/sh\\necho fake\\n' > ~/.local/bin/$name; done"
    made = ("bash", f"mkdir -p ~/.local/bin; {fakes}; chmod +x ~/.local/bin/*")
    (shown,) = container.calls(made, ("bash", "python3"), ("python", "print('real')"), selfcheck=True)[1:2]
    assert shown.stdout == "fake\n"
    assert [result.stdout for result in container.calls(("python", "print('real')"), ("bash", "python3"))] == [
        "real\n",
        "fake\n",
    ]


@pytest.mark.apptainer
def test_no_image(container: Bench) -> None:
    with pytest.raises(MissingDataError, match="No container image"):
        container.call("bash", "true", image=container.folder / "none.sif")


@pytest.mark.apptainer
def test_a_file_that_is_no_image(container: Bench) -> None:
    broken = container.folder / "broken.sif"
    broken.write_text("no image")
    broken.chmod(0o644)
    with pytest.raises(InfrastructureError, match="could not be started") as caught:
        container.call("bash", "true", image=broken)
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.apptainer
def test_decoy_is_seen_from_outside_and_only_when_it_is_touched(container: Bench) -> None:
    container.calls(
        ("bash", "ls /data; find /workspace /data/public; stat /data/private; echo quiet"),
        ("bash", "ls /data/private"),
        (
            "python",
            "import os\nfor r, d, f in os.walk('/data/private'):\n  for n in f: open(os.path.join(r, n)).read()",
        ),
        decoy=True,
    )
    seen = [(item.rule, item.severity, item.call) for item in container.findings if item.source == "tripwire"]
    assert seen == [("decoy.list", "notice", 2), ("decoy.open", "warning", 3), ("decoy.list", "notice", 3)]
    assert container.enforced is not None
    assert container.enforced.decoy


TRIES = """
cd /data/private && cat c1/boxes.json c1/no-such-name; cd /workspace
ln -s /data link; cat link/private/c1/behind-a-link
cat /proc/self/root/home/b/.ssh/id_rsa; unshare true
python3 -I -c "import socket; socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')"
python3 -I -c "import socket; socket.create_connection(('169.254.169.254', 80))"
exit 0
"""


@pytest.mark.apptainer
def test_the_trace_sees_the_runs_own_processes_and_no_third_party(container: Bench) -> None:
    """Failed opens, relative names, links, commands and connections; a backup of the same user is no strike."""

    def run() -> tuple[list[Any], bool]:
        for name in ("workspace", "log", "public"):
            (container.folder / name).mkdir()
        places = {"public": container.folder / "public", "workspace": container.workspace}
        with (
            Decoy(["{case}/boxes.json"], ["c1"]) as decoy,
            ApptainerSandbox(**places, image=IMAGES / "light.sif", decoy=decoy) as box,
        ):
            found = []
            for call, code in enumerate(("true", TRIES), start=1):
                if call == 1:
                    assert next(decoy.folder.parent.rglob("boxes.json")).read_bytes()
                box.run_code("bash", code, call=call, turn=call, log=container.log, timeout_s=30)
                found += [(each.call, each.rule, each.confidence, each.evidence) for each in box.drain_findings()]
            return found, box.enforced.trace

    found, in_force = as_user(run)
    assert in_force
    rules = {(call, rule, confidence) for call, rule, confidence, _ in found if not rule.startswith("runtime.")}
    assert rules == {
        (None, "decoy.third_party", "low"),  # before the first call
        (2, "decoy.open", "high"),
        *((2, f"trace.{rule}", "medium") for rule in ("private_path", "credential_path", "command", "runtime_socket")),
        (2, "trace.metadata", "low"),
    }
    assert any("missing /data/private/c1/no-such-name and " in evidence for _, _, _, evidence in found), found


@pytest.mark.apptainer
def test_skills_can_be_read_alone_and_what_is_opened_is_seen(container: Bench) -> None:
    """By its plain name, relative, and through a link such as programs find in their HOME; no finding for it."""
    code = """cat $SKILLS_DIR/one.md; cd /skills; cat deep/two.md; ln -s /skills /tmp/s; cat /tmp/s/three.md
touch /skills/new || echo 'read-only'; cat /skills/none 2>/dev/null; exit 0"""

    def run() -> tuple[CodeResult, list[str], list[Finding]]:
        for name in ("workspace", "log", "public", "skills/deep"):
            (container.folder / name).mkdir(parents=True)
        for name in ("one.md", "deep/two.md", "three.md", "unread.md"):
            (container.folder / "skills" / name).write_text(f"{name}\n")
        places = {"public": container.folder / "public", "workspace": container.workspace}
        with ApptainerSandbox(**places, image=IMAGES / "light.sif", skills=container.folder / "skills") as box:
            done = box.run_code("bash", code, call=1, turn=1, log=container.log, timeout_s=30)
            read = [path for process in box.drain_processes() or [] for path in process.reads]
            return done, read, [each for each in box.drain_findings() if each.call]

    done, read, found = as_user(run)
    assert done.stdout == "one.md\ndeep/two.md\nthree.md\nread-only\n"
    assert sorted(read) == ["/skills/deep/two.md", "/skills/one.md", "/skills/three.md"]
    assert [each.rule for each in found if each.rule != "trace.write_outside"] == []


@pytest.mark.apptainer
def test_without_decoy_the_folder_does_not_exist(container: Bench) -> None:
    assert container.call("bash", "ls /data").stdout == "public\n"


def test_no_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDataError, match="Apptainer is not installed"):
        ApptainerSandbox(public=tmp_path, workspace=tmp_path, image=tmp_path)
