"""CheXbert: agreement of labels by hand and by scikit-learn, and the labeller on models made here."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

from automedbench.metrics.checkpoints import CheckpointError, quiet_and_offline
from automedbench.metrics.chexbert import LABELS, ChexbertLabeler, binary, corpus_prf, report_prf


def codes(**named: int) -> list[int]:
    """A row of blanks with a few codes, by the first word of the label."""
    row = [0] * 14
    for name, code in named.items():
        row[next(place for place, label in enumerate(LABELS) if label.lower().startswith(name))] = code
    return row


NOTHING = [0] * 14


# --- agreement of labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "there"), [(0, False), (1, True), (2, False), (3, True)])
def test_binary(code: int, there: bool) -> None:
    """Positive and uncertain are there; blank and negative are not (the published rule)."""
    assert binary([code] * 14).tolist() == [there] * 14
    assert binary(np.full((2, 14), code)).shape == (2, 14)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        pytest.param([], "14 codes", id="empty"),
        pytest.param([0] * 13, "14 codes", id="thirteen"),
        pytest.param(1, "14 codes", id="number"),
        pytest.param([4] + [0] * 13, "codes are", id="unknown code"),
        pytest.param([-1] + [0] * 13, "codes are", id="negative number"),
        pytest.param([float("nan")] + [0] * 13, "codes are", id="NaN"),
    ],
)
def test_binary_refuses(array: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        binary(array)


# Expected values by hand: P = TP/(TP+FP), R = TP/(TP+FN), F1 = 2TP/(2TP+FP+FN).
@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        pytest.param(NOTHING, NOTHING, (0, 0, 0, 1, 1, 1), id="neither has any"),
        pytest.param(codes(edema=2), NOTHING, (0, 0, 0, 1, 1, 1), id="negative is blank"),
        pytest.param(codes(edema=1), NOTHING, (0, 0, 1, 0, 0, 0), id="overlooked"),
        pytest.param(NOTHING, codes(edema=3), (0, 1, 0, 0, 0, 0), id="invented"),
        pytest.param(codes(edema=1), codes(edema=3), (1, 0, 0, 1, 1, 1), id="uncertain is positive"),
        pytest.param(codes(no=1), codes(edema=1), (0, 1, 1, 0, 0, 0), id="no finding counts"),
        pytest.param(
            codes(edema=1, fracture=3, support=1),
            codes(edema=1, fracture=2, support=1, pneumonia=1, cardiomegaly=1),
            (2, 2, 1, 0.5, 2 / 3, 4 / 7),
            id="mixed",
        ),
    ],
)
def test_report_prf(reference: list[int], candidate: list[int], expected: tuple[float, ...]) -> None:
    assert report_prf(reference, candidate) == pytest.approx(expected)
    assert report_prf(binary(reference), binary(candidate)) == report_prf(reference, candidate)


def test_report_prf_needs_the_same_shape() -> None:
    with pytest.raises(ValueError, match="not of the same reports"):
        report_prf([NOTHING, NOTHING], NOTHING)


def test_corpus_counts_all_reports_together() -> None:
    """By hand: TP 1, FP 1, FN 2; and nothing at all is 0, as in scikit-learn, not 1 as for one report."""
    references = [codes(edema=1, fracture=1), codes(edema=1), NOTHING]
    candidates = [codes(edema=1), NOTHING, codes(no=1)]
    assert corpus_prf(references, candidates) == pytest.approx((1, 1, 2, 1 / 2, 1 / 3, 2 / 5))
    assert corpus_prf([NOTHING], [NOTHING]) == (0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_against_scikit_learn(seed: int) -> None:
    """The library's micro average on random codes, over the corpus and per report."""
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    references, candidates = random.choice(4, (2, 12, 14), p=[0.7, 0.1, 0.1, 0.1])

    def library(truth: Any, said: Any) -> Any:
        found = metrics.precision_recall_fscore_support(truth, said, average="micro", zero_division=0)
        return pytest.approx(found[:3], abs=1e-15)

    assert corpus_prf(references, candidates)[3:] == library(binary(references), binary(candidates))
    for reference, candidate in zip(references, candidates, strict=True):
        if (binary(reference) | binary(candidate)).any():
            assert report_prf(reference, candidate)[3:] == library(binary(reference)[None], binary(candidate)[None])


