"""Run every scorer's benchmark and write what each prints into docs/performance.md: `make bench`.

    python benchmarks/write_tables.py [NAME ...]

NAME is a file beside this one without `bench_` and `.py`; none given: every one that has a place in the document, which
is between `<!-- bench:NAME -->` and `<!-- /bench -->`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs" / "performance.md"
NOT_POSSIBLE_HERE = 3
PLACE = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def main() -> None:
    """Replace the text of each place by what its benchmark prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    wanted = parser.parse_args().names
    places = [found[2] for found in PLACE.finditer(DOCUMENT.read_text("utf-8"))]
    if unknown := sorted(set(wanted) - set(places)):
        parser.error(f"no place for {unknown[0]} in {DOCUMENT.name}; it has {', '.join(places)}")
    for name in wanted or places:
        print(f"{name} ...", flush=True)
        done = subprocess.run(
            [sys.executable, str(HERE / f"bench_{name}.py")], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode == NOT_POSSIBLE_HERE:
            print(f"{name}: not possible on this machine, its older table stays")
            continue
        if done.returncode != 0:
            sys.exit(
                f"bench_{name}.py failed; {DOCUMENT.name} keeps its older table (`make setup-bench` for the peers)"
            )
        _write(name, done.stdout.strip())


def _write(name: str, printed: str) -> None:
    """Write one place at once, so that what was measured before a later failure stays."""
    text = PLACE.sub(
        lambda found: f"{found[1]}{printed}\n{found[3]}" if found[2] == name else found[0], DOCUMENT.read_text("utf-8")
    )
    unfinished = DOCUMENT.with_suffix(".new")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(DOCUMENT)


if __name__ == "__main__":
    main()
