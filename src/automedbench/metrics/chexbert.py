"""CheXbert: 14 chest X-ray observations of a report, and how well two reports agree on them.

Labeller: Smit et al., "CheXbert: Combining Automatic Labelers and Expert Annotations for Accurate Radiology Report
Labeling Using BERT", EMNLP 2020: a BERT base model and one linear head per observation on its first token. Only
``ChexbertLabeler`` needs torch and transformers; the agreement of labels needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from automedbench.metrics.checkpoints import (
    CheckpointError,
    check_bert_folder,
    first_line,
    library,
    load_tokenizer,
    load_weights,
    quiet_and_offline,
    without_surrogates,
)

Codes = NDArray[np.int64]

LABELS = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
    "No Finding",
)
"""The heads in their order."""
BLANK, POSITIVE, NEGATIVE, UNCERTAIN = range(4)
"""What a head answers; the last one, No Finding, knows the first two only."""
CLASSES = (4,) * 13 + (2,)
MAX_TOKENS = 512
"""Word pieces of a report, the first and last mark included; what is beyond them is not read."""
FIRST, LAST = "[CLS]", "[SEP]"
# Written by older versions of transformers; the model makes it itself.
_IGNORED = frozenset({"bert.embeddings.position_ids"})


class ChexbertAgreement(NamedTuple):
    """Observations that both reports have (tp), only the candidate (fp), only the reference (fn), and the rates."""

    tp: int
    fp: int
    fn: int
    precision: float
    recall: float
    f1: float


# --- agreement of labels ---------------------------------------------------------------------------------------


def contradicting_share(references: Codes, candidates: Codes) -> float | None:
    """Share of observations, stated as there or as absent by both reports, on which they disagree; None without any."""
    stated = np.isin(references, (POSITIVE, NEGATIVE)) & np.isin(candidates, (POSITIVE, NEGATIVE))
    return float((references != candidates)[stated].mean()) if stated.any() else None


def binary(codes: ArrayLike) -> NDArray[np.bool_]:
    """Class codes (…, 14) → is the observation there? Positive and uncertain say yes, blank and negative no.

    Zeros and ones pass unchanged. Raises ValueError for another number of observations or an unknown code.
    """
    array = np.asarray(codes)
    if array.shape[-1:] != (len(LABELS),):
        raise ValueError(f"expected {len(LABELS)} codes per report, found an array of shape {array.shape}")
    if not np.isin(array, (BLANK, POSITIVE, NEGATIVE, UNCERTAIN)).all():
        raise ValueError("codes are 0 (blank), 1 (positive), 2 (negative) and 3 (uncertain)")
    found: NDArray[np.bool_] = (array == POSITIVE) | (array == UNCERTAIN)
    return found


def report_prf(reference: ArrayLike, candidate: ArrayLike) -> ChexbertAgreement:
    """Micro precision, recall and F1 of one report over its 14 observations, from class codes (14,).

    A rate with nothing to divide by is 0, except that all three are 1 when neither report has any observation: they
    agree in everything.
    """
    tp, fp, fn = _counts(reference, candidate)
    if tp + fp + fn == 0:
        return ChexbertAgreement(0, 0, 0, 1.0, 1.0, 1.0)
    return _rates(tp, fp, fn)


def corpus_prf(references: ArrayLike, candidates: ArrayLike) -> ChexbertAgreement:
    """Micro precision, recall and F1 over all observations of all reports, from class codes (n, 14).

    The published corpus value: scikit-learn's "micro avg" with zero_division=0. A missing report is a row of blanks.
    """
    return _rates(*_counts(references, candidates))


def _counts(reference: ArrayLike, candidate: ArrayLike) -> tuple[int, int, int]:
    there, predicted = binary(reference), binary(candidate)
    if there.shape != predicted.shape:
        raise ValueError(f"codes of {there.shape} and {predicted.shape} are not of the same reports")
    return int((there & predicted).sum()), int((~there & predicted).sum()), int((there & ~predicted).sum())


def _rates(tp: int, fp: int, fn: int) -> ChexbertAgreement:
    return ChexbertAgreement(tp, fp, fn, _ratio(tp, tp + fp), _ratio(tp, tp + fn), _ratio(2 * tp, 2 * tp + fp + fn))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


# --- labeller --------------------------------------------------------------------------------------------------


class ChexbertLabeler:
    """The CheXbert model on the CPU.

    ``checkpoint`` is the published ``chexbert.pth`` (a ``torch.save`` of a dictionary with ``model_state_dict``) and
    ``bert`` a folder with the ``config.json`` and ``vocab.txt`` (or ``tokenizer.json``) of the BERT that it was
    trained from (bert-base-uncased). The weights of ``bert`` are not needed. Nothing is fetched, and nothing in the
    files is executed. Raises CheckpointError when a file is missing or they do not fit together.
    """

    def __init__(self, checkpoint: Path, bert: Path) -> None:
        config = check_bert_folder(bert)
        weights = _model_weights(checkpoint)
        _require_fit(config, weights, checkpoint, bert)
        with quiet_and_offline():
            self._tokenizer = load_tokenizer(bert)
            # The library invents marks that a vocabulary lacks; the model would know nothing of them.
            vocabulary = self._tokenizer.get_vocab(with_added_tokens=False)
            if len(vocabulary) != config["vocab_size"] or not {FIRST, LAST} <= vocabulary.keys():
                raise CheckpointError(
                    f"{bert}: the vocabulary has {len(vocabulary)} words, or lacks {FIRST} or {LAST}; config.json says "
                    f"{config['vocab_size']}"
                )
            self._first, self._last = vocabulary[FIRST], vocabulary[LAST]
            self._bert, self._heads = _build(config, weights, checkpoint, bert)

    def label(self, text: str) -> Codes:
        """Class codes (14,) of one report in the order of ``LABELS``; an empty text is a report like any other."""
        torch = library("torch")
        ids = self._ids(text)
        with torch.inference_mode():
            tokens = torch.tensor([ids])
            first = self._bert(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state[:, 0]
            codes = [int(head(first).argmax()) for head in self._heads]
        return np.array(codes, dtype=np.int64)

    def _ids(self, text: str) -> list[int]:
        pieces: list[int] = self._tokenizer.encode(
            without_surrogates(" ".join(text.split())), add_special_tokens=False
        ).ids
        return [self._first, *pieces[: MAX_TOKENS - 2], self._last]


def _model_weights(checkpoint: Path) -> dict[str, Any]:
    """Parameter → tensor, without the prefix that training on several GPUs leaves."""
    weights = load_weights(checkpoint).get("model_state_dict")
    if not isinstance(weights, Mapping) or not all(
        isinstance(name, str) and hasattr(tensor, "ndim") for name, tensor in weights.items()
    ):
        raise CheckpointError(f"{checkpoint} has no 'model_state_dict' of tensors: it is not CheXbert's file")
    return {name.removeprefix("module."): tensor for name, tensor in weights.items()}


def _require_fit(config: Mapping[str, Any], weights: Mapping[str, Any], checkpoint: Path, bert: Path) -> None:
    """The sizes of config.json against those of the tensors, before a model of that size is built."""
    words = weights.get("bert.embeddings.word_embeddings.weight")
    shape = (0, 0) if words is None or words.ndim != 2 else (int(words.shape[0]), int(words.shape[1]))
    layers = {match[1] for name in weights if (match := re.match(r"bert\.encoder\.layer\.(\d+)\.", name))}
    found = (*shape, len(layers))
    wanted = tuple(config[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers"))
    if found != wanted:
        raise CheckpointError(
            f"{bert}/config.json (words, width, layers: {wanted}) is not the BERT of {checkpoint} ({found})"
        )


def _build(config: Mapping[str, Any], weights: Mapping[str, Any], checkpoint: Path, bert: Path) -> tuple[Any, Any]:
    torch, transformers = library("torch"), library("transformers")
    try:
        model = transformers.BertModel(transformers.BertConfig(**config)).eval()
        heads = torch.nn.ModuleList([torch.nn.Linear(model.config.hidden_size, size) for size in CLASSES]).eval()
    except Exception as error:
        raise CheckpointError(f"no BERT can be built from {bert}/config.json ({first_line(error)})") from error
    if model.config.max_position_embeddings < MAX_TOKENS:
        raise CheckpointError(f"{bert}/config.json: fewer than {MAX_TOKENS} positions")
    both = torch.nn.ModuleDict({"bert": model, "linear_heads": heads})
    expected = set(both.state_dict())
    given = {name: tensor for name, tensor in weights.items() if name in expected or name not in _IGNORED}
    try:
        both.load_state_dict(given, strict=True)
    except RuntimeError as error:
        different = sorted(expected.symmetric_difference(given))
        what = f"{len(different)} too many or missing, such as {different[0]}" if different else first_line(error)
        raise CheckpointError(f"{checkpoint} does not have the parameters of {bert}/config.json: {what}") from error
    # The arg max of NaN is a label as well.
    if broken := [name for name, tensor in both.state_dict().items() if not tensor.isfinite().all()]:
        raise CheckpointError(f"{checkpoint}: {broken[0]} contains NaN or infinity")
    return model, heads
