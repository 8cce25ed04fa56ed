"""Fixtures: a tiny stand-in for every data set, in the exact form that upstream has, with its known defects.

One function per data set, named after ``dataset.name`` of its cards (``-`` becomes ``_``), in a module for its kind of
data, whose ``UPSTREAMS`` lists it. What it returns is served on loopback in place of the real hosts (``server``), so
that fetching, unpacking, reading and staging run as they do on the real data. All content is made up: nothing of a
real data set is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import suggestion

__all__ = ["Upstream", "fixture_names", "has_fixture", "upstream_of"]


@dataclass
class Upstream:
    """What the hosts of a data set offer. Content is bytes; the same in every call of its function."""

    files: dict[str, bytes] = field(default_factory=dict)
    """URL as the fetcher asks for it at the real host (``https://host/path?query``) → content."""
    hubs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Id of a data set on the Hugging Face hub → path → content."""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """URL of a git repository → path → content of the one commit there is."""
    by_hand: dict[str, bytes] = field(default_factory=dict)
    """Path below the folder that a person makes, for data that no program may download → content."""


def fixture_names() -> tuple[str, ...]:
    """Data sets that have a fixture."""
    return tuple(sorted(_makers()))


def _makers() -> dict[str, Callable[[], Upstream]]:
    """Data set → what makes its fixture."""
    from automedbench_rehearsal.upstreams import images, questions, reports, slices, volumes

    modules = (images, questions, reports, slices, volumes)
    return {name: maker for module in modules for name, maker in module.UPSTREAMS.items()}


def has_fixture(dataset: str) -> bool:
    """Whether a data set (``dataset.name`` of its card) has a fixture."""
    return _key_of(dataset) in fixture_names()


def _key_of(dataset: str) -> str:
    return dataset.replace("-", "_").lower()


def upstream_of(dataset: str) -> Upstream:
    """The fixture of a data set (``dataset.name`` of its card); raises ConfigError when there is none."""
    name, known = _key_of(dataset), _makers()
    if name not in known:
        raise ConfigError([f"fixtures: the data set '{dataset}' has none{suggestion(name, list(known))}"])
    return known[name]()
