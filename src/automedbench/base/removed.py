"""Commands and configuration keys that were removed, each with what to do instead: they are refused in one line."""

from __future__ import annotations

from collections.abc import Sequence

COMMANDS = {
    "announce": "write the server's URL into the `endpoint_file`, one a line; see docs/serving.md",
    "check-sources": "run `python tools/check_sources.py` in a clone of the repository; see docs/data.md",
    "completion": "`automedbench --help` and `automedbench COMMAND --help` list commands and options",
    "export-atif": "run `python tools/export_atif.py` in a clone of the repository; see docs/bundles.md",
    "export-evaluator": "read results/runs/*/score.json; docs/bundles.md has the ten lines",
    "export-inspect": "run `python tools/export_inspect.py` in a clone of the repository; see docs/bundles.md",
    "log": "keep the admitted bundles in a Git repository with signed commits; see docs/bundles.md",
    "promote": "use `automedbench compare A B`; docs/bundles.md has a gate of ten lines",
}
"""Name of a removed command → what to do instead."""

_PROXY = "set HTTPS_PROXY, and NO_PROXY for endpoints that need none, where the command or its Slurm jobs run"
KEYS: dict[str, str] = {
    "brief_wording": "add a treatment with `wording: 2`, beside its base in one campaign; see docs/treatments.md",
    "gateway": _PROXY,
    "gateways": _PROXY,
}
"""Removed key of a configuration, agents, judges or recipe file, dotted from as far up as it takes to be clear
(``sandbox.cache``) → what to do instead."""


def removed_key(location: Sequence[str]) -> str | None:
    """Replacement of the key at ``location``; None unless it is a removed one."""
    ends = (".".join(location[start:]) for start in range(len(location)))
    return next((KEYS[end] for end in ends if end in KEYS), None)
