"""Dataflow in Python code: names that hold paths of outputs, and names that hold what was read back from them.

A rough flow without scopes: assignments, loops, ``with`` and calls of own functions are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

_READS = frozenset(
    "load loads open read read_text read_bytes read_csv read_json read_table "  # noqa: SIM905
    "imread loadtxt genfromtxt ReadImage read_excel fromfile dcmread read_image decode_image DictReader".split()
)
_WHOLE = _READS | {
    "get_fdata",
    "asarray",
    "array",
    "tolist",
    "GetArrayFromImage",
    "dumps",
    "str",
    "read",
    "readline",
    "readlines",
    "splitlines",
    "split",
    "strip",
    "decode",
    "reader",
}
"""What is made with these of a file is still all of it, or a line."""
FORM = frozenset(
    "shape affine header dtype ndim size itemsize nbytes len isinstance type get_zooms GetSpacing GetOrigin "  # noqa: SIM905
    "GetDirection GetSize get_data_shape get_data_dtype".split()
)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MAX_PASSES = 20  # each pass follows one more step backwards; more would let odd code cost minutes
_MAX_WORDS = 200  # that one name or expression is made of; more would let odd code cost minutes
_REACH = 3  # assignments between a printed or compared name and the properties that it was made from


def separate_scopes(tree: ast.AST) -> None:
    """Give the variables of comprehensions names of their own: they are no others of the same name."""
    for number, node in enumerate(ast.walk(tree)):
        if not isinstance(node, _COMPREHENSIONS):
            continue
        names = {inner.id for part in node.generators for inner in ast.walk(part.target) if isinstance(inner, ast.Name)}
        outer = set(ast.walk(node.generators[0].iter))
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in names and inner not in outer:
                inner.id = f"{inner.id}·{number}"


class OutputFlow:
    """Follows outputs through the nodes of one piece of code, given with parents before their children.

    ``markers`` are texts that make a path an output; ``output_argument``: the script was started with such a path.
    """

    def __init__(self, nodes: list[ast.AST], markers: tuple[str, ...], *, output_argument: bool) -> None:
        self.nodes, self.markers = nodes, markers
        self._upwards = [(node, tuple(ast.iter_child_nodes(node)), spoken(node)) for node in reversed(nodes)]
        self.bindings = list(bindings(nodes))
        given = {"argv"} if output_argument else set[str]()
        self.paths = self._spread(given, self._is_marked)
        self._readable = self._spread(given, self._is_marked, stops=_is_opened_to_write)
        self.data = self._spread(set(), self._is_read)
        self.content = self._spread(set(), self._is_read, stops=is_form)
        """What of ``data`` holds values, and not only a shape, a type, a place or a length."""

    def reads(self) -> list[ast.AST]:
        """Calls that read an output."""
        return [node for node in self.nodes if self._is_read(node)]

    def checks(self) -> list[ast.AST]:
        """Assertions, conditions and comparisons of what was read that can fail, and calls that assert."""
        vacuous = set(chain.from_iterable(ast.walk(node) for node in self.nodes if _cannot_fail(node)))
        return [node for node in self.nodes if self._is_check(node) and node not in vacuous]

    def shows(self, prints: Iterable[ast.Call]) -> list[ast.Call]:
        """Those of the printing calls that show something worked out of what was read; all of a file shows nothing."""
        whole: set[str] = set()
        for _ in range(_REACH):
            whole |= {name for names, value in self.bindings if self._is_whole(value, whole) for name in names}
        return [call for call in prints if any(self._is_part(argument, whole) for argument in call.args)]

    def _is_part(self, node: ast.AST, whole: set[str]) -> bool:
        if isinstance(node, (ast.JoinedStr, ast.FormattedValue, ast.Starred, ast.Tuple)):
            return any(self._is_part(child, whole) for child in ast.iter_child_nodes(node))
        return node in self.data and not self._is_whole(node, whole)

    def _is_whole(self, node: ast.AST, whole: set[str]) -> bool:
        if isinstance(node, ast.Name):
            return node.id in whole
        if not isinstance(node, ast.Call) or node not in self.data:
            return False
        return spoken(node.func) in _WHOLE

    def _is_check(self, node: ast.AST) -> bool:
        if isinstance(node, (ast.Assert, ast.If, ast.IfExp)):
            return node.test in self.data
        if isinstance(node, ast.Call):
            return (spoken(node.func) or "").startswith(("assert", "validate")) and any(map(self._looks, node.args))
        return isinstance(node, ast.Compare) and node in self.data

    def _looks(self, node: ast.AST) -> bool:
        return node in self.data or node in self.paths

    def _is_marked(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return False
        return any(marker in node.value for marker in self.markers)

    def _is_read(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or node not in self._readable or opens_to_write(node):
            return False
        return spoken(node.func) in _READS

    def _spread(
        self, names: set[str], starts: Callable[[ast.AST], bool], *, stops: Callable[[ast.AST], bool] | None = None
    ) -> set[ast.AST]:
        """Nodes that hold a start or a name that one was bound to; what stands above a node of ``stops`` holds none."""
        begin = {node for node in self.nodes if starts(node)}
        holding: set[ast.AST] = set()
        for _ in range(_MAX_PASSES):
            holding = self._holding(begin, names, stops)
            bound = [targets for targets, value in self.bindings if value in holding]
            if names.issuperset(chain.from_iterable(bound)):
                break
            names = names.union(*bound)
        return holding

    def _holding(self, begin: set[ast.AST], names: set[str], stops: Callable[[ast.AST], bool] | None) -> set[ast.AST]:
        holding: set[ast.AST] = set()
        for node, children, name in self._upwards:
            holds = name in names or node in begin or not holding.isdisjoint(children)
            if holds and (stops is None or not stops(node)):
                holding.add(node)
        return holding


class Origins:
    """The words that a printed or compared expression was made from, through a few assignments and own functions."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self._made_of: dict[str, set[str]] = {}
        for names, value in bindings(nodes):
            for name in names:
                made_of = self._made_of.setdefault(name, set())
                made_of.update(words_in(value)[: max(0, _MAX_WORDS - len(made_of))])

    def of(self, *expressions: ast.AST) -> list[str]:
        """Identifiers and keys in and behind the expressions; texts that are paths are left out."""
        found = dict.fromkeys([word for expression in expressions for word in words_in(expression)][:_MAX_WORDS])
        fresh = list(found)
        for _ in range(_REACH):
            behind = [word for name in fresh for word in sorted(self._made_of.get(name, ())) if word not in found]
            fresh = list(dict.fromkeys(behind))[:_MAX_WORDS]
            found |= dict.fromkeys(fresh)
        return [word for word in found if not set("/. \n") & set(word)]


