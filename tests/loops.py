"""Many cheap cases as one test, which goes through all of them and names every one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def for_each(*tables: Iterable[str]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Decorate a check of one name, or of one name of each table, so that a single test checks all."""
    rows: list[tuple[str, ...]] = [()]
    for table in tables:
        names = list(table)
        rows = [(*row, name) for row in rows for name in names]

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert rows, "there is nothing to check"
            failed = list(filter(None, (_said(check, row) for row in rows)))
            assert not failed, f"{len(failed)} of {len(rows)} failed:\n" + "\n".join(failed)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def _said(check: Callable[..., None], row: tuple[str, ...]) -> str | None:
    try:
        check(*row)
    except Exception as error:
        return f"{', '.join(row)}: {type(error).__name__}: {error}"
    return None
