"""Argument vectors and environments of the three container roles (docs/specification.md, 5). Pure functions.

    agent    /data/public read-only, /workspace read-write, decoy at /data/private, network as configured
    import   workspace read-only, card and manifest; writes /output; no network, nothing private
    scorer   submission and private data read-only; writes /output; no network, no agent code

Code in the sealed and proxied classes has no network; sockets of the driver's lie in one folder that is bound read-only
at ``/run/services``. Inside, a forwarder (standard library only) listens on loopback ports, pipes each to its socket,
and starts the runner once it listens.

The system call filter (seccomp, in OCI's JSON form) is default allow, so that no library breaks by an omission; denied
is what opens the kernel to code without privileges (namespaces, mounts, tracing, keyrings, bpf, …).
docs/specification.md, 9.1; numbers: Linux uapi headers. Calls of another ABI (32 bit, x32) end the thread:
libseccomp's default for an architecture that is not listed.

Snakemake's own ``container:`` is not used: it mounts the working directory and passes the host's environment.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import write_text
from automedbench.campaign.recipes import LAYER_DIR
from automedbench.sandbox.container.runner import CALL_PATH
from automedbench.sandbox.places import (
    CA_FILE,
    CA_STORE,
    CALL_DIR,
    DATA_DIR,
    DECOY_DIR,
    EVIDENCE_PIPE,
    FORWARDER_PLACE,
    HOOK_DIR,
    INPUTS,
    OUTPUT_DIR,
    RESOURCE_DIR,
    RUNNER_PLACE,
    SERVICES_DIR,
    SKILLS_DIR,
    SOURCE_DIR,
    TRACE_FILTER_PLACE,
    TRACE_PLACE,
    WORKSPACE,
    Services,
)

Network = Literal["sealed", "proxied", "open"]

INTERPRETERS = {"python": "python3", "bash": "bash"}
SUFFIXES = {"python": ".py", "bash": ".sh"}

PYTHON = ("python3", "-I", "-S")
OWN_PROGRAMS = f"{WORKSPACE}/.local/bin"
_RUNTIMES_OWN = ("APPNAME", "BIND", "COMMAND", "CONTAINER", "ENVIRONMENT", "NAME")
_NOT_INSIDE = [f"{runtime}_{name}" for runtime in ("APPTAINER", "SINGULARITY") for name in _RUNTIMES_OWN]
FIRST = (
    *("/bin/sh", "-c"),
    f"unset PROMPT_COMMAND {' '.join(_NOT_INSIDE)}; "
    f'export {CALL_PATH}="$PATH" PATH="${{PATH#{OWN_PROGRAMS}:}}"; exec "$@"',
    "sh",
)
"""Start of a container: what is ours finds the programs of the image, never those of the workspace.

With those, which come first, the image's PATH is kept for the programs of calls. The runtime's own variables go: they
name files of the host.
"""

# No image code, no host configuration, no service of the runtime: what is not named here is not there.
_ISOLATION = ("--containall", "--no-init", "--no-mount", "bind-paths,hostfs,cwd")
_SEALED = ("--net", "--network", "none")
# The runtime looks for its mount helpers here; a user's own PATH is none of the container's business.
_HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Devices:
    """GPU devices of a container: device files, driver files by place inside, environment variables."""

    nodes: tuple[Path, ...]
    files: Mapping[str, Path]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class AgentRole:
    """The container of a run: all host paths absolute, ``decoy`` None for no folder at /data/private."""

    image: Path
    public: Path
    workspace: Path
    tmp: Path
    calls: Path
    """Folder of the code of all calls."""
    network: Network = "sealed"
    devices: Devices | None = None
    shut: Path | None = None
    """Folder of links to the device files, through which they are mounted so that none can be opened inside."""
    decoy: Path | None = None
    services: Services | None = None
    layer: Path | None = None
    """Squashfs file of a command-line agent's program."""
    skills: Path | None = None
    """Folder of a variant's skills."""
    seccomp: Path | None = None
    hook: tuple[Path, Path] | None = None
    """Evidence at run time: the folder of the start-up file, and the pipe that it reports to."""
    trace: Path | None = None
    """Socket that takes the listener of the trace (``trace_filter.install``)."""


