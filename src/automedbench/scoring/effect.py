"""Effect of the case on a run's outputs, measured on the outputs (docs/specification.md, 11).

Each output is compared with the answer of its own case and with the answers of others: outputs that come of the case
fit their own answer better. Restored pictures must also be better than what the input gives without any method. No code
of the agent is looked at.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from automedbench.base.errors import AutoMedBenchError
from automedbench.base.records import Effect
from automedbench.statistics.crossing import (
    CONFIDENCE,
    Crossed,
    MeanDifference,
    cross,
    difference,
    draw_blocks,
    largest_share,
    mean_difference,
    mean_interval,
)
from automedbench.tracks import EffectEvidence, Restoration, ScoringInputs, get_track

EFFECT_VERSION = 3
"""Raised when the same outputs could get another effect; scores every run again and re-runs no agent."""
SIGNIFICANT = 0.01
FEWEST, FEWEST_ALIKE, FEWEST_LABELS = 5, 3, 10
"""Outputs without which nothing is said: of the interval, of outputs that are one, of labels that are one."""
NO_SIGN = 0.2
"""p above which the permutation test sees no sign of an effect."""
ALIKE, COPIES = 0.95, 0.95
NEAR = 0.25
"""Distance from smoothings of the input below which a picture that is worse than another of them is no method's."""
LEAST_ATTAINABLE = 0.02
"""Answers that differ less than this cannot tell whose output is whose."""
EXPECTED = (AutoMedBenchError, ArithmeticError, MemoryError, OSError, ValueError)
Verdict = Literal["shown", "none", "unclear"]


def measure_effect(inputs: ScoringInputs) -> Effect:
    """Effect of the case on the readable outputs of a submission; ``unclear`` where it cannot be measured."""
    hook = get_track(inputs.card.track).effect
    if hook is None:
        return Effect(reason="not measured: the track has no comparison of outputs with answers")
    try:
        return judge_effect(hook(inputs), inputs.card.metric.effect_margin)
    except FileNotFoundError:
        return Effect(reason="not measured: inputs of the task are missing; stage it again")
    except EXPECTED as error:
        logging.getLogger(__name__).exception("the effect of the case could not be measured")
        return Effect(reason=f"not measured: {type(error).__name__}; the log of score_metrics says more")


