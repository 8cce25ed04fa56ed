#!/usr/bin/env bash
# Does this node let agents compute on its GPUs? Ten minutes, no internet, from a built image; run it as the user who will
# run campaigns, on the node (srun --gpus=2 benchmarks/gpu_check.sh), with the repository's environment.
#
#   benchmarks/gpu_check.sh [--image images/research.sif] [--rehearse]
#
# Prints one line per check with figures, and a last line; exits with 1 when a check failed. --rehearse: no GPU is used,
# harmless devices stand for cards and the processor computes; what needs a card is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
[[ -x $python ]] || python=python3
exec timeout --kill-after=20 600 "$python" benchmarks/gpu_check.py "$@"
