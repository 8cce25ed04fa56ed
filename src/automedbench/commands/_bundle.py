"""One file with everything that a campaign's scores rest on, signed, and how it is opened again.

A bundle is a tar archive: ``bundle.json`` (labels, agents, digest of every member), ``bundle.sig`` (an Ed25519
signature of it), and the files of the campaign under the paths that they have below ``results``. What is written for
the same campaign with the same key is the same, byte for byte. Nothing in it is trusted when it is opened.
"""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import mmap
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field, ValidationError

from automedbench import __version__
from automedbench.agent.durable.attempts import list_attempts
from automedbench.agent.workspace import LARGEST_READ
from automedbench.base.cards import TaskCard
from automedbench.base.errors import AutoMedBenchError, ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import (
    atomic_path,
    read_record,
    sha256_bytes,
    sha256_file,
    to_json,
    unwritable,
    write_bytes,
    write_text,
)
from automedbench.base.keys import read_keys
from automedbench.base.masking import secret_among, secret_forms
from automedbench.base.records import FileEntry, Model, RunId, RunRecord, Sha256
from automedbench.campaign.load import Campaign
from automedbench.campaign.treatments import find_base
from automedbench.commands._limits import UNREADABLE, Allowance, describe
from automedbench.leaderboard.plan import Plan
from automedbench.sandbox.airlock.archive import OUTPUTS, read_archive

