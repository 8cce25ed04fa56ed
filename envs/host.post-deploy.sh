#!/usr/bin/env bash
# Run by Snakemake once after it made the conda environment: adds the package itself from the clone.
set -euo pipefail
python -m pip install --no-deps --editable "${PWD}"
