"""Reports: fixtures of report generation, texts beside pictures."""

from __future__ import annotations

import json

from automedbench.base.files import sha256_bytes
from automedbench_rehearsal.making.files import gzipped, physionet, table, tarred, zipped
from automedbench_rehearsal.making.pictures import chest_jpeg, findings, impression, picture, scene
from automedbench_rehearsal.upstreams import Upstream

# Patient, study, findings, impression; None: the section is absent.
_CHEXPERT_STUDIES: list[tuple[int, int, str | None, str | None]] = [
    (64541, 1, findings(0), impression(0)),
    (64542, 1, None, impression(1) + "\n\n2. As before,\nno change."),
    (64543, 1, "nan", impression(2)),
    (64543, 2, findings(3), impression(3)),
    (64544, 1, findings(4) + "\n" + findings(5), None),
    (64544, 2, findings(5), impression(1)),
    (64545, 1, None, None),
    (64546, 1, findings(6), "nan"),
]


def chexpert_plus() -> Upstream:
    """CheXpert Plus as a person has it: the table of reports, and the validation chunk of PNG images.

    The folder that ``how_to_get`` describes.

    Defects: lateral rows, image names that end in .jpg beside .png files, cells of several lines, sections that are
    absent or say "nan", two studies of a patient, a report of two words.
    """
    rows, files = [], {}
    for patient, study, seen, sums in _CHEXPERT_STUDIES:
        for view in ("view1_frontal", "view2_lateral")[: 1 + patient % 2]:
            rows.append(_row("valid", patient, study, view, seen, sums))
            name = f"PNG/valid/patient{patient}/study{study}/{view}.png"
            files[name] = picture(scene((40, 36), "chexpert", patient, study, view))
    rows.append(_row("train", 1, 1, "view1_frontal", findings(7), impression(7)))
    return Upstream(by_hand={"df_chexpert_plus_240401.csv": table(rows), **files})


def _row(split: str, patient: int, study: int, view: str, seen: str | None, sums: str | None) -> dict[str, str]:
    name = f"{split}/patient{patient:05d}/study{study}/{view}"
    return {
        "path_to_image": f"{name}.jpg",
        "path_to_dcm": f"{name}.dcm",
        "frontal_lateral": "Frontal" if view.endswith("frontal") else "Lateral",
        "ap_pa": "AP" if view.endswith("frontal") else "",
        "deid_patient_id": f"patient{patient:05d}",
        "patient_report_date_order": str(study),
        "age": "61.0",
        "sex": "Female",
        "report": f"NARRATIVE:\n{seen or ''}\nIMPRESSION:\n{sums or ''}\n",
        "section_findings": seen or "",
        "section_impression": sums or "",
        "split": split,
    }


_PLACE = "https://openi.nlm.nih.gov/imgs/collections"
# Number of the report → its images, and whether it has findings and an impression.
_REPORTS = {
    1: (["0001-4001", "0001-3001"], True, True),
    2: (["0652-1001"], True, True),
    3: (["1384-1001", "1384-2001"], False, True),
    4: ([], True, True),
    5: (["2117-1003002"], True, False),
    6: (["2192-1001"], False, False),
    10: (["0002-1001", "0002-2001"], True, True),
}


def iu_xray() -> Upstream:
    """Open-i: two archives of the National Library of Medicine, one of XML reports and one of PNG images.

    Both archives.

    Defects: empty sections, a report without an image, ids without a suffix, "XXXX" for what was taken out, an image
    that no report names.
    """
    reports = {f"ecgen-radiology/{number}.xml": _xml(number, *parts) for number, parts in _REPORTS.items()}
    images = {
        f"{_image(number, name)}.png": picture(scene((36, 30), "openi", number, name))
        for number, (names, *_) in _REPORTS.items()
        for name in names
    }
    images["CXR99_IM-0099-1001.png"] = picture(scene((36, 30), "openi", "nobody's"))
    return Upstream(
        files={
            f"{_PLACE}/NLMCXR_reports.tgz": tarred(reports, gz=True),
            f"{_PLACE}/NLMCXR_png.tgz": tarred(images, gz=True),
        }
    )


def _image(number: int, name: str) -> str:
    return f"CXR{number}_1_IM-{name}" if number == 1 else f"CXR{number}_IM-{name}"


