"""Try what a campaign depends on, each by the smallest real thing, before its first paid run.

What `automedbench doctor` looks at is looked at again. Then a file of each host, a reply of every model and judge, a
package, a checkpoint, a kernel, jobs and a case are tried side by side: at most ten minutes, and no money without
consent. What worked is not tried again while the campaign stays as it is. Exit status 1 when anything fails.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import tempfile
import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from automedbench.base.errors import ConfigError
from automedbench.base.files import hash_json, known_record, write_record, write_text
from automedbench.base.records import Model, now
from automedbench.base.yamlfile import suggestion
from automedbench.campaign.load import FIRST_RUN, build_campaign_record
from automedbench.commands import version_text
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._machine.examine import (
    LATE,
    Host,
    HostProbe,
    ProbeResult,
    add_machine_arguments,
    examine,
    print_report,
    report_lines,
    warn,
)
from automedbench.commands._machine.profile import read_profile
from automedbench.commands._machine.table import PROBES

DEADLINE_S = 600.0
"""All tries together."""


class ProbeRecord(Model):
    """What a probe found, when, and the digest of what it depended on."""

    inputs: str
    date: datetime
    results: list[ProbeResult]


class FirstRunReport(Model):
    """``results/first-run/report.json``: the last outcome of each probe, without any key."""

    schema_: Literal["automedbench/first-run/1"] = Field("automedbench/first-run/1", alias="schema")
    code: str
    system: str
    probes: dict[str, ProbeRecord]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: which campaign, what is tried, and what it may cost."""
    add_campaign_options(parser)
    add_machine_arguments(parser)
    parser.add_argument("--only", action="append", metavar="NAME", help="this probe alone; may be repeated")
    parser.add_argument("--again", action="store_true", help="try what has worked as well")
    parser.add_argument("--yes", action="store_true", help="spend without asking")
    parser.add_argument("--usd", type=usd, default=0.10, help="the most that all tries may cost (0.10)")
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="keep the answers of models, for tests; with --again of all"
    )


def main(options: argparse.Namespace) -> None:
    """Look, try, write the report, print it, exit with its status. Raises ConfigError when the campaign is wrong."""
    campaign = select_campaign(options)
    images = options.images or Path(campaign.config.containers.folder)
    host, probes = Host(campaign, images, profile=options.profile, record=options.record), _choose(options.only or [])
    file, inputs = host.results / FIRST_RUN, digest_inputs(host)
    _make_folder("results", file.parent)
    if options.record is not None:
        _make_folder("--record", options.record)
    before, lock = known_record(file, FirstRunReport), threading.Lock()
    system = f"{platform.platform()}, Python {platform.python_version()}"
    report = FirstRunReport(code=version_text(), system=system, probes=before.probes if before else {})

    def keep(probe: HostProbe, found: Sequence[ProbeResult]) -> None:
        if not probe.doctor:
            _say(f"{probe.name}: tried")
        with lock:
            report.probes[probe.name] = ProbeRecord(inputs=inputs, date=now(), results=list(found))
            write_record(file, report)

    _say("Looking at this machine and the campaign ...")
    examine(host, [probe for probe in probes if probe.doctor], ended=keep)
    worked = (
        set()
        if options.again
        else {probe.name for probe in probes if _holds(report.probes.get(probe.name), inputs, probe.usd(host))}
    )
    tries = [probe for probe in probes if not probe.doctor and probe.name not in worked]
    refusal = refuse_spending(host, tries, options)
    refused = [probe for probe in tries if refusal and probe.usd(host) != 0]
    for probe in refused:
        keep(probe, [warn(probe.name, "not tried", refusal)])
    tries = [probe for probe in tries if probe not in refused]
    _say(f"Trying {', '.join(probe.name for probe in tries) or 'nothing'}: up to ten minutes ...")
    examine(host, tries, DEADLINE_S, keep)
    findings = [result for probe in probes for result in report.probes[probe.name].results]
    text = "\n".join([report.code, report.system, *report_lines(findings)])
    write_text(file.with_suffix(".txt"), text.replace(str(Path.home()), "~") + "\n")
    attach = f"{file.with_suffix('.txt')} holds this without any key: attach it when you report a problem."
    print_report(options, findings, attach)


def _say(text: str) -> None:
    """Show a person at a terminal how far this is."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def usd(text: str) -> float:
    """An amount; raises ValueError for one that limits nothing."""
    if not 0 <= (amount := float(text)) < math.inf:
        raise ValueError(text)
    return amount


def _make_folder(what: str, folder: Path) -> None:
    """Make a folder before answers are paid for; raises ConfigError where it cannot be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        problem = f"{what}: {folder} cannot be written: {error.strerror}"
        raise ConfigError([problem, "Nothing was tried: name a folder that you can write."]) from error


def _choose(names: Sequence[str]) -> list[HostProbe]:
    """The probes of these names, all without any; raises ConfigError for one that does not exist."""
    probes = [probe for probe in PROBES if probe.first_run]
    known = [probe.name for probe in probes]
    if unknown := [name for name in names if name not in known]:
        there = f"{suggestion(unknown[0], known)}; there are: {', '.join(known)}"
        raise ConfigError([f"--only: no probe '{unknown[0]}'{there}"])
    return [probe for probe in probes if not names or probe.name in names]


def digest_inputs(host: Host) -> str:
    """Digest of what tries depend on: settings, agents, judges, data sets, profile and images."""
    assert host.campaign is not None
    campaign, profile = host.campaign, read_profile(host.root, host.profile)
    files = [host.images / f"{name}.sif" for name in campaign.images]
    return hash_json(
        {
            "settings": build_campaign_record(campaign).settings.model_dump(mode="json"),
            "agents": [campaign.agents[name].model_dump(mode="json") for name in campaign.takes_part],
            "judges": [judge.model_dump(mode="json") for judge in campaign.judges.values()],
            "datasets": [campaign.cards[task].dataset.model_dump(mode="json") for task in campaign.tasks],
            "profile": [str(profile.path), repr(profile.content)],
            "images": [file.stat().st_mtime_ns if file.is_file() else 0 for file in files],
        }
    )


def _holds(record: ProbeRecord | None, inputs: str, usd: float | None) -> bool:
    """The probe found something that works, and nothing that it depends on has changed since.

    One that warns is tried again only where that is free: replies would be paid for again and say the same.
    """
    if record is None or record.inputs != inputs or any(result.fix == LATE for result in record.results):
        return False
    statuses = {result.status for result in record.results}
    return "ok" in statuses and statuses <= ({"ok"} if usd == 0 else {"ok", "warn"})


def refuse_spending(host: Host, tries: Sequence[HostProbe], options: argparse.Namespace) -> str:
    """Reason why nothing may be spent and what to do about it; empty where nothing need be, or where it is agreed."""
    costs = {probe.name: usd for probe in tries if (usd := probe.usd(host)) != 0}
    most = sum(usd or 0.0 for usd in costs.values())
    sums = [f"{most:.4f} USD"] * (most > 0) + ["what providers of unknown price charge"] * (None in costs.values())
    what = f"{', '.join(costs)} may cost {' and '.join(sums)}"
    if not costs:
        return ""
    if most > options.usd:
        return f"{what}: add --usd {math.ceil(most * 100) / 100:.2f}, or choose with --only."
    if options.yes:
        return ""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return f"{what}: add --yes."
    print(f"{what}. Try them? [y/N] ", end="", file=sys.stderr, flush=True)
    return "" if sys.stdin.readline().strip().lower() in ("y", "yes") else f"{what}: you did not agree."
