"""Argument vectors and environments of the three container roles (docs/specification.md, 5). Pure functions.

    agent    /data/public read-only, /workspace read-write, decoy at /data/private, network as configured
    import   workspace read-only, card and manifest; writes /output; no network, nothing private
    scorer   submission and private data read-only; writes /output; no network, no agent code

Snakemake's own ``container:`` is not used: it mounts the working directory and passes the host's environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from automedbench.base.errors import InfrastructureError
from automedbench.sandbox.container.services import FORWARDER, SERVICES_DIR, Services

Network = Literal["sealed", "proxied", "open"]

DATA_DIR = "/data/public"
WORKSPACE = "/workspace"
DECOY_DIR = "/data/private"
CALL_DIR = "/run/call"
FORWARDER_PLACE = "/run/forwarder.py"
HOOK_DIR = "/run/hook"
EVIDENCE_PIPE = "/run/evidence"
SOURCE_DIR = "/opt/automedbench/src"
INPUT_DIR = "/input"
RESOURCE_DIR = "/input/resources"
OUTPUT_DIR = "/output"

INTERPRETERS = {"python": "python3", "bash": "bash"}
SUFFIXES = {"python": ".py", "bash": ".sh"}

# No image code, no host configuration, no service of the runtime: what is not named here is not there.
_ISOLATION = ("--containall", "--no-init", "--no-mount", "bind-paths,hostfs,cwd")
_SEALED = ("--net", "--network", "none")
# The runtime looks for its mount helpers here; a user's own PATH is none of the container's business.
_HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Hook:
    """Evidence at run time: the folder of the start-up file, and the pipe that it reports to."""

    folder: Path
    pipe: Path


@dataclass(frozen=True)
class AgentRole:
    """One code call of an agent: all host paths absolute, ``decoy`` None for no folder at /data/private."""

    image: Path
    public: Path
    workspace: Path
    tmp: Path
    code: Path
    language: Literal["python", "bash"]
    network: Network = "sealed"
    gpu: bool = False
    decoy: Path | None = None
    services: Services | None = None
    seccomp: Path | None = None
    hook: Hook | None = None


@dataclass(frozen=True, kw_only=True)
class TrustedRole:
    """Our own code: it sees the package, one card and manifest, and writes into ``output``."""

    image: Path
    source: Path
    card: Path
    manifest: Path
    tmp: Path
    output: Path
    command: tuple[str, ...]
    resources: tuple[tuple[str, Path], ...] = ()
    gpu: bool = False
    seccomp: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ImportRole(TrustedRole):
    """Collection and format check of one run: sees what the agent made and nothing private."""

    workspace: Path
    public: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ScorerRole(TrustedRole):
    """Scoring of one collected submission: the only role that sees private data."""

    public: Path
    private: Path
    submission: Path
    submission_record: Path | None = None


PLACES = {
    "source": SOURCE_DIR,
    "card": f"{INPUT_DIR}/card.yaml",
    "manifest": f"{INPUT_DIR}/manifest.json",
    "public": DATA_DIR,
    "workspace": f"{INPUT_DIR}/workspace",
    "private": f"{INPUT_DIR}/private",
    "submission": f"{INPUT_DIR}/submission",
    "submission_record": f"{INPUT_DIR}/submission.json",
}
"""Where a trusted role sees, read-only, what its fields name; a role without such a field does not see it."""


def agent_environment(data_dir: str, workspace: str, tmp: str) -> dict[str, str]:
    """Environment of an agent's code, the same names in every backend; holds no value of the caller's."""
    return {
        "DATA_DIR": data_dir,
        "WORKSPACE": workspace,
        "TMPDIR": tmp,
        "HF_HOME": f"{workspace}/.cache/huggingface",
        "TORCH_HOME": f"{workspace}/.cache/torch",
        "XDG_CACHE_HOME": f"{workspace}/.cache",
        "PIP_CACHE_DIR": f"{workspace}/.cache/pip",
        "MPLCONFIGDIR": f"{workspace}/.cache/matplotlib",
        "PYTHONUSERBASE": f"{workspace}/.local",
        # A call's code lies outside of the workspace; modules that an agent wrote must be importable all the same.
        "PYTHONPATH": workspace,
        # What was printed before a time-out must not be lost in a buffer.
        "PYTHONUNBUFFERED": "1",
        "LANG": "C.UTF-8",
    }


def trusted_environment() -> dict[str, str]:
    """Environment of our own code in the import and scorer roles."""
    return {
        "PYTHONPATH": SOURCE_DIR,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
    }


def host_environment(home: Path, runtime: str = "apptainer") -> dict[str, str]:
    """Environment of the runtime itself, built from nothing.

    ``APPTAINERENV_x`` and ``SINGULARITYENV_x`` of a caller would pass through ``--containall``.
    """
    folder = str(Path(runtime).parent) if "/" in runtime else ""
    path = _HOST_PATH if folder in ("", *_HOST_PATH.split(":")) else f"{folder}:{_HOST_PATH}"
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TMPDIR": str(home)}


def agent_command(role: AgentRole, *, runtime: str = "apptainer", marker: str = "") -> list[str]:
    """Argument vector of one code call.

    With ``marker``, that line is the first thing on stderr, before any code of the agent: its absence proves that
    the container did not start, and no agent can fake either case.
    """
    inside = f"{CALL_DIR}/{role.code.name}"
    binds = [(role.public, DATA_DIR, "ro"), (role.code, inside, "ro")]
    if role.decoy is not None:
        binds.append((role.decoy, DECOY_DIR, "ro"))
    offered: tuple[str, ...] = ()
    environment = agent_environment(DATA_DIR, WORKSPACE, "/tmp")
    if role.hook is not None:
        binds += [(role.hook.folder, HOOK_DIR, "ro"), (role.hook.pipe, EVIDENCE_PIPE, "ro")]
        environment["PYTHONPATH"] = f"{HOOK_DIR}:{WORKSPACE}"
    if role.services is not None:
        binds += [(role.services.folder, SERVICES_DIR, "ro"), (FORWARDER, FORWARDER_PLACE, "ro")]
        environment |= role.services.environment
        ports = (f"{port}={SERVICES_DIR}/{name}" for port, name in sorted(role.services.ports.items()))
        offered = ("python3", "-I", "-S", FORWARDER_PLACE, *ports, "--")
    return [
        *_start(runtime),
        *("--hostname", "agent", "--home", _pair(role.workspace, WORKSPACE), "--pwd", WORKSPACE),
        *("--workdir", _checked(role.tmp)),
        *_binds(binds),
        *(() if role.network == "open" else _SEALED),
        *_filtered(role.seccomp),
        *(("--nv",) if role.gpu else ()),
        *_env(environment),
        str(role.image),
        *_announced(marker),
        *offered,
        INTERPRETERS[role.language],
        inside,
    ]


def trusted_command(role: TrustedRole, *, runtime: str = "apptainer") -> list[str]:
    """Argument vector of our own code in its role; the command runs in ``/output``, the only place that it may write.

    Raises InfrastructureError for a path that the runtime would read as something else.
    """
    given = [(getattr(role, name), place, "ro") for name, place in PLACES.items() if getattr(role, name, None)]
    return [
        *_start(runtime),
        *("--no-home", "--pwd", OUTPUT_DIR, "--workdir", _checked(role.tmp)),
        *_binds([*given, *((path, f"{RESOURCE_DIR}/{name}", "ro") for name, path in role.resources)]),
        *_binds([(role.output, OUTPUT_DIR, "rw")]),
        *_SEALED,
        *_filtered(role.seccomp),
        *(("--nv",) if role.gpu else ()),
        *_env(trusted_environment()),
        str(role.image),
        *role.command,
    ]


def _start(runtime: str) -> list[str]:
    return [runtime, "--silent", "--nocolor", "exec", *_ISOLATION]


def _filtered(profile: Path | None) -> tuple[str, ...]:
    return ("--security", f"seccomp:{_checked(profile)}") if profile is not None else ()


def _announced(marker: str) -> list[str]:
    """A shell that prints the marker, and starts the command when the driver has answered with a line on stdin.

    Without the answer the command could take the marker out of the pipe again (/proc lets it open the reading end),
    and pass for a container that did not start. The shell stays, because the first process of a container is immune to
    ordinary signals: the agent's code must not be it.
    """
    return ["/bin/sh", "-c", 'printf "%s\\n" "$0" >&2; read -r _; "$@" </dev/null; exit $?', marker] if marker else []


def _binds(binds: Sequence[tuple[Path, str, str]]) -> list[str]:
    return [word for source, place, mode in binds for word in ("--bind", f"{_pair(source, place)}:{mode}")]


def _pair(source: Path, place: str) -> str:
    return f"{_checked(source)}:{place}"


def _checked(path: Path) -> str:
    """The path as text; raises InfrastructureError when Apptainer would read it as something else."""
    text = str(path)
    if not path.is_absolute() or any(character in text for character in ":,\\\"'\n"):
        raise InfrastructureError(
            f"Cannot bind {text!r} into a container: the path must be absolute and without : , \\ and quotes.\n"
            "Move the data or results folder to a plain path."
        )
    return text


def _env(variables: dict[str, str]) -> list[str]:
    """The runtime reads its option as one line of CSV: a value that holds a comma is quoted."""
    words = (f"{name}={value}" for name, value in variables.items())
    return ["--env", ",".join(f'"{word.replace(chr(34), chr(34) * 2)}"' if "," in word else word for word in words)]
