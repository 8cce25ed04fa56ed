"""Architecture page and picture, from rules, docstrings and imports: ``python docs/make_architecture.py [--check]``.

Nothing is imported from the package: its files are read. A rule's script is looked for in its shell command, a script's
step in ``src/automedbench/steps/`` (without one, the script itself is the step), a step's packages in its imports.
``--check`` writes nothing and exits with 1 when page or picture are not current.
"""

from __future__ import annotations

import ast
import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = ROOT / "docs/architecture.md", ROOT / "docs/architecture.svg"
PACKAGE = "automedbench"

HEAD = """\
# Architecture

Config says what, rules say in which order, scripts connect, the package does. A rule runs a script, the script calls
the step of its name, and the step uses packages and writes files. This page and its picture are made by
`python docs/make_architecture.py` from the rules, the docstrings and the imports; a contract test holds them current.

![Steps, the packages that each uses, and the files that each writes](architecture.svg)

A row is a step, a dot a package that it imports itself; at the right are the files that it writes. What the files hold:
[files.md](files.md). Why some parts are our own: [decisions.md](decisions.md)."""

FIRST_LEVEL = f"First level of `src/{PACKAGE}/`. Imports point one way (`tests/contract/test_architecture.py`)."
TWO = ["package", "what it holds"]


@dataclass(frozen=True)
class Rule:
    """A rule that runs a script: its docstring, and the names of its outputs."""

    name: str
    text: str
    script: str
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A package or module at the first level: what its docstring says, and the parts that it imports."""

    name: str
    text: str
    imports: tuple[str, ...]


# --- rules -----------------------------------------------------------------------------------------------------------


def rules() -> list[Rule]:
    """Rules with a script, in the order in which the Snakefile includes them."""
    names = re.findall(r'^include: "(.+)"', (ROOT / "Snakefile").read_text("utf-8"), re.MULTILINE)
    texts = [(ROOT / name).read_text("utf-8") for name in names]
    constants = dict(re.findall(r"^([A-Z_]+) = (.+)$", "\n".join(texts), re.MULTILINE))
    found: dict[str, Rule] = {}
    for text in texts:
        for block in re.split(r"^(?=(?:use )?rule )", text, flags=re.MULTILINE)[1:]:
            if rule := _rule(block, found, constants):
                found[rule.name] = rule
    return list(found.values())


def _rule(block: str, known: dict[str, Rule], constants: dict[str, str]) -> Rule | None:
    """The rule of a block; one that reuses another has its script."""
    used = re.match(r"use rule (\w+) as (\w+)", block)
    name = used[2] if used else block.split(":", 1)[0].split()[1]
    script = re.search(r"scripts/(\w+)\.py", block)
    base = known.get(used[1]) if used else None
    if not script and not base:
        return None
    text = re.search(r'"""(.+?)"""', block, re.DOTALL)
    outputs = tuple(_outputs(block, constants)) or (base.outputs if base else ())
    said = " ".join(text[1].split()) if text else base.text if base else ""
    return Rule(name, said, script[1] if script else base.script if base else "", outputs)


def _outputs(block: str, constants: dict[str, str]) -> Iterator[str]:
    section = re.search(r"^    output:\n((?:        .*\n|\n)+)", block, re.MULTILINE)
    for line in section[1].splitlines() if section else ():
        entry = re.sub(r"^\s*(\w+)=", "", line)
        if re.match(r"\s*(caption|category|#)", line):
            continue
        if constant := re.fullmatch(r"([A-Z_]+),", entry.strip()):
            entry = constants.get(constant[1], "")
        # Words before a plain text are part of the path: RUN + "/brief.md".
        for prefix, formatted, text in re.findall(r'(?:([\w.]+) \+ )?(f?)"([^"]+)"', entry):
            yield _shown(prefix, text, formatted=bool(formatted))


def _shown(prefix: str, text: str, *, formatted: bool) -> str:
    """A path for readers: wildcards in angle brackets, settings by their last name, without the run's folder."""
    if not formatted:
        text = text.replace("{", "{{").replace("}", "}}")
    text = re.sub(r"\{\{(\w+)\}\}", r"<\1>", text)
    text = re.sub(r"(?<!\{)\{([\w.]+)\}(?!\})", lambda found: _setting(found[1]), text)
    return (_setting(prefix) + text).lstrip("/") if prefix else text.lstrip("/")


def _setting(expression: str) -> str:
    last = expression.split(".")[-1]
    return {"RUN": "", "ONE": "<run>", "folder": "images"}.get(last, last.lower())


# --- the package ---------------------------------------------------------------------------------------------------


def parts() -> list[Part]:
    """Packages and modules at the first level, by name."""
    base = ROOT / "src" / PACKAGE
    mains = [*base.glob("[!_]*.py"), *base.glob("*/__init__.py")]
    named = {path.parent.name if path.name == "__init__.py" else path.stem: path for path in mains}
    return [_part(name, path) for name, path in sorted(named.items())]


def _part(name: str, main: Path) -> Part:
    files = main.parent.rglob("*.py") if main.name == "__init__.py" else [main]
    used = {other for file in files for other in imported(file)} - {name}
    return Part(name, first_sentence(main), tuple(sorted(used)))


