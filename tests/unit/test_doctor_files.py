"""Inodes and quotas as `automedbench doctor` reads them. The tables are those of the commands' manual pages."""

from __future__ import annotations

import pytest

from automedbench.commands._machine.local import _files, read_quota

# lfs-quota(1): a long name of a file system breaks the line.
LUSTRE = """Disk quotas for usr bob (uid 500):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
  /very/long/name/of/a/scratch
                 1048576  2097152  3145728       -    900*    800    1000  6d23h
"""
# quota(1) with -w -p: one line, grace times as numbers.
LOCAL = """Disk quotas for user bob (uid 500):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
/dev/mapper/home 4096 0 0 0 20 0 1000 0
"""


@pytest.mark.parametrize(
    ("printed", "left"),
    [
        (LUSTRE, (1024**3, 0)),  # by hand: 2 097 152 - 1 048 576 KiB; 900 of 800 files
        (LOCAL, (None, 980)),
        ("/scratch 10 0 0 - 3 0 0 -", (None, None)),
        ("Disk quotas for user bob (uid 500): none", None),
        ("", None),
    ],
)
def test_quota(printed: str, left: tuple[int | None, int | None] | None) -> None:
    assert read_quota(printed) == left


@pytest.mark.parametrize(("left", "needed", "status"), [(0, 0, "FAIL"), (100, 101, "warn"), (100, 100, "ok")])
def test_files(left: int, needed: int, status: str) -> None:
    assert _files("n are left", left, needed).status == status
