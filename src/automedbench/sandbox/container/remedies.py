"""Remedies for a container that does not start: what the runtime's last words mean, and what to do about it."""

from __future__ import annotations

import re

NAMESPACES = (
    "Users need user namespaces here: sysctl user.max_user_namespaces=15000, on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0; or Apptainer's setuid helper."
)
FUSE = "Images need FUSE here: `modprobe fuse`, /dev/fuse with mode 0666, and the program squashfuse."
SPACE = "Free space in the temporary folder, or set TMPDIR to a larger one on this machine."

# In Apptainer 1.4's own words and those of its helpers. Too many namespaces are "No space left" as well: first.
_MEANT = (
    (re.compile(r"user namespace|setgroups|newuidmap|namespace mappings", re.IGNORECASE), NAMESPACES),
    (re.compile(r"\bfuse\b|squashfuse|fusermount", re.IGNORECASE), FUSE),
    (re.compile(r"no space left|quota exceeded", re.IGNORECASE), SPACE),
)


def remedy(words: str) -> str:
    """Remedy for a runtime's error message; empty when it matches no known condition of a machine."""
    return next((fix for pattern, fix in _MEANT if pattern.search(words)), "")
