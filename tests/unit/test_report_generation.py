"""The report track: sections, normalisation, staging, the format check's reasons, scores worked out by hand."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from PIL import Image
from toys import report_generation as toy
from toys._bench import Bench, stage, write_outputs

from automedbench.base.cards import TaskCard
from automedbench.base.errors import ConfigError, InfrastructureError, MissingDataError
from automedbench.datasets.forms.pictures import Picture, picture_file, radiograph
from automedbench.datasets.forms.sources import SourceReport
from automedbench.metrics.chexbert import contradicting_share
from automedbench.metrics.radgraph import Entities
from automedbench.tracks import ScoringInputs, TrackScore, track_settings
from automedbench.tracks.report_generation import TRACK as report_generation
from automedbench.tracks.report_generation import components
from automedbench.tracks.report_generation.check import read_report
from automedbench.tracks.report_generation.components import Measured, ReportPair, measure
from automedbench.tracks.report_generation.contradictions import count_contradictions
from automedbench.tracks.report_generation.settings import COMPONENTS, TEXT_COMPONENTS, ReportSettings
from automedbench.tracks.report_generation.stage import stage_reports
from automedbench.tracks.report_generation.text import (
    extract,
    has_section,
    normalise,
    reference_section,
    sections,
    tokens,
)

ROOT = Path(__file__).resolve().parents[2]
SEVEN = [*COMPONENTS]
TEXT_ONLY = {"components": [*TEXT_COMPONENTS]}


def with_settings(card: TaskCard, **settings: Any) -> TaskCard:
    return card.model_copy(update={"metric": card.metric.model_copy(update={"settings": settings})})


# --- settings --------------------------------------------------------------------------------------------------


def test_settings() -> None:
    """Seven by default, in the published order whatever the card's order; nonsense is refused."""
    assert list(ReportSettings().components) == SEVEN
    assert ReportSettings(components=("ROUGE_L", "BLEU")).components == ("BLEU", "ROUGE_L")
    assert all(ReportSettings().uses(name) for name in ("METEOR", "micro_average_f1", "F1RadGraph"))
    text = ReportSettings(components=TEXT_COMPONENTS)
    assert text.uses("METEOR", "F1RadGraph") and not text.uses("micro_average_f1", "F1RadGraph")
    with pytest.raises(ConfigError) as caught:
        track_settings(with_settings(toy.CARD, components=[], text_mode="all", meteor="jar", min_chars=0))
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigError, match="twice"):
        track_settings(with_settings(toy.CARD, components=["BLEU", "BLEU"]))


# --- text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="empty"),
        pytest.param(" \n\t ", "", id="white space"),
        pytest.param("\ufeffClear.", "clear.", id="byte order mark"),
        pytest.param("FINAL REPORT\nThe  Lungs\r\nare CLEAR.", "the lungs are clear.", id="case, breaks, final report"),
        pytest.param("Final\nreports", "final reports", id="only the two words themselves"),
        pytest.param("ﬁssure 4 ㎝ ²", "fissure 4 cm 2", id="NFKC"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="empty"),
        pytest.param("___ . , é", [], id="no word"),
        pytest.param("follow-up x-ray-like 4.5 cm", ["follow-up", "x-ray", "like", "4", "5", "cm"], id="one hyphen"),
        pytest.param("-a- b--c", ["a", "b", "c"], id="outer hyphens"),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


