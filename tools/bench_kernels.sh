#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares kernels with the machine's limits, and with FBGEMM and torch on the same machine, in turn. Writes a table of goals, a CSV of all
# samples and a picture.
#
#   tools/bench_kernels.sh BINARY PEER_PYTHON [--dims 64,128] [--pooling 1,10] [--dense none] [--threads 1] [--minutes 15] [--resume] [--csv FILE] [--plot FILE]
#
# BINARY is bench_kernels (build/regression/bench/bench_kernels) or the build folder. PEER_PYTHON is a python with torch and fbgemm-gpu-cpu, or
# none. It takes about 15 minutes on an otherwise idle machine. tools/bench_kernels.py --help describes the measurement.
# To make a peer: python3 -m venv DIR && DIR/bin/pip install torch==2.14.1 torchrec==1.9.2 fbgemm-gpu-cpu==1.9.0
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/bench_kernels.py" "$@"
