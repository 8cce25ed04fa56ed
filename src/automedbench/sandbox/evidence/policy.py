"""Policy of code, the static evidence: what a code call says that it will do, before it is executed.

This is evidence, never the barrier: what matters is that nothing private is in the container
(docs/specification.md, 5). Warnings are high-confidence findings and the call is refused; everything else is a
notice. Any text is accepted.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from automedbench.base.records import Finding, Language
from automedbench.reading.static_bash import BashCheck
from automedbench.reading.static_python import check_python
from automedbench.reading.static_rules import HOLE, HOME, Hit, Scope, path_hits, resolve
from automedbench.sandbox.airlock.collector import read_beneath

POLICY_VERSION = 3

PRIVATE = ("/data/private",)
MAX_CODE = 1024 * 1024
MAX_SCRIPT = 256 * 1024
MAX_FINDINGS = 20

_SECRET = re.compile(r"\b(sk-|hf_|ghp_|github_pat_|xox[bp]-|AKIA)[A-Za-z0-9_-]{8,}")


def check_code(
    language: Language,
    code: str,
    *,
    turn: int,
    call: int,
    workspace: Path | None = None,
) -> list[Finding]:
    """Findings of one code call, warnings first; a warning means that the call must not be executed.

    With ``workspace``, scripts of the workspace that the code executes are read too. Never raises, for any code.
    """
    scope = Scope(PRIVATE, functools.partial(_script, workspace) if workspace is not None else None)
    hits = _hits(language, code, scope)
    findings = [_finding(hit, turn, call, index) for index, hit in enumerate(_distinct(hits))]
    return findings[:MAX_FINDINGS]


def is_forbidden_target(path: str, target: str) -> bool:
    """True when a link found at ``path`` of the workspace leads to a forbidden asset."""
    folders = [str(parent) for parent in Path(HOME, path).parents]
    scope = Scope(PRIVATE)
    places = {resolve(target, folder) for folder in folders}
    return any(hit.severity == "warning" for place in places for hit in path_hits(place, 1, scope))


def _script(workspace: Path, path: str) -> str | None:
    """A script of the workspace, read by the collector's rules: no links, no pipes, bounded."""
    data = read_beneath(workspace, path, MAX_SCRIPT)
    return None if data is None else data.decode("utf-8", "replace")


def _hits(language: Language, code: str, scope: Scope) -> list[Hit]:
    if len(code) > MAX_CODE:
        return [Hit("static.too_long", "resource", "notice", 1, f"{len(code)} characters, not analysed")]
    try:
        return _python(code, scope, 0) if language == "python" else _bash(code, scope, 0, 1)
    # The analysed text is hostile: deep nesting and odd constants must never stop a run.
    except Exception as error:
        return [Hit("static.unparsable", "resource", "notice", getattr(error, "lineno", 1) or 1, type(error).__name__)]


def _python(code: str, scope: Scope, depth: int) -> list[Hit]:
    try:
        return check_python(code, scope, depth, _bash)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [Hit("static.unparsable", "resource", "notice", getattr(error, "lineno", 1) or 1, type(error).__name__)]


def _bash(code: str, scope: Scope, depth: int, line: int) -> list[Hit]:
    return BashCheck(scope, _python, depth).check(code, line)


def _distinct(hits: list[Hit]) -> list[Hit]:
    """Each rule once per line, warnings first."""
    seen: dict[tuple[str, int], Hit] = {}
    for hit in hits:
        seen.setdefault((hit.rule, hit.line), hit)
    return sorted(seen.values(), key=lambda hit: (hit.severity != "warning", hit.line, hit.rule))


def _finding(hit: Hit, turn: int, call: int, index: int) -> Finding:
    warning = hit.severity == "warning"
    shown = _SECRET.sub(r"\1…", hit.evidence.replace(HOLE, "…").encode("utf-8", "backslashreplace").decode())
    return Finding(
        id=f"static-{call:04d}-{index + 1}",
        rule=hit.rule,
        source="static",
        category=hit.category,
        # Training is decided together with the hook inside (docs/specification.md, 9.9): alone each is a notice.
        confidence="high" if warning else "medium" if hit.category == "training" else "low",
        severity=hit.severity,
        turn=turn,
        call=call,
        evidence=f"line {hit.line}: {shown}"[:300],
        blocked=warning,
    )