def words_in(node: ast.AST) -> list[str]:
    """Identifiers and texts in an expression."""
    texts = [
        inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    ]
    return texts + [name for inner in ast.walk(node) if (name := spoken(inner))]


def swallowed(nodes: Iterable[ast.AST]) -> set[ast.AST]:
    """What may fail unseen: below a ``try`` whose handler says nothing, or below ``contextlib.suppress``."""
    found: set[ast.AST] = set()
    for node in nodes:
        silent = isinstance(node, ast.Try) and any(map(_is_silent, node.handlers))
        if silent or (isinstance(node, ast.With) and any(_suppresses(item) for item in node.items)):
            found.update(chain.from_iterable(map(ast.walk, node.body)))  # type: ignore[attr-defined]
    return found


def _is_silent(handler: ast.ExceptHandler) -> bool:
    """Neither raises nor calls anything, so that the failure stays unknown."""
    return not any(isinstance(node, (ast.Raise, ast.Call)) for part in handler.body for node in ast.walk(part))


def _suppresses(item: ast.withitem) -> bool:
    return isinstance(item.context_expr, ast.Call) and spoken(item.context_expr.func) == "suppress"


def _cannot_fail(node: ast.AST) -> bool:
    """A condition that holds for anything that was read, or an assertion of one."""
    if isinstance(node, (ast.Assert, ast.If)):
        return _cannot_fail(node.test)
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.BoolOp):
        return (any if isinstance(node.op, ast.Or) else all)(map(_cannot_fail, node.values))
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and _always(node.left, node.ops[0], node.comparators[0])


