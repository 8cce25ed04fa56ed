"""Task cards: what is refused, with every problem at once, and what a card promises."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from automedbench.base.cards import OutputFile, TaskCard, find_cards, load_card
from automedbench.base.errors import ConfigError

CARD = Path(__file__).resolve().parents[2] / "config/tasks/detection/bccd-det-task.yaml"
DATA: dict[str, Any] = yaml.safe_load(CARD.read_text())
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def card_file(tmp_path: Path) -> Path:
    return tmp_path / "bccd-det-task.yaml"


def problems_of(path: Path) -> list[str]:
    """Problems of a card without the path, each checked to begin with it."""
    with pytest.raises(ConfigError) as caught:
        load_card(path)
    assert all(problem.startswith(f"{path}:") for problem in caught.value.problems)
    assert "\n" not in "".join(caught.value.problems)
    return [problem.removeprefix(f"{path}:").strip() for problem in caught.value.problems]


def write(path: Path, *changes: Change) -> Path:
    """The shipped card with changes."""
    data = copy.deepcopy(DATA)
    for change in changes:
        change(data)
    path.write_text(yaml.safe_dump(data))
    return path


def setting(*keys: str | int, to: Any) -> Change:
    """Set one value at a path of keys."""

    def change(data: dict[str, Any]) -> None:
        *parents, last = keys
        place: Any = data
        for key in parents:
            place = place[key]
        place[last] = to

    return change


def without(key: str) -> Change:
    return lambda data: data.pop(key)


# --- nothing there --------------------------------------------------------------------------------------------


def test_no_file(card_file: Path) -> None:
    assert problems_of(card_file) == ["file does not exist"]


def test_no_folder(tmp_path: Path) -> None:
    """Folders without cards have none; the campaign says that a folder is missing."""
    assert find_cards([str(tmp_path / "nowhere"), str(tmp_path)]) == []


def test_empty_file(card_file: Path) -> None:
    card_file.write_text("")
    (problem,) = problems_of(card_file)
    assert problem.startswith("is empty: it takes lines `key: value`")


def test_nothing_but_a_list(card_file: Path) -> None:
    card_file.write_text("- id: x\n")
    (problem,) = problems_of(card_file)
    assert problem.startswith("takes lines `key: value`") and problem.endswith("(got [{'id': 'x'}])")


# --- what is refused ------------------------------------------------------------------------------------------


def test_shipped_card_is_accepted(card_file: Path) -> None:
    """The control of every test below."""
    assert load_card(write(card_file)).id == "bccd-det-task"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(without("metric"), "metric: is required", id="key missing"),
        pytest.param(setting("metrc", to={}), "metrc: unknown key (did you mean 'metric'?)", id="misspelt"),
        pytest.param(setting("zzz", to=1), "zzz: unknown key", id="nothing near: no suggestion"),
        pytest.param(
            setting("dataset", "acess", to="public"),
            "dataset.acess: unknown key (did you mean 'access'?)",
            id="misspelt inside",
        ),
        pytest.param(
            setting("outputs", 0, "max_byte", to=3),
            "outputs.0.max_byte: unknown key (did you mean 'max_bytes'?)",
            id="misspelt in a list",
        ),
        pytest.param(
            setting("limits", "max_turn", to=3),
            "limits.max_turn: unknown key (did you mean 'max_turns'?)",
            id="misspelt limit",
        ),
        pytest.param(setting("version", to=0), "version: input should be greater than or equal to 1 (got 0)", id="v0"),
        pytest.param(setting("tiers", to=[]), "tiers: list should have at least 1 item", id="no tier"),
        pytest.param(setting("track", to="Blood cells"), "track: string should match pattern", id="track"),
        pytest.param(
            setting("outputs", 0, "path", to="/etc/passwd"),
            "outputs.0.path: must be a relative path without '..'",
            id="absolute",
        ),
        pytest.param(
            setting("outputs", 0, "path", to="{case}/../x.json"),
            "outputs.0.path: must be a relative path without '..'",
            id="upwards",
        ),
        pytest.param(setting("inputs", 0, "file", to=""), "inputs.0.file: must be a relative path", id="empty path"),
        pytest.param(setting("inputs", to=[]), "inputs: list should have at least 1 item", id="no input"),
        pytest.param(
            setting("targets", to=[{"id": 0, "name": "RBC"}, {"id": 1, "name": " rbc "}]),
            "targets: two targets have the same name",
            id="names that differ in case only",
        ),
        pytest.param(
            setting("outputs", to=[DATA["outputs"][0]] * 2), "outputs: two outputs have the same", id="output twice"
        ),
        pytest.param(setting("id", to="Upper"), "id: string should match pattern", id="id pattern"),
        pytest.param(setting("id", to="other-task"), "id: is 'other-task', but the file is named", id="file name"),
        pytest.param(setting("medals", 0, "at_least", to={}), "medals.0.at_least: ", id="medal without threshold"),
    ],
)
def test_refused(card_file: Path, change: Change, expected: str) -> None:
    (problem,) = problems_of(write(card_file, change))
    assert problem.startswith(expected)


def test_three_errors_are_three_lines(card_file: Path) -> None:
    """All at once, each with file, key and message."""
    wrong = [setting("version", to="one"), setting("titel", to="x"), setting("dataset", "access", to="open")]
    found = problems_of(write(card_file, *wrong))
    assert len(found) == 3
    assert {problem.partition(":")[0] for problem in found} == {"version", "titel", "dataset.access"}


def test_key_written_twice(card_file: Path) -> None:
    """YAML itself would keep the last one without a word."""
    text = write(card_file).read_text()
    card_file.write_text(text + "version: 2\n")
    (problem,) = problems_of(card_file)
    line = len(text.splitlines()) + 1
    assert problem == f"line {line} key 'version' is written twice"


def test_a_long_value_is_cut(card_file: Path) -> None:
    """A value pasted into the wrong place does not flood the screen."""
    (problem,) = problems_of(write(card_file, setting("version", to="x" * 5000)))
    assert len(problem) < 200


def test_container_name_of_a_card(tmp_path: Path) -> None:
    """Inside a container the card is bound under another name."""
    (tmp_path / "card.yaml").write_text(CARD.read_text())
    assert load_card(tmp_path / "card.yaml", named=False).id == "bccd-det-task"


# --- what a card promises -------------------------------------------------------------------------------------


def test_expected_outputs() -> None:
    """By hand: per-case files in case order, then files of the task."""
    per_task = OutputFile(path="answers.csv", format="csv", max_bytes=1, description="")
    card = load_card(CARD)
    card = card.model_copy(update={"outputs": [per_task, *card.outputs]})
    assert list(card.expected_outputs([])) == ["answers.csv"]
    assert list(card.expected_outputs(["b", "a"])) == ["b/prediction.json", "a/prediction.json", "answers.csv"]


def test_cards_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_card(CARD).version = 2  # type: ignore[misc]


def test_defaults_of_limits() -> None:
    """docs/specification.md, 7: 3 600 s per run and 150 turns for every track."""
    data = copy.deepcopy(DATA)
    del data["limits"]
    limits = TaskCard.model_validate(data).limits
    assert (limits.time_limit_s, limits.max_turns) == (3600, 150)


def test_find_cards_is_sorted_and_deep(tmp_path: Path) -> None:
    for name in ("b/z.yaml", "a/y.yaml", "a/readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in find_cards([str(tmp_path)])] == ["y.yaml", "z.yaml"]


def test_messages_have_one_form(card_file: Path) -> None:
    """``file: key: message`` for whatever is wrong."""
    wrong = [setting(key, to=object.__name__) for key in ("dataset", "staging", "inputs", "metric", "briefs")]
    with pytest.raises(ConfigError) as caught:
        load_card(write(card_file, *wrong))
    assert len(caught.value.problems) == 5
    assert all(re.fullmatch(r"\S+\.yaml: [\w.]+: [^\n]+", problem) for problem in caught.value.problems)
