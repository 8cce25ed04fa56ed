"""MIMIC-CXR: two PhysioNet projects, images of studies in one and reports in the other.

Defects: reports without a findings section, with findings and impression under one heading, with a wet read and with
CR LF; a report without an image; a patient with two studies; images with metadata. Images of the other splits are
offered as well.
"""

from __future__ import annotations

from automedbench.base.files import sha256_bytes
from automedbench_rehearsal.making.files import gzipped, physionet, table, zipped
from automedbench_rehearsal.making.reports import chest_jpeg, findings, impression
from automedbench_rehearsal.upstreams import Upstream

# Subject, study, views, split.
_STUDIES = [
    (10000001, 50000001, ["PA", "LATERAL"], "test"),
    (10000001, 50000002, ["AP"], "test"),
    (10000002, 50000003, ["AP"], "test"),
    (11000003, 50000004, ["PA"], "test"),
    (11000004, 50000005, ["PA", "LATERAL"], "test"),
    (12000005, 50000006, ["AP"], "test"),
    (12000006, 50000007, ["AP"], "test"),
    (13000007, 50000008, ["PA", "LATERAL"], "train"),
    (13000007, 50000011, ["AP"], "train"),
    (13000008, 50000009, ["PA"], "validate"),
]
NO_FINDINGS, COMBINED, WET_READ, WINDOWS = 50000004, 50000005, 50000006, 50000003
NO_IMAGE = (14000009, 50000010)


def upstream() -> Upstream:
    """Both projects; images, reports and the tables of splits and views."""
    images: dict[str, bytes] = {}
    splits, views = [], []
    for subject, study, positions, split in _STUDIES:
        for number, position in enumerate(positions):
            name = _dicom_id(study, number)
            images[f"{_folder(subject)}/s{study}/{name}.jpg"] = chest_jpeg("mimic", study, number)
            splits.append({"dicom_id": name, "study_id": study, "subject_id": subject, "split": split})
            views.append({"dicom_id": name, "subject_id": subject, "study_id": study, "ViewPosition": position})
    reports = {f"{_folder(subject)}/s{study}.txt": _report(study) for subject, study, _, _ in _STUDIES}
    subject, study = NO_IMAGE
    reports[f"{_folder(subject)}/s{study}.txt"] = _report(study)
    pictures = {
        **images,
        "mimic-cxr-2.0.0-split.csv.gz": gzipped(table(splits)),
        "mimic-cxr-2.0.0-metadata.csv.gz": gzipped(table(views)),
        "mimic-cxr-2.0.0-chexpert.csv.gz": gzipped(b"subject_id,study_id,Atelectasis\n"),
        "LICENSE.txt": b"PhysioNet Credentialed Health Data License 1.5.0\n",
    }
    texts = {"mimic-cxr-reports.zip": zipped(reports), "LICENSE.txt": pictures["LICENSE.txt"]}
    return Upstream(files={**physionet("mimic-cxr-jpg/2.1.0", pictures), **physionet("mimic-cxr/2.1.0", texts)})


def _folder(subject: int) -> str:
    return f"files/p{str(subject)[:2]}/p{subject}"


def _dicom_id(study: int, number: int) -> str:
    digest = sha256_bytes(f"{study} {number}".encode())
    return "-".join(digest[start : start + 8] for start in range(0, 40, 8))


def _report(study: int) -> bytes:
    number = study % 100
    seen, sums = findings(number), impression(number)
    start = " " * 33 + "FINAL REPORT\n EXAMINATION:  CHEST\n \n INDICATION:  ___ year old with cough.\n \n"
    if study == NO_FINDINGS:
        text = f"{start} IMPRESSION:  {sums}\n"
    elif study == COMBINED:
        text = f"{start} FINDINGS AND IMPRESSION:  {seen}\n {sums}\n"
    elif study == WET_READ:
        text = f" WET READ: ___ 10:15 PM\n  {sums}\n{start} FINDINGS:\n \n {seen}\n \n IMPRESSION:  {sums}\n"
    else:
        text = f"{start} FINDINGS:  {seen}\n As compared to ___.\n \n IMPRESSION:  {sums}\n"
    return text.replace("\n", "\r\n" if study == WINDOWS else "\n").encode()
