"""Faults of containers, packages and cards, planted for real: each is named with its next step, sound set-ups are not.

Real containers of an ordinary user; indexes and hubs on this machine's own addresses; two harmless devices for cards.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from unprivileged import IMAGES, as_user, python_for_user, user_folder, why_not
from upstreams import COMMIT, FakeHub, FakeIndex, Seen, WebServer

from automedbench.commands._machine.examine import Host, ProbeResult, examine
from automedbench.commands._machine.first.code import CHECKPOINT
from automedbench.commands._machine.first.inside import explain
from automedbench.commands._machine.table import PROBES
from automedbench.planning.load import plan
from automedbench.sandbox.container import gpus

sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu_check import rehearse

pytestmark = [pytest.mark.long, pytest.mark.apptainer, pytest.mark.timeout(300)]

TASK, MODEL = "bccd-det-task", "acme/tiny-model"
Plant = Callable[["Lab"], AbstractContextManager[Host]]


@dataclass
class Lab:
    """A folder of an ordinary user with a campaign of one agent on one task."""

    folder: Path
    patch: pytest.MonkeyPatch

    def host(self, **sandbox: Any) -> Host:
        """The campaign's host, with these settings of the sandbox."""
        agents = self.folder / "agents.yaml"
        agents.write_text(json.dumps({"agents": {"one": {"provider": "baseline", "baseline": "empty"}}}))
        settings = {
            "agents_file": str(agents),
            "matrix": {"agents": ["one"], "tasks": [TASK], "tiers": ["standard"], "repeats": 1},
            "sandbox": {"network": "sealed", **sandbox},
            "containers": {"agent": {"image": "light"}},
            "data": {name: str(self.folder / "data" / name) for name in ("raw", "public", "private", "manifests")},
            "results": str(self.folder / "results"),
        }
        return Host(plan(settings, []), IMAGES, ROOT)

    def with_images(self, **changes: Any) -> Path:
        """A folder of the images, with fields of the agent image's record changed."""
        folder = self.folder / "images"
        folder.mkdir()
        for path in IMAGES.iterdir():
            (folder / path.name).symlink_to(path)
        record = json.loads((IMAGES / "light.json").read_text()) | changes
        (folder / "light.json").unlink()
        (folder / "light.json").write_text(json.dumps(record))
        return folder


@dataclass(frozen=True)
class Fault:
    """A planted fault; ``says`` stands in its line, ``fix`` in the next step; without both the set-up is sound."""

    name: str
    plant: Plant
    probe: str
    says: str = ""
    fix: str = ""
    enter: Callable[[Path], None] = lambda _folder: None
    """What the user's process does to itself before it looks; its argument is the folder."""


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    if reason := why_not("light", "scorer"):
        pytest.skip(reason)
    for name in ("list_cards", "list_devices"):  # put back what the rehearsal replaces
        monkeypatch.setattr(gpus, name, getattr(gpus, name))
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))  # the steps are programs of their own
    with user_folder() as folder:
        yield Lab(folder, monkeypatch)


def look(host: Host, fault: Fault, folder: Path) -> list[ProbeResult]:
    """Findings of the fault's probe, for the ordinary user."""

    def looked() -> list[ProbeResult]:
        sys.executable = python_for_user(folder)
        fault.enter(folder)
        return examine(host, [probe for probe in PROBES if probe.name == fault.probe], 280)

    return as_user(looked)


# --- the machine --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def sound(lab: Lab, **sandbox: Any) -> Iterator[Host]:
    yield lab.host(**sandbox)


@contextlib.contextmanager
def broken_image(lab: Lab, *, name: str) -> Iterator[Host]:
    folder = lab.with_images()
    (folder / f"{name}.sif").unlink()
    (folder / f"{name}.sif").write_bytes(b"no image" * 1000)
    yield replace(lab.host(), images=folder)


@contextlib.contextmanager
def no_image(lab: Lab) -> Iterator[Host]:
    yield replace(lab.host(), images=lab.folder)


