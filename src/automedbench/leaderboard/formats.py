"""Numbers as people read them; unknown is a dash."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

UNKNOWN = "–"


def percent(value: float | None) -> str:
    """0.5321 → 53.2 (scores ×100)."""
    return UNKNOWN if value is None else _one_decimal(100 * value)


def number(value: float | None) -> str:
    """33.24 → 33.2."""
    return UNKNOWN if value is None else _one_decimal(value)


def _one_decimal(value: float) -> str:
    """Rounded as the page's script rounds: a tie goes up, so that 6.25 is 6.3 in both."""
    return str(Decimal(value).quantize(Decimal("0.1"), ROUND_HALF_UP))


def duration(seconds: float | None) -> str:
    """75.4 → 1.3 min."""
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def count(value: float | None) -> str:
    """1 706 325 → 1.71M."""
    if value is None:
        return UNKNOWN
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.0f}"


def money(value: Decimal | None) -> str:
    """Dollars with cents; below ten cents with four decimals."""
    if value is None:
        return UNKNOWN
    return f"${value:.2f}" if value >= Decimal("0.1") or value == 0 else f"${value:.4f}"


def span(low: float | None, high: float | None) -> str:
    """0.641, 0.689 → [64.1, 68.9] (scores ×100); nothing when there is no interval."""
    return "" if low is None or high is None else f"[{percent(low)}, {percent(high)}]"


def share(value: float | None) -> str:
    """0.125 → 13% (a tie goes up)."""
    return UNKNOWN if value is None else f"{Decimal(100 * value).quantize(Decimal('1'), ROUND_HALF_UP)}%"


def confidence_level(value: float) -> str:
    """0.95 → 95 %."""
    return f"{Decimal(str(value)) * 100:f}".rstrip("0").rstrip(".") + " %"
