"""Hook inside the agent's Python processes that reports training and native escapes; it never stops anything.

Python imports it at start, because its folder comes first in PYTHONPATH. What code opens, executes and connects to is
the trace's. Code can avoid the hook (``python -I``, C code): what it reports is medium evidence at most; its absence
proves nothing. It reports through a named pipe that only the driver reads: opened for each line, never waited for, and
a line that finds no reader is dropped. Each process says everything once, and at most ``MOST_LINES`` things. Standard
library that is loaded anyway, Python 3.8.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False  # typing takes longer to load than everything here
if TYPE_CHECKING:
    from typing import Any

PIPE = "/run/evidence"
MOST_LINES = 64
MOST_CHARACTERS = 300

# Functions of the C library that only make sense as a way around something, and those that may be one.
_ESCAPES = {"unshare", "setns", "mount", "umount", "umount2", "pivot_root", "chroot", "ptrace", "keyctl", "bpf",
            "process_vm_readv", "process_vm_writev"}  # fmt: skip
_NATIVE = {"syscall", "prctl", "personality", "klogctl", "init_module", "kexec_load", "open_by_handle_at",
           "name_to_handle_at", "shmget", "shmat", "msgget", "semget", "mq_open", "fanotify_init", "stime"}  # fmt: skip

_reported: set[tuple[str, str]] = set()


def say(kind: str, detail: str) -> None:
    """Report once per process; never raises, never waits."""
    detail = detail[:MOST_CHARACTERS]
    if (kind, detail) in _reported or len(_reported) >= MOST_LINES:
        return
    _reported.add((kind, detail))
    text = detail.encode("unicode_escape", "backslashreplace").decode("ascii")
    try:
        # Opened anew, because a program may close every descriptor that it does not know and reuse the number.
        pipe = os.open(PIPE, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            os.write(pipe, f"{kind}\t{os.getpid()}\t{text}\n".encode("ascii"))
    except OSError:
        pass
    finally:
        os.close(pipe)


def _audit(event: str, args: tuple[object, ...]) -> None:
    """Report functions of the C library that ``ctypes`` looks up, and addresses, which machine code is called by."""
    if event == "ctypes.addressof":
        say("native", "addressof()")
    elif event == "ctypes.dlsym":
        name = str(args[1])
        if name in _ESCAPES or name in _NATIVE:
            say("native.escape" if name in _ESCAPES else "native", f"{name}()")


# --- libraries that train, looked at when they are imported ----------------------------------------------------------

_LIBRARIES = {"torch", "jax", "optax", "keras", "sklearn.base", "xgboost", "lightgbm"}


class _Finder:
    """Lets the other finders find a module, and has it watched once it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _LIBRARIES:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    """The module's own loader, followed by one look at the module."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            _watched(module)
        except Exception:
            return


def _watched(module: object) -> None:
    import importlib.util  # a library that trains has loaded it anyway

    place = os.path.join(_HERE, "libraries.py")
    spec = importlib.util.spec_from_file_location("_evidence_of_libraries", place)
    assert spec is not None and spec.loader is not None
    libraries = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(libraries)
    libraries.watch(module, say)


def _next_sitecustomize() -> None:
    """Run the one that Python would have run without this file (the agent's, the image's), if there is one."""
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    mine = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", mine)


_HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "sitecustomize":
    if hasattr(sys, "addaudithook"):
        sys.addaudithook(_audit)
        sys.meta_path.insert(0, _Finder())
    _next_sitecustomize()
