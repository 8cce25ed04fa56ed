"""Bash: the commands of a script, read by the grammar of tree-sitter; nothing is expanded or run.

The grammar repairs what is no Bash, and needs time and memory that grow with the square of some odd texts. So it is
only called in the process of ``reading.child``, whose ``read_bash`` is for all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from automedbench.reading.command import Command

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "e": "\x1b"}
_ANSI = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_WORDS = frozenset(
    [
        *("word", "number", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation", "regex"),
        *("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"),
        *("command_name", "variable_name", "test_operator", "extglob_pattern", "brace_expression"),
    ]
)
_SIMPLE = frozenset(["command", "test_command", "declaration_command", "unset_command"])
_JOINED = frozenset(["redirected_statement", "pipeline", "list"])
_REDIRECTS = frozenset(["file_redirect", "heredoc_redirect", "herestring_redirect"])


def commands_in(code: str) -> list[Command]:
    """All commands in order, those in substitutions, functions and loops too. Any text is accepted."""
    text = code.replace("\0", " ").encode("utf-8", "replace")
    return list(_commands(Parser(Language(tree_sitter_bash.language())).parse(text).root_node))


def _commands(root: Node) -> Iterator[Command]:
    stack: list[tuple[Node, tuple[Node, ...]]] = [(root, ())]
    while stack:
        node, redirects = stack.pop()
        children = node.named_children
        if node.type in _SIMPLE or (redirects and node.type not in _JOINED):
            yield _command(node, (*redirects, *(child for child in children if child.type in _REDIRECTS)))
        elif node.type in ("for_statement", "select_statement"):
            words = [_text(child) for child in children if child.type in _WORDS]
            yield Command(("for", *words[:1], "in", *words[1:]), _line(node))
        elif node.type == "variable_assignment" and (node.parent is None or node.parent.type not in _SIMPLE):
            yield Command((), _line(node), assigned=(_assigned(node),))
        stack += reversed(_shared(node, children, redirects))


def _shared(node: Node, children: list[Node], redirects: tuple[Node, ...]) -> list[tuple[Node, tuple[Node, ...]]]:
    """The children, with the redirections that apply to each: those of a statement go to its last command."""
    if node.type == "redirected_statement":
        own = tuple(child for child in children if child.type in _REDIRECTS)
        inner = tuple(part for child in own if child.type == "heredoc_redirect" for part in child.named_children)
        own += tuple(part for part in inner if part.type == "file_redirect")
        return [(child, () if child in own else (*redirects, *own)) for child in children]
    if node.type in ("pipeline", "list"):
        return [(child, redirects if child is children[-1] else ()) for child in children]
    piped = (node,) if node.type == "heredoc_redirect" else ()
    return [(child, piped if child.type == "pipeline" else ()) for child in children]


def _command(node: Node, redirects: tuple[Node, ...]) -> Command:
    simple = node.type in _SIMPLE
    words = list(_words_of(node)) if simple else []
    return Command(
        tuple(words),
        _line(node),
        tuple((_operator(item), _text(item.named_children[-1])) for item in redirects if _names_file(item)),
        next((text for item in redirects if (text := _document(item)) is not None), None),
        tuple(_assigned(child) for child in node.named_children if simple and child.type == "variable_assignment"),
    )


def _words_of(node: Node) -> Iterator[str]:
    """Words of a simple command; of a test what is tested, without how its parts are joined."""
    if node.type != "command":
        yield _source(node.children[0]) if node.children else ""
    stack = list(reversed(node.named_children))
    while stack:
        child = stack.pop()
        if child.type in _WORDS:
            yield _text(child)
        elif node.type == "test_command":
            stack += reversed(child.named_children)


def _names_file(node: Node) -> bool:
    return node.type == "file_redirect" and bool(node.named_children)


def _operator(node: Node) -> str:
    return next((_source(child) for child in node.children if not child.is_named), "")


def _document(node: Node) -> str | None:
    if node.type == "herestring_redirect" and node.named_children:
        return _text(node.named_children[-1])
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    if node.type != "heredoc_redirect" or body is None:
        return None
    return re.sub(r"^\t+", "", _source(body), flags=re.MULTILINE) if _operator(node) == "<<-" else _source(body)


def _assigned(node: Node) -> tuple[str, str]:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    return _source(name) if name else "", _text(value) if value else ""


def _line(node: Node) -> int:
    return node.start_point[0] + 1


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _text(node: Node) -> str:
    """A word without its quotes."""
    source = _source(node)
    if node.type in ("concatenation", "command_name"):
        return "".join(map(_text, node.named_children)) or source
    if node.type == "raw_string":
        return source[1:-1]
    if node.type == "ansi_c_string":
        return _ANSI.sub(_unescape, source[2:-1])
    if node.type in ("string", "translated_string"):
        return re.sub(r"\\([\"\\$`])", r"\1", source.lstrip("$")[1:-1]).replace("\\\n", "")
    return re.sub(r"\\(.)", r"\1", source.replace("\\\n", "")) if node.type == "word" else source


def _unescape(match: re.Match[str]) -> str:
    if match[1] or match[2]:
        return chr(int(match[1], 16) if match[1] else int(match[2], 8))
    return _ESCAPES.get(match[3], match[3])