REPORT = "TECHNIQUE: PA.\nFINDINGS: Clear.\nNo effusion.\nIMPRESSION: Normal.\n"
EXTRACTED = [
    pytest.param("", "findings", "", id="empty"),
    pytest.param("Just text.", "findings", "Just text.", id="no heading: all of it"),
    pytest.param(REPORT, "findings", "Clear.\nNo effusion.", id="findings"),
    pytest.param(REPORT, "impression", "Normal.", id="impression"),
    pytest.param(REPORT, "full", "Clear.\nNo effusion. Normal.", id="both"),
    pytest.param(REPORT, "text", REPORT.strip(), id="everything"),
    pytest.param("findings: Clear.\nimpression: Normal.", "findings", "Clear.", id="lower-case headings"),
    pytest.param("  Findings :Clear.", "findings", "Clear.", id="blanks around"),
    pytest.param("FINDINGS: One.\nFINDINGS: Two.", "findings", "One.\nTwo.", id="two sections are joined"),
    pytest.param("FINDINGS AND IMPRESSION: Clear.", "findings", "Clear.", id="combined heading"),
    pytest.param("FINDINGS/ IMPRESSION: Clear.", "findings", "Clear.", id="combined with a slash"),
    pytest.param("CONCLUSION: Normal.", "impression", "Normal.", id="alias"),
    pytest.param("The findings: clear.", "findings", "The findings: clear.", id="not at the start of a line"),
    pytest.param("FINDINGS: Clear.\rIMPRESSION: Normal.", "findings", "Clear.", id="old line breaks"),
    pytest.param("FINDINGS:\nIMPRESSION: Normal.", "findings", "", id="empty section is empty"),
    pytest.param(
        "FINDINGS:\nLUNGS: Clear.\nHEART: Normal.\nIMPRESSION: Fine.",
        "findings",
        "LUNGS: Clear.\nHEART: Normal.",
        id="headings of organs belong to the findings",
    ),
    pytest.param("IMPRESSION: Normal.", "full", "Normal.", id="full with one section"),
    pytest.param("IMPRESSION: Normal.", "findings", "IMPRESSION: Normal.", id="other heading only: all of it"),
]


@pytest.mark.parametrize(("text", "section", "expected"), EXTRACTED)
def test_extract(text: str, section: Any, expected: str) -> None:
    assert extract(text, section) == expected


# A heading in the forms that writers of reports use; "F" is the findings, "I" the impression.
HEADINGS = (
    "**Findings:**\nF\n\n**Impression:**\nI",
    "**Findings**\nF\n\n**Impression**\nI",
    "**Findings**: F\n**Impression**: I",
    "## Findings\nF\n## Impression\nI",
    "### **1. FINDINGS**\nF\n### **2. IMPRESSION**\nI",
    "1. Findings\nF\n2. Conclusion\nI",
    "- Findings: F\n- Impression: I",
    "Findings\nF\n\nImpression\nI",
    "Findings：F\nImpression：I",
    "Ｆｉｎｄｉｎｇｓ﹕F\nＩｍｐｒｅｓｓｉｏｎ﹕I",
    "Findings - F\nImpressions – I",
    "[FINDINGS]\nF\n[IMPRESSION]\nI",
    "=== Findings ===\nF\n=== Impression ===\nI",
    "<findings>F</findings>\n<impression>I</impression>",
    '{"findings": "F", "impression": "I"}',
    "FINDINGS: F IMPRESSION: I",
    "**Findings:** F **Impression:** I",
    "Chest X-ray findings:\nF\nFinal impression: I",
    "CT FINDINGS (without contrast):\nF\nImpression/Plan: I",
    "Befund: F\nBeurteilung: I",
    "__Findings__\nF\n__Impression__\nI",
    "→ Findings:\tF\n[2] Impression: I",
    "'Findings': 'F', 'Impression': 'I'",
    "\\textbf{Findings} F\n\\textbf{Impression / Recommendations} I",
    "FINDINGS.\nF\nIMPRESSION.\nI",
    "FINDINGS\n========\nF\n\nIMPRESSION\n----------\nI",
    "<b>Findings</b> F\n<b>Impression</b> I",
    "# Report\n**Technique:** PA.\n**Findings:** F\n**Recommendations:** None.\n**Impression:** I",
)


def test_headings_in_other_forms() -> None:
    """Each is read as "FINDINGS:" and "IMPRESSION:" at the start of a line, as text without marks."""
    findings, impression = "The heart is normal. Findings are stable.", "Stable appearance."
    for form in HEADINGS:
        text = re.sub(r"\b[FI]\b", lambda found: {"F": findings, "I": impression}[found[0]], form)
        assert tokens(normalise(extract(text, "findings"))) == tokens(normalise(findings)), form
        assert tokens(normalise(extract(text, "impression"))) == tokens(normalise(impression)), form


