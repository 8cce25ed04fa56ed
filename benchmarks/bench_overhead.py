"""What the harness adds to a code call and to a turn, beside what they cost without it.

    python benchmarks/bench_overhead.py [--rounds 15] [--turns 30]

A code call is compared with its program as a bare process and with a bare start of its container, a turn with a bare
HTTP request to the same server on loopback. All candidates of a table run in turn, in every round, on the same machine;
trust the ratios and differences, not the milliseconds. As root, containers are
started by an ordinary user.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "tests")]

from storm import make_site, plan_of, run_quietly  # noqa: E402
from unprivileged import IMAGES, as_user, python_for_user, user_folder, why_not  # noqa: E402

from automedbench.agent.models.scripted import CodeStep, ScriptedTurn, SubmitStep  # noqa: E402
from automedbench.sandbox import boxes  # noqa: E402
from automedbench.sandbox.boxes import ApptainerSandbox, LocalSandbox  # noqa: E402
from automedbench.sandbox.container.launcher import (  # noqa: E402
    AgentRole,
    agent_command,
    find_runtime,
    host_environment,
    write_profile,
)
from automedbench.sandbox.egress import Egress, EgressSettings  # noqa: E402
from automedbench.sandbox.evidence import trace_filter  # noqa: E402
from automedbench.sandbox.evidence.decoy import Decoy  # noqa: E402
from automedbench.sandbox.evidence.trace import Trace  # noqa: E402
from automedbench_rehearsal.model_server.server import ScriptedServer  # noqa: E402

NOT_POSSIBLE_HERE = 3
Seconds = dict[str, list[float]]


def main() -> int:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turns", type=int, default=30, help="turns of one conversation")
    options = parser.parse_args()
    if reason := why_not("light"):
        print(reason, file=sys.stderr)
        return NOT_POSSIBLE_HERE
    print(f"**One code call**, {options.rounds} rounds\n")
    print(table(as_user_in_folder(lambda folder: _code_calls(folder, options.rounds))))
    print(f"\n**One turn**, conversations of {options.turns} turns, {options.rounds} rounds\n")
    measured, around = turns(options.rounds, options.turns)
    opened, work = traced_opens(options.rounds), as_user_in_folder(lambda folder: _traced_work(folder, options.rounds))
    print(table(measured))
    print(f"\nA run costs {1000 * around:.0f} ms before its first turn and after its last: lease, brief, ledger, seal.")
    print(f"\n**Behind the trace**, {options.rounds} rounds; per call of the kernel: µs instead of ms\n")
    print(table(opened))
    print(f"\n**Work behind the trace**, fastest of {options.rounds} rounds, in a container with it and one without\n")
    print(work)
    return 0


def table(measured: Mapping[str, list[float]]) -> str:
    """Markdown: medians, and each round's ratio and difference to the first candidate of the same round."""
    first = next(iter(measured.values()))
    rows = ["| | ms | ÷ first | more ms |", "|---|---|---|---|"]
    for name, seconds in measured.items():
        ratio = statistics.median(own / bare for own, bare in zip(seconds, first, strict=True))
        more = statistics.median(own - bare for own, bare in zip(seconds, first, strict=True))
        rows.append(f"| {name} | {1000 * statistics.median(seconds):.1f} | {ratio:.2f} | {1000 * more:.1f} |")
    return "\n".join(rows)


def in_turn(candidates: Mapping[str, Callable[[], Any]], rounds: int) -> Seconds:
    """Seconds of every candidate in every round, after one that is not counted."""
    seconds: Seconds = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, candidate in candidates.items():
            began = time.perf_counter()
            candidate()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


# --- a code call ------------------------------------------------------------------------------------------------


def as_user_in_folder(measure: Callable[[Path], Any]) -> Any:
    """What an ordinary user measures in a folder of its own."""
    before = tempfile.tempdir, sys.executable
    try:
        with user_folder() as folder:
            return as_user(lambda: measure(folder))
    finally:
        # An ordinary user makes the calls in this very process, whose folder for temporary files is gone now.
        tempfile.tempdir, sys.executable = before


