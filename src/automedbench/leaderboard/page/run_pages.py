"""Run pages: one per scored run, with everything that led to its scores, built again when that has changed.

A page holds only its run's records, packed; style, script and the pictures that runs of a task share lie beside the
board. Several processes write many pages.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import multiprocessing
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pydantic_core

from automedbench.base.console import collect_rarely
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import known_record, sha256_bytes, write_text
from automedbench.base.records import Model
from automedbench.base.views import CaseViews, Frame, ViewLayer
from automedbench.leaderboard.page.details import read_detail
from automedbench.leaderboard.page.html import environment, script, style

if TYPE_CHECKING:  # each process that writes pages imports this file
    from automedbench.base.cards import TaskCard
    from automedbench.judge.rubric import Rubric, RubricCriterion
    from automedbench.leaderboard.entries import BoardEntry

STYLES = ("common.css", "run.css")
SCRIPTS = ("common.js", "viewer.js", "transcript.js", "framed.js", "run.js")
ROOT = "../../../.."
"""The leaderboard's folder as a page sees it."""
_LEVEL = 3
"""Of compression: the usual 6 takes twice as long, for 8 % less."""
PAGES = "run-pages.json"
"""Beside the board: what its pages of runs were made of."""

# What every record repeats of the score, which is embedded whole.
_EXCLUDED_FIELDS: dict[str, Any] = {
    "score": {"schema_", "case_scores"},
    "run": {"schema_", "run", "totals", "used", "enforced", "agent_settings"},
    "report": {"schema_", "run", "settings", "cases"},
    "judge": {"schema_", "run", "tokens", "panel"},
    "views": {"schema_", "run"},
    "audit": {"schema_", "run", "enforced"},
}