def test_a_sentence_is_no_heading() -> None:
    texts = ("Findings are stable.\nImpression of the stomach.", "The findings\nare normal.", "Clear. Note: a clip.")
    for text in (
        *texts,
        "Clear. The impression: a scar.",
        "Conclusion of the infusion is planned.",
        "No\nfindings are seen.",
    ):
        assert extract(text, "findings") == text


def test_contradictions() -> None:
    """By hand: of six statements three lose their "no", one changes its side; other words and parts agree."""
    reference = (
        "the heart is normal in size. the lungs are clear. there is no effusion or pneumothorax. "
        "left basal atelectasis. effusion is not seen on the right. no bony abnormality."
    )
    changed = {
        reference: (0, 6),
        reference.replace(" no ", " ").replace("not ", ""): (3, 6),
        reference.replace("left", "right"): (1, 6),
        "heart size is normal without effusion. no pneumothorax.": (0, 3),
        "there is a pneumothorax.": (1, 1),
        "left apical atelectasis.": (1, 1),
        "heart is abnormal in size. no longer left basal atelectasis.": (2, 2),
        "pneumothorax is absent. effusion is absent.": (0, 2),
        "": (0, 0),
    }
    assert {text: count_contradictions(reference, text) for text in changed} == changed


def test_contradicting_observations() -> None:
    """Of two that both reports state (there, absent) one differs; blank and uncertain ones say nothing."""
    reference, candidate = np.zeros((1, 14), np.int64), np.zeros((1, 14), np.int64)
    reference[0, :4], candidate[0, :4] = (1, 2, 3, 1), (1, 1, 1, 0)
    assert contradicting_share(reference, candidate) == 0.5
    assert contradicting_share(np.zeros((1, 14), np.int64), candidate) is None


def test_sections_by_name() -> None:
    assert sections(REPORT) == {"technique": "PA.", "findings": "Clear.\nNo effusion.", "impression": "Normal."}


@pytest.mark.parametrize(
    ("text", "mode", "section", "usable"),
    [
        pytest.param(REPORT, "findings_only", "findings", True, id="findings"),
        pytest.param("IMPRESSION: Normal.", "findings_only", "findings", False, id="no findings"),
        pytest.param("IMPRESSION: Normal.", "findings_or_impression", "impression", True, id="impression instead"),
        pytest.param(REPORT, "findings_or_impression", "findings", True, id="findings first"),
        pytest.param(REPORT, "full", "full", True, id="full"),
        pytest.param("Glands.", "full", "full", False, id="full without headings"),
        pytest.param("Glands.", "caption", "text", True, id="caption"),
        pytest.param(" ", "caption", "text", False, id="empty caption"),
    ],
)
def test_what_a_mode_compares(text: str, mode: Any, section: str, usable: bool) -> None:
    assert reference_section(text, mode) == section
    assert has_section(text, mode) == usable


# --- format check ----------------------------------------------------------------------------------------------


def test_every_reason_is_listed() -> None:
    """39 characters, none a letter, one a control: three reasons, in the specification's order."""
    found = read_report(b"1" * 38 + b"\0", "report.txt", ReportSettings())
    codes = [problem.code for problem in found.problems]
    assert codes == ["too_short", "too_few_alpha_chars", "non_printable_characters"]
    assert all(problem.message.startswith("report.txt ") for problem in found.problems)


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        pytest.param("a" * 40, [], id="40 characters"),
        pytest.param("a" * 39, ["too_short"], id="39 characters"),
        pytest.param("a" * 8000, [], id="8000 characters"),
        pytest.param("\ufeff" + "a" * 8000, [], id="the mark is not counted"),
        pytest.param("a" * 7999 + "\r\n", [], id="CR LF is one character"),
        pytest.param("ж" * 20 + " " * 20, [], id="letters of any script"),
        pytest.param("a" * 40 + "\t\n\v\f", [], id="allowed controls"),
        pytest.param("\ufeff\ufeff" + "a" * 40, [], id="a second mark is a character like any other"),
    ],
)
def test_limits(text: str, codes: list[str]) -> None:
    assert [each.code for each in read_report(text.encode(), "r", ReportSettings()).problems] == codes


