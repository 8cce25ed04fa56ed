#!/usr/bin/env bash
# `make TARGET` (test or test-all), and the few tests that failed once more, alone. There are more workers than cores,
# so that tests which wait for containers and jobs share the machine: a time limit missed there is no fault of the code,
# a second failure alone is. Pytest's summary is the end: make's own last line is left out, the exit code stays.
#
#   make_tests.sh TARGET     run in the repository, whose .venv is set up
set -uo pipefail
readonly TARGET=$1 MOST=10
readonly FAILED=.pytest_cache/v/cache/lastfailed
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

failed_tests() { sed -nE 's/^  "(.*)": true,?$/\1/p' "$FAILED" 2>/dev/null | sort; }

rm -f "$FAILED"
# Only pytest's exit code 1 says that tests failed and nothing else did.
make "$TARGET" 2>&1 |
  sed -uE -e "/^make: \*\*\* \[Makefile:[0-9]+: $TARGET\] Error 1\$/w $scratch/tests-failed" \
    -e '/^make(\[[0-9]+\])?: \*\*\* /d' && exit
code=$?
failed_tests >"$scratch/first"
[ -s "$scratch/tests-failed" ] && [ -s "$scratch/first" ] && [ "$(wc -l <"$scratch/first")" -le $MOST ] || exit "$code"

echo "once more, alone: $(wc -l <"$scratch/first") that failed ..."
env -u AMB_RECORD .venv/bin/python -m pytest -n 0 --last-failed --last-failed-no-failures none >"$scratch/output" 2>&1
code=$?
failed_tests | comm -23 "$scratch/first" - | sed 's/^/passed only alone: /'
cat "$scratch/output"
exit "$code"
