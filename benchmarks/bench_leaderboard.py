"""How long the leaderboard of a large synthetic campaign takes to build, how much memory, how fast the page opens.

    python benchmarks/bench_leaderboard.py                    # 10 080 runs: 3 agents × 48 tasks × 2 tiers × 35 repeats
    python benchmarks/bench_leaderboard.py --repeats 10 --transcript-kb 200 --browser

Prints one JSON line. Results are written to a temporary folder that is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from automedbench.files import to_json
from automedbench.leaderboard import build_leaderboard
from automedbench.records import RunId, Tier

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import factories  # noqa: E402 - the builders of the tests

TRACKS = ("segmentation", "enhancement", "vqa", "report_generation", "detection", "classification", "synthesis")
TIERS: tuple[Tier, ...] = ("lite", "standard")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=35)
    parser.add_argument("--cases", type=int, default=72)
    parser.add_argument("--transcript-kb", type=int, default=20, help="size of one conversation.json")
    parser.add_argument("--browser", action="store_true", help="also open the page in Chromium")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-leaderboard-"))
    try:
        print(json.dumps(measure(folder, options)))
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Write a campaign, build its leaderboard in a child process, open its page."""
    runs = [
        factories.make_run(f"agent-{agent}", f"task-{task:02d}", tier, repeat)
        for agent in range(options.agents)
        for task in range(options.tasks)
        for tier in TIERS
        for repeat in range(1, options.repeats + 1)
    ]
    write_results(folder, runs, options)
    figures: dict[str, float] = {"runs": len(runs), **build_in_child(folder)}
    page = folder / "leaderboard" / "index.html"
    figures["page_mb"] = round(page.stat().st_size / 1e6, 1)
    return figures | (open_page(page) if options.browser else {})


def write_results(folder: Path, runs: list[RunId], options: argparse.Namespace) -> None:
    """Records of every run, written without fsync: they are only input here."""
    chance = random.Random(1)
    step = "print('a line of an agent')\n" * 20
    calls = [
        factories.make_call(turn, code=step, stdout=step) for turn in range(1, options.transcript_kb * 1000 // 1600 + 1)
    ]
    for run in runs:
        track = TRACKS[int(run.task[-2:]) % len(TRACKS)]
        score = factories.make_score(run, factories.make_flat_scores(round(chance.random(), 4)), track=track)
        place = folder / "runs" / run.path
        place.mkdir(parents=True)
        for name, record in factories.run_records(score, n_cases=options.cases, calls=calls).items():
            (place / name).write_text(to_json(record.model_dump(mode="json", by_alias=True)))
    (folder / "plan.json").write_text(to_json(factories.make_plan(runs).model_dump(mode="json", by_alias=True)))


def build_in_child(folder: Path) -> dict[str, float]:
    """Seconds and peak memory of one build, in a process of its own."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        cards, rubrics = [str(ROOT / "config" / "tasks")], ROOT / "config" / "rubrics"
        build_leaderboard(folder, folder / "plan.json", cards, rubrics, folder / "leaderboard")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit("the build failed")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"build_s": round(time.monotonic() - start, 1), "peak_mb": round(peak / 1000)}


def open_page(page: Path) -> dict[str, float]:
    """Seconds until the ranking is drawn, and until one run is."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=flags)
        tab = browser.new_page()
        start = time.monotonic()
        tab.goto(page.as_uri())
        tab.wait_for_selector("#bars .bar-row")
        opened = time.monotonic()
        tab.locator("#run-table a").first.click()
        tab.wait_for_selector("h2.run-title")
        shown = time.monotonic()
        browser.close()
    return {"open_s": round(opened - start, 2), "open_run_s": round(shown - opened, 2)}


if __name__ == "__main__":
    main()