def neighbours() -> list[tuple[str, str]]:
    """The other packages below src/ and what each is."""
    folders = sorted(path for path in (ROOT / "src").iterdir() if (path / "__init__.py").is_file())
    return [(path.name, first_sentence(path / "__init__.py")) for path in folders if path.name != PACKAGE]


def imported(file: Path) -> set[str]:
    """Parts at the first level that a file imports."""
    return {name.split(".")[1] for name in _modules(file)}


@cache
def _modules(file: Path) -> tuple[str, ...]:
    """Modules of the package that a file imports, functions included."""
    return tuple(_imports(ast.parse(file.read_text("utf-8"))))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            names = [f"{PACKAGE}.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            names = []
        yield from (name for name in names if name.startswith(f"{PACKAGE}."))


def step_file(script: str) -> Path:
    """The module of a step; its script where there is none."""
    step = ROOT / "src" / PACKAGE / "steps" / f"{script}.py"
    return step if step.is_file() else ROOT / "scripts" / f"{script}.py"


def step_packages(script: str) -> set[str]:
    """Parts that a step imports, also by way of other steps."""
    found, seen, waiting = set[str](), set[Path](), [step_file(script)]
    while waiting:
        file = waiting.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        for name in _modules(file):
            words = name.split(".")
            if words[1] == "steps" and len(words) > 2:
                waiting.append(ROOT / "src" / PACKAGE / "steps" / f"{words[2]}.py")
            else:
                found.add(words[1])
    return found - {"steps"}


def first_sentence(file: Path) -> str:
    """First paragraph of a module's docstring, up to a full stop."""
    text = " ".join((ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n\n")[0].split())
    return re.sub(r"(?<=[a-z)`])\.\s.*$", "", text).rstrip(".:")


# --- the page ------------------------------------------------------------------------------------------------------


def page() -> str:
    """The page as Markdown."""
    out = [HEAD, "## Steps", _table(["rule", "what it does", "step", "writes"], _rule_rows())]
    out += [
        "## Packages",
        FIRST_LEVEL,
    ]
    rows = [[f"`{part.name}`", _cell(part.text), ", ".join(part.imports)] for part in parts()]
    out += [_table([*TWO, "imports"], rows)]
    if others := neighbours():
        out += [
            "Beside it:",
            _table(["package", "what it holds"], [[f"`{name}`", _cell(text)] for name, text in others]),
        ]
    return "\n\n".join(out) + "\n"


def _rule_rows() -> Iterator[list[str]]:
    for rule in rules():
        files = ", ".join(f"`{name}`" for name in rule.outputs)
        yield [f"`{rule.name}`", _cell(rule.text), f"`{step_file(rule.script).relative_to(ROOT).as_posix()}`", files]


def _cell(text: str) -> str:
    text = text.replace("``", "`").replace("|", "\\|")
    # Outside of code, angle brackets would be read as HTML.
    pieces = text.split("`")
    return "`".join(piece if number % 2 else piece.replace("<", "&lt;") for number, piece in enumerate(pieces))


def _table(head: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:]])


# --- the picture ---------------------------------------------------------------------------------------------------

LEFT, TOP, ROW, COLUMN, FILES = 170, 120, 24, 26, 430
STYLE = "text{font:13px sans-serif;fill:#222}.file{font:12px monospace;fill:#444}.dot{fill:#0072b2}.line{stroke:#ddd}"


def picture() -> str:
    """Steps as rows, packages as columns, files at the right, as SVG."""
    steps: dict[str, tuple[str, ...]] = {}
    for rule in rules():
        steps.setdefault(rule.script, rule.outputs)
    used = {step: step_packages(step) for step in steps}
    columns = sorted(set().union(*used.values()), key=lambda name: (-sum(name in each for each in used.values()), name))
    width, height = LEFT + COLUMN * len(columns) + FILES, TOP + ROW * len(steps) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="#fff"/>',
        *(_label(LEFT + COLUMN * number + 8, name) for number, name in enumerate(columns)),
    ]
    for number, (step, files) in enumerate(steps.items()):
        out += _row(TOP + ROW * number, step, [name in used[step] for name in columns], files)
    return "\n".join([*out, "</svg>"]) + "\n"


def _label(x: int, name: str) -> str:
    return f'<text transform="translate({x},{TOP - 10}) rotate(-55)">{name}</text>'


def _row(y: int, step: str, dots: list[bool], files: tuple[str, ...]) -> Iterator[str]:
    middle, right = y + ROW // 2, LEFT + COLUMN * len(dots)
    yield f'<line class="line" x1="8" x2="{right + FILES - 8}" y1="{y + ROW}" y2="{y + ROW}"/>'
    yield f'<text x="8" y="{middle + 4}">{step}</text>'
    for number, dot in enumerate(dots):
        if dot:
            yield f'<circle class="dot" cx="{LEFT + COLUMN * number + 6}" cy="{middle}" r="5"/>'
    shown = ", ".join(files[:3]) + (", …" if len(files) > 3 else "")
    yield f'<text class="file" x="{right + 12}" y="{middle + 4}">{html.escape(shown)}</text>'


def main() -> int:
    """Write both files, or say which of them is not current."""
    made = {PAGE: page(), PICTURE: picture()}
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not current; run `python docs/make_architecture.py`.")
        return 1 if stale else 0
    for path in stale:
        path.write_text(made[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
