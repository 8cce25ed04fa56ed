"""Where the values come from that Python code writes: out of the case's input, copied from it, or out of nothing.

A rough flow without scopes, like that of ``reading.dataflow``: names hold the highest level that was ever bound to
them. What only has the form of an input (its shape, header, name, length) holds nothing of it.
"""

from __future__ import annotations

import ast
import builtins
import enum
import posixpath
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from automedbench.reading.dataflow import FORM, bindings, bound, opens_to_write, spoken
from automedbench.reading.python import HOLE, Names, dotted

INPUT_MARKS = ("/data/public", "DATA_DIR")
_PASSES = 12  # each pass follows one more step; more would let odd code cost minutes
_DEPTH = 60
_REACH = 3

_READS = frozenset(
    "open read_text read_bytes read_csv read_json read_table read_excel imread loadtxt genfromtxt fromfile memmap "  # noqa: SIM905
    "ReadImage dcmread read_file load_img decode_image read_image load Execute".split()
)
_FORM = FORM | frozenset(
    "zeros_like ones_like empty_like exists getsize stat basename dirname splitext listdir glob iterdir keys print "  # noqa: SIM905
    "name stem suffix parent time perf_counter set_title".split()
)
_FORM_KEYS = frozenset(
    "question_id case_id case id patient_id image_id study_id uid question_type answer_type answer_mode type images "  # noqa: SIM905
    "image_path image_paths path paths file files filename name spacing shape options".split()
)
_TRANSPARENT = frozenset(
    "astype copy deepcopy asarray array ascontiguousarray asanyarray get_fdata squeeze expand_dims transpose reshape "  # noqa: SIM905
    "tolist item strip lower upper title float int str list dict tuple set round bool from_numpy numpy cpu to clip "
    "GetArrayFromImage GetImageFromArray GetArrayViewFromImage fromarray frombuffer BytesIO StringIO convert decode "
    "encode read readline readlines read_text read_bytes load loads json get Nifti1Image Nifti2Image DataFrame Series "
    "dumps enumerate zip sorted tqdm reversed iter next items values append extend add insert update rename fillna "
    "iterrows itertuples DictReader reader to_dict to_numpy tensor as_tensor Tensor join format Path rstrip lstrip "
    "splitlines split detach float32 uint8 CopyInformation SetSpacing open imread ReadImage permute flip rot90 "
    "swapaxes moveaxis unsqueeze contiguous pad repeat kron tile".split()
)
_SINKS = frozenset(
    "save savez savez_compressed savetxt to_filename to_csv to_json to_parquet tofile write_text write_bytes write "  # noqa: SIM905
    "writelines writerow writerows dump imwrite imsave WriteImage volwrite writeheader copy copyfile copy2 copytree "
    "symlink link".split()
)
_OF_PATHS = frozenset([*dir(str), "mkdir", "joinpath", "is_dir"])
"""What code does with the path of an input that computes nothing of what stands in it."""
_GROWS = frozenset(["append", "add", "update", "extend"])
_COPIES = frozenset(["copy", "copyfile", "copy2", "copytree", "symlink", "link", "move"])
_COPY_ROOTS = frozenset(["shutil", "os"])
_PLAIN_ROOTS = frozenset(
    "os sys json csv time re shutil pathlib glob random math np numpy pd pandas argparse tqdm datetime collections "  # noqa: SIM905
    "itertools functools logging string io pickle yaml plt matplotlib nib nibabel PIL Image sitk SimpleITK pydicom "
    "h5py imageio tifffile".split()
)
_PLAIN_MODULES = _PLAIN_ROOTS | sys.stdlib_module_names
_PROGRAMS = frozenset("run Popen call check_call check_output getoutput popen urlopen".split())  # noqa: SIM905
_CONSTRUCTORS = frozenset(
    "zeros ones full empty eye arange linspace rand randn randint randperm manual_seed tensor device cuda no_grad "  # noqa: SIM905
    "inference_mode is_available set_num_threads seed default_rng Generator".split()
)
_NETWORKS = frozenset(
    "Module Sequential Conv2d Conv3d Linear create_model UNet BasicUNet SwinUNETR SegResNet resnet18 resnet50 "  # noqa: SIM905
    "densenet121 efficientnet_b0 Dense Model".split()
)
_TRAINS = frozenset(["backward", "fit", "fit_transform", "partial_fit", "train_step", "minimize", "fit_generator"])


