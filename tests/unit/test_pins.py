"""Versions are pinned in one place: requirements, lists, conda files and container definitions say the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from make_conda_files import ENVIRONMENTS, PYTHON, conda_file, write_conda_files

ROOT = Path(__file__).resolve().parents[2]
ENVS = ROOT / "envs"
LISTS = sorted(path.stem for path in ENVS.glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"host": ["run"], "scorer": ["score"], "radiology": ["score", "radiology"], "dev": ["dev"], "docs": ["docs"]}
"""The extras that a list pins; ``bench`` adds its own names to those of scoring."""


def pins(name: str) -> dict[str, str]:
    """Package → version of one list; every line must be a pin."""
    found = {}
    for line in (ENVS / f"{name}.txt").read_text().splitlines():
        package, separator, version = line.partition("==")
        assert separator, f"{name}.txt: '{line}' is not a pin"
        assert package not in found, f"{name}.txt: '{package}' is listed twice"
        found[package] = version
    return found


def wanted(name: str) -> list[str]:
    """The packages that a list was made for: those of the project with extras, or of ``<name>.in``."""
    extras = EXTRAS.get(name)
    if extras is None:
        lines = [line.partition("#")[0].strip() for line in (ENVS / f"{name}.in").read_text().splitlines()]
    else:
        optional = PROJECT["optional-dependencies"]
        lines = [*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])]
    return [re.split(r"[<>=]", line)[0] for line in lines if line]


def test_no_pins() -> None:
    assert conda_file("x", "").endswith("  - pip:\n")


def test_conda_file_by_hand() -> None:
    data = yaml.safe_load(conda_file("x", "a==1\nb==2\n"))
    assert data == {
        "name": "automedbench-x",
        "channels": ["conda-forge"],
        "dependencies": [f"python={PYTHON}", "pip", {"pip": ["a==1", "b==2"]}],
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_conda_files_equal_the_lists(name: str) -> None:
    assert (ENVS / f"{name}.yaml").read_text() == conda_file(name, (ENVS / f"{name}.txt").read_text())


def test_written_files_are_these(tmp_path: Path) -> None:
    for name in ENVIRONMENTS:
        (tmp_path / f"{name}.txt").write_bytes((ENVS / f"{name}.txt").read_bytes())
    write_conda_files(tmp_path)
    for name in ENVIRONMENTS:
        assert (tmp_path / f"{name}.yaml").read_bytes() == (ENVS / f"{name}.yaml").read_bytes()


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_sorted_pins(name: str) -> None:
    assert list(pins(name)) == sorted(pins(name))
    assert all(re.fullmatch(r"[0-9][0-9A-Za-z.+!-]*", version) for version in pins(name).values())


def test_every_extra_has_a_list() -> None:
    assert set(PROJECT["optional-dependencies"]) == {extra for extras in EXTRAS.values() for extra in extras}


def test_a_requirement_is_named_once() -> None:
    """What two extras need is a dependency of the package."""
    named = [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]
    assert len(named) == len(set(named)) > 40


@pytest.mark.parametrize("name", LISTS)
def test_lists_hold_what_was_asked_for(name: str) -> None:
    assert set(wanted(name)) <= set(pins(name))


def test_shared_packages_have_equal_pins() -> None:
    """A score must not depend on whether it was made on the host or in a container; agents' work makes no score."""
    versions: dict[str, set[str]] = {}
    for name in (name for name in LISTS if name != "research"):
        for package, version in pins(name).items():
            versions.setdefault(package, set()).add(version)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


RESEARCH = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36", "--no-header", "--no-annotate"]


def test_research_resolves_to_its_list() -> None:
    """What an index says of these versions: they agree, and need nothing else but the GPU libraries of torch."""
    asked = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "-q", *RESEARCH, str(ENVS / "research.txt")]
    once = os.environ | {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "20"}
    done = subprocess.run(asked, env=once, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "No solution found" not in done.stderr:
        pytest.skip(f"no index of packages: {done.stderr[-300:]}")
    resolved = dict(line.split("==") for line in done.stdout.splitlines())
    brought = {name: version for name, version in resolved.items() if name not in pins("research")}
    assert {**pins("research"), **brought} == resolved, done.stderr
    assert [name for name in brought if not re.match("nvidia-|cuda-|triton", name)] == []


@pytest.mark.parametrize("name", ["light", "research", "scorer"])
def test_container_definitions_install_from_the_lists(name: str) -> None:
    """No package is named or pinned in a definition but through its list."""
    text = (ROOT / f"containers/{name}.def").read_text()
    installs = [line.strip() for line in text.replace("\\\n", " ").splitlines() if "pip install" in line]
    commands = [line for line in installs if not line.startswith("#")]
    assert len(commands) == 1
    assert f"requirements=envs/{name}.txt" in text
    assert "{{ requirements }} /opt/automedbench/requirements.txt" in text
    assert "--no-index" in commands[0]
    assert commands[0].endswith("requirements.txt")
    assert "==" not in re.sub(r"#.*", "", text)


def test_no_version_is_pinned_elsewhere() -> None:
    """Python packages only: ``envs/`` is the one place, but where a requirement asks for a version."""
    packages = {package for name in LISTS for package in pins(name)}
    texts = [ROOT / "Makefile", *sorted((ROOT / "tests/setup").glob("*.sh"))]
    for path in texts:
        for package, version in re.findall(r"\b([a-z][a-z0-9-]+)==([0-9][0-9.]*)", path.read_text()):
            assert package not in packages, f"{path}: {package}=={version}"


def test_rules_use_existing_environments() -> None:
    used = {
        path.parent / name
        for path in (ROOT / "rules").glob("*.smk")
        for name in re.findall(r'"(\.\./envs/\S+)"', path.read_text())
    }
    assert used
    assert all(path.resolve().is_file() for path in used)


def test_the_makefile_installs_the_lists() -> None:
    text = (ROOT / "Makefile").read_text()
    for name in (name for name in LISTS if name != "research"):  # in its image only
        assert f"envs/{name}.txt" in text
