"""Policy of code, the static evidence: what the text of a code call mentions, read before it is executed.

This is a notice, never the barrier: nothing private is in the container (docs/specification.md, 5), and no code is
refused. Any text is accepted. It is read in a process of its own, with limits (``reading.child``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from automedbench.base.records import Finding, Language
from automedbench.reading.child import ask
from automedbench.reading.paths import HOME, classify, resolve
from automedbench.reading.python import MAX_CODE

POLICY_VERSION = 6

MAX_FINDINGS = 20

_SECRET = re.compile(r"\b(sk-|hf_|ghp_|github_pat_|xox[bp]-|AKIA)[A-Za-z0-9_-]{8,}")


def check_code(language: Language, code: str, *, turn: int, call: int) -> list[Finding]:
    """Notices of one code call, the surest first. Never raises, for any code."""
    hits = ask("scan python" if language == "python" else "scan bash", code)
    if hits is None:
        hits = [("static.unread", "resource", "low", 1, "needs too much time or memory to be read")]
    if len(code) > MAX_CODE:
        hits = [*hits, ("static.too_long", "resource", "low", 1, f"{len(code)} characters, {MAX_CODE} read")]
    return [_finding(hit, turn, call, number) for number, hit in enumerate(_distinct(hits)[:MAX_FINDINGS], start=1)]


def is_forbidden_target(path: str, target: str) -> bool:
    """True when a link found at ``path`` of the workspace leads to a forbidden asset."""
    rules = (classify(resolve(target, str(folder))) for folder in Path(HOME, path).parents)
    return any(rule is not None and rule.certain for rule in rules)


def _distinct(hits: list[Any]) -> list[Any]:
    """Each rule once per line."""
    seen: dict[tuple[str, int], Any] = {}
    for hit in sorted(hits, key=lambda hit: (hit[2] != "medium", hit[3], hit[0])):
        seen.setdefault((hit[0], hit[3]), hit)
    return list(seen.values())


def _finding(hit: Any, turn: int, call: int, number: int) -> Finding:
    rule, category, confidence, line, text = hit
    shown = _SECRET.sub(r"\1…", text.encode("utf-8", "backslashreplace").decode())
    return Finding(
        id=f"static-{call:04d}-{number}",
        rule=rule,
        source="static",
        category=category,
        confidence=confidence,
        severity="notice",
        turn=turn,
        call=call,
        evidence=f"line {line}: {shown}"[:300],
    )
