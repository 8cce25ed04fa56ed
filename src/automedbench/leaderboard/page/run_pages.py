"""Run pages: one per scored run, everything that led to its scores, in a file that loads nothing.

What is the same for all runs (style, script, policy) is rendered once; for each run only its data are spliced in, as
JSON that no text of an agent can leave. Several processes write; a page whose records did not change stays as it is.
"""

from __future__ import annotations

import gc
import hashlib
import html
import multiprocessing
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pydantic_core
from pydantic import Field

from automedbench.base import records as records_module
from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.files import read_record, write_record
from automedbench.base.records import Model, RunId, ScoreRecord
from automedbench.judge.rubric import Rubric, RubricCriterion
from automedbench.leaderboard import definitions
from automedbench.leaderboard.page import details as details_module
from automedbench.leaderboard.page import html as html_module
from automedbench.leaderboard.page.details import RECORDS, read_detail
from automedbench.leaderboard.page.html import content_policy, environment, escaped_json, safe_source, script, style

STYLES = ("common.css", "run.css")
SCRIPTS = ("common.js", "viewer.js", "transcript.js", "run.js")

# What every record repeats of the score, which is embedded whole.
_SAID_ALREADY: dict[str, Any] = {
    "score": {"schema_", "case_scores"},
    "run": {"schema_", "run", "totals", "enforced"},
    "report": {"schema_", "run", "settings", "cases"},
    "judge": {"schema_", "run", "tokens"},
    "views": {"schema_", "run"},
    "audit": {"schema_", "run", "enforced"},
}


def load_template() -> list[bytes]:
    """The rendered template, cut where a run's own text goes: title, shared words, detail."""
    looks, code = squeezed_style(style(*STYLES)), squeezed_script(script(*SCRIPTS))
    slots = {name: f"@@{name}@@" for name in ("title", "shared", "detail")}
    own = {"style": safe_source(looks), "script": safe_source(code)} | slots
    page = environment().get_template("run.html").render(policy=content_policy([looks], [code]), **own)
    return [part.encode() for part in re.split("|".join(slots.values()), page)]


def filled(template: Sequence[bytes], title: str, shared: str, detail: str) -> bytes:
    """A whole page; ``shared`` and ``detail`` are JSON, ``title`` is plain text."""
    own = (html.escape(title), escaped_json(shared), escaped_json(detail), "")
    texts = (text.encode("utf-8", "backslashreplace") for text in own)
    return b"".join(part for pair in zip(template, texts, strict=True) for part in pair)


def shared_words(
    task: str, title: str, track: str, rubric: Rubric | None, siblings: Sequence[int], access: str = "public"
) -> dict[str, Any]:
    """Names and definitions beside the runs' own records, for the pages of one agent's repeats of a task and tier.

    ``closed``: how access to the data set is limited; null: open to all.
    """
    text = definitions.track_text(track)
    return {
        "task": title or task,
        "track": definitions.track_title(track),
        "task_half": text.task_half if text else "quality × completion rate",
        "siblings": sorted(siblings),
        "stages": {
            stage.id: {"title": stage.title, "weight": stage.weight, "formula": stage.formula}
            for stage in definitions.STAGES
        },
        "criteria": {one.id: criterion_words(one) for one in (rubric.criteria if rubric else ())},
        "rubric_version": rubric.version if rubric else None,
        "outcomes": definitions.OUTCOMES,
        "errors": definitions.ERROR_CODES,
        "backends": definitions.BACKENDS,
        "networks": definitions.NETWORKS,
        "closed": None if access == "public" else access,
    }


def squeezed_script(text: str) -> str:
    """Our own script without indentation and whole-line comments: a page of each run carries it."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def squeezed_style(text: str) -> str:
    """Our own style without comments and needless white space."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", text)).strip()


def criterion_words(criterion: RubricCriterion) -> dict[str, Any]:
    """A criterion of the rubric as a reader needs it; levels are told of S3 only, where one of them is given."""
    levels = criterion.levels if criterion.stage == "S3" else ()
    said = [f"{level.value:g}: {level.text}" for level in levels]
    return {"title": criterion.title, "earned_when": criterion.earned_when, "levels": said}


