"""Paths below a folder, opened without following anything: the kernel's ``openat2``, where it has it.

One call then resolves the whole path: no link at any component, no way up, no other file system mounted inside
(openat2(2), Linux 5.6). The caller walks component by component where this gives nothing.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os

# include/uapi/linux/openat2.h; the call has the same number on every architecture that Apptainer runs on.
_OPENAT2 = 437
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_RESOLVE = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
# A rename anywhere on the machine meanwhile makes the kernel give up with EAGAIN: it asks to be called again. So does
# a file under a lease, for as long as the lease lasts.
_ATTEMPTS = 4


class _How(ctypes.Structure):
    """``struct open_how``."""

    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


@functools.cache
def _syscall() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


def open_beneath(root: int, path: str, flags: int) -> int:
    """Descriptor of ``path`` below the open folder ``root``.

    Raises OSError: ELOOP for a link, EXDEV for another mount, ENOSYS or EPERM where there is no such call.
    """
    how = _How(flags, 0, _RESOLVE)
    for _ in range(_ATTEMPTS):
        handle = int(
            _syscall()(_OPENAT2, ctypes.c_int(root), os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(24))
        )
        if handle >= 0:
            return handle
        if ctypes.get_errno() != errno.EAGAIN:
            break
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), path)
