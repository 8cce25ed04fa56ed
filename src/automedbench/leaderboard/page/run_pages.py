"""Run pages: one per scored run, everything that led to its scores, in a file that loads nothing.

What is the same for all runs (style, script, policy) is rendered once; for each run only its data are spliced in, as
JSON that no text of an agent can leave. Several processes write many pages.
"""

from __future__ import annotations

import functools
import html
import multiprocessing
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pydantic_core

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError
from automedbench.base.records import RunId, ScoreRecord
from automedbench.judge.rubric import Rubric, RubricCriterion
from automedbench.leaderboard import definitions
from automedbench.leaderboard.entries import group_by
from automedbench.leaderboard.page.details import read_detail
from automedbench.leaderboard.page.html import content_policy, environment, escaped_json, safe_source, script, style
from automedbench.scoring.codes.taxonomy import CODES

STYLES = ("common.css", "run.css")
SCRIPTS = ("common.js", "viewer.js", "transcript.js", "framed.js", "run.js")

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
def load_template() -> list[bytes]:
    """The rendered template, cut where a run's own text goes: title, shared words, detail."""
    looks, code = style(*STYLES), script(*SCRIPTS)
    slots = {name: f"@@{name}@@" for name in ("title", "shared", "detail")}
    own = {"style": safe_source(looks), "script": safe_source(code)} | slots
    page = environment().get_template("run.html").render(policy=content_policy([looks], [code]), **own)
    return [part.encode() for part in re.split("|".join(slots.values()), page)]


def fill_page(template: Sequence[bytes], title: str, shared: str, detail: str) -> bytes:
    """A whole page; ``shared`` and ``detail`` are JSON, ``title`` is plain text."""
    own = (html.escape(title), escaped_json(shared), escaped_json(detail), "")
    texts = (text.encode("utf-8", "backslashreplace") for text in own)
    return b"".join(part for pair in zip(template, texts, strict=True) for part in pair)


def shared_words(title: str, access: str, track: str, rubric: Rubric | None, siblings: Sequence[int]) -> dict[str, Any]:
    """Names and definitions beside the runs' own records, for the pages of one agent's repeats of a task and tier.

    ``closed``: how access to the data set is limited; null: open to all.
    """
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
_CHUNK = 50


class _Job(NamedTuple):
    """A page: folder of the run, also as the page sees it, and the words that it shares with others, as JSON."""

    run: RunId
    folder: str
    folder_label: str
    page: str
    words: str


def write_run_pages(
    results: Path,
    out: Path,
    scores: Sequence[ScoreRecord],
    cards: Mapping[str, TaskCard],
    rubrics: Mapping[str, Rubric],
) -> dict[str, datetime]:
    """Write ``out/<run path>.html`` for every score, remove all other pages below ``out``.

    Returns the time at which the last run of each agent ended, where it is known.

    Raises InfrastructureError when a score cannot be read or a page cannot be written.
    """
    _require_plain_names(scores)
    runs = os.path.relpath(results / "runs", out).replace(os.sep, "/")
    jobs = [
        _Job(run, f"{results}/runs/{run.path}", f"../../../{runs}/{run.path}", f"{out}/{run.path}.html", words)
        for run, words in zip((score.run for score in scores), _shared(scores, cards, rubrics), strict=True)
    ]
    _remove_others(out, {job.run.path for job in jobs})
    ended = zip((job.run.agent for job in jobs), _write_all(jobs), strict=True)
    return dict(sorted((agent, time) for agent, time in ended if time))  # of equal keys the last, so the latest, stays


def _require_plain_names(scores: Sequence[ScoreRecord]) -> None:
    """Names of a campaign are checked with its configuration, but results may come from elsewhere."""
    for score in scores:
        for name in (score.run.agent, score.run.task):
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise InfrastructureError(
                    f"A score is of a run of {name!r}, which is not a valid name: its page would lie elsewhere.\n"
                    "Its score.json or plan.json was written by something else; leave this run out of the plan."
                )


# --- what pages are made of -----------------------------------------------------------------------------------


def _shared(
    scores: Sequence[ScoreRecord], cards: Mapping[str, TaskCard], rubrics: Mapping[str, Rubric]
) -> Iterator[str]:
    """Shared words of every score as JSON, each kind made once."""
    repeats = group_by((score.run for score in scores), lambda run: (run.agent, run.task, run.tier))

    @functools.cache
    def words(task: str, track: str, siblings: tuple[int, ...]) -> str:
        card = cards.get(task)
        title_and_access = (card.title, card.dataset.access) if card else (task, "public")
        return pydantic_core.to_json(shared_words(*title_and_access, track, rubrics.get(track), siblings)).decode()

    for score in scores:
        run = score.run
        siblings = sorted(other.repeat for other in repeats[run.agent, run.task, run.tier])
        yield words(run.task, score.track, tuple(siblings))


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


def _write_all(jobs: Sequence[_Job]) -> list[datetime | None]:
    """Write pages, many of them in a few processes; when their runs ended."""
    if len(jobs) < _MANY:
        return list(map(_write, jobs))
    workers = min(4, len(os.sched_getaffinity(0)))
    # Not fork: libraries that are loaded by now may have started threads.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_write, jobs, chunksize=_CHUNK))


def _write(job: _Job) -> datetime | None:
    """Write one page under another name first. Without fsync: a page can always be made again."""
    detail = read_detail(job.folder, folder_label=job.folder_label)
    records = detail.model_dump_json(by_alias=True, exclude=_EXCLUDED_FIELDS)
    title = f"{job.run.agent} · {job.run.task} · {job.run.tier} · r{job.run.repeat}"
    page, temporary = fill_page(load_template(), title, job.words, records), f"{job.page}.tmp"
    try:
        os.makedirs(os.path.dirname(job.page), exist_ok=True)
        Path(temporary).write_bytes(page)
        os.replace(temporary, job.page)
    except OSError as error:
        raise InfrastructureError(
            f"Cannot write {job.page}: {error.strerror or error}.\nFree space or fix the permissions of its folder, "
            "then build the leaderboard again."
        ) from error
    return detail.run.ended_at if detail.run else None
