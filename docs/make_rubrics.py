"""Rubrics as a page: ``python docs/make_rubrics.py config/rubrics docs/rubrics.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from automedbench.base.files import write_text
from automedbench.judge.rubric import JUDGED_STAGES, Level, Rubric, RubricCriterion, load_rubric

SKELETON = "skeleton"
INTRODUCTION = """\
# Rubrics

What a judge looks for in stages S1 (plan), S2 (set-up) and S3 (validation). S4 and S5 are computed, not judged. `python
docs/make_rubrics.py config/rubrics docs/rubrics.md` makes this page from `config/rubrics/`. How judges work:
[Judges](judges.md); how well they agree with people on these criteria: [Judges, measured](judge-evaluation.md).

- S1 is the mean of s1a to s1f, S2 the mean of s2a to s2e (two decimals), S3 the level of s3. In the agentic score S1
  weighs 25 %, S2 15 %, S3 35 %.
- Every verdict above 0 rests on a quote that stands word for word in the run; the brief is never evidence.
- *Credited* tiers get a criterion without judging. It is done last, after a criterion without the one it *needs* was
  set to 0.
- One skeleton holds for all tracks. A track replaces wording, never structure. The version of a track's rubric is
  100 × skeleton + track; raising either judges runs again and runs no agent again."""


def render(folder: Path) -> str:
    """The page; raises ConfigError when a rubric is wrong."""
    tracks = sorted(path.stem for path in Path(folder).glob("*.yaml") if path.stem != SKELETON)
    skeleton = load_rubric(folder, SKELETON + "-alone")
    rubrics = [load_rubric(folder, track) for track in tracks]
    parts = [INTRODUCTION, *_versions(skeleton, rubrics), *_skeleton(skeleton)]
    for rubric in rubrics:
        parts += _track(rubric, skeleton)
    return "\n\n".join(parts) + "\n"


def _versions(skeleton: Rubric, rubrics: Sequence[Rubric]) -> Iterator[str]:
    yield "## Versions"
    rows = [[_title(rubric), str(rubric.version)] for rubric in rubrics]
    yield _table([["track", "version"], *rows, ["any other", str(skeleton.version)]])


def _skeleton(skeleton: Rubric) -> Iterator[str]:
    yield "## All tracks"
    for stage in JUDGED_STAGES:
        yield f"### {stage}"
        yield "\n".join(f"- {text}" for text in skeleton.definitions[stage])
        rows = [_row(criterion) for criterion in skeleton.criteria if criterion.stage == stage]
        yield _table([["id", "criterion", "earned when", "needs", "credited"], *rows])
        yield from (
            _levels(item.id, item.levels) for item in skeleton.criteria if item.stage == stage and _levelled(item)
        )


def _row(criterion: RubricCriterion) -> list[str]:
    credited = ", ".join(criterion.auto_tiers)
    return [criterion.id, criterion.title, _cell(criterion.earned_when), criterion.needs or "", credited]


def _levelled(criterion: RubricCriterion) -> bool:
    return len(criterion.levels) > 2


def _levels(name: str, levels: Sequence[Level]) -> str:
    return "\n".join([f"Levels of {name}:", "", *(f"- **{level.value:g}** {_cell(level.text)}" for level in levels)])


def _track(rubric: Rubric, skeleton: Rubric) -> Iterator[str]:
    """What a track says differently."""
    yield f"## {_title(rubric)}"
    pairs = list(zip(rubric.criteria, skeleton.criteria, strict=True))
    rows = [
        [own.id, own.title, _cell(own.earned_when)]
        for own, common in pairs
        if (own.title, own.earned_when) != (common.title, common.earned_when)
    ]
    if rows:
        yield _table([["id", "criterion", "earned when"], *rows])
    yield from (_levels(own.id, own.levels) for own, common in pairs if own.levels != common.levels)


def _title(rubric: Rubric) -> str:
    return rubric.title or rubric.track.replace("_", " ").capitalize()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *body])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python docs/make_rubrics.py RUBRICS PAGE")
    write_text(Path(sys.argv[2]), render(Path(sys.argv[1])))
