"""Sphinx: `make docs` builds build/site from the Markdown pages; warnings are errors, links are checked."""

from __future__ import annotations

import re
from typing import Any

project = "automedbench"
copyright = "The automedbench developers"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "config/README.md",
    "containers/README.md",
    "containers/gpus.md",
    "demo/README.md",
    "tests/setup/*.md",
]
myst_heading_anchors = 4  # links to headings work as on code hosts, and are checked
html_theme = "alabaster"
html_theme_options = {"description": "Agents on medical-AI research", "page_width": "1240px", "sidebar_width": "260px"}
html_show_sphinx = False
html_copy_source = False

PAGE = re.compile(r"\]\(([\w./-]+)\.md\)")


def add_contents(_app: Any, name: str, text: list[str]) -> None:
    """Give the index a table of contents: the pages that it links to, in that order (code hosts would show it)."""
    if name == root_doc:
        pages = "\n".join(dict.fromkeys(PAGE.findall(text[0])))
        text[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n/tests/setup/README\n```\n"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
