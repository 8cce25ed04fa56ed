"""GPUs of a run: whose cards they are, that no other run has them, what a container gets, and what was used of them.

Listings are written by hand after the documentation of nvidia-smi (GPUs and slices), device and process
files after that of the drivers; no card is needed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import GpuUse
from automedbench.sandbox.container import gpus
from automedbench.sandbox.container.gpu_use import Meter, Nvml
from automedbench.sandbox.container.gpus import (
    Card,
    driver_files,
    grant_cards,
    list_cards,
    list_devices,
    require_cuda,
    select_visible,
)

UUIDS = [f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "abcd"]
FOUR = "".join(f"GPU {place}: NVIDIA H100 80GB HBM3 (UUID: {uuid})\n" for place, uuid in enumerate(UUIDS))
SLICES = ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"]
SLICED = (
    f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {UUIDS[0]})\n"
    f"  MIG 1g.5gb      Device  0: (UUID: {SLICES[0]})\n"
    f"  MIG 3g.20gb     Device  1: (UUID: {SLICES[1]})\n"
    f"GPU 1: NVIDIA A100-SXM4-40GB (UUID: {UUIDS[1]})\n"
)


def machine(root: Path, minors: tuple[int, ...], uuids: list[str] | None = None) -> Path:
    """Files of a driver that numbers its device files unlike the bus."""
    (root / "dev").mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in minors)):
        (root / "dev" / name).touch()
    for place, minor in enumerate(minors):
        folder = root / f"proc/driver/nvidia/gpus/0000:{place + 1:02x}:00.0"
        folder.mkdir(parents=True)
        uuid = uuids[place] if uuids else "GPU-????????-????-????-????-????????????"
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA\nGPU UUID: \t {uuid}\nBus Location: \t 0\nDevice Minor: \t {minor}\n"
        )
    return root


def add_slice(root: Path, instance: int, caps: tuple[int, int]) -> None:
    folder = root / f"proc/driver/nvidia/capabilities/gpu0/mig/gi{instance}"
    (folder / "ci0").mkdir(parents=True)
    (root / "dev/nvidia-caps").mkdir(exist_ok=True)
    for path, number in zip((folder / "access", folder / "ci0/access"), caps, strict=True):
        path.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
        (root / f"dev/nvidia-caps/nvidia-cap{number}").touch()


class FakeDriver:
    """NVML as its documentation tells: answers go into the structures that are handed in, codes come back."""

    def __init__(self, numbers: dict[str, tuple[int, int]]) -> None:
        self.numbers, self.known = numbers, list(numbers)
        self.used, self.load, self.deaf = 0, 0, False

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, out: Any) -> int:
        if uuid.decode() not in self.known:
            return 6  # not found
        out._obj.value = self.known.index(uuid.decode()) + 1
        return 0

    def nvmlDeviceGetGpuInstanceId(self, card: ctypes.c_void_p, out: Any) -> int:
        out._obj.value = self.numbers[self.known[(card.value or 0) - 1]][0]
        return 0

    def nvmlDeviceGetComputeInstanceId(self, card: ctypes.c_void_p, out: Any) -> int:
        out._obj.value = self.numbers[self.known[(card.value or 0) - 1]][1]
        return 0

    def nvmlDeviceGetMemoryInfo(self, _card: ctypes.c_void_p, out: Any) -> int:
        out._obj.used = self.used
        return 15 if self.deaf else 0

    def nvmlDeviceGetUtilizationRates(self, _card: ctypes.c_void_p, out: Any) -> int:
        out._obj.gpu = self.load
        return 0


def numbers_of(cards: list[Card]) -> list[str]:
    return [card.nodes[-1].name for card in cards]


# --- which cards there are ------------------------------------------------------------------------------------


def test_cards_in_the_order_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bus, not by number of the device file; a card that this process may not open is not its own."""
    root = machine(tmp_path, (2, 3, 0, 1))
    cards = list_cards(root, FOUR)
    assert numbers_of(cards) == ["nvidia2", "nvidia3", "nvidia0", "nvidia1"]
    assert [card.uuid for card in cards] == UUIDS
    assert cards[0].name == "NVIDIA H100 80GB HBM3"
    # As in a job whose cgroup leaves it the last two: nvidia-smi counts them from 0.
    monkeypatch.setattr(gpus, "_can_open", lambda node: node.name not in ("nvidia2", "nvidia3"))
    two = FOUR.splitlines()[2].replace("GPU 2", "GPU 0") + "\n" + FOUR.splitlines()[3].replace("GPU 3", "GPU 1")
    cards = list_cards(root, two)
    assert [(card.uuid, card.index, card.nodes[0].name) for card in cards] == [
        (UUIDS[2], 2, "nvidia0"),
        (UUIDS[3], 3, "nvidia1"),
    ]


