"""A campaign whose processes are killed at random moments, and what must be the same afterwards."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from conftest import Project, give_to_stranger

from automedbench.agent.durable.attempts import list_attempts, read_lines, read_start

Kind = Literal["head", "driver", "scorer"]
WEIGHTS: dict[Kind, int] = {"head": 1, "driver": 8, "scorer": 5}
"""How often each is aimed at; where none is alive, nothing is killed this time."""
LONGEST_PAUSE_S = 6.0
SCRIPTS = ("careful", "crasher", "hasty", "silent", "cheater")
SPEECHES = (("chat", False), ("responses", False), ("messages", True))
"""What the agents' endpoint speaks, whole or streamed; in turn."""
TASK = "bccd-det-task"
KEY_NAME = "KILLED_KEY"
SCORER = re.compile(r"scripts/(collect_submission|audit_run|score_metrics|score_judge|score_run|build_leaderboard)\.py")
# What a clock or a counter of interruptions said; everything else on the leaderboard must be equal.
STAMPS = {"started_at", "ended_at", "wall_s", "api_s", "api_retry_s", "exec_s", "elapsed_s", "remaining_s", "resumes"}
STAMPS |= {"attempt", "attempts", "attempts_cost_usd"}
_EMPTIED: dict[str, Any] = {"sources": {"run.json": "0" * 64}, "used": {}}
"""Fields of a score that its schema requires, without their stamps."""
DURATION = re.compile(r"\b\d+m\d+\.\d+s\b")
"""As the shell's ``time`` prints it."""
DECOY = re.compile(r"(?m)^[^\n]*\bamb-[0-9a-f]{24}\b[^\n]*")
"""A line with the marker of a decoy, whose values each run has drawn. Anchored, as pictures are very long lines."""


@dataclass(frozen=True)
class Process:
    """A process of a campaign; ``run`` names the agent of a driver."""

    pid: int
    kind: Kind
    agent: str


@dataclass
class Storm:
    """What was killed."""

    kills: list[Process] = field(default_factory=list)
    restarts: int = 0

    def count(self, kind: Kind) -> int:
        return sum(process.kind == kind for process in self.kills)

    def kinds(self) -> set[Kind]:
        return {process.kind for process in self.kills}

    def drivers(self) -> Counter[str]:
        """Agent → how often its driver was killed."""
        return Counter(process.agent for process in self.kills if process.kind == "driver")


class Requests:
    """A record for the scripted server that keeps of each request only its model and turn, in order."""

    def __init__(self) -> None:
        self.turns: dict[str, list[int]] = {}

    def write(self, line: str) -> int:
        request = json.loads(line)
        self.turns.setdefault(request["request"]["model"], []).append(request["turn"])
        return len(line)

    def flush(self) -> None:
        return None

    def take(self) -> dict[str, list[int]]:
        """The turns asked for so far, by model; counting begins anew."""
        taken, self.turns = self.turns, {}
        return taken


# --- the campaign ---------------------------------------------------------------------------------------------


def scripts_of(project: Project, n_agents: int) -> dict[str, Path]:
    """Agent (and its model's name) → the script that its model follows."""
    names = [f"{SCRIPTS[number % len(SCRIPTS)]}-{number:02d}" for number in range(n_agents)]
    return {name: project.path / f"demo/agents/detection/{name.split('-')[0]}.yaml" for name in names}


