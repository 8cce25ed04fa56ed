#!/usr/bin/env bash
# Resolve the requirements of pyproject.toml, and of envs/*.in for what agents work with, into pinned lists that agree with
# each other, and make the conda files. Run by `make pins`.
set -euo pipefail
cd "$(dirname "$0")/.."
all=$(mktemp)
trap 'rm -f "$all" "$all".*' EXIT
resolve() { # OUT OPTIONS...
  local out=$1
  shift
  .venv/bin/uv pip compile -q --universal --fork-strategy fewest --python-version 3.11 --no-header --no-annotate \
    "$@" -o "$all.new"
  sed -E "/ ; .*sys_platform == '(emscripten|win32)'/d; s/ ;.*//" "$all.new" > "$out" # the workflow runs on Linux
  rm -f "$all.new"
}
resolve "$all" pyproject.toml --all-extras envs/light.in envs/bench.in
resolve envs/light.txt envs/light.in -c "$all"
for extra in run:host score:scorer dev:dev docs:docs; do
  resolve "envs/${extra#*:}.txt" pyproject.toml --extra "${extra%:*}" -c "$all"
done
# An image with torch replaces the plain one, so its list holds the scorer's. Which GPU libraries torch brings depends
# on the machine and is torch's own business: its wheel pins them.
resolve envs/radiology.txt pyproject.toml --extra score --extra radiology -c "$all"
resolve envs/bench.txt pyproject.toml --extra score envs/bench.in -c "$all"
sed -i -E '/^(nvidia|cuda|triton)/d' envs/radiology.txt envs/bench.txt
# What agents work with goes its own way where other lists hold older versions; what it shares with light is the same.
.venv/bin/uv pip compile -q --python-version 3.11 --python-platform x86_64-manylinux_2_36 --no-header --no-annotate \
  envs/research.in -c envs/light.txt -o "$all.new"
sed -E '/^(nvidia-(cu|nv|nccl)|cuda|triton)/d' "$all.new" > envs/research.txt
# Programs of agents have a layer each and agree with nothing. Lists for npm hold hashes and name no registry.
for wanted in envs/agents/*.in; do
  python=$(sed -n 's/^python: "=*\(.*\)"$/\1/p' "config/agents/$(basename "$wanted" .in).yaml" 2>/dev/null || true)
  case $python in "" | 3.[0-9] | 3.10) python=3.11 ;; esac
  .venv/bin/uv pip compile -q --python-version "$python" --python-platform x86_64-manylinux_2_36 --no-header \
    --no-annotate "$wanted" -o "${wanted%.in}.txt"
done
for wanted in envs/agents/*/package.json; do
  (cd "$(dirname "$wanted")" && npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved \
    --no-audit --no-fund)
done
.venv/bin/python tools/make_conda_files.py