def test_captions_have_their_own_limits() -> None:
    settings = ReportSettings(text_mode="caption", min_chars=1, min_alpha_chars=1)
    assert read_report(b"Glands.", "r", settings).problems == []


# --- staging ---------------------------------------------------------------------------------------------------


def restaged(folder: Path, **sampling: Any) -> list[str]:
    """Studies chosen with other sampling."""
    toy.make_raw(folder / "raw")
    changed = toy.CARD.staging.sampling.model_copy(update=sampling)
    card = toy.CARD.model_copy(update={"staging": toy.CARD.staging.model_copy(update={"sampling": changed})})
    report_generation.stage(card, folder / "raw", folder / "public", folder / "private")
    split = json.loads((folder / "private/split.json").read_text())
    return [case["study"] for case in split["cases"].values()]


def test_staging(tmp_path: Path) -> None:
    """The manifest lists the images, the report keeps its headings, the study without findings is left out."""
    bench = stage("report_generation", tmp_path)
    split = json.loads((bench.private / "split.json").read_text())
    assert (split["n_studies"], split["n_without_text"], len(split["cases"])) == (5, 1, 4)
    case = next(name for name, entry in split["cases"].items() if entry["study"] == "s2")
    manifest = json.loads((bench.public / case / "manifest.json").read_text())
    assert (manifest["image_count"], manifest["image_files"]) == (2, ["images/01.png", "images/02.jpg"])
    report = (bench.private / case / "report.txt").read_text()
    assert report == f"FINDINGS: {toy.FINDINGS['s2']}\nIMPRESSION: Nothing new.\n"


def test_sampling(tmp_path: Path) -> None:
    """A part of the studies is the head of the whole order; more than there are is refused."""
    everything = restaged(tmp_path / "a")
    assert restaged(tmp_path / "b", count=2) == everything[:2]
    assert sorted(everything) == ["s1", "s2", "s3", "s4"]
    with pytest.raises(InfrastructureError, match="needs 5 studies; 4 of 5"):
        restaged(tmp_path / "c", count=5)
    assert restaged(tmp_path / "d", options={"max_images": 1}) == [name for name in everything if name != "s2"]


def test_one_study_per_patient(tmp_path: Path) -> None:
    toy.make_raw(tmp_path / "raw")
    table = tmp_path / "raw/reports.jsonl"
    table.write_text(table.read_text().replace('"p3"', '"p1"'))
    for flag, expected in ((True, 3), (False, 4)):
        sampling = toy.CARD.staging.sampling.model_copy(update={"options": {"one_per_subject": flag}})
        card = toy.CARD.model_copy(update={"staging": toy.CARD.staging.model_copy(update={"sampling": sampling})})
        target = tmp_path / str(flag)
        entries = report_generation.stage(card, tmp_path / "raw", target / "public", target / "private")
        assert len(entries) == expected


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("FINDINGS: " + "a" * 29, True, id="40 characters with the line break"),
        pytest.param("FINDINGS: " + "a" * 28, False, id="39 characters"),
        pytest.param("FINDINGS: " + "1" * 40, False, id="8 letters"),
        pytest.param("FINDINGS: " + "a" * 7989, True, id="8000 characters"),
        pytest.param("FINDINGS: " + "a" * 7990, False, id="8001 characters"),
        pytest.param("FINDINGS: The lungs are clear\x00, the heart is small.", False, id="control character"),
    ],
)
def test_a_report_that_could_not_be_handed_in_is_left_out(tmp_path: Path, text: str, kept: bool) -> None:
    """Even a perfect answer would be invalid; the limits are the card's (40 to 8000 characters, 20 letters)."""
    picture = Picture("a.jpg", jpeg)
    studies = [SourceReport("odd", (picture,), text), SourceReport("good", (picture,), f"FINDINGS: {toy.GOOD}")]
    entries = stage_reports(toy.CARD, track_settings(toy.CARD), studies, tmp_path / "public", tmp_path / "private")
    assert len(entries) == 1 + kept
    split = json.loads((tmp_path / "private/split.json").read_text())
    assert split["n_without_text"] == 1 - kept


