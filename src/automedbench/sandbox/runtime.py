"""The container program of this machine."""

from __future__ import annotations

import shutil

from automedbench.errors import MissingDataError


def find_runtime() -> str:
    """Absolute path of the apptainer program; raises MissingDataError when there is none."""
    found = shutil.which("apptainer")
    if found is None:
        raise MissingDataError(
            "Apptainer is not installed (no 'apptainer' on PATH).\nInstall it or load its module, or set "
            "sandbox.backend: local for trusted scripted agents only."
        )
    return found
