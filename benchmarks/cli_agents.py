"""Command-line agents as people install them, in sealed containers: does the same work earn the same score?

    python benchmarks/cli_agents.py [PROGRAM ...] [--tracks detection,vqa] [--out build/cli-agents]

The demo's careful agent is played by a scripted model server on loopback, once for our own loop and once for every
program with a recipe in config/agents whose layer is built. Each run is a real one: Apptainer, no network, one task of
each track. Printed, as Markdown: the scores of the stages beside those of our own loop, what the run cost beside the
sum of what the server has told, and in how many places the key was found. Runs as an ordinary user, needs images and
half a minute per run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from automedbench.campaign.recipes import load_recipe, recipe_names
from automedbench_rehearsal.model_server.server import ScriptedServer, Usage

ROOT = Path(__file__).resolve().parents[1]
TASKS = {
    "segmentation": "tsg-multiorgan-seg-task",
    "enhancement": "nih-cxr-sr-task",
    "vqa": "vqa-rad-task",
    "report_generation": "demo-cxr-report-task",
    "detection": "bccd-det-task",
    "classification": "braintumor-cls-task",
    "synthesis": "totalsegmentator-ctsr-task",
}
OWN = "own-loop"
KEY_NAME = "CLI_AGENTS_KEY"
STAGES = ("s1", "s2", "s3", "s4", "s5")

# USD per million tokens; each kind has another price, so that no two can be mixed up.
PRICES = {"input": "3", "cached_input": "0.3", "cache_write": "3.75", "output": "15"}
PRICED = {**PRICES, "as_of": "2026-11-25", "source": "made up for this measurement"}


@dataclass(frozen=True)
class Player:
    """A program or our own loop, its endpoint's protocol, and the server that plays its model."""

    name: str
    protocol: str
    server: ScriptedServer

    def entry(self) -> dict[str, Any]:
        """Its entry of the agents file."""
        kind = {"provider": "openai"} if self.name == OWN else {"provider": "command", "layer": self.name}
        root = {"gemini": f"{self.server.root}/v1beta"}.get(self.protocol, self.server.url)
        return {
            **kind,
            "protocol": self.protocol,
            "model": "scripted",
            "base_url": root,
            "api_key_env": KEY_NAME,
            "pricing": PRICED,
        }

    def told_cost(self) -> Decimal:
        """USD of the tokens that the server has told, kind by kind."""
        answered = [each.turn for each in self.server.exchanges if each.status == 200]
        return sum((price_of(usage_of(turn, self.protocol)) for turn in answered), Decimal(0))


def usage_of(turn: int, protocol: str) -> Usage:
    """Tokens of a turn; OpenAI and Gemini tell nothing of what they write to their caches."""
    return Usage(
        input=1010 + turn,
        output=100 + turn,
        cache_read=1000 * max(0, turn - 1),
        cache_write=200 if protocol == "messages" else 0,
    )