class InputShare(enum.IntEnum):
    """How much of the input a value holds."""

    NOTHING = 0
    COPY = 1
    UNSURE = 2
    """Another's program or package made it, out of what one does not see."""
    MADE = 3


@dataclass(frozen=True)
class Write:
    """A place that writes a file: what the written value holds, whether the path is an output's, the file's name."""

    node: ast.Call
    level: InputShare
    output: bool
    file: str


class ValueOrigins:
    """Levels of the names of some code, given as nodes with parents before their children.

    ``outputs``: nodes that hold the path of an output; ``inputs``: nodes that hold one of an input; ``files``: what
    files that earlier code wrote hold, by name.
    """

    def __init__(
        self, nodes: list[ast.AST], outputs: set[ast.AST], inputs: set[ast.AST], files: dict[str, InputShare]
    ) -> None:
        self.nodes, self.outputs, self.inputs, self.files = nodes, outputs, inputs, files
        self.texts = Names(nodes)
        self.functions = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        self.returned = {
            inner: node.name
            for node in nodes
            if isinstance(node, ast.FunctionDef)
            for inner in ast.walk(node)
            if isinstance(inner, ast.Return)
        }
        self.bindings = list(bindings(nodes))
        self.known = self.functions.union(*(names for names, _ in self.bindings))
        self.names: dict[str, InputShare] = {}
        for _ in range(_PASSES):
            before = dict(self.names)
            self._pass()
            if self.names == before:
                break

    def writes(self) -> list[Write]:
        """Everything that the code writes to files."""
        chosen = {
            inner
            for node in self.nodes
            if isinstance(node, (ast.If, ast.While)) and self.holds(node.test) > InputShare.NOTHING
            for part in (*node.body, *node.orelse)
            for inner in ast.walk(part)
        }
        sinks = [node for node in self.nodes if isinstance(node, ast.Call) and is_sink(node)]
        return [
            replace(self._write(node), level=InputShare.MADE) if node in chosen else self._write(node) for node in sinks
        ]

    def predicts(self, node: ast.AST) -> bool:
        """Whether an expression comes from a function of the run's own, or from another's object that has data."""
        values = [node]
        for _ in range(_REACH):
            named = {inner.id for value in values for inner in ast.walk(value) if isinstance(inner, ast.Name)}
            values += [value for names, value in self.bindings if names & named and value not in values]
        calls = [inner for value in values for inner in ast.walk(value) if isinstance(inner, ast.Call)]
        return any(
            self.holds(call) > InputShare.COPY
            and (spoken(call.func) in self.functions or self._asks_outside(call) or self._is_outside(call))
            for call in calls
        )

    def holds(self, node: ast.AST) -> InputShare:
        """What an expression holds of the input."""
        return self._level(node, 0)

    def untrained(self) -> ast.AST | None:
        """Where a network is built; the caller knows whether weights were loaded or trained."""
        for node in self.nodes:
            if isinstance(node, ast.ClassDef) and any(spoken(base) == "Module" for base in node.bases):
                return node
            if isinstance(node, ast.Call) and spoken(node.func) in _NETWORKS and "." in dotted(node.func):
                return node
        return None

    def trains(self) -> bool:
        """Something is fitted to data."""
        return any(isinstance(node, ast.Call) and spoken(node.func) in _TRAINS for node in self.nodes)

    # --- names ----------------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        for names, value in self.bindings:
            self._raise(names, self.holds(value))
        for node in self.nodes:
            if isinstance(node, (ast.If, ast.While)) and self.holds(node.test) > InputShare.NOTHING:
                self._raise(set(self._bound_below(node)), InputShare.MADE)
            elif isinstance(node, ast.Assign):
                self._raise(set(self._chosen(node.targets)), InputShare.MADE)
            elif isinstance(node, ast.AugAssign) and self.holds(node.value) > InputShare.NOTHING:
                self._raise(bound(node.target), InputShare.MADE)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._mutate(node.value)

    def _bound_below(self, statement: ast.If | ast.While) -> Iterator[str]:
        """Names that a condition's branches bind, and the functions that they return from."""
        for node in (inner for part in (*statement.body, *statement.orelse) for inner in ast.walk(part)):
            if isinstance(node, ast.Assign):
                yield from bound(*node.targets)
            elif isinstance(node, ast.AugAssign):
                yield from bound(node.target)
            elif isinstance(node, ast.Return):
                yield from [self.returned[node]] if node.value is not None and node in self.returned else []
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield from bound(node.func.value) if node.func.attr in _GROWS else ()

    def _chosen(self, targets: list[ast.expr]) -> Iterator[str]:
        """Names of which a part is set that the input chooses: ``mask[image > 9] = 1``."""
        for target in targets:
            if isinstance(target, ast.Subscript) and self.holds(target.slice) > InputShare.NOTHING:
                yield from bound(target)

    def _mutate(self, call: ast.Call) -> None:
        """``objects.append(x)``, ``predictor.set_image(x)``: the object holds what it was given."""
        if not isinstance(call.func, ast.Attribute):
            return
        given = max(map(self.holds, _arguments(call)), default=InputShare.NOTHING)
        if self._asks_outside(call):
            given = InputShare.MADE
        worked = given in (InputShare.COPY, InputShare.MADE) and spoken(call.func) not in _TRANSPARENT | _SINKS
        self._raise(bound(call.func.value) - self.texts.imported, InputShare.MADE if worked else given)

    def _raise(self, names: set[str], level: InputShare) -> None:
        if level:
            self.names |= {name: max(level, self.names.get(name, level)) for name in names}

    # --- expressions ----------------------------------------------------------------------------------------------

    def _level(self, node: ast.AST | None, depth: int) -> InputShare:
        if node is None or depth > _DEPTH:
            return InputShare.NOTHING
        deeper = depth + 1
        if isinstance(node, ast.Name):
            return self.names.get(node.id, InputShare.NOTHING)
        if isinstance(node, ast.Attribute):
            if node.attr in _FORM:
                return InputShare.NOTHING
            return max(self._level(node.value, deeper), self.names.get(node.attr, InputShare.NOTHING))
        if isinstance(node, ast.Subscript):
            return self._item(node, deeper)
        if isinstance(node, ast.Call):
            return self._call(node, deeper)
        if isinstance(node, ast.IfExp):
            chosen = _worked(self._level(node.test, deeper))
            return max(chosen, self._level(node.body, deeper), self._level(node.orelse, deeper))
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, deeper)
        if isinstance(node, ast.Compare):
            held = [self._level(part, deeper) for part in (node.left, *node.comparators)]
            same = ast.dump(node.left) == ast.dump(node.comparators[0])
            return InputShare.NOTHING if same else _worked(max(held))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            tests = [_worked(self._level(test, deeper)) for part in node.generators for test in part.ifs]
            made = node.value if isinstance(node, ast.DictComp) else node.elt
            return max([self._level(made, deeper), *tests])
        if isinstance(node, ast.Lambda):
            return self._level(node.body, deeper)
        parts = node.values if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
        return max((self._level(part, deeper) for part in parts), default=InputShare.NOTHING)

    def _item(self, node: ast.Subscript, depth: int) -> InputShare:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if key in _FORM_KEYS:
            return InputShare.NOTHING
        return max(_worked(self._level(node.slice, depth)), self._level(node.value, depth))

    def _arithmetic(self, node: ast.BinOp, depth: int) -> InputShare:
        left, right = self._level(node.left, depth), self._level(node.right, depth)
        constants = [side for side in (node.left, node.right) if isinstance(side, ast.Constant)]
        if isinstance(node.op, ast.Mult) and any(side.value == 0 for side in constants):
            return InputShare.NOTHING
        if isinstance(node.op, ast.Sub) and ast.dump(node.left) == ast.dump(node.right):
            return InputShare.NOTHING
        texts = isinstance(node.op, (ast.Add, ast.Div)) and any(isinstance(side.value, str) for side in constants)
        return max(left, right) if constants or texts else _worked(max(left, right))

    def _call(self, node: ast.Call, depth: int) -> InputShare:
        name = spoken(node.func) or ""
        if name in self.functions:
            return self.names.get(name, self.names.get("__call__", InputShare.NOTHING))
        if name in _FORM or name in ("full", "full_like"):
            filled = node.args[1:2] if name.startswith("full") else []
            return max((self._level(value, depth) for value in filled), default=InputShare.NOTHING)
        arguments = _arguments(node)
        if name in ("Nifti1Image", "Nifti2Image", "WriteImage"):
            arguments = arguments[:1]
        elif name == "get":
            if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value in _FORM_KEYS:
                return InputShare.NOTHING
            arguments = []
        if isinstance(node.func, (ast.Attribute, ast.Call, ast.Subscript)):
            arguments = [*arguments, node.func.value if isinstance(node.func, ast.Attribute) else node.func]
        held = max((self._level(value, depth) for value in arguments), default=InputShare.NOTHING)
        if held:
            return held if name in _TRANSPARENT else _worked(held)
        if name in _READS and not opens_to_write(node):
            if node not in self.outputs:
                return self._opened(node)
            if node in self.inputs:  # by a name that leads to both
                return InputShare.UNSURE
        if self._asks_outside(node):
            return InputShare.MADE
        return InputShare.UNSURE if self._is_outside(node) else InputShare.NOTHING

    def _opened(self, node: ast.Call) -> InputShare:
        """What a file holds that is read: an input, a file that earlier code wrote, or one that nothing is known of."""
        if node in self.inputs:
            return InputShare.COPY
        if dotted(node.func).partition(".")[0] in ("torch", "joblib", "pickle"):
            return InputShare.NOTHING
        told = [text for value in node.args if (text := self.texts.text(value)) not in ("", HOLE)]
        if not told:
            return InputShare.COPY
        return self.files.get(posixpath.basename(told[0]), InputShare.COPY if HOLE in told[0] else InputShare.MADE)

    def _asks_outside(self, node: ast.Call) -> bool:
        """A function of another's package, or an object of one, is given the path of an input."""
        if spoken(node.func) in _READS | _FORM | _TRANSPARENT | _SINKS | _OF_PATHS:
            return False
        root = dotted(node.func).partition(".")[0] if not isinstance(node.func, ast.Call) else "?"
        known = root in _PLAIN_ROOTS or hasattr(builtins, root) or root in self.functions
        return not known and bool(root) and any(value in self.inputs for value in _arguments(node))

    def _is_outside(self, node: ast.Call) -> bool:
        """A function of a package that could compute anything, a program, or one that nothing is known of."""
        name, root = spoken(node.func) or "", self.texts.full(node.func).partition(".")[0].partition("(")[0]
        if name in _PROGRAMS and root in ("subprocess", "os", "urllib"):
            return True
        if name in _FORM | _TRANSPARENT | _SINKS | _CONSTRUCTORS | _READS or not root:
            return False
        imported = root not in self.functions and root in self.texts.modules
        unknown = isinstance(node.func, ast.Name) and root not in self.known and not hasattr(builtins, root)
        return (imported and root not in _PLAIN_MODULES) or unknown

    # --- files ----------------------------------------------------------------------------------------------------

    def _write(self, node: ast.Call) -> Write:
        name = spoken(node.func) or ""
        arguments = _arguments(node)
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        output = any(value in self.outputs for value in (*arguments, *receiver))
        if name in _COPIES:
            level = InputShare.COPY if any(value in self.inputs for value in arguments) else self._copied(node)
        else:
            level = max(map(self.holds, (*arguments, *receiver)), default=InputShare.NOTHING)
        told = [text for value in (*arguments, *receiver) if "." in (text := self.texts.text(value))[-6:]]
        return Write(node, level, output, posixpath.basename(told[0]) if told else "")

    def _copied(self, node: ast.Call) -> InputShare:
        """What a file of the run holds that is copied as it is."""
        told = [self.texts.text(value) for value in node.args[:1]]
        return self.files.get(posixpath.basename(told[0]), InputShare.MADE) if told else InputShare.MADE


def _worked(held: InputShare) -> InputShare:
    """What is made of something by working it out."""
    return InputShare.MADE if held == InputShare.COPY else held


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def is_sink(node: ast.Call) -> bool:
    """A call that writes to a file."""
    name, root = spoken(node.func), dotted(node.func).partition(".")[0]
    if name == "print":
        return any(keyword.arg == "file" for keyword in node.keywords)
    if name in ("copy", "move"):
        return root in _COPY_ROOTS
    return name in _SINKS and root != "sys"
