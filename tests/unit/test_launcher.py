"""Argument vectors of the three container roles, compared word for word (docs/specification.md, 9.1)."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.container.launcher import (
    FIRST,
    RUNNER,
    AgentRole,
    Devices,
    agent_command,
    agent_environment,
    host_environment,
    trusted_command,
)
from automedbench.sandbox.places import Services

AGENT = AgentRole(
    image=Path("/i/agent.sif"),
    public=Path("/d/public/t"),
    workspace=Path("/r/workspace"),
    tmp=Path("/n/tmp"),
    calls=Path("/n/calls"),
    decoy=Path("/n/decoy"),
)
DEVICES = Devices(
    (Path("/dev/nvidiactl"), Path("/dev/nvidia3")),
    {"/.singularity.d/libs/libcuda.so.1": Path("/l/libcuda.so.1")},
    {"CUDA_VISIBLE_DEVICES": "GPU-3"},
)
IMPORT: dict[str, Any] = {
    "image": Path("/i/scorer.sif"),
    "seen": {
        "source": Path("/s/src"),
        "card": Path("/s/card.yaml"),
        "manifest": Path("/d/m.json"),
        "workspace": Path("/r/workspace"),
    },
    "tmp": Path("/n/tmp"),
    "output": Path("/r/out"),
}
SCORER: dict[str, Any] = IMPORT | {
    "seen": {
        "source": Path("/s/src"),
        "card": Path("/s/card.yaml"),
        "manifest": Path("/d/m.json"),
        "public": Path("/d/public/t"),
        "private": Path("/d/private/t"),
        "submission": Path("/r/submission"),
    },
}
COMMAND = ("python3", "-m", "x")
AGENT_ENV = (
    "DATA_DIR=/data/public,WORKSPACE=/workspace,TMPDIR=/tmp,HF_HOME=/workspace/.cache/huggingface,"
    "TORCH_HOME=/workspace/.cache/torch,XDG_CACHE_HOME=/workspace/.cache,PIP_CACHE_DIR=/workspace/.cache/pip,"
    "MPLCONFIGDIR=/workspace/.cache/matplotlib,PYTHONUSERBASE=/workspace/.local,PYTHONPATH=/workspace,"
    "PYTHONUNBUFFERED=1,LANG=C.UTF-8"
)
TRUSTED_ENV = "PYTHONPATH=/opt/automedbench/src,PYTHONDONTWRITEBYTECODE=1,PYTHONNOUSERSITE=1,TMPDIR=/tmp,LANG=C.UTF-8"
RUNNER_BIND = f"--bind {RUNNER}:/run/runner.py:ro"
START = "apptainer --silent --nocolor exec --containall --no-init --no-mount bind-paths,hostfs,cwd"


def words(line: str) -> list[str]:
    """The words of a line; what the container starts with holds blanks itself."""
    return [word for each in line.split(" ") for word in (FIRST if each == "FIRST" else (each,))]


def test_agent_sealed() -> None:
    assert agent_command(AGENT) == words(
        f"{START} --hostname agent --home /r/workspace:/workspace --pwd /workspace --workdir /n/tmp "
        f"--bind /d/public/t:/data/public:ro --bind /n/calls:/run/call:ro {RUNNER_BIND} "
        f"--bind /n/decoy:/data/private:ro --net --network none --env {AGENT_ENV} /i/agent.sif FIRST "
        "python3 -I -S /run/runner.py"
    )


def test_a_proxy_is_reached_without_a_network() -> None:
    """It is a socket in a folder (5.4); only the open mode leaves ``--net --network none`` out."""
    assert agent_command(replace(AGENT, network="proxied")) == agent_command(AGENT)


def test_agent_open_with_gpu_and_without_decoy() -> None:
    role = replace(AGENT, network="open", devices=DEVICES, decoy=None)
    assert agent_command(role, runtime="/opt/a/bin/apptainer") == words(
        f"/opt/a/bin/{START} --hostname agent --home /r/workspace:/workspace --pwd /workspace --workdir /n/tmp "
        f"--bind /d/public/t:/data/public:ro --bind /n/calls:/run/call:ro {RUNNER_BIND} "
        "--bind /dev/nvidiactl:/dev/nvidiactl:rw --bind /dev/nvidia3:/dev/nvidia3:rw "
        "--bind /l/libcuda.so.1:/.singularity.d/libs/libcuda.so.1:ro "
        f"--env {AGENT_ENV},CUDA_VISIBLE_DEVICES=GPU-3 /i/agent.sif FIRST python3 -I -S /run/runner.py"
    )


def test_a_value_with_a_comma_is_one_variable() -> None:
    """The runtime reads --env as a line of CSV (RFC 4180, section 2, rule 6)."""
    two = replace(DEVICES, environment={"CUDA_VISIBLE_DEVICES": "GPU-3,GPU-4"})
    command = agent_command(replace(AGENT, devices=two))
    assert command[command.index("--env") + 1] == f'{AGENT_ENV},"CUDA_VISIBLE_DEVICES=GPU-3,GPU-4"'


def test_agent_with_filter_and_hook() -> None:
    role = replace(AGENT, seccomp=Path("/n/filter.json"), hook=(Path("/n/hook"), Path("/n/pipe")), decoy=None)
    assert agent_command(role) == words(
        f"{START} --hostname agent --home /r/workspace:/workspace --pwd /workspace --workdir /n/tmp "
        f"--bind /d/public/t:/data/public:ro --bind /n/calls:/run/call:ro {RUNNER_BIND} "
        "--bind /n/hook:/run/hook:ro --bind /n/pipe:/run/evidence:ro --net --network none "
        f"--security seccomp:/n/filter.json --env {AGENT_ENV.replace('PYTHONPATH=', 'PYTHONPATH=/run/hook:')} "
        "/i/agent.sif FIRST python3 -I -S /run/runner.py"
    )


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(trusted_command(COMMAND, **IMPORT, seccomp=Path("/n/filter.json")), id="import"),
        pytest.param(trusted_command(COMMAND, **SCORER, seccomp=Path("/n/filter.json")), id="scorer"),
    ],
)
def test_trusted_roles_with_filter(command: list[str]) -> None:
    at = command.index("--security")
    assert command[at : at + 2] == ["--security", "seccomp:/n/filter.json"]
    assert at < command.index("/i/scorer.sif")


def test_the_trace_has_its_socket_and_comes_before_the_runner() -> None:
    command = agent_command(replace(AGENT, trace=Path("/n/trace.sock")))
    assert "/n/trace.sock:/run/trace:ro" in command
    assert command[-9:-4] == ["python3", "-I", "-S", "/run/trace_filter.py", "/run/trace"]


def test_skills_are_read_only_and_named() -> None:
    command = agent_command(replace(AGENT, skills=Path("/s/skills")))
    assert command[command.index("/s/skills:/skills:ro") - 1] == "--bind"
    assert any("SKILLS_DIR=/skills" in word for word in command)
    assert not any("SKILLS_DIR" in word for word in agent_command(AGENT))


def test_import_sees_no_private_data_and_no_network() -> None:
    assert trusted_command(COMMAND, **IMPORT) == (
        f"{START} --no-home --pwd /output --workdir /n/tmp --bind /s/src:/opt/automedbench/src:ro "
        "--bind /s/card.yaml:/input/card.yaml:ro --bind /d/m.json:/input/manifest.json:ro "
        "--bind /r/workspace:/input/workspace:ro --bind /r/out:/output:rw --net --network none "
        f"--env {TRUSTED_ENV} /i/scorer.sif python3 -m x"
    ).split(" ")


def test_scorer_writes_only_its_output() -> None:
    assert trusted_command(COMMAND, **SCORER) == (
        f"{START} --no-home --pwd /output --workdir /n/tmp --bind /s/src:/opt/automedbench/src:ro "
        "--bind /s/card.yaml:/input/card.yaml:ro --bind /d/m.json:/input/manifest.json:ro "
        "--bind /d/public/t:/data/public:ro --bind /d/private/t:/input/private:ro "
        "--bind /r/submission:/input/submission:ro --bind /r/out:/output:rw --net --network none "
        f"--env {TRUSTED_ENV} /i/scorer.sif python3 -m x"
    ).split(" ")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            trusted_command(COMMAND, **IMPORT | {"seen": IMPORT["seen"] | {"public": Path("/d/public/t")}}), id="import"
        ),
        pytest.param(
            trusted_command(
                COMMAND, **SCORER | {"seen": SCORER["seen"] | {"submission_record": Path("/r/submission.json")}}
            ),
            id="scorer",
        ),
    ],
)
def test_trusted_roles_have_one_writable_bind_and_no_network(command: list[str]) -> None:
    binds = [word for before, word in itertools.pairwise(command) if before == "--bind"]
    assert [bind for bind in binds if not bind.endswith(":ro")] == ["/r/out:/output:rw"]
    assert command[command.index("--net") : command.index("--net") + 3] == ["--net", "--network", "none"]


@pytest.mark.parametrize(
    "path",
    ["relative/x", "/a:b", "/a,b", '/a"b', "/a'b", "/a\\b", "/a\nb"],
    ids=["relative", "colon", "comma", "double-quote", "quote", "backslash", "newline"],
)
def test_paths_that_the_runtime_would_misread_are_refused(path: str) -> None:
    for role in (
        replace(AGENT, public=Path(path)),
        replace(AGENT, workspace=Path(path)),
        replace(AGENT, tmp=Path(path)),
    ):
        with pytest.raises(InfrastructureError, match="Cannot bind"):
            agent_command(role)


def test_host_environment_is_built_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "APPTAINERENV_X", "SINGULARITYENV_X", "APPTAINER_BIND", "LD_PRELOAD"):
        monkeypatch.setenv(name, "canary")
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    expected = {"PATH": system, "HOME": "/n", "LANG": "C.UTF-8", "TMPDIR": "/n"}
    assert host_environment(Path("/n"), "/usr/bin/apptainer") == expected
    assert host_environment(Path("/n"), "/opt/a/apptainer") == {**expected, "PATH": f"/opt/a:{system}"}


def test_what_services_tell_stands_in_no_command_line() -> None:
    """Every user may read a command line; the bridge's token is worth paid replies where the network is open."""
    services = Services(Path("/s"), {3000: "bridge.sock"}, {"OPENAI_API_KEY": "sk-bridge-1", "NO_PROXY": "a,b"})
    words = agent_command(replace(AGENT, services=services))
    assert [word for word in words if "sk-bridge" in word or "OPENAI" in word] == []
    passed = host_environment(Path("/n"), services=services)
    assert (passed["APPTAINERENV_OPENAI_API_KEY"], passed["APPTAINERENV_NO_PROXY"]) == ("sk-bridge-1", "a,b")


def test_agent_environment_has_the_published_names_in_every_backend() -> None:
    environment = agent_environment("/p", "/w", "/t")
    assert (environment["DATA_DIR"], environment["WORKSPACE"], environment["TMPDIR"]) == ("/p", "/w", "/t")


@pytest.mark.apptainer
def test_every_flag_is_known_to_the_installed_version() -> None:
    runtime = shutil.which("apptainer")
    if runtime is None:
        pytest.skip("apptainer is not installed")
    known = subprocess.run([runtime, "exec", "--help"], capture_output=True, text=True, check=True).stdout
    vectors = [
        agent_command(replace(AGENT, devices=DEVICES, seccomp=Path("/n/filter.json"))),
        trusted_command(COMMAND, **IMPORT),
        trusted_command(COMMAND, **SCORER),
    ]
    flags = {word for vector in vectors for word in vector if word.startswith("--")} - {"--silent", "--nocolor"}
    # Newer versions list --pwd only as the synonym of --cwd, older ones know no --cwd.
    assert {flag for flag in flags if not re.search(rf"{flag}[ )]", known)} == set()
