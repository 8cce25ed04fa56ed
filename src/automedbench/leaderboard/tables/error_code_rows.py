"""Rows of the tables about error codes. Scores and shares in [0, 1]; null: undefined, or all agents or tracks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorRow:
    """How often one code fired: in a whole run, or in one stage where ``stage`` is set."""

    track: str | None
    agent: str | None
    stage: str | None
    code: str
    n_runs: int
    n_with_code: int
    run_share: float
    n_fired: int
    fired_share: float | None
    n_by_rule: int
    n_by_judge: int


@dataclass(frozen=True)
class PairRow:
    """How often two codes fire in one run; lift: against what chance would give (1)."""

    track: str | None
    first: str
    second: str
    n_runs: int
    n_first: int
    n_second: int
    n_both: int
    jaccard: float | None
    lift: float | None


@dataclass(frozen=True)
class CostRow:
    """Overall of runs with a code and without it; ``within_difference`` compares within agent × task × tier."""

    track: str | None
    agent: str | None
    code: str
    n_with: int
    n_without: int
    mean_with: float | None
    mean_without: float | None
    difference: float | None
    n_cells: int
    within_difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class CountRow:
    """Mean overall of the runs with this many different codes; 3 stands for three or more."""

    track: str | None
    agent: str | None
    n_codes: int
    n_runs: int
    mean_overall: float | None


@dataclass(frozen=True)
class SummaryRow:
    """Codes of knowledge (E1) against codes of engineering (E2–E5), and recovery."""

    track: str | None
    agent: str | None
    n_runs: int
    n_disqualified: int
    n_without_code: int
    n_fired: int
    n_knowledge: int
    n_engineering: int
    ratio: float | None
    n_two_or_more: int
    n_recovered: int
    recovery_rate: float | None


@dataclass(frozen=True)
class DetectorRow:
    """In how many runs a detector (or a judge) gave a code."""

    track: str | None
    detector: str
    code: str
    source: str
    n_runs: int


@dataclass(frozen=True)
class ErrorAtlas:
    """Everything about error codes that the page and the exported tables show."""

    taxonomy: str
    rows: list[ErrorRow]
    pairs: list[PairRow]
    costs: list[CostRow]
    counts: list[CountRow]
    summaries: list[SummaryRow]
    detectors: list[DetectorRow]
