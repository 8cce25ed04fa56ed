"""Self-contained pages: scripts and styles joined from files, a content policy by hashes, data as inert JSON.

A page loads nothing. What an agent may have written travels as JSON in script elements that browsers do not
execute, with ``<`` escaped, and reaches the document as text nodes only. The policy allows the page's own scripts and
styles by their hashes, so that nothing else could run or load even if that failed.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic_core

from automedbench.base.files import atomic_path

if TYPE_CHECKING:
    import jinja2
    import markupsafe

TEMPLATES = Path(__file__).parent / "templates"


def script(*names: str) -> str:
    """Template scripts joined in one function: they share its scope and leave nothing on ``window``."""
    return '"use strict";\n(async () => {\n' + "\n".join(map(_asset, names)) + "\n})();\n"


def style(*names: str) -> str:
    """Template styles joined in this order."""
    return "\n".join(map(_asset, names))


def content_policy(styles: Sequence[str], scripts: Sequence[str], *, frames: bool = False) -> str:
    """Content security policy: nothing loads; only these styles and scripts apply; ``frames``: of pages beside it."""
    return (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "img-src data:; base-uri 'none'; form-action 'none'" + "; frame-src 'self' file:" * frames
    )


def embed(value: Any) -> markupsafe.Markup:
    """Plain values and records as JSON that cannot end or leave its script element, with any texts."""
    import markupsafe

    return markupsafe.Markup(escaped_json(pydantic_core.to_json(value).decode()))


def escaped_json(text: str) -> str:
    """JSON that cannot end or leave its script element, with any texts."""
    # In JSON these characters occur within strings only, where the escapes mean the same.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def safe_source(text: str) -> markupsafe.Markup:
    """Our own style or script for its element; raises ValueError for text that would end the element."""
    import markupsafe

    if "</script" in text.lower() or "</style" in text.lower() or "<!--" in text:
        raise ValueError("a script or style holds text that ends its element")
    return markupsafe.Markup(text)


def write_html(path: Path, template: str, context: Mapping[str, Any]) -> None:
    """Render a template into a file, atomically and piece by piece, so that a large page is never whole in memory."""
    stream = environment().get_template(template).stream(context)
    stream.enable_buffering(64)
    with atomic_path(path) as temporary:
        stream.dump(str(temporary), encoding="utf-8", errors="backslashreplace")


@functools.cache
def environment() -> jinja2.Environment:
    """Templates that escape what they print and refuse unknown names."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _hashes(sources: Sequence[str]) -> str:
    """Source list of a policy; ``'none'`` for nothing."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in sources)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