def _xml(number: int, images: list[str], with_findings: bool, with_impression: bool) -> bytes:
    sections = {
        "COMPARISON": "XXXX.",
        "INDICATION": "XXXX-year-old with chest pain & cough",
        "FINDINGS": findings(number) if with_findings else "",
        "IMPRESSION": f"1. {impression(number)} XXXX." if with_impression else "",
    }
    texts = "".join(
        f'<AbstractText Label="{label}">{text.replace("&", "&amp;")}</AbstractText>'
        if text
        else f'<AbstractText Label="{label}"/>'
        for label, text in sections.items()
    )
    pictures = "".join(
        f'<parentImage id="{_image(number, name)}"><figureId>F{place}</figureId><caption>Chest, two views</caption>'
        f"<url>/hadoop/storage/radiology/extract/{_image(number, name)}.jpg</url></parentImage>"
        for place, name in enumerate(images, start=1)
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<eCitation><meta type="rr"/><uId id="CXR{number}"/><pmcId id="{number}"/>'
        f"<MedlineCitation><Article><Abstract>{texts}</Abstract></Article></MedlineCitation>"
        f"<MeSH><major>normal</major></MeSH>{pictures}</eCitation>\n"
    ).encode()


# Subject, study, views, split.
_MIMIC_STUDIES = [
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
_NO_FINDINGS, MIMIC_COMBINED, MIMIC_WET_READ, MIMIC_WINDOWS = 50000004, 50000005, 50000006, 50000003
_NO_IMAGE = (14000009, 50000010)


def mimic_cxr() -> Upstream:
    """MIMIC-CXR: two PhysioNet projects, images of studies in one and reports in the other.

    Both projects; images, reports and the tables of splits and views.

    Defects: reports without a findings section, with findings and impression under one heading, with a wet read and
    with CR LF; a report without an image; a patient with two studies; images with metadata. Images of the other splits
    are offered as well.
    """
    images: dict[str, bytes] = {}
    splits, views = [], []
    for subject, study, positions, split in _MIMIC_STUDIES:
        for number, position in enumerate(positions):
            name = _dicom_id(study, number)
            images[f"{_folder(subject)}/s{study}/{name}.jpg"] = chest_jpeg("mimic", study, number)
            splits.append({"dicom_id": name, "study_id": study, "subject_id": subject, "split": split})
            views.append({"dicom_id": name, "subject_id": subject, "study_id": study, "ViewPosition": position})
    reports = {f"{_folder(subject)}/s{study}.txt": _report(study) for subject, study, _, _ in _MIMIC_STUDIES}
    subject, study = _NO_IMAGE
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
    if study == _NO_FINDINGS:
        text = f"{start} IMPRESSION:  {sums}\n"
    elif study == MIMIC_COMBINED:
        text = f"{start} FINDINGS AND IMPRESSION:  {seen}\n {sums}\n"
    elif study == MIMIC_WET_READ:
        text = f" WET READ: ___ 10:15 PM\n  {sums}\n{start} FINDINGS:\n \n {seen}\n \n IMPRESSION:  {sums}\n"
    else:
        text = f"{start} FINDINGS:  {seen}\n As compared to ___.\n \n IMPRESSION:  {sums}\n"
    return text.replace("\n", "\r\n" if study == MIMIC_WINDOWS else "\n").encode()


_CAPTIONS = [
    "Haematoxylin and eosin, ×200: glands of a villous adenoma lined by tall cells with dark nuclei.",
    "Spindle cells in fascicles; mitoses are rare (< 1 per 10 fields, α-SMA positive).",
    "Granuloma.",
    "Section of the kidney with crescents in three of eight glomeruli — silver stain.",
    "Lymph node: sheets of large cells, CD20+, Ki-67 ≈ 80 %.",
    "Normal skin for comparison, epidermis above, dermis below.",
    "Squamous carcinoma with keratin pearls at the edge of an ulcer.",
    "Bone marrow, fat and islands of blood formation.",
]


def pathcap() -> Upstream:
    """PathCap on the hub: a list of captions and an archive of pictures.

    ``data.json`` and ``images.zip``.

    Defects: captions of a few words and with signs outside of ASCII, a picture that is not there, a picture with two
    captions, two pictures of one article, pictures with metadata.
    """
    records, pictures = [], {}
    for number, caption in enumerate(_CAPTIONS):
        article = f"PMC{7000000 + max(number, 1)}"
        name = f"{article}_fig{number}_0.jpg"
        records.append({"image": name, "caption": caption, "pmc_id": article, "figure_fn": f"fig{number}.jpg"})
        pictures[f"images/{name}"] = chest_jpeg("pathcap", number, colours=3)
    absent = {"image": "PMC7999999_fig1_0.jpg", "caption": "Not in the archive.", "pmc_id": "PMC7999999"}
    again = {**records[-1], "caption": "Another caption of the same picture."}
    records += [{**absent, "figure_fn": "fig1.jpg"}, again]
    hub = {
        "data.json": json.dumps(records, ensure_ascii=False, indent=1).encode(),
        "images.zip": zipped(pictures),
        "README.md": b"---\nlicense: cc-by-nc-2.0\n---\n",
    }
    return Upstream(hubs={"jamessyx/PathCap": hub})


UPSTREAMS = {maker.__name__: maker for maker in (chexpert_plus, iu_xray, mimic_cxr, pathcap)}
"""Data set → what makes its fixture."""
