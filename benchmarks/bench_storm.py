"""Many runs against an endpoint of which every third answer is broken: do their scores stay the same?

    python benchmarks/bench_storm.py [--runs 500] [--share 0.3] [--contained 20] [--seed 1]
                                     [--protocol messages] [--stream]

Nine characters of scripted models (good, bad, and one for each way in which a run can end) play the detection task over
real HTTP, two at a time, in turn. Each is first run once without faults, in a container too if runs with faults are;
what must not change is everything on the leaderboard but time and money. The server demands back what thinking and
signatures it gave. ``--contained`` runs execute their code in real containers, as an ordinary user, the others without
isolation, which is faster. Prints Markdown tables; the exit status is 1 when any score differs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).resolve().parent))

from storm import CHAT, Kind, Order, Outcome, Site, Speech, Tally, characters, make_site, play, storm, tallies
from unprivileged import IMAGES, USER, why_not

from automedbench.base.endpoint.address import ProtocolName
from automedbench_rehearsal.model_server.server import ScriptedServer

AT_A_TIME = 2


def main() -> int:
    """Play, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="runs with faults")
    parser.add_argument("--share", type=float, default=0.3, help="share of answers with a fault")
    parser.add_argument("--contained", type=int, default=20, help="so many of them in real containers")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--protocol", choices=get_args(ProtocolName), default="chat", help="what the endpoint speaks")
    parser.add_argument("--stream", action="store_true", help="replies are streams")
    options = parser.parse_args()
    if options.contained and (reason := why_not("light")):
        sys.exit(f"{reason}; --contained 0 leaves containers out")
    with tempfile.TemporaryDirectory(prefix="storm-") as name:
        folder = Path(name)
        open_to_user(folder)
        quiet, faulty, server = run_storm(
            folder,
            runs=options.runs,
            share=options.share,
            contained=options.contained,
            seed=options.seed,
            speech=Speech(options.protocol, options.stream),
        )
    differing = different(quiet, faulty)
    print(report(options, quiet, faulty, server, differing))
    return 1 if differing else 0


def run_storm(
    folder: Path, *, runs: int, share: float, contained: int, seed: int, speech: Speech = CHAT
) -> tuple[dict[Kind, Outcome], list[Outcome], list[Any]]:
    """Outcomes without faults by kind of run, outcomes with faults, and what the server saw of the latter."""
    site = make_site(folder)
    models = characters(site)
    names = list(models)
    results, undisturbed = folder / "results", folder / "quiet"
    for place in (results, undisturbed):
        place.mkdir()
        open_to_user(place)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(AT_A_TIME, mp_context=context) as pool:
        with ScriptedServer(models, keep=False, usage=(300, 20), demand=True) as server:
            everyone = range(len(names))
            orders = [_order(site, names, number, server.url, undisturbed, 0, speech) for number in everyone]
            inside = everyone[:contained]
            orders += [_order(site, names, number, server.url, undisturbed, contained, speech) for number in inside]
            quiet = {outcome.kind: outcome for outcome in pool.map(play, orders)}
        with ScriptedServer(models, faults=storm(share, seed), keep=False, usage=(300, 20), demand=True) as server:
            orders = [_order(site, names, number, server.url, results, contained, speech) for number in range(runs)]
            faulty = list(pool.map(play, orders))
            return quiet, faulty, list(server.exchanges)


