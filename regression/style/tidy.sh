#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tidy.sh ROOT BUILD CLANG_TIDY [CHECKS] - the checks of .clang-tidy find nothing in src/ (on all cores). CHECKS: those to leave
# out, for example "-clang-analyzer-*".
set -eu
root=$1 build=$2 tool=$3 checks=${4:-}
[ -x "$tool" ] || { echo "skipped: no clang-tidy here (tools/setup.sh --tests installs it)"; exit 77; }
"$tool" --version | grep -q 'version 14\.' || { echo "skipped: other versions than clang-tidy 14 find other things"; exit 77; }
[ -f "$build/compile_commands.json" ] || { echo "no compile_commands.json in $build"; exit 1; }
# one file a call: given several, version 14 takes every va_list but the first file's for uninitialised
# of gcc's headers clang needs omp.h alone (its own comes with libomp), without the attribute that version 14 does not know
headers=$(mktemp -d)
trap 'rm -rf "$headers"' EXIT
sed 's/__malloc__ (omp_free)/__malloc__/' "$(gcc -print-file-name=include)/omp.h" > "$headers/omp.h"
cd "$root"
find src -name '*.c' -print0 | xargs -0 -n 1 -P "$(env -u OMP_NUM_THREADS nproc)" "$tool" --quiet -p "$build" --checks="$checks" --extra-arg=-Wno-unknown-warning-option --extra-arg="-idirafter$headers" 2> /dev/null