def test_pure_parts_need_no_torch() -> None:
    """Labels and graphs are compared where nothing of the models is installed."""
    code = (
        "import sys\nsys.modules.update(dict.fromkeys(['torch', 'transformers', 'radgraph']))\n"
        "from automedbench.metrics.chexbert import report_prf\n"
        "from automedbench.metrics.radgraph import reward\n"
        "print(report_prf([0] * 14, [0] * 14).f1, reward({}, {}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1.0 0.0\n"


def test_missing_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "c.pth").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="package torch cannot be imported"):
        ChexbertLabeler(tmp_path / "c.pth", tiny_models.write_bert(tmp_path / "bert"))


# --- labeller --------------------------------------------------------------------------------------------------

TEXT = "no acute left pleural effusion . heart size is normal ."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``bert/`` and ``chexbert.pth``."""
    tiny_models.require_packages("torch", "transformers")
    folder = tmp_path_factory.mktemp("chexbert")
    with quiet_and_offline():
        bert = tiny_models.write_bert(folder / "bert")
        tiny_models.write_chexbert(folder / "chexbert.pth", tiny_models.chexbert_state(bert))
    return folder


@pytest.fixture(scope="module")
def labeler(made: Path) -> ChexbertLabeler:
    return ChexbertLabeler(made / "chexbert.pth", made / "bert")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_models.refuse_network(monkeypatch)


@pytest.mark.radiology
def test_labels_are_in_range_and_repeat(labeler: ChexbertLabeler) -> None:
    found = labeler.label(TEXT)
    assert found.shape == (14,)
    assert found.max() <= 3
    assert found[-1] <= 1
    np.testing.assert_array_equal(labeler.label(TEXT), found)


@pytest.mark.radiology
@pytest.mark.parametrize(
    ("text", "same"),
    [
        pytest.param("  heart \n\t size  ", "heart size", id="white space collapses"),
        pytest.param("HEART Size", "heart size", id="case is lost"),
        pytest.param(" \n ", "", id="blank is empty"),
        pytest.param("heart " * 511, "heart " * 510, id="512 tokens are read"),
        pytest.param("heart " * 510 + "effusion " * 9000, "heart " * 510, id="a long text is cut"),
        pytest.param("\ud800 heart", "? heart", id="lone surrogate"),
    ],
)
def test_texts_that_are_the_same(labeler: ChexbertLabeler, text: str, same: str) -> None:
    np.testing.assert_array_equal(labeler.label(text), labeler.label(same))


@pytest.mark.radiology
def test_the_last_token_that_is_read_matters(labeler: ChexbertLabeler) -> None:
    """The cut is not earlier than 512: the ids differ in the place before the last mark."""
    assert labeler._ids("heart " * 509 + "size") != labeler._ids("heart " * 510)
    assert len(labeler._ids("heart " * 510)) == len(labeler._ids("heart " * 600)) == 512


@pytest.mark.radiology
@pytest.mark.parametrize("prefix", ["module.", ""], ids=["trained on several GPUs", "on one"])
def test_heads_are_read_in_their_order(made: Path, tmp_path: Path, prefix: str) -> None:
    """Heads without weights whose largest bias is known, so that the answers are."""
    answers = [0, 1, 2, 3, 3, 2, 1, 0, 2, 2, 1, 3, 0, 1]
    state = tiny_models.chexbert_state(made / "bert", answers)
    state = {name.replace("module.", prefix): tensor for name, tensor in state.items()}
    path = tiny_models.write_chexbert(tmp_path / "c.pth", state)
    assert ChexbertLabeler(path, made / "bert").label(TEXT).tolist() == answers


@pytest.mark.radiology
def test_files_of_old_torch_and_with_optimiser(made: Path, tmp_path: Path, labeler: ChexbertLabeler) -> None:
    """Not a ZIP file, and with the training's state beside the parameters."""
    import torch

    state = {"model_state_dict": tiny_models.chexbert_state(made / "bert"), "optimizer_state_dict": {"state": {0: 1}}}
    torch.save(state, tmp_path / "c.pth", _use_new_zipfile_serialization=False)
    other = ChexbertLabeler(tmp_path / "c.pth", made / "bert")
    np.testing.assert_array_equal(other.label(TEXT), labeler.label(TEXT))


