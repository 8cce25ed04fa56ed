"""The notebook of results runs on a finished campaign, and its means are those of the leaderboard."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from campaigns import copy_of_finished
from conftest import ROOT


def test_it_makes_the_tables_of_the_leaderboard(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_of_finished(tmp_path_factory, tmp_path_factory.mktemp("notebook") / "automedbench")
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    named: dict[str, Any] = {}
    for cell in json.loads((ROOT / "docs/results.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), named)  # the cells are this project's own
    named["plt"].close("all")
    lines = Path("results/demo/leaderboard/overall.csv").read_text().splitlines()
    expected = {row["agent"]: 100 * float(row["overall"]) for row in csv.DictReader(lines)}
    assert named["overall"].to_dict() == pytest.approx(expected, abs=1e-3)
    assert list(named["tracks"].columns) == ["detection", "overall"]
    assert set(named["tiers"].columns) == {"lite"}
