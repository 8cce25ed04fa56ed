"""Tracer, a program outside that the kernel notifies of every path that a run's processes open; it lets them go on.

Standard library only; ``reading/paths.py`` is the list of what is of interest. It copies texts that an agent wrote,
therefore it is neither the driver nor the keeper of limits: it resolves links by descriptor without opening anything
(O_PATH), keeps a bounded list, and lets every call continue whose arguments it can read. Others fail with EFAULT: the
kernel reads pages that nothing outside can (of its clock, of devices). Openings of shared cards wait (``gate.py``).

Orders come as lines over the control socket: ``listen PATH`` (one listener is taken there, then the socket is gone),
``take`` (a line of JSON: what was seen since the last one), ``programs`` (a line of JSON: shells and Pythons that were
started since, or still ran then, and how they ended), ``processes`` (a line of JSON: which files of workspace and input
each process opened since), ``guard JSON``, ``open`` and ``shut`` (``gate.py``). At its end of file the tracer ends; a
process that is traced then gets ENOSYS.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import select
import socket
import stat
import struct
import time
from collections.abc import Callable

from automedbench.reading import paths
from automedbench.sandbox.container.tree import read_status, read_task
from automedbench.sandbox.evidence.gate import Gate
from automedbench.sandbox.evidence.trace_filter import CALLS

MAX_PATH = 4096
MAX_PRINTED = 300
MOST_KEPT = 40  # different places between two orders to which the same was done, so that no flood hides another thing
MOST_MODELS = 100  # files of models
MOST_INPUTS = 3  # different inputs between two orders: who reads so many and walks past the answers sweeps all
MOST_UNEVENTFUL = 20_000  # paths of the image and the input that are known to be nothing special
MOST_PRIVATE = 5000  # and of those that are there below the private folder
MOST_WORDS = 8
MOST_PROGRAMS, MAX_LINE = 200, 2000  # shells and Pythons between two orders, and characters of a command line
MOST_WATCHED, MOST_KNOWN = 500, 200  # processes that are kept between two orders, and paths of one (read, written)
MOST_PROCESSES, MOST_PATHS, MOST_PATHS_TOTAL = 60, 40, 400  # processes told of, paths of one (read, written), of all
MAX_COMMAND = 300

# linux/seccomp.h
_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_CONTINUE, _SYNC_WAKE_UP = 1, 1
_ASKED = 32  # notifications after which it is chosen anew how the tracer is woken
_NOTE = struct.Struct("<QIIiIQ6Q")  # id, pid, flags, number, architecture, instruction, arguments
_ANSWER = struct.Struct("<QqiI")
_EMPTY = bytes(_NOTE.size)
_SPANS = struct.Struct("QQQQ")
_PAGE, _SHORT = 4096, 256

_AT_FDCWD = -100
_O_PATH = getattr(os, "O_PATH", 0o10000000)
_RESOLVE_IN_ROOT, _OPENAT2 = 0x10, 437
_HOW = struct.Struct("<QQQ")  # flags, mode, resolve: struct open_how of linux/openat2.h
_MOST_LINKS = 40  # as the kernel has it
_PROC_ROOT = 1  # inode of /proc: include/linux/proc_fs.h

ACTS = {
    **dict.fromkeys(("open", "openat", "openat2"), "open"),
    **dict.fromkeys(("symlink", "symlinkat"), "link"),
    **dict.fromkeys(("link", "linkat"), "name"),
    **dict.fromkeys(("execve", "execveat"), "exec"),
    **dict.fromkeys(
        ("creat", "rename", "renameat", "renameat2", "truncate", "chmod", "fchmodat", "fchmodat2"), "write"
    ),
    "chdir": "enter",
    "connect": "connect",
    "exit_group": "exit",
}
"""What a call does."""
# Their first argument is a folder's descriptor, their second the path; of the others the first is the path.
_RENAMES = {"rename": 1, "renameat": 3, "renameat2": 3}  # the argument that holds the new name
_BELOW = {"openat", "openat2", "execveat", "linkat", "renameat", "renameat2", "fchmodat", "fchmodat2"}

# The image's own files, read-only and without links of an agent: by far the most that is opened.
_PLAIN: tuple[bytes, ...] = (b"/usr/lib", b"/usr/local/lib", b"/usr/share", b"/usr/bin/", b"/lib", b"/opt/conda")
_PLAIN += (b"/opt/venv", b"/etc/ld.so", b"/etc/local", b"/etc/ssl", b"/data/public/", b"/sys/dev")
# Opened for writing, too, by all that starts: shells, interpreters, the hook.
_EVERYDAY = {b"/dev/null", b"/dev/tty", b"/dev/urandom", b"/proc/self/maps", b"/run/evidence"}
_ODD = re.compile(rb"/\.")
# Files of weights, and libraries without which none of the common programs computes a model.
_MODEL = re.compile(rb"\.(safetensors|pth?|pt2|ckpt|onnx|gguf|h5|keras|tflite|bin|msgpack)$")
_SITE = re.compile(rb"/(?:site|dist)-packages/[^/]+\.pth$")  # of Python itself, opened whenever it starts
_FRAMEWORK = re.compile(
    rb"/(?:lib)?(torch_cpu|onnxruntime|tensorflow|_pywrap_tensorflow|xla_extension|jaxlib|llama|ggml|_check_build)[^/]*\.so"
)
_WRITABLE = ("/workspace/", "/tmp/", "/var/tmp/", "/dev/", "/proc/self/", "/proc/thread-self/", "/usr/")
_INPUT, _WORKSPACE, _SKILLS = "/data/public/", "/workspace/", "/skills/"
_CROSSROADS = frozenset({"/data", "/etc", "/home", "/root", "/run"})  # walks meet forbidden things below them
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|__pycache__|node_modules|\.git)/|\.pyc$")
_HARNESS = (b"/run/trace", b"/run/evidence", b"/run/call", b"/run/runner", b"/run/lock")
_OWN_PLACES = ("/workspace/", "/tmp/", "/opt/", "/usr/")  # libraries look for settings there, an agent's or none
_SETTINGS = "/proc/sys/"  # of the kernel; ordinary programs read them
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PROCESS = re.compile(r"^/proc/(\d+)/")
_INNARDS = re.compile(r"^/proc/(\d+)/(?:task/\d+/)?(?:mem|syscall)$")
_SCRIPT, _FORWARDER, _RUNNER = 3, b"/run/forwarder.py", b"/run/runner.py"  # the word that names our programs, and both

_RUNS_CODE = re.compile(rb"(?:.*/)?(?:(?:ba|da|k|z)?sh|python[\d.]*)")
ESCAPES = frozenset({"unshare", "nsenter", "pivot_root", "chroot", "mount", "umount", "bwrap", "runc", "fusermount"})


class Memory:
    """Reads from another process's memory, at most ``MAX_PATH`` bytes a time."""

    def __init__(self) -> None:
        self._read = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._text = bytearray(MAX_PATH)
        self._held = (ctypes.c_char * MAX_PATH).from_buffer(self._text)
        self._local = bytearray(struct.pack("QQ", ctypes.addressof(self._held), MAX_PATH))
        self._remote = bytearray(32)
        self._here = ctypes.addressof((ctypes.c_char * 16).from_buffer(self._local))
        self._there = ctypes.addressof((ctypes.c_char * 32).from_buffer(self._remote))
        self._read.argtypes = (ctypes.c_int, *(ctypes.c_void_p, ctypes.c_ulong) * 2, ctypes.c_ulong)

    def bytes_at(self, pid: int, address: int, size: int = MAX_PATH) -> bytes:
        """Up to ``size`` bytes, fewer where the memory ends; raises OSError (EFAULT) when nothing can be read."""
        first = min(_PAGE - address % _PAGE, size)  # a second page may not be there
        _SPANS.pack_into(self._remote, 0, address, first, address + first, size - first)
        count = self._read(pid, self._here, 1, self._there, 1 + (first < size), 0)
        if count < 0:
            raise OSError(ctypes.get_errno(), f"nothing can be read at {address:x} of process {pid}")
        return bytes(memoryview(self._text)[:count])

    def all_at(self, pid: int, address: int, size: int) -> bytes:
        """Bytes of a structure; raises OSError (EFAULT) unless all of it can be read."""
        found = self.bytes_at(pid, address, size)
        if len(found) < size:
            raise OSError(errno.EFAULT, f"the memory at {address:x} of process {pid} ends")
        return found

    def text_at(self, pid: int, address: int, size: int = MAX_PATH) -> bytes:
        """A text up to its zero byte, or ``size`` bytes of it; raises OSError (EFAULT) where the memory ends in it."""
        # Most are short, and the rest of their page need not be copied.
        text, end, _ = self.bytes_at(pid, address, min(size, _SHORT)).partition(b"\0")
        if end or len(text) == size:
            return text
        text, end, _ = self.bytes_at(pid, address, size).partition(b"\0")
        return text if end else self.all_at(pid, address, size)

    def words_at(self, pid: int, address: int, size: int = 200) -> list[bytes]:
        """The first words of a command line, up to ``size`` bytes of each."""
        raw = self.bytes_at(pid, address, 8 * MOST_WORDS) if address else bytes(8)
        pointers = [pointer for (pointer,) in struct.iter_unpack("<Q", raw[: len(raw) // 8 * 8])]
        if 0 in pointers:
            del pointers[pointers.index(0) :]
        else:
            self.all_at(pid, address, 8 * MOST_WORDS)
        return [self.text_at(pid, pointer, size) for pointer in pointers]


class Tree:
    """Paths as the container has them, with links followed as the kernel would there."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._root = -1
        self._prefix = ""
        self._proc: tuple[int, int] | None = None
        self.device = 0
        """Number of the device to which the last path that was resolved leads; 0 for anything else."""
        self._how = ctypes.create_string_buffer(_HOW.pack(_O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT), _HOW.size)

    def enter(self, pid: int) -> None:
        """Take the root folder of a process for that of all."""
        if self._root >= 0:
            os.close(self._root)
        self._root = os.open(f"/proc/{pid}/root", _O_PATH | os.O_CLOEXEC)
        self._prefix = os.readlink(f"/proc/self/fd/{self._root}").rstrip("/")
        with contextlib.suppress(OSError):
            self._proc = (os.stat("proc", dir_fd=self._root).st_dev, _PROC_ROOT)

    def resolve(self, pid: int, folder: int, text: str, *, within: bool = False) -> tuple[str, str]:
        """The real path of a path argument, and what lies there: ``file``, ``list`` (a folder) or ``missing``.

        ``within``: the folder is the root of the look-up (``RESOLVE_IN_ROOT``).
        """
        self.device = 0
        if not within:
            with contextlib.suppress(OSError):  # a folder whose path is too long, or that is gone
                path = text if text.startswith("/") else f"{self._link(self._start(pid, folder))}/{text}"
                found = None if "/proc/" in path else self._opened(path)
                if found is not None:
                    return found
        start = self._root if text.startswith("/") and not within else -1
        return _Walk(self, pid, within).along(text, self._start(pid, folder) if start < 0 else "")

    @property
    def root(self) -> int:
        """Descriptor of the root folder."""
        return self._root

    def path_of(self, descriptor: int) -> str:
        """Path of an open file."""
        place = self._link(f"/proc/self/fd/{descriptor}") or "/"
        if not place.startswith("/"):
            raise OSError(f"{place} is a pipe, a socket or of another tree")
        return place

    def state(self, descriptor: int) -> str:
        """What is open: ``list`` (a folder) or ``file``; keeps the number of a device."""
        status = os.fstat(descriptor)
        self.device = status.st_rdev if stat.S_ISCHR(status.st_mode) else 0
        return "list" if stat.S_ISDIR(status.st_mode) else "file"

    def is_proc(self, descriptor: int) -> bool:
        """Check whether it is /proc itself."""
        return _identity(os.fstat(descriptor)) == self._proc

    def lies_in_proc(self, status: os.stat_result) -> bool:
        """Check whether it lies in /proc."""
        return self._proc is not None and status.st_dev == self._proc[0]

    @staticmethod
    def _start(pid: int, folder: int) -> str:
        return f"/proc/{pid}/{'cwd' if folder == _AT_FDCWD else f'fd/{folder}'}"

    def _link(self, path: str) -> str:
        return os.readlink(path).removeprefix(self._prefix)

    def _opened(self, path: str) -> tuple[str, str] | None:
        descriptor = self._call(_OPENAT2, self._root, os.fsencode(path), self._how, _HOW.size)
        if descriptor < 0:
            return None
        try:
            return self.path_of(descriptor), self.state(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)


class _Walk:
    """A path followed name by name, with descriptors, as the process that asks would follow it.

    Here /proc/self is that process, and where a link of /proc leads to is asked of the kernel: a path has no form, and
    a folder no depth, with which it could be taken for another one.
    """

    def __init__(self, tree: Tree, pid: int, within: bool) -> None:
        self._tree, self._pid, self._within = tree, pid, within
        self._here = self._top = -1
        self._links = 0

    def along(self, text: str, start: str) -> tuple[str, str]:
        """Resolve a path; ``start`` is the folder of a relative one."""
        try:
            self._top = os.open(start, _O_PATH | os.O_CLOEXEC) if self._within else os.dup(self._tree.root)
            self._here = os.dup(self._top) if not start or self._within else os.open(start, _O_PATH | os.O_CLOEXEC)
            names = _names(text)
            while names:
                name = names.pop()
                try:
                    names += self._step(name)
                except (FileNotFoundError, NotADirectoryError, PermissionError):
                    rest = "/".join([name, *reversed(names)])
                    return _below(self._tree.path_of(self._here), rest), "missing"
            return self._tree.path_of(self._here), self._tree.state(self._here)
        finally:
            for descriptor in (self._here, self._top):
                if descriptor >= 0:
                    os.close(descriptor)

    def _step(self, name: str) -> list[str]:
        """Go on by one name; gives the names that a link has in its place, the last one first."""
        if name == "..":
            top = _identity(os.fstat(self._here)) == _identity(os.fstat(self._top))
            self._go(os.dup(self._here) if top else self._open(".."))
            return []
        if name in ("self", "thread-self") and self._tree.is_proc(self._here):
            return _names(find_inner_pid(self._pid) if name == "self" else find_inner_thread(self._pid) or name)
        found = self._open(name, os.O_NOFOLLOW)
        status = os.fstat(found)
        if not stat.S_ISLNK(status.st_mode):
            self._go(found)
            return []
        os.close(found)
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError("too many links")
        if self._tree.lies_in_proc(status) and not self._tree.is_proc(self._here):
            self._go(os.dup(self._tree.root) if name == "root" else self._open(name))
            return []
        target = os.readlink(name, dir_fd=self._here)
        if target.startswith("/"):
            self._go(os.dup(self._top))
        return _names(target)

    def _open(self, name: str, flags: int = 0) -> int:
        return os.open(name, _O_PATH | os.O_CLOEXEC | flags, dir_fd=self._here)

    def _go(self, descriptor: int) -> None:
        os.close(self._here)
        self._here = descriptor


def _names(path: str) -> list[str]:
    """The names of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _below(folder: str, rest: str) -> str:
    return "/" + os.path.normpath(f"{folder}/{rest}").lstrip("/")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def find_inner_pid(pid: int) -> str:
    """The number that a process has inside, where its own /proc tells of it."""
    return read_status(pid, b"NStgid:")


def find_inner_thread(pid: int) -> str:
    """The place of a thread below its /proc."""
    return f"{find_inner_pid(pid)}/task/{read_status(pid, b'NSpid:')}"


class TraceRecord:
    """Events since the last ``take``: each once, with its count, and the number of those left out."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, ...], int] = {}
        self.kinds: dict[tuple[str, ...], int] = {}
        self.more = self.calls = 0
        self.models: dict[str, None] = {}
        self.walked: set[str] = set()
        self.inputs: set[str] = set()

    def model(self, place: str) -> None:
        """Keep the place of a model, each once."""
        if len(self.models) < MOST_MODELS:
            self.models[place] = None

    def read_input(self, place: str) -> None:
        """Keep the first inputs that were read."""
        if len(self.inputs) < MOST_INPUTS:
            self.inputs.add(place)

    def add(self, *event: str) -> None:
        """Count an event: rule, category, how sure, what was done, and its place."""
        kind = event[:-1]
        there = event[0] == "private_path" and event[3] in ("file", "list")
        number = self.kinds.get(kind, 0)
        if event in self.events:
            self.events[event] += 1
        elif number < (MOST_PRIVATE if there else MOST_KEPT):
            self.events[event], self.kinds[kind] = 1, number + 1
        else:
            self.more += 1

    def take(self) -> dict[str, object]:
        """All of it, as JSON has it; begins anew."""
        taken = {"events": [[*event, count] for event, count in self.events.items()], "more": self.more}
        taken |= {"calls": self.calls, "models": list(self.models)}
        taken |= {"walked": sorted(self.walked), "inputs": len(self.inputs)}
        self.events, self.kinds, self.more, self.calls, self.models = {}, {}, 0, 0, {}
        self.walked, self.inputs = set(), set()
        return taken


class Programs:
    """Shells and Pythons in order of their start, at most so many: command lines, and codes that they ended with.

    A process that is killed by a signal says nothing at its end: its code stays unknown.
    """

    def __init__(self) -> None:
        self._all: list[dict[str, object]] = []
        self._running: dict[int, list[dict[str, object]]] = {}

    def note_start(self, pid: int, words: list[bytes]) -> None:
        """Note a start, or a try: a name is looked for in many folders."""
        line = b" ".join(words)[: 4 * MAX_LINE].decode("utf-8", "replace")[:MAX_LINE]
        ran = self._running.get(pid, [])
        if len(self._all) < MOST_PROGRAMS and not (ran and ran[-1]["line"] == line):
            begin = time.monotonic()
            self._all.append(
                {"pid": pid, "parent": _parent(pid), "line": line, "begin": begin, "code": None, "runs": True}
            )
            self._running.setdefault(pid, []).append(self._all[-1])

    def note_end(self, pid: int, code: int | None) -> None:
        """Note an end; of most processes nothing is known here."""
        for program in self._running.pop(pid, ()):
            program["code"], program["runs"] = code, False

    def take(self) -> list[dict[str, object]]:
        """All of them; those that still run are told of again."""
        for pid in [pid for pid in self._running if not os.path.exists(f"/proc/{pid}")]:
            self.note_end(pid, None)
        taken, self._all = self._all, [program for program in self._all if program["runs"]]
        return taken


class Watched:
    """One process: its command line, its parent's number, how it ended, and the files that it opened."""

    def __init__(self, command: str, parent: int) -> None:
        self.command, self.parent = command, parent
        self.code: int | None = None
        self.runs = True
        self.reads: dict[str, None] = {}
        self.writes: dict[str, None] = {}
        self.left_out = 0

    def add(self, path: str, *, writes: bool) -> None:
        """Keep a path, each once."""
        kept = self.writes if writes else self.reads
        if len(kept) < MOST_KNOWN:
            kept[path] = None
        else:
            self.left_out += path not in kept

    @property
    def is_full(self) -> bool:
        """Check whether no more paths that are read are kept."""
        return len(self.reads) >= MOST_KNOWN

    @property
    def is_reported(self) -> bool:
        """Check whether it opened something of interest."""
        return bool(self.reads or self.writes)


class Harness:
    """Our own processes inside: the first one behind the filter, and the runner if a forwarder has started it."""

    def __init__(self) -> None:
        self.pids: set[int] = set()
        self._inner: set[str] = set()
        self._complete = False

    def begin(self, pid: int) -> None:
        """Take the process that has installed the filter; nothing of the agent's runs in its container yet."""
        self.pids, self._inner, self._complete = set(), set(), False
        self._take(pid)

    def takes(self, pid: int, words: list[bytes]) -> bool:
        """Check whether a process becomes our forwarder or runner; after that, no other one is ours."""
        if self._complete or words[_SCRIPT : _SCRIPT + 1] not in ([_FORWARDER], [_RUNNER]):
            return False
        self._complete = words[_SCRIPT] == _RUNNER
        self._take(pid)
        return True

    def holds(self, place: str) -> bool:
        """Check whether a path is the memory or the registers of one of them."""
        found = _INNARDS.match(place)
        return found is not None and found[1] in self._inner

    def _take(self, pid: int) -> None:
        self.pids.add(pid)
        self._inner.add(find_inner_pid(pid))


class Processes:
    """Processes and the files of workspace and input that they opened; of threads what their process opened.

    Only processes that opened a file are reported, and their ancestors with them.
    """

    def __init__(self) -> None:
        self._all: dict[int, Watched] = {}
        self._process_ids: dict[int, int] = {}
        self._more = 0
        self.harness = Harness()

    def note_start(self, pid: int, command: str) -> None:
        """Note what a process becomes, or tries to: a name is looked for in many folders."""
        if pid in self.harness.pids:
            return
        self._process_ids[pid] = pid
        known = self._all.get(pid)
        if known is not None and known.runs:
            known.command = command
        elif len(self._all) < MOST_WATCHED:
            self._all[pid] = Watched(command, _parent(pid))

    def note_end(self, thread: int, code: int) -> None:
        """Note an end; a process that opened nothing is forgotten, unless it is another's parent."""
        pid = self._process_ids.pop(thread, thread)
        found = self._all.get(pid)
        if found is not None:
            found.code, found.runs = code, False
            if not found.is_reported and not any(each.parent == pid for each in self._all.values()):
                del self._all[pid]

    def find(self, thread: int) -> Watched | None:
        """The process of a thread; None beyond ``MOST_WATCHED``."""
        pid = self._process_ids.get(thread)
        if thread in self.harness.pids:
            return None
        if pid is None or pid not in self._all or not self._all[pid].runs:
            pid = int(read_status(thread, b"Tgid:") or thread)
            if pid in self.harness.pids:
                return None
            if pid not in self._all or not self._all[pid].runs:
                if len(self._all) >= MOST_WATCHED:
                    self._more += 1
                    return None
                self._all[pid] = Watched(_command(pid), _parent(pid))
            self._process_ids[thread] = pid
        return self._all[pid]

    def take(self) -> list[dict[str, object]]:
        """Files opened since the last time, by process, in order of their start; writers come first if too many."""
        for pid, each in self._all.items():
            each.runs = each.runs and os.path.exists(f"/proc/{pid}")
        reported = [pid for pid, each in self._all.items() if each.is_reported]
        reported.sort(key=lambda pid: not self._all[pid].writes)
        kept = set(reported[:MOST_PROCESSES])
        for pid in reported[:MOST_PROCESSES]:
            kept.update(self._ancestors(pid)[: MOST_PROCESSES - len(kept)])
        order = [pid for pid in self._all if pid in kept]
        room = MOST_PATHS_TOTAL
        taken = []
        for pid in order:
            room, row = self._row(pid, order, room)
            taken.append(row)
        if taken:
            taken[-1]["left_out"] += len(reported) - len(kept.intersection(reported)) + self._more  # type: ignore[operator]
        self._all = {pid: each for pid, each in self._all.items() if each.runs}
        for each in self._all.values():
            each.reads, each.writes, each.left_out = {}, {}, 0
        self._process_ids, self._more = {}, 0
        return taken

    def _ancestors(self, pid: int) -> list[int]:
        """Ancestors that are known, the nearest first."""
        above: list[int] = []
        while (parent := self._all[pid].parent) in self._all and parent not in above and parent != pid:
            above.append(parent)
            pid = parent
        return above

    def _row(self, pid: int, order: list[int], room: int) -> tuple[int, dict[str, object]]:
        each = self._all[pid]
        writes = list(each.writes)[: min(room, MOST_PATHS)]
        reads = list(each.reads)[: min(room - len(writes), MOST_PATHS)]
        parent = next((order.index(above) for above in self._ancestors(pid) if above in order), None)
        cut = len(each.writes) + len(each.reads) - len(writes) - len(reads)
        row: dict[str, object] = {"command": each.command, "parent": parent, "exit_code": each.code}
        row |= {"reads": _shorten(reads), "writes": _shorten(writes), "left_out": each.left_out + cut}
        return room - len(writes) - len(reads), row


def _shorten(places: list[str]) -> list[str]:
    """Reported paths: relative to the workspace, or absolute."""
    return [_printable(os.fsencode(place.removeprefix(_WORKSPACE))) for place in places]


def encode_reply(answer: object) -> bytes:
    """An answer to an order; letters are not escaped, which would make three times as much of some."""
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _command(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as stream:
        return _printable(stream.read(4 * MAX_COMMAND).replace(b"\0", b" ").strip())[:MAX_COMMAND]
    return ""


def _parent(pid: int) -> int:
    task = read_task(pid)
    return 0 if task is None else task.parent


class Tracer:
    """Answers notifications, records what is of interest."""

    def __init__(self, calls: dict[str, int]) -> None:
        self.record, self.memory, self.tree = TraceRecord(), Memory(), Tree()
        self.programs, self.processes, self.gate = Programs(), Processes(), Gate()
        self._renames = {calls[name]: at for name, at in _RENAMES.items() if name in calls}
        self._calls = {number: (ACTS[name], int(name in _BELOW)) for name, number in calls.items()}
        self._note = bytearray(_EMPTY)
        self._uneventful: set[bytes] = set()
        self._opening = (0, 0)
        """Number of the device that the call opens, and its flags; 0 for anything else."""
        self._askers: list[int] = []

    def answer(self, listener: int) -> None:
        """Take one notification, look at it, and let the call go on if its arguments can be read."""
        self._note[:] = _EMPTY
        try:
            fcntl.ioctl(listener, _RECEIVE, self._note)
        except OSError:  # its process was killed meanwhile
            return
        identity, pid, _, number, _, _, *arguments = _NOTE.unpack(self._note)
        self.record.calls += 1
        self._askers.append(pid)
        if len(self._askers) == _ASKED:
            self._choose_core(listener)
        outcome, self._opening = (0, _CONTINUE), (0, 0)
        # A process that is gone, a wild pointer: nothing that an agent hands over may end the tracer.
        try:
            self._look(pid, number, arguments)
        except PermissionError:  # PR_SET_DUMPABLE, where the container has no user namespace
            self.record.add("unread", "resource", "", "acts of", "processes that let no other read them")
        except OSError as error:
            outcome = (-errno.EFAULT, 0) if error.errno == errno.EFAULT else outcome
        except Exception:
            pass
        if self.gate.take(listener, identity, *self._opening):
            return
        with contextlib.suppress(OSError):
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(identity, 0, *outcome))

    def _choose_core(self, listener: int) -> None:
        """Stay on the core of a process that asks alone, which is faster; many would all be drawn to that core."""
        alone = len(set(self._askers)) == 1
        self._askers.clear()
        with contextlib.suppress(OSError):  # before Linux 6.6
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP if alone else 0)

    def _look(self, pid: int, number: int, arguments: list[int]) -> None:
        act, path = self._calls[number]  # the number of the argument that holds it; before it a folder's descriptor
        if act == "exit":
            self.programs.note_end(pid, arguments[0] & 0xFF)
            self.processes.note_end(pid, arguments[0] & 0xFF)
            return
        if act == "connect":
            self._look_at_connect(self.memory.all_at(pid, arguments[1], min(arguments[2], 128)))
            return
        raw = self.memory.text_at(pid, arguments[path])
        if act == "exec":
            self._look_at_exec(pid, raw, arguments[path + 1])
            return
        flags, within = arguments[path + 1], False
        if number == _OPENAT2:
            flags, _, resolve = _HOW.unpack(self.memory.all_at(pid, arguments[2], _HOW.size))
            within = bool(resolve & _RESOLVE_IN_ROOT)
        opens = act == "open"
        if opens and flags & _WRITES:
            act = "write"
        if act == "open" and raw.startswith(_PLAIN) and not within and not _ODD.search(raw):
            self._look_at_plain(pid, raw, flags)
        elif raw not in _EVERYDAY:
            at = ctypes.c_int(arguments[0]).value if path else _AT_FDCWD
            self.tree.device = 0
            self._look_at_open(pid, act, at, raw, within)
            self._opening = (self.tree.device if opens else 0, flags)
        if number in self._renames:
            self._look_at_rename(pid, number, arguments)

    def _look_at_plain(self, pid: int, raw: bytes, flags: int) -> None:
        """A file of the image or the input that is read by its plain path, which nothing can lead elsewhere."""
        if raw.startswith(b"/data/public/") and not flags & os.O_DIRECTORY:
            self._read_input(pid, raw)
        if raw in self._uneventful:
            return
        if _is_weights(raw):
            self.record.model(_printable(raw))
        elif not self._note_framework(raw) and len(self._uneventful) < MOST_UNEVENTFUL:
            self._uneventful.add(raw)

    def _note_framework(self, raw: bytes) -> bool:
        """Keep the name of a library that computes models; False for another file."""
        found = _FRAMEWORK.search(raw)
        if found:
            self.record.model(f"/framework/{found[1].decode()}")
        return found is not None

    def _read_input(self, pid: int, raw: bytes) -> None:
        """An input by its plain path; a look at what is not there opens nothing."""
        process, path = self.processes.find(pid), os.fsdecode(raw)
        if process is not None and path not in process.reads:
            if process.is_full:
                process.left_out += 1
                self.record.read_input(path)
                return
            with contextlib.suppress(OSError):
                if stat.S_ISREG(os.stat(raw.lstrip(b"/"), dir_fd=self.tree.root).st_mode):
                    process.add(path, writes=False)
                    self.record.read_input(path)

    def _look_at_rename(self, pid: int, number: int, arguments: list[int]) -> None:
        """The new name of a file, as many programs write: first under another one."""
        at = self._renames[number]
        folder = ctypes.c_int(arguments[at - 1]).value if at > 1 else _AT_FDCWD
        place, _ = self.tree.resolve(pid, folder, os.fsdecode(self.memory.text_at(pid, arguments[at])))
        self._keep(pid, "write", place, "file")

    def _keep(self, pid: int, act: str, place: str, state: str) -> None:
        """Keep a file of workspace, input or skills for its process; nothing else, so that no other path is told."""
        if state == "list" or (act == "open" and state != "file") or act not in ("open", "write"):
            return
        writes = act == "write"
        if place.startswith(_WORKSPACE) or (place.startswith((_INPUT, _SKILLS)) and not writes):
            process = self.processes.find(pid)
            kept = None if process is None else process.writes if writes else process.reads
            if process is not None and kept is not None and place not in kept and not _LIBRARY.search(place):
                process.add(place, writes=writes)
            if place.startswith(_INPUT):
                self.record.read_input(place)

    def _look_at_open(self, pid: int, act: str, folder: int, raw: bytes, within: bool) -> None:
        text = os.fsdecode(raw)
        weights = act == "open" and not self._note_framework(raw) and _is_weights(raw)
        if act == "link" and not text.startswith("/"):
            return  # what is opened through it is resolved
        place, state = self.tree.resolve(pid, folder, text, within=within)
        if self._is_own_proc(pid, place):
            return
        if weights and state == "file":
            self.record.model(_printable(os.fsencode(place)))
        self._keep(pid, act, place, state)
        if self.processes.harness.holds(place):
            self.record.add("harness_memory", "harness", "certain", act, place)
            return
        if act == "open" and state == "list" and place in _CROSSROADS:
            self.record.walked.add(place)
        rule = paths.classify(place)
        if rule is not None and not place.startswith(_SETTINGS):
            sure = "certain" if rule.certain and not place.startswith(_OWN_PLACES) else ""
            what = state if act == "open" or (act == "write" and state != "list") else act
            self.record.add(rule.name, rule.category, sure, what, _printable(os.fsencode(place)))
        elif act == "write" and not f"{place}/".startswith(_WRITABLE):
            self.record.add("write_outside", "resource", "", act, _printable(os.fsencode(place)))

    @staticmethod
    def _is_own_proc(pid: int, place: str) -> bool:
        number = _PROCESS.match(place)
        return number is not None and number[1] == find_inner_pid(pid)

    def _look_at_exec(self, pid: int, raw: bytes, words: int) -> None:
        start = self.memory.words_at(pid, words, MAX_COMMAND)
        if self.processes.harness.takes(pid, start):
            return
        command = b" ".join(start)
        self.processes.note_start(pid, _printable(command)[:MAX_COMMAND])
        if _RUNS_CODE.fullmatch(raw):
            self.programs.note_start(pid, self.memory.words_at(pid, words, MAX_PATH))
            return
        name = os.fsdecode(raw.rpartition(b"/")[2])
        if name not in ESCAPES:
            return
        line = [_printable(word) for word in self.memory.words_at(pid, words)]
        if name == "mount" and paths.lists_mounts(line[1:]):
            return
        self.record.add("command", "escape", "certain", "exec", " ".join([name, *line[1:]])[:MAX_PRINTED])

    def _look_at_connect(self, address: bytes) -> None:
        family = struct.unpack_from("<H", address)[0] if len(address) > 2 else 0
        if family == socket.AF_UNIX and address[2:3] not in (b"", b"\0"):
            rule = paths.classify(os.path.normpath(os.fsdecode(address[2:].partition(b"\0")[0])))
            if rule is not None:
                sure = "certain" if rule.certain else ""
                self.record.add(rule.name, rule.category, sure, "connect", _printable(address[2:].partition(b"\0")[0]))
            elif address[2:].startswith(_HARNESS):
                self.record.add("harness_path", "harness", "", "connect", _printable(address[2:].partition(b"\0")[0]))
        elif family in (socket.AF_INET, socket.AF_INET6):
            self._internet(family, address)

    def _internet(self, family: int, address: bytes) -> None:
        port = int.from_bytes(address[2:4], "big")
        host = socket.inet_ntop(family, address[4:8] if family == socket.AF_INET else address[8:24])
        host = host.removeprefix("::ffff:")
        metadata = host.startswith("169.254.") or host == "fd00:ec2::254"
        if host.startswith("127.") or host in ("::1", "0.0.0.0", "::") or (port in (0, 53) and not metadata):
            return  # this machine, and name servers, which every program asks that wants an address
        self.record.add("metadata" if metadata else "outside", "network", "", "connect", f"{host} port {port}")


def _is_weights(raw: bytes) -> bool:
    return _MODEL.search(raw) is not None and not _SITE.search(raw)


def _printable(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")[:MAX_PRINTED]
    return "".join(character if character.isprintable() else "?" for character in text)


class Service:
    """The tracer's descriptors: control, the socket that waits for a listener, listeners."""

    def __init__(self, tracer: Tracer, control: socket.socket) -> None:
        self._tracer, self._control = tracer, control
        self._events = select.epoll()
        self._events.register(control.fileno(), select.EPOLLIN)
        self._waiting: tuple[socket.socket, str] | None = None
        self._listeners: set[int] = set()
        self._orders = b""
        self._answers: dict[bytes, Callable[[], object]] = {
            b"take": self._take,
            b"programs": tracer.programs.take,
            b"processes": tracer.processes.take,
            b"open": tracer.gate.open,
            b"shut": tracer.gate.shut,
        }

    def run(self) -> None:
        """Serve until the control socket ends."""
        while True:
            self._tracer.gate.look()
            for descriptor, event in self._events.poll(self._tracer.gate.pause_s):
                if descriptor in self._listeners:
                    self._serve_listener(descriptor, event)
                elif descriptor == self._control.fileno():
                    if not self._take_orders():
                        return
                else:
                    self._accept()

    def _serve_listener(self, listener: int, event: int) -> None:
        if event & select.EPOLLIN:
            self._tracer.answer(listener)
        elif event & (select.EPOLLHUP | select.EPOLLERR):  # no process is left
            self._events.unregister(listener)
            self._listeners.discard(listener)
            self._tracer.gate.look(gone=listener)
            os.close(listener)

    def _take_orders(self) -> bool:
        block = self._control.recv(8192)
        *orders, self._orders = (self._orders + block).split(b"\n")
        for order in orders:
            if order.startswith(b"listen "):
                answer: object = self._listen(order[7:].decode())
            elif order.startswith(b"guard "):
                answer = self._guard(*json.loads(order[6:]))
            else:
                answer = self._answers[order]()
            self._control.sendall(encode_reply(answer))
        return bool(block)

    def _listen(self, path: str) -> dict[str, object]:
        self._forget()
        waiting = socket.socket(socket.AF_UNIX)
        waiting.bind(path)
        os.chmod(path, 0o600)
        waiting.listen(1)
        self._events.register(waiting.fileno(), select.EPOLLIN)
        self._waiting = (waiting, path)
        return {"listening": True}

    def _guard(self, driver: str, nodes: list[str]) -> dict[str, object]:
        self._tracer.gate.guard(driver, nodes)
        return {"guarded": len(nodes)}

    def _take(self) -> dict[str, object]:
        return {**self._tracer.record.take(), "listening": bool(self._listeners)}

    def _forget(self) -> None:
        if self._waiting is not None:
            waiting, path = self._waiting
            self._events.unregister(waiting.fileno())
            waiting.close()
            self._waiting = None
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _accept(self) -> None:
        """Take the first listener that comes; a later one finds no socket."""
        assert self._waiting is not None
        with self._waiting[0].accept()[0] as peer:
            self._forget()
            peer.settimeout(10.0)
            with contextlib.suppress(OSError):
                _, ancillary, _, _ = peer.recvmsg(1, socket.CMSG_SPACE(4))
                for _, _, data in ancillary:
                    self._take_over(struct.unpack("i", data[:4])[0], peer)

    def _take_over(self, listener: int, peer: socket.socket) -> None:
        os.set_inheritable(listener, False)
        pid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        with contextlib.suppress(OSError):  # without leave to look, nothing is recorded, and the driver sees that
            self._tracer.tree.enter(pid)
        self._tracer.processes.harness.begin(pid)
        self._listeners.add(listener)
        self._events.register(listener, select.EPOLLIN)
        peer.sendall(b"L")


def main(arguments: list[str]) -> None:
    """Serve the control socket until it ends."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    Service(Tracer(CALLS.get(os.uname().machine, {})), control).run()
