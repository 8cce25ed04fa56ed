"""The gold set: transcripts scored by hand, against which judges are measured (``config/gold``).

One YAML file is one transcript: what an agent planned, ran, wrote and left, as far as a judge may see it, and for every
criterion that its tier judges the verdict a person gave, why, and the line it rests on. The verdicts come from reading
the rubric; where a judge disagrees, the judge is wrong.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from automedbench.base.errors import ConfigError
from automedbench.base.records import CodeCall, Conversation, Message, Model, RunId, Score, Stage, Tier
from automedbench.base.yamlfile import load_yaml, suggestion, validate
from automedbench.judge.evidence import collect_evidence, quote_exists
from automedbench.judge.rubric import Rubric

Quality = Literal["good", "medium", "bad"]
Split = Literal["dev", "held_out", "fresh"]
SPLITS: tuple[Split, ...] = get_args(Split)
"""dev: rules may be made on it; held_out: not looked at meanwhile; fresh: written when the rules were finished."""
Plot = Literal["none", "broken", "blank", "unrelated", "pipeline"]
Trap = Literal[
    "empty_plan",
    "copied_plan",
    "fabricated_validation",
    "hidden_failure",
    "brief_echoed",
    "keyword_stuffing",
    "late_validation",
    "unweighed_candidates",
    "touched_weights",
    "gpu_claimed",
    "blank_plot",
    "unread_pilot",
    "vacuous_check",
    "refused_call",
    "judge_order",
]
DEFAULT_BRIEF = "default"
UNLISTED_BYTES = 2_000
"""Size of a file that calls made and ``files`` does not list."""

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class GoldCall(Model):
    """One code call, with defaults for one that went well."""

    turn: int | None = Field(None, description="default: the number of the call")
    stage: Stage
    lang: Literal["python", "bash"] = "python"
    code: str
    out: str = ""
    err: str = ""
    status: Literal["ok", "error", "timeout", "refused", "killed"] = "ok"
    new: list[str] = Field(default_factory=list, description="files created or changed; {0001..0012} stands for many")
    seconds: float = 1.0


class Expected(Model):
    """A person's verdict on one criterion, after ``needs`` were applied."""

    verdict: Score
    reason: Annotated[str, Field(min_length=8)]
    evidence: list[str] = Field(default_factory=list, description="lines of the run that show it, word for word")
    turn: int | None = Field(None, description="where the evidence stands; null for plan and files")


