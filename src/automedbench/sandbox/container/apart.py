"""User namespace of a run's own, in which the kernel counts its processes and its use of inotify apart.

The kernel counts these per user on the whole machine: a tree at its limit would keep every other run of the user from
forking. A limit that is set in the namespace holds for what is counted there (user_namespaces(7)). Standard library
only: the supervisor uses it.
"""

from __future__ import annotations

import ctypes
import os
import resource

CLONE_NEWUSER = 0x10000000  # linux/sched.h
OWN_PROCESSES = "own processes"
"""Of the limits: processes of the tree alone, where the kernel can count them apart from the user's others."""
INOTIFY_INSTANCES, INOTIFY_WATCHES = 8, 4096
"""Of a run's code; the kernel's limits for all of a user's are 128 and 8192 or more, and each driver needs a few."""

_APART, _NO_NAMESPACE, _TOGETHER = 0, 1, 2


def count_apart() -> bool:
    """Enter a user namespace, in which this process and all that it starts are counted.

    False where the machine gives none, or counts all processes of a user together nevertheless (Linux before 5.14). It
    is tried in a child, because there is no way back.
    """
    pid = os.fork()
    if pid == 0:
        entered = _enter_namespace()
        os._exit(_NO_NAMESPACE if not entered else _APART if _is_counted_apart() else _TOGETHER)
    tried = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return tried in (_APART, _TOGETHER) and _enter_namespace() and tried == _APART


def _enter_namespace() -> bool:
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(CLONE_NEWUSER) != 0:
        return False
    written = {
        "self/setgroups": "deny",
        "self/uid_map": f"{user} {user} 1",
        "self/gid_map": f"{group} {group} 1",
        "sys/user/max_inotify_instances": str(INOTIFY_INSTANCES),
        "sys/user/max_inotify_watches": str(INOTIFY_WATCHES),
    }
    try:
        for name, text in written.items():
            with open(f"/proc/{name}", "w") as stream:
                stream.write(text)
    except OSError:
        return False
    return True


def _is_counted_apart() -> bool:
    """One more process may be started where two are allowed: the user has more than that elsewhere."""
    resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
    try:
        pid = os.fork()
    except OSError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True
