"""CheXpert Plus as a person has it: the table of reports, and the validation chunk of PNG images.

Defects: lateral rows, image names that end in .jpg beside .png files, cells of several lines, sections that are absent
or say "nan", two studies of a patient, a report of two words.
"""

from __future__ import annotations

from automedbench_rehearsal.making.files import table
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.reports import findings, impression
from automedbench_rehearsal.upstreams import Upstream

# Patient, study, findings, impression; None: the section is absent.
_STUDIES: list[tuple[int, int, str | None, str | None]] = [
    (64541, 1, findings(0), impression(0)),
    (64542, 1, None, impression(1) + "\n\n2. As before,\nno change."),
    (64543, 1, "nan", impression(2)),
    (64543, 2, findings(3), impression(3)),
    (64544, 1, findings(4) + "\n" + findings(5), None),
    (64544, 2, findings(5), impression(1)),
    (64545, 1, None, None),
    (64546, 1, findings(6), "nan"),
]


def upstream() -> Upstream:
    """The folder that ``how_to_get`` describes."""
    rows, files = [], {}
    for patient, study, seen, sums in _STUDIES:
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