@functools.cache
def load_template() -> str:
    """The rendered template with ``@@name@@`` where a run's own text goes: title, nonce, packed records."""
    slots = {name: f"@@{name}@@" for name in ("title", "nonce", "packed")}
    # No number used once can be in what an agent wrote: it is the digest of that.
    only = f"'nonce-{slots['nonce']}'"
    policy = (
        f"default-src 'none'; script-src {only}; style-src {only}; img-src data: 'self' file:; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment().get_template("run.html").render(policy=policy, root=ROOT, **slots)


def fill_page(title: str, shared: str, detail: str) -> bytes:
    """A whole page; ``shared`` and ``detail`` are JSON, ``title`` is plain text."""
    text = f'{{"shared":{shared},"detail":{detail}}}'
    packed = zlib.compress(text.encode("utf-8", "backslashreplace"), _LEVEL)
    own = {"title": html.escape(title), "nonce": sha256_bytes(packed), "packed": base64.b64encode(packed).decode()}
    page = re.sub("@@([a-z]+)@@", lambda slot: own[slot[1]], load_template())
    return page.encode("utf-8", "backslashreplace")


def shared_words(title: str, access: str, track: str, rubric: Rubric | None, siblings: Sequence[int]) -> dict[str, Any]:
    """Names and definitions beside the runs' own records, for the pages of one agent's repeats of a task and tier.

    ``closed``: how access to the data set is limited; null: open to all.
    """
    from automedbench.leaderboard import definitions  # with NumPy, which no page needs
    from automedbench.scoring.codes.taxonomy import CODES

    text = definitions.track_text(track)
    return {
        "task": title,
        "track": definitions.track_title(track),
        "task_half": text.task_half if text else "quality × completion rate",
        "siblings": list(siblings),
        "stages": {
            stage.id: {"title": stage.title, "weight": stage.weight, "formula": stage.formula}
            for stage in definitions.STAGES
        },
        "criteria": {one.id: criterion_words(one) for one in (rubric.criteria if rubric else ())},
        "rubric_version": rubric.version if rubric else None,
        "outcomes": definitions.OUTCOMES,
        "errors": {code: text.title for code, text in CODES.items()},
        "backends": definitions.BACKENDS,
        "networks": definitions.NETWORKS,
        "closed": None if access == "public" else access,
    }


def criterion_words(criterion: RubricCriterion) -> dict[str, Any]:
    """A criterion of the rubric as a reader needs it; levels of S3 only, where one of them is given."""
    levels = criterion.levels if criterion.stage == "S3" else ()
    levels_text = [f"{level.value:g}: {level.text}" for level in levels]
    return {"title": criterion.title, "earned_when": criterion.earned_when, "levels": levels_text}


_MANY = 1000
"""Pages for which a process is worth its start."""
_CHUNK = 50


class PageRecord(Model):
    """A written page: what it was made of, the day its run ended, and the shared pictures that it shows."""

    made_of: str
    day: str | None
    pictures: list[str]


class PageRecords(Model):
    """``run-pages.json``: pages by the path of their run."""

    pages: dict[str, PageRecord]


class _Job(NamedTuple):
    """A page by its run's path; folder of the results, also as a link; words that pages share (JSON); as it was."""

    run: str
    signature: str
    results: str
    link: str
    out: str
    words: str
    before: PageRecord | None

    @property
    def page(self) -> str:
        return f"{self.out}/runs/{self.run}.html"


@contextlib.contextmanager
def page_processes(n_pages: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """``map`` of a function over jobs; for many pages by a few processes, which are started at once."""
    workers = min(4, n_pages // _MANY, len(os.sched_getaffinity(0)))
    if not workers:
        yield map
        return
    # Not fork: libraries that are loaded by now may have started threads.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), collect_rarely) as pool:
        for _ in range(workers):
            pool.submit(load_template)
        yield functools.partial(pool.map, chunksize=_CHUNK)


def write_run_pages(
    results: Path,
    out: Path,
    entries: Sequence[BoardEntry],
    cards: Mapping[str, TaskCard],
    rubrics: Mapping[str, Rubric],
    write_all: Callable[[Callable[[_Job], PageRecord], Iterable[_Job]], Iterable[PageRecord]] = map,
) -> dict[str, str]:
    """Write ``out/runs/<run path>.html`` for every scored run and what they share; remove all other pages and pictures.

    Pages whose records are as they were stay. Returns the day on which the last run of each agent ended, where it is
    known. ``write_all``: of ``page_processes``.

    Raises InfrastructureError when a score cannot be read or a page cannot be written.
    """
    scored = [entry for entry in entries if entry.score]
    _require_plain_names(scored)
    known = known_record(out / PAGES, PageRecords)
    before = known.pages if known else {}
    link = f"{ROOT}/{os.path.relpath(results, out).replace(os.sep, '/')}"
    write_text(out / "run.css", style(*STYLES))
    write_text(out / "run.js", script(*SCRIPTS))
    _remove_others(out / "runs", {f"{entry.run.path}.html" for entry in scored}, ".html")
    jobs = (  # no list: the first pages are written while others are prepared
        _Job(path := entry.run.path, entry.signature, str(results), link, str(out), words, before.get(path))
        for entry, words in zip(scored, _shared(scored, cards, rubrics), strict=True)
    )
    made = list(write_all(_write, jobs))
    _remove_others(out / "pictures", {name for page in made for name in page.pictures})
    pages = {entry.run.path: page for entry, page in zip(scored, made, strict=True)}
    write_text(out / PAGES, PageRecords(pages=pages).model_dump_json())
    ended = ((entry.run.agent, page.day) for entry, page in zip(scored, made, strict=True))
    return dict(sorted((agent, day) for agent, day in ended if day))  # of equal keys the last, so the latest, stays


def _require_plain_names(entries: Sequence[BoardEntry]) -> None:
    """Names of a campaign are checked with its configuration, but results may come from elsewhere."""
    for entry in entries:
        for name in (entry.run.agent, entry.run.task):
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise InfrastructureError(
                    f"A score is of a run of {name!r}, which is not a valid name: its page would lie elsewhere.\n"
                    "Its score.json or plan.json was written by something else; leave this run out of the plan."
                )


def _shared(
    entries: Sequence[BoardEntry], cards: Mapping[str, TaskCard], rubrics: Mapping[str, Rubric]
) -> Iterator[str]:
    """Shared words of every run as JSON, each kind made once."""
    siblings: dict[str, list[int]] = {}
    for entry in entries:
        siblings.setdefault(os.path.dirname(entry.run.path), []).append(entry.run.repeat)

    @functools.cache
    def words(task: str, track: str, siblings: tuple[int, ...]) -> str:
        card = cards.get(task)
        title_and_access = (card.title, card.dataset.access) if card else (task, "public")
        return pydantic_core.to_json(shared_words(*title_and_access, track, rubrics.get(track), siblings)).decode()

    for entry in entries:
        yield words(entry.run.task, entry.track, tuple(sorted(siblings[os.path.dirname(entry.run.path)])))


def _remove_others(folder: Path, kept: set[str], ending: str = "") -> None:
    """Files of an ending that are not ``kept`` (relative paths), and folders that this leaves empty."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(place, name)
            if name.endswith(ending) and path.relative_to(folder).as_posix() not in kept:
                path.unlink()
        if Path(place) != folder and not os.listdir(place):
            os.rmdir(place)


# --- writing --------------------------------------------------------------------------------------------------


def _write(job: _Job) -> PageRecord:
    """Write one page and its pictures, or leave them as they are."""
    folder = f"{job.results}/runs/{job.run}"
    made_of = f"{_last_change(folder)}.{_digest(job.words)}"
    if job.before and job.before.made_of == made_of and os.path.exists(job.page):
        return job.before
    detail = read_detail(folder, f"{job.link}/runs/{job.run}", job.signature)
    views, pictures = share_pictures(detail.views, job.run.split("/")[1]) if detail.views else (None, {})
    undisturbed = set() if detail.run and detail.run.fault else {"fault"}
    excluded = _EXCLUDED_FIELDS | {"run": _EXCLUDED_FIELDS["run"] | undisturbed}
    records = detail.model_copy(update={"views": views}).model_dump_json(by_alias=True, exclude=excluded)
    for name, picture in pictures.items():
        if not os.path.exists(path := f"{job.out}/pictures/{name}"):
            _write_file(path, base64.b64decode(picture))
    _write_file(job.page, fill_page(job.run.replace("/", " · "), job.words, records))
    day = detail.run.ended_at.date().isoformat() if detail.run else None
    return PageRecord(made_of=made_of, day=day, pictures=list(pictures))


def _last_change(folder: str) -> int:
    """When a run's folder, or a file in it or behind its links, was last written or renamed, in nanoseconds."""
    found = [0]
    with contextlib.suppress(OSError):  # without a folder: reading the score says why
        for path in (folder, *os.scandir(folder)):
            with contextlib.suppress(FileNotFoundError):  # behind a link
                found.append(os.stat(path).st_ctime_ns)
    return max(found)


@functools.cache
def _digest(words: str) -> str:
    """Everything else that a page is made of."""
    return sha256_bytes("".join([words, load_template(), style(*STYLES), script(*SCRIPTS)]).encode())[:16]


def share_pictures(views: CaseViews, task: str) -> tuple[CaseViews, dict[str, str]]:
    """Views whose inputs and references, which all runs of a task have, are links; file below ``pictures`` → base64."""
    files: dict[str, str] = {}

    def share(layer: ViewLayer) -> ViewLayer:
        if layer.side in ("prediction", "difference"):
            return layer
        kind, _, content = layer.picture.removeprefix("data:image/").partition(";base64,")
        name = f"{task}/{sha256_bytes(content.encode())[:16]}.{kind}"
        files[name] = content
        return layer.model_copy(update={"picture": f"{ROOT}/pictures/{name}"})

    def reduce(frame: Frame) -> Frame:
        return frame.model_copy(update={"layers": list(map(share, frame.layers))})

    cases = [case.model_copy(update={"frames": list(map(reduce, case.frames))}) for case in views.cases]
    return views.model_copy(update={"cases": cases}), files


def _write_file(path: str, content: bytes) -> None:
    """Write under another name first. Without fsync: what is lost can be made again."""
    place, name = os.path.split(path)
    temporary = f"{place}/.{name}.{os.getpid():08x}.tmp"  # as ``remove_temporaries`` knows it
    try:
        os.makedirs(place, exist_ok=True)
        Path(temporary).write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        raise InfrastructureError(
            f"Cannot write {path}: {error.strerror or error}.\nFree space or fix the permissions of its folder, "
            "then build the leaderboard again."
        ) from error
