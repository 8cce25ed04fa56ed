"""Values of Python expressions, as far as the text says: strings, numbers, lists, names of modules and functions."""

from __future__ import annotations

import ast
import itertools
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from automedbench.reading.python_folding import (
    DECODERS,
    MAX_ELEMENTS,
    MAX_NUMBER,
    Value,
    Values,
    attempt,
    chars,
    combine,
    join_text,
    mapping_method,
    percent,
    slash,
    texts_of,
    textual,
    to_bytes,
)
from automedbench.reading.static_rules import HOLE, HOME, MAX_ALTERNATIVES, MAX_TEXT

MAX_EVALUATIONS = 200_000


@dataclass(frozen=True)
class Ref:
    """A module, a function, or (with brackets at the end) what a function returns."""

    name: str


_CONSTANTS: dict[str, Value] = {
    "os.sep": "/",
    "os.path.sep": "/",
    "posixpath.sep": "/",
    "os.curdir": ".",
    "os.pardir": "..",
    "os.environ": {"DATA_DIR": ["/data/public"], "WORKSPACE": [HOME], "HOME": [HOME], "TMPDIR": ["/tmp"]},
}
_PATH_CLASSES = {f"pathlib.{kind}" for kind in ("Path", "PurePath", "PosixPath", "PurePosixPath")}
_JOINS = {"os.path.join", "posixpath.join", *_PATH_CLASSES}
_SAME = {"os.path.abspath", "os.path.realpath", "os.path.normpath", "os.path.expanduser", "os.path.expandvars"}
_SAME |= {"os.fspath", "os.fsencode", "os.fsdecode", "builtins.str", "shlex.quote", "builtins.sorted", "builtins.list"}
_SAME_METHODS = {
    "as_posix",
    "resolve",
    "absolute",
    "expanduser",
    "__str__",
    "__fspath__",
    "encode",
    "copy",
}
_TEXT_METHODS: dict[str, Callable[..., Value]] = {
    "strip": str.strip,
    "lstrip": str.lstrip,
    "rstrip": str.rstrip,
    "lower": str.lower,
    "upper": str.upper,
    "replace": str.replace,
    "removeprefix": str.removeprefix,
    "removesuffix": str.removesuffix,
    "swapcase": str.swapcase,
}


