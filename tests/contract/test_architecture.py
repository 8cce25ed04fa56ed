"""Imports point one way, and what runs thousands of times starts fast (docs/specification.md, 2)."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from automedbench.tracks import track_names

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PACKAGE, REHEARSAL = "automedbench", "automedbench_rehearsal"
EXECUTORS = ("snakemake_executor_plugin_automedbench", "snakemake_executor_plugin_automedbench_slurm")
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for package in (PACKAGE, REHEARSAL, *EXECUTORS)
    for path in (SOURCE / package).rglob("*.py")
)
NAMES = frozenset(MODULES)
FLOORS = (
    {"base", "metrics", "statistics"},
    {"campaign", "datasets", "reading"},
    {"judge", "sandbox", "tracks"},
    {"agent", "scoring"},
    {"leaderboard"},
    {"planning"},
    {"steps"},
    {"commands"},
)
"""Parts of the package from the ground up. A part imports from itself and from floors below its own."""
HEAVY = (
    *("pandas", "openai", "torch", "matplotlib", "snakemake", "pyarrow", "polars", "scipy.stats", "jinja2", "httpx"),
    *("httpx2", "requests", "rich", "nibabel", "pydicom", "scipy", "skimage", "sklearn", "nltk", "SimpleITK", "h5py"),
)
AFTER_THE_AGENT = ("collect_submission", "audit_run", "score_metrics", "score_judge", "score_run")
# What these steps do not need: where agents and judges are reached, who runs agents, ranks and plans.
ELSEWHERE = tuple(
    f"{PACKAGE}.{name}"
    for name in ("base.endpoint", "campaign.agents", "campaign.load", "agent", "judge.panel", "leaderboard", "planning")
)
# Modules that the scripts of short, frequent steps import.
LIGHT = [
    "automedbench.base.cards",
    "automedbench.campaign.load",
    *(f"automedbench.steps.{name}" for name in ("command_line", "stage_task", *AFTER_THE_AGENT)),
    "automedbench.steps.inside.check_workspace",
    "automedbench.steps.inside.grade_submission",
    "automedbench.judge",
    *(f"automedbench.tracks.{name}" for name in track_names()),
    "automedbench.leaderboard.plan",
    "automedbench.leaderboard.tables.columns",
    "automedbench.leaderboard.page.run_pages",
]
MAX_FUNCTION_LINES = 80


@functools.cache
def path_of(module: str) -> Path:
    path = SOURCE / Path(*module.split("."))
    return package if (package := path / "__init__.py").is_file() else path.with_suffix(".py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file's tree, walked once."""
    return list(ast.walk(tree_of(path)))


@functools.cache
def imports_of(path: Path, module: str = "") -> tuple[str, ...]:
    """Dotted names that a file imports anywhere, functions included; relative ones made absolute."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(imports_among(nodes_of(path), package))


def imports_among(nodes: Iterable[ast.AST], package: str = "") -> Iterator[str]:
    """The same for some nodes of a file of this package."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, node.module] if node.module else parents)
            yield from (name if name in NAMES else base for name in (f"{base}.{alias.name}" for alias in node.names))


def part_of(module: str) -> str:
    """The part of the package that a module belongs to: its first name below the package."""
    return module.partition(".")[2].partition(".")[0]


def parts_used(module: str) -> set[str]:
    """Parts of the package that a module imports."""
    names = {name for name in imports_of(path_of(module), module) if name.split(".")[0] == PACKAGE}
    return {part_of(name) for name in names} - {"", "__version__"}


def of_package(package: str) -> list[str]:
    return [module for module in MODULES if module.split(".")[0] == package]


def test_modules_are_found() -> None:
    """The control: an empty list would pass everything."""
    assert {
        "automedbench.base.cards",
        "automedbench.tracks.detection",
        "automedbench.metrics.average_precision",
    } <= set(MODULES)
    assert {"base", "datasets"} <= parts_used("automedbench.tracks.detection.stage")


