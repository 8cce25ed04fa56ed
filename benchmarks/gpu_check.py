"""GPU check of a node: what agents' code can do on its cards, in the container and under the limits of real runs.

Started by gpu_check.sh, which says how. Each check is code in the sandbox of a run, with the product's own functions.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedbench.base.errors import AutoMedBenchError, InfrastructureError
from automedbench.base.records import GpuUse
from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container import gpus
from automedbench.sandbox.container.gpu_use import Nvml
from automedbench.sandbox.container.gpus import Card, grant_cards, list_cards, select_visible
from automedbench.sandbox.container.launcher import Devices
from automedbench.sandbox.container.process import CodeResult
from automedbench.sandbox.places import DRIVER_DIR

ALL_S, CALL_S = 540.0, 240.0
RETURN_S = 60.0
"""A card's memory must be free again after a killed run within this time."""
HELD_MIB = 2048
CONTEXT_MIB = 1536
"""A CUDA context and its libraries take less than this beside the memory that PyTorch reserves."""
WORK_S, BUSY_ERROR_S = 6.0, 1.5
"""Seconds of a load whose figures are known, and how far its recorded busy time may be from them."""
MIB = 2**20


class Failed(Exception):
    """A check that failed, in one line."""


class LeftOut(Exception):
    """A check that cannot be made here, in one line."""


HEAD = """
import json, time, torch
D = "DEVICE"
wait = torch.cuda.synchronize if D == "cuda" else (lambda: None)
"""
MATRICES = """
kind = torch.float16 if D == "cuda" else torch.float32
size, rounds = (8192, 50) if D == "cuda" else (512, 5)
x = torch.randn(size, size, device=D, dtype=kind)
x @ x; wait()
began = time.time()
for _ in range(rounds):
    y = x @ x
wait()
speed = 2 * size**3 * rounds / (time.time() - began) / 1e12
print(json.dumps(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {speed:.3g} TFLOP/s"))
"""
CONVOLUTION = """
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)
net, volume = torch.nn.Conv3d(8, 16, 3, padding=1), torch.randn(1, 8, 32, 64, 64)
with torch.no_grad():
    expected = net(volume)
    error = (net.to(D)(volume.to(D)).cpu() - expected).abs().max().item()
assert error < 1e-4, error
print(json.dumps(f"cuDNN {torch.backends.cudnn.version()}, Conv3d as on the processor within {error:.1e}"))
"""
COMPILED = """
def f(x):
    return torch.nn.functional.gelu(x) * x + x.sin()
x = torch.randn(1 << 16, device=D)
began = time.time()
error = (torch.compile(f)(x) - f(x)).abs().max().item()
wait()
assert error < 1e-4, error
print(json.dumps(f"compiled in {time.time() - began:.1f} s, as uncompiled within {error:.1e}"))
"""
LOADERS = """
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self):
        return 512
    def __getitem__(self, number):
        return torch.full((3, 224, 224), float(number))
if __name__ == "__main__":
    began, total = time.time(), 0.0
    for batch in DataLoader(Numbers(), batch_size=16, num_workers=16, pin_memory=D == "cuda"):
        total += batch.to(D)[:, 0, 0, 0].sum().item()
    assert total == 512 * 511 / 2, total
    print(json.dumps(f"16 workers, {512 / (time.time() - began):.0f} pictures/s"))
"""
SEEN = """
import json, os
nodes = sorted(n for n in os.listdir("/dev") if n.startswith(("nvidia", "dri")) and n != "nvidia-caps")
sockets = [p for p in ("/run/nvidia-persistenced", "/var/run/nvidia-persistenced") if os.path.exists(p)]
seen = {k: v for k, v in os.environ.items() if k.endswith("VISIBLE_DEVICES")}
print(json.dumps({"nodes": nodes, "sockets": sockets, "variables": seen}))
"""
LISTED = """
import json, subprocess
print(json.dumps(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines()))
"""
COUNT = """
assert torch.cuda.device_count() == 1, torch.cuda.device_count()
torch.ones(1, device="cuda").sum().item()
time.sleep(3)
print(json.dumps("one card"))
"""
ALL_MEMORY = """
held = []
while True:
    held.append(torch.empty(1 << 28, device=D))
"""
WORK = f"""
held = torch.ones({HELD_MIB} << 18, device=D)
x = torch.randn(4096, 4096, device=D)
torch.cuda.synchronize()
began = time.time()
while time.time() - began < {WORK_S}:
    for _ in range(20):
        y = x @ x
    torch.cuda.synchronize()
print(json.dumps([torch.cuda.max_memory_reserved() // 2**20, time.time() - began]))
"""
HOLD = f"""
held = torch.ones({HELD_MIB} << 18, device=D)
wait()
time.sleep(600)
"""


