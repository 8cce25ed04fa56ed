"""The parts of a Python script that run one after the other, each with the functions that it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from automedbench.reading.dataflow import spoken

_MAX_FUNCTIONS = 200


@dataclass(frozen=True)
class Part:
    """One statement that runs by itself: its ``own`` nodes, those that it can ``reach``, and what it does at the first
    case where it goes through several (None: nothing of its own)."""

    own: set[ast.AST]
    reach: set[ast.AST]
    at_first: set[ast.AST] | None

    @property
    def texts(self) -> str:
        """Its constant texts."""
        return " ".join(
            node.value for node in self.own if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )


def parts_of(main: ast.Module, nodes: Iterable[ast.AST]) -> list[Part]:
    """Parts of a script in order: the statements of the module, of its ``main`` and of ``if __name__`` blocks.

    ``nodes``: all of the code, own modules too, where the functions stand that are called.
    """
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    return [_part(statement, functions) for statement in _statements(main.body, functions, set())]


def _statements(body: list[ast.stmt], functions: dict[str, ast.FunctionDef], entered: set[str]) -> Iterator[ast.stmt]:
    for statement in body:
        name = _called(statement)
        if isinstance(statement, ast.If) and any(
            isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
        ):
            yield from _statements(statement.body, functions, entered)
        elif name in functions and name not in entered and not statement.value.args:  # type: ignore[attr-defined]
            yield from _statements(functions[name].body, functions, entered | {name})
        elif isinstance(statement, (ast.With, ast.Try)):
            yield from _statements(statement.body, functions, entered)
        elif not isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            yield statement


def _called(statement: ast.stmt) -> str:
    """Name of the function that a statement does nothing but call."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""


def _part(statement: ast.stmt, functions: dict[str, ast.FunctionDef]) -> Part:
    own = set(ast.walk(statement))
    first = [node for node in own if isinstance(node, ast.If) and _at_first(node.test)]
    looped = isinstance(statement, (ast.For, ast.While))
    at_first = {inner for node in first for part in node.body for inner in ast.walk(part)}
    return Part(own, _reach(own, functions), _reach(at_first, functions) if looped and at_first else None)


def _reach(nodes: set[ast.AST], functions: dict[str, ast.FunctionDef]) -> set[ast.AST]:
    """The nodes and those of the functions that they call, and that these call."""
    found = set(nodes)
    todo, seen = list(nodes), set[str]()
    while todo and len(seen) < _MAX_FUNCTIONS:
        node = todo.pop()
        name = spoken(node.func) if isinstance(node, ast.Call) else node.id if isinstance(node, ast.Name) else None
        if name in functions and name not in seen:
            seen.add(name)
            inner = list(ast.walk(functions[name]))
            found.update(inner)
            todo += inner
    return found


def _at_first(test: ast.expr) -> bool:
    """``i == 0``, ``case == cases[0]``, ``not done``: true for the first case only, as far as one sees."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        right = test.comparators[0]
        picked = isinstance(right, ast.Subscript) and isinstance(right.slice, ast.Constant)
        return picked or (isinstance(right, ast.Constant) and right.value in (0, 1))
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Name)