def _always(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool:
    """``x is not None``, ``len(x) >= 0``, ``len(x) > -1``, ``x == x``."""
    if ast.dump(left) == ast.dump(right):
        return isinstance(operator, (ast.Eq, ast.LtE, ast.GtE, ast.Is))
    if isinstance(right, ast.Constant) and right.value is None:
        return isinstance(operator, (ast.IsNot, ast.NotEq))
    counted = isinstance(left, ast.Call) and spoken(left.func) == "len"
    if isinstance(right, ast.Constant) and right.value == 0:
        return counted and isinstance(operator, ast.GtE)
    return counted and isinstance(operator, ast.Gt) and isinstance(right, ast.UnaryOp)


def is_form(node: ast.AST) -> bool:
    """An attribute or a call that tells the form of something: its shape, type, place or length."""
    return (spoken(node.func) if isinstance(node, ast.Call) else spoken(node)) in FORM


def _is_opened_to_write(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and opens_to_write(node)


def spoken(node: ast.AST) -> str | None:
    """The last name of a name or attribute."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def opens_to_write(node: ast.Call) -> bool:
    """An ``open`` with a writing mode."""
    modes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(len(text) <= 3 and set(text) & set("wax") and set(text) <= set("rwaxbt+") for text in texts)


def bindings(nodes: list[ast.AST]) -> Iterator[tuple[set[str], ast.AST]]:
    """(names, expression they are bound to)."""
    parameters = {
        node.name: [parameter.arg for parameter in node.args.args if parameter.arg not in ("self", "cls")]
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    }
    function = ""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        elif isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            yield {function}, node.value
        elif isinstance(node, ast.Call):
            names = parameters.get(spoken(node.func) or "", [])
            yield from (({name}, given) for name, given in zip(names, node.args, strict=False))
            yield from (({item.arg}, item.value) for item in node.keywords if item.arg in names)
        else:
            yield from _statement_bindings(node)


def _statement_bindings(node: ast.AST) -> Iterator[tuple[set[str], ast.AST]]:
    if isinstance(node, ast.Assign):
        yield from (pair for target in node.targets for pair in _pairs(target, node.value))
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
        yield bound(node.target), node.value
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield bound(node.target), node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield bound(node.optional_vars), node.context_expr


def _pairs(target: ast.AST, value: ast.AST) -> Iterator[tuple[set[str], ast.AST]]:
    """Of ``a, b = x, y`` each name with its own value."""
    sides = [side.elts for side in (target, value) if isinstance(side, (ast.Tuple, ast.List))]
    starred = any(isinstance(part, ast.Starred) for side in sides for part in side)
    if len(sides) == 2 and len(sides[0]) == len(sides[1]) and not starred:
        for inner, part in zip(*sides, strict=True):
            yield from _pairs(inner, part)
    else:
        yield bound(target), value


def bound(*targets: ast.AST) -> set[str]:
    """Names that an assignment binds: of ``x.y`` the ``y``, of ``x[i]`` the ``x``."""
    names: set[str] = set()
    for target in targets:
        if isinstance(target, (ast.Name, ast.Attribute)):
            names.add(spoken(target) or "")
        elif isinstance(target, (ast.Subscript, ast.Starred)):
            names |= bound(target.value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            names |= bound(*target.elts)
    return names
