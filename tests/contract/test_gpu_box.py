"""A run with GPUs in the real container: its own device files and no others, variables, a context on each card.

No card is needed: harmless devices of the machine stand for cards, and a library of six lines for the driver.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from unprivileged import IMAGES, as_user, user_folder, why_not

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.boxes import ApptainerSandbox
from automedbench.sandbox.container import gpus

sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu_check import CHECKS, Node, check, rehearse

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(180)]

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
