"""Slices: fixtures of enhancement, grey pictures and stacks of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from automedbench.base.files import sha256_bytes
from automedbench_rehearsal.making.files import generator, hdf5, tarred, zipped
from automedbench_rehearsal.making.pictures import picture, scene
from automedbench_rehearsal.making.scans import IMPLICIT, JPEG2000, UID, body, dicom, nifti, round_field
from automedbench_rehearsal.upstreams import Upstream

_ARCHIVE = "ASNR-MICCAI-BraTS2023-GLI-Challenge-TrainingData"
_SCANS = ("00000-000", "00002-000", "00005-000", "00005-001", "00006-000")
_BRATS_LPS = np.array([[-1.0, 0, 0, 0], [0, -1.0, 0, 239], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])


def brats2023_gli() -> Upstream:
    """BraTS 2023's training archive of gliomas: a folder per patient and time point, five volumes in each.

    Five scans of four patients.

    Defects of upstream that are here: a patient with two time points, brains without skull in volumes of 0, whole
    slices of 0 at both ends, planes of 240 voxels (here 120) that are no power of two, axes that run to the left and
    back.
    """
    content = {}
    for scan in _SCANS:
        place = f"{_ARCHIVE}/BraTS-GLI-{scan}/BraTS-GLI-{scan}-"
        content[f"{place}t1c.nii.gz"] = nifti(_brain(scan), _BRATS_LPS)
        for other in ("t1n", "t2f", "t2w", "seg"):
            content[f"{place}{other}.nii.gz"] = nifti(np.zeros((4, 4, 4), np.int16), _BRATS_LPS)
    url = "https://repo-prod.prod.sagebase.org/repo/v1/entity/syn51514132/file"
    return Upstream(files={url: zipped(content, compress=False)})


def _brain(scan: str) -> NDArray[np.int16]:
    """(x, y, z): an ellipsoid of tissue with a bright rim somewhere, 0 around it and in the first and last slices."""
    chance = generator("brats", scan)
    shape = (120, 120, 10)
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    values = 400 + 60 * np.sin(9 * x + chance.uniform(0, 6)) * np.cos(7 * y)
    distance = np.sqrt((x - chance.uniform(-0.3, 0.3)) ** 2 + (y - chance.uniform(-0.3, 0.3)) ** 2)
    values = np.where(np.abs(distance - 0.2) < 0.05, 900, values)
    values = np.rint(values / 4) * 4
    brain = (x / 0.6) ** 2 + (y / 0.75) ** 2 + (z / 0.9) ** 2 < 1
    return np.where(brain & (np.abs(z) < 0.8), values, 0).astype(np.int16)


_BOX = "https://nihcc.box.com/shared/static/"
# Archive → series → numbers of its slices.
_ARCHIVES = {
    "sp5y2k799v4x1x77f7w1aqp26uyfq7qz.zip": {
        "000001_01_01": (103, 106),
        "000001_02_01": (8, 10),
        "000002_01_01": (103, 105),
    },
    "l9e1ys5e48qq8s409ua3uv6uwuko0y5c.zip": {"000080_01_01": (1, 3), "000099_03_02": (55, 57)},
    "48jotosvbrw0rlke4u88tzadmabcp72r.zip": {"000149_01_01": (103, 105), "000160_01_01": (103, 105)},
}


def deeplesion() -> Upstream:
    """DeepLesion's first three archives: PNG of 16 bits in a folder per series.

    Six patients, five of whom the card takes.

    Defects of upstream that are here: slices of one name in all folders, several studies and series of a patient, a
    slice that is not square, values below -1024 HU, and a patient whom the card leaves out.
    """
    files = {}
    for archive, series in _ARCHIVES.items():
        content = {
            f"Images_png/{name}/{number:03d}.png": _slice(name, number)
            for name, (first, last) in series.items()
            for number in range(first, last)
        }
        files[_BOX + archive] = zipped(content)
    return Upstream(files=files)


def _slice(series: str, number: int) -> bytes:
    shape = (48, 44, 3) if series == "000099_03_02" else (48, 48, 3)
    hu = round_field(body(shape, series, number), -3024)[:, :, 1].T
    return picture((hu.astype(np.int32) + 32768).astype(np.uint16))


# Number in the file name → width of k-space, patient, acquisition.
_FILES = {
    1000000: (37, "a", "CORPDFS_FBK"),
    1000007: (37, "b", "CORPD_FBK"),
    1000017: (36, "c", "CORPD_FBK"),
    1000026: (36, "c", "CORPDFS_FBK"),
    1000031: (40, "d", "CORPD_FBK"),
    1000033: (37, "e", "CORPDFS_FBK"),
}
_FASTMRI_SLICES, _ROWS, _CROP = 3, 64, 32


def fastmri_knee() -> Upstream:
    """fastMRI's single-coil validation files as a person has them after unpacking: HDF5, one volume each.

    Six volumes of five patients.

    Defects of upstream that are here: k-space of differing widths, a readout with twice the field of view, two volumes
    of one patient, several contrasts.
    """
    return Upstream(
        by_hand={f"singlecoil_val/file{number}.h5": _file(number, *what) for number, what in _FILES.items()}
    )


def _file(number: int, width: int, patient: str, acquisition: str) -> bytes:
    image = _knee(number, width)
    kspace = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image, axes=(1, 2)), norm="ortho"), axes=(1, 2))
    kspace = kspace.astype(np.complex64)
    middle = np.abs(image[:, (_ROWS - _CROP) // 2 : (_ROWS + _CROP) // 2, (width - _CROP) // 2 :][..., :_CROP])
    return hdf5(
        {"kspace": kspace} | dict.fromkeys(("reconstruction_esc", "reconstruction_rss"), middle.astype(np.float32)),
        acquisition=acquisition,
        max=float(middle.max()),
        norm=float(np.linalg.norm(middle)),
        patient_id=sha256_bytes(patient.encode()),
    )


def _knee(number: int, width: int) -> NDArray[np.complex128]:
    """Blobs in the middle half of the rows, with noise and a phase, (slices, rows, columns)."""
    chance = generator("knee", number)
    image = np.zeros((_FASTMRI_SLICES, _ROWS, width), dtype=np.complex128)
    for index in range(_FASTMRI_SLICES):
        image[index, _ROWS // 4 : 3 * _ROWS // 4] = scene((_ROWS // 2, width), number, index) * 2e-6
    image += 4e-6 * (chance.normal(size=image.shape) + 1j * chance.normal(size=image.shape))
    return np.asarray(image * np.exp(0.4j))


_IXI_T1_VOLUMES = {
    "IXI002-Guys-0828": (64, 64, 11),
    "IXI012-HH-1211": (64, 64, 10),
    "IXI035-IOP-0873": (60, 64, 11),
    "IXI046-Guys-0824": (64, 64, 9),
    "IXI652-Guys-1116": (64, 64, 11),
}


def ixi_t1() -> Upstream:
    """IXI's archive of T1 volumes: NIfTI files side by side, without a folder.

    Five volumes of five subjects from three hospitals.

    Defects of upstream that are here: planes stored sagittal first with an oblique affine, hospitals whose volumes
    differ in shape, free text in the header.
    """
    content = {
        f"{name}-T1.nii.gz": nifti(_head(shape, name), _affine(shape), describe=f"{name} SIEMENS")
        for name, shape in _IXI_T1_VOLUMES.items()
    }
    return Upstream(files={"http://biomedic.doc.ic.ac.uk/brain-development/downloads/IXI/IXI-T1.tar": tarred(content)})


def _affine(shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """Stored axes run to the back, up and to the right, tilted by three degrees."""
    tilt = np.deg2rad(3)
    axes = np.array([[0, 0, 1.2], [-0.94, 0, 0], [0, 0.94, 0]])
    turn = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    affine = np.eye(4)
    affine[:3, :3] = turn @ axes
    affine[:3, 3] = -affine[:3, :3] @ (np.array(shape) - 1) / 2
    return affine


def _head(shape: tuple[int, int, int], name: str) -> NDArray[np.int16]:
    """(back, up, right): skin, a brain with folds, darker ventricles, and noise everywhere."""
    chance = generator("ixi", name)
    back, up, right = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    radius = np.sqrt((back / 0.9) ** 2 + (up / 0.95) ** 2 + (right / 0.95) ** 2)
    values = np.where(radius < 1, 250.0, 0.0)
    folds = 500 + 120 * np.sin(14 * back + chance.uniform(0, 6)) * np.cos(11 * up + 3 * right)
    values = np.where(radius < 0.85, folds, values)
    values = np.where((back + 0.1) ** 2 + (up - 0.1) ** 2 < 0.03, 120, values)
    return np.rint(np.abs(values + chance.normal(0, 10, shape))).astype(np.int16)


_HUB = "YutingHe-list/SimNICT"
_SAMPLE = "SimNICT-AMOS-Sample"
_SIMNICT_VOLUMES = {"train/1": (64, 56, 9), "train/2": (540, 48, 6), "test/1": (60, 60, 8)}
_NOISE_HU = {"LDCT_Low": 15, "LDCT_High": 60, "SVCT_High": 40}
_SIMNICT_LPS = np.diag([-0.8, -0.8, 5.0, 1.0])


def ldct_simnict() -> Upstream:
    """SimNICT's sample of AMOS: volumes at normal dose and simulated defects of them, by the same number in each
    folder.

    Three volumes, of each what the card takes and some of what it leaves.

    Defects of upstream that are here: numbers start anew in train and test, slices are smaller or larger than 512×512,
    some volumes are stored unsigned with an intercept, ground outside the round field of view lies at -2000 HU.
    """
    files = {"README.md": b"---\nlicense: cc-by-nd-4.0\n---\n", ".gitattributes": b"*.gz filter=lfs\n"}
    for name, shape in _SIMNICT_VOLUMES.items():
        part, number = name.split("/")
        values = round_field(body(shape, name), -2000)
        folder = f"{_SAMPLE}/{part}_nii_files"
        files[f"{folder}/org/{number}.nii.gz"] = _unsigned(values) if name == "test/1" else nifti(values, _SIMNICT_LPS)
        for defect, sigma in _NOISE_HU.items():
            noise = generator("ldct", name, defect).normal(0, sigma, shape)
            noisy = np.where(values > -2000, np.rint(values + noise), values).astype(np.int16)
            files[f"{folder}/{defect}/{number}.nii.gz"] = nifti(noisy, _SIMNICT_LPS)
        files[f"{_SAMPLE}/{part}_png_previews/{number}_preview.png"] = picture(scene((8, 8), name))
    return Upstream(hubs={_HUB: files})


def _unsigned(values: NDArray[np.int16]) -> bytes:
    """The same HU as uint16 with a slope of 1 and an intercept of -2048."""
    return nifti((values.astype(np.int32) + 2048).astype(np.uint16), _SIMNICT_LPS, scaling=(1, -2048))


_API = "https://services.cancerimagingarchive.net/nbia-api/services/v1"
_SIDE, _LIDC_SLICES = 40, 11


def lidc_idri() -> Upstream:
    """LIDC-IDRI as NBIA's interface gives it: a list of series, and a zip of DICOM files for each.

    Six series of the five patients that the card takes, and one of another.

    Defects of upstream that are here: one file of a series cut off, several CT series of a patient, a scout in a
    series, slices at one place twice, slope and intercept that differ from file to file, -2000 outside the field of
    view with PixelPaddingValue 63536, compressed pixels, the readers' XML beside the slices, patients whom the card
    leaves out.
    """
    series = {
        ("LIDC-IDRI-0001", 1): _cut_off(_plain("LIDC-IDRI-0001", 1)),
        ("LIDC-IDRI-0002", 2): _padded("LIDC-IDRI-0002", 2),
        ("LIDC-IDRI-0002", 3): dict(list(_plain("LIDC-IDRI-0002", 3).items())[:4]),
        ("LIDC-IDRI-0003", 4): _twice("LIDC-IDRI-0003", 4),
        ("LIDC-IDRI-0100", 5): _scaled("LIDC-IDRI-0100", 5),
        ("LIDC-IDRI-0149", 6): _compressed("LIDC-IDRI-0149", 6),
        ("LIDC-IDRI-0611", 7): dict(list(_plain("LIDC-IDRI-0611", 7).items())[:2]),
    }
    listed = [
        {
            "SeriesInstanceUID": f"{UID}.{number}",
            "StudyInstanceUID": f"{UID}.{number}.0",
            "Modality": "CT",
            "PatientID": patient,
            "Collection": "LIDC-IDRI",
            "ImageCount": len(files),
        }
        for (patient, number), files in series.items()
    ]
    offered = {f"{_API}/getSeries?Collection=LIDC-IDRI&Modality=CT&format=json": json.dumps(listed).encode()}
    for (_, number), files in series.items():
        beside = {"LICENSE": b"CC BY 3.0\n", f"{number:03d}.xml": b"<LidcReadMessage/>"}
        offered[f"{_API}/getImage?SeriesInstanceUID={UID}.{number}"] = zipped(files | beside)
    return Upstream(files=offered)


def _slices(number: int) -> Iterator[tuple[int, float, NDArray[np.int16]]]:
    """Number from the head down, height in mm, HU (rows, columns) of each slice of a body."""
    volume = body((_SIDE, _SIDE, _LIDC_SLICES), "lidc", number)
    for count in range(_LIDC_SLICES):
        yield count + 1, -2.5 * count, volume[:, :, _LIDC_SLICES - 1 - count].T


def _plain(patient: str, series: int) -> dict[str, bytes]:
    """Signed values with an intercept of -1024."""
    return {
        _name(number): dicom(hu + np.int16(1024), patient=patient, series=series, number=number, place=place)
        for number, place, hu in _slices(series)
    }


def _cut_off(files: dict[str, bytes]) -> dict[str, bytes]:
    name = _name(3)
    return files | {name: files[name][: len(files[name]) // 3]}


def _padded(patient: str, series: int) -> dict[str, bytes]:
    """HU as they are stored, -2000 outside the field of view, announced by the unsigned reading of -2000."""
    made = {}
    for number, place, hu in _slices(series):
        stored = round_field(hu[..., None], -2000)[..., 0]
        made[_name(number)] = dicom(
            stored, patient=patient, series=series, number=number, place=place, intercept=0, padding=63536
        )
    return made


def _twice(patient: str, series: int) -> dict[str, bytes]:
    """The sixth slice twice, under two numbers, and a scout."""
    made = _plain(patient, series)
    _, place, hu = list(_slices(series))[5]
    scout, kind = np.zeros((20, 60), np.int16), ["ORIGINAL", "PRIMARY", "LOCALIZER"]
    made[_name(90)] = dicom(hu + np.int16(1030), patient=patient, series=series, number=90, place=place)
    made[_name(91)] = dicom(scout, patient=patient, series=series, number=91, place=place, ImageType=kind)
    return made


def _scaled(patient: str, series: int) -> dict[str, bytes]:
    """Unsigned values whose slope and intercept change from file to file; implicit value representations."""
    made = {}
    for number, place, hu in _slices(series):
        slope, intercept = (2.0, -2048.0) if number % 2 else (0.5, -1500.0)
        made[_name(number)] = dicom(
            np.rint((hu - intercept) / slope).astype(np.uint16),
            patient=patient,
            series=series,
            number=number,
            place=place,
            slope=slope,
            intercept=intercept,
            syntax=IMPLICIT,
        )
    return made


def _compressed(patient: str, series: int) -> dict[str, bytes]:
    """JPEG 2000 without loss."""
    made = {}
    for number, place, hu in _slices(series):
        stored = (hu + 1024).clip(0).astype(np.uint16)
        made[_name(number)] = dicom(stored, patient=patient, series=series, number=number, place=place, syntax=JPEG2000)
    return made


def _name(number: int) -> str:
    return f"1-{number:03d}.dcm"


_IMAGES = (
    "00000001_000",
    "00000001_001",
    "00000002_000",
    "00000003_000",
    "00000003_007",
    "00000011_002",
    "00001335_006",
)
_COLOURED = "00000011_002"


def nih_cxr14() -> Upstream:
    """ChestX-ray14's first archive: PNG files in one folder images/.

    Seven images of five patients.

    Defects of upstream that are here: several images of a patient, a few files stored as RGBA; the archive is offered
    under a name that ends in .gz only.
    """
    content = {f"images/{name}.png": picture(_chest(name)) for name in _IMAGES}
    url = "https://nihcc.box.com/shared/static/vfk49d74nhbxq3nqjg0900w5nvkorp5c.gz"
    return Upstream(files={url: tarred(content, gz=True)})


def _chest(name: str) -> NDArray[np.uint8]:
    grey = scene((96, 96), "chest", name)
    if name != _COLOURED:
        return grey
    return np.dstack([grey, grey, grey, np.full_like(grey, 255)])


UPSTREAMS = {
    maker.__name__: maker
    for maker in (brats2023_gli, deeplesion, fastmri_knee, ixi_t1, ldct_simnict, lidc_idri, nih_cxr14)
}
"""Data set → what makes its fixture."""
