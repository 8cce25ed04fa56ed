"""System call filter (seccomp) of the containers, in the JSON form that ``--security seccomp:FILE`` reads (OCI's).

Default allow, so that no library breaks by an omission; denied is what opens the kernel to code without
privileges (namespaces, mounts, tracing, keyrings, bpf, …). docs/specification.md, 9.1; numbers: Linux uapi headers.
Calls of another ABI (32 bit, x32) end the thread: libseccomp's default for an architecture that is not listed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from automedbench.base.files import sha256_file, write_text

Strictness = Literal["agent", "trusted"]

# One group per reason; names that an architecture or an old libseccomp does not know are passed over.
DENIED: dict[str, tuple[str, ...]] = {
    "namespaces": ("unshare", "setns"),
    "mounts": (
        *("mount", "umount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick"),
        *("move_mount", "open_tree", "open_tree_attr", "mount_setattr"),
    ),
    "other processes": ("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp"),
    "keyrings": ("add_key", "request_key", "keyctl"),
    "kernel programs": (
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ),
    "file handles": ("name_to_handle_at", "open_by_handle_at", "lookup_dcookie", "fanotify_init", "fanotify_mark"),
    # Segments without a process are in no process's memory; POSIX shared memory lies in /dev/shm, where it is counted.
    "hidden or lent pages": ("memfd_secret", "vmsplice", "shmget"),
    "kernel modules": (
        "init_module",
        "finit_module",
        "delete_module",
        "create_module",
        "kexec_load",
        "kexec_file_load",
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


def write_profile(path: Path, strictness: Strictness = "agent") -> str:
    """Write the filter of a role; returns the SHA-256 of the file."""
    write_text(path, json.dumps(profile(strictness), indent=1) + "\n")
    return sha256_file(path)


def _rule(names: tuple[str, ...], *arguments: dict[str, Any], action: str = "SCMP_ACT_ERRNO") -> dict[str, Any]:
    rule: dict[str, Any] = {"names": list(names), "action": action}
    return rule | {"args": list(arguments)} if arguments else rule


def _argument(index: int, value: int, operator: str) -> dict[str, Any]:
    return {"index": index, "value": value, "op": operator}


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    """True when ``argument & mask == value``."""
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
