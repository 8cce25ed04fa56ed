"""How many forged bundles are refused, and for which reason; honest ones must be admitted.

    python benchmarks/bench_bundles.py [--forgeries 1000] [--honest 100] [--configfile demo/config.yaml]

Needs a finished campaign with staged data, for example that of `make demo`. Each forgery changes a bundle in one way,
on a run drawn at random. Unless it is one of transport, the forger owns the key: he makes every digest and the score
anew from the records that he changed, and signs again. Refused counts only with one of the reasons that the forgery
calls for. Exit code 1 when one is admitted or refused for another reason, or an honest bundle is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import shutil
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from automedbench.base.cards import TaskCard
from automedbench.base.errors import AutoMedBenchError
from automedbench.base.files import sha256_bytes, sha256_file, write_record
from automedbench.base.records import (
    FileEntry,
    Finding,
)
from automedbench.campaign.load import Campaign
from automedbench.commands._bundle import AGENTS, Bundle, Labels, open_bundle, pack, write_bundle
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands.admit import admit
from automedbench.sandbox.evidence.audit import audit_files
from automedbench.scoring.run import score_from_files

SETTINGS = "run as its settings give it"


@dataclass
class Forger:
    """A bundle laid out to be changed; ``run``: the path of the run that is changed."""

    folder: Path
    run: str
    record: Bundle
    card: TaskCard
    chance: random.Random

    @property
    def home(self) -> Path:
        return self.folder / "runs" / self.run

    @property
    def attempt(self) -> Path:
        return self.home / "attempts" / f"{self.read('run.json')['attempt']:04d}"

    def read(self, name: str) -> Any:
        return json.loads((self.home / name).read_text())

    def write(self, name: str, value: Any) -> None:
        """A record as the project writes it; the file may be shared with other forgeries and is replaced."""
        path = self.home / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")

    def write_run(self, value: Any) -> None:
        """``run.json``, and that of its attempt."""
        self.write("run.json", value)
        self.write(f"attempts/{value['attempt']:04d}/run.json", value)

    def start(self, change: Callable[[Any], None]) -> None:
        """Change what the journal says about the attempt's start."""
        path = self.attempt / "log/journal.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change(next(line["value"] for line in lines if line["kind"] == "start"))
        path.unlink()
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def log(self, name: str, change: Callable[[Any], Any]) -> None:
        """Change each line of a log of the attempt."""
        path = self.attempt / "log" / f"{name}.jsonl"
        lines = [json.dumps(change(json.loads(line))) for line in path.read_text().splitlines() if line]
        path.unlink()
        path.write_text("\n".join(lines) + "\n")

    def append(self, name: str, member: tarfile.TarInfo, data: bytes) -> None:
        """Add a member to an archive of the attempt."""
        path = self.attempt / name
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
        with tarfile.open(path, "a:", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(member, io.BytesIO(data))

    def score(self) -> None:
        """The score made anew from what the records say now, with their digests."""
        record = score_from_files(self.card, self.home.joinpath)
        (self.home / "score.json").unlink()
        write_record(self.home / "score.json", record)

    def forget(self, *patterns: str) -> None:
        """Remove files below the results."""
        for pattern in patterns:
            for path in self.folder.glob(pattern):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


# --- forgeries: each returns the checks of which one must refuse it -------------------------------------------


def score_alone(forger: Forger) -> set[str]:
    """A better Overall in score.json."""
    score = forger.read("score.json")
    name = forger.chance.choice(["overall", "agentic", "task", "s3", "s5"])
    score["scores"][name] = round(min(1.0, score["scores"][name] * 0.9 + 0.2), 4) if score["scores"][name] < 1 else 0.5
    forger.write("score.json", score)
    return {"score made again"}


def score_of_cases(forger: Forger) -> set[str]:
    """Better metrics of the cases, and everything made anew from them."""
    report = forger.read("detail_report.json")
    value = 0.97 if report["task_score"] != 0.97 else 0.9
    report |= {"task_score": value, "quality": value}
    for case in report["cases"]:
        case["metrics"] = {name: value if isinstance(item, float) else item for name, item in case["metrics"].items()}
    forger.write("detail_report.json", report)
    forger.score()
    return {"metrics made again"}


def completion(forger: Forger) -> set[str]:
    """Missing and malformed cases called valid."""
    record = forger.read("submission.json")
    case = next((each for each in record["cases"] if each["status"] != "valid"), record["cases"][0])
    case |= {"status": "missing" if case["status"] == "valid" else "valid", "problems": []}
    case["completed"] = case["status"] == "valid"
    record["completion_rate"] = sum(each["completed"] for each in record["cases"]) / len(record["cases"])
    record["valid_rate"] = sum(each["status"] == "valid" for each in record["cases"]) / len(record["cases"])
    forger.write("submission.json", record)
    with contextlib.suppress(AutoMedBenchError):
        forger.score()
    return {"collected again"}


def judgement(forger: Forger) -> set[str]:
    """Verdicts of the judge turned, with quotes that the run does not hold where they rise."""
    judge = forger.read("judge.json")
    item = forger.chance.choice([each for each in judge["criteria"] if not each["auto"] and each["applicable"]])
    item["verdict"] = 0.0 if item["verdict"] else 1.0
    item["quote"] = "The network was validated with care on one case." if item["verdict"] else ""
    judge["stages"][item["stage"]] = 1.0 if judge["stages"][item["stage"]] < 1 else 0.5
    forger.write("judge.json", judge)
    forger.score()
    return {"quotes", "judged again"}


def transcript(forger: Forger) -> set[str]:
    """Words of code, output or the model changed in conversation.json."""
    said = forger.read("conversation.json")
    if said["calls"] and forger.chance.random() < 0.7:
        call = forger.chance.choice(said["calls"])
        name = forger.chance.choice(["code", "stdout"])
        call[name] = call[name] + "\nprint('checked: all shapes are right')\n"
    else:
        message = forger.chance.choice([each for each in said["messages"] if each["role"] == "assistant"])
        message["content"] += " I checked the first case against the input."
    forger.write("conversation.json", said)
    forger.score()
    return {"transcript"}


def dropped_call(forger: Forger) -> set[str]:
    """A call that went wrong is taken out of the conversation."""
    said = forger.read("conversation.json")
    if not said["calls"]:
        return transcript(forger)
    said["calls"].pop(forger.chance.randrange(len(said["calls"])))
    forger.write("conversation.json", said)
    with contextlib.suppress(AutoMedBenchError):
        forger.score()
    return {"transcript", "score made again"}


def prompt(forger: Forger) -> set[str]:
    """More was said in the brief than the benchmark says; digests made anew."""
    path = forger.home / "brief.md"
    text = path.read_text() + forger.chance.choice(["\nThe labels are sorted.\n", "\nUse TotalSegmentator.\n", "\n"])
    path.unlink()
    path.write_text(text)
    run = forger.read("run.json") | {"brief_sha256": sha256_bytes(text.encode())}
    forger.write_run(run)
    forger.start(lambda value: value["identity"].update(brief_sha256=run["brief_sha256"]))
    forger.score()
    return {f"{SETTINGS}: brief_sha256"}


def limit(forger: Forger) -> set[str]:
    """More time or turns than the campaign gives."""
    run = forger.read("run.json")
    name = forger.chance.choice(["time_limit_s", "max_turns", "mem_gb"])
    run["limits"][name] = run["limits"][name] * 2
    forger.write_run(run)
    forger.start(lambda value: value["identity"]["limits"].update({name: run["limits"][name]}))
    forger.score()
    return {"limits"}


def limit_everywhere(forger: Forger) -> set[str]:
    """The same, also in the settings of the campaign."""
    limit(forger)
    path, run = forger.folder / "campaign.json", forger.read("run.json")
    settings = json.loads(path.read_text())
    names = ("time_limit_s", "max_turns", "mem_gb")
    settings["settings"]["limits"] |= {name: run["limits"][name] for name in names}
    path.unlink()
    path.write_text(json.dumps(settings))
    return {f"{SETTINGS}: brief_sha256", "limits"}


def image(forger: Forger) -> set[str]:
    """Another image, or none, named for the run."""
    run = forger.read("run.json")
    run["enforced"]["image_sha256"] = sha256_bytes(str(forger.chance.random()).encode())
    run["image_recipe"] = run["enforced"]["image_sha256"][:16]
    forger.write_run(run)
    forger.start(lambda value: value["enforced"].update(image_sha256=run["enforced"]["image_sha256"]))
    forger.score()
    return {f"{SETTINGS}: image_recipe", "sandbox: enforced image_sha256"}


def sandbox(forger: Forger) -> set[str]:
    """A closed network is claimed for a run that had an open one."""
    run = forger.read("run.json")
    run["enforced"]["network"] = "sealed" if run["enforced"]["network"] != "sealed" else "open"
    forger.write_run(run)
    forger.start(lambda value: value["enforced"].update(network=run["enforced"]["network"]))
    forger.score()
    return {"sandbox"}


def case_swap(forger: Forger) -> set[str]:
    """Two cases change places, or one is replaced by another."""
    report, record = forger.read("detail_report.json"), forger.read("submission.json")
    one, other = (0, len(report["cases"]) - 1) if len(report["cases"]) > 1 else (0, 0)
    for cases in (report["cases"], record["cases"]):
        if one == other:
            cases[0]["case"] = "case-of-another-draw"
        else:
            cases[one]["case"], cases[other]["case"] = cases[other]["case"], cases[one]["case"]
    forger.write("detail_report.json", report)
    forger.write("submission.json", record)
    with contextlib.suppress(AutoMedBenchError):
        forger.score()
    return {"collected cases", "scored cases"}


def other_cases(forger: Forger) -> set[str]:
    """An easier draw of cases, in manifest, run and score."""
    path = forger.folder / "manifests" / f"{forger.card.id}.json"
    manifest = json.loads(path.read_text())
    manifest["cases"] = manifest["cases"][:-1] or [{**manifest["cases"][0], "id": "easier"}]
    path.unlink()
    path.write_text(json.dumps(manifest))
    text = json.dumps([dict(case) for case in manifest["cases"]], sort_keys=True)
    run = forger.read("run.json") | {"cases_sha256": sha256_bytes(text.encode())}
    forger.write_run(run)
    forger.start(lambda value: value["identity"].update(cases_sha256=run["cases_sha256"]))
    with contextlib.suppress(AutoMedBenchError):
        forger.score()
    return {"cases as staged here"}


def dropped(forger: Forger) -> set[str]:
    """A run is left out of the bundle and its plan."""
    forger.forget(f"runs/{forger.run}")
    path = forger.folder / "plan.json"
    plan = json.loads(path.read_text())
    plan["runs"] = [run for run in plan["runs"] if "/".join([run["agent"], run["task"]]) not in forger.run]
    path.unlink()
    path.write_text(json.dumps(plan))
    _plan_record(forger, plan)
    return {"plan as the settings ask"}


def dropped_everywhere(forger: Forger) -> set[str]:
    """The same, also in the settings of the campaign; the ledger still knows the run, or does not."""
    dropped(forger)
    agent, task, *_ = forger.run.split("/")
    path = forger.folder / "campaign.json"
    settings = json.loads(path.read_text())
    settings["settings"]["matrix"]["exclude"].append({"agents": [agent], "tasks": [task]})
    path.unlink()
    path.write_text(json.dumps(settings))
    if forger.chance.random() < 0.5:
        forger.forget(f"ledger/**/{forger.run.replace('/', '+')}*")
    return {"attempts of the ledger", "the same tasks for all agents"}


def _plan_record(forger: Forger, plan: Any) -> None:
    forger.record = forger.record.model_copy(
        update={"runs": [run for run in forger.record.runs if run.model_dump() in plan["runs"]]}
    )


def best_of(forger: Forger) -> set[str]:
    """The second of two finished attempts counts, and the first is still there."""
    first, second = forger.home / "attempts/0001", forger.home / "attempts/0002"
    shutil.copytree(first, second, symlinks=True)
    run = forger.read("run.json") | {"attempt": 2}
    forger.write_run(run)
    forger.score()
    return {"attempts"}


def best_of_hidden(forger: Forger) -> set[str]:
    """The same, with the first attempt taken out, or both names taken back and only the ledger knowing."""
    if forger.chance.random() < 0.5:
        best_of(forger)
        forger.forget(f"runs/{forger.run}/attempts/0001")
        return {"attempts", "attempts of the ledger"}
    path = forger.folder / "ledger/used" / f"{forger.run.replace('/', '+')}+0001.json"
    book = json.loads(path.read_text())
    if forger.chance.random() < 0.5:
        book["shifts"].append(copy.deepcopy(book["shifts"][0]))
        path.unlink()
        path.write_text(json.dumps(book))
        return {"attempts made once"}
    path.with_name(path.name.replace("+0001", "+0002")).write_text(json.dumps(book))
    return {"attempts of the ledger"}


def verdict(forger: Forger) -> set[str]:
    """Findings of the audit taken out, or a clean run called disqualified by its own lab."""
    audit = forger.read("audit.json")
    clean = audit["verdict"] == "clean" and not audit["findings"]
    audit |= {"verdict": "disqualified" if clean else "clean", "findings": [], "n_warnings": 0}
    audit |= {"by_severity": {}, "by_category": {}}
    forger.write("audit.json", audit)
    with contextlib.suppress(AutoMedBenchError):
        forger.score()
    return {"audit made again"}


def agent(forger: Forger) -> set[str]:
    """Another agent than the one that ran."""
    name = forger.run.split("/")[0]
    settings = {**forger.record.agents[name], "temperature": 0.7, "model": "a-better-model"}
    forger.record = forger.record.model_copy(update={"agents": {**forger.record.agents, name: settings}})
    return {f"{SETTINGS}: {name}" for name in ("model", "agent_settings", "agent_digest")}


# --- forgeries of fields that no number is made of again, and of what a check itself reads ---------------------


def prior(forger: Forger) -> set[str]:
    """The score of answers that look at no case is lowered, so that more stands above it."""
    report = forger.read("detail_report.json")
    report["prior"] = None if report["prior"] and report["prior"]["value"] == 0 else {"answers": "none", "value": 0.0}
    forger.write("detail_report.json", report)
    forger.score()
    return {"metrics made again"}


def metrics_kept_mean(forger: Forger) -> set[str]:
    """Single cases change, their mean does not; with one case a group."""
    report = forger.read("detail_report.json")
    if len(report["cases"]) > 1:
        for case, change in zip(report["cases"], (0.001, -0.001), strict=False):
            case["metrics"] = {name: (value or 0.0) + change for name, value in case["metrics"].items()}
    else:
        report["groups"]["all"] = {"quality": 1.0}
    forger.write("detail_report.json", report)
    with contextlib.suppress(AutoMedBenchError):
        forger.score()
    return {"metrics made again"}


def effect(forger: Forger) -> set[str]:
    """Outputs that owe nothing to their case are said to come of it, or the other way round."""
    report = forger.read("detail_report.json")
    report["effect"]["verdict"] = "none" if report["effect"]["verdict"] == "shown" else "shown"
    forger.write("detail_report.json", report)
    forger.score()
    return {"metrics made again"}


def judge_name(forger: Forger) -> set[str]:
    """Better stages of a judge that is not here to be asked: an earlier one, or a panel."""
    judge = forger.read("judge.json")
    other = forger.chance.choice([{"judge": "heuristic-1"}, {"judge": "panel", "kind": "llm", "prompt_version": 1}])
    forger.write("judge.json", judge | other | {"stages": {"S1": 1.0, "S2": 1.0, "S3": 1.0}})
    forger.score()
    return {"judged again"}


def decision(forger: Forger) -> set[str]:
    """The lab's own operator lifts what the audit found."""
    audit = forger.read("audit.json")
    made = {"decision": "lift", "by": "us", "date": "2026-11-26", "why": "false alarm", "confirmed_no_inference": None}
    (forger.home / "decision.yaml").write_text(json.dumps(made))
    lower = {"disqualified": "warned"}.get(audit["verdict"], "clean")
    signed = f"{audit['verdict']}, lifted by us on 2026-11-26: false alarm"
    reason = f"{signed} ({audit['reason']})" if audit["reason"] else signed
    audit |= {"proposed": audit["verdict"], "verdict": lower, "decision": made, "reason": reason}
    forger.write("audit.json", audit)
    forger.score()
    return {"operator's decision"}


def totals(forger: Forger) -> set[str]:
    """Less was used, as record and log of events say; the journal knows better."""
    run = forger.read("run.json")
    name, value = forger.chance.choice([("wall_s", 0.01), ("exec_s", 0.001), ("cost_usd", "0.01"), ("turns", 99)])
    run["totals"][name] = value
    forger.write_run(run)
    if name != "cost_usd":  # agents of the demo have no price, so that the journal tells none
        forger.log("events", lambda line: line | ({"totals": run["totals"]} if line["type"] == "run_end" else {}))
    forger.score()
    return {"transcript"}


def outcome(forger: Forger) -> set[str]:
    """A run that stopped is said to have submitted, or the other way round; log of events and record agree."""
    run = forger.read("run.json")
    run |= {"submitted": not run["submitted"], "outcome": "stopped" if run["submitted"] else "submitted"}
    forger.write_run(run)
    forger.log("events", lambda line: line | ({"outcome": run["outcome"]} if line["type"] == "run_end" else {}))
    forger.score()
    return {"transcript"}


def times(forger: Forger) -> set[str]:
    """The run was made before a model knew the cases."""
    forger.write_run(forger.read("run.json") | {"started_at": "2024-01-01T00:00:00Z"})
    forger.score()
    return {"transcript"}


def model(forger: Forger) -> set[str]:
    """Another model's name in the record."""
    name = forger.chance.choice(["model", "provider", "origin"])
    forger.write_run(forger.read("run.json") | {name: "openai"})
    forger.score()
    return {f"{SETTINGS}: {name}"}


def model_of_the_plan(forger: Forger) -> set[str]:
    """Another model's name where the leaderboard takes it from."""
    path = forger.folder / "plan.json"
    plan = json.loads(path.read_text())
    plan["agents"][forger.run.split("/")[0]] |= {"model": "a-better-model", "weights": "open"}
    path.unlink()
    path.write_text(json.dumps(plan))
    return {"agents of the plan"}


def evidence(forger: Forger) -> set[str]:
    """Everything is said to have been watched, from the start on."""
    flags = {"decoy": True, "tripwire": True, "trace": True}
    run = forger.read("run.json")
    run["enforced"] |= flags
    forger.write_run(run)
    forger.start(lambda value: value["enforced"].update(flags))
    forger.score()
    return {"sandbox"}


def answer_of_a_tool(forger: Forger) -> set[str]:
    """What the model was told by a tool or by us, or its own words cut short."""
    said = forger.read("conversation.json")
    message = forger.chance.choice([each for each in said["messages"] if each["content"]])
    message["content"] = message["content"][: len(message["content"]) // 2]
    forger.write("conversation.json", said)
    forger.score()
    return {"transcript"}


def first_message(forger: Forger) -> set[str]:
    """More was written into the brief, as conversation and log of messages say; its digest is that of the file."""
    added, said = "\nThe labels are sorted by size.", forger.read("conversation.json")
    said["messages"][0]["content"] += added
    forger.write("conversation.json", said)
    forger.log(
        "transcript", lambda line: line | ({"content": line["content"] + added} if line["role"] == "system" else {})
    )
    forger.score()
    return {"transcript"}


def findings(forger: Forger) -> set[str]:
    """Findings are taken out of the log, or put in where there are none; the audit is made from it."""
    made = Finding.of("net.blocked", "egress", "network", "notice", "low", "made up", place="end")
    line = {"type": "finding", "turn": None, "finding": made.model_dump(mode="json")}
    path = forger.attempt / "log/events.jsonl"
    lines = path.read_text().splitlines()
    kept = [each for each in lines if '"type": "finding"' not in each]
    path.unlink()
    path.write_text("\n".join(kept if len(kept) < len(lines) else [*lines[:-1], json.dumps(line), lines[-1]]) + "\n")
    (forger.home / "audit.json").unlink()
    audit_files(
        forger.home / "run.json",
        forger.attempt / "log",
        contextlib.nullcontext(forger.home),
        forger.home / "submission.json",
        1,
        forger.home / "audit.json",
        conversation=forger.home / "conversation.json",
    )
    forger.score()
    return {"transcript"}


def recipe(forger: Forger) -> set[str]:
    """What sets a score apart from others is told otherwise."""
    score = forger.read("score.json")
    other = {"preset": "of our own", "limits": {"max_turns": 1}, "policy_version": 0, "score_version": 0}
    score["recipe"] |= {name: other[name] for name in forger.chance.sample(list(other), 2)}
    forger.write("score.json", score)
    return {"score made again: recipe"}


def outputs(forger: Forger) -> set[str]:
    """What one run submitted is left out, and its cases are better."""
    score_of_cases(forger)
    forger.forget(f"runs/{forger.run}/attempts/*/outputs.tar", f"runs/{forger.run}/outputs.tar")
    return {"submitted files of all runs"}


def machine_time(forger: Forger) -> set[str]:
    """Less was held, or another machine, or the ledger has no book of it."""
    if forger.chance.random() < 0.5:
        forger.forget(f"ledger/used/{forger.run.replace('/', '+')}+*")
        return {"machine time"}
    run = forger.read("run.json")
    run["used"] |= {"held_s": 0.01, "machines": ["a telephone"]}
    forger.write_run(run)
    forger.score()
    return {"machine time"}


def laid_ready(forger: Forger) -> set[str]:
    """Files where a check writes, and later reads what it has written."""
    place = forger.folder / "again/admit" / forger.run
    place.mkdir(parents=True)
    shutil.copy(forger.attempt / "log/events.jsonl", place / "submission.json")
    return {"is not a name that `pack` gives a file."}


def way_out(forger: Forger) -> set[str]:
    """A collected file that lies above the folder it is laid out in, by its name or through a link."""
    data, outside = b"x", Path(tempfile.gettempdir()) / "bench-bundles-outside"
    member, record = tarfile.TarInfo(str(outside)), forger.read("submission.json")
    member.size = len(data)
    record["extra"][member.name] = {"sha256": sha256_bytes(data), "bytes": len(data)}
    forger.write("submission.json", record)
    forger.score()
    forger.append("outputs.tar", member, data)
    return {"collected again: extra"}


def link_first(forger: Forger) -> set[str]:
    """A link at the path of an expected file, and a file of that name behind it."""
    record = forger.read("submission.json")
    names = [f"agents_outputs/{name}" for case in record["cases"] for name in case["files"]]
    name, path = names[0] if names else "agents_outputs", forger.attempt / "outputs.tar"
    path.unlink()
    with tarfile.open(path, "w") as tar:
        for folder in [each.as_posix() for each in reversed(Path(name).parents)][1:]:
            member = tarfile.TarInfo(folder)
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, str(Path(tempfile.gettempdir()) / "bench-bundles-outside")
        tar.addfile(link)
    forger.append("outputs.tar", tarfile.TarInfo(name), b"")
    return {"collected again"}


def call_twice(forger: Forger) -> set[str]:
    """The archive of calls holds a name twice, a link, or is none."""
    member = tarfile.TarInfo("0001.out")
    if forger.chance.random() < 0.5:
        member.type, member.linkname = tarfile.SYMTYPE, "/etc"
    for _ in range(2):
        forger.append("log/exec.tar", member, b"")
    return {"transcript"}


def unreadable(forger: Forger) -> set[str]:
    """Files that are not what they are called."""
    name = forger.chance.choice(["journal.jsonl", "events.jsonl", "transcript.jsonl", "exec.tar"])
    path = forger.attempt / "log" / name
    path.unlink()
    path.write_text(forger.chance.choice(["[1, 2]\n", '{"type": "effect"}\n', "[" * 100_000 + "\n", "no\n"]))
    return {"transcript"}


RECORDS = (
    *(score_alone, score_of_cases, completion, judgement, transcript, dropped_call, prompt, limit, limit_everywhere),
    *(image, sandbox, case_swap, other_cases, dropped, dropped_everywhere, best_of, best_of_hidden, verdict, agent),
    *(prior, metrics_kept_mean, effect, judge_name, decision, totals, outcome, times, model, model_of_the_plan),
    *(evidence, answer_of_a_tool, first_message, findings, recipe, outputs, machine_time, laid_ready, way_out),
    *(link_first, call_twice, unreadable),
)


def transport(path: Path, chance: random.Random) -> str:
    """Change a bundle without its key; returns what was done."""
    data = bytearray(path.read_bytes())
    kind = chance.choice(["byte", "record", "cut", "member", "link", "outside"])
    with tarfile.open(path, "r:") as tar:
        members = [member for member in tar if member.size]
    if kind in ("byte", "record"):
        member = members[0] if kind == "record" else chance.choice(members[2:])
        data[member.offset_data + chance.randrange(member.size)] ^= 1
    elif kind == "cut":
        del data[chance.choice(members[2:]).offset :]
        data += bytes(1024)
    path.unlink()
    path.write_bytes(data)
    if kind in ("member", "link", "outside"):
        with tarfile.open(path, "a:") as tar:
            info = tarfile.TarInfo("../outside" if kind == "outside" else "runs/extra.json")
            if kind == "link":
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            info.size = 0 if kind == "link" else 2
            tar.addfile(info, None if kind == "link" else io.BytesIO(b"{}"))
    return f"transport: {kind}"


# --- measuring ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def laid_out(bundle: Path) -> Iterator[tuple[Path, Bundle]]:
    """A bundle in a folder that may be changed."""
    with tempfile.TemporaryDirectory() as scratch:
        opened = open_bundle(bundle, Path(scratch) / "results")
        yield opened.folder, opened.record


def forge(
    bundle: Path, forgery: Callable[[Forger], set[str]], run: str, campaign: Campaign, seed: int, out: Path
) -> set[str]:
    """Write ``bundle`` with one forgery into ``out``, signed by its forger; the checks that must refuse it."""
    with laid_out(bundle) as (folder, record):
        forger = Forger(folder, run, record, campaign.cards[run.split("/")[1]], random.Random(seed))
        expected = forgery(forger)
        files = {
            path.relative_to(folder).as_posix(): path
            for path in folder.rglob("*")
            if path.is_file()
            and path != folder / AGENTS
            and not any(each.is_symlink() for each in (path, *path.parents))
        }
        entries = {name: FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size) for name, path in files.items()}
        write_bundle(forger.record.model_copy(update={"files": entries}), files, Ed25519PrivateKey.generate(), out)
    return expected


def reasons(bundle: Path, campaign: Campaign, runs: set[str] | None = None) -> set[str]:
    """Checks that refuse a bundle, with what each found; empty: it is admitted."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = admit(open_bundle(bundle, Path(scratch) / "results"), campaign, only=runs)
        except AutoMedBenchError as error:
            return {str(error).partition("\n")[0]}
    return {
        f"{check.what}: {check.detail}" for checks in found.values() for check in checks if check.verdict == "differs"
    }


def _is_for(reason: str, expected: set[str]) -> bool:
    """Whether a reason begins with an expected check and field, or is the expected error."""
    return any(reason.startswith(wanted) or reason.endswith(wanted) for wanted in expected)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forgeries", type=int, default=1000)
    parser.add_argument("--honest", type=int, default=100)
    add_campaign_options(parser)
    options = parser.parse_args()
    campaign, chance = select_campaign(options), random.Random(1)
    runs = [run.path for run in campaign.runs]
    wrong, begun = [], time.monotonic()
    refused: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        bundle, forged = Path(scratch) / "honest.tar", Path(scratch) / "forged.tar"
        pack(campaign, Labels(lab="honest"), Ed25519PrivateKey.generate(), bundle)
        for number in range(options.honest):
            pack(campaign, Labels(lab=f"lab-{number}"), Ed25519PrivateKey.generate(), forged)
            run = runs[number % len(runs)]
            tried["honest"] += 1
            if why := reasons(forged, campaign, {run}):
                wrong.append(f"honest, {run}: {why}")
            refused["honest"] += bool(why)
        kinds = [*RECORDS, transport]
        for number in range(options.forgeries):
            kind, run = kinds[number % len(kinds)], chance.choice(runs)
            forged.unlink(missing_ok=True)
            name = kind.__name__
            if kind is transport:
                shutil.copy(bundle, forged)
                transport(forged, chance)
                expected = None
            else:
                expected = forge(bundle, kind, run, campaign, number, forged)
            why = reasons(forged, campaign, {run})
            tried[name] += 1
            right = bool(why) if expected is None else any(_is_for(said, expected) for said in why)
            refused[name] += right
            if not right:
                wrong.append(
                    f"{name}, {run}: refused by {sorted(why) or 'no check'}, expected {sorted(expected or ())}"
                )
    print("| forgery | tried | refused for the right reason |\n|---|---|---|")
    for name, count in tried.items():
        if name != "honest":
            print(f"| {name.replace('_', ' ')} | {count} | {refused[name]} |")
    forged_ones = sum(tried.values()) - tried["honest"]
    print(
        f"\n{forged_ones} forgeries, {sum(refused.values()) - refused['honest']} refused for the right reason; ", end=""
    )
    print(f"{tried['honest']} honest bundles, {tried['honest'] - refused['honest']} admitted", end="; ")
    print(f"{time.monotonic() - begun:.0f} s")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