RECORD, SIGNATURE, AGENTS = "bundle.json", "bundle.sig", "agents.json"
KIB, MIB = 1 << 10, 1 << 20
RECORDS = {
    **dict.fromkeys(("brief.md", "run.json"), MIB),
    **dict.fromkeys(("audit.json", "score.json"), 4 * MIB),
    **dict.fromkeys(("answer_judge.json", "judge.json", "submission.json"), 16 * MIB),
    **dict.fromkeys(("conversation.json", "detail_report.json"), 64 * MIB),
    "decision.yaml": 64 * KIB,
    "submission/plan/plan.png": LARGEST_READ,
}
"""Files of a run's folder that a bundle holds → the most bytes that are opened."""
NO_TEXT = ("run.json", "score.json", "submission.json", "brief.md")
"""Of those what leaves the house of credentialed data, ``TEXTS`` emptied in it: no word of an agent and no case."""
TEXTS: dict[str, Any] = {
    **dict.fromkeys(("summary", "target"), None),
    **dict.fromkeys(("detail", "evidence", "message"), ""),
    "rejected": [],
}
"""Fields of these records that quote what an agent or a file said → what stands there instead."""
LOGS = ("events.jsonl", "transcript.jsonl", "journal.jsonl", "egress.jsonl", "exec.tar")
MAX_MEMBERS, MAX_RUNS, MAX_SILENT = 200_000, 20_000, 10_000
MAX_HEAD, MAX_TEXT, MAX_NAME = 32 * MIB, 64 * MIB, 160
OPENING_S, OPENED_PER_S = 6.0, 40 * MIB
"""Processor seconds for any bundle, and bytes for each one more."""
MEMORY, SIZE_PER_MEMORY = 180 * MIB, 8
"""Bytes of memory beyond those of the command for any bundle, and of the file for each one more."""
MAX_ITEMS = 1_000_000
"""Values of one JSON file, which take up to a hundred bytes each once they are parsed, however short they are."""
_ATTEMPT = r"attempts/[0-9]{4,6}/"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._+@-]*"
_LARGEST = {
    **{re.escape(name): size for name, size in RECORDS.items()},
    _ATTEMPT + r"(?:published|failure-[0-9]{1,9}\.json)": MIB,
    _ATTEMPT + r"run\.json": RECORDS["run.json"],
    _ATTEMPT + r"log/(?:events|transcript|journal|egress)\.jsonl": MAX_TEXT,
    _ATTEMPT + rf"(?:log/exec\.tar|{re.escape(OUTPUTS)})": 1 << 50,  # as much as the bundle has
}
_LARGEST_OF_CAMPAIGN = {
    r"campaign\.json": 4 * MIB,
    r"plan\.json": 16 * MIB,
    rf"(?:ledger|ledger/used|images)/{_NAME}\.json": 4 * MIB,
    rf"manifests/{_NAME}\.json": MAX_TEXT,
}
"""Names that ``pack`` gives → the most bytes; with others a bundle could lay ready what a check writes, and reads."""
_STRING_OR_ITEM = re.compile(rb'"(?:[^"\\]|\\.)*+"|([,[{])', re.DOTALL)
LOOKS_LIKE_KEY = re.compile(
    rb"\b(?:sk-(?!bridge-)|hf_|ghp_|github_pat_|xox[bp]-|AKIA)[A-Za-z0-9_-]{16,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


class Labels(Model):
    """Lab and hardware of a campaign; declared by the lab, not checked."""

    lab: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$", description="short name of the lab")
    contact: str = Field("", max_length=200)
    hardware: str = Field("", max_length=200)
    access: dict[str, Literal["api", "local"]] = Field(default_factory=dict, description="agent → how it was reached")
    weights: dict[str, Literal["open", "closed"]] = Field(default_factory=dict, description="agent → its weights")


class Bundle(Model):
    """``bundle.json``: what a bundle holds."""

    schema_: Literal["automedbench/bundle/1"] = Field("automedbench/bundle/1", alias="schema")
    labels: Labels
    code_version: str
    agents: dict[str, dict[str, Any]] = Field(description="settings in full; names of variables, no keys")
    runs: list[RunId] = Field(description="planned runs")
    files: dict[str, FileEntry] = Field(description="path below the results → content")
    left_out: dict[str, str] = Field(default_factory=dict, description="task → why its texts and outputs are not here")
    silent: list[str] = Field(
        default_factory=list, description="folders of attempts that left no record: killed or never started"
    )


@dataclass(frozen=True)
class Opened:
    """A bundle laid out in ``folder``, a results folder; ``signer`` is the public key, in hexadecimal.

    ``memory``: bytes that reading it may take.
    """

    record: Bundle
    folder: Path
    signer: str
    digest: Sha256
    memory: int


# --- writing -----------------------------------------------------------------------------------------------


def make_key(path: Path) -> str:
    """A new private key in a file that only its owner reads; returns the public key in hexadecimal."""
    if path.exists():
        raise ConfigError([f"--make-key: {path} exists already; a key is never written over"])
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(text)
    except OSError as error:
        raise unwritable(path, error) from error
    return key.public_key().public_bytes_raw().hex()


def read_key(path: Path) -> Ed25519PrivateKey:
    """The private key in a file; raises ConfigError."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([f"--key: {path}: {reason}; make one: automedbench pack --make-key {path}"]) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError([f"--key: {path}: is no Ed25519 key; make one: automedbench pack --make-key NEW_FILE"])
    return key


def pack(
    campaign: Campaign,
    labels: Labels,
    key: Ed25519PrivateKey,
    out: Path,
    *,
    harmless: Sequence[str] = (),
) -> Bundle:
    """Write the bundle of a campaign; ``harmless``: texts that look like keys and are none.

    Raises ConfigError for keys in what would be packed and for labels of unknown agents, MissingDataError or
    InfrastructureError for records that cannot be read.
    """
    unknown = ({*labels.access} | {*labels.weights}) - {*campaign.takes_part}
    if unknown:
        raise ConfigError([f"--labels: '{name}' is no agent of this campaign" for name in sorted(unknown)])
    with tempfile.TemporaryDirectory(prefix="automedbench-pack-") as scratch:
        results = Path(campaign.config.results)
        chosen = dict(_list_campaign_files(campaign, results))
        left_out = {}
        for run in campaign.runs:
            closed = campaign.cards[run.task].dataset.access == "credentialed"
            files = dict(_list_run_files(results / "runs" / run.path, f"runs/{run.path}", closed=closed))
            if closed:
                left_out[run.task] = "credentialed data: only records without texts of agents or cases are here"
                files = {name: _copy_without_texts(path, Path(scratch, name)) for name, path in files.items()}
            chosen |= files
        _refuse_keys(chosen, {*_known_keys(campaign)} - {*harmless}, harmless)
        record = Bundle(
            labels=labels,
            code_version=__version__,
            agents={
                base: campaign.agents[base].model_dump(mode="json", exclude={"treatment"})
                for base in dict.fromkeys(find_base(name) or name for name in campaign.takes_part)
            },
            runs=campaign.runs,
            files={
                name: FileEntry(sha256=sha256_file(path), bytes=path.stat().st_size) for name, path in chosen.items()
            },
            left_out=left_out,
            silent=_list_silent_attempts(campaign.runs, results, chosen),
        )
        write_bundle(record, chosen, key, out)
        return record


def write_bundle(record: Bundle, files: Mapping[str, Path], key: Ed25519PrivateKey, out: Path) -> None:
    """Sign a record and write it with its files, sorted by name, without times and owners."""
    text = to_json(record.model_dump(mode="json", by_alias=True)).encode()
    signed = {"key": key.public_key().public_bytes_raw().hex(), "signature": base64.b64encode(key.sign(text)).decode()}
    with atomic_path(out) as temporary, tarfile.open(temporary, "w:", format=tarfile.PAX_FORMAT) as tar:
        for name, data in ((RECORD, text), (SIGNATURE, to_json(signed).encode())):
            tar.addfile(_member(name, len(data)), io.BytesIO(data))
        for name in sorted(files):
            with open(files[name], "rb") as stream:
                tar.addfile(_member(name, record.files[name].bytes), stream)


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info


def _list_campaign_files(campaign: Campaign, results: Path) -> Iterator[tuple[str, Path]]:
    """Plan, settings, ledger, manifests and records of images: path in the bundle → file."""
    for name in ("plan.json", "campaign.json"):
        yield name, _require_file(results / name)
    for path in sorted((results / "ledger").rglob("*.json")):
        if path.name != "lock.json":
            yield path.relative_to(results).as_posix(), path
    for task in campaign.tasks:
        yield f"manifests/{task}.json", _require_file(Path(campaign.config.data.manifests, f"{task}.json"))
    for image in campaign.images:
        path = Path(campaign.config.containers.folder, f"{image}.json")
        if path.is_file():
            yield f"images/{image}.json", path


def _list_run_files(folder: Path, name: str, *, closed: bool) -> Iterator[tuple[str, Path]]:
    """Records of a run, of all its attempts, and the log and outputs of the one that counts."""
    for each in NO_TEXT if closed else RECORDS:
        if (folder / each).is_file():
            yield f"{name}/{each}", folder / each
    counts = read_record(_require_file(folder / "run.json"), RunRecord).attempt
    for attempt in list_attempts(folder):
        wanted = [*attempt.path.glob("failure-*.json"), attempt.path / "run.json", attempt.path / "published"]
        if attempt.number == counts and not closed:
            wanted += [*(attempt.log / each for each in LOGS), attempt.path / OUTPUTS]
        for path in wanted:
            if path.is_file():
                yield f"{name}/{path.relative_to(folder).as_posix()}", path


def _copy_without_texts(path: Path, copy: Path) -> Path:
    """A copy of a record without ``TEXTS``; other files as they are."""
    if path.suffix != ".json":
        return path
    write_text(copy, to_json(_empty_texts(json.loads(path.read_bytes()))))
    return copy


def _empty_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: TEXTS[name] if name in TEXTS else _empty_texts(each) for name, each in value.items()}
    return [_empty_texts(each) for each in value] if isinstance(value, list) else value


def _list_silent_attempts(runs: Iterable[RunId], results: Path, chosen: Iterable[str]) -> list[str]:
    """Attempts of which nothing is packed: their driver was killed, or they could not be begun."""
    known = {"/".join(name.split("/")[:7]) for name in chosen}
    places = [attempt.path for run in runs for attempt in list_attempts(results / "runs" / run.path)]
    return [name for place in places if (name := place.relative_to(results).as_posix()) not in known]


def _require_file(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError([f"{path}: does not exist; a bundle holds a finished campaign: run `snakemake` first"])
    return path


def _known_keys(campaign: Campaign) -> list[str]:
    """Keys of the campaign's agents and judges, as far as this shell knows them."""
    found: list[str] = []
    agents = {name: campaign.agents[name] for name in campaign.takes_part if campaign.agents[name].paid}
    for name, source in (*agents.items(), *campaign.judges.items()):
        with contextlib.suppress(AutoMedBenchError):
            found += secret_among(read_keys(source), [name, str(getattr(source, "model", ""))])
    return found


def _refuse_keys(files: Mapping[str, Path], keys: Iterable[str], harmless: Sequence[str]) -> None:
    """Raise ConfigError that names every file with a key, or with what looks like one."""
    forms = [form.encode() for form in secret_forms(keys)]
    problems = []
    for name, path in files.items():
        if not path.stat().st_size:
            continue
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if any(content.find(form) >= 0 for form in forms):
                problems.append(
                    f"{name}: holds a key of this campaign; nothing was packed, revoke it; if it is any word that "
                    "your own server takes: --not-a-key with it"
                )
                continue
            found = {match[0].decode("ascii") for match in LOOKS_LIKE_KEY.finditer(content)} - {*harmless}
            problems += [
                f"{name}: holds '{text[:8]}…' ({len(text)} characters), which looks like a key; if it is none: "
                "--not-a-key with the whole text"
                for text in sorted(found)[:3]
            ]
    if problems:
        raise ConfigError(problems)


# --- reading -----------------------------------------------------------------------------------------------


def open_bundle(path: Path, folder: Path, allowance: Allowance | None = None) -> Opened:
    """Lay a bundle out in an empty folder, once its signature and every digest were found right.

    No file is larger, and no JSON has more values, than a record can: who reads them later need not look again. Raises
    MissingDataError without a file, InfrastructureError with the first thing that is wrong; nothing of such a bundle is
    used.
    """
    if not path.exists():
        raise MissingDataError(f"{path} does not exist: name a bundle that `automedbench pack` has written.")
    try:
        size = path.stat().st_size
        memory = MEMORY + size // SIZE_PER_MEMORY
        (allowance or Allowance()).step("opening it", OPENING_S + size / OPENED_PER_S, memory)
        with read_archive(path) as (tar, members):
            record, signer, digest = _read_head(tar, members)
            _lay_out(tar, members, record, folder)
    except _WrongBundle as error:
        raise InfrastructureError(f"{path}: {error}") from error
    except UNREADABLE as error:
        raise InfrastructureError(f"{path}: is no bundle: {describe(error)}.") from error
    _link_attempt(record, folder)
    write_bytes(folder / AGENTS, to_json({"agents": record.agents}).encode())
    return Opened(record, folder, signer, digest, memory)


class _WrongBundle(Exception):
    """Reason why a bundle is not opened."""


def _read_head(tar: tarfile.TarFile, members: Iterator[tarfile.TarInfo]) -> tuple[Bundle, str, Sha256]:
    """The record, who signed it, and its digest."""
    text, signed = (
        _read_member(tar, next(members, None), name, most) for name, most in ((RECORD, MAX_HEAD), (SIGNATURE, KIB))
    )
    try:
        signature = Signature.model_validate_json(signed)
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key))
        key.verify(base64.b64decode(signature.signature, validate=True), text)
        _refuse_many_items(RECORD, text)
        return Bundle.model_validate_json(text), signature.key, sha256_bytes(text)
    except InvalidSignature as error:
        raise _WrongBundle(f"signature: {RECORD} is not what was signed by {signature.key[:16]}.") from error
    except ValidationError as error:
        raise _WrongBundle(f"{RECORD}: {error.errors()[0]['msg']} ({error.error_count()} problems).") from error
    except ValueError as error:
        raise _WrongBundle(f"{SIGNATURE}: {error}.") from error