@dataclass
class Node:
    """What is checked: the image and the cards; ``device`` as PyTorch calls it."""

    image: Path
    folder: Path
    cards: list[Card]
    rehearsed: bool = False
    used: list[GpuUse] = field(default_factory=list)
    ends: float = field(default_factory=lambda: time.monotonic() + ALL_S)

    @contextlib.contextmanager
    def box(self, name: str = "run") -> Iterator[Callable[[str], CodeResult]]:
        """A run's sandbox on one card, as a function that runs Python code in it."""
        folder = self.folder / name
        for part in ("public", "workspace", "log"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        box = ApptainerSandbox(image=self.image, public=folder / "public", workspace=folder / "workspace", gpu=1)
        calls = 0

        def run(code: str) -> CodeResult:
            nonlocal calls
            calls += 1
            text = code.replace('"DEVICE"', repr("cpu" if self.rehearsed else "cuda"))
            seconds = min(CALL_S, max(5.0, self.ends - time.monotonic()))
            done = box.run_code("python", text, call=calls, turn=calls, log=folder / "log", timeout_s=seconds)
            used = box.drain_gpu_use()
            self.used += [used] if used is not None else []
            return done

        with box:
            if not box.enforced.seccomp:
                raise Failed("no system call filter is in force")
            yield run

    def told(self, code: str, name: str = "run") -> Any:
        """What code of a run prints last, as JSON; raises Failed with its error."""
        with self.box(name) as run:
            return answer(run(code))

    def needs_cards(self, number: int = 1) -> None:
        """Raise LeftOut where there are fewer."""
        if self.rehearsed or len(self.cards) < number:
            raise LeftOut("no card is used" if self.rehearsed else f"needs {number} cards")

    def in_use_mib(self) -> int:
        """Memory in use on the first card, by NVML."""
        return Nvml().reading(self.cards[0].uuid)()[0] // MIB


def answer(done: CodeResult) -> Any:
    """The JSON that a call printed last; raises Failed with its error."""
    if done.status != "ok":
        lines = done.stderr.strip().splitlines() or ["nothing on stderr"]
        raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Failed)\b", line)]
        raise Failed(f"{done.status}: {(raised or lines)[-1][:300]}")
    return json.loads(done.stdout.splitlines()[-1])


# --- checks -------------------------------------------------------------------------------------------------------


def cards_of_the_job(node: Node) -> str:
    """There are cards, and the container sees one of them and nothing else of the driver's."""
    if not node.cards:
        raise Failed("no card: look at nvidia-smi -L, /dev/nvidia*, CUDA_VISIBLE_DEVICES")
    seen = node.told(SEEN)
    own = {path.name for path in gpus.list_devices(node.cards[:1]).nodes if path.name.startswith("nvidia")}
    if set(seen["nodes"]) - own or seen["sockets"] or not seen["variables"]:
        raise Failed(f"the container sees {seen}")
    if not node.rehearsed and any(path.name == "nvidiactl" for path in gpus.list_devices(node.cards[:1]).nodes):
        listed = node.told(LISTED)
        if len(listed) != 1:
            raise Failed(f"nvidia-smi -L inside lists {listed}")
    return f"{len(node.cards)}: {', '.join(card.name for card in node.cards)}; inside {seen['variables']}"


def in_pytorch(code: str) -> Callable[[Node], str]:
    """A check that is one program."""
    return lambda node: str(node.told(HEAD + code))


def two_runs(node: Node) -> str:
    """Two at once on two cards, each sees its own; on one card the second waits until the first has ended."""
    if len(node.cards) > 1 and not node.rehearsed:
        with node.box("one") as one, node.box("two") as two:
            answers = [answer(run(SEEN))["variables"] for run in (one, two)]
            if answers[0] == answers[1]:
                raise Failed(f"both see {answers[0]}")
            answer(one(HEAD + COUNT))
            answer(two(HEAD + COUNT))
        return f"{answers[0]} and {answers[1]}"
    only = node.cards[:1]
    with node.box("one") as one:
        answer(one(SEEN))
        with contextlib.suppress(InfrastructureError):
            grant_cards(1, cards=only, environment={}, patience_s=0).close()
            raise Failed("a second run was given the card of the first")
    began = time.monotonic()
    node.told(SEEN, "two")
    return f"one card: refused meanwhile, given afterwards (container started in {time.monotonic() - began:.1f} s)"


def out_of_memory(node: Node) -> str:
    """It is the agent's result: the call fails, the container lives on, and the next call has the card."""
    node.needs_cards()
    with node.box() as run:
        before = answer(run(HEAD + "print(json.dumps(torch.cuda.mem_get_info()[0]))"))
        done = run(HEAD + ALL_MEMORY)
        if done.status != "error" or "out of memory" not in done.stderr:
            raise Failed(f"the call ended otherwise: {done.status} {done.stderr[-200:]!r}")
        after = answer(run(HEAD + "print(json.dumps(torch.cuda.mem_get_info()[0]))"))
    if after < 0.95 * before:
        raise Failed(f"{after // MIB} of {before // MIB} MiB are free afterwards")
    return f"the call failed, {after // MIB} of {before // MIB} MiB free in the next one"


