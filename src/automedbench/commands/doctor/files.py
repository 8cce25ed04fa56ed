"""Room for a campaign's files: free inodes of the file system, and what quotas leave this user."""

from __future__ import annotations

import getpass
import os
import shutil
from pathlib import Path

from automedbench.commands._host import existing, run_program
from automedbench.commands.doctor.examine import Host, ProbeResult, ProbeResults, fail, ok, warn

FILES_PER_RUN = 60
"""Files and folders that a finished run leaves: of the run, its logs, and Snakemake's notes on them, with some room."""
FEW_BYTES = 10 * 1024**3
_FIX = "Ask for more, take another folder for `results`, or make room: `automedbench prune --what workspaces`."


def room(host: Host) -> ProbeResults:
    """Inodes and quotas against the files that the campaign's runs make."""
    place = existing(host.results)
    needed = FILES_PER_RUN * (len(host.campaign.runs) if host.campaign else 0)
    facts = os.statvfs(place)
    # File systems without a fixed number of inodes say 0 of 0.
    if facts.f_files:
        yield _files(f"{facts.f_favail:,} files can be made on the file system of {place}", facts.f_favail, needed)
    for command in _quota_commands(place):
        if shutil.which(command[0]) is None:
            continue
        status, printed = run_program(command)
        if status == 0 and (left := read_quota(printed)) is not None:
            bytes_left, files_left = left
            if files_left is not None:
                yield _files(f"the quota ({command[0]}) leaves {files_left:,} files in {place}", files_left, needed)
            if bytes_left is not None:
                text = f"the quota ({command[0]}) leaves {bytes_left / 1024**3:,.0f} GiB in {place}"
                yield ok("files", text) if bytes_left > FEW_BYTES else warn("files", text, _FIX)


def _files(text: str, left: int, needed: int) -> ProbeResult:
    if not left:
        return fail("files", text, _FIX)
    if needed > left:
        return warn("files", f"{text}; the campaign's runs make about {needed:,}", _FIX)
    return ok("files", f"{text}; the campaign's runs make about {needed:,}" if needed else text)


def _quota_commands(place: Path) -> list[list[str]]:
    while not place.is_mount():
        place = place.parent
    return [["lfs", "quota", "-q", "-u", getpass.getuser(), str(place)], ["quota", "-w", "-p", "-f", str(place)]]


def read_quota(printed: str) -> tuple[int | None, int | None] | None:
    """Bytes and files that are left, None where there is no limit; None for what is no table of a quota.

    The last eight words of both commands are: KiB used, quota, limit, grace; files used, quota, limit, grace. A star
    marks what is over its quota.
    """
    words = [word.rstrip("*") for word in printed.split()][-8:]
    if len(words) < 8 or not all(words[place].isdigit() for place in (0, 1, 2, 4, 5, 6)):
        return None
    kib, files = (_left(*(int(word) for word in words[start : start + 3])) for start in (0, 4))
    return None if kib is None else kib * 1024, files


def _left(used: int, quota: int, limit: int) -> int | None:
    most = min((each for each in (quota, limit) if each), default=None)
    return None if most is None else max(0, most - used)
