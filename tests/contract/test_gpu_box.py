"""A run with GPUs in the real container: its own device files and no others, variables, a context on each card.

No card is needed: harmless devices of the machine stand for cards, and a library of six lines for the driver.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import time
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

# A run that tries to keep the card: a daemon in a session of its own locks it and outlives the call. It looks for the
# queue, too.
HOSTILE = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", DAEMON], start_new_session=True, stdout=subprocess.DEVNULL)
assert not [name for name in os.listdir("/tmp") if "automedbench-gpus" in name]
"""
DAEMON = """
import fcntl, os, time
a, card = time.time(), open("/dev/full")
try:
    fcntl.flock(card, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    pass
time.sleep(0.3)
open(f"/workspace/held-{os.getpid()}", "w").write(str([a, time.time()]))
"""
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


def taking_turns(folder: Path) -> list[list[float]]:
    """Begin and end of every call of four runs that share one card, and of what one of them leaves behind."""
    (folder / "public").mkdir(exist_ok=True)

    def run(number: int) -> None:
        for name in ("workspace", "log"):
            (folder / str(number) / name).mkdir(parents=True)
        code = "import time; a = time.time(); open('/dev/full'); time.sleep(0.1); print([a, time.time()])"
        code += "" if number else f"\nDAEMON = {DAEMON!r}{HOSTILE}"
        home = folder / str(number)
        own = {"workspace": home / "workspace", "gpu": 1, "gpu_share": 4}
        with ApptainerSandbox(image=IMAGES / "light.sif", public=folder / "public", **own) as box:
            for call in range(1, 6):
                done = box.run_code("python", code, call=call, turn=1, log=home / "log", timeout_s=30)
                assert done.status == "ok" and done.elapsed_s < 2, done
                time.sleep(0.0 if number else 0.6)  # its daemon would be at work beside the next call
            (home / "turns.json").write_text(json.dumps(box.gpu_turns_s))
            assert box.enforced.gpu_share == 4

    pids = []
    for number in range(4):
        pids.append(os.fork())
        if not pids[-1]:
            try:
                run(number)
            finally:
                os._exit(0)
    for pid in pids:
        os.waitpid(pid, 0)
    turns = [json.loads(path.read_text()) for path in sorted(folder.glob("*/turns.json"))]
    assert len(turns) == 4
    return [json.loads(path.read_text()) for path in [*folder.glob("*/log/*.out"), *folder.glob("0/workspace/held-*")]]


def test_four_runs_take_turns_on_a_card(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its own container; no two calls are at once, and no call's own time grows; one run is hostile."""
    cards = rehearse(place)
    monkeypatch.setattr(gpus, "list_cards", lambda: cards[:1])
    calls = sorted(as_user(lambda: taking_turns(place)))
    assert len(calls) == 20 + 5
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(calls)), calls


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
