"""``python -m automedbench`` is the command ``automedbench``."""

from automedbench.commands import run

run()
