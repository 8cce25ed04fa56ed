"""Choice of cases in a piece of code: one that it picks out of the list of cases, or more.

For outputs that hold all cases of a task in one file, where the file's name does not tell. Told from the code alone:
an element of a listed folder, a case id that is written out, ``head -n 1`` of ``ls``; against it, loops over the list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from automedbench.reading.python import dotted

_LISTINGS = frozenset(["listdir", "iterdir", "glob", "rglob", "scandir"])
_KEEPS_ALL = frozenset(["sorted", "list", "tuple", "set", "natsorted"])
_PASSES_ALL = frozenset(["enumerate", "tqdm", "trange", "zip", "map", "reversed"])
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Opaque ids as staging gives them: a prefix and a number of at least four digits.
_CASE_ID = re.compile(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9.-]{0,63}_\d{4,}(?![A-Za-z0-9])")


def ids_in(text: str) -> set[str]:
    """Case ids that are written out in a text."""
    return set(_CASE_ID.findall(text))


class CaseChoice:
    """What Python code takes of the folders that it lists; nodes in source order."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.nodes = nodes
        self.names: set[str] = set()
        self.picked: set[str] = set()
        for _ in range(2):  # a name may be bound below the function that uses it
            self.names |= set(self._bound())
            self.picked |= set(self._picked())

    def one(self) -> list[ast.AST]:
        """Places where a single element of a list is taken."""
        return [node for node in self.nodes if self._picks(node)]

    def many(self) -> list[ast.AST]:
        """Places where a list, or a part of several elements, is gone through."""
        return [node for node in self.nodes if self._goes_through(node)]

    def _picked(self) -> Iterator[str]:
        """Names of a single element: ``first = cases[0]``, ``first, *rest = cases``."""
        for node in self.nodes:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Name) and self._takes_element(node.value):  # type: ignore[attr-defined]
                    yield target.id
                elif isinstance(target, ast.Tuple) and self._is_listing(node.value):  # type: ignore[attr-defined]
                    yield from (each.id for each in target.elts if isinstance(each, ast.Name))

    def _picks(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.picked and isinstance(node.ctx, ast.Load)
        return self._takes_element(node)

    def _takes_element(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return self._is_listing(node.value) and _takes_one(node.slice)
        return isinstance(node, ast.Call) and _last(node.func) == "next" and self._passes(node)

    def _goes_through(self, node: ast.AST) -> bool:
        if isinstance(node, (ast.For, ast.AsyncFor)):
            return self._passes(node.iter)
        if isinstance(node, ast.Call):
            return _last(node.func) == "map" and self._passes(node)
        if isinstance(node, ast.Subscript):
            return self._is_listing(node.value) and isinstance(node.slice, ast.Slice) and not _takes_one(node.slice)
        return self._works_through(node)

    def _bound(self) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, ast.Assign) and self._is_listing(node.value):
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))
                unpacked = [each for target in node.targets if isinstance(target, ast.Tuple) for each in target.elts]
                stars = (each.value for each in unpacked if isinstance(each, ast.Starred))
                yield from (value.id for value in stars if isinstance(value, ast.Name))

    def _is_listing(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, _COMPREHENSIONS):
            return self._is_listing(node.generators[0].iter)
        if not isinstance(node, ast.Call):
            return False
        name = _last(node.func)
        return name in _LISTINGS or (name in _KEEPS_ALL and any(map(self._is_listing, node.args)))

    def _passes(self, node: ast.AST) -> bool:
        """A list, as it is or through ``enumerate`` and the like."""
        if isinstance(node, ast.Call) and _last(node.func) in _PASSES_ALL | {"next", "iter"}:
            return any(map(self._passes, node.args))
        return self._is_listing(node)

    def _works_through(self, node: ast.AST) -> bool:
        """A comprehension that calls something for every element of a named list; one that makes the list does not."""
        if not isinstance(node, _COMPREHENSIONS) or not isinstance(node.generators[0].iter, ast.Name):
            return False
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        calls = (isinstance(inner, ast.Call) for part in parts for inner in ast.walk(part))
        return self._is_listing(node.generators[0].iter) and any(calls)


def _takes_one(index: ast.expr) -> bool:
    if isinstance(index, ast.Slice):
        upper = index.upper
        return (index.lower is None or _number(index.lower) == 0) and upper is not None and _number(upper) == 1
    return _number(index) is not None


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _last(node: ast.AST) -> str:
    return dotted(node).rpartition(".")[2]
