"""Models for rehearsals: WordNet, CheXbert and RadGraph in the files of the published ones, of few random weights."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from automedbench.metrics.checkpoints import library, quiet_and_offline

WORDS = "no acute left right small pleural effusion pneumothorax heart size is normal lungs are clear opacity"
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CLASSES = [4] * 13 + [2]


def write_models(folder: Path) -> None:
    """Every resource of report metrics under its name; those that need torch only where it is installed."""
    write_wordnet(folder / "wordnet")
    if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "radgraph")):
        return
    with quiet_and_offline():
        bert = write_bert(folder / "bert")
        write_chexbert(folder / "chexbert", chexbert_state(bert))
        write_radgraph(folder / "radgraph", write_bert(folder / "radgraph_bert"))


def write_wordnet(folder: Path) -> Path:
    """A WordNet of one noun, verb, adjective and adverb, each a synset of its own."""
    folder.mkdir(parents=True)
    for part, letter, word in (
        ("noun", "n", "effusion"),
        ("verb", "v", "see"),
        ("adj", "a", "left"),
        ("adv", "r", "so"),
    ):
        (folder / f"data.{part}").write_text(f"00000000 00 {letter} 01 {word} 0 000 | invented\n")
        (folder / f"index.{part}").write_text(f"{word} {letter} 1 0 1 0 00000000  \n")
        (folder / f"{part}.exc").write_text("")
    return folder


def write_bert(folder: Path, **changes: Any) -> Path:
    """``config.json`` and ``vocab.txt`` of a BERT of width 16; ``changes`` are entries of the configuration."""
    folder.mkdir(parents=True)
    words = [
        *MARKS,
        *WORDS.split(),
        *"abcdefghijklmnopqrstuvwxyz.,",
        *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
    ]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    config = {
        "model_type": "bert",
        "vocab_size": len(words),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 512,
        "initializer_range": 0.5,
    }
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def chexbert_state(bert: Path, answers: list[int] | None = None) -> dict[str, Any]:
    """Parameters under their published names; with ``answers``, the heads always answer these classes."""
    torch, transformers = library("torch"), library("transformers")
    torch.manual_seed(7)
    model = transformers.BertModel(transformers.BertConfig(**_config(bert)))
    state = {f"module.bert.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, size in enumerate(CLASSES):
        head = torch.nn.Linear(16, size).state_dict()
        if answers is not None:
            head = {"weight": torch.zeros(size, 16), "bias": torch.eye(size)[answers[number]]}
        state |= {f"module.linear_heads.{number}.{name}": tensor for name, tensor in head.items()}
    return state


def write_chexbert(path: Path, state: dict[str, Any]) -> Path:
    """The checkpoint file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    library("torch").save({"epoch": 3, "model_state_dict": state}, path)
    return path


def write_radgraph(folder: Path, bert: Path, *, hub_name: str = "example/ExampleBERT") -> Path:
    """A RadGraph folder whose configuration names the text encoder ``hub_name``; ``bert`` gives its size."""
    torch, allennlp, dygie = library("torch"), "radgraph.allennlp.modules", library("radgraph.dygie.models.dygie")
    embedders, of_tokens = library(f"{allennlp}.text_field_embedders"), library(f"{allennlp}.token_embedders")
    vocabulary = folder / "vocabulary"
    vocabulary.mkdir(parents=True)
    (vocabulary / "non_padded_namespaces.txt").write_text("*tags\n*labels\n")
    (vocabulary / "radgraph__ner_labels.txt").write_text("\nANAT-DP\nOBS-DP\nOBS-U\nOBS-DA\n")
    (vocabulary / "radgraph__relation_labels.txt").write_text("modify\nlocated_at\nsuggestive_of\n")
    weights = {"trigger": 1.0, "arguments": 1.0}
    settings = {
        "feature_size": 4,
        "max_span_width": 3,
        "target_task": "ner",
        "feedforward_params": {"num_layers": 1, "hidden_dims": 8, "dropout": 0.0},
        "loss_weights": {"ner": 1.0, "relation": 1.0, "coref": 0.0, "events": 0.0},
        "modules": {
            "ner": {},
            "relation": {"spans_per_word": 0.5},
            "coref": {"spans_per_word": 0.3, "max_antecedents": 5},
            "events": {"trigger_spans_per_word": 0.3, "argument_spans_per_word": 0.3, "loss_weights": weights},
        },
    }
    encoder = {"type": "pretrained_transformer_mismatched", "model_name": hub_name, "max_length": 512}
    config = {
        "dataset_reader": {"max_span_width": 3, "token_indexers": {"bert": encoder}},
        "model": settings
        | {
            "type": "dygie",
            "embedder": {"token_embedders": {"bert": encoder}},
            "initializer": {},
            "module_initializer": {},
        },
        "vocabulary": {},
    }
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(7)
    embedder = of_tokens.PretrainedTransformerMismatchedEmbedder(model_name=str(bert), max_length=512)
    model = dygie.DyGIE(
        vocab=library("radgraph.allennlp.data").Vocabulary.from_files(str(vocabulary)),
        embedder=embedders.BasicTextFieldEmbedder({"bert": embedder}),
        **library("dotmap").DotMap(settings),
    )
    torch.save(model.state_dict(), folder / "weights.th")
    (vocabulary / ".lock").unlink(missing_ok=True)
    return folder


def _config(bert: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((bert / "config.json").read_text())
    return config
