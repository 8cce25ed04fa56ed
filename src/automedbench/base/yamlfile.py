"""YAML and pydantic, with all problems at once: one line each, ``file: key: message``."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar, get_args

import pydantic
import yaml
from pydantic.fields import FieldInfo

from automedbench.base.errors import ConfigError
from automedbench.base.removed import removed_key

ModelT = TypeVar("ModelT", bound=pydantic.BaseModel)
_OF_A_WHOLE = {"value_error", "assertion_error", "too_short", "too_long"}

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Base):  # type: ignore[misc]
    """Safe loader that refuses a key written twice (YAML itself would silently keep the last)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int)) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key}' is written twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, (str, int)) else id(key))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:timestamp", yaml.constructor.SafeConstructor.construct_yaml_str)
"""A date is text: no key takes one, and a folder may be named by one."""


def parse_yaml(text: str) -> Any:
    """Parse YAML as it stands in a file; raises yaml.YAMLError."""
    return yaml.load(text, Loader=_UniqueKeyLoader)


def load_yaml(path: Path) -> Any:
    """Parse one YAML file; raises ConfigError naming file and line."""
    try:
        with open(path, encoding="utf-8") as stream:
            return yaml.load(stream, Loader=_UniqueKeyLoader)
    except FileNotFoundError as error:
        raise ConfigError([f"{path}: file does not exist"]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not valid YAML"
        fix = " (indent with spaces, not tabs; put text with @ or ` in quotes)" if "cannot start" in problem else ""
        raise ConfigError([f"{path}:{where} {problem}{fix}"]) from error


def validate(data: Any, model: type[ModelT], source: str, prefix: str = "") -> ModelT:
    """Build ``model`` from ``data``; raises ConfigError with every problem, misspelt keys with a suggestion."""
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        raise ConfigError(_lines(error, model, source, prefix)) from error


def suggestion(name: str, known: list[str]) -> str:
    """`` (did you mean 'x'?)`` for the nearest known name, or one with a part near it (``bcd``), or an empty string."""
    parts = {part: each for each in reversed(known) for part in each.split("-")}
    near = difflib.get_close_matches(name, known, n=1)
    near = near or [parts[part] for part in difflib.get_close_matches(name, parts, n=1, cutoff=0.75)]
    return f" (did you mean '{near[0]}'?)" if near else ""


def _lines(error: pydantic.ValidationError, model: type[pydantic.BaseModel], source: str, prefix: str) -> list[str]:
    items = error.errors()
    lines = []
    for item in items:
        if item["type"] == "too_short" and any(_is_below(other["loc"], item["loc"]) for other in items):
            continue  # wrong items were not counted, so that the list only seems too short
        location = [str(part) for part in item["loc"]]
        key = ".".join([prefix, *location] if prefix else location)
        lines.append(f"{source}: {key + ': ' if key else ''}{_message(item, model, location)}")
    return lines


def _is_below(location: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(location) > len(other) and location[: len(other)] == other


def _message(item: Any, model: type[pydantic.BaseModel], location: list[str]) -> str:
    kind, given = item["type"], item.get("input")
    if kind == "extra_forbidden":
        instead = removed_key(location)
        if instead:
            return f"was removed: {instead}"
        return "unknown key" + suggestion(location[-1], _known_keys(model, location[:-1]))
    if kind == "missing":
        return "is required"
    if kind in ("model_type", "dict_type"):
        form = "lines `key: value`, or `{key: value}` with a space after each colon"
        return f"is empty: it takes {form}" if given is None else f"takes {form} (got {given!r:.80})"
    message: str = item["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if location and "key" in location[-1]:
        return message  # someone may have written the secret itself instead of its name
    if isinstance(given, (str, int, float, bool)) or given is None:
        return f"{message} (got {given!r:.80})"
    # What a check says of a whole mapping or list names its parts; only where another type is wanted, theirs says more.
    return message if kind in _OF_A_WHOLE else f"{message} (got {type(given).__name__})"


def _known_keys(model: type[pydantic.BaseModel], location: list[str]) -> list[str]:
    """Field names of the model that ``location`` leads to; empty when it cannot be followed."""
    current: Any = model
    for part in location:
        field: FieldInfo | None = getattr(current, "model_fields", {}).get(part)
        if field is not None:
            current = _inner_model(field.annotation)
        if current is None:
            return []
    return list(getattr(current, "model_fields", {}))


def _inner_model(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = _inner_model(inner)
        if found is not None:
            return found
    return None