def own_namespace() -> ctypes.CDLL:
    """Be in a user namespace and a mount namespace of this process."""
    libc, (user, group) = ctypes.CDLL(None, use_errno=True), (os.getuid(), os.getgid())
    libc.prctl(4, 1)  # who was root once may not write its own maps else
    assert libc.unshare(0x10000000 | 0x00020000) == 0, os.strerror(ctypes.get_errno())
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return libc


def no_namespaces(_folder: Path) -> None:
    own_namespace()
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def no_fuse(_folder: Path) -> None:
    assert own_namespace().mount(b"/dev/null", b"/dev/fuse", None, 4096, None) == 0


def small_disk(folder: Path) -> None:
    place = folder / "small"
    place.mkdir()
    assert own_namespace().mount(b"none", str(place).encode(), b"tmpfs", 0, b"size=16m") == 0
    (place / "filled").write_bytes(bytes(16_100_000))
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)


# --- the network --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def network(lab: Lab, *, index: str = "own", hub: str = "sound", **egress: Any) -> Iterator[Host]:
    """A campaign in the class proxied; ``index``: own, empty, linked or a host; ``hub``: sound, gated or gone."""
    files = FakeIndex({"six": [], **({"pip": []} if index == "linked" else {})})
    small = FakeHub({"config.json": b"{}"}, model="hf-internal-testing/tiny-random-bert")

    def hub_answer(seen: Seen) -> tuple[int, dict[str, str], bytes]:
        return (403, {"X-Error-Code": "GatedRepo"}, b"gated") if hub == "gated" else small.answer(seen)

    def index_answer(seen: Seen) -> tuple[int, dict[str, str], bytes]:
        status, headers, body = files.answer(seen)
        other = store.place if index == "linked" else index
        moved = body if index == "own" else body.replace(b'"/files/', f'"http://{other}/files/'.encode())
        return (404, {}, b"no such project") if index == "empty" else (status, headers, moved)

    with WebServer(files.answer) as store, WebServer(hub_answer) as hub_server, WebServer(index_answer) as index_server:
        lab.patch.setenv("PIP_INDEX_URL", f"{index_server.url}/simple")
        place = "http://127.0.0.1:9" if hub == "gone" else hub_server.url
        yield lab.host(network="proxied", egress={"hub": place, "cache": str(lab.folder / "cache"), **egress})


# --- cards --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cards(lab: Lab, *, fault: int = 0, cuda: str | None = None, held: bool = False, number: int = 1) -> Iterator[Host]:
    """A machine with two cards that only look so."""
    found = rehearse(lab.folder, fault=fault)
    limited = functools.partial(gpus.grant_cards, patience_s=0.0)
    lab.patch.setattr(gpus, "grant_cards", limited)
    with contextlib.ExitStack() as stack:
        for card in found if held else ():
            fcntl.flock(stack.enter_context(open(card.nodes[-1], "rb")), fcntl.LOCK_EX)
        yield replace(lab.host(gpu=number), images=lab.with_images(cuda=cuda))


@contextlib.contextmanager
def job_without_card(lab: Lab) -> Iterator[Host]:
    lab.patch.setenv("SLURM_JOB_ID", "1")
    yield lab.host(gpu=1)


