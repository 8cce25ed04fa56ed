"""Command lines of image building are compared as text; building itself is tested with a real Apptainer."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import runpy
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.sandbox.container import image

ROOT = Path(__file__).parents[2]
IMAGES = ["light", "research", "scorer"]
DEBIAN_12 = image.ImagePlatform("3.11", 36)


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


# ---------------------------------------------------------------- what an image records


def test_the_version_that_is_imported_is_recorded() -> None:
    """Debian's own pip 23 stays behind the newer one, later on the path (seen in an image of Debian 12)."""
    found = [SimpleNamespace(metadata={"Name": "Pip"}, version=version) for version in ("26.3", "23.0.1")]
    inventory = runpy.run_path(str(ROOT / "containers/inventory.py"))["inventory"]
    inventory.__globals__.update(metadata=SimpleNamespace(distributions=lambda: found), cuda=lambda packages: None)
    told = inventory("f", "r", "b", "pip")
    assert (told["packages"], told["named"]) == ({"pip": "26.3"}, ["pip"])


# ---------------------------------------------------------------- what the base tells


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        # what the shell prints: of a base with Python, and of one that apt gives the distribution's
        ("3.12\nglibc 2.39\n", image.ImagePlatform("3.12", 39)),
        ("debian-12\nglibc 2.36\n", image.ImagePlatform("3.11", 36)),
        ("ubuntu-24.04\nglibc 2.39\n", image.ImagePlatform("3.12", 39)),
        ("alpine-3.20\n", None),
        ("", None),
    ],
)
def test_python_and_library_of_a_base(
    told: str, expected: image.ImagePlatform | None, tmp_path: Path, monkeypatch
) -> None:
    put_program(tmp_path / "bin", "apptainer", f"printf '{told}'".replace("\n", "\\n"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    if expected is not None:
        assert image.ask_base("docker://x") == expected
        return
    with pytest.raises(InfrastructureError, match="debian-12"):
        image.ask_base("docker://x")


# ---------------------------------------------------------------- command lines


def test_download_asks_for_the_containers_python_not_the_hosts(recipe: image.ImageRecipe) -> None:
    """Wheels only, exactly the list, for Debian 12's Python and C library."""
    [argv] = image.download_argvs(recipe, DEBIAN_12)
    assert values_of(argv, "--python-version") == ["3.11"]
    assert values_of(argv, "--implementation") == ["cp"]
    assert [str(image.wheels_folder(recipe, DEBIAN_12))] == values_of(argv, "--dest")
    assert {"--no-deps", "--only-binary=:all:"} <= set(argv)
    assert argv[-1] == recipe.requirements.read_text().split()[-1]


def test_source_only_packages_are_built_and_torch_brings_its_own(recipe: image.ImageRecipe) -> None:
    """Three calls: wheels of the list, torch with the GPU libraries of the machine, a wheel made from source."""
    recipe.requirements.write_text("numpy==2.4.6\nradgraph==0.1.18\ntorch==2.13.0\n")
    plain, resolved, built = image.download_argvs(recipe, DEBIAN_12)
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
    assert runs == (tag in image.platform_tags("x86_64", 36))


def test_build_passes_everything_as_build_arguments(recipe: image.ImageRecipe, tmp_path: Path) -> None:
    """The whole command line, in words; the packages that are named are those of the list's own source."""
    (tmp_path / "list.in").write_text("# why\nnumpy\nmonai==1.6.1\ntransformers<5\n")
    expected = (
        f"apptainer --quiet build --force --bind {tmp_path}/w:/mnt --build-arg bootstrap=docker "
        f"--build-arg base=debian:12-slim --build-arg requirements={tmp_path}/list.txt "
        f"--build-arg recipe={recipe.digest} --build-arg named=numpy monai transformers "
        f"{tmp_path}/x.tmp {tmp_path}/some.def"
    )
    assert expected == " ".join(image.build_argv(recipe, tmp_path / "w", tmp_path / "x.tmp"))


def test_what_changes_an_image_and_what_does_not(recipe: image.ImageRecipe) -> None:
    """Pins and commands do; a comment would otherwise repeat every run of a campaign."""
    before = recipe.digest
    recipe.definition.write_text("# why\n\nBootstrap: {{ bootstrap }}\n  # more\n")
    assert recipe.digest == before
    recipe.definition.write_text("Bootstrap: {{ bootstrap }}\n%post\n")
    changed = recipe.digest
    recipe.requirements.write_text("numpy==2.4.7\n")
    assert len({before, changed, recipe.digest}) == 3


def test_build_environment_drops_the_callers_binds() -> None:
    caller = {"PATH": "/bin", "APPTAINER_BIND": "/secret", "SINGULARITY_BINDPATH": "/secret", "APPTAINER_TMPDIR": "/a"}
    assert image.build_environment(caller) == {"PATH": "/bin", "APPTAINER_TMPDIR": "/a"}


@pytest.mark.parametrize("name", IMAGES)
def test_definition_knows_exactly_the_arguments_that_are_passed(name: str, recipe: image.ImageRecipe) -> None:
    """Apptainer refuses a build argument without a place, and a place without a value."""
    text = (ROOT / "containers" / f"{name}.def").read_text()
    passed = {
        word.partition("=")[0] for word in values_of(image.build_argv(recipe, Path("w"), Path("x")), "--build-arg")
    }
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


RECORD = """{"flavour": "some", "recipe": "%s", "base": "%s", "system": "Debian", "python": "3.11.2", "cuda": null,
"named": ["numpy"], "packages": {"numpy": "2.4.6"}, "tools": ["git"]}"""
# 'exec IMAGE cat …' prints what the pretended image holds, 'exec BASE sh …' what a base tells; 'build' writes its
# last word but one, with a record in it, and is noted.
APPTAINER = """
case "$*" in
  *"exec"*" cat "*) while [ $# -gt 2 ]; do shift; [ -f "$1" ] && break; done; cat "$1" ;;
  *"exec"*) printf '3.11\\nglibc 2.36\\n' ;;
  *) echo "$*" >>CALLS; BUILD
esac"""
WRITE = 'while [ $# -gt 2 ]; do shift; done; cp NEW "$1"'


@pytest.fixture
def downloaded(recipe: image.ImageRecipe, tmp_path: Path, monkeypatch) -> image.ImageRecipe:
    folder = image.wheels_folder(recipe, DEBIAN_12)
    folder.mkdir(parents=True)
    (folder / "complete.txt").write_text("")
    pretend(tmp_path, monkeypatch, WRITE)
    (tmp_path / "new").write_text(RECORD % (recipe.digest, "debian:12-slim"))
    (tmp_path / "images").mkdir()
    return recipe


def pretend(tmp_path: Path, monkeypatch, build: str) -> None:
    """An apptainer that only pretends, first on PATH."""
    script = APPTAINER.replace("BUILD", build).replace("CALLS", f"{tmp_path}/calls").replace("NEW", f"{tmp_path}/new")
    put_program(tmp_path / "bin", "apptainer", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


def builds(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines()) if (tmp_path / "calls").exists() else 0


JUNK = 'while [ $# -gt 2 ]; do shift; done; echo junk >"$1"'


@pytest.mark.parametrize(("build", "said"), [("exit 7", "status 7"), (JUNK, "it")])
def test_failed_build_keeps_the_old_image_and_no_rest(
    build: str, said: str, downloaded: image.ImageRecipe, tmp_path: Path, monkeypatch
) -> None:
    """Also when a build says that it succeeded and what it made tells nothing of itself."""
    pretend(tmp_path, monkeypatch, build)
    out = tmp_path / "images" / "x.sif"
    out.write_text("old image")
    with pytest.raises(InfrastructureError, match=said) as caught:
        image.build_image(downloaded, out)
    assert len(str(caught.value).splitlines()) <= 3
    assert [(path.name, path.read_text()) for path in out.parent.iterdir()] == [("x.sif", "old image")]


def test_finished_build_replaces_the_image_and_says_what_it_holds(
    downloaded: image.ImageRecipe, tmp_path: Path
) -> None:
    out = tmp_path / "images" / "x.sif"
    out.write_text("old image")
    image.build_image(downloaded, out)
    assert sorted(path.name for path in out.parent.iterdir()) == ["x.json", "x.sif"]
    record = image.record_beside(out)
    assert record is not None
    assert record.versions == ["numpy 2.4.6"]
    assert builds(tmp_path) == 1


def test_an_image_that_matches_is_taken_as_it_is(downloaded: image.ImageRecipe, tmp_path: Path) -> None:
    """Without a base every base is right; a named one is compared, there or not; another list is another image."""
    out = tmp_path / "images" / "x.sif"
    out.write_text(RECORD % (downloaded.digest, "/gone/root"))
    for base, made in ((None, 0), ("/gone/root", 0), ("docker://debian:12-slim", 1), ("docker://debian:12-slim", 1)):
        image.build_image(dataclasses.replace(downloaded, base=base), out)
        assert builds(tmp_path) == made, base
    downloaded.requirements.write_text("numpy==2.4.7\n")
    assert not downloaded.made(image.image_record(out))


def test_complete_wheels_are_not_downloaded_again(downloaded: image.ImageRecipe, monkeypatch) -> None:
    monkeypatch.setattr(image.sys, "executable", "/nonexistent/python")
    image.download_wheels(downloaded)


@pytest.mark.parametrize("change", ["list", "python", "library", "machine"])
def test_another_recipe_gets_a_folder_of_its_own(change: str, downloaded: image.ImageRecipe) -> None:
    """Wheels of an earlier list are neither used for the new one nor deleted: the folder is the user's."""
    before, inside = image.wheels_folder(downloaded, DEBIAN_12), DEBIAN_12
    if change == "list":
        downloaded.requirements.write_text("numpy==2.4.7\n")
    elif change == "machine":
        downloaded = dataclasses.replace(downloaded, machine="aarch64")
    else:
        inside = image.ImagePlatform("3.12", 36) if change == "python" else image.ImagePlatform("3.11", 39)
    assert image.wheels_folder(downloaded, inside) != before
    assert before.is_dir()


@pytest.mark.parametrize("status", [0, 1])
def test_only_a_finished_download_is_taken_for_complete(
    status: int, recipe: image.ImageRecipe, tmp_path: Path, monkeypatch
) -> None:
    """After a failed one the second call asks pip again."""
    pretend(tmp_path, monkeypatch, "exit 0")
    put_program(tmp_path / "bin", "python", f"echo called >>{tmp_path}/pip; exit {status}")
    monkeypatch.setattr(image.sys, "executable", str(tmp_path / "bin" / "python"))
    for _ in range(2):
        with contextlib.suppress(InfrastructureError):
            image.download_wheels(recipe)
    assert (tmp_path / "pip").read_text() == "called\n" * (1 + status)
