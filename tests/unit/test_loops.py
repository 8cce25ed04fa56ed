"""A loop of checks fails when one of them does, and says which."""

from __future__ import annotations

import pytest
from loops import for_each


def test_every_failure_is_named() -> None:
    @for_each("ab", "xy")
    def check(first: str, second: str) -> None:
        assert (first, second) in [("a", "x"), ("b", "y")]

    with pytest.raises(AssertionError, match=r"2 of 4 failed:\na, y: AssertionError.*\n(.*\n)*b, x: "):
        check()


def test_nothing_to_check_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="nothing to check"):
        for_each([])(lambda name: None)()


def test_success_is_quiet() -> None:
    for_each("ab")(lambda name: None)()
