"""XML files of data sets: parsed without anything that a hostile file could make the parser do."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from automedbench.datasets.forms.problems import missing, unreadable

MAX_XML_BYTES = 4_000_000


def parse_xml(path: Path, what: str) -> ElementTree.Element:
    """Root of one XML file (``what`` it is, for messages); a document type, and with it any entity, is refused.

    Raises MissingDataError when absent and InfrastructureError when too large or not well-formed.
    """
    try:
        size = path.stat().st_size
        if size > MAX_XML_BYTES:
            raise unreadable(path, f"has {size} bytes, more than the limit of {MAX_XML_BYTES}")
        return ElementTree.fromstring(path.read_bytes(), ElementTree.XMLParser(target=_NoDocumentType()))
    except FileNotFoundError as error:
        raise missing(path, what) from error
    except (ElementTree.ParseError, ValueError, LookupError, OSError, RecursionError) as error:
        raise unreadable(path, f"is not a readable {what}: {error}") from error


class _NoDocumentType(ElementTree.TreeBuilder):
    """Builds the tree, but stops at a DOCTYPE, the only way to define entities."""

    def doctype(self, name: str, public_id: str | None, system: str | None) -> None:
        raise ValueError(f"declares a document type '{name}', which is not allowed")
