"""The bounded CSV reader: every cell a text, every other file one stable code."""

from __future__ import annotations

import pytest

from automedbench.base.errors import InvalidSubmission
from automedbench.base.untrusted.table import Bounds, Table, read_table

SMALL = Bounds(rows=2, columns=3, cell_chars=4)


def test_blanks_before_quotes() -> None:
    """As pandas and people write them; a comma inside of the quotes stays."""
    table = read_table(b'id, "label"\nc1, "a, b"\n')
    assert (table.columns, table.rows) == (("id", "label"), (("c1", "a, b"),))


UNREADABLE = [
    # id, content, part of the message
    ("empty", b"", "is empty"),
    ("blank lines", b" \n,,\n\n", "is empty"),
    ("NUL", b"a,b\n1,\x002\n", "holds a NUL (byte 6)"),
    ("not UTF-8", b"a,b\n1,\xff\n", "is not UTF-8 (byte 6)"),
    ("UTF-16", "a,b".encode("utf-16"), "NUL"),
    ("open quote", b'a,b\n1,"2\n', "is not CSV: unexpected end of data (line 2)"),
    ("text behind a quote", b'a\n"1"2\n', "is not CSV: ',' expected after '\"' (line 2)"),
    ("a row too many", b"a\n1\n2\n3\n", "has more than 2 rows"),
    ("a column too many", b"a,b,c\n1,2,3,4\n", "has 4 columns in line 2, more than 3"),
    ("a character too many", b"a\n12345\n", "has a cell of 5 characters in line 2, more than 4"),
    ("a name too long", b"abcde\n1\n", "has a cell of 5 characters in line 1"),
    ("cell above the parser's own limit", b"a\n" + b"x" * 131_073, "field larger than field limit"),
]


@pytest.mark.parametrize(("content", "message"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE])
def test_unreadable(content: bytes, message: str) -> None:
    with pytest.raises(InvalidSubmission) as caught:
        read_table(content, SMALL)
    assert caught.value.code == "csv_unreadable"
    assert message in str(caught.value)


READ = [
    # id, content, rows of the columns id and label
    ("header only", b"id,label\n", []),
    ("plain", b"id,label\n1,a\n", [("1", "a")]),
    ("zeros and formulas are text", b'id,label\n0007,=1+1\n"@SUM(A1)",1e5\n', [("0007", "=1+1"), ("@SUM(A1)", "1e5")]),
    ("byte order mark", b"\xef\xbb\xbfid,label\n1,a\n", [("1", "a")]),
    ("CR LF", b"id,label\r\n1,a\r\n", [("1", "a")]),
    ("CR", b"id,label\r1,a\r", [("1", "a")]),
    ("quotes, commas, line ends", b'"id","label"\n1,"a, ""b""\n c"\n', [("1", 'a, "b"\n c')]),
    ("blanks around, capitals in the header", b" ID ,LaBeL\n 1 ,\ta \n", [("1", "a")]),
    ("other order and columns", b"note,label,id\nx,a,1\n", [("1", "a")]),
    ("blank lines", b"\nid,label\n\n ,\n1,a\n", [("1", "a")]),
    ("row ends early", b"id,label\n1\n", [("1", "")]),
    ("row is too long", b"id,label\n1,a,b\n", [("1", "a")]),
    ("not ASCII", "id,label\n1,Ärger\n".encode(), [("1", "Ärger")]),
]


@pytest.mark.parametrize(("content", "rows"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_read(content: bytes, rows: list[tuple[str, str]]) -> None:
    assert read_table(content).select("id", "label") == rows


COLUMNS = [
    ("absent", b"id,class\n", "lacks the column label (has 'id', 'class')"),
    ("twice", b"id,label,LABEL\n", "has the column label 2 times"),
    ("other separator", b"id;label\n", "(has 'id;label'); columns are separated by commas"),
    ("many names", b"a,b,c,d,e,f\n", "(has 'a', 'b', 'c', 'd', …)"),
    ("long name", b"id," + b"x" * 500 + b"\n", "'id', 'xxxxxxxxxxxxxxxxxxx)"),
]


@pytest.mark.parametrize(("content", "message"), [row[1:] for row in COLUMNS], ids=[row[0] for row in COLUMNS])
def test_columns(content: bytes, message: str) -> None:
    with pytest.raises(InvalidSubmission) as caught:
        read_table(content).select("label")
    assert caught.value.code == "csv_columns"
    assert message in str(caught.value)


def test_exactly_the_bounds() -> None:
    """Two rows, three columns, four characters are allowed by bounds of two, three and four."""
    assert read_table(b"abcd,b,c\n1234,2,3\n4,5,6\n", SMALL) == Table(
        ("abcd", "b", "c"), (("1234", "2", "3"), ("4", "5", "6"))
    )
