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
from automedbench.base.files import read_record, sha256_bytes, sha256_file, write_record
from automedbench.base.records import (
    AuditRecord,
    Conversation,
    DetailReport,
    FileEntry,
    JudgeRecord,
    RunRecord,
    SubmissionRecord,
)
from automedbench.campaign.load import Campaign
from automedbench.commands._bundle import Bundle, Labels, open_bundle, pack, write_bundle
from automedbench.commands.admit import admit
from automedbench.planning.load import add_campaign_options, campaign_of
from automedbench.scoring import score_run

SOURCES = ("run.json", "submission.json", "audit.json", "detail_report.json", "judge.json", "conversation.json")


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

    def score(self) -> None:
        """The score made anew from what the records say now, with their digests."""
        home = self.home
        record = score_run(
            read_record(home / "run.json", RunRecord),
            read_record(home / "submission.json", SubmissionRecord),
            read_record(home / "audit.json", AuditRecord),
            read_record(home / "detail_report.json", DetailReport),
            read_record(home / "judge.json", JudgeRecord),
            self.card,
            read_record(home / "conversation.json", Conversation),
            {name: sha256_file(home / name) for name in SOURCES},
        )
        (home / "score.json").unlink()
        write_record(home / "score.json", record)

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
    return {"collected again", "collected files", "score made again", "metrics made again"}


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
    return {"brief written again"}


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
    return {"brief written again", "limits"}


def image(forger: Forger) -> set[str]:
    """Another image, or none, named for the run."""
    run = forger.read("run.json")
    run["enforced"]["image_sha256"] = sha256_bytes(str(forger.chance.random()).encode())
    run["image_recipe"] = run["enforced"]["image_sha256"][:16]
    forger.write_run(run)
    forger.start(lambda value: value["enforced"].update(image_sha256=run["enforced"]["image_sha256"]))
    forger.score()
    return {"image"}


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
    return {"cases as staged here", "staged cases", "collected cases"}


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
    return {"agent's settings"}


RECORDS = (
    *(score_alone, score_of_cases, completion, judgement, transcript, dropped_call, prompt, limit, limit_everywhere),
    *(image, sandbox, case_swap, other_cases, dropped, dropped_everywhere, best_of, best_of_hidden, verdict, agent),
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
            if path.is_file() and not any(each.is_symlink() for each in (path, *path.parents))
        }
        entries = {name: FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size) for name, path in files.items()}
        write_bundle(forger.record.model_copy(update={"files": entries}), files, Ed25519PrivateKey.generate(), out)
    return expected


def reasons(bundle: Path, campaign: Campaign, runs: set[str] | None = None) -> set[str]:
    """The checks that refuse a bundle; empty: it is admitted."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = admit(open_bundle(bundle, Path(scratch) / "results"), campaign, only=runs)
        except AutoMedBenchError as error:
            return {str(error).partition("\n")[0]}
    return {check.what for checks in found.values() for check in checks if check.verdict == "differs"}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forgeries", type=int, default=1000)
    parser.add_argument("--honest", type=int, default=100)
    add_campaign_options(parser)
    options = parser.parse_args()
    campaign, chance = campaign_of(options), random.Random(1)
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
            right = bool(why) if expected is None else bool(why & expected)
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