class Signature(Model):
    """``bundle.sig``."""

    key: str = Field(pattern=r"^[0-9a-f]{64}$", description="public key, raw")
    signature: str = Field(description="of bundle.json, base64")


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo | None, name: str, most: int) -> bytes:
    stream = tar.extractfile(member) if member and member.name == name and member.isfile() else None
    if member is None or stream is None or member.size > most:
        raise _WrongBundle(f"{name}: is not where a bundle has it, or has more than {most} bytes.")
    return stream.read()


def _refuse_many_items(name: str, data: bytes) -> None:
    """Count the values of JSON before it is parsed, without what only stands in strings."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_ITEMS:
        found = (match for match in _STRING_OR_ITEM.finditer(data) if match.lastindex)
        if next(itertools.islice(found, MAX_ITEMS, None), None):
            raise _WrongBundle(f"{name}: holds more than {MAX_ITEMS} values.")


def _lay_out(tar: tarfile.TarFile, members: Iterator[tarfile.TarInfo], record: Bundle, folder: Path) -> None:
    """Every member under its name, once it is as the record says; the names are the record's, all of them safe."""
    _refuse_odd_record(record)
    missing = dict(record.files)
    for name in record.silent:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for member in members:
        entry = missing.pop(member.name, None)
        if member.issparse():  # a few bytes would become as many as the disk holds
            raise _WrongBundle(f"'{member.name[:200]}' is a sparse file, which no bundle has.")
        stream = tar.extractfile(member) if entry and member.isfile() else None
        if entry is None or stream is None:
            raise _WrongBundle(f"{member.name[:200]!r} is not one of the files that {RECORD} lists.")
        if member.size != entry.bytes:
            raise _WrongBundle(f"{member.name}: has {member.size} bytes, {RECORD} says {entry.bytes}.")
        place = folder / member.name
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "wb") as target:
            shutil.copyfileobj(stream, target)
        if sha256_file(place) != entry.sha256:
            raise _WrongBundle(f"{member.name}: was changed after it was packed: its digest is another one.")
        if place.suffix in (".json", ".jsonl"):
            _refuse_many_items(member.name, place.read_bytes())
    if missing:
        raise _WrongBundle(f"{min(missing)}: is missing; {RECORD} lists {len(missing)} files that are not there.")
    if (folder / "plan.json").is_file():
        _refuse_odd_runs(read_record(folder / "plan.json", Plan).runs)


