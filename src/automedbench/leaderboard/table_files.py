"""Every file of the leaderboard that holds tables: CSV, parquet and JSON, one JSON for all, and tables for papers."""

from __future__ import annotations

from pathlib import Path

from automedbench.leaderboard.board import Board, Tables
from automedbench.leaderboard.leaderboard_file import export_leaderboard, leaderboard_file
from automedbench.leaderboard.papers.tables import export_paper_tables
from automedbench.leaderboard.tables.agreement import AgreementRow
from automedbench.leaderboard.tables.error_codes import CostRow, CountRow, DetectorRow, ErrorRow, PairRow, SummaryRow
from automedbench.leaderboard.tables.export import Table, export_table
from automedbench.leaderboard.tables.ledger import RunRow
from automedbench.leaderboard.tables.pairs import ComparisonRow, RankRow
from automedbench.leaderboard.tables.ranking import Row
from automedbench.leaderboard.tables.stages import StageRow


def export_tables(board: Board, folder: Path) -> None:
    """Write all of them into ``folder``."""
    tables = named_tables(board.tables)
    for table in tables:
        export_table(table, folder, board.pooling)
    export_leaderboard(folder / "leaderboard.json", leaderboard_file(board, tables))
    export_paper_tables(board, folder)


def named_tables(tables: Tables) -> list[Table]:
    """The tables that are exported, without the columns that say nothing in them."""
    atlas = tables.atlas
    return [
        Table("runs", RunRow, tables.runs),
        Table("overall", Row, tables.overall, omit=("track", "task", "tier")),
        Table("tracks", Row, tables.tracks, omit=("task", "tier")),
        Table("tasks", Row, tables.tasks, omit=("tier",)),
        Table("cells", Row, tables.cells),
        Table("stages", StageRow, tables.stages),
        Table("comparisons", ComparisonRow, tables.comparisons),
        Table("ranks", RankRow, tables.ranks),
        Table("agreement", AgreementRow, tables.agreement),
        Table("errors", ErrorRow, atlas.rows),
        Table("error_pairs", PairRow, atlas.pairs),
        Table("error_costs", CostRow, atlas.costs),
        Table("error_counts", CountRow, atlas.counts),
        Table("error_summary", SummaryRow, atlas.summaries),
        Table("error_detectors", DetectorRow, atlas.detectors),
    ]
