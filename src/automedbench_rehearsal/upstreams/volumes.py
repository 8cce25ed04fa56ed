"""Volumes: fixtures of segmentation and synthesis, scans with label maps, masks or a second scan."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from automedbench_rehearsal.making.files import table, tarred, workbook, zipped
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.scans import (
    SMALL,
    Array,
    affine,
    ball,
    ct,
    metaimage,
    mri,
    nifti,
    organ_and_tumour,
    outline,
)
from automedbench_rehearsal.upstreams import Upstream


def aeropath() -> Upstream:
    """AeroPath: a numbered folder per patient with a scan and two masks, which overlap where airways run through lung.

    ``AeroPath.zip`` with patients whose numbers have another order as text.
    """
    files = {"AeroPath/README.md": b"made up for tests\n"}
    place = affine((0.75, 0.75, 0.5), "xy")
    for index, number in enumerate((1, 2, 10, 27)):
        lungs = ball(SMALL, (5, 7, 5), 3.5) | ball(SMALL, (11, 7, 5), 3.5)
        airways = np.zeros(SMALL, bool)
        airways[7:9, 6:8, :] = True
        airways[4 : 12 - index, 6:8, 4] = True
        for name, values in (("", ct(number, SMALL)), ("_label_lungs", lungs), ("_label_airways", airways)):
            data = nifti(values.astype(np.uint8) if name else values, place, describe="made up")
            files[f"AeroPath/{number}/{number}_CT_HR{name}.nii.gz"] = data
    return Upstream(files={"https://zenodo.org/records/10069289/files/AeroPath.zip": zipped(files)})


_FOLDER = "PKG - CT-ORG/CT-ORG/OrganSegmentations"
_VOLUMES = (0, 2, 10, 21, 130)
_LOW_DOSE, _CT_ORG_SHORT = 135, 7


def ct_org() -> Upstream:
    """CT-ORG: one package by Aspera, so a folder that a person made; mirrored volumes, no qform, low-dose PET-CT.

    Five volumes that can be staged, one of PET-CT and one with too few slices; label maps beside them.
    """
    files = {f"{_FOLDER}/README.txt": b"CT-ORG\n"}
    for place, number in enumerate((*_VOLUMES, _LOW_DOSE, _CT_ORG_SHORT)):
        values = ct(place, (64, 64, 12) if number == _CT_ORG_SHORT else (64, 64, 40)).astype(np.float32)
        if number == _LOW_DOSE:
            values = np.maximum(values, -1024) + np.float32(24)
        # Of volume 2 the affine says the other side than the anatomy.
        where = affine((0.9, 0.9, 3.0), "x" if number == 2 else "")
        files[f"{_FOLDER}/volume-{number}.nii.gz"] = nifti(values, where, describe=f"volume-{number}", qform=0)
        files[f"{_FOLDER}/labels-{number}.nii.gz"] = nifti((values > 500).astype(np.float32), where, qform=0)
    return Upstream(by_hand=files)


_FETA_SHAPE = (14, 14, 14)
_FETA_FILE = "https://repo-prod.prod.sagebase.org/repo/v1/entity/syn25649833/file"


def feta() -> Upstream:
    """FeTA: BIDS-like folders. Two reconstructions by different software; label maps stored as float; a qform only.

    ``feta_2.4.zip`` on Synapse.

    Defects: a subject without label map (007) and one with both reconstructions (002).
    """
    names = {1: ("mial",), 2: ("mial", "irtk"), 7: ("mial",), 41: ("irtk",), 80: ("irtk",)}
    files = {}
    for number, reconstructions in names.items():
        for name in reconstructions:
            start = f"feta_2.4/sub-{number:03d}/anat/sub-{number:03d}_rec-{name}"
            files[f"{start}_T2w.nii.gz"] = _placed(mri(number, _FETA_SHAPE).astype(np.float32))
            if number != 7:
                files[f"{start}_dseg.nii.gz"] = _placed(_tissues(number).astype(np.float32))
    rows = [{"participant_id": f"sub-{n:03d}", "Pathology": "Neurotypical", "Gestational age": 24.1} for n in names]
    files["feta_2.4/participants.tsv"] = table(rows, "\t")
    files["feta_2.4/derivatives/biometry/sub-001/anat/sub-001_rec-mial_meas.nii.gz"] = _placed(_tissues(1))
    return Upstream(files={_FETA_FILE: zipped(files)})


def _placed(values: np.ndarray) -> bytes:
    return nifti(values, affine((0.5, 0.5, 0.5), "xy"), sform=0)


def _tissues(number: int) -> np.ndarray:
    labels = np.zeros(_FETA_SHAPE, np.uint8)
    for label, radius in ((1, 6.4), (2, 5.2), (3, 4.0), (4, 1.6 + 0.3 * (number % 2))):
        labels[ball(_FETA_SHAPE, (6.5, 6.5, 6.5), radius)] = label
    for label, place in ((5, (7, 3, 3)), (6, (6, 9, 7)), (7, (7, 4, 6))):
        labels[ball(_FETA_SHAPE, place, 1.5)] = label
    return labels


_KITS19_SHAPE = (8, 14, 14)
_AFFINE = np.array([[0, 0, -0.9, 11], [0, -0.9, 0, 23], [-3.0, 0, 0, -40], [0, 0, 0, 1]])
_SCANS = 30
_MALIGNANT = (0, 1, 3, 4, 5, 6, 7, 8, 210)
_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:0000000000000000000000000000000000000000000000000000000000000000\nsize 123456\n"
)


def kits19() -> Upstream:
    """KiTS19: label maps and records in a git repository, scans elsewhere.

    The repository, and the scans at both places.

    Arrays are slices × rows × columns. Defects: a label map that is a Git LFS pointer (case 5), a malignant case
    without one (case 7), records of test cases (210), benign cases.
    """
    scans = [_kits_scan(number) for number in range(_SCANS)]
    host = "https://kits19.sfo2.digitaloceanspaces.com"
    return Upstream(
        files={f"{host}/master_{number:05d}.nii.gz": data for number, data in enumerate(scans)},
        hubs={
            "neheller/KiTS-Challenge-Imaging": {
                f"images/case_{number:05d}.nii.gz": data for number, data in enumerate(scans)
            }
        },
        repositories={"https://github.com/neheller/kits19": _repository()},
    )


def _kits_scan(number: int) -> bytes:
    shape = _KITS19_SHAPE if number in _MALIGNANT else (2, 4, 4)
    return nifti(ct(number, shape).astype(np.float32), _AFFINE, describe="made up")


def _repository() -> dict[str, bytes]:
    files = {"LICENSE": b"made up for tests\n", "README.md": b"# KiTS19\n"}
    for number in (0, 1, 2, 3, 4, 6, 8):
        label = organ_and_tumour(number, _KITS19_SHAPE)
        files[f"data/case_{number:05d}/segmentation.nii.gz"] = nifti(label, _AFFINE, describe="made up")
    files["data/case_00005/segmentation.nii.gz"] = _POINTER
    records = [
        {
            "case_id": f"case_{number:05d}",
            "gender": "female" if number % 2 else "male",
            "radiographic_size": 2.4,
            "malignant": number in _MALIGNANT,
            "tumor_histologic_subtype": "clear_cell_rcc" if number in _MALIGNANT else "oncocytoma",
            "last_preop_egfr": {"value": None, "days_before_nephrectomy": None},
            "voxel_spacing": {"x_spacing": 0.9, "y_spacing": 0.9, "z_spacing": 3.0},
        }
        for number in (*range(_SCANS), 210)
    ]
    return files | {"data/kits.json": json.dumps(records, indent=2).encode()}


_RECORD = "https://zenodo.org/records/15192302/files"


def panther() -> Upstream:
    """PANTHER: compressed MetaImage with oblique axes, on diagnostic T1 (task 1) and MR-Linac T2 (task 2).

    Both archives.

    Labels are 1 tumour, 2 pancreas. Task 1 also has unlabelled images; one subject of task 2 has no tumour.
    """
    first: dict[str, bytes] = {}
    for number in (10000, 10003, 10004, 10011):
        first |= _subject(f"{number}_0001", number, _oblique(8, (1.2, 1.2, 3.0)))
    first["ImagesTr_unlabeled/10001_0001_0000.mha"] = metaimage(_image(10001), _oblique(8, (1.2, 1.2, 3.0)))
    second: dict[str, bytes] = {}
    for number in (10303, 10311, 10320):
        second |= _subject(str(number), number, _oblique(-5, (1.7, 1.7, 2.0)), tumour=number != 10320)
    return Upstream(
        files={f"{_RECORD}/PANTHER_Task1.zip": zipped(first), f"{_RECORD}/PANTHER_Task2.zip": zipped(second)}
    )


def _subject(name: str, number: int, place: np.ndarray, *, tumour: bool = True) -> dict[str, bytes]:
    codes = np.array([0, 2, 1], np.uint8)  # pancreas and tumour the other way round
    return {
        f"ImagesTr/{name}_0000.mha": metaimage(_image(number), place),
        f"LabelsTr/{name}.mha": metaimage(codes[organ_and_tumour(number, tumour=tumour)], place),
    }


def _image(number: int) -> np.ndarray:
    return mri(number, SMALL)


def _oblique(degrees: float, spacing: tuple[float, float, float]) -> np.ndarray:
    """Axes to the left, to the back and upwards, tilted about the first one."""
    angle = np.deg2rad(degrees)
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.array([[-1, 0, 0], [0, -cosine, -sine], [0, -sine, cosine]])
    matrix = np.eye(4)
    matrix[:3, :3] = turn * spacing
    matrix[:3, 3] = (SMALL[0], 40.5, -17.0)
    return matrix


_STRUCTURES = (
    "adrenal_gland_left adrenal_gland_right aorta bladder celiac_artery colon common_bile_duct duodenum femur_left "
    "femur_right gall_bladder kidney_left kidney_right liver lung_left lung_right pancreas pancreas_body pancreas_head "
    "pancreas_tail pancreatic_duct pancreatic_lesion postcava prostate spleen stomach superior_mesenteric_artery veins"
)
_PANTS_SHAPE = (16, 12, 12)
_LABELS = "https://www.cs.jhu.edu/~zongwei/dataset/PanTSMini_Label.tar.gz"
_COLUMNS = ("PanTS ID", "shape", "spacing", "sex", "age", "tumor?")
_RAS = np.array([[1.5, 0, 0, -12], [0, 1.5, 0, -9], [0, 0, 1.5, 40], [0, 0, 0, 1]])
_FLAGS = {1: 1, 2: 0, 3: "1", 4: 1, 5: None, 6: 0, 9001: 0}


def _pants_structures() -> list[str]:
    """The 28 names in alphabetical order."""
    return _STRUCTURES.split()


def pants() -> Upstream:
    """PanTS (Mini): scans and masks in two archives without a folder around the cases, and a spreadsheet.

    The hub's files and the archive of masks.

    Defects: the tumour flag is a number or text or empty; rows without masks (6) or without scan (9001); an empty mask
    of the prostate (3); masks of pancreas and lesion overlap in part.
    """
    scans, masks = {}, {}
    for number, flag in _FLAGS.items():
        case = f"PanTS_{number:08d}"
        if number <= 1000:
            scans[f"{case}/ct.nii.gz"] = nifti(ct(number, _PANTS_SHAPE), _RAS)
        if number != 6:
            for name in _pants_structures():
                mask = nifti(_mask(name, number, tumour=bool(flag)), _RAS)
                masks[f"{case}/segmentations/{name}.nii.gz"] = mask
            masks[f"{case}/combined_labels.nii.gz"] = nifti(np.zeros(_PANTS_SHAPE, np.uint8), _RAS)
    rows = [
        (f"PanTS_{number:08d}", "(16, 12, 12)", "(1.5, 1.5, 1.5)", "F", 61, flag) for number, flag in _FLAGS.items()
    ]
    return Upstream(
        files={_LABELS: tarred(masks, gz=True)},
        hubs={
            "BodyMaps/PanTSMini": {
                "README.md": b"made up for tests\n",
                "metadata.xlsx": workbook([_COLUMNS, *rows]),
                "PanTSMini_ImageTr_00000001_00001000.tar.gz": tarred(scans, gz=True),
            }
        },
    )


def _mask(name: str, number: int, *, tumour: bool) -> np.ndarray:
    mask = np.zeros(_PANTS_SHAPE, np.uint8)
    if name.startswith("pancrea"):
        lesion = ball(_PANTS_SHAPE, (10, 10, 6), 1.6)
        if name == "pancreatic_lesion":
            mask[lesion] = tumour
        elif name == "pancreas":
            mask[6:11, 9:12, 4:9] = 1  # holds a part of the lesion
    elif not (name == "prostate" and number == 3):
        x, y, z = np.unravel_index(_pants_structures().index(name), (8, 4, 3))
        mask[2 * x : 2 * x + 2, 2 * y : 2 * y + 2, 4 * z : 4 * z + 2 + number % 2] = 1
    return mask


_SYNTHRAD_URL = "https://zenodo.org/records/15373853/files/synthRAD2025_Task1_Train.zip"
_TOP = "synthRAD2025_Task1_Train/Task1"
_PATIENTS = ("1HNA001", "1HNA012", "1HNB034", "1HNC117")
_SYNTHRAD_SHORT = "1HNC120"


def synthrad2025_task1() -> Upstream:
    """SynthRAD2025, task 1: compressed MetaImage triplets in LPS below Task1/<region>/<patient>, and an overview
    folder.

    Four patients of head and neck, one with too few slices, and one of the abdomen.
    """
    files = {f"{_TOP}/HN/overview/{name}_train.png": picture(scene((20, 30), name)) for name in _PATIENTS}
    for number, name in enumerate((*_PATIENTS, _SYNTHRAD_SHORT, "1ABA005")):
        shape = (64, 64, 12) if name == _SYNTHRAD_SHORT else (64, 64, 32 + number)
        # Stored as scanners do, to the left and to the back; one patient lay at an angle.
        place = affine((1.0, 1.0, 3.0), "xy")
        if name == "1HNB034":
            place = _turned(0.1) @ place
        volumes: dict[str, NDArray[Any]] = {
            "mr": mri(number, shape),
            "ct": ct(number, shape),
            "mask": outline(number, shape),
        }
        for role, values in volumes.items():
            files[f"{_TOP}/{name[1:3]}/{name}/{role}.mha"] = metaimage(values[::-1, ::-1], place)
    return Upstream(files={_SYNTHRAD_URL: zipped(files, compress=False)})


def _turned(angle: float) -> NDArray[np.float64]:
    """A turn about the body axis, in radians."""
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turn


_TOTALSEGMENTATOR_FILE = "https://zenodo.org/records/10047263/files/Totalsegmentator_dataset_small_v201.zip"
_SIDES = (
    "adrenal_gland atrial_appendage autochthon brachiocephalic_vein clavicula common_carotid_artery femur "
    "gluteus_maximus gluteus_medius gluteus_minimus hip humerus iliac_artery iliac_vena iliopsoas kidney_cyst kidney "
    "lung_lower_lobe lung_upper_lobe scapula subclavian_artery"
)
_SINGLE = (
    "aorta brachiocephalic_trunk brain colon costal_cartilages duodenum esophagus gallbladder heart "
    "inferior_vena_cava liver lung_middle_lobe_right pancreas portal_vein_and_splenic_vein prostate pulmonary_vein "
    "sacrum skull small_bowel spinal_cord spleen sternum stomach superior_vena_cava thyroid_gland trachea "
    "urinary_bladder"
)
_CELL, _CELLS = 3, (5, 5, 5)
_TOTALSEGMENTATOR_SUBJECTS = (11, 58, 223)


def _totalsegmentator_structures() -> list[str]:
    """The 117 names in alphabetical order."""
    levels = [*(f"C{n}" for n in range(1, 8)), *(f"L{n}" for n in range(1, 6)), "S1", *(f"T{n}" for n in range(1, 13))]
    return sorted(
        [
            *_SINGLE.split(),
            *(f"{name}_{side}" for name in _SIDES.split() for side in ("left", "right")),
            *(f"rib_{side}_{n}" for side in ("left", "right") for n in range(1, 13)),
            *(f"vertebrae_{level}" for level in levels),
        ]
    )


def totalsegmentator() -> Upstream:
    """TotalSegmentator, small release: a folder per subject with a CT and one mask for each of 117 structures.

    ``Totalsegmentator_dataset_small_v201.zip``.

    A structure that is not in a volume has an empty mask; numbers of subjects have gaps; the table has semicolons.
    """
    shape = tuple(_CELL * number for number in _CELLS)
    place = affine((1.5, 1.5, 1.5), "xy")
    files = {}
    for index, number in enumerate(_TOTALSEGMENTATOR_SUBJECTS):
        folder = f"s{number:04d}"
        files[f"{folder}/ct.nii.gz"] = nifti(ct(number, shape), place, describe="made up")
        for cell, name in enumerate(_totalsegmentator_structures()):
            mask = np.zeros(shape, np.uint8)
            if (cell + index) % 4:
                x, y, z = (_CELL * part for part in np.unravel_index(cell, _CELLS))
                mask[x : x + 2, y : y + 2 + index % 2, z : z + 2] = 1
            files[f"{folder}/segmentations/{name}.nii.gz"] = nifti(mask, place)
    rows = [
        {
            "image_id": f"s{number:04d}",
            "age": 60,
            "gender": "f",
            "institute": "A",
            "study_type": "ct body",
            "split": "test" if number == 58 else "train",
        }
        for number in _TOTALSEGMENTATOR_SUBJECTS
    ]
    return Upstream(files={_TOTALSEGMENTATOR_FILE: zipped({"meta.csv": table(rows, ";"), **files})})


_TOTALSEGMENTATOR_V2_URL = "https://zenodo.org/records/10047292/files/Totalsegmentator_dataset_v201.zip"
_TOTALSEGMENTATOR_V2_SUBJECTS = ("s0000", "s0003", "s0024", "s0700", "s1428")
_SLAB = "s0011"


def totalsegmentator_v2() -> Upstream:
    """TotalSegmentator v2: a folder per subject with a CT and masks that synthesis leaves alone; gaps, a thin slab.

    Five subjects and one of eight slices; one volume runs from left to right and from head to feet.
    """
    files = {"meta.csv": b"\xef\xbb\xbfimage_id;age;gender;institute;study_type;split\n"}
    for number, name in enumerate(_TOTALSEGMENTATOR_V2_SUBJECTS):
        values, place = ct(number), affine((1.5, 1.5, 1.5), "xz" if number == 1 else "")
        if number == 1:
            values = values[::-1, :, ::-1]
        files[f"{name}/ct.nii.gz"] = nifti(values, place, describe=f"TotalSegmentator {name}")
        files[f"{name}/segmentations/liver.nii.gz"] = nifti((values > 500).astype("u1"), place)
        files["meta.csv"] += f"{name};{50 + number};m;A;ct thorax;train\n".encode()
    files[f"{_SLAB}/ct.nii.gz"] = nifti(ct(9, (64, 64, 8)), affine((1.5, 1.5, 1.5)))
    return Upstream(files={_TOTALSEGMENTATOR_V2_URL: zipped(files)})


_BUCKET = "https://msd-for-monai.s3-us-west-2.amazonaws.com"
_MIRROR = "Novel-BioMedAI/Medical_Segmentation_Decathlon"
_APPLE_DOUBLE = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + bytes(120)
_PANCREAS = {"training": ("001", "004", "290"), "test": ("002", "181", "391")}
_THIN = "391"


@dataclass(frozen=True)
class _Task:
    """A task of the Medical Segmentation Decathlon whose cases differ only by their numbers.

    Archives have dataset.json, unlabelled cases and leavings of macOS. Defects: headers with a slope and intercept of 0
    (heart), cases without tumour (liver, hepatic vessels, colon) or transition zone (prostate), images of two channels
    (prostate), a label map of floats (colon), numbers that have gaps or whose order as text is another one, a scan with
    too few slices (pancreas).
    """

    archive: str
    case: str
    """Name of a case, with a place for its number."""
    labelled: tuple[int, ...]
    unlabelled: int
    spacing: tuple[float, float, float]
    labels: tuple[str, ...]
    image: Callable[[int], Array]
    label: Callable[[int], Array]
    scaling: tuple[float, float] | None = None

    def upstream(self) -> Upstream:
        """Its archive at both places."""
        place = affine(self.spacing, "xy")
        make = functools.partial(nifti, place=place, describe="made up", scaling=self.scaling)
        cases = {self.case.format(n): (make(self.image(n)), make(self.label(n))) for n in self.labelled}
        return _archive(
            self.archive, cases, {self.case.format(self.unlabelled): make(self.image(self.unlabelled))}, self.labels
        )


def _archive(
    task: str, cases: Mapping[str, tuple[bytes, bytes]], unlabelled: Mapping[str, bytes], labels: tuple[str, ...]
) -> Upstream:
    """An archive of cases (image, label map) and of images alone."""
    first = next(iter(cases))
    files = {f"{task}/{folder}/._{first}.nii.gz": _APPLE_DOUBLE for folder in ("imagesTr", "labelsTr")}
    for case, (image, label) in cases.items():
        files |= {f"{task}/imagesTr/{case}.nii.gz": image, f"{task}/labelsTr/{case}.nii.gz": label}
    files |= {f"{task}/imagesTs/{case}.nii.gz": image for case, image in unlabelled.items()}
    listed = {
        "name": task.partition("_")[2],
        "labels": {str(number): name for number, name in enumerate(("background", *labels))},
        "training": [{"image": f"./imagesTr/{case}.nii.gz", "label": f"./labelsTr/{case}.nii.gz"} for case in cases],
        "test": [f"./imagesTs/{case}.nii.gz" for case in unlabelled],
    }
    archive = tarred(files | {f"{task}/dataset.json": json.dumps(listed).encode()})
    return Upstream(files={f"{_BUCKET}/{task}.tar": archive}, hubs={_MIRROR: {f"{task}.tar": archive}})


def _pancreas() -> Upstream:
    """Three labelled and two unlabelled patients, large enough for volumes to be made of them, and a thin one."""
    numbers = [number for part in _PANCREAS.values() for number in part]
    place, made = affine((0.8, 0.8, 2.5), "x"), {}
    for index, number in enumerate(numbers):
        values = ct(index, (64, 64, 20) if number == _THIN else (64, 64, 32 + index))
        image = nifti(values, place, describe=f"5.0.10 pancreas_{number}")
        made[number] = (image, nifti((values > 500).astype(np.uint8), place))
    cases = {f"pancreas_{number}": made[number] for number in _PANCREAS["training"]}
    unlabelled = {f"pancreas_{number}": made[number][0] for number in _PANCREAS["test"]}
    return _archive("Task07_Pancreas", cases, unlabelled, ("pancreas", "cancer"))


def _scan(number: int) -> Array:
    return ct(number, SMALL)


def _atrium(number: int) -> Array:
    return mri(number, SMALL).astype(np.float32)


def _zones(number: int) -> Array:
    """T2 and ADC."""
    return np.stack([_atrium(number), _atrium(number + 1)], axis=-1)


def _organ(number: int) -> Array:
    return organ_and_tumour(number, tumour=False)


def _both(*without: int) -> Callable[[int], Array]:
    return lambda number: organ_and_tumour(number, tumour=number not in without)


def _branches(number: int) -> Array:
    label = organ_and_tumour(number, tumour=number != 4)
    label[::2][label[::2] == 1] = 0
    return label


def _cancer(number: int) -> Array:
    found = ball(SMALL, (6 + number // 2, 7, 5), 2.5) & (number != 7)
    return found.astype(np.float32 if number == 5 else np.uint8)


_TASKS = {
    "msd_task02_heart": _Task(
        "Task02_Heart",
        "la_{:03d}",
        (3, 4, 7, 14),
        1,
        (1.25, 1.25, 1.37),
        ("left atrium",),
        _atrium,
        _organ,
        scaling=(0, 0),
    ),
    "msd_task03_liver": _Task(
        "Task03_Liver", "liver_{}", (0, 1, 2, 10), 132, (0.8, 0.8, 2.5), ("liver", "cancer"), _scan, _both(1)
    ),
    "msd_task05_prostate": _Task(
        "Task05_Prostate", "prostate_{:02d}", (0, 1, 2, 4), 3, (0.62, 0.62, 3.6), ("PZ", "TZ"), _zones, _both(2)
    ),
    "msd_task08_hepaticvessel": _Task(
        "Task08_HepaticVessel",
        "hepaticvessel_{:03d}",
        (1, 2, 4, 11),
        3,
        (0.9, 0.9, 4.0),
        ("Vessel", "Tumour"),
        _scan,
        _branches,
    ),
    "msd_task09_spleen": _Task(
        "Task09_Spleen", "spleen_{}", (2, 3, 10), 1, (0.8, 0.8, 5.0), ("spleen",), _scan, _organ
    ),
    "msd_task10_colon": _Task(
        "Task10_Colon", "colon_{:03d}", (1, 5, 7, 8), 3, (0.75, 0.75, 5.0), ("cancer",), _scan, _cancer
    ),
}
UPSTREAMS: dict[str, Callable[[], Upstream]] = {
    **{
        maker.__name__: maker
        for maker in (aeropath, ct_org, feta, kits19, panther, pants, synthrad2025_task1, totalsegmentator)
    },
    "totalsegmentator_v2": totalsegmentator_v2,
    "msd_task07_pancreas": _pancreas,
    **{name: task.upstream for name, task in _TASKS.items()},
}
"""Data set → what makes its fixture."""
