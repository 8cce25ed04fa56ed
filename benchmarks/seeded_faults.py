"""Small faults, one at a time: does a test find each of them? Old suite and new one, side by side.

    python benchmarks/seeded_faults.py --out FILE.json [--root CHECKOUT] [--only ID-OR-AREA ...] [--tests PATH ...]
    python benchmarks/seeded_faults.py --table OLD.json NEW.json

Every fault of ``seeded_faults.yaml`` is applied in a copy of the checkout, never in the checkout. Tests that import the
changed module come first, then those that reach it through other modules; the first failure ends the search and
counts only if the same test passes without the fault. The results are kept in FILE.json after every fault, so that
a run that was killed goes on. ``--table`` writes ``seeded_faults.md``.
"""

from __future__ import annotations

import argparse
import json
import queue
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from seeded_checkout import Checkout, Fault

HERE = Path(__file__).resolve().parent
LIST, TABLE = HERE / "seeded_faults.yaml", HERE / "seeded_faults.md"
HEAD = """# Seeded faults

What the tests find of the faults in `seeded_faults.yaml`, applied one at a time by `seeded_faults.py`: the first test
that fails, or that ends in a time-out. Where nothing stands the fault was not run; *in the likeliest tests* and *cut
short* say that not all tests that import the module were tried.

"""


@dataclass(frozen=True)
class Outcome:
    """What the tests made of one fault. ``by``: the first test that failed; ``how``: failed, time-out or cut short."""

    found: bool
    by: str = ""
    how: str = ""
    tier: int = 0
    seconds: float = 0.0