@pytest.mark.radiology
def test_old_position_ids_are_ignored(made: Path, tmp_path: Path) -> None:
    import torch

    state = tiny_models.chexbert_state(made / "bert")
    state["module.bert.embeddings.position_ids"] = torch.arange(512)[None]
    ChexbertLabeler(tiny_models.write_chexbert(tmp_path / "c.pth", state), made / "bert")


@pytest.mark.radiology
def test_tokenizer_json_serves_as_well(made: Path, tmp_path: Path, labeler: ChexbertLabeler) -> None:
    """With limits of its own in the file, which are not ours."""
    from transformers import BertTokenizerFast

    with quiet_and_offline():
        tokenizer = BertTokenizerFast.from_pretrained(made / "bert", local_files_only=True)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=600)
    (tmp_path / "bert").mkdir()
    tokenizer.backend_tokenizer.save(str(tmp_path / "bert/tokenizer.json"))
    shutil.copy(made / "bert/config.json", tmp_path / "bert")
    other = ChexbertLabeler(made / "chexbert.pth", tmp_path / "bert")
    assert other._ids(TEXT * 40) == labeler._ids(TEXT * 40)


# --- unusable files --------------------------------------------------------------------------------------------


class Malicious:
    """Unpickles by creating a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def absent(folder: Path) -> None:
    (folder / "chexbert.pth").unlink()


def a_folder(folder: Path) -> None:
    absent(folder)
    (folder / "chexbert.pth").mkdir()


def content(data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / "chexbert.pth").write_bytes(data) and None


def truncated(folder: Path) -> None:
    path = folder / "chexbert.pth"
    path.write_bytes(path.read_bytes()[:5000])


def compressed(folder: Path) -> None:
    path = folder / "chexbert.pth"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def malicious(folder: Path) -> None:
    (folder / "chexbert.pth").write_bytes(pickle.dumps({"model_state_dict": Malicious(folder / "executed")}))


def malicious_zip(folder: Path) -> None:
    import torch

    torch.save({"model_state_dict": Malicious(folder / "executed")}, folder / "chexbert.pth")


def saved(value: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """The checkpoint with something else made of its parameters."""

    def change(folder: Path) -> None:
        import torch

        torch.save(value(tiny_models.chexbert_state(folder / "bert")), folder / "chexbert.pth")

    return change


def parameters(value: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], None]:
    return saved(lambda state: {"model_state_dict": value(state)})


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda state: {key: tensor for key, tensor in state.items() if key != name}


def config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "bert/config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def bert_file(name: str, text: str | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "bert" / name
        path.unlink() if text is None else path.write_text(text)

    return change


def with_nan(state: dict[str, Any]) -> dict[str, Any]:
    state["module.linear_heads.3.bias"][2] = float("nan")
    return state


UNUSABLE = [
    pytest.param(absent, "is not a file", id="absent"),
    pytest.param(a_folder, "is not a file", id="folder"),
    pytest.param(content(b""), "has 0 bytes", id="empty"),
    pytest.param(content(b"<!DOCTYPE html>"), "not contain plain weights", id="web page"),
    pytest.param(truncated, "not contain plain weights", id="truncated"),
    pytest.param(compressed, "compressed ZIP", id="compressed"),
    pytest.param(malicious, "not contain plain weights", id="code in an old pickle"),
    pytest.param(malicious_zip, "not contain plain weights", id="code in a new file"),
    pytest.param(saved(lambda state: [1]), "holds a list", id="list"),
    pytest.param(saved(lambda state: state), "model_state_dict", id="parameters at the top"),
    pytest.param(saved(lambda state: {"model_state_dict": {"a": 1}}), "of tensors", id="no tensors"),
    pytest.param(saved(lambda state: {"model_state_dict": 3}), "of tensors", id="number"),
    pytest.param(parameters(without("module.linear_heads.13.weight")), "1 too many or missing", id="head missing"),
    pytest.param(
        parameters(lambda state: state | {"module.linear_heads.0.weight": state["module.linear_heads.13.weight"]}),
        "size mismatch",
        id="head of another size",
    ),
    pytest.param(
        parameters(lambda state: state | {"module.linear_heads.0.weight": state["module.linear_heads.0.bias"][0]}),
        "size mismatch",
        id="head is a scalar",
    ),
    pytest.param(parameters(without("module.bert.pooler.dense.bias")), "1 too many or missing", id="one missing"),
    pytest.param(
        parameters(lambda state: state | {"module.linear_heads.14.bias": state["module.linear_heads.0.bias"]}),
        "1 too many or missing",
        id="one too many",
    ),
    pytest.param(parameters(with_nan), "NaN", id="NaN"),
    pytest.param(config(hidden_size=32), "is not the BERT of", id="another width"),
    pytest.param(config(num_hidden_layers=999_999), "is not the BERT of", id="a million layers"),
    pytest.param(config(vocab_size=30522), "is not the BERT of", id="another vocabulary"),
    pytest.param(config(intermediate_size=10**13), "no BERT can be built", id="gigantic"),
    pytest.param(config(max_position_embeddings=64), "fewer than 512", id="too few positions"),
    pytest.param(config(hidden_size="16"), "plausible", id="text for a number"),
    pytest.param(config(hidden_size=None), "plausible", id="null for a number"),
    pytest.param(config(model_type="gpt2"), "not a BERT", id="another model"),
    pytest.param(config(auto_map={"AutoModel": "evil.Model"}), "never executed", id="code in the configuration"),
    pytest.param(bert_file("tokenizer_config.json", '{"auto_map": {}}'), "never executed", id="code in the tokenizer"),
    pytest.param(
        bert_file("tokenizer_config.json", '{"tokenizer_class": "GPT2Tokenizer"}'), "GPT2", id="another tokenizer"
    ),
    pytest.param(bert_file("config.json", "{"), "not JSON", id="broken JSON"),
    pytest.param(bert_file("config.json", "[" * 100_000), "not JSON", id="deeply nested"),
    pytest.param(bert_file("config.json", "[]"), "not a JSON object", id="list in config.json"),
    pytest.param(bert_file("config.json", None), "cannot be read", id="no config.json"),
    pytest.param(bert_file("vocab.txt", None), "neither vocab.txt", id="no vocabulary"),
    pytest.param(bert_file("vocab.txt", "[UNK]\na\n"), "has 2 words", id="another vocabulary file"),
    pytest.param(
        bert_file("vocab.txt", "".join(f"word{number}\n" for number in range(75))), r"or lacks \[CLS\]", id="no marks"
    ),
    pytest.param(bert_file("tokenizer.json", "{}"), "cannot be read", id="broken tokenizer.json"),
]


@pytest.mark.radiology
@pytest.mark.parametrize(("change", "message"), UNUSABLE)
def test_unusable_files(made: Path, tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    """Each is named in one line, and nothing that it holds is executed."""
    folder = tmp_path / "copy"
    shutil.copytree(made, folder)
    change(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        ChexbertLabeler(folder / "chexbert.pth", folder / "bert")
    assert "\n" not in str(caught.value)
    assert not (folder / "executed").exists()
