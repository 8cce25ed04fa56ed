"""Self-check of the isolation: one container with the very flags of a run looks for what must not be there.

It runs before the first call and after the last one (docs/specification.md, 9.8). What leaks is the machine's fault,
never the agent's; what is merely absent (a system call filter, the hook) is recorded in ``Enforced``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Base64Bytes, Field

from automedbench.base.errors import InfrastructureError
from automedbench.base.records import Model

PROBE_SECONDS = 60.0  # as much as a cold image may need
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 8

# Runs inside; prints one JSON object. PATHS is replaced by host paths that must not exist. Python is isolated (-I -S),
# because the last check comes after the agent's calls, and start-up files of the workspace are the agent's. It also
# compiles the hook for the image's Python, which saves every later start of Python the time.
PROBE = """
import base64, ctypes, hashlib, json, os, py_compile, resource, socket, sys, threading
sys.path.insert(0, "/run/hook")
sys.modules.pop("sitecustomize", None)
import sitecustomize
from importlib.util import cache_from_source
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
def opens(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True
def writes(folder):
    try:
        os.close(os.open(folder + "/.written", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    return True
pids = [name for name in os.listdir("/proc") if name.isdigit()]
values = set()
for pid in pids:
    try:
        entries = open("/proc/" + pid + "/environ", "rb").read().split(b"\\0")
    except OSError:
        continue
    values.update(hashlib.sha256(entry.partition(b"=")[2]).hexdigest() for entry in entries)
thread = threading.Thread(target=int)
thread.start()
thread.join()
sys.audit("os.system", "unshare --version")
libc = ctypes.CDLL(None, use_errno=True)
compiled = py_compile.compile("/run/hook/sitecustomize.py", "/tmp/hook.pyc", doraise=True,
                              invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
print(json.dumps({
    "seccomp": status.get("Seccomp", "0").strip() == "2" and libc.unshare(0x10000000) == -1,
    "no_new_privs": status.get("NoNewPrivs", "0").strip() == "1",
    "capabilities": int(status.get("CapEff", "0"), 16),
    "processes": len(pids),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "opened": [path for path in PATHS if opens(path) or opens("/proc/1/root" + path)],
    "written": [place for place in ("/", "/usr", "/data", "/data/public", "/run/hook") if writes(place)],
    "values": sorted(values),
    "max_processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
    "hook_in_place": os.environ.get("PYTHONPATH", "").startswith("/run/hook:"),
    "compiled_name": os.path.basename(cache_from_source("/run/hook/sitecustomize.py")),
    "compiled": base64.b64encode(open(compiled, "rb").read()).decode(),
}))
"""


class Probe(Model):
    """What the probe saw from inside."""

    seccomp: bool
    no_new_privs: bool
    capabilities: int
    processes: int
    interfaces: list[str]
    opened: list[str]
    written: list[str]
    values: list[str]
    max_processes: int
    hook_in_place: bool
    compiled_name: str = Field(pattern=r"^sitecustomize\.[a-z0-9-]+\.pyc$")
    compiled: Base64Bytes


def probe_code(paths: Iterable[Path]) -> str:
    """Bash code that looks for these host paths and reports as JSON."""
    code = PROBE.replace("PATHS", json.dumps([str(path) for path in paths]))
    return f"python3 -I -S - <<'PROBE'\n{code}PROBE\n"


def read_probe(output: bytes, messages: str = "") -> Probe:
    """The probe's report; raises InfrastructureError when it is none."""
    try:
        return Probe.model_validate_json(output)
    except ValueError as error:
        said = (messages.strip() or output.decode("utf-8", "replace"))[-200:]
        raise InfrastructureError(
            f"The isolation probe gave no report: {said!r}.\nCheck the agent image: it needs python3."
        ) from error


def leaks(probe: Probe, *, sealed: bool, environment: Mapping[str, str]) -> list[str]:
    """What the sandbox lets through that it must not, in words; empty when it isolates."""
    secrets = {
        hashlib.sha256(value.encode()).hexdigest(): name
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET
    }
    found = [f"{path} of the host can be read" for path in probe.opened]
    found += [f"{place} can be written" for place in probe.written]
    found += [f"the variable {secrets[value]} is visible" for value in probe.values if value in secrets]
    if not probe.no_new_privs:
        found.append("processes may gain privileges")
    if probe.capabilities:
        found.append(f"processes hold capabilities ({probe.capabilities:x})")
    if sealed and set(probe.interfaces) - {"lo"}:
        found.append(f"there are network interfaces ({', '.join(probe.interfaces)})")
    if probe.processes > 4:  # the waiting shell, the probe, and what the runtime may add
        found.append(f"{probe.processes} processes are visible")
    return found


def require_isolation(probe: Probe, *, sealed: bool) -> None:
    """Raise InfrastructureError when the probe found a leak."""
    found = leaks(probe, sealed=sealed, environment=os.environ)
    if found:
        raise InfrastructureError(
            f"The sandbox does not isolate on this machine: {'; '.join(found[:5])}.\n"
            "No agent was run. Check apptainer.conf with the site's administrators, and run `automedbench doctor`."
        )


def memory_limit(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup"), machine: int | None = None
) -> int | None:
    """Bytes that this process's cgroup (version 2 or 1) and its ancestors allow; None when there is no limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if machine is None else machine
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return None
    limits = []
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if number == "0":
            limits += _limits(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "memory", path, "memory.limit_in_bytes")
    # Version 1 writes a number larger than any machine for "none".
    return min((limit for limit in limits if limit < total), default=None)


def _limits(root: Path, path: str, name: str) -> list[int]:
    folder, found = root / path.lstrip("/"), []
    for place in (folder, *folder.parents):
        if not place.is_relative_to(root):
            break
        try:
            found.append(int((place / name).read_text()))
        except (OSError, ValueError):
            continue
    return found