def _code_calls(folder: Path, rounds: int) -> Seconds:
    """An empty program through the sandbox, beside the start of its container alone."""
    for name in ("public", "workspace", "log", "tmp", "bare"):
        (folder / name).mkdir()
    tempfile.tempdir, sys.executable = str(folder / "tmp"), python_for_user(folder)
    image = IMAGES / "light.sif"
    number = iter(range(1, 10**6))

    def call(sandbox: Any, language: str, code: str) -> None:
        result = sandbox.run_code(language, code, call=next(number), turn=1, log=folder / "log", timeout_s=60)
        if result.status != "ok":
            raise SystemExit(f"a call failed: {result.stderr}")

    with contextlib.ExitStack() as stack:
        decoy = stack.enter_context(Decoy(["{case}/boxes.json"], [f"case_{number:04d}" for number in range(100)]))
        places = {"image": image, "public": folder / "public", "workspace": folder / "workspace"}
        sealed = stack.enter_context(ApptainerSandbox(**places, decoy=decoy))
        proxied = stack.enter_context(_proxied(folder, places))
        local = stack.enter_context(LocalSandbox(public=folder / "public", workspace=folder / "workspace"))
        write_profile(folder / "filter.json")
        bare = _bare_command(folder, image)
        filtered = _bare_command(folder, image, seccomp=folder / "filter.json")
        return in_turn(
            {
                "bare process: `bash -c true`": lambda: _run(["bash", "-c", "true"], folder),
                "whole call, empty `bash`, sealed": lambda: call(sealed, "bash", "true"),
                "whole call, empty `bash`, proxied": lambda: call(proxied, "bash", "true"),
                "whole call, empty `bash`, local sandbox (no container)": lambda: call(local, "bash", "true"),
                "bare process: `python3 -c pass`": lambda: _run(["python3", "-c", "pass"], folder),
                "whole call, empty `python`, sealed": lambda: call(sealed, "python", "pass"),
                "container start alone: `apptainer exec … true`": lambda: _run([*bare, "true"], folder),
                "the same with the system call filter": lambda: _run([*filtered, "true"], folder),
                "container start alone: `… python3 -c pass`": lambda: _run([*bare, "python3", "-c", "pass"], folder),
            },
            rounds,
        )


def _bare_command(folder: Path, image: Path, *, seccomp: Path | None = None) -> list[str]:
    """The binds and namespaces of a run's container, without a program and without the parts that are ours."""
    role = AgentRole(
        image=image,
        public=folder / "public",
        workspace=folder / "workspace",
        tmp=folder / "bare",
        calls=folder / "bare",
        seccomp=seccomp,
    )
    return agent_command(role, runtime=find_runtime())[:-4]


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, env=host_environment(folder), cwd=folder, check=True, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def _proxied(folder: Path, places: Mapping[str, Path]) -> Iterator[Any]:
    (folder / "s").mkdir(mode=0o700)
    with (
        Egress(EgressSettings(allow=("example.org",)), folder / "log" / "egress.jsonl", folder / "s") as egress,
        ApptainerSandbox(**places, network="proxied", services=egress.services) as sandbox,
    ):
        yield sandbox


# --- the trace --------------------------------------------------------------------------------------------------

OPENS = 2000
OPEN = f"""
import os, sys, time
began = time.perf_counter()
for _ in range({OPENS}):
    try: os.close(os.open(sys.argv[1], os.O_RDONLY))
    except OSError: pass
print((time.perf_counter() - began) / {OPENS})
"""


def traced_opens(rounds: int) -> Seconds:
    """An open behind the filter and without it, in milliseconds per thousand."""
    with tempfile.TemporaryDirectory() as name, Trace(Path(name)) as trace:
        behind = [sys.executable, "-I", "-S", trace_filter.__file__]

        def run(*command: str, traced: bool) -> str:
            first = [*behind, str(trace.expect())] if traced else []
            return subprocess.run([*first, *command], check=True, capture_output=True, text=True).stdout

        seconds = in_turn({"start of the tracer, once per run": lambda: _start_and_end(Path(name))}, rounds)
        for path in ("/usr/lib/os-release", f"{name}/file", "/data/private/x"):
            Path(name, "file").touch()
            for traced in (False, True):
                shown = path.replace(name, "/workspace")
                row = f"open of `{shown}`{', traced' if traced else ''} (µs)"
                each = [float(run(sys.executable, "-c", OPEN, path, traced=traced)) for _ in range(rounds)]
                seconds[row] = [1000 * value for value in each]
        return seconds


def _start_and_end(folder: Path) -> None:
    with Trace(folder) as trace:
        trace.take()


LOADERS, FILES = 16, 20_000
LOAD = f"""
import multiprocessing, os, time, zlib
import numpy
files = [os.path.join(at, name) for at, _, names in os.walk("/data/public") for name in names]
def read(first):
    for path in files[first::{LOADERS}]:
        with open(path, "rb") as stream: stream.read()
def decode(first):
    for path in files[first::{LOADERS}]:
        with open(path, "rb") as stream: numpy.frombuffer(zlib.decompress(stream.read()), "u1").mean()
for work in (read, decode):
    with multiprocessing.Pool({LOADERS}) as pool:
        pool.map(abs, range({LOADERS}))
        began = time.perf_counter()
        pool.map(work, range({LOADERS}), chunksize=1)
        print(time.perf_counter() - began)
for module in ("numpy, scipy.ndimage, scipy.stats, skimage.filters, skimage.measure", "torch, monai"):
    began = time.perf_counter()
    code = os.system(f"python3 -c 'import {{module}}' 2>/dev/null")
    print(time.perf_counter() - began if code == 0 else "nan")
"""
WORK = (
    f"{LOADERS} loaders read {FILES} files of 4 KB",
    "the same, each file unpacked to 256 KB",
    "`import numpy, scipy, skimage`",
    "`import torch, monai`",
)


