"""What must not lie in the repository: machine paths, secrets, half-done work, large files; and what must."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".svg")
THIS = Path(__file__).relative_to(ROOT).as_posix()


def listed() -> list[str]:
    """Files that git tracks or would track."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("not a git clone")
    return sorted(name for name in done.stdout.decode().split("\0") if (ROOT / name).is_file())


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Path → content of every text file, this one left out (it holds the patterns)."""
    found = {}
    for name in listed():
        data = (ROOT / name).read_bytes()
        if b"\0" not in data and not name.endswith(IMAGES) and name != THIS:
            found[name] = data.decode("utf-8")
    return found


def matches(texts: dict[str, str], pattern: str, flags: re.RegexFlag = re.NOFLAG) -> list[str]:
    """``file:line: text`` of every match; most files have none, so each is first searched as a whole."""
    return [
        f"{name}:{number}: {line.strip()[:160]}"
        for name, text in texts.items()
        if re.search(pattern, text, flags | re.MULTILINE)
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(pattern, line, flags)
    ]


def test_files_are_found(texts: dict[str, str]) -> None:
    """The control of the searches below."""
    assert {"Snakefile", "Makefile", "src/automedbench/base/cards.py"} <= set(texts)
    assert matches({"a": "x = '/srv/x'"}, r"/srv/") == ["a:1: x = '/srv/x'"]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(
            r"(?<![\w.])/(home|Users)/(?!(user|you|me|someone|ambtest|agent|alice|x)\b)\w+", id="home folders"
        ),
        pytest.param(r"(?<![\w/])/(mnt|scratch|lustre|gpfs)/(?!\.\.\.)\w+/\w+", id="cluster paths"),
    ],
)
def test_no_machine_paths(texts: dict[str, str], pattern: str) -> None:
    """Tests of the sandbox may name such paths as things to be refused, and upstream data is kept as it came."""
    foreign = ("tests/unit/", "tests/security/", "demo/data/")
    kept = {name: text for name, text in texts.items() if not name.startswith(foreign)}
    assert matches(kept, pattern) == []


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"\b(artifactory|nexus|jfrog|devpi|pypi-mirror|registry\.internal)\b", id="mirrors"),
        pytest.param(r"\b(quay|ghcr|docker|nvcr|gcr)\.io\b|\.ecr\.aws\b", id="registries"),
        pytest.param(r"--(index-url|extra-index-url|trusted-host)[ =]", id="index of a site"),
        pytest.param(r"\b(\w+\.)*(debian|ubuntu|pypi|pythonhosted|npmjs|anaconda)\.(org|com)\b", id="package hosts"),
    ],
)
def test_no_registry_or_mirror(texts: dict[str, str], pattern: str) -> None:
    """Sites set these in their own tools. What agents may and may not reach is policy, and named where it is tested."""
    kept = {name: text for name, text in texts.items() if "sandbox" not in name and not name.startswith("tests/")}
    assert matches(kept, pattern) == []


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"\bsk-(?!canary|test|fake|secret|abc|123|x+\b|y+\b)[A-Za-z0-9_-]{16,}", id="API key"),
        pytest.param(r"\b(ghp|gho|github_pat|glpat|hf)_[A-Za-z0-9]{20,}", id="token"),
        pytest.param(r"\bAKIA[0-9A-Z]{16}\b", id="cloud key"),
        pytest.param(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s*$", id="private key"),
        pytest.param(r"://[^/\s:@'\"{}$]+:[^/\s:@'\"{}$*]+@(?!(host|example|localhost)\b)", id="password in a URL"),
    ],
)
def test_no_secrets(texts: dict[str, str], pattern: str) -> None:
    kept = {name: text for name, text in texts.items() if not name.startswith("tests/")}
    assert matches(kept, pattern) == []


def test_no_half_done_work(texts: dict[str, str]) -> None:
    assert matches(texts, r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|raise NotImplemented\b") == []


def test_no_debugging_left(texts: dict[str, str]) -> None:
    python = {name: text for name, text in texts.items() if name.endswith((".py", ".smk"))}
    assert matches(python, r"^\s*(breakpoint\(\)|import pdb|pdb\.set_trace)") == []


def test_no_large_files() -> None:
    """Below 1 MB each; images may be larger, but not by much."""
    large = {name: (ROOT / name).stat().st_size for name in listed()}
    assert {
        name: size for name, size in large.items() if size >= (3_000_000 if name.endswith(IMAGES) else 1_000_000)
    } == {}


def test_no_generated_files() -> None:
    names = [
        name for name in listed() if re.search(r"(^|/)(__pycache__|\.snakemake|results|logs|\.venv|images)/", name)
    ]
    assert [name for name in names if not name.startswith(("docs/images/", "demo/data/"))] == []


# --- what must be there ---------------------------------------------------------------------------------------


IMPORT = re.compile(r"^ *from (automedbench[\w.]*) import (\([^)]*\)|[^\n;\"#]+)", re.MULTILINE)


def test_names_imported_by_programs_exist() -> None:
    """Benchmarks are run by hand and seldom, and tests hold programs as text: both would miss a renamed function."""
    missing = []
    for name in listed():
        if not re.match(r"(benchmarks|tools|docs|tests)/.*\.py$", name):
            continue
        for module, names in IMPORT.findall((ROOT / name).read_text()):
            try:
                package = importlib.import_module(module)
            except ModuleNotFoundError:
                continue  # of a track that a test adds
            for imported in re.findall(r"(\w+)(?: as \w+)?", re.sub(r"#.*", "", names)):
                is_module = hasattr(package, "__path__") and importlib.util.find_spec(f"{module}.{imported}")
                if not hasattr(package, imported) and not is_module:
                    missing.append(f"{name}: {module}.{imported}")
    assert missing == []


def test_licence() -> None:
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


@pytest.mark.parametrize("folder", sorted((ROOT / "demo/data").iterdir()), ids=lambda folder: folder.name)
def test_demo_data_comes_with_licence_and_origin(folder: Path) -> None:
    """Real images of others: who made them, where they are from, what is allowed."""
    assert len((folder / "LICENSE").read_text()) > 100
    origin = (folder / "SOURCE.md").read_text()
    assert re.search(r"https?://", origin)
    assert re.search(r"[0-9a-f]{40}", origin), "the revision is not named"


def test_the_name_of_the_profile_works_from_a_clone() -> None:
    assert (ROOT / "slurm").is_symlink()
    assert (ROOT / "slurm").resolve() == ROOT / "profiles/slurm"


def references(text: str) -> set[str]:
    """Relative links, and names in backticks that look like paths of the repository."""
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link}
    quoted = re.findall(
        r"`((?:config|containers|demo|docs|envs|profiles|rules|scripts|src|tests|tools)/[\w./-]+)`", text
    )
    return {name for name in links if name} | set(quoted)


@pytest.mark.parametrize("path", sorted(name for name in listed() if name.endswith(".md")))
def test_documents_name_files_that_exist(path: str) -> None:
    place = (ROOT / path).parent
    missing = [
        name
        for name in sorted(references((ROOT / path).read_text()))
        if not ((place / name).exists() or (ROOT / name).exists()) and not re.search(r"[<>*…]|\.\.\.", name)
    ]
    assert missing == []


def test_references_are_seen() -> None:
    text = "[a](docs/a.md#x) `scripts/b.py` `not a path` [c](https://x.y) `{case}/p.json`"
    assert references(text) == {"docs/a.md", "scripts/b.py"}


def test_readme_is_short_and_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert "make demo" in text
    assert "make test" in text
