"""Command lines of image building are compared as text; building itself is tested with a real Apptainer."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import stat
from pathlib import Path

import pytest

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.sandbox.container import image

ROOT = Path(__file__).parents[2]
IMAGES = ["agent", "scorer"]


@pytest.fixture
def recipe(tmp_path: Path) -> image.ImageRecipe:
    (tmp_path / "list.txt").write_text("numpy==2.4.6\n")
    (tmp_path / "some.def").write_text("Bootstrap: {{ bootstrap }}\n")
    return image.ImageRecipe(
        definition=tmp_path / "some.def",
        requirements=tmp_path / "list.txt",
        base="docker://debian:12-slim",
        wheels=tmp_path / "wheels",
    )


def put_program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def values_of(argv: list[str], option: str) -> list[str]:
    return [argv[place + 1] for place, word in enumerate(argv) if word == option]


# ---------------------------------------------------------------- base references


@pytest.mark.parametrize("reference", ["", "no/such.sif", "http://example.org/x.sif", "docker:/debian"])
def test_unknown_base_is_refused_with_the_way_out(reference: str, tmp_path: Path, monkeypatch) -> None:
    """Neither a registry scheme of Apptainer nor a path."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingDataError, match=r"debian_root\.sh"):
        image.parse_base(reference)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("docker://debian:12-slim", ("docker", "debian:12-slim")),
        ("docker://registry.example:5000/a/b@sha256:0f", ("docker", "registry.example:5000/a/b@sha256:0f")),
        ("oras://registry.example/base:1", ("oras", "registry.example/base:1")),
    ],
    ids=["docker", "registry-and-digest", "oras"],
)
def test_registry_reference(reference: str, expected: tuple[str, str]) -> None:
    """Header lines as Apptainer's documentation of the bootstrap agents has them."""
    assert expected == tuple(image.parse_base(reference))


def test_local_base_is_named_absolutely(tmp_path: Path, monkeypatch) -> None:
    """A folder or a SIF, relative to where the command is run."""
    (tmp_path / "root").mkdir()
    monkeypatch.chdir(tmp_path)
    assert ("localimage", str(tmp_path / "root")) == tuple(image.parse_base("root"))


# ---------------------------------------------------------------- command lines


def test_download_asks_for_the_containers_python_not_the_hosts(recipe: image.ImageRecipe) -> None:
    """Wheels only, exactly the list, for Debian 12's Python and C library."""
    [argv] = image.download_argvs(recipe)
    assert values_of(argv, "--python-version") == ["3.11"]
    assert values_of(argv, "--implementation") == ["cp"]
    assert [str(recipe.wheels_for_list)] == values_of(argv, "--dest")
    assert {"--no-deps", "--only-binary=:all:"} <= set(argv)
    assert argv[-1] == recipe.requirements.read_text().split()[-1]


def test_source_only_packages_are_built_and_torch_brings_its_own(recipe: image.ImageRecipe) -> None:
    """Three calls: wheels of the list, torch with the GPU libraries of the machine, a wheel made from source."""
    recipe.requirements.write_text("numpy==2.4.6\nradgraph==0.1.18\ntorch==2.13.0\n")
    plain, resolved, built = image.download_argvs(recipe)
    assert "numpy==2.4.6" in plain
    assert not {"radgraph==0.1.18", "torch==2.13.0"} & set(plain)
    assert "torch==2.13.0" in resolved
    assert "--no-deps" not in resolved
    assert values_of(resolved, "--constraint") == [str(recipe.requirements)]
    assert built[3] == "wheel"
    assert built[-1] == "radgraph==0.1.18"


@pytest.mark.parametrize(
    ("tag", "runs"),
    [
        # glibc versions: Debian 12 has 2.36; 2.17 and 2.28 are what numpy's and scipy's wheels name
        ("manylinux_2_17_x86_64", True),
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_36_x86_64", True),
        ("manylinux2014_x86_64", True),
        ("manylinux_2_37_x86_64", False),
        ("musllinux_1_2_x86_64", False),
        ("manylinux_2_28_aarch64", False),
    ],
)
def test_platforms_that_run_on_debian_12(tag: str, runs: bool) -> None:
    assert runs == (tag in image.platform_tags("x86_64"))


def test_build_passes_everything_as_build_arguments(recipe: image.ImageRecipe, tmp_path: Path) -> None:
    """The whole command line, in words; the digest is hashlib's of the file's bytes."""
    digest = hashlib.sha256(b"numpy==2.4.6\n").hexdigest()
    expected = (
        "apptainer --quiet build --force --build-arg bootstrap=docker --build-arg base=debian:12-slim "
        f"--build-arg requirements={tmp_path}/list.txt "
        f"--build-arg wheels={tmp_path}/wheels/{digest[:16]}-py3.11-x86_64 "
        f"--build-arg requirements_sha256={digest} {tmp_path}/x.tmp {tmp_path}/some.def"
    )
    assert expected == " ".join(image.build_argv(recipe, tmp_path / "x.tmp"))


