"""Outputs that a call reads back: the lines that open one, and those that check or show what a fault would change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from automedbench.reading.lines import OUTPUT_FOLDER, CodeLine

_BOUND = re.compile(
    r"^\s*(?:for\s+|local\s+|self\.)?\(?(?P<names>[A-Za-z_]\w*(?:\s*,\s*\w+)*)\)?"
    r"\s*(?:(?<![=<>!])=(?!=)|\bin\b|<-)\s*(?P<value>.*)"
)
_WITH = re.compile(r"\bwith\s+(?P<value>.*)\s+as\s+(?P<names>\w+)\s*(?:$|:)")
_OPENS = re.compile(
    r"(?:open|load(?!s\()|read|fromfile|Reader|Image|NIFTI|fromJSON|parse)\w*\(|\b(?:cat|head|tail|less|jq|awk|xxd|fsl\w+)\s"
)
_WRITES = re.compile(
    r"['\"][wax]b?t?\+?['\"]|\b(?:save\w*|dump|to_csv|im(?:write|save)|[wW]rite\w*|fwrite|niwrite|npzwrite|to_filename"
    r"|makedirs|mkpath|toJSON|tofile|dir\.create)\(|\bmkdir\b|(?<![<>=-])>\s*\S*agents_outputs"
)
_STOPS = re.compile(
    r"\b(?:assert\w*|raise|exit|stopifnot|throw|abort|die)\b|\b(?:stop|expect|error)\(|@test|\btesting\."
    r"|\b(?:faults?|problems?|errors)\b|\bif\b.*(?:[<>]|[!=]=|\bnot\b)"
)
_SHOWS = re.compile(r"\b(?:print(?:ln|f)?|cat|echo|display|info|message|cout|puts|disp|show|pprint)\b")
_CONTENT = re.compile(
    r"\b(?:min|max|mean|std|sum|median|percentile|quantile|isfinite|isnan|unique|psnr\w*|ssim\w*|abs|allclose|corrcoef"
    r"|diff|var|range|extrema|any|norm|gradient)\b"
)
_PART = re.compile(
    rf"{_CONTENT.pattern}|\b(?:shape|size|dtype|n?dim|bincount|len|length|keys|count|Counter|sorted|set|affine|spacing"
    r"|zooms|getextrema|value_counts|describe|summary|split|columns|index|iloc|histogram|all|nunique|pixdim|eltype)\b"
    r"|\[['\"\w:.-]+\]|\.get\("
)
_TOOLS = re.compile(
    r"\bjq\b(?!\s+['\"]?\.['\"]?\s)|\b(?:cut|uniq|wc|cmp|fslstats|fslinfo|fslhd|mrinfo|mrstats|identify|nib-\w+|xmllint"
    r"|csvstat|jsonschema|check-jsonschema|c3d|dcmdump|json\.tool|sort|grep)\b|\b[gm]?awk\b.*(?:[<>~]|[!=]=|NF)"
)
_CANNOT_FAIL = re.compile(
    r"\bassert\s+(?:True|1)\b|\bassert\s*\(?\s*(?P<one>[\w.\[\]'\"()]+)\s*==\s*(?P=one)(?![\w.\[(])|\bor\s+True\b"
    r"|>=\s*0\s*(?:,|$)|is not None\s*$"
)
_NO_OUTPUT = re.compile(r"['\"][^'\"]*/data/public[^'\"]*['\"]|'\{\"[^']*'")  # an input, or a text of JSON
_FUNCTION = re.compile(r"\b(?:def\s+(?P<python>\w+)|(?P<other>\w+)\s*(?:<-|=)\s*function)\(\s*(?P<first>\w*)")
_NAME = re.compile(r"[A-Za-z_]\w*|\$[\d@]")
_ARGUMENTS = frozenset(["argv", "argparse", "commandArgs", "ARGS", "args", "$1", "$@"])


class OutputReading:
    """What the lines of one call do with outputs that they open."""

    def __init__(self, lines: Sequence[CodeLine], outputs: Iterable[str]) -> None:
        self.lines = lines
        self._marks = re.compile("|".join(map(re.escape, {OUTPUT_FOLDER, *outputs})))
        self._paths, self._data, self._part, self._content = set[str](), set[str](), set[str](), set[str]()
        functions = [match for line in lines if (match := _FUNCTION.search(line.code))]
        self._parameters = {match["python"] or match["other"]: match["first"] for match in functions}
        for _ in range(3):  # a name may be bound below the function that uses it
            function = ""
            for line in lines:
                function = match["python"] or match["other"] if (match := _FUNCTION.search(line.code)) else function
                self._bind(re.sub(r"^\s*return\b", f"{function} =", line.code) if function else line.code)

    @property
    def reads(self) -> list[CodeLine]:
        """Lines that open an output."""
        return [line for line in self.lines if self._opens(line.code)]

    def checks(self) -> Iterator[CodeLine]:
        """Lines that compare what was read, those that stop the run first, and then those that show a part of it."""
        known = [line for line in self.lines if not line.unseen and not _CANNOT_FAIL.search(line.code)]
        of_data = [line for line in known if _mentions(line.code, self._data) or self._opens(line.code)]
        yield from (line for line in of_data if _STOPS.search(line.code))
        yield from (line for line in known if _TOOLS.search(line.code) and self._of_output(line.code))
        yield from (line for line in of_data if _SHOWS.search(line.code) and self._is_part(line.code))

    def looks_at_content(self, line: CodeLine) -> bool:
        """It looks at values, not only at shape, type, place or length."""
        return bool(_CONTENT.search(line.code)) or _mentions(line.code, self._content)

    def writes(self, line: CodeLine) -> bool:
        """It writes an output."""
        return bool(_WRITES.search(line.code)) and self._of_output(line.code)

    def _of_output(self, code: str) -> bool:
        return bool(self._marks.search(code)) or _mentions(code, self._paths)

    def _opens(self, code: str) -> bool:
        return bool(_OPENS.search(code)) and self._of_output(code) and not _WRITES.search(code)

    def _is_part(self, code: str) -> bool:
        """Something worked out of what was read, not all of it."""
        return bool(_PART.search(re.sub(r"argv\[\d:?\]|\{[^{}]*\}", "", code))) or _mentions(code, self._part)

    def _bind(self, code: str) -> None:
        """Names that stand for the path of an output, or for what was read from one, by the line that binds them."""
        for statement in re.split(r";\s*|:\s+(?=\w+\s*=)", code):
            for match in filter(None, (_BOUND.search(statement), _WITH.search(statement))):
                self._bind_names(set(_NAME.findall(match["names"])), match["value"])
        if not self._of_output(code):
            return
        self._paths |= set(re.findall(r"parametrize\(\s*['\"](\w+)", code))
        called = re.findall(r"(\w+)\(", code) if not _FUNCTION.search(code) else []
        self._paths |= {self._parameters[name] for name in called if self._parameters.get(name)}
        if re.search(r"\.(?:py|sh|R|jl|js|m)\b|-m\s", code) and not re.search(r"\bopen\(|\bload", code):
            self._paths |= _ARGUMENTS

    def _bind_names(self, names: set[str], value: str) -> None:
        value = _NO_OUTPUT.sub("''", value)
        if _WRITES.search(value):
            return
        if _mentions(value, self._data) or (self._of_output(value) and _OPENS.search(value)):
            self._data |= names
            self._part |= names if self._is_part(value) else set()
            self._content |= names if _CONTENT.search(value) else set()
        elif self._of_output(value):
            self._paths |= names


def _mentions(code: str, names: set[str]) -> bool:
    """A line has one of the names, other than as the variable of a comprehension."""
    return bool(names & set(_NAME.findall(code)) - set(re.findall(r"\bfor\s+(\w+)\s+in\b", code)))