def test_a_card_that_nvidia_smi_leaves_out(tmp_path: Path) -> None:
    """One has fallen off the bus: the driver's UUIDs tell which; where it tells none, no card is taken for another."""
    lines = FOUR.splitlines(keepends=True)
    three = "".join([lines[0], *lines[2:]])
    known = list_cards(machine(tmp_path / "known", (0, 1, 2, 3), UUIDS), three)
    assert numbers_of(known) == ["nvidia0", "nvidia2", "nvidia3"]
    assert list_cards(machine(tmp_path / "unknown", (0, 1, 2, 3)), three) == []


def test_without_files_of_the_driver_device_files_count(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidiactl", "nvidia0", "nvidia10", "nvidia2", "nvidia-uvm", "nvidia-modeset"):
        (tmp_path / "dev" / name).touch()
    three = "".join(FOUR.splitlines(keepends=True)[:3])
    assert numbers_of(list_cards(tmp_path, three)) == ["nvidia0", "nvidia2", "nvidia10"]


def test_slices(tmp_path: Path) -> None:
    """A slice takes the place of its GPU, and has two device files of its own; one that cannot be opened is none."""
    root = machine(tmp_path, (0, 1))
    add_slice(root, 9, (66, 67))
    nvml = Nvml(FakeDriver({SLICES[0]: (9, 0), SLICES[1]: (2, 0)}))
    cards = list_cards(root, SLICED, nvml)
    assert [(card.uuid, card.name) for card in cards] == [
        (SLICES[0], "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
        (UUIDS[1], "NVIDIA A100-SXM4-40GB"),
    ]
    assert [node.name for node in cards[0].nodes] == ["nvidia0", "nvidia-cap66", "nvidia-cap67"]
    add_slice(root, 2, (21, 22))
    assert [card.uuid for card in list_cards(root, SLICED, nvml)] == [*SLICES, UUIDS[1]]


# --- whose cards they are -------------------------------------------------------------------------------------

# What a scheduler sets → places of four cards that are the job's. Slurm's own variables count all cards of the node.
GIVEN: dict[str, tuple[dict[str, str], list[int]]] = {
    "neither scheduler nor user": ({}, [0, 1, 2, 3]),
    "numbers": ({"CUDA_VISIBLE_DEVICES": "3,1"}, [3, 1]),
    "twice the same": ({"CUDA_VISIBLE_DEVICES": "1,1"}, [1]),
    "UUIDs": ({"CUDA_VISIBLE_DEVICES": f"{UUIDS[2]},{UUIDS[0]}"}, [2, 0]),
    "start of a UUID": ({"CUDA_VISIBLE_DEVICES": UUIDS[2][:10]}, [2]),
    "Slurm without cards": ({"CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_JOB_ID": "1"}, []),
    "none": ({"CUDA_VISIBLE_DEVICES": ""}, []),
    "hidden by what is none": ({"CUDA_VISIBLE_DEVICES": "2,-1,1"}, [2]),
    "start of several UUIDs": ({"CUDA_VISIBLE_DEVICES": "GPU-"}, []),
    "a number too high": ({"CUDA_VISIBLE_DEVICES": "7"}, []),
    "Slurm, variable of CUDA first": ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "2"}, [0]),
    "step of a job": ({"SLURM_STEP_GPUS": "1", "SLURM_JOB_GPUS": "1,2"}, [1]),
    "job": ({"SLURM_JOB_GPUS": "2,3"}, [2, 3]),
}


def cards_in(root: Path, count: int = 4, first: int = 0) -> list[Card]:
    (root / "dev").mkdir(parents=True, exist_ok=True)
    found = [Card(UUIDS[n], f"NVIDIA H{n}00 PCIe", (root / f"dev/nvidia{n}",), n) for n in range(first, count)]
    for card in found:
        card.nodes[0].touch()
    return found