def _refuse_odd_record(record: Bundle) -> None:
    """Numbers, names and sizes of what the record lists, before anything is made of it."""
    for what, count, most in (
        ("files", len(record.files), MAX_MEMBERS),
        ("attempts without a record", len(record.silent), MAX_SILENT),
    ):
        if count > most:
            raise _WrongBundle(f"{count} {what}; at most {most} are opened.")
    _refuse_odd_runs(record.runs)
    runs = {run.path for run in record.runs}
    silent = dict.fromkeys((f"{name}/published" for name in record.silent), 0)
    for name, size in {**silent, **{name: entry.bytes for name, entry in record.files.items()}}.items():
        largest = _largest(name, runs)
        if largest is None:
            raise _WrongBundle(f"{name[:200]!r} is not a name that `pack` gives a file.")
        if size > largest:
            raise _WrongBundle(f"{name}: has {size} bytes; at most {largest} are opened.")


def _refuse_odd_runs(runs: Sequence[RunId]) -> None:
    """Agent and task name folders, from which no other place is reached."""
    if len(runs) > MAX_RUNS:
        raise _WrongBundle(f"{len(runs)} runs; at most {MAX_RUNS} are opened.")
    for run in runs:
        if any(len(part) > MAX_NAME or not re.fullmatch(_NAME, part) for part in (run.agent, run.task)):
            raise _WrongBundle(f"{run.path[:100]!r} is not the name of a run.")


