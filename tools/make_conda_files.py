"""Pins: the conda files of ``envs/`` made from the pinned lists: ``python tools/make_conda_files.py``."""

from __future__ import annotations

from pathlib import Path

from automedbench.base.files import write_text

ENVIRONMENTS = ("host", "light", "scorer")
PYTHON = "3.11"


def conda_file(name: str, pins: str) -> str:
    """Text of ``envs/<name>.yaml`` for the pinned list ``pins`` (lines of ``name==version``)."""
    head = f"# Made from {name}.txt by `make pins`; change that, not this.\n"
    body = (
        f"name: automedbench-{name}\nchannels: [conda-forge]\ndependencies:\n  - python={PYTHON}\n  - pip\n  - pip:\n"
    )
    return head + body + "".join(f"      - {line}\n" for line in pins.splitlines())


def write_conda_files(folder: Path) -> None:
    """Write the conda file of every environment."""
    for name in ENVIRONMENTS:
        write_text(folder / f"{name}.yaml", conda_file(name, (folder / f"{name}.txt").read_text()))


if __name__ == "__main__":
    write_conda_files(Path("envs"))
