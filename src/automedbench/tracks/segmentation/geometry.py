"""Geometry of a submitted volume: does it lie on the grid of its case?"""

from __future__ import annotations

from typing import Any

import numpy as np

from automedbench.base.errors import InvalidSubmission
from automedbench.base.records import CaseEntry, Problem
from automedbench.base.untrusted.nifti import VolumeHeader

AFFINE_TOLERANCE = 1e-3
# A volume of another shape is still read to its end, to see whether it is whole, unless it is far larger than asked.
MAX_OVERSIZE = 4


def geometry_of(header: VolumeHeader) -> dict[str, Any]:
    """What the manifest says about a case: shape and voxel sizes (mm) along the file's axes, and the affine."""
    return {
        "shape": list(header.shape),
        "spacing": [float(size) for size in header.zooms],
        "affine": header.affine.tolist(),
    }


def shape_problem(header: VolumeHeader, case: CaseEntry) -> Problem | None:
    """The problem of a volume of another shape; raises InvalidSubmission when it is too large to be read at all."""
    expected = tuple(case.geometry["shape"])
    if header.shape == expected:
        return None
    message = f"has shape {header.shape}, the case has {expected}"
    if header.n_voxels > MAX_OVERSIZE * int(np.prod(expected)):
        raise InvalidSubmission("shape_mismatch", f"{message}: too large to be read")
    return Problem(code="shape_mismatch", message=f"{message}; every target of the case scores 0")


def affine_remark(header: VolumeHeader, case: CaseEntry) -> Problem | None:
    """A remark when the volume is placed elsewhere than its case. Scores compare voxel by voxel all the same."""
    expected = np.asarray(case.geometry["affine"], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.abs(header.affine - expected)
    if (difference <= AFFINE_TOLERANCE).all():  # false for NaN
        return None
    here, there = orientation(header.affine), orientation(expected)
    what = f"orientation {here}, the case has {there}" if here != there else "another affine than the case"
    return Problem(code="affine_mismatch", message=f"has {what}; scored voxel by voxel, without resampling")


def orientation(affine: Any) -> str:
    """Where the axes of a volume point, for example RAS; '?' for an axis that points nowhere."""
    import nibabel

    name_axes: Any = nibabel.orientations.aff2axcodes
    try:
        with np.errstate(all="ignore"):
            codes = name_axes(np.asarray(affine, dtype=np.float64))
    except (ValueError, np.linalg.LinAlgError):
        return "?"
    return "".join("?" if code is None else code for code in codes)
