"""How long the leaderboard of a large synthetic campaign takes to build, in how much memory, how fast its page answers.

    python benchmarks/bench_leaderboard.py                    # 10 080 runs: 3 agents × 48 tasks × 2 tiers × 35 repeats
    python benchmarks/bench_leaderboard.py --repeats 10 --transcript-kb 200 --browser

Prints one JSON line. Results are written to a temporary folder that is removed at the end, or to ``--folder``, which is
kept and not written again. Wall time grows with other work on the machine; the processor's seconds hardly do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from automedbench.base.files import to_json, write_record
from automedbench.base.records import JudgedStage, RunId, ScoreRecord, Tier
from automedbench.campaign.config import CampaignConfig
from automedbench.campaign.record import CampaignRecord
from automedbench.judge.rules import HEURISTIC
from automedbench.sandbox.evidence.policy import POLICY_VERSION

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import factories  # noqa: E402 - the builders of the tests

TRACKS = ("segmentation", "enhancement", "vqa", "report_generation", "detection", "classification", "synthesis")
TIERS: tuple[Tier, ...] = ("lite", "standard")
JUDGED: tuple[JudgedStage, ...] = ("S1", "S2", "S3")
WAIT = "until then ext4 steps over each inode that has just been freed, for every new file"
NO_MEAN = "detection"
"""The track whose task score is no mean over cases."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=35)
    parser.add_argument("--cases", type=int, default=72)
    parser.add_argument("--judges", type=int, default=2, help="judgements of every run")
    parser.add_argument("--transcript-kb", type=int, default=20, help="size of one conversation.json")
    parser.add_argument("--browser", action="store_true", help="also open the page in Chromium")
    parser.add_argument("--folder", type=Path, help="keep the campaign here")
    options = parser.parse_args()
    with campaign_folder(options.folder) as folder:
        print(json.dumps(measure(folder, options)))


@contextlib.contextmanager
def campaign_folder(kept: Path | None) -> Iterator[Path]:
    """The folder of the campaign; a temporary one unless it is to be kept."""
    if kept:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="bench-leaderboard-") as name:
        yield Path(name)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Write a campaign, build its leaderboard in a process of its own, open its page."""
    runs = [
        factories.make_run(f"agent-{agent}", f"task-{task:02d}", tier, repeat)
        for agent in range(options.agents)
        for task in range(options.tasks)
        for tier in TIERS
        for repeat in range(1, options.repeats + 1)
    ]
    if not (folder / "plan.json").exists():
        write_results(folder, runs, options)
    if (folder / "leaderboard").exists():
        raise SystemExit(f"Remove {folder / 'leaderboard'} and wait five minutes: {WAIT}.")
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
        score = synthetic_score(run, chance, options)
        place = folder / "runs" / run.path
        place.mkdir(parents=True)
        for name, record in factories.run_records(score, n_cases=options.cases, calls=calls).items():
            (place / name).write_text(to_json(record.model_dump(mode="json", by_alias=True)))
    (folder / "plan.json").write_text(to_json(factories.make_plan(runs).model_dump(mode="json", by_alias=True)))


def synthetic_score(run: RunId, chance: random.Random, options: argparse.Namespace) -> ScoreRecord:
    """A run with the numbers of every case, a panel's judgements and some error codes; agents differ by 0.03."""
    track = TRACKS[int(run.task[-2:]) % len(TRACKS)]
    level = 0.4 + 0.03 * (int(run.agent.partition("-")[2]) % 10) + 0.3 * random.Random(run.task).random()
    cases = [round(min(1.0, max(0.0, chance.gauss(level, 0.2))), 4) for _ in range(options.cases)]
    stages = [chance.choice((0.0, 0.5, 1.0)) for _ in range(5)]
    codes = [factories.make_error(code) for code in ("E2", "E3", "E5") if chance.random() < 0.2]
    return factories.make_score(
        run,
        factories.make_scores(stages, fmean(cases)),
        track=track,
        recipe=factories.make_recipe(judge=HEURISTIC, policy_version=POLICY_VERSION),
        failed=chance.random() < 0.1,
        medal=chance.choice(("good", "okay", "fail")),
        case_scores=None if track == NO_MEAN else cases,
        error_codes=codes,
        **panel_fields(stages, chance, options.judges),
    )


