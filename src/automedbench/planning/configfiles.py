"""Configuration files: which one a problem comes from, since Snakemake hands over one dictionary of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import load_yaml
from automedbench.campaign.load import CONFIG

COMMAND_LINE = "--config"
_ABSENT = object()


def name_files(problems: Iterable[str], config: dict[str, Any], files: Sequence[str]) -> list[str]:
    """The problems with the file that holds the key (or ``--config``) in place of ``config``."""
    contents = {_shown(file): _content(file) for file in files}
    return [_name_file(problem, config, contents) for problem in problems]


def _name_file(problem: str, config: dict[str, Any], contents: dict[str, Any]) -> str:
    source, _, rest = problem.partition(": ")
    if source != CONFIG:
        return problem
    key = rest.partition(": ")[0].split(".")
    return f"{_origin(key, config, contents)}: {rest}"


def _origin(key: list[str], config: dict[str, Any], contents: dict[str, Any]) -> str:
    """The first file with the value that counts; a key that stands nowhere is looked for where its parent stands."""
    for length in range(len(key), 0, -1):
        value = _value(config, key[:length])
        if value is not _ABSENT:
            holders = [file for file, content in contents.items() if _value(content, key[:length]) == value]
            return holders[0] if holders else COMMAND_LINE
    return next(iter(contents), CONFIG)


def _value(data: Any, key: list[str]) -> Any:
    """What stands at a dotted key; the last part of a list is left to the list."""
    for part in key:
        if isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        elif isinstance(data, dict) and part in data:
            data = data[part]
        else:
            return _ABSENT
    return data


def _shown(file: str) -> str:
    """The path as a person wrote it: relative where it lies below the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _content(file: str) -> Any:
    try:
        return load_yaml(Path(file))
    except ConfigError:
        return None
