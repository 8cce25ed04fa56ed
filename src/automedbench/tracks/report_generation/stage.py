"""Report generation's private side: which studies become cases, their images, and the reports to be written."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from automedbench.base.cards import TaskCard
from automedbench.base.errors import InfrastructureError, MissingDataError
from automedbench.base.files import read_record, sha256_bytes
from automedbench.base.records import CaseEntry, Model, Sha256
from automedbench.base.yamlfile import validate
from automedbench.datasets import get_reader
from automedbench.datasets.forms.pictures import Picture, radiograph
from automedbench.datasets.forms.sources import SourceReport
from automedbench.datasets.sampling import assign_case_ids, draw_cases, first_of_subjects, shuffle_sources
from automedbench.tracks import track_settings
from automedbench.tracks.common.staging import Content, StagedCase, stage_cases
from automedbench.tracks.report_generation.check import read_report
from automedbench.tracks.report_generation.settings import ReportSettings
from automedbench.tracks.report_generation.text import has_section, normalise, tokens

REPORT = "report.txt"
FINDINGS = "labels.json"
CASE_MANIFEST = "manifest.json"
MAX_REPORT_BYTES = 1_000_000


class ReportSampling(Model):
    """Options of a report card in ``staging.sampling.options``."""

    one_per_subject: bool = Field(True, description="at most one study of a patient")
    max_images: int = Field(20, ge=1, description="a study with more images is not used")


class CaseManifest(Model):
    """``public/<case>/manifest.json``: the images that belong to the case."""

    schema_: Literal["automedbench/report-case/1"] = Field("automedbench/report-case/1", alias="schema")
    case_id: str
    task_id: str
    image_count: int
    image_files: list[str] = Field(description="paths below the case's folder, in the order of the study")


class ReportFindings(Model):
    """``private/<case>/labels.json``."""

    findings: list[str]


def stage(card: TaskCard, raw: Path, public: Path, private: Path) -> list[CaseEntry]:
    """Write each case's images and manifest and its report; the same card and data give the same bytes.

    Raises InfrastructureError for raw data that is absent or unreadable, or holds too few usable studies.
    """
    return stage_reports(card, track_settings(card), get_reader(card.staging.reader)(raw, card), public, private)


def read_reference(private: Path, case: CaseEntry) -> str:
    """The report of a case as staged; raises InfrastructureError when it is absent or cannot be read."""
    path = private / case.id / REPORT
    try:
        data = path.read_bytes()
        return data.decode()
    except FileNotFoundError as error:
        raise MissingDataError(f"{path} does not exist; stage the task again.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InfrastructureError(f"{path} cannot be read: {error}.\nStage the task again.") from error


def read_findings(private: Path, case: CaseEntry) -> frozenset[str] | None:
    """The findings that the data set's own reading of a case's report has; None where it has none."""
    if FINDINGS not in case.private:
        return None
    return frozenset(read_record(private / case.id / FINDINGS, ReportFindings).findings)


# --- staging ---------------------------------------------------------------------------------------------------


def stage_reports(
    card: TaskCard, settings: ReportSettings, studies: list[SourceReport], public: Path, private: Path
) -> list[CaseEntry]:
    """Choose studies, write each one's images, manifest and report, and the private split.

    Raises InfrastructureError when too few studies have what the card's text mode scores, or an image is unreadable.
    """
    options = validate(card.staging.sampling.options, ReportSampling, card.id, "staging.sampling.options")
    chosen, passed_over = draw_cases(
        card, studies, lambda of, rest: _choose(of, rest, settings, options), lambda found: found[0]
    )
    return stage_cases(
        public,
        private,
        card,
        "report-split/1",
        assign_case_ids(card, chosen),
        lambda case, study: _staged(card, case, study),
        text_mode=settings.text_mode,
        n_studies=len(studies),
        **passed_over,
    )


def _choose(
    card: TaskCard, studies: list[SourceReport], settings: ReportSettings, options: ReportSampling
) -> tuple[list[SourceReport], dict[str, int]]:
    """The card's number of studies, and how many others may not be used, by reason."""
    sampling = card.staging.sampling
    every = shuffle_sources(studies, sampling.seed)
    few = [study for study in every if len(study.images) <= options.max_images]
    usable = [study for study in few if _has_text(study, settings)]
    pool = first_of_subjects(usable) if options.one_per_subject else usable
    wanted = len(pool) if sampling.count is None else sampling.count
    if not 0 < wanted <= len(pool):
        one = ", one of each subject" if options.one_per_subject else ""
        raise InfrastructureError(
            f"{card.id} needs {max(wanted, 1)} studies; {len(pool)} of {len(studies)} have text for "
            f"'{settings.text_mode}' and may be used{one}.\nLower staging.sampling.count or check staging.options."
        )
    passed_over = {
        "n_too_many_images": len(every) - len(few),
        "n_without_text": len(few) - len(usable),
        "n_same_subject": len(usable) - len(pool),
    }
    return pool[:wanted], passed_over


def _has_text(study: SourceReport, settings: ReportSettings) -> bool:
    """Return whether a report has text to compare and would be accepted itself; else no answer is right."""
    settings = settings.model_copy(update={"ascii_only": False})  # asked of agents, not of the reference
    compared = has_section(study.text, settings.text_mode) and bool(tokens(normalise(study.text)))
    if settings.text_mode == "published":  # the release's own choice
        return compared
    return compared and not read_report(_report_bytes(study), REPORT, settings).problems


def _staged(card: TaskCard, case: str, study: SourceReport) -> StagedCase:
    images: dict[str, bytes] = {}
    digests: dict[str, Sha256] = {}
    for number, picture in enumerate(map(Picture.held, _in_order(study)), start=1):
        digests[picture.short] = picture.sha256
        suffix, data = radiograph(picture)
        images[f"images/{number:02d}{suffix}"] = data
    manifest = CaseManifest(case_id=case, task_id=card.id, image_count=len(images), image_files=list(images))
    report = _report_bytes(study)
    held_out: dict[str, Content] = {REPORT: report}
    if study.findings is not None:
        held_out[FINDINGS] = ReportFindings(findings=sorted(study.findings))
    origin = {"study": study.id, "subject": study.subject, "images": digests, "report_sha256": sha256_bytes(report)}
    return StagedCase({CASE_MANIFEST: manifest, **images}, held_out, origin)


def _in_order(study: SourceReport) -> list[Picture]:
    return sorted(study.images, key=lambda picture: (picture.name.rpartition("/")[2], picture.name))


def _report_bytes(study: SourceReport) -> bytes:
    return (study.text.strip() + "\n").encode()
