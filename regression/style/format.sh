#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# format.sh ROOT CLANG_FORMAT - every C and CUDA source has the format of .clang-format.
set -eu
root=$1 tool=$2
[ -x "$tool" ] || { echo "skipped: no clang-format here (tools/setup.sh --tests installs it)"; exit 77; }
"$tool" --version | grep -q 'version 14\.' || { echo "skipped: other versions than clang-format 14 lay out differently"; exit 77; }
cd "$root"
find src gpu regression \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0 "$tool" --dry-run -Werror
