"""The rubric: a skeleton for all tracks and an overlay for those that need one, both YAML (``config/rubrics``).

A track replaces wording and vocabulary of single criteria, never the structure
(docs/specification.md, 6). A track without a file is judged by the skeleton as it is.

Verdicts become stage scores here: criteria that need others, credits of a tier, and the mean of a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from automedbench.base.errors import ConfigError
from automedbench.base.records import Criterion, JudgedStage, Model, Score, Tier
from automedbench.base.yamlfile import load_yaml, suggestion, validate

ModelT = TypeVar("ModelT", bound=Model)
JUDGED_STAGES: tuple[JudgedStage, ...] = ("S1", "S2", "S3")

Words = Annotated[list[str], Field(description="whole words, or beginnings when they end in *")]


class Level(Model):
    """An allowed verdict and what it means."""

    value: Score
    text: str


YES_NO = [Level(value=0.0, text="Not shown."), Level(value=1.0, text="Shown.")]


class CriterionRule(Model):
    """One criterion of the skeleton, without its id."""

    stage: JudgedStage
    title: str
    earned_when: str
    needs: str | None = Field(None, description="criterion without which this one is 0")
    auto_tiers: list[Tier] = Field(default_factory=list, description="tiers that credit it without judging")
    levels: list[Level] = Field(default_factory=lambda: list(YES_NO), min_length=2)
    gpu: bool = Field(False, description="not applicable where the run had no GPU")


class Wording(Model):
    """Text of a criterion that a track may replace."""

    title: str | None = None
    earned_when: str | None = None
    levels: list[Level] | None = None


class Vocabulary(Model):
    """Words of the heuristic judge; a list given by the track replaces the skeleton's (those of COMMON add to it)."""

    outputs: list[str] = Field(
        default_factory=list, description="file names of one case's output; empty: every file in the case's folder"
    )
    preprocessing: Words = Field(default_factory=list)
    model: Words = Field(default_factory=list)
    inference: Words = Field(default_factory=list)
    export: Words = Field(default_factory=list)
    choice: Words = Field(default_factory=list, description="words of decision: what follows was chosen")
    approach: Words = Field(default_factory=list, description="a paragraph with one of these is about the method")
    method: Words = Field(default_factory=list, description="methods that can solve the task")
    not_method: Words = Field(default_factory=list, description="methods that answer another question, if any")
    candidates: dict[str, list[str]] = Field(default_factory=dict, description="method → its spellings")
    input_check: Words = Field(default_factory=list, description="properties of an input that code may show")
    joining: list[str] = Field(default_factory=list, description="words that hold sentences together")
    drawing: Words = Field(default_factory=list, description="functions that draw boxes, arrows or text")
    beyond_form: bool = Field(False, description="a check must look at values; shape, type and place are not enough")
    input_names: list[str] = Field(
        default_factory=list, description="files of a case that code must have read before the full run, beside images"
    )
    classical: list[str] = Field(
        default_factory=list, description="functions of packages that count as obtained weights; empty: none do"
    )


MAY_BE_EMPTY = frozenset({"outputs", "not_method", "beyond_form", "input_names", "classical"})
COMMON = frozenset({"preprocessing", "model", "inference", "export"})
"""Lists that a track adds to: what a step of the work is called in general holds in every track."""


class Skeleton(Model):
    """``skeleton.yaml``."""

    version: int = Field(ge=1)
    definitions: dict[JudgedStage, list[str]] = Field(description="words that the criteria of a stage use")
    criteria: dict[str, CriterionRule] = Field(min_length=1)
    vocabulary: Vocabulary


class Overlay(Model):
    """``<track>.yaml``."""

    version: int = Field(ge=1, le=99)
    title: str = Field("", description="what the documentation calls the track; empty: by its id")
    criteria: dict[str, Wording] = Field(default_factory=dict)
    vocabulary: Vocabulary = Vocabulary()


PLAIN = Overlay.model_construct(version=0)
"""What a track without a file changes: nothing."""


class RubricCriterion(CriterionRule):
    """One criterion as a judge reads it."""

    id: str

    @property
    def values(self) -> list[float]:
        """Allowed verdicts."""
        return [level.value for level in self.levels]


class Rubric(Model):
    """Skeleton and overlay merged: what a judge of this track applies."""

    track: str
    title: str = ""
    version: int = Field(
        description="100 × skeleton version + track version (0 without a file), so that raising either raises it"
    )
    definitions: dict[JudgedStage, list[str]]
    criteria: list[RubricCriterion]
    vocabulary: Vocabulary

    def judged(self, tier: Tier) -> list[RubricCriterion]:
        """The criteria that a judge decides in this tier."""
        return [criterion for criterion in self.criteria if tier not in criterion.auto_tiers]


