"""What axe-core finds on an open page: https://github.com/dequelabs/axe-core/blob/develop/doc/rule-descriptions.md."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest

GRAVE = ("serious", "critical")


def grave_findings(page: Any) -> list[str]:
    """Serious and critical findings on a page, everything that is folded away opened and every chart drawn."""
    pytest.importorskip("axe_playwright_python", reason="axe-core is not installed (envs/dev.txt)")
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("[...document.querySelectorAll('.chart')].every((place) => place.querySelector('svg'))")
    page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text())
    options = "{ resultTypes: ['violations'], iframes: false, preload: false }"  # a page may load nothing by script
    found = page.evaluate(f"axe.run(document, {options})")["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in GRAVE]