class GoldTranscript(Model):
    """One transcript and what it is worth."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    track: str
    tier: Tier
    quality: Quality
    split: Split
    traps: list[Trap] = Field(default_factory=list)
    why: Annotated[str, Field(min_length=20, description="what the transcript tests")]
    n_cases: int = Field(ge=1)
    brief: str = Field(DEFAULT_BRIEF, description="an excerpt of the brief, or 'default': the track's in briefs/")
    plan: str | None = None
    plot: Plot = "none"
    plot_steps: list[str] = Field(default_factory=list, description="what stands in the boxes of plan.png")
    notes: dict[int, str] = Field(default_factory=dict, description="turn → what the agent wrote beside its code")
    calls: list[GoldCall]
    files: dict[str, int] = Field(default_factory=dict, description="bytes at the end; 2000 for files not listed")
    expected: dict[str, Expected]

    @property
    def conversation(self) -> Conversation:
        """The record that a judge is given."""
        return Conversation(
            run=RunId(agent="agent-under-test", task=f"{self.track.replace('_', '-')}-task", tier=self.tier, repeat=1),
            n_cases=self.n_cases,
            messages=[
                Message(turn=0, role="system", content=self.brief),
                *(Message(turn=turn, role="assistant", content=text) for turn, text in sorted(self.notes.items())),
            ],
            calls=[_code_call(number, call) for number, call in enumerate(self.calls, start=1)],
            plan=self.plan,
            has_plot=self.plot in ("blank", "unrelated", "pipeline"),
            workspace_files=self._workspace(),
        )

    def _workspace(self) -> dict[str, int]:
        made = [path for call in self.calls for path in expand(call.new)]
        listed = {path: size for pattern, size in self.files.items() for path in expand([pattern])}
        if self.plan is not None:
            listed.setdefault("plan/plan.md", len(self.plan.encode()))
        return dict.fromkeys(made, UNLISTED_BYTES) | listed


def _code_call(number: int, call: GoldCall) -> CodeCall:
    return CodeCall(
        turn=call.turn or number,
        call=number,
        language=call.lang,
        code=call.code,
        status=call.status,
        exit_code={"ok": 0, "error": 1, "killed": 137}.get(call.status),
        elapsed_s=call.seconds,
        stdout=call.out,
        stderr=call.err,
        stage=call.stage,
        new_files=list(expand(call.new)),
    )


def expand(patterns: Iterable[str]) -> Iterator[str]:
    """Paths with ``{0001..0012}`` replaced by every number between, with the same number of digits."""
    for pattern in patterns:
        mark = _RANGE.search(pattern)
        if mark is None:
            yield pattern
            continue
        first, last = mark.groups()
        numbers = (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
        yield from (pattern[: mark.start()] + number + pattern[mark.end() :] for number in numbers)


def load_gold(folder: Path, track: str | None = None, split: Split | Literal["all"] = "all") -> list[GoldTranscript]:
    """All transcripts below ``folder``, by track and name; raises ConfigError with every problem."""
    paths = sorted(Path(folder).glob("*/*.yaml"))
    problems = [] if paths else [f"{folder}: holds no <track>/<id>.yaml"]
    found = []
    for path in paths:
        try:
            found.append(_load(path, Path(folder)))
        except ConfigError as error:
            problems += error.problems
    tracks = sorted({item.track for item in found})
    if track is not None and found and track not in tracks:
        problems.append(f"{folder}: no transcript of track '{track}'{suggestion(track, tracks)}")
    if problems:
        raise ConfigError(problems)
    return [item for item in found if track in (None, item.track) and split in ("all", item.split)]


def _load(path: Path, folder: Path) -> GoldTranscript:
    found = validate(load_yaml(path), GoldTranscript, str(path))
    if (found.track, found.id) != (path.parent.name, path.stem):
        raise ConfigError([f"{path}: must lie at {found.track}/{found.id}.yaml, as its track and id say"])
    if found.brief != DEFAULT_BRIEF:
        return found
    try:
        texts = [(folder / "briefs" / f"{name}.md").read_text(encoding="utf-8") for name in ("common", found.track)]
    except OSError as error:
        raise ConfigError([f"{path}: brief: {error.filename} cannot be read"]) from error
    return found.model_copy(update={"brief": "\n".join(texts)})


def gold_problems(gold: GoldTranscript, rubric: Rubric) -> list[str]:
    """What is wrong with the expectations, one line each: a criterion, its level, its evidence."""
    asked = {rule.id: rule for rule in rubric.judged(gold.tier)}
    evidence = collect_evidence(gold.conversation)
    problems = [f"{gold.id}: {name}: no expected verdict" for name in asked if name not in gold.expected]
    for name, wanted in gold.expected.items():
        where = f"{gold.id}: {name}"
        if name not in asked:
            problems.append(f"{where}: is not judged in the {gold.tier} tier")
            continue
        if wanted.verdict not in asked[name].values:
            problems.append(f"{where}: {wanted.verdict:g} is no level")
        needed = gold.expected.get(asked[name].needs or "")
        if wanted.verdict > 0 and needed is not None and needed.verdict == 0:
            problems.append(f"{where}: must be 0, because {asked[name].needs} is")
        if wanted.verdict > 0 and not wanted.evidence:
            problems.append(f"{where}: earned without evidence")
        problems += [
            f"{where}: evidence is not in the transcript: '{quote[:60]}'"
            for quote in wanted.evidence
            if not quote_exists(evidence, quote, wanted.turn)
        ]
    return problems


def picture(gold: GoldTranscript) -> bytes | None:
    """``plan.png`` as a judge that takes images is shown it; null when there is none or it does not open."""
    if gold.plot in ("none", "broken"):
        return None
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (900, 240), "white")
    draw = ImageDraw.Draw(image)
    if gold.plot == "pipeline":
        width = 880 // max(1, len(gold.plot_steps))
        for number, step in enumerate(gold.plot_steps):
            left = 10 + number * width
            draw.rectangle((left, 80, left + width - 30, 160), outline="black", width=2)
            draw.multiline_text((left + 8, 100), step.replace(", ", ",\n"), fill="black")
            if number + 1 < len(gold.plot_steps):
                draw.line((left + width - 30, 120, left + width, 120), fill="black", width=2)
                draw.polygon([(left + width, 120), (left + width - 8, 115), (left + width - 8, 125)], fill="black")
    elif gold.plot == "unrelated":
        draw.line([(x, 200 - (x * 37) % 160) for x in range(40, 860, 20)], fill="blue", width=2)
        draw.text((380, 10), " ".join(gold.plot_steps) or "values", fill="black")
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
