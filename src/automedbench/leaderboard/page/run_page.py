"""The page of one run: everything that led to its scores, in one file that loads nothing.

What is the same for all runs (style, script, policy) is rendered once; for each run only its data are spliced in, as
JSON that no text of an agent can leave.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from automedbench.base.records import Model, RunId
from automedbench.judge.rubric import Rubric, RubricCriterion
from automedbench.leaderboard import definitions
from automedbench.leaderboard.page.details import RunDetail
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
_SLOTS = {name: f"@@{name}@@" for name in ("title", "shared", "detail")}


class PageStage(Model):
    """A stage as the page names it."""

    title: str
    weight: int
    formula: str


class PageCriterion(Model):
    """A criterion of the rubric as a reader needs it."""

    title: str
    earned_when: str
    levels: list[str]


class Shared(Model):
    """What a page says beside the run's own records."""

    task: str
    track: str
    task_half: str
    siblings: list[int]
    stages: dict[str, PageStage]
    criteria: dict[str, PageCriterion]
    rubric_version: int | None
    outcomes: dict[str, str]
    errors: dict[str, str]
    backends: dict[str, str]
    networks: dict[str, str]
    closed: str | None = Field(None, description="how access to the data set is limited; null: open to all")


@dataclass(frozen=True)
class Template:
    """The page without its run: bytes before, between and after title, shared words and detail."""

    before: bytes
    to_shared: bytes
    to_detail: bytes
    after: bytes

    def filled(self, title: str, shared: str, detail: str) -> bytes:
        """A whole page; ``shared`` and ``detail`` are JSON, ``title`` is plain text."""
        own = (html.escape(title), escaped_json(shared), escaped_json(detail))
        first, second, third = (text.encode("utf-8", "backslashreplace") for text in own)
        return b"".join((self.before, first, self.to_shared, second, self.to_detail, third, self.after))


def load_template() -> Template:
    """The rendered template, cut where a run's own text goes."""
    looks, code = squeezed_style(style(*STYLES)), squeezed_script(script(*SCRIPTS))
    page = (
        environment()
        .get_template("run.html")
        .render(policy=content_policy([looks], [code]), style=safe_source(looks), script=safe_source(code), **_SLOTS)
    )
    before, rest = page.split(_SLOTS["title"])
    to_shared, rest = rest.split(_SLOTS["shared"])
    to_detail, after = rest.split(_SLOTS["detail"])
    return Template(*(part.encode() for part in (before, to_shared, to_detail, after)))


def shared_words(
    task: str, title: str, track: str, rubric: Rubric | None, siblings: Sequence[int], access: str = "public"
) -> Shared:
    """Names and definitions for the pages of one agent's repeats of a task and tier."""
    text = definitions.track_text(track)
    return Shared(
        task=title or task,
        track=definitions.track_title(track),
        task_half=text.task_half if text else "quality × completion rate",
        siblings=sorted(siblings),
        stages={
            stage.id: PageStage(title=stage.title, weight=stage.weight, formula=stage.formula)
            for stage in definitions.STAGES
        },
        criteria={one.id: PageCriterion(**criterion_words(one)) for one in (rubric.criteria if rubric else ())},
        rubric_version=rubric.version if rubric else None,
        outcomes=definitions.OUTCOMES,
        errors=definitions.ERROR_CODES,
        backends=definitions.BACKENDS,
        networks=definitions.NETWORKS,
        closed=None if access == "public" else access,
    )


def detail_json(detail: RunDetail) -> str:
    """A run's records without what they repeat."""
    return detail.model_dump_json(by_alias=True, exclude=_SAID_ALREADY)


def page_title(run: RunId) -> str:
    """Title of the window."""
    return f"{run.agent} · {run.task} · {run.tier} · r{run.repeat}"


def squeezed_script(text: str) -> str:
    """Our own script without indentation and whole-line comments: a page of each run carries it."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def squeezed_style(text: str) -> str:
    """Our own style without comments and needless white space."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", text)).strip()


def criterion_words(criterion: RubricCriterion) -> dict[str, Any]:
    """Fields of a ``PageCriterion``; levels are told of S3 only, where one of them is given."""
    levels = criterion.levels if criterion.stage == "S3" else ()
    said = [f"{level.value:g}: {level.text}" for level in levels]
    return {"title": criterion.title, "earned_when": criterion.earned_when, "levels": said}
