"""The public benchmark's release as it lies on disk: what it says of a task beside the cases.

Hints of the lite tier, the locked model and the word patterns of the report score are read from the user's copy and are
no part of this repository. Nothing of the release is executed here: its Python files are read as data.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from automedbench.base.cards import HintedStage, LiteModel
from automedbench.base.errors import ConfigError
from automedbench.base.yamlfile import load_yaml

HINTS: dict[HintedStage, str] = {"s1": "lite_s1.md", "s2": "lite_s2.md", "s3": "lite_s3.md"}
PREFACE = (
    "The following is the release's own text. Where it names folders, environment variables or tools of its runner, "
    "those of this brief count."
)
_NAMES, _NOTES = ("model_name", "model_architecture", "name"), ("model_description", "rationale", "notes")


def read_hints(folder: Path) -> dict[HintedStage, str]:
    """Read the hint of each stage that has one; raises ConfigError where none has."""
    texts = {stage: _read(folder / name).strip() for stage, name in HINTS.items() if (folder / name).is_file()}
    if not any(texts.values()):
        raise ConfigError([f"{folder}: holds none of {', '.join(HINTS.values())}, the hints of the lite tier"])
    return {stage: f"{PREFACE}\n\n{text}" for stage, text in texts.items() if text}


def read_lite_model(path: Path, ours: LiteModel | None) -> LiteModel:
    """The locked model in ``model_info.yaml``; where its name is no address, with the one of our card.

    Raises ConfigError for a file that is absent or names no model.
    """
    content = load_yaml(path)
    lite: Any = content.get("lite") if isinstance(content, dict) else None
    if not isinstance(lite, dict) or (name := _first(lite, _NAMES)) is None:
        raise ConfigError([f"{path}: lite: names no model"])
    hub_id = name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else None
    return LiteModel(
        name=name, reference=hub_id or (ours.reference if ours else None), notes=_first(lite, _NOTES) or ""
    )


def read_patterns(path: Path, variable: str = "OBSERVATION_SCHEMA") -> dict[str, dict[str, list[str]]]:
    """Concept → ``positive`` and ``negative`` patterns: the literal that a Python file assigns to ``variable``.

    Raises ConfigError where there is none.
    """
    try:
        schema = ast.literal_eval(_assigned(ast.parse(_read(path)), variable))
        return {
            concept: {sign: list(rule.get(sign, [])) for sign in ("positive", "negative")}
            for concept, rule in schema.items()
        }
    except (KeyError, AttributeError, TypeError, ValueError, SyntaxError) as error:
        raise ConfigError([f"{path}: holds no table {variable} of word patterns ({type(error).__name__})"]) from error


def _assigned(tree: ast.Module, variable: str) -> ast.expr:
    """The value that a file gives a variable at its top; raises KeyError where it gives none."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if variable in map(ast.unparse, targets):
                return node.value
    raise KeyError(variable)


def _first(facts: dict[str, Any], names: tuple[str, ...]) -> str | None:
    texts = (facts.get(name) for name in names)
    return next((" ".join(text.split()) for text in texts if isinstance(text, str) and text.strip()), None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