def agent_environment(data_dir: str, workspace: str, tmp: str, skills: str | None = None) -> dict[str, str]:
    """Environment of an agent's code, the same names in every backend; holds no value of the caller's."""
    return ({"SKILLS_DIR": skills} if skills else {}) | {
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


TRUSTED_ENVIRONMENT = {
    "PYTHONPATH": SOURCE_DIR,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
}
"""Environment of our own code in the import and scorer roles."""


def host_environment(home: Path, runtime: str = "apptainer", services: Services | None = None) -> dict[str, str]:
    """Environment of the runtime itself, built from nothing.

    ``APPTAINERENV_x`` and ``SINGULARITYENV_x`` of a caller would pass through ``--containall``; what ``services`` tell
    programs inside passes that way: every user may read a command line, and it holds a token.
    """
    variables = services.environment if services is not None else {}
    folder = str(Path(runtime).parent) if "/" in runtime else ""
    path = _HOST_PATH if folder in ("", *_HOST_PATH.split(":")) else f"{folder}:{_HOST_PATH}"
    own = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TMPDIR": str(home)}
    return own | {f"APPTAINERENV_{name}": value for name, value in variables.items()}


def agent_command(role: AgentRole, *, runtime: str = "apptainer") -> list[str]:
    """Argument vector of a run's container; the runner inside talks over standard input.

    The trace comes first: what is started after it, forwarder and runner as well, is behind its filter.
    """
    binds = [(role.public, DATA_DIR, "ro"), (role.calls, CALL_DIR, "ro"), (RUNNER, RUNNER_PLACE, "ro")]
    if role.decoy is not None:
        binds.append((role.decoy, DECOY_DIR, "ro"))
    traced: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    environment = agent_environment(DATA_DIR, WORKSPACE, "/tmp", SKILLS_DIR if role.skills else None)
    if role.skills is not None:
        binds.append((role.skills, SKILLS_DIR, "ro"))
    if role.hook is not None:
        binds += [(role.hook[0], HOOK_DIR, "ro"), (role.hook[1], EVIDENCE_PIPE, "ro")]
        environment["PYTHONPATH"] = f"{HOOK_DIR}:{WORKSPACE}"
    if role.services is not None:
        binds += [(role.services.folder, SERVICES_DIR, "ro"), (FORWARDER, FORWARDER_PLACE, "ro")]
        if "SSL_CERT_FILE" in role.services.environment:
            binds.append((role.services.folder / CA_FILE, CA_STORE, "ro"))
        ports = (f"{port}={SERVICES_DIR}/{name}" for port, name in sorted(role.services.ports.items()))
        offered = (*PYTHON, FORWARDER_PLACE, *ports, "--")
    layer = ("--bind", f"{_bind_pair(role.layer, LAYER_DIR)}:image-src=/") if role.layer is not None else ()
    if role.trace is not None:
        binds += [(role.trace, TRACE_PLACE, "ro"), (TRACE_FILTER, TRACE_FILTER_PLACE, "ro")]
        traced = (*PYTHON, TRACE_FILTER_PLACE, TRACE_PLACE)
    if role.devices is not None:
        binds += [(node, str(node), "rw") for node in role.devices.nodes]
        if role.shut is not None:  # the runtime mounts what does not lie in /dev with nodev, on places that exist
            binds += [(role.shut / node.name, str(node), "rw") for node in role.devices.nodes]
        binds += [(path, place, "ro") for place, path in role.devices.files.items()]
        environment |= role.devices.environment
    return [
        *_start(runtime),
        *("--hostname", "agent", "--home", _bind_pair(role.workspace, WORKSPACE), "--pwd", WORKSPACE),
        *("--workdir", _check_path(role.tmp)),
        *_binds(binds),
        *layer,
        *(() if role.network == "open" else _SEALED),
        *_filter_options(role.seccomp),
        *_env(environment),
        str(role.image),
        *FIRST,
        *traced,
        *offered,
        *(*PYTHON, RUNNER_PLACE),
    ]


def trusted_command(
    command: Sequence[str],
    *,
    image: Path,
    seen: Mapping[str, Path],
    tmp: Path,
    output: Path,
    resources: Mapping[str, Path] | None = None,
    seccomp: Path | None = None,
    runtime: str = "apptainer",
) -> list[str]:
    """Argument vector of our own code; ``command`` runs in ``/output``, the only place that it may write.

    ``seen``: names of ``INPUTS`` with what is bound there. Raises InfrastructureError for a path that the runtime would
    read as something else.
    """
    given = [(seen[name], place, "ro") for name, place in INPUTS.items() if name in seen]
    further = [(path, f"{RESOURCE_DIR}/{name}", "ro") for name, path in sorted((resources or {}).items())]
    return [
        *_start(runtime),
        *("--no-home", "--pwd", OUTPUT_DIR, "--workdir", _check_path(tmp)),
        *_binds([*given, *further, (output, OUTPUT_DIR, "rw")]),
        *_SEALED,
        *_filter_options(seccomp),
        *_env(TRUSTED_ENVIRONMENT),
        str(image),
        *command,
    ]


def _start(runtime: str) -> list[str]:
    return [runtime, "--silent", "--nocolor", "exec", *_ISOLATION]


def _filter_options(profile: Path | None) -> tuple[str, ...]:
    return ("--security", f"seccomp:{_check_path(profile)}") if profile is not None else ()


def _binds(binds: Sequence[tuple[Path, str, str]]) -> list[str]:
    return [word for source, place, mode in binds for word in ("--bind", f"{_bind_pair(source, place)}:{mode}")]


def _bind_pair(source: Path, place: str) -> str:
    return f"{_check_path(source)}:{place}"


def _check_path(path: Path) -> str:
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


FORWARDER = Path(__file__).with_name("forwarder.py").resolve()
TRACE_FILTER = Path(__file__).parents[1].resolve() / "evidence" / "trace_filter.py"
RUNNER = Path(__file__).with_name("runner.py").resolve()


# Apptainer resets the terminal's colour even with --nocolor.
_NOISE = re.compile(r"^(?:\x1b\[[0-9;]*m)*(?:FATAL|ERROR)\s*:\s*|\x1b\[[0-9;]*[A-Za-z]")


def find_runtime() -> str:
    """Absolute path of the apptainer program; raises MissingDataError when there is none."""
    found = shutil.which("apptainer")
    if found is None:
        raise MissingDataError(
            "Apptainer is not installed (no 'apptainer' on PATH).\n"
            "On a cluster load its module; on Debian or Ubuntu run as root: tests/setup/apptainer.sh\n"
            "Scripted agents that are trusted need none: sandbox.backend: local."
        )
    return found


def last_words(output: bytes) -> str:
    """The last non-empty line of a program's output, without terminal escapes and levels."""
    lines = [_NOISE.sub("", line).strip() for line in output.decode("utf-8", "replace").splitlines()]
    return next((line[:400] for line in reversed(lines) if line), "no output")


Strictness = Literal["agent", "trusted"]

# One group per reason; names that an architecture or an old libseccomp does not know are passed over.
DENIED: dict[str, tuple[str, ...]] = {
    "namespaces": ("unshare", "setns"),
    "mounts": (
        *("mount", "umount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick"),
        *("move_mount", "open_tree", "open_tree_attr", "mount_setattr"),
    ),
    "other processes": (
        *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd"),
    ),
    "keyrings": ("add_key", "request_key", "keyctl"),
    "kernel programs": (
        *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    ),
    "file handles": ("name_to_handle_at", "open_by_handle_at", "lookup_dcookie", "fanotify_init", "fanotify_mark"),
    # Segments without a process are in no process's memory; POSIX shared memory lies in /dev/shm, where it is counted.
    "hidden or lent pages": ("memfd_secret", "vmsplice", "shmget"),
    "kernel modules": (
        *("init_module", "finit_module", "delete_module", "create_module", "kexec_load", "kexec_file_load"),
    ),
    "machine": (
        *("reboot", "acct", "swapon", "swapoff", "quotactl", "quotactl_fd", "syslog", "vhangup", "nfsservctl"),
        *("settimeofday", "stime", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname"),
        *("iopl", "ioperm", "modify_ldt", "uselib", "ustat", "sysfs", "_sysctl"),
    ),
}
# linux/sched.h; the time namespace can only be asked of clone3 and unshare.
NAMESPACE_FLAGS = {
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
# linux/personality.h: mapping page zero, the old address layout, executable data.
PERSONALITIES = {"MMAP_PAGE_ZERO": 0x0100000, "ADDR_COMPAT_LAYOUT": 0x0200000, "READ_IMPLIES_EXEC": 0x0400000}
_PERSONALITY_QUERY = 0x80000000  # set in 0xffffffff, which only asks
# asm-generic/ioctls.h: typing into a terminal, and the console's own commands.
TERMINAL_REQUESTS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}
# linux/socket.h. Above AF_NETLINK lie AF_PACKET, AF_ALG, AF_VSOCK, AF_XDP and the like.
AF_INET, AF_INET6, AF_NETLINK = 2, 10, 16
_OLD_FAMILIES = (3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15)


def profile(strictness: Strictness = "agent") -> dict[str, Any]:
    """The filter of a role; ``trusted`` (our own code on hostile files) denies internet sockets as well."""
    rules = [_rule(names) for names in DENIED.values()]
    # Its flags lie in memory, where no filter can look. The C library falls back to clone, but only on ENOSYS, and
    # Apptainer answers EPERM, not a rule's errnoRet. "Trace" without a tracer is ENOSYS (seccomp(2)).
    rules.append(_rule(("clone3",), action="SCMP_ACT_TRACE"))
    rules += [_rule(("clone",), _masked(0, flag, flag)) for flag in NAMESPACE_FLAGS.values()]
    rules += [_rule(("personality",), _masked(0, _PERSONALITY_QUERY | bit, bit)) for bit in PERSONALITIES.values()]
    rules += [_rule(("ioctl",), _masked(1, 0xFFFFFFFF, request)) for request in TERMINAL_REQUESTS.values()]
    families = [*_OLD_FAMILIES, *((AF_INET, AF_INET6) if strictness == "trusted" else ())]
    # The kernel reads 32 bits of the argument. Anything above them makes it greater than AF_NETLINK.
    rules.append(_rule(("socket",), _argument(0, AF_NETLINK, "SCMP_CMP_GT")))
    rules += [_rule(("socket",), _argument(0, family, "SCMP_CMP_EQ")) for family in families]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": rules,
    }


def write_profile(path: Path, strictness: Strictness = "agent") -> None:
    """Write the filter of a role."""
    write_text(path, json.dumps(profile(strictness), indent=1) + "\n")


def _rule(names: tuple[str, ...], *arguments: dict[str, Any], action: str = "SCMP_ACT_ERRNO") -> dict[str, Any]:
    rule: dict[str, Any] = {"names": list(names), "action": action}
    return rule | {"args": list(arguments)} if arguments else rule


def _argument(index: int, value: int, operator: str) -> dict[str, Any]:
    return {"index": index, "value": value, "op": operator}


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    """True when ``argument & mask == value``."""
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
