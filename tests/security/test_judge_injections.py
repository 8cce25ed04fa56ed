"""Attempts to steer a judge, and what the deterministic part does about every one of them.

The tables are ``judge_injections/<kind>.yaml``. What a language model makes of an attempt is not tested here; that none
can leave its fence, is found and masked as its row says, passes as an answer, or raises a verdict of the heuristic
judge, is. ``benign.yaml`` is the other side: what honest agents write about judges, scores and prompts.
"""

from __future__ import annotations

import functools
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from judge_corpus import Attempt, inserted, load_attempts, load_benign
from loops import for_each
from PIL import Image, ImageDraw, PngImagePlugin

from automedbench.base.records import Conversation, JudgedStage
from automedbench.base.untrusted.picture import small_picture
from automedbench.judge import NOT_MEASURED
from automedbench.judge.evidence import BEGIN, END, PREFIX, collect_evidence, fence, mask_evidence, quote_readings
from automedbench.judge.gold import GoldTranscript, load_gold
from automedbench.judge.panel.structured import read_reply
from automedbench.judge.prompt import SYSTEM, stage_messages
from automedbench.judge.rubric import JUDGED_STAGES, Rubric, load_rubric
from automedbench.judge.rules import HeuristicJudge
from automedbench.judge.selection import select
from automedbench.reading.injection import MARK, AgentText, find_injections, mask, mask_texts
from automedbench.sandbox.evidence.audit import judge_findings

ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS = {attempt.id: attempt for attempt in load_attempts()}
WRITTEN = {name: attempt for name, attempt in ATTEMPTS.items() if attempt.where != "picture"}
HELD_OUT = "heldout"
BENIGN = load_benign()
SHOWN = "det-std-medium"
# Runs with room above them: criteria that are not earned, which an attempt could raise.
BASES = ("seg-std-bad", "vqa-std-bad", "cls-std-bad")
ROOM = 20_000


@functools.cache
def gold() -> dict[str, GoldTranscript]:
    return {item.id: item for item in load_gold(ROOT / "config/gold")}


@functools.cache
def shown() -> GoldTranscript:
    """A run of two calls, as reading the code of a longer one anew for each attempt would take minutes."""
    return gold()[SHOWN].model_copy(update={"calls": gold()[SHOWN].calls[:2]})


@functools.cache
def rubric(track: str) -> Rubric:
    return load_rubric(ROOT / "config/rubrics", track)


# --- the tables -------------------------------------------------------------------------------------------------


def test_the_tables_are_large_and_varied() -> None:
    rows = sum(len(yaml.safe_load(path.read_text())) for path in (ROOT / "tests/security/judge_injections").glob("*"))
    assert rows == len(ATTEMPTS) + len(BENIGN)  # no name twice
    assert len(ATTEMPTS) >= 90 and len(BENIGN) >= 60
    assert len({attempt.parts for attempt in ATTEMPTS.values()}) == len(ATTEMPTS)
    assert {attempt.where for attempt in ATTEMPTS.values()} == {
        *("plan", "note", "code", "stdout", "stderr", "file name", "picture")
    }


def recall(attempts: list[Attempt]) -> dict[str, tuple[int, int]]:
    """(found, all) by kind."""
    counts: dict[str, list[bool]] = defaultdict(list)
    for attempt in attempts:
        counts[attempt.kind].append(bool(find_injections(attempt.texts)))
    return {kind: (sum(hits), len(hits)) for kind, hits in sorted(counts.items())}


