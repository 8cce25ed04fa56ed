"""Tables of tasks on a page (briefs, checkpoints, published results): ``python docs/make_tiers.py docs/tasks.md``."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from automedbench.agent.plan import RunPlan, compose_brief
from automedbench.base.cards import Download, Reference, Source, TaskCard, find_cards, load_card
from automedbench.base.checkpoints import Checkpoint, load_checkpoints
from automedbench.base.files import write_text
from automedbench.base.records import TIERS, CaseEntry, RunId, Tier
from automedbench.base.yamlfile import load_yaml, validate
from automedbench.campaign.agents import Agent
from automedbench.campaign.config import SandboxConfig
from automedbench.datasets.sampling import assign_case_ids
from automedbench.sandbox.container.image import ImageRecord, named_packages

SHORT = 12
"""Characters of a commit or checksum that are shown."""
INTRODUCTION = """\
Characters of the system text per track, smallest to largest over its tasks, and of that the hints, as a run in the
`research` image prints it: `config/config.yaml` with a GPU, native tools, three cases. Made by
`python docs/make_tiers.py docs/tasks.md`."""


def updated(page: str, root: Path) -> str:
    """The text of a page with each table between its marks; raises ValueError where they are missing."""
    for name, render in (("brief sizes", brief_sizes), ("checkpoints", checkpoints), ("references", references)):
        marks = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, begin, rest = page.partition(marks[0])
        _, end, after = rest.partition(marks[1])
        if not begin or not end:
            raise ValueError(f"the page lacks the lines {marks[0]} and {marks[1]}")
        page = f"{before}{begin}\n\n{render(root)}\n\n{end}{after}"
    return page


# --- checkpoints ---


def checkpoints(root: Path) -> str:
    """The table of checkpoints, and the tasks without one with the reason; raises ConfigError for a wrong file."""
    known = load_checkpoints(root / "config/checkpoints.yaml")
    cards = [load_card(path) for path in find_cards([str(root / "config/tasks")])]
    files = [told for each in known.values() for part in each.parts for told in part.downloads]
    head = ["checkpoint", "tasks", "repository", "revision", "files", "size", "checksum", "licence"]
    rows = [_row(name, each) for name, each in known.items()]
    tasks = sum(len(each.tasks) for each in known.values())
    told = (
        f"{len(known)} checkpoints for {tasks} tasks. Of {len(files)} files or patterns that are named, "
        f"{sum(each.bytes is not None for each in files)} have an exact size and "
        f"{sum(each.checksum is not None for each in files)} a checksum; what no public source gave is left open "
        "(`open_questions` in the table's file). Where each fact was seen: `provenance` there."
    )
    return "\n\n".join([_table([head, *rows]), told, *_without(cards)])


def _row(name: str, each: Checkpoint) -> list[str]:
    downloads = [told for part in each.parts for told in part.downloads]
    sizes = [told.bytes for told in downloads if told.bytes is not None]
    sums = [told.checksum.partition(":")[2][:SHORT] for told in downloads if told.checksum]
    return [
        f"`{name}`: {each.name}",
        ", ".join(task.removesuffix("-task") for task in each.tasks),
        "; ".join(_where(part) for part in each.parts),
        "; ".join((part.revision or "open")[:SHORT] for part in each.parts),
        _files(downloads),
        f"{sum(sizes):,} bytes" if downloads and len(sizes) == len(downloads) else _some(len(sizes), len(downloads)),
        ", ".join(f"`{value}…`" for value in sums) if len(sums) == 1 else _some(len(sums), len(downloads)),
        each.licence,
    ]


def _where(part: Source) -> str:
    return f"hub `{part.where}`" if part.kind == "huggingface_model" else part.where.removeprefix("https://")


def _files(downloads: Sequence[Download]) -> str:
    if len(downloads) > 2:
        return f"{len(downloads)}, `{downloads[0].name}` first"
    return ", ".join(f"`{told.name}`" for told in downloads) or "open"


def _some(known: int, of: int) -> str:
    return f"{known} of {of}" if known else "open"


def _without(cards: Sequence[TaskCard]) -> Iterator[str]:
    yield "Not offered as lite:"
    yield "\n".join(
        f"- `{card.id}`: {' '.join(card.briefs.no_lite.split())}" for card in cards if "lite" not in card.tiers
    )


# --- published results ---


def references(root: Path) -> str:
    """The table of published results that cards name; raises ConfigError for a wrong card."""
    cards = [load_card(path) for path in find_cards([str(root / "config/tasks")])]
    head = ["task", "value", "kind", "by", "what the value is", "cases", "differs from the task in", "source"]
    rows = [_reference_row(card, each) for card in cards for each in card.references]
    n_cards = sum(bool(card.references) for card in cards)
    told = f"{len(rows)} results for {n_cards} of {len(cards)} tasks; for the others none could be looked up."
    return f"{_table([head, *rows])}\n\n{told}"


def _reference_row(card: TaskCard, each: Reference) -> list[str]:
    cases = f"{each.cases:,}".replace(",", " ") if each.cases else ""
    about = [card.id.removesuffix("-task"), f"{each.value:g}", each.kind, each.who, each.metric, cases]
    return [*about, each.differs.replace("other ", ""), each.origin]


# --- sizes of briefs ---


def brief_sizes(root: Path) -> str:
    """The table as Markdown; raises ConfigError when a card or a block is wrong."""
    cards = tuple(load_card(path) for path in find_cards([str(root / "config/tasks")]))
    head = ["track", *(f"{tier}{kind}" for tier in TIERS for kind in ("", ", hints"))]
    tracks = sorted({card.track for card in cards})
    rows = [[track, *(cell for tier in TIERS for cell in _cells(root, cards, track, tier))] for track in tracks]
    return f"{INTRODUCTION}\n\n{_table([head, *rows], ['---', *['--:'] * (len(head) - 1)])}"


def _cells(root: Path, cards: tuple[TaskCard, ...], track: str, tier: Tier) -> Iterator[str]:
    texts = [_text(root, cards, card, tier) for card in cards if card.track == track and tier in card.tiers]
    for sizes in (list(map(len, texts)), [len(_hints(text)) for text in texts]):
        yield _range(sizes)


def _text(root: Path, cards: tuple[TaskCard, ...], card: TaskCard, tier: Tier) -> str:
    cases = [CaseEntry(id=name, inputs={}, private={}) for name in assign_case_ids(card, range(3))]
    sandbox = load_yaml(root / "config/config.yaml")["sandbox"]
    plan = RunPlan(
        run=RunId(agent="a", task=card.id, tier=tier, repeat=1),
        card=card,
        manifest=card.manifest("not staged", cases),
        agent=Agent(provider="openai", model="a", base_url="http://127.0.0.1", api_key_env="A"),
        limits=card.limits,
        sandbox=validate(sandbox | {"gpu": 1}, SandboxConfig, "sandbox"),
        public=Path("not staged"),
        folder=Path("no run"),
        prompts=root / "config/prompts",
        holds=research_record(root),
        cards=cards,
    )
    return compose_brief(plan).system


def research_record(root: Path) -> ImageRecord:
    """What the research image tells of itself on Debian 12, from its list: where a page is made there is no image."""
    pins = root / "envs/research.txt"
    tools = runpy.run_path(str(root / "containers/inventory.py"))["TOOLS"]
    return ImageRecord(
        flavour="research",
        recipe="",
        base="",
        system="Debian GNU/Linux 12 (bookworm)",
        python="3.11.2",
        cuda="13.2",
        named=named_packages(pins),
        packages=dict(line.split("==") for line in pins.read_text("utf-8").split()),
        tools=[tool for tool in tools if tool != "nvcc"],  # of a base with CUDA's compiler
    )


def _hints(text: str) -> str:
    return "".join(re.findall(r"### Hint for .*?(?=\n\n## |\n\n# )", text, flags=re.DOTALL))


def _range(sizes: list[int]) -> str:
    if not any(sizes):
        return ""
    low, high = f"{min(sizes):,}", f"{max(sizes):,}"
    return (low if low == high else f"{low}–{high}").replace(",", " ")


def _table(rows: Sequence[Sequence[str]], rule: Sequence[str] = ()) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    below = f"| {' | '.join(rule)} |" if rule else "|" + "---|" * len(rows[0])
    return "\n".join([lines[0], below, *lines[1:]])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/make_tiers.py PAGE")
    page = Path(sys.argv[1])
    write_text(page, updated(page.read_text("utf-8"), Path(__file__).resolve().parents[1]))
