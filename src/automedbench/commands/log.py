"""The append-only log of admitted bundles: add, retract, correct, prove, check.

One JSON line per entry; it is never changed, only added to. Its root (RFC 6962) stands for all of it: who publishes the
root with its size cannot drop or change an entry later without being seen. `prove` writes a proof that an entry is in
the log, which `verify-proof` checks without the log; `check` says whether a log still begins with one seen before.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from automedbench.base.errors import ConfigError, InfrastructureError
from automedbench.base.files import read_given, to_json, write_bytes
from automedbench.base.records import Model, Sha256, now
from automedbench.base.yamlfile import suggestion
from automedbench.commands._bundle import read_head
from automedbench.commands._merkle import inclusion_path, leaf_hash, root_by_inclusion, root_of
from automedbench.commands._output import add_json, show
from automedbench.commands.verify import DIFFERS

HASHES = Field(description="hexadecimal")


class LogEntry(Model):
    """One line of the log."""

    schema_: Literal["automedbench/log-entry/1"] = Field("automedbench/log-entry/1", alias="schema")
    kind: Literal["admit", "retract", "correct"]
    bundle: Sha256 = Field(description="digest of its bundle.json, as `admit` prints it")
    lab: str = ""
    signer: str = ""
    by: Sha256 | None = Field(None, description="correct: the bundle that takes its place")
    why: str = ""
    at: str


class Proof(Model):
    """That one entry is in a log of ``size`` entries with this root."""

    schema_: Literal["automedbench/log-proof/1"] = Field("automedbench/log-proof/1", alias="schema")
    entry: str = Field(description="the line")
    index: int = Field(ge=0)
    size: int = Field(ge=1)
    path: list[str] = HASHES
    root: str = HASHES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench log``."""
    actions = parser.add_subparsers(required=True, dest="action", metavar="ACTION")
    add = actions.add_parser("add", help="add a bundle that was admitted")
    add.add_argument("bundle", type=Path)
    retract = actions.add_parser("retract", help="say that a bundle must not be used any more")
    correct = actions.add_parser("correct", help="say that another bundle takes the place of one")
    for each in (retract, correct):
        each.add_argument("digest", help="of the bundle, as `admit` printed it")
        each.add_argument("--why", required=True)
    correct.add_argument("--by", required=True, metavar="DIGEST")
    prove = actions.add_parser("prove", help="print a proof that a bundle was admitted")
    prove.add_argument("digest")
    check = actions.add_parser("check", help="say size and root, and whether the log only grew")
    check.add_argument("--since", metavar="SIZE:ROOT", help="what `check` said before")
    for each in (add, retract, correct, prove, check):
        each.add_argument("--log", type=Path, default=Path("admitted.jsonl"), metavar="FILE", help="the log")
    proof = actions.add_parser("verify-proof", help="check a proof, without the log")
    proof.add_argument("proof", type=Path)
    proof.add_argument("--root", help="the root that was published; default: the one that the proof names")
    add_json(add, retract, correct, prove, check, proof)


def main(options: argparse.Namespace) -> None:
    """Do it; exit 3 where a check fails."""
    if options.action == "verify-proof":
        _verify_proof(options, read_given(options.proof, Proof, "automedbench log prove"))
    elif options.action == "prove":
        lines = read_lines(options.log)
        _known(options.digest, lines, options.log)
        print(to_json(prove(lines, options.digest).model_dump(mode="json", by_alias=True)), end="")
    elif options.action == "check":
        _check(options, read_lines(options.log), options.since)
    else:
        _append(options)


def read_lines(path: Path) -> list[bytes]:
    """Entries of a log, each as its line; none where the file does not exist. Raises InfrastructureError."""
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be read: {error.strerror or error}.") from error
    if lines.pop() != b"":
        raise InfrastructureError(f"{path}: its last line is torn. Take a copy that is whole.")
    for number, line in enumerate(lines, start=1):
        try:
            LogEntry.model_validate_json(line)
        except ValidationError as error:
            raise InfrastructureError(f"{path}: line {number}: {error.errors()[0]['msg']}.") from error
    return lines


