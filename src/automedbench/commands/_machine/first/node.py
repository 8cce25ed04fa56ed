"""Report of a job on a node, as one line of JSON: folders, keys, programs, endpoints, cards, clock.

Jobs run this file by its path, on the standard library alone, to report from a node where little is there, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

POLL_S = 0.25
CONNECT_S = 15


def look(question: dict[str, Any]) -> dict[str, Any]:
    """Answer of this node: what it sees of the folders, variables, programs and URLs that the question names."""
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "host": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
        "uid": os.geteuid(),
        "umask": umask,
        "python": sys.version.split()[0],
        "folders": {path: read_folder(path) for path in question["folders"]},
        "absent": [name for name in question["variables"] if not os.environ.get(name)],
        "programs": {name: read_version(name) for name in question["programs"]},
        "unreached": {url: why for url in question["urls"] if (why := try_url(url))},
        "cards": count_cards() if question["gpu"] else 0,
    }


def read_folder(path: str) -> dict[str, Any]:
    """Names in a folder (None: it is not there), whether it can be written, and its free bytes."""
    try:
        names = len(os.listdir(path))
    except OSError:
        return {"names": None, "writable": False, "free": 0}
    facts = os.statvfs(path)
    return {"names": names, "writable": os.access(path, os.W_OK), "free": facts.f_bavail * facts.f_frsize}


def read_version(name: str) -> str:
    """First line of a program's version; empty where it is not there or does not start."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([name, "--version"], capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip().splitlines()[0]
    return ""


def try_url(url: str) -> str:
    """Why a URL gives no answer here; any answer of a server will do, also a refusal."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=CONNECT_S).close()
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", "") or error)
    return ""


def count_cards() -> int:
    """GPUs whose device files this job may open."""
    from automedbench.sandbox.container.gpus import list_cards

    return len(list_cards())


def exchange(folder: Path, wait_s: float) -> dict[str, float | None]:
    """Write a file for the head, and wait for one of the head: times of this node's clock, None for what never came."""
    until = time.time() + wait_s
    if not _appears(folder, until):
        return {"wrote": None, "saw": None}
    wrote = time.time()
    (folder / "node.new").write_text("node")
    (folder / "node.new").rename(folder / "from-node")
    return {"wrote": wrote, "saw": time.time() if _appears(folder / "from-head", wrote + wait_s) else None}


def _appears(path: Path, until: float) -> bool:
    while not path.exists():
        if time.time() > until:
            return False
        time.sleep(POLL_S)
    return True


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    place = Path(asked["exchange"])
    times = exchange(place, asked["wait_s"]) if os.access(place.parent, os.W_OK) else {}
    print(json.dumps(look(asked) | times), flush=True)
