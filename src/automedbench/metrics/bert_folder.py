"""Configuration and tokenizer of a BERT in a folder, as hubs publish them: read as data, never as code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from automedbench.metrics.checkpoints import CheckpointError, first_line, library, read_json_object

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
        raise CheckpointError(f"{folder} names code of its own (auto_map), which is never run")
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
