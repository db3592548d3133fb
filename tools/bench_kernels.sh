#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Embedding kernels beside the machine's limits and beside FBGEMM and torch on the same machine, in turn.
#
#   tools/bench_kernels.sh BINARY PEER_PYTHON [--rounds 3] [--threads 1] [--dims 64,128] [--pooling 1,10] [--csv FILE] [--plot FILE]
#
# BINARY is bench_kernels (cmake --build build --target bench_kernels); PEER_PYTHON a python with torch and fbgemm-gpu-cpu. About 10 minutes on a
# machine that does nothing else meanwhile; tools/bench_kernels.py --help says what is measured and how.
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_kernels.py" "$@"