def judge_effect(evidence: EffectEvidence, margin_share: float) -> Effect:
    """Verdict on the evidence; ``margin_share`` is the share of the attainable that an effect must exceed."""
    if not len(evidence.outputs):
        return Effect(reason="no output could be measured")
    findings = measure(evidence, margin_share)
    verdict, reason = decide(findings)
    figures: dict[str, float | None] = {"alike": findings.alike, "copies": findings.copies}
    if crossed := findings.crossed:
        figures |= {"own": crossed.own, "other": crossed.other, "value": crossed.value, "p": crossed.p}
        figures |= {"margin": findings.margin, **dict(zip(("low", "high"), findings.interval or (), strict=False))}
    if gain := findings.gain:
        figures |= {"gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high, "gain_p": gain.p}
    return Effect.model_validate({"verdict": verdict, "reason": reason, "n": findings.n, **figures})


@dataclass(frozen=True)
class Findings:
    """Everything that the verdict is made of.

    ``margin`` is what the difference own - other must exceed to be shown. ``none_below`` are what the upper end of its
    interval must stay below to be none: where nothing is proved, and where the test sees no sign. ``gain`` is over the
    best trivial form of the input, ``gain_over_input`` over the input itself, which must stay below ``gain_margin`` to
    be none. ``distance`` is the outputs' median distance from smoothings of the input.
    """

    n: int
    labels: bool
    crossed: Crossed | None
    attainable: float
    margin: float
    none_below: tuple[float, float]
    alike: float
    answers_alike: float
    copies: float | None = None
    distance: float = math.inf
    gain: MeanDifference | None = None
    gain_over_input: MeanDifference | None = None
    gain_margin: float = 0.0
    best_form: str = ""
    restores: bool = False

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the difference."""
        return mean_interval(self.crossed.terms) if self.crossed and len(self.crossed.terms) > 1 else None

    @property
    def highest(self) -> float:
        """Upper end of the interval, or what full successes could add that are too rare to be among n cases.

        A share s of them is missed by chance with probability (1 - s)^n, here 5 %: without it, outputs that fit no
        answer at all would have an interval of no width however few they are. Pictures always fit to some degree.
        """
        high = (self.interval or (0.0, 0.0))[1]
        unseen: float = 1 - (1 - CONFIDENCE) ** (1 / self.n)
        return high if self.restores else max(high, self.attainable * unseen)

    @property
    def figures(self) -> str:
        """The comparison in one line."""
        assert self.crossed is not None
        low, high = self.interval or (0.0, 0.0)
        return (
            f"own {self.crossed.own:.3f}, other {self.crossed.other:.3f}, difference {self.crossed.value:+.3f} "
            f"[{low:+.3f}, {high:+.3f}], p {self.crossed.p:.4f}, margin {self.margin:.3f}, n {self.n}"
        )


def measure(evidence: EffectEvidence, margin_share: float) -> Findings:
    """Comparisons of outputs with answers, with each other and with the input."""
    n = len(evidence.outputs)
    blocks = draw_blocks(evidence.groups or [""] * n)
    outputs = [[evidence.outputs[row] for row in block] for block in blocks]
    answers = [[evidence.answers[row] for row in block] for block in blocks]
    attainable = difference([evidence.quality(each, each) for each in answers])
    alike = largest_share(evidence.same(each, each) for each in outputs)
    answers_alike = largest_share(evidence.same(each, each) for each in answers)
    # Where many outputs are one, the few that differ prove little either way.
    room = attainable * (min(1.0, (1 - alike) / (1 - answers_alike)) if answers_alike < 1 else 1.0)
    findings = Findings(
        n=n,
        labels=evidence.labels,
        crossed=cross([evidence.quality(*pair) for pair in zip(outputs, answers, strict=True)]),
        attainable=attainable,
        margin=margin_share * attainable,
        none_below=(margin_share * room, max(margin_share, evidence.none_below) * room),
        alike=alike,
        answers_alike=answers_alike,
        restores=evidence.restoration is not None,
    )
    return findings if evidence.restoration is None else _with_gain(findings, evidence.restoration, margin_share)


def _with_gain(findings: Findings, restoration: Restoration, margin_share: float) -> Findings:
    """Findings with the gain over the input's forms; the best form is the same for all cases."""
    copies = float(np.mean(restoration.distance < margin_share))
    given = next(iter(restoration.trivial.values()))
    best = max(restoration.trivial, key=lambda name: float(restoration.trivial[name].mean()))
    findings = replace(
        findings,
        copies=copies,
        distance=float(np.median(restoration.distance)),
        best_form=best,
        gain_margin=margin_share * float(np.mean(1 - given)),
    )
    if findings.n < 2:
        return findings
    return replace(
        findings,
        gain=mean_difference(restoration.outputs - restoration.trivial[best]),
        gain_over_input=mean_difference(restoration.outputs - given),
    )


# --- verdict --------------------------------------------------------------------------------------------------


def decide(findings: Findings) -> tuple[Verdict, str]:
    """Verdict and its reason: the first rule that applies."""
    rules: tuple[tuple[Verdict, Callable[[Findings], str | None]], ...] = (
        ("none", _copied),
        ("unclear", _not_comparable),
        ("none", _all_alike),
        ("unclear", lambda found: f"{found.n} outputs are too few to tell" if found.n < FEWEST else None),
        ("shown", _shown),
        ("none", _no_difference),
        ("none", _no_gain),
        ("none", _worse_than_trivial),
        ("unclear", lambda found: f"neither an effect nor its absence is proved: {_all_figures(found)}"),
    )
    return next((verdict, reason) for verdict, rule in rules if (reason := rule(findings)) is not None)


def _copied(found: Findings) -> str | None:
    if found.copies is None or found.copies < COPIES or _gains(found):
        return None
    return f"{found.copies:.0%} of {found.n} outputs are the input, a smoothing or an interpolation of it"


def _not_comparable(found: Findings) -> str | None:
    if found.crossed is None:
        return f"{found.n} outputs cannot be compared with each other's answers"
    if found.attainable < LEAST_ATTAINABLE:
        return f"the answers hardly differ (attainable difference {found.attainable:.3f}), n {found.n}"
    return None


def _all_alike(found: Findings) -> str | None:
    """Few words may all be one by right: there every single output must be the same."""
    share, fewest = (1.0, FEWEST_LABELS) if found.labels else (ALIKE, FEWEST_ALIKE)
    assert found.crossed is not None
    if found.alike < share or found.answers_alike >= share or found.n < fewest:
        return None
    if found.crossed.p <= SIGNIFICANT and found.crossed.value > found.margin:
        return None
    return f"{found.alike:.0%} of {found.n} outputs are one and the same, of the answers {found.answers_alike:.0%}"


def _shown(found: Findings) -> str | None:
    assert found.crossed is not None
    if found.crossed.p > SIGNIFICANT or found.crossed.value <= found.margin:
        return None
    if found.restores and (not _gains(found) or (found.copies or 0.0) >= COPIES):
        return None
    return f"outputs fit their own case better: {_all_figures(found)}"


def _gains(found: Findings) -> bool:
    """A gain over every trivial form is proved, however small."""
    return found.gain is not None and found.gain.p <= SIGNIFICANT and found.gain.mean > 0


def _no_difference(found: Findings) -> str | None:
    """The interval leaves no room: for an effect above the margin, or for a larger one of which the test sees no sign.

    Outputs that fit their own case clearly worse depend on it as well (classes mixed up).
    """
    assert found.crossed is not None
    small, larger = found.none_below
    no_room = found.highest < small and found.crossed.p > SIGNIFICANT
    no_sign = found.highest < larger and found.crossed.p > NO_SIGN
    if not (no_room or no_sign) or found.crossed.p_below <= SIGNIFICANT:
        return None
    return f"outputs fit other cases as well as their own: {found.figures}"


def _no_gain(found: Findings) -> str | None:
    gain = found.gain_over_input
    if gain is None or gain.high >= found.gain_margin or gain.p <= SIGNIFICANT:
        return None
    return (
        f"outputs are no better than the input: gain {gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}], "
        f"margin {found.gain_margin:.4f}, n {found.n}"
    )


def _worse_than_trivial(found: Findings) -> str | None:
    """Nearly a smoothing of the input, and clearly worse than the best one."""
    if found.gain is None or found.gain.high >= 0 or found.distance >= NEAR:
        return None
    return f"outputs are nearly smoothings of the input (distance {found.distance:.2f}): {_all_figures(found)}"


def _all_figures(found: Findings) -> str:
    gain = found.gain
    if gain is None:
        return found.figures
    over = f"gain over {found.best_form} {gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}], p {gain.p:.4f}"
    return f"{found.figures}; {over}"
