"""`automedbench completion`: what bash itself completes with the printed script."""

from __future__ import annotations

import subprocess

import pytest

from automedbench.commands import make_parser
from automedbench.commands.completion import script

ASK = """
complete() {{ :; }}
{script}
COMP_WORDS=(automedbench "$@"); COMP_CWORD=$#
_automedbench
echo "${{COMPREPLY[*]}}"
"""


@pytest.fixture(scope="module")
def asked() -> str:
    return ASK.format(script=script(make_parser()))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sta"], "status"),
        (["verify", "--json", "--conf"], "--configfile --config"),
        (["prune", "--what", ""], "weights caches workspaces"),
        (["tasks", "show", "any", "--tier", "l"], "lite"),
        (["agents", ""], "list build check"),
        (["agents", "list", ""], ""),  # nothing of ours, so the shell's own: file names
        (["pack", "--key", ""], ""),
        (["admit", ""], ""),
        (["--ver"], "--version"),
    ],
)
def test_bash_completes(asked: str, words: list[str], expected: str) -> None:
    done = subprocess.run(["bash", "-c", asked, "bash", *words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
    assert done.stderr == ""
