"""A table as LaTeX (booktabs) and as Markdown. Every text is data: escaped so that it cannot leave its cell."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Align = Literal["l", "r", "c"]

_LATEX = {
    **{character: f"\\{character}" for character in "{}$&#_%"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
}
_LATEX_LIGATURE = re.compile(r"(?<=-)(?=-)|(?<=')(?=')|(?<=`)(?=`)|(?<=[?!])(?=`)")
_MARKDOWN = re.compile(r"([\\`*_\[\]|~$^@]|:(?=\S)|\.(?=[A-Za-z])|^[-+#=])")
_MARKDOWN_NUMBER = re.compile(r"^(\d+)([.)])(?=\s|$)")


@dataclass(frozen=True)
class Cell:
    """A text, an interval beside it, letters above it."""

    text: str
    span: str = ""
    mark: str = ""
    bold: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table with its heads (text, alignment) and what stands below it."""

    name: str
    heads: Sequence[tuple[str, Align]]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str]


def one_line(text: str) -> str:
    """Blanks for line ends and tabs, ``?`` for what is no visible character (controls, direction marks, surrogates)."""
    spaced = re.sub(r"\s+", " ", text).strip()
    return "".join("?" if unicodedata.category(character)[0] == "C" else character for character in spaced)


def latex_text(text: str) -> str:
    """Text that LaTeX prints as it is."""
    plain = _LATEX_LIGATURE.sub("\0", one_line(text))
    return "".join("{}" if character == "\0" else _LATEX.get(character, character) for character in plain)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is; no markup of its own, no HTML."""
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN_NUMBER.sub(r"\1\\\2", _MARKDOWN.sub(r"\\\1", plain))


def to_latex(table: PaperTable) -> str:
    """A ``tabular`` for ``\\input``; needs the package booktabs and UTF-8 input."""
    width = len(table.heads)
    lines = [
        r"% Needs \usepackage{booktabs}.",
        rf"\begin{{tabular}}{{{''.join(align for _, align in table.heads)}}}",
        r"\toprule",
        _latex_row([latex_text(head) for head, _ in table.heads]),
        r"\midrule",
        *(_latex_row([_latex_cell(cell) for cell in row]) for row in table.rows),
        r"\bottomrule",
        *(rf"\multicolumn{{{width}}}{{l}}{{\footnotesize {latex_text(note)}}} \\" for note in table.notes),
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def to_markdown(table: PaperTable) -> str:
    """A pipe table (GitHub, Pandoc), with a list of notes below it."""
    rules = {"l": ":---", "r": "---:", "c": ":---:"}
    lines = [
        _markdown_row([markdown_text(head) for head, _ in table.heads]),
        _markdown_row([rules[align] for _, align in table.heads]),
        *(_markdown_row([_markdown_cell(cell) for cell in row]) for row in table.rows),
        "",
        *(f"- {markdown_text(note)}" for note in table.notes),
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    text = latex_text(cell.text)
    # At the start of a row a bracket or an asterisk would be an argument of the row end before it.
    text = f"{{{text[0]}}}{text[1:]}" if text.startswith(("[", "*")) else text
    text = rf"\textbf{{{text}}}" if cell.bold else text
    text += rf"\textsuperscript{{{latex_text(cell.mark)}}}" if cell.mark else ""
    return text + (rf" {{\scriptsize {latex_text(cell.span)}}}" if cell.span else "")


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    text = f"**{text}**" if cell.bold else text
    text += f"<sup>{markdown_text(cell.mark)}</sup>" if cell.mark else ""
    return text + (f" {markdown_text(cell.span)}" if cell.span else "")
