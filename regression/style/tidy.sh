#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tidy.sh ROOT BUILD CLANG_TIDY [CHECKS] - the checks of .clang-tidy find no issue in src/ (on all
# cores). CHECKS: checks to omit, for example "-clang-analyzer-*".
set -eu
root=$1 build=$2 tool=$3 checks=${4:-}
[ -x "$tool" ] || { echo "skipped: no clang-tidy here (tools/setup.sh --tests installs it)"; exit 77; }
"$tool" --version | grep -q 'version 14\.' || { echo "skipped: other versions than clang-tidy 14 find other things"; exit 77; }
[ -f "$build/compile_commands.json" ] || { echo "no compile_commands.json in $build"; exit 1; }
# One file a call: with several, version 14 reports every va_list as uninitialised, except in the
# first file.
# Clang needs only omp.h from gcc's headers (its own comes with libomp), without an attribute that
# version 14 lacks.
headers=$(mktemp -d)
trap 'rm -rf "$headers"' EXIT
sed 's/__malloc__ (omp_free)/__malloc__/' "$(gcc -print-file-name=include)/omp.h" > "$headers/omp.h"
cd "$root"
find src -name '*.c' -print0 | xargs -0 -n 1 -P "$(env -u OMP_NUM_THREADS nproc)" "$tool" --quiet -p "$build" --checks="$checks" --extra-arg=-Wno-unknown-warning-option --extra-arg="-idirafter$headers" 2> /dev/null
