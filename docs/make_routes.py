"""Ways to weights as a table of a page: ``python docs/make_routes.py docs/network.md``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from automedbench.base.cards import Source, TaskCard, find_cards, load_card
from automedbench.base.checkpoints import Checkpoint, load_checkpoints
from automedbench.base.files import write_text
from automedbench.campaign.config import EgressConfig
from automedbench.sandbox.egress.mirror import check_mirror
from automedbench.sandbox.egress.rules import (
    LISTED,
    EgressRefused,
    EgressSettings,
    Ruling,
    build_settings,
    check_opened,
    check_tunnel,
    opens_tls,
)

BEGIN, END = "<!-- routes: begin -->", "<!-- routes: end -->"
HUB = "huggingface.co"
HOME = re.compile(r"github\.com/[^/]+/[^/]+|zenodo\.org/records/\d+|huggingface\.co/datasets/.+")


def render(root: Path) -> str:
    """The table; a way that is not reached says why."""
    cards, checkpoints = load(root)
    rows = [["task", "lite", "candidates of the standard tier", "own data refused by URL at", "and as hosts"]]
    rows += [_row(card, settings_by(card, cards, checkpoints), checkpoints, root) for card in cards]
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def updated(page: str, root: Path) -> str:
    """The text of a page with the table between its marks; raises ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{render(root)}\n\n{END}{after}"


def load(root: Path) -> tuple[list[TaskCard], dict[str, Checkpoint]]:
    """All cards and the checkpoints of the lite tier."""
    return [load_card(path) for path in find_cards([root / "config/tasks"])], load_checkpoints(
        root / "config/checkpoints.yaml"
    )


def settings_by(
    card: TaskCard, cards: list[TaskCard], checkpoints: dict[str, Checkpoint], *, open_tls: bool = True
) -> EgressSettings:
    """What a run of the task may reach by the defaults."""
    models = [url for each in checkpoints.values() for url in each.urls]
    return build_settings(card, cards, EgressConfig(open_tls=open_tls), models=models)


def lite_ways(card: TaskCard, checkpoints: dict[str, Checkpoint]) -> Iterator[str]:
    """Addresses of files of the task's checkpoint."""
    for each in checkpoints.values():
        if card.id in each.tasks:
            yield from (_address(part) for part in each.parts)


def candidate_ways(card: TaskCard, root: Path) -> Iterator[tuple[str, list[str]]]:
    """The task's candidates with their addresses; raises LookupError for one without an entry."""
    table = yaml.safe_load((root / "docs/routes.yaml").read_text())
    for name in card.briefs.standard_candidates:
        found = next(((entry, match) for entry in table if (match := re.search(entry["names"], name))), None)
        if found is None:
            raise LookupError(f"docs/routes.yaml: nothing for {name!r} of {card.id}")
        entry, match = found
        hub = [f"https://{HUB}/{match['hub']}/resolve/main/config.json"] if "hub" in match.groupdict() else []
        yield name, [*hub, *entry["ways"]]


def ruling_on(settings: EgressSettings, url: str) -> Ruling:
    """Ruling on a GET of an https address."""
    parts = urlsplit(url)
    host, target = parts.netloc.lower(), parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        check_tunnel(settings, host if ":" in host else f"{host}:443")
        if opens_tls(settings, host) and host == HUB:
            check_mirror(settings, "GET", target)
        elif opens_tls(settings, host):
            check_opened(settings, host, "GET", target, [(b"host", host.encode())])
    except EgressRefused as error:
        return error.ruling
    return LISTED


def _row(card: TaskCard, settings: EgressSettings, checkpoints: dict[str, Checkpoint], root: Path) -> list[str]:
    lite = [_told(settings, url) for url in lite_ways(card, checkpoints)]
    ways = [url for _, urls in candidate_ways(card, root) for url in urls]
    found = dict.fromkeys(_told(settings, url) for url in ways)
    urls = [url for url in settings.own_urls if HOME.fullmatch(url)]
    hosts = [host for host in settings.own_hosts if not host.startswith("*.")]
    name = card.id.removesuffix("-task")
    return [name, *(", ".join(column) or "–" for column in (dict.fromkeys(lite), found, map(_code, urls), hosts))]


def _told(settings: EgressSettings, url: str) -> str:
    ruling, host = ruling_on(settings, url), urlsplit(url).netloc
    shown = "hub" if host == HUB else host
    return shown if ruling.allowed else f"{shown} **refused ({ruling.reason})**"


def _address(part: Source) -> str:
    name = part.downloads[0].name.replace("*", "x") if part.downloads else ""
    if part.kind == "huggingface_model":
        return f"https://{HUB}/{part.where}/resolve/{part.revision or 'main'}/{name or 'config.json'}"
    return f"{part.where}/{name}".rstrip("/")


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    write_text(page, updated(page.read_text(), Path(__file__).parents[1]))
