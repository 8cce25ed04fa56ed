"""Open-i: two archives of the National Library of Medicine, one of XML reports and one of PNG images.

Defects: empty sections, a report without an image, ids without a suffix, "XXXX" for what was taken out, an image that
no report names.
"""

from __future__ import annotations

from automedbench_rehearsal.making.files import tarred
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.reports import findings, impression
from automedbench_rehearsal.upstreams import Upstream

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


def upstream() -> Upstream:
    """Both archives."""
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
