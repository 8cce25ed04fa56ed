"""Shared cards on a real GPU: four processes take turns, one is killed while it has memory; no image is needed.

    python3 -P benchmarks/gpu_turns.py [--turns 10]        # standard library and the driver; two minutes

Each turn makes a CUDA context, takes 2 GiB, looks at them, and fills them with the process's own pattern. Prints the
memory in use that a new holder finds, and whether bytes of others were ever read.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from automedbench.sandbox.container.turns import Turns

GIB = 2**30
NODE = Path("/dev/nvidia0")


class Memory(ctypes.Structure):
    """NVML's bytes of a card."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Driver:
    """NVML of the first card."""

    def __init__(self) -> None:
        self.nvml, self.card = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        self.nvml.nvmlInit_v2()
        self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.card))

    def used(self) -> int:
        memory = Memory()
        self.nvml.nvmlDeviceGetMemoryInfo(self.card, ctypes.byref(memory))
        return int(memory.used)

    def is_idle(self, _uuid: str) -> bool:
        number = ctypes.c_uint()
        code = self.nvml.nvmlDeviceGetComputeRunningProcesses(self.card, ctypes.byref(number), None)
        return code == 0 and not number.value


def ask(cuda: Any, name: str, *arguments: Any) -> None:
    """Call the driver; raises on its error."""
    if code := getattr(cuda, name)(*arguments):
        raise SystemExit(f"{name} gives CUDA error {code}")


def compute(pattern: int, seconds: float) -> int:
    """A child's turn: context, 2 GiB, looked at before they are filled; how many of 1 MiB were not zero."""
    cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    place, seen = ctypes.c_void_p(), (ctypes.c_ubyte * 2**20)()
    ask(cuda, "cuInit", 0)
    ask(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    ask(cuda, "cuCtxCreate_v2", ctypes.byref(context), 0, device)
    ask(cuda, "cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(2 * GIB))
    ask(cuda, "cuMemcpyDtoH_v2", seen, place, ctypes.c_size_t(2**20))
    ask(cuda, "cuMemsetD8_v2", place, ctypes.c_ubyte(pattern), ctypes.c_size_t(2 * GIB))
    time.sleep(seconds)
    return sum(1 for byte in bytes(seen) if byte)


def member(number: int, turns: int) -> None:
    """Take turns; each call is a process of its own, as in a run. The second member is killed in its fourth turn."""
    driver = Driver()
    mine = Turns([("gpu-turns-check", NODE)], driver.is_idle)
    for turn in range(turns):
        waited = mine.take()
        found = driver.used()
        child = subprocess.Popen([sys.executable, "-P", __file__, "--compute", str(number + 1)], stdout=subprocess.PIPE)
        if number == 1 and turn == 3:
            time.sleep(1.5)
            child.kill()  # with its memory; the member ends at once, without waiting for it
            print(json.dumps({"killed": True}), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        foreign = int(child.communicate()[0] or -1)
        print(json.dumps({"waited": waited, "found": found, "foreign": foreign}), flush=True)
        mine.close()


def main() -> None:
    """Run four members and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--member", type=int)
    parser.add_argument("--compute", type=int)
    options = parser.parse_args()
    if options.compute is not None:
        print(compute(options.compute, 0.3))
        return
    if options.member is not None:
        member(options.member, options.turns)
        return
    before = Driver().used()
    words = [sys.executable, "-P", __file__, "--turns", str(options.turns), "--member"]
    began = time.monotonic()
    members = [subprocess.Popen([*words, str(number)], stdout=subprocess.PIPE, text=True) for number in range(4)]
    lines = [json.loads(line) for each in members for line in each.communicate()[0].splitlines()]
    found = [line["found"] for line in lines if "found" in line]
    print(f"{len(found)} turns in {time.monotonic() - began:.1f} s, {sum('killed' in line for line in lines)} killed")
    print(f"memory in use: {before / 2**20:.0f} MiB before, {max(found) / 2**20:.0f} MiB at most when a turn began")
    print(f"bytes of others that were read: {sum(line['foreign'] for line in lines if 'foreign' in line)}")
    print(f"median wait for a turn: {statistics.median(line['waited'] for line in lines if 'waited' in line):.1f} s")


if __name__ == "__main__":
    main()
