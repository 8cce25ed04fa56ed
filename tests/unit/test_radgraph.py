"""RadGraph: rewards by hand and by the package, and the scorer on models made here."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models

from automedbench.metrics import radgraph
from automedbench.metrics.checkpoints import CheckpointError, quiet_and_offline
from automedbench.metrics.radgraph import Entities, RadgraphScorer, reward

# --- reward ----------------------------------------------------------------------------------------------------


def graph(*entities: tuple[Any, ...]) -> Entities:
    """Entities as (tokens, label, relation, …), each relation as (type, number of the other)."""
    rows = ({"tokens": tokens, "label": label, "relations": relations} for tokens, label, *relations in entities)
    return {str(number): row for number, row in enumerate(rows, start=1)}


PLAIN = graph(("effusion", "OBS-DP"), ("left", "ANAT-DP"))
AT = graph(("effusion", "OBS-DP", ("located_at", 1)), ("left", "ANAT-DP"))
MODIFIES = graph(("effusion", "OBS-DP", ("modify", 1)), ("left", "ANAT-DP"))
UPPER = graph(("Effusion", "OBS-DP", ("located_at", 1)), ("left", "ANAT-DP"))
TWICE = graph(("effusion", "OBS-DP", ("located_at", 1), ("located_at", 1)), ("left", "ANAT-DP"))
MORE = graph(("effusion", "OBS-DP", ("located_at", 1), ("modify", 1)), ("left", "ANAT-DP"))
ABSENT = graph(("effusion", "OBS-DA"), ("left", "ANAT-DP"))


# By hand: F1 of sets is 2·common / (one + other).
@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        pytest.param({}, {}, 0, id="both empty"),
        pytest.param(PLAIN, {}, 0, id="empty candidate"),
        pytest.param({}, PLAIN, 0, id="empty reference"),
        pytest.param(AT, AT, 1, id="equal"),
        pytest.param(AT, PLAIN, 1 / 2, id="relation overlooked"),
        pytest.param(AT, MODIFIES, 1, id="another relation"),
        pytest.param(AT, UPPER, 1 / 2, id="case matters"),
        pytest.param(AT, TWICE, 1, id="a repeated relation is one"),
        pytest.param(AT, MORE, 1, id="one more relation"),
        pytest.param(PLAIN, ABSENT, 1 / 2, id="absent is not present"),
        pytest.param(PLAIN, graph(("heart", "ANAT-DP")), 0, id="nothing common"),
    ],
)
def test_reward(reference: Entities, candidate: Entities, expected: float) -> None:
    for one, other in ((reference, candidate), (candidate, reference)):
        assert reward(one, other) == pytest.approx(expected)


def random_annotation(random: np.random.Generator) -> dict[str, Any]:
    """Up to eight entities of few words, so that many are equal, with random relations."""
    number = int(random.integers(0, 9))
    entities = {}
    for key in range(number):
        relations = [
            [str(random.choice(["modify", "located_at"])), str(random.integers(number))]
            for _ in range(random.integers(0, 3))
        ]
        entities[str(key)] = {
            "tokens": str(random.choice(["left", "Left", "effusion", "small"])),
            "label": str(random.choice(["OBS-DP", "ANAT-DP"])),
            "start_ix": key,
            "end_ix": key,
            "relations": relations,
        }
    return {"entities": entities}


@pytest.mark.radiology
def test_against_the_package() -> None:
    """The package's own rewards on 300 random pairs."""
    tiny_models.require_packages("torch", "transformers", "radgraph")
    with quiet_and_offline():
        from radgraph.rewards import compute_reward
    random = np.random.default_rng(5)
    for _ in range(300):
        reference, candidate = random_annotation(random), random_annotation(random)
        expected = compute_reward(candidate, reference, "partial")
        assert reward(reference["entities"], candidate["entities"]) == pytest.approx(expected, abs=1e-12)


# --- scorer ----------------------------------------------------------------------------------------------------

