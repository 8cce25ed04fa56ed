"""A run with GPUs in the real container: its own device files and no others, variables, a context on each card.

No card is needed: harmless devices of the machine stand for cards, and a library of six lines for the driver.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unprivileged import IMAGES, as_user, user_folder, why_not

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.container import gpus
from automedbench.sandbox.container.backends import ApptainerSandbox
from automedbench.sandbox.container.gpus import Card
from automedbench.sandbox.container.launcher import DRIVER_DIR, Devices

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(180)]

# Harmless, and not in a container without being asked for.
CARDS = [Card("GPU-1", "Fake One", (Path("/dev/full"),), 0), Card("GPU-2", "Fake Two", (Path("/dev/fuse"),), 1)]
DRIVER = """
int cuInit(unsigned flags) { return FAULT; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = &cuInit; return 0; }
int cuCtxDestroy_v2(void *context) { return 0; }
"""
LOOK = """
import json, os
print(json.dumps([sorted(set(os.listdir("/dev")) & {"full", "fuse"}), os.environ["CUDA_VISIBLE_DEVICES"],
                  open("/dev/full", "wb").fileno() > 2, os.path.exists("/run/nvidia-persistenced")]))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    if reason := why_not("agent"):
        pytest.skip(reason)
    if shutil.which("gcc") is None:
        pytest.skip("no gcc, with which the driver is made up")
    with user_folder() as folder:
        yield folder


def library(folder: Path, fault: int) -> Path:
    made = folder / f"libcuda-{fault}.so"
    command = ["gcc", "-shared", "-fPIC", f"-DFAULT={fault}", "-x", "c", "-", "-o", str(made)]
    subprocess.run(command, input=DRIVER, text=True, check=True)
    return made


def looked(folder: Path, driver: Path | None) -> Any:
    """What a call in a run of one card sees, and the cards that the record names."""

    def devices(cards: Any) -> Devices:
        files = {f"{DRIVER_DIR}/libcuda.so.1": driver} if driver else {}
        return Devices(cards[0].nodes, files, {"CUDA_VISIBLE_DEVICES": cards[0].uuid})

    def run() -> Any:
        for name in ("public", "workspace", "log"):
            (folder / name).mkdir(exist_ok=True)
        box = ApptainerSandbox(
            image=IMAGES / "agent.sif", public=folder / "public", workspace=folder / "workspace", gpu=1
        )
        with box:
            done = box.run_code("python", LOOK, call=1, turn=1, log=folder / "log", timeout_s=30)
            found = box.drain_findings()
            box.selfcheck()
            return json.loads(done.stdout or "null"), done.stderr, box.enforced, found, box.drain_gpu_use()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpus, "list_cards", lambda: CARDS)
        patch.setattr(gpus, "devices_of", devices)
        return as_user(run)


def test_own_cards_and_no_others(place: Path) -> None:
    seen, complaint, enforced, findings, used = looked(place, library(place, 0))
    assert seen == [["full"], "GPU-1", True, False], complaint
    assert (enforced.gpu, enforced.gpu_names, enforced.selfcheck) == (True, ["Fake One"], True)
    assert findings == []
    assert used is None  # there is no NVML here; a record says so, and no number is made up


def test_no_run_on_a_card_that_does_not_compute(place: Path) -> None:
    """What is wrong is said before the agent costs anything."""
    with pytest.raises(InfrastructureError, match="Fake One inside the container: cuInit gives CUDA error 999"):
        looked(place, library(place, 999))
    with pytest.raises(InfrastructureError, match=r"libcuda\.so\.1: cannot open shared object file"):
        looked(place, None)