INDEX = "pages.json"
_MANY = 1000
_CHUNK = 50


class PageIndex(Model):
    """``runs/pages.json``: what each page was made of, so that only changed ones are written again."""

    schema_: str = Field("automedbench/run-pages/1", alias="schema")
    made_by: str = Field(description="digest of templates and code")
    pages: dict[str, str] = Field(description="run path → digest of its records' sizes and times and of shared words")


class _Job(NamedTuple):
    """A page: folder of the run, also as the page sees it, number of its shared words, what it was made of before."""

    run: RunId
    folder: str
    shown_as: str
    page: str
    words: int
    known: str | None


def write_run_pages(
    results: Path,
    out: Path,
    scores: Sequence[ScoreRecord],
    cards: Mapping[str, TaskCard],
    rubrics: Mapping[str, Rubric],
) -> int:
    """Write ``out/<run path>.html`` for every score and remove all other pages below ``out``; returns how many changed.

    Raises InfrastructureError when a score cannot be read or a page cannot be written.
    """
    _require_plain_names(scores)
    words, places = _shared(scores, cards, rubrics)
    made_by = _made_by()
    known = _known_pages(out, made_by)
    runs = os.path.relpath(results / "runs", out).replace(os.sep, "/")
    jobs = [
        _Job(run, f"{results}/runs/{path}", f"../../../{runs}/{path}", f"{out}/{path}.html", place, known.get(path))
        for run, path, place in zip((s.run for s in scores), (s.run.path for s in scores), places, strict=True)
    ]
    _remove_others(out, {score.run.path for score in scores})
    made = _write_all(jobs, words)
    pages = {score.run.path: signature for score, (signature, _) in zip(scores, made, strict=True)}
    write_record(out / INDEX, PageIndex(made_by=made_by, pages=pages))
    return sum(written for _, written in made)


def _require_plain_names(scores: Sequence[ScoreRecord]) -> None:
    """Names of a campaign are checked with its configuration, but results may come from elsewhere."""
    for score in scores:
        for name in (score.run.agent, score.run.task):
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise InfrastructureError(
                    f"A score is of a run of {name!r}, which is no name: its page would lie elsewhere.\n"
                    "Its score.json or plan.json was written by something else; leave this run out of the plan."
                )


# --- what pages are made of -----------------------------------------------------------------------------------


def _shared(
    scores: Sequence[ScoreRecord], cards: Mapping[str, TaskCard], rubrics: Mapping[str, Rubric]
) -> tuple[list[str], list[int]]:
    """Shared words as JSON, each kind once, and for every score the number of its own."""
    repeats: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for score in scores:
        repeats[score.run.agent, score.run.task, score.run.tier].append(score.run.repeat)
    numbers: dict[tuple[str, str, tuple[int, ...]], int] = {}
    words: list[str] = []
    places = []
    for score in scores:
        run = score.run
        siblings = tuple(sorted(repeats[run.agent, run.task, run.tier]))
        key = (run.task, score.track, siblings)
        if key not in numbers:
            numbers[key] = len(words)
            title = cards[run.task].title if run.task in cards else run.task
            access = cards[run.task].dataset.access if run.task in cards else "public"
            made = shared_words(run.task, title, score.track, rubrics.get(score.track), siblings, access)
            words.append(pydantic_core.to_json(made).decode())
        places.append(numbers[key])
    return words, places