def _largest(name: str, runs: Collection[str]) -> int | None:
    """Most bytes of a name that ``pack`` gives a file, in a campaign of these runs; None for any other name."""
    first, *parts = name.split("/")
    if first == "runs":
        name = "/".join(parts[4:])
        if "/".join(parts[:4]) not in runs:
            return None
    kinds = _LARGEST if first == "runs" else _LARGEST_OF_CAMPAIGN
    return next((most for kind, most in kinds.items() if re.fullmatch(kind, name)), None)


def _link_attempt(record: Bundle, folder: Path) -> None:
    """The names under which a run's folder has the log and the outputs of the attempt that counts."""
    for run in record.runs:
        home = folder / "runs" / run.path
        if not (home / "run.json").is_file():
            continue
        with contextlib.suppress(ValidationError, OSError, ValueError):
            number = RunRecord.model_validate_json((home / "run.json").read_bytes()).attempt
            for name in ("log", OUTPUTS):
                if (home / "attempts" / f"{number:04d}" / name).exists():
                    (home / name).symlink_to(Path("attempts", f"{number:04d}", name))


def closed_tasks(record: Bundle, cards: Mapping[str, TaskCard]) -> set[str]:
    """Tasks whose texts a bundle rightly leaves out."""
    return {task for task in record.left_out if task in cards and cards[task].dataset.access == "credentialed"}
