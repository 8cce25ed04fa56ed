#!/usr/bin/env bash
# Resolve envs/*.in into pinned lists that agree with each other, and make the conda files. Run by `make pins`.
set -euo pipefail
cd "$(dirname "$0")/.."
all=$(mktemp)
trap 'rm -f "$all" "$all".*' EXIT
resolve() { # OUT OPTIONS...
  local out=$1
  shift
  .venv/bin/uv pip compile -q --universal --fork-strategy fewest --python-version 3.11 --no-header --no-annotate \
    "$@" -o "$all.new"
  sed 's/ ;.*//' "$all.new" > "$out"
  rm -f "$all.new"
}
resolve "$all" envs/host.in envs/agent.in envs/scorer.in envs/dev.in
for name in host agent scorer dev; do
  resolve "envs/$name.txt" "envs/$name.in" -c "$all"
done
.venv/bin/python -m automedbench.pins