def load_rubric(folder: Path, track: str) -> Rubric:
    """The rubric of one track from ``skeleton.yaml`` and, where there is one, ``<track>.yaml``.

    Raises ConfigError with every problem.
    """
    folder = Path(folder)
    skeleton_path, overlay_path = folder / "skeleton.yaml", folder / f"{track}.yaml"
    problems: list[str] = []
    skeleton = _load(skeleton_path, Skeleton, problems)
    overlay = _load(overlay_path, Overlay, problems) if overlay_path.exists() else PLAIN
    if skeleton is not None:
        problems += _structure_problems(skeleton, str(skeleton_path))
    if skeleton is not None and overlay is not None:
        source = skeleton_path if overlay is PLAIN else overlay_path
        problems += _overlay_problems(skeleton, overlay, str(source))
    if problems or skeleton is None or overlay is None:
        raise ConfigError(problems)
    return _merge(track, skeleton, overlay)


def _load(path: Path, model: type[ModelT], problems: list[str]) -> ModelT | None:
    try:
        return validate(load_yaml(path), model, str(path))
    except ConfigError as error:
        problems += error.problems
        return None


def _structure_problems(skeleton: Skeleton, source: str) -> Iterable[str]:
    known = list(skeleton.criteria)
    for name, rule in skeleton.criteria.items():
        if rule.needs is not None and rule.needs not in known:
            yield f"{source}: criteria.{name}.needs: no criterion '{rule.needs}'{suggestion(rule.needs, known)}"
    stages = {rule.stage for rule in skeleton.criteria.values()}
    for stage in JUDGED_STAGES:
        if stage not in stages:
            yield f"{source}: criteria: stage {stage} has no criterion"


def _overlay_problems(skeleton: Skeleton, overlay: Overlay, source: str) -> Iterable[str]:
    known = list(skeleton.criteria)
    for name in overlay.criteria:
        if name not in known:
            yield f"{source}: criteria.{name}: not in skeleton.yaml{suggestion(name, known)}"
    vocabulary = _given(skeleton.vocabulary) | _given(overlay.vocabulary)
    for name in Vocabulary.model_fields:
        if name not in MAY_BE_EMPTY and not vocabulary.get(name):
            yield f"{source}: vocabulary.{name}: is empty here and in skeleton.yaml"


def _merge(track: str, skeleton: Skeleton, overlay: Overlay) -> Rubric:
    criteria = [
        RubricCriterion.model_validate(
            {"id": name, **rule.model_dump(), **_given(overlay.criteria.get(name, Wording()))}
        )
        for name, rule in skeleton.criteria.items()
    ]
    vocabulary = Vocabulary.model_validate(_words(_given(skeleton.vocabulary), _given(overlay.vocabulary)))
    version = 100 * skeleton.version + overlay.version
    return Rubric(
        track=track,
        title=overlay.title,
        version=version,
        definitions=skeleton.definitions,
        criteria=criteria,
        vocabulary=vocabulary,
    )


def _words(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    added = {name: list(dict.fromkeys([*common.get(name, []), *own[name]])) for name in COMMON & set(own)}
    return common | own | added


def _given(model: Model) -> dict[str, Any]:
    """The keys that were written in the file."""
    return model.model_dump(exclude_unset=True)


def stage_score(criteria: Iterable[Criterion], stage: JudgedStage) -> float:
    """Mean verdict of a stage, two decimals (track-detection.md E: S1 = round(sum/6, 2), S2 = round(sum/5, 2)).

    S3 has one criterion, so its score is that level. Criteria that are not applicable are left out of the mean.
    """
    verdicts = [criterion.verdict for criterion in criteria if criterion.stage == stage and criterion.applicable]
    return round(sum(verdicts) / len(verdicts), 2)


def settle_verdicts(verdicts: Mapping[str, Criterion], rubric: Rubric, tier: Tier, *, gpu: bool) -> list[Criterion]:
    """All criteria in the rubric's order: a criterion is 0 without the one it needs; then the tier's credits.

    ``gpu``: whether the run had one; False makes the criteria that need one not applicable.
    """
    found = apply_needs(verdicts, rubric)
    found |= {rule.id: credit_criterion(rule, tier) for rule in rubric.criteria if tier in rule.auto_tiers}
    if not gpu and found:
        stages = {criterion.stage for criterion in found.values()}
        found |= {
            rule.id: Criterion(id=rule.id, stage=rule.stage, verdict=0.0, applicable=False, reason="the run had no GPU")
            for rule in rubric.criteria
            if rule.gpu and rule.stage in stages
        }
    return [found[rule.id] for rule in rubric.criteria if rule.id in found]


def apply_needs(verdicts: Mapping[str, Criterion], rubric: Rubric) -> dict[str, Criterion]:
    """A criterion is 0 without the one it needs."""
    found = dict(verdicts)
    for rule in rubric.criteria:
        given, needed = verdicts.get(rule.id), verdicts.get(rule.needs or "")
        if given and given.verdict and needed and needed.verdict == 0:
            reason = f"0 because {rule.needs} is 0; judged {given.verdict:g} by itself: {given.reason}"
            found[rule.id] = given.model_copy(update={"verdict": 0.0, "reason": reason})
    return found


def credit_criterion(rule: RubricCriterion, tier: Tier) -> Criterion:
    """A criterion that the tier grants without judging."""
    return Criterion(
        id=rule.id, stage=rule.stage, verdict=max(rule.values), auto=True, reason=f"credited in the {tier} tier"
    )