def jpeg(mode: str = "L", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (16, 8)).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def test_pictures_lose_their_metadata(tmp_path: Path) -> None:
    """A JPEG keeps its pixels, a PNG its shade; EXIF, comments and text chunks are gone."""
    exif = Image.Exif()
    exif[0x010E] = "patient Example"
    (tmp_path / "a.jpg").write_bytes(jpeg(exif=exif, comment=b"patient Example"))
    suffix, data = radiograph(picture_file(tmp_path / "a.jpg"))
    assert suffix == ".jpg" and b"Example" not in data
    with Image.open(io.BytesIO(data)) as image:
        assert (image.mode, image.size, image.getexif()) == ("L", (16, 8), {})
    Image.new("LA", (3, 4), (77, 200)).save(tmp_path / "b.png")
    suffix, data = radiograph(picture_file(tmp_path / "b.png"))
    with Image.open(io.BytesIO(data)) as image:
        assert (suffix, image.mode, image.getpixel((0, 0))) == (".png", "L", 77)


def test_a_turned_jpeg_is_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    (tmp_path / "a.jpg").write_bytes(jpeg("RGB", exif=exif))
    suffix, data = radiograph(picture_file(tmp_path / "a.jpg"))
    with Image.open(io.BytesIO(data)) as image:
        assert (suffix, image.size, image.mode) == (".png", (8, 16), "RGB")