def standing(lines: list[bytes]) -> dict[str, LogEntry]:
    """Admitted bundles that were neither retracted nor replaced: digest → entry."""
    found: dict[str, LogEntry] = {}
    for line in lines:
        entry = LogEntry.model_validate_json(line)
        if entry.kind == "admit":
            found[entry.bundle] = entry
        else:
            found.pop(entry.bundle, None)
    return found


def prove(lines: list[bytes], digest: str) -> Proof:
    """The proof that a bundle was admitted; the digest is one of the log."""
    leaves = [leaf_hash(line) for line in lines]
    kinds = [(entry.kind, entry.bundle) for entry in map(LogEntry.model_validate_json, lines)]
    index = kinds.index(("admit", digest))
    path = [each.hex() for each in inclusion_path(leaves, index)]
    return Proof(entry=lines[index].decode(), index=index, size=len(lines), path=path, root=root_of(leaves).hex())


def _append(options: argparse.Namespace) -> None:
    lines = read_lines(options.log)
    if options.action == "add":
        record, signer, digest = read_head(options.bundle)
        if digest in standing(lines):
            raise ConfigError([f"{options.bundle}: is in {options.log} already"])
        if digest in _admitted(lines):
            raise ConfigError([f"{options.bundle}: was retracted or replaced in {options.log}; it stays out"])
        entry = LogEntry(kind="admit", bundle=digest, lab=record.labels.lab, signer=signer, at=now().isoformat())
    else:
        for digest in filter(None, (options.digest, getattr(options, "by", None))):
            _known(digest, lines, options.log)
        by = getattr(options, "by", None)
        if by is not None and (by == options.digest or by not in standing(lines)):
            raise ConfigError([f"--by: {by[:64]} does not stand in {options.log}, or is what it would replace"])
        entry = LogEntry(kind=options.action, bundle=options.digest, by=by, why=options.why, at=now().isoformat())
    lines.append(json.dumps(entry.model_dump(mode="json", by_alias=True), sort_keys=True).encode())
    write_bytes(options.log, b"\n".join(lines) + b"\n")
    _check(options, lines, None)


def _admitted(lines: list[bytes]) -> list[str]:
    """Bundles that were ever admitted."""
    return [entry.bundle for entry in map(LogEntry.model_validate_json, lines) if entry.kind == "admit"]


def _known(digest: str, lines: list[bytes], log: Path) -> None:
    known = _admitted(lines)
    if digest not in known:
        raise ConfigError([f"{digest[:64]}: no bundle of that digest in {log}{suggestion(digest, known)}"])


def _check(options: argparse.Namespace, lines: list[bytes], since: str | None) -> None:
    log, leaves = options.log, [leaf_hash(line) for line in lines]
    now_has = {"log": log, "size": len(lines), "root": root_of(leaves).hex()}
    told = [f"{log}: {len(lines)}:{now_has['root']}"]
    if since is None:
        show(options, now_has, told)
        return
    size, _, root = since.partition(":")
    if not (size.isascii() and size.isdigit()) or not root:
        raise ConfigError([f"--since: '{since}' is not of the form SIZE:ROOT, as `check` prints it"])
    grew = int(size) <= len(leaves) and root_of(leaves[: int(size)]).hex() == root
    if grew:
        told.append(
            f"{log}: begins with the {size} entries of root {root[:16]}; {len(leaves) - int(size)} were added since"
        )
    else:
        told.append(
            f"{log}: does not begin with the {size} entries of root {root[:16]}: entries were changed or dropped"
        )
    show(options, {**now_has, "only_grew": grew}, told)
    if not grew:
        sys.exit(DIFFERS)


def _verify_proof(options: argparse.Namespace, proof: Proof) -> None:
    try:
        path = [bytes.fromhex(each) for each in proof.path]
    except ValueError as error:
        raise ConfigError([f"path: {error}"]) from error
    found = root_by_inclusion(leaf_hash(proof.entry.encode()), proof.index, proof.size, path)
    root = options.root or proof.root
    holds = found is not None and found.hex() == root
    if holds:
        told = f"Entry {proof.index + 1} of {proof.size}, root {root[:16]}: {proof.entry}"
    else:
        told = f"The entry is not in the log of {proof.size} entries with root {root[:16]}."
    show(options, {"holds": holds, "root": root, "proof": proof}, [told])
    if not holds:
        sys.exit(DIFFERS)