def _traced_work(folder: Path, rounds: int) -> str:
    """Markdown: seconds of the fastest round with and without the trace; what the image lacks is left out."""
    for name in ("log", "tmp", "untraced", "traced"):
        (folder / name).mkdir()
    tempfile.tempdir, sys.executable = str(folder / "tmp"), python_for_user(folder)
    for number in range(FILES if rounds > 1 else FILES // 50):  # one round only shows that it works
        place = folder / f"public/case_{number // 100:04d}/slice_{number % 100}.z"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(zlib.compress(random.Random(number).randbytes(3500) + bytes(258_644), 1))
    seconds: dict[str, list[list[float]]] = {"untraced": [], "traced": []}
    with contextlib.ExitStack() as stack:
        sandboxes = {}
        for name in seconds:
            made = ApptainerSandbox(image=IMAGES / "light.sif", public=folder / "public", workspace=folder / name)
            with mock.patch.object(boxes, "Trace", Trace if name == "traced" else lambda _: None):
                sandboxes[name] = stack.enter_context(made)
        for number in range(1, rounds + 2):
            for name, sandbox in sandboxes.items():
                result = sandbox.run_code("python", LOAD, call=number, turn=1, log=folder / "log", timeout_s=300)
                seconds[name].append([float(word) for word in result.stdout.split()])
    bare, traced = ([min(each) for each in zip(*rows, strict=True)] for rows in seconds.values())
    rows = ["| | s | s, traced | ÷ |", "|---|---|---|---|"]
    for what, one, other in zip(WORK, bare, traced, strict=True):
        rows += [f"| {what} | {one:.2f} | {other:.2f} | {other / one:.2f} |"] if one == one else []
    return "\n".join(rows)


# --- a turn -----------------------------------------------------------------------------------------------------


def turns(rounds: int, length: int) -> tuple[Seconds, float]:
    """A turn of a run whose code costs nothing, beside a bare request with the same conversation.

    A turn is the difference of a run with ``length`` turns and one with two, per turn; what is left of the short one
    is the second value: what a run costs before its first and after its last turn.
    """
    import httpx2

    with tempfile.TemporaryDirectory() as name, ScriptedServer({"long": _turns(length), "short": _turns(2)}) as server:
        folder, site = Path(name), make_site(Path(name) / "site")
        number = iter(range(1, 10**6))

        def run(character: str) -> None:
            plan = plan_of(site, character, next(number), server.url, folder / "results")
            run_quietly(plan, open_sandbox=lambda *_: _NoSandbox())

        run("long")
        bodies = [json.dumps(body).encode() for body in server.requests]
        with httpx2.Client(headers={"Content-Type": "application/json"}) as client:

            def bare() -> None:
                for body in bodies:
                    client.post(f"{server.url}/chat/completions", content=body).raise_for_status()

            seconds = in_turn({"bare": bare, "long": lambda: run("long"), "short": lambda: run("short")}, rounds)
    pairs = list(zip(seconds["long"], seconds["short"], strict=True))
    turn = [(long - short) / (length - 2) for long, short in pairs]
    around = statistics.median(short - 2 * each for (_, short), each in zip(pairs, turn, strict=True))
    return {
        "bare HTTP request": [second / length for second in seconds["bare"]],
        "turn of the loop, its code left out": turn,
    }, around


def _turns(length: int) -> list[ScriptedTurn]:
    step = ScriptedTurn(content="Next.", calls=[CodeStep(tool="execute_code", language="bash", code="true")])
    return [step] * (length - 2) + [ScriptedTurn(calls=[SubmitStep(tool="submit_results")])] * 2


class _NoSandbox:
    """Code that costs nothing, so that only the loop is left."""

    data_dir, workspace_dir = "/data/public", "/workspace"
    peak_memory = gpu_busy_s = gpu_idle_s = gpu_turns_s = None

    def __init__(self) -> None:
        from automedbench.base.records import Enforced

        self.enforced = Enforced(backend="local", network="open")

    def __enter__(self) -> _NoSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def run_code(self, language: str, code: str, **_: Any) -> Any:
        from automedbench.sandbox.container.process import CodeResult

        return CodeResult(status="ok", exit_code=0, stdout="fine\n", stderr="", elapsed_s=0.0)

    def drain_findings(self) -> list[Any]:
        return []

    def take_turn(self) -> float:
        return 0.0

    def drain_gpu_wait(self) -> float:
        return 0.0

    def drain_gpu_use(self) -> None:
        return None

    def drain_processes(self) -> None:
        return None

    def selfcheck(self) -> None:
        return None

    def end(self) -> None:
        return None

    def set_deadline(self, seconds: float | None) -> None:
        return None


if __name__ == "__main__":
    sys.exit(main())