def _order(
    site: Site, names: Sequence[str], number: int, url: str, results: Path, contained: int, speech: Speech
) -> Order:
    inside = number < contained
    place = results / ("contained" if inside else "faulty")
    image = IMAGES / "light.sif" if inside else None
    return Order(site, names[number % len(names)], 1 + number // len(names), url, place, image, speech)


def open_to_user(folder: Path) -> None:
    """Let the containers' user write here."""
    import pwd

    if os.geteuid() == 0:
        account = pwd.getpwnam(USER)
        os.chown(folder, account.pw_uid, account.pw_gid)


def different(quiet: dict[Kind, Outcome], faulty: Sequence[Outcome]) -> list[Outcome]:
    """Runs whose score, outcome, turns or findings are not those of the same kind of run without faults."""
    return [run for run in faulty if _told(run) != _told(quiet[run.kind])]


def _told(run: Outcome) -> bytes:
    return pickle.dumps((run.outcome, run.detail, run.turns, run.scores))


# --- tables -----------------------------------------------------------------------------------------------------


def report(
    options: argparse.Namespace,
    quiet: dict[Kind, Outcome],
    faulty: Sequence[Outcome],
    exchanges: Sequence[Any],
    differing: Sequence[Outcome],
) -> str:
    """Markdown: the whole, the characters, the faults."""
    faults = tallies(exchanges)
    injected = sum(tally.injected for tally in faults.values())
    inside = min(options.contained, options.runs)
    lines = [
        f"{len(faulty)} runs ({inside} of them in containers), {len(exchanges)} requests, {injected} answers with a "
        f"fault ({injected / max(len(exchanges), 1):.0%}) of {len(faults)} kinds, seed {options.seed}.",
        "",
        "| | |",
        "|---|---|",
        f"| runs whose score differs from that without faults | **{len(differing)}** |",
        f"| runs that a fault ended as the agent's failure | **{blamed(quiet, faulty)}** |",
        f"| runs started again after a refused key or missing credit | {sum(run.starts > 1 for run in faulty)} |",
        f"| requests per turn | {len(exchanges) / sum(run.turns for run in faulty):.2f} |",
        f"| waiting that was not charged to agents, per run | {mean([run.retry_s for run in faulty]):.0f} s |",
        "",
        *characters_table(quiet, faulty),
        "",
        *faults_table(faults),
    ]
    for run in differing[:10]:
        lines.append(f"\nDiffers: {run.character} {run.repeat}: {run.outcome} ({run.detail}) after {run.turns} turns")
    return "\n".join(lines)


def blamed(quiet: dict[Kind, Outcome], faulty: Sequence[Outcome]) -> int:
    """Runs that ended otherwise than the same kind of run without faults."""
    return sum(run.outcome != quiet[run.kind].outcome for run in faulty)


def characters_table(quiet: dict[Kind, Outcome], faulty: Sequence[Outcome]) -> list[str]:
    """One row per character: how it ends and scores without faults, and how many runs with faults do the same."""
    rows = ["| model | ends as | overall | runs | same | requests per run |", "|---|---|---|---|---|---|"]
    differing = different(quiet, faulty)
    for (name, contained), calm in quiet.items():
        if contained:
            continue
        mine = [run for run in faulty if run.character == name]
        same = sum(run not in differing for run in mine)
        requests = mean([float(sum(run.attempts.values())) for run in mine])
        overall = calm.scores["scores"]["overall"]
        rows.append(f"| {name} | {calm.outcome} | {overall:.3f} | {len(mine)} | {same} | {requests:.1f} |")
    return rows


ABREAST = 3


def faults_table(faults: dict[str, Tally]) -> list[str]:
    """Every kind of fault, several in a row."""
    cells = [f"`{kind}` | {tally.injected} | {tally.recovered}" for kind, tally in faults.items()]
    cells += [" | | "] * (-len(cells) % ABREAST)
    rows = [" | ".join(cells[start : start + ABREAST]) for start in range(0, len(cells), ABREAST)]
    return [
        f"|{' fault | injected | recovered |' * ABREAST}",
        f"|{'---|---|---|' * ABREAST}",
        *(f"| {row} |" for row in rows),
    ]


def mean(values: Sequence[float]) -> float:
    """0 without values."""
    return sum(values) / len(values) if values else 0.0


if __name__ == "__main__":
    started = time.monotonic()
    status = main()
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    sys.exit(status)
