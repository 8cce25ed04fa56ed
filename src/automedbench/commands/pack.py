"""Pack a finished campaign into one signed file that others can check, score again and merge.

It holds records, transcripts, logs, ledger, digests and what agents submitted. Everything is searched for keys first.
Of tasks on credentialed data only records without texts of agents or cases go along.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import load_yaml, validate
from automedbench.commands._bundle import Labels, make_key, pack, read_key
from automedbench.commands._campaign import add_campaign_options, select_campaign
from automedbench.commands._output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``automedbench pack``."""
    parser.add_argument("--make-key", type=Path, metavar="FILE", help="write a new private key there, and end")
    parser.add_argument("--key", type=Path, metavar="FILE", help="private key (Ed25519, PEM) to sign with")
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="YAML: lab, contact, hardware; access and weights of each agent"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the bundle; default: <lab>.bundle.tar")
    parser.add_argument(
        "--not-a-key", nargs="+", default=[], metavar="TEXT", help="texts that look like keys and are none"
    )
    add_campaign_options(parser)


def main(options: argparse.Namespace) -> None:
    """Write the bundle and say what it holds and who signed it."""
    if options.make_key is not None:
        public = make_key(options.make_key)
        note = f"{options.make_key}: keep it to yourself. Public key: {public}"
        show(options, {"file": options.make_key, "public_key": public}, [note])
        return
    if missing := [f"--{name}: is missing" for name in ("key", "labels") if getattr(options, name) is None]:
        raise ConfigError([f"{name}; see docs/bundles.md" for name in missing])
    key, labels = read_key(options.key), validate(load_yaml(options.labels), Labels, str(options.labels))
    out = options.out or Path(f"{labels.lab}.bundle.tar")
    record = pack(select_campaign(options), labels, key, out, harmless=options.not_a_key)
    size = sum(entry.bytes for entry in record.files.values())
    signer = key.public_key().public_bytes_raw().hex()
    lines = [
        f"{out}: {len(record.runs)} runs, {len(record.files)} files, {size / 1e6:.1f} MB, signed by",
        signer,
        *(f"{task}: {why}" for task, why in sorted(record.left_out.items())),
    ]
    show(options, {"file": out, "signer": signer, "record": record}, lines)
