"""The pages of docs/: few, all in the index, cited sections exist, the architecture page is current, plain words."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import automedbench

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SECTIONS = set(re.findall(r"^#{2,3} ([\d.]+?)\.? ", (ROOT / "docs/specification.md").read_text("utf-8"), re.MULTILINE))
CITED = re.compile(r"docs/specification\.md, ([\d., andto]*\d)")
WORDS = re.compile(r"\b(no|some|every|any)body('s)?\b|\b(what|who)ever\b", re.IGNORECASE)


def test_there_are_few_pages_and_the_index_has_them_all() -> None:
    links = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/index.md").read_text("utf-8"))
    assert len(PAGES) <= 32
    assert sorted([*links, "index.md"]) == [page.name for page in PAGES]


def test_architecture_page_is_current() -> None:
    """After a change of rules, packages or their docstrings: ``python docs/make_architecture.py``."""
    command = [sys.executable, str(ROOT / "docs/make_architecture.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_known_issues_are_current() -> None:
    """After a change of cards: ``python docs/make_known_issues.py config/tasks docs/known-issues.md``."""
    assert (ROOT / "docs/known-issues.md").read_text("utf-8") == maker("make_known_issues").render(
        ROOT / "config/tasks"
    )


def test_rubrics_are_current() -> None:
    """After a change of rubrics: ``python docs/make_rubrics.py config/rubrics docs/rubrics.md``."""
    assert (ROOT / "docs/rubrics.md").read_text("utf-8") == maker("make_rubrics").render(ROOT / "config/rubrics")


def test_tables_are_current() -> None:
    """After a change of the leaderboard's columns: ``python docs/make_tables.py docs/tables.md``."""
    assert (ROOT / "docs/tables.md").read_text("utf-8") == maker("make_tables").render()


def test_reference_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of commands: ``python docs/make_reference.py docs/reference.md``."""
    monkeypatch.setenv("COLUMNS", "40")  # the width of the terminal that runs this does not count
    assert (ROOT / "docs/reference.md").read_text("utf-8") == maker("make_reference").render()


def maker(name: str) -> ModuleType:
    """A script beside the pages."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sources() -> list[Path]:
    return [
        path
        for base in ("src", "tests", "benchmarks", "rules", "scripts", "tools")
        for path in (ROOT / base).rglob("*.py")
    ]


def test_cited_sections_of_the_specification_exist() -> None:
    cited = {
        (path.relative_to(ROOT).as_posix(), number)
        for path in sources()
        for found in CITED.finditer(path.read_text("utf-8"))
        for number in re.findall(r"\d+(?:\.\d+)*", found[1])
    }
    assert len(cited) > 50  # the control: citations are found
    assert sorted(item for item in cited if item[1] not in SECTIONS) == []


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"\b(design|house)\.md\b", id="file"),
        pytest.param(r"\b(sandbox|harness|track|report|detection) specification\b", id="specification"),
    ],
)
def test_nothing_cites_a_document_that_is_not_here(pattern: str) -> None:
    this = Path(__file__)
    found = [path for path in sources() if path != this and re.search(pattern, path.read_text("utf-8"), re.IGNORECASE)]
    assert found == []


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in PAGES)])
def test_plain_words(path: str) -> None:
    """Pages name who or what is meant."""
    lines = (ROOT / path).read_text("utf-8").splitlines()
    assert [line for line in lines if WORDS.search(line)] == []


def test_plain_words_in_the_package() -> None:
    """Messages and docstrings too. Left out: words that agents write, the judge's prompt, and made-up data."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        if not {"reading", "upstreams"} & set(path.parts) and path.name != "prompt.py"
        for line in path.read_text("utf-8").splitlines()
        if WORDS.search(line)
    ]
    assert found == []


def test_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (citation["title"], citation["version"], citation["license"]) == (
        "automedbench",
        automedbench.__version__,
        "MIT",
    )