def _signature(folder: str, words: str) -> str:
    """Digest of the run's records (size and time of change) and of what is said beside them."""
    parts = [words, folder]
    for name in RECORDS:
        try:
            status = os.stat(f"{folder}/{name}")
            parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
        except OSError:
            parts.append(f"{name} absent")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _made_by() -> str:
    """Digest of everything else that a page depends on: our code and templates."""
    digest = hashlib.sha256()
    modules = (definitions, html_module, details_module, records_module)
    files = [Path(__file__), *(Path(str(module.__file__)) for module in modules)]
    for path in [*files, *(html_module.TEMPLATES / name for name in ("run.html", *STYLES, *SCRIPTS))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _known_pages(out: Path, made_by: str) -> dict[str, str]:
    """Pages of an earlier build that was made by the same code; none where that cannot be told."""
    try:
        index = read_record(out / INDEX, PageIndex)
    except InfrastructureError:
        return {}
    return index.pages if index.made_by == made_by else {}


def _remove_others(out: Path, kept: set[str]) -> None:
    """Pages of runs that are not there any more, and folders that this leaves empty."""
    for folder, _, names in os.walk(out, topdown=False):
        place = Path(folder)
        for name in names:
            path = place / name
            if path.suffix == ".html" and path.relative_to(out).with_suffix("").as_posix() not in kept:
                path.unlink()
        if place != out and not any(place.iterdir()):
            place.rmdir()


# --- writing --------------------------------------------------------------------------------------------------

_Made = tuple[str, bool]
"""What a page was made of, and whether it was written."""


class _Writer:
    """Writes pages that have template and shared words in common."""

    def __init__(self, words: Sequence[str]) -> None:
        self._template, self._words = load_template(), words
        self._folders: set[str] = set()

    def is_fresh(self, job: _Job) -> bool:
        """The page is there and was made of the same."""
        return os.path.isfile(job.page) and _signature(job.folder, self._words[job.words]) == job.known

    def write(self, job: _Job) -> _Made:
        """Write one page; what it is made of is noted before it is read."""
        signature = _signature(job.folder, self._words[job.words])
        detail = read_detail(job.folder, shown_as=job.shown_as)
        run, records = job.run, detail.model_dump_json(by_alias=True, exclude=_SAID_ALREADY)
        title = f"{run.agent} · {run.task} · {run.tier} · r{run.repeat}"
        page = filled(self._template, title, self._words[job.words], records)
        self._replace(os.path.dirname(job.page), job.page, page)
        return signature, True

    def _replace(self, place: str, path: str, data: bytes) -> None:
        """Write a page under another name first. Without fsync: a page can always be made again."""
        temporary = f"{path}.tmp"
        try:
            if place not in self._folders:
                os.makedirs(place, exist_ok=True)
                self._folders.add(place)
            with open(temporary, "wb", buffering=0) as stream:
                stream.write(data)
            os.replace(temporary, path)
        except OSError as error:
            raise InfrastructureError(
                f"Cannot write {path}: {error.strerror or error}.\nFree space or fix the permissions of {place}, "
                "then build the leaderboard again."
            ) from error


def _write_all(jobs: Sequence[_Job], words: Sequence[str]) -> list[_Made]:
    """What became of every page. Where nearly all were written before, looking is less than starting processes."""
    writer = _Writer(words)
    fresh = {number for number, job in enumerate(jobs) if job.known is not None and writer.is_fresh(job)}
    stale = [job for number, job in enumerate(jobs) if number not in fresh]
    made = iter([writer.write(job) for job in stale] if len(stale) < _MANY else _write_beside(stale, writer))
    return [(job.known or "", False) if number in fresh else next(made) for number, job in enumerate(jobs)]


def _write_beside(jobs: Sequence[_Job], writer: _Writer) -> list[_Made]:
    """Write pages in a few processes."""
    workers = min(4, len(os.sched_getaffinity(0)))
    chunks = [jobs[start : start + _CHUNK] for start in range(0, len(jobs), _CHUNK)]
    # Not fork: libraries that are loaded by now may have started threads.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _prepare, (writer,)) as pool:
        return [made for chunk in pool.map(_write_chunk, chunks) for made in chunk]


_WORKER: list[_Writer] = []
"""The writer of a worker process."""


def _prepare(writer: _Writer) -> None:
    _WORKER[:] = [writer]
    # Records hold no cycles, and looking for them takes a tenth of the time; what was imported need not be looked at.
    gc.disable()
    gc.freeze()


def _write_chunk(jobs: Sequence[_Job]) -> list[_Made]:
    made = [_WORKER[0].write(job) for job in jobs]
    gc.collect()
    return made
