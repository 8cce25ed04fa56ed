"""The files of a RadGraph model: unpacked into a folder that may be written, bounded, as data only."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from automedbench.metrics.bert_folder import check_bert_folder
from automedbench.metrics.checkpoints import MAX_WEIGHTS, CheckpointError, check_weights, first_line, read_json_object

MAX_SMALL = 64 * 1024**2
"""Bytes of the configuration, or of one vocabulary file."""
MAX_MEMBERS = 1000
CONFIG, WEIGHTS, VOCABULARY = "config.json", "weights.th", "vocabulary"


def unpack(archive_or_dir: Path, target: Path, model_type: str, text_encoder: Path | None) -> None:
    """Put a usable model into the new folder ``target``; raises CheckpointError.

    Only the configuration, the vocabulary and the weights are taken. The two entries of the configuration that name
    the text encoder on a hub are replaced by the local folder.
    """
    target.mkdir(parents=True)
    if archive_or_dir.is_dir():
        _take_folder(archive_or_dir, target)
    elif archive_or_dir.is_file():
        _take_archive(archive_or_dir, target)
    else:
        raise CheckpointError(f"{archive_or_dir} is neither a folder nor a file")
    _require_parts(archive_or_dir, target, model_type)
    check_weights(target / WEIGHTS)
    config = _read_config(archive_or_dir, target / CONFIG)
    encoder = _encoder_folder(archive_or_dir, _encoder_of(config), text_encoder)
    for entry in _encoder_entries(config):
        entry["model_name"] = str(encoder)
    (target / CONFIG).write_text(json.dumps(config))


def named_encoder(archive_or_dir: Path) -> str:
    """The hub's name of the text encoder that a model was trained with; raises CheckpointError."""
    if archive_or_dir.is_dir():
        return _encoder_of(_read_config(archive_or_dir, archive_or_dir / CONFIG))
    with tempfile.TemporaryDirectory(prefix="radgraph-") as name:
        _take_archive(archive_or_dir, Path(name), only=CONFIG)
        return _encoder_of(_read_config(archive_or_dir, Path(name, CONFIG)))


def _encoder_of(config: dict[str, Any]) -> str:
    """The hub's name of the text encoder, which stands at two places."""
    names = {str(entry["model_name"]) for entry in _encoder_entries(config)}
    if len(names) != 1:
        raise CheckpointError(f"{CONFIG} names several text encoders: {', '.join(sorted(names))}")
    return names.pop()


def _encoder_entries(config: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        entries = [
            config["dataset_reader"]["token_indexers"]["bert"],
            config["model"]["embedder"]["token_embedders"]["bert"],
        ]
        [entry["model_name"] for entry in entries]
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{CONFIG} does not name a text encoder where RadGraph's does") from error
    return entries


def _encoder_folder(origin: Path, name: str, text_encoder: Path | None) -> Path:
    if text_encoder is None:
        raise CheckpointError(f"{origin} reads texts with '{name}', whose configuration and tokenizer are not given")
    try:
        check_bert_folder(text_encoder)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {origin} reads texts with '{name}'") from error
    return text_encoder.resolve()


def _take_folder(folder: Path, target: Path) -> None:
    """Copy the small files and link the weights, which are only read."""
    for path in [folder / CONFIG, *sorted(folder.glob(f"{VOCABULARY}/*.txt"))]:
        if path.is_file():
            if path.stat().st_size > MAX_SMALL:
                raise CheckpointError(f"{path} has more than {MAX_SMALL} bytes")
            place = target / path.relative_to(folder)
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, place)
    if (folder / WEIGHTS).is_file():
        (target / WEIGHTS).symlink_to((folder / WEIGHTS).resolve())


def _take_archive(path: Path, target: Path, only: str | None = None) -> None:
    """Unpack the parts, or stop after the one that is asked for."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member, name in _wanted(archive, path):
                # Contents only, under names of ours: no link, mode or owner of the archive comes to life.
                if only in (None, name) and (content := archive.extractfile(member)) is not None:
                    (target / name).parent.mkdir(exist_ok=True)
                    with (target / name).open("wb") as stream:
                        shutil.copyfileobj(content, stream)
                if name == only:
                    return
    except (OSError, EOFError, tarfile.TarError) as error:
        raise CheckpointError(f"{path} cannot be unpacked ({first_line(error)})") from error


def _wanted(archive: tarfile.TarFile, path: Path) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Members that are taken, with plain names; sizes are known before anything of a member is unpacked."""
    left = MAX_WEIGHTS
    for number, member in enumerate(archive):
        left -= member.size
        if left < 0 or number >= MAX_MEMBERS:
            raise CheckpointError(f"{path} unfolds to more than {MAX_WEIGHTS} bytes or {MAX_MEMBERS} files")
        name = PurePosixPath(member.name)
        small = str(name) == CONFIG or (len(name.parts) == 2 and name.parts[0] == VOCABULARY and name.suffix == ".txt")
        if not member.isfile() or not (small or str(name) == WEIGHTS):
            continue
        if small and member.size > MAX_SMALL:
            raise CheckpointError(f"{path}: {name} has more than {MAX_SMALL} bytes")
        yield member, str(name)


def _require_parts(origin: Path, folder: Path, model_type: str) -> None:
    parts = [CONFIG, WEIGHTS, f"{VOCABULARY}/non_padded_namespaces.txt"]
    if missing := [name for name in parts if not (folder / name).is_file()]:
        raise CheckpointError(f"{origin} lacks {', '.join(missing)} at its top level")
    labels = [f"{VOCABULARY}/{model_type}__{kind}_labels.txt" for kind in ("ner", "relation")]
    if missing := [name for name in labels if not (folder / name).is_file()]:
        raise CheckpointError(f"{origin} lacks {', '.join(missing)}: it is of another model or too old")


def _read_config(origin: Path, path: Path) -> dict[str, Any]:
    return read_json_object(path, MAX_SMALL, f"{CONFIG} of {origin}")
