"""Tables for papers as text: escaped, one row to a line, nothing that leaves its cell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from automedbench.leaderboard.papers import PaperCell, PaperTable, latex_text, to_latex

HOSTILE = [
    r"\input{/etc/passwd}",
    r"}\end{tabular}\write18{rm x}{",
    "100% & more \\\\ \\hline",
    "$x^2_i$ #1 ~",
    "[5cm] first",
    "*",
    "a | b || c",
    "line\nend\r\n| fake | row |",
    "<script>alert(1)</script>",
    "![x](http://evil.example/x.png)",
    "`code` **bold** __under__ <!-- -->",
    "\u202egnp.exe\u200b\x1b[31m",
    "- item\n# head",
    "&lt;b&gt;",
]


def table(name: str) -> PaperTable:
    """Two columns, one row, one note, with the same text everywhere."""
    return PaperTable(
        "t", [(name, "l"), ("Overall", "r")], [[PaperCell(name), PaperCell("50.0", "[40.0, 60.0]", "ab")]], [name]
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("agent_1", r"agent\_1", id="underscore"),
        pytest.param("50%", r"50\%", id="a comment"),
        pytest.param(r"\a", r"\textbackslash{}a", id="a command"),
        pytest.param("{}", r"\{\}", id="braces"),
        pytest.param("a-b--c", "a-b-{}-c", id="no dash that was none"),
        pytest.param("``a''", "`{}`a'{}'", id="no quotation marks"),
        pytest.param("1–2", "1--2", id="our own dash"),
        pytest.param("a\tb\n c", "a b c", id="blanks"),
        pytest.param("a\u202eb\x00", "a?b?", id="what cannot be seen"),
    ],
)
def test_latex_text(text: str, expected: str) -> None:
    assert latex_text(text) == expected


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_changes_the_latex_table(text: str) -> None:
    """As many lines, columns and open braces as with a harmless name; no command that we did not write."""
    lines, plain = to_latex(table(text)).splitlines(), to_latex(table("name")).splitlines()
    assert len(lines) == len(plain)
    known = r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textquotedbl|times|pm|geq)"
    for line, expected in zip(lines, plain, strict=True):
        # Escaped characters and our own replacements are text; what remains is structure.
        text_only = re.sub(known + r"\{\}|\\[{}$&#_%]", "", line)
        assert text_only.count("&") == expected.count("&")
        assert text_only.count("{") == text_only.count("}")
        assert set(re.findall(r"\\\w+", text_only)) <= set(re.findall(r"\\\w+", expected))
        assert text_only.count("\\\\") == expected.count("\\\\")
        assert "%" not in text_only or text_only == expected


def test_latex_table() -> None:
    """By hand."""
    cells = [PaperCell("a"), PaperCell("50.0", "[40.0, 60.0]", "b", bold=True)]
    assert to_latex(PaperTable("t", [("Agent", "l"), ("n/N", "r")], [cells], ["A note."])) == (
        "% Needs \\usepackage{booktabs}.\n"
        "\\begin{tabular}{lr}\n"
        "\\toprule\n"
        "Agent & n/N \\\\\n"
        "\\midrule\n"
        "a & \\textbf{50.0}\\textsuperscript{b} {\\scriptsize [40.0, 60.0]} \\\\\n"
        "\\bottomrule\n"
        "\\multicolumn{2}{l}{\\footnotesize A note.} \\\\\n"
        "\\end{tabular}\n"
    )


@pytest.mark.parametrize("name", ["[5cm]", "*"])
def test_no_name_is_an_argument_of_the_row_end(name: str) -> None:
    """``\\\\`` takes a length in brackets and an asterisk, also from the line after it."""
    lines = to_latex(PaperTable("t", [("Agent", "l")], [[PaperCell("a")], [PaperCell(name)]], [])).splitlines()
    assert lines[6] == f"{{{name[0]}}}{name[1:]} \\\\"


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs pdflatex")
def test_latex_takes_it(tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        (tmp_path / f"t{number}.tex").write_text(to_latex(table(text)))
    inputs = "\n".join(f"\\input{{t{number}.tex}}\\par" for number in range(len(HOSTILE)))
    document = (
        f"\\documentclass{{article}}\\usepackage[T1]{{fontenc}}\\usepackage{{booktabs}}\\begin{{document}}{inputs}"
    )
    (tmp_path / "all.tex").write_text(document + "\\end{document}")
    command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
