"""Tables and counts as plain text, for terminals, logs and mails alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence

GAP = "  "


def counted(number: int, name: str) -> str:
    """1 run, 2 runs."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Rows of cells as lines with aligned columns; ``right``: numbers of the columns that are aligned to the right."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        GAP.join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
