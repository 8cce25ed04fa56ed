"""Rules of the hub mirror, what it lets through: models, read only. Pure functions.

Paths are those of the hub's HTTP interface that ``huggingface_hub`` uses for models: ``/api/models…`` and
``/<model>/resolve/<revision>/<file>``. docs/specification.md, 9.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from automedbench.sandbox.egress.rules import Verdict, own_home, refuse
from automedbench.sandbox.egress.settings import HUB_HOST, EgressSettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_QUERY = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/?%\[\]-]*")
# First segments that are no organisation and no model.
_RESERVED = frozenset(
    {"datasets", "spaces", "api", "docs", "models", "collections", "papers", "settings", "login", "logout", "join"}
    | {"new", "organizations", "blog", "posts", "tasks", "pricing", "oauth", "storage", "buckets", "kernels", "resolve"}
)
# Of one model; tokens, settings and discussions are none of an agent's business.
_VIEWS = frozenset({"revision", "tree", "paths-info", "refs", "commits", "treesize"})
_ODD = '\\%\x7f"<>#?'
_MODELS_ONLY = "The mirror serves models (/api/models, /<model>/resolve), nothing else."

ALLOWED = Verdict(True, "model")


@dataclass(frozen=True)
class ModelPath:
    """A path that may be asked of the hub, rebuilt from its parts, and the model it belongs to."""

    path: str
    model: str


def check_mirror(settings: EgressSettings, method: str, target: str) -> tuple[Verdict, ModelPath | None]:
    """Verdict on a request to the mirror; ``target`` is the request's origin form."""
    path, mark, query = target.partition("?")
    if not path.startswith("/") or not _QUERY.fullmatch(query):
        return refuse("hub_path", "The address of the request is not plain."), None
    if problem := _data_set(settings, path):
        return problem, None
    segments = path[1:].split("/")
    if "" in segments or any(_odd(segment) for segment in segments):
        return refuse("hub_path", "The address of the request is not plain."), None
    found = _api(segments) if segments[0] == "api" else _file(segments)
    if found is None:
        return refuse("hub_path", _MODELS_ONLY), None
    asks_for_names = method == "POST" and "paths-info" in segments
    if method not in ("GET", "HEAD") and not asks_for_names:
        return refuse("method", f"{method} is refused: the hub is read only."), None
    return ALLOWED, ModelPath(found.path + mark + query, found.model)


def _data_set(settings: EgressSettings, path: str) -> Verdict | None:
    """A refusal when the path is about a data set or a space, in any spelling."""
    plain = path
    for _ in range(3):
        plain = unquote(plain)
    words = [word for word in re.split(r"[/\\]+", plain.lower()) if word not in ("", ".")]
    kinds = [index for index, word in enumerate(words[:3]) if word in ("datasets", "spaces")]
    if not kinds:
        return None
    name = "/".join(words[kinds[0] + 1 : kinds[0] + 3])
    url = f"{HUB_HOST}/{words[kinds[0]]}/{name}"
    if any(url == own or url.startswith(f"{own}/") for own in settings.own_urls):
        return own_home(url, sure=True)
    return refuse("hub_dataset", f"Data sets and Spaces are refused. {_MODELS_ONLY}")


def _odd(segment: str) -> bool:
    """True for what could be read as another path: dots, control characters, anything encoded twice or wrongly."""
    try:
        plain = unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return True
    parts = plain.split("/")
    return any(part in ("", ".", "..") for part in parts) or any(ord(char) < 32 or char in _ODD for char in plain)


def _file(segments: list[str]) -> ModelPath | None:
    """``/<model>/resolve|raw/<revision>/<file>``; the model has one or two names."""
    for length in (1, 2):
        names, rest = segments[:length], segments[length:]
        if len(rest) >= 3 and rest[0] in ("resolve", "raw") and _model(names) and _whole(rest[2:]):
            return ModelPath(_join(segments), "/".join(names))
    return None


def _api(segments: list[str]) -> ModelPath | None:
    """``/api/models``, views of one model, and ``/api/resolve-cache/models/<model>/<revision>/<file>``."""
    if segments == ["api", "models"]:
        return ModelPath("/api/models", "")
    if segments[:3] == ["api", "resolve-cache", "models"]:
        names, rest = segments[3:5], segments[5:]
        found = len(rest) >= 2 and _model(names) and _whole(rest)
        return ModelPath(_join(segments), "/".join(names)) if found else None
    for length in (1, 2):
        names, view = segments[2 : 2 + length], segments[2 + length : 3 + length]
        if segments[1] == "models" and len(names) == length and _model(names) and (not view or view[0] in _VIEWS):
            return ModelPath(_join(segments), "/".join(names))
    return None


def _model(names: list[str]) -> bool:
    """True for names as the hub allows them, the first of which is not a part of its site."""
    plain = all(_NAME.fullmatch(name) and ".." not in name for name in names)
    return bool(names) and plain and names[0].lower() not in _RESERVED


def _whole(segments: list[str]) -> bool:
    """True when no segment holds an encoded slash: only revisions and folders of a tree may."""
    return not any("/" in unquote(segment) for segment in segments)


def _join(segments: list[str]) -> str:
    return "/" + "/".join(quote(unquote(segment), safe="~()!*'+,;=:@$&") for segment in segments)