def price_of(usage: Usage) -> Decimal:
    """USD of one request, by hand."""
    million = Decimal(1_000_000)
    kinds = {
        "input": usage.input,
        "cached_input": usage.cache_read,
        "cache_write": usage.cache_write,
        "output": usage.output,
    }
    return sum((Decimal(PRICES[kind]) * count / million for kind, count in kinds.items()), Decimal(0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all and print the table; 1 when a program earned something else than our own loop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="names of recipes; default: all whose layers are built")
    parser.add_argument("--tracks", default=",".join(TASKS), help="comma-separated")
    parser.add_argument("--images", type=Path, default=Path("images"), help="folder with images and layers")
    parser.add_argument("--out", type=Path, default=Path("build/cli-agents"))
    options = parser.parse_args(arguments)
    built = [name for name in recipe_names() if (options.images / f"agent-{name}.sqfs").is_file()]
    programs = options.programs or built
    rows = []
    for track in options.tracks.split(","):
        print(f"{track} ...", file=sys.stderr, flush=True)
        rows += run_track(track, programs, options)
    print(table(rows, options.images))
    return 0 if all(row["same"] for row in rows) else 1


def run_track(track: str, programs: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """One task of a track by our own loop and all programs; a row for each."""
    key = f"sk-canary-{secrets.token_hex(16)}"
    folder = (options.out / track).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with served(track, programs, key) as players:
        campaign = written(folder, track, players, options.images)
        command = [sys.executable, "-m", "snakemake", "--profile", "profiles/demo", "--keep-going"]
        command += ["--configfile", "demo/config.yaml", "demo/apptainer.yaml", str(campaign)]
        environment = os.environ | {KEY_NAME: key, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        with open(folder / "snakemake.log", "w") as log:
            subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
        rows = [row_of(folder / "results", track, player, key) for player in players]
    for row in rows:
        row["same"] = row["stages"] == rows[0]["stages"] and row["cost"] == row["told"] and not row["leaks"]
    return rows


@contextlib.contextmanager
def served(track: str, programs: Sequence[str], key: str) -> Iterator[list[Player]]:
    """A server for each player: its requests are its own."""
    script = ROOT / f"demo/agents/{track}/careful.yaml"
    with contextlib.ExitStack() as stack:
        players = []
        for name in (OWN, *programs):
            spoken = "chat" if name == OWN else load_recipe(name).protocol

            def usage(turn: int, spoken: str = spoken) -> Usage:
                return usage_of(turn, spoken)

            server = stack.enter_context(ScriptedServer({"scripted": script}, usage=usage, keys=[key]))
            players.append(Player(name, spoken, server))
        yield players


def written(folder: Path, track: str, players: Sequence[Player], images: Path) -> Path:
    """Agents file and configuration of a track's campaign."""
    agents, campaign = folder / "agents.yaml", folder / "config.yaml"
    agents.write_text(yaml.safe_dump({"agents": {player.name: player.entry() for player in players}}))
    settings = {
        "agents_file": str(agents),
        "matrix": {"agents": [player.name for player in players], "tasks": [TASKS[track]], "tiers": ["lite"]},
        "results": str(folder / "results"),
        "containers": {"folder": str(images)},
    }
    campaign.write_text(yaml.safe_dump(settings))
    return campaign


def row_of(results: Path, track: str, player: Player, key: str) -> dict[str, Any]:
    """What became of one run."""
    run = results / "runs" / player.name / TASKS[track] / "lite/r1"
    row: dict[str, Any] = {"track": track, "program": player.name, "protocol": player.protocol, "outcome": "no score"}
    row |= {"stages": None, "task": None, "turns": None, "cost": None, "told": player.told_cost(), "leaks": 0}
    row["leaks"] = sum(key.encode() in path.read_bytes() for path in results.rglob("*") if path.is_file())
    with contextlib.suppress(OSError, ValueError, KeyError):
        score, record = (json.loads((run / name).read_text()) for name in ("score.json", "run.json"))
        row["outcome"], row["turns"] = record["outcome"], record["totals"]["turns"]
        row["cost"] = Decimal(record["totals"]["cost_usd"])
        row["stages"], row["task"] = [score["scores"][stage] for stage in STAGES], score["scores"]["task"]
    return row


def table(rows: Sequence[dict[str, Any]], images: Path) -> str:
    """The rows as Markdown."""
    lines = [
        "| track | program | endpoint | outcome | turns | S1 | S2 | S3 | S4 | S5 | task | USD | told | key found |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        stages = [f"{value:.2f}" for value in row["stages"]] if row["stages"] else ["–"] * 5
        task = "–" if row["task"] is None else f"{row['task']:.3f}"
        cells = [row["track"], named(row["program"], images), row["protocol"], row["outcome"], row["turns"], *stages]
        cells += [task, row["cost"], row["told"], row["leaks"]]
        lines.append(f"| {' | '.join(map(str, cells))} |{'' if row['same'] else ' differs'}")
    return "\n".join(lines)


def named(program: str, images: Path) -> str:
    """The program with the version in its layer."""
    if program == OWN:
        return "our own loop"
    return f"{program} {json.loads((images / f'agent-{program}.json').read_text())['version']}"


if __name__ == "__main__":
    sys.exit(main())