@pytest.mark.parametrize(
    "content",
    [pytest.param(b"", id="empty"), pytest.param(jpeg()[:200], id="cut"), pytest.param(b"BM", id="not an image")],
)
def test_unreadable_pictures(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(InfrastructureError, match="not a readable image"):
        radiograph(picture_file(tmp_path / "a.jpg"))


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(InfrastructureError, match="more than 8 bits"):
        radiograph(picture_file(tmp_path / "a.png"))


# --- score -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return stage("report_generation", tmp_path_factory.mktemp("report"))


def inputs(bench: Bench, folder: Path, texts: dict[str, str], **settings: Any) -> ScoringInputs:
    """What the scorer gets for these reports; the others are missing."""
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    write_outputs(workspace, {f"{case}/report.txt": text.encode() for case, text in texts.items()})
    return ScoringInputs(
        card=with_settings(bench.card, **(TEXT_ONLY | settings)),
        manifest=bench.manifest,
        submission=folder / "submission",
        private=bench.private,
        checked=bench.collect(workspace, folder),
        resources=toy.RESOURCES,
    )


def reference(bench: Bench, case: str) -> str:
    return (bench.private / case / "report.txt").read_text()


def test_missing_reports_score_zero_once(bench: Bench, tmp_path: Path) -> None:
    """One perfect report of four: a quarter of the ceiling, and the task score is the quality itself."""
    case = bench.cases[2]
    scored = report_generation.score(inputs(bench, tmp_path, {case: reference(bench, case)}))
    assert scored.quality == pytest.approx(toy.CEILING / 4, abs=1e-9)
    assert scored.task_score == scored.quality
    assert [each.metrics["report_score"] for each in scored.cases] == pytest.approx([0, 0, toy.CEILING, 0], abs=1e-9)
    assert scored.metrics["ROUGE_L"] == scored.metrics["corpus_ROUGE_L"] == pytest.approx(0.25)


def test_by_hand(bench: Bench, tmp_path: Path) -> None:
    """s1 "the lungs are clear the heart is normal in size" against its first four words; the impression is not read.

    ROUGE-L: 4 common of 4 and 10 words, F = 8/14. BLEU: all precisions 1, brevity exp(1 - 10/4).
    METEOR: P = 1, R = 0.4, F = 0.4 / (0.9 + 0.04); "the" takes the reference's second one, which makes two chunks of
    four words, penalty 0.5 / 8.
    """
    split = json.loads((bench.private / "split.json").read_text())["cases"]
    case = next(name for name, entry in split.items() if entry["study"] == "s1")
    text = "FINDINGS: The lungs are clear.\nIMPRESSION: Heart is normal in size."
    scored = report_generation.score(inputs(bench, tmp_path, {case: text}))
    found = scored.cases[bench.cases.index(case)].metrics
    assert found["ROUGE_L"] == pytest.approx(8 / 14, abs=1e-12)
    assert found["BLEU"] == pytest.approx(np.exp(1 - 10 / 4), abs=1e-9)
    assert found["METEOR"] == pytest.approx(0.4 / 0.94 * (1 - 0.5 / 8), abs=1e-12)
    assert found["report_score"] == pytest.approx((found["ROUGE_L"] + found["BLEU"] + found["METEOR"]) / 3)


def test_line_breaks_and_case_change_nothing(bench: Bench, tmp_path: Path) -> None:
    texts = {case: extract(reference(bench, case), "findings") for case in bench.cases}
    loud = {case: text.upper().replace(" ", "\n") for case, text in texts.items()}
    plain, changed = (
        report_generation.score(inputs(bench, tmp_path / name, given)) for name, given in (("a", texts), ("b", loud))
    )
    assert plain.quality == changed.quality


def test_all_reports_together(bench: Bench, tmp_path: Path) -> None:
    """All reports together: a missing one shortens the candidate, so that brevity is exp(1 - 40/30) for BLEU."""
    texts = {case: reference(bench, case) for case in bench.cases[:3]}
    given = inputs(bench, tmp_path, texts)
    scored = report_generation.score(given)
    assert scored.metrics["corpus_BLEU"] == pytest.approx(np.exp(1 - 40 / 30), abs=1e-8)
    # P = 1, R = 3/4; the sum of the alignments has three chunks and thirty matches.
    meteor = 0.75 / (0.9 + 0.075) * (1 - 0.5 * (3 / 30) ** 3)
    assert scored.metrics["corpus_METEOR"] == pytest.approx(meteor, abs=1e-12)
    expected = (np.exp(1 - 40 / 30) + meteor + 0.75) / 3
    assert scored.metrics["corpus_score"] == pytest.approx(expected, abs=1e-8)
    assert scored.quality == scored.metrics["per_report_score"] != scored.metrics["corpus_score"]
    library, value, tolerance = report_generation.verify(given)
    assert "nltk" in library and "rouge-score" in library
    assert value == pytest.approx(scored.quality, abs=tolerance)


def test_twin_agrees_on_any_text(bench: Bench, tmp_path: Path) -> None:
    texts = dict(
        zip(bench.cases, ["The lung is clear, no effusion whatsoever seen.", toy.GOOD * 3, "z" * 50], strict=False)
    )
    given = inputs(bench, tmp_path, texts)
    assert report_generation.verify(given)[1] == pytest.approx(report_generation.score(given).quality, abs=1e-12)


def test_fewer_components_are_said(bench: Bench, tmp_path: Path) -> None:
    """Component values of those that count only, a note that names what is left out, and the WordNet that was used."""
    scored = report_generation.score(inputs(bench, tmp_path, {}, components=["ROUGE_L"]))
    assert scored.metrics["text_mean"] is None
    assert set(scored.cases[0].metrics) == {"report_score", "ROUGE_L", "contradicting_statements"}
    (note,) = scored.notes
    assert note.startswith("components_reduced") and "F1RadGraph" in note
    assert "excerpt of 906 entries" in " ".join(report_generation.score(inputs(bench, tmp_path, {})).notes)


def test_contradicting_reports_are_marked(bench: Bench, tmp_path: Path) -> None:
    """Right for left: one of the two statements of one report of four; the report is nearly a copy of its reference."""
    texts = {case: reference(bench, case).replace("left", "right") for case in bench.cases}
    scored = report_generation.score(inputs(bench, tmp_path, texts))
    assert scored.contradicting == scored.metrics["contradicting_statements"] == pytest.approx(1 / 8)


def test_no_text_is_copied(bench: Bench, tmp_path: Path) -> None:
    """The report of the scorer may be published where the data may not."""
    case = bench.cases[0]
    shown = report_generation.score(inputs(bench, tmp_path, {case: reference(bench, case)})).model_dump_json()
    assert not [word for text in toy.FINDINGS.values() for word in text.split() if len(word) > 6 and word in shown]


@pytest.mark.parametrize("resource", ["wordnet", "chexbert", "radgraph"])
def test_missing_resources_are_never_zeros(bench: Bench, tmp_path: Path, resource: str) -> None:
    components = {"wordnet": "METEOR", "chexbert": "micro_average_f1", "radgraph": "F1RadGraph"}[resource]
    given = inputs(bench, tmp_path, {}, components=[components])
    with pytest.raises(MissingDataError, match="resource"):
        report_generation.score(replace(given, resources={}))


def test_wordnet_that_is_none(bench: Bench, tmp_path: Path) -> None:
    given = inputs(bench, tmp_path, {}, components=["METEOR"])
    with pytest.raises(MissingDataError, match="not a WordNet folder"):
        report_generation.score(replace(given, resources={"wordnet": tmp_path}))


@pytest.mark.parametrize(
    "content", [pytest.param(None, id="gone"), pytest.param(b" ", id="empty"), pytest.param(b"\xff", id="not text")]
)
def test_damaged_references(bench: Bench, tmp_path: Path, content: bytes | None) -> None:
    """Our data, not the agent's fault: no score at all."""
    given = inputs(bench, tmp_path, {})
    for case in bench.cases[1:]:
        (tmp_path / "private" / case).mkdir(parents=True)
        (tmp_path / "private" / case / "report.txt").write_bytes((bench.private / case / "report.txt").read_bytes())
    if content is not None:
        (tmp_path / "private" / bench.cases[0]).mkdir()
        (tmp_path / "private" / bench.cases[0] / "report.txt").write_bytes(content)
    with pytest.raises(InfrastructureError, match=r"(?i)stage the task again"):
        report_generation.score(replace(given, private=tmp_path / "private"))


# --- seven components, the clinical models replaced by constants -------------------------------------------------


def stub(name: str, reports: dict[str, list[float]], corpus: dict[str, float]) -> Any:
    def engine(pairs: list[ReportPair], _: Any) -> Measured:
        assert all(isinstance(pair, ReportPair) for pair in pairs), name
        return Measured(dict(reports), dict(corpus))  # type: ignore[arg-type]

    return engine


def test_seven_components_count_the_same(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perfect text, RadGraph 0.5, CheXbert 0.25 each: (3 + 0.5 + 0.75) / 7 with METEOR 0.5 / 10³ short."""
    labels = ["micro_average_precision", "micro_average_recall", "micro_average_f1"]
    monkeypatch.setattr(components, "measure_radgraph", stub("r", {"F1RadGraph": [0.5] * 4}, {"F1RadGraph": 0.5}))
    monkeypatch.setattr(
        components,
        "measure_chexbert",
        stub("c", {name: [0.25] * 4 for name in labels}, dict.fromkeys(labels, 0.3)),
    )
    texts = {case: reference(bench, case) for case in bench.cases}
    scored: TrackScore = report_generation.score(inputs(bench, tmp_path, texts, components=SEVEN))
    assert scored.quality == pytest.approx((3 - 0.5 / 10**3 + 0.5 + 3 * 0.25) / 7, abs=1e-9)
    assert scored.metrics["corpus_score"] == pytest.approx((3 - 0.0005 + 0.5 + 3 * 0.3) / 7, abs=1e-4)
    assert scored.metrics["text_mean"] == pytest.approx(1 - 0.0005 / 3, abs=1e-9)
    assert not any("components_reduced" in note for note in scored.notes)


def test_no_report_agrees_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two references without any observation one has a report, which agrees in all 14, and the other none."""

    class Labeler:
        def __init__(self, *_: Path) -> None: ...

        def label(self, _: str) -> Any:
            return np.zeros(14, np.int64)

    monkeypatch.setattr("automedbench.metrics.chexbert.ChexbertLabeler", Labeler)
    resources = {"bert": Path("bert"), "chexbert": Path("chexbert.pth")}
    measured = components.measure_chexbert([ReportPair("Clear.", "Clear."), ReportPair("Clear.", "")], resources)
    values = {name: reports for name, reports in measured.reports.items() if name.startswith("micro_average")}
    assert len(values) == 3
    assert {tuple(reports) for reports in values.values()} == {(1.0, 0.0)}


def test_a_model_is_asked_once_per_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constant reports are common, and models are slow."""
    asked: list[str] = []

    class Scorer:
        def __init__(self, *_: Any) -> None: ...

        def annotate(self, text: str) -> Entities:
            asked.append(text)
            return {}

    monkeypatch.setattr("automedbench.metrics.radgraph.RadgraphScorer", Scorer)
    components.measure_radgraph([ReportPair("a", "b"), ReportPair("c", "b")], {"radgraph": Path("radgraph")})
    assert sorted(asked) == ["a", "b", "c"]


def test_only_what_counts_is_measured() -> None:
    """Without METEOR no WordNet is asked for; the order is the published one."""
    found = measure([ReportPair("a b", "a b")], ReportSettings(components=("ROUGE_L", "BLEU")), {})
    assert list(found.reports) == ["BLEU", "ROUGE_L"]
    assert found.notes == []


# --- seven components with models -------------------------------------------------------------------------------


@pytest.mark.radiology
def test_models_of_random_weights(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CheXbert that always sees the same: precision, recall and F1 are 1 for each report that is there.

    RadGraph's value is whatever random weights give, but the same by the package's own reward and between 0 and 1.
    """
    tiny_models.require_packages("torch", "transformers", "radgraph")
    tiny_models.refuse_network(monkeypatch)
    bert = tiny_models.write_bert(tmp_path / "bert")
    state = tiny_models.chexbert_state(bert, answers=[1, 3, *[0] * 12])
    resources = {
        **toy.RESOURCES,
        "bert": bert,
        "chexbert": tiny_models.write_chexbert(tmp_path / "chexbert.pth", state),
        "radgraph": tiny_models.write_radgraph(tmp_path / "radgraph", bert),
        "radgraph_bert": bert,
    }
    texts = {case: reference(bench, case) for case in bench.cases[:2]} | {bench.cases[2]: toy.GOOD}
    given = replace(inputs(bench, tmp_path, texts, components=SEVEN), resources=resources)
    assert report_generation.preflight(given.card, resources) == []
    scored = report_generation.score(given)
    assert [scored.metrics[name] for name in COMPONENTS[4:]] == [0.75] * 3
    # Three reports with two observations each, the fourth missing: P = 6/6, R = 6/8.
    assert [scored.metrics[f"corpus_{name}"] for name in COMPONENTS[4:]] == pytest.approx([1, 0.75, 6 / 7])
    assert scored.groups["Cardiomegaly"] == {"n_truth": 4, "n_predictions": 3, "tp": 3, "fp": 0, "fn": 1}
    assert 0 <= (scored.metrics["F1RadGraph"] or 0) <= 0.75
    library, value, tolerance = report_generation.verify(given)
    assert "radgraph" in library and "scikit-learn" in library
    assert value == pytest.approx(scored.quality, abs=tolerance)