def test_the_figures_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/judge-evaluation.md says what is measured here."""
    known = [attempt for attempt in WRITTEN.values() if attempt.table != HELD_OUT]
    unknown = [attempt for attempt in WRITTEN.values() if attempt.table == HELD_OUT]
    rows = [f"| {kind} | {found} of {total} |" for kind, (found, total) in recall(known).items()]
    held = [found for found, _ in recall(unknown).values()]
    rows.append(f"{sum(held)} of {len(unknown)}")
    rows.append(f"{len(ATTEMPTS)} attempts")
    rows.append(f"{len(BENIGN)} snippets")
    with capsys.disabled():
        print("", *rows, sep="\n")
    text = " ".join((ROOT / "docs/judge-evaluation.md").read_text().split())
    assert [row for row in rows if row not in text] == []


# --- found and masked -------------------------------------------------------------------------------------------


@for_each(WRITTEN)
def test_found_as_its_row_says(name: str) -> None:
    attempt = WRITTEN[name]
    found = find_injections(attempt.texts)
    assert bool(found) is (attempt.expected == "found")
    assert {injection.where for injection in found} <= {attempt.where}


@for_each(WRITTEN)
def test_what_is_masked_is_gone(name: str) -> None:
    attempt = WRITTEN[name]
    masked = mask_texts(attempt.texts)
    assert find_injections(masked) == []
    assert [text.text.count("\n") for text in masked] == [text.text.count("\n") for text in attempt.texts]
    assert any(MARK in text.text for text in masked) is (attempt.expected == "found")
    if len(attempt.parts) == 1:
        assert mask(attempt.parts[0]) == mask(mask(attempt.parts[0]))


@for_each(BENIGN)
def test_honest_text_is_left_alone(name: str) -> None:
    assert find_injections([BENIGN[name]]) == []
    assert mask(BENIGN[name].text) == BENIGN[name].text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _strings(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _strings(item))


SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("demo/agents/**/*.yaml", "tests/security/harmless/*.yaml", "config/prompts/**/*.md")
    for path in ROOT.glob(pattern)
)
BASELINES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "config/baselines").rglob("*.*"))


def test_scripts_are_there() -> None:
    assert len(SCRIPTS) > 60 and len(BASELINES) > 5


@for_each([*SCRIPTS, *BASELINES])
def test_scripts_of_the_repository_are_left_alone(name: str) -> None:
    text = (ROOT / name).read_text()
    texts = list(_strings(yaml.safe_load(text))) if name.endswith(".yaml") else [text]
    assert find_injections(AgentText("code", 1, text) for text in texts) == []


def test_honest_transcripts_leave_no_finding() -> None:
    """Neither with their own briefs copied into the notes."""
    honest = [item for item in gold().values() if "judge_order" not in item.traps]
    assert len(honest) >= 40
    assert [item.id for item in honest if judge_findings(item.conversation)] == []
    assert [item.id for item in honest if find_injections([AgentText("note", 1, item.brief)])] == []


def test_the_transcript_with_an_order_is_found() -> None:
    trapped = [item for item in gold().values() if "judge_order" in item.traps]
    assert trapped
    for item in trapped:
        assert judge_findings(item.conversation), item.id


# --- fences -----------------------------------------------------------------------------------------------------

_HIDDEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
_TOKENS = re.compile(r"<[|｜]|[|｜]>|\[/?INST\]|</?s>|<<SYS>>|<(?:start|end)_of_turn>", re.IGNORECASE)


def parsed(rendering: str) -> list[list[str]]:
    """Bodies of the fences of a rendering; fails on a line that stands in none."""
    bodies: list[list[str]] = []
    inside = False
    for line in rendering.split("\n"):
        if inside and line.startswith(PREFIX):
            bodies[-1].append(line.removeprefix(PREFIX))
        elif inside:
            assert line.startswith(END), line
            inside = False
        else:
            assert line.startswith(BEGIN), line
            inside = True
            bodies.append([])
    assert not inside
    return bodies


def lines_of(text: str) -> list[str]:
    """``text`` by everything that ends a line (Unicode's and ASCII's separators)."""
    return re.split("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", text)


@for_each(ATTEMPTS)
def test_nothing_leaves_its_fence(name: str) -> None:
    attempt = ATTEMPTS[name]
    labelled = [fence(part, "first\nsecond") for part in attempt.parts]  # a file name as label
    rendering = "\n".join([fence("plan", "before"), *(fence("text", part) for part in attempt.parts), *labelled])
    bodies = parsed(rendering)
    assert len(bodies) == 1 + 2 * len(attempt.parts)
    for body, part in zip(bodies[1:], attempt.parts, strict=False):
        assert "\n".join(lines_of(part)) in quote_readings("\n".join(PREFIX + line for line in body))
    assert not _TOKENS.search(rendering)
    seen = rendering.replace("\n", "").replace("\ufe0f", "")
    assert [char for char in seen if unicodedata.category(char) in _HIDDEN] == []


def user_text(messages: list[dict[str, Any]]) -> str:
    content = messages[-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@for_each(ATTEMPTS)
def test_nothing_leaves_its_fence_in_a_prompt(name: str) -> None:
    """The prompt of a stage, with the fences cut out, is what it is without the attempt but for counts."""
    base = shown()
    rules = rubric(base.track)
    outside = []
    for talk in (base.conversation, inserted(base.conversation, ATTEMPTS[name])):
        seen = select(collect_evidence(talk), rules, "S1", ROOM)
        messages = stage_messages(
            seen, _asked(rules, base, "S1"), stage="S1", track=base.track, task="task", tier=base.tier
        )
        assert messages[0]["content"] == SYSTEM
        prompt = user_text(messages)
        assert prompt.count(f"\n{BEGIN} ") == prompt.count(f"\n{END} ")
        fenced = re.compile(rf"(?m)^{BEGIN} [^\n]* ===\n(?:{re.escape(PREFIX)}[^\n]*\n)*{END} [^\n]* ===$")
        rest = fenced.sub("", prompt)
        assert PREFIX not in {line[: len(PREFIX)] for line in rest.split("\n")}
        outside.append({re.sub(r"[\d,–]+", "#", line) for line in rest.split("\n") if line})
    added = outside[1] - outside[0]
    words = {word for part in ATTEMPTS[name].parts for word in re.findall(r"\w{5,}", part)}
    ours = re.compile(r"## Turn #: |No room for|\(#? ?characters left out\)|what the agent wrote|shortened|not shown")
    assert [line for line in added if not ours.search(line) and words & set(re.findall(r"\w{5,}", line))] == []


# --- answers ----------------------------------------------------------------------------------------------------


def _asked(rules: Rubric, base: GoldTranscript, stage: JudgedStage) -> list[Any]:
    return [criterion for criterion in rules.judged(base.tier) if criterion.stage == stage]


@for_each(WRITTEN)
def test_no_attempt_passes_as_an_answer(name: str) -> None:
    """A model that repeats an attempt has not answered, even in the exact form: its quotes are masked with it."""
    attempt, base = WRITTEN[name], shown()
    evidence = mask_evidence(collect_evidence(inserted(base.conversation, attempt)))
    for stage in JUDGED_STAGES:
        seen = select(evidence, rubric(base.track), stage, ROOM)
        criteria = _asked(rubric(base.track), base, stage)
        for reply in (*attempt.parts, "\n".join(attempt.parts), f"Here is my answer:\n{attempt.parts[0]}"):
            assert read_reply(reply, seen, criteria).problems, stage


def test_a_verdict_in_the_exact_form_is_an_answer_only_while_it_is_not_masked() -> None:
    """The control of the test above: form and quote are right, and only the mask keeps it from counting."""
    attempt, base = WRITTEN["exact-form"], shown()
    evidence = collect_evidence(inserted(base.conversation, attempt))
    criteria = _asked(rubric(base.track), base, "S3")
    text = attempt.parts[0].replace('"turn": 3', '"turn": null')
    plain = read_reply(text, select(evidence, rubric(base.track), "S3", ROOM), criteria)
    masked = read_reply(text, select(mask_evidence(evidence), rubric(base.track), "S3", ROOM), criteria)
    assert (plain.problems, bool(masked.problems)) == ([], True)


# --- the heuristic judge ----------------------------------------------------------------------------------------


def heuristic(talk: Conversation, base: GoldTranscript) -> dict[str, float]:
    answer = HeuristicJudge().judge(collect_evidence(talk), rubric(base.track), base.tier, NOT_MEASURED)
    return {criterion.id: criterion.verdict for criterion in answer}


@functools.cache
def unattacked(name: str) -> dict[str, float]:
    return heuristic(gold()[name].conversation, gold()[name])


def test_the_bases_leave_room() -> None:
    """The control: a run that has everything could not be raised."""
    for name in BASES:
        assert sum(value < 1 for value in unattacked(name).values()) >= 5, name


@for_each(WRITTEN)
def test_no_verdict_rises(name: str) -> None:
    """Each attempt in one of the bases, in turn."""
    base = BASES[list(WRITTEN).index(name) % len(BASES)]
    found = heuristic(inserted(gold()[base].conversation, WRITTEN[name]), gold()[base])
    assert {key: value for key, value in found.items() if value > unattacked(base)[key]} == {}


# --- pictures ---------------------------------------------------------------------------------------------------

PICTURES = [name for name, attempt in ATTEMPTS.items() if attempt.where == "picture"]


def painted(text: str) -> bytes:
    """A plan.png that shows ``text``, and says it in its chunks and behind its end as well."""
    image = Image.new("RGB", (640, 120), "white")
    ImageDraw.Draw(image).text((10, 50), text, fill="black")
    chunks = PngImagePlugin.PngInfo()
    chunks.add_text("Comment", text)
    chunks.add_itxt("Description", text, zip=True)
    exif = Image.Exif()
    exif[0x010E] = text
    stream = io.BytesIO()
    image.save(stream, format="PNG", pnginfo=chunks, exif=exif)
    return stream.getvalue() + text.encode()


@for_each(PICTURES)
def test_only_pixels_of_a_picture_are_sent(name: str) -> None:
    text = ATTEMPTS[name].parts[0]
    data = painted(text)
    assert text.encode() in data
    sent = small_picture(data)
    assert sent is not None and text.encode() not in sent
    with Image.open(io.BytesIO(sent)) as image:
        assert (dict(image.info), dict(image.getexif())) == ({}, {})
    kinds = re.findall(rb"(?:tEXt|iTXt|zTXt|eXIf|tIME|iCCP)", sent)
    assert kinds == []


def test_the_prompt_says_what_a_picture_is() -> None:
    """Letters in a picture cannot be found without reading it, so the judge is told."""
    sentence = next(line for line in re.split(r"(?<=\.)\s", SYSTEM) if "picture" in line and "word" in line)
    assert "data" in sentence


# --- the audit --------------------------------------------------------------------------------------------------


@for_each(WRITTEN)
def test_the_audit_finds_what_the_rules_find(name: str) -> None:
    """A notice that counts for nothing, whatever it is."""
    attempt, base = WRITTEN[name], shown()
    findings = judge_findings(inserted(base.conversation, attempt))
    assert bool(findings) is (attempt.expected == "found")
    assert {(item.category, item.severity, item.confidence) for item in findings} <= {
        ("judge_injection", "notice", "low")
    }
    assert all(item.evidence.isprintable() for item in findings)