class Evaluator:
    """Names and what they may hold; gives the alternatives of an expression."""

    def __init__(self) -> None:
        self.names: dict[str, Values] = {}
        self._evaluations = 0

    # --- binding -----------------------------------------------------------------------------------------------

    def imported(self, node: ast.Import | ast.ImportFrom) -> None:
        """Names that an import binds."""
        for alias in node.names:
            if isinstance(node, ast.Import):
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                self.names[alias.asname or name] = [Ref(name)]
            else:
                self.names[alias.asname or alias.name] = [Ref(f"{node.module or ''}.{alias.name}")]

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Bind a target to an expression; tuples element by element."""
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, other in zip(target.elts, value.elts, strict=False):
                self.assign(one, other)
        else:
            self.bind(target, self.of(value))

    def bind(self, target: ast.expr, values: Values) -> None:
        """Bind a name (or an attribute of one, by its text) to alternatives."""
        if isinstance(target, ast.Name):
            self.names[target.id] = self.limited(values)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            self.names[f"{target.value.id}.{target.attr}"] = self.limited(values)
        elif isinstance(target, ast.Tuple | ast.List):
            for index, one in enumerate(target.elts):
                columns = [value[index] for value in values if isinstance(value, list) and index < len(value)]
                self.bind(one, [inner for column in columns for inner in column])

    def merge(self, before: dict[str, Values]) -> None:
        """After a branch: a name may hold what it held before as well."""
        for name, values in before.items():
            now = self.names.get(name, [])
            if now is not values:
                self.names[name] = self.limited([*now, *values])

    def limited(self, values: Values) -> Values:
        """At most the permitted number of alternatives, each once."""
        kept: Values = []
        for value in values:
            if value not in kept:
                kept.append(value)
        return kept[: 2 * MAX_ALTERNATIVES]

    # --- expressions -------------------------------------------------------------------------------------------

    def of(self, node: ast.expr) -> Values:
        """Alternatives of an expression; empty when nothing is known."""
        handler = _HANDLERS.get(type(node))
        self._evaluations += 1
        # Nested comprehensions and products would take for ever; beyond the bound nothing is known.
        if handler is None or self._evaluations > MAX_EVALUATIONS:
            return []
        return self.limited(handler(self, node))

    def elements(self, node: ast.expr) -> Values:
        """What one element of an iterable may be."""
        found: Values = []
        for value in self.of(node):
            if isinstance(value, list):
                found += [inner for element in value for inner in element]
            elif isinstance(value, str | bytes | dict):
                found += list(value)
        return found

    def _constant(self, node: ast.Constant) -> Values:
        value = node.value
        if isinstance(value, str | bytes):
            return [value[:MAX_TEXT]]
        return [value] if isinstance(value, int) and abs(value) <= MAX_NUMBER else []

    def _name(self, node: ast.Name) -> Values:
        known = self.names.get(node.id)
        return known if known is not None else [Ref(f"builtins.{node.id}")]

    def _attribute(self, node: ast.Attribute) -> Values:
        if isinstance(node.value, ast.Name) and (own := self.names.get(f"{node.value.id}.{node.attr}")):
            return own
        return self._attributes(self.of(node.value), node)

    def _attributes(self, bases: Values, node: ast.Attribute) -> Values:
        found: Values = []
        for base in bases:
            if isinstance(base, Ref):
                name = f"{base.name}.{node.attr}"
                found.append(_CONSTANTS.get(name, Ref(name)))
            elif isinstance(base, str) and node.attr == "parent":
                found.append(posixpath.dirname(base.rstrip("/")) or ".")
            elif isinstance(base, str) and node.attr in ("root", "anchor"):
                found.append("/")
        return found

    def _binary(self, node: ast.BinOp) -> Values:
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.op, ast.Mod) and any(isinstance(value, str) for value in left):
            values = _percent_arguments(node.right, self)
            return [percent(text, values) for text in left if isinstance(text, str)]
        if isinstance(node.op, ast.Add | ast.Div) and (textual(left) or textual(right)):
            left, right = left or [HOLE], right or [HOLE]
        pairs = itertools.product(left[:MAX_ALTERNATIVES], right[:MAX_ALTERNATIVES])
        return [value for a, b in pairs if (value := combine(node.op, a, b)) is not None]

    def _joined(self, node: ast.JoinedStr) -> Values:
        texts = [""]
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            values = texts_of(self.of(inner)) or [HOLE]
            texts = [(a + b)[:MAX_TEXT] for a, b in itertools.product(texts, values)][:MAX_ALTERNATIVES]
        return list(texts)

    def _sequence(self, node: ast.List | ast.Tuple | ast.Set) -> Values:
        return [[self.of(element) for element in node.elts[:MAX_ELEMENTS]]]

    def _dictionary(self, node: ast.Dict) -> Values:
        found: dict[str, Values] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            for text in self.of(key) if key is not None else []:
                if isinstance(text, str):
                    found[text] = self.of(value)
        return [found]

    def _choice(self, node: ast.IfExp) -> Values:
        return [*self.of(node.body), *self.of(node.orelse)]

    def _any_of(self, node: ast.BoolOp) -> Values:
        return [value for inner in node.values for value in self.of(inner)]

    def _named(self, node: ast.NamedExpr) -> Values:
        return self.of(node.value)

    def _awaited(self, node: ast.Await | ast.Starred) -> Values:
        return self.of(node.value)

    def _subscript(self, node: ast.Subscript) -> Values:
        found: Values = []
        for base in self.of(node.value):
            if isinstance(base, dict):
                keys = [key for key in self.of(node.slice) if isinstance(key, str)]
                found += [value for key in keys for value in base.get(key, [])]
            elif isinstance(base, str | bytes | list):
                found += _index(base, node.slice, self)
        return found

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Values:
        """A comprehension over known elements, one generator."""
        if len(node.generators) != 1:
            return []
        target = node.generators[0].target
        result: list[Values] = []
        for value in self.of(node.generators[0].iter):
            elements = [[one] for one in value] if isinstance(value, str | bytes) else value
            for element in elements[:MAX_ELEMENTS] if isinstance(elements, list) else []:
                self.bind(target, element)
                result.append(self.of(node.elt))
        return [result] if result else []

    # --- calls -------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Values:
        if not isinstance(node.func, ast.Attribute):
            return self._results(self.of(node.func), node)
        # Once for both readings: a chain of methods would otherwise be evaluated two to the power of its length.
        bases = self.of(node.func.value)
        return [*self._results(self._attributes(bases, node.func), node), *self._method(bases, node.func, node)]

    def _results(self, functions: Values, node: ast.Call) -> Values:
        named = [function.name for function in functions if isinstance(function, Ref)]
        return [value for name in named for value in self._function(name, node)]

    def _function(self, name: str, node: ast.Call) -> Values:
        first = self.of(node.args[0]) if node.args else []
        if name in _JOINS:
            return self._join(node.args)
        if name in _SAME:
            return first
        if name in ("builtins.chr", "builtins.ord", "builtins.bytes", "builtins.bytearray", "builtins.map"):
            return self._characters(name, first, node)
        if name in ("builtins.reversed", "builtins.tuple"):
            step = -1 if name.endswith("reversed") else 1
            return [value[::step] for value in first if isinstance(value, str | bytes | list)]
        if name in ("builtins.__import__", "importlib.import_module"):
            return [Ref(text) for text in texts_of(first)]
        if name == "builtins.getattr" and len(node.args) > 1:
            names = texts_of(self.of(node.args[1]))
            return [Ref(f"{base.name}.{one}") for base in first if isinstance(base, Ref) for one in names]
        if name in ("os.getenv", "os.environ.get"):
            found = [value for key in texts_of(first) for value in _CONSTANTS["os.environ"].get(key, [])]
            return found or (self.of(node.args[1]) if len(node.args) > 1 else [])
        if name == "os.path.dirname":
            return [posixpath.dirname(text) for text in texts_of(first)]
        if name in ("os.getcwd", "pathlib.Path.cwd", "pathlib.Path.home"):
            return [HOME]
        return self._decoded(name, first) or [Ref(f"{name}()")]

    def _join(self, arguments: list[ast.expr]) -> Values:
        texts = [""]
        for argument in arguments:
            if isinstance(argument, ast.Starred):
                lists = [value for value in self.of(argument.value) if isinstance(value, list)]
                parts = [[texts_of(element) or [HOLE] for element in one] for one in lists[:1]]
                options = parts[0] if parts else [[HOLE]]
            else:
                options = [texts_of(self.of(argument)) or [HOLE]]
            for values in options:
                texts = [slash(a, b) for a, b in itertools.product(texts, values)][:MAX_ALTERNATIVES]
        return list(texts)

    def _characters(self, name: str, first: Values, node: ast.Call) -> Values:
        if name == "builtins.chr":
            return [chr(value) for value in first if isinstance(value, int) and 0 <= value < 0x110000]
        if name == "builtins.ord":
            return [ord(text) for text in first if isinstance(text, str) and len(text) == 1]
        if name == "builtins.map" and len(node.args) == 2 and Ref("builtins.chr") in first:
            lists = [value for value in self.of(node.args[1]) if isinstance(value, list)]
            return [[chars(element) for element in value] for value in lists]
        return [data for value in first if (data := to_bytes(value)) is not None]

    def _decoded(self, name: str, first: Values) -> Values:
        decode = DECODERS.get(name)
        return [value for text in first if decode and (value := attempt(decode, text)) is not None]

    def _method(self, values: Values, function: ast.Attribute, node: ast.Call) -> Values:
        bases = [base for base in values if isinstance(base, str | bytes | dict)]
        if not bases:
            return []
        arguments = [self.of(argument) for argument in node.args]
        found: Values = []
        for base in bases:
            if isinstance(base, dict):
                found += mapping_method(base, function.attr, arguments)
            elif function.attr == "decode" and isinstance(base, bytes):
                found.append(base.decode("utf-8", "replace"))
            elif isinstance(base, str):
                found += self._text_method(base, function.attr, arguments, node)
        return found

    def _text_method(self, base: str, name: str, arguments: list[Values], node: ast.Call) -> Values:
        if name in _SAME_METHODS:
            return [base]
        if name == "join":
            lists = [value for value in (arguments[0] if arguments else []) if isinstance(value, list | str)]
            return [text for value in lists for text in join_text(base, value)]
        if name == "joinpath":
            return self._join([ast.Constant(base), *node.args])
        if name in ("with_name", "with_suffix"):
            return [slash(posixpath.dirname(base), text) for text in texts_of(arguments[0] if arguments else [])]
        if name == "format":
            return [_format(base, [texts_of(values) for values in arguments], node, self)]
        if name in ("split", "rsplit") and arguments and texts_of(arguments[0])[:1] != [""]:
            return [[[piece] for piece in base.split(separator)] for separator in texts_of(arguments[0])[:1]]
        method = _TEXT_METHODS.get(name)
        texts = [texts_of(values)[:1] for values in arguments]
        if method is None or not all(texts):
            return []
        value = attempt(lambda text: method(text, *[one[0] for one in texts]), base)
        return [] if value is None else [value[:MAX_TEXT]]


def _percent_arguments(node: ast.expr, values: Evaluator) -> list[str]:
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    return [(texts_of(values.of(one)) or [HOLE])[0] for one in nodes]


def _format(base: str, arguments: list[list[str]], node: ast.Call, values: Evaluator) -> str:
    positional = [texts[0] if texts else HOLE for texts in arguments]
    named = {key.arg: (texts_of(values.of(key.value)) or [HOLE])[0] for key in node.keywords if key.arg}
    result = attempt(lambda text: text.format(*positional, **named), base) if len(base) < MAX_TEXT else None
    return (result or base.partition("{")[0] + HOLE)[:MAX_TEXT]


def _index(base: str | bytes | list[Values], place: ast.expr, values: Evaluator) -> Values:
    """An element or a slice with constant bounds."""
    if isinstance(place, ast.Slice):
        bounds = [_bound(one, values) for one in (place.lower, place.upper, place.step)]
        return [base[slice(*bounds)]] if bounds[2] != 0 else []
    found: Values = []
    for index in values.of(place):
        if isinstance(index, int) and -len(base) <= index < len(base):
            element = base[index]
            found += element if isinstance(element, list) else [element]
    return found


def _bound(node: ast.expr | None, values: Evaluator) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _bound(node.operand, values)
        return None if inner is None else -inner
    numbers = [value for value in values.of(node) if isinstance(value, int)] if node is not None else []
    return numbers[0] if numbers else None


_HANDLERS: dict[type, Callable[[Evaluator, Any], Values]] = {
    ast.Constant: Evaluator._constant,
    ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._attribute,
    ast.BinOp: Evaluator._binary,
    ast.JoinedStr: Evaluator._joined,
    ast.List: Evaluator._sequence,
    ast.Tuple: Evaluator._sequence,
    ast.Set: Evaluator._sequence,
    ast.Dict: Evaluator._dictionary,
    ast.IfExp: Evaluator._choice,
    ast.BoolOp: Evaluator._any_of,
    ast.NamedExpr: Evaluator._named,
    ast.Await: Evaluator._awaited,
    ast.Starred: Evaluator._awaited,
    ast.Subscript: Evaluator._subscript,
    ast.ListComp: Evaluator._comprehension,
    ast.GeneratorExp: Evaluator._comprehension,
    ast.SetComp: Evaluator._comprehension,
    ast.Call: Evaluator._call,
}
