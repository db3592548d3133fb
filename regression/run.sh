#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets up, builds and runs all tests: regression/run.sh [CTEST_ARGUMENT...]
#
#   regression/run.sh                 the tests for every change: all except the labels
#                                     "instrumented" and "long"
#   regression/run.sh -L quick        a check that takes a minute
#   regression/run.sh -L instrumented -LE long   builds with sanitizers, with fuzzers, and on the
#                                                stand-in for CUDA
#   regression/run.sh -L long         the full matrix
#   regression/run.sh -R golden/      tests by name; any other argument of ctest works too
#   regression/run.sh -N              list them
#
# Tests that this machine cannot run (no root for Slurm, PyPI not reachable) are skipped. The last
# lines say why.
# regression/README.md explains more.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  -h | --help)
    sed -n '3,/^set -e/{/^set -e/!s/^# \{0,1\}//p}' regression/run.sh
    exit 0
    ;;
esac
tools/setup.sh --tests
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

# One more test than cores, because jobs of several ranks wait half of their time.
label=(-LE "long|instrumented")
for argument in "$@"; do
  case $argument in
    -L | --label-regex | -LE | --label-exclude) label=() ;;
    -R | --tests-regex) label=(-LE long) ;;
  esac
done
status=0
rm -f build/tests.xml
ctest --test-dir build --output-on-failure --parallel "$(($(env -u OMP_NUM_THREADS nproc) + 1))" --output-junit "$PWD/build/tests.xml" "${label[@]}" "$@" || status=$?
if [ -f build/tests.xml ]; then regression/harness/why_skipped.py build/tests.xml; fi
exit $status
