"""Python: syntax, names in full and literal texts of a piece of code; nothing is evaluated or run."""

from __future__ import annotations

import ast
import posixpath
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator

MAX_CODE = 256 * 1024
"""Characters of a text that are read."""
MAX_TEXT = 1024
HOLE = "{…}"
"""Stands for a part of a text that only the running code knows."""

_SHELL_CALLS = frozenset(["system", "popen", "run", "Popen", "call", "check_call", "check_output", "getoutput"])
_PATHS = frozenset(["Path", "PurePath", "PosixPath", "str", "fspath", "expanduser", "abspath", "realpath", "resolve"])
_KNOWN = {"DATA_DIR": "/data/public", "WORKSPACE": "/workspace", "HOME": "/workspace"}


def parse_python(code: str) -> ast.Module | None:
    """Syntax tree, or null when the text is too long, too deep or no Python."""
    if len(code) > MAX_CODE:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name or attribute; of ``f(x).a.b`` what stands behind the call."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def shell_texts(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and text of constant commands that Python starts through os or subprocess."""
    for node in nodes:
        if not isinstance(node, ast.Call) or dotted(node.func).rpartition(".")[2] not in _SHELL_CALLS or not node.args:
            continue
        command = node.args[0]
        if isinstance(command, ast.Constant) and isinstance(command.value, (str, bytes)):
            yield node.lineno, _plain(command.value)
        elif isinstance(command, (ast.List, ast.Tuple)):
            yield node.lineno, shlex.join(_constants(command))


def _constants(node: ast.AST) -> list[str]:
    """String constants below a node; the running interpreter counts as ``python``."""
    texts = [
        inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    ]
    interpreter = any(isinstance(inner, ast.Attribute) and inner.attr == "executable" for inner in ast.walk(node))
    return ["python", *texts] if interpreter else texts


class Names:
    """Names of a module: what is imported under them, and the values of those that are assigned once."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self._imports = dict(_imports(nodes))
        self.modules = {name.partition(".")[0] for name in self._imports.values()}
        """Top packages of what is imported."""
        self.imported = set(self._imports)
        """Names that it is imported under."""
        assigned = [item for node in nodes for item in _assignments(node)]
        times = Counter(name for name, _ in assigned)
        self._values = {name: value for name, value in assigned if times[name] == 1 and name not in self._imports}
        self._texts: dict[str, str] = {}

    def full(self, node: ast.AST) -> str:
        """Name of a function with its module: ``ctypes.CDLL().ptrace`` of ``libc.ptrace``; empty for other nodes."""
        if isinstance(node, ast.Attribute):
            return f"{self.full(node.value)}.{node.attr}"
        if isinstance(node, ast.Call):
            return f"{self.full(node.func)}()"
        if not isinstance(node, ast.Name):
            return ""
        value = self._values.pop(node.id, None) if isinstance(self._values.get(node.id), ast.Call) else None
        if value is not None:  # taken out meanwhile, so that a name that is made of itself ends
            self._imports[node.id] = self.full(value)
        return self._imports.get(node.id, node.id)

    def text(self, node: ast.AST) -> str:
        """A literal, or literals that are joined to a text or a path; ``HOLE`` for all else in it."""
        return self._text(node)[:MAX_TEXT]

    def _text(self, node: ast.AST) -> str:
        if isinstance(node, ast.Constant):
            return _plain(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(map(self.text, node.values))
        if isinstance(node, ast.FormattedValue):
            return self.text(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
            left, right = self.text(node.left), self.text(node.right)
            return left + right if isinstance(node.op, ast.Add) else posixpath.join(left, right)
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Subscript):
            return _KNOWN.get(self.text(node.slice), HOLE) if self.full(node.value) == "os.environ" else HOLE
        return self._called(node) if isinstance(node, ast.Call) else HOLE

    def _named(self, name: str) -> str:
        if name not in self._texts:
            self._texts[name] = HOLE
            self._texts[name] = self.text(self._values[name]) if name in self._values else HOLE
        return self._texts[name]

    def _called(self, node: ast.Call) -> str:
        name = self.full(node.func)
        last = name.rpartition(".")[2]
        texts = [self.text(argument) for argument in node.args]
        if name in ("os.getenv", "os.environ.get") and texts:
            return _KNOWN.get(texts[0], HOLE)
        if last == "home":
            return "~"
        if last in ("join", "joinpath", *_PATHS) and not name.startswith("."):
            base = [self.text(node.func.value)] if last == "joinpath" and isinstance(node.func, ast.Attribute) else []
            return posixpath.join("", *base, *texts)
        return HOLE


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, (str, int)) else HOLE


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.partition(".")[0], _imported(alias)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _imported(alias: ast.alias) -> str:
    return alias.name if alias.asname else alias.name.partition(".")[0]


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that a statement gives a value, be it one that can't be told: a loop's, a parameter's."""
    nothing = ast.Constant(None)
    if isinstance(node, ast.Assign):
        yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, node.value
    elif isinstance(node, (ast.AugAssign, ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
        yield node.target.id, nothing
    elif isinstance(node, ast.arg):
        yield node.arg, nothing
