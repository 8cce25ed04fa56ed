"""Reads a written page as a browser would: its elements, and what stands in script, style and title."""

from __future__ import annotations

import base64
import html.parser
import json
import zlib
from typing import Any


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, scripts with their text, style and title of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.style = ""
        self.title = ""
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self._open == "style":
            self.style += data
        elif self._open == "title":
            self.title += data

    @property
    def json(self) -> dict[str, Any]:
        """Embedded JSON by the id of its element, packed JSON by its keys."""
        found = {str(a["id"]): json.loads(text) for a, text in self.scripts if a.get("type") == "application/json"}
        for attributes, text in self.scripts:
            if attributes.get("type") == "text/plain":
                found |= json.loads(zlib.decompress(base64.b64decode(text)))
        return found

    @property
    def programs(self) -> list[str]:
        """Scripts that a browser would run."""
        return [text for attributes, text in self.scripts if "type" not in attributes]

    @property
    def policy(self) -> str:
        """The content security policy."""
        metas = [a for tag, a in self.elements if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
        return str(metas[0]["content"])
