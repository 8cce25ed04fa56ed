"""Build one container image from a definition file and a pinned list of packages."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

from automedbench.base.console import run_script
from automedbench.sandbox.container.image import DEBIAN_12_PYTHON, ImageRecipe, build_image, download_wheels


def parse_options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", type=Path, required=True, help="containers/agent.def or containers/scorer.def")
    parser.add_argument("--requirements", type=Path, required=True, help="pinned list, for example envs/agent.txt")
    parser.add_argument(
        "--base", required=True, help="docker://debian:12-slim, a SIF file, or a root file system folder"
    )
    parser.add_argument("--wheels", type=Path, required=True, help="folder for the downloaded wheels of this list")
    parser.add_argument("--out", type=Path, required=True, help="the image to write, for example images/agent.sif")
    parser.add_argument("--python-version", default=DEBIAN_12_PYTHON, help="Python of the base (default: %(default)s)")
    parser.add_argument(
        "--scratch", type=Path, help="node-local folder for the build (default: $APPTAINER_TMPDIR or /tmp)"
    )
    parser.add_argument("--download-only", action="store_true", help="fill --wheels and stop (where there is network)")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    options = parse_options(argv)
    recipe = ImageRecipe(
        definition=options.definition,
        requirements=options.requirements,
        base=options.base,
        wheels=options.wheels,
        python_version=options.python_version,
        machine=platform.machine(),
    )
    if options.download_only:
        download_wheels(recipe)
    else:
        build_image(recipe, options.out, scratch=options.scratch)


if __name__ == "__main__":
    run_script(main)
