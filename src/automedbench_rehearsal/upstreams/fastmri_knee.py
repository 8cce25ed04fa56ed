"""fastMRI's single-coil validation files as a person has them after unpacking: HDF5, one volume each.

Defects of upstream that are here: k-space of differing widths, a readout with twice the field of view, two volumes of
one patient, several contrasts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from automedbench.base.files import sha256_bytes
from automedbench_rehearsal.making.files import generator, hdf5
from automedbench_rehearsal.making.pictures import scene
from automedbench_rehearsal.upstreams import Upstream

# Number in the file name → width of k-space, patient, acquisition.
_FILES = {
    1000000: (37, "a", "CORPDFS_FBK"),
    1000007: (37, "b", "CORPD_FBK"),
    1000017: (36, "c", "CORPD_FBK"),
    1000026: (36, "c", "CORPDFS_FBK"),
    1000031: (40, "d", "CORPD_FBK"),
    1000033: (37, "e", "CORPDFS_FBK"),
}
_SLICES, _ROWS, _CROP = 3, 64, 32


def upstream() -> Upstream:
    """Six volumes of five patients."""
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
    image = np.zeros((_SLICES, _ROWS, width), dtype=np.complex128)
    for index in range(_SLICES):
        image[index, _ROWS // 4 : 3 * _ROWS // 4] = scene((_ROWS // 2, width), number, index) * 2e-6
    image += 4e-6 * (chance.normal(size=image.shape) + 1j * chance.normal(size=image.shape))
    return np.asarray(image * np.exp(0.4j))