TEXT = "no acute left pleural effusion . heart size is normal ."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``bert/``, ``radgraph/`` and ``radgraph.tar.gz``; and ``chexbert.pth``."""
    tiny_models.require_packages("torch", "transformers", "radgraph")
    folder = tmp_path_factory.mktemp("radgraph")
    with quiet_and_offline():
        bert = tiny_models.write_bert(folder / "bert")
        tiny_models.write_chexbert(folder / "chexbert.pth", tiny_models.chexbert_state(bert))
        tiny_models.pack(tiny_models.write_radgraph(folder / "radgraph", bert), folder / "radgraph.tar.gz")
    return folder


@pytest.fixture(scope="module")
def scorer(made: Path) -> RadgraphScorer:
    return RadgraphScorer(made / "radgraph.tar.gz", made / "bert")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_models.refuse_network(monkeypatch)


def test_the_network_is_refused() -> None:
    """The control of the fixture above."""
    with pytest.raises(AssertionError, match="wanted to use the network"):
        socket.create_connection(("localhost", 9))
    with pytest.raises(AssertionError, match="wanted to use the network"):
        socket.socket()


@pytest.mark.radiology
def test_entities_are_words_of_the_text(scorer: RadgraphScorer) -> None:
    found = scorer.annotate(TEXT)
    assert found
    assert found == scorer.annotate(TEXT)
    assert all(each["tokens"] in TEXT for each in found.values())
    assert {each["label"] for each in found.values()} <= {"ANAT-DP", "OBS-DP", "OBS-U", "OBS-DA"}


@pytest.mark.radiology
@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u2003"], ids=["empty", "blank", "lines", "wide blank"])
def test_blank_texts_have_nothing(scorer: RadgraphScorer, text: str) -> None:
    """The package itself reads an empty text as the word None, and a blank one makes it fail."""
    assert scorer.annotate(text) == {}


@pytest.mark.radiology
@pytest.mark.parametrize(
    ("text", "same"),
    [
        pytest.param("left\neffusion", "left effusion", id="line break"),
        pytest.param("effusion,left.", "effusion , left .", id="punctuation"),
        pytest.param("heart " * 5000, "heart " * radgraph.MAX_WORDS, id="too many words"),
        pytest.param("left " + "*" * 8000, "left " + "*" * radgraph.MAX_WORD_CHARS, id="too long a word"),
        pytest.param("\ud800 left", "? left", id="lone surrogate"),
    ],
)
def test_texts_that_are_the_same(scorer: RadgraphScorer, text: str, same: str) -> None:
    assert scorer.annotate(text) == scorer.annotate(same)


@pytest.mark.radiology
@pytest.mark.parametrize(
    "text",
    ["\u200b", "\x00", "[SEP] [CLS] [PAD]", "None", "@@UNKNOWN@@", "\U0001f469\u200d\U0001f469", "a\u0301" * 50, "..."],
    ids=ascii,
)
def test_odd_texts_are_annotated(scorer: RadgraphScorer, text: str) -> None:
    """Nothing that an agent writes stops the scorer."""
    assert isinstance(scorer.annotate(text), dict)


@pytest.mark.radiology
def test_folder_and_archives_are_the_same_model(made: Path, tmp_path: Path, scorer: RadgraphScorer) -> None:
    """An unpacked model, one packed with ``./``, and one with foreign files, which are left alone."""
    folder = shutil.copytree(made / "radgraph", tmp_path / "copy")
    (folder / "vocabulary/notes.md").write_text("not a vocabulary")
    (folder / "model_state_epoch_1.th").write_bytes(b"not weights")
    before = sorted(path.name for path in folder.rglob("*"))
    for place in (folder, tiny_models.pack(folder, tmp_path / "dotted.tar.gz", prefix="./")):
        assert RadgraphScorer(place, made / "bert").annotate(TEXT) == scorer.annotate(TEXT)
    assert sorted(path.name for path in folder.rglob("*")) == before, "the user's folder was written to"


@pytest.mark.radiology
def test_nothing_is_printed_changed_or_left_behind(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The package prints, changes the filters of warnings and writes beside its model."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment, filters = dict(os.environ), list(warnings.filters)
    RadgraphScorer(made / "radgraph.tar.gz", made / "bert").annotate(TEXT)
    assert capfd.readouterr() == ("", "")
    assert (dict(os.environ), list(warnings.filters)) == (environment, filters)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.radiology
def test_both_models_work_where_sockets_cannot_be_made(made: Path, scorer: RadgraphScorer, tmp_path: Path) -> None:
    """In a new process, so that the libraries are imported without network too; warnings are errors there."""
    done = subprocess.run(
        [sys.executable, "-W", "error", tiny_models.__file__, str(made)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert len(found["codes"]) == 14
    assert found["tokens"] == [each["tokens"] for each in scorer.annotate("heart size is normal").values()]
    assert list(tmp_path.iterdir()) == [], "a cache was written"


# --- unusable files --------------------------------------------------------------------------------------------


def change_config(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Path]:
    def apply(folder: Path) -> Path:
        path = folder / "radgraph/config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))
        return folder / "radgraph"

    return apply


def remove(name: str) -> Callable[[Path], Path]:
    def apply(folder: Path) -> Path:
        (folder / "radgraph" / name).unlink()
        return folder / "radgraph"

    return apply


def write(name: str, data: bytes) -> Callable[[Path], Path]:
    def apply(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / "radgraph"

    return apply


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> Callable[[Path], Path]:
    """The model with further members before it."""

    def apply(folder: Path) -> Path:
        path = folder / "other.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for member, data in members:
                tar.addfile(member, io.BytesIO(data))
            for each in sorted((folder / "radgraph").iterdir()):
                tar.add(each, arcname=each.name)
        return path

    return apply


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def old_vocabulary(folder: Path) -> Path:
    for path in (folder / "radgraph/vocabulary").glob("radgraph__*"):
        path.rename(path.with_name(path.name.replace("radgraph__", "None__")))
    return folder / "radgraph"


def nested(folder: Path) -> Path:
    (folder / "outer").mkdir()
    (folder / "radgraph").rename(folder / "outer/radgraph")
    return tiny_models.pack(folder / "outer", folder / "nested.tar.gz")


def truncated(folder: Path) -> Path:
    path = tiny_models.pack(folder / "radgraph", folder / "whole.tar.gz")
    path.write_bytes(path.read_bytes()[:-2000])
    return path


def other_encoder(folder: Path) -> Path:
    shutil.rmtree(folder / "bert")
    tiny_models.write_bert(folder / "bert", hidden_size=8)
    return folder / "radgraph"


def entry(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config["dataset_reader"]["token_indexers"]["bert"]
    return found


UNUSABLE = [
    pytest.param(lambda folder: folder / "absent", "neither a folder nor a file", id="absent"),
    pytest.param(lambda folder: folder / "bert/vocab.txt", "cannot be unpacked", id="not an archive"),
    pytest.param(truncated, "cannot be unpacked", id="truncated"),
    pytest.param(nested, "lacks config.json, weights.th", id="one folder too deep"),
    pytest.param(remove("config.json"), "lacks config.json", id="no config.json"),
    pytest.param(remove("weights.th"), "lacks weights.th", id="no weights"),
    pytest.param(old_vocabulary, "radgraph__ner_labels.txt.*another model or is too old", id="old vocabulary"),
    pytest.param(write("radgraph/weights.th", b""), "has 0 bytes", id="empty weights"),
    pytest.param(write("radgraph/weights.th", b"\x80\x02cposix\nsystem\n(X\x04\0\0\0trueR."), "be loaded", id="code"),
    pytest.param(write("radgraph/config.json", b"{"), "not JSON", id="broken config.json"),
    pytest.param(write("radgraph/config.json", b"[" * 1900), "not JSON", id="deeply nested"),
    pytest.param(write("radgraph/config.json", b"[]"), "not a JSON object", id="list in config.json"),
    pytest.param(change_config(lambda config: config.pop("dataset_reader")), "does not name", id="no reader"),
    pytest.param(change_config(lambda config: config.update(model=3)), "does not name", id="number for the model"),
    pytest.param(change_config(lambda config: entry(config).update(model_name="x")), "several", id="two encoders"),
    pytest.param(change_config(lambda config: config["model"].pop("modules")), "cannot be loaded", id="no modules"),
    pytest.param(change_config(lambda config: config["model"].update(feature_size=5)), "be loaded", id="other sizes"),
    pytest.param(other_encoder, "cannot be loaded", id="other encoder"),
    pytest.param(write("bert/config.json", b"{"), "not JSON", id="broken encoder"),
    pytest.param(write("bert/tokenizer_config.json", b'{"auto_map": {}}'), "never executed", id="code of the encoder"),
    pytest.param(
        archive(member("weights.th", type=tarfile.SYMTYPE, linkname="/etc/passwd")), None, id="link is not taken"
    ),
    pytest.param(archive(member("../escaped.txt", b"x")), None, id="path outside is not taken"),
    pytest.param(archive(member("vocabulary/../../escaped.txt", b"x")), None, id="winding path is not taken"),
    pytest.param(archive(member("vocabulary/../../vocabulary/x.txt", b"x")), None, id="other winding path"),
    pytest.param(archive(member("/config.json", b"{")), None, id="absolute path is not taken"),
    pytest.param(archive(member("vocabulary/big.txt", b"x" * 3000)), "more than 2000 bytes", id="large vocabulary"),
    pytest.param(archive(member("padding", b"x" * 300_000)), "unpacks to more", id="unfolds to too much"),
    pytest.param(archive(*(member(f"f{number}") for number in range(60))), "unpacks to more", id="too many files"),
]


@pytest.mark.radiology
@pytest.mark.parametrize(("change", "message"), UNUSABLE)
def test_unusable_files(
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], Path],
    message: str | None,
) -> None:
    """Each is named in one line, nothing is executed, and nothing lands outside; None: the model works all the same."""
    for name, limit in (("MAX_SMALL", 2000), ("MAX_WEIGHTS", 200_000), ("MAX_MEMBERS", 50)):
        monkeypatch.setattr(radgraph, name, limit)
    folder = shutil.copytree(made, tmp_path / "copy")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    place = change(folder)
    before = sorted(tmp_path.rglob("*"))
    if message is None:
        assert RadgraphScorer(place, folder / "bert").annotate(TEXT)
    else:
        with pytest.raises(CheckpointError, match=message) as caught:
            RadgraphScorer(place, folder / "bert")
        assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.radiology
def test_the_text_encoder_must_be_given(made: Path) -> None:
    with pytest.raises(CheckpointError, match="reads texts with 'example/ExampleBERT'"):
        RadgraphScorer(made / "radgraph.tar.gz")
