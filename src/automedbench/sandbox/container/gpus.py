"""GPUs of a run: cards of this machine, the grant of some that no other run holds, and what a container needs for them.

A card is an NVIDIA GPU, or a slice (MIG) of one. The job's scheduler names its own by
``CUDA_VISIBLE_DEVICES`` or Slurm's variables; without any, all of the machine are. A run locks the device file of each
card that it takes: the kernel gives it back with the end of the driver, however that ends.

A container gets device files of its own cards only, and of the host's driver only what computing needs: not all that
``--nv`` binds, which are every card of the machine and the socket of the host's persistence daemon.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.container.gpu_use import Nvml
from automedbench.sandbox.container.launcher import Devices
from automedbench.sandbox.container.turns import member_place
from automedbench.sandbox.places import DRIVER_DIR

PATIENCE_S = 60.0
"""How long a run waits for cards: those of one that has just ended are about to be free."""
MAKE_UVM = ("nvidia-modprobe", "-u", "-c=0")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GPU = re.compile(r"GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>GPU-[^)]+)\)")
_SLICE = re.compile(r"\s+MIG (?P<name>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")
# libcuda and what it loads by itself: compilers of kernels, and NVML, by which PyTorch counts cards.
_LIBRARY = re.compile(
    r"\s*(?P<name>lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-nvvm|nvidia-gpucomp)\.so\S*) "
    r"\([^)]*64[^)]*\) => (?P<path>/\S+)"
)


@dataclass(frozen=True)
class Card:
    """A GPU or a slice of one. ``nodes``: its device files, the last of them its own alone, which a run locks."""

    uuid: str
    name: str
    nodes: tuple[Path, ...]
    index: int
    """Place of its GPU among all of the machine, as Slurm counts."""


@dataclass
class Grant:
    """Cards that a run holds until ``close``, or until its process ends."""

    cards: tuple[Card, ...]
    _locks: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def close(self) -> None:
        """Give the cards back."""
        self._locks.close()


def grant_cards(
    number: int,
    model: str | None = None,
    *,
    cards: Sequence[Card] | None = None,
    share: int = 1,
    environment: Mapping[str, str] = os.environ,
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], None] = time.sleep,
) -> Grant:
    """Take ``number`` cards of this job or machine that no other run holds; ``model`` counts outside of Slurm only.

    With ``share`` a place on each: so many runs have one, and compute in turn (``turns``).

    Raises InfrastructureError when there are fewer, or other runs hold them for longer than ``patience_s``.
    """
    own = select_visible(list_cards() if cards is None else cards, environment)
    if model and "SLURM_JOB_ID" not in environment:  # there the names are the site's, and the cards are chosen
        own = [card for card in own if _normalize_name(model) in _normalize_name(card.name)]
    if len(own) < number:
        asked = "and at gpu_model in the config"
        if "SLURM_JOB_ID" in environment:
            asked = "and at the GRES of `scontrol show job`: the profile's `gpu` of run_agent requests it"
        raise InfrastructureError(
            f"sandbox.gpu asks for {number} GPU(s){f' {model}' if model else ''}, but this job has {len(own)}.\n"
            f"Look at `nvidia-smi -L` here, at CUDA_VISIBLE_DEVICES, {asked}."
        )
    ends = time.monotonic() + patience_s
    while True:
        grant = _lock_cards(own, number, share)
        if len(grant.cards) == number:
            return grant
        grant.close()
        if time.monotonic() >= ends:
            raise InfrastructureError(
                f"Other runs hold the GPUs of this machine: fewer than {number} of {len(own)} are free.\n"
                "Start no more runs at a time than there are cards: snakemake --resources gpu=N."
            )
        pause(1.0)


def _lock_cards(cards: Sequence[Card], number: int, share: int) -> Grant:
    """The first free cards, of shared ones those with the fewest members, in order of their index."""
    taken: list[Card] = []
    locks = contextlib.ExitStack()
    for place, card in itertools.product(range(share), cards):
        if len(taken) == number:
            break
        if card in taken:
            continue
        with contextlib.suppress(OSError), contextlib.ExitStack() as attempt:
            path = card.nodes[-1] if share == 1 else member_place(card.uuid, place)
            stream = attempt.enter_context(open(path, "rb", buffering=0))
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locks.push(attempt.pop_all())
            taken.append(card)
    return Grant(tuple(card for card in cards if card in taken), locks)


def select_visible(cards: Sequence[Card], environment: Mapping[str, str]) -> list[Card]:
    """Cards that the scheduler or the user gave to this process; all where neither chose.

    Programs count what they can open, Slurm counts all of the machine.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if name in environment:
            own = name == "CUDA_VISIBLE_DEVICES"
            counted = dict(enumerate(cards)) if own else {card.index: card for card in cards}
            found = [_find_card(token.strip(), cards, counted) for token in environment[name].split(",")]
            # What follows a name that is none is hidden (CUDA's programming guide): "0,-1,1" gives the first only.
            given = found[: found.index(None)] if own and None in found else found
            return list(dict.fromkeys(card for card in given if card is not None))
    return list(cards)


