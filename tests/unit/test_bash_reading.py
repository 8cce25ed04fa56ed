"""Commands of shell texts, by hand from the manual of Bash: words, redirections, documents, what is started."""

from __future__ import annotations

from automedbench.reading.child import read_bash
from automedbench.reading.command import Command

WORDS = {
    "a 'b c' \"d $e\" f\\ g": [("a", "b c", "d $e", "f g")],
    "a $'\\x41\\n' b\"c\"'d'": [("a", "A\n", "bcd")],
    "a | b && c; d &": [("a",), ("b",), ("c",), ("d",)],
    "x=1 a $(b c) `d`": [("a", "$(b c)", "`d`"), ("b", "c"), ("d",)],
    "if [ -e /x ]; then a; else b; fi": [("[", "-e", "/x"), ("a",), ("b",)],
    "[[ -f x && -d y ]]": [("[[", "-f", "x", "-d", "y")],
    "for c in a b; do d $c; done": [("for", "c", "in", "a", "b"), ("d", "$c")],
    "f() { a; }; (b)": [("a",), ("b",)],
    "# a\nb # c": [("b",)],
    "a \\\n  b": [("a", "b")],
    "export A=/b": [("export",)],
    "": [],
}
REDIRECTED = {
    "a > b 2>> c < d": [(">", "b"), (">>", "c"), ("<", "d")],
    "a | b > c": [(">", "c")],
    "while read l; do :; done < d": [("<", "d")],
    "cat <<E > f\nx\nE": [(">", "f")],
}
STARTED = {
    "python3 -c 'import x'": ("python", "import x"),
    "python - <<'E'\nimport x\nE": ("python", "import x\n"),
    "sudo env A=1 bash -lc 'ls'": ("bash", "ls"),
    "bash <<< 'ls'": ("bash", "ls"),
    "cat <<E | sh\nls\nE": ("bash", "ls\n"),
    "sh <<-E\n\tls\n\tE": ("bash", "ls\n"),
    "eval ls -l": ("bash", "ls -l"),
    "python3 run.py <<E\ninput\nE": None,
    "command -v bash": None,
}
WRITTEN = {
    "cat > a/t.py <<'E'\nx = 1\nE": ("t.py", "x = 1\n"),
    "tee t.sh <<E\nls\nE": ("t.sh", "ls\n"),
    "echo ls > t.sh": ("t.sh", "ls"),
    "cat > notes.md <<E\nls\nE": None,
    "wc -l < t.py": None,
}


def only(code: str) -> Command:
    """The last command that is more than an assignment."""
    return [command for command in read_bash(code) if command.words][-1]


def test_words() -> None:
    read = {code: [command.words for command in read_bash(code) if command.words] for code in WORDS}
    assert read == WORDS


def test_redirections() -> None:
    read = {code: [target for command in read_bash(code) for target in command.targets] for code in REDIRECTED}
    assert read == REDIRECTED


def test_what_is_started() -> None:
    assert {code: only(code).started for code in STARTED} == STARTED


def test_what_is_written() -> None:
    assert {code: only(code).written for code in WRITTEN} == WRITTEN


def test_lines_and_assignments() -> None:
    first, second = read_bash("A=/b\n\nls $A")
    assert (first.assigned, second.line, second.words) == ((("A", "/b"),), 3, ("ls", "$A"))
