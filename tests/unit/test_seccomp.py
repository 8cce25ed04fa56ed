"""The system call filter: what it says. That the kernel obeys is shown in tests/contract/test_containment.py."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from automedbench.sandbox.container.launcher import NAMESPACE_FLAGS, profile, write_profile

# docs/specification.md, 9.1: what must be denied.
DEMANDED = (
    *("unshare", "setns", "mount", "umount2", "move_mount", "open_tree", "fsopen", "fsmount", "pivot_root", "ptrace"),
    *("process_vm_readv", "process_vm_writev", "keyctl", "add_key", "request_key", "bpf", "perf_event_open"),
    *("userfaultfd", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "open_by_handle_at", "name_to_handle_at"),
    *("quotactl", "acct", "swapon", "swapoff", "reboot", "settimeofday"),
)
# What Python, NumPy, OpenMP, PyTorch and CUDA start with: never denied without a look at the arguments.
NEEDED = (
    *("clone", "fork", "vfork", "execve", "mmap", "mprotect", "futex", "socket", "ioctl", "memfd_create", "mbind"),
    *("set_mempolicy", "sched_setaffinity", "prctl", "openat", "pidfd_open", "rseq", "set_robust_list", "personality"),
)


def denied(names: str, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for rule in rules if names in rule["names"]]


@pytest.mark.parametrize("name", DEMANDED)
def test_denied_whatever_the_arguments(name: str) -> None:
    (rule,) = denied(name, profile()["syscalls"])
    assert (rule["action"], "args" in rule) == ("SCMP_ACT_ERRNO", False)


@pytest.mark.parametrize("name", NEEDED)
def test_what_programs_need_is_denied_for_some_arguments_at_most(name: str) -> None:
    assert all(rule.get("args") for rule in denied(name, profile()["syscalls"]))


def test_everything_else_is_allowed_on_two_architectures() -> None:
    made = profile()
    assert made["defaultAction"] == "SCMP_ACT_ALLOW"
    assert made["architectures"] == ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]


def test_no_call_is_named_twice_without_arguments() -> None:
    names = [name for rule in profile()["syscalls"] if "args" not in rule for name in rule["names"]]
    assert len(names) == len(set(names))


def test_clone_is_denied_for_every_namespace() -> None:
    # Numbers of Python's own table (linux/sched.h), where this Python has one.
    known = {name: getattr(os, name) for name in NAMESPACE_FLAGS if hasattr(os, name)}
    assert known == {name: NAMESPACE_FLAGS[name] for name in known}
    flags = [rule["args"][0] for rule in denied("clone", profile()["syscalls"])]
    assert [(flag["op"], flag["value"], flag["valueTwo"]) for flag in flags] == [
        ("SCMP_CMP_MASKED_EQ", value, value) for value in NAMESPACE_FLAGS.values()
    ]


def test_clone3_is_answered_as_by_a_kernel_without_it() -> None:
    # seccomp(2): SECCOMP_RET_TRACE without a tracer fails with ENOSYS, on which the C library takes clone.
    (rule,) = denied("clone3", profile()["syscalls"])
    assert rule["action"] == "SCMP_ACT_TRACE"


def families(strictness: Any) -> set[int]:
    """Socket families from 0 to 60 that the filter lets through."""
    rules = [rule["args"][0] for rule in denied("socket", profile(strictness)["syscalls"])]
    equal = {rule["value"] for rule in rules if rule["op"] == "SCMP_CMP_EQ"}
    (above,) = [rule["value"] for rule in rules if rule["op"] == "SCMP_CMP_GT"]
    return {family for family in range(61) if family <= above and family not in equal}


def test_socket_families() -> None:
    common = {int(socket.AF_UNSPEC), int(socket.AF_UNIX), int(socket.AF_NETLINK)}
    assert families("trusted") == common
    assert families("agent") == common | {int(socket.AF_INET), int(socket.AF_INET6)}


def test_the_file_is_json(tmp_path: Path) -> None:
    write_profile(tmp_path / "filter.json")
    assert json.loads((tmp_path / "filter.json").read_text()) == profile("agent")
