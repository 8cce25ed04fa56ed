"""Inventory of an image, made at the end of its build: what the brief may promise.

Arguments: flavour, digest of the recipe, base, and the packages that the recipe asks for by name. Prints JSON.
"""

import json
import platform
import re
import shutil
import sys
from importlib import metadata

TOOLS = (
    *("7z", "bzip2", "cmake", "curl", "ffmpeg", "file", "g++", "gcc", "git", "git-lfs", "jq", "less", "make", "nvcc"),
    *("pigz", "ps", "rsync", "unzip", "wget", "xz", "zip"),
)
# Worth telling when a base brings them, unasked.
FRAMEWORKS = ("jax", "monai", "nnunetv2", "tensorflow", "torch", "torchaudio", "torchvision")


def normal(name):
    """A package's name as the index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def cuda(packages):
    """Version of the CUDA libraries that PyTorch or the base brings, or None."""
    try:
        import torch

        return torch.version.cuda
    except ImportError:
        return packages.get("nvidia-cuda-runtime")


def inventory(flavour, recipe, base, *named):
    """What is installed here, as the record holds it."""
    found = reversed(list(metadata.distributions()))  # what is first on the path is imported, and comes last here
    packages = {normal(each.metadata["Name"]): each.version for each in found}
    return {
        "flavour": flavour,
        "recipe": recipe,
        "base": base,
        "system": platform.freedesktop_os_release()["PRETTY_NAME"],
        "python": platform.python_version(),
        "cuda": cuda(packages),
        "named": sorted(set(named).union(FRAMEWORKS) & set(packages)),
        "packages": dict(sorted(packages.items())),
        "tools": [tool for tool in TOOLS if shutil.which(tool)],
    }


if __name__ == "__main__":
    print(json.dumps(inventory(*sys.argv[1:]), indent=1))