def test_relative_imports_are_seen(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("from ..cards import A\nfrom . import b\nimport os.path\n")
    assert list(imports_of(tmp_path / "x.py", "automedbench.tracks.x")) == [
        "automedbench.cards",
        "automedbench.tracks",
        "os.path",
    ]


def test_imports_point_one_way() -> None:
    """Every part stands on a floor, and no arrow between parts points up or sideways."""
    floor = {part: number for number, parts in enumerate(FLOORS) for part in parts}
    assert {part_of(module) for module in of_package(PACKAGE)} - {"", "__main__"} == set(floor)
    wrong = [
        f"{module} imports {part}"
        for module in of_package(PACKAGE)
        if part_of(module) in floor
        for part in sorted(parts_used(module) - {part_of(module)})
        if floor[part] >= floor[part_of(module)]
    ]
    assert wrong == []


def test_no_track_is_known_outside() -> None:
    """Adding a track touches its own folder only: no other module imports one by name."""
    named = tuple(f"automedbench.tracks.{name}" for name in track_names())
    users = [
        f"{module} imports {name}"
        for module in MODULES
        if not module.startswith(named)
        for name in imports_of(path_of(module), module)
        if name.startswith(named)
    ]
    assert users == []


def names_of_tracks(path: Path) -> set[str]:
    """Names of tracks that stand as texts in a file."""
    texts = {node.value for node in nodes_of(path) if isinstance(node, ast.Constant)}
    return texts & set(track_names())


def test_no_track_is_named_outside() -> None:
    """What depends on a track is asked of it: no other module compares with, or lists, a track by its name."""
    named = {
        f"{module} names {name}"
        for module in of_package(PACKAGE)
        for name in names_of_tracks(path_of(module))
        if not f"{module}.".startswith(f"{PACKAGE}.tracks.{name}.")
    }
    assert named == set()


def test_names_of_tracks_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text('"""About vqa."""\nif track == "vqa":\n    words = {"detection": "boxes"}\n')
    assert names_of_tracks(tmp_path / "x.py") == {"vqa", "detection"}


def test_what_stands_in_for_the_world_stays_out() -> None:
    """A rehearsal is loaded when it is asked for: four functions of one module import it, when they are called."""
    files = [path for folder in (SOURCE / PACKAGE, ROOT / "scripts") for path in sorted(folder.rglob("*.py"))]
    importing = [path for path in files if any(REHEARSAL in name for name in imports_of(path))]
    users = {
        f"{path.stem}.{node.name}"
        for path in importing
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef) and any(REHEARSAL in name for name in imports_among(ast.walk(node)))
    }
    functions = ("has_stand_in", "serve_stand_in", "make_up_resources", "scripted_model")
    assert users == {f"rehearsal.{name}" for name in functions}
    assert {path.stem for path in importing} == {"rehearsal"}
    assert not any(REHEARSAL in name for name in imports_at_top("automedbench.planning.rehearsal"))


def test_nothing_imports_scripts_or_snakemake() -> None:
    """Nor a plugin of Snakemake: those import the package, and not the other way round."""
    scripts = {path.stem for path in (ROOT / "scripts").glob("*.py")}
    users = {
        f"{module} imports {name}"
        for module in [*of_package(PACKAGE), *of_package(REHEARSAL)]
        for name in imports_of(path_of(module), module)
        if name.split(".")[0] in {"scripts", *scripts} or name.startswith("snakemake")
    }
    assert users == set()


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.py")), ids=lambda path: path.stem)
def test_scripts_do_not_know_snakemake(script: Path) -> None:
    """They are run by hand as well; they import the package and the standard library only."""
    known = {PACKAGE, *sys.stdlib_module_names}
    assert {name.split(".")[0] for name in imports_of(script)} <= known
    assert "snakemake." not in script.read_text()


