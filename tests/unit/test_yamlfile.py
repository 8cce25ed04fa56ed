"""YAML files and their problems: one line each, never a traceback, never a silent loss."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, model_validator

from automedbench.base.errors import ConfigError
from automedbench.base.records import Model
from automedbench.base.yamlfile import load_yaml, suggestion, validate


class Inner(Model):
    width: int = 0
    height: int = 0


class Checked(Model):
    """A mapping that is wrong as a whole."""

    low: int = 0
    high: int = 1

    @model_validator(mode="after")
    def _in_order(self) -> Checked:
        if self.low > self.high:
            raise ValueError("'low' is above 'high'")
        return self


class Outer(Model):
    name: str
    kind: Literal["a", "b"] = "a"
    inner: Inner | None = None
    checked: Checked = Checked()
    items: list[Inner] = Field(default_factory=list)
    named: dict[str, Inner] = Field(default_factory=dict)
    some: tuple[Literal["x", "y"], ...] = Field(("x",), min_length=1)
    api_key_env: Annotated[str, Field(pattern=r"^[A-Z_]+$")] = "KEY"


def problems_of(data: Any, prefix: str = "") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate(data, Outer, "file.yaml", prefix)
    return list(caught.value.problems)


# --- reading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", None, id="empty"),
        pytest.param(b"# only a comment\n", None, id="comment"),
        pytest.param(b"a: 1\nb: [x, 2.5, null]\n", {"a": 1, "b": ["x", 2.5, None]}, id="plain"),
        pytest.param("ü: é\n".encode(), {"ü": "é"}, id="utf-8"),
        pytest.param(b"a: {x: 1}\nb: {x: 2}\n", {"a": {"x": 1}, "b": {"x": 2}}, id="same key in two mappings"),
        pytest.param(b"base: &b {x: 1}\nc: *b\n", {"base": {"x": 1}, "c": {"x": 1}}, id="alias"),
    ],
)
def test_load(tmp_path: Path, content: bytes, expected: Any) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    assert load_yaml(tmp_path / "a.yaml") == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"a: 1\na: 2\n", "line 2 key 'a' is written twice", id="twice"),
        pytest.param(b"x:\n  a: 1\n  b: 2\n  a: 3\n", "line 4 key 'a' is written twice", id="twice inside"),
        pytest.param(b"1: a\n1: b\n", "line 2 key '1' is written twice", id="a number twice"),
        pytest.param(b"a: [1, 2\nb: 3\n", "line 2 ", id="bracket left open"),
        pytest.param(
            b"a:\n\tb: 2\n", "line 2 found character that cannot start any token (indent with spaces", id="tab"
        ),
        pytest.param(b"a: \xff\xfe\n", "cannot be read: 'utf-8' codec", id="not utf-8"),
        pytest.param(b"a: !!python/object/apply:os.system ['true']\n", "line 1 could not determine a con", id="tag"),
        pytest.param(b"a: *nothing\n", "line 1 found undefined alias", id="alias without anchor"),
        pytest.param(b"{[1, 2]: 3}: 4\n", "line 1 ", id="a mapping as a key"),
    ],
)
def test_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    (problem,) = caught.value.problems
    assert problem.removeprefix(f"{path}:").strip().startswith(expected)
    assert "\n" not in problem


def test_no_file_and_no_permission(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="file does not exist"):
        load_yaml(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_yaml(tmp_path)


MAPPING = "lines `key: value`, or `{key: value}` with a space after each colon"


# --- validating -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({}, ["name: is required"], id="empty"),
        pytest.param(None, [f"is empty: it takes {MAPPING}"], id="nothing"),
        pytest.param({"name": "n", "knd": "a"}, ["knd: unknown key (did you mean 'kind'?)"], id="misspelt"),
        pytest.param(
            {"name": "n", "inner": {"wdth": 1}}, ["inner.wdth: unknown key (did you mean 'width'?)"], id="inside"
        ),
        pytest.param(
            {"name": "n", "items": [{}, {"heigth": 1}]},
            ["items.1.heigth: unknown key (did you mean 'height'?)"],
            id="in a list",
        ),
        pytest.param(
            {"name": "n", "named": {"any": {"widht": 1}}},
            ["named.any.widht: unknown key (did you mean 'width'?)"],
            id="in a mapping of names",
        ),
        pytest.param({"name": "n", "qqqq": 1}, ["qqqq: unknown key"], id="nothing near"),
        pytest.param({"name": "n", "kind": "c"}, ["kind: input should be 'a' or 'b' (got 'c')"], id="choice"),
        pytest.param({"name": False}, ["name: input should be a valid string (got False)"], id="yaml's no"),
        pytest.param({"name": "n", "some": ["z"]}, ["some.0: input should be 'x' or 'y' (got 'z')"], id="bad item"),
        pytest.param(
            {"name": "n", "checked": {"low": 2}}, ["checked: 'low' is above 'high'"], id="a mapping as a whole"
        ),
        pytest.param({"name": {}}, ["name: input should be a valid string (got dict)"], id="another type"),
        pytest.param(
            {"name": "x" * 99, "kind": "y" * 99}, [f"kind: input should be 'a' or 'b' (got '{'y' * 79})"], id="long"
        ),
        pytest.param(
            {"kind": 1, "inner": 2, "zzz": 3},
            [
                "name: is required",
                "kind: input should be 'a' or 'b' (got 1)",
                f"inner: takes {MAPPING} (got 2)",
                "zzz: unknown key",
            ],
            id="all at once",
        ),
    ],
)
def test_problems(data: Any, expected: list[str]) -> None:
    assert problems_of(data) == [f"file.yaml: {problem}" for problem in expected]


def test_too_few_items_are_still_told() -> None:
    (problem,) = problems_of({"name": "n", "some": []})
    assert problem.startswith("file.yaml: some: tuple should have at least 1 item")
    assert "got" not in problem


def test_prefix() -> None:
    assert problems_of({}, "metric.settings") == ["file.yaml: metric.settings.name: is required"]


def test_a_secret_written_into_a_file_is_not_repeated() -> None:
    """Someone pastes the key where its variable's name belongs; logs of a dry run are shared."""
    (problem,) = problems_of({"name": "n", "api_key_env": "sk-canary-123"})
    assert "canary" not in problem
    assert problem.startswith("file.yaml: api_key_env: string should match pattern")


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        pytest.param("x", [], "", id="nothing known"),
        pytest.param("", ["careful"], "", id="empty name"),
        pytest.param("carful", ["hasty", "careful"], " (did you mean 'careful'?)", id="near"),
        pytest.param("zebra", ["careful"], "", id="far"),
    ],
)
def test_suggestion(name: str, known: list[str], expected: str) -> None:
    assert suggestion(name, known) == expected


def test_a_removed_key_says_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found by its end, below lists and names too; a key of the same name elsewhere is unknown as ever."""
    monkeypatch.setattr("automedbench.base.removed.KEYS", {"named.x.qqqq": "give 'height'", "gone": "leave it out"})
    found = problems_of({"name": "n", "gone": 1, "items": [{"gone": 1}, {"qqqq": 1}], "named": {"x": {"qqqq": 1}}})
    assert found == [
        "file.yaml: items.0.gone: was removed: leave it out",
        "file.yaml: items.1.qqqq: unknown key",
        "file.yaml: named.x.qqqq: was removed: give 'height'",
        "file.yaml: gone: was removed: leave it out",
    ]