def main() -> int:
    """Run what was not run yet and print it; the exit status is 1 when a fault cannot be applied."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE.parent, help="checkout to test, with its own .venv")
    parser.add_argument(
        "--tests", nargs="+", default=[], help="these tests for every fault, instead of those that see it"
    )
    parser.add_argument("--list", type=Path, default=LIST, help="faults; of an older checkout, the list of its time")
    parser.add_argument("--only", nargs="+", default=[], help="ids or areas")
    parser.add_argument("--again", action="store_true", help="also those that were not found before")
    parser.add_argument("--workers", type=int, default=1, help="faults at a time, each in a copy of its own")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of one tier")
    parser.add_argument("--files", type=int, default=40, help="test files of the last tier")
    parser.add_argument("--out", type=Path, default=Path("seeded_faults.json"), help="results so far and from now on")
    parser.add_argument("--table", nargs=2, type=Path, metavar=("OLD", "NEW"), help="only write the table of two files")
    options = parser.parse_args()
    faults = [Fault(**entry) for entry in yaml.safe_load(options.list.read_text("utf-8"))]
    if options.table:
        TABLE.write_text(HEAD + table(faults, *map(read_outcomes, options.table)), "utf-8")
        return 0
    chosen = [fault for fault in faults if not options.only or {fault.id, fault.area} & set(options.only)]
    if strange := [problem for fault in chosen if (problem := fault.problem(options.root / "src"))]:
        print("\n".join(strange))
        return 1
    known = read_outcomes(options.out)
    waiting = [fault for fault in chosen if fault.id not in known or (options.again and not known[fault.id].found)]
    for fault, outcome in search(options, waiting):
        known[fault.id] = outcome
        _keep(options.out, known)
        print(f"{fault.area:12} {fault.id:28} {_shown(outcome) or 'not run'} ({outcome.seconds:.0f} s)", flush=True)
    print(summary(chosen, known))
    return 0


def search(options: argparse.Namespace, faults: Sequence[Fault]) -> Iterator[tuple[Fault, Outcome]]:
    """Each fault with its outcome, in the order in which they end."""
    with tempfile.TemporaryDirectory(prefix="seeded-") as name:
        copies: queue.Queue[Checkout] = queue.Queue()
        for number in range(min(options.workers, len(faults))):
            copies.put(Checkout.copy_of(options.root.resolve(), Path(name, str(number))))
        with ThreadPoolExecutor(options.workers) as pool:
            futures = {pool.submit(_one, copies, fault, options): fault for fault in faults}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)


def _one(copies: queue.Queue[Checkout], fault: Fault, options: argparse.Namespace) -> Outcome:
    copy = copies.get()
    try:
        return judge(copy, fault, options.tests, options.files, options.limit)
    finally:
        copies.put(copy)


def judge(copy: Checkout, fault: Fault, tests: Sequence[str], n_files: int, limit_s: float) -> Outcome:
    """Run tier after tier until a test fails that passes without the fault."""
    begun = time.monotonic()
    tiers = [list(tests)] if tests else copy.tiers.of(fault.place(copy.root / "src"), n_files)
    how = ""
    for number, paths in enumerate(tiers, start=1):
        passed_over: list[str] = []
        while paths:
            with copy.broken_by(fault):
                result = copy.run(paths, limit_s, passed_over)
            how = how or ("cut short" if result.cut_short else "")
            if not result.failed:
                break
            if copy.is_sound(result.failed, limit_s):
                taken = time.monotonic() - begun
                return Outcome(True, result.failed, "time-out" if result.timed_out else "failed", number, taken)
            passed_over.append(result.failed)
    return Outcome(False, "", how, len(tiers), time.monotonic() - begun)


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """Id → outcome; nothing without a file."""
    if not path.is_file():
        return {}
    return {name: Outcome(**entry) for name, entry in json.loads(path.read_text("utf-8")).items()}


def _keep(path: Path, outcomes: dict[str, Outcome]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({name: asdict(each) for name, each in outcomes.items()}, indent=1), "utf-8")
    shutil.move(temporary, path)


def _shown(outcome: Outcome | None) -> str:
    """Test file and test without its parameters, or why there is none; empty when it was not run."""
    if outcome is None:
        return ""
    if not outcome.found:
        return f"**not found** ({outcome.how})" if outcome.how else "**not found**"
    name = outcome.by.removeprefix("tests/").partition("[")[0]
    return f"`{name}`" + (" (time-out)" if outcome.how == "time-out" else "")


def summary(faults: Sequence[Fault], outcomes: dict[str, Outcome]) -> str:
    """Found and not found by area."""
    run = [fault for fault in faults if fault.id in outcomes]
    n_found = Counter(fault.area for fault in run if outcomes[fault.id].found)
    areas = Counter(fault.area for fault in run)
    lines = [f"{area:12} {n_found[area]:3} of {count:3}" for area, count in areas.items()]
    return "\n".join([*lines, f"{'all':12} {n_found.total():3} of {areas.total():3}"])


def table(faults: Sequence[Fault], old: dict[str, Outcome], new: dict[str, Outcome]) -> str:
    """Markdown: numbers by area, then what finds each fault."""
    rows = [
        f"| {area} | {len(own)} | {_count(own, old)} | {_count(own, new)} |"
        for area in [*dict.fromkeys(fault.area for fault in faults), "all"]
        if (own := [fault for fault in faults if area in (fault.area, "all")])
    ]
    numbers = ["| area | faults | found by the old suite | by the new suite |", "|---|---|---|---|", *rows, ""]
    found = [
        f"| {fault.area} | {fault.id} | {fault.wrong} | {_shown(old.get(fault.id))} | {_shown(new.get(fault.id))} |"
        for fault in faults
    ]
    return "\n".join(
        [*numbers, "| area | fault | what is wrong | old suite | new suite |", "|---|---|---|---|---|", *found, ""]
    )


def _count(faults: Sequence[Fault], outcomes: dict[str, Outcome]) -> str:
    run = [outcomes[fault.id] for fault in faults if fault.id in outcomes]
    return f"{sum(outcome.found for outcome in run)} of {len(run)}" if run else ""


if __name__ == "__main__":
    raise SystemExit(main())