def test_cards_that_were_given(tmp_path: Path) -> None:
    cards = cards_in(tmp_path)
    found = {name: [card.index for card in select_visible(cards, given)] for name, (given, _) in GIVEN.items()}
    assert found == {name: expected for name, (_, expected) in GIVEN.items()}
    # Where a cgroup hides the others, programs count from 0 and Slurm does not.
    last = cards_in(tmp_path, first=2)
    assert [card.index for card in select_visible(last, {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"})] == [
        2,
        3,
    ]
    assert [card.index for card in select_visible(last, {"SLURM_JOB_GPUS": "3"})] == [3]


# --- that no other run has them -------------------------------------------------------------------------------


def test_each_run_has_its_own(tmp_path: Path) -> None:
    cards = cards_in(tmp_path, 3)
    first = grant_cards(2, cards=cards, environment={})
    second = grant_cards(1, cards=cards, environment={})
    assert [card.index for card in (*first.cards, *second.cards)] == [0, 1, 2]
    waited: list[float] = []
    with pytest.raises(InfrastructureError, match="Other runs hold the GPUs"):
        grant_cards(1, cards=cards, environment={}, patience_s=0, pause=waited.append)
    # A run that needs two waits until both are free, and holds none meanwhile.
    second.close()
    third = grant_cards(2, cards=cards, environment={}, pause=lambda _: (waited.append(1.0), first.close())[0])
    assert (waited, [card.index for card in third.cards]) == ([1.0], [0, 1])
    third.close()


def test_too_few_and_the_wrong_model(tmp_path: Path) -> None:
    cards = cards_in(tmp_path, 2)
    with pytest.raises(InfrastructureError, match=r"asks for 3 GPU\(s\), but this job has 2"):
        grant_cards(3, cards=cards, environment={})
    with pytest.raises(InfrastructureError, match="a100, but this job has 0"):
        grant_cards(1, "a100", cards=cards, environment={})
    with closing(grant_cards(1, "h100_pcie", cards=cards, environment={})) as held:
        assert [card.index for card in held.cards] == [1]
    # In a job of Slurm the model is the site's name of a type; its cards were chosen by it.
    grant_cards(1, "big_one", cards=cards, environment={"SLURM_JOB_ID": "7"}).close()


HOLDER = """
import sys, time
from pathlib import Path
from automedbench.sandbox.container.gpus import Card, grant_cards
held = grant_cards(1, cards=[Card("", "", (Path(sys.argv[1]),), 0)], environment={})
print("held", flush=True)
time.sleep(60)
"""


def test_a_killed_run_gives_its_card_back(tmp_path: Path) -> None:
    cards = cards_in(tmp_path, 1)
    with subprocess.Popen([sys.executable, "-c", HOLDER, cards[0].nodes[0]], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InfrastructureError):
            grant_cards(1, cards=cards, environment={}, patience_s=0)
        os.kill(holder.pid, signal.SIGKILL)
    with closing(grant_cards(1, cards=cards, environment={}, patience_s=0)) as held:
        assert held.cards == tuple(cards)


# --- what a container gets ------------------------------------------------------------------------------------

LDCONFIG = """1203 libs found in cache `/etc/ld.so.cache'
\tlibnvidia-ptxjitcompiler.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1
\tlibnvidia-ml.so.1 (libc6) => /lib/i386-linux-gnu/libnvidia-ml.so.1
\tlibnvidia-ml.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ml.so.1
\tlibnvidia-egl-wayland.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1
\tlibcudadebugger.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcudadebugger.so.1
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so
\tlibc.so.6 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/x86_64-linux-gnu/libc.so.6
"""


def test_only_what_computing_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = driver_files(LDCONFIG)
    assert {place.rpartition("/")[2] for place in found} - {"nvidia-smi"} == {
        *("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
    }
    assert found["/.singularity.d/libs/libnvidia-ml.so.1"] == Path("/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    monkeypatch.setattr(gpus, "_query_driver", lambda *_: LDCONFIG)
    root = machine(tmp_path, (0, 1, 2, 3))
    devices = list_devices(list_cards(root, FOUR)[1:3], root)
    assert [node.name for node in devices.nodes] == ["nvidiactl", "nvidia-uvm", "nvidia1", "nvidia2"]
    assert devices.environment == {"CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},{UUIDS[2]}"}


def test_nvidia_smi_is_the_drivers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along PATH, past a site's script and a folder: what lists the cards is what a container gets."""
    site, folder, driver = (tmp_path / name / "nvidia-smi" for name in ("site", "folder", "driver"))
    for path in (site, driver):
        path.parent.mkdir()
        path.write_bytes(
            b"#!/bin/sh\nexec /opt/driver/nvidia-smi\n" if path == site else Path("/bin/true").read_bytes()
        )
        path.chmod(0o755)
    folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", ":".join(str(path.parent) for path in (site, folder, driver)))
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(gpus, "_query_driver", lambda *words: (asked.append(words), FOUR)[1])
    assert len(list_cards(machine(tmp_path / "root", (0, 1, 2, 3)))) == 4
    assert asked == [(str(driver), "-L")]
    assert driver_files(LDCONFIG)["/usr/bin/nvidia-smi"] == driver


def test_a_driver_that_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``nvidia-uvm`` is made before the first container, where this user can; else the message says how."""
    root = machine(tmp_path, (0,))
    cards = list_cards(root, FOUR.splitlines()[0])
    uvm = root / "dev/nvidia-uvm"
    uvm.unlink()
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(gpus, "_query_driver", lambda *words: (asked.append(words), "")[1])
    with pytest.raises(InfrastructureError, match="Run once on this node: nvidia-modprobe -u -c=0"):
        list_devices(cards, root)
    monkeypatch.setattr(gpus, "_query_driver", lambda *_: (uvm.touch(), "")[1])
    assert uvm in list_devices(cards, root).nodes
    assert asked == [("nvidia-modprobe", "-u", "-c=0")]


def test_a_context_on_each_card(tmp_path: Path) -> None:
    cards = cards_in(tmp_path, 2)
    require_cuda("CARDS 2\n", "", cards)
    answers = {"CARDS 1": "CARDS 1", "": "libcuda.so.1: cannot open shared object file", "CARDS 20": "CARDS 20"}
    for said, words in answers.items():
        with pytest.raises(InfrastructureError, match=words):
            require_cuda(said, "" if said else f"Traceback\nOSError: {words}", cards)


# --- what was used of them ------------------------------------------------------------------------------------


def test_use() -> None:
    """By hand: 100 MiB before the run; 8 s at 50 %, 2 s at full load; a second part of the run at 25 % for 4 s.

    Later looks find the card at work at 18 s and at 39 s, and idle in between.
    """
    driver, now = FakeDriver({UUIDS[0]: (0, 0)}), [0.0]
    driver.used = 100 * 2**20
    meter = Meter([Nvml(driver).reading(UUIDS[0])], lambda: now[0])
    for passed, load, used in ((8, 50, 4196), (2, 100, 2100)):
        now[0], driver.load, driver.used = now[0] + passed, load, used * 2**20
        meter.sample()
    first = meter.drain()
    assert first == GpuUse(peak_mib=4096, busy_s=6.0)
    now[0], driver.load, driver.used = now[0] + 4, 25, 50 * 2**20
    driver.deaf = True
    meter.sample()  # an answer that fails is no use, and no reason to end
    driver.deaf = False
    meter.sample()
    second = meter.drain()
    assert second == GpuUse(peak_mib=0, busy_s=1.0)
    assert first + second == GpuUse(peak_mib=4096, busy_s=7.0)
    assert meter.idle_s == 8  # from the start to the first look
    for passed, load in ((3, 0), (1, 1), (20, 0), (1, 1)):
        now[0], driver.load = now[0] + passed, load
        meter.sample()
    now[0] += 2
    assert meter.idle_s == 21
    with pytest.raises(OSError, match="NVML error 6"):
        Nvml(driver).reading("GPU-unknown")


def test_the_load_of_a_slice_is_not_known() -> None:
    """Unknown, not 0: NVML answers "not supported" (3). The memory is told all the same."""
    driver = FakeDriver({SLICES[0]: (9, 0)})
    driver.nvmlDeviceGetUtilizationRates = lambda _card, _out: 3  # type: ignore[method-assign]
    meter = Meter([Nvml(driver).reading(SLICES[0])])
    driver.used = 2**30
    meter.sample()
    assert meter.drain() == GpuUse(peak_mib=1024, busy_s=None)
    assert meter.busy_s is None


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC 12\n",
            "535.129.03",
        ),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (dvs-builder@U16)\n",
            "560.35.03",
        ),
        ("proc/driver/nvidia/version", "", None),
    ],
)
def test_driver_version(tmp_path: Path, name: str, text: str, version: str | None) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    assert gpus.driver_version(tmp_path) == version


def test_a_meter_ends() -> None:
    meter = Meter([lambda: (0, 0.0)]).start()
    meter.close()
    assert meter.drain() == GpuUse(peak_mib=0, busy_s=0.0)
