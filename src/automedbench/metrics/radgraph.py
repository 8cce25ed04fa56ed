"""RadGraph: the entities and relations of a chest X-ray report, and the F1 of two such graphs.

Graphs: Jain et al., "RadGraph: Extracting Clinical Entities and Relations from Radiology Reports", NeurIPS 2021.
Rewards: Delbrouck et al., "Improving the Factual Correctness of Radiology Report Generation with Semantic Rewards",
Findings of EMNLP 2022. ``RadgraphScorer`` runs the model of the Python package ``radgraph``; ``reward`` is our own and
needs no package.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from automedbench.metrics.checkpoints import (
    MAX_WEIGHTS,
    CheckpointError,
    check_bert_folder,
    check_weights,
    first_line,
    library,
    quiet_and_offline,
    read_json_object,
    without_surrogates,
)

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
    config = read_json_object(target / CONFIG, MAX_SMALL, f"{CONFIG} of {archive_or_dir}")
    encoder = _encoder_folder(archive_or_dir, _encoder_name(config), text_encoder)
    for entry in _encoder_entries(config):
        entry["model_name"] = str(encoder)
    (target / CONFIG).write_text(json.dumps(config))


def _encoder_name(config: dict[str, Any]) -> str:
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


def _take_archive(path: Path, target: Path) -> None:
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member, name in _wanted(archive, path):
                # Contents only, under names of ours: no link, mode or owner of the archive comes to life.
                if (content := archive.extractfile(member)) is not None:
                    (target / name).parent.mkdir(exist_ok=True)
                    with (target / name).open("wb") as stream:
                        shutil.copyfileobj(content, stream)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise CheckpointError(f"{path} cannot be unpacked ({first_line(error)})") from error


def _wanted(archive: tarfile.TarFile, path: Path) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Members that are taken, with plain names; sizes are known before anything of a member is unpacked."""
    left = MAX_WEIGHTS
    for number, member in enumerate(archive):
        left -= member.size
        if left < 0 or number >= MAX_MEMBERS:
            raise CheckpointError(f"{path} unpacks to more than {MAX_WEIGHTS} bytes or {MAX_MEMBERS} files")
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
        raise CheckpointError(f"{origin} lacks {', '.join(missing)}: it belongs to another model or is too old")


MODEL_TYPE = "radgraph"
"""The package's name of the first published model, the one of the published scores."""
MAX_WORDS = 384
"""Words of a report that are read: the model's memory grows with their square, 1.5 GiB for these."""
MAX_WORD_CHARS = 100
"""Characters of a word that are read, as many as WordPiece looks at; memory grows with the longest word, too."""


Entities = Mapping[str, Mapping[str, Any]]
"""Entities of a report by number, as the package and the data set give them: ``tokens``, ``label``, ``relations``."""


def reward(reference: Entities, candidate: Entities) -> float:
    """F1 of two graphs as sets (the package's level ``partial``); 0 when one of them is empty, even if both are.

    Entities are equal when their words and label are, and when both or neither has a relation.
    """
    wanted, found = (
        {(entity["tokens"], entity["label"], bool(entity["relations"])) for entity in entities.values()}
        for entities in (reference, candidate)
    )
    if not wanted or not found:
        return 0.0
    return 2 * len(wanted & found) / (len(wanted) + len(found))


# --- model -----------------------------------------------------------------------------------------------------


class RadgraphScorer:
    """The RadGraph model of the package ``radgraph`` on the CPU.

    ``archive_or_dir`` is the published ``radgraph.tar.gz`` or a folder with its contents (``config.json``,
    ``vocabulary/``, ``weights.th``). ``text_encoder`` is a folder with configuration and tokenizer of the BERT that
    its ``config.json`` names; without it the error says which one that is. The package writes beside the weights,
    therefore everything is first put into a temporary folder. Nothing is fetched, and nothing in the files is
    executed. Raises CheckpointError when a file is missing or cannot be used.
    """

    def __init__(self, archive_or_dir: Path, text_encoder: Path | None = None) -> None:
        with tempfile.TemporaryDirectory(prefix="radgraph-") as name:
            unpack(archive_or_dir, Path(name, MODEL_TYPE), MODEL_TYPE, text_encoder)
            with quiet_and_offline():
                package = library("radgraph")
                try:
                    self._model = package.RadGraph(model_type=MODEL_TYPE, model_cache_dir=name, cuda=-1)
                except Exception as error:
                    # The vendored AllenNLP raises what it likes, KeyError and AssertionError included.
                    raise CheckpointError(f"{archive_or_dir} cannot be loaded ({first_line(error)})") from error

    def annotate(self, text: str) -> Entities:
        """Entities and relations of one report, of which MAX_WORDS words are read; a blank one has none."""
        if not text.strip():
            return {}
        # The package forgets inference_mode and would keep what training needs.
        with quiet_and_offline(), library("torch").inference_mode():
            found = self._model([_bounded(without_surrogates(text))])
        if "0" not in found:
            raise RuntimeError("the package radgraph returned no annotation; it prints the cause only to its output")
        entities: Entities = found["0"]["entities"]
        return entities


def _bounded(text: str) -> str:
    """The text itself, or its first words, split as the package splits them, where it is too long."""
    words: list[str] = library("radgraph.utils").preprocess_reports([text], MODEL_TYPE)[0]["sentences"][0]
    if len(words) <= MAX_WORDS and max(map(len, words)) <= MAX_WORD_CHARS:
        return text
    return " ".join(word[:MAX_WORD_CHARS] for word in words[:MAX_WORDS])
