"""Model files on disk: read as data only, without network, without noise.

A checkpoint is a third party's file. It is loaded with torch's restricted unpickler, which builds tensors and plain
containers and calls nothing else, after its size was looked at.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MAX_WEIGHTS = 4 * 1024**3
"""Bytes of a weights file; ten times that of a BERT base model, so that optimiser states may be in it."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


class CheckpointError(ValueError):
    """A model file or the package that reads it is missing or cannot be used; the message is one line."""


@contextlib.contextmanager
def quiet_and_offline() -> Iterator[None]:
    """Libraries in this block print nothing, warn of nothing and ask no hub.

    They read the variables when they are first imported, so import them inside.
    """
    before = {name: os.environ.get(name) for name in _OFFLINE}
    os.environ.update(_OFFLINE)
    hub: Any = sys.modules.get("huggingface_hub.constants")
    online = getattr(hub, "HF_HUB_OFFLINE", None)
    if hub is not None:
        hub.HF_HUB_OFFLINE = True
    try:
        # radgraph changes the filters while it is imported: catch_warnings puts them back.
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        if hub is not None:
            hub.HF_HUB_OFFLINE = online
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def library(name: str) -> Any:
    """An optional package, imported when it is needed; raises CheckpointError when it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CheckpointError(f"the Python package {name} cannot be imported ({first_line(error)})") from error


def read_json_object(path: Path, max_bytes: int, name: str = "") -> dict[str, Any]:
    """A JSON object that belongs to a checkpoint; raises CheckpointError when it is none or too large.

    ``name`` stands for the path in messages, where that would tell a user nothing.
    """
    name = name or str(path)
    try:
        if path.stat().st_size > max_bytes:
            raise CheckpointError(f"{name} has more than {max_bytes} bytes")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read ({error.strerror})") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{name} is not JSON") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{name} is not a JSON object")
    return found


def check_weights(path: Path) -> None:
    """Size and form of a weights file; raises CheckpointError before anything of it is loaded.

    torch writes ZIP files without compression, so a compressed one is not torch's and may unfold to any size.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is not a file")
    size = path.stat().st_size
    if not 0 < size <= MAX_WEIGHTS:
        raise CheckpointError(f"{path} has {size} bytes; a weights file has 1 to {MAX_WEIGHTS}")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise CheckpointError(f"{path} is a compressed ZIP file, not a file that torch wrote")


def load_weights(path: Path) -> Mapping[str, Any]:
    """The dictionary that ``torch.save`` wrote, tensors on the CPU; raises CheckpointError.

    Only tensors and plain containers are accepted (``weights_only``): nothing that the file names is executed.
    """
    check_weights(path)
    with quiet_and_offline():
        torch = library("torch")
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        except Exception as error:
            # Faults of a file that torch reads surface as one of a dozen types.
            raise CheckpointError(f"{path} does not contain plain weights ({first_line(error)})") from error
    if not isinstance(loaded, dict):
        raise CheckpointError(f"{path} holds a {type(loaded).__name__}, not a dictionary of weights")
    return loaded


def first_line(error: Exception, limit: int = 160) -> str:
    """Message of an exception, short enough for one line."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text if len(text) <= limit else text[: limit - 1] + '…'}"


def without_surrogates(text: str) -> str:
    """The text with ``?`` for lone surrogates, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()


MAX_FILE = 16 * 1024**2
"""Bytes of one of the folder's files; the vocabulary of bert-base-uncased has 0.2 MB."""
TOKENIZERS = ("vocab.txt", "tokenizer.json")
"""Files of which one is enough."""
_CLASSES = (None, "BertTokenizer", "BertTokenizerFast")


def check_bert_folder(folder: Path) -> dict[str, Any]:
    """The folder's ``config.json``; raises CheckpointError unless the folder is that of a plain BERT.

    A folder may name Python code of its own (``auto_map``), which transformers offers to run: such a one is refused.
    """
    config = read_json_object(folder / "config.json", MAX_FILE)
    if config.get("model_type", "bert") != "bert":
        raise CheckpointError(f"{folder}/config.json describes a {config['model_type']}, not a BERT")
    sizes = {name: config.get(name) for name in ("hidden_size", "num_hidden_layers", "vocab_size")}
    if wrong := [name for name, size in sizes.items() if not (isinstance(size, int) and 0 < size < 10**6)]:
        raise CheckpointError(f"{folder}/config.json: {', '.join(wrong)} is not a plausible number")
    present = [folder / name for name in TOKENIZERS if (folder / name).is_file()]
    if not present:
        raise CheckpointError(f"{folder} has neither {' nor '.join(TOKENIZERS)}")
    for path in present:
        if path.stat().st_size > MAX_FILE:
            raise CheckpointError(f"{path} has more than {MAX_FILE} bytes")
    settings = folder / "tokenizer_config.json"
    tokenizer = read_json_object(settings, MAX_FILE) if settings.exists() else {}
    if tokenizer.get("tokenizer_class") not in _CLASSES:
        raise CheckpointError(f"{settings} asks for {tokenizer['tokenizer_class']}, not for BERT's tokenizer")
    if "auto_map" in config or "auto_map" in tokenizer:
        raise CheckpointError(f"{folder} refers to custom code (auto_map), which is never executed")
    return config


def load_tokenizer(folder: Path) -> Any:
    """The lower-casing WordPiece tokenizer (``tokenizers.Tokenizer``) of a checked folder, without a limit of length.

    Raises CheckpointError.
    """
    transformers = library("transformers")
    try:
        wrapped = transformers.BertTokenizerFast.from_pretrained(str(folder), do_lower_case=True, local_files_only=True)
    except Exception as error:
        # The Rust tokenizers raise bare Exception.
        raise CheckpointError(f"the tokenizer in {folder} cannot be read ({first_line(error)})") from error
    tokenizer = wrapped.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
