"""Identity of the code that scores: for results that are made again to see what the present code would say."""

from __future__ import annotations

import functools
from pathlib import Path

from automedbench.base.files import digest_of, sha256_file


@functools.cache
def code_digest(*folders: Path) -> str:
    """Digest of every file of the package and of ``folders`` (rubrics): another one after any edit."""
    here = Path(__file__).parents[1]
    files = sorted(path for folder in (here, *folders) for path in folder.rglob("*") if path.suffix in (".py", ".yaml"))
    return digest_of([sha256_file(path) for path in files])
