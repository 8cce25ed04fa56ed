"""Attacks and harmless snippets in the real container: leaks, evidence and false alarms per category, as Markdown.

    AMB_IMAGES=images python benchmarks/bench_security.py [--only CATEGORY ...] [--proxied] [--silent] [--slow]

``--silent`` lists the attacks that left no evidence, ``--slow`` the slowest. Needs Apptainer and the agent image.
``--proxied``: with a proxy for each, behind which no host answers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/security")]

from attack_range import Outcome, by_category, load_table, run_all  # noqa: E402
from unprivileged import why_not  # noqa: E402

from automedbench.sandbox.container.launcher import Network  # noqa: E402

ENDED = ("killed", "timeout")
SOURCES = ("tripwire", "trace", "runtime", "collector")


def attack_table(outcomes: Sequence[Outcome]) -> list[str]:
    """Rows of Markdown: category, attacks, leaks, share with evidence, with a warning, and per source."""
    head = ["category", "attacks", "leaks", "evidence", "warned", *SOURCES, "output refused", "ended by a limit"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    groups = by_category(outcomes)
    for name, group in [*groups.items(), ("**all**", list(outcomes))]:
        cells = [name, str(len(group)), str(sum(bool(one.leaks or one.effects or one.problems) for one in group))]
        cells += [_share([bool(one.findings) for one in group]), _share([one.warned for one in group])]
        cells += [str(sum(source in one.sources for one in group)) for source in SOURCES]
        cells += [str(sum(one.refused for one in group)), str(sum(one.status in ENDED for one in group))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def harmless_table(outcomes: Sequence[Outcome]) -> list[str]:
    """Rows of Markdown: category, snippets, how many ended well, warnings, disqualified, notices."""
    head = ["category", "snippets", "ended well", "warned", "disqualified", "with a notice"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, group in [*by_category(outcomes).items(), ("**all**", list(outcomes))]:
        worst = [{finding.severity for finding in one.findings} for one in group]
        cells = [name, str(len(group)), str(sum(one.status == "ok" for one in group))]
        cells += [str(sum("warning" in each for each in worst)), str(sum("disqualifying" in each for each in worst))]
        lines.append("| " + " | ".join([*cells, str(sum(bool(each) for each in worst))]) + " |")
    return lines


def _share(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} ({100 * sum(flags) / len(flags):.0f} %)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both tables and print them; 1 when anything leaked or was left behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="categories; default: all")
    parser.add_argument("--proxied", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args(arguments)
    network: Network = "proxied" if options.proxied else "sealed"
    if reason := why_not("light"):
        parser.error(reason)
    bad = False
    for folder, table in (("attacks", attack_table), ("harmless", harmless_table)):
        codes = [code for code in load_table(folder) if not options.only or code.category in options.only]
        if not codes:
            continue
        outcomes, complaints = run_all(codes, scored=folder == "attacks", network=network)
        print("\n".join(["", *table(outcomes), ""]))
        for outcome in outcomes:
            for text in (*outcome.leaks, *outcome.effects, *outcome.problems):
                print(f"{outcome.id}: {text}")
            if options.silent and folder == "attacks" and not outcome.findings:
                print(f"no evidence: {outcome.id}")
            if folder == "harmless" and (outcome.warned or outcome.status != "ok"):
                found = [f"{finding.rule}: {finding.evidence}" for finding in outcome.findings]
                print(f"{outcome.id}: {outcome.status} {found} {outcome.stderr[-300:]}")
        if options.slow:
            for outcome in sorted(outcomes, key=lambda each: -each.elapsed_s)[:15]:
                print(f"{outcome.elapsed_s:.1f} s {outcome.id} {outcome.status}")
        print("\n".join(complaints))
        bad = bad or bool(complaints) or any(one.leaks or one.effects or one.problems for one in outcomes)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
