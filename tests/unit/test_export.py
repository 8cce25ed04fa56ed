"""Tables as files: same content in two formats, exact money, harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path

import polars
import pytest
from factories import make_run, make_score, make_totals

from automedbench.base.errors import InfrastructureError
from automedbench.leaderboard.entries import BoardEntry
from automedbench.leaderboard.tables.cells import ledger_rows, tabulate_runs
from automedbench.leaderboard.tables.columns import COLUMNS, TABLES, Column, TableText
from automedbench.leaderboard.tables.ranking import build_ranking
from automedbench.leaderboard.tables.table import BoardTable, export_table, json_rows, to_csv
from automedbench.statistics.samples import StatisticsMethod

KINDS = {"name": str, "n": int, "value": float, "flag": bool, "money": Decimal}
"""One column of each kind."""
ROWS = [("plain", 1, 0.123456789, True, Decimal("0.100000")), ('comma, "quote"\nline', 2, None, False, None)]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table ``sample`` has these columns."""
    monkeypatch.setitem(TABLES, "sample", TableText("for tests", tuple(KINDS)))
    for name, kind in KINDS.items():
        monkeypatch.setitem(COLUMNS, name, Column(kind, "for tests"))


def sample(*rows: tuple[object, ...]) -> BoardTable:
    return BoardTable("sample", [dict(zip(KINDS, row, strict=True)) | {"hidden": "x"} for row in rows])


def test_csv_of_no_rows_has_a_header() -> None:
    assert to_csv(sample()) == "name,n,value,flag,money\n"


def test_csv_values() -> None:
    rows = list(csv.reader(to_csv(sample(*ROWS)).splitlines(keepends=True)))
    assert rows == [
        ["name", "n", "value", "flag", "money"],
        ["plain", "1", "0.123457", "true", "0.100000"],
        ['comma, "quote"\nline', "2", "", "false", ""],
    ]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_text_is_no_formula(start: str) -> None:
    text = to_csv(sample((f"{start}cmd|' /C calc'!A0", -1, -0.5, True, None)))
    row = list(csv.reader(io.StringIO(text, newline="")))[1]
    assert row[0] == f"'{start}cmd|' /C calc'!A0".replace("\r", "\n")
    assert row[1:3] == ["-1", "-0.5"]  # numbers stay numbers


def test_formats_agree(tmp_path: Path) -> None:
    """Rows of the JSON file are lists."""
    export_table(sample(*ROWS), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"sample.csv", "sample.parquet"}
    parquet = polars.read_parquet(tmp_path / "sample.parquet")
    assert parquet.dtypes == [polars.String, polars.Int64, polars.Float64, polars.Boolean, polars.Decimal(18, 6)]
    assert list(map(list, parquet.rows())) == json_rows(sample(*ROWS))


def test_real_rows_are_exported(tmp_path: Path) -> None:
    scores = [make_score(make_run(repeat=1)), make_score(make_run(repeat=2), totals=make_totals(cost_usd=None))]
    entries = [BoardEntry(score.run, "detection", score) for score in scores]
    export_table(BoardTable("runs", ledger_rows(entries)), tmp_path)
    overall = BoardTable("overall", build_ranking(tabulate_runs(entries), "overall", StatisticsMethod()).rows.frame)
    export_table(overall, tmp_path)
    runs = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert [(row["repeat"], row["cost_usd"], row["tokens_total"]) for row in runs] == [
        ("1", "0.500000", "100000"),
        ("2", "", "100000"),
    ]
    row = next(csv.DictReader((tmp_path / "overall.csv").read_text().splitlines()))
    assert (row["agent"], row["n_scored"], row["n_priced"], row["mean_cost_usd"]) == ("agent", "2", "1", "0.500000")
    assert "task" not in row


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="Cannot write"):
        export_table(sample(*ROWS), tmp_path / "file")