def killed(node: Node) -> str:
    """A driver that is killed gives back memory and card."""
    node.needs_cards()
    before = node.in_use_mib()
    with subprocess.Popen([sys.executable, __file__, "--image", str(node.image), "--hold"]) as driver:
        try:
            wait_for("its memory in use", lambda: holds(driver, node.in_use_mib() - before), CALL_S)
        finally:
            driver.kill()
    seconds = wait_for("its memory free", lambda: node.in_use_mib() <= before + 64, RETURN_S)
    grant_cards(1, cards=node.cards[:1], environment={}, patience_s=RETURN_S).close()
    return f"{HELD_MIB} MiB free {seconds:.1f} s after kill -9, and the card can be had"


def holds(driver: subprocess.Popen[bytes], mib: int) -> bool:
    """It is running and has taken the memory; raises Failed when it has ended."""
    if driver.poll() is not None:
        raise Failed("the run that was to be killed ended by itself")
    return mib > HELD_MIB


def figures(node: Node) -> str:
    """Recorded memory and busy time of a load against PyTorch's own figures."""
    node.needs_cards()
    before = len(node.used)
    reserved, seconds = node.told(HEAD + WORK, "figures")
    used = node.used[before:]
    if not used:
        raise Failed("NVML gave no figures (libnvidia-ml.so.1)")
    peak, busy_s = used[0].peak_mib, used[0].busy_s
    line = f"peak {peak} MiB (PyTorch reserved {reserved}), busy {busy_s} s (computed for {seconds:.1f})"
    if not reserved <= peak <= reserved + CONTEXT_MIB:
        raise Failed(line)
    if busy_s is not None and abs(busy_s - seconds) > BUSY_ERROR_S:  # a slice tells no load
        raise Failed(line)
    return line


CHECKS: dict[str, Callable[[Node], str]] = {
    "cards": cards_of_the_job,
    "CUDA under the filter": in_pytorch(MATRICES),
    "cuDNN": in_pytorch(CONVOLUTION),
    "torch.compile": in_pytorch(COMPILED),
    "data loaders": in_pytorch(LOADERS),
    "two runs": two_runs,
    "out of GPU memory": out_of_memory,
    "kill -9": killed,
    "NVML": figures,
}


def wait_for(what: str, reached: Callable[[], bool], seconds: float) -> float:
    """Seconds until it is so; raises Failed when it takes longer."""
    began = time.monotonic()
    while not reached():
        if time.monotonic() - began > seconds:
            raise Failed(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)
    return time.monotonic() - began


def check(node: Node, name: str) -> tuple[str, str]:
    """Verdict and figures of one check; after a node without cards the others are not tried."""
    try:
        if name != "cards" and not node.cards:
            raise LeftOut("no card")
        return "pass", CHECKS[name](node)
    except LeftOut as reason:
        return "-", str(reason)
    except (Failed, AutoMedBenchError, OSError, ValueError) as error:
        return "FAIL", " ".join(str(error).split())[:400]


# --- without a card -----------------------------------------------------------------------------------------------

DRIVER = """
#include <fcntl.h>
int cuInit(unsigned flags) { return open("/dev/full", O_RDWR) < 0 && open("/dev/fuse", O_RDWR) < 0 ? 100 : FAULT; }
int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = &cuInit; return 0; }
int cuCtxDestroy_v2(void *context) { return 0; }
"""


def rehearse(folder: Path, fault: int = 0) -> list[Card]:
    """Two harmless devices for cards and a made-up driver, in place of what the product finds and binds.

    ``fault``: the error with which that driver starts.
    """
    library = folder / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", f"-DFAULT={fault}", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=DRIVER, text=True, check=True)
    library.chmod(0o755)  # the container's user reads it, whatever the umask is here
    names = enumerate(("full", "fuse"))
    cards = [Card(f"GPU-{name}", f"made-up card {name}", (Path("/dev", name),), index) for index, name in names]

    def devices(own: Any) -> Devices:
        files = {f"{DRIVER_DIR}/libcuda.so.1": library}
        return Devices(own[0].nodes, files, {"CUDA_VISIBLE_DEVICES": own[0].uuid})

    vars(gpus).update(list_cards=lambda: cards, list_devices=devices)
    return cards


def main() -> int:
    """Make all checks and print them; 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", type=Path, default=Path("images/research.sif"), help="an agent image with PyTorch")
    parser.add_argument("--rehearse", action="store_true", help="without a card: harmless devices and the processor")
    parser.add_argument("--hold", action="store_true", help=argparse.SUPPRESS)  # the run that is killed
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as folder:
        cards = rehearse(Path(folder)) if options.rehearse else select_visible(list_cards(), os.environ)
        node = Node(options.image, Path(folder), cards, options.rehearse)
        if options.hold:
            node.told(HEAD + HOLD)
            return 0
        verdicts = []
        for name in CHECKS:
            verdict, text = check(node, name)
            verdicts.append(verdict)
            print(f"{verdict:4}  {name:22} {text}", flush=True)
    counts = f"{verdicts.count('pass')} passed, {verdicts.count('FAIL')} failed, {verdicts.count('-')} left out"
    print(f"gpu_check: {counts}{' (a rehearsal: no GPU was used)' if options.rehearse else ''}")
    return int("FAIL" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
