"""Models that a run used: was the lite tier's checkpoint kept, and was any file of a model opened at all?

What is known comes from outside: the kernel's trace of files that were opened (``trace.MODEL``) and the egress log of
what was fetched; never from what an agent says. What neither shows is unknown: a file of weights may come by a tunnel
and lie anywhere. Rules: docs/specification.md, 9.10.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from automedbench.base.checkpoints import Checkpoint
from automedbench.base.records import ModelLock

FRAMEWORK = "/framework/"
"""How the place of a program that computes models begins, where others are paths of files."""
WEIGHTS = re.compile(r"\.(safetensors|pth?|pt2|ckpt|onnx|gguf|h5|keras|tflite|bin|msgpack|zip)$")
_IN_CACHE = re.compile(r"/models--([^/]+?)--([^/]+)/")
_FETCHED = re.compile(r"^/(?:api/resolve-cache/models/)?([\w.-]+/[\w.-]+)/")
_COMMON = re.compile(r"^(pytorch_)?model\b|^(best|last|fold|cv|config|checkpoint|weights)", re.IGNORECASE)
_SHORTEST_NAME = 8


def list_fetched_models(log: Path) -> list[str]:
    """URLs without query of files that may hold a model and came whole or in part, by the egress log; none without."""
    lines = log.read_bytes().splitlines() if log.is_file() else []
    entries = [json.loads(line) for line in lines if line.endswith(b"}")]
    got = [each for each in entries if each.get("method") == "GET" and each.get("status") in (200, 206)]
    urls = [f"https://{each['host']}{each['path'].partition('?')[0]}" for each in got if each.get("path")]
    return [url for url in dict.fromkeys(urls) if WEIGHTS.search(url)]


def model_lock(checkpoint: Checkpoint | None, opened: Sequence[str], fetched: Sequence[str]) -> ModelLock:
    """Kept: files of the checkpoint were opened or fetched. Violated: none were, and another model's were opened.

    ``opened``: real paths inside; ``fetched``: URLs. Weights that nothing attributes to a model leave it unknown.
    """
    files = [place for place in opened if not place.startswith(FRAMEWORK)]
    if checkpoint is None or not (files or fetched):
        return "unknown"
    if any(_belongs_to(checkpoint, place) for place in [*files, *fetched]):
        return "kept"
    others = {PurePosixPath(url).name for url in fetched if _FETCHED.match("/" + url.split("/", 3)[3])}
    foreign = [place for place in files if _IN_CACHE.search(place) or PurePosixPath(place).name in others]
    return "violated" if files and len(foreign) == len(files) else "unknown"


def _belongs_to(checkpoint: Checkpoint, place: str) -> bool:
    """A file of the checkpoint, by its repository or address, its checksum, or a name that no other model has."""
    repositories = {part.where.lower() for part in checkpoint.parts if part.kind == "huggingface_model"}
    return find_hub_repository(place) in repositories or any(word in place for word in _words(checkpoint))


def find_hub_repository(place: str) -> str:
    """Repository that a file in the hub's cache, or a URL of the hub, is of, in lower case; empty for others."""
    if found := _IN_CACHE.search(place):
        return f"{found[1]}/{found[2]}".lower()
    found = _FETCHED.match("/" + place.split("/", 3)[3]) if place.startswith("https://") else None
    return found[1].lower() if found else ""


def _words(checkpoint: Checkpoint) -> Iterable[str]:
    """Words that occur in paths and URLs of the checkpoint's files alone."""
    for part in checkpoint.parts:
        if part.kind != "huggingface_model":
            yield part.where
        for download in part.downloads:
            stem = PurePosixPath(download.name).name.partition(".")[0]
            if len(stem) >= _SHORTEST_NAME and "*" not in stem and not _COMMON.match(stem):
                yield stem
            if download.checksum:
                yield download.checksum.partition(":")[2]


def was_opened(opened: Sequence[str], *, traced: bool) -> bool | None:
    """Check whether weights or an inference program were opened; None where the trace could have missed them."""
    return True if opened else False if traced else None
