"""Imports point one way, and what runs thousands of times starts fast (docs/specification.md, 2)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from automedbench.tracks import track_names

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PACKAGE = "automedbench"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE / PACKAGE).rglob("*.py")
)

# Part of the package → what of the package it may import. Parts are matched by their longest prefix.
TYPED = {"records", "errors", "files", "masking", "yamlfile", "cards"}
BASE = TYPED | {"untrusted"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "records": {"records"},
    "files": {"errors"},
    "masking": set(),
    "option_types": set(),
    "yamlfile": {"errors"},
    "untrusted": {"errors", "untrusted"},
    "cards": {"records", "errors", "yamlfile"},
    "metrics": {"metrics"},
    "datasets": BASE | {"datasets"},
    "fixtures": BASE | {"fixtures"},
    "workers": set(),
    "tracks": BASE | {"datasets", "metrics", "tracks", "workers"},
    "agents": TYPED,
    "case_views": BASE | {"tracks"},
    "code_digest": {"files"},
    "changes": TYPED | {"plaintable"},
    "inspect_log": TYPED,
    "verification": TYPED | {"scoring"},
    "campaign": TYPED | {"agents", "campaign_config", "judges"},
    "campaign_config": TYPED,
    "judges": TYPED | {"agents"},
    "injection": {"injection", "records"},
    "statistics": {"statistics"},
    "endpoint": TYPED | {"endpoint"},
    "agent": BASE | {"agent", "agents", "campaign_config", "endpoint", "sandbox"},
    "sandbox": BASE | {"injection", "sandbox"},
    "judge": BASE | {"agents", "endpoint", "injection", "judge", "judges"},
    "error_codes": BASE | {"error_codes", "judge"},
    "scoring": BASE | {"error_codes"},
    "leaderboard": BASE | {"agents", "campaign", "error_codes", "judge", "leaderboard", "scoring", "statistics"},
    "commands": BASE
    | {"agent", "agents", "campaign", "campaign_config", "commands", "console", "endpoint", "error_codes", "judge"}
    | {"judges", "leaderboard", "sandbox", "scoring", "statistics", "wiring"}
    | {"campaign_options", "doctor", "forecast", "inspect_log", "option_types", "plaintable", "verification"}
    | {"datasets", "task_list"},
    "doctor": BASE
    | {"agent", "agents", "campaign", "campaign_config", "doctor", "endpoint", "judges", "sandbox", "wiring"}
    | {"task_list"},
    "task_list": BASE | {"wiring"},
    "forecast": BASE | {"agent", "campaign", "campaign_config", "plaintable"},
}
HEAVY = ("pandas", "openai", "torch", "matplotlib", "snakemake", "pyarrow", "polars", "scipy.stats", "jinja2", "httpx")
# Modules that the scripts of short, frequent steps import.
LIGHT = [
    "automedbench.cards",
    "automedbench.campaign",
    "automedbench.staging",
    "automedbench.submission",
    "automedbench.grading",
    "automedbench.scoring",
    "automedbench.judge",
    "automedbench.sandbox.audit",
    *(f"automedbench.tracks.{name}" for name in track_names()),
    "automedbench.leaderboard.plan",
]


def path_of(module: str) -> Path:
    path = SOURCE / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports_of(path: Path, module: str = "") -> Iterator[str]:
    """Dotted names that a file imports anywhere, functions included; relative ones made absolute."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, node.module] if node.module else parents)
            yield from (name if name in MODULES else base for name in (f"{base}.{alias.name}" for alias in node.names))


def part_of(module: str) -> str:
    """The part of the package that a module belongs to: its first name below the package."""
    return module.partition(".")[2].partition(".")[0]


def ours(module: str) -> set[str]:
    """Parts of the package that a module imports."""
    names = {name for name in imports_of(path_of(module), module) if name.split(".")[0] == PACKAGE}
    return {part_of(name) for name in names} - {""}


def test_modules_are_found() -> None:
    """The control: an empty list would pass everything."""
    assert {"automedbench.cards", "automedbench.tracks.detection", "automedbench.metrics.boxes"} <= set(MODULES)
    assert "records" in ours("automedbench.tracks.detection")
    assert "datasets" in ours("automedbench.tracks.detection")


def test_relative_imports_are_seen(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("from ..cards import A\nfrom . import b\nimport os.path\n")
    assert list(imports_of(tmp_path / "x.py", "automedbench.tracks.x")) == [
        "automedbench.cards",
        "automedbench.tracks",
        "os.path",
    ]


@pytest.mark.parametrize("module", [module for module in MODULES if part_of(module) in ALLOWED])
def test_imports_point_one_way(module: str) -> None:
    assert ours(module) - ALLOWED[part_of(module)] == set()


@pytest.mark.parametrize("part", ["agent", "sandbox", "judge", "metrics", "datasets", "leaderboard"])
def test_no_track_is_known_to(part: str) -> None:
    """Adding a track changes none of these."""
    users = {module for module in MODULES if part_of(module) == part and "tracks" in ours(module)}
    assert users == set()


@pytest.mark.parametrize("module", MODULES)
def test_nothing_imports_scripts_or_the_engine(module: str) -> None:
    names = {name.split(".")[0] for name in imports_of(path_of(module), module)}
    scripts = {path.stem for path in (ROOT / "scripts").glob("*.py")}
    assert names.isdisjoint({"snakemake", "scripts", *scripts})


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.py")), ids=lambda path: path.stem)
def test_scripts_do_not_know_the_engine(script: Path) -> None:
    """They are run by hand as well; they import the package and the standard library only."""
    known = {PACKAGE, *sys.stdlib_module_names}
    assert {name.split(".")[0] for name in imports_of(script)} <= known
    assert "snakemake." not in script.read_text()


def test_no_import_cycle() -> None:
    """Between parts of the package, as far as their modules are imported on loading."""
    graph = {module: {name for name in imports_at_top(module) if name in MODULES} for module in MODULES}
    assert find_cycle(graph) == []


def imports_at_top(module: str) -> set[str]:
    """Modules of the package that loading this one loads; imports inside functions are made later."""
    tree = ast.parse(path_of(module).read_text())
    kept = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names: set[str] = set()
    for node in kept:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.module:
            names |= {
                name if name in MODULES else node.module for name in (f"{node.module}.{a.name}" for a in node.names)
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


def test_who_judges_nothing_loads_no_patterns() -> None:
    """Every step reads rules and traces; compiling what text that addresses a judge looks like takes 0.1 s."""
    code = "import sys, automedbench.wiring, automedbench.judge; print('automedbench.injection' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", MODULES)
def test_modules_stay_small_and_say_what_they_are(module: str) -> None:
    """One concept per module: fewer than 400 lines, a docstring, postponed annotations."""
    text = path_of(module).read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    assert len(text.splitlines()) < 400
    if any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body):
        assert "from __future__ import annotations" in text


@pytest.mark.parametrize("module", MODULES)
def test_public_names_have_docstrings(module: str) -> None:
    tree = ast.parse(path_of(module).read_text())
    public = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    ]
    assert [node.name for node in public if ast.get_docstring(node) is None] == []