def write_campaign(project: Project, url: str, agents: list[str]) -> tuple[str, ...]:
    """Options of a campaign with these agents behind ``url``, their code in Apptainer."""
    folder = project.path / "build/kills"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pricing = {"input": "10", "output": "100", "as_of": "2026-01-01", "source": "made up"}
    served = {"provider": "openai", "base_url": url, "api_key_env": KEY_NAME, "pricing": pricing}
    entries = {
        name: {**served, "model": name, "protocol": protocol, "stream": stream}
        for name, (protocol, stream) in zip(agents, itertools.cycle(SPEECHES), strict=False)
    }
    (folder / "agents.yaml").write_text(yaml.safe_dump({"agents": entries}))
    config = {
        "agents_file": "build/kills/agents.yaml",
        "matrix": {"agents": agents},
        "budget": {"max_cost_usd": "1000"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    give_to_stranger(project, project.path / "build")
    return ("--configfile", "demo/config.yaml", "demo/apptainer.yaml", "build/kills/config.yaml", "--config")


def finish(project: Project, options: tuple[str, ...], results: str) -> None:
    """Run the campaign to its end; one call must be enough."""
    unlock(project, options, results)
    done = project.snakemake(*options, f"results={results}", "--", "all", timeout=3600)
    assert done.returncode == 0, done.stdout[-6000:]


def unlock(project: Project, options: tuple[str, ...], results: str) -> None:
    """What Snakemake asks for after its head was killed."""
    done = project.snakemake(*options, f"results={results}", "--unlock")
    assert done.returncode == 0, done.stdout[-3000:]


# --- killing --------------------------------------------------------------------------------------------------


def kill_at_random(
    project: Project, options: tuple[str, ...], results: str, chance: random.Random, n_kills: int, *, done: set[Kind]
) -> Storm:
    """Start the campaign again and again and kill its processes, until there were enough or it came to its end.

    The last kills are of the kinds of which there was none so far (``done`` are those killed in earlier campaigns).
    """
    storm = Storm()
    while len(storm.kills) < n_kills:
        with head_of(project, options, results) as head:
            storm.restarts += 1
            killed_head = False
            while head.poll() is None and not killed_head and len(storm.kills) < n_kills:
                time.sleep(chance.uniform(0.05, LONGEST_PAUSE_S))
                missing = set(WEIGHTS) - done - storm.kinds()
                victim = choose(project, chance, missing if len(missing) >= n_kills - len(storm.kills) else set())
                if victim is None:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim.pid, signal.SIGKILL)
                    storm.kills.append(victim)
                    killed_head = victim.kind == "head"
            if not killed_head and head.wait(timeout=1800) == 0:
                return storm
        unlock(project, options, results)
    return storm


@contextlib.contextmanager
def head_of(project: Project, options: tuple[str, ...], results: str) -> Iterator[subprocess.Popen[bytes]]:
    """Snakemake; what it has started outlives it, as after a real kill."""
    with open(project.path / "build/kills/head.log", "ab") as log:
        process = subprocess.Popen(
            [*project.prefix, "snakemake", "--profile", "profiles/demo", *options, f"results={results}", "--", "all"],
            cwd=project.path,
            env=project.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)


def choose(project: Project, chance: random.Random, only: set[Kind]) -> Process | None:
    """A living process of a kind that chance chooses, of ``only`` some kinds if any is named; if there is one."""
    weights = {kind: weight for kind, weight in WEIGHTS.items() if kind in only or not only}
    kind = chance.choices(list(weights), list(weights.values()))[0]
    living = [process for process in processes(project) if process.kind == kind]
    return chance.choice(sorted(living, key=lambda found: found.pid)) if living else None


def processes(project: Project) -> list[Process]:
    """All processes of the campaign: Python programs that work in the clone."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            here = os.readlink(path / "cwd") == str(project.path)
        except OSError:
            continue
        if here and "python" in Path(words[0]).name and (kind := kind_of(words)) is not None:
            run = Path(words[words.index("--run") + 1]) if kind == "driver" else None
            if run is None or not died_twice_in_a_call(project.path / run):
                found.append(Process(int(path.name), kind, run.parts[-4] if run else ""))
    return found


def died_twice_in_a_call(run: Path) -> bool:
    """A third silent death in the same code call would be the agent's: it looks like memory that ran out."""
    begun = 0
    for attempt in list_attempts(run)[-1:]:
        for line in reversed(read_lines(attempt.journal)[0]):
            if line.type == "effect":
                break
            begun += (line.type, line.kind) == ("begin", "exec")
    return begun > 2  # the one that is going on, and two that have ended


def kind_of(words: list[str]) -> Kind | None:
    if "scripts/run_agent.py" in words:
        return "driver"
    if any(SCORER.search(word) for word in words):
        return "scorer"
    return "head" if len(words) > 1 and Path(words[1]).name == "snakemake" and "--unlock" not in words else None


# --- afterwards -----------------------------------------------------------------------------------------------


def check_attempts(project: Project, results: str, agents: list[str]) -> None:
    """No run is lost, none has a second attempt that asked a model, and nothing is left of those who worked on it."""
    for agent in agents:
        run = project.path / results / f"runs/{agent}/{TASK}/lite/r1"
        assert (run / "score.json").is_file(), agent
        begun = [attempt.number for attempt in list_attempts(run) if read_start(attempt)]
        assert len(begun) == 1, (agent, begun)
        assert json.loads((run / "run.json").read_text())["attempt"] == begun[0]
        assert not list(run.glob("lease.json*")), agent
    assert processes(project) == []


def check_requests(asked: dict[str, list[int]], undisturbed: dict[str, list[int]], killed: Counter[str]) -> int:
    """At most one request repeated per killed driver, of the run that was killed; gives their number in all.

    Two agents at work on one run would ask for turns in other orders than the same turn again and the next one.
    """
    repeated = 0
    for agent, expected in undisturbed.items():
        turns = asked[agent]
        assert sorted(set(turns)) == sorted(set(expected)), agent
        extra = len(turns) - len(expected)
        assert 0 <= extra <= killed[agent], (agent, turns, killed[agent])
        assert all(later - earlier in (0, 1) for earlier, later in itertools.pairwise(turns)), (agent, turns)
        repeated += extra
    return repeated


def leaderboard(project: Project, results: str, scratch: Path) -> dict[str, bytes]:
    """Every file of the leaderboard as it is built from the same results with all stamps set to 0.

    Without the list of what its pages were made of, which holds times of files.
    """
    copy = scratch / results
    shutil.copytree(
        project.path / results, copy, symlinks=True, ignore=shutil.ignore_patterns("attempts", "log", "leaderboard")
    )
    for path in sorted(copy.glob("runs/*/*/*/*/*.json")):
        path.write_text(json.dumps(unstamped(json.loads(path.read_text())), sort_keys=True))
    settings = json.loads((copy / "campaign.json").read_text())
    settings["settings"]["results"] = str(copy)
    (copy / "campaign.json").write_text(json.dumps(settings))
    done = subprocess.run(
        ["python", "scripts/build_leaderboard.py", "--campaign", str(copy / "campaign.json")],
        cwd=project.path,
        env=project.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files = [path for path in sorted((copy / "leaderboard").rglob("*")) if path.is_file()]
    return {str(path.relative_to(copy)): path.read_bytes() for path in files if path.name != "run-pages.json"}


def unstamped(value: Any) -> Any:
    """A record without what clocks and counters of interruptions say, also inside of tool results.

    Nor with the digests of records that hold such stamps (``sources`` of a score), nor what the run used.
    """
    if isinstance(value, dict):
        zero = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:00Z", "attempt": 1, "attempts": 1}
        zero |= {"attempts_cost_usd": None}
        return {
            key: _EMPTIED[key]
            if key in _EMPTIED
            else zero.get(key, 0)
            if key in STAMPS and not isinstance(inner, dict)
            else unstamped(inner)
            for key, inner in value.items()
            if key != "note"
        }
    if isinstance(value, list):
        return [unstamped(inner) for inner in value]
    if isinstance(value, str):
        if value.startswith('{"'):
            with contextlib.suppress(ValueError):
                return json.dumps(unstamped(json.loads(value)), sort_keys=True)
        return DECOY.sub("decoy", DURATION.sub("0m0.000s", value))
    return value
