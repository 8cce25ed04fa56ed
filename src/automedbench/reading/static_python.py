"""Static analysis of Python: resolved call names against resolved constants.

The tree is followed once from top to bottom, taking every branch; function bodies are visited with what their calls
in the same text hand over. Nothing is executed. What a value may be is a short list of alternatives.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from automedbench.reading.python_folding import Values, texts_of
from automedbench.reading.python_values import Evaluator, Ref
from automedbench.reading.static_calls import call_hits, changes_its_arguments, method_hits
from automedbench.reading.static_rules import (
    HOLE,
    HOME,
    Hit,
    Scope,
    command_hits,
    path_hits,
    probe_hits,
    resolve,
    write_hits,
)

BashCheck = Callable[[str, Scope, int, int], list[Hit]]

MAX_DEPTH = 8
MAX_STEPS = 100_000
_PASSES = 2

_OPENERS = {"builtins.open", "io.open", "io.open_code", "io.FileIO", "codecs.open", "os.chdir", "os.readlink"}
_OPENERS |= {"os.truncate", "os.remove", "os.unlink", "os.rmdir", "os.chmod", "os.mkdir", "os.makedirs"}
_OPENERS |= {"shutil.rmtree", "os.utime", "os.setxattr", "os.mkfifo", "os.mknod", "os.chown"}
# Last name of a function of any module that opens, lists, copies or links what its argument names.
_OPENING_NAMES = {
    *("open", "listdir", "scandir", "walk", "fwalk", "link", "symlink", "rename", "renames", "replace"),
    *("copy", "copy2", "copyfile", "copytree", "move", "make_archive", "unpack_archive", "copyfileobj"),
    *("glob", "iglob", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "open_memmap", "load_npz", "loadmat"),
    *("imread", "imread_collection", "ImageCollection", "mimread", "imopen", "dcmread", "read_file", "ReadImage"),
    *("read_csv", "read_json", "read_parquet", "read_table", "read_excel", "read_pickle", "read_text", "read_dicom"),
    *("File", "ZipFile", "TarFile", "HDFStore", "connect", "getline", "getlines", "input", "run_path", "urlopen"),
    *("urlretrieve", "load_file", "safe_open", "load_dataset", "ImageFolder", "read_image"),
}
# Not ``replace``: it is a method of every text as well.
_PATH_METHODS = {
    *("open", "read_text", "read_bytes", "iterdir", "glob", "rglob", "walk", "unlink", "rmdir", "chmod"),
    *("symlink_to", "hardlink_to", "link_to", "rename", "readlink", "write_text", "write_bytes", "touch"),
}
_LINKING_METHODS = {"symlink_to", "hardlink_to", "link_to", "rename"}
_WRITING_METHODS = {"write_text", "write_bytes", "touch"}
_PROBES = {"exists", "isfile", "isdir", "islink", "lexists", "is_file", "is_dir", "stat", "lstat", "access", "getsize"}
_COMMAND_NAMES = {
    *("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "subprocess.Popen"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "os.system", "os.popen", "pty.spawn"),
    *("asyncio.create_subprocess_shell", "asyncio.create_subprocess_exec", "os.posix_spawn", "os.posix_spawnp"),
    *(f"os.exec{suffix}" for suffix in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
}
_SPAWNS = {f"os.spawn{suffix}" for suffix in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
_CODE_NAMES = {"builtins.exec", "builtins.eval", "builtins.compile"}
_LIBRARIES = ("ctypes.CDLL()", "ctypes.PyDLL()", "ctypes.cdll.LoadLibrary()", "ctypes.pythonapi", "cffi.FFI().dlopen()")
_ESCAPE_CALLS = {"ptrace", "unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot"}
_NATIVE_OPENERS = {"open", "open64", "openat", "fopen", "fopen64", "opendir", "creat", "link", "symlink", "rename"}
_HARMLESS_BASES = ("logging.", "warnings.", "re.", "json.", "builtins.")


def check_python(code: str, scope: Scope, depth: int, bash: BashCheck) -> list[Hit]:
    """Hits of a Python text; raises SyntaxError, ValueError or RecursionError when it cannot be parsed."""
    if depth > MAX_DEPTH or not scope.effort.allows(code):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # doubtful escapes in the agent's strings are not our business
        tree = ast.parse(code)
    check = _Check(scope, depth, bash)
    check.module(tree)
    return check.hits


class _Check:
    """One pass over a module; collects hits."""

    def __init__(self, scope: Scope, depth: int, bash: BashCheck) -> None:
        self.hits: list[Hit] = []
        self._scope = scope
        self._depth = depth
        self._bash = bash
        self._cwd = HOME
        self._values = Evaluator()
        self._functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._handed: dict[str, dict[str, Values]] = {}
        self._steps = 0

    def module(self, tree: ast.Module) -> None:
        """Visit the module, then every function with what it was called with."""
        self._functions = {
            node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self._block(tree.body)
        outer = self._values.names
        for _ in range(_PASSES):
            for name, function in self._functions.items():
                self._values.names = {**outer, **self._parameters(name, function)}
                self._block(function.body)

    def _parameters(self, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Values]:
        every = [*function.args.posonlyargs, *function.args.args]
        found: dict[str, Values] = {argument.arg: [] for argument in [*every, *function.args.kwonlyargs]}
        for argument, default in zip(reversed(every), reversed(function.args.defaults), strict=False):
            found[argument.arg] = self._values.of(default)
        for key, values in self._handed.get(name, {}).items():
            if key.isdigit() and int(key) < len(every):
                found[every[int(key)].arg] = values
            elif key in found:
                found[key] = values
        return found

    # --- statements --------------------------------------------------------------------------------------------

    def _block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in [*node.decorator_list, *node.args.defaults]:
                self._expression(inner)
            return
        for expression in _own_expressions(node):
            self._expression(expression)
        self._bind(node)
        for block in _blocks(node):
            before = dict(self._values.names)
            self._block(block)
            self._values.merge(before)

    def _bind(self, node: ast.stmt) -> None:
        """What a statement makes known about names."""
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._values.imported(node)
            self._own_modules(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._values.assign(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._values.assign(node.target, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            joined = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
            self._values.assign(node.target, joined)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._values.bind(node.target, self._values.elements(node.iter))
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None:
                    self._values.assign(item.optional_vars, item.context_expr)

    def _own_modules(self, node: ast.Import | ast.ImportFrom) -> None:
        """Modules of the workspace are executed by importing them."""
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            place = name.replace(".", "/")
            text = (
                self._scope.read(f"{place}.py") if self._scope.read is not None and place.isascii() and place else None
            )
            if text is not None and self._depth < MAX_DEPTH:
                self._nested(text, node.lineno)

    def _expression(self, node: ast.expr) -> None:
        """Check every call in an expression, inner ones first bound by their comprehensions."""
        for inner in ast.walk(node):
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise RecursionError("too large to analyse")
            if isinstance(inner, ast.comprehension):
                self._values.bind(inner.target, self._values.elements(inner.iter))
            elif isinstance(inner, ast.NamedExpr):
                self._values.assign(inner.target, inner.value)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                self._call(inner)

    # --- calls -------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> None:
        for function in self._values.of(node.func):
            if isinstance(function, Ref):
                self._named_call(function.name, node)
        if isinstance(node.func, ast.Attribute):
            self._method(node.func, node)
        elif isinstance(node.func, ast.Name) and node.func.id in self._functions:
            self._hand_over(node.func.id, node)

    def _hand_over(self, name: str, node: ast.Call) -> None:
        """Remember what a function of this text is called with."""
        handed = self._handed.setdefault(name, {})
        arguments = {str(index): argument for index, argument in enumerate(node.args)}
        arguments |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        for key, argument in arguments.items():
            handed[key] = self._values.limited([*handed.get(key, []), *self._values.of(argument)])

    def _named_call(self, name: str, node: ast.Call) -> None:
        last = name.rpartition(".")[2]
        library = name.startswith(_LIBRARIES)
        self._notice(name, library, node)
        if name in _COMMAND_NAMES or name in _SPAWNS:
            self._command(name, node)
        elif name in _CODE_NAMES:
            for text in self._texts(node.args[:1]):
                self._nested(text, node.lineno)
        elif (library or name.startswith("os.")) and last in _ESCAPE_CALLS:
            self.hits.append(Hit("static.escape_call", "escape", "warning", node.lineno, name))
        elif name in _OPENERS or _opens_by_name(name) or (library and last in _NATIVE_OPENERS):
            self._opening(name, node)
        elif last in _PROBES:
            self._judge(probe_hits, self._texts(_arguments(node)), node.lineno)
        elif library and last in ("system", "popen"):
            for text in self._texts(node.args[:1]):
                self.hits += self._bash(text.replace(HOLE, "$_"), self._scope, self._depth + 1, node.lineno)
        elif not name.startswith(_HARMLESS_BASES):
            self._judge(probe_hits, self._texts(_arguments(node)), node.lineno)

    def _notice(self, name: str, library: bool, node: ast.Call) -> None:
        """What is worth a notice only because it is called."""
        if name.startswith("builtins."):
            return
        values = [value for argument in _arguments(node) for value in self._values.of(argument)]
        references = [value.name for value in values if isinstance(value, Ref)]
        first = self._texts(node.args[:1])
        self.hits += call_hits(name, library, first, texts_of(values), references, node.lineno)

    def _opening(self, name: str, node: ast.Call) -> None:
        texts = self._texts(_arguments(node))
        before = len(self.hits)
        self._judge(path_hits, texts, node.lineno)
        if name in ("os.walk", "os.fwalk") and "/" in texts[:1]:
            self.hits.append(Hit("static.scan", "private_access", "notice", node.lineno, f"{name}('/')"))
        if name == "os.chdir" and texts and HOLE not in texts[0]:
            self._cwd = resolve(texts[0], self._cwd)
        if before == len(self.hits) and (changes_its_arguments(name) or self._writes(name, node)):
            for text in texts if changes_its_arguments(name) else self._texts(node.args[:1]):
                self.hits += write_hits(text, node.lineno, self._cwd)

    def _writes(self, name: str, node: ast.Call) -> bool:
        if name != "builtins.open":
            return False
        modes = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        return any(set(text) & set("wax+") for text in self._texts(modes))

    def _method(self, function: ast.Attribute, node: ast.Call) -> None:
        """A method of a value that is a path, for example ``Path("/data") / "x"``."""
        bases = [value for value in self._values.of(function.value) if isinstance(value, str)]
        if function.attr in _PATH_METHODS:
            extra = self._texts(node.args) if function.attr in _LINKING_METHODS else []
            before = len(self.hits)
            self._judge(path_hits, [*bases, *extra], node.lineno)
            if function.attr in _WRITING_METHODS and before == len(self.hits):
                for text in bases:
                    self.hits += write_hits(text, node.lineno, self._cwd)
        elif function.attr in _PROBES:
            self._judge(probe_hits, bases, node.lineno)
        else:
            keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
            self.hits += method_hits(function.attr, len(node.args), keywords, node.lineno)

    def _command(self, name: str, node: ast.Call) -> None:
        """A command as text, as a list, or as single arguments."""
        arguments = node.args[1:] if name in _SPAWNS else node.args
        arguments = [*arguments, *(keyword.value for keyword in node.keywords if keyword.arg in ("args", "argv"))]
        single: list[list[str]] = []
        for argument in arguments:
            for value in self._values.of(argument) or [None]:
                if isinstance(value, list):
                    self._words([texts_of(element) or [HOLE] for element in value], node.lineno)
                else:
                    single.append(texts_of([value]) or [HOLE])
        shell = name.startswith("subprocess.") or name in ("os.system", "os.popen") or name.endswith("_shell")
        if shell:
            for text in (text for texts in single[:1] for text in texts if not text.startswith(HOLE)):
                self.hits += self._bash(text.replace(HOLE, "$_"), self._scope, self._depth + 1, node.lineno)
        elif single:
            self._words(single, node.lineno)

    def _words(self, words: list[list[str]], line: int) -> None:
        """A command as a list of words: quoted and handed to the Bash analysis, which knows all commands."""
        if words and words[0]:
            text = " ".join(_quoted(alternatives) for alternatives in words)
            self.hits += self._bash(text, self._scope, self._depth + 1, line)
            name = words[0][0].rpartition("/")[2]
            self.hits += command_hits(name, words[1:], line, self._scope, self._cwd)

    def _nested(self, text: str, line: int) -> None:
        """Code in a string."""
        if HOLE in text:
            return
        try:
            inner = check_python(text, self._scope, self._depth + 1, self._bash)
        except (SyntaxError, ValueError):
            return
        self.hits += [Hit(hit.rule, hit.category, hit.severity, line, hit.evidence) for hit in inner]

    def _judge(self, judge: Callable[[str, int, Scope, str], list[Hit]], texts: Iterable[str], line: int) -> None:
        for text in texts:
            self.hits += judge(text, line, self._scope, self._cwd)

    def _texts(self, nodes: Iterable[ast.expr]) -> list[str]:
        return [text for node in nodes for text in texts_of(self._values.of(node))]


def _opens_by_name(name: str) -> bool:
    """A module's function of a telling name; methods of unknown objects (``text.replace``) don't count."""
    module, _, last = name.rpartition(".")
    return (
        last in _OPENING_NAMES and module not in ("", "builtins") and "()" not in module and "builtins." not in module
    )


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _quoted(alternatives: list[str]) -> str:
    text = alternatives[0]
    return "$_" if text.startswith(HOLE) else "'" + text.partition(HOLE)[0].replace("'", "'\\''") + "'"


def _own_expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """Expressions of a statement, without those of the statements inside it."""
    for value in _children(node):
        if isinstance(value, ast.expr):
            yield value
        elif isinstance(value, ast.withitem):
            yield value.context_expr


def _children(node: ast.AST) -> Iterator[Any]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block
    for handler in getattr(node, "handlers", []):
        yield handler.body
    for case in getattr(node, "cases", []):
        yield case.body
