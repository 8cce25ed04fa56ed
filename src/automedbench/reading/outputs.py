"""Outputs that a call reads back: the lines that open one, and those that check or show what a fault would change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from automedbench.reading.lines import OUTPUT_FOLDER, CodeLine

_BOUND = re.compile(
    r"^\s*(?:for\s+|local\s+|self\.)?\(?(?P<names>[A-Za-z_]\w*(?:\s*,\s*\w+)*)\)?"
    r"\s*(?:(?<![=<>!])=(?!=)|\bin\b|<-)\s*(?P<value>.*)"
)
_OPENS = re.compile(
    r"(?:open|load(?!s\()|read|fromfile|Reader|Image|NIFTI|fromJSON|parse)\w*\(|\b(?:cat|head|tail|less|cut|jq|awk|xxd|fsl\w+)\s"
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
_PLACES = re.compile(r"argv\[\d:?\]|\{[^{}]*\}")
_SCRIPT = re.compile(r"\.(?:py|sh|R|jl|js|m)\b|-m\s")
_FUNCTION = re.compile(r"\b(?:def\s+(?P<python>\w+)|(?P<other>\w+)\s*(?:<-|=)\s*function)\(\s*(?P<first>\w*)")
_NAME = re.compile(r"[A-Za-z_]\w*|\$[\d@]")
_ARGUMENTS = frozenset(["argv", "argparse", "commandArgs", "ARGS", "args", "$1", "$@"])


class OutputReading:
    """What the lines of one call do with outputs that they open: what stands below such a line is about it."""

    def __init__(self, lines: Sequence[CodeLine], outputs: Iterable[str]) -> None:
        self.lines = lines
        self._marks = re.compile("|".join(map(re.escape, {OUTPUT_FOLDER, *outputs})))
        functions = [match for line in lines if (match := _FUNCTION.search(line.code))]
        self._parameters = {match["python"] or match["other"]: match["first"] for match in functions}
        self._paths = set[str]()
        for _ in range(2):  # a name may be bound below the function that uses it
            self._paths |= {name for line in lines for name in self._named(line.code)}

    @property
    def reads(self) -> list[CodeLine]:
        """Lines that open an output."""
        return [line for line in self.lines if self._opens(line.code)]

    def checks(self) -> Iterator[CodeLine]:
        """Lines that compare what was read, those that stop the run first, and then those that show a part of it."""
        known = [line for line in self.lines if not line.unseen and not _CANNOT_FAIL.search(line.code)]
        first = next((number for number, line in enumerate(known) if self._opens(line.code)), len(known))
        below = [line for line in known[first:] if not _WRITES.search(line.code)]
        yield from (line for line in below if _STOPS.search(line.code))
        yield from (line for line in known if _TOOLS.search(line.code) and self._of_output(line.code))
        yield from (line for line in below if _SHOWS.search(line.code) and _PART.search(_PLACES.sub("", line.code)))

    def writes(self, line: CodeLine) -> bool:
        """It writes an output."""
        return bool(_WRITES.search(line.code)) and self._of_output(line.code)

    def _of_output(self, code: str) -> bool:
        """The folder or file of outputs, or a name for one that is not the variable of a comprehension."""
        names = set(_NAME.findall(code)) - set(re.findall(r"\bfor\s+(\w+)\s+in\b", code))
        return bool(self._marks.search(code) or self._paths & names)

    def _opens(self, code: str) -> bool:
        return bool(_OPENS.search(code)) and self._of_output(code) and not _WRITES.search(code)

    def _named(self, code: str) -> Iterator[str]:
        """Names that a line binds to the path of an output, or the arguments of a script that gets one."""
        if not self._of_output(code) or _WRITES.search(code):
            return
        if match := _BOUND.search(code):
            yield from _NAME.findall(match["names"])
        yield from re.findall(r"parametrize\(\s*['\"](\w+)", code)
        yield from filter(None, map(self._parameters.get, re.findall(r"(\w+)\(", code)))
        if _SCRIPT.search(code) and not re.search(r"\bopen\(|\bload", code):
            yield from _ARGUMENTS


def looks_at_content(line: CodeLine) -> bool:
    """It looks at values, not only at shape, type, place or length."""
    return bool(_CONTENT.search(line.code))