def _find_card(token: str, cards: Iterable[Card], counted: Mapping[int, Card]) -> Card | None:
    if token.isdecimal():
        return counted.get(int(token))
    named = [card for card in cards if token[:4] in ("GPU-", "MIG-") and card.uuid.startswith(token)]
    return named[0] if len(named) == 1 else None  # a beginning that fits several names none


def list_cards(root: Path = Path("/"), listing: str | None = None, nvml: Nvml | None = None) -> list[Card]:
    """Cards of this machine whose device files this process may open, in the order in which programs count them."""
    if listing is None:
        # Asking also makes the device files that the driver makes when it is first used.
        program = find_nvidia_smi()
        listing = _query_driver(str(program), "-L") if program is not None else ""
    return list(_read_cards(root, listing, nvml))


def find_nvidia_smi() -> Path | None:
    """The driver's ``nvidia-smi``, along PATH and then the system's own; None where there is none.

    A script of that name is passed over: it would not find in a container what it calls.
    """
    for folder in _search_path().split(os.pathsep):
        path = Path(folder, "nvidia-smi")
        with contextlib.suppress(OSError), open(path, "rb") as stream:
            if os.access(path, os.X_OK) and stream.read(4) == b"\x7fELF":
                return path.absolute()
    return None


def _search_path() -> str:
    return f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"


def _query_driver(*command: str) -> str:
    try:
        program = shutil.which(command[0], path=_search_path()) or command[0]
        return subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _read_cards(root: Path, listing: str, nvml: Nvml | None) -> Iterator[Card]:
    """Cards in bus order, which nvidia-smi follows; UUIDs show where it leaves one out."""
    known = _parse_listing(listing)
    found = [
        (index, *each) for index, each in enumerate(_read_minors(root)) if _can_open(root / f"dev/nvidia{each[0]}")
    ]
    for place, (index, minor, uuid) in enumerate(found):
        in_order = list(known)[place] if len(known) == len(found) else ""
        uuid = uuid if uuid in known else in_order
        if uuid:
            name, slices = known[uuid]
            node = root / f"dev/nvidia{minor}"
            if not slices:
                yield Card(uuid, name, (node,), index)
            for each, kind in slices.items():
                yield from _find_slice(root, minor, nvml, Card(each, f"{name} MIG {kind}", (node,), index))


def _parse_listing(listing: str) -> dict[str, tuple[str, dict[str, str]]]:
    """UUID of each GPU of ``nvidia-smi -L`` → name, and UUID → kind of its slices."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for line in listing.splitlines():
        if match := _GPU.match(line):
            found[match["uuid"]] = (match["name"], {})
        elif found and (match := _SLICE.match(line)):
            found[list(found)[-1]][1][match["uuid"]] = match["name"]
    return found


def _read_minors(root: Path) -> list[tuple[int, str]]:
    """Number of the device file, and UUID where the driver reports it, by place on the bus."""
    texts = [path.read_text() for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information"))]
    found = [(re.search(r"Device Minor:\s*(\d+)", text), re.search(r"(GPU-[0-9a-f-]{36})", text)) for text in texts]
    if found:
        return [(int(minor[1]), uuid[1] if uuid else "") for minor, uuid in found if minor]
    names = (path.name.removeprefix("nvidia") for path in root.glob("dev/nvidia[0-9]*"))
    return [(number, "") for number in sorted(int(name) for name in names if name.isdecimal())]


def _find_slice(root: Path, minor: int, nvml: Nvml | None, card: Card) -> Iterator[Card]:
    """The slice with the two device files that open it; nothing when NVML does not know it, or they are another's."""
    with contextlib.suppress(OSError, ValueError):
        instance, compute = (nvml or Nvml()).instances(card.uuid)
        folder = root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{instance}"
        files = (folder / "access", folder / f"ci{compute}" / "access")
        numbers = [re.search(r"DeviceFileMinor:\s*(\d+)", path.read_text()) for path in files]
        caps = tuple(root / f"dev/nvidia-caps/nvidia-cap{number[1]}" for number in numbers if number)
        if len(caps) == 2 and all(map(_can_open, caps)):
            yield Card(card.uuid, card.name, (*card.nodes, *caps), card.index)


