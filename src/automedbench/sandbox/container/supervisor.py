"""Supervisor, a program between the driver and one process tree, so that nothing of the tree outlives the call.

Run as ``python -I -S supervisor.py CONTROL_FD LIMITS COMMAND...`` (standard library only, no package import), in the
command's own environment; LIMITS is JSON. It is
the subreaper of everything the command starts: daemons that leave the process group are found as well. The driver
talks over a socket: ``T`` terminates the tree, ``K`` kills it, end of file (the driver died) kills it too. When the
command ends, what is left of the tree is killed and one JSON line ``{"status": …}`` goes back.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
CLONE_NEWUSER = 0x10000000  # linux/sched.h
OWN_PROCESSES = "own processes"
"""Of the limits: processes of the tree alone, where the kernel can count them apart from the user's others."""
INOTIFY_INSTANCES = 8
"""Of a run's code; the kernel's limit for all of a user's is 128 by default, and each driver needs one."""
KILL_SECONDS = 5.0


def parents() -> dict[int, int]:
    """Process id → parent's id of every process on the machine."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    # The command name (in brackets) may hold anything, also brackets and blanks.
                    found[int(name)] = int(stream.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    return found


def descendants(root: int) -> list[int]:
    """Every process below ``root``."""
    of, below, mine = parents(), {root}, list[int]()
    grown = True
    while grown:
        new = [pid for pid, parent in of.items() if parent in below and pid not in below]
        below.update(new)
        mine += new
        grown = bool(new)
    return mine


def signal_all(number: int) -> None:
    """Send a signal to every process below this one."""
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, number)
        except OSError:
            continue


def reap() -> dict[int, int]:
    """Wait statuses of the children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def childless() -> bool:
    """True when no child is left, dead or alive."""
    reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def kill_rest() -> bool:
    """Kill what is left of the tree; true when nothing survived. Repeated, because a tree may fork meanwhile."""
    end = time.monotonic() + KILL_SECONDS
    while not childless():
        if time.monotonic() > end:
            return False
        signal_all(signal.SIGKILL)
        time.sleep(0.005)
    return True


def count_apart(inotify_instances: int = INOTIFY_INSTANCES) -> bool:
    """Have the kernel count this tree's processes and inotify instances by themselves, in a user namespace of its own.

    The kernel counts both per user on the whole machine: a tree at its limit would keep every other run of the user
    from forking. A limit that is set from here on holds for what is counted in this namespace (user_namespaces(7)).
    False where the machine gives none; it is tried in a child, because there is no way back.
    """
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _enter_namespace(inotify_instances) else 1)
    return os.waitpid(pid, 0)[1] == 0 and _enter_namespace(inotify_instances)


def _enter_namespace(inotify_instances: int) -> bool:
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(CLONE_NEWUSER) != 0:
        return False
    written = {
        "self/setgroups": "deny",
        "self/uid_map": f"{user} {user} 1",
        "self/gid_map": f"{group} {group} 1",
        "sys/user/max_inotify_instances": str(inotify_instances),
    }
    try:
        for name, text in written.items():
            with open(f"/proc/{name}", "w") as stream:
                stream.write(text)
    except OSError:
        return False
    return True


def apply_limits(limits: dict[str, int]) -> None:
    """Set resource limits, each as far as the hard limit allows."""
    for name, wanted in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))


def prefer_for_killing() -> None:
    """Tell the kernel to end this tree first when the machine runs out of memory, not the driver (proc(5))."""
    try:
        with open("/proc/self/oom_score_adj", "w") as stream:
            stream.write("1000")
    except OSError:
        return


def given_environment() -> dict[bytes, bytes]:
    """The environment as it was given: an interpreter adds to its own."""
    with open("/proc/self/environ", "rb") as stream:
        entries = [entry.partition(b"=") for entry in stream.read().split(b"\0")]
    return {name: value for name, equals, value in entries if equals}


def start(command: list[str], limits: dict[str, int], control: socket.socket) -> int:
    """Start the command in a process group of its own; a failure is reported by the child itself."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        prefer_for_killing()
        own_processes = limits.pop(OWN_PROCESSES, None)
        if own_processes is not None and count_apart():
            limits["RLIMIT_NPROC"] = own_processes
        apply_limits(limits)
        os.execvpe(command[0], command, given_environment())
    except (OSError, ValueError) as error:
        control.send(json.dumps({"failed": f"{command[0]}: {error}"}).encode() + b"\n")
    os._exit(127)


def supervise(leader: int, control: socket.socket, wakeup: int) -> int | None:
    """Wait for the leader while obeying the driver; its wait status, or None when the driver has gone."""
    while True:
        status = reap().get(leader)
        if status is not None:
            return status
        ready, _, _ = select.select([control.fileno(), wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 4096)
        if control.fileno() in ready:
            order = control.recv(1)
            if not order:
                return None
            signal_all(signal.SIGTERM if order == b"T" else signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Run one command to its end and leave nothing of it behind."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    leader = start(arguments[2:], json.loads(arguments[1]), control)
    status = supervise(leader, control, reader)
    clean = kill_rest()
    if status is not None:
        control.send(json.dumps({"status": status, "clean": clean}).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
