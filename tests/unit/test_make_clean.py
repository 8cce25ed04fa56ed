"""``make clean``: removes what the demo made, and never the results of another campaign."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = '{"agents_file": "demo/agents.yaml"}'
PAID = '{"agents_file": "config/agents.yaml"}'


def clean(place: Path) -> None:
    """Run the recipe as make would hand it to the shell, in another folder."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nclean:\n\t@")[2].partition("\n\n")[0]
    subprocess.run(["/bin/sh", "-c", recipe.replace("$$", "$")], cwd=place, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("campaign", "agents", "gone"),
    [
        pytest.param(DEMO, ["careful", "crasher"], True, id="demo"),
        pytest.param(DEMO, [], True, id="demo-that-ended-early"),
        pytest.param(PAID, ["my-model"], False, id="paid"),
        pytest.param(DEMO, ["careful", "my-model"], False, id="demo-ran-after-paid-runs"),
        pytest.param(PAID, ["careful", "my-model"], False, id="paid-after-demo"),
        pytest.param(None, ["my-model"], False, id="record-lost"),
        pytest.param(None, None, False, id="results-elsewhere"),
    ],
)
def test_clean_removes_only_what_the_demo_made(
    tmp_path: Path, campaign: str | None, agents: list[str] | None, gone: bool
) -> None:
    for name in ("data/raw", "logs", *(f"results/runs/{agent}" for agent in agents or [])):
        (tmp_path / name).mkdir(parents=True)
    if campaign is not None:
        (tmp_path / "results").mkdir(exist_ok=True)
        (tmp_path / "results/campaign.json").write_text(campaign, encoding="utf-8")
    before = {path.relative_to(tmp_path) for folder in ("results", "data") for path in (tmp_path / folder).rglob("*")}
    clean(tmp_path)
    left = {path.relative_to(tmp_path) for folder in ("results", "data") for path in (tmp_path / folder).rglob("*")}
    assert left == (set() if gone else before)
    assert not (tmp_path / "logs").exists()