def driver_version(root: Path = Path("/")) -> str | None:
    """Version of the driver of the cards, as its kernel module reports it; None without a driver."""
    with contextlib.suppress(OSError):
        found = re.search(r"NVRM version:.*?\s(\d+\.[\d.]+)", (root / "proc/driver/nvidia/version").read_text())
        return found[1] if found else None
    return None


def _can_open(node: Path) -> bool:
    """Check whether this process may open a device: a scheduler's cgroup refuses those of other jobs."""
    try:
        os.close(os.open(node, os.O_RDONLY))
    except OSError:
        return False
    return True


def _normalize_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def list_devices(cards: Sequence[Card], root: Path = Path("/")) -> Devices:
    """List the devices that a container needs to compute on ``cards`` and on no other.

    Raises InfrastructureError when the driver of the machine is not ready for it: nothing inside could make it so.
    """
    shared = [root / "dev" / name for name in ("nvidiactl", "nvidia-uvm")]
    if not shared[1].exists():
        _query_driver(*MAKE_UVM)
    for node in shared:
        if not _can_open(node):
            raise InfrastructureError(
                f"{node} does not exist or cannot be opened, and no container can make it.\n"
                f"Run once on this node: {' '.join(MAKE_UVM)} (root, at boot)."
            )
    nodes = dict.fromkeys([*shared, *(node for card in cards for node in card.nodes)])
    files = driver_files(_query_driver("ldconfig", "-p"))
    return Devices(tuple(nodes), files, {"CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in cards)})


def driver_files(cache: str) -> dict[str, Path]:
    """Place inside → file of the driver on the host, by what ``ldconfig -p`` printed."""
    found: dict[str, Path] = {}
    for match in filter(None, map(_LIBRARY.match, cache.splitlines())):
        found.setdefault(f"{DRIVER_DIR}/{match['name']}", Path(match["path"]))
    if (program := find_nvidia_smi()) is not None:
        found["/usr/bin/nvidia-smi"] = program
    return found


# Runs inside, in bash. Enough to know that driver, device files, filter and limits go together; it needs no package.
CUDA_PROBE = """
python3 -I -S - <<'PROBE'
import ctypes
cuda, number, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
def ask(name, *arguments):
    if code := getattr(cuda, name)(*arguments):
        raise SystemExit(f"{name} gives CUDA error {code}")
ask("cuInit", 0)
ask("cuDeviceGetCount", ctypes.byref(number))
for index in range(number.value):
    device = ctypes.c_int()
    ask("cuDeviceGet", ctypes.byref(device), index)
    ask("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    ask("cuCtxDestroy_v2", context)
print("CARDS", number.value)
PROBE
"""


def require_cuda(output: str, complaint: str, cards: Sequence[Card]) -> None:
    """Raise InfrastructureError unless the probe made a context on each card."""
    if f"CARDS {len(cards)}" not in output.splitlines():
        why = (complaint.strip() or output.strip() or "no output").splitlines()[-1][-200:]
        raise InfrastructureError(
            f"No CUDA context on {', '.join(card.name for card in cards)} inside the container: {why}\n"
            "Does the card work outside (nvidia-smi)? Error 2: a program holds its memory; 802: start "
            "nvidia-fabricmanager;\n999 or 3: /dev/nvidia-uvm is stale: reload it, or restart the node's driver."
        )