def test_build_environment_drops_the_callers_binds() -> None:
    caller = {"PATH": "/bin", "APPTAINER_BIND": "/secret", "SINGULARITY_BINDPATH": "/secret", "APPTAINER_TMPDIR": "/a"}
    assert image.build_environment(caller, None) == {"PATH": "/bin", "APPTAINER_TMPDIR": "/a"}
    assert image.build_environment(caller, Path("/b")) == {"PATH": "/bin", "APPTAINER_TMPDIR": "/b"}


@pytest.mark.parametrize("name", IMAGES)
def test_definition_knows_exactly_the_arguments_that_are_passed(name: str, recipe: image.ImageRecipe) -> None:
    """Apptainer refuses a build argument without a place, and a place without a value."""
    text = (ROOT / "containers" / f"{name}.def").read_text()
    passed = {word.partition("=")[0] for word in values_of(image.build_argv(recipe, Path("x")), "--build-arg")}
    assert passed == set(re.findall(r"\{\{ (\w+) \}\}", text))


@pytest.mark.parametrize("name", IMAGES)
def test_definition_pins_nothing_and_names_no_host(name: str) -> None:
    """Versions live in envs/ only; registries and mirrors are the user's."""
    text = (ROOT / "containers" / f"{name}.def").read_text()
    assert re.findall(r"==\d|https?://", text) == []


# ---------------------------------------------------------------- building, with programs that only pretend


def test_without_apptainer_the_message_says_where_to_get_it(recipe: image.ImageRecipe, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MissingDataError, match=r"module.*apptainer\.sh"):
        image.build_image(recipe, recipe.wheels / "x.sif")


@pytest.mark.parametrize("missing", ["some.def", "list.txt"])
def test_a_missing_file_is_named(missing: str, recipe: image.ImageRecipe, tmp_path: Path, monkeypatch) -> None:
    put_program(tmp_path / "bin", "apptainer", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / missing).unlink()
    with pytest.raises(MissingDataError, match=missing):
        image.build_image(recipe, tmp_path / "x.sif")


@pytest.fixture
def downloaded(recipe: image.ImageRecipe) -> image.ImageRecipe:
    recipe.wheels_for_list.mkdir(parents=True)
    (recipe.wheels_for_list / "complete.txt").write_text("")
    return recipe


def test_failed_build_keeps_the_old_image_and_no_rest(
    downloaded: image.ImageRecipe, tmp_path: Path, monkeypatch
) -> None:
    put_program(tmp_path / "bin", "apptainer", "exit 7")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    out = tmp_path / "images" / "x.sif"
    out.parent.mkdir()
    out.write_text("old image")
    with pytest.raises(InfrastructureError, match="status 7") as caught:
        image.build_image(downloaded, out)
    assert len(str(caught.value).splitlines()) <= 3
    assert [(path.name, path.read_text()) for path in out.parent.iterdir()] == [("x.sif", "old image")]


def test_finished_build_replaces_the_image(downloaded: image.ImageRecipe, tmp_path: Path, monkeypatch) -> None:
    """The pretended apptainer writes its second word from the end, as the real one does."""
    put_program(tmp_path / "bin", "apptainer", 'while [ $# -gt 2 ]; do shift; done; echo new >"$1"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    out = tmp_path / "images" / "x.sif"
    image.build_image(downloaded, out)
    assert [path.name for path in out.parent.iterdir()] == ["x.sif"]
    assert out.read_text() == "new\n"


def test_complete_wheels_are_not_downloaded_again(downloaded: image.ImageRecipe, monkeypatch) -> None:
    monkeypatch.setattr(image.sys, "executable", "/nonexistent/python")
    image.download_wheels(downloaded)


@pytest.mark.parametrize("change", ["list", "python", "machine"])
def test_another_recipe_gets_a_folder_of_its_own(change: str, downloaded: image.ImageRecipe) -> None:
    """Wheels of an earlier list are neither used for the new one nor deleted: the folder is the user's."""
    before = downloaded.wheels_for_list
    if change == "list":
        downloaded.requirements.write_text("numpy==2.4.7\n")
        after = downloaded
    elif change == "python":
        after = dataclasses.replace(downloaded, python_version="3.12")
    else:
        after = dataclasses.replace(downloaded, machine="aarch64")
    assert after.wheels_for_list != before
    assert before.is_dir()


def test_failed_download_is_not_taken_for_complete(recipe: image.ImageRecipe, tmp_path: Path, monkeypatch) -> None:
    """The second call asks pip again."""
    put_program(tmp_path / "bin", "python", f"echo called >>{tmp_path}/calls; exit 1")
    monkeypatch.setattr(image.sys, "executable", str(tmp_path / "bin" / "python"))
    for _ in range(2):
        with pytest.raises(InfrastructureError, match="--download-only"):
            image.download_wheels(recipe)
    assert (tmp_path / "calls").read_text() == "called\ncalled\n"


def test_finished_download_is_marked(recipe: image.ImageRecipe, tmp_path: Path, monkeypatch) -> None:
    """The second call does not ask pip again."""
    put_program(tmp_path / "bin", "python", f"echo called >>{tmp_path}/calls")
    monkeypatch.setattr(image.sys, "executable", str(tmp_path / "bin" / "python"))
    image.download_wheels(recipe)
    image.download_wheels(recipe)
    assert (tmp_path / "calls").read_text() == "called\n"