FAULTS = (
    Fault("sound: sealed", sound, "packages"),
    Fault("sound: a case", sound, "case"),
    Fault("sound: proxied", network, "packages"),
    Fault("sound: an index that links another host", functools.partial(network, index="linked"), "packages"),
    Fault("sound: a card", cards, "kernel"),
    Fault("sound: no card is asked for", sound, "kernel"),
    Fault("image missing", no_image, "case", "light, scorer is not there yet", "snakemake prepare"),
    Fault("user namespaces off", sound, "isolation", "could not be started", "max_user_namespaces", no_namespaces),
    Fault("no fuse", sound, "isolation", "could not be started", "/dev/fuse", no_fuse),
    Fault("disk small", sound, "isolation", "is full", "set TMPDIR", small_disk),
    Fault(
        "container cannot start",
        functools.partial(broken_image, name="light"),
        "isolation",
        "light.sif could not be started",
        "apptainer exec",
    ),
    Fault("scorer broken", functools.partial(broken_image, name="scorer"), "case", "check_workspace", "scorer.sif"),
    Fault(
        "index with another files host",
        functools.partial(network, index="files.example"),
        "packages",
        "files.example",
        "sandbox.egress.allow",
    ),
    Fault(
        "index with files at a private address",
        functools.partial(network, index="10.0.0.9"),
        "packages",
        "10.0.0.9 has a private address",
        "sandbox.egress.cache",
    ),
    Fault(
        "index without the package",
        functools.partial(network, index="empty"),
        "packages",
        "No matching distribution",
        "mirror PyPI",
    ),
    Fault(
        "offline cache without the package",
        functools.partial(network, offline=True, packages=["six"]),
        "packages",
        "cache",
        "snakemake prepare",
    ),
    Fault("hub refuses", functools.partial(network, hub="gated"), "packages", "HTTP 403", "sandbox.egress.tokens"),
    Fault("hub does not answer", functools.partial(network, hub="gone"), "packages", "does not answer", "HTTPS_PROXY"),
    Fault("card that fails", functools.partial(cards, fault=999), "kernel", "CUDA error 999", "/dev/nvidia-uvm"),
    Fault("driver too old", functools.partial(cards, cuda="13.0"), "kernel", "CUDA 12", "Update the driver"),
    Fault("card held by another", functools.partial(cards, held=True), "kernel", "Other runs hold", "--resources gpu"),
    Fault("GRES without card", job_without_card, "kernel", "this job has 0", "GRES"),
    Fault("too few cards", functools.partial(cards, number=3), "kernel", "this job has 2", "nvidia-smi -L"),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault, lab: Lab) -> None:
    with fault.plant(lab) as host:
        found = look(host, fault, lab.folder)
    wrong = [each for each in found if each.status != "ok"]
    if not fault.says:
        assert wrong == []
    else:
        assert [each for each in wrong if fault.says in each.message and fault.fix in each.fix], found


# --- checkpoints, whose code needs a PyTorch: this one's ----------------------------------------------------------


def some_tensors(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"layer.weight": torch.ones(4, 3)}, folder / "model.pth")
    (folder / "config.json").write_text("{}")


def half_of_them(folder: Path) -> None:
    some_tensors(folder)
    data = (folder / "model.pth").read_bytes()
    (folder / "model.pth").write_bytes(data[: int(0.6 * len(data))])


def transformer(folder: Path) -> None:
    """A ViT of one layer; its ``forward`` is wrapped, so that only its signature tells what it takes."""
    kit = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = kit.ViTConfig(**sizes, image_size=32, patch_size=16)
    kit.ViTForImageClassification(config).save_pretrained(folder)


def transformer_of_own_code(folder: Path) -> None:
    """The same as a repository that brings the code of its model, which is not run."""
    transformer(folder)
    config = json.loads((folder / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoModel": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config | own))


@pytest.mark.parametrize(
    ("make", "text", "error", "fix"),
    [
        (some_tensors, "1 tensors, first layer computes (4,)", "", ""),
        # a classifier of two classes, which is what ViTConfig has unasked
        (transformer, "ViTForImageClassification computes (1, 2)", "", ""),
        (transformer_of_own_code, "tensors, first layer computes", "", ""),
        (half_of_them, "", "central directory", "prepare"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_checkpoint(make: Callable[[Path], None], text: str, error: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    make(tmp_path / "hub")
    hub = FakeHub({path.name: path.read_bytes() for path in (tmp_path / "hub").iterdir()})
    place = {"hub": True, "where": MODEL, "at": COMMIT, "names": {}}
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    with WebServer(hub.answer) as server:
        done = subprocess.run(
            [sys.executable, "-c", f"PLACES, LIMIT = {[place]!r}, 10**6\n{CHECKPOINT}"],
            env=kept | {"HF_ENDPOINT": server.url},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    report = json.loads(done.stdout.partition("FOUND")[2] or "{}")
    assert text in report["text"] and error in report["error"], report
    assert bool(error) == bool(report["error"]) and fix in explain(report["error"]), report
    assert report["fetched"], report