def panel_fields(stages: list[float], chance: random.Random, judges: int) -> dict[str, object]:
    """What a panel leaves in a score."""
    panel = {
        f"judge-{number}#1": {
            stage: min(1.0, max(0.0, value + chance.choice((0, 0, 0.25, -0.25))))
            for stage, value in zip(JUDGED, stages, strict=False)
        }
        for number in range(judges)
    }
    return {"panel": panel, "judge_spread": dict.fromkeys(JUDGED, 0.1), "judge_tokens": 9000, "judge_cost_usd": "0.02"}


def build_in_child(folder: Path) -> dict[str, float]:
    """Seconds of the script and peak memory of it and all its processes together (proportional set size)."""
    data = dict.fromkeys(("raw", "public", "private", "manifests"), str(folder / "data"))
    matrix = {"agents": ["agent-0"], "tasks": ["task-00"]}
    settings = CampaignConfig.model_validate(
        {"results": str(folder), "data": data, "matrix": matrix, "sandbox": {"network": "sealed"}}
    )
    campaign = folder / "campaign.json"
    write_record(campaign, CampaignRecord(settings=settings, cards={}, datasets={}))
    command = [sys.executable, "scripts/build_leaderboard.py", "--campaign", str(campaign)]
    start = time.monotonic()
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    peak = Peak(child.pid)
    peak.start()
    status = child.wait()
    seconds = time.monotonic() - start
    if status:
        raise SystemExit("the build failed")
    return {"build_s": round(seconds, 1), **cpu_seconds(), "peak_mb": round(peak.megabytes)}


def cpu_seconds() -> dict[str, float]:
    """Of all processes that this one started and waited for: its build."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"user_s": round(used.ru_utime, 1), "system_s": round(used.ru_stime, 1)}


class Peak(threading.Thread):
    """Watches the memory of a process and its descendants."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.megabytes = process, 0.0

    def run(self) -> None:
        while Path(f"/proc/{self.process}").exists():
            self.megabytes = max(self.megabytes, sum(map(used_mb, family(self.process))))
            time.sleep(1)  # adding up the pages of four processes takes them tens of milliseconds


def family(process: int) -> list[int]:
    """A process and its descendants."""
    try:
        children = [
            int(name)
            for thread in Path(f"/proc/{process}/task").iterdir()
            for name in (thread / "children").read_text().split()
        ]
    except OSError:
        return []
    return [process, *(descendant for child in children for descendant in family(child))]


def used_mb(process: int) -> float:
    """Memory of one process, shared pages divided by their users."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


ACTIONS = {
    "sort_ms": "document.querySelectorAll('#run-table thead .head')[{n}].click()",
    "filter_ms": "(() => {{ const all = document.querySelector('#run-agent');"
    " all.selectedIndex = 1 + {n} % (all.length - 1); all.dispatchEvent(new Event('change')); }})()",
    "search_ms": "(() => {{ const field = document.querySelector('#run-text');"
    " field.value = 'task r{n}'; field.dispatchEvent(new Event('input')); }})()",
    "track_ms": "(() => {{ const track = document.querySelector('#choose-track');"
    " track.selectedIndex = {n} % 3; track.dispatchEvent(new Event('change')); }})()",
}
"""Figure → what a reader does, ``n`` from 0 to 9; milliseconds until it is drawn and laid out, slowest of ten."""


def react(tab: Any) -> dict[str, float]:
    """Milliseconds that the board takes to do what a reader asks."""
    timed = (
        "(() => {{ const began = performance.now(); {action}; document.body.offsetHeight;"
        " return performance.now() - began; }})()"
    )
    return {
        name: round(max(tab.evaluate(timed.format(action=action.format(n=n))) for n in range(10)), 1)
        for name, action in ACTIONS.items()
    }


def open_page(page: Path) -> dict[str, float]:
    """Seconds until every section of the board is drawn, how fast it answers, seconds until the page of one run is."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=flags)
        tab = browser.new_page()
        start = time.monotonic()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready=yes]")
        opened = time.monotonic()
        answers = react(tab)
        left = time.monotonic()
        tab.goto(next((page.parent / "runs").rglob("r1.html")).as_uri())
        tab.wait_for_selector("h1")
        shown = time.monotonic()
        browser.close()
    return {"open_s": round(opened - start, 2), "open_run_s": round(shown - left, 2), **answers}


if __name__ == "__main__":
    main()
