"""Model server as a program: four protocols on loopback from scripts, with faults on demand.

    python -m automedbench_rehearsal.model_server script.yaml --port 8000 --faults faults.yaml

A script is the file of a scripted agent; the turn is read from the conversation in the request.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from automedbench.agent.models.scripted import ScriptedTurn
from automedbench.base.errors import AutoMedBenchError, ConfigError
from automedbench_rehearsal.model_server.faults import FaultPlan, load_faults
from automedbench_rehearsal.model_server.server import ScriptedServer, named_turns, usage_rule


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the exit status is 2 after a mistake of the user."""
    parser = argparse.ArgumentParser(prog="python -m automedbench_rehearsal.model_server", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scripts", nargs="+", help="script.yaml or MODEL=script.yaml; several are told apart by model")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; default: a free one")
    parser.add_argument("--key-env", help="environment variable with the key that requests must carry")
    parser.add_argument("--faults", type=Path, help="YAML file: when to misbehave, and how")
    parser.add_argument("--usage-rule", action="store_true", help="four kinds of tokens, by the number of the turn")
    parser.add_argument(
        "--demand", action="store_true", help="reply with signed thinking, and refuse to go on without it"
    )
    parser.add_argument("--record", type=Path, help="append every request to this file, one JSON object per line")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _serve(options, stop)
    except AutoMedBenchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    except (OSError, OverflowError) as error:
        file = getattr(error, "filename", None) or f"port {options.port}"
        print(f"Cannot serve: {file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
    return 2


def _serve(options: argparse.Namespace, stop: threading.Event) -> int:
    problems: list[str] = []
    faults, keys = FaultPlan(), []
    scripts: dict[str, list[ScriptedTurn]] = {}
    try:
        scripts = named_turns(_files(options.scripts))
    except ConfigError as error:
        problems += error.problems
    try:
        faults = load_faults(options.faults) if options.faults else faults
    except ConfigError as error:
        problems += error.problems
    if options.key_env:
        keys = [os.environ.get(options.key_env, "").strip()]
        problems += [] if keys[0] else [f"--key-env: the environment variable {options.key_env} is not set"]
    if problems:
        raise ConfigError(problems)
    record = open(options.record, "a", encoding="utf-8") if options.record else None  # noqa: SIM115 - closed below
    try:
        usage = usage_rule if options.usage_rule else None
        with ScriptedServer(
            scripts,
            faults=faults,
            keys=keys,
            usage=usage,
            demand=options.demand,
            port=options.port,
            keep=False,
            record=record,
        ) as server:
            print(server.url, flush=True)
            stop.wait()
    finally:
        if record is not None:
            record.close()
    return 0


def _files(words: Sequence[str]) -> dict[str, Path]:
    """``script.yaml`` plays the model of its own name, ``NAME=script.yaml`` the model NAME."""
    files: dict[str, Path] = {}
    for word in words:
        name, named, path = word.rpartition("=")
        files[name if named else Path(path).stem] = Path(path)
    return files


if __name__ == "__main__":
    sys.exit(main())