def test_no_import_cycle() -> None:
    """Between modules, as far as they are imported on loading."""
    graph = {module: {name for name in imports_at_top(module) if name in NAMES} for module in MODULES}
    assert find_cycle(graph) == []


def imports_at_top(module: str) -> set[str]:
    """Modules that loading this one loads; imports inside functions are made later."""
    tree = tree_of(path_of(module))
    kept = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names: set[str] = set()
    for node in kept:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.module:
            names |= {
                name if name in NAMES else node.module for name in (f"{node.module}.{a.name}" for a in node.names)
            }
    return names - {module}


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle as a list of names, or an empty list."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for following in sorted(graph[node]):
            if found := visit(following, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


def test_cycles_would_be_found() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_light_modules_load_nothing_heavy() -> None:
    """Each of these runs once per run of a campaign: a heavy import would cost hours over ten thousand runs."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[2:]:\n"
        "    importlib.import_module(name)\n"
        "print(' '.join(sorted(set(sys.argv[1].split()) & set(sys.modules))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, " ".join(HEAVY), *LIGHT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("step", [*AFTER_THE_AGENT, "command_line"])
def test_steps_after_the_agent_start_lean(step: str) -> None:
    """Each of them starts once per run; NumPy is for scoring alone, and nobody looks for plug-ins of pydantic."""
    code = f"import os, sys, automedbench.steps.{step}\nprint(*sys.modules, os.environ['PYDANTIC_DISABLE_PLUGINS'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *loaded, plugins = done.stdout.split()
    wanted = () if step == "score_metrics" else ("numpy", "PIL")
    unused = (*ELSEWHERE, *HEAVY, *wanted, "concurrent.futures")
    assert [name for name in loaded if name.startswith(tuple(f"{each}." for each in unused)) or name in unused] == []
    assert plugins == "__all__" and "pydantic" in loaded


@pytest.mark.parametrize("name", ["case_views", "check_resources", "check_workspace", "grade_submission"])
def test_inside_a_role_no_launcher_is_loaded(name: str) -> None:
    """What reads hostile or private files needs nothing that starts containers."""
    code = f"import sys, automedbench.steps.inside.{name}\nprint(*(n for n in sys.modules if 'sandbox.container' in n))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_who_judges_nothing_loads_no_patterns() -> None:
    """Every step reads rules and traces; compiling what text that addresses a judge looks like takes 0.1 s."""
    code = (
        "import sys, automedbench.planning.versions, automedbench.judge\n"
        "print('automedbench.reading.injection' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_modules_say_what_they_are() -> None:
    """A docstring each, postponed annotations, and functions that fit on a screen."""
    wrong = []
    for module in MODULES:
        text, tree = path_of(module).read_text(), tree_of(path_of(module))
        functions = [
            node for node in nodes_of(path_of(module)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        if not ast.get_docstring(tree):
            wrong.append(f"{module}: no docstring")
        if functions and "from __future__ import annotations" not in text:
            wrong.append(f"{module}: no postponed annotations")
        wrong += [
            f"{module}.{node.name}: {length} lines"
            for node in functions
            if (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
        ]
    assert wrong == []


def test_public_names_have_docstrings() -> None:
    wrong = [
        f"{module}.{node.name}"
        for module in MODULES
        for node in tree_of(path_of(module)).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert wrong == []


def class_names(source: Path) -> dict[str, list[str]]:
    """Name of a class → files below ``source`` that define one, at any depth."""
    found: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path.relative_to(source).as_posix())
    return found


def test_class_names_are_defined_once() -> None:
    """A search for a class name leads to one definition, over all packages below ``src``."""
    twice = {name: files for name, files in class_names(SOURCE).items() if len(files) > 1}
    assert twice == {}


def test_second_definitions_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Target: ...\n")
    (tmp_path / "b.py").write_text("def f():\n    class Target: ...\n")
    assert class_names(tmp_path) == {"Target": ["a.py", "b.py"]}
